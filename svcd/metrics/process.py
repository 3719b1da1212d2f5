"""Metrics of the process, under the names that Prometheus has for them everywhere.

prometheus-client has a collector of them too, but it tells nothing at all where `/proc` shows a process itself only, as
systemd's ProcSubset=pid has it.
"""

import os
import resource
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.ports import Clock, unix_seconds

_USER, _KERNEL, _THREADS, _VIRTUAL, _RESIDENT = 11, 12, 17, 20, 21
"""Places in `/proc/self/stat` (proc(5)), counted behind the name of the program, which may hold anything."""
_SELF: Final = Path("/proc/self")


class ProcessMetrics(Collector):
    """Reads what the kernel says of the process; where there is no ``proc`` it tells the start and no more."""

    def __init__(self, clock: Clock, proc: Path = _SELF) -> None:
        self._started = unix_seconds(clock)
        self._proc = proc

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        yield GaugeMetricFamily("process_start_time_seconds", "When the node began.", value=self._started)
        try:
            stat = (self._proc / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            open_fds = len(os.listdir(self._proc / "fd"))
        except OSError:
            return
        seconds = (int(stat[_USER]) + int(stat[_KERNEL])) / os.sysconf("SC_CLK_TCK")
        yield CounterMetricFamily("process_cpu_seconds", "Time on a processor.", value=seconds)
        virtual, resident = int(stat[_VIRTUAL]), int(stat[_RESIDENT]) * resource.getpagesize()
        yield GaugeMetricFamily("process_virtual_memory_bytes", "Memory that is addressed.", value=virtual)
        yield GaugeMetricFamily("process_resident_memory_bytes", "Memory that is taken.", value=resident)
        yield GaugeMetricFamily("process_threads", "Threads of the operating system.", value=int(stat[_THREADS]))
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield GaugeMetricFamily("process_open_fds", "Open files and sockets.", value=open_fds)
        yield GaugeMetricFamily(
            "process_max_fds", "How many may be open.", value=inf if most == resource.RLIM_INFINITY else most
        )
