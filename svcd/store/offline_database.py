"""Databases of a stopped node: inspected row by row, and replaced by rebuilt ones.

The queries here are those that a running node never makes: whether every row that should exist does, and no other.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from attrs import evolve

from svcd.chain.accounts import Account
from svcd.chain.errors import Corrupt
from svcd.chain.history import Node
from svcd.chain.transaction import Transfer
from svcd.store.chain_store import POINT, ChainReader, StoredBlock, stored_block
from svcd.store.database import (
    CHAIN,
    DatabaseError,
    DatabaseKind,
    UncleanShutdownMarker,
    check_version,
    explaining_errors,
    is_damage,
    migrations,
)
from svcd.store.database_copy import sync
from svcd.store.transfer_index import INDEXES, Index, rows_of
from svcd.store.undo_records import unpack

_STEPS_OF_SQLITE: Final = 1_000_000
"""Instructions of SQLite's virtual machine between two looks at the progress; some hundredths of a second."""
_COMPANIONS: Final = ("-wal", "-shm", "-tree")
"""Files beside a database that belong to it: SQLite would take its own for those of a new one of the same name."""


@contextmanager
def open_offline(path: Path, kind: DatabaseKind = CHAIN) -> Iterator[sqlite3.Connection]:
    """A connection that can only read the database at ``path``.

    Raises DatabaseError if there is no such file, it is damaged, or has another schema than this program's.
    """
    if not path.is_file():
        raise DatabaseError(f"there is no {path}; name the data directory of a node")
    # Opened for writing: the write-ahead log of a killed node must be brought into the file.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with (
        # The caller is the repair tool; do not recommend it.
        explaining_errors(path, evolve(kind, tool="")),
        _marker_cleared(UncleanShutdownMarker(path)),
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db,
    ):
        db.execute("PRAGMA query_only = 1")
        (present,) = db.execute("PRAGMA user_version").fetchone()
        check_version(str(path), present, kind, "name another data directory")
        if present < migrations(kind)[-1].version:
            raise DatabaseError(
                f"{path} has the older schema {present}: start the node once, which brings it up to date"
            )
        yield db


@contextmanager
def _marker_cleared(marker: UncleanShutdownMarker) -> Iterator[None]:
    """Remove a killed node's marker once the closing of the connection inside has brought the log into the file.

    If the log was missing before, the marker stays, and the node reports the loss at its next start.
    """
    was_killed = marker.path.exists() and marker.log.exists()
    try:
        yield
    finally:
        if was_killed and not marker.log.exists():
            marker.remove()


@contextmanager
def errors_as_corrupt() -> Iterator[None]:
    """Turn errors of SQLite inside into Corrupt, for damage that the caller can locate."""
    try:
        yield
    except sqlite3.Error as error:
        raise Corrupt(f"it cannot be read: {error}") from error


_MOST_PROBLEMS: Final = 100


def integrity(connection: sqlite3.Connection) -> list[str]:
    """The problems that SQLite finds in the file, which it reads whole; at most _MOST_PROBLEMS."""
    try:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({pages + _MOST_PROBLEMS})")]
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return [str(error)]  # A damaged first page, for instance, ends the check.
    # Tables of a start from a snapshot that the disk had damaged leave such pages, which hold nothing that is missing.
    problems = [text for text in found if text != "ok" and not text.endswith("never used")]
    return problems[:_MOST_PROBLEMS]


class Inspector(ChainReader):
    """Queries about the chain of a stopped node."""

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None] | None:
        """The accounts before a block by its undo record, or None if there is none; raises Corrupt."""
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        return None if row is None else unpack(row[0])

    def is_undo_being_deleted(self) -> bool:
        """Whether the block below the prune height still has its undo record."""
        query = "SELECT 1 FROM canonical c JOIN undo u ON u.block = c.block WHERE c.height = ?"
        return self._db.execute(query, (self.prune_height() - 1,)).fetchone() is not None

    def history_nodes(self, height: int) -> list[tuple[int, Node]]:
        """The levels and nodes of the history tree that the canonical block at ``height`` completes, without leaves."""
        rows = self._db.execute("SELECT level, node FROM history WHERE height = ? ORDER BY level", (height,))
        return rows.fetchall()

    def index_without(self, transfer: Transfer, height: int, position: int) -> Index | None:
        """The first index in which a transfer is not found where it is; None if it is found in all."""
        for index, rows in rows_of([transfer], height, position).items():
            if not all(self._index.has(index, row) for row in rows):
                return index
        return None

    def count_entries(self) -> dict[Index, int]:
        """How many rows each index has; reads them all."""
        return {index: self._index.count(index) for index in INDEXES}

    def rows_of(self, table: str) -> int:
        """The number of rows of ``canonical``, ``undo`` or ``history``."""
        (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def stray_changes(self) -> int:
        """The number of changes of accounts in runs that do not exist."""
        query = "SELECT count(*) FROM recent_account WHERE run NOT IN (SELECT number FROM account_run)"
        return int(self._db.execute(query).fetchone()[0])

    def side_blocks(self) -> Iterator[StoredBlock]:
        """The stored blocks that are not canonical, parents first."""
        rows = self._db.execute(
            f"SELECT b.id, b.parent, b.header, {POINT} FROM block b "
            "WHERE NOT EXISTS (SELECT 1 FROM canonical c WHERE c.block = b.id) ORDER BY b.height, b.id"
        )
        return map(stored_block, rows)


def used_bytes(connection: sqlite3.Connection) -> int:
    """How large the file of a database would be without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def copy_used(connection: sqlite3.Connection, fresh: Path, step: Callable[[int], object]) -> None:
    """Copy a database of :func:`open_offline` to the new file ``fresh``, without its free pages.

    ``step`` is called with the number of further bytes written. Raises sqlite3.Error and OSError.
    """
    # SQLite would create a file that all users can read.
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    written = 0

    def tell() -> None:
        nonlocal written
        size = fresh.stat().st_size
        step(size - written)
        written = size

    # It would forbid writing to the copy, too.
    connection.execute("PRAGMA query_only = 0")
    connection.set_progress_handler(tell, _STEPS_OF_SQLITE)
    connection.execute("VACUUM INTO ?", (str(fresh),))
    connection.set_progress_handler(None, 0)
    tell()


def exchange_database(path: Path, fresh: Path) -> None:
    """Let the closed database ``fresh`` take the place of the closed one at ``path``; raises OSError.

    Raises DatabaseError, and changes nothing, while the old one has a write-ahead log: another program has it open, or
    its last commits could not be written to the file. SQLite would apply that log to the new file.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        raise DatabaseError(
            f"{path} is unchanged, because {log.name} is in use: end every program that has the database open, and try "
            "again"
        )
    fresh.chmod(stat.S_IMODE(path.stat().st_mode))
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def replace_database(path: Path, fresh: Path) -> Path:
    """Move the closed database ``fresh`` to ``path``; gives the new name of the old one. Raises OSError.

    A database exists at ``path`` all the time: a node that starts meanwhile must not begin a new chain.
    """
    fresh.chmod(stat.S_IMODE(path.stat().st_mode))
    sync(fresh)
    kept = kept_name(path)
    os.link(path, kept)
    for suffix in _COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(kept.with_name(kept.name + suffix))
    fresh.replace(path)
    sync(path.parent)
    return kept


def kept_name(path: Path) -> Path:
    """A free name for the old database at ``path``."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.old-{number}")):
        number += 1
    return path.with_name(f"{path.name}.old-{number}")


def discard(path: Path) -> None:
    """Remove a database that was never used, if it exists, with the files beside it."""
    for suffix in ("", *_COMPANIONS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
