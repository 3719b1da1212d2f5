"""What the kernel says of the process."""

import os
import resource
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from twisted.internet.task import Clock

from svcd.metrics.process import ProcessMetrics


def values(metrics: ProcessMetrics) -> dict[str, float]:
    """Every sample by its name."""
    found: list[Metric] = list(metrics.collect())
    return {sample.name: sample.value for metric in found for sample in metric.samples}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """What the kernel shows of a process that chose a name to mislead."""
    fields = ["R", *["0"] * 10, "150", "50", *["0"] * 4, "7", "0", "0", "4096000", "25", "0"]
    (tmp_path / "stat").write_text(f"4711 (a ) R 9 9) {' '.join(fields)}\n")
    (tmp_path / "fd").mkdir()
    for name in ("0", "1", "2"):
        (tmp_path / "fd" / name).touch()
    return tmp_path


def test_what_is_read(proc: Path) -> None:
    clock = Clock()
    clock.advance(1_000.5)
    metrics = ProcessMetrics(clock, proc)
    clock.advance(60)
    assert values(metrics) == {
        "process_start_time_seconds": 1_000.5,
        "process_cpu_seconds_total": 200 / os.sysconf("SC_CLK_TCK"),
        "process_virtual_memory_bytes": 4_096_000,
        "process_resident_memory_bytes": 25 * resource.getpagesize(),
        "process_threads": 7,
        "process_open_fds": 3,
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def test_without_a_limit(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 0))
    assert values(ProcessMetrics(Clock(), proc))["process_max_fds"] == float("inf")


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    assert values(ProcessMetrics(Clock(), tmp_path / "none")) == {"process_start_time_seconds": 0}


def test_of_this_process() -> None:
    told = values(ProcessMetrics(Clock()))
    assert told["process_resident_memory_bytes"] > 10_000_000
    assert told["process_cpu_seconds_total"] > 0
    assert told["process_threads"] >= 1
    assert 3 <= told["process_open_fds"] <= told["process_max_fds"]
