"""States of payments, from every kind of thing there may be to see."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.errors import RuleViolation
from svcd.commerce.payment import (
    MAX_COUNTED,
    MAX_MISMATCHES,
    Mismatch,
    Place,
    Sighting,
    State,
    Terms,
    Tip,
    matches,
    payment_record,
    sighting_of,
    state_of,
)
from tests.chains import ChainBuilder, address_of

BOB = address_of("bob", "svct")
TERMS = Terms("order-1", BOB, 5000, required=3)
TIP = Tip(100, b"\x11" * 32)


def place(height: int, position: int = 0, txid: bytes = b"\x22" * 32) -> Place:
    """Where a transfer stands."""
    return Place(txid, bytes([height]) * 32, height, position, block_time=1_000 * height)


# Which transfer is a payment of the order


def test_a_transfer_that_agrees_in_all_three_is_the_payment() -> None:
    assert matches(TERMS, ChainBuilder().transfer("alice", "bob", 5000, reference="order-1"))


@pytest.mark.parametrize(
    ("recipient", "amount", "reference"),
    [
        ("carol", 5000, "order-1"),
        ("bob", 4999, "order-1"),
        ("bob", 5001, "order-1"),
        ("bob", 5000, "Order-1"),
        ("bob", 5000, "order-10"),
        ("bob", 5000, None),
    ],
)
def test_a_transfer_that_differs_in_one_thing_is_not(recipient: str, amount: int, reference: str | None) -> None:
    assert not matches(TERMS, ChainBuilder().transfer("alice", recipient, amount, reference=reference))


def test_terms_need_an_address() -> None:
    with pytest.raises(RuleViolation):
        Terms("order-1", BOB[:-1], 5000)


# States


def test_nothing_to_see_is_unpaid() -> None:
    assert state_of(TERMS, sighting_of(TERMS, TIP)) is State.UNPAID


def test_a_waiting_transfer_is_pending() -> None:
    assert state_of(TERMS, sighting_of(TERMS, TIP, pending=[b"t" * 32])) is State.PENDING


@pytest.mark.parametrize(
    ("height", "depth", "state"),
    [(100, 1, State.CONFIRMING), (99, 2, State.CONFIRMING), (98, 3, State.CONFIRMED), (1, 100, State.CONFIRMED)],
)
def test_depth_decides_between_confirming_and_confirmed(height: int, depth: int, state: State) -> None:
    seen = sighting_of(TERMS, TIP, places=[place(height)])
    assert (seen.confirmations, state_of(TERMS, seen)) == (depth, state)


def test_one_required_confirmation_is_there_at_once() -> None:
    terms = Terms("order-1", BOB, 5000, required=1)
    assert state_of(terms, sighting_of(terms, TIP, places=[place(100)])) is State.CONFIRMED


# Which of several is reported


def test_the_lowest_place_is_reported_in_whatever_order_they_are_seen() -> None:
    places = [place(60, 1), place(60, 0, b"f" * 32), place(70), place(99)]
    for each in permutations(places):
        seen = sighting_of(TERMS, TIP, places=each, pending=[b"t" * 32])
        assert (seen.place, seen.pending, seen.match_count) == (places[1], None, 5)
        assert seen.txid == b"f" * 32


def test_of_those_that_wait_the_first_that_came_is_reported() -> None:
    seen = sighting_of(TERMS, TIP, pending=[b"b" * 32, b"a" * 32])
    assert (seen.txid, seen.match_count) == (b"b" * 32, 2)


def test_a_transfer_on_the_chain_that_the_mempool_has_not_let_go_yet_counts_once() -> None:
    assert sighting_of(TERMS, TIP, places=[place(100)], pending=[b"\x22" * 32]).match_count == 1


def test_earlier_blocks_do_not_count_where_a_height_is_given() -> None:
    terms = Terms("order-1", BOB, 5000, since_height=70)
    seen = sighting_of(terms, TIP, places=[place(69), place(70)])
    assert (seen.place, seen.match_count) == (place(70), 1)
    assert sighting_of(terms, TIP, places=[place(69)]).match_count == 0
    assert state_of(terms, sighting_of(terms, TIP, places=[place(69)], pending=[b"t" * 32])) is State.PENDING


def test_no_more_than_so_many_are_counted() -> None:
    pending = [number.to_bytes(32, "big") for number in range(MAX_COUNTED + 5)]
    assert sighting_of(TERMS, TIP, pending=pending).match_count == MAX_COUNTED


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 3)), unique=True), st.integers(0, 2), st.integers(0, 100))
def test_state_follows_from_the_first_place_alone(at: list[tuple[int, int]], waiting: int, since: int) -> None:
    terms = Terms("order-1", BOB, 5000, required=10, since_height=since)
    pending = [bytes([number]) * 32 for number in range(0xF0, 0xF0 + waiting)]
    places = [place(height, position, bytes([height, position]) * 16) for height, position in at]
    seen = sighting_of(terms, TIP, places=places, pending=pending)
    counted = sorted(each for each in at if each[0] >= since)
    if counted:
        state = State.CONFIRMED if counted[0][0] <= 91 else State.CONFIRMING
    else:
        state = State.PENDING if waiting else State.UNPAID
    assert state_of(terms, seen) is state
    assert seen.match_count == len(counted) + waiting


# Other amounts


def miss(amount: int, height: int | None = None) -> Mismatch:
    """A transfer of another amount."""
    return Mismatch(amount.to_bytes(32, "big"), amount, height)


def test_of_other_amounts_the_nearest_are_shown() -> None:
    misses = [miss(amount) for amount in [*range(1, 30), 4999, 5001, 5100]]
    shown = [each.amount for each in sighting_of(TERMS, TIP, mismatches=misses).mismatches]
    assert len(shown) == MAX_MISMATCHES
    assert set(shown[:2]) == {4999, 5001}
    assert shown[2:4] == [5100, 29]


@pytest.mark.parametrize("order", list(permutations([miss(4999), miss(4999, 60)])))
def test_another_amount_that_is_on_the_chain_is_shown_there(order: tuple[Mismatch, ...]) -> None:
    assert sighting_of(TERMS, TIP, mismatches=order).mismatches == (miss(4999, 60),)


# What clients read

COMMON: dict[str, Any] = {
    "recipient": BOB,
    "amount": "5000",
    "amountSvc": "0.00005",
    "reference": "order-1",
    "requiredConfirmations": 3,
    "hardFinality": False,
    "settlementModel": "canonical-chain-depth",
    "mismatches": [],
    "tip": {"height": "100", "hash": "11" * 32},
}


def test_record_of_an_unpaid_order() -> None:
    nothing = {"state": "unpaid", "canonical": False, "confirmations": 0, "matchCount": 0}
    assert payment_record(TERMS, sighting_of(TERMS, TIP)) == COMMON | nothing


def test_record_of_a_pending_payment() -> None:
    waiting = {"state": "pending", "canonical": False, "confirmations": 0, "matchCount": 1, "txid": "74" * 32}
    assert payment_record(TERMS, sighting_of(TERMS, TIP, pending=[b"t" * 32])) == COMMON | waiting


@pytest.mark.parametrize(("height", "state"), [(99, "confirming"), (98, "confirmed")])
def test_record_of_a_payment_on_the_chain(height: int, state: str) -> None:
    assert payment_record(TERMS, sighting_of(TERMS, TIP, places=[place(height)])) == COMMON | {
        "state": state,
        "canonical": True,
        "confirmations": 101 - height,
        "matchCount": 1,
        "txid": "22" * 32,
        "blockHash": f"{height:02x}" * 32,
        "blockHeight": str(height),
        "blockTime": str(height * 1000),
    }


def test_record_repeats_from_where_payments_count() -> None:
    terms = Terms("order-1", BOB, 5000, required=3, since_height=0)
    assert payment_record(terms, Sighting(TIP))["sinceHeight"] == "0"


def test_record_of_other_amounts() -> None:
    seen = sighting_of(TERMS, TIP, mismatches=[miss(4999), miss(5003, 99)])
    assert payment_record(TERMS, seen)["mismatches"] == [
        {"txid": f"{4999:064x}", "amount": "4999", "amountSvc": "0.00004999", "confirmations": 0},
        {"txid": f"{5003:064x}", "amount": "5003", "amountSvc": "0.00005003", "confirmations": 2},
    ]
