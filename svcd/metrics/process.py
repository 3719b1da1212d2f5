"""Metrics of the process, its reactor and its threads."""

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Final

from attrs import frozen
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service

from svcd.interfaces import Clock, Timer, unix_seconds
from svcd.node.threads import PoolLoad
from svcd.node.verifier import Verifier

_USER, _KERNEL, _THREADS, _VIRTUAL, _RESIDENT = 11, 12, 17, 20, 21
"""Indices of the fields of `/proc/self/stat` (proc(5)) after the name of the program."""
_SELF: Final = Path("/proc/self")
INTERVAL_SECONDS: Final = 0.1
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
DURATION_BUCKETS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 5.0)
"""For jobs and HTTP requests: few, because every route has a line for each on the page."""


@frozen
class _Figures:
    stat: list[str]
    """The fields of `/proc/self/stat` after the name of the program."""
    open_fds: int


class ProcessMetrics(Collector):
    """The kernel's figures as of the last :meth:`read`, under the standard names of Prometheus.

    Without ``proc`` there is only the time of the start. The collector of prometheus-client has no figures at all where
    `/proc` shows only the process itself, as under systemd's ProcSubset=pid.
    """

    def __init__(self, clock: Clock, proc: Path = _SELF) -> None:
        self._started = unix_seconds(clock)
        self._proc = proc
        self._figures: _Figures | None = None

    def read(self) -> None:
        """Read ``proc``; for a thread, because listing 10,000 open files takes more than 10 ms."""
        try:
            stat = (self._proc / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            self._figures = _Figures(stat, len(os.listdir(self._proc / "fd")))
        except OSError:
            self._figures = None

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        yield GaugeMetricFamily("process_start_time_seconds", "Unix time of the start.", value=self._started)
        if self._figures is None:
            return
        stat, open_fds = self._figures.stat, self._figures.open_fds
        seconds = (int(stat[_USER]) + int(stat[_KERNEL])) / os.sysconf("SC_CLK_TCK")
        yield CounterMetricFamily("process_cpu_seconds", "CPU time, user and system.", value=seconds)
        virtual, resident = int(stat[_VIRTUAL]), int(stat[_RESIDENT]) * resource.getpagesize()
        yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory.", value=virtual)
        yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory.", value=resident)
        yield GaugeMetricFamily("process_threads", "Threads of the operating system.", value=int(stat[_THREADS]))
        maximum, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield GaugeMetricFamily("process_open_fds", "Open files and sockets.", value=open_fds)
        yield GaugeMetricFamily(
            "process_max_fds",
            "The limit on open files and sockets.",
            value=inf if maximum == resource.RLIM_INFINITY else maximum,
        )


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
