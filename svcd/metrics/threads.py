"""Metrics of the threads, and of the blocks that wait for them."""

from collections.abc import Iterator, Mapping

from attrs import frozen
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.metrics.distribution import SECONDS, Distribution
from svcd.node.threads import Load
from svcd.node.verifier import Verifier


@frozen
class _Times:
    """How long the jobs of one pool waited, and took."""

    load: Load
    waited: Distribution
    worked: Distribution

    def done(self, waited: float, worked: float) -> None:
        """Count a job; called in the pool's threads."""
        self.waited.observe(waited)
        self.worked.observe(worked)


class ThreadMetrics(Collector):
    """Times the jobs of pools of threads, and reads how many wait; ``loads`` by the pools' names."""

    def __init__(self, loads: Mapping[str, Load], verifier: Verifier) -> None:
        self._verifier = verifier
        self._pools = {name: _Times(load, Distribution(SECONDS), Distribution(SECONDS)) for name, load in loads.items()}
        for times in self._pools.values():
            times.load.on_done = times.done

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        queue = GaugeMetricFamily("svcd_threads_queue_jobs", "Jobs that no thread has begun.", labels=("threads",))
        waited = HistogramMetricFamily("svcd_threads_wait_seconds", "How long jobs waited.", labels=("threads",))
        worked = HistogramMetricFamily("svcd_threads_work_seconds", "How long jobs took then.", labels=("threads",))
        for name, times in self._pools.items():
            queue.add_metric((name,), times.load.waiting)
            times.waited.add_to(waited, name)
            times.worked.add_to(worked, name)
        yield queue
        yield waited
        yield worked
        verifier = self._verifier
        yield GaugeMetricFamily(
            "svcd_verifier_queue_blocks", "Blocks whose work is being checked or waits for it.", value=verifier.waiting
        )
        yield GaugeMetricFamily("svcd_verifier_capacity_blocks", "How many may.", value=verifier.capacity)
