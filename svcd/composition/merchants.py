"""Payments and webhooks: their routes and services."""

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.application.service import Service
from twisted.logger import Logger

from svcd.commerce.leadership import RENEW_SECONDS, Candidate, DatabaseClock, LeaseService
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.commerce.sender import CallbackTester, SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.subscriptions import WatchLimits
from svcd.commerce.webhook_database import WatchSettings, WebhookDatabase, open_webhook_database
from svcd.commerce.webhook_service import BACKLOG_SECONDS, CLEANUP_SECONDS, POLL_SECONDS, WebhookService, build_webhooks
from svcd.composition.resources import NodeResources
from svcd.config.schema import Commerce, Config
from svcd.config.types import unix_milliseconds
from svcd.interfaces import Clock, Worker, milliseconds
from svcd.net.addresses import AddressPolicy
from svcd.net.http_client import PinnedClient
from svcd.net.own_addresses import OwnAddresses
from svcd.net.resolver import SystemResolver
from svcd.net.targets import CALLBACK_NETWORKS, Endpoint, Rules
from svcd.net.trust import load_trust
from svcd.node.node_context import NodeThreads
from svcd.node.status import Status
from svcd.process.timers import Periodic
from svcd.rpc.payment_routes import CommerceRoutes, ProofRoutes
from svcd.rpc.webhook_routes import Merchant, WebhookPolicy, WebhookRoutes
from svcd.store.lease_store import LeaseStore

_LOOK_UPS: Final = 16
_LEAST_LOOK_UPS: Final = 2
_LOG = Logger()


def webhooks_opener(
    config: Config, worker: Worker, threads: NodeThreads, clock: Clock
) -> Callable[[], Awaitable[WebhookDatabase]] | None:
    """The function that opens the webhooks of an open chain; None where they are switched off or misconfigured."""
    commerce = config.commerce
    if commerce.problem:
        _LOG.warn("webhooks answer 503: {problem}", problem=commerce.problem)
    if commerce.refusal:
        return None
    settings = WatchSettings(
        every_depth=commerce.webhooks.confirming_events == "every-depth",
        new_id=lambda: f"svcwh_{secrets.token_hex(16)}",
        limits=WatchLimits(commerce.webhooks.max_watches, commerce.webhooks.max_watches_per_host),
        now=lambda: milliseconds(clock),
        database=commerce.webhooks.database,
        database_file=config.data_dir / commerce.webhooks.database_file if commerce.webhooks.database_file else None,
    )
    return lambda: open_webhook_database(
        config.params,
        config.data_dir,
        chain=config.chain_file,
        worker=worker,
        health=threads.health,
        settings=settings,
    )


