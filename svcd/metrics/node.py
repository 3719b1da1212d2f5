"""What is measured of a node as a whole."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from svcd.commerce.service import Merchants
from svcd.metrics.build import BuildInfo
from svcd.metrics.chain import ChainMetrics
from svcd.metrics.exposition import Metrics
from svcd.metrics.mempool import MempoolMetrics
from svcd.metrics.peers import PeersMetrics, SyncMetrics
from svcd.metrics.threads import ThreadMetrics
from svcd.metrics.webhooks import WebhookMetrics
from svcd.node.living import LivingChain, PoolLimits
from svcd.node.status import Status
from svcd.node.threads import Load
from svcd.p2p.service import Network


def measured(
    living: LivingChain,
    status: Status,
    limits: PoolLimits,
    *,
    loads: Mapping[str, Load],
    network: Network | None,
    merchants: Merchants | None,
) -> Metrics:
    """The metrics of an open chain, but for the sites, which are watched as they are built."""
    metrics = Metrics(CollectorRegistry(), living.clock)
    metrics.add(
        BuildInfo(living.ledger.params),
        ChainMetrics(living.ledger, status, living.clock),
        MempoolMetrics(living.transfers, limits),
        ThreadMetrics(loads, living.verifier),
    )
    if network is not None:
        metrics.add(PeersMetrics(network), SyncMetrics(network))
    if merchants is not None:
        metrics.add(WebhookMetrics(merchants, living.clock))
    return metrics
