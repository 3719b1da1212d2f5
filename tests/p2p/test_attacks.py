"""Every attack that the node is held to resist, once as it is and once with the defence taken out.

Each docstring names the defence. An attack that fails without its defence as well would prove nothing.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any, ClassVar

import apsw
import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.policies import ProtocolWrapper

from svcd.chain.block import Block, Header
from svcd.chain.errors import Corrupt, Refusal, RuleViolation
from svcd.chain.signature import sign
from svcd.chain.transition import ChainPoint
from svcd.chain.work import effective_target, work_value
from svcd.net import calls
from svcd.net.addresses import AddressPolicy
from svcd.net.happy_eyeballs import CheckedEndpoint
from svcd.net.http_client import PinnedClient
from svcd.net.meter import Meter
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.node import chainstate, node_context
from svcd.node.chain_manager import ChainManager, FutureBlocks
from svcd.node.miner import Miner, MinerSettings
from svcd.node.threads import InlineWorker
from svcd.node.verifier import Verifier
from svcd.p2p import (
    address_book,
    announcements,
    block_download,
    chain_sync,
    client,
    handshake,
    headers,
    peers,
    relay,
    routes,
    schedule,
)
from svcd.p2p.bans import Bans
from svcd.p2p.call_budget import CallBudget
from svcd.p2p.handshake import LatestHellos, check_hello
from svcd.p2p.schedule import Schedule, Source
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest, PinnedTransport
from svcd.store import database
from svcd.store.chain_store import StoredBlock
from svcd.store.database import DatabaseConnection, DatabaseError
from svcd.web.connections import SiteLimits
from svcd.web.rate_limits import RateLimiter
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.net.conftest import Answers
from tests.net.servers import Conversation, Server, dripping, until
from tests.node.bench import LATE, Stepped, running
from tests.node.bench import Setting as BareSetting
from tests.node.conftest import argon as argon
from tests.p2p.bench import LIMITS, RATES, Neighbour, Node, place
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.following import boaster, followed, is_clean, meet
from tests.p2p.memory_transport import LATENCY, Answer, Called
from tests.p2p.remote_node import RemoteNode, Script, blocks_reply, ok, silent
from tests.store.contents import contents
from tests.store.statements import trace
from tests.support import has_result, result_of
from tests.torture.audit import Discrepancy, audit
from tests.web.wire import Response, Wire

TakeOut = Callable[..., None]

BLOCKS, HEADERS, STATUS = "/p2p/blocks", "/p2p/headers", "/p2p/status"
ATTACKER, HONEST = "203.0.113.9", "198.51.100.7"

each_way = pytest.mark.parametrize("defended", [True, False], ids=["defended", "undefended"])


@pytest.fixture
def take_out(monkeypatch: pytest.MonkeyPatch, defended: bool) -> TakeOut:
    """``take_out(owner, name, instead)``: takes a defence out, unless the node is to be defended."""

    def take(owner: object, name: str, instead: object) -> None:
        assert hasattr(owner, name)
        if not defended:
            monkeypatch.setattr(owner, name, instead)

    return take


def nothing(*_: object, **__: object) -> None:
    """Instead of a check."""


def post_block(node: Node, block: Block | bytes, client: str) -> Response:
    wire = block if isinstance(block, bytes) else block.wire()
    return node.post("/p2p/block", b'{"block":' + wire + b"}", client)


# Side blocks


@each_way
@pytest.mark.parametrize("how_many", [10, pytest.param(2_000, marks=pytest.mark.slow)])
def test_blocks_forked_off_far_below_the_tip(
    make_node: MakeNode, builder: ChainBuilder, grow: Grow, take_out: TakeOut, defended: bool, how_many: int
) -> None:
    """Defence: a posted block is stored only if it has nearly as much work as the tip; its work is not even checked.

    The blocks have valid work and signatures, an unearned multiplier and random roots: only their state would show it.
    """
    take_out(chainstate, "SIDE_DEPTH", 10**9)
    node = make_node()
    ours = grow(200, name="deep")
    node.take(*ours)
    before = contents(node.node_context.chain.chainstate.store._db)
    for number in range(how_many):
        block = builder.block(ours[0], producer=f"spammer {number}", break_=Refusal.STATE_ROOT)
        answer = post_block(node, block, ATTACKER).json
        assert answer["state"] == ("deep" if defended else "side")
    assert (contents(node.node_context.chain.chainstate.store._db) == before) is defended
    assert not node.peers.bans.is_banned(f"address:{ATTACKER}", node.local.now()), (
        "an honest node may be that far behind"
    )


@each_way
def test_announcing_blocks_forked_off_far_below_the_tip(
    make_node: MakeNode, builder: ChainBuilder, grow: Grow, take_out: TakeOut, defended: bool
) -> None:
    """Defence: the body of an announced block is fetched only if a posted one would be stored."""
    take_out(chainstate, "SIDE_DEPTH", 10**9)
    node = make_node()
    ours = grow(200, name="deep")
    node.take(*ours)
    transfer = builder.transfer("alice", "bob", 1, nonce=0)
    block = builder.block(ours[0], producer="announcer", transfers=[transfer])
    attacker = node.remote(9, blocks=[ours[0], block])
    node.meet(attacker)
    node.run(2)
    body = b'{"endpoint":"%s","header":%s}' % (attacker.endpoint.encode(), block.header.wire())
    answer = node.post("/p2p/header", body, "60.10.7.1").json
    node.run(10)
    assert (answer["state"] == "deep") is defended
    assert (node.node_context.chain_manager.reader.point(block.header.hash) is None) is defended


# Eclipse


@each_way
def test_eclipse_by_a_flood_of_hints(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: one part of the network is heard 32 times an hour, and its hints fill an eighth of the buckets at most.

    An attacker with a thousand endpoints floods the book of a new node from four places before honest hints come.
    """
    take_out(address_book, "HINTS_PER_HOUR", 10**9)
    take_out(address_book, "SOURCE_BUCKETS", address_book.NEW_BUCKETS)
    node = make_node()
    for number in range(3_000):
        node.peers.hint(place(2_000 + number), source=f"203.{number % 4}.0.0/16")
    for number in range(500):
        node.peers.hint(place(number), source=f"60.{number}.0.0/16")
    known = [entry.endpoint for entry in node.book.entries()]
    for endpoint in known:
        node.remote(endpoint=endpoint)
    node.run(5)
    honest = {place(number) for number in range(500)}
    chosen = {peer.endpoint for peer in node.peers.outbound()}
    assert len(chosen) == 8
    assert (not chosen & honest) is not defended


