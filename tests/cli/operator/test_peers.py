"""`svc node peers …` with a real node in a simulated network, and with nodes that lie."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.p2p.bans import posts_name
from tests.chains import ChainBuilder
from tests.cli.terminal import Fixed, Terminal, site_of
from tests.p2p.bench import Node, Setting, late_transport, place
from tests.p2p.remote_node import RemoteNode
from tests.p2p.test_administration import Operator


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node in a simulated network."""
    node = Node(tmp_path, late_transport(), Setting(), ChainBuilder())
    yield node
    node.close()


@pytest.fixture
def terminal(node: Node, tmp_path: Path) -> Terminal:
    """The terminal of the node's operator."""
    terminal = Terminal(tmp_path, node.clock)
    terminal.operator.site = Operator(node, tmp_path / "peers.json").site
    return terminal


@pytest.fixture
def remote(node: Node) -> RemoteNode:
    """A peer that the node does not know yet."""
    remote = RemoteNode(transport=node.transport, endpoint=place(1), builder=node.builder)
    node.transport.responders[remote.endpoint] = remote
    return remote


def test_no_peers_and_no_bans(terminal: Terminal) -> None:
    assert terminal.ok("node", "peers").out == "0 peers\n\n0 bans\n"
    assert json.loads(terminal.ok("node", "peers", "--json").out) == {"peers": [], "bans": []}


def test_peers_are_shown(terminal: Terminal, node: Node, remote: RemoteNode) -> None:
    node.meet(remote)
    lines = terminal.ok("node", "peers").out.splitlines()
    assert lines[:4] == [
        "1 peer",
        "",
        f"  {remote.endpoint} at 60.2.7.1",
        f"    {remote.key.node_id}, outbound",
    ]
    assert lines[4].startswith(f"    height 0, work {remote.tip.work}, last seen 20")
    assert lines[4].endswith(", 0 failures since")
    (peer,) = json.loads(terminal.ok("node", "peers", "--json").out)["peers"]
    assert peer["endpoint"] == remote.endpoint


def test_bans_are_shown(terminal: Terminal, node: Node) -> None:
    node.peers.bans.ban(posts_name("192.0.2.9"), seconds=600, now=node.local.now(), why="it posted: \x1b[2J")
    terminal.ok("node", "peers", "ban", "192.0.2.7")
    lines = terminal.ok("node", "peers").out.splitlines()
    assert lines[2:6] == ["2 bans", "", "  address 192.0.2.7", "    permanent, by the operator"]
    assert lines[7] == "  posts from 192.0.2.9"
    assert lines[8].startswith("    until 20")
    assert lines[8].endswith(" UTC, by the node: it posted: \\u{1b}[2J"), "the text does not drive the terminal"


def test_add_connects_to_a_peer(terminal: Terminal, node: Node, remote: RemoteNode) -> None:
    told = terminal.ok("node", "peers", "add", remote.endpoint).out
    assert told.splitlines()[:2] == ["connected", f"  {remote.endpoint} at 60.2.7.1"]
    assert node.knows(remote)
    again = json.loads(terminal.ok("node", "peers", "add", remote.endpoint, "--json").out)
    assert (again["peer"]["nodeId"], again["why"]) == (remote.key.node_id, None)


def test_add_keeps_an_unreachable_endpoint(terminal: Terminal) -> None:
    told = terminal.ok("node", "peers", "add", place(2)).out
    assert told == f"{place(2)} is added, but is not a peer yet: in memory: unreachable\n"
    assert json.loads(terminal.ok("node", "peers", "add", place(2), "--json").out)["peer"] is None


def test_invalid_endpoints_are_not_added(terminal: Terminal) -> None:
    assert terminal.failure("node", "peers", "add", "node.example").startswith(
        "endpoint must begin with http:// or https://"
    )


