"""Nodes on a workbench, each in a folder of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.chains import ChainBuilder
from tests.node.bench import Node, Setting, running

MakeNode = Callable[..., Node]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """`make_node(folder="a", **setting)`: a node in that folder, closed after the test."""
    with ExitStack() as stack:

        def make(folder: str = "node", **setting: Any) -> Node:
            (tmp_path / folder).mkdir(exist_ok=True)
            return stack.enter_context(running(tmp_path / folder, Setting(**setting)))

        yield make


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """A node that does everything at once."""
    return make_node()


@pytest.fixture
def chain() -> ChainBuilder:
    """A maker of blocks."""
    return ChainBuilder()
