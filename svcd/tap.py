"""The composition root: the one file that sees every room, and the one that imports the reactor."""

import os
import secrets
from collections.abc import Callable
from typing import Any, Final

from attrs import fields, frozen
from twisted.application.service import Service
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString

from svcd.chain.address import encode_address, key_hash, node_id
from svcd.chain.errors import Corrupt
from svcd.chain.params import NETWORKS
from svcd.chain.signature import public_key_of
from svcd.config.schema import Config, Limits
from svcd.node.living import LivingChain, PoolLimits, Threads, open_chain
from svcd.node.producer import ProducerService, Workshop
from svcd.node.seedfile import SeedFileError, load_or_make, load_or_make_token
from svcd.node.status import Alone, Identity, Status
from svcd.node.threads import ThreadsService, share_the_interpreter
from svcd.process.datadir import DataDirectory
from svcd.process.leaving import leaving_with
from svcd.process.listening import Listening
from svcd.process.logs import make_observer
from svcd.process.notify import Notifier, SystemdNotices
from svcd.process.options import Options
from svcd.process.root import Root, log_writer
from svcd.process.sequential import Sequential
from svcd.process.timers import Periodic
from svcd.rpc.operator import DevnetRoutes, OperatorRoutes
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Public, Sites
from svcd.store.database import DatabaseError
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients
from svcd.web.limits import SiteLimits
from svcd.web.site import Site

__all__ = ["Options", "makeService"]

SENTENCES: Final = (DatabaseError, Corrupt, SeedFileError)
"""Errors whose text is for the operator: no traceback is needed."""
OPERATOR_SECONDS: Final = 900.0
EXPIRY_SECONDS: Final = 60.0


def makeService(options: Options) -> Root:
    """The service that twistd runs, from the options of its command line."""
    config = options.config
    write = log_writer(options.parent or {})
    observer = None if write is None else make_observer(config.log.format, config.log.level, write)
    root = Root(leaving_with(global_reactor), observer=observer, sentences=SENTENCES)
    pools = Pools(
        writer=ThreadsService(global_reactor, size=1, name="writer"),
        verifier=ThreadsService(global_reactor, size=os.cpu_count() or 1, name="verifier"),
        producer=ThreadsService(global_reactor, size=config.participation.workers, name="producer"),
    )
    root.addService(DataDirectory(config.data_dir, sockets=("operator.sock",)))
    for pool in (pools.writer, pools.verifier, pools.producer):
        root.addService(pool)
    root.addService(Node(config, pools, global_reactor, leaving_with(global_reactor)))
    return root


@frozen
class Pools:
    """The threads of the process."""

    writer: ThreadsService
    verifier: ThreadsService
    producer: ThreadsService


