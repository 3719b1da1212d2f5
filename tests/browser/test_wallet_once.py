"""Whatever a person, a browser or a network does: what is signed is paid once. Counted on the chain."""

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


def test_another_device_took_the_place_and_it_is_signed_anew(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order, page = fresh("stale"), wallet.page
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
    page.click("#sign-again")
    wallet.state("pending")
    assert wallet.tell("#payment-txid") != txid
    wallet.watched.forgive("net::ERR_FAILED")
    wallet.watched.forgive("/rpc/broadcast")
    assert len(chain.paid(account.address, order)) == 1


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
