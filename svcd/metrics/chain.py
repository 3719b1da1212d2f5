"""Metrics of the chain and the mempool."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.chain.errors import Refusal
from svcd.interfaces import Clock, milliseconds
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.node_context import MempoolLimits
from svcd.node.status import Status
from svcd.node.transaction_pool import TransactionPool

REASONS: Final = (
    Refusal.BALANCE,
    Refusal.FEE,
    Refusal.NONCE,
    Refusal.POOL,
    Refusal.TIMESTAMP,
    Refusal.TRANSACTION_SIGNATURE,
)
"""Why a well-formed transfer may be refused."""
_DEPTHS: Final = (1.0, 2.0, 3.0, 6.0, 10.0, 30.0, 100.0, 1000.0)


class ChainMetrics(Collector):
    """Reads the tip, and counts the changes of the chain as one of its listeners."""

    def __init__(self, chain_manager: ChainManager, status: Status, clock: Clock, *, on_demand: bool) -> None:
        self._chain_manager = chain_manager
        self._on_demand = on_demand
        self._status = status
        self._clock = clock
        self._blocks = 0
        self._transfers = 0
        self._reorganisations = 0
        self._depths = Histogram(
            "svcd_chain_reorganisation_depth_blocks",
            "Blocks that a reorganisation undid.",
            registry=None,
            buckets=_DEPTHS,
        )
        chain_manager.subscribe(self)

    def chain_changed(self, change: ChainChange) -> None:
        """Count a change of the canonical chain."""
        self._blocks += len(change.applied)
        self._transfers += sum(len(block.txids) for block in change.applied)
        if change.undone:
            self._reorganisations += 1
            self._depths.observe(len(change.undone))

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        tip, start = self._chain_manager.tip, self._chain_manager.params.slot_time(self._chain_manager.tip.slot)
        yield GaugeMetricFamily("svcd_chain_height", "Height of the tip.", value=tip.height)
        age = (milliseconds(self._clock) - start) / 1000
        yield GaugeMetricFamily("svcd_chain_tip_age_seconds", "Time since the slot of the tip began.", value=age)
        still = self._status.history.still_seconds
        yield GaugeMetricFamily(
            "svcd_chain_unchanged_seconds", "Time since the tip changed, or since the node started.", value=still
        )
        on_demand = float(self._on_demand)
        yield GaugeMetricFamily("svcd_chain_on_demand", "1 if blocks are made on demand only.", value=on_demand)
        yield GaugeMetricFamily("svcd_chain_work", "Cumulative work of the chain.", value=tip.work)
        synced = float(self._status.synced)
        yield GaugeMetricFamily("svcd_chain_synced", "1 if the tip is believed to be the network's.", value=synced)
        yield CounterMetricFamily(
            "svcd_chain_blocks_connected", "Blocks that became part of the chain.", value=self._blocks
        )
        yield CounterMetricFamily(
            "svcd_chain_transfers_connected",
            "Transfers in blocks that became part of the chain.",
            value=self._transfers,
        )
        yield CounterMetricFamily(
            "svcd_chain_reorganisations", "Reorganisations: changes to another branch.", value=self._reorganisations
        )
        deep = self._status.history.deep_reorganisations
        yield CounterMetricFamily(
            "svcd_chain_deep_reorganisations", "Reorganisations that undid 12 blocks or more.", value=deep
        )
        alarms = GaugeMetricFamily("svcd_chain_alarm", "1 while the chain has this alarm.", labels=("alarm",))
        for kind, alarm in self._status.alarms().items():
            alarms.add_metric((kind,), float(bool(alarm)))
        yield alarms
        yield from self._depths.collect()


class MempoolMetrics(Collector):
    """Reads the mempool, and counts admitted transfers as one of its listeners."""

    def __init__(self, transaction_pool: TransactionPool, limits: MempoolLimits) -> None:
        self._transaction_pool = transaction_pool
        self._limits = limits
        self._admitted = 0
        transaction_pool.subscribe(self)

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Count the added transfers."""
        self._admitted += len(added)

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        mempool, limits = self._transaction_pool.mempool, self._limits
        yield GaugeMetricFamily("svcd_mempool_transactions", "Transfers that wait.", value=len(mempool))
        yield GaugeMetricFamily("svcd_mempool_bytes", "Size of the transfers that wait.", value=mempool.size)
        yield GaugeMetricFamily(
            "svcd_mempool_capacity_transactions", "How many transfers may wait.", value=limits.max_transactions
        )
        yield GaugeMetricFamily(
            "svcd_mempool_capacity_bytes", "Size of the transfers that may wait.", value=limits.max_bytes
        )
        yield CounterMetricFamily("svcd_mempool_admitted", "Transfers that were admitted.", value=self._admitted)
        refused = CounterMetricFamily(
            "svcd_mempool_refused", "Well-formed transfers that were refused.", labels=("reason",)
        )
        for reason in REASONS:
            refused.add_metric((reason.value,), self._transaction_pool.refusals[reason])
        yield refused
