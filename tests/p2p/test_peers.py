"""Who is talked to: greeting, our own call back, choice, keeping in touch, claims and prices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent, globalLogPublisher

from svcd.chain.signature import sign
from svcd.interfaces import milliseconds
from svcd.net.targets import Endpoint
from svcd.node.clock_guard import STEADY_SECONDS
from svcd.node.network_view import KNOWN_PEERS_CALLED, NO_PEER_LEFT, NO_PEER_MET
from svcd.node.threads import InlineWorker
from svcd.p2p import peers
from svcd.p2p.address_book import BUCKET_SIZE, MAX_BACK_OFF, AddressEntry, group_of_endpoint
from svcd.p2p.bans import Ban, endpoint_name, node_name
from svcd.p2p.handshake import Hello, NodeKey, check_hello, parse_hello
from svcd.p2p.service import FORMAT, SAVE_APART_SECONDS, PeersFile, PeersService, read_peers_file, write_peers_file
from svcd.p2p.transport import FailureKind, PeerCallFailed
from svcd.store.database import DiskError
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE
from tests.p2p.bench import OURS, Node, place
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.memory_transport import Called
from tests.p2p.remote_node import RemoteNode, ok, refused, silent
from tests.store.statements import trace
from tests.support import result_of

HOUR = 3_600.0
DAY = 24 * HOUR
HELLO, STATUS, PEERS = "/p2p/hello", "/p2p/status", "/p2p/peers"


def greetings(node: Node, endpoint: str) -> int:
    return len(node.transport.calls_to(endpoint, HELLO))


def entry(node: Node, remote: RemoteNode) -> AddressEntry:
    found = node.book.get(remote.endpoint)
    assert found is not None
    return found


def outbound(node: Node) -> set[str]:
    return {peer.endpoint for peer in node.peers.outbound()}


# Whether this node is online


def test_a_node_is_online_while_a_peer_answers(node: Node) -> None:
    assert not node.peers.is_online
    node.run(100.0)
    assert node.peers.online_seconds == 0.0
    remotes = [node.remote(number) for number in (1, 2)]
    node.meet(*remotes)
    assert node.peers.is_online
    node.run(100.0)
    assert node.peers.online_seconds == pytest.approx(100.0, abs=2.0)
    del node.transport.responders[remotes[0].endpoint]
    node.run(100.0)
    assert node.peers.online_seconds == pytest.approx(200.0, abs=2.0)


def test_the_peers_confirm_the_time_of_the_node_with_their_next_hellos(node: Node) -> None:
    node.meet(*(node.remote(number) for number in (1, 2)))
    node.run(1.0)
    since = node.clock.seconds()
    counted = node.peers.agreeing_clocks
    assert (counted(float("-inf")), counted(since)) == (2, 0)
    node.run(STEADY_SECONDS)
    assert counted(since) == 2


@pytest.mark.parametrize("silently", [False, True])
def test_the_clock_of_a_node_stops_in_an_outage(node: Node, silently: bool) -> None:
    remote = node.remote()
    node.meet(remote)
    node.run(100.0)
    if silently:
        remote.scripts = {"": silent}
    else:
        del node.transport.responders[remote.endpoint]
    node.run(peers.ONLINE_SECONDS + 1.0)
    before = node.peers.online_seconds
    assert not node.peers.is_online
    node.run(200.0)
    assert node.peers.online_seconds == before
    remote.scripts = {}
    node.transport.responders[remote.endpoint] = remote
    assert node.until(lambda: node.peers.is_online, within=30.0)
    node.run(50.0)
    assert node.peers.online_seconds == pytest.approx(before + 50.0, abs=2.0)


def test_a_node_that_may_be_alone_is_always_online(make_node: MakeNode) -> None:
    node = make_node(alone=True)
    node.run(100.0)
    assert node.peers.is_online
    assert node.peers.online_seconds == pytest.approx(100.0, abs=2.0)


def test_peers_that_come_and_leave_are_told(node: Node) -> None:
    remote = node.remote()
    logged: list[LogEvent]
    with capturedLogs() as logged:
        node.meet(remote)
        del node.transport.responders[remote.endpoint]
        assert node.until(lambda: not node.peers.has_any, within=600.0)
    told = [formatEvent(event) for event in logged if event["log_namespace"].startswith("svcd.node.news")]
    assert told[0] == f"peer {remote.endpoint} came, at height 0; peers: 1"
    assert told[1].startswith(f"peer {remote.endpoint} left: 3 requests in a row have failed, the last one because ")
    assert told[1].endswith("; peers: 0")
    assert len(told) == 2


def test_who_posts_a_block_is_named_by_its_endpoint_if_only_one_peer_is_there(node: Node) -> None:
    first, second = node.remote(1), node.remote(2)
    node.meet(first, second)
    assert node.peers.name_of(node.peer(first).address) == first.endpoint
    node.peer(second).address = node.peer(first).address
    assert node.peers.name_of(node.peer(first).address) == node.peer(first).address
    assert node.peers.name_of("203.0.113.200") == "203.0.113.200"
    assert node.peers.name_of(None) == ""


# Greeting


def test_a_hint_is_called_and_becomes_a_peer(node: Node) -> None:
    remote = node.remote()
    node.hint(remote)
    assert node.until(lambda: node.knows(remote), within=2)
    peer = node.peer(remote)
    assert (peer.node_key, peer.node_id, peer.outbound) == (remote.key.public, remote.key.node_id, True)
    assert entry(node, remote).verified
    node.run(0.5)
    assert node.transport.paths(remote.endpoint) == [HELLO, STATUS, PEERS]


def test_other_nodes_accept_our_hello(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    said = parse_hello(remote.got_at(HELLO)[0])
    check_hello(said, node.local.params, own=remote.key.node_id, now=milliseconds(node.clock))
    assert (said.endpoint, said.node_key, said.hash) == (OURS, node.key.public, node.tip.hash)


def test_nobody_there(node: Node) -> None:
    node.peers.hint(place(1), source="operator")
    node.run(HOUR)
    assert node.peers.all() == []
    assert 8 <= greetings(node, place(1)) <= 12, "the wait doubles from 5 seconds to 30 minutes"


@pytest.mark.parametrize(
    "script",
    [
        silent,
        lambda _: refused(403),
        lambda _: refused(429),
        lambda _: ok(),
        lambda _: ok(hello={}),
        lambda _: FailureKind.TOO_LARGE,
    ],
    ids=["silence", "403", "429", "no hello", "another form", "too much"],
)
def test_an_answer_that_is_no_hello(node: Node, script: Any) -> None:
    remote = node.remote(scripts={HELLO: script})
    node.hint(remote)
    node.run(8)
    assert not node.knows(remote)
    assert entry(node, remote).failures >= 1
    assert not node.book.verified()


@pytest.mark.parametrize(("source", "warnings"), [("operator", 1), ("10.1", 0)])
def test_a_refusal_by_a_node_that_the_operator_named_is_logged(node: Node, source: str, warnings: int) -> None:
    """Two network files differ, for instance; strangers cannot fill the log that way."""
    names = "x" * 32
    why = f"this node is on {names} with genesis {'ab' * 32}, and the hello is from {names} with genesis {'cd' * 32}"
    remote = node.remote(scripts={HELLO: lambda _: refused(400, why)})
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        node.peers.hint(remote.endpoint, source=source)
        assert node.begin(node.peers.connect(remote.endpoint, outbound=True)) is not None
        node.run(0.5)
    finally:
        globalLogPublisher.removeObserver(events.append)
    told = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
    assert len(told) == warnings
    assert all(each.startswith(f"{remote.endpoint} refuses the hello of this node: ") for each in told)
    assert all(why in each for each in told)


LIES: dict[str, Callable[[Hello], Hello]] = {
    "another network": lambda hello: evolve(hello, network_id=1),
    "another genesis": lambda hello: evolve(hello, genesis_hash=bytes(32)),
    "another protocol": lambda hello: evolve(hello, protocol_version="2.0"),
    "a clock that is a minute off": lambda hello: evolve(hello, timestamp=hello.timestamp - 61_000),
    "another's id": lambda hello: evolve(hello, node_id="svcnode_" + "ab" * 16),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("signed", [True, False])
def test_a_hello_that_is_refused(node: Node, lie: Callable[[Hello], Hello], signed: bool) -> None:
    def script(_: Called) -> Any:
        changed = lie(remote.hello())
        if signed:
            changed = evolve(changed, signature=sign(remote.key.seed, changed.signed_hash()))
        return ok(hello=changed.message())

    remote = node.remote(scripts={HELLO: script})
    node.hint(remote)
    node.run(8)
    assert not node.knows(remote)
    assert entry(node, remote).failures >= 1
    assert node.peers.bans.listed(node.local.now()) == []


@pytest.mark.parametrize("named", ["", place(9), "http://node.example"])
def test_an_endpoint_counts_only_if_the_hello_names_it(node: Node, named: str) -> None:
    """A hello proves a key; somebody else's endpoint may be behind which that key does not listen."""
    remote = node.remote(names=named)
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    node.run(0.5)
    assert not node.knows(remote)
    assert not node.book.verified()
    assert node.book.get("") is None
    assert (node.book.get(named) is not None) is bool(named)


