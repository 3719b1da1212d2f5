"""Opens SQLite databases: page checksums, settings, schema files, a marker of unclean shutdowns.

One writer changes rows; readers cannot. Every connection goes through SQLite's checksum VFS: a page that is not as it
was written is an error, and never an answer.
"""

import os
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Literal

import apsw
import apsw.sqlite_extra
from attrs import define, field, frozen

ErrorReport = Callable[[BaseException], object]

_CACHE_KIB: Final = 65_536
_WAL_LIMIT: Final = 128 * 1024 * 1024
_BUSY_MS: Final = 10_000
_ROWS_AT_ONCE: Final = 16
_STEPS: Final = 100_000
"""Instructions of SQLite's virtual machine between two notes of progress: some milliseconds, half a second if pages are
read from a busy disk."""


class DatabaseError(Exception):
    """The database cannot be used; the text gives the operator the reason and the remedy."""


class NoChecksums(DatabaseError):
    """The pages of the database have no checksums, so that its damage would not be noticed."""


class DiskError(Exception):
    """The disk has refused to read or write a file that is no database; the text says why."""


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be asked at present; the text says why, without any password.

    A transaction has not been committed, or, if the connection broke at its end, may have been.
    """


_DISK_TROUBLE: Final = (
    DatabaseUnavailable,
    DiskError,
    apsw.BusyError,
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.IOError,
    apsw.CantOpenError,
)
_DAMAGED_PAGE: Final = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS)
"""Errors of reading that are no trouble of the disk: it gave a page that was not written so."""
_VFS: Final = "cksmvfs"
_CHECKSUM_BYTES: Final = 8
"""At the end of each page, for its checksum."""
_STATEMENTS: Final = 256
"""Prepared statements that a connection keeps."""
_LOG_HEADER: Final = Struct(">IIII8sII")
"""Of a write-ahead log: magic, format, page size, number of the checkpoint, salts, checksum."""
_FRAME: Final = Struct(">4xI8sII")
"""Before each page in the log: its number, the pages of the database after a commit, salts, checksum."""
_PAGE_BYTES: Final = 4_096


def _register_checksums() -> None:
    """Make the checksum VFS known to this process; a second time would let it call itself for ever."""
    with closing(apsw.Connection(":memory:")) as connection:
        apsw.sqlite_extra.load(connection, "cksumvfs")


# At the import, which the interpreter does once, whatever the threads.
_register_checksums()


class DatabaseCursor(apsw.Cursor):
    """The rows of a statement, whose columns have the types that the statement gives them."""

    if TYPE_CHECKING:

        def fetchone(self) -> Any: ...

        def fetchall(self) -> list[Any]: ...

        def __iter__(self) -> "DatabaseCursor": ...

        def __next__(self) -> Any: ...


class DatabaseConnection(apsw.Connection):
    """A connection to a database, for one thread at a time."""

    if TYPE_CHECKING:

        def execute(self, statements: str, bindings: Any = None, **_: Any) -> DatabaseCursor: ...


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


def check_log(path: Path, kind: DatabaseKind) -> None:
    """Raise DatabaseError if the log beside the closed database at ``path`` has lost commits that were confirmed.

    SQLite ends a log at the first page without its checksum, as a power failure may leave one. But with FULL, a commit
    is on the disk before the next is written: what is behind two of them was lost by damage. That of the newest commit
    alone cannot be told from a power failure. Raises OSError.
    """
    log = path.with_name(f"{path.name}-wal")
    if kind.synchronous == "FULL" and log.exists() and _has_lost_commits(log):
        raise DatabaseError(
            f"{log} is damaged, and has commits that would be lost with what is damaged: restore it, or "
            f"to go on without them, {kind.last_resort}"
        )


def _has_lost_commits(log: Path) -> bool:
    """Whether a commit and more follow the place at which SQLite ends a log (sqlite.org/fileformat2.html, 4.1)."""
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return False
        magic, _, page_size, _, salts, *stated = _LOG_HEADER.unpack(header)
        order: Literal["little", "big"] = "big" if magic & 1 else "little"
        sums = _log_sums(header[:-8], order, (0, 0))
        is_whole, has_commit = sums == tuple(stated), False
        if not is_whole:
            page_size, salts = _PAGE_BYTES, b""
        while len(frame := file.read(_FRAME.size + page_size)) == _FRAME.size + page_size:
            pages, salts_here, *stated = _FRAME.unpack_from(frame)
            salts = salts or salts_here
            # Others are from before the log was begun anew.
            is_whole = is_whole and salts_here == salts
            if is_whole:
                sums = _log_sums(frame[:8] + frame[_FRAME.size :], order, sums)
                is_whole = sums == tuple(stated)
            if not is_whole and salts_here == salts:
                if has_commit:
                    return True
                # Only the last page of a commit has the number of pages of the database.
                has_commit = pages > 0
    return False


def _log_sums(data: bytes, order: Literal["little", "big"], sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = array("I", data)
    if sys.byteorder != order:
        words.byteswap()
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = first + even + second & 0xFFFFFFFF
        second = second + odd + first & 0xFFFFFFFF
    return first, second


def open_writer(path: Path, kind: DatabaseKind = CHAIN) -> DatabaseConnection:
    """A connection that may write, its schema brought up to date; a new file has mode 0600. Raises DatabaseError."""
    with explaining_os_errors(path), explaining_errors(path, kind):
        check_log(path, kind)
        if not path.exists():
            _create(path, kind)
        elif not path.stat().st_size:
            raise DatabaseError(f"{path} is empty, which no database of svcd is: {kind.last_resort}")
        connection = connect(path, kind)
        try:
            _prepare(connection, path, kind)
        except BaseException:
            # The exception keeps this frame, and with it the connection and its lock on the file.
            connection.close()
            raise
    return connection


def connect(
    path: Path, kind: DatabaseKind = CHAIN, *, writable: bool = True, fresh: bool = False
) -> DatabaseConnection:
    """A connection to an existing file that verifies every page it reads; for one thread at a time.

    If ``fresh``, the file is empty, and gets page checksums first. Raises apsw.Error, and NoChecksums.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    connection = DatabaseConnection(str(path), flags=flags, vfs=_VFS, statementcachesize=_STATEMENTS)
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        # Otherwise APSW's SQLite, which has STAT4, plans a statement anew for each value that an index is searched for.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if fresh:
            connection.reserve_bytes(reserve=_CHECKSUM_BYTES)
            connection.execute("VACUUM")
        # The first page says whether there are checksums.
        connection.execute("PRAGMA schema_version").fetchone()
        if connection.execute("PRAGMA checksum_verification").fetchone() != ("1",):
            raise NoChecksums(
                f"{path} has no page checksums, without which damage would not be noticed: an older svcd wrote it, or "
                f"its first page is damaged; {kind.last_resort}"
            )
    except BaseException:
        # The exception keeps this frame, and with it the connection and its lock on the file.
        connection.close()
        raise
    return connection


