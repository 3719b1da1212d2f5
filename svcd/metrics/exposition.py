"""The metrics page for Prometheus (docs/monitoring.md "Metrics"), and the collectors behind it.

Each subject (chain, peers, process, HTTP, webhooks) has a module beside this one with collectors, which read the live
objects when Prometheus scrapes; :func:`collect_from` registers them.
"""

from collections.abc import Callable, Iterator, Mapping
from platform import python_version

from attrs import frozen
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from svcd.chain.params import NetworkParams
from svcd.commerce.webhook_service import WebhookService
from svcd.interfaces import Clock, Worker
from svcd.metrics.collectors import (
    ChainMetrics,
    MempoolMetrics,
    PeersMetrics,
    SweepMetrics,
    SyncMetrics,
    WebhookMetrics,
    WebMetrics,
    WorkMetrics,
)
from svcd.metrics.process import LogMetrics, ProcessMetrics, ReactorLag, ThreadMetrics
from svcd.node.miner import Miner
from svcd.node.node_context import NodeContext
from svcd.node.status import PROTOCOL_VERSION, SOFTWARE_VERSION, Status
from svcd.node.sweeper import Sweeper
from svcd.node.threads import PoolLoad
from svcd.p2p.service import PeerNetwork
from svcd.rpc.operator_routes import BEARER
from svcd.web.responses import Renderable, Response
from svcd.web.routes import Route
from svcd.web.site import Site
from twisted import __version__ as twisted_version


class Metrics:
    """The collectors of one node in their registry."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        # A switch of the whole library: without it every histogram publishes a further metric, `_created`.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self.lag = ReactorLag(clock)
        """A service, started with the others of the node."""
        self._web = WebMetrics()
        self.process = CollectorRegistry()
        """The kernel's figures of the process; a thread reads it."""
        ProcessMetrics(clock, registry=self.process)
        self.add(self._web, self.lag)

    def add(self, *collectors: Collector) -> None:
        """Register collectors."""
        for collector in collectors:
            self.registry.register(collector)

    def watch(self, name: str, site: Site) -> None:
        """Measure a site; ``name`` is its label."""
        self._web.watch(name, site)


def collect_from(
    node_context: NodeContext,
    status: Status,
    *,
    loads: Mapping[str, PoolLoad],
    network: PeerNetwork | None,
    webhooks: WebhookService | None,
    only_on_demand: bool = False,
    others_turn: Callable[[], str] = lambda: "",
    miner: Miner | None = None,
    sweeper: Sweeper | None = None,
    dropped_lines: Callable[[], int] | None = None,
) -> Metrics:
    """Register the collectors of an open chain; the sites are added by `Metrics.watch` as they are built.

    ``only_on_demand`` says that a devnet makes no block that its operator does not ask for; ``others_turn`` why another
    producer must make the next block, "" for no reason; ``dropped_lines`` how many lines of the log were not written,
    None where twistd writes it.
    """
    metrics = Metrics(CollectorRegistry(), node_context.clock)
    metrics.add(
        BuildInfo(node_context.chain_manager.params),
        ChainMetrics(
            node_context.chain_manager,
            status,
            node_context.clock,
            only_on_demand=only_on_demand,
            others_turn=others_turn,
        ),
        MempoolMetrics(node_context.transaction_pool),
        ThreadMetrics(loads, node_context.verifier),
        WorkMetrics(miner),
    )
    if network is not None:
        metrics.add(PeersMetrics(network), SyncMetrics(network))
    if webhooks is not None:
        metrics.add(WebhookMetrics(webhooks))
    if sweeper is not None:
        metrics.add(SweepMetrics(sweeper))
    if dropped_lines is not None:
        metrics.add(LogMetrics(dropped_lines))
    return metrics


class MetricsRoutes:
    """The route that Prometheus scrapes."""

    def __init__(self, metrics: Metrics, worker: Worker, *, token: str | None) -> None:
        self.token = token
        self._metrics = metrics
        self._worker = worker

    @Route(
        "GET",
        "/metrics",
        "What the node measures, in the text format of Prometheus",
        bucket="operator",
        guards=(BEARER,),
        answers={200: {"type": "string"}},
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )
    async def metrics(self) -> Renderable:
        """Answer GET /metrics."""
        encode, content_type = choose_encoder("")
        process = await self._worker.run(encode, self._metrics.process)
        return Response(encode(self._metrics.registry) + process, content_type=content_type.encode("ascii"))


@frozen(eq=False)
class BuildInfo(Collector):
    """The versions of the software, and the chain."""

    params: NetworkParams

    def collect(self) -> Iterator[Metric]:
        """The metric, which never changes."""
        versions = {
            "version": SOFTWARE_VERSION,
            "protocol": PROTOCOL_VERSION,
            "chain": self.params.chain_id,
            "python": python_version(),
            "twisted": twisted_version,
        }
        yield InfoMetricFamily("svcd_build", "Always 1; the labels say which program runs.", value=versions)
