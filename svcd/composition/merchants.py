"""The room of merchants, put together."""

import secrets
from collections.abc import Awaitable, Callable

from twisted.application.service import Service
from twisted.logger import Logger

from svcd.commerce import service as commerce
from svcd.commerce.attempt import Sender
from svcd.commerce.desk import Desk, Terms, open_desk
from svcd.commerce.looking import Payments
from svcd.commerce.signing import SigningKeys
from svcd.commerce.webhooks import COUNT_SECONDS, STEP_SECONDS, TIDY_SECONDS
from svcd.composition.node import Foundation
from svcd.config.schema import Config
from svcd.net.addresses import AddressPolicy
from svcd.net.endpoint import Endpoint
from svcd.net.own import OwnAddresses
from svcd.net.pinned import PinnedCaller
from svcd.net.resolving import SystemResolver
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.node.living import Threads
from svcd.node.status import Status
from svcd.node.threads import Worker
from svcd.ports import Clock, milliseconds
from svcd.process.timers import Periodic
from svcd.rpc.merchants import merchant_rooms
from svcd.rpc.webhooks import Offer, WebhookRoutes

_LOG = Logger()


def desk_of(config: Config, worker: Worker, threads: Threads, clock: Clock) -> Callable[[], Awaitable[Desk]] | None:
    """What opens the webhooks beside the open chain; None where they are switched off or cannot work."""
    hooks = config.commerce.webhooks
    if hooks.problem:
        _LOG.warn("webhooks answer 503: {problem}", problem=hooks.problem)
    if hooks.refusal:
        return None
    terms = Terms(
        every_depth=hooks.confirming_events == "every-depth",
        new_id=lambda: f"svcwh_{secrets.token_hex(16)}",
        now=lambda: milliseconds(clock),
    )
    return lambda: open_desk(
        config.params,
        config.data_dir,
        chain=config.chain_file,
        worker=worker,
        guard=threads.guard,
        terms=terms,
    )


class MerchantsRoom:
    """Everything for merchants: routes for all, and webhooks where they are switched on."""

    def __init__(self, base: Foundation, status: Status) -> None:
        self._base = base
        hooks = base.config.commerce.webhooks
        self._rules = Rules.for_callbacks(
            allow_http=hooks.allow_http_callbacks, allow_private=hooks.allow_private_callbacks
        )
        self._caller = PinnedCaller(
            base.reactor,
            resolver=SystemResolver(base.pools.callbacks.worker),
            policy=AddressPolicy(allow_private=hooks.allow_private_callbacks, own=_own_addresses(base.config)),
            trust=load_trust(base.config.extra_ca_file),
        )
        desk = base.files.desk
        self.merchants = None if desk is None else self._deliver(desk, status)

    def services(self) -> list[Service]:
        """What has to run."""
        if self.merchants is None:
            return []
        clock, webhooks = self._base.reactor, self.merchants.webhooks
        return [
            webhooks,
            Periodic(clock, STEP_SECONDS, webhooks.look, what="looking after webhooks"),
            Periodic(clock, COUNT_SECONDS, webhooks.count, what="counting webhooks", at_once=True),
            Periodic(clock, TIDY_SECONDS, webhooks.tidy, what="tidying the webhooks up"),
        ]

    def routes(self, payments: Payments) -> list[object]:
        """The rooms of the public site that are for merchants."""
        living, hooks = self._base.living, self._base.config.commerce.webhooks
        offer = Offer(
            problem=hooks.refusal,
            token=hooks.manage_token,
            default_ttl=hooks.default_ttl_seconds,
            max_ttl=hooks.max_ttl_seconds,
        )
        webhooks = None if self.merchants is None else self.merchants.webhooks
        routes = WebhookRoutes(living.ledger.params, offer, webhooks=webhooks, rules=self._rules, caller=self._caller)
        verifier = self._base.pools.verifier.worker
        return merchant_rooms(living, routes, payments=payments, verifier=verifier, random=secrets.token_bytes)

    @property
    def record(self) -> Callable[[], dict[str, object]] | None:
        """Tells the operator how callbacks stand; None where there are none."""
        return None if self.merchants is None else self.merchants.record

    def _deliver(self, desk: Desk, status: Status) -> commerce.Merchants:
        hooks = self._base.config.commerce.webhooks
        keys = SigningKeys(hooks.signing_secret, hooks.previous_signing_secret)
        sender, chance = Sender(self._caller, self._rules, keys), secrets.SystemRandom().random
        return commerce.join(desk, self._base.living, sender=sender, synced=lambda: status.synced, chance=chance)


def _own_addresses(config: Config) -> OwnAddresses:
    """This machine's, and those that the operator has published."""
    named = [Endpoint(url).address for url in (config.http.public_url, config.p2p.public_url) if url]
    return OwnAddresses(address for address in named if address is not None)