def _create(path: Path, kind: DatabaseKind) -> None:
    """Make a database without a table, at once: nothing but damage leaves an empty file at ``path``. Raises OSError."""
    log = path.with_name(f"{path.name}-wal")
    if kind.synchronous == "FULL" and log.exists():
        raise DatabaseError(
            f"{log} has commits of a database that is missing: restore {path}, or move the log away too to begin anew"
        )
    log.unlink(missing_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    # SQLite would create a file that all users can read, with orders and callbacks in it.
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connect(new, kind, fresh=True).close()
    new.replace(path)


def _prepare(connection: DatabaseConnection, path: Path, kind: DatabaseKind) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {kind.synchronous}")
    # Overwriting them writes every deleted page twice.
    connection.execute(f"PRAGMA secure_delete = {int(not kind.is_public)}")
    _tune(connection)
    connection.execute(f"PRAGMA temp_store = {kind.temp_store}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {kind.checkpoint_pages}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    _migrate(connection, path, kind)


def _migrate(connection: DatabaseConnection, path: Path, kind: DatabaseKind) -> None:
    (present,) = connection.execute("PRAGMA user_version").fetchone()
    check_version(str(path), present, kind, "start with another data directory")
    for migration in migrations(kind):
        if migration.version > present:
            # One transaction a file: a crash must not leave half a schema behind.
            connection.execute(
                f"BEGIN IMMEDIATE; {migration.script}; PRAGMA user_version = {migration.version}; COMMIT;"
            )


def on_progress(connection: DatabaseConnection, note: Callable[[], None]) -> None:
    """Call ``note`` again and again while a long statement of ``connection`` runs."""

    def tell() -> bool:
        note()
        return False

    connection.set_progress_handler(tell, _STEPS)


def open_reader(path: Path, report: ErrorReport | None = None, *, cache_kib: int = _CACHE_KIB) -> DatabaseConnection:
    """A connection that cannot write, for a file that :func:`open_writer` has opened before.

    ``report`` is called with every error of SQLite before the caller gets it. Raises apsw.Error.
    """
    connection = connect(path, writable=False)
    if report is not None:
        connection.cursor_factory = reporting_cursor(report)
    try:
        connection.execute("PRAGMA query_only = 1")
        _tune(connection, cache_kib)
    except BaseException:
        # The exception keeps this frame, and with it the connection and its open file.
        connection.close()
        raise
    return connection


def _tune(connection: DatabaseConnection, cache_kib: int = _CACHE_KIB) -> None:
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")


def reporting_cursor(report: ErrorReport) -> type[DatabaseCursor]:
    """A class of cursors, for a connection's ``cursor_factory``, that call ``report`` with every error of SQLite.

    For the reader of the reactor: of some seventy places that ask it, one without a report would hide damage.
    """

    class ReportingCursor(DatabaseCursor):
        # Repeated for speed: these run for every row; fetchall() calls the last.

        def execute(self, statements: str, bindings: Any = None, **more: Any) -> Any:
            try:
                return super().execute(statements, bindings, **more)
            except apsw.Error as error:
                report(error)
                raise

        def fetchone(self) -> Any:
            try:
                return super().fetchone()
            except apsw.Error as error:
                report(error)
                raise

        def __next__(self) -> Any:
            try:
                return super().__next__()
            except apsw.Error as error:
                report(error)
                raise

    return ReportingCursor


@contextmanager
def explaining_errors(path: Path, kind: DatabaseKind = CHAIN) -> Iterator[None]:
    """Turn SQLite's errors inside, of the database at ``path``, into a DatabaseError for the operator."""
    try:
        yield
    except apsw.Error as error:
        if is_disk_trouble(error):
            # Not the remedy for damage: an operator who moves a sound file away loses it.
            advice = (
                "close the program that has locked it"
                if isinstance(error, apsw.BusyError)
                else "the disk must work and have room, and the file and its folder must belong to the user that runs "
                "the node"
            )
            raise DatabaseError(f"{path} cannot be used: {error}; {advice}") from error
        raise DatabaseError(f"{path} cannot be opened as a database: {describe(error)}; {kind.remedy}") from error


@contextmanager
def explaining_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system inside, beside the database at ``path``, into a DatabaseError for the operator."""
    try:
        yield
    except OSError as error:
        raise DatabaseError(f"{path} cannot be opened for writing: {error.strerror}") from error


def is_damage(error: BaseException | None) -> bool:
    """Whether the file is damaged: a page is not as it was written, or SQLite finds no database in it."""
    return isinstance(error, (apsw.CorruptError, apsw.NotADBError, NoChecksums)) or _is_damaged_page(error)


def _is_damaged_page(error: BaseException | None) -> bool:
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _DAMAGED_PAGE


def describe(error: BaseException | None) -> str:
    """What an error says; SQLite itself calls a page without its checksum an error of the disk."""
    return "a page fails its checksum" if _is_damaged_page(error) else str(error)


@contextmanager
def unverified(connection: DatabaseConnection) -> Iterator[None]:
    """Inside, pages that fail their checksums can be read, for work that believes nothing of them."""
    connection.execute("PRAGMA checksum_verification = OFF")
    try:
        yield
    finally:
        connection.execute("PRAGMA checksum_verification = ON")


def damaged_pages(path: Path, page_size: int, *, at_most: int) -> list[int]:
    """The numbers of the first pages in the file that fail their checksums, of those in no table as well.

    Takes 7 µs a page. Pages in the write-ahead log are not read. Raises apsw.Error.
    """
    found: list[int] = []
    file = apsw.VFSFile(_VFS, str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        for number in range(path.stat().st_size // page_size):
            try:
                file.xRead(page_size, number * page_size)
            except apsw.IOError as error:
                if not is_damage(error):
                    raise
                found.append(number + 1)
                if len(found) == at_most:
                    break
    finally:
        file.xClose()
    return found


def is_disk_trouble(error: BaseException | None) -> bool:
    """Whether the disk is full, read-only or failing, the file is locked, or PostgreSQL cannot be asked.

    This only classifies the error: svcd.node.database_health raises the alarm.
    """
    return isinstance(error, _DISK_TROUBLE) and not _is_damaged_page(error)


def disk_remedy(error: BaseException | None) -> str:
    """What the operator must do about disk trouble, as a clause."""
    if isinstance(error, DatabaseUnavailable):
        return "start PostgreSQL, or repair the connection to it"
    return (
        "close the program that has locked it"
        if isinstance(error, apsw.BusyError)
        else "free space on the disk or repair it"
    )


@contextmanager
def transaction(connection: DatabaseConnection) -> Iterator[None]:
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
def attempt(connection: DatabaseConnection) -> Iterator[None]:
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
    connection: DatabaseConnection, table: str, rows: Sequence[Sequence[object]], *, replace: bool = False
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


def probe(connection: DatabaseConnection, pages: int) -> None:
    """Rewrite so many pages, to see whether the disk accepts them; raises apsw.Error.

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
    connection: DatabaseConnection
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


def snapshot(connection: DatabaseConnection) -> OneCommit:
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
    def opening(self, connection: DatabaseConnection) -> Iterator[None]:
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
