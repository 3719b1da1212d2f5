"""Fixtures: a node under test, remote nodes with scripts, and chains for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.block import Block
from tests.chains import ChainBuilder
from tests.p2p.bench import Node, Setting, late_transport
from tests.p2p.memory_transport import MemoryTransport

MakeNode = Callable[..., Node]
Grow = Callable[..., list[Block]]


@pytest.fixture(scope="session")
def builder() -> ChainBuilder:
    """A maker of blocks; its chains are shared by all tests."""
    return ChainBuilder()


@pytest.fixture(scope="session")
def grow(builder: ChainBuilder) -> Grow:
    """``grow(count, on=None, name="b", step=2, pays=0)``: a chain of so many blocks on another, made once.

    Each has ``pays`` transfers; one without any is known from its header alone.
    """
    made: dict[tuple[object, ...], list[Block]] = {}

    def make(count: int, on: Sequence[Block] = (), name: str = "b", step: int = 2, pays: int = 0) -> list[Block]:
        parent = on[-1] if on else None
        chain = made.setdefault((parent and parent.header.hash, name, step, pays), [])
        while len(chain) < count:
            last = chain[-1] if chain else parent
            nonce = builder.account_after(last, "alice").nonce
            transfers = [builder.transfer("alice", "bob", 1, nonce=nonce + each) for each in range(pays)]
            slot = builder.point_after(last).slot + step
            chain.append(builder.block(last, slot=slot, producer=name, transfers=transfers))
        return [*on, *chain[:count]]

    return make


@pytest.fixture
def transport() -> MemoryTransport:
    return late_transport()


@pytest.fixture
def make_node(tmp_path: Path, transport: MemoryTransport, builder: ChainBuilder) -> Iterator[MakeNode]:
    """``make_node(folder="a", **setting)``: a node on the transport; closed after the test."""
    with ExitStack() as stack:

        def make(folder: str = "node", **changes: Any) -> Node:
            (tmp_path / folder).mkdir(exist_ok=True)
            node = Node(tmp_path / folder, transport, Setting(**changes), builder)
            stack.callback(node.close)
            return node

        yield make


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """A node that knows nobody."""
    return make_node()
