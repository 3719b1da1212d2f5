"""Announced blocks, on the real HTTP stack in memory: what is answered, and from which peer the block is fetched."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, RuleViolation
from svcd.p2p import announcements
from svcd.p2p.bans import posts_name
from svcd.p2p.transport import FailureKind
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.node.conftest import argon as argon
from tests.p2p.bench import Node
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.following import make_peers
from tests.p2p.memory_transport import LATENCY, Called
from tests.p2p.remote_node import RemoteNode, Script, blocks_reply, refused, silent
from tests.p2p.test_routes import client_of
from tests.support import result_of
from tests.web.wire import Response

BLOCKS, HEADER = "/p2p/blocks", "/p2p/header"
MINUTES_10, DAY = 600, 86_400


def message(block: Block, endpoint: str | None = None) -> bytes:
    body = {"header": json.loads(block.header.wire())}
    return json.dumps(body if endpoint is None else body | {"endpoint": endpoint}).encode()


def announce(node: Node, block: Block, remote: RemoteNode | None = None) -> Response:
    """Announce a block to ``node``, as ``remote`` or without a name."""
    if remote is None:
        return client_of(node).post(HEADER, message(block))
    return client_of(node, remote.host).post(HEADER, message(block, remote.endpoint))


def send(node: Node, block: Block, remote: RemoteNode) -> None:
    """Send a block, as ``remote``."""
    response = client_of(node, remote.host).post("/p2p/block", b'{"block":' + block.wire() + b"}")
    assert state(response) == "connected"


def state(response: Response) -> str:
    assert response.status == 200, response.body
    return str(response.json["state"])


def fetched(node: Node, remote: RemoteNode) -> list[Called]:
    return node.transport.calls_to(remote.endpoint, BLOCKS)


def delivers(block: Block) -> dict[str, Script]:
    """What a peer does that has a block and does not show it yet, so that its announcement is all there is."""
    return {BLOCKS: lambda _: blocks_reply([block])}


def drip(*remotes: RemoteNode) -> None:
    """Let peers begin to deliver a block, and go on for ever."""
    for remote in remotes:
        remote.scripts = {BLOCKS: silent}
        remote.transport.dripping.add(remote.endpoint)


@pytest.fixture
def paid(grow: Grow) -> Block:
    """A block with a transfer: its header does not say everything."""
    return grow(1, pays=1)[0]


def unsigned(block: Block) -> Block:
    return Block(block.header.sealed(work_nonce=block.header.work_nonce, signature=bytes(64)), block.transfers)


# What is answered


def test_a_block_is_fetched_from_the_peer_that_announces_it(node: Node, paid: Block) -> None:
    sender, other = make_peers(node)
    sender.blocks = [paid]
    response = announce(node, paid, sender)
    assert response.json == {"ok": True, "hash": paid.header.hash.hex(), "state": "asked"}
    node.run(5 * LATENCY)
    assert node.tip.hash == paid.header.hash
    assert sender.got_at(BLOCKS) == [[paid.header.hash.hex()]]
    assert sender.got_at("/p2p/block") == [], "it has the block"
    assert len(other.got_at("/p2p/block")) == 1
    assert node.peer(sender).delivered


def test_the_endpoint_of_an_announcement_may_be_spelled_in_any_way(node: Node, paid: Block) -> None:
    sender = node.remote(endpoint="http://60.1.7.1")
    node.meet(sender)
    sender.blocks = [paid]
    response = client_of(node, "60.1.7.1").post(HEADER, message(paid, "HTTP://60.1.7.1:80"))
    assert state(response) == "asked"


def test_a_block_that_is_here_is_known(node: Node, paid: Block) -> None:
    (sender,) = make_peers(node, 1)
    node.take(paid)
    assert state(announce(node, paid, sender)) == state(announce(node, paid)) == "known"
    assert fetched(node, sender) == []


def test_a_block_without_transfers_is_complete_with_its_header(node: Node, grow: Grow) -> None:
    (sender,) = make_peers(node, 1)
    for number, block in enumerate(grow(4)):
        assert state(announce(node, block, sender if number % 2 else None)) == "known"
        assert node.tip.hash == block.header.hash
    assert fetched(node, sender) == []


@pytest.mark.parametrize("endpoint", ["", None, "http://192.0.2.99:8645"])
def test_a_node_that_is_no_peer_is_told_to_send_the_block(node: Node, paid: Block, endpoint: str | None) -> None:
    """This node cannot call it, or does not know whom it would call."""
    response = client_of(node).post(HEADER, message(paid, endpoint))
    assert state(response) == "wanted"
    node.run(1)
    assert node.transport.calls == []


def test_a_peer_is_not_spoken_for_from_another_address(node: Node, paid: Block) -> None:
    """Else any client could have peers asked, or keep them from being told, as if they had the block."""
    (victim,) = make_peers(node, 1)
    response = client_of(node).post(HEADER, message(paid, victim.endpoint))
    assert state(response) == "wanted"
    assert not node.peer(victim).knows(paid.header.hash)
    node.run(1)
    assert fetched(node, victim) == []


def test_a_block_whose_parent_is_not_here_has_peers_asked_for_their_chains(node: Node, grow: Grow) -> None:
    (sender,) = make_peers(node, 1)
    node.run(2)
    sender.blocks = grow(3, pays=1)
    assert state(announce(node, grow(3, pays=1)[-1], sender)) == "orphan"
    node.run(1)
    assert node.tip.height == 3


def test_a_block_of_the_future_is_early(node: Node, builder: ChainBuilder) -> None:
    (sender,) = make_peers(node, 1)
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    block = builder.block(None, slot=LATE + TEST_PARAMS.drift_slots + 1, producer="early", transfers=pays)
    assert state(announce(node, block, sender)) == "early"
    node.run(0.5)
    assert fetched(node, sender) == []
    assert node.peers.bans.listed(node.local.now()) == []


# What breaks a rule


@pytest.mark.parametrize("break_", [Refusal.WORK, Refusal.BLOCK_SIGNATURE])
def test_a_header_that_breaks_a_rule_has_its_price(node: Node, builder: ChainBuilder, break_: Refusal) -> None:
    (sender,) = make_peers(node, 1)
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    response = announce(node, builder.block(None, transfers=pays, break_=break_), sender)
    assert response.status == 400
    (ban,) = node.peers.bans.listed(node.local.now())
    assert (ban.name, ban.until) == (posts_name(sender.host), node.local.now() + DAY)
    assert fetched(node, sender) == []
    assert announce(node, builder.block(None, transfers=pays), sender).status == 403


@pytest.mark.parametrize(
    "body", [b'{"header":{}}', b'{"header":5}', b'{"header":{"version":4}}', b"{}", b"[]", b'{"header":{},"x":1}']
)
def test_an_invalid_header_is_refused(node: Node, body: bytes) -> None:
    assert client_of(node).post(HEADER, body).status == 400


@pytest.mark.parametrize("endpoint", [5, None, ["http://192.0.2.1"], {}, "nonsense", "http://60.1.7.1:8645/x"])
def test_an_invalid_endpoint_is_refused(node: Node, paid: Block, endpoint: object) -> None:
    body = json.dumps({"header": json.loads(paid.header.wire()), "endpoint": endpoint}).encode()
    assert client_of(node).post(HEADER, body).status == 400


def test_a_spoiled_copy_of_a_header_costs_the_honest_one_nothing(node: Node, paid: Block) -> None:
    (sender,) = make_peers(node, 1)
    sender.blocks = [paid]
    assert announce(node, unsigned(paid)).status == 400
    assert state(announce(node, paid, sender)) == "asked"
    node.run(0.5)
    assert node.tip.hash == paid.header.hash


def test_a_block_that_turned_out_to_be_invalid_is_not_fetched_again(node: Node, builder: ChainBuilder) -> None:
    """Its work is good, and its state is not: that is remembered by hash."""
    first, second = make_peers(node)
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    bad = builder.block(None, transfers=pays, break_=Refusal.STATE_ROOT)
    first.scripts = second.scripts = delivers(bad)
    assert state(announce(node, bad, first)) == "asked"
    node.run(0.5)
    assert node.tip.height == 0
    assert announce(node, bad, second).status == 400
    assert fetched(node, second) == []
    assert node.knows(first), "its header promised no more"
    assert node.peers.bans.listed(node.local.now()) == []


def test_a_block_without_transfers_whose_state_is_invalid_costs_no_announcer_a_ban(
    node: Node, builder: ChainBuilder
) -> None:
    """It is executed at once, and what that reveals is no more the fault of its sender than in a fetched block."""
    first, second = make_peers(node)
    bad = builder.block(None, break_=Refusal.STATE_ROOT)
    child = builder.block(bad, producer="after")
    for block, announcer in ((bad, first), (bad, second), (child, first)):
        assert announce(node, block, announcer).status in (200, 400)
    assert node.tip.height == 0
    assert node.peers.bans.listed(node.local.now()) == []
    good = builder.block(None)
    assert state(announce(node, good, first)) == "known"
    assert node.tip.hash == good.header.hash


# Fetching


def test_a_block_is_fetched_once_however_many_announce_it(node: Node, paid: Block) -> None:
    remotes = make_peers(node, 6)
    for remote in remotes:
        remote.blocks = [paid]
        assert state(announce(node, paid, remote)) == "asked"
    assert state(announce(node, paid)) == "asked"
    node.run(0.5)
    assert node.tip.hash == paid.header.hash
    assert [len(fetched(node, remote)) for remote in remotes] == [1, 0, 0, 0, 0, 0]


def begin(node: Node, block: Block, remote: RemoteNode) -> "Deferred[Any]":
    """An announcement by ``remote`` whose answer may take its time."""
    return node.begin(node.network.announcements.receive(block.header, node.peer(remote)))


@pytest.mark.parametrize(("pays", "said"), [(0, "known"), (1, "asked")])
def test_a_header_is_checked_once_however_many_announce_it(
    make_node: MakeNode, grow: Grow, argon: list[bytes], pays: int, said: str
) -> None:
    """And all get an answer, even if the first of them goes away; beside a copy with a false signature, too."""
    checker = Stepped()
    node = make_node(checker=checker)
    remotes = [node.remote(number) for number in range(20)]
    for start in range(0, len(remotes), 5):
        node.meet(*remotes[start : start + 5])
    (block,) = grow(1, pays=pays)
    argon.clear()
    spoiled = begin(node, unsigned(block), remotes[-1])
    first, *others = [begin(node, block, remote) for remote in remotes[:-1]]
    first.cancel()
    with pytest.raises(CancelledError):
        result_of(first)
    checker.finish()
    node.clock.advance(0)
    assert [result_of(other) for other in others] == [said] * 18
    with pytest.raises(RuleViolation):
        result_of(spoiled)
    assert len(argon) == 1


@pytest.mark.parametrize("stays", [True, False])
def test_a_check_that_fails_is_told_or_logged(
    make_node: MakeNode, paid: Block, expected_errors: Callable[..., Any], stays: bool
) -> None:
    checker = Stepped()
    node = make_node(checker=checker)
    remote = node.remote()
    node.meet(remote)
    announcement = begin(node, paid, remote)
    if not stays:
        announcement.cancel()
    checker.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError if stays else CancelledError):
        result_of(announcement)
    if not stays:
        expected_errors(ZeroDivisionError)


FAILURES: dict[str, Any] = {
    "lost": lambda _: FailureKind.TIMEOUT,
    "refused": lambda _: refused(503),
    "absent": lambda _: blocks_reply([]),
    "no such route": lambda _: refused(404),
}


@pytest.mark.parametrize("script", FAILURES.values(), ids=FAILURES)
def test_the_second_announcer_is_asked_when_the_first_does_not_deliver(node: Node, paid: Block, script: Any) -> None:
    first, second = make_peers(node)
    first.scripts, second.blocks = {BLOCKS: script}, [paid]
    announce(node, paid, first)
    announce(node, paid, second)
    node.run(0.5)
    assert node.tip.hash == paid.header.hash
    assert [len(fetched(node, remote)) for remote in (first, second)] == [1, 1]
    assert node.knows(first)
    assert node.peers.bans.listed(node.local.now()) == []


@pytest.mark.parametrize(
    ("lie", "banned"),
    [
        ("another body", True),
        ("no body", True),
        ("no block", False),
        ("another spelling", False),
        ("another", False),
        ("two", False),
    ],
)
def test_the_second_announcer_is_asked_when_the_first_lies(
    node: Node, paid: Block, builder: ChainBuilder, lie: str, banned: bool
) -> None:
    """A body that does not fit its header has one culprit; an answer of another form is like none."""
    pays = [builder.transfer("alice", "bob", 2, nonce=0)]
    other = builder.block(None, producer="other", transfers=pays)
    lies: dict[str, list[Block | bytes]] = {
        "another body": [Block(paid.header, other.transfers)],
        "no body": [Block(paid.header, ())],
        "no block": [b'{"x":1}'],
        "another spelling": [paid.wire().replace(b'"version":4', b'"version": 4')],
        "another": [other],
        "two": [paid, paid],
    }
    first, second, third = make_peers(node, 3)
    first.scripts, second.blocks = {BLOCKS: lambda _: blocks_reply(lies[lie])}, [paid]
    announce(node, paid, first)
    announce(node, paid, second)
    node.run(0.5)
    assert node.tip.hash == paid.header.hash
    assert node.knows(first) is not banned
    assert node.peers.is_banned(first.key.node_id) is banned
    assert node.knows(second)
    assert node.knows(third)


def test_a_peer_that_delivers_too_slowly_is_left_for_the_next_announcer(node: Node, paid: Block) -> None:
    slow, quick = make_peers(node)
    drip(slow)
    quick.scripts = delivers(paid)
    announce(node, paid, slow)
    node.run(announcements.FETCH_SECONDS + 30)
    assert len(fetched(node, slow)) == 1, "as long as no other peer has announced it"
    announce(node, paid, quick)
    node.run(0.5)
    assert node.tip.hash == paid.header.hash
    assert node.knows(slow)


def test_one_peer_does_not_take_the_places_of_other_announcers(node: Node, paid: Block) -> None:
    liar, honest = make_peers(node)
    liar.scripts, honest.scripts = {BLOCKS: silent}, delivers(paid)
    for _ in range(10):
        announce(node, paid, liar)
    announce(node, paid, honest)
    node.run(11)
    assert len(fetched(node, liar)) == 1
    assert node.tip.hash == paid.header.hash


def test_all_peers_are_asked_for_their_chains_if_no_announcer_delivers(node: Node, paid: Block) -> None:
    liar, honest = make_peers(node)
    node.run(2)
    liar.scripts, honest.blocks = {BLOCKS: lambda _: blocks_reply([])}, [paid]
    announce(node, paid, liar)
    node.run(1)
    assert node.tip.hash == paid.header.hash


def test_eight_blocks_are_fetched_at_a_time(node: Node, builder: ChainBuilder) -> None:
    (sender,) = make_peers(node, 1, scripts={BLOCKS: silent})
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    blocks = [builder.block(None, producer=f"p{number}", transfers=pays) for number in range(10)]
    said = [state(announce(node, block, sender)) for block in blocks]
    assert said == ["asked"] * announcements.MAX_FETCHES + ["wanted"] * 2
    node.run(11)
    assert state(announce(node, blocks[9], sender)) == "asked"


def test_a_peer_that_is_gone_is_not_asked(node: Node, paid: Block) -> None:
    first, second = make_peers(node)
    first.scripts, second.scripts = {BLOCKS: silent}, delivers(paid)
    announce(node, paid, first)
    announce(node, paid, second)
    node.peers.drop(node.peer(second))
    node.run(11)
    assert fetched(node, second) == []
    assert node.tip.height == 0


def test_a_client_that_goes_away_does_not_stop_the_fetch(make_node: MakeNode, paid: Block) -> None:
    checker = Stepped()
    node = make_node(checker=checker)
    sender = node.remote(1)
    node.meet(sender)
    sender.scripts = delivers(paid)
    wire = node.send(HEADER, message(paid, sender.endpoint), sender.host)
    wire.close()
    checker.finish()
    node.run(5 * LATENCY)
    checker.finish()
    assert node.tip.hash == paid.header.hash


def test_a_node_that_stops_fetches_nothing_any_more(node: Node, paid: Block) -> None:
    first, second = make_peers(node)
    first.scripts, second.scripts = {BLOCKS: silent}, delivers(paid)
    announce(node, paid, first)
    announce(node, paid, second)
    node.network.announcements.stop()
    node.run(0.1)
    assert fetched(node, second) == []
    assert state(announce(node, paid, second)) == "wanted"
    node.run(0.1)
    assert fetched(node, second) == []


def test_a_fetch_ends_when_the_block_comes_from_elsewhere(node: Node, paid: Block) -> None:
    slow, other = make_peers(node)
    slow.scripts = {BLOCKS: silent}
    announce(node, paid, slow)
    announce(node, paid, other)
    node.run(0.1)
    send(node, paid, other)
    assert not node.network.announcements.is_coming(paid.header.hash)
    node.run(20)
    assert fetched(node, other) == []


def test_a_fetch_keeps_synchronisation_from_the_block_for_a_minute_at_most(node: Node, paid: Block) -> None:
    (slow,) = make_peers(node, 1)
    drip(slow)
    announce(node, paid, slow)
    node.run(announcements.MAX_FETCH_SECONDS - 1)
    assert node.network.announcements.is_coming(paid.header.hash)
    node.run(2)
    assert not node.network.announcements.is_coming(paid.header.hash)


# Peers that say that they have a block, to keep it from this node


def verified_remotes(node: Node, *endpoints: str) -> list[RemoteNode]:
    """Remote nodes that have said hello to the node."""
    remotes = [node.remote(endpoint=endpoint) for endpoint in endpoints]
    for start in range(0, len(remotes), 4):
        node.meet(*remotes[start : start + 4], outbound=False)
    return remotes


ONE_ADDRESS = tuple(f"http://70.1.7.1:{port}" for port in range(8001, 8005))
EIGHT_PARTS = tuple(f"http://70.{number}.7.1:8645" for number in range(8))


def seconds_until(node: Node, block: Block) -> float:
    """How long it takes until a block is here."""
    began = node.local.now()
    assert node.until(lambda: node.tip.hash == block.header.hash, within=300)
    return node.local.now() - began


@pytest.mark.parametrize("endpoints", [ONE_ADDRESS, EIGHT_PARTS], ids=["at one address", "in eight parts"])
def test_acquaintances_that_announce_first_delay_no_block_by_more_than_a_few_seconds(
    node: Node, grow: Grow, endpoints: tuple[str, ...]
) -> None:
    """They drip, and so make progress for ever; peers of our choice announce the block a moment later."""
    chosen = make_peers(node, 8)
    liars = verified_remotes(node, *endpoints)
    late = []
    for block in grow(10, pays=1):
        for liar in liars:
            drip(liar)
            announce(node, block, liar)
            node.run(0.1)
        for honest in chosen:
            honest.scripts = delivers(block)
            announce(node, block, honest)
        late.append(seconds_until(node, block))
    assert max(late) < announcements.HEAD_START_SECONDS + 1
    assert sum(seconds > 1 for seconds in late) == (8 if endpoints == EIGHT_PARTS else 1), "once each"


def test_an_overtaken_peer_is_asked_last(node: Node, grow: Grow) -> None:
    slow, first, second = make_peers(node, 3)
    drip(slow)
    chain = grow(2, pays=1)
    for honest, block in zip((first, second), chain, strict=True):
        honest.scripts = delivers(block)
        announce(node, block, slow)
        announce(node, block, honest)
        assert seconds_until(node, block) < 4
    first.scripts, (block,) = {BLOCKS: silent}, grow(1, on=chain, pays=1)[2:]
    for remote in (first, slow, second):
        announce(node, block, remote)
    second.scripts = delivers(block)
    assert seconds_until(node, block) < 4
    assert len(fetched(node, slow)) == 2
    node.run(announcements.UNRELIABLE_SECONDS)
    (block,) = grow(2, on=chain, pays=1)[3:]
    announce(node, block, slow)
    announce(node, block, second)
    node.run(1)
    assert len(fetched(node, second)) == 2, "an hour later it has a head start again"


def test_a_neighbour_does_not_spoil_the_record_of_a_peer_of_our_choice(node: Node, grow: Grow) -> None:
    honest, other = make_peers(node)
    address = honest.endpoint.removesuffix(":8645")
    (liar,) = verified_remotes(node, f"{address}:9000")
    drip(liar)
    first, second = grow(2, pays=1)
    announce(node, first, liar)
    other.scripts = delivers(first)
    announce(node, first, other)
    assert seconds_until(node, first) < 4
    honest.scripts = other.scripts = delivers(second)
    announce(node, second, honest)
    announce(node, second, other)
    assert seconds_until(node, second) < 1
    assert len(fetched(node, honest)) == 1
    assert len(fetched(node, other)) == 1


def moves(node: Node, rate: float) -> dict[str, Script]:
    """What a peer does that delivers so many bytes in a second, and never all."""

    def script(called: Called) -> None:
        def more() -> None:
            assert called.request.on_bytes is not None
            called.request.on_bytes(int(rate / 4))
            node.clock.callLater(0.25, more)

        more()

    return {BLOCKS: script}


@pytest.mark.parametrize("outbound", [True, False])
def test_a_peer_that_delivers_well_is_left_to_it(make_node: MakeNode, paid: Block, outbound: bool) -> None:
    """The block may be large, and more copies of it would share the line. But acquaintances may just pretend."""
    node = make_node(outbound=1 + outbound)
    (other,) = make_peers(node, 1)
    busy = node.remote(5, scripts=moves(node, announcements.GOOD_RATE * 1.1))
    node.meet(busy, outbound=outbound)
    node.transport.dripping.add(busy.endpoint)
    announce(node, paid, busy)
    announce(node, paid, other)
    node.run(announcements.FETCH_SECONDS - 1)
    assert len(fetched(node, other)) == (0 if outbound else 1)
    other.scripts = delivers(paid)
    node.run(2)
    assert (node.tip.hash == paid.header.hash) is outbound


def test_over_a_slow_line_a_block_comes_twice_at_most(node: Node, paid: Block) -> None:
    remotes = make_peers(node, 4, scripts=moves(node, announcements.MIN_RATE * 1.1))
    for remote in remotes:
        node.transport.dripping.add(remote.endpoint)
        announce(node, paid, remote)
    node.run(announcements.FETCH_SECONDS - 1)
    assert [len(fetched(node, remote)) for remote in remotes] == [1, 1, 0, 0]
    node.run(3)
    assert [len(fetched(node, remote)) for remote in remotes] == [1, 1, 1, 0]


def side_blocks(builder: ChainBuilder) -> list[Block]:
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    return [builder.block(None, producer=f"s{number}", transfers=pays) for number in range(announcements.MAX_FETCHES)]


def test_acquaintances_do_not_take_all_places_for_blocks(
    make_node: MakeNode, paid: Block, builder: ChainBuilder
) -> None:
    node = make_node(outbound=1)
    (honest,) = make_peers(node, 1)
    liar, other = verified_remotes(node, *EIGHT_PARTS[:2])
    drip(liar)
    for block in side_blocks(builder):
        assert state(announce(node, block, liar)) == "asked"
    assert state(announce(node, paid, other)) == "wanted"
    honest.scripts = delivers(paid)
    assert state(announce(node, paid, honest)) == "asked"
    assert seconds_until(node, paid) < 1


def test_nobody_keeps_a_place_for_a_block_longer_than_a_minute(node: Node, paid: Block, builder: ChainBuilder) -> None:
    liar, honest = make_peers(node)
    drip(liar)
    for block in side_blocks(builder):
        announce(node, block, liar)
    assert state(announce(node, paid, honest)) == "wanted"
    node.run(announcements.MAX_FETCH_SECONDS + 1)
    honest.scripts = delivers(paid)
    assert state(announce(node, paid, honest)) == "asked"
    assert seconds_until(node, paid) < 1


def test_an_uncallable_peer_sends_a_block_that_others_only_announce(make_node: MakeNode, paid: Block) -> None:
    """Else whoever hears of the block of a node that nobody can call could keep it from everybody."""
    node = make_node(outbound=1)
    (chosen,) = make_peers(node, 1)
    (liar,) = verified_remotes(node, EIGHT_PARTS[0])
    drip(chosen, liar)
    announce(node, paid, liar)
    assert state(announce(node, paid)) == "wanted"
    announce(node, paid, chosen)
    node.run(announcements.HEAD_START_SECONDS + 0.5)
    assert len(fetched(node, chosen)) == 1
    assert state(announce(node, paid)) == "asked", "a peer of our choice has just been asked"
    node.run(announcements.HEAD_START_SECONDS)
    assert state(announce(node, paid)) == "wanted"


@pytest.mark.parametrize(("rate", "said"), [("MIN_RATE", "wanted"), ("GOOD_RATE", "asked")])
def test_an_uncallable_peer_sends_a_block_that_an_acquaintance_delivers_slowly(
    make_node: MakeNode, paid: Block, rate: str, said: str
) -> None:
    node = make_node(outbound=1)
    node.meet(node.remote(1))
    (busy,) = verified_remotes(node, EIGHT_PARTS[0])
    busy.scripts = moves(node, getattr(announcements, rate) * 1.5)
    node.transport.dripping.add(busy.endpoint)
    announce(node, paid, busy)
    node.run(2)
    assert state(announce(node, paid)) == said
    node.run(announcements.FETCH_SECONDS)
    assert state(announce(node, paid)) == "wanted"


def test_an_overloaded_peer_is_asked_for_no_block_until_its_retry_after(node: Node, grow: Grow) -> None:
    first, second = grow(2, pays=1)
    remote = node.remote(scripts={BLOCKS: lambda _: evolve(refused(429), retry_after=20.0)})
    node.meet(remote)
    announce(node, first, remote)
    node.run(1)
    assert node.peer(remote).is_paused
    before = len(fetched(node, remote))
    announce(node, first, remote)
    announce(node, second, remote)
    node.run(15)
    assert len(fetched(node, remote)) == before
