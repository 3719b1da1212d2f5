"""The operator's routes about other nodes, where the node talks to none."""

from itertools import count

import pytest
from twisted.internet.task import Clock

from svcd.rpc.peer_admin_routes import PeerAdminRoutes
from svcd.rpc.sites import SiteFactory
from svcd.web.connections import SiteLimits
from tests.rpc.node import OPERATOR_SOCKET
from tests.web.wire import Response, Wire

PATHS = {"": "GET", "/add": "POST", "/ban": "POST", "/unban": "POST"}


def ask(path: str) -> Response:
    """The answer of a node without peers."""
    clock, errors = Clock(), count(1)
    site = SiteFactory(clock, lambda: f"e{next(errors)}").operator([PeerAdminRoutes(None, token=None)], SiteLimits())
    head = f"{PATHS[path]} /operator/peers{path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
    wire = Wire(site, OPERATOR_SOCKET).send(head.encode())
    clock.advance(0)
    response = wire.response()
    wire.close()
    return response


@pytest.mark.parametrize("path", PATHS)
def test_a_node_without_peers_says_so(path: str) -> None:
    response = ask(path)
    assert (response.status, response.error) == (503, "this node talks to no others: [p2p] enabled is false")
