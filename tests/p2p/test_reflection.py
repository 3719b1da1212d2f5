"""Having a node call a third party: with the real transport, over connections in memory, which are counted.

Each attack runs once with the node as it is and once without the defence. The other half of the file is what the
defence must leave as it was.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from svcd.net.resolver import SystemResolver
from svcd.net.targets import Endpoint
from svcd.p2p.address_book import AddressEntry, group_of
from svcd.p2p.administration import PeerAdministration
from svcd.p2p.call_budget import CALLS_PER_HOUR, GROUP_CALLS_PER_HOUR, LOST_CALLS_PER_HOUR, CallBudget, CallReason
from svcd.p2p.service import FORMAT, PeersFile, read_peers_file, write_peers_file
from svcd.p2p.transport import HINT_LOOK_UPS, LOOK_UPS, PEER_LOOK_UPS, FailureKind, PeerRequest, open_transport
from tests.p2p.bench import Node, late_transport
from tests.p2p.conftest import MakeNode
from tests.p2p.dialled_transport import DialledTransport, MemoryDialler
from tests.p2p.remote_node import RemoteNode
from tests.p2p.test_attacks import ATTACKER, TakeOut, each_way
from tests.p2p.test_attacks import take_out as take_out
from tests.p2p.test_peers import served
from tests.support import result_of

VICTIM = "8.8.4.4"
NAMES = 32
"""So many hints are taken from one network group in an hour."""
HOUR = 3_600.0


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> DialledTransport:
    """Takes the place of the transport of all nodes here; it calls private addresses where a test asks for that."""
    return DialledTransport(late_transport().clock, allow_private=getattr(request, "param", False))


@pytest.fixture
def network(transport: DialledTransport) -> DialledTransport:
    return transport


def named(network: DialledTransport, node: Node, number: int, address: str = VICTIM, port: int = 8645) -> RemoteNode:
    """A node of the attacker, under a name and in a domain of its own that lead to ``address``."""
    name = f"n{number}.d{number}.example"
    network.names.addresses[name] = [address]
    return RemoteNode(transport=network, endpoint=f"http://{name}:{port}", builder=node.builder)


def greet(node: Node, remotes: Iterable[RemoteNode], client: str = ATTACKER) -> None:
    for remote in remotes:
        node.peers.hello_received(remote.hello(), client, call_back=True)
        node.run(0.1)


def in_the_next_hour(network: DialledTransport, node: Node, *, hours: float = 1.0) -> float:
    """How often the victim is dialled in an hour, by what happens in so many hours."""
    before = network.dials(VICTIM)
    node.run(hours * HOUR)
    return (network.dials(VICTIM) - before) / hours


def most_within_an_hour(times: Sequence[float]) -> int:
    """The most calls that any hour has."""
    return max((bisect_left(times, since + HOUR) - number for number, since in enumerate(times)), default=0)


# Attacks


@each_way
@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "is a web server"])
@pytest.mark.slow
def test_a_third_party_under_many_names(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool, listens: bool
) -> None:
    """Defence: an address where no node has answered is called a dozen times an hour, whatever it is called."""
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node()
    if listens:
        network.dialler.listening[VICTIM, 8645] = None
    greet(node, [named(network, node, number) for number in range(NAMES)])
    first, second = network.dials(VICTIM) + in_the_next_hour(network, node), in_the_next_hour(network, node)
    if defended:
        assert first <= CALLS_PER_HOUR
        assert second <= CALLS_PER_HOUR
    else:
        assert first > 300
        assert second > 50


@each_way
@pytest.mark.slow
def test_names_that_lead_to_a_third_party_after_nodes_answered_there(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool
) -> None:
    """Defence: that a node has answered counts for the address, and not for the name.

    Lost nodes are called every 15 seconds for a day. So the attacker has to do nothing more for as long.
    """
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node()
    nodes = [named(network, node, number, f"9.{number}.9.9", 9_000 + number) for number in range(NAMES)]
    for remote in nodes:
        network.listen(remote, network.names.addresses[Endpoint(remote.endpoint).host][0])
    greet(node, nodes)
    node.run(60)
    assert len(node.book.verified()) == NAMES
    network.names.addresses = {name: [VICTIM] for name in network.names.addresses}
    network.dialler.listening.clear()
    if defended:
        assert in_the_next_hour(network, node) <= CALLS_PER_HOUR
        assert in_the_next_hour(network, node) <= CALLS_PER_HOUR
    else:
        assert in_the_next_hour(network, node, hours=0.1) > 5_000


@each_way
@pytest.mark.slow
def test_an_address_that_hostile_nodes_have_left(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool
) -> None:
    """Defence: an address whose nodes are gone is called every 15 seconds, not that often under each name it had."""
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node(diverse=False)
    nodes = [named(network, node, number, VICTIM, 9_000 + number) for number in range(10)]
    for remote in nodes:
        network.listen(remote, VICTIM)
    greet(node, nodes)
    node.run(60)
    assert len(node.book.verified()) == 10
    network.dialler.listening.clear()
    node.run(60)
    if defended:
        assert in_the_next_hour(network, node) <= LOST_CALLS_PER_HOUR
    else:
        assert in_the_next_hour(network, node, hours=0.2) > 1_500


@each_way
@pytest.mark.slow
def test_hellos_that_name_a_third_party_without_end(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool
) -> None:
    """Defence: the same; new names come faster than any pause between two calls to one name would matter."""
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node()
    for number in range(600):
        greet(node, [named(network, node, number)], f"203.{number % 64}.113.9")
        node.run(0.9)
    assert (network.dials(VICTIM) <= CALLS_PER_HOUR) is defended
    assert defended or network.dials(VICTIM) > 1_000


@each_way
@pytest.mark.slow
def test_the_hosts_of_a_third_party_s_network(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool
) -> None:
    """Defence: a network group gets a bounded number of calls, however many of its hosts are named."""
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node()
    for number in range(480):
        name = f"n{number}.d{number}.example"
        network.names.addresses[name] = [f"8.8.{number // 250}.{number % 250 + 1}"]
        remote = RemoteNode(transport=network, endpoint=f"http://{name}:8645", builder=node.builder)
        greet(node, [remote], f"203.{number % 64}.113.9")
    node.run(HOUR)
    calls = most_within_an_hour([dial.at for dial in network.dialler.dials if group_of(dial.host) == "8.8.0.0/16"])
    assert (calls <= GROUP_CALLS_PER_HOUR) is defended
    assert defended or calls > 2_000


@each_way
def test_a_node_whose_name_leads_to_a_third_party_as_well(
    make_node: MakeNode, network: DialledTransport, take_out: TakeOut, defended: bool
) -> None:
    """Defence: each address of a name is counted, and the node is called at the one where it answers."""
    take_out(CallBudget, "take", lambda *_: True)
    node = make_node()
    remote = named(network, node, 1)
    network.listen(remote, "9.9.9.9")
    network.names.addresses[Endpoint(remote.endpoint).host] = [VICTIM, "9.9.9.9"]
    for _ in range(50):
        node.meet(remote)
        node.peers.drop(node.peer(remote))
    assert (network.dials(VICTIM) == CALLS_PER_HOUR) is defended
    assert network.dials("9.9.9.9") >= 50


def test_a_third_party_behind_a_translator_is_one_address(make_node: MakeNode, network: DialledTransport) -> None:
    node, ways = make_node(), [VICTIM, "64:ff9b::808:404", "2a02:898:146:64::808:404"]
    network.names.addresses["ipv4only.arpa"] = ["2a02:898:146:64::c000:aa"]
    greet(node, [named(network, node, number, ways[number % 3]) for number in range(NAMES)])
    node.run(600)
    assert all(map(network.dials, ways))
    assert sum(map(network.dials, ways)) == CALLS_PER_HOUR


# What goes on as before


def test_nodes_behind_one_address_are_all_met(make_node: MakeNode, network: DialledTransport) -> None:
    """Each has a port of its own, as behind NAT, and some of them are down."""
    node = make_node()
    nodes = [
        RemoteNode(transport=network, endpoint=f"http://{VICTIM}:{9_000 + n}", builder=node.builder) for n in range(8)
    ]
    for remote in nodes[2:]:
        network.listen(remote, VICTIM)
    for remote in nodes:
        node.peers.hello_received(remote.hello(), VICTIM)
        node.run(5)
    node.run(30)
    assert {peer.endpoint for peer in node.peers.all()} == {remote.endpoint for remote in nodes[2:]}


def test_a_node_that_calls_is_met_though_others_name_its_address(
    make_node: MakeNode, network: DialledTransport
) -> None:
    """Else a dozen hellos an hour would keep a new node from being verified."""
    node = make_node()
    greet(node, [named(network, node, number, port=7_000 + number) for number in range(NAMES)])
    node.run(60)
    assert network.dials(VICTIM) == CALLS_PER_HOUR
    honest = RemoteNode(transport=network, endpoint=f"http://{VICTIM}:8645", builder=node.builder)
    network.listen(honest, VICTIM)
    node.peers.hello_received(honest.hello(), VICTIM)
    assert node.until(lambda: node.knows(honest), within=1)
    node.run(120)
    assert node.peer(honest).failures == 0, "its own calls are not counted with the others"


def test_a_node_in_a_network_whose_hosts_are_named_is_tried(make_node: MakeNode, network: DialledTransport) -> None:
    """Somebody else's dead hosts must not keep a whole provider from being called."""
    node = make_node(diverse=False)
    for number in range(NAMES):
        dead = RemoteNode(transport=network, endpoint=f"http://8.8.7.{number + 1}:8645", builder=node.builder)
        greet(node, [dead], f"203.{number % 2}.113.9")
    node.run(600)
    honest = RemoteNode(transport=network, endpoint=f"http://{VICTIM}:8645", builder=node.builder)
    network.listen(honest, VICTIM)
    node.peers.hint(honest.endpoint, source="60.1.0.0/16")
    assert node.until(lambda: node.knows(honest), within=10)


