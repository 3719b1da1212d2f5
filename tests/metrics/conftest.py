"""A node with remote nodes and all metrics that a running node has."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.commerce.sender import SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.watch_operations import WatchLimits
from svcd.commerce.webhook_database import WatchSettings, WebhookDatabase, open_webhook_database
from svcd.commerce.webhook_service import WebhookService, build_webhooks
from svcd.interfaces import Worker
from svcd.metrics.exposition import Metrics, MetricsRoutes
from svcd.metrics.exposition import collect_from as measured_of
from svcd.net.calls import CallFailed, Reply
from svcd.net.targets import Rules
from svcd.node.database_health import DatabaseHealth
from svcd.node.sweeper import Sweeper, SweepSettings
from svcd.node.threads import InlineWorker, PoolLoad
from svcd.rpc.sites import SiteFactory
from svcd.web.connections import SiteLimits
from svcd.web.site import Site
from tests.chains import COIN, key_of
from tests.p2p.bench import Node
from tests.p2p.conftest import builder, grow, make_node, node, transport
from tests.support import result_of

__all__ = ["builder", "grow", "make_node", "node", "transport"]


@frozen
class Measured:
    """A node with its metrics, and the operator's site that shows them."""

    node: Node
    metrics: Metrics
    loads: dict[str, PoolLoad]
    operator: Site
    webhooks: WebhookService

    @property
    def clock(self) -> Clock:
        return self.node.clock

    def value(self, name: str, **labels: str) -> float:
        """What a metric says now."""
        value = self.metrics.registry.get_sample_value(name, labels)
        assert value is not None, (name, labels)
        return value


@pytest.fixture
def measure() -> Iterator[Callable[..., Measured]]:
    """``measure(node, token=…, worker=…)``: the node with webhooks, measured from now on."""
    databases: list[WebhookDatabase] = []

    def make(
        node: Node,
        token: str | None = None,
        worker: Worker | None = None,
        others_turn: Callable[[], str] = lambda: "",
    ) -> Measured:
        webhooks = _webhooks(node, databases)
        loads = {name: PoolLoad(node.clock) for name in ("writer", "verifier")}
        sweep_settings = SweepSettings(
            seed=key_of("own").seed, pay_to=node.builder.address("vault"), above=50 * COIN, may_send=lambda: True
        )
        metrics = measured_of(
            node.node_context,
            node.status,
            loads=loads,
            network=node.network,
            webhooks=webhooks,
            others_turn=others_turn,
            sweeper=Sweeper(node.node_context, sweep_settings),
            dropped_lines=lambda: 0,
        )
        sites = SiteFactory(node.clock, lambda: "e")
        routes = MetricsRoutes(metrics, InlineWorker() if worker is None else worker, token=token)
        operator = sites.operator([routes], SiteLimits())
        metrics.watch("public", node.site)
        metrics.watch("operator", operator)
        return Measured(node, metrics, loads, operator, webhooks)

    yield make
    for database in databases:
        result_of(Deferred.fromCoroutine(database.close()))


def _webhooks(node: Node, databases: list[WebhookDatabase]) -> WebhookService:
    settings = WatchSettings(
        every_depth=True, new_id=lambda: "svcwh_" + 32 * "1", limits=WatchLimits(10, 10), now=lambda: 0
    )
    opening = open_webhook_database(
        node.setting.params,
        node.path.parent,
        chain=node.path,
        worker=InlineWorker(),
        health=DatabaseHealth(lambda: None),
        settings=settings,
    )
    databases.append(result_of(Deferred.fromCoroutine(opening)))
    sender = WebhookSender(Rules.for_callbacks(), {"default": SendingMerchant(Refusing(), SigningKeys("s" * 32))})
    return build_webhooks(
        databases[-1], node.node_context, sender=sender, synced=lambda: True, chance=lambda: 0.5, keep_days=7
    )


class Refusing:
    """Reaches no merchant."""

    async def call(self, *_: object, **__: object) -> Reply:
        raise CallFailed("connect", "nobody is there")


@pytest.fixture
def measured(node: Any, measure: Callable[..., Measured]) -> Measured:
    """A node that knows nobody, measured."""
    return measure(node)
