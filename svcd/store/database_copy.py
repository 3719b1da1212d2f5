"""Consistent copies of databases while others write to them (docs/operations.md "Backup").

A copy is made on a connection of its own in one read transaction. Later commits go into the write-ahead log, which
cannot be reset until the copy is done. SQLite's backup restarts whenever another connection has written; within a read
transaction it does not see those writes.

A copy is made in a partial folder, which is renamed at the end. A lock distinguishes it from the folders of interrupted
copies: the system releases the lock when the process ends, even after `kill -9`.
"""

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from svcd.chain.errors import Corrupt
from svcd.store.database import (
    DatabaseConnection,
    DatabaseError,
    NoChecksums,
    connect,
    describe,
    is_damage,
    open_reader,
)

Progress = Callable[[int, int], object]
PAGES: Final = 256
"""Pages copied at a time, 1 MiB; other threads run in between."""
UNSYNCED_PAGES: Final = 16 * PAGES
"""Pages written between two fsyncs, 16 MiB, so that neither an abandoned copy nor other writers wait long."""

ENDING: Final = ".partial"
"""The suffix of partial folders."""
_DATABASE: Final = re.compile(r".+\.sqlite(-journal|-wal|-shm)?")


class CopyError(Exception):
    """No copy was made; the text is one sentence for the operator."""


class SourceDamaged(Corrupt):
    """A database cannot be copied because it is damaged; its cause is the error that shows that."""

    def __init__(self, source: Path, error: Exception) -> None:
        super().__init__(f"{source.name}: {describe(error)}")
        self.source = source


class NoRoom(CopyError):
    """A disk cannot be read or written; the request itself was right."""


def copy_databases(
    sources: Sequence[Path],
    folder: Path,
    *,
    progress: Progress | None = None,
    look: Callable[[Path], object] | None = None,
) -> dict[str, int]:
    """Copy open databases into a new ``folder`` of mode 0700; gives the bytes of each copy by file name.

    Each copy is the state at a moment after the beginning, for each of ``sources`` the same moment as for those before
    it or a later one. The copies have mode 0600. ``progress`` is called with the pages left and the pages in all, and
    ``look`` with the folder of finished copies before it gets its name. An exception in them abandons the copy.

    Raises:
        CopyError: ``folder`` exists, cannot be made, or has the name of a partial copy; nothing is left behind, as
            after every exception.
        NoRoom: a disk cannot be read or written.
        SourceDamaged: nothing is left behind either.
    """
    partial = _create_partial(folder)
    try:
        with locked(partial):
            _copy_all(sources, partial, progress)
            if look is not None:
                look(partial)
            sync(partial)
            sizes = {source.name: (partial / source.name).stat().st_size for source in sources}
            partial.rename(folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise NoRoom(f"{folder} cannot be written: {_reason(error)}") from None
        if isinstance(error, (apsw.Error, DatabaseError)):
            # SQLite does not say which disk failed. Damage is that of the copy.
            raise NoRoom(f"the databases cannot be copied to {folder}: {describe(error)}") from None
        raise
    with suppress(OSError):
        # The folder may be writable and not readable; the copies themselves are on the disk.
        sync(folder.parent)
    return sizes


def _create_partial(folder: Path) -> Path:
    """Create the partial folder for ``folder``; raises CopyError."""
    if os.path.lexists(folder):
        raise CopyError(f"{folder} exists already and is never written over; name a folder that is not there yet")
    if folder.name.endswith(ENDING):
        raise CopyError(
            f"{folder} ends like a copy that did not end, which the next one removes; name it without {ENDING}"
        )
    partial = partial_name(folder)
    try:
        partial.mkdir(mode=0o700)
    except FileExistsError:
        raise CopyError(f"{partial} is there: another copy is being made, or one did not end; remove it then") from None
    except OSError as error:
        raise CopyError(f"{folder} cannot be made: {_reason(error)}") from None
    return partial


def _copy_all(sources: Sequence[Path], folder: Path, progress: Progress | None) -> None:
    with ExitStack() as stack:
        readers = []
        for source in sources:
            with _naming_damage(source):
                readers.append(reader := stack.enter_context(closing(open_reader(source))))
                reader.execute("BEGIN")
                # A transaction sees the moment of its first query.
                reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        for source, reader in zip(sources, readers, strict=True):
            with _naming_damage(source):
                _copy(reader, folder / source.name, progress)


@contextmanager
def _naming_damage(source: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, NoChecksums) as error:
        if not is_damage(error):
            raise
        raise SourceDamaged(source, error) from error


def _copy(reader: DatabaseConnection, target: Path, progress: Progress | None) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    # Closed after the connection: closing it first would release the connection's locks.
    with os.fdopen(descriptor, "wb") as file, closing(connect(target, fresh=True)) as copy:
        # A copy that a power cut interrupts is removed, so it needs no journal.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        unsynced = 0
        with copy.backup("main", reader, "main") as backup:
            is_done = False
            while not is_done:
                is_done = backup.step(PAGES)
                unsynced += PAGES
                if unsynced >= UNSYNCED_PAGES:
                    unsynced = 0
                    os.fsync(file.fileno())
                if progress is not None:
                    progress(backup.remaining, backup.page_count)
        # A reader of the copy must leave no -wal and -shm beside it. The node changes the mode when it starts.
        copy.execute("PRAGMA journal_mode = DELETE")
    sync(target)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno is not None else str(error)


def sync(path: Path) -> None:
    """Wait until a file's contents, or a folder's names, are on the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_name(folder: Path) -> Path:
    """The partial folder for ``folder``."""
    return folder.with_name(f"{folder.name}{ENDING}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a partial folder in use; raises OSError if there is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network disks have no such locks. No folder can be locked there, so none is removed.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_partial_copies(folder: Path) -> list[Path]:
    """Remove the partial folders that unfinished copies have left beside ``folder``; gives the removed ones.

    They are recognised by name, mode and owner, and contain databases and nothing else.
    """
    found = {partial_name(folder), *_beside(folder)}
    return [path for path in sorted(found) if _remove_if_ours(path)]


def _beside(folder: Path) -> Iterable[Path]:
    try:
        return [path for path in folder.parent.iterdir() if path.name.endswith(ENDING)]
    except OSError:
        # The folder may be writable and not readable.
        return []


def _remove_if_ours(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(descriptor)
        if not (_is_ours(os.fstat(descriptor)) and all(_is_database(name, descriptor) for name in names)):
            return False
        # By its descriptor, and not recursively: another folder may take its name, or files be added, meanwhile.
        for name in names:
            os.unlink(name, dir_fd=descriptor)
        path.rmdir()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_ours(folder: os.stat_result) -> bool:
    return folder.st_uid == os.geteuid() and stat.S_IMODE(folder.st_mode) == 0o700


def _is_database(name: str, folder: int) -> bool:
    is_file = stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return is_file and _DATABASE.fullmatch(name) is not None
