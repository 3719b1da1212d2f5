"""Databases of a stopped node: inspected row by row, and replaced by rebuilt ones.

The queries here are those that a running node never makes: whether every row that should exist does, and no other.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
from attrs import evolve

from svcd.chain.accounts import Account
from svcd.chain.errors import Corrupt
from svcd.chain.history import Node
from svcd.chain.transaction import Transfer
from svcd.store.chain_store import POINT, ChainReader, StoredBlock, stored_block
from svcd.store.database import (
    CHAIN,
    DatabaseConnection,
    DatabaseError,
    DatabaseKind,
    UncleanShutdownMarker,
    check_log,
    check_version,
    connect,
    damaged_pages,
    describe,
    explaining_errors,
    is_damage,
    migrations,
    unverified,
)
from svcd.store.database_copy import sync
from svcd.store.sorted_runs import SortedRuns, Tree
from svcd.store.transfer_index import TRANSFERS, rows_of
from svcd.store.undo_records import unpack

_STEPS_OF_SQLITE: Final = 1_000_000
"""Instructions of SQLite's virtual machine between two looks at the progress; some hundredths of a second."""
_COMPANIONS: Final = ("-wal", "-shm", "-tree")
"""Files beside a database that belong to it: SQLite would take its own for those of a new one of the same name."""


@contextmanager
def open_offline(path: Path, kind: DatabaseKind = CHAIN) -> Iterator[DatabaseConnection]:
    """A connection that can only read the database at ``path``.

    Raises DatabaseError if there is no such file, it is damaged, or has another schema than this program's.
    """
    if not path.is_file():
        raise DatabaseError(f"there is no {path}; name the data directory of a node")
    check_log(path, kind)
    with (
        # The caller is the repair tool; do not recommend it.
        explaining_errors(path, evolve(kind, tool="")),
        _marker_cleared(UncleanShutdownMarker(path)),
        # Opened for writing: the write-ahead log of a killed node must be brought into the file.
        closing(connect(path, kind)) as db,
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
    except apsw.Error as error:
        raise Corrupt(f"it cannot be read: {describe(error)}") from error


_MOST_PROBLEMS: Final = 100


def integrity(path: Path, connection: DatabaseConnection) -> list[str]:
    """The problems in the file at ``path``, open as ``connection``, which is read whole; at most _MOST_PROBLEMS."""
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    if damaged := damaged_pages(path, size, at_most=_MOST_PROBLEMS):
        users = _users_of(connection, damaged)
        return [f"page {page}, {users.get(page, 'unused')}, fails its checksum" for page in damaged]
    try:
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})")]
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return [describe(error)]
    return [text for text in found if text != "ok"]


def _users_of(connection: DatabaseConnection, pages: list[int]) -> dict[int, str]:
    """The table or index to which each of some damaged pages belongs, as far as they let SQLite find it."""
    users: dict[int, str] = {}
    try:
        with unverified(connection):
            for name, page in connection.execute("SELECT name, pageno FROM dbstat"):
                if page in pages:
                    users[page] = f"of {name}"
    except apsw.Error:
        # What the other pages say is lost with this one.
        return dict.fromkeys(pages, "in use or not") | users
    return users


class Inspector(ChainReader):
    """Queries about the chain of a stopped node."""

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None] | None:
        """The accounts before a block by its undo record, or None if there is none; raises Corrupt."""
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        return None if row is None else unpack(row[0])

    def history_nodes(self, height: int) -> list[tuple[int, Node]]:
        """The levels and nodes of the history tree that the canonical block at ``height`` completes, without leaves."""
        rows = self._db.execute("SELECT level, node FROM history WHERE height = ? ORDER BY level", (height,))
        return rows.fetchall()

    def is_indexed(self, transfer: Transfer, height: int, position: int) -> bool:
        """Whether the index has all rows of a transfer at its place."""
        row = (
            f"SELECT 1 FROM {TRANSFERS.source} AND (p.key, p.place) = (?1, ?2) AND ?2 >> 16 BETWEEN r.first AND r.last"
        )
        return all(self._db.execute(row, each).fetchone() for each in rows_of([transfer], height, position))

    def count_indexed(self) -> int:
        """How many rows the index has; reads them all."""
        return SortedRuns(self._db, TRANSFERS).count_rows()

    def rows_of(self, table: str) -> int:
        """The number of rows of ``canonical``, ``undo`` or ``history``."""
        (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def count_strays(self, tree: Tree) -> int:
        """The number of rows of accounts or of the index that belong to no run."""
        return SortedRuns(self._db, tree).count_strays()

    def side_blocks(self) -> Iterator[StoredBlock]:
        """The stored blocks that are not canonical, parents first."""
        rows = self._db.execute(
            f"SELECT b.id, b.parent, b.header, {POINT} FROM block b "
            "WHERE NOT EXISTS (SELECT 1 FROM canonical c WHERE c.block = b.id) ORDER BY b.height, b.id"
        )
        return map(stored_block, rows)


def used_bytes(connection: DatabaseConnection) -> int:
    """How large the file of a database would be without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def copy_used(connection: DatabaseConnection, fresh: Path, step: Callable[[int], object]) -> None:
    """Copy a database of :func:`open_offline` to the new file ``fresh``, without its free pages.

    ``step`` is called with the number of further bytes written. Raises apsw.Error and OSError.
    """
    # SQLite would create a file that all users can read.
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    written = 0

    def tell() -> bool:
        nonlocal written
        size = fresh.stat().st_size
        step(size - written)
        written = size
        return False

    # It would forbid writing to the copy, too.
    connection.execute("PRAGMA query_only = 0")
    connection.set_progress_handler(tell, _STEPS_OF_SQLITE)
    connection.execute("VACUUM INTO ?", (str(fresh),))
    connection.set_progress_handler(None)
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