class MerchantServices:
    """The routes for merchants, and webhooks where they are switched on."""

    def __init__(self, base: NodeResources, status: Status) -> None:
        self._base = base
        hooks = base.config.commerce.webhooks
        self._rules = Rules.for_callbacks(
            allow_http=hooks.allow_http_callbacks,
            # A name passes here: its addresses are checked once they have been looked up.
            allow_private=hooks.allow_private_callbacks or bool(hooks.callback_networks),
        )
        policy = AddressPolicy(
            allow_private=hooks.allow_private_callbacks,
            networks=hooks.callback_networks,
            setting=CALLBACK_NETWORKS,
            own=_own_addresses(base.config),
        )
        trust, worker = load_trust(base.config.extra_ca_file), base.pools.callbacks
        self._merchants = _merchants(base.config)
        most = look_ups_share(len(self._merchants))
        self._callers = {
            merchant.name: PinnedClient(base.reactor, resolver=SystemResolver(worker, most), policy=policy, trust=trust)
            for merchant in self._merchants
        }
        sending = {
            merchant.name: SendingMerchant(self._callers[merchant.name], merchant.keys) for merchant in self._merchants
        }
        sender, database = WebhookSender(self._rules, sending), base.databases.webhooks
        self._clock = DatabaseClock(base.reactor)
        self._lease: LeaseService | None = None
        self.webhooks = None if database is None else self._build_webhooks(database, sender, status)
        self._tester = None if database is None else self._build_tester(database, sender)

    def services(self) -> list[Service]:
        """What has to run."""
        if self.webhooks is None:
            return []
        clock, webhooks, lease = self._base.reactor, self.webhooks, self._lease
        leading: list[Service] = []
        if lease is not None:
            leading = [lease, Periodic(clock, RENEW_SECONDS, lease.renew, what="looking at the lease")]
        return [
            *leading,
            webhooks,
            Periodic(clock, POLL_SECONDS, webhooks.poll, what="polling webhooks"),
            Periodic(clock, BACKLOG_SECONDS, webhooks.refresh_backlog, what="counting webhooks", at_once=True),
            Periodic(clock, CLEANUP_SECONDS, webhooks.clean_up, what="cleaning up webhooks"),
        ]

    def routes(self, payments: PaymentLookup, waiters: PaymentWaiters) -> list[object]:
        """The merchants' routes of the public site."""
        node_context, commerce = self._base.node_context, self._base.config.commerce
        hooks = commerce.webhooks
        policy = WebhookPolicy(
            problem=commerce.refusal,
            merchants=self._merchants,
            default_ttl=hooks.default_ttl_seconds,
            max_ttl=hooks.max_ttl_seconds,
        )
        routes = WebhookRoutes(
            node_context.chain_manager.params,
            policy,
            webhooks=self.webhooks,
            rules=self._rules,
            callers=self._callers,
            tester=self._tester,
            now=lambda: milliseconds(self._clock),
        )
        enabled = not commerce.refusal
        return [
            CommerceRoutes(
                node_context.chain_manager,
                payments,
                waiters,
                random=secrets.token_bytes,
                webhooks_enabled=enabled,
            ),
            ProofRoutes(node_context.chain_manager, payments, self._base.pools.verifier),
            routes,
        ]

    @property
    def role(self) -> Callable[[], str] | None:
        """Tells what this node does of the work of those that share a database; None where it is the only one."""
        webhooks = self.webhooks
        return (lambda: webhooks.role.value) if webhooks is not None and webhooks.shared else None

    @property
    def record(self) -> Callable[[], dict[str, object]] | None:
        """The state of callbacks for the operator's status; None where there are none."""
        return None if self.webhooks is None else self.webhooks.record

    def _build_tester(self, database: WebhookDatabase, sender: WebhookSender) -> CallbackTester:
        chain = database.subscriptions.repository.chain
        return CallbackTester(sender, chain, self._clock, new_id=lambda: secrets.token_hex(16))

    def _build_webhooks(self, database: WebhookDatabase, sender: WebhookSender, status: Status) -> WebhookService:
        if database.lease is not None:
            self._lease = self._build_lease(database.lease, status)
        webhooks = build_webhooks(
            database,
            self._base.node_context,
            sender=sender,
            synced=lambda: status.current,
            chance=secrets.SystemRandom().random,
            alarms=status.chain_alarms,
            keep_days=self._base.config.commerce.webhooks.keep_days,
            leadership=self._lease,
            clock=self._clock,
        )
        if self._lease is not None:
            self._lease.subscribe(webhooks.leadership_changed)
        return webhooks

    def _build_lease(self, store: LeaseStore, status: Status) -> LeaseService:
        chain_manager = self._base.node_context.chain_manager
        candidate = Candidate(
            # Of this run: what an earlier one has begun is over.
            name=f"{status.node_id[:16]}.{secrets.token_hex(4)}",
            ready=lambda: self.webhooks is not None and self.webhooks.ready,
            work=lambda: chain_manager.tip.work,
            settings=shared_settings(self._base.config.commerce),
        )
        return LeaseService(
            store,
            self._base.pools.lease,
            clock=self._base.reactor,
            candidate=candidate,
            set_time=self._clock.set_unix_time,
        )


def look_ups(merchants: int) -> int:
    """How many names of callbacks may be looked up at once, each in a thread and on a socket."""
    return max(_LOOK_UPS, _LEAST_LOOK_UPS * merchants)


def look_ups_share(merchants: int) -> int:
    """How many of them each merchant may have: a name without an answer must not stop the other merchants."""
    return max(_LOOK_UPS // max(merchants, 1), _LEAST_LOOK_UPS)


def shared_settings(commerce: Commerce) -> bytes:
    """A digest of the settings and secrets that all nodes with one database should have in common."""
    hooks = commerce.webhooks
    values = [
        *(
            (each.name, each.secrets, each.previous_token_until, sorted(each.recipients))
            for each in sorted(commerce.all_merchants, key=lambda merchant: merchant.name)
        ),
        *(hooks.default_ttl_seconds, hooks.max_ttl_seconds, hooks.max_watches, hooks.max_watches_per_host),
        *(hooks.confirming_events, hooks.keep_days, hooks.allow_http_callbacks, hooks.allow_private_callbacks),
        sorted(map(str, hooks.callback_networks)),
    ]
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=16, person=b"svcd commerce").digest()


def _merchants(config: Config) -> tuple[Merchant, ...]:
    """None where webhooks are switched off or cannot work."""
    if config.commerce.refusal:
        return ()
    return tuple(
        Merchant(
            name=merchant.name,
            token=merchant.token,
            previous_token=merchant.previous_token,
            previous_until=unix_milliseconds(merchant.previous_token_until),
            read_only_token=merchant.read_only_token,
            keys=SigningKeys(merchant.signing_secret, merchant.previous_signing_secret),
            recipients=frozenset(merchant.recipients),
        )
        for merchant in config.commerce.all_merchants
    )


def _own_addresses(config: Config) -> OwnAddresses:
    """The addresses of this machine, and those in the public URLs."""
    named = [Endpoint(url).address for url in (config.http.public_url, config.p2p.public_url) if url]
    return OwnAddresses(address for address in named if address is not None)
