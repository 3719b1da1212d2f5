"""One look at chain and mempool, in one moment of both."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from svcd.chain.block import Block
from svcd.chain.transition import ChainPoint
from svcd.commerce.looking import Payments
from svcd.commerce.payment import MAX_COUNTED, State, Terms, Tip, state_of
from svcd.commerce.waiting import WaitingPayments
from svcd.node.mempool import Entry
from svcd.store import payment_reader
from svcd.store.chain_store import ChainReader
from tests.chains import address_of
from tests.handing_in import handed_in
from tests.rpc.conftest import present
from tests.rpc.node import PARAMS, Node, Settings

TERMS = Terms("order-1", address_of("bob", "svcd"), 5000, required=2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node on a new chain."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    yield node
    node.close()


def test_a_look_sees_what_waited_before_and_what_came_later(node: Node) -> None:
    first = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    handed_in(node.living.transfers, first, node.clock)
    payments = Payments.followed(node.living.ledger, node.living.transfers)
    second = node.builder.transfer("carol", "bob", 5000, reference="order-1")
    handed_in(node.living.transfers, second, node.clock)
    seen = payments.look(TERMS)
    assert (seen.txid, seen.match_count) == (first.txid, 2)

    node.take(node.builder.block(None, transfers=[second]))
    seen = payments.look(TERMS)
    assert (seen.txid, seen.match_count, seen.pending) == (second.txid, 2, None)


def test_a_payment_counts_once_before_the_mempool_has_heard_of_its_block(node: Node) -> None:
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    node.take(node.builder.block(None, transfers=[transfer]))
    seen = Payments(PARAMS, node.living.ledger.reader, WaitingPayments([Entry(transfer, 1)])).look(TERMS)
    assert (seen.match_count, state_of(TERMS, seen)) == (1, State.CONFIRMING)


class Meddling(ChainReader):
    """A reader behind whose back the chain grows as soon as it has been asked for its tip."""

    grow: Callable[[], None]

    def tip(self) -> ChainPoint | None:
        """See ChainReader."""
        tip = super().tip()
        self.grow()
        return tip


def test_tip_and_payments_are_of_one_commit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are read by the statement that reads the tip; here they are too many for that."""
    monkeypatch.setattr(payment_reader, "FEW", 0)
    blocks = node.builder.chain("genesis: b[1..2]\nb2 pays 5000 from alice to bob for order-1")
    waiting: list[Block] = list(blocks.values())
    node.take(waiting.pop(0))
    reader = Meddling(node.living.ledger.reader._db)
    reader.grow = lambda: node.take(*[waiting.pop() for _ in waiting[:]])
    payments = Payments(PARAMS, reader, WaitingPayments())

    seen = payments.look(TERMS)
    assert seen.tip == Tip(1, blocks["b1"].header.hash)
    assert (seen.place, seen.match_count) == (None, 0)

    seen = payments.look(TERMS)
    assert seen.tip == Tip(2, blocks["b2"].header.hash)
    assert seen.confirmations == 1


def test_more_payments_than_anybody_needs_are_not_all_counted(node: Node) -> None:
    lines = [f"b{block} pays 5000 from alice to bob for order-1" for block in (1, 2) for _ in range(MAX_COUNTED - 2)]
    node.grow("\n".join(["genesis: b[1..2]", *lines]))
    seen = Payments(PARAMS, node.living.ledger.reader, WaitingPayments()).look(TERMS)
    assert (seen.match_count, seen.confirmations) == (MAX_COUNTED, 2)


def test_a_payment_is_read_again_when_the_chain_changes_and_not_before(node: Node) -> None:
    payments = Payments.followed(node.living.ledger, node.living.transfers)
    blocks = node.builder.chain("genesis: b[1..2]\nb1: c[2..4]\nb2 pays 5000 from alice to bob for order-1")
    node.take(blocks["b1"], blocks["b2"])
    first = payments.look(TERMS)
    asked: list[str] = []
    node.living.ledger.reader._db.set_trace_callback(asked.append)

    assert (payments.look(TERMS), asked) == (first, [])
    waits = node.builder.transfer("carol", "bob", 5000, reference="order-1")
    handed_in(node.living.transfers, waits, node.clock)
    del asked[:]
    assert (payments.look(TERMS).match_count, asked) == (2, []), "what waits is always looked at"

    node.take(*[blocks[name] for name in ("c2", "c3", "c4")])
    node.clock.advance(0)
    seen = payments.look(TERMS)
    assert len(asked) > 0
    assert (seen.tip.height, seen.place) == (4, None), "the branch that won does not have the payment"
