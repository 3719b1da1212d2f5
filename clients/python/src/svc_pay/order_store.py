"""Where open orders are stored, with the place in their feed and the events that nobody has been told yet."""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from svc_pay.errors import StoreError

_LOCK_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """A row for an open order; the last three are what a store has to find it by."""

    reference: str
    text: str
    """What is known about the order; only :class:`svc_pay.Orders` reads it."""
    awaits: int | None
    """A height; None for none."""
    due: int | None
    """A time in Unix milliseconds; None for none."""
    top: int | None
    """The height of its highest transfer; None if it has none."""


@dataclass(frozen=True, slots=True)
class Update:
    """What is written in one transaction."""

    added: Sequence[StoredOrder] = ()
    """New orders; one whose reference is stored stays as it is."""
    changed: Sequence[StoredOrder] = ()
    """Orders in the place of those with their references; one that is not stored any more is left out."""
    removed: str | None = None
    """The reference of an order to be removed."""
    events: Sequence[str] = ()
    """Events behind all that are stored."""
    told: int | None = None
    """The number of an event: it and all before it are removed."""
    place: tuple[str | None, str] | None = None
    """The place in the feed that must be stored (None before the first one), and the one in its stead."""


class OrderStore(Protocol):
    """The open orders of one recipient, for programs that have a database of their own.

    Threads and processes call the methods, several at the same time. They raise StoreError.
    """

    def place(self) -> str | None:
        """The place in the feed; None before the first one."""

    def orders(self, references: Sequence[str]) -> Sequence[StoredOrder]:
        """The orders with these references, of which many may not be stored."""

    def affected(self, *, height: int, now: int, above: int, after: str, limit: int) -> Sequence[StoredOrder]:
        """The first orders by reference of those to be looked at, behind the reference ``after``.

        They are those whose ``awaits`` is at most ``height``, whose ``due`` is at most ``now``, or whose ``top`` is
        above ``above``. Each of the three needs an index.
        """

    def events(self, limit: int) -> Sequence[tuple[int, str]]:
        """The oldest events with their numbers, which rise and are never used again."""

    def write(self, update: Update) -> bool:
        """Write everything, durably before the method returns; False, and nothing, if another place is stored."""


_TABLES: Final = """
CREATE TABLE IF NOT EXISTS feed_place (id INTEGER PRIMARY KEY CHECK (id = 1), place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS open_order (
    reference TEXT PRIMARY KEY, content TEXT NOT NULL, awaits INTEGER, due INTEGER, top INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_order_awaits ON open_order (awaits, reference) WHERE awaits IS NOT NULL;
CREATE INDEX IF NOT EXISTS open_order_due ON open_order (due, reference) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS open_order_top ON open_order (top, reference) WHERE top IS NOT NULL;
CREATE TABLE IF NOT EXISTS order_event (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
"""
_SOME: Final = """
SELECT reference, content, awaits, due, top FROM open_order WHERE reference IN (SELECT value FROM json_each(?))
"""
# Each of the three by its index: SQLite would rather walk the table in the order that is asked for.
_AFFECTED: Final = """
SELECT reference, content, awaits, due, top FROM open_order WHERE reference IN (
    SELECT DISTINCT reference FROM (
        SELECT reference FROM open_order INDEXED BY open_order_awaits WHERE awaits <= :height
        UNION ALL SELECT reference FROM open_order INDEXED BY open_order_due WHERE due <= :now
        UNION ALL SELECT reference FROM open_order INDEXED BY open_order_top WHERE top > :above
    ) WHERE reference > :after ORDER BY reference LIMIT :limit
) ORDER BY reference
"""


class SqliteOrders:
    """A store in an SQLite file, mode 0600 if this creates it, on a disk of this computer; for Python's ``sqlite3``."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = fspath(path)
        self._lock = Lock()
        self._open: tuple[int, sqlite3.Connection] | None = None
        """The process and its connection: forked processes must not share one."""
        try:
            Path(self._path).touch(mode=0o600)
        except OSError as error:
            raise StoreError(f"the file {self._path} cannot be made: {error.strerror}") from None
        with self._connection() as connection:
            connection.executescript(_TABLES)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                if self._open is None or self._open[0] != os.getpid():
                    connection = sqlite3.connect(
                        self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
                    )
                    connection.execute("PRAGMA journal_mode = WAL")
                    self._open = os.getpid(), connection
                yield self._open[1]
        except sqlite3.Error as error:
            raise StoreError(f"the open orders in {self._path} cannot be read or written: {error}") from error

    def close(self) -> None:
        """Close the file; another use opens it again."""
        with self._lock:
            if self._open is not None and self._open[0] == os.getpid():
                self._open[1].close()
            self._open = None

    def place(self) -> str | None:
        """See :meth:`OrderStore.place`."""
        with self._connection() as connection:
            return _place(connection)

    def orders(self, references: Sequence[str]) -> list[StoredOrder]:
        """See :meth:`OrderStore.orders`."""
        with self._connection() as connection:
            return [StoredOrder(*row) for row in connection.execute(_SOME, (json.dumps(list(references)),))]

    def affected(self, *, height: int, now: int, above: int, after: str, limit: int) -> list[StoredOrder]:
        """See :meth:`OrderStore.affected`."""
        given = {"height": height, "now": now, "above": above, "after": after, "limit": limit}
        with self._connection() as connection:
            return [StoredOrder(*row) for row in connection.execute(_AFFECTED, given)]

    def events(self, limit: int) -> list[tuple[int, str]]:
        """See :meth:`OrderStore.events`."""
        with self._connection() as connection:
            return connection.execute(
                "SELECT number, body FROM order_event ORDER BY number LIMIT ?", (limit,)
            ).fetchall()

    def write(self, update: Update) -> bool:
        """See :meth:`OrderStore.write`; that an event was told may be forgotten with a loss of power."""
        only_told = update == Update(told=update.told)
        with self._connection() as connection:
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if only_told else 'FULL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                is_written = self._write(connection, update)
                connection.execute("COMMIT" if is_written else "ROLLBACK")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return is_written

    def _write(self, connection: sqlite3.Connection, update: Update) -> bool:
        if update.place is not None:
            before, after = update.place
            if _place(connection) != before:
                return False
            connection.execute("INSERT OR REPLACE INTO feed_place VALUES (1, ?)", (after,))
        connection.executemany(
            "INSERT INTO open_order (reference, content, awaits, due, top) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            [(each.reference, each.text, each.awaits, each.due, each.top) for each in update.added],
        )
        connection.executemany(
            "UPDATE open_order SET content = ?, awaits = ?, due = ?, top = ? WHERE reference = ?",
            [(each.text, each.awaits, each.due, each.top, each.reference) for each in update.changed],
        )
        if update.removed is not None:
            connection.execute("DELETE FROM open_order WHERE reference = ?", (update.removed,))
        connection.executemany("INSERT INTO order_event (body) VALUES (?)", [(body,) for body in update.events])
        if update.told is not None:
            connection.execute("DELETE FROM order_event WHERE number <= ?", (update.told,))
        return True


def _place(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT place FROM feed_place").fetchone()
    return None if row is None else str(row[0])