def test_a_seed_that_is_down_at_the_start_is_met_when_it_comes_up(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path
) -> None:
    """Though others name its address, under which they have nothing."""
    node = make_node()
    seed = RemoteNode(transport=network, endpoint="http://seed.example.org:8645", builder=node.builder)
    network.names.addresses["seed.example.org"] = [VICTIM]
    with served(node, tmp_path / "peers.json", [seed.endpoint]):
        node.run(1)
        greet(node, [named(network, node, number, port=7_000 + number) for number in range(NAMES)])
        node.run(240)
        network.listen(seed, VICTIM)
        assert node.until(lambda: node.knows(seed), within=240)


def test_the_operator_may_have_an_endpoint_called_at_any_time(make_node: MakeNode, network: DialledTransport) -> None:
    node = make_node()
    administration = PeerAdministration(node.peers, lambda: succeed(None))
    for _ in range(50):
        outcome = node.begin(administration.add(f"http://{VICTIM}:8645"))
        node.run(0.1)
        assert "cannot be reached" in str(result_of(outcome)["why"])
    assert network.dials(VICTIM) >= 50


@pytest.mark.slow
def test_a_node_that_was_away_for_a_day_is_met_when_it_returns(make_node: MakeNode, network: DialledTransport) -> None:
    node = make_node()
    remote = RemoteNode(transport=network, endpoint=f"http://{VICTIM}:8645", builder=node.builder)
    network.listen(remote, VICTIM)
    greet(node, [remote], VICTIM)
    node.run(1)
    assert node.knows(remote)
    network.dialler.listening.clear()
    node.run(23 * HOUR)
    assert in_the_next_hour(network, node) > 200, "it is called every 15 seconds"
    network.listen(remote, VICTIM)
    assert node.until(lambda: node.knows(remote), within=40)


