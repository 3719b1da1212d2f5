"""The data directory as one process's own: a second node on the same chain would undo what the first one writes."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG, S_ISSOCK
from typing import Final

from twisted.application.service import Service

from svcd.process.sequential import CannotStart

_NO_FILE: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""What the system says of symbolic links, sockets and directories where a file is to be opened."""


class CannotLock(Exception):
    """A data directory cannot be locked; the text is a clause that follows the directory's name."""


def lock_directory(path: Path) -> int:
    """Lock an existing data directory for this process, and write the process's number into the file ``lock`` there.

    Nothing is written to a link, or to a file that has another name as well: it may be a file of another place.

    Returns:
        The descriptor that holds the lock until it is closed, or the process ends.

    Raises:
        CannotLock: another process has it, the file cannot be opened, or it is not a regular file of the owner's.
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
    # On a full disk the number cannot be written, and the lock holds all the same.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _open_lock(directory: int) -> int:
    # Without O_NONBLOCK the opening of a pipe could wait for its other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open("lock", flags, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise CannotLock(_NOT_REGULAR) from error
        raise
    if not _is_plain(os.fstat(descriptor), os.fstat(directory)):
        os.close(descriptor)
        raise CannotLock(_NOT_REGULAR)
    return descriptor


def _is_plain(file: os.stat_result, directory: os.stat_result) -> bool:
    """Whether a file may be written: for users other than root the system decides whether they may write to it."""
    owned = os.geteuid() != 0 or file.st_uid in (0, directory.st_uid)
    return S_ISREG(file.st_mode) and file.st_nlink == 1 and owned


_NOT_REGULAR: Final = (
    "cannot be used: lock in it must be a regular file of the directory's owner, with no other name; remove it"
)


class DataDirectory(Service):
    """Makes the directory, and holds a lock on it from the beginning of its start to the end of its stop.

    The system lets go of the lock when the process ends, however it ends. Whoever has it knows that a socket found in
    the directory belongs to nobody any more, and removes it.
    """

    name = "data directory"

    def __init__(self, path: Path, *, sockets: tuple[str, ...] = ()) -> None:
        """Make the service; ``sockets`` are the names of Unix sockets that the node makes in there."""
        self._path = path
        self._sockets = sockets
        self._lock: int | None = None

    def startService(self) -> None:
        """Take the directory.

        Raises:
            CannotStart: it cannot be made or written to, or another process has it.
        """
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = lock_directory(self._path)
        except OSError as error:
            raise CannotStart(f"the data directory {self._path} cannot be used: {error.strerror}") from error
        except CannotLock as reason:
            raise CannotStart(f"the data directory {self._path} {reason}") from reason
        self._remove_dead_sockets()

    def stopService(self) -> None:
        """Let go of the directory."""
        super().stopService()  # type: ignore[no-untyped-call]
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _remove_dead_sockets(self) -> None:
        for name in self._sockets:
            with suppress(FileNotFoundError):
                if S_ISSOCK((self._path / name).lstat().st_mode):
                    (self._path / name).unlink()
