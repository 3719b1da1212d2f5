"""Tasks that outlive the client that started them, and tasks that end when the node stops."""

from collections.abc import Callable, Coroutine
from typing import TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import NotYet, RuleViolation
from svcd.deferreds import shielded

T = TypeVar("T")


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
        return shielded(Deferred.fromCoroutine(self._counted(work)), self._failed_alone)

    def _failed_alone(self, failure: Failure) -> None:
        if failure.check(RuleViolation, NotYet) is None:  # type: ignore[no-untyped-call]
            self._log.failure("a task failed after its client disconnected", failure)

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


class CancellableTasks:
    """Running tasks that are cancelled when their owner stops."""

    def __init__(self, failed: Callable[[Failure], object]) -> None:
        """``failed`` is called with the failure of a task, unless the stop has cancelled it."""
        self._failed = failed
        self._running: set[Deferred[object]] = set()
        self.stopping = False
        """Whether no task begins any more."""

    def start(self, work: Coroutine[Deferred[object], object, object]) -> None:
        """Run ``work``, if the owner has not stopped."""
        if self.stopping:
            work.close()
            return
        running = Deferred.fromCoroutine(work)
        self._running.add(running)
        running.addErrback(self._failure).addBoth(lambda _: self._running.discard(running))

    def stop(self) -> None:
        """Cancel all running tasks, and begin none any more."""
        self.stopping = True
        for running in tuple(self._running):
            running.cancel()

    def _failure(self, failure: Failure) -> None:
        if not (self.stopping and failure.check(CancelledError)):  # type: ignore[no-untyped-call]
            self._failed(failure)
