"""Nodes in processes of their own; each is stopped after its test, and its log must be clean."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process_level.running import RunningNode, free_port

DEVNET = ("--network=devnet", "--set=participation.onDemand=true", '--set=limits.exempt=["127.0.0.0/8"]')


class Nodes:
    """Starts nodes below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[RunningNode] = []

    def start(self, *options: str, name: str = "data", port: int | None = None) -> RunningNode:
        """A node that answers, with the data directory of this name; without options it is a devnet."""
        node = RunningNode(self.folder / name, port or free_port(), *(options or DEVNET))
        self._started.append(node)
        return node.wait_ready()

    def stop(self) -> None:
        """Stop those that still run."""
        try:
            for node in self._started:
                if node.process.poll() is None:
                    node.stop()
        finally:
            for node in self._started:
                node.kill()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Starts nodes in the test's folder."""
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="module")
def make_devnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], RunningNode]]:
    """``make_devnet()``: a devnet in `devnet/` below a new folder, for all tests of a module."""
    started: list[Nodes] = []

    def make() -> RunningNode:
        started.append(Nodes(tmp_path_factory.mktemp("module")))
        return started[-1].start(name="devnet")

    yield make
    for nodes in started:
        nodes.stop()


@pytest.fixture(scope="module")
def devnet(make_devnet: Callable[[], RunningNode]) -> RunningNode:
    """A devnet that the tests of a module share."""
    return make_devnet()
