"""Nodes on a workbench, each in a folder of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from argon2.low_level import hash_secret_raw

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


@pytest.fixture
def argon(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """One entry for every Argon2 that is done from now on."""
    done: list[bytes] = []

    def counted(secret: bytes, *args: Any, **kwargs: Any) -> bytes:
        done.append(secret)
        return hash_secret_raw(secret, *args, **kwargs)

    monkeypatch.setattr("argon2.low_level.hash_secret_raw", counted)
    return done