def test_our_own_endpoint_under_another_name(node: Node) -> None:
    mirror = node.remote(key=node.key, names=OURS)
    node.hint(mirror)
    node.run(DAY - 10)
    assert not node.knows(mirror)
    assert greetings(node, mirror.endpoint) == 1
    assert node.book.get(mirror.endpoint) is None
    node.hint(mirror)
    node.run(5)
    assert greetings(node, mirror.endpoint) == 1
    node.run(10)
    node.hint(mirror)
    node.run(5)
    assert greetings(node, mirror.endpoint) == 2


def test_our_own_endpoint_is_never_called(node: Node) -> None:
    node.peers.hint(OURS, source="operator")
    node.run(60)
    assert node.transport.calls == []


def test_a_banned_key_is_not_met(node: Node) -> None:
    remote = node.remote()
    node.peers.bans.ban(node_name(remote.key.node_id), seconds=HOUR, now=node.local.now())
    node.hint(remote)
    node.run(HOUR - 1)
    assert not node.knows(remote)
    assert not node.book.verified()
    node.run(1_900 * 1.25)
    assert node.knows(remote)


def test_a_banned_endpoint_is_not_called(node: Node) -> None:
    remote = node.remote()
    node.peers.bans.ban(endpoint_name(remote.endpoint), seconds=HOUR, now=node.local.now())
    node.hint(remote)
    node.run(HOUR - 1)
    assert greetings(node, remote.endpoint) == 0
    node.run(1_900 * 1.25)
    assert node.knows(remote)


def test_an_old_reply_is_refused_the_second_time(node: Node) -> None:
    recorded: list[Any] = []

    def script(_: Called) -> Any:
        recorded.append(recorded[0] if recorded else remote.hello().message())
        return ok(hello=recorded[0])

    remote = node.remote(scripts={HELLO: script})
    node.meet(remote)
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    node.run(0.5)
    assert len(recorded) == 2
    assert not node.knows(remote)


def test_handing_on_the_hello_of_another_does_not_make_its_own_look_old(node: Node) -> None:
    victim = node.remote(1)
    parrot = node.remote(2, scripts={HELLO: lambda _: ok(hello=victim.hello().message())})
    node.transport.latency[victim.endpoint] = 1.0
    greeting = node.begin(node.peers.connect(victim.endpoint, outbound=True))
    node.run(1.5)
    node.begin(node.peers.connect(parrot.endpoint, outbound=True))
    node.run(1.0)
    assert result_of(greeting) is node.peer(victim)
    assert not node.knows(parrot)


def test_a_new_key_at_an_endpoint_wins(node: Node) -> None:
    old = node.remote()
    node.meet(old)
    new = node.remote(key=NodeKey(key_of("another").seed, old.endpoint))
    node.meet(new)
    assert [peer.node_key for peer in node.peers.all()] == [new.key.public]
    assert [found.node_id for found in node.book.verified()] == [new.key.node_id]


