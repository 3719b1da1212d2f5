"""The services and sites of a node on an open chain; `svcd/composition/lifecycle.py` has the order of their start."""

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from twisted.application.service import Service

from svcd.chain.address import decode_address, key_hash
from svcd.chain.signature import public_key_of
from svcd.chain_schemas import of_network
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.commerce.webhook_database import FILE as WEBHOOKS_FILE
from svcd.composition.file_descriptors import (
    HEALTH_CONNECTIONS,
    HEALTH_CONNECTIONS_PER_CLIENT,
    OPERATOR_CONNECTIONS,
)
from svcd.composition.merchants import MerchantServices
from svcd.composition.reload import ReloadableParts, ReloadService
from svcd.composition.resources import NodeResources, stop_seconds
from svcd.composition.status_lines import BlockProduction, Heartbeat, StartLines, StatusLine
from svcd.config.schema import LOOPBACK_HOSTS, Config, Limits
from svcd.endpoint_description import EndpointDescription
from svcd.interfaces import unix_seconds
from svcd.ip_addresses import parse_literal
from svcd.limits import Limit, constant_limits
from svcd.metrics.exposition import MetricsRoutes, collect_from
from svcd.net.targets import Endpoint
from svcd.node.alarm_log import ALARM_CHECK_SECONDS, AlarmLog
from svcd.node.backups import Backups
from svcd.node.chain_news import ChainNews
from svcd.node.clock_guard import CLOCK_CHECK_SECONDS
from svcd.node.database_health import ReportingWorker
from svcd.node.devnet import Devnet
from svcd.node.fees import Fees
from svcd.node.miner import Miner, MinerSettings
from svcd.node.network_view import NetworkObserver, NoPeers
from svcd.node.recipient_index import RecipientIndex, ReferenceIndex
from svcd.node.snapshots import CHECK_SECONDS as SNAPSHOT_SECONDS
from svcd.node.snapshots import Snapshots
from svcd.node.status import Status
from svcd.node.sweeper import Sweeper, SweepSettings
from svcd.node.work_rate import SAMPLE_SECONDS, WorkRate
from svcd.p2p import service as p2p
from svcd.p2p.address_book import AddressBook
from svcd.p2p.administration import PeerAdministration
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peers import PeerSettings
from svcd.p2p.routes import BODY_CAPS
from svcd.p2p.snapshot_start import StartMode, StartSettings
from svcd.p2p.transport import open_transport
from svcd.pages.link_policy import LinkPolicy
from svcd.pages.resource import PageHosts, PagesMaker, pages_resource
from svcd.pages.sources import PeerRow, Sources
from svcd.process.certificates import CHECK_SECONDS, ServerCertificate, ServerCertificates
from svcd.process.datadir import FILE_CHECK_SECONDS, FileWatch
from svcd.process.endpoints import server_endpoint
from svcd.process.listener import ListenerService
from svcd.process.sequential import CannotStart
from svcd.process.systemd import SystemdService
from svcd.process.timers import Periodic
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.feed_routes import FeedRoutes
from svcd.rpc.mempool_routes import MempoolRoutes
from svcd.rpc.operator_routes import (
    BackupRoutes,
    DevnetRoutes,
    LimitsRoutes,
    NodeDetails,
    OperatorRoutes,
    ParticipationRoutes,
    PeerAdminRoutes,
    ReadyRoute,
    ReloadRoutes,
)
from svcd.rpc.payment_routes import PaymentListRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.rpc.statement_routes import StatementRoutes
from svcd.seed_file import SeedKind, load_or_make, load_or_make_token
from svcd.web.connections import BodyCaps, SiteLimits
from svcd.web.rate_limits import Clients, RateLimiter, rates_of
from svcd.web.site import Site

EXPIRY_SECONDS: Final = 60.0
SAMPLED_PEERS: Final = 100
"""Entries of the address book that the page of the network shows."""


def limits_of(config: Config) -> list[Limit]:
    """The limits of a node with this configuration."""
    return [*config.configured_limits, *constant_limits()]


