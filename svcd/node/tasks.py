"""Tasks that outlive the client that started them, and batches of work that share a commit."""

from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import NotYet, RuleViolation

T = TypeVar("T")
R = TypeVar("R")

MAX_BATCH: Final = 64
"""Items; a longer batch would delay other work."""


class TaskGroup:
    """Counts the running tasks, so that a database is closed only after the last one."""

    _log = Logger()

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[Deferred[None]] = []

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return bool(self._count)

    def start(self, work: Coroutine[Deferred[object], object, T]) -> Deferred[T]:
        """Run ``work`` to its end; a Deferred of its result, which can be cancelled without cancelling ``work``.

        A web framework cancels what a route awaits when the client disconnects; a change of state must not stop
        half-way. An unexpected error after that is logged.
        """
        result: Deferred[T] = Deferred()

        def failed(failure: Failure) -> None:
            if not result.called:
                result.errback(failure)
            elif failure.check(RuleViolation, NotYet) is None:  # type: ignore[no-untyped-call]
                self._log.failure("a task failed after its client disconnected", failure)

        Deferred.fromCoroutine(self._counted(work)).addCallbacks(result.callback, failed)
        return result

    async def _counted(self, work: Coroutine[Deferred[object], object, T]) -> T:
        self._count += 1
        try:
            return await work
        finally:
            self._count -= 1
            if not self._count:
                waiting, self._waiting = self._waiting, []
                for drained in waiting:
                    drained.callback(None)

    def drained(self) -> Deferred[None]:
        """A Deferred that fires when no task is running."""
        drained: Deferred[None] = Deferred()
        if self._count:
            self._waiting.append(drained)
        else:
            drained.callback(None)
        return drained


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
            self._work([item for item, _ in batch]).addBoth(self._ended, [result for _, result in batch])

    def _ended(self, outcome: list[R | Exception] | Failure, results: list[Deferred[R]]) -> None:
        # The next batch first: a result may add an item.
        self._begin()
        outcomes = [outcome] * len(results) if isinstance(outcome, Failure) else outcome
        for each, result in zip(outcomes, results, strict=True):
            if isinstance(each, Failure | Exception):
                result.errback(each)
            else:
                result.callback(each)