def test_a_late_failure_of_an_old_key_does_not_cost_the_new_one_its_place(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    old = node.peer(remote)
    remote.key = NodeKey(key_of("another").seed, remote.endpoint)
    node.meet(remote)
    assert not node.peers.has(old)
    for _ in range(peers.MAX_FAILURES):
        node.peers.count_failure(old, PeerCallFailed(FailureKind.TIMEOUT, "late"))
    assert node.knows(remote)


def test_a_key_at_a_new_endpoint_wins(node: Node) -> None:
    old = node.remote(1)
    node.meet(old)
    new = node.remote(2, key=old.key)
    node.meet(new)
    assert [peer.endpoint for peer in node.peers.all()] == [new.endpoint]
    assert [found.endpoint for found in node.book.verified()] == [new.endpoint]
    assert old.endpoint in node.transport.forgotten


def test_one_endpoint_is_greeted_once_at_a_time(node: Node) -> None:
    remote = node.remote()
    for _ in range(5):
        node.begin(node.peers.connect(remote.endpoint, outbound=True))
    node.run(0.5)
    assert greetings(node, remote.endpoint) == 1


def test_eight_greetings_at_a_time(node: Node) -> None:
    for number in range(20):
        node.remote(number, scripts={HELLO: silent})
        node.begin(node.peers.connect(place(number), outbound=True))
    assert len(node.transport.calls) == 8
    node.run(5.1)
    node.begin(node.peers.connect(place(19), outbound=True))
    assert greetings(node, place(19)) == 1


def test_no_connection_is_kept_to_whoever_is_no_peer(node: Node) -> None:
    for number, changes in enumerate([{"names": ""}, {"scripts": {HELLO: silent}}, {"key": node.key}]):
        node.remote(number, **changes)
        node.begin(node.peers.connect(place(number), outbound=True))
    known = node.remote(3)
    node.begin(node.peers.connect(known.endpoint, outbound=False, keep=False))
    node.run(8)
    assert {place(number) for number in range(4)} <= set(node.transport.forgotten)


def test_nobody_is_called_after_the_stop(make_node: MakeNode) -> None:
    """Neither what was under way then goes on, nor what a client causes whose connection is still being drained."""
    node = make_node(endpoint="", called=False)
    known, met, calling = (node.remote(number) for number in range(3))
    node.meet(known)
    node.run(peers.RENEW_SECONDS / 2)
    node.transport.latency = {remote.endpoint: 2.0 for remote in (known, met)}
    node.peers.poll_all()
    node.hint(met)
    node.peers.tick()
    assert node.transport.paths(met.endpoint) == [HELLO]
    before = len(node.transport.calls)
    result_of(Deferred.fromCoroutine(node.network.stop()))
    call(node, calling)
    node.peers.poll_all()
    node.peers.tick()
    with pytest.raises(peers.HandshakeFailed, match="this node is stopping"):
        result_of(Deferred.fromCoroutine(node.peers.handshake(calling.endpoint, outbound=False)))
    node.run(8)
    assert node.transport.calls[before:] == []
    assert node.peers.all() == [node.peer(known)]


# Whoever calls us


def call(node: Node, remote: RemoteNode, client: str = "198.51.100.7", *, call_back: bool = False) -> None:
    node.peers.hello_received(remote.hello(), client, call_back=call_back)


def test_an_inbound_peer_is_called_back(node: Node) -> None:
    remote = node.remote()
    call(node, remote)
    assert not node.knows(remote)
    node.run(0.5)
    assert node.knows(remote)
    assert entry(node, remote).verified
    assert entry(node, remote).source == "198.51.0.0/16"


def test_a_node_that_cannot_be_called_back_is_no_peer(node: Node) -> None:
    remote = node.remote(scripts={HELLO: silent})
    call(node, remote)
    node.run(8)
    assert node.peers.all() == []
    assert not node.book.verified()


def test_somebody_without_an_endpoint_is_not_called(node: Node) -> None:
    call(node, node.remote(names=""))
    node.run(5)
    assert node.transport.calls == []
    assert len(node.book) == 0


def lose(node: Node, remote: RemoteNode) -> None:
    """Meet another node, and lose it for so long that it is called every half an hour."""
    node.meet(remote)
    del node.transport.responders[remote.endpoint]
    assert node.until(lambda: not node.knows(remote), within=60)
    entry(node, remote).next_try = node.local.now() + HOUR / 2
    node.transport.responders[remote.endpoint] = remote


def test_a_node_that_was_lost_is_called_as_soon_as_it_says_hello(node: Node) -> None:
    remote = node.remote()
    lose(node, remote)
    call(node, remote)
    assert node.until(lambda: node.knows(remote), within=1)


def test_a_hello_of_another_key_does_not_bring_the_call_to_a_lost_node_forward(node: Node) -> None:
    remote = node.remote()
    lose(node, remote)
    call(node, node.remote(key=NodeKey(key_of("another").seed, remote.endpoint)))
    assert not node.until(lambda: node.knows(remote), within=60)


def test_a_lost_node_that_says_hello_and_does_not_answer_is_called_once_a_minute(make_node: MakeNode) -> None:
    node = make_node(outbound=0)
    remote = node.remote()
    lose(node, remote)
    del node.transport.responders[remote.endpoint]
    before = greetings(node, remote.endpoint)
    for _ in range(299):
        call(node, remote)
        node.run(1)
    assert greetings(node, remote.endpoint) - before == 5


def test_another_s_endpoint_is_not_taken_over(node: Node) -> None:
    """Somebody claims to listen where another peer does; nor does that make us call its victim again and again."""
    victim = node.remote()
    node.meet(victim)
    thief = RemoteNode(
        transport=node.transport, endpoint=victim.endpoint, builder=node.builder, key=NodeKey(b"t" * 32, "")
    )
    for _ in range(299):
        call(node, thief)
        node.run(1)
    assert [peer.node_key for peer in node.peers.all()] == [victim.key.public]
    assert greetings(node, victim.endpoint) <= 6


def test_a_node_that_came_back_is_called_back_at_once(node: Node) -> None:
    remote = node.remote()
    node.meet(remote, outbound=False)
    node.peers.drop(node.peer(remote))
    node.run(0.5)
    assert not node.knows(remote), "it has just been called"
    node.peers.settings = evolve(node.peers.settings, outbound=0)
    node.run(60)
    call(node, remote)
    node.run(0.5)
    assert node.knows(remote)


def test_acquaintances_have_places_of_their_own(make_node: MakeNode) -> None:
    node = make_node(outbound=2, max_inbound=3)
    chosen = [node.remote(number) for number in range(2)]
    node.meet(*chosen)
    for number in range(2, 12):
        call(node, node.remote(number))
        node.run(1)
    assert outbound(node) == {remote.endpoint for remote in chosen}
    assert len(node.peers.all()) == 5
    assert len(node.book.verified()) >= 5


def test_many_who_call_at_once_are_not_more_than_there_is_room_for(make_node: MakeNode) -> None:
    node = make_node(outbound=0, max_inbound=3)
    node.meet(node.remote(0), node.remote(1), outbound=False)
    for number in range(2, 12):
        call(node, node.remote(number))
    node.run(5)
    assert len(node.peers.all()) == 3


def test_call_backs_leave_room_for_greetings_of_our_own(node: Node) -> None:
    for number in range(30):
        call(node, node.remote(number, scripts={HELLO: silent}), client=f"{20 + number}.1.1.1")
    assert len(node.transport.calls) == 4
    honest = node.remote(40)
    node.begin(node.peers.connect(honest.endpoint, outbound=True))
    node.run(0.5)
    assert node.knows(honest)


def test_call_backs_keep_no_outbound_place_empty(make_node: MakeNode) -> None:
    """Peers that ask for a call once a minute each, and answer it late, could have four under way for ever."""
    node = make_node(outbound=4)
    first, *others = [node.remote(number) for number in range(4)]
    callers = [node.remote(endpoint=f"http://203.0.113.7:{9_000 + number}") for number in range(4)]
    node.meet(first)
    node.meet(*callers, outbound=False)
    for caller in callers:
        caller.scripts[HELLO] = silent
        call(node, caller, call_back=True)
    node.hint(*others)
    node.run(2)
    assert {remote.endpoint for remote in (first, *others)} <= outbound(node)


# Choice


def test_eight_outbound_peers_in_different_parts_of_the_network(node: Node) -> None:
    for number in range(60):
        host = f"80.{number % 5}.{number}.1"
        node.hint(node.remote(endpoint=f"http://{host}:8645"))
    node.run(30)
    assert len(outbound(node)) == 5
    assert len({group_of_endpoint(endpoint) for endpoint in outbound(node)}) == 5
    for number in range(20):
        node.hint(node.remote(number))
    node.run(30)
    assert len(outbound(node)) == 8
    assert len({group_of_endpoint(endpoint) for endpoint in outbound(node)}) == 8


def named(node: Node, number: int, address: str, domain: str = "") -> RemoteNode:
    """Somebody at a name of their own, which leads to an address."""
    remote = node.remote(endpoint=f"http://node.{domain or f'party{number}'}.example:8645")
    remote.transport.addresses[remote.endpoint] = address
    return remote


def test_many_names_in_one_part_of_the_network_get_one_place(node: Node) -> None:
    """A name costs nothing, and says nothing about where it leads."""
    crowd = [named(node, number, f"80.1.{number}.1") for number in range(20)]
    node.hint(*crowd)
    node.run(60)
    assert len(outbound(node)) == 1
    honest = [node.remote(number) for number in range(7)]
    node.hint(*honest)
    node.run(60)
    assert {remote.endpoint for remote in honest} < outbound(node)
    assert len(outbound(node)) == 8


def test_once_it_is_known_where_a_name_leads_it_is_not_tried_in_vain(node: Node) -> None:
    crowd = [named(node, number, f"80.1.{number}.1") for number in range(4)]
    node.peers.settings = evolve(node.peers.settings, max_inbound=0)
    node.hint(*crowd)
    node.run(290)
    assert len(node.peers.all()) == 1
    assert all(entry(node, remote).group == "80.1.0.0/16" for remote in crowd)
    assert all(greetings(node, remote.endpoint) == 1 for remote in crowd)


def test_a_name_and_an_address_in_one_part_of_the_network(node: Node) -> None:
    address = node.remote(endpoint="http://80.1.7.7:8645")
    node.meet(address)
    name = named(node, 1, "80.1.1.1")
    node.meet(name)
    assert outbound(node) == {address.endpoint}
    assert not node.peer(name).outbound


def test_behind_a_translator_ipv4_peers_are_told_apart(node: Node) -> None:
    """A node without IPv4 reaches all of IPv4 at addresses of one /96 (NAT64)."""
    remotes = [named(node, number, f"64:ff9b::{81 + number}.1.1.1") for number in range(8)]
    neighbour = named(node, 8, "64:ff9b::81.1.7.7")
    node.meet(*remotes)
    node.meet(neighbour)
    assert outbound(node) == {remote.endpoint for remote in remotes}
    peers = [node.peer(remote) for remote in remotes]
    assert [peer.is_at("81.1.1.1") for peer in peers] == [True] + 7 * [False]
    punish(node, remotes[0])
    assert not node.knows(remotes[0])
    assert not node.peers.drop_banned()
    node.run(310)
    assert all(node.knows(remote) for remote in remotes[1:])


def test_names_of_one_domain_in_different_parts_of_the_network(node: Node) -> None:
    """A hoster's domain, or ``co.uk``, is no party of its own."""
    remotes = [named(node, n, f"80.{n}.1.1", domain="hoster") for n in range(1, 4)]
    for number, remote in enumerate(remotes):
        remote.endpoint = remote.names = f"http://n{number}.hoster.example"
        remote.key = NodeKey(key_of(remote.endpoint).seed, remote.endpoint)
        node.transport.responders[remote.endpoint] = remote
        node.transport.addresses[remote.endpoint] = f"80.{number}.1.1"
        node.hint(remote)
    node.run(10)
    assert outbound(node) == {remote.endpoint for remote in remotes}


def test_a_peer_that_moves_next_to_another_gives_up_its_place(node: Node) -> None:
    stay, move = named(node, 1, "80.1.1.1"), named(node, 2, "80.2.1.1")
    node.meet(stay, move)
    assert outbound(node) == {stay.endpoint, move.endpoint}
    node.transport.addresses[move.endpoint] = "80.1.1.2"
    assert node.until(lambda: not node.peer(move).outbound, within=303)
    assert node.peer(stay).outbound
    assert node.peer(move).address == "80.1.1.2"


def test_hints_of_a_peer_at_a_name_count_for_where_it_is(node: Node) -> None:
    gossip = named(node, 1, "80.1.1.1")
    gossip.acquaintances = [place(3)]
    node.remote(3, scripts={HELLO: silent})
    node.meet(gossip)
    node.run(1)
    found = node.book.get(place(3))
    assert found is not None
    assert found.source == "80.1.0.0/16"


def test_on_devnet_they_may_be_neighbours(make_node: MakeNode) -> None:
    node = make_node(diverse=False)
    node.meet(*[named(node, number, "127.0.0.1") for number in range(4)])
    assert len(outbound(node)) == 4
    for number in range(20):
        node.hint(node.remote(endpoint=f"http://127.0.0.1:{8_000 + number}"))
    node.run(30)
    assert len(outbound(node)) == 8


def test_no_more_are_called_than_are_missing(node: Node) -> None:
    for number in range(40):
        node.hint(node.remote(number))
    node.run(10)
    assert len({called.endpoint for called in node.transport.calls}) == len(outbound(node)) == 8


def test_a_peer_that_leaves_is_replaced(node: Node) -> None:
    for number in range(9):
        node.hint(node.remote(number))
    node.run(10)
    gone = sorted(outbound(node))[0]
    del node.transport.responders[gone]
    node.run(60)
    assert len(outbound(node)) == 8
    assert gone not in outbound(node)


def test_acquaintances_become_peers_of_our_choice_where_nobody_else_is_known(node: Node) -> None:
    remotes = [node.remote(number) for number in range(3)]
    node.meet(*remotes, outbound=False)
    assert outbound(node) == set()
    node.run(2)
    assert outbound(node) == {remote.endpoint for remote in remotes}


def test_acquaintances_do_not_take_the_place_of_those_we_know(node: Node) -> None:
    callers = [node.remote(number) for number in range(20)]
    node.meet(*callers[:8], outbound=False)
    node.meet(*callers[8:16], outbound=False)
    known = [node.remote(number) for number in range(20, 28)]
    node.hint(*known)
    node.run(2)
    assert outbound(node) == {remote.endpoint for remote in known}


def test_one_dead_hint_does_not_keep_acquaintances_from_being_chosen(node: Node) -> None:
    """It is tried eight times first, for ten minutes: it might only be starting."""
    callers = [node.remote(number) for number in range(4)]
    node.meet(*callers, outbound=False)
    node.peers.hint(place(9), source="operator")
    node.run(450)
    assert outbound(node) == set()
    node.run(450)
    assert outbound(node) == {remote.endpoint for remote in callers}


def test_a_peer_that_answered_a_moment_ago_is_waited_for(node: Node) -> None:
    """It is tried every few seconds, so that eight failures in a row take it two minutes only."""
    callers = [node.remote(number) for number in range(4)]
    friend = node.remote(9)
    node.meet(friend)
    del node.transport.responders[friend.endpoint]
    node.peers.drop(node.peer(friend))
    node.meet(*callers, outbound=False)
    assert node.until(lambda: entry(node, friend).failures >= 8, within=600)
    node.run(5)
    assert outbound(node) == set()
    assert node.until(lambda: outbound(node), within=900)


@pytest.mark.parametrize(("places", "times"), [(1, 2), (2, 11)])
def test_while_places_are_empty_peers_are_asked_for_others_every_minute(
    make_node: MakeNode, places: int, times: int
) -> None:
    node = make_node(outbound=places)
    remote = node.remote()
    node.meet(remote)
    node.run(650)
    assert len(node.transport.calls_to(remote.endpoint, PEERS)) == times


def test_a_feeler_every_two_minutes(make_node: MakeNode) -> None:
    node = make_node(outbound=1)
    chosen = node.remote(0)
    node.meet(chosen)
    for number in range(1, 20):
        node.hint(node.remote(number))
    node.run(601)
    felt = [called.endpoint for called in node.transport.calls if called.endpoint != chosen.endpoint]
    assert len(felt) == len(set(felt)) == 5
    assert set(felt) <= {found.endpoint for found in node.book.verified()}
    assert set(felt) <= set(node.transport.forgotten)
    assert [peer.endpoint for peer in node.peers.all()] == [chosen.endpoint]


@pytest.mark.parametrize("alive", [True, False])
def test_one_whose_place_another_wants_is_called_first(make_node: MakeNode, alive: bool) -> None:
    node = make_node(outbound=1)
    chosen, oldest = node.remote(0), node.remote(endpoint="http://200.1.0.0:8645")
    node.meet(chosen)
    others = [node.remote(endpoint=f"http://200.1.0.{number}:8645") for number in range(1, BUCKET_SIZE + 1)]
    for remote in (oldest, *others):
        node.book.succeeded(remote.endpoint, node_id=remote.key.node_id, height=0, now=node.local.now())
        node.run(1)
    if not alive:
        del node.transport.responders[oldest.endpoint]
    node.run(HOUR)
    assert greetings(node, oldest.endpoint) >= 1
    assert (oldest.endpoint in {found.endpoint for found in node.book.verified()}) is alive
    assert alive or entry(node, others[-1]).verified


@contextmanager
def served(node: Node, path: Path, seeds: list[str]) -> Iterator[PeersService]:
    service = PeersService(node.network, path, seeds, InlineWorker())
    service.startService()
    yield service
    stopped = service.stopService()
    node.run(1)
    result_of(stopped)


def test_bans_and_endpoints_are_known_before_anything_else_happens(node: Node, tmp_path: Path) -> None:
    """The public port answers by then: a banned node must not become a peer first."""
    path = tmp_path / "peers.json"
    bans = [Ban(endpoint_name(place(1)), None, "", own=True)]
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, [], [], bans))
    with served(node, path, []):
        assert node.peers.bans.is_endpoint_banned(place(1), node.local.now())


