"""The composition root: the one file that sees every room, and the one that imports the reactor."""

import os
import secrets
from collections.abc import Awaitable
from typing import Any, Final

from attrs import asdict, frozen
from twisted.application.service import Service
from twisted.internet import reactor as global_reactor
from twisted.internet.endpoints import serverFromString
from twisted.logger import Logger

from svcd.chain.errors import Corrupt
from svcd.chain.params import NETWORKS
from svcd.commerce import service as commerce
from svcd.commerce.attempt import Sender
from svcd.commerce.desk import Desk, Files, Terms, open_desk, open_files
from svcd.commerce.signing import SigningKeys
from svcd.commerce.webhooks import COUNT_SECONDS, STEP_SECONDS, TIDY_SECONDS
from svcd.config.schema import OPERATOR_SOCKET, Config
from svcd.metrics.exposition import MetricsRoutes
from svcd.metrics.node import measured
from svcd.net.addresses import AddressPolicy
from svcd.net.pinned import PinnedCaller
from svcd.net.resolving import SystemResolver
from svcd.net.targets import Rules
from svcd.net.trust import TrustError, load_trust
from svcd.node.living import LivingChain, PoolLimits, Threads, open_chain
from svcd.node.producer import ProducerService, Workshop
from svcd.node.seedfile import SeedFileError, load_or_make, load_or_make_token
from svcd.node.status import Alone, Identity, Peers, Status
from svcd.node.threads import Load, ThreadsService, share_the_interpreter
from svcd.p2p import service as p2p
from svcd.p2p.book import Book
from svcd.p2p.client import PeerClient
from svcd.p2p.dialling import reach
from svcd.p2p.hello import NodeKey
from svcd.p2p.orders import Orders
from svcd.p2p.peer import Home, PeerSettings
from svcd.p2p.resource import BODY_CAPS, PeerRoutes
from svcd.process.datadir import DataDirectory
from svcd.process.leaving import leaving_with
from svcd.process.listening import Listening
from svcd.process.logs import make_observer
from svcd.process.notify import Notifier, SystemdNotices
from svcd.process.opened import Opened
from svcd.process.options import Options
from svcd.process.root import Root, log_writer
from svcd.process.sequential import Sequential
from svcd.process.timers import Periodic
from svcd.rpc.details import Details
from svcd.rpc.merchants import merchant_rooms
from svcd.rpc.operator import DevnetRoutes, OperatorRoutes
from svcd.rpc.peer_orders import PeerOrders
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Public, Sites
from svcd.rpc.webhooks import Offer, WebhookRoutes
from svcd.store.database import DatabaseError
from svcd.web.buckets import Buckets
from svcd.web.clients import Clients
from svcd.web.limits import BodyCaps, SiteLimits
from svcd.web.site import Site

__all__ = ["Options", "makeService"]

_LOG: Final = Logger()

SENTENCES: Final = (DatabaseError, Corrupt, SeedFileError, TrustError)
"""Errors whose text is for the operator: no traceback is needed."""
OPERATOR_SECONDS: Final = 900.0
EXPIRY_SECONDS: Final = 60.0


def makeService(options: Options) -> Root:
    """The service that twistd runs, from the options of its command line."""
    config = options.config
    write = log_writer(options.parent or {})
    observer = None if write is None else make_observer(config.log.format, config.log.level, write)
    leave = leaving_with(global_reactor)
    root = Root(leave, observer=observer, sentences=SENTENCES)
    pools = Pools(
        writer=ThreadsService(global_reactor, size=1, name="writer"),
        verifier=ThreadsService(global_reactor, size=os.cpu_count() or 1, name="verifier"),
        producer=ThreadsService(global_reactor, size=config.participation.workers, name="producer"),
        resolver=ThreadsService(global_reactor, size=16, name="resolver"),
        webhooks=ThreadsService(global_reactor, size=1, name="webhooks"),
        callbacks=ThreadsService(global_reactor, size=16, name="callbacks"),
    )
    root.addService(DataDirectory(config.data_dir, sockets=(OPERATOR_SOCKET,)))
    for pool in pools.all():
        root.addService(pool)
    threads = Threads(pools.writer.worker, pools.verifier.worker, pools.verifier.size, damaged=lambda: leave(1))
    params, path = NETWORKS[config.network], config.data_dir / "chain.sqlite"

    def chain() -> Awaitable[LivingChain]:
        return open_chain(params, path, threads=threads, pool=_pool_limits(config), clock=global_reactor)

    def desk() -> Awaitable[Desk]:
        every_depth = config.commerce.webhooks.confirming_events == "every-depth"
        terms = Terms(every_depth=every_depth, new_id=lambda: f"svcwh_{secrets.token_hex(16)}")
        worker, leaving = pools.webhooks.worker, threads.damaged
        return open_desk(params, config.data_dir, chain=path, worker=worker, damaged=leaving, terms=terms)

    node = Opened(
        Sequential(leave, sentences=SENTENCES),
        opening=lambda: open_files(chain(), None if config.commerce.webhooks.refusal else desk),
        services=lambda files: Rooms(config, files, pools, global_reactor).services(),
        closing=Files.close,
    )
    root.addService(node)
    share_the_interpreter()
    return root


