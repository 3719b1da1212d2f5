"""One simulated node: everything real but the clock, the threads and the wires."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint
from svcd.interfaces import milliseconds
from svcd.node.block_template import by_fee_rate, create_template
from svcd.node.changes import BlockStatus
from svcd.node.mempool import Mempool
from svcd.node.miner import next_slot
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.status import Status
from svcd.node.threads import InlineWorker
from svcd.node.work_search import WorkSearch
from svcd.p2p.address_book import AddressBook
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peers import PeerSettings
from svcd.p2p.routes import BODY_CAPS
from svcd.p2p.service import SAVE_SECONDS, PeerNetwork, PeersService
from svcd.p2p.snapshot_start import StartMode, StartSettings
from svcd.p2p.transport import PeerReply, PeerRequest
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.web.connections import BodyCaps, SiteLimits
from svcd.web.rate_limits import Clients, RateLimiter, rates_of
from svcd.web.site import Site
from tests.node.bench import snapshots_beside
from tests.simulation.clock import Lifetime
from tests.simulation.hostile import Hostile
from tests.simulation.network import Link, Network, ask_at_once
from tests.support import result_of

TICK_SECONDS = 1.0
SNAPSHOT_SECONDS = 20.0
RATES: dict[str, float] = {"read": 0, "p2p": 200}


def address_of(number: int) -> str:
    """An address of its own group for each node, so that diversity is possible."""
    return f"{20 + number // 200}.{1 + number % 200}.0.1"


@frozen
class SimulationSettings:
    """What all nodes of a simulation share, and the folder of their files."""

    params: NetworkParams
    network: Network
    folder: Path
    seeds: tuple[str, ...]


class SimulatedNode:
    """A node that can be started, killed without a word, and started again on the same files."""

    def __init__(self, number: int, settings: SimulationSettings, *, public: bool, keep_blocks: int = 0) -> None:
        """``keep_blocks`` is how many of the newest blocks are kept whole, and 0 for all."""
        self.number = number
        self.params = settings.params
        self.network = settings.network
        self.endpoint = f"http://{address_of(number)}:8645"
        """Where it is in the network; nobody can call it there unless it is public."""
        self.random = Random(f"node {number} of {settings.network.name}")
        self.key = NodeKey(self.random.randbytes(32), self.endpoint if public else "")
        self.choose_slot = next_slot
        """How the node chooses the slot of its next block."""
        self.keep_blocks = keep_blocks
        self.start_mode = StartMode.BLOCKS
        """How it begins without a chain."""
        self._folder = settings.folder / str(number)
        self._seeds = settings.seeds
        self._node_context: NodeContext | None = None
        self._hostile: Hostile | None = None

    def start(self) -> None:
        """Open the files, join the network and keep in touch."""
        folder = self._folder
        folder.mkdir(exist_ok=True)
        self._life = life = Lifetime(self.network.clock)
        opening = open_node(
            self.params,
            folder / "chain.sqlite",
            threads=NodeThreads(InlineWorker(), InlineWorker(), 1, InlineWorker(), InlineWorker()),
            mempool=Mempool(self.params, max_transactions=1_000, max_bytes=1 << 22),
            clock=life,
            keep_blocks=self.keep_blocks,
        )
        self._node_context = node_context = result_of(Deferred.fromCoroutine(opening))
        self._link = Link(self.network, self.endpoint, address_of(self.number), life)
        self.neighbours = self._join(node_context)
        self.status = Status(
            node_context.chain_manager,
            node_id=self.key.node_id,
            endpoint=self.key.endpoint,
            peers=self.neighbours,
            guard=node_context.guard,
            trouble=lambda: node_context.trouble,
        )
        self._site = self._make_site(node_context)
        self._service = PeersService(self.neighbours, folder / "peers.json", self._seeds, InlineWorker())
        self._service.startService()
        if self.key.endpoint:
            self.network.attach(self.endpoint, self._site)
        node_context.start_pruning()
        life.callLater(self.random.random(), self._keep_in_touch)
        life.callLater(SAVE_SECONDS, self._keep_notes)
        life.callLater(SNAPSHOT_SECONDS, self._make_snapshots)

    def _join(self, node_context: NodeContext) -> PeerNetwork:
        home = LocalNode(self.params, node_context.chain_manager, self.key, self._life)
        settings = PeerSettings(outbound=8, max_inbound=64, diverse=True, alone=False)
        book = AddressBook(self.random.randbytes(32), self.random.random)
        known = node_context.transaction_pool.mempool.transfer
        client = PeerClient(self.params, self._link, InlineWorker(), known)
        self._clients = Clients()
        self._snapshots = snapshots_beside(self._folder / "chain.sqlite", node_context.chain_manager)
        return PeerNetwork(
            home,
            client,
            transaction_pool=node_context.transaction_pool,
            book=book,
            settings=settings,
            snapshots=self._snapshots,
            start=StartSettings(
                self.start_mode,
                node_context.staging,
                node_context.chain.writer,
                lambda _height, _time: succeed(False),
                lambda _height: succeed(None),
            ),
            forwards=self._clients.proxies.forwards,
        )

    def _make_site(self, node_context: NodeContext) -> Site:
        routes = self.neighbours.routes
        limits = SiteLimits(body_caps=BodyCaps(BODY_CAPS))
        public = PublicSite(limits, RateLimiter(self._clients, rates_of(RATES, 10), self._life))
        return SiteFactory(self._life, lambda: "simulated").between_nodes(routes, public)

    def _keep_in_touch(self) -> None:
        self._life.callLater(TICK_SECONDS, self._keep_in_touch)
        self.neighbours.tick()
        if self._hostile is not None:
            self._hostile.act()

    def _make_snapshots(self) -> None:
        self._life.callLater(SNAPSHOT_SECONDS, self._make_snapshots)
        result_of(Deferred.fromCoroutine(self._snapshots.check()))

    def _keep_notes(self) -> None:
        self._life.callLater(SAVE_SECONDS, self._keep_notes)
        self._service.save()

    @property
    def node_context(self) -> NodeContext:
        assert self._node_context is not None, "the node is down"
        return self._node_context

    @property
    def running(self) -> bool:
        return self._node_context is not None

    @property
    def tip(self) -> ChainPoint:
        return self.node_context.chain_manager.tip

    @property
    def prune_height(self) -> int:
        """The lowest height from which on all blocks are here whole."""
        return self.node_context.chain.reader.prune_height()

    def mine(self, transfers: Iterable[Transfer] = (), *, empty: bool = True) -> None:
        """Find a block in the slot that the miner would choose and hand it in; nothing if the node is behind.

        It has ``transfers``, or else those that wait here; unless ``empty``, nothing is found where there are none.
        """
        node_context, now = self.node_context, milliseconds(self.network.clock)
        slot = self.choose_slot(self.params, self.tip, now)
        if self.status.why_no_block or slot is None:
            return
        waiting = tuple(transfers) or by_fee_rate(node_context.transaction_pool.mempool.lines())
        proposal = create_template(
            node_context.chain.chainstate.view(), seed=self.key.seed, slot=slot, transfers=waiting
        )
        if not (proposal.transfers or empty):
            return
        nonce = WorkSearch(proposal.header, self.params.memory_kib, self.random.getrandbits(64)).run()
        assert nonce is not None
        block = proposal.sealed(nonce, self.key.seed)
        standing = result_of(Deferred.fromCoroutine(node_context.chain_manager.submit_block(block.wire())))
        assert standing is BlockStatus.CONNECTED
        self.network.trace.note(self.endpoint, "made", block.header.height, block.header.hash.hex())

    def take(self, transfer: Transfer) -> None:
        """Take in a transfer, as from somebody's wallet; it is committed in the next turn."""
        self.node_context.transaction_pool.submit(transfer, on_lookup=lambda: None)

    def has_waiting(self, transfer: Transfer) -> bool:
        """Whether a transfer waits here."""
        return transfer.txid in self.node_context.transaction_pool.mempool

    def height_of(self, transfer: Transfer) -> int:
        """The height of the block that has a transfer here; fails if none has."""
        found = self.node_context.chain.reader.transaction(transfer.txid, self.params)
        assert found is not None, f"{self.endpoint} lacks {transfer.txid.hex()}"
        return found.height

    def has_in_chain(self, transfer: Transfer) -> bool:
        """Whether a transfer is in the chain here."""
        return self.node_context.chain.reader.transaction(transfer.txid, self.params) is not None

    def turn_hostile(self, kind: type[Hostile]) -> None:
        """From now on misbehave towards all who call; it goes on greeting others, so as to be known."""
        site, link = self._site, self._link
        honest: Callable[[PeerRequest], PeerReply | None] = lambda request: ask_at_once(site, request)  # noqa: E731
        hostile = kind(
            self.neighbours.peers, self.key, honest, self.random, partial(self.network.tell, link), self.mine
        )
        self._hostile = link.hostile = hostile
        self.network.turn(self.endpoint, hostile)

    def crash(self) -> None:
        """Cease to exist, as after kill -9: nothing is said, nothing is saved, nothing that has begun is finished."""
        self._life.over = True
        self.network.detach(self.endpoint)
        # Otherwise the garbage collector would end what waits for answers, and that would go on without a database.
        Deferred.fromCoroutine(self.neighbours.stop())
        self.node_context._close()
        self._node_context = None
