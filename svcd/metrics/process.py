"""Metrics of the process, its reactor and its threads."""

from collections.abc import Callable, Iterator, Mapping
from threading import active_count
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service

from svcd.interfaces import Clock, Timer, unix_seconds
from svcd.node.threads import PoolLoad
from svcd.node.verifier import Verifier

INTERVAL_SECONDS: Final = 0.1
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
DURATION_BUCKETS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 5.0)
"""For jobs and HTTP requests: few, because every route has a line for each on the page."""


class ProcessMetrics(ProcessCollector):
    """The kernel's figures, if there is ``proc``, for a registry of its own that a thread reads.

    Listing 10,000 open files takes more than 10 ms.
    """

    def __init__(self, clock: Clock, *, registry: CollectorRegistry, proc: str = "/proc") -> None:
        self._clock = clock
        super().__init__(proc=proc, registry=registry)

    def _boot_time(self) -> float:
        """When the computer started, in Unix seconds.

        The library reads it from `/proc/stat`, and has no figures at all where `/proc` shows only processes, as under
        systemd's ProcSubset=pid.
        """
        return unix_seconds(self._clock) - clock_gettime(CLOCK_BOOTTIME)


class ReactorLag(Service, Collector):
    """Measures ten times a second by how much the reactor delays a call: everything else is delayed as much."""

    name = "reactor lag"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag = Histogram(
            "svcd_reactor_lag_seconds", "How late the reactor made a call.", registry=None, buckets=_LAG_BUCKETS
        )
        self._due = 0.0
        self._timer: Timer | None = None

    def startService(self) -> None:
        """Start measuring."""
        super().startService()  # type: ignore[no-untyped-call]
        self._schedule()

    def stopService(self) -> None:
        """Stop measuring."""
        super().stopService()  # type: ignore[no-untyped-call]
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _schedule(self) -> None:
        self._due = self._clock.seconds() + INTERVAL_SECONDS
        self._timer = self._clock.callLater(INTERVAL_SECONDS, self._called)

    def _called(self) -> None:
        # A clock that was set back must not give a negative lag.
        self._lag.observe(max(self._clock.seconds() - self._due, 0.0))
        self._schedule()

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        yield from self._lag.collect()
        waiting = len(self._clock.getDelayedCalls())
        yield GaugeMetricFamily("svcd_reactor_delayed_calls", "Delayed calls of the reactor.", value=waiting)


class ThreadMetrics(Collector):
    """Times the jobs of thread pools and reads the lengths of their queues; ``loads`` by the names of the pools."""

    def __init__(self, loads: Mapping[str, PoolLoad], verifier: Verifier) -> None:
        self._loads = loads
        self._verifier = verifier
        self._waited, self._worked = (
            Histogram(name, text, ("threads",), registry=None, buckets=DURATION_BUCKETS)
            for name, text in (
                ("svcd_threads_wait_seconds", "How long jobs waited for a thread."),
                ("svcd_threads_work_seconds", "How long jobs took in a thread."),
            )
        )
        for name, load in loads.items():
            load.on_done = _observer(self._waited.labels(name), self._worked.labels(name))

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        queue = GaugeMetricFamily("svcd_threads_queue_jobs", "Jobs that wait for a thread.", labels=("threads",))
        for name, load in self._loads.items():
            queue.add_metric((name,), load.waiting)
        yield queue
        yield from self._waited.collect()
        yield from self._worked.collect()
        yield GaugeMetricFamily("process_threads", "Threads that run Python code.", value=active_count())
        verifier = self._verifier
        yield GaugeMetricFamily(
            "svcd_verifier_queue_blocks", "Blocks whose work is being checked or waits for it.", value=verifier.waiting
        )
        yield GaugeMetricFamily(
            "svcd_verifier_capacity_blocks", "The capacity of the verifier's queue.", value=verifier.capacity
        )


class LogMetrics(Collector):
    """Reads how many lines of the log were ``dropped``."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        yield CounterMetricFamily(
            "svcd_log_dropped_lines", "Log lines that could not be written in time.", value=self._dropped()
        )


def _observer(waited: Histogram, worked: Histogram) -> Callable[[float, float], None]:
    def done(waiting: float, working: float) -> None:
        """Count a job; called in the pool's threads."""
        waited.observe(waiting)
        worked.observe(working)

    return done
