"""Who is talked to: greeting, our own call back, choice, keeping in touch, claims and prices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from svcd.chain.signature import sign
from svcd.interfaces import milliseconds
from svcd.node.status import NO_PEER_MET
from svcd.p2p import peers
from svcd.p2p.address_book import BUCKET_SIZE, AddressEntry, group_of_endpoint
from svcd.p2p.bans import endpoint_name, key_name
from svcd.p2p.handshake import Hello, NodeKey, check_hello, parse_hello
from svcd.p2p.service import FORMAT, PeersFile, PeersService, read_peers_file, write_peers_file
from svcd.p2p.transport import FailureKind
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE, Inline
from tests.p2p.bench import OURS, Node, place
from tests.p2p.conftest import Grow, MakeNode, MakeStranger
from tests.p2p.strangers import Stranger, ok, refused, silent
from tests.p2p.town import Called
from tests.support import result_of

HOUR = 3_600.0
DAY = 24 * HOUR
HELLO, STATUS, PEERS = "/p2p/hello", "/p2p/status", "/p2p/peers"


def greetings(node: Node, endpoint: str) -> int:
    return len(node.town.calls_to(endpoint, HELLO))


def entry(node: Node, stranger: Stranger) -> AddressEntry:
    found = node.book.get(stranger.endpoint)
    assert found is not None
    return found


def outbound(node: Node) -> set[str]:
    return {peer.endpoint for peer in node.peers.outbound()}


# Greeting


def test_a_hint_is_called_and_becomes_a_peer(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.hint(stranger)
    assert node.until(lambda: node.knows(stranger), within=2)
    peer = node.peer(stranger)
    assert (peer.node_key, peer.node_id, peer.outbound) == (stranger.key.public, stranger.key.node_id, True)
    assert entry(node, stranger).verified
    node.run(0.5)
    assert node.town.paths(stranger.endpoint) == [HELLO, STATUS, PEERS]


def test_what_we_say_is_a_hello_that_others_accept(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    said = parse_hello(stranger.got_at(HELLO)[0])
    check_hello(said, node.local.params, own=stranger.key.node_id, now=milliseconds(node.clock))
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
def test_an_answer_that_is_no_hello(node: Node, make_stranger: MakeStranger, script: Any) -> None:
    stranger = make_stranger(scripts={HELLO: script})
    node.hint(stranger)
    node.run(8)
    assert not node.knows(stranger)
    assert entry(node, stranger).failures >= 1
    assert not node.book.verified()


def test_the_scripts_of_these_tests_are_what_keeps_a_stranger_from_being_met(
    node: Node, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger(scripts={HELLO: lambda called: stranger.honest(called)})
    node.hint(stranger)
    node.run(8)
    assert node.knows(stranger)


LIES: dict[str, Callable[[Hello], Hello]] = {
    "another network": lambda hello: evolve(hello, network_id=1),
    "another genesis": lambda hello: evolve(hello, genesis_hash=bytes(32)),
    "another protocol": lambda hello: evolve(hello, protocol_version="2.0"),
    "a clock that is a minute off": lambda hello: evolve(hello, timestamp=hello.timestamp - 61_000),
    "another's id": lambda hello: evolve(hello, node_id="svcnode_" + "ab" * 16),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("signed", [True, False])
def test_a_hello_that_is_refused(
    node: Node, make_stranger: MakeStranger, lie: Callable[[Hello], Hello], signed: bool
) -> None:
    def script(_: Called) -> Any:
        changed = lie(stranger.hello())
        if signed:
            changed = evolve(changed, signature=sign(stranger.key.seed, changed.signed_hash()))
        return ok(hello=changed.message())

    stranger = make_stranger(scripts={HELLO: script})
    node.hint(stranger)
    node.run(8)
    assert not node.knows(stranger)
    assert entry(node, stranger).failures >= 1
    assert node.peers.bans.listed(node.local.now()) == []


def test_a_forged_hello_is_refused(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(
        scripts={HELLO: lambda _: ok(hello=evolve(stranger.hello(), signature=bytes(64)).message())}
    )
    node.hint(stranger)
    node.run(8)
    assert not node.knows(stranger)


@pytest.mark.parametrize("named", ["", place(9), "http://node.example"])
def test_an_endpoint_counts_only_if_the_hello_names_it(node: Node, make_stranger: MakeStranger, named: str) -> None:
    """A hello proves a key; somebody else's endpoint may be behind which that key does not listen."""
    stranger = make_stranger(names=named)
    node.begin(node.peers.connect(stranger.endpoint, outbound=True))
    node.run(0.5)
    assert not node.knows(stranger)
    assert not node.book.verified()
    assert node.book.get("") is None
    assert (node.book.get(named) is not None) is bool(named)


def test_our_own_endpoint_under_another_name(node: Node, make_stranger: MakeStranger) -> None:
    mirror = make_stranger(key=node.key, names=OURS)
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
    assert node.town.calls == []