@pytest.mark.parametrize("wrong", [-1e9, -3_600.0, 3_600.0, 1e9])
def test_a_ban_goes_on_in_the_next_run_even_if_that_starts_with_a_wrong_time(
    make_node: MakeNode, tmp_path: Path, wrong: float
) -> None:
    path = tmp_path / "peers.json"
    first, second = make_node("first"), make_node("second", name="second")
    with served(first, path, []):
        first.peers.bans.ban("node:a", seconds=600, now=first.local.now())
        first.peers.bans.ban_by_operator("node:b", seconds=600, now=first.local.now())
        first.run(100)
    second.clock.rightNow += wrong
    PeersService(second.network, path, [], InlineWorker()).startService()
    now = second.local.now()
    for name in ("node:a", "node:b"):
        assert second.peers.bans.is_banned(name, now + 498)
        assert not second.peers.bans.is_banned(name, now + 500)


def test_anchors_are_called_first(node: Node, tmp_path: Path) -> None:
    """An eclipse must not begin with every restart: whom we had chosen before comes before all that are known."""
    entries = [
        AddressEntry(
            endpoint=node.remote(number).endpoint, source="x", node_id=f"{number}", last_seen=1.0, verified=True
        )
        for number in range(40)
    ]
    anchors = [place(31), place(17)]
    path = tmp_path / "peers.json"
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, entries, anchors, []))
    with served(node, path, []):
        node.run(1)
        first = [called.endpoint for called in node.transport.calls][:2]
        assert set(first) == set(anchors)


def anchors_in(path: Path) -> list[Endpoint]:
    notes = read_peers_file(path)
    assert notes is not None
    return notes.anchors


def test_any_outbound_peer_may_become_an_anchor_however_late_it_answered(node: Node, tmp_path: Path) -> None:
    """The first to answer may all be an attacker's."""
    path = tmp_path / "peers.json"
    with served(node, path, []) as service:
        node.meet(*(node.remote(number) for number in range(8)))
        drawn = set[str]()
        for _ in range(50):
            result_of(service.save())
            drawn.update(anchors_in(path))
    assert drawn == {place(number) for number in range(8)}


