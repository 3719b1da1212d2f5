"""Payments and webhooks: their routes and services."""

import secrets
from collections.abc import Awaitable, Callable

from twisted.application.service import Service
from twisted.logger import Logger

from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.commerce.sender import WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.webhook_database import WatchSettings, WebhookDatabase, open_webhook_database
from svcd.commerce.webhook_service import BACKLOG_SECONDS, CLEANUP_SECONDS, POLL_SECONDS, WebhookService, build_webhooks
from svcd.composition.resources import NodeResources
from svcd.config.schema import Config
from svcd.interfaces import Clock, Worker, milliseconds
from svcd.net.addresses import AddressPolicy
from svcd.net.endpoint import Endpoint
from svcd.net.http_client import PinnedClient
from svcd.net.own_addresses import OwnAddresses
from svcd.net.resolver import SystemResolver
from svcd.net.targets import CALLBACK_NETWORKS, Rules
from svcd.net.trust import load_trust
from svcd.node.node_context import NodeThreads
from svcd.node.status import Status
from svcd.process.timers import Periodic
from svcd.rpc.payment_routes import CommerceRoutes, ProofRoutes
from svcd.rpc.webhook_routes import WebhookPolicy, WebhookRoutes

_LOG = Logger()


def webhooks_opener(
    config: Config, worker: Worker, threads: NodeThreads, clock: Clock
) -> Callable[[], Awaitable[WebhookDatabase]] | None:
    """What opens the webhooks beside the open chain; None where they are switched off or cannot work."""
    hooks = config.commerce.webhooks
    if hooks.problem:
        _LOG.warn("webhooks answer 503: {problem}", problem=hooks.problem)
    if hooks.refusal:
        return None
    settings = WatchSettings(
        every_depth=hooks.confirming_events == "every-depth",
        new_id=lambda: f"svcwh_{secrets.token_hex(16)}",
        now=lambda: milliseconds(clock),
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
            # Names are looked up, and their addresses decide.
            allow_private=hooks.allow_private_callbacks or bool(hooks.callback_networks),
        )
        self._caller = PinnedClient(
            base.reactor,
            resolver=SystemResolver(base.pools.callbacks.worker),
            policy=AddressPolicy(
                allow_private=hooks.allow_private_callbacks,
                networks=hooks.callback_networks,
                setting=CALLBACK_NETWORKS,
                own=_own_addresses(base.config),
            ),
            trust=load_trust(base.config.extra_ca_file),
        )
        database = base.files.webhooks
        self.webhooks = None if database is None else self._build_webhooks(database, status)

    def services(self) -> list[Service]:
        """What has to run."""
        if self.webhooks is None:
            return []
        clock, webhooks = self._base.reactor, self.webhooks
        return [
            webhooks,
            Periodic(clock, POLL_SECONDS, webhooks.poll, what="polling webhooks"),
            Periodic(clock, BACKLOG_SECONDS, webhooks.refresh_backlog, what="counting webhooks", at_once=True),
            Periodic(clock, CLEANUP_SECONDS, webhooks.clean_up, what="cleaning up webhooks"),
        ]

    def routes(self, payments: PaymentLookup, waiters: PaymentWaiters) -> list[object]:
        """The merchants' routes of the public site."""
        node_context, hooks = self._base.node_context, self._base.config.commerce.webhooks
        offer = WebhookPolicy(
            problem=hooks.refusal,
            token=hooks.manage_token,
            default_ttl=hooks.default_ttl_seconds,
            max_ttl=hooks.max_ttl_seconds,
        )
        routes = WebhookRoutes(
            node_context.chain_manager.params, offer, webhooks=self.webhooks, rules=self._rules, caller=self._caller
        )
        enabled = not hooks.refusal
        return [
            CommerceRoutes(
                node_context.chain_manager,
                payments,
                waiters,
                random=secrets.token_bytes,
                webhooks_enabled=enabled,
            ),
            ProofRoutes(node_context.chain_manager, payments, self._base.pools.verifier.worker),
            routes,
        ]

    @property
    def record(self) -> Callable[[], dict[str, object]] | None:
        """Tells the operator how callbacks stand; None where there are none."""
        return None if self.webhooks is None else self.webhooks.record

    def _build_webhooks(self, database: WebhookDatabase, status: Status) -> WebhookService:
        hooks = self._base.config.commerce.webhooks
        keys = SigningKeys(hooks.signing_secret, hooks.previous_signing_secret)
        sender, chance = WebhookSender(self._caller, self._rules, keys), secrets.SystemRandom().random
        return build_webhooks(
            database,
            self._base.node_context,
            sender=sender,
            synced=lambda: status.current,
            chance=chance,
            keep_days=hooks.keep_days,
        )


def _own_addresses(config: Config) -> OwnAddresses:
    """The addresses of this machine, and those in the public URLs."""
    named = [Endpoint(url).address for url in (config.http.public_url, config.p2p.public_url) if url]
    return OwnAddresses(address for address in named if address is not None)