def test_a_banned_key_is_not_met(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.peers.bans.ban(key_name(stranger.key.public), seconds=HOUR, now=node.local.now())
    node.hint(stranger)
    node.run(HOUR - 1)
    assert not node.knows(stranger)
    assert not node.book.verified()
    node.run(1_900 * 1.25)
    assert node.knows(stranger)


def test_a_banned_endpoint_is_not_called(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.peers.bans.ban(endpoint_name(stranger.endpoint), seconds=HOUR, now=node.local.now())
    node.hint(stranger)
    node.run(HOUR - 1)
    assert greetings(node, stranger.endpoint) == 0
    node.run(1_900 * 1.25)
    assert node.knows(stranger)


def test_an_old_reply_is_refused_the_second_time(node: Node, make_stranger: MakeStranger) -> None:
    recorded: list[Any] = []

    def script(_: Called) -> Any:
        recorded.append(recorded[0] if recorded else stranger.hello().message())
        return ok(hello=recorded[0])

    stranger = make_stranger(scripts={HELLO: script})
    node.meet(stranger)
    node.begin(node.peers.connect(stranger.endpoint, outbound=True))
    node.run(0.5)
    assert len(recorded) == 2
    assert not node.knows(stranger)


def test_handing_on_the_hello_of_another_does_not_make_its_own_look_old(
    node: Node, make_stranger: MakeStranger
) -> None:
    victim = make_stranger(1)
    parrot = make_stranger(2, scripts={HELLO: lambda _: ok(hello=victim.hello().message())})
    node.town.latency[victim.endpoint] = 1.0
    greeting = node.begin(node.peers.connect(victim.endpoint, outbound=True))
    node.run(1.5)
    node.begin(node.peers.connect(parrot.endpoint, outbound=True))
    node.run(1.0)
    assert result_of(greeting) is node.peer(victim)
    assert not node.knows(parrot)


def test_a_new_key_at_an_endpoint_wins(node: Node, make_stranger: MakeStranger) -> None:
    old = make_stranger()
    node.meet(old)
    new = make_stranger(key=NodeKey(key_of("another").seed, old.endpoint))
    node.meet(new)
    assert [peer.node_key for peer in node.peers.all()] == [new.key.public]
    assert [found.node_id for found in node.book.verified()] == [new.key.node_id]


def test_a_key_at_a_new_endpoint_wins(node: Node, make_stranger: MakeStranger) -> None:
    old = make_stranger(1)
    node.meet(old)
    new = make_stranger(2, key=old.key)
    node.meet(new)
    assert [peer.endpoint for peer in node.peers.all()] == [new.endpoint]
    assert [found.endpoint for found in node.book.verified()] == [new.endpoint]
    assert old.endpoint in node.town.forgotten


def test_one_endpoint_is_greeted_once_at_a_time(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    for _ in range(5):
        node.begin(node.peers.connect(stranger.endpoint, outbound=True))
    node.run(0.5)
    assert greetings(node, stranger.endpoint) == 1


def test_eight_greetings_at_a_time(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(20):
        make_stranger(number, scripts={HELLO: silent})
        node.begin(node.peers.connect(place(number), outbound=True))
    assert len(node.town.calls) == 8
    node.run(5.1)
    node.begin(node.peers.connect(place(19), outbound=True))
    assert greetings(node, place(19)) == 1


def test_no_connection_is_kept_to_whoever_is_no_peer(node: Node, make_stranger: MakeStranger) -> None:
    for number, changes in enumerate([{"names": ""}, {"scripts": {HELLO: silent}}, {"key": node.key}]):
        make_stranger(number, **changes)
        node.begin(node.peers.connect(place(number), outbound=True))
    known = make_stranger(3)
    node.begin(node.peers.connect(known.endpoint, outbound=False, keep=False))
    node.run(8)
    assert {place(number) for number in range(4)} <= set(node.town.forgotten)


# Whoever calls us


def call(node: Node, stranger: Stranger, client: str = "198.51.100.7") -> None:
    node.peers.hello_received(stranger.hello(), client)


def test_whoever_calls_us_is_called_back(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    call(node, stranger)
    assert not node.knows(stranger)
    node.run(0.5)
    assert node.knows(stranger)
    assert entry(node, stranger).verified
    assert entry(node, stranger).source == "198.51.0.0/16"


def test_whoever_cannot_be_called_back_is_no_peer(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(scripts={HELLO: silent})
    call(node, stranger)
    node.run(8)
    assert node.peers.all() == []
    assert not node.book.verified()


def test_somebody_without_an_endpoint_is_not_called(node: Node, make_stranger: MakeStranger) -> None:
    call(node, make_stranger(names=""))
    node.run(5)
    assert node.town.calls == []
    assert len(node.book) == 0


def test_another_s_endpoint_is_not_taken_over(node: Node, make_stranger: MakeStranger) -> None:
    """Somebody claims to listen where another peer does."""
    victim = make_stranger()
    node.meet(victim)
    thief = Stranger(town=node.town, endpoint=victim.endpoint, builder=node.builder, key=NodeKey(b"t" * 32, ""))
    call(node, thief)
    node.run(120)
    call(node, thief)
    node.run(5)
    assert [peer.node_key for peer in node.peers.all()] == [victim.key.public]


def test_a_thief_cannot_make_us_call_its_victim_again_and_again(node: Node, make_stranger: MakeStranger) -> None:
    victim = make_stranger()
    node.meet(victim)
    thief = Stranger(town=node.town, endpoint=victim.endpoint, builder=node.builder, key=NodeKey(b"t" * 32, ""))
    for _ in range(299):
        call(node, thief)
        node.run(1)
    assert greetings(node, victim.endpoint) <= 6


def test_a_node_that_came_back_is_called_back_at_once(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger, outbound=False)
    node.peers.drop(node.peer(stranger))
    node.run(0.5)
    assert not node.knows(stranger), "it has just been called"
    node.peers.settings = evolve(node.peers.settings, outbound=0)
    node.run(60)
    call(node, stranger)
    node.run(0.5)
    assert node.knows(stranger)


def test_acquaintances_have_places_of_their_own(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(outbound=2, max_inbound=3)
    chosen = [make_stranger(number) for number in range(2)]
    node.meet(*chosen)
    for number in range(2, 12):
        call(node, make_stranger(number))
        node.run(1)
    assert outbound(node) == {stranger.endpoint for stranger in chosen}
    assert len(node.peers.all()) == 5
    assert len(node.book.verified()) >= 5


def test_many_who_call_at_once_are_not_more_than_there_is_room_for(
    make_node: MakeNode, make_stranger: MakeStranger
) -> None:
    node = make_node(outbound=0, max_inbound=3)
    node.meet(make_stranger(0), make_stranger(1), outbound=False)
    for number in range(2, 12):
        call(node, make_stranger(number))
    node.run(5)
    assert len(node.peers.all()) == 3


def test_call_backs_leave_room_for_greetings_of_our_own(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(30):
        call(node, make_stranger(number, scripts={HELLO: silent}), client=f"{20 + number}.1.1.1")
    assert len(node.town.calls) == 4
    honest = make_stranger(40)
    node.begin(node.peers.connect(honest.endpoint, outbound=True))
    node.run(0.5)
    assert node.knows(honest)


def test_one_part_of_the_network_is_heard_32_times_an_hour(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(60):
        call(node, make_stranger(number, scripts={HELLO: silent}), client=f"198.51.{number}.7")
    assert len(node.book) == 32


# Choice


def test_eight_outbound_peers_in_different_parts_of_the_network(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(60):
        host = f"80.{number % 5}.{number}.1"
        node.hint(make_stranger(endpoint=f"http://{host}:8645"))
    node.run(30)
    assert len(outbound(node)) == 5
    assert len({group_of_endpoint(endpoint) for endpoint in outbound(node)}) == 5
    for number in range(20):
        node.hint(make_stranger(number))
    node.run(30)
    assert len(outbound(node)) == 8
    assert len({group_of_endpoint(endpoint) for endpoint in outbound(node)}) == 8


def named(make_stranger: MakeStranger, number: int, address: str, domain: str = "") -> Stranger:
    """Somebody at a name of their own, which leads to an address."""
    stranger = make_stranger(endpoint=f"http://node.{domain or f'party{number}'}.example:8645")
    stranger.town.addresses[stranger.endpoint] = address
    return stranger


def test_many_names_in_one_part_of_the_network_get_one_place(node: Node, make_stranger: MakeStranger) -> None:
    """A name costs nothing, and says nothing about where it leads."""
    crowd = [named(make_stranger, number, f"80.1.{number}.1") for number in range(20)]
    node.hint(*crowd)
    node.run(60)
    assert len(outbound(node)) == 1
    honest = [make_stranger(number) for number in range(7)]
    node.hint(*honest)
    node.run(60)
    assert {stranger.endpoint for stranger in honest} < outbound(node)
    assert len(outbound(node)) == 8


def test_once_it_is_known_where_a_name_leads_it_is_not_tried_in_vain(node: Node, make_stranger: MakeStranger) -> None:
    crowd = [named(make_stranger, number, f"80.1.{number}.1") for number in range(4)]
    node.peers.settings = evolve(node.peers.settings, max_inbound=0)
    node.hint(*crowd)
    node.run(290)
    assert len(node.peers.all()) == 1
    assert all(entry(node, stranger).group == "80.1.0.0/16" for stranger in crowd)
    assert all(greetings(node, stranger.endpoint) == 1 for stranger in crowd)


def test_a_name_and_an_address_in_one_part_of_the_network(node: Node, make_stranger: MakeStranger) -> None:
    address = make_stranger(endpoint="http://80.1.7.7:8645")
    node.meet(address)
    name = named(make_stranger, 1, "80.1.1.1")
    node.meet(name)
    assert outbound(node) == {address.endpoint}
    assert not node.peer(name).outbound


def test_behind_a_translator_ipv4_peers_are_told_apart(node: Node, make_stranger: MakeStranger) -> None:
    """A node without IPv4 reaches all of IPv4 at addresses of one /96 (NAT64)."""
    strangers = [named(make_stranger, number, f"64:ff9b::{81 + number}.1.1.1") for number in range(8)]
    neighbour = named(make_stranger, 8, "64:ff9b::81.1.7.7")
    node.meet(*strangers)
    node.meet(neighbour)
    assert outbound(node) == {stranger.endpoint for stranger in strangers}
    peers = [node.peer(stranger) for stranger in strangers]
    assert [peer.is_at("81.1.1.1") for peer in peers] == [True] + 7 * [False]
    punish(node, strangers[0])
    assert not node.knows(strangers[0])
    assert not node.peers.drop_banned()
    node.run(310)
    assert all(node.knows(stranger) for stranger in strangers[1:])


def test_names_of_one_domain_in_different_parts_of_the_network(node: Node, make_stranger: MakeStranger) -> None:
    """A hoster's domain, or ``co.uk``, is no party of its own."""
    strangers = [named(make_stranger, n, f"80.{n}.1.1", domain="hoster") for n in range(1, 4)]
    for number, stranger in enumerate(strangers):
        stranger.endpoint = stranger.names = f"http://n{number}.hoster.example"
        stranger.key = NodeKey(key_of(stranger.endpoint).seed, stranger.endpoint)
        node.town.inhabitants[stranger.endpoint] = stranger
        node.town.addresses[stranger.endpoint] = f"80.{number}.1.1"
        node.hint(stranger)
    node.run(10)
    assert outbound(node) == {stranger.endpoint for stranger in strangers}


def test_a_peer_that_moves_next_to_another_gives_up_its_place(node: Node, make_stranger: MakeStranger) -> None:
    stay, move = named(make_stranger, 1, "80.1.1.1"), named(make_stranger, 2, "80.2.1.1")
    node.meet(stay, move)
    assert outbound(node) == {stay.endpoint, move.endpoint}
    node.town.addresses[move.endpoint] = "80.1.1.2"
    assert node.until(lambda: not node.peer(move).outbound, within=303)
    assert node.peer(stay).outbound
    assert node.peer(move).address == "80.1.1.2"


def test_on_devnet_names_may_be_neighbours(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(diverse=False)
    node.meet(*[named(make_stranger, number, "127.0.0.1") for number in range(4)])
    assert len(outbound(node)) == 4


def test_hints_of_a_peer_at_a_name_count_for_where_it_is(node: Node, make_stranger: MakeStranger) -> None:
    gossip = named(make_stranger, 1, "80.1.1.1")
    gossip.acquaintances = [place(3)]
    make_stranger(3, scripts={HELLO: silent})
    node.meet(gossip)
    node.run(1)
    found = node.book.get(place(3))
    assert found is not None
    assert found.source == "80.1.0.0/16"


def test_on_devnet_they_may_be_neighbours(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(diverse=False)
    for number in range(20):
        node.hint(make_stranger(endpoint=f"http://127.0.0.1:{8_000 + number}"))
    node.run(30)
    assert len(outbound(node)) == 8


def test_no_more_are_called_than_are_missing(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(40):
        node.hint(make_stranger(number))
    node.run(10)
    assert len({called.endpoint for called in node.town.calls}) == len(outbound(node)) == 8


def test_a_peer_that_leaves_is_replaced(node: Node, make_stranger: MakeStranger) -> None:
    for number in range(9):
        node.hint(make_stranger(number))
    node.run(10)
    gone = sorted(outbound(node))[0]
    del node.town.inhabitants[gone]
    node.run(60)
    assert len(outbound(node)) == 8
    assert gone not in outbound(node)


def test_acquaintances_become_peers_of_our_choice_where_nobody_else_is_known(
    node: Node, make_stranger: MakeStranger
) -> None:
    strangers = [make_stranger(number) for number in range(3)]
    node.meet(*strangers, outbound=False)
    assert outbound(node) == set()
    node.run(2)
    assert outbound(node) == {stranger.endpoint for stranger in strangers}


def test_acquaintances_do_not_take_the_place_of_those_we_know(node: Node, make_stranger: MakeStranger) -> None:
    callers = [make_stranger(number) for number in range(20)]
    node.meet(*callers[:8], outbound=False)
    node.meet(*callers[8:16], outbound=False)
    known = [make_stranger(number) for number in range(20, 28)]
    node.hint(*known)
    node.run(2)
    assert outbound(node) == {stranger.endpoint for stranger in known}


def test_one_dead_hint_does_not_keep_acquaintances_from_being_chosen(node: Node, make_stranger: MakeStranger) -> None:
    """It is tried eight times first, for ten minutes: it might only be starting."""
    callers = [make_stranger(number) for number in range(4)]
    node.meet(*callers, outbound=False)
    node.peers.hint(place(9), source="operator")
    node.run(450)
    assert outbound(node) == set()
    node.run(450)
    assert outbound(node) == {stranger.endpoint for stranger in callers}


def test_one_that_answered_a_moment_ago_is_waited_for(node: Node, make_stranger: MakeStranger) -> None:
    """It is tried every few seconds, so that eight failures in a row take it two minutes only."""
    callers = [make_stranger(number) for number in range(4)]
    friend = make_stranger(9)
    node.meet(friend)
    del node.town.inhabitants[friend.endpoint]
    node.peers.drop(node.peer(friend))
    node.meet(*callers, outbound=False)
    assert node.until(lambda: entry(node, friend).failures >= 8, within=600)
    node.run(5)
    assert outbound(node) == set()
    assert node.until(lambda: outbound(node), within=900)


@pytest.mark.parametrize(("places", "times"), [(1, 2), (2, 11)])
def test_while_places_are_empty_peers_are_asked_for_others_every_minute(
    make_node: MakeNode, make_stranger: MakeStranger, places: int, times: int
) -> None:
    node = make_node(outbound=places)
    stranger = make_stranger()
    node.meet(stranger)
    node.run(650)
    assert len(node.town.calls_to(stranger.endpoint, PEERS)) == times


def test_a_feeler_every_two_minutes(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(outbound=1)
    chosen = make_stranger(0)
    node.meet(chosen)
    for number in range(1, 20):
        node.hint(make_stranger(number))
    node.run(601)
    felt = [called.endpoint for called in node.town.calls if called.endpoint != chosen.endpoint]
    assert len(felt) == len(set(felt)) == 5
    assert set(felt) <= {found.endpoint for found in node.book.verified()}
    assert set(felt) <= set(node.town.forgotten)
    assert [peer.endpoint for peer in node.peers.all()] == [chosen.endpoint]


@pytest.mark.parametrize("alive", [True, False])
def test_one_whose_place_another_wants_is_called_first(
    make_node: MakeNode, make_stranger: MakeStranger, alive: bool
) -> None:
    node = make_node(outbound=1)
    chosen, oldest = make_stranger(0), make_stranger(endpoint="http://200.1.0.0:8645")
    node.meet(chosen)
    others = [make_stranger(endpoint=f"http://200.1.0.{number}:8645") for number in range(1, BUCKET_SIZE + 1)]
    for stranger in (oldest, *others):
        node.book.succeeded(stranger.endpoint, node_id=stranger.key.node_id, height=0, now=node.local.now())
        node.run(1)
    if not alive:
        del node.town.inhabitants[oldest.endpoint]
    node.run(HOUR)
    assert greetings(node, oldest.endpoint) >= 1
    assert (oldest.endpoint in {found.endpoint for found in node.book.verified()}) is alive
    assert alive or entry(node, others[-1]).verified


@contextmanager
def served(node: Node, path: Path, seeds: list[str]) -> Iterator[PeersService]:
    service = PeersService(node.network, path, seeds, Inline())
    service.startService()
    yield service
    stopped = service.stopService()
    node.run(1)
    result_of(stopped)


def test_anchors_are_called_first(node: Node, make_stranger: MakeStranger, tmp_path: Path) -> None:
    """An eclipse must not begin with every restart: whom we had chosen before comes before all that are known."""
    entries = [
        AddressEntry(
            endpoint=make_stranger(number).endpoint, source="x", node_id=f"{number}", last_seen=1.0, verified=True
        )
        for number in range(40)
    ]
    anchors = [place(31), place(17)]
    path = tmp_path / "peers.json"
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, entries, anchors, []))
    with served(node, path, []):
        node.run(1)
        first = [called.endpoint for called in node.town.calls][:2]
        assert set(first) == set(anchors)


def test_seeds_are_called_before_other_hints(node: Node, make_stranger: MakeStranger, tmp_path: Path) -> None:
    for number in range(40):
        node.peers.hint(make_stranger(number).endpoint, source=f"{number}")
    with served(node, tmp_path / "peers.json", [make_stranger(50).endpoint]):
        node.run(1)
        assert node.town.calls[0].endpoint == place(50)


def test_a_seed_that_was_away_is_called_however_many_hints_came_meanwhile(
    node: Node, make_stranger: MakeStranger, tmp_path: Path
) -> None:
    """An eclipse must not begin with the seed's being down for an hour."""
    seed = place(1)
    with served(node, tmp_path / "peers.json", [seed]):
        node.run(60)
        for number in range(1_280):
            node.peers.hint(place(2_000 + number), source=f"203.{number % 40}.0.0/16")
        make_stranger(1)
        node.run(1_900)
        assert seed in outbound(node)


def test_what_is_known_is_kept(make_node: MakeNode, make_stranger: MakeStranger, tmp_path: Path) -> None:
    node, path = make_node(outbound=3), tmp_path / "peers.json"
    strangers = [make_stranger(number) for number in range(3)]
    with served(node, path, [stranger.endpoint for stranger in strangers]):
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


def test_a_damaged_notebook_does_not_keep_a_node_from_starting(
    node: Node, make_stranger: MakeStranger, tmp_path: Path
) -> None:
    path, stranger = tmp_path / "peers.json", make_stranger()
    path.write_text('{"format":1,"secret":"xyz"')
    with served(node, path, [stranger.endpoint]):
        node.run(2)
        assert node.knows(stranger)
    assert read_peers_file(path) is not None


# Keeping in touch


def times(node: Node, stranger: Stranger, path: str) -> list[float]:
    """The seconds between the questions for a path."""
    asked = [called.at for called in node.town.calls_to(stranger.endpoint, path)]
    return [round(later - earlier, 1) for earlier, later in pairwise(asked)]


def test_how_often_peers_of_our_choice_are_asked(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(outbound=1)
    stranger = make_stranger()
    node.meet(stranger)
    node.run(1_300)
    assert set(times(node, stranger, STATUS)) <= {5.0, 6.0}
    assert all(300 <= gap <= 302 for gap in times(node, stranger, HELLO))
    assert len(times(node, stranger, HELLO)) == 4
    assert len(times(node, stranger, PEERS)) == 2
    assert node.peer(stranger).outbound


def test_how_often_acquaintances_are_asked(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node, stranger = make_node(outbound=0), make_stranger()
    node.meet(stranger, outbound=False)
    node.run(601)
    assert set(times(node, stranger, STATUS)) <= {60.0, 61.0}
    assert not node.peer(stranger).outbound


def test_what_peers_hand_out_are_hints(node: Node, make_stranger: MakeStranger) -> None:
    known = make_stranger(1, acquaintances=[place(2), "nonsense", "http://[:::]", OURS, place(3)])
    other = make_stranger(2)
    node.meet(known)
    node.run(20)
    assert node.knows(other)
    assert {found.endpoint for found in node.book.entries()} == {place(1), place(2), place(3)}
    assert entry(node, other).source == group_of_endpoint(place(1))


def test_one_that_does_not_answer_three_times_is_left(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    stranger.scripts = {STATUS: silent, HELLO: silent}
    assert not node.until(lambda: not node.knows(stranger), within=12)
    assert node.until(lambda: not node.knows(stranger), within=12)
    assert stranger.endpoint in node.town.forgotten
    assert node.peers.bans.listed(node.local.now()) == []
    stranger.scripts = {}
    node.run(30)
    assert node.knows(stranger), "it is tried again"


def test_one_that_answers_now_and_then_is_kept(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    answers = iter([None, None, True] * 100)
    stranger.scripts = {STATUS: lambda called: stranger.honest(called) if next(answers) else None}
    node.run(120)
    assert node.knows(stranger)


def test_one_that_moved_away_is_left_when_the_hello_is_renewed(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    stranger.names = place(7)
    assert node.until(lambda: not node.knows(stranger), within=303)


def test_a_peer_whose_hello_is_lost_once_stays(node: Node, make_stranger: MakeStranger) -> None:
    """What is being asked of it meanwhile would be lost with it."""
    stranger = make_stranger()
    node.meet(stranger)
    node.run(295)
    stranger.scripts[HELLO] = silent
    node.until(lambda: greetings(node, stranger.endpoint) == 2, within=10)
    node.run(4.9)
    del stranger.scripts[HELLO]
    peer = node.peer(stranger)
    node.run(5)
    assert node.peer(stranger) is peer
    assert node.local.now() - peer.handshake_at < 5


def test_a_peer_that_says_no_hello_any_more_is_left(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    stranger.scripts[HELLO] = silent
    assert node.until(lambda: not node.knows(stranger), within=620)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("path", [HELLO, STATUS, PEERS, "/p2p/transactions"])
def test_a_peer_that_has_had_enough_is_asked_again_later_and_stays(
    make_node: MakeNode, make_stranger: MakeStranger, status: int, path: str
) -> None:
    node, stranger = make_node(called=False), make_stranger()
    node.meet(stranger)
    peer, before = node.peer(stranger), len(node.town.calls_to(stranger.endpoint, path))
    stranger.scripts[path] = lambda _: evolve(refused(status), retry_after=30.0)
    assert node.until(lambda: len(node.town.calls_to(stranger.endpoint, path)) == before + 1, within=303)
    node.run(0.1)
    refused_at = node.clock.seconds()
    node.peers.poll_all()
    node.run(100)
    assert node.peers.all() == [peer]
    assert peer.failures == 0
    assert stranger.endpoint not in node.town.forgotten
    later = [called.at - refused_at for called in node.town.calls_to(stranger.endpoint) if called.at > refused_at]
    assert 29.9 <= min(later) < 32, "it is asked nothing before"
    del stranger.scripts[path]
    node.run(62)
    if path == HELLO:
        assert node.local.now() - peer.handshake_at < 62


def test_a_peer_that_says_no_hello_any_more_because_it_has_had_enough_is_left(
    node: Node, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    stranger.scripts[HELLO] = lambda _: refused(503)
    assert not node.until(lambda: not node.knows(stranger), within=590)
    assert node.until(lambda: not node.knows(stranger), within=20)


def test_an_endpoint_where_somebody_has_had_enough_is_not_called_before_it_wants_to_be(
    node: Node, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger(scripts={HELLO: lambda _: evolve(refused(503), retry_after=30.0)})
    node.hint(stranger)
    node.run(120)
    assert [gap for gap in times(node, stranger, HELLO) if gap < 30] == []
    assert len(times(node, stranger, HELLO)) >= 2


def test_everybody_is_asked_at_once_but_not_again_and_again(node: Node, make_stranger: MakeStranger) -> None:
    strangers = [make_stranger(number) for number in range(5)]
    node.meet(*strangers)
    node.run(2)
    before = len(node.town.calls)
    for _ in range(100):
        node.peers.poll_all()
    assert [called.path for called in node.town.calls[before:]] == [STATUS] * 5


def test_what_comes_within_a_second_of_a_question_is_asked_about_after_it(
    node: Node, make_stranger: MakeStranger, grow: Grow
) -> None:
    """Of a burst of blocks the last would be missed until the next slot, or the next minute, and nobody would know."""
    stranger = make_stranger(blocks=grow(3))
    node.meet(stranger, outbound=False)
    node.run(30)
    node.peers.poll_all()
    node.run(0.5)
    assert node.tip.height == 3
    stranger.blocks = grow(6)
    node.peers.poll_all()
    node.run(2)
    assert node.tip.height == 6
    asked = len(node.town.calls_to(stranger.endpoint, STATUS))
    node.run(2)
    assert len(node.town.calls_to(stranger.endpoint, STATUS)) == asked, "once is enough"


# Where nobody can call us


def test_a_node_that_nobody_can_call_asks_for_waiting_transfers(
    make_node: MakeNode, make_stranger: MakeStranger
) -> None:
    node = make_node(endpoint="")
    builder = ChainBuilder()
    stranger = make_stranger(pool=[builder.transfer("alice", "bob", 5, timestamp=node.local.params.slot_time(50_000))])
    node.meet(stranger)
    assert len(node.node_context.transaction_pool.mempool) == 1
    stranger.pool.append(builder.transfer("alice", "bob", 6, timestamp=node.local.params.slot_time(50_000)))
    node.run(10)
    assert len(node.node_context.transaction_pool.mempool) == 2
    assert stranger.got_at("/p2p/transaction") == [], "what it has shown is not sent back to it"
    cursors = [called.query["after"] for called in node.town.calls_to(stranger.endpoint, "/p2p/transactions")]
    assert cursors[-1] == 1
    node.run(10)
    assert node.town.calls_to(stranger.endpoint, "/p2p/transactions")[-1].query["after"] == 2


def test_it_does_not_wait_for_the_next_slot(make_node: MakeNode) -> None:
    """Mainnet's rhythm: nobody can tell it of a block or a transfer, so it has to ask more often than once a slot."""
    params = evolve(TEST_PARAMS, slot_seconds=10, slots_per_block=6)
    node, builder = make_node(endpoint="", params=params), ChainBuilder(params)
    stranger = Stranger(town=node.town, endpoint=place(1), builder=builder)
    node.town.inhabitants[stranger.endpoint] = stranger
    node.meet(stranger)
    for number in range(1, 8):
        asked = len(node.town.calls_to(stranger.endpoint, STATUS))
        # Just missed.
        assert node.until(lambda count=asked: len(node.town.calls_to(stranger.endpoint, STATUS)) > count, within=15)
        node.run(0.1)
        stranger.blocks.append(builder.block(stranger.blocks[-1] if stranger.blocks else None))
        moment = params.slot_time(LATE // 10)
        stranger.pool.append(builder.transfer("alice", "bob", number, timestamp=moment))
        assert node.until(lambda: node.tip.hash == stranger.tip.hash, within=6)
        assert stranger.pool[-1].txid in node.node_context.transaction_pool.mempool


def test_a_node_that_others_can_call_does_not(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger)
    node.run(60)
    assert node.town.calls_to(stranger.endpoint, "/p2p/transactions") == []


@pytest.mark.parametrize("value", [{}, 5, None, {"version": 2}])
def test_a_transfer_that_is_none_harms_nobody(make_node: MakeNode, make_stranger: MakeStranger, value: object) -> None:
    node = make_node(endpoint="")
    stranger = make_stranger(scripts={"/p2p/transactions": lambda _: ok(transactions=[value], next="1")})
    node.meet(stranger)
    node.run(30)
    assert node.knows(stranger)
    assert len(node.node_context.transaction_pool.mempool) == 0


def test_a_transfer_that_the_mempool_refuses_harms_nobody(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node = make_node(endpoint="")
    poor = ChainBuilder().transfer("nobody", "bob", 5, timestamp=node.local.params.slot_time(50_000))
    stranger = make_stranger(pool=[poor])
    node.meet(stranger)
    node.run(30)
    assert node.knows(stranger)
    assert len(node.node_context.transaction_pool.mempool) == 0


def test_a_peer_that_does_not_know_the_route_is_a_good_peer(
    make_node: MakeNode, make_stranger: MakeStranger, grow: Grow
) -> None:
    node = make_node(endpoint="")
    stranger = make_stranger(blocks=grow(3), scripts={"/p2p/transactions": lambda _: refused(404)})
    node.meet(stranger)
    node.run(60)
    assert node.knows(stranger)
    assert node.tip.height == 3


# Claims


def test_a_node_that_has_met_nobody_is_behind(node: Node, make_stranger: MakeStranger) -> None:
    assert node.peers.network_view().behind == NO_PEER_MET
    stranger = make_stranger()
    node.meet(stranger)
    assert node.peers.network_view().behind == ""
    del node.town.inhabitants[stranger.endpoint]
    node.run(60)
    assert node.peers.all() == []
    assert node.peers.network_view().behind == "", "it has met somebody since the start"


def test_a_node_that_may_be_alone_is_not(make_node: MakeNode) -> None:
    assert make_node(alone=True).peers.network_view().behind == ""


def test_what_peers_show_is_known(node: Node, make_stranger: MakeStranger, grow: Grow) -> None:
    node.take(*grow(9))
    node.meet(make_stranger(1, blocks=grow(9)), make_stranger(2, blocks=grow(4)))
    around = node.peers.network_view()
    assert (around.known_peers, around.best_height, around.behind) == (2, 9, "")


@pytest.mark.parametrize(("shown", "usual"), [((), 0), ((5,), 5), ((9, 5), 5), ((9, 5, 3), 5), ((9, 9, 5, 3), 5)])
def test_what_more_than_half_of_the_chosen_peers_show(
    make_node: MakeNode, make_stranger: MakeStranger, grow: Grow, shown: tuple[int, ...], usual: int
) -> None:
    node = make_node()
    node.take(*grow(9))
    strangers = [make_stranger(number, blocks=grow(height)) for number, height in enumerate(shown, 1)]
    if strangers:
        node.meet(*strangers)
    assert node.peers.network_view().usual_height == usual
    for peer in node.peers.all():
        peer.outbound = False
    assert node.peers.network_view().usual_height == 0, "whoever called first has no voice"


def test_a_claim_that_no_header_proves_is_not_shown(node: Node, make_stranger: MakeStranger, grow: Grow) -> None:
    node.take(*grow(3))
    liar = make_stranger(work=2**255, height=2**53 - 1, scripts={"/p2p/headers": silent})
    node.meet(liar)
    for _ in range(60):
        node.run(10)
        assert (node.peers.network_view().best_height, node.peers.network_view().behind) == (3, "")
    assert node.knows(liar), "a claim is no reason to leave a peer"


def test_a_height_without_work_is_not_shown(node: Node, make_stranger: MakeStranger, grow: Grow) -> None:
    node.take(*grow(3))
    stranger = make_stranger(blocks=grow(2), height=2**53 - 1)
    node.meet(stranger)
    node.run(5)
    status = node.status.node_status()
    assert (status["bestKnownPeerHeight"], status["syncLagBlocks"], status["syncState"]) == ("3", "0", "synced")


# Prices


def punish(node: Node, stranger: Stranger) -> None:
    node.peers.ban(node.peer(stranger), "its block broke a rule")


def test_a_peer_that_broke_a_rule_is_banned_for_a_day(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    node, stranger = make_node(max_inbound=2), make_stranger()
    node.meet(stranger, outbound=False)
    punish(node, stranger)
    assert not node.knows(stranger)
    assert node.peers.is_banned(stranger.key.public)
    node.run(DAY - 10)
    assert not node.knows(stranger)
    assert greetings(node, stranger.endpoint) == 1, "it is not even called"


def test_another_key_at_the_same_endpoint_is_no_way_out(node: Node, make_stranger: MakeStranger) -> None:
    stranger = make_stranger()
    node.meet(stranger, outbound=False)
    punish(node, stranger)
    changed = make_stranger(key=NodeKey(b"n" * 32, stranger.endpoint))
    call(node, changed)
    node.hint(changed)
    node.run(HOUR)
    assert not node.knows(changed)
    moved = make_stranger(2, key=stranger.key)
    node.hint(moved)
    node.run(HOUR)
    assert not node.knows(moved), "nor is the same key elsewhere"


def test_where_a_host_is_one_party_it_is_banned_on_every_port(make_node: MakeNode, make_stranger: MakeStranger) -> None:
    for diverse in (True, False):
        node = make_node(f"{diverse}", diverse=diverse)
        first = make_stranger(endpoint="http://80.1.1.1:8645")
        second = make_stranger(endpoint="http://80.1.1.1:8646")
        node.meet(first, outbound=False)
        punish(node, first)
        node.hint(second)
        node.run(60)
        assert node.knows(second) is not diverse


def test_another_name_for_the_same_address_is_no_way_out(node: Node, make_stranger: MakeStranger) -> None:
    first, second = named(make_stranger, 1, "80.1.1.1"), named(make_stranger, 2, "80.1.1.1")
    node.meet(first, outbound=False)
    punish(node, first)
    node.hint(second)
    node.run(60)
    assert not node.knows(second)
    elsewhere = named(make_stranger, 3, "80.1.1.2")
    node.meet(elsewhere)


def test_more_than_half_of_the_outbound_peers_are_not_banned(node: Node, make_stranger: MakeStranger) -> None:
    """If most of those we chose break the rules, we are more likely to be wrong than they are."""
    strangers = [make_stranger(number) for number in range(8)]
    node.meet(*strangers)
    node.run(1)
    for stranger in strangers:
        punish(node, stranger)
    banned = [stranger for stranger in strangers if node.peers.is_banned(stranger.key.public)]
    assert len(banned) == 3
    assert len(outbound(node)) == 5
    assert "most peers send blocks that break a rule" in node.peers.alarm
    assert node.peers.network_view().behind == node.peers.alarm
    assert not node.status.synced


def test_acquaintances_do_not_count_for_the_alarm(node: Node, make_stranger: MakeStranger) -> None:
    strangers = [make_stranger(number) for number in range(20)]
    node.peers.settings = evolve(node.peers.settings, outbound=0)
    for stranger in strangers:
        node.meet(stranger, outbound=False)
        punish(node, stranger)
    assert all(node.peers.is_banned(stranger.key.public) for stranger in strangers)
    assert node.peers.alarm == ""


# What is remembered of a peer


def test_of_what_a_peer_has_the_newest_is_remembered(node: Node, make_stranger: MakeStranger) -> None:
    node.meet(make_stranger())
    (known,) = node.peers.all()
    items = [number.to_bytes(32, "big") for number in range(peers._REMEMBERED + 1)]
    for item in items:
        known.mark_known(item)
    assert [known.knows(item) for item in (items[0], items[2], items[-1])] == [False, True, True]


# What the operator is told


def test_the_record(node: Node, make_stranger: MakeStranger) -> None:
    node.meet(make_stranger(1))
    node.peers.settings = evolve(node.peers.settings, outbound=1)
    node.meet(make_stranger(2), outbound=False)
    node.peers.hint(place(3), source="x")
    assert node.network.record() == {
        "verified": 2,
        "outbound": 1,
        "known": 3,
        "alarm": None,
        "catchingUp": None,
    }
