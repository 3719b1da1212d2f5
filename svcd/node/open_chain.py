"""An open chain, and the queries of its database that take long."""

from collections.abc import Callable
from typing import TypeVar

import apsw
from attrs import frozen
from twisted.internet.defer import Deferred

from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.interfaces import Worker
from svcd.node.chainstate import Chainstate
from svcd.store.chain_store import ChainReader
from svcd.store.database import DatabaseConnection

T = TypeVar("T")


class LongReads:
    """Queries too long for the reactor's thread, full blocks above all.

    They run in ``worker``, which has one thread, on a connection of their own. Clients ask for most of them, so no
    block may wait for one.
    """

    def __init__(self, worker: Worker, connection: DatabaseConnection, report: Callable[[Exception], object]) -> None:
        """``report`` is called in the worker with every error of the database, even if nobody waits any more."""
        self._worker = worker
        self._report = report
        self._connection = connection
        self._reader = ChainReader(connection)

    def ask(self, query: Callable[[ChainReader], T]) -> Deferred[T]:
        """The result of ``query``, read from a single commit; fails with what ``query`` raises.

        Cancelling the Deferred does not stop the query.
        """
        return self._worker.run(self._run, query)

    def _run(self, query: Callable[[ChainReader], T]) -> T:
        try:
            with self._reader.snapshot():
                return query(self._reader)
        except (apsw.Error, Corrupt) as error:
            self._report(error)
            raise

    def close(self) -> Deferred[None]:
        """Close the connection after all queries that have been asked."""
        return self._worker.run(self._connection.close)


@frozen
class OpenChain:
    """The parts of an open chain: reader and writer, and the threads for both."""

    params: NetworkParams
    reader: ChainReader
    """For queries that the reactor's thread can answer."""
    long_reads: LongReads
    chainstate: Chainstate
    """For the thread of ``writer`` only."""
    writer: Worker