def test_an_earlier_anchor_stays_only_if_it_is_in_another_group_than_the_new_one(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """The group of a name is that of the address at which it answered."""
    path = tmp_path / "peers.json"
    beside = AddressEntry(
        endpoint=Endpoint("http://node.example"), source="x", node_id="n", group=group_of_endpoint(place(1))
    )
    for diverse in (True, False):
        node = make_node(f"{diverse}", diverse=diverse)
        write_peers_file(path, PeersFile(FORMAT, "5e" * 32, [beside], [beside.endpoint], []))
        with served(node, path, []):
            node.meet(node.remote(1))
        assert anchors_in(path) == [place(1)] + [beside.endpoint] * (not diverse)


def test_seeds_are_called_before_other_hints(node: Node, tmp_path: Path) -> None:
    for number in range(40):
        node.peers.hint(node.remote(number).endpoint, source=f"{number}")
    with served(node, tmp_path / "peers.json", [node.remote(50).endpoint]):
        node.run(1)
        assert node.transport.calls[0].endpoint == place(50)


def test_a_seed_that_was_away_is_called_however_many_hints_came_meanwhile(node: Node, tmp_path: Path) -> None:
    """An eclipse must not begin with the seed's being down for an hour."""
    seed = place(1)
    with served(node, tmp_path / "peers.json", [seed]):
        node.run(60)
        for number in range(1_280):
            node.peers.hint(place(2_000 + number), source=f"203.{number % 40}.0.0/16")
        node.remote(1)
        node.run(1_900)
        assert seed in outbound(node)


@contextmanager
def full_but_for_seeds(make_node: MakeNode, tmp_path: Path, seeds: list[str], **changes: Any) -> Iterator[Node]:
    """A node whose three outbound places others have taken while no seed answered."""
    node = make_node(outbound=3, **changes)
    with served(node, tmp_path / "peers.json", seeds):
        node.hint(*(node.remote(number) for number in range(3)))
        assert node.until(lambda: len(outbound(node)) == 3, within=60)
        yield node


CHOSEN = {place(number) for number in range(3)}


@pytest.mark.parametrize("diverse", [True, False])
def test_a_seed_that_answers_late_has_a_place_beside_the_others(
    make_node: MakeNode, tmp_path: Path, diverse: bool
) -> None:
    with full_but_for_seeds(make_node, tmp_path, [place(50)], diverse=diverse) as node:
        node.remote(50)
        assert node.until(lambda: place(50) in outbound(node), within=HOUR)
        node.run(HOUR)
        assert outbound(node) == {*CHOSEN, place(50)}


def test_a_seed_may_be_in_the_network_group_of_another_outbound_peer(make_node: MakeNode, tmp_path: Path) -> None:
    neighbour, seed = place(1), place(1).replace("7.1", "9.9")
    assert group_of_endpoint(neighbour) == group_of_endpoint(seed)
    with full_but_for_seeds(make_node, tmp_path, [seed]) as node:
        node.remote(endpoint=seed)
        assert node.until(lambda: seed in outbound(node), within=HOUR)
        # Also when the handshakes have been renewed.
        node.run(HOUR)
        assert outbound(node) == {*CHOSEN, seed}


def test_a_seed_that_is_an_inbound_peer_gets_its_place(make_node: MakeNode, tmp_path: Path) -> None:
    with full_but_for_seeds(make_node, tmp_path, [place(50)]) as node:
        node.meet(node.remote(50), outbound=False)
        assert node.until(lambda: place(50) in outbound(node), within=2)
        assert outbound(node) == {*CHOSEN, place(50)}


def test_there_are_so_many_places_for_seeds_and_one_that_is_gone_makes_room(
    make_node: MakeNode, tmp_path: Path
) -> None:
    seeds = [place(50 + number) for number in range(peers.MAX_SEEDS + 2)]
    with full_but_for_seeds(make_node, tmp_path, seeds) as node:
        for number in range(len(seeds)):
            node.remote(50 + number)
        assert node.until(lambda: len(outbound(node)) == 3 + peers.MAX_SEEDS, within=HOUR)
        node.run(HOUR)
        present = outbound(node)
        assert len(present) == 3 + peers.MAX_SEEDS
        gone = min(present - CHOSEN)
        del node.transport.responders[gone]
        assert node.until(lambda: len(outbound(node) - present) == 1, within=HOUR)
        assert gone not in outbound(node)


def test_a_seed_that_comes_and_goes_changes_no_other_peer(make_node: MakeNode, tmp_path: Path) -> None:
    seed = place(50)
    with full_but_for_seeds(make_node, tmp_path, [seed]) as node:
        node.hint(*(node.remote(number) for number in range(60, 80)))
        for _ in range(3):
            call(node, node.remote(50))
            assert node.until(lambda: seed in outbound(node), within=HOUR)
            assert outbound(node) == {*CHOSEN, seed}
            del node.transport.responders[seed]
            assert node.until(lambda: seed not in outbound(node), within=HOUR)
        assert outbound(node) == CHOSEN


def test_a_node_that_chooses_no_peers_calls_no_seed(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(outbound=0)
    with served(node, tmp_path / "peers.json", [node.remote(50).endpoint]):
        node.run(600)
        assert outbound(node) == set()


def test_verified_endpoints_anchors_and_bans_are_saved(make_node: MakeNode, tmp_path: Path) -> None:
    node, path = make_node(outbound=3), tmp_path / "peers.json"
    remotes = [node.remote(number) for number in range(3)]
    with served(node, path, [remote.endpoint for remote in remotes]):
        node.run(5)
        node.peers.bans.ban("node:a", seconds=HOUR, now=node.local.now(), why="its block broke a rule")
        node.peers.bans.ban_by_operator("address:192.0.2.9", seconds=None, now=node.local.now())
    notes = read_peers_file(path)
    assert notes is not None
    assert {kept.endpoint for kept in notes.entries if kept.verified} == {place(0), place(1), place(2)}
    assert len(notes.anchors) == 2
    assert set(notes.anchors) <= outbound(node) | {place(0), place(1), place(2)}
    assert node.peers.all() == []
    again = make_node("again", name="again", endpoint="http://192.0.2.2:8645")
    with served(again, path, []):
        assert again.book.secret == node.book.secret
        bans = [(ban.name, ban.why, ban.own) for ban in again.peers.bans.listed(node.local.now())]
        assert bans == [("address:192.0.2.9", "", True), ("node:a", "its block broke a rule", False)]
        assert len(again.book.verified()) == 3
        again.run(2)
        assert len(outbound(again)) == 3


def test_a_node_that_is_killed_knows_whom_it_has_just_met(node: Node, tmp_path: Path) -> None:
    path, remotes = tmp_path / "peers.json", [node.remote(number) for number in range(3)]

    def kept() -> set[str]:
        notes = read_peers_file(path)
        return {found.endpoint for found in notes.entries if found.verified} if notes else set()

    with served(node, path, []):
        node.meet(remotes[0])
        assert kept() == {place(0)}
        node.meet(*remotes[1:])
        assert kept() == {place(0)}, "the file is not written for each of many"
        assert node.until(lambda: kept() == {place(0), place(1), place(2)}, within=SAVE_APART_SECONDS)
        node.meet(node.remote(3))
    assert place(3) in kept(), "it is written at the stop, too"


def test_a_start_asks_every_known_peer_at_once_and_again_within_seconds(make_node: MakeNode, tmp_path: Path) -> None:
    """However often calls have failed before: the node may have been off for days, and not the others."""
    node, path = make_node(outbound=4), tmp_path / "peers.json"
    long_ago, later = node.local.now() - 3 * DAY, node.local.now() + HOUR / 2
    entries = [
        AddressEntry(
            endpoint=Endpoint(place(number)),
            source="x",
            node_id=f"{number}",
            last_seen=long_ago,
            failures=7,
            next_try=later,
            verified=True,
        )
        for number in range(4)
    ]
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, entries, [], []))
    began = node.local.now()
    with served(node, path, []):
        node.run(20)
        for number in range(4):
            first, second, third = [called.at - began for called in node.transport.calls_to(place(number), HELLO)]
            assert first <= 1
            assert second <= 9
            assert third <= 20
        remote = node.remote(2)
        assert node.until(lambda: node.knows(remote), within=30)


