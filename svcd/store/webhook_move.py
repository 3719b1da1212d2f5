"""Moves the webhooks of a stopped node to PostgreSQL, or back (docs/scaling.md "Webhooks on PostgreSQL").

Even if the move is killed, exactly one of the two is in use at any time. The move to PostgreSQL:

1. copies everything in one transaction, which also notes that the move has not ended: no node uses it yet,
2. marks the file as moved, after which no node uses the file,
3. removes the note.

A repeated command begins again if the move was killed before 2, and finishes it otherwise. The move to a file writes a
file of another name and, in the transaction that reads PostgreSQL, notes there that the webhooks have left it; then it
renames the file.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.store.database import WEBHOOKS, DatabaseError, UncleanShutdownMarker, explaining_errors, open_writer
from svcd.store.database_copy import sync
from svcd.store.offline_database import discard, replace_database
from svcd.store.postgresql import Moved, PostgresqlConnection
from svcd.store.sql_connection import Row, SqlConnection, SqliteConnection, mark_as_copy, mark_as_moved
from svcd.store.webhook_events import EVENT_COLUMNS
from svcd.store.webhook_store import WATCH_COLUMNS

Step = Callable[[int], object]
"""Called with the rows that were copied since the last call."""

USERS_SECONDS: Final = 2.0
AT_ONCE: Final = 500
"""Rows of one batch."""
COLUMNS: Final = {
    "watch": ("number", *WATCH_COLUMNS, "due"),
    "event": ("number", "watch", *EVENT_COLUMNS),
    "followed_block": ("height", "hash", "work", "evaluated"),
    "alarm": ("id", "kind", "sentence", "ends_at"),
    "watch_count": ("merchant", "host", "active", "unconfirmed"),
}
"""The columns of each table; the first is unique, but for the last table."""


@frozen
class MoveResult:
    """The numbers of watches and events that were moved."""

    watches: int
    events: int


def rows_in(connection: SqlConnection) -> int:
    """The number of rows that a move copies."""
    return sum(_count(connection, table) for table in COLUMNS)


def to_postgresql(path: Path, database: PostgresqlConnection, begin: Callable[[int], Step]) -> MoveResult:
    """Move the file at ``path`` to an empty database, which :meth:`PostgresqlConnection.migrate` has prepared.

    ``begin`` gets the number of rows. Raises DatabaseError or DatabaseUnavailable.
    """
    _refuse_users(database)
    mark = UncleanShutdownMarker(path)
    if not path.is_file() or mark.log_is_missing:
        missing = mark.log if path.is_file() else path
        raise DatabaseError(f"{missing} is missing: without it there is nothing to move, or not everything")
    with explaining_errors(path, WEBHOOKS), closing(open_writer(path, WEBHOOKS)) as opened:
        file, moved = SqliteConnection(opened), database.moved()
        if not file.is_moved():
            _fill(file, database, begin(rows_in(file)))
            mark_as_moved(opened)
        elif moved is not Moved.ARRIVING:
            raise DatabaseError(f"{path} was moved to PostgreSQL before")
        result = _result(database)
    mark.remove()
    with database.transaction():
        database.set_moved(Moved.NOT)
    return result


def to_file(database: PostgresqlConnection, path: Path, begin: Callable[[int], Step]) -> MoveResult:
    """Move a database to the file at ``path``, where there is none, or one that was moved to PostgreSQL before.

    ``begin`` gets the number of rows. Raises DatabaseError, DatabaseUnavailable or OSError.
    """
    _refuse_users(database)
    fresh = path.with_name(f"{path.name}.new")
    if database.moved() is Moved.ARRIVING:
        raise DatabaseError(f"{database.address.name} has an unfinished move; end it with --to first")
    if database.moved() is Moved.LEFT and not fresh.is_file():
        raise DatabaseError(f"{database.address.name} was moved to a file before")
    if path.exists():
        with explaining_errors(path, WEBHOOKS), closing(open_writer(path, WEBHOOKS)) as old:
            if SqliteConnection(old).has_watches() and not SqliteConnection(old).is_moved():
                raise DatabaseError(f"{path} has webhooks of its own; move the file away")
    if database.moved() is Moved.NOT:
        discard(fresh)
        # Until the note is committed no node that is started meanwhile gets a transaction, and none does afterwards.
        with database.long_transaction():
            database.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            with explaining_errors(fresh, WEBHOOKS), closing(open_writer(fresh, WEBHOOKS)) as opened:
                _copy(database, SqliteConnection(opened), begin(rows_in(database)))
            if database.is_copy():
                mark_as_copy(fresh)
            sync(fresh)
            database.set_moved(Moved.LEFT)
    result = _result(database)
    if path.exists():
        replace_database(path, fresh)
    else:
        fresh.rename(path)
        sync(path.parent)
    return result


def _fill(file: SqliteConnection, database: PostgresqlConnection, step: Step) -> None:
    with database.long_transaction():
        if database.moved() is Moved.NOT and any(_count(database, table) for table in list(COLUMNS)[:-1]):
            raise DatabaseError(f"{database.address.name} is not empty; name a new one")
        _copy(file, database, step)
        for table in ("watch", "event"):
            database.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), (SELECT max(number) FROM {table}))"
            )
        if file.is_copy():
            database.set_copy_mark()
        database.set_moved(Moved.ARRIVING)


def _copy(source: SqlConnection, target: SqlConnection, step: Step) -> None:
    """Replace the rows of the target by those of the source, inside a transaction of PostgreSQL."""
    # A transaction of its own for each statement would take hours on a file.
    with target.transaction() if isinstance(target, SqliteConnection) else nullcontext():
        for table, columns in COLUMNS.items():
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            target.execute(f"DELETE FROM {table}")
            for rows in _rows(source, table, columns):
                target.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
                step(len(rows))


def _rows(source: SqlConnection, table: str, columns: tuple[str, ...]) -> Iterator[list[Row]]:
    """The rows of a table, in batches."""
    names, first = ", ".join(columns), columns[0]
    if table == "watch_count":
        yield source.execute(f"SELECT {names} FROM {table}").fetchall()
        return
    query = f"SELECT {names} FROM {table} WHERE {first} > ? ORDER BY {first} LIMIT ?"
    last: int | str = "" if table == "alarm" else -1
    while rows := source.execute(query, (last, AT_ONCE)).fetchall():
        yield rows
        last = rows[-1][0]


def _count(connection: SqlConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _result(connection: SqlConnection) -> MoveResult:
    return MoveResult(_count(connection, "watch"), _count(connection, "event"))


def _refuse_users(database: PostgresqlConnection) -> None:
    """Raise DatabaseError while a node uses the database; the connection of one that was killed ends soon."""
    until = time.monotonic() + USERS_SECONDS
    while (others := database.other_connections()) and time.monotonic() < until:
        time.sleep(0.05)
    if others:
        raise DatabaseError(
            f"{database.address.name} is in use by another connection of the same user; stop all nodes that use it"
        )
