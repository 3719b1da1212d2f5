"""Finding payments on the chain and in the mempool; the mempool index finds what a full scan would find."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import Block
from svcd.chain.transition import ChainPoint
from svcd.commerce import payment_lookup
from svcd.commerce.payment import (
    MAX_COUNTED,
    MAX_MISMATCHES,
    ChainTip,
    Mismatch,
    Observation,
    PaymentState,
    payment_state,
)
from svcd.commerce.payment_lookup import MempoolPaymentIndex, PaymentLookup
from svcd.commerce.payment_request import PaymentTerms
from svcd.node.mempool import MempoolEntry
from svcd.store.chain_store import ChainReader
from tests.chains import ChainBuilder, address_of
from tests.rpc.conftest import present
from tests.rpc.node import PARAMS, Node, Settings
from tests.store.statements import trace
from tests.submitting import submitted

TERMS = PaymentTerms("order-1", address_of("bob", "svcd"), 5000, required=2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node on a new chain."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    yield node
    node.close()


def test_transfers_from_before_and_after_the_subscription_are_found(node: Node) -> None:
    first = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    submitted(node.node_context.transaction_pool, first, node.clock)
    payments = PaymentLookup.subscribed(node.node_context.chain_manager, node.node_context.transaction_pool)
    second = node.builder.transfer("carol", "bob", 5000, reference="order-1")
    submitted(node.node_context.transaction_pool, second, node.clock)
    seen = payments.find(TERMS)
    assert (seen.txid, seen.match_count) == (first.txid, 2)

    node.take(node.builder.block(None, transfers=[second]))
    seen = payments.find(TERMS)
    assert (seen.txid, seen.match_count, seen.pending) == (second.txid, 2, None)


def test_a_payment_counts_once_before_the_mempool_has_heard_of_its_block(node: Node) -> None:
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    node.take(node.builder.block(None, transfers=[transfer]))
    seen = PaymentLookup(
        PARAMS, node.node_context.chain_manager.reader, MempoolPaymentIndex([MempoolEntry(transfer, 1)])
    ).find(TERMS)
    assert (seen.match_count, payment_state(TERMS, seen)) == (1, PaymentState.CONFIRMING)


class Meddling(ChainReader):
    """A reader behind whose back the chain grows as soon as it has been asked for its tip."""

    grow: Callable[[], None]

    def tip(self) -> ChainPoint | None:
        """See ChainReader."""
        tip = super().tip()
        self.grow()
        return tip


def test_tip_and_payments_are_of_one_commit(node: Node) -> None:
    blocks = node.builder.chain("genesis: b[1..2]\nb2 pays 5000 from alice to bob for order-1")
    waiting: list[Block] = list(blocks.values())
    node.take(waiting.pop(0))
    reader = Meddling(node.node_context.chain_manager.reader._db)
    reader.grow = lambda: node.take(*[waiting.pop() for _ in waiting[:]])
    payments = PaymentLookup(PARAMS, reader, MempoolPaymentIndex())

    seen = payments.find(TERMS)
    assert seen.tip == ChainTip(1, blocks["b1"].header.hash)
    assert (seen.location, seen.match_count) == (None, 0)

    seen = payments.find(TERMS)
    assert seen.tip == ChainTip(2, blocks["b2"].header.hash)
    assert seen.confirmations == 1


def test_matching_transfers_on_the_chain_are_counted_up_to_the_limit(node: Node) -> None:
    lines = [f"b{block} pays 5000 from alice to bob for order-1" for block in (1, 2) for _ in range(MAX_COUNTED - 2)]
    node.grow("\n".join(["genesis: b[1..2]", *lines]))
    seen = PaymentLookup(PARAMS, node.node_context.chain_manager.reader, MempoolPaymentIndex()).find(TERMS)
    assert (seen.match_count, seen.confirmations) == (MAX_COUNTED, 2)


def test_the_chain_is_read_again_only_after_it_has_changed(node: Node) -> None:
    synced = [True]
    payments = PaymentLookup.subscribed(
        node.node_context.chain_manager, node.node_context.transaction_pool, synced=lambda: synced[0]
    )
    blocks = node.builder.chain("genesis: b[1..2]\nb1: c[2..4]\nb2 pays 5000 from alice to bob for order-1")
    node.take(blocks["b1"], blocks["b2"])
    first = payments.find(TERMS)
    asked: list[str] = []
    trace(node.node_context.chain_manager.reader._db, asked.append)
    assert payments.find(TERMS) == first
    assert len(asked) > 0, "an order that was asked for once is not kept"
    del asked[:]

    assert (payments.find(TERMS), asked) == (first, [])
    synced[0] = False
    assert (payments.find(TERMS), asked) == (first._replace(synced=False), [])
    waits = node.builder.transfer("carol", "bob", 5000, reference="order-1")
    submitted(node.node_context.transaction_pool, waits, node.clock)
    del asked[:]
    assert (payments.find(TERMS).match_count, asked) == (2, []), "what waits is always looked at"

    node.take(*[blocks[name] for name in ("c2", "c3", "c4")])
    seen = payments.find(TERMS)
    assert len(asked) > 0
    assert (seen.tip.height, seen.location) == (4, None), "the branch that won does not have the payment"


def test_only_so_many_orders_are_kept_and_only_what_was_asked_for_twice_is_shown_from_memory(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payment_lookup, "_CACHED", 2)
    payments = PaymentLookup.subscribed(node.node_context.chain_manager, node.node_context.transaction_pool)
    shown: list[str] = []

    def show(terms: PaymentTerms, _: Observation) -> str:
        shown.append(terms.reference)
        return terms.reference

    def ask(references: str) -> list[str]:
        del shown[:]
        assert [payments.show(evolve(TERMS, reference=each), show) for each in references] == list(references)
        return list(shown)

    assert ask("aaa") == ["a", "a"]
    assert ask("bcdef") == ["b", "c", "d", "e", "f"], "asked for once"
    assert ask("a") == []
    assert ask("ggg") == ["g", "g"]
    assert ask("hhhag") == ["h", "h", "a"], "the third takes the place of the oldest"
    assert ask("b") == ["b"], "which was forgotten as a first question too"


BUILDER = ChainBuilder()
BOB = address_of("bob", "svct")
INDEXED_TERMS = PaymentTerms("A", BOB, 5)


def entries(*amounts: int, reference: str | None = "A", recipient: str = "bob", first: int = 1) -> list[MempoolEntry]:
    """Waiting transfers that came in this order."""
    return [
        MempoolEntry(BUILDER.transfer("alice", recipient, amount, reference=reference), sequence)
        for sequence, amount in enumerate(amounts, first)
    ]


def test_a_transfer_that_leaves_is_removed_completely() -> None:
    first, second = entries(5, 5)
    index = MempoolPaymentIndex([first, second])
    index.pool_changed([], [first])
    assert index.matching(INDEXED_TERMS) == [second.transfer.txid]
    index.pool_changed([], [second])
    assert len(index) == len(index._single) == len(index._several) == 0


def test_a_transfer_that_leaves_before_its_arrival_is_announced() -> None:
    first, second = entries(5, 5)
    index = MempoolPaymentIndex([second])
    index.pool_changed([], [first])
    assert index.matching(INDEXED_TERMS) == [second.transfer.txid]


def test_other_amounts_are_mismatches() -> None:
    exact, more, less = entries(5, 6, 4)
    index = MempoolPaymentIndex([exact, more, less])
    assert index.mismatching(INDEXED_TERMS) == [
        Mismatch(more.transfer.txid, 6, None),
        Mismatch(less.transfer.txid, 4, None),
    ]


def test_a_flood_is_shown_up_to_the_limits() -> None:
    exact, others = entries(*[5] * (MAX_COUNTED + 1)), entries(*range(6, 6 + MAX_MISMATCHES + 1), first=1000)
    index = MempoolPaymentIndex([*exact, *others])
    assert len(index.matching(INDEXED_TERMS)) == MAX_COUNTED
    assert len(index.mismatching(INDEXED_TERMS)) == MAX_MISMATCHES


POOL = [
    MempoolEntry(BUILDER.transfer("alice", recipient, amount, reference=reference), sequence)
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
def test_the_index_finds_what_a_full_scan_would_find(first: list[MempoolEntry], changes: list[Any]) -> None:
    present = {each.sequence: each for each in first}
    index = MempoolPaymentIndex(first)
    for entry, comes in changes:
        if comes and entry.sequence not in present:
            index.pool_changed([entry], [])
            present[entry.sequence] = entry
        elif not comes:
            index.pool_changed([], [entry])
            present.pop(entry.sequence, None)
    assert len(index) == sum(each.transfer.reference is not None for each in present.values())
    for terms in every_terms():
        found = [present[key].transfer for key in sorted(present)]
        assert index.matching(terms) == [each.txid for each in found if pays(terms, each)]
        missed = {each.txid for each in found if is_near_miss(terms, each)}
        assert {each.txid for each in index.mismatching(terms)} == missed


def every_terms() -> Iterator[PaymentTerms]:
    """Every order that a transfer of the pool may pay."""
    for name in ("bob", "carol"):
        for reference in ("A", "a"):
            yield from (PaymentTerms(reference, address_of(name, "svct"), amount) for amount in (5, 6, 7))


def pays(terms: PaymentTerms, transfer: Any) -> bool:
    """Whether reference, recipient and amount agree."""
    return (transfer.reference, transfer.recipient, transfer.amount) == (terms.reference, terms.key, terms.amount)


def is_near_miss(terms: PaymentTerms, transfer: Any) -> bool:
    """Whether it pays the order but for the amount."""
    return (transfer.reference, transfer.recipient) == (terms.reference, terms.key) and transfer.amount != terms.amount
