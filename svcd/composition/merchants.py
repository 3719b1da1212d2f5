"""Payments and webhooks: their routes and services."""

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import apsw
from attrs import frozen
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.commerce.leadership import RENEW_SECONDS, Candidate, DatabaseClock, LeaseService
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.commerce.sender import CallbackTester, SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.watch_operations import WatchLimits
from svcd.commerce.webhook_database import WatchSettings, WebhookDatabase, open_webhook_database
from svcd.commerce.webhook_service import BACKLOG_SECONDS, CLEANUP_SECONDS, POLL_SECONDS, WebhookService, build_webhooks
from svcd.composition.resources import NodeResources
from svcd.config.layers import ConfigError
from svcd.config.schema import Commerce, Config, MerchantSettings
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
from svcd.rpc.payment_routes import CommerceRoutes
from svcd.rpc.proof_routes import ProofRoutes
from svcd.rpc.webhook_routes import Merchant, WebhookPolicy, WebhookRoutes
from svcd.store.database import DatabaseUnavailable, is_disk_trouble
from svcd.store.lease_store import LeaseStore

_LOOK_UPS: Final = 16
_MIN_LOOK_UPS: Final = 2
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

        def caller(max_look_ups: int) -> PinnedClient:
            return PinnedClient(base.reactor, resolver=SystemResolver(worker, max_look_ups), policy=policy, trust=trust)

        self._caller = caller
        self._max_look_ups = 0
        self._callers: dict[str, PinnedClient] = {}
        self._sending: dict[str, SendingMerchant] = {}
        self._routes: WebhookRoutes | None = None
        self._merchants: tuple[Merchant, ...] = ()
        self._set_merchants(_merchants(base.config.commerce))
        sender, database = WebhookSender(self._rules, self._sending), base.databases.webhooks
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
        self._routes = routes
        enabled = not commerce.refusal
        return [
            CommerceRoutes(
                node_context.chain_manager,
                payments,
                waiters,
                random=secrets.token_bytes,
                webhooks_enabled=enabled,
            ),
            ProofRoutes(node_context, payments),
            routes,
        ]

    async def reload(self, running: Commerce, new: Commerce) -> dict[str, object]:
        """Serve the merchants of ``new`` instead of those of ``running``; returns the changes for the operator.

        Tokens, secrets and recipients hold from the next request and attempt on. Of a removed merchant nothing is
        deleted: its watches go on, and its events wait as in :meth:`WebhookDispatcher.enqueue`.

        Raises:
            ConfigError: webhooks do not work, or their database does not answer; nothing has changed.
        """
        changes = merchant_changes(running, new)
        webhooks = self.webhooks
        if webhooks is None:
            raise ConfigError("webhooks do not work on the running node: correct the configuration, and restart it")

        def apply() -> None:
            self._base.pools.callbacks.grow(look_ups(len(new.all_merchants)))
            self._set_merchants(_merchants(new))
            if self._lease is not None:
                self._lease.settings_changed(shared_settings(new))

        try:
            kept = await webhooks.change_merchants(apply, added=changes.added, removed=changes.removed)
        except (DatabaseUnavailable, apsw.Error) as error:
            if not is_disk_trouble(error):
                raise
            raise ConfigError(f"the webhooks' database does not answer: {error}") from error
        return {
            "added": list(changes.added),
            "changed": [{"name": name, "settings": list(names)} for name, names in changes.changed.items()],
            "removed": [
                {"name": name, "watches": kept[name].watches, "undelivered": kept[name].undelivered}
                for name in changes.removed
            ],
        }

    def _set_merchants(self, merchants: tuple[Merchant, ...]) -> None:
        """Change the callers and senders of the merchants in place, because the routes and the dispatcher have them."""
        max_look_ups = look_ups_share(len(merchants))
        kept = self._callers if max_look_ups == self._max_look_ups else {}
        callers = {merchant.name: kept.get(merchant.name) or self._caller(max_look_ups) for merchant in merchants}
        self._max_look_ups, self._merchants = max_look_ups, merchants
        sending = {each.name: SendingMerchant(callers[each.name], each.keys) for each in merchants}
        self._callers.clear()
        self._callers.update(callers)
        self._sending.clear()
        self._sending.update(sending)
        if self._routes is not None:
            self._routes.set_merchants(merchants)

    @property
    def role(self) -> Callable[[], str] | None:
        """Gives this node's part in the work of those that share a database; None where it is the only one."""
        webhooks = self.webhooks
        return (lambda: webhooks.role.value) if webhooks is not None and webhooks.shared else None

    @property
    def record(self) -> Callable[[], dict[str, object]] | None:
        """The state of callbacks for the operator's status; None where there are none."""
        return None if self.webhooks is None else self.webhooks.record

    def _build_tester(self, database: WebhookDatabase, sender: WebhookSender) -> CallbackTester:
        chain = database.operations.repository.chain
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
            news=self._base.news,
        )
        if self._lease is not None:
            self._lease.subscribe(webhooks.leadership_changed)
            self._base.node_context.guard.second_doubt = self._clock.doubt
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
    return max(_LOOK_UPS, _MIN_LOOK_UPS * merchants)


def look_ups_share(merchants: int) -> int:
    """How many of them each merchant may have: a name without an answer must not stop the other merchants."""
    return max(_LOOK_UPS // max(merchants, 1), _MIN_LOOK_UPS)


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


@frozen
class MerchantChanges:
    """What differs between the merchants of two configurations, by their names."""

    added: tuple[str, ...]
    changed: dict[str, tuple[str, ...]]
    """With the names of the settings."""
    removed: tuple[str, ...]


def merchant_changes(running: Commerce, new: Commerce) -> MerchantChanges:
    """The merchants that a reload adds, changes and removes."""
    before = {each.name: _compared(each) for each in running.all_merchants}
    after = {each.name: _compared(each) for each in new.all_merchants}
    differing = {
        name: tuple(key for key, value in settings.items() if value != before[name][key])
        for name, settings in after.items()
        if name in before
    }
    return MerchantChanges(
        added=tuple(name for name in after if name not in before),
        changed={name: keys for name, keys in differing.items() if keys},
        removed=tuple(name for name in before if name not in after),
    )


def _compared(merchant: MerchantSettings) -> dict[str, object]:
    return {
        "token": merchant.token,
        "previousToken": (merchant.previous_token, merchant.previous_token_until),
        "readOnlyToken": merchant.read_only_token,
        "signingSecret": merchant.signing_secret,
        "previousSigningSecret": merchant.previous_signing_secret,
        "recipients": frozenset(merchant.recipients),
    }


def _merchants(commerce: Commerce) -> tuple[Merchant, ...]:
    """None where webhooks are switched off or cannot work."""
    if commerce.refusal:
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
        for merchant in commerce.all_merchants
    )


def _own_addresses(config: Config) -> OwnAddresses:
    """The addresses of this machine, and those in the public URLs."""
    named = [Endpoint(url).address for url in (config.http.public_url, config.p2p.public_url) if url]
    return OwnAddresses(address for address in named if address is not None)
