"""Opens SQLite databases: settings, schema files, a marker of unclean shutdowns.

One writer changes rows; readers cannot; a checkpointer brings commits of the writer from the log into the file.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

ErrorReport = Callable[[BaseException], object]

_CACHE_KIB: Final = 65_536
_WAL_LIMIT: Final = 128 * 1024 * 1024
_BUSY_MS: Final = 10_000
_ROWS_AT_ONCE: Final = 16
_STEPS: Final = 100_000
"""Instructions of SQLite's virtual machine between two notes of progress: some milliseconds, half a second if pages are
read from a busy disk."""
_DISK_TROUBLE: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
)


class DatabaseError(Exception):
    """The database cannot be used; the text gives the operator the reason and the remedy."""


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be asked at present; the text says why, without any password.

    A transaction has not been committed, or, if the connection broke at its end, may have been.
    """


@frozen
class Migration:
    """One numbered schema file."""

    version: int
    script: str


@frozen
class DatabaseKind:
    """The properties of one of the node's databases."""

    name: str
    folder: str
    synchronous: str
    last_resort: str
    """What the operator can do if the database is damaged."""
    tool: str = ""
    """A command that may repair it, to be tried first."""
    refused: str = ""
    """The alarm while it cannot be written."""
    temp_store: str = "MEMORY"
    """Where SQLite keeps the pages to which a savepoint returns: "MEMORY", or "FILE" for a file in /var/tmp."""
    checkpoint_pages: int = 4_000
    """With so many pages in the write-ahead log a commit brings them into the file."""
    is_public: bool = False
    """Whether its contents are known to everybody, so that deleted rows need not be overwritten on the disk."""

    @property
    def remedy(self) -> str:
        """Tool and last resort, in one sentence."""
        return f"try `{self.tool}`, {self.last_resort}" if self.tool else self.last_resort


CHAIN: Final = DatabaseKind(
    "the database",
    "schema",
    "NORMAL",
    "restore it from a backup, or move it away and the node fetches the chain again",
    tool="svc db rebuild",
    refused="the chain's database cannot be written",
    # A long reorganisation changes gigabytes of pages. In memory SQLite also passes all of them after each statement.
    temp_store="FILE",
    # Runs of a few blocks are merged before that, and of a page only the newest content goes into the file.
    checkpoint_pages=32_000,
    is_public=True,
)
"""A power loss may cost the last blocks, which peers have, and never the consistency."""
WEBHOOKS: Final = DatabaseKind(
    "the webhooks' database",
    "webhooks",
    "FULL",
    "move it away and register the webhooks still open anew",
    refused="the webhooks' database cannot be written",
)
"""No other node has a merchant's orders: a commit is on the disk before it is confirmed."""
POSTGRESQL: Final = DatabaseKind(
    "the webhooks' database",
    "webhooks",
    "",
    "restore it from a backup of PostgreSQL",
    refused="the webhooks wait for their database",
)
"""The webhooks where several nodes share them (svcd.store.postgresql)."""
MEMPOOL: Final = DatabaseKind(
    "the mempool's database",
    "mempool",
    "NORMAL",
    "move it away: wallets and peers send the waiting transfers again",
    refused="the mempool's database cannot be written",
)
"""A power loss may cost the newest transfers, which their wallets keep until they are in a block."""


@cache
def migrations(kind: DatabaseKind = CHAIN) -> tuple[Migration, ...]:
    """The schema files of this program, ascending and without a gap; read once.

    The first makes the whole schema, each later one brings that of the one before up to date.
    """
    files = sorted(resources.files("svcd.store").joinpath(kind.folder).iterdir(), key=lambda file: file.name)
    return tuple(Migration(int(file.name[:3]), file.read_text("utf-8")) for file in files if file.name.endswith(".sql"))


def check_version(name: str, present: int, kind: DatabaseKind, instead: str) -> None:
    """Raise DatabaseError if this program cannot bring the schema ``present`` of a database up to date; 0 is none.

    ``instead`` is what the operator can do to use this program.
    """
    oldest, newest = (migrations(kind)[at].version for at in (0, -1))
    if present > newest:
        raise DatabaseError(
            f"{name} was written by a newer svcd (schema {present}, this program knows {newest}): "
            f"run the newer program, or {instead}"
        )
    if 0 < present < oldest:
        raise DatabaseError(
            f"{name} was written by an older svcd (schema {present}, this program knows {oldest} and later ones): "
            f"run the older program, or {instead}"
        )


