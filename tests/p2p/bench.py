"""A node under test with peers: everything is real but the clock, the threads and the other nodes."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from attrs import field, frozen
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.chain_schemas import of_network
from svcd.interfaces import Worker, milliseconds
from svcd.node.changes import BlockStatus
from svcd.node.mempool import Mempool
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.pinned_block import PinnedBlock
from svcd.node.status import Status
from svcd.node.threads import InlineWorker
from svcd.p2p.address_book import AddressBook
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peer import Peer
from svcd.p2p.peers import PeerSettings
from svcd.p2p.routes import BODY_CAPS
from svcd.p2p.service import PeerNetwork
from svcd.p2p.snapshot_start import StartMode, StartSettings
from svcd.p2p.transport import PeerReply, PeerRequest
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.web.connections import BodyCaps, SiteLimits
from svcd.web.rate_limits import Clients, RateLimiter, rates_of
from svcd.web.site import Site
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE, Stepped, snapshots_beside
from tests.p2p.memory_transport import Answer, MemoryTransport, run, run_until
from tests.p2p.remote_node import RemoteNode
from tests.support import result_of
from tests.web.wire import Response, Wire

OURS = "http://192.0.2.1:8645"
LIMITS = SiteLimits(body_caps=BodyCaps(BODY_CAPS))
RATES: dict[str, float] = {"read": 0, "broadcast": 0, "p2p": 0}


def place(number: int) -> str:
    """An endpoint in a /16 of its own."""
    return f"http://{60 + number // 200}.{1 + number % 200}.7.1:8645"


def host_of(endpoint: str) -> str:
    """The ``Host`` of requests to an endpoint."""
    return endpoint.partition("://")[2]


@frozen(kw_only=True)
class Setting:
    """What tests vary about a node with peers."""

    params: NetworkParams = TEST_PARAMS
    endpoint: str = OURS
    called: bool = True
    """Whether another node calls it again and again, one that cannot be called itself."""
    name: str = "ourselves"
    outbound: int = 8
    max_inbound: int = 64
    diverse: bool = True
    alone: bool = False
    start: StartMode | None = None
    """How it begins without a chain; None for with all blocks."""
    has_active_watch_since: Callable[[int, int], Awaitable[bool]] = lambda _height, _time: succeed(False)
    refuse_watches_below: Callable[[int], Awaitable[None]] = lambda _height: succeed(None)
    """See :class:`svcd.p2p.snapshot_start.StartSettings`."""
    expect: PinnedBlock | None = None
    checker: Worker = field(factory=InlineWorker)
    writer: Worker = field(factory=InlineWorker)
    reader: Worker = field()
    rates: dict[str, float] = RATES
    exempt: tuple[str, ...] = ()
    limits: SiteLimits = LIMITS

    @reader.default
    def _no_reader(self) -> Worker:
        return self.checker


class Node:
    """A node that calls others over a MemoryTransport, and ticks once a second while time passes."""

    def __init__(self, folder: Path, transport: MemoryTransport, setting: Setting, builder: ChainBuilder) -> None:
        self.transport = transport
        self.clock: Clock = transport.clock
        self.builder = builder
        self.setting = setting
        self.path = folder / "chain.sqlite"
        threads = NodeThreads(setting.writer, setting.checker, 2, reader=setting.reader, disk=InlineWorker())
        mempool = Mempool(setting.params, max_transactions=50_000, max_bytes=1 << 26)
        opening = open_node(
            setting.params, self.path, threads=threads, mempool=mempool, clock=self.clock, expect=setting.expect
        )
        self.node_context: NodeContext = result_of(Deferred.fromCoroutine(opening))
        self.key = NodeKey(key_of(setting.name).seed, setting.endpoint)
        self.local = LocalNode(setting.params, self.node_context.chain_manager, self.key, self.clock)
        client = PeerClient(setting.params, transport, InlineWorker(), mempool.transfer)
        settings = PeerSettings(
            outbound=setting.outbound,
            max_inbound=setting.max_inbound,
            diverse=setting.diverse,
            alone=setting.alone,
        )
        book = AddressBook(b"s" * 32, Random(setting.name).random)
        self.clients = Clients(exempt=setting.exempt)
        self.snapshots = snapshots_beside(self.path, self.node_context.chain_manager, reader=setting.reader)
        self.network: PeerNetwork = PeerNetwork(
            self.local,
            client,
            transaction_pool=self.node_context.transaction_pool,
            book=book,
            settings=settings,
            snapshots=self.snapshots,
            forwards=self.clients.proxies.forwards,
            start=self._start(),
        )
        self.peers = self.network.peers
        self.book = book
        self.site = self._site()
        self._caller = NodeKey(key_of("a caller").seed, "").hello(setting.params, self.tip, milliseconds(self.clock))
        self._be_called()
        self._beat = self.clock.callLater(1.0, self._keep_in_touch)

    def _start(self) -> StartSettings | None:
        mode, context = self.setting.start, self.node_context
        if mode is None:
            return None
        watches = self.setting.has_active_watch_since, self.setting.refuse_watches_below
        return StartSettings(mode, context.staging, context.chain.writer, *watches)

    def _site(self) -> Site:
        node_context, setting = self.node_context, self.setting
        self.status = Status(
            node_context.chain_manager,
            node_id=self.key.node_id,
            endpoint=self.key.endpoint,
            peers=self.network,
            guard=node_context.guard,
            trouble=lambda: node_context.trouble,
            proxy=lambda: self.clients.proxies.alarm(self.clock.seconds()),
        )
        self.limiter = RateLimiter(self.clients, rates_of(setting.rates, 10), self.clock)
        chain = ChainRoutes(
            node_context.chain_manager,
            transaction_pool=node_context.transaction_pool,
            status=self.status,
            clock=self.clock,
        )
        self.routes: list[Any] = self.network.routes
        public = PublicSite(setting.limits, self.limiter)
        errors = count(1)
        narrowed = of_network(node_context.chain_manager.params)
        sites = SiteFactory(self.clock, lambda: f"e{next(errors)}", narrowed=narrowed)
        return sites.public([chain], public, peers=self.routes)

    def _keep_in_touch(self) -> None:
        self._beat = self.clock.callLater(1.0, self._keep_in_touch)
        self._be_called()
        self.network.tick()

    def _be_called(self) -> None:
        if self.setting.called:
            self.peers.hello_received(self._caller, "198.51.100.99", host=host_of(self.key.endpoint))

    @property
    def tip(self) -> ChainPoint:
        """The end of our chain."""
        return self.node_context.chain_manager.tip

    def run(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        run(self.clock, seconds)

    def until(self, condition: Callable[[], object], within: float = 10.0) -> bool:
        """Let time pass until something is true; whether it came true."""
        return run_until(self.clock, condition, within=within)

    def take(self, *blocks: Block) -> None:
        """Let blocks in, parents first, as if headers had shown that their chain has more work than any other."""
        wires = [block.wire() for block in blocks]
        outcomes = result_of(self.node_context.chain_manager.submit_blocks(wires, proven_work=2**255))
        assert set(outcomes) <= {BlockStatus.CONNECTED, BlockStatus.SIDE}, outcomes

    def send(self, path: str, body: bytes, client: str, *headers: str) -> Wire:
        """A connection from the address of a client, on which it has posted something."""
        head = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *headers, "", ""]
        return Wire(self.site, client).send("\r\n".join(head).encode() + body)

    def post(self, path: str, body: bytes, client: str, *headers: str) -> Response:
        """The answer to what a client posts."""
        wire = self.send(path, body, client, *headers)
        self.clock.advance(0)
        response = wire.response()
        wire.close()
        return response

    def remote(self, number: int = 1, blocks: Sequence[Block] = (), **changes: Any) -> RemoteNode:
        """A remote node that answers at ``changes["endpoint"]`` or ``place(number)`` on the node's transport."""
        endpoint = changes.pop("endpoint", place(number))
        transport = self.transport
        remote = RemoteNode(
            transport=transport, endpoint=endpoint, builder=self.builder, blocks=list(blocks), **changes
        )
        transport.responders[endpoint] = remote
        return remote

    def hint(self, *remotes: RemoteNode) -> None:
        """Name other nodes to the node, as its operator does."""
        for remote in remotes:
            self.peers.hint(remote.endpoint, source="operator")

    def meet(self, *remotes: RemoteNode, outbound: bool = True) -> None:
        """Greet others; each is a peer afterwards."""
        for remote in remotes:
            self.begin(self.peers.connect(remote.endpoint, outbound=outbound))
        self.run(0.2)
        for remote in remotes:
            assert self.peers.get(remote.endpoint) is not None, remote.endpoint

    def peer(self, remote: RemoteNode) -> Peer:
        """What the node knows of a peer."""
        peer = self.peers.get(remote.endpoint)
        assert peer is not None
        return peer

    def knows(self, remote: RemoteNode) -> bool:
        """Whether the node has a peer at the remote's endpoint."""
        return self.peers.get(remote.endpoint) is not None

    def ban(self, remote: RemoteNode) -> None:
        """Ban the remote's endpoint, as the operator does."""
        self.peers.bans.ban_by_operator(f"endpoint:{remote.endpoint}", seconds=None, now=self.local.now())
        self.peers.drop_banned()

    def begin(self, work: Any) -> "Deferred[Any]":
        """Start a coroutine."""
        return Deferred.fromCoroutine(work)

    def close(self) -> None:
        """Stop as the node does."""
        self._beat.cancel()
        stopped = Deferred.fromCoroutine(self.network.stop())
        run(self.clock, 31.0)
        result_of(stopped)
        closed = Deferred.fromCoroutine(self.node_context.close())
        for worker in (self.setting.checker, self.setting.reader):
            if isinstance(worker, Stepped):
                # The state tree is saved at the end.
                worker.finish()
        self.clock.advance(0)
        result_of(closed)


def late_transport(params: NetworkParams = TEST_PARAMS) -> MemoryTransport:
    """A transport whose clock is late enough that no block of a test is early."""
    clock = Clock()
    clock.advance(params.slot_time(LATE) / 1000)
    return MemoryTransport(clock)


@frozen
class Neighbour:
    """A real node that another one can call, over the real HTTP stack in memory."""

    node: Node
    caller: str
    """The address that its requests seem to come from."""

    def answer(self, request: PeerRequest) -> Answer:
        body = request.body or b""
        method = "GET" if request.body is None else "POST"
        wire = Wire(self.node.site, IPv4Address("TCP", self.caller, 50_000))
        head = f"Host: {host_of(self.node.key.endpoint)}\r\nContent-Length: {len(body)}"
        wire.send(f"{method} {request.path} HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        response = wire.response()
        wire.close()
        return PeerReply(response.status, response.body)
