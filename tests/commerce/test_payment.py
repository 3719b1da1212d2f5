"""States of payments, from every combination of matching transfers."""

import json
from itertools import permutations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.payment import (
    MAX_COUNTED,
    MAX_MISMATCHES,
    ChainTip,
    Mismatch,
    PaymentLocation,
    PaymentState,
    PaymentWork,
    observe,
    payment_json,
    payment_record,
    payment_state,
)
from svcd.commerce.payment_request import PaymentTerms
from tests.chains import address_of

BOB = address_of("bob", "svct")
TERMS = PaymentTerms("order-1", BOB, 5000, required=3)
TIP = ChainTip(100, b"\x11" * 32)


def location(height: int, position: int = 0, txid: bytes = b"\x22" * 32) -> PaymentLocation:
    """The location of a transfer."""
    return PaymentLocation(txid, bytes([height]) * 32, height, position, block_time=1_000 * height)


# States


@pytest.mark.parametrize(
    ("height", "depth", "state"),
    [
        (100, 1, PaymentState.CONFIRMING),
        (99, 2, PaymentState.CONFIRMING),
        (98, 3, PaymentState.CONFIRMED),
        (1, 100, PaymentState.CONFIRMED),
    ],
)
def test_depth_decides_between_confirming_and_confirmed(height: int, depth: int, state: PaymentState) -> None:
    seen = observe(TERMS, TIP, locations=[location(height)])
    assert (seen.confirmations, payment_state(TERMS, seen)) == (depth, state)


def test_one_required_confirmation_is_reached_at_once() -> None:
    terms = PaymentTerms("order-1", BOB, 5000, required=1)
    assert payment_state(terms, observe(terms, TIP, locations=[location(100)])) is PaymentState.CONFIRMED


# Several matching transfers


def test_the_lowest_location_is_the_payment_in_whatever_order_they_are_read() -> None:
    locations = [location(60, 1), location(60, 0, b"f" * 32), location(70), location(99)]
    for each in permutations(locations):
        seen = observe(TERMS, TIP, locations=each, pending=[b"t" * 32])
        assert (seen.location, seen.pending, seen.match_count) == (locations[1], None, 5)
        assert seen.txid == b"f" * 32


def test_in_the_mempool_the_first_arrival_is_the_payment() -> None:
    seen = observe(TERMS, TIP, pending=[b"b" * 32, b"a" * 32])
    assert (seen.txid, seen.match_count) == (b"b" * 32, 2)


def test_a_transfer_both_on_the_chain_and_in_the_mempool_counts_once() -> None:
    assert observe(TERMS, TIP, locations=[location(100)], pending=[b"\x22" * 32]).match_count == 1


def test_blocks_below_since_height_do_not_count() -> None:
    terms = PaymentTerms("order-1", BOB, 5000, since_height=70)
    seen = observe(terms, TIP, locations=[location(69), location(70)])
    assert (seen.location, seen.match_count) == (location(70), 1)
    assert observe(terms, TIP, locations=[location(69)]).match_count == 0
    assert (
        payment_state(terms, observe(terms, TIP, locations=[location(69)], pending=[b"t" * 32])) is PaymentState.PENDING
    )


def test_matching_transfers_are_counted_up_to_a_limit() -> None:
    pending = [number.to_bytes(32, "big") for number in range(MAX_COUNTED + 5)]
    assert observe(TERMS, TIP, pending=pending).match_count == MAX_COUNTED


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 3)), unique=True), st.integers(0, 2), st.integers(0, 100))
def test_the_state_follows_from_the_first_location_alone(at: list[tuple[int, int]], waiting: int, since: int) -> None:
    terms = PaymentTerms("order-1", BOB, 5000, required=10, since_height=since)
    pending = [bytes([number]) * 32 for number in range(0xF0, 0xF0 + waiting)]
    locations = [location(height, position, bytes([height, position]) * 16) for height, position in at]
    seen = observe(terms, TIP, locations=locations, pending=pending)
    counted = sorted(each for each in at if each[0] >= since)
    if counted:
        state = PaymentState.CONFIRMED if counted[0][0] <= 91 else PaymentState.CONFIRMING
    else:
        state = PaymentState.PENDING if waiting else PaymentState.UNPAID
    assert payment_state(terms, seen) is state
    assert seen.match_count == min(len(counted) + waiting, MAX_COUNTED)


# Mismatches


def miss(amount: int, height: int | None = None) -> Mismatch:
    """A transfer of another amount."""
    return Mismatch(amount.to_bytes(32, "big"), amount, height)


def test_the_nearest_mismatches_are_shown() -> None:
    misses = [miss(amount) for amount in [*range(1, 30), 4999, 5001, 5100]]
    shown = [each.amount for each in observe(TERMS, TIP, mismatches=misses).mismatches]
    assert len(shown) == MAX_MISMATCHES
    assert set(shown[:2]) == {4999, 5001}
    assert shown[2:4] == [5100, 29]


@pytest.mark.parametrize("order", list(permutations([miss(4999), miss(4999, 60)])))
def test_a_mismatch_on_the_chain_is_shown_with_its_height(order: tuple[Mismatch, ...]) -> None:
    assert observe(TERMS, TIP, mismatches=order).mismatches == (miss(4999, 60),)


# The API's form


@given(
    st.lists(st.builds(location, st.integers(1, 100), st.integers(0, 3)), max_size=2),
    st.lists(st.binary(min_size=32, max_size=32), max_size=2),
    st.lists(
        st.builds(Mismatch, st.binary(min_size=32, max_size=32), st.integers(1, 2**53), st.none() | st.integers(0, 100))
    ),
    st.none() | st.builds(PaymentWork, st.integers(0, 2**80), st.integers(1, 2**40)),
    st.none() | st.integers(0, 100),
    st.booleans(),
)
def test_the_json_is_what_an_encoder_would_write(
    locations: list[PaymentLocation],
    pending: list[bytes],
    mismatches: list[Mismatch],
    work: PaymentWork | None,
    since: int | None,
    synced: bool,
) -> None:
    terms = evolve(TERMS, since_height=since)
    seen = observe(terms, TIP, locations=locations, pending=pending, mismatches=mismatches, synced=synced)
    seen = seen._replace(work=work)
    state = payment_state(terms, seen)
    record = payment_record(terms, seen, state)
    assert json.dumps(record, separators=(",", ":")) == payment_json(terms, seen, state)
    assert (record["state"], record["confirmations"]) == (state.value, seen.confirmations)
    assert ("work" in record, "sinceHeight" in record) == (work is not None, since is not None)
