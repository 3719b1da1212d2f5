"""Metrics of the chain, the mempool, the peers, the sites and the webhooks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.chain.errors import Refusal
from svcd.chain.units import BASE_UNITS_PER_COIN
from svcd.commerce.leadership import Role
from svcd.commerce.webhook_service import WebhookService
from svcd.interfaces import Clock, milliseconds
from svcd.metrics.process import DURATION_BUCKETS
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.miner import Miner
from svcd.node.status import Status
from svcd.node.sweeper import Sweeper
from svcd.node.transaction_pool import TransactionPool
from svcd.p2p.progress import SyncStage, SyncStatus
from svcd.p2p.service import PeerNetwork
from svcd.p2p.snapshot_start import StartStage
from svcd.web.request import Recorder
from svcd.web.site import Site

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


_Row = tuple[str, str, float]
"""The name of a metric, what it is, and its value."""


def _gauges(*rows: _Row) -> Iterator[Metric]:
    for name, about, value in rows:
        yield GaugeMetricFamily(name, about, value=float(value))


def _counters(*rows: _Row) -> Iterator[Metric]:
    for name, about, value in rows:
        yield CounterMetricFamily(name, about, value=value)


class ChainMetrics(Collector):
    """Reads the tip, and counts the changes of the chain as one of its listeners."""

    def __init__(
        self,
        chain_manager: ChainManager,
        status: Status,
        clock: Clock,
        *,
        only_on_demand: bool,
        others_turn: Callable[[], str],
    ) -> None:
        """``others_turn`` says why another producer must make the next block, "" for no reason."""
        self._chain_manager = chain_manager
        self._only_on_demand = only_on_demand
        self._others_turn = others_turn
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
        self._transfers += sum(block.transfer_count for block in change.applied)
        if change.undone:
            self._reorganisations += 1
            self._depths.observe(len(change.undone))

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        tip, prune_height, history = self._chain_manager.tip, self._chain_manager.prune_height, self._status.history
        status = self._status
        age = (milliseconds(self._clock) - self._chain_manager.params.slot_time(tip.slot)) / 1000
        yield from _gauges(
            ("svcd_chain_height", "Height of the tip.", tip.height),
            ("svcd_chain_prune_height", "Lowest height from which on there are blocks.", prune_height),
            ("svcd_chain_tip_age_seconds", "Time since the slot of the tip began.", age),
            ("svcd_chain_unchanged_seconds", "Time since the tip changed, or the node started.", history.still_seconds),
            ("svcd_chain_on_demand", "1 if blocks are made on demand only.", self._only_on_demand),
            (
                "svcd_chain_others_turn",
                "1 while this node would make a block and the list of producers does not let it.",
                bool(self._others_turn()),
            ),
            ("svcd_chain_work", "Cumulative work of the chain.", tip.work),
            ("svcd_chain_synced", "1 if the tip is believed to be the network's.", status.synced and not status.alone),
            ("svcd_chain_alone", "1 while the node makes its own chain, and nothing compares it.", status.alone),
        )
        deep = history.deep_reorganisations
        yield from _counters(
            ("svcd_chain_blocks_connected", "Blocks that became part of the chain.", self._blocks),
            ("svcd_chain_transfers_connected", "Transfers in blocks that became part of the chain.", self._transfers),
            ("svcd_chain_reorganisations", "Reorganisations: changes to another branch.", self._reorganisations),
            ("svcd_chain_deep_reorganisations", "Reorganisations that undid 12 blocks or more.", deep),
        )
        alarms = GaugeMetricFamily("svcd_chain_alarm", "1 while the chain has this alarm.", labels=("alarm",))
        for kind, alarm in self._status.alarms().items():
            alarms.add_metric((kind,), float(bool(alarm)))
        yield alarms
        yield from self._depths.collect()


class MempoolMetrics(Collector):
    """Reads the mempool, and counts admitted transfers as one of its listeners."""

    def __init__(self, transaction_pool: TransactionPool) -> None:
        self._transaction_pool = transaction_pool
        self._admitted = 0
        transaction_pool.subscribe(self)

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Count the added transfers."""
        self._admitted += len(added)

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        mempool = self._transaction_pool.mempool
        yield from _gauges(
            ("svcd_mempool_transactions", "Transfers that wait.", len(mempool)),
            ("svcd_mempool_bytes", "Size of the transfers that wait.", mempool.size),
            ("svcd_mempool_capacity_transactions", "How many transfers may wait.", mempool.max_transactions),
            ("svcd_mempool_capacity_bytes", "Size of the transfers that may wait.", mempool.max_bytes),
        )
        yield from _counters(("svcd_mempool_admitted", "Transfers that were admitted.", self._admitted))
        refused = CounterMetricFamily(
            "svcd_mempool_refused", "Well-formed transfers that were refused.", labels=("reason",)
        )
        for reason in REASONS:
            refused.add_metric((reason.value,), self._transaction_pool.refusals[reason])
        yield refused


