"""Whatever a person, a browser or a network does: what is signed is paid once. Counted on the chain."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chain import SHOP, Account, Chain, fresh, payment_uri, wallet_path
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]

BROADCAST = "**/rpc/broadcast"


def lost(route: Any) -> None:
    """The network loses a request."""
    route.abort()


def unpaid(body: Any) -> None:
    """The node denies that anybody has paid."""
    terms = ("reference", "recipient", "amount", "requiredConfirmations")
    body["payment"] = {name: body["payment"][name] for name in terms} | {"state": "unpaid"}


def answer_lost(route: Any) -> None:
    """The node gets it, and the answer is lost."""
    route.fetch()
    route.abort()


def test_a_double_click_a_reload_and_the_way_back(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order, page = fresh("once"), wallet.page
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    page.dblclick("#sign")
    wallet.state("pending")
    txid = wallet.tell("#payment-txid")
    page.reload()
    wallet.unlock()
    wallet.state("pending")
    assert wallet.tell("#payment-txid") == txid
    wallet.navigate("Wallet")
    page.go_back()
    wallet.view("payment")
    page.go_back()
    page.go_forward()
    wallet.go(wallet_path(payment_uri(order)))
    wallet.unlock()
    wallet.state("pending")
    assert wallet.tell("#payment-txid") == txid
    assert [each["txid"] for each in chain.paid(account.address, order)] == [txid]
    assert int(chain.node.account(account.address)["nonce"]) == 1

    # And when it is long settled
    wallet.follow(payment_uri(order))
    wallet.state("confirming")
    assert wallet.tell("#payment-txid") == txid
    assert len(chain.paid(account.address, order)) == 1


def test_two_tabs_sign_at_once(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("tabs")
    tabs = [wallet, WalletPage.opened(wallet.watched)]
    for tab in tabs:
        tab.follow(payment_uri(order))
    for tab in tabs:
        tab.may_sign()
    for tab in tabs:
        tab.page.evaluate("document.getElementById('sign').click()")
    for tab in tabs:
        tab.state("pending")
    assert len({tab.tell("#payment-txid") for tab in tabs}) == 1
    assert len(chain.paid(account.address, order)) == 1


@pytest.mark.parametrize("fate", [lost, answer_lost])
def test_an_answer_that_never_comes(wallet: WalletPage, account: Account, chain: Chain, fate: Any) -> None:
    order, page = fresh("lost"), wallet.page
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, fate)
    page.click("#sign")
    wallet.error("node-unreachable")
    txid = wallet.tell("#payment-txid")
    page.reload()
    wallet.unlock()
    wallet.error("node-unreachable")
    other = WalletPage.opened(wallet.watched, wallet_path(payment_uri(order)))
    other.unlock()
    other.view("payment")
    assert other.tell("#payment-txid") == txid
    other.page.close()

    # Before it has arrived nothing else is signed
    wallet.follow(payment_uri(fresh("next")))
    wallet.error("node-unreachable")
    assert page.is_disabled("#sign")
    wallet.watched.context.unroute(BROADCAST)
    wallet.go(wallet_path(payment_uri(order)))
    wallet.unlock()
    wallet.state("pending")
    wallet.watched.forgive("net::ERR_FAILED")
    assert [each["txid"] for each in chain.paid(account.address, order)] == [txid]
    assert int(chain.node.account(account.address)["nonce"]) == 1


DAY = 24 * 3600 * 1000
REJECTED = {"ok": False, "error": "the pool is full: for this transfer the fee must exceed 23456 base units"}


def refused(route: Any) -> None:
    """The node refuses a transfer."""
    route.fulfill(status=400, content_type="application/json", body=json.dumps(REJECTED))


def test_a_node_that_has_deleted_the_block_of_a_payment(wallet: WalletPage, account: Account, chain: Chain) -> None:
    wallet.follow(payment_uri(fresh("pruned")))
    wallet.may_sign()
    wallet.page.click("#sign")
    wallet.state("pending")
    chain.node.mine(1)
    wallet.state("confirming")
    height = chain.node.status()["height"]
    gone = {"ok": False, "error": "no block holds it", "pruneHeight": height}
    used = {"ok": False, "error": "nonce 0 is already used; the next nonce of the account is 1"}
    wallet.watched.context.route("**/rpc/transaction/*", lambda route: route.fulfill(status=404, json=gone))
    wallet.watched.context.route(BROADCAST, lambda route: route.fulfill(status=400, json=used))
    wallet.watched.answers("**/rpc/status", lambda body: body["status"].update(pruneHeight=height))
    assert f"only blocks from height {height} on" in wallet.error("pruned")
    wallet.state("confirming")
    wallet.watched.forgive("/rpc/broadcast")


def test_another_device_took_the_nonce(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order, page = fresh("stale"), wallet.page
    page.clock.install()
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, lost)
    page.click("#sign")
    wallet.error("node-unreachable")
    txid = wallet.tell("#payment-txid")
    chain.pay(account, SHOP, 1, "other-device")
    chain.node.mine(1)
    wallet.watched.context.unroute(BROADCAST)
    wallet.error("nonce-stale")
    wallet.error("nonce-used")
    assert not page.is_visible("#sign-again")

    # Only the clock of this device ends that, and then the person is asked
    late = {"time": str(int(time.time() * 1000) + DAY + 3_700_000)}
    wallet.watched.answers("**/rpc/status", lambda body: body["status"].update(late))
    page.clock.fast_forward(DAY + 3_700_000)
    wallet.unlock()
    page.click("#sign-again")
    assert "another node" in wallet.error("nonce-ask")
    assert wallet.tell("#payment-txid") == txid
    page.click("#sign-again")
    page.wait_for_selector(f'#payment-txid:not([href="/tx/{txid}"])')
    wallet.watched.forgive("net::ERR_FAILED")
    wallet.watched.forgive("/rpc/broadcast")


def test_a_payment_is_not_signed_again_while_another_one_waits_under_its_nonce(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    first, second, page = fresh("first"), fresh("second"), wallet.page
    wallet.follow(payment_uri(first))
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, refused)
    page.click("#sign")
    wallet.state("refused")
    page.wait_for_selector("#sign-again:visible")
    wallet.watched.context.unroute(BROADCAST)
    wallet.follow(payment_uri(second))
    wallet.may_sign()
    page.click("#sign")
    wallet.state("pending")
    chain.wait_for(account.address, waiting=1)

    # Its own fee would not replace the other, one that has risen would
    wallet.watched.answers("**/rpc/fees", lambda body: body["fees"].update(suggestedFee="90000"))
    wallet.follow(payment_uri(first))
    wallet.state("refused")
    assert "would be replaced" in wallet.error("nonce-waits")
    assert not page.is_visible("#sign-again")
    assert not page.is_visible("#try-again")
    page.evaluate("document.getElementById('sign-again').click()")
    page.wait_for_selector("#payment-error[data-error=fee-raised]")
    page.evaluate("document.getElementById('sign-again').click()")
    page.wait_for_selector("#payment-error[data-error=nonce-waits]")
    wallet.watched.forgive("400")
    assert len(chain.paid(account.address, second)) == 1
    assert chain.paid(account.address, first) == []


def test_a_payment_that_was_refused_but_relayed_is_not_paid_twice(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    """The node relays, answers 400 and names the next nonce truthfully: a typed copy would get that one."""
    order, page = fresh("retyped"), wallet.page

    def type_it(amount: str = "2.5") -> None:
        wallet.navigate("Send")
        for field, text in {"recipient": SHOP, "amount": amount, "reference": order}.items():
            page.fill(f"#send-{field}", text)
        page.click("#send-done")
        wallet.view("review")

    def relayed(route: Any) -> None:
        route.fetch()
        refused(route)

    wallet.watched.context.route(BROADCAST, relayed)
    wallet.watched.answers("**/rpc/commerce/payment/**", unpaid)
    type_it()
    wallet.may_sign()
    page.click("#sign")
    wallet.state("refused")
    chain.wait_for(account.address, waiting=1)
    type_it()
    page.wait_for_selector("#review-error[data-error=already-signed]")
    assert page.text_content("#review-nonce") == "1"
    assert page.is_disabled("#sign")

    # Other terms are another payment
    type_it("1")
    assert "both may be" in wallet.error("unsettled")
    assert page.is_enabled("#sign")
    wallet.watched.forgive("400")
    assert len(chain.paid(account.address, order)) == 1
    assert int(chain.node.account(account.address)["nonce"]) == 1


def test_an_order_that_was_signed_in_the_form_is_not_paid_from_its_link(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order, page = fresh("typed"), wallet.page
    wallet.navigate("Send")
    for field, text in {"recipient": SHOP, "amount": "2.5", "reference": order}.items():
        page.fill(f"#send-{field}", text)
    page.click("#send-done")
    wallet.may_sign()
    wallet.watched.context.route(BROADCAST, refused)
    page.click("#sign")
    wallet.state("refused")
    wallet.follow(payment_uri(order))
    wallet.error("already-signed")
    assert page.is_disabled("#sign")
    wallet.watched.forgive("400")
    assert chain.paid(account.address, order) == []


def test_an_order_that_somebody_else_has_paid(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("taken")
    other = Account.random()
    chain.fund(other.address)
    chain.pay(other, SHOP, 250_000_000, order)
    wallet.follow(payment_uri(order))
    wallet.error("already-paid")
    assert wallet.page.is_disabled("#sign")
    chain.node.mine(1)
    assert chain.paid(account.address, order) == []


def test_a_second_wallet_of_the_same_key_does_not_pay_again(
    wallet: WalletPage, watch: Callable[..., Watched], account: Account, chain: Chain, tmp_path: Path
) -> None:
    order = fresh("device")
    wallet.follow(payment_uri(order))
    wallet.may_sign()
    wallet.page.click("#sign")
    wallet.state("pending")
    other = WalletPage.opened(watch(), wallet_path(payment_uri(order)))
    other.bring(account.keyfile(tmp_path))
    other.error("already-paid")
    assert other.page.is_disabled("#sign")
    assert len(chain.paid(account.address, order)) == 1
