"""Consistent copies of databases while others write to them (docs/operations.md "Backup").

The copier has a connection of its own and stays in one read transaction: what is committed meanwhile goes into the
write-ahead log, which only cannot shrink until the copy is done. SQLite's backup begins anew when it finds that another
connection has written; within a read transaction it sees none of that.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final

from svcd.store.database import is_damage, open_reader
from svcd.store.syncing import sync
from svcd.store.unfinished import ENDING, held, unfinished_name

Progress = Callable[[int, int], object]
PAGES: Final = 256
"""How much is copied at once, 1 MiB; between two pieces other threads have the interpreter."""
UNSYNCED_PAGES: Final = 16 * PAGES
"""How much waits for the disk at most, 16 MiB: whoever gives the copy up need not wait long, nor do other writers."""


class CopyError(Exception):
    """No copy was made; the text is one sentence that says why, fit to be shown to the operator."""


class NoRoom(CopyError):
    """The disk does not take the copy, or not give it: nothing is wrong with what was asked for."""


def copy_databases(
    sources: Sequence[Path],
    folder: Path,
    *,
    progress: Progress | None = None,
    look: Callable[[Path], object] | None = None,
) -> dict[str, int]:
    """Copy open databases into ``folder``, which is made for it with mode 0700; gives the bytes of each by file name.

    Every copy shows a moment after the copying began, each of ``sources`` the same moment as the ones before it or a
    later one. The copies have mode 0600. ``progress`` is called with the pages left and those in all, and ``look``
    with the folder that holds the finished copies, before it gets its name. What they raise gives the copy up.

    Raises:
        CopyError: ``folder`` exists, cannot be made, or is named like a copy that did not end; nothing is left behind,
            as after everything that is raised.
        NoRoom: a disk refuses.
        sqlite3.DatabaseError: a source is damaged.
    """
    partial = _begun(folder)
    try:
        with held(partial):
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
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            # It may be either disk's: SQLite does not say.
            raise NoRoom(f"the databases cannot be copied to {folder}: {error}") from None
        raise
    with suppress(OSError):
        # Whoever may write into a folder need not be allowed to read it; the copies themselves are on the disk.
        sync(folder.parent)
    return sizes


def _begun(folder: Path) -> Path:
    """The new folder in which the copy that is to be ``folder`` is made; raises CopyError."""
    if os.path.lexists(folder):
        raise CopyError(f"{folder} exists already and is never written over; name a folder that is not there yet")
    if folder.name.endswith(ENDING):
        raise CopyError(
            f"{folder} ends like a copy that did not end, which the next one removes; name it without {ENDING}"
        )
    partial = unfinished_name(folder)
    try:
        partial.mkdir(mode=0o700)
    except FileExistsError:
        raise CopyError(f"{partial} is there: another copy is being made, or one did not end; remove it then") from None
    except OSError as error:
        raise CopyError(f"{folder} cannot be made: {_reason(error)}") from None
    return partial


def _copy_all(sources: Sequence[Path], folder: Path, progress: Progress | None) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(open_reader(source))) for source in sources]
        for reader in readers:
            reader.execute("BEGIN")
            # The transaction sees the moment of its first question.
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        for source, reader in zip(sources, readers, strict=True):
            _copy(reader, folder / source.name, progress)


def _copy(reader: sqlite3.Connection, target: Path, progress: Progress | None) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    # Closed after the connection, which would lose its locks on the file with it.
    with os.fdopen(descriptor, "wb") as file, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # Whatever is wrong with it when the power fails is thrown away, so nothing need be written twice.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        reader.backup(copy, pages=PAGES, progress=_told(progress, file.fileno()))
        # A file by itself: who only looks into it leaves no others beside it. The node changes that when it starts.
        copy.execute("PRAGMA journal_mode = DELETE")
    sync(target)


def _told(progress: Progress | None, target: int) -> Callable[[int, int, int], None]:
    """What SQLite calls between two pieces; ``target`` is the descriptor of the copy."""
    unsynced = 0

    def tell(_status: int, left: int, total: int) -> None:
        nonlocal unsynced
        unsynced += PAGES
        if unsynced >= UNSYNCED_PAGES:
            unsynced = 0
            os.fsync(target)
        if progress is not None:
            progress(left, total)

    return tell


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno is not None else str(error)
