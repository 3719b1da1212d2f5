"""Everything that is measured, on one page for the operator (docs/operations.md "Metrics").

A room with something to tell has a module of its own beside this one, with a collector that reads the room's living
objects whenever it is asked, and is added in :mod:`svcd.metrics.node`.
"""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from svcd.metrics.lag import ReactorLag
from svcd.metrics.process import ProcessMetrics
from svcd.metrics.web import WebMetrics
from svcd.ports import Clock
from svcd.rpc.operator import BEARER
from svcd.web.answers import Answer, Rendered
from svcd.web.routing import Route
from svcd.web.site import Site


class Metrics:
    """The collectors of one node, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self.registry = registry
        self.lag = ReactorLag(clock)
        """A service, to be started with the others."""
        self._web = WebMetrics()
        self.add(self._web, self.lag, ProcessMetrics(clock))

    def add(self, *collectors: Collector) -> None:
        """Ask these too from now on."""
        for collector in collectors:
            self.registry.register(collector)

    def watch(self, name: str, site: Site) -> None:
        """Measure a site from now on; ``name`` is its label."""
        self._web.watch(name, site)


class MetricsRoutes:
    """The page that Prometheus asks for."""

    def __init__(self, registry: CollectorRegistry, *, token: str | None) -> None:
        self.token = token
        self._registry = registry

    @Route(
        "GET",
        "/metrics",
        "What the node measures, in the text format of Prometheus",
        bucket="operator",
        guards=(BEARER,),
        answers={200: {"type": "string"}},
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )
    def metrics(self) -> Answer:
        """Answer GET /metrics."""
        encode, content_type = choose_encoder("")
        return Rendered(encode(self._registry), content_type=content_type.encode("ascii"))
