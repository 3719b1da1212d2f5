"""The connection of the store of webhooks: its protocol, and SQLite's; PostgreSQL's is in svcd.store.postgresql.

Every statement of the store is written once, in the SQL that both engines have:

- ``?`` stands for a value; values are ``int`` (a BIGINT), ``str``, ``bytes`` or None.
- The result of a comparison may be a bool or 0 and 1: use only its truth value.
- No functions of one engine (``iif``, ``instr``, scalar ``max``), no ``IS`` but with NULL, an alias for each subquery
  in FROM, no literal of bytes, and ``IN ()`` is never empty.
- Use :meth:`SqlConnection.select_each` and :meth:`SqlConnection.executemany` to read and write many rows: PostgreSQL
  gets all statements without a round trip for each.

The errors are the engine's own: apsw.Error, or :class:`svcd.store.database.DatabaseUnavailable` if PostgreSQL does
not answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final, Protocol

from attrs import frozen

from svcd.store import database
from svcd.store.database import DatabaseConnection

Values = Sequence[int | str | bytes | None]
Row = tuple[Any, ...]

_PAGES_OF_AN_ORDER: Final = 16
_COPY: Final = 0x73766362
"""SQLite's application_id of a copy, whose contents are those of an earlier time."""
_MOVED: Final = 0x7376636D
"""SQLite's application_id of a file whose contents were moved to PostgreSQL."""


class Rows(Protocol):
    """The result of one statement."""

    def fetchone(self) -> Any:
        """The next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """All further rows."""

    def __iter__(self) -> Iterator[Any]:
        """All further rows."""


class SqlConnection(Protocol):
    """A connection to the database of webhooks; for one thread.

    Outside of :meth:`transaction` each statement is a transaction of its own.
    """

    def execute(self, statement: str, values: Values = ()) -> Rows:
        """The result of one statement."""

    def change(self, statement: str, values: Values = ()) -> int:
        """Execute an UPDATE or DELETE that returns no rows; gives how many rows it has changed."""

    def select_each(self, statement: str, values: Iterable[Values]) -> list[list[Row]]:
        """The rows that a statement gives for each of ``values``, in order."""

    def executemany(self, statement: str, values: Iterable[Values]) -> None:
        """Execute a statement that returns no rows for each of ``values``, in order; only inside a transaction."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit everything inside together, or nothing; no other transaction of this kind runs meanwhile."""

    def probe(self) -> None:
        """Try to write as much as an order and its events; raises the database's error."""

    def is_copy(self) -> bool:
        """Whether this is a restored backup with which no node has been started yet."""

    def clear_copy_mark(self) -> None:
        """Note that a node has been started with the backup."""

    def close(self) -> None:
        """End the connection."""


def mark_as_copy(path: Path) -> None:
    """Mark the SQLite database at ``path`` as a copy; see :meth:`SqlConnection.is_copy`."""
    with closing(database.connect(path, database.WEBHOOKS)) as copy:
        copy.execute(f"PRAGMA application_id = {_COPY}")


def mark_as_moved(connection: DatabaseConnection) -> None:
    """Mark an open database as moved; see :meth:`SqliteConnection.is_moved`."""
    connection.execute(f"PRAGMA application_id = {_MOVED}")


@frozen
class SqliteConnection:
    """A file that :func:`svcd.store.database.open_writer` has opened."""

    connection: DatabaseConnection

    def execute(self, statement: str, values: Values = ()) -> Rows:
        """See :meth:`SqlConnection.execute`."""
        return self.connection.execute(statement, values)

    def change(self, statement: str, values: Values = ()) -> int:
        """See :meth:`SqlConnection.change`."""
        self.connection.execute(statement, values)
        return self.connection.changes()

    def select_each(self, statement: str, values: Iterable[Values]) -> list[list[Row]]:
        """See :meth:`SqlConnection.select_each`."""
        return [self.connection.execute(statement, each).fetchall() for each in values]

    def executemany(self, statement: str, values: Iterable[Values]) -> None:
        """See :meth:`SqlConnection.executemany`."""
        self.connection.executemany(statement, values)

    def transaction(self) -> AbstractContextManager[None]:
        """See :meth:`SqlConnection.transaction`."""
        return database.transaction(self.connection)

    def probe(self) -> None:
        """See :meth:`SqlConnection.probe`."""
        database.probe(self.connection, _PAGES_OF_AN_ORDER)

    def is_copy(self) -> bool:
        """See :meth:`SqlConnection.is_copy`."""
        (number,) = self.connection.execute("PRAGMA application_id").fetchone()
        return bool(number == _COPY)

    def has_watches(self) -> bool:
        """Whether there is any watch, active or not."""
        return self.connection.execute("SELECT 1 FROM watch LIMIT 1").fetchone() is not None

    def is_moved(self) -> bool:
        """Whether the webhooks were moved to PostgreSQL, and only their copies are left here."""
        (number,) = self.connection.execute("PRAGMA application_id").fetchone()
        return bool(number == _MOVED)

    def clear_copy_mark(self) -> None:
        """See :meth:`SqlConnection.clear_copy_mark`."""
        self.connection.execute("PRAGMA application_id = 0")

    def close(self) -> None:
        """See :meth:`SqlConnection.close`."""
        self.connection.close()