class SweepMetrics(Collector):
    """Reads the sweeps of block rewards; amounts in coins."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        sweeper = self._sweeper
        surplus, above, swept = (
            units / BASE_UNITS_PER_COIN for units in (sweeper.surplus(), sweeper.above, sweeper.swept)
        )
        yield from _counters(
            ("svcd_sweep_transfers", "Sweeps that the mempool admitted.", sweeper.sweeps),
            ("svcd_sweep_coins", "Coins that these sweeps pay.", swept),
        )
        yield from _gauges(
            ("svcd_sweep_surplus_coins", "Coins of the block key above the holding minimum.", surplus),
            ("svcd_sweep_above_coins", "The surplus above which a sweep is due.", above),
        )


class WorkMetrics(Collector):
    """Reads the search for participation work; there is none where a devnet makes blocks on demand."""

    def __init__(self, miner: Miner | None) -> None:
        self._miner = miner

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        miner = self._miner
        rate, tried = (None, 0) if miner is None else (miner.work_rate, miner.attempts)
        attempts, seconds = nan, nan
        if rate is not None:
            attempts = rate.attempts_expected
            seconds = nan if rate.seconds_expected is None else rate.seconds_expected
        yield from _counters(("svcd_work_attempts", "Attempts to make a block.", tried))
        yield from _gauges(
            ("svcd_work_attempts_expected", "Attempts for a block, on average; NaN while none is made.", attempts),
            ("svcd_work_seconds_expected", "Time for a block, on average; NaN if unknown.", seconds),
        )


class PeersMetrics(Collector):
    """Reads the peers, the address book and the bans."""

    def __init__(self, network: PeerNetwork) -> None:
        self._peers = network.peers

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        peers = self._peers
        verified, outbound = len(peers.all()), len(peers.outbound())
        inbound = verified - outbound
        yield from _gauges(
            ("svcd_peers_verified", "Verified peers.", verified),
            ("svcd_peers_outbound", "Outbound peers: those that this node chose.", outbound),
            ("svcd_peers_inbound", "Inbound peers: those that called this node.", inbound),
            ("svcd_peers_known", "Endpoints in the address book.", len(peers.book)),
            ("svcd_peers_bans", "Banned nodes, endpoints and addresses.", peers.bans.count(peers.node.now())),
            ("svcd_peers_alarm", "1 if most chosen peers break the rules.", bool(peers.alarm)),
        )


class SyncMetrics(Collector):
    """Reads the progress of catching up with a greater chain."""

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        progress, running = self._network.progress, self._network.sync.running
        state = progress.snapshot()
        yield from _gauges(("svcd_sync_catching_up", "1 while a greater chain is fetched.", running))
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
        yield from self._starting()
        yield from _counters(
            ("svcd_sync_blocks", "Blocks connected while catching up.", progress.blocks),
            ("svcd_sync_transactions", "Transfers connected while catching up.", progress.transactions),
        )

    def _starting(self) -> Iterator[Metric]:
        """The stages of a start from a snapshot; those that are not under way are 0."""
        starting = self._network.sync.starting
        figures: dict[StartStage, tuple[float, float, float, float]] = dict.fromkeys(StartStage, (0, 0, 0, 0))
        if starting is not None:
            left = nan if starting.seconds_left is None else starting.seconds_left
            figures[starting.stage] = starting.done, starting.target, starting.per_second, left
        for index, (name, text) in enumerate(
            (
                ("done", "Headers, or chunks of the state, that have come."),
                ("target", "Headers, or chunks of the state, to be fetched."),
                ("per_second", "Headers, or chunks of the state, per second, over the last minute."),
                ("left_seconds", "Estimated time until the stage is done; NaN if unknown."),
            )
        ):
            family = GaugeMetricFamily(f"svcd_sync_snapshot_{name}", text, labels=("stage",))
            for stage, values in figures.items():
                family.add_metric((stage.value,), values[index])
            yield family

    def _state(self, state: SyncStatus | None) -> Iterator[Metric]:
        """The current state; a node that is not catching up has reached its target."""
        tip = self._network.peers.node.chain_manager.tip.height
        shown = state or SyncStatus(tip, tip, 0.0, 0.0, SyncStage.FETCH, 0.0, 0)
        left = nan if shown.seconds_left is None else shown.seconds_left
        blocks, transfers = shown.blocks_per_second, shown.transactions_per_second
        yield from _gauges(
            ("svcd_sync_height", "Height that catching up has reached.", shown.height),
            ("svcd_sync_target_height", "Height of the chain that is being fetched.", shown.target),
            ("svcd_sync_blocks_per_second", "Blocks connected per second, over the last minute.", blocks),
            ("svcd_sync_transactions_per_second", "Transfers connected per second, over the last minute.", transfers),
            ("svcd_sync_left_seconds", "Estimated time until caught up; NaN if unknown.", left),
            ("svcd_sync_peers_used", "Peers that have sent blocks.", shown.peers_used),
        )


class WebhookMetrics(Collector):
    """Reads the deliveries under way, and the figures on the outbox, which are counted every few seconds."""

    def __init__(self, webhooks: WebhookService) -> None:
        self._webhooks = webhooks

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        webhooks = self._webhooks
        counts, leads = webhooks.counts(), webhooks.role is Role.LEADER
        broken = counts.broken_hosts
        yield from _gauges(
            ("svcd_webhooks_watches", "Active watches.", webhooks.backlog.watches),
            ("svcd_webhooks_waiting_watches", "Active watches with an event to send.", counts.waiting),
            ("svcd_webhooks_in_flight", "Deliveries under way.", counts.in_flight),
            ("svcd_webhooks_oldest_seconds", "Age of the oldest undelivered event.", webhooks.oldest_seconds),
            ("svcd_webhooks_broken_hosts", "Callback hosts and ports whose deliveries keep failing.", broken),
            ("svcd_webhooks_leader", "1 if this node follows the chain and delivers.", leads),
            ("svcd_webhooks_lease_age_seconds", "Time since the leader renewed its lease.", webhooks.lease_age),
            ("svcd_webhooks_lag_blocks", "Blocks that have not been evaluated for merchants.", webhooks.lag),
        )
        yield from _counters(
            ("svcd_webhooks_delivered", "Events delivered.", counts.delivered),
            ("svcd_webhooks_failed", "Failed attempts to deliver.", counts.failed),
            ("svcd_webhooks_abandoned", "Events given up.", counts.abandoned),
            ("svcd_webhooks_refused", "Events that receivers refuse.", counts.refused),
        )


OTHER: Final = "other"
"""The label of paths without a route and of unknown methods, so that clients cannot create labels."""
_METHODS: Final[Mapping[bytes, str]] = {
    name.encode("ascii"): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
}


class WebMetrics(Collector, Recorder):
    """Counts the responses of sites, as their recorder, and reads their connections."""

    def __init__(self) -> None:
        self._sites: dict[str, Site] = {}
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds = Histogram(
            "svcd_http_request_seconds",
            "From the last byte of a request to its response.",
            ("route",),
            registry=None,
            buckets=DURATION_BUCKETS,
        )
        self._by_route: dict[str, Histogram] = {}
        """Its members by label, of which there are no more than routes: to look them up there takes longer."""
        self._throttled: Counter[str] = Counter()

    def watch(self, name: str, site: Site) -> None:
        """Measure a site; ``name`` is its label."""
        self._sites[name] = site
        site.recorder = self

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """Count a response."""
        label = route or OTHER
        self._requests[label, _METHODS.get(method, OTHER), status] += 1
        if seconds is not None:
            durations = self._by_route.get(label)
            if durations is None:
                durations = self._by_route[label] = self._seconds.labels(label)
            durations.observe(seconds)

    def throttled(self, bucket: str) -> None:
        """Count a request refused by a rate limit."""
        self._throttled[bucket] += 1

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        requests = CounterMetricFamily("svcd_http_requests", "Responses.", labels=("route", "method", "status"))
        for (route, method, status), count in self._requests.items():
            requests.add_metric((route, method, str(status)), count)
        yield requests
        yield from self._seconds.collect()
        throttled = CounterMetricFamily("svcd_http_throttled", "Requests refused by a rate limit.", labels=("bucket",))
        for bucket, count in self._throttled.items():
            throttled.add_metric((bucket,), count)
        yield throttled
        yield from self._connections()
        ignored = sum({id(site.clients): site.clients.proxies.ignored for site in self._sites.values()}.values())
        about = "Requests with X-Forwarded-For that came from no trusted proxy."
        yield from _counters(("svcd_http_forwarded_ignored", about, ignored))

    def _connections(self) -> Iterator[Metric]:
        present = GaugeMetricFamily("svcd_http_connections", "Open connections.", labels=("site",))
        refused = CounterMetricFamily("svcd_http_connections_refused", "Connections refused.", labels=("site",))
        closed = CounterMetricFamily(
            "svcd_http_connections_evicted", "Connections closed to make room for others.", labels=("site",)
        )
        bodies = CounterMetricFamily(
            "svcd_http_bodies_evicted",
            "Incomplete request bodies dropped to make room for others.",
            labels=("site",),
        )
        for name, site in self._sites.items():
            present.add_metric((name,), len(site.connections))
            refused.add_metric((name,), site.connections.refused)
            closed.add_metric((name,), site.connections.evicted)
            bodies.add_metric((name,), site.bodies.evicted)
        yield present
        yield refused
        yield closed
        yield bodies
