"""Nodes in memory, and clients of their two sites."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.web.openapi import document
from svcd.web.routing import routes_of
from tests.rpc.description import Asked, Description
from tests.rpc.node import OPERATOR_SOCKET, PARAMS, Client, Node, Settings
from tests.web.wire import Wire

CLIENT = "203.0.113.9"
READER = "198.51.100.7"
"""Who reads descriptions: another client, so that rates are not drawn from."""
START_SLOT = 20_000


@pytest.fixture
def clock() -> Clock:
    """The present: enough slots after the genesis for every chain of a test."""
    clock = Clock()
    clock.advance(PARAMS.slot_time(START_SLOT) // 1000)
    return clock


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


def published(site: Any) -> Description:
    """The description that a public site gives of itself."""
    asked = Asked("GET", "/rpc/openapi.json", b"")
    wire = Wire(site, READER).send(b"GET /rpc/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n")
    response = wire.response()
    wire.close()
    description = Description(json.loads(response.body), cors=True)
    description.check(asked, response)
    return description


@pytest.fixture
def node(open_node: Callable[..., Node]) -> Node:
    """A node on a new chain."""
    return open_node()


@pytest.fixture
def public(clock: Clock) -> Callable[..., Client]:
    """``public(node, peer)``: a client of its public site."""
    return lambda node, peer=CLIENT: Client(node.public, published(node.public), clock, peer)


@pytest.fixture
def local(clock: Clock) -> Callable[[Node], Client]:
    """``local(node)``: its operator, at the Unix socket."""

    def make(node: Node) -> Client:
        routes = [route for room in node.operator_rooms for route, _ in routes_of(room)]
        described: Any = document(routes, {"title": "operator", "version": "0"})
        return Client(node.operator, Description(described, cors=False), clock, OPERATOR_SOCKET)

    return make


@pytest.fixture
def client(node: Node, public: Callable[..., Client]) -> Client:
    """A client of the node."""
    return public(node)


@pytest.fixture
def operator(node: Node, local: Callable[[Node], Client]) -> Client:
    """The operator of the node."""
    return local(node)
