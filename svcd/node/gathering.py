"""Work that is cheaper by the dozen: what comes in while some is being done is done together next."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

S = TypeVar("S")
T = TypeVar("T")


class Gathering(Generic[S, T]):
    """Items that wait for ``work``, which takes all of them at once and gives a result for each, in order."""

    def __init__(self, work: Callable[[Sequence[S]], Deferred[list[T]]]) -> None:
        self._work = work
        self._waiting: list[tuple[S, Deferred[T]]] = []
        self._working = False

    def add(self, item: S) -> Deferred[T]:
        """A Deferred of the result for ``item``; where the work fails, it fails for all that it was done for."""
        result: Deferred[T] = Deferred()
        self._waiting.append((item, result))
        if not self._working:
            self._begin()
        return result

    def _begin(self) -> None:
        items, self._waiting = self._waiting, []
        self._working = True
        self._work([item for item, _ in items]).addBoth(self._end, [result for _, result in items])

    def _end(self, outcome: list[T] | Failure, results: list[Deferred[T]]) -> None:
        self._working = False
        # What has gathered goes first: it need not wait for what is made of these results.
        if self._waiting:
            self._begin()
        if isinstance(outcome, Failure):
            for result in results:
                result.errback(outcome)
        else:
            for result, value in zip(results, outcome, strict=True):
                result.callback(value)