@each_way
def test_eclipse_by_callers(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: who calls us fills no place of those that we would call, even while those do not answer."""
    choose = peers.Peers._choose

    def take_whoever_is_there(self: peers.Peers, now: float) -> None:
        choose(self, now)
        self._promote(self.settings.outbound - len(self.outbound()), None)

    take_out(peers.Peers, "_choose", take_whoever_is_there)
    node = make_node(outbound=4)
    honest = {place(number) for number in range(4)}
    for endpoint in honest:
        node.peers.hint(endpoint, source="operator")
    node.run(2)
    for number in range(20):
        node.peers.hello_received(node.remote(100 + number).hello(), f"{number + 1}.1.1.1")
        node.run(0.2)
    for endpoint in honest:
        node.remote(endpoint=endpoint)
    node.run(60)
    assert len(node.peers.all()) >= 20
    assert (not {peer.endpoint for peer in node.peers.outbound()} & honest) is not defended


@each_way
def test_one_host_takes_inbound_places(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: one part of the network gets a quarter of the inbound places."""
    take_out(peers.Peers, "_has_room", lambda self, _: len(self.all()) < self.settings.max_inbound)
    node = make_node(outbound=0, max_inbound=8)
    for number in range(20):
        hostile = node.remote(endpoint=f"http://{ATTACKER}:{9_000 + number}")
        node.peers.hello_received(hostile.hello(), ATTACKER)
        node.run(0.2)
    assert len(node.peers.all()) == (2 if defended else 8)
    honest = node.remote()
    node.peers.hello_received(honest.hello(), HONEST)
    node.run(0.2)
    assert node.knows(honest) is defended


# Endpoints that are not what they seem


def dialled(defended: bool, endpoint: str, *answers: list[str]) -> list[str]:
    """Where a node that calls only public addresses connects to."""
    reactor: Any = MemoryReactorClock()
    resolver = Answers(*answers) if answers else Answers(OSError("nobody is to be looked up"))
    caller = PinnedClient(reactor, resolver=resolver, policy=AddressPolicy(), trust=load_trust())
    # What is a name and what an address are two checks; undefended both are lenient.
    network = PinnedTransport(caller, Rules.for_peers(allow_private=not defended), CallBudget(reactor))
    call = network.call(endpoint, PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=5.0))
    reactor.advance(6)
    with pytest.raises(PeerCallFailed):
        result_of(call)
    return [host for host, *_ in reactor.tcpClients]


@each_way
@pytest.mark.parametrize(
    ("endpoint", "answers"),
    [
        ("http://127.0.0.1:8645", []),
        ("http://[::1]:8645", []),
        ("http://10.0.0.1", []),
        ("http://169.254.169.254", []),
        ("http://node.example.com", ["127.0.0.1"]),
        ("http://node.example.com", ["169.254.169.254"]),
        ("http://node.example.com", ["8.8.8.8", "127.0.0.1"]),
    ],
)
def test_an_endpoint_at_loopback_or_metadata(
    take_out: TakeOut, defended: bool, endpoint: str, answers: list[str]
) -> None:
    """Defence: every address that a name or literal stands for is checked before anything is dialled."""
    take_out(AddressPolicy, "check", nothing)
    assert bool(dialled(defended, endpoint, *([answers] if answers else []))) is not defended


@each_way
def test_an_endpoint_whose_name_rebinds(take_out: TakeOut, defended: bool) -> None:
    """Defence: the address that was checked is the one that is dialled; the name is not looked up once more."""
    find = PinnedClient._find

    async def look_up_again(self: PinnedClient, target: Any, seconds: float, _: object = None) -> CheckedEndpoint:
        await find(self, target, seconds)
        addresses = await self._resolver.resolve(target.host)
        return CheckedEndpoint(self._reactor, target, addresses, trust=self._trust, seconds=seconds)

    take_out(PinnedClient, "_find", look_up_again)
    hosts = dialled(defended, "http://node.example.com", ["8.8.8.8"], ["127.0.0.1"])
    assert hosts == (["8.8.8.8"] if defended else ["127.0.0.1"])


# Hellos


def greet(node: Node, message: dict[str, object]) -> int:
    return node.post("/p2p/hello", json.dumps({"hello": message}).encode(), ATTACKER).status


