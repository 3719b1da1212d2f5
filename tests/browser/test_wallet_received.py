"""What somebody sees of a transfer that the wallet has received, and how it is refunded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chain import COIN, FAUCET, SHOP, Account, Chain, fresh
from tests.browser.looks import Eyes
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, overflow

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def place(wallet: WalletPage, state: str, confirmations: int = 0) -> None:
    """Wait until a transfer is shown to be so far."""
    wallet.view("transfer")
    shown = f'#transfer-state[data-state={state}][data-confirmations="{confirmations}"]'
    wallet.page.wait_for_selector(shown)


def opened(wallet: WalletPage, txid: str, confirmations: int) -> None:
    """Tap the line of a transfer that has so many confirmations in the list of the first page."""
    wallet.navigate("Wallet")
    wallet.page.click(f'#home-transfers a[href="#transfer={txid}"]')
    place(wallet, "confirmed", confirmations)


def test_a_received_payment_is_followed_proved_and_refunded(
    wallet: WalletPage, account: Account, chain: Chain, tmp_path: Path
) -> None:
    buyer, order, page = Account.random(), fresh("received"), wallet.page
    chain.fund(buyer.address, "10")
    txid = chain.pay(buyer, account.address, 3 * COIN, order)

    # While it waits
    page.wait_for_selector("#home-transfers >> text=Arriving")
    page.focus(f'#home-transfers a[href="#transfer={txid}"]')
    page.keyboard.press("Enter")
    place(wallet, "pending")
    assert page.url.endswith(f"/wallet/#transfer={txid}")
    assert page.evaluate("document.activeElement.id") == "transfer-title"
    assert (wallet.tell("#transfer-title"), page.title()) == ("Arriving", "Arriving · SVC")
    assert wallet.tell("#transfer-state") == "Waits for the next block"
    assert not page.is_visible("#transfer-refund")
    assert not page.is_visible("#transfer-proof")

    # In a block
    chain.node.mine(1)
    place(wallet, "confirmed", 1)
    assert (wallet.tell("#transfer-title"), wallet.shown("#transfer-amount")) == ("Received", "+3")
    assert wallet.tell("#transfer-other") == buyer.address
    assert wallet.tell("#transfer-reference") == order
    assert "1 of 12 confirmations" in wallet.tell("#transfer-early")
    eyes = Eyes(page)
    eyes.look("a received transfer")
    assert eyes.found == []
    proof = json.loads(wallet.download("#transfer-proof-file", tmp_path / "proof.json"))
    assert proof["proof"]["transaction"]["payload"]["paymentReference"] == order
    with page.context.expect_page() as explorer:
        page.click("#transfer-txid")
    assert explorer.value.url.endswith(f"/tx/{txid}")
    explorer.value.close()

    # After a reload, and after the wallet was locked
    page.reload()
    wallet.unlock()
    place(wallet, "confirmed", 1)
    assert page.url.endswith(f"/wallet/#transfer={txid}")
    page.click("#lock")
    wallet.view("unlock")
    assert buyer.address not in page.content()
    wallet.unlock()
    place(wallet, "confirmed", 1)

    # The refund, of which the person may take less
    page.focus("#transfer-refund")
    page.keyboard.press("Enter")
    wallet.view("send")
    typed = [page.input_value(f"#send-{name}") for name in ("recipient", "amount", "reference")]
    assert typed == [buyer.address, "3", f"refund:{order}"]
    page.fill("#send-amount", "three")
    page.click("#send-done")
    page.wait_for_selector("#send-amount-error:visible")
    page.go_back()
    place(wallet, "confirmed", 1)
    page.click("#transfer-refund")
    wallet.view("send")
    assert not page.is_visible("#send-amount-error"), "of what was typed before"
    page.fill("#send-amount", "1.5")
    page.click("#send-done")
    wallet.may_sign()
    page.click("#sign")
    wallet.state("pending")
    opened(wallet, txid, 1)
    page.wait_for_selector('#transfer-refunded[data-shown="1.5"]:visible')
    page.click("#transfer-refund")
    wallet.view("send")
    assert page.input_value("#send-amount") == "1.5", "what is left"
    page.go_back()
    place(wallet, "confirmed", 1)
    chain.node.mine(11)
    place(wallet, "confirmed", 12)
    assert not page.is_visible("#transfer-early")
    assert [each["payload"]["amount"] for each in chain.paid(account.address, f"refund:{order}")] == ["150000000"]

    # A reorganisation takes it back
    chain.reorganise(12, drop=True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    place(wallet, "gone")
    assert "no block contains this transfer" in wallet.tell("#transfer-state")
    assert not page.is_visible("#transfer-refund")


def test_other_transfers_that_this_browser_has_not_signed(wallet: WalletPage, account: Account, chain: Chain) -> None:
    page = wallet.page
    funded = chain.transfers(account.address)[0]["txid"]
    to_self = chain.pay(account, account.address, COIN)
    sent = chain.pay(account, SHOP, 2 * COIN, "other-device")
    chain.node.mine(1)
    for txid, title, amount, other in (
        (funded, "Received", "+100", FAUCET.address),
        (to_self, "To yourself", "1", account.address),
        (sent, "Sent", "−2", SHOP),
    ):
        page.wait_for_selector(f'#home-transfers a[href="#transfer={txid}"]')
        page.click(f'#home-transfers a[href="#transfer={txid}"]')
        page.wait_for_selector(f'#transfer-amount[data-shown="{amount}"]')
        assert (wallet.tell("#transfer-title"), wallet.tell("#transfer-other")) == (title, other)
        assert page.is_visible("#transfer-refund") == (txid == funded)
        assert page.is_visible("#transfer-proof") == (txid == sent)
        wallet.navigate("Wallet")

    # Without a reference the refund is named by the transaction
    opened(wallet, funded, 2)
    page.click("#transfer-refund")
    assert page.input_value("#send-reference") == f"refund:{funded[:32]}"

    # What was signed here is a payment, and what nobody knows is in no block
    page.fill("#send-amount", "1")
    page.click("#send-done")
    wallet.may_sign()
    page.click("#sign")
    wallet.state("pending")
    own = wallet.tell("#payment-txid")
    page.evaluate(f"location.hash = 'transfer={own}'")
    wallet.state("pending")
    assert page.url.endswith(f"#payment={own}")
    page.evaluate(f"location.hash = 'transfer={'ab' * 32}'")
    place(wallet, "gone")
    assert wallet.tell("#transfer-title") == "Transfer"
    assert not page.is_visible("#transfer-facts")
    chain.node.mine(1)


@pytest.mark.parametrize("change", ["sender", "amount", "signature", "others"])
def test_a_node_that_invents_what_was_signed(wallet: WalletPage, account: Account, chain: Chain, change: str) -> None:
    """It could lead a refund to somebody else."""
    buyer, page = Account.random(), wallet.page
    chain.fund(buyer.address, "10")
    txid = chain.pay(buyer, account.address, 3 * COIN, fresh("invented"))
    chain.node.mine(1)

    def invent(body: Any) -> None:
        record = body["transaction"]
        if change == "sender":
            record["senderAddress"] = SHOP
        elif change == "amount":
            record["payload"]["amount"] = "900000000"
        elif change == "signature":
            record["signature"] = "00" * 64

    if change == "others":
        txid = chain.pay(buyer, SHOP, COIN)
        chain.node.mine(1)
    wallet.watched.answers("**/rpc/transaction/*", invent)
    page.evaluate(f"location.hash = 'transfer={txid}'")
    wallet.view("transfer")
    assert "Do not trust this node" in wallet.error("unproved")
    assert not page.is_visible("#transfer-body")


def test_a_german_shopkeeper_refunds_on_a_phone(
    watch: Callable[..., Watched], account: Account, chain: Chain, tmp_path: Path
) -> None:
    buyer = Account.random()
    chain.fund(buyer.address, "10")
    txid = chain.pay(buyer, account.address, 3 * COIN, fresh("x" * 40))
    chain.node.mine(1)
    wallet = WalletPage.opened(watch(locale="de-AT", viewport={"width": 320, "height": 700}))
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    wallet.page.click(f'#home-transfers a[href="#transfer={txid}"]')
    place(wallet, "confirmed", 1)
    assert wallet.tell("#transfer-state") == "1 Bestätigung"
    assert wallet.tell("#transfer-refund") == "Erstatten"
    assert "Das Netzwerk kann sie noch zurücknehmen" in wallet.tell("#transfer-early")
    assert overflow(wallet.page) == 0