def open_writer(path: Path, kind: DatabaseKind = CHAIN) -> sqlite3.Connection:
    """A connection that may write, its schema brought up to date; a new file has mode 0600. Raises DatabaseError."""
    with suppress(OSError):
        # SQLite would create a file that all users can read, with orders and callbacks in it. It reports any error.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with explaining_errors(path, kind):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        try:
            _prepare(connection, path, kind)
        except BaseException:
            # The exception keeps this frame, and with it the connection and its lock on the file.
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {kind.synchronous}")
    if kind.is_public:
        # Debian's SQLite overwrites them otherwise, which writes every deleted page twice.
        connection.execute("PRAGMA secure_delete = 0")
    _tune(connection)
    connection.execute(f"PRAGMA temp_store = {kind.temp_store}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {kind.checkpoint_pages}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    _migrate(connection, path, kind)


def _migrate(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    (present,) = connection.execute("PRAGMA user_version").fetchone()
    check_version(str(path), present, kind, "start with another data directory")
    for migration in migrations(kind):
        if migration.version > present:
            # One transaction a file: executescript alone would leave half a schema behind after a crash.
            connection.executescript(
                f"BEGIN IMMEDIATE; {migration.script}; PRAGMA user_version = {migration.version}; COMMIT;"
            )


def open_checkpointer(path: Path) -> sqlite3.Connection:
    """A further connection to a file that :func:`open_writer` has opened, for :func:`checkpoint` only."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # It gives way to the writer, whose commit may take longer than any timeout.
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        # The exception keeps this frame, and with it the connection and its open file.
        connection.close()
        raise
    return connection


def checkpoint(connection: sqlite3.Connection) -> bool:
    """Bring the write-ahead log into the file, and begin the log anew, while others read and write.

    It waits for the disk, in place of the next commit of the writer, which would do so otherwise. Gives whether that is
    done: a long read keeps a part in the log; a commit or another checkpoint may be under way. Raises sqlite3.Error.
    """
    busy, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if busy or pages != done:
        return False
    try:
        # The commit that begins a log waits until its first page is on the disk.
        probe(connection, 1)
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        return False
    return True


def on_progress(connection: sqlite3.Connection, note: Callable[[], None]) -> None:
    """Call ``note`` again and again while a long statement of ``connection`` runs."""
    connection.set_progress_handler(note, _STEPS)


@contextmanager
def without_checkpoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Let no commit inside bring the write-ahead log into the file; see :func:`checkpoint`."""
    (pages,) = connection.execute("PRAGMA wal_autocheckpoint").fetchone()
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")


def open_reader(path: Path, report: ErrorReport | None = None, *, cache_kib: int = _CACHE_KIB) -> sqlite3.Connection:
    """A connection that cannot write, for a file that :func:`open_writer` has opened before.

    ``report`` is called with every error of SQLite before the caller gets it. Raises sqlite3.Error.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=sqlite3.Connection if report is None else reporting_connection(report),
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


def reporting_connection(report: ErrorReport) -> type[sqlite3.Connection]:
    """A class of connections, for :func:`sqlite3.connect`, that call ``report`` with every error of SQLite."""

    class ReportingCursor(sqlite3.Cursor):
        # Repeated four times for speed: these run for every row.

        def execute(self, sql: str, values: Any = (), /) -> Any:
            try:
                return super().execute(sql, values)
            except sqlite3.Error as error:
                report(error)
                raise

        def fetchone(self) -> Any:
            try:
                return super().fetchone()
            except sqlite3.Error as error:
                report(error)
                raise

        def fetchall(self) -> list[Any]:
            try:
                return super().fetchall()
            except sqlite3.Error as error:
                report(error)
                raise

        def __next__(self) -> Any:
            try:
                return super().__next__()
            except sqlite3.Error as error:
                report(error)
                raise

    class ReportingConnection(sqlite3.Connection):
        def execute(self, sql: str, values: Any = (), /) -> Any:
            return self.cursor(ReportingCursor).execute(sql, values)

    return ReportingConnection


@contextmanager
def explaining_errors(path: Path, kind: DatabaseKind = CHAIN) -> Iterator[None]:
    """Turn SQLite's errors inside, of the database at ``path``, into a DatabaseError for the operator."""
    try:
        yield
    except sqlite3.Error as error:
        if is_disk_trouble(error):
            # Not the remedy for damage: an operator who moves a sound file away loses it.
            advice = (
                "close the program that has locked it"
                if _is_busy(error)
                else "the disk must work and have room, and the file and its folder must belong to the user that runs "
                "the node"
            )
            raise DatabaseError(f"{path} cannot be used: {error}; {advice}") from error
        raise DatabaseError(f"{path} cannot be opened as a database: {error}; {kind.remedy}") from error


@contextmanager
def explaining_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system inside, beside the database at ``path``, into a DatabaseError for the operator."""
    try:
        yield
    except OSError as error:
        raise DatabaseError(f"{path} cannot be opened for writing: {error.strerror}") from error


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite reports that the file is damaged, or no database at all."""
    code = getattr(error, "sqlite_errorcode", 0)
    # The low byte is the primary result code.
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_disk_trouble(error: BaseException | None) -> bool:
    """Whether the disk is full, read-only or failing, the file is locked, or PostgreSQL cannot be asked.

    This only classifies the error: svcd.node.database_health raises the alarm.
    """
    return isinstance(error, DatabaseUnavailable) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_TROUBLE


def disk_remedy(error: BaseException | None) -> str:
    """What the operator must do about disk trouble, as a clause."""
    if isinstance(error, DatabaseUnavailable):
        return "start PostgreSQL, or repair the connection to it"
    return "close the program that has locked it" if _is_busy(error) else "free space on the disk or repair it"


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit everything inside together, or nothing."""
    if connection.in_transaction:
        # A rollback that the disk refused before; without it nothing could ever be written again.
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite may have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def attempt(connection: sqlite3.Connection) -> Iterator[None]:
    """A savepoint: on an exception everything inside is undone. Outside a transaction it is a transaction."""
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


def insert(
    connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]], *, replace: bool = False
) -> None:
    """Insert ``rows`` in order; with ``replace`` they take the place of rows with the same keys.

    Sixteen rows in one statement take two thirds of the time of a statement for each. A row that the table refuses, as
    its key is there, rolls the whole transaction back: to undo the statement alone, SQLite would first write each page
    that it changes to a temporary file.
    """
    several = len(rows) // _ROWS_AT_ONCE * _ROWS_AT_ONCE
    for count, some in ((_ROWS_AT_ONCE, rows[:several]), (1, rows[several:])):
        if some:
            columns = len(some[0])
            row = f"({', '.join('?' * columns)})"
            values = [chain.from_iterable(some)] * (count * columns)
            verb = "REPLACE" if replace else "INSERT OR ROLLBACK"
            statement = f"{verb} INTO {table} VALUES {', '.join([row] * count)}"
            connection.executemany(statement, zip(*values, strict=True))


def probe(connection: sqlite3.Connection, pages: int) -> None:
    """Rewrite so many pages, to see whether the disk accepts them; raises sqlite3.Error.

    In a commit each: a failed larger commit leaves room in the write-ahead log, into which some more pages fit.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for _ in range(pages):
        with transaction(connection):
            connection.execute(f"PRAGMA user_version = {version}")


@define
class OneCommit:
    """All queries inside see the same commit, which is that of the transaction around it if there is one."""

    # A class, since contextmanager() would take as long as a query.
    connection: sqlite3.Connection
    _is_outermost: bool = field(init=False)

    def __enter__(self) -> None:
        self._is_outermost = not self.connection.in_transaction
        if self._is_outermost:
            self.connection.execute("BEGIN")

    def __exit__(self, *_exception: object) -> None:
        # There is nothing to commit, and COMMIT would raise the error of a query inside once more. After some errors
        # SQLite has ended the transaction itself.
        if self._is_outermost and self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


def snapshot(connection: sqlite3.Connection) -> OneCommit:
    """A context in which all queries see the same commit."""
    return OneCommit(connection)


@frozen
class UncleanShutdownMarker:
    """The file ``<database>-open``, which exists while the database is open.

    After an unclean shutdown the newest commits are in the write-ahead log, which must then exist.
    """

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
