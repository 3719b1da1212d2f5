"""From a send request to a transfer: errors, the review, and warnings."""

from typing import Any

import pytest
from attrs import evolve

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, MAINNET, NETWORKS
from svcd.chain.transaction import Draft, sign_transfer
from svcd.cli.answers import ResponseObject
from svcd.cli.errors import CommandError
from svcd.cli.wallet.preflight import (
    AccountView,
    SendRequest,
    account_view,
    build_draft,
    check_clock,
    check_wallet,
    network_params,
    review,
    warnings,
)
from svcd.keyfile import parse
from tests.chains import COIN, address_of
from tests.cli.terminal import ADDRESS, KEYFILE, OTHER, SEED

KNOWN = tuple(NETWORKS.values())

NOW = 1_793_500_000_000
FEE = DEVNET.minimum_fee
LEAST = DEVNET.account_minimum
TIP_TIME = DEVNET.slot_time(400)
WISH = SendRequest(recipient=OTHER, amount=2 * COIN, reference="order-17")
VIEW = AccountView(
    params=DEVNET,
    balance=10 * COIN,
    nonce=3,
    pending_nonce=3,
    pending_balance=10 * COIN,
    tip_time=TIP_TIME,
    catching_up=False,
)
DRAFT = Draft(recipient=OTHER, amount=2 * COIN, fee=FEE, nonce=3, timestamp=NOW, reference="order-17")


NAMED = {"chainId": "SVC-DEVNET", "networkId": 2, "genesisHash": DEVNET.genesis_hash.hex()}


def status(**changed: Any) -> ResponseObject:
    return ResponseObject("status", {**NAMED, "syncState": "synced", "slot": "400", **changed})


def consensus(**changed: Any) -> ResponseObject:
    return ResponseObject("consensus", {**NAMED, "minimumFee": "10000", "accountMinimum": "1000000", **changed})


ACCOUNT = ResponseObject(
    "account", {"balance": "1000000000", "nonce": "3", "pendingNonce": "3", "pendingBalance": "1000000000"}
)


def test_the_account_view_is_parsed_from_two_responses() -> None:
    assert account_view(DEVNET, status(), ACCOUNT) == VIEW
    assert account_view(DEVNET, status(syncState="catching-up"), ACCOUNT).catching_up


def test_both_networks_are_known() -> None:
    assert network_params(status(), consensus(), KNOWN) is DEVNET
    named = {"chainId": "SVC-MAINNET", "networkId": 1, "genesisHash": MAINNET.genesis_hash.hex()}
    assert network_params(status(**named), consensus(**named), KNOWN) is MAINNET


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(
        CommandError, match="on the network SVC-TEST, which svc does not know; it knows SVC-MAINNET, SVC-DE"
    ):
        network_params(status(chainId="SVC-TEST"), consensus(), KNOWN)


@pytest.mark.parametrize("changed", [{"genesisHash": "00" * 32}, {"networkId": 1}])
def test_a_node_that_only_calls_itself_so_is_not_trusted(changed: dict[str, Any]) -> None:
    for first, second in ((status(**changed), consensus()), (status(), consensus(**changed))):
        with pytest.raises(CommandError, match="claims to be on SVC-DEVNET, but has another genesis block"):
            network_params(first, second, KNOWN)


def test_a_wallet_is_for_one_network() -> None:
    keyfile = parse(KEYFILE)
    check_wallet(keyfile, DEVNET)
    with pytest.raises(CommandError, match="the wallet is for devnet and the node is on mainnet"):
        check_wallet(keyfile, MAINNET)


def test_clocks_may_differ_by_five_minutes() -> None:
    check_clock(NOW, NOW - 300_000)
    check_clock(NOW, NOW + 300_000)
    for node_time in (NOW - 301_000, NOW + 301_000):
        with pytest.raises(CommandError, match="differ by 301 s"):
            check_clock(NOW, node_time)


def test_missing_values_are_filled_in_from_the_node() -> None:
    assert build_draft(WISH, VIEW, NOW) == DRAFT
    assert build_draft(WISH, evolve(VIEW, pending_nonce=5), NOW).nonce == 5


def test_given_values_are_used() -> None:
    draft = build_draft(evolve(WISH, fee=20_000, nonce=4, reference=None), VIEW, NOW)
    assert (draft.fee, draft.nonce, draft.reference) == (20_000, 4, None)


def test_a_fee_below_the_minimum_is_rejected() -> None:
    build_draft(evolve(WISH, fee=FEE), VIEW, NOW)
    with pytest.raises(
        CommandError, match=r"a fee of 0\.00009999 SVC is too low; the network requires at least 0\.0001 SVC"
    ):
        build_draft(evolve(WISH, fee=FEE - 1), VIEW, NOW)


def test_a_used_nonce_is_rejected() -> None:
    with pytest.raises(CommandError, match="nonce 2 is already used; the next one is 3"):
        build_draft(evolve(WISH, nonce=2), VIEW, NOW)


def having(balance: int) -> AccountView:
    """The view of an account with this balance, for which nothing waits."""
    return evolve(VIEW, balance=balance, pending_balance=balance)


def test_the_balance_may_be_spent_but_for_the_account_minimum() -> None:
    enough = 2 * COIN + FEE + LEAST
    build_draft(WISH, having(enough), NOW)
    with pytest.raises(CommandError) as refused:
        build_draft(WISH, having(enough - 1), NOW)
    assert str(refused.value) == (
        "the balance of 2.01009999 SVC is 0.00000001 SVC too low: the amount is 2 SVC, the fee 0.0001 SVC, and"
        " 0.01 SVC must remain; you can send at most 1.99999999 SVC"
    )
    build_draft(evolve(WISH, amount=2 * COIN - 1), having(enough - 1), NOW)


