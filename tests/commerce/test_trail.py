"""How far the watches are behind the chain, whatever has become of the chain's file meanwhile."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.commerce.payment import Tip
from svcd.commerce.trail import KEPT, Span, go, span_between
from svcd.store.chain_store import ChainReader
from svcd.store.database import WEBHOOKS, open_writer
from svcd.store.webhook_store import WebhookStore
from tests.rpc.conftest import present
from tests.rpc.node import Node, Settings


@pytest.fixture
def watches(tmp_path: Path) -> Iterator[WebhookStore]:
    with closing(open_writer(tmp_path / "webhooks.sqlite", WEBHOOKS)) as connection:
        yield WebhookStore(connection)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    yield node
    node.close()


def tip_of(chain: Node) -> Tip:
    point = chain.living.ledger.tip
    return Tip(point.height, point.hash)


def follow(watches: WebhookStore, chain: Node) -> Span:
    """Let the watches see what they have not seen."""
    reader = chain.living.ledger.reader
    with reader.snapshot(), watches.commit():
        span = span_between(watches, reader)
        assert span is not None
        go(watches, reader, span)
    return span


def test_a_file_without_a_chain_says_nothing(watches: WebhookStore, tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "empty.sqlite")) as connection:
        assert span_between(watches, ChainReader(connection)) is None


def test_watches_that_have_seen_nothing_begin_at_the_tip(watches: WebhookStore, chain: Node) -> None:
    chain.grow("genesis: a[1..3]")
    span = follow(watches, chain)
    assert (span.tip, span.before, span.fork, span.moved) == (tip_of(chain), 3, 3, False)
    assert list(watches.steps_down()) == [(3, span.tip.hash)]


def test_what_is_new_and_what_was_undone(watches: WebhookStore, chain: Node) -> None:
    chain.grow("genesis: a[1..2]")
    follow(watches, chain)
    blocks = chain.builder.chain("genesis: a[1..4]\na3: b[4..6]")
    chain.take(blocks["a3"], blocks["a4"])
    span = follow(watches, chain)
    assert (span.before, span.fork, list(span.heights)) == (2, 2, [3, 4])
    chain.take(blocks["b4"], blocks["b5"], blocks["b6"])
    span = follow(watches, chain)
    assert (span.before, span.fork, list(span.heights)) == (4, 3, [4, 5, 6])
    assert [height for height, _ in watches.steps_down()] == [6, 5, 4, 3, 2]
    assert not follow(watches, chain).moved


def test_another_chain_from_below_all_that_is_remembered(watches: WebhookStore, chain: Node) -> None:
    """Nothing that the watches know is canonical: everything from their oldest block on counts as undone."""
    chain.grow("genesis: a[1..3]")
    watches.follow(0, [(2, bytes(32)), (3, bytes(31) + b"1")], keep=KEPT)
    span = follow(watches, chain)
    assert (span.before, span.fork, list(span.heights)) == (3, 1, [2, 3])
    assert next(watches.steps_down()) == (3, tip_of(chain).hash)


def test_a_chain_that_lost_its_newest_blocks_has_taken_nothing_back(watches: WebhookStore, chain: Node) -> None:
    chain.grow("genesis: a[1..2]")
    tip = tip_of(chain)
    watches.follow(0, [(2, tip.hash), (3, bytes(32))], keep=KEPT)
    reader = chain.living.ledger.reader
    with reader.snapshot():
        assert span_between(watches, reader) is None
