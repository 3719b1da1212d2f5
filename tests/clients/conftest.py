"""A devnet with webhooks, in a process of its own, for all tests of a module."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode
from tests.process_level.test_webhooks_page import WEBHOOKS, secrets_of_a_devnet


def in_forms(text: str) -> str:
    """What the examples of a README print, without the numbers that differ from one run to the next."""
    return re.sub("(order-|sinceHeight=)[0-9]+", r"\1number", text)


@contextmanager
def devnet(folder: Path) -> Iterator[RunningNode]:
    """A devnet as `make devnet` runs it, in the folder `devnet` there."""
    nodes = Nodes(folder)
    secrets_of_a_devnet(nodes.folder)
    try:
        yield nodes.start(*DEVNET, *WEBHOOKS, name="devnet")
    finally:
        nodes.stop()


@pytest.fixture(scope="module")
def shop_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet for all tests of a module."""
    with devnet(tmp_path_factory.mktemp("clients")) as node:
        yield node
