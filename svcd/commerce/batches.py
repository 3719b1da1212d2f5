"""Batches of work that share a commit."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

T = TypeVar("T")
R = TypeVar("R")

MAX_BATCH: Final = 64
"""Items; a longer batch would delay other work."""


@define(eq=False)
class Batches(Generic[T, R]):
    """Runs one batch at a time: items that arrive meanwhile form the next one. For the reactor's thread.

    A database commits a batch as fast as a single item.
    """

    _work: Callable[[list[T]], Deferred[list[R | Exception]]]
    """Returns a result, or the error, for each item in order; if it fails, all items of the batch fail."""
    _waiting: list[tuple[T, Deferred[R]]] = field(factory=list, init=False)
    _working: bool = field(default=False, init=False)

    def add(self, item: T) -> Deferred[R]:
        """The result for an item."""
        result: Deferred[R] = Deferred()
        self._waiting.append((item, result))
        if not self._working:
            self._begin()
        return result

    def _begin(self) -> None:
        batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
        self._working = bool(batch)
        if batch:
            work = maybeDeferred(self._work, [item for item, _ in batch])
            work.addCallback(_checked, len(batch)).addBoth(self._ended, [result for _, result in batch])

    def _ended(self, outcome: list[R | Exception] | Failure, results: list[Deferred[R]]) -> None:
        # The next batch first: a result may add an item.
        self._begin()
        outcomes = [outcome] * len(results) if isinstance(outcome, Failure) else outcome
        for each, result in zip(outcomes, results, strict=True):
            if isinstance(each, Failure | Exception):
                result.errback(each)
            else:
                result.callback(each)


def _checked(outcomes: list[R | Exception], count: int) -> list[R | Exception]:
    """``outcomes``; raises RuntimeError unless there are ``count``, so that no item waits for ever."""
    if len(outcomes) != count:
        raise RuntimeError(f"a batch of {count} items has {len(outcomes)} results")
    return outcomes
