"""Opens and closes the database of webhooks (docs/storage.md)."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import field, frozen
from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.commerce.chain_follower import ChainFollower
from svcd.commerce.events import EVENT_RULES, ChainIdentity
from svcd.commerce.watch_operations import WatchLimits, WatchOperations
from svcd.commerce.watch_repository import WatchRepository
from svcd.interfaces import Worker
from svcd.node.database_health import DatabaseHealth, DiskProbe, ReportingWorker
from svcd.store.chain_store import ChainReader
from svcd.store.database import (
    POSTGRESQL,
    WEBHOOKS,
    DatabaseError,
    DatabaseUnavailable,
    UncleanShutdownMarker,
    explaining_errors,
    explaining_os_errors,
    open_reader,
    open_writer,
)
from svcd.store.lease_store import LeaseStore
from svcd.store.optional_postgresql import postgresql_at
from svcd.store.sql_connection import SqlConnection, SqliteConnection
from svcd.store.webhook_events import EventStore
from svcd.store.webhook_store import WebhookStore

if TYPE_CHECKING:
    from svcd.store.postgresql import PostgresqlConnection

FILE: Final = "webhooks.sqlite"
_LOG: Final = Logger()


@frozen(kw_only=True)
class WatchSettings:
    """The settings of this node for watches."""

    every_depth: bool
    """Whether each further confirmation of an unconfirmed payment is an event."""
    new_id: Callable[[], str]
    """Returns a random id for a watch."""
    limits: WatchLimits
    now: Callable[[], int]
    """Returns the time in Unix milliseconds."""
    database: str = field(default="", repr=False)
    """The connection URI of PostgreSQL; "" for a file."""
    database_file: Path | None = None
    """The file that has the connection URI, if it was read from one."""


@frozen
class WebhookDatabase:
    """The open database; to be closed before the chain."""

    operations: WatchOperations
    worker: Worker
    """The thread in which all access to it happens, in order."""
    disk: DiskProbe
    """Whether its disk can be written, or PostgreSQL answers."""
    is_file: bool
    """Whether it is a file in the data directory."""
    lease: LeaseStore | None
    """The lease by which one of the nodes that share it leads, on a connection of its own; None for a file."""
    _close: Callable[[], None]

    async def has_active_since(self, height: int, time: int) -> bool:
        """See :meth:`svcd.store.webhook_store.WebhookStore.has_active_since`.

        Raises DatabaseUnavailable, and apsw.Error for a file.
        """
        return await self.worker.run(self.operations.repository.watches.has_active_since, height, time)

    async def refuse_below(self, height: int) -> None:
        """Refuse, from now on, watches over payments in blocks below ``height`` as if these were not here; 0 for none.

        No such watch is registered after a later :meth:`has_active_since`, except by another node on PostgreSQL.
        """
        await self.worker.run(self.operations.refuse_below, height)

    async def close(self) -> None:
        """Close the files after all operations that have begun."""
        await self.worker.run(self._close)


async def open_webhook_database(
    params: NetworkParams, folder: Path, *, chain: Path, worker: Worker, health: DatabaseHealth, settings: WatchSettings
) -> WebhookDatabase:
    """Open the database of webhooks in ``folder``, or on PostgreSQL, for the open chain at ``chain``.

    It is created if there is none. ``worker`` must have one thread; ``health`` is the chain's. A PostgreSQL that does
    not answer is connected to later. Raises DatabaseError.
    """
    is_file = not settings.database
    own = health.of(WEBHOOKS if is_file else POSTGRESQL)
    if is_file:
        opened = await _open_file(folder / FILE, worker, settings)
    else:
        opened = await _open_postgresql(params, folder, worker, settings, own)
    try:
        reading = open_reader(chain, health.is_damage)
    except BaseException:
        opened.close()
        raise
    identity = ChainIdentity(network_id=params.network_id, chain_id=params.chain_id, genesis_hash=params.genesis_hash)
    fence = None if opened.lease is None else LeaseStore(opened.sql)
    repository = WatchRepository(WebhookStore(opened.sql), EventStore(opened.sql, EVENT_RULES), identity, fence)
    follower = ChainFollower(repository, params, ChainReader(reading), settings.every_depth)

    def close() -> None:
        reading.close()
        opened.close()

    return WebhookDatabase(
        WatchOperations(follower, settings.new_id, settings.limits),
        ReportingWorker(worker, own, log=False, recovers=not is_file),
        DiskProbe(own, worker, opened.sql.probe),
        is_file,
        opened.lease,
        close,
    )


@frozen
class _Opened:
    sql: SqlConnection
    close: Callable[[], None]
    lease: LeaseStore | None = None


async def _open_file(path: Path, worker: Worker, settings: WatchSettings) -> _Opened:
    mark = UncleanShutdownMarker(path)
    if mark.log_is_missing:
        raise DatabaseError(
            f"{mark.log} is missing although the last run did not shut down cleanly: the newest watches and events "
            f"are lost with it. Restore it, or move {mark.database} away and register the open orders again"
        )
    connection = await worker.run(open_writer, path, WEBHOOKS)
    sql = SqliteConnection(connection)
    with explaining_os_errors(path), mark.opening(connection):
        if sql.is_moved():
            raise DatabaseError(
                f"{path} was moved to PostgreSQL: name that database in [commerce.webhooks] database, or move the "
                "webhooks back with `svc webhook move`"
            )
        with explaining_errors(path, WEBHOOKS):
            await worker.run(_begin_epochs_of_copy, sql, settings.now())

    def close() -> None:
        with suppress(OSError):
            mark.remove()
        connection.close()

    return _Opened(sql, close)


async def _open_postgresql(
    params: NetworkParams, folder: Path, worker: Worker, settings: WatchSettings, health: DatabaseHealth
) -> _Opened:
    def prepare(connection: "PostgresqlConnection") -> None:
        connection.migrate(params.genesis_hash)

    connection, lease = (
        postgresql_at(settings.database, prepare, resume=_resume, credentials_in=settings.database_file)
        for _ in range(2)
    )
    await worker.run(_refuse_unmoved, folder / FILE)
    try:
        await worker.run(connection.connect)
    except DatabaseUnavailable as error:
        health.report(error, log=False)
        _LOG.error("webhooks begin when their database answers: {why}", why=str(error))

    def close() -> None:
        lease.close()
        connection.close()

    return _Opened(connection, close, LeaseStore(lease))


def _resume(connection: "PostgresqlConnection") -> None:
    """Begin to use a database to which a connection was made; another server may have it now.

    After the loss of transactions their ids must not be used for other events, and no leader may continue from what it
    knows. Raises DatabaseError if the webhooks are elsewhere.
    """
    connection.refuse_moved()
    if not connection.is_copy():
        connection.record_server()
        return
    # Hundreds of thousands of watches take longer than a statement may.
    with connection.long_transaction():
        if not connection.is_copy():
            # Another connection was first.
            return
        lease = LeaseStore(connection)
        WebhookStore(connection).begin_epochs(lease.now() // 1000)
        lease.end_terms()
        connection.clear_copy_mark()
    _LOG.warn(
        "PostgreSQL has the webhooks of a backup or a promoted standby: register the newest orders again unless it was "
        "a synchronous one. All watches continue, and receivers may get events that they have already received"
    )


def _refuse_unmoved(path: Path) -> None:
    """Raise DatabaseError if a file has watches that would be lost."""
    if not path.exists():
        return
    with explaining_errors(path, WEBHOOKS), closing(SqliteConnection(open_writer(path, WEBHOOKS))) as file:
        if file.has_watches() and not file.is_moved():
            raise DatabaseError(
                f"{path} has webhooks, and [commerce.webhooks] database names PostgreSQL: move them with "
                "`svc webhook move`, or move the file away"
            )


def _begin_epochs_of_copy(connection: SqlConnection, now: int) -> None:
    """Begin new epochs if this database is a backup, so that no event id is used for two different events.

    The node that the backup was made of has sent more events since, an unknown number. An epoch equal to the Unix
    time in seconds is higher than any of its epochs, because no watch is reorganised once a second.
    """
    if not connection.is_copy():
        return
    with connection.transaction():
        WebhookStore(connection).begin_epochs(now // 1000)
        connection.clear_copy_mark()
    _LOG.info(
        "the webhooks are from a backup: their watches continue, and receivers may get events that they have already "
        "received"
    )
