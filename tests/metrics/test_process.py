"""What the kernel says of the process."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import CLOCK_BOOTTIME, clock_gettime, time

import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.metrics.process import INTERVAL_SECONDS, ProcessMetrics
from tests.metrics.conftest import Measured
from tests.node.bench import Stepped
from tests.p2p.conftest import MakeNode


def values(proc: Path | str, clock: Clock) -> dict[str, float]:
    """Every sample by its name, read now."""
    registry = CollectorRegistry()
    ProcessMetrics(clock, registry=registry, proc=str(proc))
    return {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}


def test_the_figures_of_a_proc_that_shows_only_processes(tmp_path: Path) -> None:
    """As under ProcSubset=pid; the process chose a name to mislead."""
    fields = ["R", *["0"] * 10, "150", "50", *["0"] * 4, "7", "0", "300", "4096000", "25", "0"]
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "stat").write_text(f"4711 (a ) R 9 9) {' '.join(fields)}\n")
    (tmp_path / "self" / "limits").write_text("Max open files      1024     4096     files\n")
    for name in ("0", "1", "2"):
        (tmp_path / "self" / "fd" / name).touch()
    clock = Clock()
    clock.advance(1_800_000_000)
    told = values(tmp_path, clock)
    ticks = os.sysconf("SC_CLK_TCK")
    started = 1_800_000_000 - clock_gettime(CLOCK_BOOTTIME) + 300 / ticks
    assert told.pop("process_start_time_seconds") == pytest.approx(started, abs=60)
    assert told == {
        "process_cpu_seconds_total": 200 / ticks,
        "process_virtual_memory_bytes": 4_096_000,
        "process_resident_memory_bytes": 25 * resource.getpagesize(),
        "process_open_fds": 3,
        "process_max_fds": 1024,
    }


def test_without_proc_there_are_no_figures(tmp_path: Path) -> None:
    assert values(tmp_path / "none", Clock()) == {}


def test_of_this_process() -> None:
    clock = Clock()
    clock.advance(time())
    told = values("/proc", clock)
    assert told["process_resident_memory_bytes"] > 10_000_000
    assert told["process_cpu_seconds_total"] > 0
    assert 3 <= told["process_open_fds"] <= told["process_max_fds"]
    assert time() - 3_600 * 24 < told["process_start_time_seconds"] < time() + 1


# Metrics of threads, of the verifier's queue and of the reactor

Grow = Callable[..., list[Block]]
Measure = Callable[..., Measured]


def test_the_threads_that_run_are_counted(measured: Measured) -> None:
    before, end = measured.value("process_threads"), Event()
    thread = Thread(target=end.wait)
    thread.start()
    assert measured.value("process_threads") == before + 1
    end.set()
    thread.join()


def test_jobs_wait_and_take_time(measured: Measured) -> None:
    load, clock = measured.loads["writer"], measured.clock
    job = load.job(lambda: setattr(clock, "rightNow", clock.rightNow + 2))
    assert measured.value("svcd_threads_queue_jobs", threads="writer") == 1
    assert measured.value("svcd_threads_queue_jobs", threads="verifier") == 0
    clock.rightNow += 3
    job()
    assert measured.value("svcd_threads_queue_jobs", threads="writer") == 0
    assert measured.value("svcd_threads_wait_seconds_sum", threads="writer") == 3
    assert measured.value("svcd_threads_work_seconds_sum", threads="writer") == 2
    assert measured.value("svcd_threads_work_seconds_count", threads="writer") == 1
    assert measured.value("svcd_threads_work_seconds_count", threads="verifier") == 0


def test_blocks_wait_to_be_verified(make_node: MakeNode, measure: Measure, grow: Grow) -> None:
    checker = Stepped()
    measured = measure(make_node(checker=checker))
    outcomes: Deferred[object] = measured.node.node_context.chain_manager.submit_blocks(
        [block.wire() for block in grow(3)]
    )  # type: ignore[assignment]
    checker.step()
    checker.step()
    assert measured.value("svcd_verifier_queue_blocks") == 3
    assert measured.value("svcd_verifier_capacity_blocks") == 1024
    checker.finish()
    assert outcomes.called
    assert measured.value("svcd_verifier_queue_blocks") == 0


# The reactor


def late(measured: Measured) -> tuple[float, float]:
    """How many calls were looked at, and how late they were together."""
    return measured.value("svcd_reactor_lag_seconds_count"), measured.value("svcd_reactor_lag_seconds_sum")


def test_a_reactor_that_is_held_up_is_late(measured: Measured) -> None:
    lag, clock = measured.metrics.lag, measured.clock
    lag.startService()
    measured.node.run(10 * INTERVAL_SECONDS + 0.05)
    calls, seconds = late(measured)
    assert calls == 10
    assert seconds == pytest.approx(0, abs=1e-6)
    clock.rightNow += 3  # something takes three seconds
    clock.advance(0)
    calls, seconds = late(measured)
    assert calls == 11
    assert seconds == pytest.approx(3 - 0.05, abs=1e-3)
    lag.stopService()


def test_a_clock_that_is_set_back_makes_nothing_early(measured: Measured) -> None:
    lag, clock = measured.metrics.lag, measured.clock
    lag.startService()
    (call,) = [call for call in clock.getDelayedCalls() if call.func == lag._called]
    clock.rightNow -= 100
    call.reset(0)
    clock.advance(0)
    assert late(measured) == (1, 0)
    lag.stopService()


def test_it_is_looked_at_no_more_after_the_stop(measured: Measured) -> None:
    lag, clock = measured.metrics.lag, measured.clock
    before = len(clock.getDelayedCalls())
    lag.startService()
    assert len(clock.getDelayedCalls()) == before + 1
    lag.stopService()
    assert len(clock.getDelayedCalls()) == before


def test_calls_that_are_due_later_are_counted_and_those_that_were_cancelled_are_not(measured: Measured) -> None:
    before = measured.value("svcd_reactor_delayed_calls")
    call, _ = [measured.clock.callLater(number, int) for number in (60, 3600)]
    assert measured.value("svcd_reactor_delayed_calls") == before + 2
    call.cancel()
    assert measured.value("svcd_reactor_delayed_calls") == before + 1
