"""A mark beside a database that is open: after a kill the newest commits are in its log, which must then be there."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import field, frozen


@frozen
class OpenMark:
    """The file ``<database>-open``, which is there from an opening to the beginning of an orderly closing."""

    database: Path
    path: Path = field(init=False)
    log: Path = field(init=False)
    """SQLite's write-ahead log."""

    @path.default
    def _beside(self) -> Path:
        return self.database.with_name(f"{self.database.name}-open")

    @log.default
    def _named_by_sqlite(self) -> Path:
        return self.database.with_name(f"{self.database.name}-wal")

    @property
    def misses_log(self) -> bool:
        """Whether the last run was cut off and its log has been removed since; ask before the database is opened."""
        return self.database.exists() and self.path.exists() and not self.log.exists()

    def put(self) -> None:
        """Say that the database is open; raises OSError."""
        self.path.touch(mode=0o600)

    def take_away(self) -> None:
        """Say that it is about to be closed; raises OSError."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def opening(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Put the mark, and where what is done inside fails, close ``connection`` and take the mark away again.

        Or the next start would miss a log that SQLite itself had brought into the database. Where the log stays, so
        does the mark.
        """
        try:
            self.put()
            yield
        except BaseException:
            connection.close()
            if not self.log.exists():
                with suppress(OSError):
                    self.take_away()
            raise
