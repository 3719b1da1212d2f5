"""Whether other nodes can call this one: what follows while none does, the alarm, and asking to be called."""

import json
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from svcd.net.targets import Endpoint
from svcd.p2p import peers
from svcd.p2p.handshake import NodeKey
from tests.p2p.bench import OURS, Neighbour, Node, host_of, place
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.remote_node import RemoteNode
from tests.p2p.test_branch_push import takes_what_fits
from tests.p2p.test_routes import client_of
from tests.web.wire import Wire

HELLO, STATUS = "/p2p/hello", "/p2p/status"


def greetings(node: Node, endpoint: str) -> int:
    return len(node.transport.calls_to(endpoint, HELLO))


def call(node: Node, remote: RemoteNode) -> None:
    node.peers.hello_received(remote.hello(), "198.51.100.7", host=host_of(OURS))


def unreached(make_node: MakeNode, **changes: Any) -> Node:
    """A node that names an endpoint and that no node has called."""
    return make_node(called=False, **changes)


def test_a_node_that_no_node_has_called_behaves_as_if_none_could(make_node: MakeNode, grow: Grow) -> None:
    """A certificate may have expired, or a firewall be closed: its own blocks and its mempool do not wait."""
    node = unreached(make_node)
    remote = node.remote(blocks=grow(2))
    remote.scripts["/p2p/block"] = takes_what_fits(remote)
    node.meet(remote)
    node.run(10)
    assert not node.peers.reachable
    assert len(node.transport.calls_to(remote.endpoint, "/p2p/transactions")) >= 1
    node.take(*grow(6)[2:])
    node.run(10)
    assert remote.tip.hash == node.tip.hash
    asked = [called.at for called in node.transport.calls_to(remote.endpoint, STATUS)]
    assert max(later - earlier for earlier, later in pairwise(asked)) <= 6


def test_a_node_that_was_called_can_be(make_node: MakeNode) -> None:
    node = unreached(make_node)
    remote = node.remote()
    call(node, remote)
    assert node.peers.reachable
    node.run(peers.CALLED_SECONDS - 1)
    assert node.peers.reachable
    assert node.transport.calls_to(remote.endpoint, "/p2p/transactions") == []
    node.run(2)
    assert not node.peers.reachable


def test_a_node_without_an_endpoint_cannot_be_called(make_node: MakeNode) -> None:
    node = make_node(endpoint="")
    call(node, node.remote())
    assert not node.peers.reachable
    node.run(2_000)
    assert node.peers.unreachable() == ""


def test_the_alarm_of_a_node_that_no_node_reaches(make_node: MakeNode) -> None:
    node = unreached(make_node)
    remote = node.remote()
    node.run(3_000)
    assert node.peers.unreachable() == "", "without a peer there is no node that could call"
    node.meet(remote)
    node.run(peers.UNREACHABLE_SECONDS - 5)
    assert node.status.alarms()["unreachable"] == ""
    node.run(10)
    said = node.status.alarms()["unreachable"]
    assert said == (
        f"no node has called {OURS} for 10 minutes: check that [http] publicUrl leads here from outside "
        "(port, proxy, certificate), or leave it empty"
    )
    assert node.status.line().endswith(f"; alarm: {said}")
    assert node.status.unready() == "", "it has the chain, and hands on its own"
    call(node, remote)
    assert node.status.alarms()["unreachable"] == ""
    node.run(peers.UNREACHABLE_SECONDS + 5)
    assert node.status.alarms()["unreachable"] != ""


def test_an_outage_is_no_reason_for_the_alarm(make_node: MakeNode) -> None:
    """Nobody calls, because nobody can: that the publicUrl is wrong does not follow."""
    node = unreached(make_node)
    remote = node.remote()
    node.meet(remote)
    node.run(500)
    del node.transport.responders[remote.endpoint]
    assert node.until(lambda: not node.knows(remote), within=60)
    node.run(3_000)
    assert node.peers.unreachable() == ""
    node.transport.responders[remote.endpoint] = remote
    assert node.until(lambda: node.knows(remote), within=120)
    node.run(peers.UNREACHABLE_SECONDS - 5)
    assert node.peers.unreachable() == ""


@pytest.mark.parametrize(
    ("endpoint", "host", "shows"),
    [
        ("http://node.example:8645", "node.example:8645", True),
        ("http://node.example:8645", "NODE.example:8645", True),
        ("http://node.example:8645", "node.example", True),
        ("http://node.example:8645", "node.example:80", False),
        ("http://node.example:8645", "node.example:9000", False),
        ("http://node.example:8645", "192.168.1.5:8645", False),
        ("http://node.example:8645", "localhost:8645", False),
        ("http://node.example:8645", "other.example:8645", False),
        ("https://node.example", "node.example", True),
        ("https://node.example", "node.example:443", True),
        ("https://node.example", "node.example:8645", False),
        ("http://[2001:db8::1]:8645", "[2001:DB8::1]:8645", True),
        ("http://[2001:db8::1]:8645", "[2001:db8::1]", True),
        ("http://[2001:db8::1]:8645", "[2001:db8::2]:8645", False),
        ("http://node.example:8645", "", False),
        ("http://node.example:8645", "node.example:x/\xff", False),
        ("", "node.example", False),
    ],
)
def test_only_a_call_by_the_public_url_shows_that_it_leads_here(
    make_node: MakeNode, endpoint: str, host: str, shows: bool
) -> None:
    """A neighbour that calls an address of the local network does not show that anybody else can call."""
    node = unreached(make_node, endpoint=endpoint and Endpoint(endpoint))
    remote = node.remote()
    body = json.dumps({"hello": remote.hello().message()}).encode()
    wire = Wire(node.site, "192.168.1.9")
    head = f"POST {HELLO} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    wire.send(head.encode("latin-1") + body)
    wire.close()
    assert node.peers.reachable is shows