class NodeServices:
    """A node's services and sites."""

    def __init__(self, base: NodeResources) -> None:
        config, node_context = base.config, base.node_context
        self._base = base
        public_url = config.p2p.public_url or config.http.public_url
        key = NodeKey(
            load_or_make(config.data_dir / "node.key", SeedKind.NODE, secrets.token_bytes),
            Endpoint(public_url) if public_url else "",
        )
        self._seed = base.block_key or load_or_make(
            config.data_dir / config.participation.key_file, SeedKind.BLOCK, secrets.token_bytes
        )
        self._clients = Clients(map(str, config.http.trusted_proxies), map(str, config.limits.exempt))
        self._snapshots = build_snapshots(base, may_make=lambda: self._status.current)
        self._network = build_network(base, key, self._clients, self._snapshots) if config.p2p.enabled else None
        listen = config.http.listen, config.p2p.listen, config.operator_port, config.operator.health_listen
        described = {name: EndpointDescription.parse(name) for name in listen if name}
        self._certificates = ServerCertificates(
            {name: ServerCertificate(name, each.arguments) for name, each in described.items() if each.has_tls},
            partial(unix_seconds, base.reactor),
        )
        self._peers_service = self._build_peers_service()
        peers: NetworkObserver = self._network or NoPeers(config.participation.alone)
        self._peers = peers
        if self._network is not None:
            node_context.guard.agreeing = self._network.peers.agreeing_clocks
        self._status = Status(
            node_context.chain_manager,
            node_id=key.node_id,
            endpoint=key.endpoint,
            peers=peers,
            guard=node_context.guard,
            certificate=self._certificates.alarm,
            trouble=lambda: base.databases.trouble,
            database=lambda: base.databases.unavailable,
            webhooks=f"webhooks answer 503: {config.commerce.problem}" if config.commerce.problem else "",
            proxy=lambda: self._clients.proxies.alarm(base.reactor.seconds()),
        )
        narrowed = of_network(node_context.chain_manager.params)
        self._sites = SiteFactory(base.reactor, lambda: secrets.token_hex(8), base.health.is_damage, narrowed)
        self._merchants = MerchantServices(base, self._status)
        self._limiter = RateLimiter(
            self._clients, rates_of(config.limits.rates, config.limits.burst_seconds), base.reactor
        )
        self._limited_sites: list[Site] = []
        self._waiters: PaymentWaiters | None = None
        self.reload = ReloadService(
            config,
            read=base.read_config,
            worker=base.pools.files,
            parts=ReloadableParts(
                merchants=self._merchants.reload,
                limits=self._set_limits,
                log_level=None if base.log is None else base.log.set_level,
                certificates=self._certificates,
                clock=node_context.guard.confirm,
            ),
            signal=base.hang_up,
        )
        self._participation = None if config.participation.on_demand else self._producer()
        chosen = config.participation
        self._production = BlockProduction(self._status, chosen.enabled, self._participation, chosen.every)
        node_context.chain_manager.subscribe(ChainNews(base.news, base.reactor, self._sync_target))
        self._sweeper = self._build_sweeper()
        self.backups = Backups(config.chain_file, self._webhooks_file(), base.pools.files, base.health)
        self._devnet = Devnet(node_context, secrets.token_bytes) if config.network == "devnet" else None
        self._metrics = collect_from(
            node_context,
            self._status,
            loads=base.pools.loads(),
            network=self._network,
            webhooks=self._merchants.webhooks,
            only_on_demand=config.participation.only_on_demand,
            others_turn=self._others_turn,
            miner=self._participation,
            sweeper=self._sweeper,
            dropped_lines=None if (log := base.log) is None else lambda: log.thread.dropped,
        )
        self.reactor_lag = self._metrics.lag

    def checks(self) -> list[Service]:
        """Periodic work on the node itself: expiry of transfers, checks of files, clock, disks and alarms."""
        base, clock = self._base, self._base.reactor
        files = FileWatch(self._database_files(), base.health.stop, base.pools.files, self._lost_journal)
        alarms = AlarmLog(lambda: self._status.behind, lambda: self._status.alone, self._status.alarms)
        expire = base.node_context.transaction_pool.expire
        return [
            Periodic(clock, EXPIRY_SECONDS, expire, what="removing expired transfers"),
            Periodic(clock, FILE_CHECK_SECONDS, files.check, what="checking the database files", at_once=True),
            Periodic(clock, CLOCK_CHECK_SECONDS, base.node_context.guard.check, what="checking the clock"),
            Periodic(
                clock,
                CHECK_SECONDS,
                partial(self._certificates.renew, base.pools.files),
                what="looking for renewed certificates",
            ),
            Periodic(clock, ALARM_CHECK_SECONDS, base.databases.try_disks, what="probing the disk"),
            Periodic(clock, ALARM_CHECK_SECONDS, alarms.check, what="checking the alarms", at_once=True),
        ]

    def production(self) -> list[Service]:
        """The sweeps of rewards, if set, and the production of blocks, unless a devnet makes them only on demand."""
        services: list[Service] = [each for each in (self._sweeper, self._participation) if each is not None]
        if self._devnet is not None and (every := self._base.config.participation.every):
            mine = partial(self._devnet.mine_now, self._seed)
            services.append(Periodic(self._base.reactor, every, mine, what="making a block"))
        return services

    def start_pruning(self) -> None:
        """Delete old blocks from now on, if not all are kept, when the watches have been evaluated at them."""
        webhooks = self._merchants.webhooks
        self._base.node_context.start_pruning(None if webhooks is None else lambda: webhooks.evaluated_height)

    def webhooks(self) -> list[Service]:
        """The services behind webhooks; none where webhooks are switched off."""
        return self._merchants.services()

    def operator_listeners(self) -> list[Service]:
        """The operator's socket, which its mode guards, and the port, where there is one, which a token guards."""
        config = self._base.config
        socket = self._operator_site(token=None, hosts=None)
        listeners = [self._listener(config.operator_socket, socket, "operator")]
        if config.operator_port:
            token = load_or_make_token(config.data_dir / config.operator.token_file, secrets.token_bytes)
            site = self._operator_site(token=token, hosts=config.operator_hosts)
            listeners.append(self._listener(config.operator_port, site, "operator-port"))
        return listeners

    def public_listeners(self) -> list[Service]:
        """The public site, and before it the one between nodes where that has an endpoint of its own.

        The waiting requests stop before both: the sites wait for their answers.
        """
        node_context, config, limits = self._base.node_context, self._base.config, self._base.config.limits
        chain = ChainRoutes(
            node_context.chain_manager,
            transaction_pool=node_context.transaction_pool,
            status=self._status,
            clock=node_context.clock,
        )
        payments = PaymentLookup.subscribed(
            node_context.chain_manager, node_context.transaction_pool, synced=lambda: self._status.current
        )
        incoming = RecipientIndex.subscribed(node_context.transaction_pool)
        waiting = node_context.transaction_pool.mempool
        fees = Fees(node_context.chain_manager, waiting)
        mempool = MempoolRoutes(node_context.chain_manager, waiting, incoming, fees)
        waiters = PaymentWaiters.subscribed(
            payments,
            node_context.chain_manager,
            node_context.transaction_pool,
            clock=self._base.reactor,
            connections=limits.connections,
        )
        self._waiters = waiters
        listed = PaymentListRoutes(node_context.chain_manager, payments, incoming)
        feed = FeedRoutes(node_context.chain_manager, payments, waiters, incoming)
        routes = [
            chain,
            mempool,
            *self._merchants.routes(payments, waiters),
            listed,
            feed,
            StatementRoutes(node_context.chain_manager),
        ]
        pages = self._pages(payments, incoming, fees)
        public = PublicSite(_site_limits(limits), self._limiter)
        peers = [] if self._network is None else self._network.routes
        if not config.p2p.listen:
            site = self._sites.public(routes, public, peers=peers, pages=pages)
            self._limited_sites = [site]
            return [self._listener(config.http.listen, site, "public"), waiters]
        between = self._sites.between_nodes(peers, public)
        site = self._sites.public(routes, public, pages=pages)
        self._limited_sites = [between, site]
        return [
            self._listener(config.p2p.listen, between, "p2p"),
            self._listener(config.http.listen, site, "public"),
            waiters,
        ]

    def health_listeners(self) -> list[Service]:
        """The port for the health checks of load balancers, where there is one: without a token, for /ready only."""
        endpoint = self._base.config.operator.health_listen
        limits = SiteLimits(connections=HEALTH_CONNECTIONS, connections_per_client=HEALTH_CONNECTIONS_PER_CLIENT)
        site = self._sites.operator([ReadyRoute(self._status, role=self._merchants.role)], limits, described=False)
        return [self._listener(endpoint, site, "health")] if endpoint else []

    def peer_services(self) -> list[Service]:
        """The network of peers; no service where it is switched off."""
        network, known, clock = self._network, self._peers_service, self._base.reactor
        if network is None or known is None:
            return []
        return [
            known,
            Periodic(clock, p2p.TICK_SECONDS, network.tick, what="maintaining peer connections", at_once=True),
            Periodic(clock, p2p.SAVE_SECONDS, known.save_or_log, what="saving the known peers"),
            Periodic(clock, SNAPSHOT_SECONDS, self._snapshots.check, what="making snapshots of the state"),
            self._snapshots,
        ]

    def status_lines(self) -> list[Service]:
        """The log lines at the start, the heartbeats of block production, and the status line of a terminal."""
        base, clock = self._base, self._base.reactor
        heartbeat = Heartbeat(base, self._production)
        start = StartLines(base, self._production, self._network, url=page_url(base.config))
        beats = Periodic(clock, SAMPLE_SECONDS, heartbeat.beat, what="counting attempts")
        if base.log is None or (terminal := base.log.terminal) is None:
            return [beats, start]
        return [beats, start, StatusLine(terminal, clock, self._production, self._network)]

    def systemd(self) -> Service:
        """The notifications to systemd: the last service to start."""
        base = self._base
        alive, status, starting = base.node_context.alive, self._status.line, base.start_timeout
        return SystemdService(starting.notifier, base.reactor, alive, status, started=starting.stop_accepting)

    def _database_files(self) -> list[Path]:
        """The open databases and their write-ahead logs."""
        config = self._base.config
        databases = [config.chain_file]
        if (webhooks := self._webhooks_file()) is not None:
            databases.append(webhooks)
        return [file for path in databases for file in (path, path.with_name(f"{path.name}-wal"))]

    def _lost_journal(self) -> Path | None:
        journal = self._base.node_context.transaction_pool.journal
        return journal.path if journal.is_lost() else None

    def _webhooks_file(self) -> Path | None:
        """The open database of webhooks; None if there is none, or it is on PostgreSQL."""
        webhooks = self._base.databases.webhooks
        return self._base.config.data_dir / WEBHOOKS_FILE if webhooks is not None and webhooks.is_file else None

    def _build_peers_service(self) -> p2p.PeersService | None:
        """The service that keeps the peers, the address book and the bans from one run to the next."""
        if self._network is None:
            return None
        config = self._base.config
        return p2p.PeersService(self._network, config.data_dir / "peers.json", config.p2p.seeds, self._base.pools.files)

    def _producer(self) -> Miner:
        miner_settings = MinerSettings(
            seed=self._seed,
            threads=self._base.pools.producer,
            workers=self._base.config.participation.workers,
            random=secrets.token_bytes,
            may_produce=lambda: not self._status.why_no_block,
            enabled=self._base.config.participation.enabled,
        )
        return Miner(self._base.node_context, miner_settings)

    def _build_sweeper(self) -> Sweeper | None:
        """The sweeps of rewards; None where `[participation] payTo` is empty. Raises CannotStart."""
        settings, params = self._base.config.participation, self._base.config.params
        if not settings.pay_to:
            return None
        if decode_address(settings.pay_to, params.address_prefix) == key_hash(public_key_of(self._seed)):
            raise CannotStart(
                f"[participation] payTo = {settings.pay_to} is the address of this node's own block key: name an "
                "address whose key is not on this computer"
            )
        sweep_settings = SweepSettings(
            seed=self._seed,
            pay_to=settings.pay_to,
            above=settings.sweep_above,
            may_send=lambda: self._status.current,
        )
        return Sweeper(self._base.node_context, sweep_settings)

    def _sync_target(self) -> int:
        return 0 if self._network is None else self._network.progress.target

    def _participates(self) -> bool:
        if self._participation is None:
            return self._base.config.participation.enabled
        return self._participation.enabled

    def _work_rate(self) -> WorkRate | None:
        return None if self._participation is None else self._participation.work_rate

    def _search_record(self) -> dict[str, object] | None:
        rate = self._work_rate()
        return None if rate is None else rate.record()

    def _others_turn(self) -> str:
        return "" if self._participation is None else self._participation.waits_for

    def _listener(self, endpoint: str, site: Site, name: str) -> Service:
        self._metrics.watch(name, site)
        factory: Any = site

        def drain() -> Awaitable[None]:
            return site.drain(self.reload.config.limits.drain_seconds)

        server = server_endpoint(self._base.reactor, endpoint, self._certificates.by_endpoint.get(endpoint))
        return ListenerService(server, factory, description=endpoint, drain=drain)

    def _set_limits(self, config: Config) -> None:
        """Apply `[limits]` of a new configuration to the sites that run."""
        limits = config.limits
        self._clients.set_exempt(map(str, limits.exempt))
        self._limiter.set_rates(rates_of(limits.rates, limits.burst_seconds))
        for site in self._limited_sites:
            site.set_limits(_site_limits(limits))
        if self._waiters is not None:
            self._waiters.set_connections(limits.connections)
        self._base.deadline.seconds = stop_seconds(config)

    def _operator_site(self, *, token: str | None, hosts: Collection[str] | None) -> Site:
        node_context = self._base.node_context
        peers = self._network.record if self._network else None
        writer = self._base.pools.writer.load
        details = NodeDetails(
            node_context,
            writer,
            self._seed,
            self._participates,
            peers,
            self._merchants.record,
            others_turn=self._others_turn,
            search=self._search_record,
            sweep=None if self._sweeper is None else self._sweeper.record,
        )
        known = self._peers_service
        administration = PeerAdministration(self._network.peers, known.save) if self._network and known else None
        routes: list[object] = [
            OperatorRoutes(self._status, details=details.record, token=token, role=self._merchants.role),
            MetricsRoutes(self._metrics, self._base.pools.files, token=token),
            PeerAdminRoutes(administration, token=token),
            BackupRoutes(self.backups, token=token),
            ReloadRoutes(self.reload.reload, token=token),
            ParticipationRoutes(self._status, self._participation, token=token),
            LimitsRoutes(lambda: limits_of(self.reload.config), token=token),
        ]
        if self._devnet is not None:
            routes.append(DevnetRoutes(self._devnet, seed=self._seed, token=token))
        return self._sites.operator(routes, SiteLimits(connections=OPERATOR_CONNECTIONS), hosts=hosts)

    def _pages(self, payments: PaymentLookup, incoming: RecipientIndex, fees: Fees) -> PagesMaker:
        node_context, config, network = self._base.node_context, self._base.config, self._network
        sources = Sources(
            chain_manager=node_context.chain_manager,
            mempool=node_context.transaction_pool.mempool,
            fees=fees,
            incoming=incoming,
            referenced=ReferenceIndex.subscribed(node_context.transaction_pool),
            payments=payments,
            peers=self._peers,
            sample=lambda: [] if network is None else _sample(network),
            clock=self._base.reactor,
            serves_peers=network is not None and not config.p2p.listen,
            links=lambda: LinkPolicy(
                self.reload.config.link_recipients,
                frozenset(self.reload.config.pages.return_hosts),
                self.reload.config.pages.only,
                self.reload.config.pages.shop_names,
            ),
            public_url=config.http.public_url,
            work_rate=self._work_rate,
            on_demand=config.participation.on_demand,
            every=config.participation.every,
        )
        return pages_resource(sources, page_hosts(config))


