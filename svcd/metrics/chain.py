"""Metrics of the chain."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.metrics.distribution import Distribution
from svcd.node.changes import Change
from svcd.node.ledger import Ledger
from svcd.node.status import Status
from svcd.ports import Clock, milliseconds

_DEPTHS: Final = (1.0, 2.0, 3.0, 6.0, 10.0, 30.0, 100.0, 1000.0)


class ChainMetrics(Collector):
    """Reads the tip, and counts what a listener of the chain hears of."""

    def __init__(self, ledger: Ledger, status: Status, clock: Clock) -> None:
        self._ledger = ledger
        self._status = status
        self._clock = clock
        self._blocks = 0
        self._transfers = 0
        self._reorganisations = 0
        self._depths = Distribution(_DEPTHS)
        ledger.subscribe(self)

    def chain_changed(self, change: Change) -> None:
        """Count a change of the canonical chain."""
        self._blocks += len(change.applied)
        self._transfers += sum(len(block.txids) for block in change.applied)
        if change.undone:
            self._reorganisations += 1
            self._depths.observe(len(change.undone))

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        tip, start = self._ledger.tip, self._ledger.params.slot_time(self._ledger.tip.slot)
        yield GaugeMetricFamily("svcd_chain_height", "Height of the tip.", value=tip.height)
        age = (milliseconds(self._clock) - start) / 1000
        yield GaugeMetricFamily("svcd_chain_tip_age_seconds", "Time since the slot of the tip began.", value=age)
        yield GaugeMetricFamily("svcd_chain_work", "Cumulative work of the chain.", value=tip.work)
        synced = float(self._status.synced)
        yield GaugeMetricFamily("svcd_chain_synced", "1 if the tip can be taken for the network's.", value=synced)
        yield CounterMetricFamily(
            "svcd_chain_blocks_connected", "Blocks that became part of the chain.", value=self._blocks
        )
        yield CounterMetricFamily(
            "svcd_chain_transfers_connected",
            "Transfers in blocks that became part of the chain.",
            value=self._transfers,
        )
        yield CounterMetricFamily(
            "svcd_chain_reorganisations", "Changes to another branch.", value=self._reorganisations
        )
        deep = self._status.history.deep_reorganisations
        yield CounterMetricFamily("svcd_chain_deep_reorganisations", "Those that undid 12 blocks or more.", value=deep)
        alarms = GaugeMetricFamily("svcd_chain_alarm", "1 while the chain has this alarm.", labels=("alarm",))
        for kind, alarm in self._status.alarms().items():
            alarms.add_metric((kind,), float(bool(alarm)))
        yield alarms
        depths = HistogramMetricFamily(
            "svcd_chain_reorganisation_depth_blocks", "Blocks that a change to another branch undid.", labels=()
        )
        self._depths.add_to(depths)
        yield depths