@each_way
def test_a_replayed_hello(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: each hello of a key must be newer than the last."""
    take_out(LatestHellos, "take", nothing)
    node = make_node()
    overheard = node.remote().hello().message()
    assert greet(node, overheard) == 200
    assert (greet(node, overheard) == 200) is not defended


@each_way
def test_a_hello_from_the_future(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: a hello is at most a minute ahead; else one that was signed for later could be used when it suits."""
    take_out(handshake, "CLOCK_TOLERANCE_MS", 10**12)
    node = make_node()
    remote = node.remote()
    early = evolve(remote.hello(), timestamp=remote.hello().timestamp + 3_600_000)
    early = evolve(early, signature=sign(remote.key.seed, early.signed_hash()))
    assert (greet(node, early.message()) == 200) is not defended


@each_way
def test_a_node_that_is_led_to_itself(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: our own node id is no peer's; the endpoint is remembered as ours for a day and not called again."""

    def blind(*args: Any, own: str, now: int) -> None:
        check_hello(*args, own="", now=now)

    take_out(peers, "check_hello", blind)
    node = make_node()
    mirror = node.remote(key=node.key)
    for _ in range(12):
        node.peers.hint(mirror.endpoint, source="203.0.0.0/16")
        node.run(600)
    assert node.knows(mirror) is not defended
    assert (len(node.transport.calls_to(mirror.endpoint)) > 1) is not defended


# Claims


class Hands(InlineWorker):
    """Threads that search for work in the test's own thread, which must not stay at low priority."""

    def run(self, function: Any, *args: Any, **_: Any) -> "Deferred[Any]":
        return super().run(function.__self__.run, *args)


@contextmanager
def mining(node: Node) -> Iterator[None]:
    """Let a node make blocks, a few a minute, as long as it takes its tip for the network's."""
    workshop = MinerSettings(
        seed=key_of("miner").seed,
        threads=Hands(),
        workers=1,
        random=bytes,
        may_produce=lambda: node.status.synced and node.clock.seconds() % 20 < 5,
    )
    producer = Miner(node.node_context, workshop)
    producer.startService()
    yield
    stopped = producer.stopService()
    node.run(10)
    result_of(stopped)


def lone_boaster(node: Node, number: int = 9, script: Script = silent, **changes: Any) -> RemoteNode:
    """A boaster whose tip no other peer claims, and that answers no request about it unless by ``script``."""
    liar = boaster(node, number, script, **({"work": 2**60, "height": 10**6} | changes))

    def claims(called: Called) -> Answer:
        status = json.loads(liar.honest(called).body)["status"]  # type: ignore[union-attr]
        return ok(status=status | {"hash": f"{number:064x}"})

    liar.scripts[STATUS] = claims
    return liar


@each_way
def test_ten_claims_of_the_greatest_chain(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: a claim counts once headers prove it. Ten liars in ten parts of the network come, one each 20 seconds.

    A node that believed claims would make no blocks: a miner could silence all others by it.
    """
    proven = chain_sync.ChainSync.behind

    def believing(self: chain_sync.ChainSync) -> str:
        work = self._node.chain_manager.tip.work
        return proven(self) or " ".join(p.endpoint for p in self._peers.all() if p.status and p.status.work > work)

    take_out(chain_sync.ChainSync, "behind", believing)
    node = make_node(outbound=16)
    node.meet(node.remote())
    node.run(2)
    assert node.status.unready() == ""
    unready = 0
    with mining(node):
        for number in range(10, 20):
            before = node.tip.height
            node.meet(lone_boaster(node, number))
            for _ in range(20):
                node.run(1)
                unready += bool(node.status.unready())
            assert (node.tip.height > before) is defended
    assert (unready == 0) is defended
    assert (unready == 200) is not defended


@each_way
def test_forty_liars_and_one_good_chain(make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool) -> None:
    """Defence: two claims at a time are looked into, each answer has ten seconds, and a liar waits longer each time."""
    for module in (chain_sync, headers):
        take_out(module, "PROOF_SECONDS", 1e9)
    node = make_node(outbound=64)
    node.take(*grow(5, pays=1))
    liars = [lone_boaster(node, number) for number in range(10, 50)]
    for start in range(0, len(liars), 5):
        node.meet(*liars[start : start + 5])
    honest = node.remote(1, blocks=grow(20, pays=1))
    node.meet(honest)
    bound = len(liars) / chain_sync.MAX_CLAIMS * 10 + 20
    assert node.until(lambda: node.tip.hash == honest.tip.hash, within=bound) is defended
    if defended:
        assert is_clean(node, honest)
        honest.blocks = grow(30, pays=1)
        assert followed(node, honest.blocks, within=2 * headers.PROOF_SECONDS + 10), "it delivered, so it comes first"


@each_way
def test_a_long_fork_of_little_work(make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool) -> None:
    """Defence: the chain with most work is followed, not the longest; no block of another one is even asked for."""

    def longer(candidate: ChainPoint, tip: ChainPoint) -> bool:
        return candidate.height > tip.height

    for module in (chainstate, chain_sync):
        take_out(module, "prefers", longer)
    node = make_node()
    ours = grow(40, name="hard", step=1)
    node.take(*ours)
    cheap = grow(60, name="cheap", step=8, pays=1)
    liar = node.remote(9, blocks=cheap, work=2**60)
    node.meet(liar)
    node.run(30)
    assert node.builder.point_after(cheap[-1]).work < node.builder.point_after(ours[-1]).work
    assert (node.tip.hash == cheap[-1].header.hash) is not defended
    assert (node.transport.calls_to(liar.endpoint, BLOCKS) == []) is defended
    assert node.peer(liar).unproven_claims == 1


@each_way
def test_headers_of_little_work_without_end(
    make_node: MakeNode,
    grow: Grow,
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
    defended: bool,
) -> None:
    """Defence: one claim is looked into for ten minutes at most, however many headers with a little work there are."""
    monkeypatch.setattr(chain_sync, "MAX_PROOF_SECONDS", 20.0)
    take_out(chain_sync, "MAX_PROOF_SECONDS", 1e9)
    for name in ("FIRST_HEADERS", "PROOF_HEADERS"):
        monkeypatch.setattr(headers, name, 2)
    node = make_node()
    node.take(*grow(120, name="hard", step=1))
    liar = node.remote(9, blocks=grow(120, name="cheap", step=8), work=2**60)
    node.meet(liar)
    node.transport.latency[liar.endpoint] = 0.4
    node.run(50)
    assert (len(node.transport.calls_to(liar.endpoint, HEADERS)) > 45) is not defended
    assert node.tip.hash == grow(120, name="hard", step=1)[-1].header.hash


@each_way
def test_headers_without_blocks(make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool) -> None:
    """Defence: a chain none of whose blocks come is left after a minute, and followed again ever more rarely."""
    take_out(block_download, "STALL_SECONDS", 1e9)
    take_out(chain_sync, "HOLD_SECONDS", 1e9)
    node = make_node()
    node.meet(node.remote(1, blocks=grow(5)))
    node.run(2)
    node.meet(node.remote(9, blocks=grow(40, on=grow(5), pays=1), scripts={BLOCKS: lambda _: blocks_reply([])}))
    node.run(5)
    assert not node.status.synced
    node.run(60)
    assert node.status.synced is defended
    synced = 0
    for _ in range(60):
        node.run(10)
        synced += node.status.synced
    assert (synced > 30) is defended


@each_way
def test_a_good_chain_of_headers_with_an_invalid_state(
    make_node: MakeNode,
    grow: Grow,
    builder: ChainBuilder,
    take_out: TakeOut,
    defended: bool,
) -> None:
    """Defence: an invalid block is remembered by its hash, and the work behind it counts no more, whoever shows it."""
    take_out(ChainManager, "_remember_invalid", nothing)
    bad = builder.block(grow(9, pays=1)[-1], break_=Refusal.STATE_ROOT, producer="criminal")
    chain = grow(12, on=[*grow(9, pays=1), bad], name="after", pays=1)
    node = make_node(outbound=16)
    liars = [node.remote(number, blocks=chain) for number in range(2, 8)]
    for liar in liars:
        node.begin(node.peers.connect(liar.endpoint, outbound=True))
        node.run(10)
    asked = [bool(node.transport.calls_to(liar.endpoint, BLOCKS)) for liar in liars]
    assert asked[0]
    assert (not any(asked[1:])) is defended
    assert node.tip.height == 9


@each_way
def test_one_block_with_an_invalid_state_again_and_again(
    make_node: MakeNode, builder: ChainBuilder, take_out: TakeOut, defended: bool
) -> None:
    """Defence: it is executed once, though nobody is banned for what only its execution reveals."""
    take_out(ChainManager, "_remember_invalid", nothing)
    node = make_node()
    executed: list[bytes] = []
    chainstate, connect = node.node_context.chain.chainstate, node.node_context.chain.chainstate._connect_tip

    def counted(stored: StoredBlock) -> None:
        executed.append(stored.point.hash)
        connect(stored)

    chainstate._connect_tip = counted  # type: ignore[method-assign]
    bad = builder.block(None, break_=Refusal.STATE_ROOT, producer="criminal")
    for sender in (ATTACKER, ATTACKER, HONEST):
        assert post_block(node, bad, sender).status == 400
    assert len(executed) == (1 if defended else 3)
    assert node.peers.bans.listed(node.local.now()) == []
    assert post_block(node, builder.block(None), HONEST).json["state"] == "connected"


# Blocks that cost nothing to make


def workless(template: Block, how_many: int) -> Iterator[Block]:
    """Blocks with a good signature and no work, each with an id of its own."""
    header = template.header
    target = effective_target(header.base_target, header.multiplier)
    nonces = (number.to_bytes(8, "big") for number in count())
    for _ in range(how_many):
        nonce = next(n for n in nonces if work_value(header.core_hash, n, TEST_PARAMS.memory_kib) >= target)
        unsigned = header.sealed(work_nonce=nonce, signature=bytes(64))
        yield Block(unsigned.sealed(work_nonce=nonce, signature=sign(key_of("w").seed, unsigned.hash)), ())


@pytest.fixture(scope="module")
def thousand(builder: ChainBuilder) -> list[Block]:
    """A thousand blocks without work."""
    return list(workless(builder.block(None, producer="w"), 1_000))


@each_way
def test_a_thousand_headers_without_work_in_a_second(
    make_node: MakeNode, grow: Grow, thousand: list[Block], argon: list[bytes], take_out: TakeOut, defended: bool
) -> None:
    """Defence: the first costs its sender a day; else each would cost us an Argon2. Honest blocks connect meanwhile."""
    take_out(Bans, "ban", nothing)
    node, honest = make_node(), grow(10)
    argon.clear()
    for number, block in enumerate(thousand):
        assert post_block(node, block, ATTACKER).status >= 400
        if number % 100 == 50:
            assert post_block(node, honest[number // 100], HONEST).status == 200
            argon.pop()
    assert node.tip.hash == honest[-1].header.hash
    assert (len(argon) > 1) is not defended
    assert len(argon) == (1 if defended else 1_000)


@each_way
def test_headers_without_work_behind_a_false_proxy(
    make_node: MakeNode, thousand: list[Block], argon: list[bytes], take_out: TakeOut, defended: bool
) -> None:
    """Defence: where an address cannot be banned, since others may ask through it, an invalid block costs all tokens.

    Anybody can write a header that says so: then it is one Argon2 for every burst, not one for every token.
    """
    take_out(RateLimiter, "penalise", lambda *_, **__: False)
    node = make_node(rates={**RATES, "p2p": 10.0})
    argon.clear()
    for second in range(30):
        for number in range(10):
            body = b'{"block":' + thousand[10 * second + number].wire() + b"}"
            node.post("/p2p/block", body, ATTACKER, f"X-Forwarded-For: 192.0.2.{number}")
        node.clock.advance(1)
    assert (len(argon) > 10) is not defended


@each_way
def test_junk_that_is_read_for_nothing(make_node: MakeNode, take_out: TakeOut, defended: bool) -> None:
    """Defence: a malformed post costs as much as 21 good ones, so that a burst of junk is soon over."""
    take_out(RateLimiter, "penalise", lambda *_, **__: False)
    node = make_node(rates={**RATES, "p2p": 200.0})
    statuses = [node.post("/p2p/block", b'{"block":{}}', ATTACKER).status for _ in range(2_100)]
    assert (statuses.count(400) < 100) is defended
    assert set(statuses) == {400, 429}


@each_way
def test_headers_without_work_from_everywhere(
    make_node: MakeNode,
    grow: Grow,
    thousand: list[Block],
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
    defended: bool,
) -> None:
    """Defence: so many blocks may wait for an Argon2; the rest is told to come again, and is no worse for it."""
    monkeypatch.setattr(node_context, "VERIFIER_CAPACITY", 64)
    take_out(node_context, "VERIFIER_CAPACITY", 10**9)
    checker = Stepped()
    node = make_node(checker=checker)
    honest = grow(1)[0]
    wires = []
    for number, block in enumerate([*thousand[:150], honest]):
        wire = Wire(node.site, f"203.0.{number // 250}.{number % 250}")
        body = b'{"block":' + block.wire() + b"}"
        wires.append(wire.send(b"POST /p2p/block HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
        checker.step(-1)
    assert (node.node_context.verifier.waiting > 64) is not defended
    checker.finish()
    last = wires[-1].response()
    assert last.status == (503 if defended else 200)
    for wire in wires:
        wire.close()
    again = node.node_context.chain_manager.submit_blocks([honest.wire()])
    checker.finish()
    result_of(again)
    assert node.tip.hash == honest.header.hash


def orphans(template: Block, how_many: int) -> Iterator[Block]:
    """Blocks with good signatures and parents that nobody has."""
    for number in range(how_many):
        header = evolve(template.header, parent_hash=number.to_bytes(32, "big"))
        yield Block(header.sealed(work_nonce=bytes(8), signature=sign(key_of("o").seed, _id(header))), ())


def _id(header: Header) -> bytes:
    return header.sealed(work_nonce=bytes(8), signature=bytes(64)).hash


@each_way
def test_a_flood_of_orphans(
    make_node: MakeNode,
    builder: ChainBuilder,
    argon: list[bytes],
    take_out: TakeOut,
    defended: bool,
) -> None:
    """Defence: an orphan costs no Argon2 and no place; it makes us ask our peers, each at most once a second."""
    take_out(peers, "ASK_AGAIN_SECONDS", -1.0)
    node = make_node()
    node.meet(*[node.remote(number) for number in range(4)])
    node.run(2)
    before = len(node.transport.calls)
    flood = list(orphans(builder.block(None, producer="o"), 200))
    argon.clear()
    for block in flood:
        assert post_block(node, block, ATTACKER).json["state"] == "orphan"
        assert node.node_context.chain_manager.reader.stored(block.header.hash) is None
        # Long enough for a poll to end.
        node.run(3 * LATENCY)
    assert (len(node.transport.calls) - before > 100) is not defended
    assert argon == []
    assert node.node_context.chain_manager._pending == {}


# Transfers that cost nothing to make


@each_way
def test_replayed_transfers(make_node: MakeNode, builder: ChainBuilder, take_out: TakeOut, defended: bool) -> None:
    """Defence: the look-up of a used nonce on disk costs as much as four more posts, and a bad signature prevents it.

    One address posts all that its rate allows: transfers of the chain, which anybody can read there, and the same under
    signatures that are none.
    """
    take_out(routes, "LOOKUP", evolve(routes.LOOKUP, tokens=0.0))
    take_out(Verifier, "check_in_this_thread", nothing)
    node = make_node(rates={**RATES, "p2p": 200})
    payments = [builder.transfer("alice", "bob", 1_000_000, nonce=nonce) for nonce in range(8)]
    node.take(builder.block(transfers=payments))
    reads: list[str] = []
    trace(node.node_context.chain.reader._db, reads.append)

    def look_ups(posts: Iterator[bytes]) -> int:
        reads.clear()
        for _ in range(20):
            while node.post("/p2p/transaction", next(posts), ATTACKER).status != 429:
                pass
            node.clock.advance(1)
        return len([statement for statement in reads if "transfer_run" in statement])

    honest = payments[0].signature.hex().encode()
    forged = (b'{"transaction":' + payments[0].wire.replace(honest, b"%0128x" % number) + b"}" for number in count(1))
    assert (look_ups(forged) == 0) is defended
    node.run(20)
    replayed = cycle([b'{"transaction":' + payment.wire + b"}" for payment in payments])
    # A burst of 2,000 tokens, and 200 a second.
    assert (look_ups(replayed) < 1_200) is defended


# Copies of honest blocks


def _with(block: Block, old: bytes, new: bytes) -> bytes:
    wire = block.wire()
    assert wire.count(old) == 1
    return wire.replace(old, new)


def bad_signature(block: Block) -> bytes:
    """The same block and id, with a signature that is none."""
    return _with(block, block.header.signature.hex().encode(), b"00" * 64)


def bad_body(block: Block) -> bytes:
    """The same block and id, with other transfers."""
    return Block(block.header, block.transfers[:1]).wire()


def bad_transfer(block: Block) -> bytes:
    """The same block and id, with a transfer whose signature is none: the transfer's id does not cover it."""
    return _with(block, block.transfers[0].signature.hex().encode(), b"00" * 64)


@each_way
@pytest.mark.parametrize("mutate", [bad_signature, bad_body, bad_transfer])
def test_a_spoiled_copy_of_a_block_comes_first(
    make_node: MakeNode, take_out: TakeOut, mutate: Callable[[Block], bytes], defended: bool
) -> None:
    """Defence: an id is remembered as invalid only for what it commits to; the honest block is accepted afterwards."""
    enter = ChainManager._parse

    async def remember_everything(self: ChainManager, batch: Any, *args: Any) -> None:
        await enter(self, batch, *args)
        for index, block in enumerate(batch.blocks):
            if block is not None and isinstance(violation := batch.outcomes.get(index), RuleViolation):
                self._remember_invalid(block.header.hash, violation)

    take_out(ChainManager, "_parse", remember_everything)
    node = make_node()
    builder = ChainBuilder()
    block = builder.block(None, transfers=[builder.transfer("alice", "bob", 5), builder.transfer("bob", "carol", 6)])
    assert post_block(node, mutate(block), ATTACKER).status == 400
    honest = post_block(node, block, HONEST)
    assert (honest.status == 400) is not defended
    assert (node.tip.hash == block.header.hash) is defended


# Time


@each_way
def test_a_block_one_slot_early(make_node: MakeNode, builder: ChainBuilder, take_out: TakeOut, defended: bool) -> None:
    """Defence: a block counts when its slot has come, less the drift; until then it waits, and is never invalid."""
    take_out(FutureBlocks, "hold_if_future", nothing)
    node = make_node()
    early = builder.block(None, slot=LATE + TEST_PARAMS.drift_slots + 1, producer="early")
    response = post_block(node, early, HONEST)
    assert (node.tip.hash == early.header.hash) is not defended
    assert response.json["state"] == ("early" if defended else "connected")
    node.run(TEST_PARAMS.slot_seconds)
    assert node.tip.hash == early.header.hash


# Slowness and size


@each_way
def test_a_client_that_drips(make_node: MakeNode, defended: bool) -> None:
    """Defence: a whole request has 30 seconds, however alive it looks."""
    patient = SiteLimits(body_caps=LIMITS.body_caps, request_seconds=1e9, header_seconds=1e9, idle_seconds=1e9)
    node = make_node(limits=LIMITS if defended else patient)
    wire = Wire(node.site, ATTACKER)
    wire.send(b"POST /p2p/block HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n")
    for _ in range(120):
        node.run(1)
        wire.send(b"x")
    assert wire.open is not defended
    wire.close()


@pytest.mark.socket
@each_way
async def test_a_server_that_drips(take_out: TakeOut, defended: bool) -> None:
    """Defence: one deadline for the whole call."""
    take_out(calls, "within", lambda seconds, clock, work, late: Deferred.fromCoroutine(work))
    server, network, reactor = real_network(dripping(b"HTTP/1.1 200 OK\r\n\r\n"))
    call = network.call(
        f"http://127.0.0.1:{server.port}", PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=0.2)
    )
    give_up_at = reactor.seconds() + (30.0 if defended else 1.0)
    await until(lambda: has_result(call) or reactor.seconds() > give_up_at)
    assert (not has_result(call)) is not defended
    network.forget(f"http://127.0.0.1:{server.port}")
    with pytest.raises(PeerCallFailed):
        await call
    await server.stop()


def real_network(script: Any) -> tuple[Server, PinnedTransport, Any]:
    """A server on loopback, and a network that may call it."""
    from twisted.internet import reactor

    server = Server(script)
    server.listen("127.0.0.1", None)
    caller = PinnedClient(
        reactor, resolver=Answers(["127.0.0.1"]), policy=AddressPolicy(allow_private=True), trust=load_trust()
    )
    return server, PinnedTransport(caller, Rules.for_peers(allow_private=True), CallBudget(reactor)), reactor


class Flood:
    """Says a GiB, as fast as it is read."""

    size = 1 << 30
    piece = b"x" * 65_536

    def __init__(self, conversation: Conversation, head: bytes) -> None:
        self.sent = 0
        self._transport: Any = conversation.transport
        conversation.say(head)
        self._transport.registerProducer(self, False)

    def resumeProducing(self) -> None:  # noqa: N802
        if self.sent < self.size:
            self.sent += len(self.piece)
            self._transport.write(self.piece)
        else:
            self._transport.unregisterProducer()

    def stopProducing(self) -> None:  # noqa: N802
        """The connection is lost."""


@pytest.mark.socket
@each_way
async def test_a_reply_of_a_gib(take_out: TakeOut, defended: bool) -> None:
    """Defence: what arrives is counted on the connection, and it is closed when it is more than was allowed."""
    take_out(Meter, "dataReceived", ProtocolWrapper.dataReceived)
    floods: list[Flood] = []
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"
    server, network, _ = real_network(lambda conversation: floods.append(Flood(conversation, head)))
    call = network.call(f"http://127.0.0.1:{server.port}", PeerRequest(path=BLOCKS, max_bytes=4 << 20, seconds=50.0))
    await until(lambda: has_result(call) or any(flood.sent > 64 << 20 for flood in floods))
    assert (floods[0].sent > 64 << 20) is not defended
    network.forget(f"http://127.0.0.1:{server.port}")
    with pytest.raises(PeerCallFailed) as failed:
        await call
    assert (failed.value.kind is FailureKind.TOO_LARGE) is defended
    await server.stop()


# Announcements


def announce(node: Node, block: Block, remote: RemoteNode | None = None, *, client: str = "") -> Any:
    """Tell a node of a block by its header, as ``remote`` or from an address."""
    body = {"header": json.loads(block.header.wire()), "endpoint": remote.endpoint if remote else ""}
    sender = remote.host if remote else client
    return node.post("/p2p/header", json.dumps(body).encode(), sender)


@each_way
def test_a_thousand_announcements_without_work(
    make_node: MakeNode, builder: ChainBuilder, argon: list[bytes], take_out: TakeOut, defended: bool
) -> None:
    """Defence: as with blocks: the first costs its sender a day."""
    take_out(Bans, "ban", nothing)
    node = make_node()
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    junk = list(workless(builder.block(None, producer="w", transfers=pays), 100))
    argon.clear()
    for block in junk:
        assert announce(node, block, client=ATTACKER).status >= 400
    assert len(argon) == (1 if defended else 100)


@each_way
def test_announcements_from_everywhere(
    make_node: MakeNode, builder: ChainBuilder, take_out: TakeOut, defended: bool
) -> None:
    """Defence: so many may wait for an Argon2; the rest is told to come again, and is no worse for it."""
    take_out(announcements, "MAX_CHECKS", 10**9)
    checker = Stepped()
    node = make_node(checker=checker)
    pays = [builder.transfer("alice", "bob", 1, nonce=0)]
    wires = []
    for number, block in enumerate(workless(builder.block(None, producer="w", transfers=pays), 60)):
        body = json.dumps({"header": json.loads(block.header.wire())}).encode()
        wires.append(Wire(node.site, f"203.0.113.{number}"))
        wires[-1].send(b"POST /p2p/header HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if not defended or number < 16:
            checker.step(-1)
    assert (sum(not wire.received for wire in wires) <= 16) is defended
    checker.finish()
    statuses = [wire.response().status for wire in wires]
    assert statuses == ([400] * 16 + [503] * 44 if defended else [400] * 60)
    for wire in wires:
        wire.close()


@each_way
def test_a_peer_that_announces_a_block_and_delivers_nothing(
    make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool
) -> None:
    """Defence: after a few seconds, or when the call fails, the block is asked of another peer that announced it."""
    take_out(announcements, "HEAD_START_SECONDS", 1e9)
    node = make_node()
    slow, honest = node.remote(1, scripts={BLOCKS: silent}), node.remote(2)
    node.meet(slow, honest)
    node.transport.dripping.add(slow.endpoint)
    (block,) = grow(1, pays=1)
    honest.scripts = {BLOCKS: lambda _: blocks_reply([block])}
    announce(node, block, slow)
    announce(node, block, honest)
    assert node.until(lambda: node.tip.hash == block.header.hash, within=4) is defended


@each_way
def test_a_peer_that_announces_every_block_and_delivers_none(
    make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool
) -> None:
    """Defence: a peer that was overtaken is not waited for in the next hour."""
    take_out(announcements, "UNRELIABLE_SECONDS", -1.0)
    node = make_node()
    liar, honest = node.remote(1, scripts={BLOCKS: silent}), node.remote(2)
    node.meet(liar, honest)
    node.transport.dripping.add(liar.endpoint)
    late = 0
    for block in grow(6, pays=1):
        honest.scripts = {BLOCKS: lambda _, block=block: blocks_reply([block])}
        announce(node, block, liar)
        announce(node, block, honest)
        late += not node.until(lambda block=block: node.tip.hash == block.header.hash, within=1)
        assert node.until(lambda block=block: node.tip.hash == block.header.hash, within=35)
    assert late == (1 if defended else 6)


@each_way
@pytest.mark.parametrize("outbound", [True, False])
def test_peers_that_read_a_block_slowly(
    make_node: MakeNode,
    grow: Grow,
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
    outbound: bool,
    defended: bool,
) -> None:
    """Defence: an upload that takes long gives its place to the next, without ending; outbound peers have their own.

    Else two peers that make just enough progress would keep its blocks from all who do not ask for them.
    """
    monkeypatch.setattr(relay, "SMALL_BLOCK", 0)
    node = make_node(outbound=1 + 2 * outbound)
    if outbound:
        take_out(relay, "UPLOAD_SECONDS", 1e9)
    else:
        take_out(node.network.relay, "_uploads", dict.fromkeys((True, False), DeferredSemaphore(relay.UPLOADS)))
    slow = [node.remote(number, scripts={"/p2p/block": silent}) for number in (1, 2)]
    node.meet(*slow, outbound=outbound)
    node.transport.dripping.update(remote.endpoint for remote in slow)
    node.take(*grow(1))
    node.run(1)
    honest = node.remote(3)
    node.meet(honest)
    node.take(*grow(2)[1:])
    assert bool(node.until(lambda: honest.got_at("/p2p/block"), within=60 if outbound else 5)) is defended


# Catching up


@each_way
def test_a_peer_that_stalls(make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool) -> None:
    """Defence: a transfer that makes no progress ends after ten seconds, and its blocks are asked of another peer."""
    take_out(client, "STALL_SECONDS", 1e9)
    take_out(Schedule, "overdue", nothing)
    node, chain = make_node(), grow(60, pays=1)
    stalling = [node.remote(number, blocks=chain, scripts={BLOCKS: silent}) for number in range(3)]
    node.meet(*stalling, node.remote(3, blocks=chain))
    assert node.until(lambda: node.tip.height == 60, within=40) is defended


@each_way
def test_a_peer_that_makes_just_enough_progress(
    make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool
) -> None:
    """Defence: the block that everything waits for is asked of a peer that is known to be far quicker."""
    take_out(Schedule, "overdue", nothing)
    node, chain = make_node(), grow(60, pays=1)
    drips = [node.remote(number, blocks=chain, scripts={BLOCKS: silent}) for number in range(3)]
    node.transport.dripping.update(remote.endpoint for remote in drips)
    node.meet(*drips)
    node.run(3)
    node.meet(node.remote(3, blocks=chain))
    assert node.until(lambda: node.tip.height == 60, within=400) is defended


@each_way
def test_a_peer_that_serves_every_tenth_block(
    make_node: MakeNode, grow: Grow, take_out: TakeOut, defended: bool
) -> None:
    """Defence: blocks are asked of every peer, and what one does not have of the others."""
    choose = Schedule.choose

    def of_one_peer(self: Any, source: Source, *given: Any) -> Any:
        return choose(self, source, *given) if source.name == liar.endpoint else []

    take_out(Schedule, "choose", of_one_peer)
    node, chain = make_node(), grow(60, pays=1)
    held = {block.header.hash.hex(): block for block in chain[::10]}

    def some(called: Called) -> Answer:
        asked = json.loads(called.request.body or b"")["hashes"]
        return blocks_reply([held[name] for name in asked if name in held])

    liar = node.remote(1, blocks=chain, scripts={BLOCKS: some})
    node.meet(liar, node.remote(2, blocks=chain))
    assert node.until(lambda: node.tip.height == 60, within=40) is defended


class UncheckedBlock(Block):
    """A block whose transactions nobody holds against its header when it comes."""

    seen: ClassVar[set[int]] = set()

    def check_body(self) -> None:
        """Accept everything at first."""
        if id(self) in self.seen:
            super().check_body()
        self.seen.add(id(self))


@each_way
def test_a_body_that_does_not_fit_its_header(
    make_node: MakeNode,
    grow: Grow,
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
    defended: bool,
) -> None:
    """Defence: each body is held against the header that it was asked for by, so its sender is the one to be banned.

    Found out later, it would be taken for the fault of the peer that proved the chain.
    """
    monkeypatch.setattr(schedule, "FIRST_BYTES", 10_000)
    take_out(client, "Block", UncheckedBlock)
    node, chain = make_node(), grow(40, pays=1)
    other = grow(2, name="other", pays=1)[1]
    honest, liar = node.remote(1, blocks=chain), node.remote(2, blocks=chain)

    def swapped(called: Called) -> Answer:
        asked = json.loads(called.request.body or b"")["hashes"]
        return blocks_reply(
            [Block(block.header, other.transfers) for block in chain if block.header.hash.hex() in asked]
        )

    liar.scripts = {BLOCKS: swapped, STATUS: lambda called: evolve_status(liar.honest(called), work=0)}
    node.transport.latency[honest.endpoint] = 0.5
    meet(node, liar, honest)
    node.run(30)
    assert node.peers.is_banned(liar.key.node_id) is defended
    assert node.peers.is_banned(honest.key.node_id) is not defended
    assert (node.tip.height == 40) is defended


def evolve_status(reply: Answer, *, work: int) -> Answer:
    """A status with another claim."""
    assert isinstance(reply, PeerReply)
    return ok(status=json.loads(reply.body)["status"] | {"cumulativeWork": str(work)})


@each_way
def test_a_peer_that_reorganises_between_two_questions(
    make_node: MakeNode,
    grow: Grow,
    take_out: TakeOut,
    monkeypatch: pytest.MonkeyPatch,
    defended: bool,
) -> None:
    """Defence: headers that do not follow on the last ones make the proof begin anew, and nobody is blamed."""
    monkeypatch.setattr(headers, "FIRST_HEADERS", 10)
    monkeypatch.setattr(headers, "PROOF_HEADERS", 10)
    take_out(headers, "MAX_RESTARTS", 0)
    node = make_node()
    node.take(*grow(60, name="ours"))
    new = grow(90, on=grow(20), name="new")
    remote = node.remote(blocks=grow(100))
    asked = count(1)

    def script(called: Called) -> Answer:
        if next(asked) == 4:
            remote.blocks = new
        return remote.honest(called)

    remote.scripts = {HEADERS: script}
    node.meet(remote)
    assert node.until(lambda: node.tip.hash == new[-1].header.hash, within=5) is defended
    assert bool(node.peer(remote).unproven_claims) is not defended


# Networks that were cut in two


def halves(make_node: MakeNode, builder: ChainBuilder) -> tuple[Node, Node, dict[str, list[Any]]]:
    """Two nodes after 50 blocks each, in which the same people spent the same money in two ways."""
    nodes = [make_node(name, name=name, endpoint=place(number)) for number, name in enumerate("ab")]
    made: dict[str, list[Any]] = {}
    for node, recipient in zip(nodes, ("dave", "erin"), strict=True):
        blocks: list[Block] = []
        paid = []
        for number in range(50):
            sender = ("alice", "bob", "carol")[number % 3]
            moment = TEST_PARAMS.slot_time(LATE - 200)
            payment = builder.transfer(
                sender, recipient, 1000, nonce=number // 3, timestamp=moment, reference=recipient
            )
            parent = blocks[-1] if blocks else None
            slot = LATE - 200 + 2 * number
            blocks.append(builder.block(parent, slot=slot, producer=recipient, transfers=[payment]))
            paid.append(payment)
        node.take(*blocks)
        made[recipient] = paid
    return nodes[0], nodes[1], made


@each_way
def test_two_halves_that_are_joined_again(
    make_node: MakeNode, tmp_path: Path, builder: ChainBuilder, take_out: TakeOut, defended: bool
) -> None:
    """Defence: the last shared block is looked for however far back it is; there is no limit on depth."""

    head = headers.StoredBlockHeaders.head

    async def near_the_tip(self: headers.StoredBlockHeaders, parent_of: Header) -> Any:
        return await head(self, parent_of) if parent_of.height > await self.height() - 5 else None

    take_out(headers.StoredBlockHeaders, "head", near_the_tip)
    first, second, paid = halves(make_node, builder)
    assert first.tip.hash != second.tip.hash
    for node, other in ((first, second), (second, first)):
        node.transport.responders[other.key.endpoint] = Neighbour(other, "60.9.9.9")
        node.peers.hint(other.key.endpoint, source="operator")
    agreed = first.until(lambda: first.tip.hash == second.tip.hash, within=30)
    assert agreed is defended
    if not defended:
        return
    first.run(5)
    (lost,) = [payments for payments in paid.values() if not _holds(first, payments)]
    for payment in lost:
        for node in (first, second):
            # Its nonce has been used by the transfer that won, so that no block can ever hold it.
            assert node.node_context.chain_manager.reader.transaction(payment.txid, TEST_PARAMS) is None
            assert payment.txid not in node.node_context.transaction_pool.mempool
    for name in "ab":
        books = audit(tmp_path / name / "chain.sqlite", TEST_PARAMS.rules)
        assert books.height == 50
        assert len(books.payments) == 50


def _holds(node: Node, payments: list[Any]) -> bool:
    return node.node_context.chain_manager.reader.transaction(payments[0].txid, TEST_PARAMS) is not None


# kill -9


@contextmanager
def no_transaction(connection: DatabaseConnection) -> Iterator[None]:
    """Each statement for itself."""
    yield


@each_way
def test_the_process_is_killed(tmp_path: Path, take_out: TakeOut, defended: bool) -> None:
    """Defence: everything that a batch changes, a reorganisation included, is one database transaction.

    What is on disk at any instant is copied, as a killed process would leave it, and must be a whole chain.
    """
    take_out(database, "transaction", no_transaction)
    builder = ChainBuilder()
    blocks = builder.chain(
        """
        genesis: b[1..6]
        b2: c[3..8]
        b1 pays 5000 from alice to dave for order-1
        b4 pays 5000 from alice to bob
        c4 pays 99999900000 from alice to erin for order-2
        """
    )
    batches = [[block for name, block in blocks.items() if name[0] == letter] for letter in "bc"]
    (tmp_path / "node").mkdir()
    copies = []
    with running(tmp_path / "node", BareSetting()) as node:
        statements = count()

        def copy(_: str) -> None:
            number = next(statements)
            if number % 5 == 3:
                copies.append(tmp_path / f"copy {number}")
                copies[-1].mkdir()
                for file in (tmp_path / "node").glob("chain.sqlite*"):
                    shutil.copy(file, copies[-1])

        trace(node.connections[0], copy)
        for batch in batches:
            node.submit(*batch)
        trace(node.connections[0], None)
        assert node.tip == blocks["c8"].header.hash
    sound = [is_sound(folder) for folder in copies]
    assert len(sound) > 20
    assert (not all(sound)) is not defended


def is_sound(folder: Path) -> bool:
    """Whether a node starts on what is in a folder, and finds every book in order."""
    try:
        with running(folder, BareSetting()) as node:
            node.check()
        audit(folder / "chain.sqlite", TEST_PARAMS.rules)
    except (Corrupt, Discrepancy, DatabaseError, AssertionError, apsw.Error):
        return False
    return True
