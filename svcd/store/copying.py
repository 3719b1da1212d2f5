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

PAGES: Final = 256
"""How much is copied at once, 1 MiB; between two pieces other threads have the interpreter."""


class CopyError(Exception):
    """No copy was made; the text is one sentence that says why, fit to be shown to the operator."""


class NoRoom(CopyError):
    """The disk does not take the copy: nothing is wrong with what was asked for."""


def copy_databases(
    sources: Sequence[Path],
    folder: Path,
    *,
    progress: Callable[[int, int], object] | None = None,
    look: Callable[[Path], object] | None = None,
) -> dict[str, int]:
    """Copy open databases into ``folder``, which is made for it with mode 0700; gives the bytes of each by file name.

    Every copy shows a moment after the copying began, each of ``sources`` the same moment as the ones before it or a
    later one. The copies have mode 0600. ``progress`` is called with the pages left and those in all, and ``look``
    with the folder that holds the finished copies, before it gets its name. What they raise gives the copy up.

    Raises:
        CopyError: ``folder`` exists or cannot be made; nothing is left behind, as after everything that is raised.
        NoRoom: the disk refuses.
        sqlite3.DatabaseError: a source is damaged.
    """
    if os.path.lexists(folder):
        raise CopyError(f"{folder} exists already and is never written over; name a folder that is not there yet")
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        partial.mkdir(mode=0o700)
    except FileExistsError:
        raise CopyError(f"{partial} is there, left by a copy that did not end; remove it first") from None
    except OSError as error:
        raise CopyError(f"{folder} cannot be made: {_reason(error)}") from None
    try:
        _copy_all(sources, partial, progress)
        if look is not None:
            look(partial)
        _sync(partial)
        sizes = {source.name: (partial / source.name).stat().st_size for source in sources}
        partial.rename(folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise NoRoom(f"{folder} cannot be written: {_reason(error)}") from None
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise NoRoom(f"{folder} cannot be written: {error}") from None
        raise
    with suppress(OSError):
        # Whoever may write into a folder need not be allowed to read it; the copies themselves are on the disk.
        _sync(folder.parent)
    return sizes


def _copy_all(sources: Sequence[Path], folder: Path, progress: Callable[[int, int], object] | None) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(open_reader(source))) for source in sources]
        for reader in readers:
            reader.execute("BEGIN")
            # The transaction sees the moment of its first question.
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        for source, reader in zip(sources, readers, strict=True):
            _copy(reader, folder / source.name, progress)


def _copy(reader: sqlite3.Connection, target: Path, progress: Callable[[int, int], object] | None) -> None:
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # Whatever is wrong with it when the power fails is thrown away, so nothing need be written twice.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        reader.backup(copy, pages=PAGES, progress=None if progress is None else _told(progress))
        # A file by itself: who only looks into it leaves no others beside it. The node changes that when it starts.
        copy.execute("PRAGMA journal_mode = DELETE")
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _told(progress: Callable[[int, int], object]) -> Callable[[int, int, int], None]:
    def tell(_status: int, left: int, total: int) -> None:
        progress(left, total)

    return tell


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno is not None else str(error)
