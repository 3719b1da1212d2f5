"""What a wallet says of its browser, of the node, and of payments that will not do."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route

from svcd.chain.params import MAINNET
from tests.browser.between import about
from tests.browser.chain import MAINNET_SHOP, Account, Chain, fresh, payment_uri, wallet_path
from tests.browser.conftest import OTHER_NAME
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]

STATUS = "**/rpc/status"
BROADCAST = "**/rpc/broadcast"
FEES = "**/rpc/fees"
NO_STORAGE = """
Object.defineProperty(window, "indexedDB", { value: { open() { throw new DOMException("no", "SecurityError"); } } });
"""
NO_ED25519 = """
if (isSecureContext) {
  SubtleCrypto.prototype.importKey = () => Promise.reject(new DOMException("no", "NotSupportedError"));
  SubtleCrypto.prototype.generateKey = SubtleCrypto.prototype.importKey;
}
"""
BROKEN = "window.BroadcastChannel = class { constructor() { throw new TypeError('broken for a test'); } };"


@pytest.mark.parametrize(("code", "script"), [("no-storage", NO_STORAGE), ("no-ed25519", NO_ED25519)])
def test_a_browser_that_lacks_something(watched: Watched, code: str, script: str) -> None:
    watched.context.add_init_script(script)
    wallet = WalletPage.opened(watched)
    wallet.view("stopped")
    wallet.error(code)


def test_a_page_that_came_over_plain_http(watch: Callable[..., Watched], chain: Chain) -> None:
    wallet = WalletPage.opened(watch(origin=f"http://{OTHER_NAME}:{chain.node.port}"))
    wallet.view("stopped")
    assert "https" in wallet.error("insecure-origin")
    wallet.watched.forgive("Cross-Origin-Opener-Policy|origin was untrustworthy")


def test_a_fault_of_the_page_itself(watched: Watched) -> None:
    watched.context.add_init_script(BROKEN)
    wallet = WalletPage.opened(watched)
    wallet.view("stopped")
    assert "broken for a test" in wallet.error("internal")
    watched.forgive("broken for a test")


def test_a_node_that_is_down_comes_back(watched: Watched) -> None:
    watched.context.route(STATUS, lambda route: route.abort())
    wallet = WalletPage.opened(watched)
    wallet.view("stopped")
    wallet.error("node-unreachable")
    watched.context.unroute(STATUS)
    wallet.view("welcome")
    watched.forgive("net::ERR_FAILED")


def test_a_node_that_goes_away_and_comes_back(wallet: WalletPage) -> None:
    wallet.page.wait_for_selector("#home-transfers li")
    wallet.watched.context.route("**/rpc/**", lambda route: route.abort())
    wallet.error("node-unreachable")
    wallet.watched.context.unroute("**/rpc/**")
    wallet.page.wait_for_selector("#home-live:not([data-error])", state="attached")
    wallet.watched.context.route("**/rpc/**", lambda route: route.abort())
    wallet.navigate("Receive")
    wallet.error("node-unreachable")
    wallet.page.wait_for_selector("#receive-qr path[d]")
    wallet.watched.context.unroute("**/rpc/**")
    wallet.page.wait_for_selector("#receive-live:not([data-error])", state="attached")
    wallet.watched.forgive("net::ERR_FAILED")


def test_a_history_that_makes_no_sense_is_no_file(wallet: WalletPage) -> None:
    wallet.watched.answers("**/rpc/**/statement**", lambda body: body["entries"][0].update(amount="much"))
    wallet.navigate("History")
    wallet.page.click("#history-export")
    assert "in a way that this wallet does not understand" in wallet.error("node-unreachable")


def test_a_part_of_the_page_that_the_node_no_longer_has(wallet: WalletPage) -> None:
    missing = "A part of this page could not be loaded: reload the page."
    wallet.watched.context.route(re.compile("/static/wallet-history[.]"), lambda route: route.fulfill(status=404))
    wallet.navigate("History")
    assert wallet.error("node-unreachable") == missing
    wallet.watched.forgive("status of 404")


def test_a_part_that_is_missing_for_the_first_wallet(watched: Watched) -> None:
    watched.context.route(re.compile("/static/mnemonic[.]"), lambda route: route.fulfill(status=404))
    wallet = WalletPage.opened(watched)
    wallet.view("welcome")
    wallet.page.click("#create-start")
    assert wallet.error("node-unreachable") == "A part of this page could not be loaded: reload the page."
    watched.forgive("status of 404")


def test_a_node_that_catches_up(wallet: WalletPage) -> None:
    wallet.watched.answers(STATUS, lambda body: body["status"].update(syncState="catching-up"))
    wallet.follow(payment_uri(fresh("syncing")))
    wallet.error("node-syncing")
    assert wallet.page.is_disabled("#sign")
    colour = "getComputedStyle(document.getElementById('sign')).backgroundColor"
    disabled = wallet.page.evaluate(colour)
    wallet.page.hover("#sign", force=True)
    assert wallet.page.evaluate(colour) == disabled, "under the pointer it looks as if it could be pressed"
    wallet.watched.context.unroute(STATUS)
    wallet.may_sign()


def test_a_node_on_another_chain(wallet: WalletPage) -> None:
    wallet.follow(payment_uri(fresh("chain")))
    wallet.may_sign()
    wallet.watched.answers(STATUS, lambda body: body["status"].update(genesisHash="00" * 32))
    wallet.error("wrong-network")
    assert wallet.page.is_disabled("#sign")
    wallet.page.reload()
    wallet.view("stopped")
    wallet.error("wrong-network")


def test_a_clock_that_is_wrong(wallet: WalletPage) -> None:
    early = str(int((time.time() - 600) * 1000))
    wallet.watched.answers(STATUS, lambda body: body["status"].update(time=early))
    wallet.follow(payment_uri(fresh("clock")))
    wallet.error("clock")
    assert wallet.page.is_disabled("#sign")


def test_a_chain_whose_newest_block_is_old(watched: Watched) -> None:
    """On mainnet: the blocks of a devnet are as old as its last command."""
    mainnet = {"chainId": MAINNET.chain_id, "networkId": MAINNET.network_id, "genesisHash": MAINNET.genesis_hash.hex()}
    units = {"balance": "900000000", "pendingBalance": "900000000", "nonce": "0", "pendingNonce": "0"}

    def answer(pattern: str, member: str, record: dict[str, str]) -> None:
        def fulfill(route: Route) -> None:
            said = json.dumps({"ok": True, member: {**about(route.request.url), **record}})
            route.fulfill(content_type="application/json", body=said)

        watched.context.route(pattern, fulfill)

    watched.answers(STATUS, lambda body: body["status"].update(mainnet, slot="1"))
    watched.answers("**/rpc/consensus", lambda body: body["consensus"].update(mainnet))
    answer("**/rpc/balance/*", "account", units)
    answer("**/rpc/commerce/payment/*", "payment", {"state": "unpaid"})
    wallet = WalletPage.opened(watched, wallet_path(payment_uri(fresh("old"), recipient=MAINNET_SHOP)))
    wallet.page.click("#create-start")
    words = wallet.words()
    wallet.page.click("#words-done")
    wallet.answer_quiz(words)
    wallet.choose_password()
    wallet.page.click("#keyfile-done")
    wallet.error("tip-old")
    assert wallet.page.is_disabled("#sign")


def test_too_little_and_to_oneself(wallet: WalletPage, account: Account) -> None:
    wallet.follow(payment_uri(fresh("much"), amount="80071992.54740991"))
    assert "80 071 892.557 509 91 SVC".replace(" ", "\u202f", 4) in wallet.error("insufficient")
    assert wallet.page.is_disabled("#sign")
    wallet.follow(payment_uri(fresh("self"), recipient=account.address))
    wallet.error("self-payment")
    wallet.may_sign()
    assert wallet.shown("#review-after") == "99.9999"


def refusing(route: Any) -> None:
    """The node refuses."""
    sentence = "the pool is full: for this transfer the fee must exceed 23456 base units"
    route.fulfill(status=400, content_type="application/json", body=json.dumps({"ok": False, "error": sentence}))


def test_a_transfer_that_the_node_refuses(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("refused")
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, refusing)
    wallet.page.click("#sign")
    refusal = wallet.error("rejected")
    assert "must exceed 0.000\u202f234\u202f56 SVC" in refusal
    assert wallet.tell("#payment-title") == "Not paid"
    wallet.watched.context.unroute(BROADCAST)
    wallet.page.click("#try-again")
    wallet.state("pending")
    wallet.watched.forgive("400")
    assert len(chain.paid(account.address, order)) == 1


def test_a_payment_is_told_to_be_handed_in_though_the_node_tells_nothing_else(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order = fresh("busy")
    wallet.follow(payment_uri(order))
    wallet.may_sign()

    def passed_on(route: Route) -> None:
        wallet.watched.context.route(STATUS, lambda asked: asked.fulfill(status=429))
        route.continue_()

    wallet.watched.context.route(BROADCAST, passed_on)
    wallet.page.click("#sign")
    wallet.state("pending")
    assert wallet.tell("#payment-state").startswith("Waits for the next block")
    wallet.watched.forgive("429")
    assert len(chain.paid(account.address, order)) == 1


def test_a_fee_that_has_risen_is_shown_before_it_is_signed(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("fee")
    wallet.watched.answers(FEES, lambda body: body["fees"].update(suggestedFee="25000"))
    wallet.follow(payment_uri(order))
    wallet.error("fee-raised")
    wallet.may_sign()
    assert wallet.shown("#review-fee") == "0.00025"
    wallet.watched.context.route(BROADCAST, refusing)
    wallet.page.click("#sign")
    wallet.error("rejected")
    wallet.watched.context.unroute(FEES)
    wallet.watched.answers(FEES, lambda body: body["fees"].update(suggestedFee="40000"))
    wallet.page.click("#try-again")
    wallet.page.wait_for_selector("#payment-advice >> text=the fee is 0.0004 SVC now")
    wallet.watched.context.unroute(BROADCAST)
    wallet.page.click("#sign-again")
    wallet.page.wait_for_selector("#payment-error[data-error=fee-raised]")
    assert wallet.shown("#payment-fee") == "0.0004"
    assert chain.paid(account.address, order) == []
    wallet.page.click("#sign-again")
    wallet.state("pending")
    assert wallet.shown("#payment-fee") == "0.0004"
    wallet.watched.forgive("400")
    assert len(chain.paid(account.address, order)) == 1


def test_a_fee_out_of_all_reason_is_not_paid(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("fee")
    wallet.watched.answers(FEES, lambda body: body["fees"].update(suggestedFee="1000001"))
    wallet.follow(payment_uri(order))
    assert "0.010\u202f000\u202f01 SVC" in wallet.error("fee")
    assert chain.paid(account.address, order) == []


def test_a_transfer_that_has_waited_for_a_day(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("expired")
    wallet.page.clock.install()
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, refusing)
    wallet.page.click("#sign")
    wallet.error("rejected")
    wallet.page.clock.fast_forward(25 * 3600 * 1000)
    wallet.unlock()
    wallet.error("expired")
    wallet.watched.forgive("400")
    assert chain.paid(account.address, order) == []
    assert not wallet.page.is_visible("#payment-print")
    for view, place in (("Wallet", "#home-transfers"), ("History", "#history-refused")):
        wallet.navigate(view)
        assert "Not paid" in wallet.page.wait_for_selector(f"{place} li >> nth=0").inner_text()
    assert wallet.page.locator("#history-own li").count() == 0, "nothing is under way"
