"""Everything that stands on an open chain, put together."""

import os
import secrets
from collections.abc import Collection
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.endpoints import serverFromString

from svcd.commerce.desk import FILE as WEBHOOKS_FILE
from svcd.commerce.looking import Payments
from svcd.composition.descriptors import OPERATOR_CONNECTIONS
from svcd.composition.limits import limits_of
from svcd.composition.merchants import MerchantsRoom
from svcd.composition.node import Foundation, pool_limits
from svcd.composition.pages import pages_of
from svcd.composition.peers import network_of, notes_of
from svcd.composition.watches import watches_of
from svcd.metrics.exposition import MetricsRoutes
from svcd.metrics.node import measured
from svcd.net.endpoint import Endpoint
from svcd.node.alarms import LOOK_SECONDS, AlarmLog
from svcd.node.backups import Backups
from svcd.node.producer import ProducerService, Workshop
from svcd.node.seedfile import load_or_make, load_or_make_token
from svcd.node.status import Alone, Identity, Peers, Status
from svcd.p2p import service as p2p
from svcd.p2p.administration import Orders
from svcd.p2p.handshake import NodeKey
from svcd.p2p.service import BODY_CAPS
from svcd.process.listening import Listening
from svcd.process.notify import Notifier, SystemdNotices
from svcd.process.timers import Periodic
from svcd.rpc.backup import BackupRoutes
from svcd.rpc.details import Details
from svcd.rpc.limits import LimitsRoutes
from svcd.rpc.operator import DevnetRoutes, OperatorRoutes
from svcd.rpc.participation import ParticipationRoutes
from svcd.rpc.peer_orders import PeerOrders
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Public, Sites
from svcd.web.buckets import Buckets
from svcd.web.clients import Clients
from svcd.web.limits import BodyCaps, SiteLimits
from svcd.web.site import Site

EXPIRY_SECONDS: Final = 60.0


