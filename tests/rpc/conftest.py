"""Nodes in memory, and clients of their two sites."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.rpc.sites import OperatorOpenApiRoute, operator_document
from svcd.web.routes import routes_of
from tests.rpc.description import Asked, Description
from tests.rpc.node import OPERATOR_SOCKET, PARAMS, Client, Node, Settings
from tests.support import SettableClock
from tests.web.wire import Wire

CLIENT = "203.0.113.9"
READER = "198.51.100.7"
"""Who reads descriptions: another client, so that rates are not drawn from."""
START_SLOT = 20_000


def present() -> SettableClock:
    """A clock that shows enough slots after the genesis for every chain of a test."""
    clock = SettableClock()
    clock.advance(PARAMS.slot_time(START_SLOT) // 1000)
    return clock


def published(site: Any) -> Description:
    """The description that a public site gives of itself."""
    asked = Asked("GET", "/rpc/openapi.json", b"")
    wire = Wire(site, READER).send(b"GET /rpc/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n")
    response = wire.response()
    wire.close()
    description = _described(response.body)
    description.check(asked, response)
    return description


@cache
def _described(document: bytes) -> Description:
    """The same for all nodes that describe themselves in the same bytes: the validators in it are made once."""
    return Description(json.loads(document), cors=True)


def public_client(node: Node, peer: str = CLIENT) -> Client:
    """A client of a node's public site."""
    return Client(node.public, published(node.public), node.clock, peer)


def local_client(node: Node) -> Client:
    """A node's operator, at the Unix socket."""
    return Client(node.operator, description_of(node.operator_routes), node.clock, OPERATOR_SOCKET)


def description_of(owners: Iterable[object]) -> Description:
    """The description of an operator's interface with the routes of ``owners``."""
    routes = [route for owner in (*owners, OperatorOpenApiRoute(dict)) for route, _ in routes_of(owner)]
    described: Any = operator_document(routes, {})
    return Description(described, cors=False)


@pytest.fixture
def clock() -> Clock:
    """The clock of the nodes."""
    return present()


@pytest.fixture
def open_node(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Node]]:
    """``open_node(worker=…, **settings)``: a node on a new chain; closed after the test."""
    nodes: list[Node] = []

    def make(*, worker: Any = None, **settings: Any) -> Node:
        nodes.append(Node(tmp_path / f"{len(nodes)}.sqlite", clock, Settings(**settings), worker))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def node(open_node: Callable[..., Node]) -> Node:
    """A node on a new chain."""
    return open_node()


@pytest.fixture
def client(node: Node) -> Client:
    """A client of the node."""
    return public_client(node)


@pytest.fixture
def operator(node: Node) -> Client:
    """The operator of the node."""
    return local_client(node)


# Opening a chain takes longer than refusing a request: tests that change nothing share one.


@pytest.fixture(scope="module")
def still_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node on a chain without blocks that no test changes."""
    node = Node(tmp_path_factory.mktemp("still") / "chain.sqlite", present(), Settings())
    yield node
    assert node.node_context.chain_manager.tip.height == len(node.node_context.transaction_pool.mempool) == 0
    node.close()


@pytest.fixture(scope="module")
def still(still_node: Node) -> Client:
    """A client of the node that no test changes."""
    return public_client(still_node)


@pytest.fixture(scope="module")
def still_operator(still_node: Node) -> Client:
    """The operator of the node that no test changes."""
    return local_client(still_node)
