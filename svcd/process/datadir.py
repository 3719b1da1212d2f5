"""The data directory: its lock, and a watch over its database files."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG, S_ISSOCK
from typing import Final

from attrs import define, field
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.interfaces import Worker
from svcd.process.sequential import CannotStart

_NO_FILE: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors of opening a symbolic link, a socket or a directory as a file."""


class CannotLock(Exception):
    """A data directory cannot be locked; the text is a clause that follows the directory's name."""


def lock_directory(path: Path) -> int:
    """Lock an existing data directory for this process, and write the process id into the file ``lock`` there.

    A symbolic link or a file with several hard links is refused: writing to it could change a file elsewhere.

    Returns:
        The descriptor that holds the lock until it is closed, or the process ends.

    Raises:
        CannotLock: another process holds the lock, or ``lock`` cannot be opened or is no regular file of the owner's.
    """
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            descriptor = _open_lock(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise CannotLock(f"cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise CannotLock(
            f"is in use by another node (process {holder}): stop that one, or choose another directory with --data-dir"
        ) from error
    # On a full disk the process id cannot be written, and the lock holds all the same.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _open_lock(directory: int) -> int:
    # Without O_NONBLOCK, opening a named pipe could wait for its other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open("lock", flags, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise CannotLock(_NOT_REGULAR) from error
        raise
    if not _is_safe_to_write(os.fstat(descriptor), os.fstat(directory)):
        os.close(descriptor)
        raise CannotLock(_NOT_REGULAR)
    return descriptor


def _is_safe_to_write(file: os.stat_result, directory: os.stat_result) -> bool:
    """Whether it is safe to write to a file; the owner matters to root only, for whom file modes mean nothing."""
    owned = os.geteuid() != 0 or file.st_uid in (0, directory.st_uid)
    return S_ISREG(file.st_mode) and file.st_nlink == 1 and owned


_NOT_REGULAR: Final = (
    "cannot be used: lock in it must be a regular file of the directory's owner, with no other name; remove it"
)


class DataDirectory(Service):
    """Creates the data directory and holds the lock on it from its start to its stop.

    The kernel releases the lock when the process ends, even after SIGKILL. So the holder of the lock knows that a Unix
    socket found in the directory is stale, and removes it.
    """

    name = "data directory"

    def __init__(self, path: Path, *, sockets: tuple[str, ...] = ()) -> None:
        """Make the service; ``sockets`` are the names of the Unix sockets that the node creates in the directory."""
        self._path = path
        self._sockets = sockets
        self._lock: int | None = None

    def startService(self) -> None:
        """Create and lock the directory.

        Raises:
            CannotStart: the directory cannot be created or written to, or another process holds the lock.
        """
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = lock_directory(self._path)
        except OSError as error:
            raise CannotStart(f"the data directory {self._path} cannot be used: {error.strerror}") from error
        except CannotLock as reason:
            raise CannotStart(f"the data directory {self._path} {reason}") from reason
        self._remove_stale_sockets()

    def stopService(self) -> None:
        """Release the lock."""
        super().stopService()  # type: ignore[no-untyped-call]
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _remove_stale_sockets(self) -> None:
        for name in self._sockets:
            with suppress(FileNotFoundError):
                if S_ISSOCK((self._path / name).lstat().st_mode):
                    (self._path / name).unlink()


FILE_CHECK_SECONDS: Final = 1.0
"""Seconds from one check of the files to the next."""


@define
class FileWatch:
    """Notices that a file was removed or replaced by another one, logs it once, and calls ``stop``.

    Data that is written to an unlinked file is lost with the process. A stop in time still checkpoints a removed
    write-ahead log into the database that the process has open. ``worker`` looks at the files, since a disk, or a
    server of files, may take its time.
    """

    paths: Iterable[Path]
    stop: Callable[[], object]
    worker: Worker
    lost: Callable[[], Path | None] = lambda: None
    """A file that the node itself replaces now and then, if it is not the node's any more; called by ``worker``."""
    _identities: dict[Path, tuple[int, int]] = field(factory=dict, init=False)
    """Device and inode of each file that was seen."""
    _stopped: bool = field(default=False, init=False)

    _log = Logger()

    async def check(self) -> None:
        """Check that each file is still the one that was first seen; to be called periodically, one at a time."""
        gone = await self.worker.run(self._find_gone)
        if gone and not self._stopped:
            self._stopped = True
            self._log.critical(
                "{path} was removed or replaced while the node uses it. The node stops, and saves what it can to "
                "the database that it has open; check the disk, then start it again",
                path=str(gone[0]),
            )
            self.stop()

    def _find_gone(self) -> list[Path]:
        gone = [path for path in self.paths if self._is_gone(path)]
        lost = self.lost()
        return gone if lost is None else [*gone, lost]

    def _is_gone(self, path: Path) -> bool:
        try:
            found = path.stat()
        except FileNotFoundError:
            return path in self._identities
        except OSError:
            # The next read or write reports a disk that does not answer.
            return False
        identity = (found.st_dev, found.st_ino)
        return self._identities.setdefault(path, identity) != identity
