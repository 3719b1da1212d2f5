"""Work that is done again and again."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.interfaces import milliseconds, unix_seconds
from svcd.process.timers import Periodic, use_monotonic_clock
from tests.support import has_result


def beats(clock: Clock, work: Callable[[], object], **options: Any) -> Periodic:
    periodic = Periodic(clock, 10, work, what="counting", **options)
    periodic.startService()
    return periodic


def test_a_beat_comes_every_interval() -> None:
    clock, times = Clock(), []
    beats(clock, lambda: times.append(clock.seconds()))
    for _ in range(35):
        clock.advance(1)
    assert times == [10, 20, 30]


def test_the_first_beat_may_come_at_once() -> None:
    clock, times = Clock(), []
    beats(clock, lambda: times.append(clock.seconds()), at_once=True)
    assert times == [0]


def test_an_exception_is_logged_and_the_next_beat_comes(expected_errors: Callable[..., Any]) -> None:
    clock, times = Clock(), []

    async def work() -> None:
        times.append(clock.seconds())
        raise KeyError

    beats(clock, work)
    clock.pump([10, 10])
    assert times == [10, 20]
    events = expected_errors(KeyError)
    assert [event["what"] for event in events] == ["counting", "counting"]


def test_beats_do_not_overlap() -> None:
    clock, running = Clock(), []

    def work() -> Deferred[None]:
        running.append(Deferred())
        return running[-1]

    beats(clock, work)
    clock.pump([10] * 3)
    assert len(running) == 1
    running[0].callback(None)
    clock.advance(10)
    assert len(running) == 2


def test_stopping_waits_for_the_beat_under_way_and_lets_no_other_come() -> None:
    clock, running = Clock(), []

    def work() -> Deferred[None]:
        running.append(Deferred())
        return running[-1]

    periodic = beats(clock, work)
    clock.advance(10)
    stopped = periodic.stopService()
    assert stopped is not None
    assert not has_result(stopped)
    running[0].callback(None)
    assert has_result(stopped)
    clock.advance(100)
    assert len(running) == 1
    assert not clock.getDelayedCalls()


def test_stopping_between_beats_is_at_once_and_leaves_no_timer() -> None:
    clock = Clock()
    stopped = beats(clock, int).stopService()
    assert stopped is not None
    assert has_result(stopped)
    assert not clock.getDelayedCalls()


def test_stopping_what_never_started_is_nothing() -> None:
    assert Periodic(Clock(), 1, int, what="nothing").stopService() is None


def test_a_stopped_timer_starts_again() -> None:
    clock, times = Clock(), []
    periodic = beats(clock, lambda: times.append(clock.seconds()))
    periodic.stopService()
    clock.advance(5)
    periodic.startService()
    clock.advance(10)
    assert times == [15]


HOUR = 3600.0
TRUE_TIME = time.time


class Bare(ReactorBase):
    """Nothing but the time of a reactor."""

    def installWaker(self) -> None:  # noqa: N802
        """There is nothing to wake."""


@define
class Wall:
    """A computer's clock that somebody sets."""

    ahead: float = 0.0

    def time(self) -> float:
        return TRUE_TIME() + self.ahead


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_timers_do_not_follow_the_system_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    wall, reactor, called = Wall(), Bare(), []
    monkeypatch.setattr("svcd.process.timers.time.time", wall.time)
    use_monotonic_clock(reactor)
    reactor.callLater(60, called.append, "a minute later")
    before = reactor.seconds()
    wall.ahead = jump
    reactor.runUntilCurrent()
    (timer,) = reactor.getDelayedCalls()
    assert called == []
    # A busy machine may take some seconds for this, and never an hour.
    assert 30 < timer.getTime() - reactor.seconds() <= 60
    assert 0 <= reactor.seconds() - before < 30
    assert abs(unix_seconds(reactor) - before - jump) < 30
    assert milliseconds(reactor) == pytest.approx((before + jump) * 1000, abs=30_000)


def test_a_clock_without_another_is_the_time_itself() -> None:
    clock = Clock()
    clock.advance(7.5)
    assert (unix_seconds(clock), milliseconds(clock)) == (7.5, 7500)
