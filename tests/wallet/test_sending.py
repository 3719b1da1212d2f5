"""From a wish to a transfer: what is refused, what is shown, what is warned of."""

from typing import Any

import pytest
from attrs import evolve

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, MAINNET
from svcd.chain.transaction import Draft
from svcd.wallet.answer import Answer
from svcd.wallet.failed import Failed
from svcd.wallet.keyfile import parse
from svcd.wallet.sending import View, Wish, check_clock, check_wallet, draft_of, network_of, review, view_of, warnings
from tests.chains import COIN, address_of
from tests.wallet.terminal import ADDRESS, KEYFILE, OTHER

NOW = 1_793_500_000_000
FEE = DEVNET.minimum_fee
TIP_TIME = DEVNET.slot_time(400)
WISH = Wish(recipient=OTHER, amount=2 * COIN, reference="order-17")
VIEW = View(
    params=DEVNET, minimum_fee=FEE, balance=10 * COIN, nonce=3, pending_nonce=3, tip_time=TIP_TIME, catching_up=False
)
DRAFT = Draft(recipient=OTHER, amount=2 * COIN, fee=FEE, nonce=3, timestamp=NOW, reference="order-17")


def status(**changed: Any) -> Answer:
    named = {"chainId": "SVC-DEVNET", "networkId": 2, "genesisHash": DEVNET.genesis_hash.hex()}
    return Answer("status", {**named, "syncState": "synced", "slot": "400", **changed})


def consensus(**changed: Any) -> Answer:
    return Answer("consensus", {**status().members, "minimumFee": "10000", **changed})


ACCOUNT = Answer("account", {"balance": "1000000000", "nonce": "3", "pendingNonce": "3"})


def test_the_node_s_answers_make_the_view() -> None:
    assert view_of(status(), consensus(), ACCOUNT) == VIEW
    assert view_of(status(syncState="catching-up"), consensus(), ACCOUNT).catching_up


def test_both_networks_are_known() -> None:
    assert network_of(status(), consensus()) is DEVNET
    named = {"chainId": "SVC-MAINNET", "networkId": 1, "genesisHash": MAINNET.genesis_hash.hex()}
    assert network_of(status(**named), consensus(**named)) is MAINNET


def test_another_network_is_named() -> None:
    with pytest.raises(Failed, match="on the network SVC-TEST, which svc does not know; it knows SVC-MAINNET, SVC-DE"):
        network_of(status(chainId="SVC-TEST"), consensus())


@pytest.mark.parametrize("changed", [{"genesisHash": "00" * 32}, {"networkId": 1}])
def test_a_node_that_only_calls_itself_so_is_not_trusted(changed: dict[str, Any]) -> None:
    for first, second in ((status(**changed), consensus()), (status(), consensus(**changed))):
        with pytest.raises(Failed, match="says that it is on SVC-DEVNET, but its genesis is another one"):
            network_of(first, second)


def test_a_wallet_belongs_to_one_network() -> None:
    keyfile = parse(KEYFILE)
    check_wallet(keyfile, DEVNET)
    with pytest.raises(Failed, match="the wallet is of devnet and the node is on mainnet"):
        check_wallet(keyfile, MAINNET)


def test_clocks_may_differ_by_five_minutes() -> None:
    check_clock(NOW, NOW - 300_000)
    check_clock(NOW, NOW + 300_000)
    for node_time in (NOW - 301_000, NOW + 301_000):
        with pytest.raises(Failed, match="301 s apart"):
            check_clock(NOW, node_time)


def test_what_is_not_said_comes_from_the_node() -> None:
    assert draft_of(WISH, VIEW, NOW) == DRAFT
    assert draft_of(WISH, evolve(VIEW, pending_nonce=5), NOW).nonce == 5


def test_what_is_said_counts() -> None:
    draft = draft_of(evolve(WISH, fee=20_000, nonce=4, reference=None), VIEW, NOW)
    assert (draft.fee, draft.nonce, draft.reference) == (20_000, 4, None)


def test_a_fee_below_the_minimum_is_refused() -> None:
    draft_of(evolve(WISH, fee=FEE), VIEW, NOW)
    with pytest.raises(
        Failed, match=r"a fee of 0\.00009999 coins is too small; the network asks for at least 0\.0001 coins"
    ):
        draft_of(evolve(WISH, fee=FEE - 1), VIEW, NOW)


def test_a_used_nonce_is_refused() -> None:
    with pytest.raises(Failed, match="nonce 2 is used already; the next one is 3"):
        draft_of(evolve(WISH, nonce=2), VIEW, NOW)


def test_the_balance_may_be_spent_to_the_last_unit() -> None:
    enough = evolve(VIEW, balance=2 * COIN + FEE)
    draft_of(WISH, enough, NOW)
    with pytest.raises(Failed, match=r"short by 0\.00000001 coins"):
        draft_of(WISH, evolve(enough, balance=enough.balance - 1), NOW)


def test_the_recipient_is_of_the_node_s_network() -> None:
    with pytest.raises(RuleViolation, match="recipient must be an address of this network"):
        draft_of(evolve(WISH, recipient=address_of("alice", "svc")), VIEW, NOW)


def test_the_review_says_what_will_be_signed() -> None:
    assert review(DRAFT, VIEW, ADDRESS) == [
        ("network", "SVC-DEVNET (devnet)"),
        ("from", ADDRESS),
        ("recipient", OTHER),
        ("amount", "2 coins"),
        ("reference", "order-17"),
        ("fee", "0.0001 coins"),
        ("total", "2.0001 coins"),
        ("balance after", "7.9999 coins"),
        ("nonce", "3"),
    ]
    assert ("reference", "none") in review(evolve(DRAFT, reference=None), VIEW, ADDRESS)


def test_a_payment_to_oneself_costs_the_fee() -> None:
    draft = evolve(DRAFT, recipient=ADDRESS)
    assert ("balance after", "9.9999 coins") in review(draft, VIEW, ADDRESS)
    assert warnings(draft, VIEW, ADDRESS) == ["the recipient is the sender: only the fee will be spent"]


@pytest.mark.parametrize(
    ("nonce", "pending", "told"),
    [
        (3, 3, []),
        (4, 4, ["1 earlier transfer in no block yet: the balance does not count that"]),
        (5, 5, ["2 earlier transfers in no block yet: the balance does not count that"]),
        (3, 5, ["a transfer with nonce 3 waits already; this one can only take its place"]),
        (5, 3, ["the nonce after the last one is 3; until it is used this transfer must wait"]),
    ],
)
def test_waiting_transfers_are_warned_of(nonce: int, pending: int, told: list[str]) -> None:
    assert warnings(evolve(DRAFT, nonce=nonce), evolve(VIEW, pending_nonce=pending), ADDRESS) == told


def test_a_node_behind_the_network_is_warned_of() -> None:
    assert warnings(DRAFT, evolve(VIEW, catching_up=True), ADDRESS) == [
        "the node is still catching up: what it says of the balance and the nonce may be old"
    ]