def test_the_address_at_which_a_node_answered_is_saved(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path
) -> None:
    node, path = make_node(), tmp_path / "peers.json"
    remote = named(network, node, 1)
    network.listen(remote, VICTIM)
    with served(node, path, []):
        greet(node, [remote])
        assert node.until(lambda: node.knows(remote), within=1)
    content = read_peers_file(path)
    assert content is not None
    assert [(entry.endpoint, entry.address) for entry in content.entries] == [(remote.endpoint, VICTIM)]


@pytest.mark.parametrize("moved", [False, True], ids=["stayed", "moved"])
def test_a_start_calls_a_known_node_again_and_again_where_it_has_answered_only(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path, moved: bool
) -> None:
    node, path = make_node(), tmp_path / "peers.json"
    anchors = [Endpoint(named(network, node, number).endpoint) for number in range(2)]
    known = [
        AddressEntry(
            endpoint=anchor,
            source="60.1.0.0/16",
            last_seen=node.local.now() - 60,
            verified=True,
            address="9.9.9.9" if moved else VICTIM,
        )
        for anchor in anchors
    ]
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, known, anchors, []))
    with served(node, path, []):
        node.run(600)
        assert (network.dials(VICTIM) > 30) is not moved
        assert not moved or network.dials(VICTIM) == CALLS_PER_HOUR


