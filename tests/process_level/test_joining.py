"""Nodes that find each other by the URLs that they were told."""

from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, exchange, free_port

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.mark.parametrize("own", ["", "https://peers.example.org"])
def test_an_endpoint_for_peers_is_told_under_its_own_url(nodes: Nodes, own: str) -> None:
    port = free_port()
    node = nodes.start(
        *DEVNET,
        f"--set=p2p.listen=tcp:{port}:interface=127.0.0.1",
        "--set=http.publicUrl=https://node.example.org",
        f"--set=p2p.publicUrl={own}",
    )
    told = node.ok(exchange(HTTPConnection("127.0.0.1", port, timeout=DEADLINE), "GET", "/p2p/status"))["status"]
    assert told["endpoint"] == (own or "https://node.example.org")
    assert node.get("/p2p/status").status == 404
