"""`svc node participation` and `svc node limits` at the terminal, with a real node."""

import json

import pytest
from twisted.internet.task import Clock

from svcd.node.status import LONELY, Neighbourhood
from svcd.rpc.limits import Limit, LimitsRoutes
from svcd.rpc.participation import ON_DEMAND, ParticipationRoutes
from svcd.web.limits import SiteLimits
from tests.rpc.node import Node
from tests.rpc.test_participation import Lever
from tests.wallet.terminal import Fixed, Terminal, site_of

TABLE = [
    Limit("connections", 1000, "connections", "Idle connections, to use up sockets", "limits.connections"),
    Limit("reading", 0, "requests/s", "More requests than the node can answer", "limits.requestsPerSecond"),
    Limit("levels of JSON", 8, "things", "JSON nested thousands deep"),
]


def give(node: Node, terminal: Terminal, *rooms: object) -> None:
    """Let the operator's site of the terminal's node have these rooms too."""
    terminal.operator.site = node.sites.operator([*node.operator_rooms, *rooms], SiteLimits())


@pytest.fixture
def lever(node: Node, terminal: Terminal) -> Lever:
    """What the node's participation is switched by."""
    lever = Lever()
    give(node, terminal, ParticipationRoutes(node.status, lever, token=None))
    return lever


def test_on_and_off(lever: Lever, terminal: Terminal) -> None:
    assert terminal.ok("node", "participation", "on").out == "the node makes blocks\n"
    assert lever.enabled
    assert terminal.ok("node", "participation", "off").out == "the node makes no blocks\n"
    assert not lever.enabled


def test_what_it_waits_for_is_told(node: Node, lever: Lever, terminal: Terminal) -> None:
    node.peers.around = Neighbourhood(0, 0, LONELY)
    assert terminal.ok("node", "participation", "on").out == f"the node makes blocks, but not yet: {LONELY}\n"
    told = json.loads(terminal.ok("node", "participation", "on", "--json").out)
    assert told == {"enabled": True, "waitsFor": LONELY}


def test_blocks_on_demand_know_no_switch(node: Node, terminal: Terminal) -> None:
    give(node, terminal, ParticipationRoutes(node.status, None, token=None))
    assert ON_DEMAND in terminal.failure("node", "participation", "on")


def test_a_node_that_does_not_obey_is_told(terminal: Terminal, clock: Clock) -> None:
    answer = json.dumps({"ok": True, "enabled": True, "waitsFor": None}).encode()
    terminal.operator.site = site_of(Fixed((200, answer)), terminal.clock)
    assert terminal.failure("node", "participation", "off") == "the node does not say that participation is off"


def test_the_limits(node: Node, terminal: Terminal) -> None:
    give(node, terminal, LimitsRoutes(TABLE, token=None))
    assert terminal.ok("node", "limits").out == (
        "connections: 1000 connections, set by limits.connections\n"
        "  stops: Idle connections, to use up sockets\n"
        "\n"
        "reading: none, set by limits.requestsPerSecond\n"
        "  stops: More requests than the node can answer\n"
        "\n"
        "levels of JSON: 8 things\n"
        "  stops: JSON nested thousands deep\n"
    )
    told = json.loads(terminal.ok("node", "limits", "--json").out)
    assert [limit["value"] for limit in told["limits"]] == [1000, 0, 8]


def test_limits_that_are_no_numbers(terminal: Terminal) -> None:
    limit = {**TABLE[0].record(), "value": "many"}
    answer = json.dumps({"ok": True, "limits": [limit]}).encode()
    terminal.operator.site = site_of(Fixed((200, answer)), terminal.clock)
    assert "value must be a number" in terminal.failure("node", "limits")
