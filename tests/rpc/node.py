"""A node without sockets and threads: a real chain on disk behind the real HTTP stack, and a client of it."""

import json
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from attrs import define, evolve, frozen
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock

from svcd.chain.address import encode_address, key_hash, node_id
from svcd.chain.block import Block
from svcd.chain.params import FAUCET_SEED, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain_schemas import of_network
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.composition.resources import OpenDatabases
from svcd.node.changes import BlockStatus
from svcd.node.database_health import DatabaseHealth
from svcd.node.devnet import Devnet
from svcd.node.fees import Fees
from svcd.node.mempool import Mempool
from svcd.node.network_view import NetworkView, NoPeers
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.recipient_index import RecipientIndex
from svcd.node.status import Status
from svcd.node.threads import InlineWorker
from svcd.p2p.address_book import AddressBook
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peers import PeerSettings
from svcd.p2p.routes import BODY_CAPS
from svcd.p2p.service import PeerNetwork
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.feed_routes import FeedRoutes
from svcd.rpc.mempool_routes import MempoolRoutes
from svcd.rpc.operator_routes import DevnetRoutes, OperatorRoutes
from svcd.rpc.payment_routes import CommerceRoutes, PaymentListRoutes
from svcd.rpc.proof_routes import ProofRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.rpc.statement_routes import StatementRoutes
from svcd.web.connections import BodyCaps, SiteLimits
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from svcd.web.site import Site
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.node.bench import snapshots_beside
from tests.rpc.description import Asked, Description
from tests.support import result_of
from tests.web.wire import Response, Wire

P = ParamSpec("P")
T = TypeVar("T")

FAUCET = encode_address(key_hash(public_key_of(FAUCET_SEED)), "svcd")
NODE = key_of("node")
NODE_ID = node_id(NODE.public)
OPERATOR = key_of("operator")
TOKEN = "a token of 32 characters or more."
OPERATOR_SOCKET = UNIXAddress(b"")
UNLIMITED = {"read": Rate(0, 1), "broadcast": Rate(0, 1), "proofs": Rate(0, 1), "p2p": Rate(0, 1)}
COMMON = SiteLimits(body_caps=BodyCaps(BODY_CAPS))

PARAMS = evolve(
    TEST_PARAMS,
    name="devnet",
    address_prefix="svcd",
    transaction_future_seconds=315_360_000,
    allocations=(*[(address_of(name, "svcd"), 1000 * COIN) for name in ("alice", "bob", "carol")], (FAUCET, 5 * COIN)),
)
"""The test network with devnet's addresses and faucet, as the published patterns ask for."""


@define
class Shown:
    """Peers that show what a test says; none until it says something."""

    around: NetworkView

    def network_view(self) -> NetworkView:
        return self.around

    def behind(self) -> str:
        return self.around.behind

    why_no_block = behind