def test_ban_and_unban(terminal: Terminal, node: Node, remote: RemoteNode) -> None:
    for who in (remote.endpoint, remote.key.node_id, "60.2.7.1"):
        node.meet(remote)
        told = terminal.ok("node", "peers", "ban", who).out.splitlines()
        assert told[0] == "banned"
        assert told[1].endswith(f" {who}")
        assert told[2:] == ["    permanent, by the operator", f"  dropped: {remote.endpoint}"]
        assert not node.knows(remote)
        assert terminal.ok("node", "peers", "unban", who).out == f"{who} is no longer banned\n"


def test_a_ban_with_an_end(terminal: Terminal, node: Node) -> None:
    told = terminal.ok("node", "peers", "ban", "2001:db8::1", "--seconds", 60).out.splitlines()
    assert told[1] == "  address 2001:db8::/64"
    assert told[2].startswith("    until 20")
    assert told[3] == "  no peer was dropped"
    made = json.loads(terminal.ok("node", "peers", "ban", "2001:db8::1", "--seconds", 60, "--json").out)
    assert (made["ban"]["kind"], made["dropped"]) == ("address", [])


@pytest.mark.parametrize("order", ["ban", "unban"])
@pytest.mark.parametrize("who", ["", "node.example", "svcnod_ab"])
def test_invalid_ban_targets_are_rejected(terminal: Terminal, order: str, who: str) -> None:
    sentence = terminal.misuse("node", "peers", order, who)
    assert sentence.endswith("give an endpoint (http://…), a node id (svcnode_…) or an IP address")


@pytest.mark.parametrize("seconds", [0, -1, "soon", 315_360_001])
def test_seconds_are_a_number(terminal: Terminal, seconds: object) -> None:
    assert "from 1 to 315360000" in terminal.misuse("node", "peers", "ban", "192.0.2.7", f"--seconds={seconds}")


def test_unban_without_a_ban_fails(terminal: Terminal) -> None:
    assert terminal.failure("node", "peers", "unban", "192.0.2.7") == "192.0.2.7 is not banned"


@pytest.mark.parametrize("words", [(), ("add", place(1)), ("ban", "192.0.2.7"), ("unban", "192.0.2.7")])
def test_a_node_without_peers(terminal: Terminal, words: tuple[str, ...]) -> None:
    answer = b'{"ok":false,"error":"this node has no peers: [p2p] enabled is false"}'
    terminal.operator.site = site_of(Fixed((503, answer)), terminal.clock)
    assert terminal.failure("node", "peers", *words) == "this node has no peers: [p2p] enabled is false"


def test_the_data_directory_may_follow_each_word(terminal: Terminal) -> None:
    terminal.ok("node", "peers", "--data-dir", "there")
    terminal.ok("node", "peers", "ban", "192.0.2.7", "--data-dir", "there")
    assert terminal.sockets == ["there/operator.sock"] * 2


@pytest.mark.parametrize("peer", [{}, {"endpoint": 5}, {"work": "many"}])
def test_invalid_responses_are_rejected(terminal: Terminal, peer: dict[str, object]) -> None:
    good = {"endpoint": "e", "nodeId": "n", "direction": "d", "height": "1", "work": "1", "lastSeen": "1"}
    given = {**good, "failures": 0, **peer} if peer else {}
    body = json.dumps({"ok": True, "peers": [given], "bans": []}).encode()
    terminal.operator.site = site_of(Fixed((200, body)), terminal.clock)
    assert "does not answer as svcd does" in terminal.failure("node", "peers")


@pytest.mark.parametrize(("other", "marked"), [(True, True), (False, False), (None, False)])
def test_a_peer_with_other_changes_of_the_producers_is_marked(
    terminal: Terminal, other: bool | None, marked: bool
) -> None:
    peer = {"endpoint": "e", "nodeId": "n", "direction": "d", "height": "1", "work": "1", "lastSeen": "1"}
    body = json.dumps({"ok": True, "peers": [{**peer, "failures": 0, "otherChanges": other}], "bans": []}).encode()
    terminal.operator.site = site_of(Fixed((200, body)), terminal.clock)
    assert ("has other changes of the producers" in terminal.ok("node", "peers").out) is marked
