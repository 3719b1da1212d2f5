"""Small things that tests of every package use."""

from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

T = TypeVar("T")


class SettableClock(Clock):
    """An even clock, and a computer's clock that can be set."""

    ahead = 0.0
    """By how many seconds the computer's clock is ahead of the even one."""

    def unix_seconds(self) -> float:
        """See svcd.interfaces.unix_seconds."""
        return float(self.seconds()) + self.ahead


def result_of(deferred: "Deferred[T]") -> T:
    """The result a Deferred already has; its exception is raised, a Deferred still waiting is a failed test."""
    results: list[T] = []
    failures: list[Any] = []
    deferred.addCallbacks(results.append, failures.append)
    if failures:
        failures[0].raiseException()
    assert results, f"{deferred} has no result yet"
    return results[0]


def has_result(deferred: "Deferred[Any]") -> bool:
    """Whether a Deferred has fired and is not waiting for another one; its result is left in place."""
    fired: list[bool] = []

    def note(result: Any) -> Any:
        fired.append(True)
        return result

    deferred.addBoth(note)
    return bool(fired)