class NobodyThere:
    """A network on which every call fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the node calls another one: {name}")


@frozen(kw_only=True)
class Settings:
    """What tests vary about a node."""

    params: NetworkParams = PARAMS
    max_transactions: int = 1_000
    rates: dict[str, Rate] = UNLIMITED
    limits: SiteLimits = COMMON
    alone: bool = True
    endpoint: str = ""
    token: str | None = None
    exempt: tuple[str, ...] = ()
    peers: bool = False
    """Whether it serves the routes between nodes; it calls nobody either way."""
    keep_blocks: int = 0
    """How many of the newest blocks are kept whole; 0 for all."""


class Node:
    """An open chain, the two sites of `svcd.tap` on it, and a builder of blocks for it."""

    def __init__(self, path: Path, clock: Clock, settings: Settings, worker: Any = None) -> None:
        self.params = settings.params
        self.path = path
        self.builder = ChainBuilder(self.params)
        self.clock = clock
        self.stops = 0
        """How often it was to stop because a database is damaged."""
        self.health = DatabaseHealth(self._stop)
        threads = NodeThreads(
            worker or InlineWorker(), InlineWorker(), 2, InlineWorker(), InlineWorker(), health=self.health
        )
        mempool = Mempool(self.params, max_transactions=settings.max_transactions, max_bytes=1 << 20)
        opening = open_node(
            self.params, path, threads=threads, mempool=mempool, clock=clock, keep_blocks=settings.keep_blocks
        )
        self.node_context: NodeContext = result_of(Deferred.fromCoroutine(opening))
        self.databases = OpenDatabases(self.node_context, None)
        chain_manager, transaction_pool = self.node_context.chain_manager, self.node_context.transaction_pool
        self.peers = Shown(NoPeers(settings.alone).network_view())
        self.status = Status(
            chain_manager,
            node_id=NODE_ID,
            endpoint=settings.endpoint,
            peers=self.peers,
            guard=self.node_context.guard,
            trouble=lambda: self.databases.trouble,
            database=lambda: self.databases.unavailable,
        )
        chain = ChainRoutes(chain_manager, transaction_pool=transaction_pool, status=self.status, clock=clock)
        errors, nonces = count(1), count(1)
        demand = Devnet(self.node_context, lambda size: sha256(b"%d" % next(nonces)).digest()[:size])
        self.operator_routes: list[object] = [
            OperatorRoutes(self.status, details=lambda: {"verifierQueue": 0}, token=settings.token),
            DevnetRoutes(demand, seed=OPERATOR.seed, token=settings.token),
        ]
        self.sites = SiteFactory(
            clock, lambda: f"e{next(errors)}", self.health.is_damage, narrowed=of_network(self.params)
        )
        limiter = RateLimiter(Clients(exempt=settings.exempt), settings.rates, clock)
        public = PublicSite(settings.limits, limiter)
        peers = self._peer_routes(settings) if settings.peers else []
        payments = PaymentLookup.subscribed(chain_manager, transaction_pool)
        self.waiters = PaymentWaiters.subscribed(payments, chain_manager, transaction_pool, clock=clock)
        commerce = CommerceRoutes(chain_manager, payments, self.waiters, random=bytes, webhooks_enabled=False)
        proofs = ProofRoutes(self.node_context, payments)
        incoming = RecipientIndex.subscribed(transaction_pool)
        mempool = MempoolRoutes(
            chain_manager, transaction_pool.mempool, incoming, Fees(chain_manager, transaction_pool.mempool)
        )
        listed = PaymentListRoutes(chain_manager, payments, incoming)
        feed = FeedRoutes(chain_manager, payments, self.waiters, incoming)
        self.public: Site = self.sites.public(
            [chain, mempool, commerce, listed, feed, proofs, StatementRoutes(chain_manager)], public, peers=peers
        )
        self.operator: Site = self.sites.operator(self.operator_routes, SiteLimits())

    def _stop(self) -> None:
        self.stops += 1

    def keep_from(self, height: int) -> None:
        """Delete the blocks below ``height``, as a node with `keepBlocks` does."""
        store, chain_manager = self.node_context.chain.chainstate.store, self.node_context.chain_manager
        with store.commit():
            store.delete_old_blocks(below=height, at_most=height)
        chain_manager.end_shared_commit()
        chain_manager.prune_height = store.prune_height()

    def _peer_routes(self, settings: Settings) -> list[object]:
        chain_manager, transaction_pool = self.node_context.chain_manager, self.node_context.transaction_pool
        home = LocalNode(self.params, chain_manager, NodeKey(NODE.seed, settings.endpoint), self.clock)
        client = PeerClient(self.params, NobodyThere(), InlineWorker())
        counts = PeerSettings(outbound=0, max_inbound=8, diverse=False, alone=settings.alone)
        network = PeerNetwork(
            home,
            client,
            transaction_pool=transaction_pool,
            book=AddressBook(bytes(32), Random(1).random),
            settings=counts,
            snapshots=snapshots_beside(self.path, chain_manager),
            forwards=lambda *_: False,
        )
        return network.routes

    def address(self, name: str) -> str:
        """The address of somebody in a test, or of the faucet."""
        return FAUCET if name == "faucet" else self.builder.address(name)

    def take(self, *blocks: Block) -> None:
        """Let blocks in, parents first; each is valid and new."""
        outcomes = result_of(self.node_context.chain_manager.submit_blocks([block.wire() for block in blocks]))
        assert set(outcomes) <= {BlockStatus.CONNECTED, BlockStatus.SIDE}, outcomes

    def grow(self, text: str) -> dict[str, Block]:
        """Let in the blocks of a text in the language of `tests.chains`, by name."""
        blocks = self.builder.chain(text)
        self.take(*blocks.values())
        return blocks

    def close(self) -> None:
        """Close the files, as the node does last."""
        closed = Deferred.fromCoroutine(self.node_context.close())
        self.clock.advance(0)
        result_of(closed)


class Client:
    """Asks one site, each time on a connection of its own, and holds every answer to the site's description."""

    def __init__(self, site: Site, description: Description, clock: Clock, peer: IAddress | str) -> None:
        self._site = site
        self._description = description
        self._clock = clock
        self._peer = peer

    def send(self, method: str, target: str, body: object = None, headers: dict[str, str] | None = None) -> Response:
        """The answer to one request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: node.example", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        wire = Wire(self._site, self._peer).send("\r\n".join([*lines, "", ""]).encode() + data)
        self.settle(wire)
        response = wire.response(head=method == "HEAD")
        wire.close()
        self._description.check(Asked(method, target, data), response)
        return response

    def settle(self, wire: Wire) -> None:
        """Let what is due now be done until the answer is there."""
        for _ in range(200):
            if wire.received or not wire.open:
                return
            self._clock.advance(0)

    def get(self, target: str, **headers: str) -> Response:
        """The answer to GET."""
        return self.send("GET", target, headers=headers)

    def post(self, target: str, body: object = None, **headers: str) -> Response:
        """The answer to POST."""
        return self.send("POST", target, body, headers)

    def ok(self, target: str, body: object = None) -> Any:
        """The members of a success beside `ok`: of POST where there is a body, else of GET."""
        response = self.get(target) if body is None else self.post(target, body)
        assert response.status == 200, response.body
        answer = response.json
        assert answer.pop("ok") is True
        return answer

    def refusal(self, target: str, body: object = None, *, status: int = 400) -> str:
        """The sentence of an error with this status."""
        response = self.get(target) if body is None else self.post(target, body)
        assert response.status == status, response.body
        return response.error