def test_a_neighbour_that_calls_another_address_hides_no_wrong_public_url(make_node: MakeNode) -> None:
    node = unreached(make_node)
    remote = node.remote()
    node.meet(remote)
    for _ in range(5):
        node.peers.hello_received(remote.hello(), "192.168.1.9", host="192.168.1.5:8645")
        node.run(peers.UNREACHABLE_SECONDS / 4)
    assert not node.peers.reachable
    assert "check that [http] publicUrl leads here" in node.status.alarms()["unreachable"]


# Asking to be called


def asked_back(node: Node, remote: RemoteNode) -> list[bool]:
    """For every hello to a peer whether it asked to be called."""
    return ["callBack=true" in called.request.path for called in node.transport.calls_to(remote.endpoint, HELLO)]


def test_a_node_that_misses_calls_asks_for_one(make_node: MakeNode) -> None:
    node = unreached(make_node)
    remote = node.remote()
    node.meet(remote)
    assert asked_back(node, remote) == [True]
    call(node, remote)
    node.run(200)
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    assert asked_back(node, remote) == [True, False]
    node.run(120)
    assert asked_back(node, remote) == [True, False]
    node.run(300)
    assert asked_back(node, remote) == [True, False, True], "no node has called for so long again"


@pytest.mark.parametrize("changes", [{"endpoint": "", "called": False}, {"called": True}])
def test_a_node_that_needs_no_call_does_not_ask(make_node: MakeNode, changes: dict[str, Any]) -> None:
    node = make_node(**changes)
    remote = node.remote()
    node.meet(remote)
    node.run(1_000)
    assert set(asked_back(node, remote)) == {False}


@pytest.mark.parametrize("outbound", [True, False])
def test_a_peer_that_asks_for_it_is_called_though_it_is_known(make_node: MakeNode, outbound: bool) -> None:
    node = make_node(outbound=int(outbound))
    remote = node.remote()
    node.meet(remote, outbound=outbound)
    known = node.peer(remote)
    for _ in range(5):
        node.peers.hello_received(remote.hello(), "198.51.100.7", call_back=True)
        node.run(1)
    assert greetings(node, remote.endpoint) == 2, "once in a minute"
    assert node.peer(remote) is known
    assert known.outbound is outbound
    node.run(peers.CALL_BACK_SECONDS)
    node.peers.hello_received(remote.hello(), "198.51.100.7", call_back=True)
    node.run(1)
    assert greetings(node, remote.endpoint) == 3


def test_a_node_that_asks_is_called_where_there_is_no_room_for_it(make_node: MakeNode) -> None:
    node = make_node(max_inbound=0)
    remote = node.remote()
    node.peers.settings = evolve(node.peers.settings, outbound=0)
    call(node, remote)
    node.run(1)
    assert greetings(node, remote.endpoint) == 0
    for _ in range(30):
        node.peers.hello_received(remote.hello(), "198.51.100.7", call_back=True)
        node.run(1)
    assert greetings(node, remote.endpoint) == 1
    assert not node.knows(remote)


def test_a_key_cannot_have_another_s_endpoint_called_again_and_again(node: Node) -> None:
    victim = node.remote()
    node.meet(victim)
    thief = RemoteNode(
        transport=node.transport, endpoint=victim.endpoint, builder=node.builder, key=NodeKey(b"t" * 32, "")
    )
    for _ in range(299):
        node.peers.hello_received(thief.hello(), "198.51.100.7", call_back=True)
        node.run(1)
    assert greetings(node, victim.endpoint) <= 6


@pytest.mark.parametrize(("query", "asks"), [("?callBack=true", True), ("?callBack=false", False), ("", False)])
def test_a_hello_over_http_asks(node: Node, query: str, asks: bool) -> None:
    remote = node.remote()
    node.meet(remote)
    node.run(1)
    client_of(node).ok(f"{HELLO}{query}", {"hello": remote.hello().message()})
    node.run(1)
    assert greetings(node, remote.endpoint) == 1 + asks


@pytest.mark.parametrize("query", ["?callBack=", "?callBack=1", "?callBack=TRUE"])
def test_reachability_must_be_a_boolean(node: Node, query: str) -> None:
    body = {"hello": node.remote().hello().message()}
    assert client_of(node).refusal(f"{HELLO}{query}", body) == "callBack: must be true or false"


def test_two_nodes_tell_each_other_that_they_can_be_reached(make_node: MakeNode) -> None:
    """The second has no room for the first, and calls it all the same."""
    first = make_node("a", name="a", endpoint=place(1), called=False)
    second = make_node("b", name="b", endpoint=place(2), called=False, max_inbound=0, outbound=0)
    for node in (first, second):
        first.transport.responders[node.key.endpoint] = Neighbour(node, "60.9.9.9")
    first.peers.hint(Endpoint(place(2)), source="operator")
    first.run(5)
    assert first.peers.reachable
    assert second.peers.reachable
    assert second.peers.all() == []
