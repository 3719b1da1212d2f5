"""What the wallet offers on a devnet alone: coins, and the command that makes a block."""

from pathlib import Path

import pytest

from tests.browser.chain import Account, Chain
from tests.browser.looks import Eyes
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def test_coins_of_the_faucet_for_somebody_without_any(watched: Watched, chain: Chain, tmp_path: Path) -> None:
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    wallet = WalletPage.opened(watched)
    wallet.bring(Account.random().keyfile(tmp_path))
    page = wallet.page
    page.wait_for_selector("#home-faucet:visible")
    assert wallet.tell("#home-faucet") == "Get 100 SVC from the faucet"
    assert "svc node mine 1" in wallet.tell("#home-mine")
    page.click("#home-mine-copy")
    page.wait_for_selector("#home-mine-copy >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "svc node mine 1"
    eyes = Eyes(page)
    eyes.look("a new wallet on a devnet")
    assert eyes.found == []
    page.focus("#home-faucet")
    page.keyboard.press("Enter")
    page.wait_for_selector("#home-incoming >> text=100 SVC more are arriving")
    chain.node.mine(1)
    page.wait_for_selector('#balance[data-shown="100"]')

    # The faucet's next nonce, and after a lock
    page.click("#lock")
    wallet.unlock()
    page.click("#home-faucet:visible")
    page.wait_for_selector("#home-incoming >> text=100 SVC more are arriving")
    chain.node.mine(1)
    page.wait_for_selector('#balance[data-shown="200"]')


def test_a_faucet_that_is_empty(wallet: WalletPage) -> None:
    page = wallet.page
    page.wait_for_selector("#home-faucet:visible")
    wallet.watched.answers("**/rpc/balance/*", lambda body: body["account"].update(balance="1", pendingBalance="1"))
    wallet.navigate("Send")
    wallet.navigate("Wallet")
    page.wait_for_selector("#home-faucet", state="hidden")
    assert page.is_visible("#home-mine")
