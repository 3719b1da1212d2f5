"""Metrics of peers and of synchronisation."""

from collections.abc import Iterator
from math import nan

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.p2p.progress import SyncStage, SyncStatus
from svcd.p2p.service import PeerNetwork


class PeersMetrics(Collector):
    """Reads the peers, the address book and the bans."""

    def __init__(self, network: PeerNetwork) -> None:
        self._peers = network.peers

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        peers = self._peers
        verified, outbound = len(peers.all()), len(peers.outbound())
        yield GaugeMetricFamily("svcd_peers_verified", "Verified peers.", value=verified)
        yield GaugeMetricFamily("svcd_peers_outbound", "Outbound peers: those that this node chose.", value=outbound)
        yield GaugeMetricFamily(
            "svcd_peers_inbound", "Inbound peers: those that called this node.", value=verified - outbound
        )
        yield GaugeMetricFamily("svcd_peers_known", "Endpoints in the address book.", value=len(peers.book))
        bans = peers.bans.count(peers.node.now())
        yield GaugeMetricFamily("svcd_peers_bans", "Banned nodes, endpoints and addresses.", value=bans)
        alarm = float(bool(peers.alarm))
        yield GaugeMetricFamily("svcd_peers_alarm", "1 if most chosen peers break the rules.", value=alarm)


class SyncMetrics(Collector):
    """Reads the progress of catching up with a greater chain."""

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        progress, running = self._network.progress, self._network.sync.running
        state = progress.snapshot()
        yield GaugeMetricFamily("svcd_sync_catching_up", "1 while a greater chain is fetched.", value=float(running))
        yield from self._state(state)
        slowest = GaugeMetricFamily(
            "svcd_sync_slowest_stage", "1 for the slowest stage of the last minute.", labels=("stage",)
        )
        waited = CounterMetricFamily("svcd_sync_stage_seconds", "Time spent waiting for each stage.", labels=("stage",))
        for stage, seconds in progress.waited().items():
            slowest.add_metric((stage.value,), float(state is not None and state.slowest_stage is stage))
            waited.add_metric((stage.value,), seconds)
        yield slowest
        yield waited
        yield CounterMetricFamily("svcd_sync_blocks", "Blocks connected while catching up.", value=progress.blocks)
        yield CounterMetricFamily(
            "svcd_sync_transactions", "Transfers connected while catching up.", value=progress.transactions
        )

    def _state(self, state: SyncStatus | None) -> Iterator[Metric]:
        """The current state; a node that is not catching up has reached its target."""
        tip = self._network.peers.node.chain_manager.tip.height
        shown = state or SyncStatus(tip, tip, 0.0, 0.0, SyncStage.FETCH, 0.0, 0)
        left = nan if shown.seconds_left is None else shown.seconds_left
        yield GaugeMetricFamily("svcd_sync_height", "Height that catching up has reached.", value=shown.height)
        yield GaugeMetricFamily(
            "svcd_sync_target_height", "Height of the chain that is being fetched.", value=shown.target
        )
        yield GaugeMetricFamily(
            "svcd_sync_blocks_per_second",
            "Blocks connected per second, over the last minute.",
            value=shown.blocks_per_second,
        )
        yield GaugeMetricFamily(
            "svcd_sync_transactions_per_second",
            "Transfers connected per second, over the last minute.",
            value=shown.transactions_per_second,
        )
        yield GaugeMetricFamily("svcd_sync_left_seconds", "Estimated time until caught up; NaN if unknown.", value=left)
        yield GaugeMetricFamily("svcd_sync_peers_used", "Peers that have sent blocks.", value=shown.peers_used)
