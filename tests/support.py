"""Small things that tests of every package use."""

from typing import Any, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


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
