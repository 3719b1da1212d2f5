"""One signal stops the process; another one during the stop is no error."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.process.shutdown import STOP_SIGNALS, CutOff, StopDeadline, StopSignals
from tests.support import result_of


@define
class Stage:
    """A reactor whose turn comes when the test says so: how often it was stopped, and what Twisted heard."""

    stopped: int = 0
    heard: list[int] = field(factory=list)
    running: list[Callable[[], object]] = field(factory=list)
    triggers: list[tuple[str, str, Callable[[], object]]] = field(factory=list)

    def callWhenRunning(self, call: Callable[[], object], /) -> None:  # noqa: N802
        self.running.append(call)

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[[], object], /) -> None:  # noqa: N802
        self.triggers.append((phase, event, call))

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None:  # noqa: N802
        call(*args)

    def stop(self) -> None:
        self.stopped += 1

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(number)


@pytest.fixture
def set_up() -> Iterator[Callable[[], Stage]]:
    """``set_up()``, called in the test, whose reactor has handlers of its own by then, which the node replaces."""
    before: dict[signal.Signals, Any] = {}

    def stage() -> Stage:
        before.update({number: signal.getsignal(number) for number in STOP_SIGNALS})
        stage = Stage()
        for number in STOP_SIGNALS:
            signal.signal(number, stage.hear)
        StopSignals(stage).install()
        assert signal.getsignal(signal.SIGTERM) == stage.hear
        for call in stage.running:
            call()
        return stage

    yield stage
    for number, old in before.items():
        signal.signal(number, old)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The messages of the log."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    observer: Any = observe
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


@pytest.mark.parametrize("second", STOP_SIGNALS)
@pytest.mark.parametrize("first", STOP_SIGNALS)
def test_the_first_stop_signal_stops_the_reactor(
    set_up: Callable[[], Stage], said: list[str], first: int, second: int
) -> None:
    stage = set_up()
    signal.raise_signal(first)
    assert (stage.stopped, said) == (1, [f"{signal.Signals(first).name}: the node stops"])
    signal.raise_signal(second)
    assert (stage.stopped, stage.heard) == (1, [])
    assert said[1:] == [
        f"{signal.Signals(second).name}: stopping already; SIGKILL ends the process at once, and committed data is safe"
    ]


def test_a_node_that_stops_by_itself_hears_none(set_up: Callable[[], Stage], said: list[str]) -> None:
    stage = set_up()
    ((phase, event, stops),) = stage.triggers
    assert (phase, event) == ("before", "shutdown")
    stops()
    signal.raise_signal(signal.SIGTERM)
    assert (stage.stopped, len(said)) == (0, 1)


def test_a_signal_that_is_ignored_stays_so(set_up: Callable[[], Stage]) -> None:
    stage = set_up()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for call in stage.running:
        call()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


# Ending the process at once, with the status that was asked for

DEADLINE = 120.0


def ended(program: str) -> tuple[int, str, str]:
    """Exit status and what a program has written."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("missing", ["", "sys.__stdout__ = None", "sys.__stdout__ = sys.__stderr__ = None"])
def test_exit_now_keeps_written_output_and_skips_atexit(missing: str) -> None:
    program = f"""
import atexit, sys
from svcd.process.shutdown import exit_now
atexit.register(print, "put to rest")
sys.stderr.write("last words")
sys.stderr.flush()
{missing}
exit_now(7, lambda: None)
"""
    assert ended(program) == (7, "", "last words")


def test_the_status_counts_although_the_reactor_stops_already() -> None:
    program = """
from twisted.internet import reactor
from svcd.process.shutdown import graceful_exit
leave = graceful_exit(reactor, lambda: None)
def both():
    reactor.stop()
    leave(3)
reactor.callWhenRunning(both)
reactor.run()
print("stopped")
"""
    assert ended(program) == (3, "stopped\n", "")


def test_any_thread_may_have_the_process_end_and_the_reactor_is_stopped_in_its_own() -> None:
    """A reactor that another thread stops sleeps on until something else wakes it."""
    program = """
import threading, time
from twisted.internet import reactor
from svcd.process.shutdown import graceful_exit
leave, stop = graceful_exit(reactor, lambda: None), reactor.stop
def stop_in() -> None:
    print(threading.current_thread() is threading.main_thread())
    stop()
reactor.stop = stop_in
def leave_asleep() -> None:
    time.sleep(0.2)
    leave(3)
reactor.callWhenRunning(threading.Thread(target=leave_asleep).start)
reactor.callLater(10, print, "woken by something else")
reactor.run()
"""
    assert ended(program) == (3, "True\n", "")


def test_an_exit_before_the_reactor_runs_takes_effect_when_it_runs() -> None:
    program = """
from twisted.internet import reactor
from svcd.process.shutdown import graceful_exit
graceful_exit(reactor, lambda: None)(3)
reactor.run()
print("stopped")
"""
    assert ended(program) == (3, "stopped\n", "")


def test_a_late_failure_of_work_that_was_cut_off_is_logged(expected_errors: Callable[..., object]) -> None:
    clock = Clock()
    for failure in (CancelledError(), KeyError("late")):
        deadline = StopDeadline(clock, 3)
        deadline.begin()
        work: Deferred[None] = Deferred(lambda _: None)
        bounded = deadline.bound(work, cancel=False)
        clock.advance(3)
        with pytest.raises(CutOff):
            result_of(bounded)
        work.errback(failure)

    expected_errors(KeyError)


@pytest.mark.parametrize("cancel", [True, False])
def test_cancelling_a_bounded_stop_leaves_no_timer(cancel: bool) -> None:
    clock, cancelled = Clock(), list[object]()
    work: Deferred[None] = Deferred(cancelled.append)
    bounded = StopDeadline(clock, 3).bound(work, cancel=cancel)
    bounded.cancel()
    with pytest.raises(CancelledError):
        result_of(bounded)
    assert clock.getDelayedCalls() == []
    assert bool(cancelled) is cancel
    if not cancel:
        work.errback(CancelledError())