def test_of_the_account_minimum_nothing_can_be_sent() -> None:
    build_draft(evolve(WISH, amount=1), having(LEAST + FEE + 1), NOW)
    with pytest.raises(CommandError, match=r"and 0\.01 SVC must remain$"):
        build_draft(evolve(WISH, amount=1), having(LEAST + FEE), NOW)


@pytest.mark.parametrize(("received", "least"), [(0, "0.01"), (LEAST - 7, "0.00000007")])
def test_the_recipient_must_have_the_account_minimum_afterwards(received: int, least: str) -> None:
    enough = LEAST - received
    build_draft(evolve(WISH, amount=enough), VIEW, NOW, received=received)
    with pytest.raises(CommandError, match=rf"must have 0\.01 SVC after the transfer: send at least {least} SVC$"):
        build_draft(evolve(WISH, amount=enough - 1), VIEW, NOW, received=received)


def test_pending_amounts_are_not_spent_again() -> None:
    waiting = evolve(VIEW, pending_nonce=4, pending_balance=COIN)
    with pytest.raises(CommandError) as refused:
        build_draft(WISH, waiting, NOW)
    assert str(refused.value) == (
        "the balance of 10 SVC, of which 9 SVC are spent by transfers that wait, is 1.0101 SVC too low:"
        " the amount is 2 SVC, the fee 0.0001 SVC, and 0.01 SVC must remain; you can send at most 0.9899 SVC"
    )
    enough = evolve(waiting, pending_balance=3 * COIN)
    assert ("balance after", "0.9999 SVC") in review(build_draft(WISH, enough, NOW), enough, ADDRESS)


def test_a_replacement_may_spend_what_the_replaced_transfer_does_and_not_what_the_others_do() -> None:
    replaced = sign_transfer(evolve(DRAFT, amount=4 * COIN), seed=SEED, params=DEVNET)
    waiting = evolve(VIEW, pending_nonce=5, pending_balance=COIN, replaced=replaced)
    draft = build_draft(evolve(WISH, nonce=3, amount=4 * COIN), waiting, NOW)
    assert ("balance after", "1 SVC") in review(draft, waiting, ADDRESS)
    assert "the balance after counts what the others spend" in warnings(draft, waiting, ADDRESS)[0]
    most = 5 * COIN - DEVNET.account_minimum
    build_draft(evolve(WISH, nonce=3, amount=most), waiting, NOW)
    with pytest.raises(CommandError, match=r"you can send at most 4\.99 SVC$"):
        build_draft(evolve(WISH, nonce=3, amount=most + 1), waiting, NOW)


def test_nobody_is_told_a_maximum_where_a_transfer_signed_elsewhere_is_replaced() -> None:
    """Only the node knows what the other waiting transfers spend: it judges the replacement."""
    waiting = evolve(VIEW, pending_nonce=5, pending_balance=COIN)
    assert ("balance after", "7.9999 SVC") in review(build_draft(evolve(WISH, nonce=3), waiting, NOW), waiting, ADDRESS)
    with pytest.raises(CommandError, match=r"0\.01 SVC must remain$"):
        build_draft(evolve(WISH, nonce=3, amount=10 * COIN), waiting, NOW)


def test_the_recipient_must_be_on_the_node_s_network() -> None:
    with pytest.raises(RuleViolation, match="recipient must be an address of this network"):
        build_draft(evolve(WISH, recipient=address_of("alice", "svc")), VIEW, NOW)


def test_the_review_shows_what_will_be_signed() -> None:
    assert review(DRAFT, VIEW, ADDRESS) == [
        ("network", "SVC-DEVNET (devnet)"),
        ("from", ADDRESS),
        ("recipient", OTHER),
        ("amount", "2 SVC"),
        ("reference", "order-17"),
        ("fee", "0.0001 SVC"),
        ("total", "2.0001 SVC"),
        ("balance after", "7.9999 SVC"),
        ("nonce", "3"),
    ]
    assert ("reference", "none") in review(evolve(DRAFT, reference=None), VIEW, ADDRESS)


def test_a_payment_to_oneself_costs_the_fee() -> None:
    draft = evolve(DRAFT, recipient=ADDRESS)
    assert ("balance after", "9.9999 SVC") in review(draft, VIEW, ADDRESS)
    assert warnings(draft, VIEW, ADDRESS) == ["the recipient is the sender: only the fee will be spent"]


@pytest.mark.parametrize(
    ("nonce", "pending", "told"),
    [
        (3, 3, []),
        (4, 4, ["1 transfer pending: the balance after counts what they spend"]),
        (5, 5, ["2 transfers pending: the balance after counts what they spend"]),
        (
            3,
            5,
            [
                "a transfer with nonce 3 is pending; this one can only replace it, and the balance after counts no"
                " pending transfer"
            ],
        ),
        (5, 3, ["the next nonce is 3; until that is used, this transfer stays pending"]),
    ],
)
def test_pending_transfers_cause_warnings(nonce: int, pending: int, told: list[str]) -> None:
    assert warnings(evolve(DRAFT, nonce=nonce), evolve(VIEW, pending_nonce=pending), ADDRESS) == told


def test_a_node_behind_the_network_causes_a_warning() -> None:
    assert warnings(DRAFT, evolve(VIEW, catching_up=True), ADDRESS) == [
        "the node is still catching up: its balance and nonce may be out of date"
    ]