@pytest.mark.parametrize("transport", [True], indirect=True, ids=["private addresses"])
def test_the_nodes_of_a_devnet_on_loopback_are_met_in_whatever_order_they_start(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path
) -> None:
    node = make_node(diverse=False, endpoint="http://127.0.0.1:8600")
    endpoints = [f"http://127.0.0.1:{8_601 + number}" for number in range(20)]
    nodes = [RemoteNode(transport=network, endpoint=each, builder=node.builder) for each in endpoints]
    with served(node, tmp_path / "peers.json", endpoints[:8]):
        node.run(30)
        for remote in nodes[:8]:
            network.listen(remote, "127.0.0.1")
        assert node.until(lambda: all(map(node.knows, nodes[:8])), within=60), "the seeds"
        for remote in nodes[8:]:
            network.listen(remote, "127.0.0.1")
            node.peers.hello_received(remote.hello(), "127.0.0.1")
            node.run(1)
        assert all(map(node.knows, nodes))


def test_an_address_that_is_not_dialled_costs_no_call(make_node: MakeNode, network: DialledTransport) -> None:
    """A name that lists a third party's address second, and answers at the first, must not use up its calls."""
    node = make_node(diverse=False)
    for number in range(CALLS_PER_HOUR):
        remote = named(network, node, number)
        network.listen(remote, "9.9.9.9")
        network.names.addresses[Endpoint(remote.endpoint).host] = ["9.9.9.9", VICTIM]
        node.peers.hint(remote.endpoint, source="60.1.0.0/16")
        node.begin(node.peers.connect(Endpoint(remote.endpoint), outbound=False))
        node.run(0.5)
    assert not network.dials(VICTIM)
    honest = RemoteNode(transport=network, endpoint=f"http://{VICTIM}:8645", builder=node.builder)
    network.listen(honest, VICTIM)
    node.peers.hint(honest.endpoint, source="60.2.0.0/16")
    outcome = node.begin(node.peers.connect(Endpoint(honest.endpoint), outbound=False))
    node.run(1)
    assert result_of(outcome) is not None


def test_a_seed_with_many_addresses_is_called_as_often_as_one_with_one(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path
) -> None:
    node = make_node()
    addresses = [VICTIM, "9.9.9.9", "7.7.7.7"]
    network.names.addresses["seed.example.org"] = addresses
    with served(node, tmp_path / "peers.json", ["http://seed.example.org:8645"]):
        node.run(240)
    assert len({network.dials(address) for address in addresses}) == 1
    assert network.dials(VICTIM) > CALLS_PER_HOUR / 3