class Node(Service):
    """The node: opens its chain, then runs everything that stands on it, and puts it to rest in reverse order."""

    name = "node"

    def __init__(self, config: Config, pools: Pools, reactor: Any, leave: Callable[[int], object]) -> None:
        self._config = config
        self._pools = pools
        self._reactor = reactor
        self._rooms = Sequential(leave, sentences=SENTENCES)
        self._living: LivingChain | None = None

    def startService(self) -> Deferred[None]:
        """Open the chain and start the rooms; raises what :data:`SENTENCES` names."""
        super().startService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._start())

    def stopService(self) -> Deferred[None]:
        """Stop the rooms one after the other, and close the database last."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        share_the_interpreter()
        config, pools = self._config, self._pools
        threads = Threads(pools.writer.worker, pools.verifier.worker, pools.verifier.size)
        pool = PoolLimits(config.mempool.max_transactions, config.mempool.max_bytes)
        params, path = NETWORKS[config.network], config.data_dir / "chain.sqlite"
        self._living = living = await open_chain(params, path, threads=threads, pool=pool, clock=self._reactor)
        for service in Rooms(config, living, pools, self._reactor).services():
            self._rooms.addService(service)
        await self._rooms.startService()

    async def _stop(self) -> None:
        await self._rooms.stopService()
        living, self._living = self._living, None
        if living is not None:
            await living.close()


class Rooms:
    """Everything that stands on an open chain."""

    def __init__(self, config: Config, living: LivingChain, pools: Pools, reactor: Any) -> None:
        self._config = config
        self._living = living
        self._pools = pools
        self._reactor = reactor
        seed = load_or_make(config.data_dir / "node.key", secrets.token_bytes)
        identity = Identity(node_id(public_key_of(seed)), config.http.public_url)
        peers = Alone(config.participation.alone)
        self._status = Status(living.ledger, identity=identity, peers=peers, clock=reactor)
        self._operator_seed = load_or_make(config.data_dir / config.participation.key_file, secrets.token_bytes)
        self._sites = Sites(reactor, lambda: secrets.token_hex(8))

    def services(self) -> list[Service]:
        """The services in the order of their start: the ports open last, READY is said when all is."""
        config, living = self._config, self._living
        services: list[Service] = [
            Periodic(self._reactor, EXPIRY_SECONDS, living.transfers.expire, what="letting go of expired transfers")
        ]
        if config.participation.enabled and not config.participation.on_demand:
            services.append(self._producer())
        drain = config.limits.drain_seconds
        services.append(self._listening(config.operator_endpoint, self._operator_site(), drain))
        services.append(self._listening(config.http.listen, self._public_site(), drain))
        notifier = Notifier.from_environment(os.environ)
        services.append(SystemdNotices(notifier, self._reactor, self._writer_answers))
        return services

    async def _writer_answers(self) -> None:
        await self._pools.writer.worker.run(lambda: None)

    def _producer(self) -> Service:
        participation = self._config.participation
        workshop = Workshop(
            seed=self._operator_seed,
            threads=self._pools.producer.worker,
            workers=participation.workers,
            random=secrets.token_bytes,
            may_produce=lambda: self._status.synced,
        )
        return ProducerService(self._living.producer(workshop))

    def _listening(self, endpoint: str, site: Site, drain: float) -> Service:
        server: Any = serverFromString(self._reactor, endpoint)  # type: ignore[no-untyped-call]
        factory: Any = site
        return Listening(server, factory, description=endpoint, drain=lambda: site.drain(drain))

    def _public_site(self) -> Site:
        living, config = self._living, self._config
        chain = ChainRoutes(living.ledger, transfers=living.transfers, status=self._status, clock=self._reactor)
        clients = Clients(map(str, config.http.trusted_proxies), map(str, config.limits.exempt))
        return self._sites.public([chain], Public(_site_limits(config.limits), clients, Buckets(_rates(config.limits))))

    def _operator_site(self) -> Site:
        config, living = self._config, self._living
        token = None
        if not config.operator_endpoint.startswith("unix:"):
            token = load_or_make_token(config.data_dir / config.operator.token_file, secrets.token_bytes)
        rooms: list[object] = [OperatorRoutes(self._status, details=self._details, token=token)]
        if config.network == "devnet":
            rooms.append(DevnetRoutes(living.on_demand(secrets.token_bytes), seed=self._operator_seed, token=token))
        return self._sites.operator(rooms, SiteLimits(answer_seconds=OPERATOR_SECONDS))

    def _details(self) -> dict[str, object]:
        living = self._living
        params = living.ledger.params
        producer = encode_address(key_hash(public_key_of(self._operator_seed)), params.address_prefix)
        return {
            "participation": {"enabled": self._config.participation.enabled, "address": producer},
            "mempool": {"transactions": len(living.transfers.mempool), "bytes": living.transfers.mempool.size},
            "verifierQueue": living.verifier.waiting,
        }


def _rates(limits: Limits) -> dict[str, Rate]:
    per_second = {
        "read": limits.requests_per_second,
        "broadcast": limits.broadcasts_per_second,
        "webhooks": limits.webhooks_per_second,
        "p2p": limits.peer_posts_per_second,
    }
    return {name: Rate(rate, max(rate * limits.burst_seconds, 1)) for name, rate in per_second.items()}


def _site_limits(limits: Limits) -> SiteLimits:
    shared = {field.name for field in fields(SiteLimits)} & {field.name for field in fields(Limits)}
    return SiteLimits(**{name: getattr(limits, name) for name in shared})
