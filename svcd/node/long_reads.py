"""Questions whose answers take longer than the reactor has: full blocks, above all several of them."""

import sqlite3
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from twisted.internet.defer import Deferred

from svcd.node.threads import Worker
from svcd.store.chain_store import ChainReader

T = TypeVar("T")


class LongReads:
    """Asks in a thread of ``worker``, on a connection of its own, which is closed with :meth:`close`."""

    def __init__(self, worker: Worker, connection: sqlite3.Connection) -> None:
        self._worker = worker
        self._connection = connection
        self._reader = ChainReader(connection)
        self._lock = Lock()
        """One connection serves one thread at a time, however many the worker has."""

    def ask(self, question: Callable[[ChainReader], T]) -> Deferred[T]:
        """What ``question`` returns, all of it from one and the same commit.

        Cancelling the Deferred does not stop it. Fails with what ``question`` raises.
        """
        return self._worker.run(self._answer, question)

    def _answer(self, question: Callable[[ChainReader], T]) -> T:
        with self._lock, self._reader.snapshot():
            return question(self._reader)

    def close(self) -> None:
        """Let the question that is being answered be the last; for any thread."""
        with self._lock:
            self._connection.close()
