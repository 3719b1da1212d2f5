"""One simulated node: everything real but the clock, the threads and the wires."""

from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node.assembly import assemble, by_fee
from svcd.node.changes import Standing
from svcd.node.living import LivingChain, PoolLimits, Threads, open_chain
from svcd.node.search import Search
from svcd.p2p.book import Book
from svcd.p2p.client import PeerClient
from svcd.p2p.hello import NodeKey
from svcd.p2p.peer import Home, PeerSettings
from svcd.p2p.resource import BODY_CAPS, PeerRoutes
from svcd.p2p.service import Network as Neighbours
from svcd.p2p.service import PeersService, join
from svcd.ports import milliseconds
from svcd.rpc.sites import Public, Sites
from svcd.web.buckets import Buckets
from svcd.web.clients import Clients
from svcd.web.limits import BodyCaps, SiteLimits
from svcd.web.site import Site
from tests.rpc.node import Inline
from tests.simulation.hostile import Behaviour, Hostile
from tests.simulation.network import Link, Network
from tests.support import result_of

BEAT_SECONDS = 1.0
RATES: dict[str, float] = {"read": 0, "p2p": 200}


def address_of(number: int) -> str:
    """An address of its own group for each node, so that diversity is possible."""
    return f"{20 + number // 200}.{1 + number % 200}.0.1"


class SimulatedNode:
    """A node that can be started, killed without a word, and started again on the same files."""

    def __init__(self, number: int, *, params: NetworkParams, network: Network, folder: Path, seeds: list[str]) -> None:
        self.number = number
        self.params = params
        self.network = network
        self.endpoint = f"http://{address_of(number)}:8645"
        self.random = Random(f"node {number} of {network.name}")
        self.key = NodeKey(self.random.randbytes(32), self.endpoint)
        self._folder = folder
        self._seeds = seeds
        self._living: LivingChain | None = None

    def start(self) -> None:
        """Open the files, join the network and keep in touch."""
        clock, folder = self.network.clock, self._folder
        folder.mkdir(exist_ok=True)
        opening = open_chain(
            self.params,
            folder / "chain.sqlite",
            threads=Threads(Inline(), Inline(), 1),
            pool=PoolLimits(1_000, 1 << 22),
            clock=clock,
        )
        self._living = living = result_of(Deferred.fromCoroutine(opening))
        link = Link(self.network, self.endpoint, address_of(self.number))
        home = Home(self.params, living.ledger, self.key, clock)
        settings = PeerSettings(outbound=8, max_inbound=64, diverse=True, alone=False, public=True)
        book = Book(self.random.randbytes(32), self.random.random)
        client = PeerClient(self.params, link, Inline())
        self.neighbours: Neighbours = join(home, client, transfers=living.transfers, book=book, settings=settings)
        self._site = self._make_site(living)
        self.service = PeersService(self.neighbours, folder / "peers.json", self._seeds)
        self.service.startService()
        self.network.attach(self.endpoint, self._site)
        self._beat: Any = clock.callLater(self.random.random(), self._keep_in_touch)

    def _make_site(self, living: LivingChain) -> Site:
        peers = PeerRoutes(self.neighbours.peers, transfers=living.transfers, on_orphan=self.neighbours.orphan)
        limits = SiteLimits(body_caps=BodyCaps(BODY_CAPS))
        public = Public(limits, Clients(), Buckets.per_second(RATES, 10))
        return Sites(self.network.clock, lambda: "simulated").between_nodes([peers], public)

    def _keep_in_touch(self) -> None:
        self._beat = self.network.clock.callLater(BEAT_SECONDS, self._keep_in_touch)
        self.neighbours.beat()

    @property
    def living(self) -> LivingChain:
        assert self._living is not None, "the node is down"
        return self._living

    @property
    def running(self) -> bool:
        return self._living is not None

    @property
    def tip(self) -> ChainPoint:
        return self.living.ledger.tip

    def mine(self) -> None:
        """Find a block at the present slot and hand it in; nothing if that slot is already taken."""
        living, slot = self.living, self.params.slot_at(milliseconds(self.network.clock))
        if slot <= self.tip.slot:
            return
        waiting = by_fee(living.transfers.mempool.lines())
        proposal = assemble(living.chain.connector, seed=self.key.seed, slot=slot, transfers=waiting)
        nonce = Search(proposal.header, self.params.memory_kib, self.random.getrandbits(64)).run()
        assert nonce is not None
        block = proposal.sealed(nonce, self.key.seed)
        standing = result_of(Deferred.fromCoroutine(living.ledger.submit_block(block.wire())))
        assert standing is Standing.CONNECTED
        self.network.trace.note(self.endpoint, "made", block.header.height, block.header.hash.hex())

    def turn_hostile(self, behaviour: Behaviour) -> None:
        """From now on misbehave towards all who call; it goes on greeting others, so as to be known."""
        home = self.neighbours.peers.home
        self.network.turn(self.endpoint, Hostile(home, self.key, behaviour, self.random))

    def crash(self) -> None:
        """Cease to exist, as after kill -9: nothing is said, nothing is saved."""
        self._beat.cancel()
        self.network.detach(self.endpoint)
        result_of(Deferred.fromCoroutine(self.living.close()))
        self._living = None
