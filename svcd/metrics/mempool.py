"""Metrics of the transfers that wait."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.chain.errors import Refusal
from svcd.node.living import PoolLimits
from svcd.node.mempool import Entry
from svcd.node.transfers import Transfers

REASONS: Final = (
    Refusal.BALANCE,
    Refusal.FEE,
    Refusal.NONCE,
    Refusal.POOL,
    Refusal.TIMESTAMP,
    Refusal.TRANSACTION_SIGNATURE,
)
"""Why a transfer of the right form may be refused."""


class MempoolMetrics(Collector):
    """Reads the mempool and its door, and counts what a listener of the mempool hears of."""

    def __init__(self, transfers: Transfers, limits: PoolLimits) -> None:
        self._transfers = transfers
        self._limits = limits
        self._admitted = 0
        transfers.subscribe(self)

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Count what came in."""
        self._admitted += len(added)

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        mempool, limits = self._transfers.mempool, self._limits
        yield GaugeMetricFamily("svcd_mempool_transactions", "Transfers that wait.", value=len(mempool))
        yield GaugeMetricFamily("svcd_mempool_bytes", "Their size.", value=mempool.size)
        yield GaugeMetricFamily(
            "svcd_mempool_capacity_transactions", "How many transfers may wait.", value=limits.max_transactions
        )
        yield GaugeMetricFamily(
            "svcd_mempool_capacity_bytes", "How large they may be together.", value=limits.max_bytes
        )
        yield CounterMetricFamily("svcd_mempool_admitted", "Transfers that were let in.", value=self._admitted)
        refused = CounterMetricFamily(
            "svcd_mempool_refused", "Transfers of the right form that were refused.", labels=("reason",)
        )
        for reason in REASONS:
            refused.add_metric((reason.value,), self._transfers.refusals[reason])
        yield refused
