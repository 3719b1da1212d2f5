"""What an operator changes and looks up while a real node runs."""

import json
from contextlib import ExitStack
from http.client import HTTPConnection, RemoteDisconnected
from socket import create_connection

import pytest

from svcd.composition.file_descriptors import HEALTH_CONNECTIONS_PER_CLIENT
from svcd.node.network_view import NO_PEER_MET
from tests.process_level.conftest import DEVNET, Nodes, nodes
from tests.process_level.running import DEADLINE, RunningNode, free_port, wait_until

__all__ = ["nodes"]

pytestmark = [pytest.mark.socket, pytest.mark.slow]

ALONE = ("--network=devnet", '--set=limits.exempt=["127.0.0.0/8"]')


def report(node: RunningNode) -> dict[str, object]:
    """What GET /operator/status says."""
    found: dict[str, object] = node.ok(node.operator("/operator/status"))["status"]
    return found


def participates(node: RunningNode) -> object:
    """Whether the node says that it makes blocks."""
    said = report(node)["participation"]
    assert isinstance(said, dict)
    return said["enabled"]


def height(node: RunningNode) -> int:
    return int(node.status()["height"])


def switch(node: RunningNode, on: bool) -> object:
    return node.ok(node.operator("/operator/participation", {"enabled": on}))["enabled"]


def test_blocks_are_made_while_that_is_switched_on_and_not_after_a_restart(nodes: Nodes) -> None:
    node = nodes.start(*ALONE)
    assert (participates(node), height(node)) == (False, 0)
    assert switch(node, True) is True
    assert participates(node) is True
    wait_until(lambda: height(node) >= 2, "blocks")
    assert switch(node, False) is False
    # One that had been found when it was switched off may still be on its way into the chain.
    wait_until(lambda: _made_in_slots(node, 2) == 0, "the end of what was under way")
    assert _made_in_slots(node, 4) == 0
    switch(node, True)
    node.stop()
    assert participates(nodes.start(*ALONE)) is False, "the configuration holds again"


def _made_in_slots(node: RunningNode, count: int) -> int:
    """How many blocks come in so many slots, in which some could be made."""
    before, slot = height(node), _slot_now(node)
    wait_until(lambda: _slot_now(node) >= slot + count, "the slots")
    return height(node) - before


def _slot_now(node: RunningNode) -> int:
    consensus = node.ok(node.get("/rpc/consensus"))["consensus"]
    return int(consensus["currentSlot"])


def test_limits_and_webhooks_are_those_of_the_configuration(nodes: Nodes) -> None:
    secrets = {"enabled": "true", "manageToken": "m" * 32, "signingSecret": "s" * 32}
    settings = [f"--set=commerce.webhooks.{key}={value}" for key, value in secrets.items()]
    node = nodes.start(*DEVNET, *settings, "--set=limits.connections=123")
    limits = node.ok(node.operator("/operator/limits"))["limits"]
    assert {limit["setting"]: limit["value"] for limit in limits}["limits.connections"] == 123
    assert report(node)["webhooks"] == {
        "watches": 0,
        "waiting": 0,
        "inFlight": 0,
        "oldestWaitingSince": None,
        "brokenHosts": 0,
        "abandoned": 0,
        "refused": 0,
    }


def test_the_port_for_health_checks_serves_nothing_else(nodes: Nodes) -> None:
    port = free_port()
    node = nodes.start("--network=devnet", "--set=participation.alone=false", f"--set=operator.healthListen=tcp:{port}")
    assert [event["message"] for event in node.logged(f"listening on tcp:{port}")] == [f"listening on tcp:{port}"]

    def asked(method: str, target: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        connection.request(method, target)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    status, body = asked("GET", "/ready")
    assert (status, json.loads(body)) == (503, {"ok": False, "error": f"not ready: {NO_PEER_MET}"})
    assert asked("HEAD", "/ready") == (503, b"")
    assert asked("POST", "/ready")[0] == 405
    for target in ("/", "/health", "/metrics", "/operator/status", "/operator/openapi.json", "/rpc/status", "/ready/"):
        assert asked("GET", target)[0] == 404, target
    with ExitStack() as stack:
        for _ in range(HEALTH_CONNECTIONS_PER_CLIENT):
            held = stack.enter_context(create_connection(("127.0.0.1", port), DEADLINE))
            held.sendall(b"GET /ready HTTP/1.1\r\nHost: h\r\n\r\n")
            assert held.recv(4_096)
        with pytest.raises((ConnectionError, RemoteDisconnected)):
            asked("GET", "/ready")


def test_a_deep_reorganisation_raises_an_alarm_and_one_line(nodes: Nodes) -> None:
    node = nodes.start()
    node.mine(12)
    node.ok(node.operator("/operator/reorganise", {"depth": 11}))
    assert node.ok(node.operator("/ready"))["alarms"] == []
    node.ok(node.operator("/operator/reorganise", {"depth": 12}))
    (alarm,) = node.ok(node.operator("/ready"))["alarms"]
    assert alarm.startswith("a reorganisation undid 12 blocks, from height 2 to 13: ")
    assert [event["level"] for event in node.logged(alarm)] == ["warn"]


def test_a_node_that_talks_to_no_others(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, "--set=p2p.enabled=false")
    node.mine(1)
    assert node.get("/p2p/status").status == 404
    for target, body in (("/operator/peers", None), ("/operator/peers/ban", {"address": "192.0.2.1"})):
        refused = node.operator(target, body)
        assert (refused.status, refused.error) == (503, "this node has no peers: [p2p] enabled is false")
    status = node.status()
    assert (status["syncState"], status["knownPeerCount"]) == ("synced", 0)
    assert report(node)["peers"] == report(node)["webhooks"] is None
    assert not (node.data_dir / "peers.json").exists()
    connection = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE)
    connection.request("GET", "/peers")
    page = connection.getresponse()
    assert (page.status, b"svcnode_" in page.read()) == (200, False)
    connection.close()
    node.stop()
    assert not (node.data_dir / "peers.json").exists()
