"""Deadlines do not follow the computer's clock when it is set; the chain does, and the log says so."""

import time

import pytest
from attrs import define
from twisted.internet.base import ReactorBase
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.interfaces import milliseconds, unix_seconds
from svcd.process.monotonic_clock import ClockWatch, use_monotonic_clock

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
def test_what_is_due_later_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    wall, reactor, called = Wall(), Bare(), []
    monkeypatch.setattr("svcd.process.monotonic_clock.time.time", wall.time)
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


class Settable(Clock):
    """An even clock, and one that can be set."""

    ahead = 0.0

    def unix_seconds(self) -> float:
        return float(self.seconds()) + self.ahead


@pytest.mark.parametrize(
    ("jump", "told"),
    [(HOUR, "forward by 3600 s"), (-HOUR, "back by 3600 s"), (1.0, None)],
)
def test_that_it_was_set_is_said_once(jump: float, told: str | None) -> None:
    clock, lines = Settable(), []

    def note(event: LogEvent) -> None:
        lines.append((event["log_level"].name, formatEvent(event)))

    watch = ClockWatch(clock)
    globalLogPublisher.addObserver(note)
    try:
        for _ in range(3):
            clock.advance(5)
            watch.check()
        clock.ahead = jump
        for _ in range(3):
            watch.check()
    finally:
        globalLogPublisher.removeObserver(note)
    sentence = f"the computer's clock was set {told}; block times follow the new time; timeouts are not affected"
    assert lines == ([] if told is None else [("warn", sentence)])