def test_an_endpoint_that_this_node_may_not_call_has_not_failed(make_node: MakeNode, network: DialledTransport) -> None:
    """It waits for its turn: the failures of others at the same address are not its own."""
    node = make_node()
    nodes = [named(network, node, number) for number in range(CALLS_PER_HOUR + 1)]
    for remote in nodes:
        node.peers.hint(remote.endpoint, source="60.1.0.0/16")
        outcome = node.begin(node.peers.connect(Endpoint(remote.endpoint), outbound=True))
        node.run(0.5)
        assert result_of(outcome) is None
    entries = [node.book.get(remote.endpoint) for remote in nodes]
    assert network.dials(VICTIM) == CALLS_PER_HOUR == sum(entry.failures for entry in entries if entry)
    last = entries[-1]
    assert last is not None
    assert last.failures == 0
    assert last.next_try >= node.local.now() + 200


def test_an_anchor_is_no_endpoint_of_the_operator(
    make_node: MakeNode, network: DialledTransport, tmp_path: Path
) -> None:
    """It is called before others, and in the next run it is one of many."""
    node, path = make_node(), tmp_path / "peers.json"
    anchor = Endpoint(named(network, node, 1).endpoint)
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, [], [anchor], []))
    with served(node, path, []):
        node.run(30)
    content = read_peers_file(path)
    assert content is not None
    assert [(entry.endpoint, entry.source) for entry in content.entries] == [(anchor, "anchor")]


# Names that are never looked up to the end


class EndlessLookUps:
    """Threads whose look-ups never end."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, _function: object, name: str) -> "Deferred[Any]":
        self.names.append(name.removesuffix(".example"))
        return Deferred()


def test_names_of_strangers_leave_threads_for_those_of_peers_and_of_the_operator() -> None:
    """Sixteen slow names in hints were enough for a node to look up no other name, not even those of its seeds."""
    clock, threads = Clock(), EndlessLookUps()
    network = open_transport(MemoryDialler(clock), threads, allow_private=False)
    network.answered_at = lambda endpoint: "8.8.8.8" if "before" in endpoint else ""
    network.is_operators = lambda endpoint: "own" in endpoint
    failures: list[FailureKind] = []

    def call(name: str, reason: CallReason) -> None:
        request = PeerRequest(path="/p2p/status", max_bytes=1, seconds=5.0, reason=reason)
        network.call(f"http://{name}.example", request).addErrback(lambda failure: failures.append(failure.value.kind))

    for number in range(20):
        call(f"hint{number}", CallReason.HINT)
    assert threads.names == [f"hint{number}" for number in range(HINT_LOOK_UPS)]
    assert failures == [FailureKind.POSTPONED] * (20 - HINT_LOOK_UPS)
    call("before", CallReason.HINT)
    for number in range(20):
        call(f"peer{number}", CallReason.PEER)
    assert len(threads.names) == HINT_LOOK_UPS + PEER_LOOK_UPS < LOOK_UPS
    call("own1", CallReason.OPERATOR)
    call("own2", CallReason.PEER)
    assert threads.names[-2:] == ["own1", "own2"]
    clock.advance(5.0)
    call("hint20", CallReason.HINT)
    assert threads.names[-1] == "own2", "whoever waits no longer leaves the thread busy"


def test_a_hint_for_whose_name_there_is_no_thread_has_not_failed(
    make_node: MakeNode, network: DialledTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node()
    busy = SystemResolver(EndlessLookUps(), 1)
    busy.resolve("slow.example")
    monkeypatch.setattr(network.pinned, "_shares", {CallReason.HINT: busy})
    remote = named(network, node, 1, "8.8.8.8")
    greet(node, [remote])
    entry = node.peers.book.get(remote.endpoint)
    assert entry is not None
    assert (entry.failures, entry.next_try > node.clock.seconds()) == (0, True)


def test_seeds_and_endpoints_that_the_operator_added_are_the_operator_s(make_node: MakeNode) -> None:
    node = make_node()
    added, hinted, seed = (Endpoint(f"http://{name}.example") for name in ("added", "hinted", "seed"))
    node.peers.hint(added, source="operator")
    node.peers.hint(hinted, source="198.51.0.0/16")
    node.peers.call_first([], [seed])
    assert [node.transport.is_operators(each) for each in (added, hinted, seed)] == [True, False, True]