def build_snapshots(base: NodeResources, *, may_make: Callable[[], bool]) -> Snapshots:
    """The snapshots of the state, beside the chain's database; they are made while ``may_make`` returns true."""
    return Snapshots(
        base.node_context.chain_manager,
        base.config.chain_file,
        files=ReportingWorker(base.pools.files, base.health, log=False),
        reader=base.pools.reader,
        may_make=may_make,
        seconds=time.monotonic,
        sleep=time.sleep,
    )


def build_network(base: NodeResources, key: NodeKey, clients: Clients, snapshots: Snapshots) -> p2p.PeerNetwork:
    """The network of peers, not started yet; ``clients`` then counts IPv4 clients behind NAT64 one by one."""
    config, node_context = base.config, base.node_context
    params = node_context.chain_manager.params
    dialling = open_transport(
        base.reactor,
        base.pools.resolver,
        allow_private=config.p2p.allow_private,
        peers=config.p2p.outbound + config.p2p.max_inbound,
    )
    clients.counted = dialling.untranslated
    settings = PeerSettings(
        outbound=config.p2p.outbound,
        max_inbound=config.p2p.max_inbound,
        diverse=config.network == "mainnet",
        alone=config.participation.alone,
    )
    webhooks = base.databases.webhooks
    home = LocalNode(params, node_context.chain_manager, key, base.reactor, base.news)
    client = PeerClient(params, dialling, base.pools.verifier, known=node_context.transaction_pool.mempool.transfer)
    book = AddressBook(secrets.token_bytes(32), secrets.SystemRandom().random)
    return p2p.PeerNetwork(
        home,
        client,
        transaction_pool=node_context.transaction_pool,
        book=book,
        settings=settings,
        snapshots=snapshots,
        forwards=clients.proxies.forwards,
        start=StartSettings(
            StartMode(config.chain.start),
            node_context.staging,
            node_context.chain.writer,
            has_active_watch_since=no_watch if webhooks is None else webhooks.has_active_since,
            refuse_watches_below=refuse_no_watch if webhooks is None else webhooks.refuse_below,
        ),
    )