def test_bans_are_kept_by_the_time_of_a_clock_that_is_set_meanwhile(make_node: MakeNode, tmp_path: Path) -> None:
    node, path = make_node(), tmp_path / "peers.json"
    set_forward = 5 * HOUR
    with served(node, path, []):
        node.peers.bans.ban("node:a", seconds=HOUR, now=node.local.now())
        node.clock.unix_seconds = lambda: node.clock.seconds() + set_forward  # type: ignore[attr-defined]
    # The clock of the next run begins with the new time.
    del node.clock.unix_seconds  # type: ignore[attr-defined]
    node.clock.advance(set_forward)
    again = make_node("again", name="again", endpoint="http://192.0.2.2:8645")
    with served(again, path, []):
        again.run(HOUR - 5)
        assert again.peers.is_banned("a")
        again.run(5)
        assert not again.peers.is_banned("a")


def test_the_times_of_endpoints_are_stored_as_unix_seconds_even_if_the_clock_is_set_meanwhile(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node, path, set_forward = make_node(), tmp_path / "peers.json", 5 * HOUR
    remote, never = node.remote(1), place(7)
    with served(node, path, [remote.endpoint]):
        node.run(2)
        node.peers.book.hint(never, source="x", now=node.local.now())
        entry = node.peers.book.get(remote.endpoint)
        assert entry is not None
        seen = entry.last_seen
        node.clock.unix_seconds = lambda: node.clock.seconds() + set_forward  # type: ignore[attr-defined]
        assert node.local.unix_milliseconds(seen) == int((seen + set_forward) * 1000)
    content = read_peers_file(path)
    assert content is not None
    stored = {entry.endpoint: entry.last_seen for entry in content.entries}
    assert stored == {remote.endpoint: seen + set_forward, never: 0.0}
    # The clock of the next run begins with the new time.
    del node.clock.unix_seconds  # type: ignore[attr-defined]
    node.clock.advance(set_forward)
    again = make_node("again", name="again", endpoint="http://192.0.2.2:8645")
    with served(again, path, []):
        restored = again.peers.book.get(remote.endpoint)
        assert restored is not None
        assert restored.last_seen == seen + set_forward


def test_endpoints_are_called_after_a_run_whose_clock_was_ahead(make_node: MakeNode, tmp_path: Path) -> None:
    node, path = make_node(), tmp_path / "peers.json"
    remote = place(7)
    with served(node, path, []):
        node.peers.book.hint(remote, source="x", now=node.local.now())
        node.peers.book.failed(remote, node.local.now())
        node.clock.unix_seconds = lambda: node.clock.seconds() + 2 * DAY  # type: ignore[attr-defined]
    del node.clock.unix_seconds  # type: ignore[attr-defined]
    again = make_node("again", name="again", endpoint="http://192.0.2.2:8645")
    with served(again, path, []):
        restored = again.peers.book.get(remote)
        assert restored is not None
        assert restored.next_try <= again.local.now() + MAX_BACK_OFF


def test_a_damaged_notebook_does_not_keep_a_node_from_starting(node: Node, tmp_path: Path) -> None:
    path, remote = tmp_path / "peers.json", node.remote()
    path.write_text('{"format":1,"secret":"xyz"')
    with served(node, path, [remote.endpoint]):
        node.run(2)
        assert node.knows(remote)
    assert read_peers_file(path) is not None


# Keeping in touch


def times(node: Node, remote: RemoteNode, path: str) -> list[float]:
    """The seconds between the questions for a path."""
    asked = [called.at for called in node.transport.calls_to(remote.endpoint, path)]
    return [round(later - earlier, 1) for earlier, later in pairwise(asked)]


def test_outbound_peers_are_polled_every_five_seconds(make_node: MakeNode) -> None:
    node = make_node(outbound=1)
    remote = node.remote()
    node.meet(remote)
    node.run(1_300)
    assert set(times(node, remote, STATUS)) <= {5.0, 6.0}
    assert all(300 <= gap <= 302 for gap in times(node, remote, HELLO))
    assert len(times(node, remote, HELLO)) == 4
    assert len(times(node, remote, PEERS)) == 2
    assert node.peer(remote).outbound


@pytest.mark.parametrize("chosen", [True, False], ids=["outbound", "inbound"])
def test_a_peer_that_falls_behind_is_greeted_once_more(make_node: MakeNode, grow: Grow, chosen: bool) -> None:
    """It may have been restarted and not know this node any more; its own calls would then bring it no block."""
    node = make_node(outbound=int(chosen))
    remote = node.remote(blocks=grow(2))
    node.take(*grow(2))
    node.meet(remote, outbound=chosen)
    node.run(60)
    assert greetings(node, remote.endpoint) == 1
    remote.scripts["/p2p/header"] = remote.scripts["/p2p/block"] = silent
    node.take(*grow(3)[2:])
    assert node.until(lambda: greetings(node, remote.endpoint) == 2, within=35 if chosen else 130)
    node.run(100)
    assert greetings(node, remote.endpoint) == 2


def test_acquaintances_are_polled_every_minute(make_node: MakeNode) -> None:
    node = make_node(outbound=0)
    remote = node.remote()
    node.meet(remote, outbound=False)
    node.run(601)
    assert set(times(node, remote, STATUS)) <= {60.0, 61.0}
    assert not node.peer(remote).outbound


def test_addresses_from_peers_are_hints(node: Node) -> None:
    known = node.remote(1, acquaintances=[place(2), "nonsense", "http://[:::]", OURS, place(3)])
    other = node.remote(2)
    node.meet(known)
    node.run(20)
    assert node.knows(other)
    assert {found.endpoint for found in node.book.entries()} == {place(1), place(2), place(3)}
    assert entry(node, other).source == group_of_endpoint(place(1))


@pytest.mark.parametrize("news", [False, True])
def test_a_peer_that_fails_three_times_is_dropped(node: Node, news: bool) -> None:
    """An orphan a second is a reason for a poll each, but not before the last one has been answered."""
    remote = node.remote()
    node.meet(remote)
    remote.scripts = {STATUS: silent, HELLO: silent}
    for _ in range(12):
        if news:
            node.peers.poll_all()
        assert not node.until(lambda: not node.knows(remote), within=1)
    assert node.until(lambda: not node.knows(remote), within=12)
    assert remote.endpoint in node.transport.forgotten
    assert node.peers.bans.listed(node.local.now()) == []
    remote.scripts = {}
    node.run(30)
    assert node.knows(remote), "it is tried again"


def test_a_peer_that_answers_now_and_then_is_kept(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    answers = iter([None, None, True] * 100)
    remote.scripts = {STATUS: lambda called: remote.honest(called) if next(answers) else None}
    node.run(120)
    assert node.knows(remote)


def test_a_peer_that_moved_is_dropped_when_the_hello_is_renewed(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    remote.names = place(7)
    assert node.until(lambda: not node.knows(remote), within=303)


def test_a_peer_whose_hello_is_lost_once_stays(node: Node) -> None:
    """What is being asked of it meanwhile would be lost with it."""
    remote = node.remote()
    node.meet(remote)
    node.run(295)
    remote.scripts[HELLO] = silent
    node.until(lambda: greetings(node, remote.endpoint) == 2, within=10)
    node.run(4.9)
    del remote.scripts[HELLO]
    peer = node.peer(remote)
    node.run(5)
    assert node.peer(remote) is peer
    assert node.local.now() - peer.handshake_at < 5


def test_a_peer_that_says_no_hello_any_more_is_left(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    remote.scripts[HELLO] = silent
    assert node.until(lambda: not node.knows(remote), within=620)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("path", [HELLO, STATUS, PEERS, "/p2p/transactions"])
def test_a_peer_that_has_had_enough_is_asked_again_later_and_stays(make_node: MakeNode, status: int, path: str) -> None:
    node = make_node(called=False)
    remote = node.remote()
    node.meet(remote)
    peer, before = node.peer(remote), len(node.transport.calls_to(remote.endpoint, path))
    remote.scripts[path] = lambda _: evolve(refused(status), retry_after=30.0)
    assert node.until(lambda: len(node.transport.calls_to(remote.endpoint, path)) == before + 1, within=303)
    node.run(0.1)
    refused_at = node.clock.seconds()
    node.peers.poll_all()
    node.run(100)
    assert node.peers.all() == [peer]
    assert peer.failures == 0
    assert remote.endpoint not in node.transport.forgotten
    later = [called.at - refused_at for called in node.transport.calls_to(remote.endpoint) if called.at > refused_at]
    assert 29.9 <= min(later) < 32, "it is asked nothing before"
    del remote.scripts[path]
    node.run(62)
    if path == HELLO:
        assert node.local.now() - peer.handshake_at < 62


def test_a_peer_that_says_no_hello_any_more_because_it_has_had_enough_is_left(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    remote.scripts[HELLO] = lambda _: refused(503)
    assert not node.until(lambda: not node.knows(remote), within=590)
    assert node.until(lambda: not node.knows(remote), within=20)


def test_an_endpoint_where_somebody_has_had_enough_is_not_called_before_it_wants_to_be(node: Node) -> None:
    remote = node.remote(scripts={HELLO: lambda _: evolve(refused(503), retry_after=30.0)})
    node.hint(remote)
    node.run(120)
    assert [gap for gap in times(node, remote, HELLO) if gap < 30] == []
    assert len(times(node, remote, HELLO)) >= 2


def test_everybody_is_asked_at_once_but_not_again_and_again(node: Node) -> None:
    remotes = [node.remote(number) for number in range(5)]
    node.meet(*remotes)
    node.run(2)
    before = len(node.transport.calls)
    for _ in range(100):
        node.peers.poll_all()
    assert [called.path for called in node.transport.calls[before:]] == [STATUS] * 5


def test_news_within_a_second_of_a_poll_cause_another_poll(node: Node, grow: Grow) -> None:
    """Of a burst of blocks the last would be missed until the next slot, or the next minute, and nobody would know."""
    remote = node.remote(blocks=grow(3))
    node.meet(remote, outbound=False)
    node.run(30)
    node.peers.poll_all()
    node.run(0.5)
    assert node.tip.height == 3
    remote.blocks = grow(6)
    node.peers.poll_all()
    node.run(2)
    assert node.tip.height == 6
    asked = len(node.transport.calls_to(remote.endpoint, STATUS))
    node.run(2)
    assert len(node.transport.calls_to(remote.endpoint, STATUS)) == asked, "once is enough"


# Where nobody can call us


def test_a_node_that_nobody_can_call_asks_for_waiting_transfers(make_node: MakeNode) -> None:
    node = make_node(endpoint="")
    builder = ChainBuilder()
    remote = node.remote(pool=[builder.transfer("alice", "bob", 5, timestamp=node.local.params.slot_time(50_000))])
    node.meet(remote)
    assert len(node.node_context.transaction_pool.mempool) == 1
    remote.pool.append(builder.transfer("alice", "bob", 6, timestamp=node.local.params.slot_time(50_000)))
    node.run(10)
    assert len(node.node_context.transaction_pool.mempool) == 2
    assert remote.got_at("/p2p/transaction") == [], "what it has shown is not sent back to it"
    cursors = [called.query["after"] for called in node.transport.calls_to(remote.endpoint, "/p2p/transactions")]
    assert cursors[-1] == 1
    node.run(10)
    assert node.transport.calls_to(remote.endpoint, "/p2p/transactions")[-1].query["after"] == 2


def test_it_does_not_wait_for_the_next_slot(make_node: MakeNode) -> None:
    """Mainnet's rhythm: nobody can tell it of a block or a transfer, so it has to ask more often than once a slot."""
    params = evolve(TEST_PARAMS, slot_seconds=10, slots_per_block=6)
    node, builder = make_node(endpoint="", params=params), ChainBuilder(params)
    remote = RemoteNode(transport=node.transport, endpoint=place(1), builder=builder)
    node.transport.responders[remote.endpoint] = remote
    node.meet(remote)
    for number in range(1, 8):
        asked = len(node.transport.calls_to(remote.endpoint, STATUS))
        # Just missed.
        assert node.until(lambda count=asked: len(node.transport.calls_to(remote.endpoint, STATUS)) > count, within=15)
        node.run(0.1)
        remote.blocks.append(builder.block(remote.blocks[-1] if remote.blocks else None))
        moment = params.slot_time(LATE // 10)
        remote.pool.append(builder.transfer("alice", "bob", number, timestamp=moment))
        assert node.until(lambda: node.tip.hash == remote.tip.hash, within=6)
        assert remote.pool[-1].txid in node.node_context.transaction_pool.mempool


def test_a_node_that_others_can_call_does_not(node: Node) -> None:
    remote = node.remote()
    node.meet(remote)
    node.run(60)
    assert node.transport.calls_to(remote.endpoint, "/p2p/transactions") == []


def test_the_mempool_of_a_peer_that_was_dropped_meanwhile_is_not_polled(make_node: MakeNode) -> None:
    node = make_node(endpoint="")
    remote = node.remote()

    def is_dropped(called: Called) -> Any:
        peer = node.peers.get(called.endpoint)
        assert peer is not None
        node.peers.drop(peer)
        return remote.honest(called)

    node.meet(remote)
    node.run(1)
    remote.scripts = {STATUS: is_dropped}
    polled = len(node.transport.calls_to(remote.endpoint, "/p2p/transactions"))
    assert node.until(lambda: not node.knows(remote), within=10)
    node.run(1)
    assert len(node.transport.calls_to(remote.endpoint, "/p2p/transactions")) == polled


@pytest.mark.parametrize("value", [{}, 5, None, {"version": 2}, "refused"])
def test_a_transfer_that_is_none_or_that_the_mempool_refuses_harms_nobody(make_node: MakeNode, value: object) -> None:
    node = make_node(endpoint="")
    poor = ChainBuilder().transfer("nobody", "bob", 5, timestamp=node.local.params.slot_time(50_000))
    script = {"/p2p/transactions": lambda _: ok(transactions=[value], next="1")}
    remote = node.remote(pool=[poor]) if value == "refused" else node.remote(scripts=script)
    node.meet(remote)
    node.run(30)
    assert node.knows(remote)
    assert len(node.node_context.transaction_pool.mempool) == 0


def test_a_peer_whose_mempool_has_used_nonces_causes_no_look_ups(make_node: MakeNode) -> None:
    """Nobody would pay for them: this node asks the peer, the peer does not ask."""
    node, builder = make_node(endpoint=""), ChainBuilder()
    used = [builder.transfer("alice", "bob", 1_000_000, nonce=nonce) for nonce in range(8)]
    node.take(builder.block(transfers=used))
    moment = node.local.params.slot_time(50_000)
    other = builder.transfer("alice", "bob", 2_000_000, nonce=0, timestamp=moment)
    fresh = builder.transfer("alice", "bob", 1_000_000, nonce=8, timestamp=moment)
    reads: list[str] = []
    trace(node.node_context.chain.reader._db, reads.append)
    node.meet(node.remote(pool=[*used, other, fresh]))
    node.run(5)
    pool = node.node_context.transaction_pool
    assert [entry.transfer.txid for entry in pool.mempool.entries()] == [fresh.txid]
    assert pool.refusals.total() == 9
    assert not [statement for statement in reads if "transfer_run" in statement]


def waiting_remote(node: Node, count: int) -> RemoteNode:
    """A remote node with so many transfers that wait, each of which ``node`` would accept."""
    builder, moment = ChainBuilder(), node.local.params.slot_time(50_000)
    return node.remote(pool=[builder.transfer("alice", "bob", 5, nonce=n, timestamp=moment) for n in range(count)])


@pytest.mark.parametrize("trouble", [DiskError("No space left on device"), RuntimeError("another error")], ids=repr)
def test_transfers_that_the_disk_refuses(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch, expected_errors: Callable[..., Any], trouble: Exception
) -> None:
    """They are polled again once the disk has room; any other error is logged once, not for each transfer."""

    def fail(*_: object) -> None:
        raise trouble

    node = make_node(endpoint="")
    remote, pool = waiting_remote(node, 3), node.node_context.transaction_pool
    with monkeypatch.context() as patch:
        patch.setattr(pool.journal, "write", fail)
        node.meet(remote)
        node.run(1)
    assert len(pool.mempool) == 0
    if not isinstance(trouble, DiskError):
        assert len(expected_errors(RuntimeError)) == 1
    node.run(6)
    assert node.knows(remote)
    assert len(pool.mempool) == (3 if isinstance(trouble, DiskError) else 0)


# Claims


def test_a_node_that_has_met_nobody_is_behind(node: Node) -> None:
    assert node.network.network_view().behind == NO_PEER_MET
    remote = node.remote()
    node.meet(remote)
    assert node.network.network_view().behind == ""
    del node.transport.responders[remote.endpoint]
    node.run(60)
    assert node.peers.all() == []
    view = node.network.network_view()
    assert (view.behind, view.alone) == (NO_PEER_LEFT, False)
    assert node.network.why_no_block() == "", "its branch reaches the others when they are back"
    again = node.remote()
    node.meet(again)
    assert node.network.network_view().behind == ""


def test_a_node_that_may_be_alone_is_not_behind_and_says_that_it_is_alone(make_node: MakeNode) -> None:
    node = make_node(alone=True)
    view = node.network.network_view()
    assert (view.behind, view.alone) == ("", True)
    remote = node.remote()
    node.meet(remote)
    assert not node.network.network_view().alone
    node.peers.drop(node.peers.all()[0])
    assert node.network.network_view().alone


@contextmanager
def remembering(node: Node, folder: Path, remote: RemoteNode) -> Iterator[None]:
    """Start a node that has verified another one in an earlier run."""
    known = AddressEntry(endpoint=Endpoint(remote.endpoint), source="x", last_seen=1.0, verified=True)
    write_peers_file(folder / "peers.json", PeersFile(FORMAT, "5e" * 32, [known], [], []))
    with served(node, folder / "peers.json", []):
        yield


def test_a_node_that_may_be_alone_first_asks_a_node_that_it_knows(
    make_node: MakeNode, grow: Grow, tmp_path: Path
) -> None:
    node = make_node(alone=True)
    with remembering(node, tmp_path, node.remote(blocks=grow(3))):
        assert node.network.network_view().behind == KNOWN_PEERS_CALLED
        assert node.until(lambda: node.status.synced, within=2)
        assert node.until(lambda: node.tip.height == 3, within=0.1)


def test_a_node_that_may_be_alone_does_not_wait_long_for_one_that_it_knows(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(alone=True)
    gone = node.remote()
    del node.transport.responders[gone.endpoint]
    with remembering(node, tmp_path, gone):
        assert not node.until(lambda: node.status.synced, within=9)
        assert node.until(lambda: node.status.synced, within=2)


def test_a_node_that_may_be_alone_first_asks_its_seeds(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(alone=True)
    with served(node, tmp_path / "peers.json", [place(1)]):
        assert not node.until(lambda: node.status.synced, within=9)
        assert node.until(lambda: node.status.synced, within=2)


def test_the_network_view_has_the_best_height_of_the_peers(node: Node, grow: Grow) -> None:
    node.take(*grow(9))
    node.meet(node.remote(1, blocks=grow(9)), node.remote(2, blocks=grow(4)))
    around = node.network.network_view()
    assert (around.known_peers, around.best_height, around.behind) == (2, 9, "")


@pytest.mark.parametrize(("shown", "usual"), [((), 0), ((5,), 0), ((9, 5), 5), ((9, 5, 3), 5), ((9, 9, 5, 3), 5)])
def test_the_chain_that_more_than_half_of_the_outbound_peers_show(
    make_node: MakeNode, grow: Grow, shown: tuple[int, ...], usual: int
) -> None:
    node = make_node()
    node.take(*grow(9))
    remotes = [node.remote(number, blocks=grow(height)) for number, height in enumerate(shown, 1)]
    if remotes:
        node.meet(*remotes)
    assert node.network.network_view().usual_height == usual
    for peer in node.peers.all():
        peer.outbound = False
    assert node.network.network_view().usual_height == 0, "whoever called first has no voice"


def test_a_claim_that_no_header_proves_is_not_shown(node: Node, grow: Grow) -> None:
    node.take(*grow(3))
    liar = node.remote(work=2**255, height=2**53 - 1, scripts={"/p2p/headers": silent})
    node.meet(liar)
    for _ in range(60):
        node.run(10)
        assert (node.network.network_view().best_height, node.network.network_view().behind) == (3, "")
    assert node.knows(liar), "a claim is no reason to leave a peer"


def test_a_height_without_work_is_not_shown(node: Node, grow: Grow) -> None:
    node.take(*grow(3))
    remote = node.remote(blocks=grow(2), height=2**53 - 1)
    node.meet(remote)
    node.run(5)
    status = node.status.node_status()
    assert (status["bestKnownPeerHeight"], status["syncLagBlocks"], status["syncState"]) == ("3", "0", "synced")


# Prices


def punish(node: Node, remote: RemoteNode) -> None:
    node.peers.ban(node.peer(remote), "its block broke a rule")


def test_a_peer_that_broke_a_rule_is_banned_for_a_day(make_node: MakeNode) -> None:
    node = make_node(max_inbound=2)
    remote = node.remote()
    node.meet(remote, outbound=False)
    punish(node, remote)
    assert not node.knows(remote)
    assert node.peers.is_banned(remote.key.node_id)
    node.run(DAY - 10)
    assert not node.knows(remote)
    assert greetings(node, remote.endpoint) == 1, "it is not even called"


def test_another_key_at_the_same_endpoint_is_no_way_out(node: Node) -> None:
    remote = node.remote()
    node.meet(remote, outbound=False)
    punish(node, remote)
    changed = node.remote(key=NodeKey(b"n" * 32, remote.endpoint))
    call(node, changed)
    node.hint(changed)
    node.run(HOUR)
    assert not node.knows(changed)
    moved = node.remote(2, key=remote.key)
    node.hint(moved)
    node.run(HOUR)
    assert not node.knows(moved), "nor is the same key elsewhere"


def test_a_dedicated_host_is_banned_on_every_port(make_node: MakeNode) -> None:
    for diverse in (True, False):
        node = make_node(f"{diverse}", diverse=diverse)
        first = node.remote(endpoint="http://80.1.1.1:8645")
        second = node.remote(endpoint="http://80.1.1.1:8646")
        node.meet(first, outbound=False)
        punish(node, first)
        node.hint(second)
        node.run(60)
        assert node.knows(second) is not diverse


def test_another_name_for_the_same_address_is_no_way_out(node: Node) -> None:
    first, second = named(node, 1, "80.1.1.1"), named(node, 2, "80.1.1.1")
    node.meet(first, outbound=False)
    punish(node, first)
    node.hint(second)
    node.run(60)
    assert not node.knows(second)
    elsewhere = named(node, 3, "80.1.1.2")
    node.meet(elsewhere)


def test_more_than_half_of_the_outbound_peers_are_not_banned(node: Node) -> None:
    """If most of those we chose break the rules, we are more likely to be wrong than they are."""
    remotes = [node.remote(number) for number in range(8)]
    node.meet(*remotes)
    node.run(1)
    for remote in remotes:
        punish(node, remote)
    banned = [remote for remote in remotes if node.peers.is_banned(remote.key.node_id)]
    assert len(banned) == 3
    assert len(outbound(node)) == 5
    assert "most peers send blocks that break a rule" in node.peers.alarm
    assert node.network.network_view().behind == node.peers.alarm
    assert not node.status.synced


def test_acquaintances_do_not_count_for_the_alarm(node: Node) -> None:
    remotes = [node.remote(number) for number in range(20)]
    node.peers.settings = evolve(node.peers.settings, outbound=0)
    for remote in remotes:
        node.meet(remote, outbound=False)
        punish(node, remote)
    assert all(node.peers.is_banned(remote.key.node_id) for remote in remotes)
    assert node.peers.alarm == ""


# What is remembered of a peer


def test_of_what_a_peer_has_the_newest_is_remembered(node: Node) -> None:
    node.meet(node.remote())
    (known,) = node.peers.all()
    items = [number.to_bytes(32, "big") for number in range(peers._REMEMBERED + 1)]
    for item in items:
        known.mark_known(item)
    assert [known.knows(item) for item in (items[0], items[2], items[-1])] == [False, True, True]


# What the operator is told


def test_the_record(node: Node) -> None:
    node.meet(node.remote(1))
    node.peers.settings = evolve(node.peers.settings, outbound=1)
    node.meet(node.remote(2), outbound=False)
    node.peers.hint(place(3), source="x")
    assert node.network.record() == {
        "verified": 2,
        "outbound": 1,
        "known": 3,
        "alarm": None,
        "snapshotStart": None,
        "catchingUp": None,
    }
