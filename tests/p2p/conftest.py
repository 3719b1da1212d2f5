"""A node among strangers, and chains that they may have."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.block import Block
from tests.chains import ChainBuilder
from tests.p2p.bench import Node, Setting, late_town, place
from tests.p2p.strangers import Stranger
from tests.p2p.town import Town

MakeNode = Callable[..., Node]
MakeStranger = Callable[..., Stranger]
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
def town() -> Town:
    return late_town()


@pytest.fixture
def make_node(tmp_path: Path, town: Town, builder: ChainBuilder) -> Iterator[MakeNode]:
    """``make_node(folder="a", **setting)``: a node in the town; closed after the test."""
    with ExitStack() as stack:

        def make(folder: str = "node", **changes: Any) -> Node:
            (tmp_path / folder).mkdir(exist_ok=True)
            node = Node(tmp_path / folder, town, Setting(**changes), builder)
            stack.callback(node.close)
            return node

        yield make


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """A node that knows nobody."""
    return make_node()


@pytest.fixture
def make_stranger(town: Town, builder: ChainBuilder) -> MakeStranger:
    """``make_stranger(number=…, blocks=…)``: somebody who lives in the town."""

    def make(number: int = 1, blocks: Sequence[Block] = (), **changes: Any) -> Stranger:
        endpoint = changes.pop("endpoint", place(number))
        stranger = Stranger(town=town, endpoint=endpoint, builder=builder, blocks=list(blocks), **changes)
        town.inhabitants[endpoint] = stranger
        return stranger

    return make
