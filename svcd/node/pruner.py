"""Deletes blocks that are older than the newest ones to keep, in the writer's thread and without delaying it."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Clock, Worker
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange
from svcd.node.tasks import TaskGroup
from svcd.store.block_deletion import BlockDeletion
from svcd.store.database import checkpoint

_FIRST_TRANSFERS: Final = 64
_MAX_TRANSFERS: Final = 2_048
_MAX_JOBS: Final = 32
_TRANSFERS_TO_CHECKPOINT: Final = 1_000
"""About 4,000 pages of the write-ahead log."""
_SHORT_SECONDS: Final = 0.005
_LONG_SECONDS: Final = 0.010


@define(eq=False)
class Pruner:
    """Keeps the newest ``keep`` blocks whole, as a listener to changes of the chain.

    A job of the writer deletes as many transfers as take about 10 ms. Other jobs run in between; while the chain grows
    faster than blocks are deleted, as when a node catches up, more jobs are queued together. What they write is brought
    from the log into the file in a thread that waits for the disk, and the next jobs come after that.
    """

    deletion: BlockDeletion
    """For the thread of ``writer`` only."""
    chain_manager: ChainManager
    writer: Worker
    clock: Clock
    disk: Worker
    """A thread that waits for the disk."""
    log_connection: sqlite3.Connection
    """Of :func:`svcd.store.database.open_checkpointer`; for one job of ``disk`` at a time."""
    keep: int
    _evaluated: Callable[[], int] | None = field(default=None, init=False)
    _transfers: int = field(default=_FIRST_TRANSFERS, init=False)
    """How many transfers the next job deletes."""
    _unwritten: int = field(default=_TRANSFERS_TO_CHECKPOINT, init=False)
    """How many transfers were deleted since the log was last brought into the file; enough for that at the start."""
    _running: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _tasks: TaskGroup = field(factory=TaskGroup, init=False)

    log = Logger()

    def chain_changed(self, change: ChainChange) -> None:
        """See :class:`svcd.node.chain_manager.ChainListener`."""
        self.start()

    def begin(self, evaluated: Callable[[], int] | None) -> None:
        """Delete from now on. A block above height ``evaluated()`` stays, as its payments were not looked at yet."""
        self._evaluated = evaluated
        self.chain_manager.subscribe(self)
        self.start()

    def start(self) -> None:
        """Delete what is too old, unless that is under way."""
        if not self._running and not self._stopping and self._below > 0:
            self._running = True
            self._tasks.start(self._run()).addErrback(self._failed)

    def stop(self) -> Deferred[None]:
        """Begin no further job; fires when none runs."""
        self._stopping = True
        return self._tasks.drained()

    def earlier_jobs_done(self) -> Deferred[None]:
        """Fires when every job is done that may have read the evaluated height before now."""
        return self.writer.run(lambda: None)

    @property
    def _below(self) -> int:
        """The height below which blocks are deleted; for any thread."""
        below = self.chain_manager.tip.height - self.keep + 1
        return below if self._evaluated is None else min(below, self._evaluated() + 1)

    async def _run(self) -> None:
        # The fewest blocks that were left to delete in this run.
        least_lag: int | None = None
        try:
            more = True
            while more and not self._stopping:
                if self._unwritten >= _TRANSFERS_TO_CHECKPOINT:
                    if not await self.disk.run(partial(checkpoint, self.log_connection)):
                        # A long read keeps the log from being emptied; it must not grow. The next block begins again.
                        return
                    self._unwritten = 0
                lag = self._below - self.chain_manager.prune_height
                least_lag = lag if least_lag is None else min(lag, least_lag)
                room = max(_TRANSFERS_TO_CHECKPOINT // self._transfers, 1)
                count = min(max(lag - least_lag, 0) + 1, room, _MAX_JOBS)
                jobs = [self.writer.run(self._delete_some) for _ in range(count)]
                results: list[tuple[bool, Any]] = await DeferredList(jobs, consumeErrors=True)
                self.chain_manager.update_prune_height()
                for succeeded, result in results:
                    if not succeeded:
                        result.raiseException()
                    more = result
        finally:
            self._running = False

    def _delete_some(self) -> bool:
        began, budget = self.clock.seconds(), self._transfers
        # As it is when the job begins: a new watch may have lowered the height since the job was queued.
        deleted = self.deletion.delete_some(below=self._below, at_most=budget)
        took = self.clock.seconds() - began
        self._unwritten += deleted.transfers
        if took > _LONG_SECONDS:
            self._transfers = max(budget // 2, 1)
        elif took < _SHORT_SECONDS and deleted.transfers >= budget:
            self._transfers = min(budget * 2, _MAX_TRANSFERS)
        return deleted.more

    def _failed(self, failure: Failure) -> None:
        # The database's health has logged an error of the disk; the next block begins again.
        if failure.check(sqlite3.Error) is None:  # type: ignore[no-untyped-call]
            self.log.failure("deleting old blocks failed", failure)
