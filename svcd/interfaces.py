"""Interfaces that every package may depend on: a clock, its timers, and a worker thread, typed for mypy."""

from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")


class Timer(Protocol):
    """A call that is due later (twisted.internet.interfaces.IDelayedCall)."""

    def active(self) -> bool:
        """Whether the call is still to come."""

    def cancel(self) -> None:
        """Do not call."""

    def getTime(self) -> float:  # noqa: N802
        """When it is due, in the clock's seconds."""

    def reset(self, seconds: float, /) -> None:
        """Make it due ``seconds`` from now."""


class Clock(Protocol):
    """Time, and calls that are due later: a reactor, or twisted.internet.task.Clock."""

    def seconds(self) -> float:
        """Seconds that run evenly, for measuring how long something takes; they began as the Unix time."""

    def callLater(self, delay: float, call: Callable[..., object], /, *args: object) -> Timer:  # noqa: N802
        """Call ``call(*args)`` in ``delay`` seconds."""

    def getDelayedCalls(self) -> Sequence[object]:  # noqa: N802
        """The calls that are due later, but for those that were cancelled."""


class Worker(Protocol):
    """Runs blocking functions while the reactor goes on, in a thread or a pool of threads."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Run ``function(*args, **kwargs)``; cancelling the Deferred of its result does not stop the work."""


def unix_seconds(clock: Clock) -> float:
    """The Unix time in seconds.

    A clock that does not jump when the computer's clock is set has a method of this name for the computer's
    (svcd.process.timers). For any other it is the clock's own time.
    """
    told: Callable[[], float] = getattr(clock, "unix_seconds", clock.seconds)
    return told()


def milliseconds(clock: Clock) -> int:
    """The Unix time in milliseconds, which is what the chain counts in."""
    return int(unix_seconds(clock) * 1000)
