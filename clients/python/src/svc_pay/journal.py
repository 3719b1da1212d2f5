"""Where payouts are stored: entries in one order, which all processes of a shop share and which never change."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Protocol

from svc_pay.errors import JournalError

_LOCK_SECONDS: Final = 60
_TABLE: Final = "CREATE TABLE IF NOT EXISTS payout_journal (sequence INTEGER PRIMARY KEY, entry TEXT NOT NULL)"


class Journal(Protocol):
    """Numbered entries, from 1 on without a gap: one journal for each key that pays.

    Threads of a program call the methods, several at the same time. They raise JournalError.
    """

    def read(self, after: int) -> Sequence[str]:
        """The entries after this number, in order."""

    def append(self, sequence: int, entry: str) -> bool:
        """Store an entry under this number, durably before the method returns; False if the number is taken.

        Of all processes that append the same number, exactly one gets True.
        """


class SqliteJournal:
    """A journal in the table ``payout_journal`` of an SQLite file, which is made if it is missing.

    The lock of SQLite is that of the system, which ends with its process, even after ``kill -9``. Each entry is synced
    to the disk. Keep the file on a local disk: the locks of network file systems cannot be relied on. A file that is
    made can be read by its user alone: it says who is paid.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = fspath(path)
        is_new = not Path(self._path).exists()
        with self._connection() as connection:
            connection.execute(_TABLE)
        if is_new:
            # Not by opening it: closing a file drops the locks that SQLite has on it in this process.
            Path(self._path).chmod(0o600)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for one statement: threads and forked processes must not share one."""
        try:
            connection = sqlite3.connect(self._path, timeout=_LOCK_SECONDS, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise JournalError(f"the payouts in {self._path} cannot be read or written: {error}") from error

    def read(self, after: int) -> list[str]:
        """See :meth:`Journal.read`."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT sequence, entry FROM payout_journal WHERE sequence > ? ORDER BY sequence", (after,)
            ).fetchall()
        if [sequence for sequence, _ in rows] != list(range(after + 1, after + 1 + len(rows))):
            raise JournalError(f"the payouts in {self._path} are damaged: an entry after number {after} is missing")
        return [entry for _, entry in rows]

    def append(self, sequence: int, entry: str) -> bool:
        """See :meth:`Journal.append`."""
        with self._connection() as connection:
            added = connection.execute(
                "INSERT INTO payout_journal VALUES (?, ?) ON CONFLICT (sequence) DO NOTHING", (sequence, entry)
            )
            return added.rowcount == 1