@frozen
class Pools:
    """The threads of the process."""

    writer: ThreadsService
    verifier: ThreadsService
    producer: ThreadsService
    resolver: ThreadsService
    webhooks: ThreadsService
    callbacks: ThreadsService
    """Looks up the names of callbacks, which a merchant's customers must not be able to hold up."""

    def all(self) -> list[ThreadsService]:
        """Every one of them."""
        return list(asdict(self, recurse=False).values())

    def loads(self) -> dict[str, Load]:
        """What each of them has to do, by name."""
        return {name: pool.worker.load for name, pool in asdict(self, recurse=False).items()}


def _pool_limits(config: Config) -> PoolLimits:
    return PoolLimits(config.mempool.max_transactions, config.mempool.max_bytes)


class Rooms:
    """Everything that stands on an open chain."""

    def __init__(self, config: Config, files: Files, pools: Pools, reactor: Any) -> None:
        self._config = config
        self._living = living = files.living
        self._pools = pools
        self._reactor = reactor
        endpoint = config.p2p.public_url or config.http.public_url
        self._key = NodeKey(load_or_make(config.data_dir / "node.key", secrets.token_bytes), endpoint)
        self._seed = load_or_make(config.data_dir / config.participation.key_file, secrets.token_bytes)
        self._network = self._join() if config.p2p.enabled else None
        path, seeds = config.data_dir / "peers.json", config.p2p.seeds
        self._notes = p2p.PeersService(self._network, path, seeds) if self._network else None
        peers: Peers = self._network.peers if self._network else Alone(config.participation.alone)
        identity = Identity(self._key.node_id, self._key.endpoint)
        self._status = Status(living.ledger, identity=identity, peers=peers, clock=reactor)
        self._sites = Sites(reactor, lambda: secrets.token_hex(8))
        self._callbacks = PinnedCaller(
            reactor,
            resolver=SystemResolver(pools.callbacks.worker),
            policy=AddressPolicy(allow_private=config.commerce.webhooks.allow_private_callbacks),
            trust=load_trust(config.extra_ca_file),
        )
        self._merchants = self._deliver(files.desk) if files.desk else None
        self._metrics = measured(
            living,
            self._status,
            _pool_limits(config),
            loads=pools.loads(),
            network=self._network,
            merchants=self._merchants,
        )

    def services(self) -> list[Service]:
        """The services in the order of their start: the ports open last, READY is said when all is."""
        config, living, clock = self._config, self._living, self._reactor
        expire = living.transfers.expire
        services: list[Service] = [Periodic(clock, EXPIRY_SECONDS, expire, what="letting go of expired transfers")]
        services.append(self._metrics.lag)
        if config.participation.enabled and not config.participation.on_demand:
            services.append(self._producer())
        if self._merchants is not None:
            webhooks = self._merchants.webhooks
            services.append(webhooks)
            services.append(Periodic(clock, STEP_SECONDS, webhooks.look, what="looking after webhooks"))
            services.append(Periodic(clock, COUNT_SECONDS, webhooks.count, what="counting webhooks", at_once=True))
            services.append(Periodic(clock, TIDY_SECONDS, webhooks.tidy, what="tidying the webhooks up"))
        services.append(self._listening(config.operator_endpoint, self._operator_site(), "operator"))
        for endpoint, site in self._public_sites():
            services.append(self._listening(endpoint, site, "public" if endpoint == config.http.listen else "p2p"))
        if self._network is not None and self._notes is not None:
            notes = self._notes
            services += [
                notes,
                Periodic(clock, p2p.BEAT_SECONDS, self._network.beat, what="keeping in touch with peers"),
                Periodic(clock, p2p.SAVE_SECONDS, notes.save, what="noting who is known"),
            ]
        services.append(SystemdNotices(Notifier.from_environment(os.environ), clock, living.alive))
        return services

    def _join(self) -> p2p.Network:
        config, living = self._config, self._living
        params = living.ledger.params
        dialling = reach(self._reactor, self._pools.resolver.worker, allow_private=config.p2p.allow_private)
        settings = PeerSettings(
            outbound=config.p2p.outbound,
            max_inbound=config.p2p.max_inbound,
            diverse=config.network == "mainnet",
            alone=config.participation.alone,
            public=bool(self._key.endpoint),
        )
        home = Home(params, living.ledger, self._key, self._reactor)
        client = PeerClient(params, dialling, self._pools.verifier.worker)
        book = Book(secrets.token_bytes(32), secrets.SystemRandom().random)
        return p2p.join(home, client, transfers=living.transfers, book=book, settings=settings)

    @property
    def _callback_rules(self) -> Rules:
        hooks = self._config.commerce.webhooks
        return Rules.for_callbacks(allow_http=hooks.allow_http_callbacks, allow_private=hooks.allow_private_callbacks)

    def _deliver(self, desk: Desk) -> commerce.Merchants:
        hooks = self._config.commerce.webhooks
        keys = SigningKeys(hooks.signing_secret, hooks.previous_signing_secret)
        sender = Sender(self._callbacks, self._callback_rules, keys)
        chance = secrets.SystemRandom().random
        return commerce.join(desk, self._living, sender=sender, synced=lambda: self._status.synced, chance=chance)

    def _webhook_routes(self) -> WebhookRoutes:
        hooks, webhooks = self._config.commerce.webhooks, self._merchants.webhooks if self._merchants else None
        if hooks.problem:
            _LOG.warn("webhooks answer 503: {problem}", problem=hooks.problem)
        offer = Offer(
            problem=hooks.refusal,
            token=hooks.manage_token,
            default_ttl=hooks.default_ttl_seconds,
            max_ttl=hooks.max_ttl_seconds,
        )
        params, rules = self._living.ledger.params, self._callback_rules
        return WebhookRoutes(params, offer, webhooks=webhooks, rules=rules, caller=self._callbacks)

    def _producer(self) -> Service:
        workshop = Workshop(
            seed=self._seed,
            threads=self._pools.producer.worker,
            workers=self._config.participation.workers,
            random=secrets.token_bytes,
            may_produce=lambda: self._status.synced,
        )
        return ProducerService(self._living.producer(workshop))

    def _listening(self, endpoint: str, site: Site, name: str) -> Service:
        self._metrics.watch(name, site)
        server: Any = serverFromString(self._reactor, endpoint)  # type: ignore[no-untyped-call]
        factory: Any = site
        drain = self._config.limits.drain_seconds
        return Listening(server, factory, description=endpoint, drain=lambda: site.drain(drain))

    def _public_sites(self) -> list[tuple[str, Site]]:
        living, config, limits = self._living, self._config, self._config.limits
        chain = ChainRoutes(living.ledger, transfers=living.transfers, status=self._status, clock=self._reactor)
        verifier, random = self._pools.verifier.worker, secrets.token_bytes
        rooms = [chain, *merchant_rooms(living, self._webhook_routes(), verifier=verifier, random=random)]
        public = Public(
            SiteLimits.picked_from(limits, BodyCaps(BODY_CAPS)),
            Clients(map(str, config.http.trusted_proxies), map(str, limits.exempt)),
            Buckets.per_second(limits.rates, limits.burst_seconds),
        )
        peers: list[object] = []
        if self._network is not None:
            on_orphan = self._network.orphan
            peers = [PeerRoutes(self._network.peers, transfers=living.transfers, on_orphan=on_orphan)]
        if not config.p2p.listen:
            return [(config.http.listen, self._sites.public(rooms, public, peers=peers))]
        own = (config.p2p.listen, self._sites.between_nodes(peers, public))
        return [own, (config.http.listen, self._sites.public(rooms, public))]

    def _operator_site(self) -> Site:
        config = self._config
        token = None
        if not config.operator_endpoint.startswith("unix:"):
            token = load_or_make_token(config.data_dir / config.operator.token_file, secrets.token_bytes)
        peers = self._network.record if self._network else None
        writer = self._pools.writer.worker.load
        details = Details(self._living, writer, self._seed, config.participation.enabled, peers)
        rooms: list[object] = [OperatorRoutes(self._status, details=details.record, token=token)]
        rooms.append(MetricsRoutes(self._metrics.registry, token=token))
        orders = Orders(self._network.peers, self._notes.save) if self._network and self._notes else None
        rooms.append(PeerOrders(orders, token=token))
        if config.network == "devnet":
            rooms.append(DevnetRoutes(self._living.on_demand(secrets.token_bytes), seed=self._seed, token=token))
        limits = SiteLimits(answer_seconds=OPERATOR_SECONDS)
        return self._sites.operator(rooms, limits, hosts=config.operator_hosts)
