"""Work that has begun and must be finished before what it works on is closed."""

from collections.abc import Coroutine
from typing import TypeVar

from twisted.internet.defer import Deferred

from svcd.node.threads import kept_going

T = TypeVar("T")


class Underway:
    """Counts pieces of work from their beginning to their end."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[Deferred[None]] = []

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._count)

    def keep(self, work: Coroutine[Deferred[object], object, T]) -> Deferred[T]:
        """A Deferred of what ``work`` returns, which goes on whatever becomes of the Deferred."""
        return kept_going(self._counted(work))

    async def _counted(self, work: Coroutine[Deferred[object], object, T]) -> T:
        self._count += 1
        try:
            return await work
        finally:
            self._count -= 1
            if not self._count:
                waiting, self._waiting = self._waiting, []
                for finished in waiting:
                    finished.callback(None)

    def finished(self) -> Deferred[None]:
        """A Deferred that fires when nothing is under way."""
        finished: Deferred[None] = Deferred()
        if self._count:
            self._waiting.append(finished)
        else:
            finished.callback(None)
        return finished
