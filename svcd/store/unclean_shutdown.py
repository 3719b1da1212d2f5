"""Tells an unclean shutdown by a marker file: the newest commits are then in the write-ahead log, which must exist."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import field, frozen


@frozen
class UncleanShutdownMarker:
    """The file ``<database>-open``, which exists while the database is open."""

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
    def log_is_missing(self) -> bool:
        """Whether the last shutdown was unclean and the log has been removed since; ask before opening the database."""
        return self.database.exists() and self.path.exists() and not self.log.exists()

    def create(self) -> None:
        """Note that the database is open; raises OSError."""
        self.path.touch(mode=0o600)

    def remove(self) -> None:
        """Note that the database is about to be closed; raises OSError."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def opening(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Create the marker; if the opening fails inside, close ``connection`` and remove the marker again.

        Otherwise the next start would miss a log that SQLite has brought into the database. A log that is left keeps
        the marker.
        """
        try:
            self.create()
            yield
        except BaseException:
            connection.close()
            if not self.log.exists():
                with suppress(OSError):
                    self.remove()
            raise
