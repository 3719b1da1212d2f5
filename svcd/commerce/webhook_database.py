"""Opens and closes the database of webhooks (docs/operations.md "Storage")."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.commerce.chain_follower import ChainFollower
from svcd.commerce.events import ChainIdentity
from svcd.commerce.subscriptions import Subscriptions, WatchLimits
from svcd.commerce.watch_repository import WatchRepository
from svcd.interfaces import Worker
from svcd.node.database_health import DatabaseHealth, DiskProbe, ReportingWorker
from svcd.store.chain_store import ChainReader
from svcd.store.database import (
    WEBHOOKS,
    DatabaseError,
    UncleanShutdownMarker,
    explaining_errors,
    explaining_os_errors,
    open_reader,
    open_writer,
)
from svcd.store.sql_connection import SqlConnection, SqliteConnection
from svcd.store.webhook_events import EventStore
from svcd.store.webhook_store import WebhookStore

FILE: Final = "webhooks.sqlite"
_LOG: Final = Logger()


@frozen(kw_only=True)
class WatchSettings:
    """How this node keeps watches."""

    every_depth: bool
    """Whether each further confirmation of an unconfirmed payment is an event."""
    new_id: Callable[[], str]
    """Returns a random id for a watch."""
    limits: WatchLimits
    now: Callable[[], int]
    """Returns the time in Unix milliseconds."""


@frozen
class WebhookDatabase:
    """The open database; to be closed before the chain."""

    subscriptions: Subscriptions
    worker: Worker
    """The thread in which all access to it happens, in order."""
    disk: DiskProbe
    """Whether its disk can be written."""
    _close: Callable[[], None]

    async def close(self) -> None:
        """Close the files after all operations that have begun."""
        await self.worker.run(self._close)


async def open_webhook_database(
    params: NetworkParams, folder: Path, *, chain: Path, worker: Worker, health: DatabaseHealth, settings: WatchSettings
) -> WebhookDatabase:
    """Open the database of webhooks in ``folder``, or create it, for the open chain at ``chain``.

    ``worker`` must have one thread; ``health`` is the chain's. Raises DatabaseError.
    """
    mark = UncleanShutdownMarker(folder / FILE)
    if mark.log_is_missing:
        raise DatabaseError(
            f"{mark.log} is missing although the last run did not end by itself: the newest watches and events "
            f"are lost with it. Put it back, or move {mark.database} away and register the open orders again"
        )
    connection = await worker.run(open_writer, mark.database, WEBHOOKS)
    sql = SqliteConnection(connection)
    store = WebhookStore(sql)
    with explaining_os_errors(mark.database), mark.opening(connection):
        with explaining_errors(mark.database, WEBHOOKS):
            await worker.run(_begin_epochs_of_copy, sql, store, settings.now())
        reading = open_reader(chain, health.is_damage)
    identity = ChainIdentity(network_id=params.network_id, chain_id=params.chain_id, genesis_hash=params.genesis_hash)
    repository = WatchRepository(store, EventStore(sql), identity)
    follower = ChainFollower(repository, params, ChainReader(reading), settings.every_depth)

    def close() -> None:
        with suppress(OSError):
            mark.remove()
        reading.close()
        connection.close()

    own = health.of(WEBHOOKS)
    guarded = ReportingWorker(worker, own, log=False)
    return WebhookDatabase(
        Subscriptions(follower, settings.new_id, settings.limits), guarded, DiskProbe(own, worker, sql.probe), close
    )


def _begin_epochs_of_copy(connection: SqlConnection, store: WebhookStore, now: int) -> None:
    """Begin new epochs if this database is a backup, so that no event id is used for two different events.

    The node that the backup was made of has sent more events since, an unknown number. An epoch equal to the Unix
    time in seconds is higher than any of its epochs, because no watch is reorganised once a second.
    """
    if not connection.is_copy():
        return
    with store.commit():
        store.begin_epochs(now // 1000)
        connection.clear_copy_mark()
    _LOG.info("the webhooks are from a backup: their watches go on, and receivers may get events that they know")
