"""The side index of waiting payments: always what a walk through the whole mempool would find."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.payment import MAX_COUNTED, MAX_MISMATCHES, Mismatch, Terms, matches
from svcd.commerce.waiting import WaitingPayments
from svcd.node.mempool import Entry
from tests.chains import ChainBuilder, address_of

BUILDER = ChainBuilder()
BOB = address_of("bob", "svct")
TERMS = Terms("A", BOB, 5)


def entries(*amounts: int, reference: str | None = "A", recipient: str = "bob", first: int = 1) -> list[Entry]:
    """Waiting transfers that came in this order."""
    return [
        Entry(BUILDER.transfer("alice", recipient, amount, reference=reference), sequence)
        for sequence, amount in enumerate(amounts, first)
    ]


def test_matching_transfers_come_in_order_of_arrival() -> None:
    first, second, third = entries(5, 5, 5)
    waiting = WaitingPayments([third, first])
    waiting.pool_changed([second], [])
    assert waiting.matching(TERMS) == [each.transfer.txid for each in (first, second, third)]


def test_what_was_waiting_before_counts() -> None:
    (entry,) = entries(5)
    assert WaitingPayments([entry]).matching(TERMS) == [entry.transfer.txid]


def test_a_transfer_that_leaves_is_forgotten_whole() -> None:
    first, second = entries(5, 5)
    waiting = WaitingPayments([first, second])
    waiting.pool_changed([], [first])
    assert waiting.matching(TERMS) == [second.transfer.txid]
    waiting.pool_changed([], [second])
    assert len(waiting) == len(waiting._only) == len(waiting._several) == 0


def test_a_transfer_that_leaves_before_it_was_told_to_have_come() -> None:
    first, second = entries(5, 5)
    waiting = WaitingPayments([second])
    waiting.pool_changed([], [first])
    assert waiting.matching(TERMS) == [second.transfer.txid]


def test_a_replacement_takes_the_place_of_another() -> None:
    old, new = entries(5, 5)
    waiting = WaitingPayments([old])
    waiting.pool_changed([new], [old])
    assert waiting.matching(TERMS) == [new.transfer.txid]


def test_other_orders_are_other_orders() -> None:
    waiting = WaitingPayments(
        [*entries(5, reference="a"), *entries(5, recipient="carol", first=2), *entries(5, reference=None, first=3)]
    )
    assert waiting.matching(TERMS) == []
    assert waiting.mismatching(TERMS) == []
    assert len(waiting) == 2


def test_other_amounts() -> None:
    exact, more, less = entries(5, 6, 4)
    waiting = WaitingPayments([exact, more, less])
    assert waiting.mismatching(TERMS) == [Mismatch(more.transfer.txid, 6, None), Mismatch(less.transfer.txid, 4, None)]


def test_a_flood_is_not_shown_whole() -> None:
    exact, others = entries(*[5] * (MAX_COUNTED + 1)), entries(*range(6, 6 + MAX_MISMATCHES + 1), first=1000)
    waiting = WaitingPayments([*exact, *others])
    assert len(waiting.matching(TERMS)) == MAX_COUNTED
    assert len(waiting.mismatching(TERMS)) == MAX_MISMATCHES


POOL = [
    Entry(BUILDER.transfer("alice", recipient, amount, reference=reference), sequence)
    for recipient, amount, reference, sequence in [
        (recipient, amount, reference, next(numbers))
        for numbers in [count(1)]
        for recipient in ("bob", "carol")
        for amount in (5, 5, 6)
        for reference in ("A", "a", None)
    ]
]
CHANGES = st.lists(st.tuples(st.sampled_from(POOL), st.booleans()), max_size=60)


@given(st.lists(st.sampled_from(POOL), unique=True), CHANGES)
def test_the_index_finds_what_a_walk_would_find(first: list[Entry], changes: list[Any]) -> None:
    present = {each.sequence: each for each in first}
    waiting = WaitingPayments(first)
    for entry, comes in changes:
        if comes and entry.sequence not in present:
            waiting.pool_changed([entry], [])
            present[entry.sequence] = entry
        elif not comes:
            waiting.pool_changed([], [entry])
            present.pop(entry.sequence, None)
    for terms in every_terms():
        found = [present[key].transfer for key in sorted(present)]
        assert waiting.matching(terms) == [each.txid for each in found if matches(terms, each)]
        missed = {each.txid for each in found if is_near_miss(terms, each)}
        assert {each.txid for each in waiting.mismatching(terms)} == missed


def every_terms() -> Iterator[Terms]:
    """Every order that somebody in the pool could be paying."""
    for name in ("bob", "carol"):
        for reference in ("A", "a"):
            yield from (Terms(reference, address_of(name, "svct"), amount) for amount in (5, 6, 7))


def is_near_miss(terms: Terms, transfer: Any) -> bool:
    """Whether it pays the order but for the amount."""
    return (transfer.reference, transfer.recipient) == (terms.reference, terms.key) and transfer.amount != terms.amount