async def no_watch(_height: int, _time: int) -> bool:
    """Whether a node without webhooks has an active watch."""
    return False


async def refuse_no_watch(_height: int) -> None:
    """Refuse watches on a node without webhooks, which gets none."""


def own_origin(config: Config) -> str:
    """The URL at which this node answers: as configured, else on this machine."""
    listening = EndpointDescription.parse(config.http.listen)
    scheme = "https" if listening.has_tls else "http"
    address, names = parse_literal(listening.interface), config.http.allowed_hosts
    host = "127.0.0.1" if address is None or address.is_unspecified else str(address)
    if names and host not in names:
        # Pages answer under these names only.
        host = names[0]
    host = f"[{host}]" if ":" in host else host
    return config.http.public_url or f"{scheme}://{host}:{listening.arguments.get('port', '8645')}"


def page_url(config: Config) -> str:
    """The URL of this node's first page; "" if it listens on no port and has no public URL."""
    listening = EndpointDescription.parse(config.http.listen)
    has_port = listening.kind in ("tcp", "tcp6", "ssl", "systemd") or config.http.public_url
    return f"{own_origin(config)}/" if has_port else ""


def page_hosts(config: Config) -> PageHosts:
    """The host names of the pages: as configured, else loopback, the public URL's host and any IP address."""
    public = [Endpoint(config.http.public_url).host] if config.http.public_url else []
    names = config.http.allowed_hosts or (*LOOPBACK_HOSTS, *public)
    return PageHosts(
        frozenset(f"[{name}]" if ":" in name else name for name in names), addresses=not config.http.allowed_hosts
    )


def _site_limits(limits: Limits) -> SiteLimits:
    return SiteLimits.picked_from(limits, BodyCaps(BODY_CAPS))


def _sample(network: p2p.PeerNetwork) -> Sequence[PeerRow]:
    peers, node = network.peers, network.peers.node
    return [
        PeerRow(
            entry.node_id,
            entry.endpoint,
            entry.height,
            node.unix_milliseconds(entry.last_seen),
            peers.has_other_changes(entry.endpoint),
        )
        for entry in peers.book.sample(SAMPLED_PEERS)
    ]
