"""Opening the SQLite file: settings, numbered schema files, one writer and read-only readers (docs/operations.md)."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.store.watched import watched_by

_CACHE_KIB: Final = 65_536
_WAL_LIMIT: Final = 64 * 1024 * 1024
_CHECKPOINT_PAGES: Final = 4_000
_BUSY_MS: Final = 10_000
_DISK_TROUBLE: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
)


class DatabaseError(Exception):
    """The database cannot be used; the text says why and what to do, fit to be shown to the operator."""


@frozen
class Migration:
    """One numbered schema file."""

    version: int
    script: str


@frozen
class Kind:
    """What one file is for: what it is called, where its schema files are, how it is written, how to do without it."""

    name: str
    folder: str
    synchronous: str
    last_resort: str
    """What the operator can do if it is damaged."""
    tool: str = ""
    """And before that: a command which may mend it."""
    refused: str = ""
    """What is said while the disk does not take what is to be written to it."""

    @property
    def remedy(self) -> str:
        """Both, in the order in which they are to be tried."""
        return f"try `{self.tool}`, {self.last_resort}" if self.tool else self.last_resort


CHAIN: Final = Kind(
    "the database",
    "schema",
    "NORMAL",
    "restore it from a backup, or move it away and the node fetches the chain again",
    tool="svc db rebuild",
    refused="the disk takes nothing",
)
"""A power loss may cost the last blocks, which peers have, and never the consistency."""
WEBHOOKS: Final = Kind(
    "the webhooks' database",
    "webhooks",
    "FULL",
    "move it away and register the webhooks still open anew",
    refused="the disk takes nothing for the webhooks",
)
"""What merchants have been promised nobody else has: it is on the disk before anything says that it is."""
MEMPOOL: Final = Kind(
    "the mempool's database",
    "mempool",
    "NORMAL",
    "move it away, and what waited comes again from wallets and peers",
    refused="the disk takes no transfers",
)
"""A power loss may cost the newest transfers, which their wallets keep until they are in a block."""


@cache
def migrations(kind: Kind = CHAIN) -> tuple[Migration, ...]:
    """The schema files that come with this program, ascending, without a gap; they are read once."""
    files = sorted(resources.files("svcd.store").joinpath(kind.folder).iterdir(), key=lambda file: file.name)
    return tuple(Migration(int(file.name[:3]), file.read_text("utf-8")) for file in files if file.name.endswith(".sql"))


def open_writer(path: Path, kind: Kind = CHAIN) -> sqlite3.Connection:
    """A connection that may write, its schema brought up to date; a new file has mode 0600. Raises DatabaseError."""
    with suppress(OSError):
        # SQLite would let everybody read a new file, where orders and callbacks stand in it; it tells what is wrong.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with telling_damage(path, kind):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        try:
            _prepare(connection, path, kind)
        except BaseException:
            # The exception keeps this frame, and with it the connection and its lock on the file.
            connection.close()
            raise
    return connection


@contextmanager
def telling_damage(path: Path, kind: Kind = CHAIN) -> Iterator[None]:
    """What SQLite cannot make of the file at ``path`` inside is told to the operator: raises DatabaseError."""
    try:
        yield
    except sqlite3.Error as error:
        if is_disk_trouble(error):
            # Not the remedy of damage: whoever moves a sound file away has lost it.
            raise DatabaseError(
                f"{path} cannot be used: {error}; the disk must work and have room, and the file and its folder must "
                "belong to the user that runs the node"
            ) from error
        raise DatabaseError(f"{path} cannot be opened as a database: {error}; {kind.remedy}") from error


@contextmanager
def telling_disk_trouble(path: Path) -> Iterator[None]:
    """What the system refuses beside the database at ``path`` inside is told to the operator: raises DatabaseError."""
    try:
        yield
    except OSError as error:
        raise DatabaseError(f"{path} cannot be opened for writing: {error.strerror}") from error


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is not what it was: damaged, or no database at all."""
    code = getattr(error, "sqlite_errorcode", 0)
    # The low byte is the kind of the error, the rest says more about it.
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_disk_trouble(error: BaseException | None) -> bool:
    """Whether SQLite says that the disk does not do what it should: it is full, read-only, locked, or fails."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_TROUBLE


def _prepare(connection: sqlite3.Connection, path: Path, kind: Kind) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {kind.synchronous}")
    _tune(connection)
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    _migrate(connection, path, kind)


def open_reader(
    path: Path, look: Callable[[BaseException], object] | None = None, *, cache_kib: int = _CACHE_KIB
) -> sqlite3.Connection:
    """A connection that cannot write, for a file that :func:`open_writer` has opened before.

    ``look`` is shown every error that SQLite reports, before the caller gets it. Raises sqlite3.Error.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=sqlite3.Connection if look is None else watched_by(look),
    )
    try:
        connection.execute("PRAGMA query_only = 1")
        _tune(connection, cache_kib)
    except BaseException:
        # The exception keeps this frame, and with it the connection and its open file.
        connection.close()
        raise
    return connection


def _tune(connection: sqlite3.Connection, cache_kib: int = _CACHE_KIB) -> None:
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")


def _migrate(connection: sqlite3.Connection, path: Path, kind: Kind) -> None:
    (present,) = connection.execute("PRAGMA user_version").fetchone()
    known = migrations(kind)
    newest = known[-1].version
    if present > newest:
        raise DatabaseError(
            f"{path} was written by a newer svcd (schema {present}, this program knows {newest}): "
            "run the newer program, or start with another data directory"
        )
    for migration in known:
        if migration.version > present:
            # One transaction a file: executescript alone would leave half a schema behind after a crash.
            connection.executescript(
                f"BEGIN IMMEDIATE; {migration.script}; PRAGMA user_version = {migration.version}; COMMIT;"
            )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything inside is committed together, or nothing of it."""
    if connection.in_transaction:
        # A roll-back that the disk did not allow before; without it nothing could ever be written again.
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may already have rolled back; then there is nothing left to roll back.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def probe(connection: sqlite3.Connection, pages: int) -> None:
    """Write what is there already, to see whether the disk takes so many pages; raises sqlite3.Error.

    One by one: where a larger commit has failed, its place in the log is left over, and takes some more pages.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for _ in range(pages):
        with transaction(connection):
            connection.execute(f"PRAGMA user_version = {version}")


@contextmanager
def attempt(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything inside is kept, or, on an exception, nothing of it; outside a transaction it is one of its own."""
    if not connection.in_transaction:
        with transaction(connection):
            yield
        return
    connection.execute("SAVEPOINT attempt")
    try:
        yield
        connection.execute("RELEASE attempt")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO attempt")
            connection.execute("RELEASE attempt")
        raise


@frozen
class OneCommit:
    """Every question inside is answered from one and the same commit."""

    # A class, since contextmanager() would take as long as a question does.
    connection: sqlite3.Connection

    def __enter__(self) -> None:
        self.connection.execute("BEGIN")

    def __exit__(self, *_exception: object) -> None:
        self.connection.execute("COMMIT")


def snapshot(connection: sqlite3.Connection) -> OneCommit:
    """Questions asked inside see one and the same commit."""
    return OneCommit(connection)