class Rooms:
    """A node's services and sites."""

    def __init__(self, base: Foundation) -> None:
        config, living = base.config, base.living
        self._base = base
        public_url = config.p2p.public_url or config.http.public_url
        key = NodeKey(
            load_or_make(config.data_dir / "node.key", secrets.token_bytes),
            Endpoint(public_url) if public_url else "",
        )
        self._seed = load_or_make(config.data_dir / config.participation.key_file, secrets.token_bytes)
        self._clients = Clients(map(str, config.http.trusted_proxies), map(str, config.limits.exempt))
        self._network = network_of(base, key, self._clients)
        self._notes = notes_of(base, self._network)
        peers: Peers = self._network.peers if self._network else Alone(config.participation.alone)
        identity = Identity(key.node_id, key.endpoint)
        self._peers = peers
        self._status = Status(
            living.ledger,
            identity=identity,
            peers=peers,
            clock=base.reactor,
            trouble=lambda: base.files.trouble,
            untrusted_proxy=lambda: self._clients.untrusted.alarm(base.reactor.seconds()),
        )
        self._sites = Sites(base.reactor, lambda: secrets.token_hex(8), base.guard.is_damage)
        self._merchants = MerchantsRoom(base, self._status)
        self._participation = None if config.participation.on_demand else self._producer()
        webhooks = None if base.files.desk is None else config.data_dir / WEBHOOKS_FILE
        self._backups = Backups(config.chain_file, webhooks, base.pools.files.worker)
        self._demand = living.on_demand(secrets.token_bytes) if config.network == "devnet" else None
        self._metrics = measured(
            living,
            self._status,
            pool_limits(config),
            loads=base.pools.loads(),
            network=self._network,
            merchants=self._merchants.merchants,
        )

    def services(self) -> list[Service]:
        """The services in the order of their start: the ports open last, READY is said when all is."""
        config, living, clock = self._base.config, self._base.living, self._base.reactor
        expire = living.transfers.expire
        services: list[Service] = [Periodic(clock, EXPIRY_SECONDS, expire, what="letting go of expired transfers")]
        services += watches_of(self._base)
        services.append(Periodic(clock, LOOK_SECONDS, self._base.files.try_disks, what="trying the disk"))
        said = AlarmLog(lambda: self._status.behind, self._status.alarms)
        services.append(Periodic(clock, LOOK_SECONDS, said.look, what="looking at the alarms", at_once=True))
        services.append(self._metrics.lag)
        if self._participation is not None:
            services.append(self._participation)
        services += self._merchants.services()
        for endpoint, site, name in self._operator_sites():
            services.append(self._listening(endpoint, site, name))
        for endpoint, site in self._public_sites():
            services.append(self._listening(endpoint, site, "public" if endpoint == config.http.listen else "p2p"))
        if self._network is not None and self._notes is not None:
            notes = self._notes
            services += [
                notes,
                Periodic(clock, p2p.BEAT_SECONDS, self._network.beat, what="keeping in touch with peers", at_once=True),
                Periodic(clock, p2p.SAVE_SECONDS, notes.keep, what="noting who is known"),
            ]
        services.append(self._backups)
        services.append(SystemdNotices(Notifier.from_environment(os.environ), clock, living.alive, self._status.line))
        return services

    def _producer(self) -> ProducerService:
        workshop = Workshop(
            seed=self._seed,
            threads=self._base.pools.producer.worker,
            workers=self._base.config.participation.workers,
            random=secrets.token_bytes,
            may_produce=lambda: self._status.synced,
        )
        enabled = self._base.config.participation.enabled
        return ProducerService(self._base.living.producer(workshop), enabled=enabled)

    def _participates(self) -> bool:
        if self._participation is None:
            return self._base.config.participation.enabled
        return self._participation.enabled

    def _listening(self, endpoint: str, site: Site, name: str) -> Service:
        self._metrics.watch(name, site)
        server: Any = serverFromString(self._base.reactor, endpoint)  # type: ignore[no-untyped-call]
        factory: Any = site
        drain = self._base.config.limits.drain_seconds
        return Listening(server, factory, description=endpoint, drain=lambda: site.drain(drain))

    def _public_sites(self) -> list[tuple[str, Site]]:
        living, config, limits = self._base.living, self._base.config, self._base.config.limits
        chain = ChainRoutes(living.ledger, transfers=living.transfers, status=self._status, clock=living.clock)
        payments = Payments.followed(living.ledger, living.transfers)
        rooms = [chain, *self._merchants.routes(payments)]
        pages = pages_of(self._base, payments, peers=self._peers, network=self._network)
        public = Public(
            SiteLimits.picked_from(limits, BodyCaps(BODY_CAPS)),
            self._clients,
            Buckets.per_second(limits.rates, limits.burst_seconds),
        )
        peers: list[object] = []
        if self._network is not None:
            peers = self._network.rooms(living.transfers)
        if not config.p2p.listen:
            return [(config.http.listen, self._sites.public(rooms, public, peers=peers, pages=pages))]
        own = (config.p2p.listen, self._sites.between_nodes(peers, public))
        return [own, (config.http.listen, self._sites.public(rooms, public, pages=pages))]

    def _operator_sites(self) -> list[tuple[str, Site, str]]:
        """The socket, which its mode guards, and the port, where there is one, which a token does."""
        config = self._base.config
        sites = [(config.operator_socket, self._operator_site(token=None, hosts=None), "operator")]
        if config.operator_port:
            token = load_or_make_token(config.data_dir / config.operator.token_file, secrets.token_bytes)
            site = self._operator_site(token=token, hosts=config.operator_hosts)
            sites.append((config.operator_port, site, "operator-port"))
        return sites

    def _operator_site(self, *, token: str | None, hosts: Collection[str] | None) -> Site:
        config, living = self._base.config, self._base.living
        peers = self._network.record if self._network else None
        writer = self._base.pools.writer.worker.load
        details = Details(living, writer, self._seed, self._participates, peers, self._merchants.record)
        orders = Orders(self._network.peers, self._notes.save) if self._network and self._notes else None
        rooms: list[object] = [
            OperatorRoutes(self._status, details=details.record, token=token),
            MetricsRoutes(self._metrics.registry, token=token),
            PeerOrders(orders, token=token),
            BackupRoutes(self._backups, token=token),
            ParticipationRoutes(self._status, self._participation, token=token),
            LimitsRoutes(limits_of(config), token=token),
        ]
        if self._demand is not None:
            rooms.append(DevnetRoutes(self._demand, seed=self._seed, token=token))
        return self._sites.operator(rooms, SiteLimits(connections=OPERATOR_CONNECTIONS), hosts=hosts)
