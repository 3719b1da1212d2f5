"""Nodes that find each other by the URLs that they were told."""

from datetime import datetime
from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, RunningNode, exchange, free_port, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def peers(node: RunningNode) -> int:
    return int(node.ok(node.operator("/operator/status"))["status"]["peers"]["verified"])


def test_a_node_that_joins_a_network_is_ready_once_it_has_met_another(nodes: Nodes) -> None:
    """As docs/settings.md says under `[p2p]`."""
    first, second = free_port(), free_port()
    founder = nodes.start(
        "--network=devnet", f"--set=http.publicUrl=http://127.0.0.1:{first}", name="first", port=first
    )
    assert founder.operator("/ready").status == 200
    joined = nodes.start(
        "--network=devnet",
        f"--set=http.publicUrl=http://127.0.0.1:{second}",
        "--set=participation.alone=false",
        f'--set=p2p.seeds=["http://127.0.0.1:{first}"]',
        name="second",
        port=second,
    )
    wait_until(lambda: peers(joined) == peers(founder) == 1, "two nodes that have met")
    (block,) = founder.mine(1)
    wait_until(lambda: joined.status()["hash"] == block, "the block of the other node")
    wait_until(lambda: joined.operator("/ready").status == 200, "a node that is ready")


def test_a_node_that_starts_calls_others_at_once(nodes: Nodes) -> None:
    """It looks once a second whom to call, the first time when it begins to listen."""
    port = free_port()
    nodes.start(*DEVNET, f"--set=http.publicUrl=http://127.0.0.1:{port}", name="first", port=port)

    def seconds_to_meet(name: str) -> float:
        joining = nodes.start(*DEVNET, f'--set=p2p.seeds=["http://127.0.0.1:{port}"]', name=name)
        wait_until(lambda: peers(joining) == 1, "the other node")
        (met,) = joining.logged(f"peer http://127.0.0.1:{port} came")
        listens = max(event["time"] for event in joining.logged("listening on "))
        return (datetime.fromisoformat(met["time"]) - datetime.fromisoformat(listens)).total_seconds()

    # A busy machine may be slow once, but not each time.
    assert any(seconds_to_meet(f"second-{number}") < 0.9 for number in range(4))


def test_a_node_under_another_url_than_it_names_is_not_kept(nodes: Nodes) -> None:
    named, seed = free_port(), free_port()
    nodes.start(*DEVNET, f"--set=http.publicUrl=http://127.0.0.1:{named}", name="first", port=seed)
    options = (*DEVNET, f'--set=p2p.seeds=["http://127.0.0.1:{seed}"]')
    joining = nodes.start(*options, name="second")
    assert joining.logged("answers and names as its endpoint")
    assert peers(joining) == 0


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
