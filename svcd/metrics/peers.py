"""Metrics of the other nodes, and of catching up with them."""

from collections.abc import Iterator
from math import nan

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.p2p.progress import Snapshot, Wait
from svcd.p2p.service import Network


class PeersMetrics(Collector):
    """Reads who is known."""

    def __init__(self, network: Network) -> None:
        self._peers = network.peers

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        peers = self._peers
        verified, outbound = len(peers.all()), len(peers.outbound())
        yield GaugeMetricFamily("svcd_peers_verified", "Nodes that are talked to.", value=verified)
        yield GaugeMetricFamily("svcd_peers_outbound", "Those of this node's own choice.", value=outbound)
        yield GaugeMetricFamily("svcd_peers_inbound", "Those that called first.", value=verified - outbound)
        yield GaugeMetricFamily("svcd_peers_known", "Endpoints in the book.", value=len(peers.book))
        bans = peers.bans.count(peers.home.now())
        yield GaugeMetricFamily("svcd_peers_bans", "Nodes, endpoints and addresses that are banned.", value=bans)
        alarm = float(bool(peers.alarm))
        yield GaugeMetricFamily("svcd_peers_alarm", "1 if most chosen peers break the rules.", value=alarm)


class SyncMetrics(Collector):
    """Reads how far catching up has come."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        progress, running = self._network.progress, self._network.synchroniser.running
        state = progress.snapshot()
        yield GaugeMetricFamily("svcd_sync_catching_up", "1 while a greater chain is fetched.", value=float(running))
        yield from self._present(state)
        slowest = GaugeMetricFamily(
            "svcd_sync_slowest_stage", "1 for the stage most waited for in the last minute.", labels=("stage",)
        )
        waited = CounterMetricFamily("svcd_sync_stage_seconds", "For how long each was waited for.", labels=("stage",))
        for stage, seconds in progress.waited().items():
            slowest.add_metric((stage.value,), float(state is not None and state.slowest_stage is stage))
            waited.add_metric((stage.value,), seconds)
        yield slowest
        yield waited
        yield CounterMetricFamily("svcd_sync_blocks", "Blocks taken in while catching up.", value=progress.blocks)
        yield CounterMetricFamily(
            "svcd_sync_transactions", "Transfers connected while catching up.", value=progress.transactions
        )

    def _present(self, state: Snapshot | None) -> Iterator[Metric]:
        """What is so now; a node that is not catching up is where it wants to be, and no time is left."""
        tip = self._network.peers.home.ledger.tip.height
        shown = state or Snapshot(tip, tip, 0.0, 0.0, Wait.FETCH, 0.0, 0)
        left = nan if shown.seconds_left is None else shown.seconds_left
        yield GaugeMetricFamily("svcd_sync_height", "Height that catching up has reached.", value=shown.height)
        yield GaugeMetricFamily("svcd_sync_target_height", "Height that it aims at.", value=shown.target)
        yield GaugeMetricFamily(
            "svcd_sync_blocks_per_second", "Its rate over the last minute.", value=shown.blocks_per_second
        )
        yield GaugeMetricFamily(
            "svcd_sync_transactions_per_second", "The same in transfers.", value=shown.transactions_per_second
        )
        yield GaugeMetricFamily("svcd_sync_left_seconds", "How long it will take yet; NaN if unknown.", value=left)
        yield GaugeMetricFamily("svcd_sync_peers_used", "Peers that have sent blocks for it.", value=shown.peers_used)
