"""A node among strangers, with everything measured that a running node measures."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.commerce.attempt import Sender
from svcd.commerce.desk import Desk, Terms, open_desk
from svcd.commerce.service import Merchants, join
from svcd.commerce.signing import SigningKeys
from svcd.metrics.exposition import Metrics, MetricsRoutes
from svcd.metrics.node import measured as measured_of
from svcd.net.calls import CallFailed, Reply
from svcd.net.targets import Rules
from svcd.node.guard import Guard
from svcd.node.living import PoolLimits
from svcd.node.threads import Load
from svcd.rpc.sites import Sites
from svcd.web.limits import SiteLimits
from svcd.web.site import Site
from tests.p2p.bench import Inline, Node
from tests.p2p.conftest import builder, grow, make_node, make_stranger, node, town
from tests.support import result_of

__all__ = ["builder", "grow", "make_node", "make_stranger", "node", "town"]

POOL = PoolLimits(50_000, 1 << 26)


@frozen
class Measured:
    """A node with its metrics, and the operator's site that shows them."""

    node: Node
    metrics: Metrics
    loads: dict[str, Load]
    operator: Site
    merchants: Merchants

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
    """``measure(node, token=…)``: the node with webhooks, measured from now on."""
    desks: list[Desk] = []

    def make(node: Node, token: str | None = None) -> Measured:
        merchants = _merchants(node, desks)
        loads = {name: Load(node.clock) for name in ("writer", "verifier")}
        metrics = measured_of(node.living, node.status, POOL, loads=loads, network=node.network, merchants=merchants)
        sites = Sites(node.clock, lambda: "e")
        operator = sites.operator([MetricsRoutes(metrics.registry, token=token)], SiteLimits())
        metrics.watch("public", node.site)
        metrics.watch("operator", operator)
        return Measured(node, metrics, loads, operator, merchants)

    yield make
    for desk in desks:
        result_of(Deferred.fromCoroutine(desk.close()))


def _merchants(node: Node, desks: list[Desk]) -> Merchants:
    terms = Terms(every_depth=True, new_id=lambda: "svcwh_" + 32 * "1", now=lambda: 0)
    opening = open_desk(
        node.setting.params,
        node.path.parent,
        chain=node.path,
        worker=Inline(),
        guard=Guard(lambda: None),
        terms=terms,
    )
    desks.append(result_of(Deferred.fromCoroutine(opening)))
    sender = Sender(Refusing(), Rules.for_callbacks(), SigningKeys("s" * 32))
    return join(desks[-1], node.living, sender=sender, synced=lambda: True, chance=lambda: 0.5)


class Refusing:
    """Reaches no merchant."""

    async def call(self, *_: object, **__: object) -> Reply:
        raise CallFailed("connect", "nobody is there")


@pytest.fixture
def measured(node: Any, measure: Callable[..., Measured]) -> Measured:
    """A node that knows nobody, measured."""
    return measure(node)
