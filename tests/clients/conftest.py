"""A devnet with webhooks, in a process of its own, for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode
from tests.process_level.test_webhooks_page import WEBHOOKS, secrets_of_a_devnet


@pytest.fixture(scope="module")
def shop_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet as `make devnet` runs it, with the folder `devnet`."""
    nodes = Nodes(tmp_path_factory.mktemp("clients"))
    secrets_of_a_devnet(nodes.folder)
    yield nodes.start(*DEVNET, *WEBHOOKS, name="devnet")
    nodes.stop()
