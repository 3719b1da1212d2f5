"""A node among strangers, with everything measured that a running node measures."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from twisted.internet.task import Clock

from svcd.metrics.exposition import Metrics, MetricsRoutes
from svcd.metrics.node import measured as measured_of
from svcd.node.living import PoolLimits
from svcd.node.threads import Load
from svcd.rpc.sites import Sites
from svcd.web.limits import SiteLimits
from svcd.web.site import Site
from tests.p2p.bench import Node
from tests.p2p.conftest import builder, grow, make_node, make_stranger, node, town

__all__ = ["builder", "grow", "make_node", "make_stranger", "node", "town"]

POOL = PoolLimits(50_000, 1 << 26)


@frozen
class Measured:
    """A node with its metrics, and the operator's site that shows them."""

    node: Node
    metrics: Metrics
    loads: dict[str, Load]
    operator: Site

    @property
    def clock(self) -> Clock:
        return self.node.clock

    def value(self, name: str, **labels: str) -> float:
        """What a metric says now."""
        value = self.metrics.registry.get_sample_value(name, labels)
        assert value is not None, (name, labels)
        return value


@pytest.fixture
def measure() -> Callable[..., Measured]:
    """``measure(node, token=…)``: the node, measured from now on."""

    def make(node: Node, token: str | None = None) -> Measured:
        loads = {name: Load(node.clock) for name in ("writer", "verifier")}
        metrics = measured_of(node.living, node.status, POOL, loads=loads, network=node.network)
        sites = Sites(node.clock, lambda: "e")
        operator = sites.operator([MetricsRoutes(metrics.registry, token=token)], SiteLimits())
        metrics.watch("public", node.site)
        metrics.watch("operator", operator)
        return Measured(node, metrics, loads, operator)

    return make


@pytest.fixture
def measured(node: Any, measure: Callable[..., Measured]) -> Measured:
    """A node that knows nobody, measured."""
    return measure(node)
