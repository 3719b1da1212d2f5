"""What the wallet tells somebody to whom something happens: coins that are missing, that arrive, that go back."""

import csv
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from tests.browser.chain import COIN, FAUCET, Account, Chain, checkout_path, fresh
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def come_back(page: Page) -> None:
    """As when somebody comes back to the tab."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_buyer_without_coins_gets_them_pays_and_sees_the_payment_go_back(
    watched: Watched, chain: Chain, tmp_path: Path
) -> None:
    order, buyer = fresh("guided"), Account.random()
    wallet = WalletPage.opened(watched)
    wallet.bring(buyer.keyfile(tmp_path))
    wallet.view("home")

    # From the checkout to the missing coins
    shop = quote("https://shop.example/thanks", safe="")
    wallet.go(checkout_path(order, rest=f"&label=Tea%20%26%20cake&returnUrl={shop}"))
    page = wallet.page
    page.click("text=Use the wallet of this node")
    wallet.unlock()
    wallet.error("insufficient")
    page.click("#review-receive")
    page.wait_for_selector("#receive-missing >> text=2.5001 SVC are missing")
    assert not page.is_visible("#receive-go")

    # They arrive
    chain.pay(FAUCET, buyer.address, 3 * COIN)
    page.wait_for_selector("#receive-arriving >> text=3 SVC are arriving")
    wallet.navigate("Wallet")
    page.wait_for_selector("#home-incoming >> text=3 SVC more are arriving")
    assert "Arriving" in wallet.tell("#home-transfers")
    assert not page.is_visible("#home-empty")
    assert "2.5 SVC" in wallet.tell("#home-open")
    wallet.navigate("Receive")
    page.wait_for_selector("#receive-arriving >> text=3 SVC are arriving")
    chain.node.mine(1)
    page.wait_for_selector("#receive-arriving >> text=3 SVC have arrived")
    page.click("#receive-go")

    # The payment, and the way back to the shop
    wallet.may_sign()
    page.click("#sign")
    wallet.state("pending", wanted=2)
    assert wallet.tell("#payment-label") == "Tea & cake"
    assert wallet.tell("#payment-return") == "Back to shop.example"
    chain.node.mine(2)
    wallet.state("confirmed", confirmations=2)
    assert page.get_attribute("#payment-return", "href") == "https://shop.example/thanks"

    # A reorganisation loses it: the same bytes are handed in again
    txid = wallet.tell("#payment-txid")
    chain.reorganise(2, drop=True)
    assert chain.waiting(buyer.address) == 0
    come_back(page)
    wallet.state("pending")
    assert "handed in the same payment again" in wallet.tell("#payment-fallen")
    assert chain.waiting(buyer.address) == 1
    wallet.navigate("Wallet")
    page.wait_for_selector("#home-transfers >> text=taken back by the network, handed in again")
    chain.node.mine(2)
    page.wait_for_selector("#home-transfers >> text=taken back", state="detached")
    assert "Tea & cake" in wallet.tell("#home-transfers")
    chain.reorganise(2, drop=True)
    page.wait_for_selector("#home-transfers >> text=taken back by the network, handed in again")
    assert [each["txid"] for each in chain.paid(buyer.address, order)] == [txid]

    # The history as a file
    wallet.navigate("History")
    page.wait_for_selector("#history-transfers >> text=Tea & cake")
    rows = list(csv.reader(wallet.download("#history-export", tmp_path / "history.csv").decode().splitlines()))
    assert [row[1:7] for row in rows[1:]] == [
        ["received", "3", "0", "3", FAUCET.address, ""],
        ["sent", "2.5", "0.0001", "-2.5001", rows[2][5], order],
    ]
