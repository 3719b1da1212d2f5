"""The data directory: its lock, the secret seeds in it, and a watch over its database files."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG, S_ISSOCK
from typing import Final

from attrs import define, field
from twisted.application.service import Service
from twisted.logger import Logger

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
    write-ahead log into the database that the process has open.
    """

    paths: Iterable[Path]
    stop: Callable[[], object]
    _identities: dict[Path, tuple[int, int]] = field(factory=dict, init=False)
    """Device and inode of each file that was seen."""
    _stopped: bool = field(default=False, init=False)

    _log = Logger()

    def check(self) -> None:
        """Check that each file is still the one that was first seen; to be called periodically."""
        gone = [path for path in self.paths if self._is_gone(path)]
        if gone and not self._stopped:
            self._stopped = True
            self._log.critical(
                "{path} was removed or replaced while the node uses it. The node stops, and saves what it can to "
                "the database that it has open; check the disk, then start it again",
                path=str(gone[0]),
            )
            self.stop()

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


_SEED: Final = re.compile(r"[0-9a-f]{64}\n?")
_MAX_KEY_BYTES: Final = 4096


class SeedFileError(Exception):
    """A seed file cannot be used; the text says why, and what to do."""


def load_or_make(path: Path, random: Callable[[int], bytes]) -> bytes:
    """The 32-byte seed in ``path``, 64 hex characters; if there is no file it is created from ``random``, mode 0600.

    Raises SeedFileError for a file that others may read, that has other contents, or that cannot be read or created.
    """
    try:
        return _load(path) if path.exists() else _make(path, random(32))
    except OSError as error:
        raise SeedFileError(
            f"{path} cannot be read or made: {error.strerror}; it must be in a folder that exists and be open to the "
            "user that runs the node"
        ) from error


def load_or_make_token(path: Path, random: Callable[[int], bytes]) -> str:
    """The operator's bearer token: the 64 hex characters of such a file."""
    return load_or_make(path, random).hex()


def _make(path: Path, seed: bytes) -> bytes:
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(seed.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Written under another name first: a crash must not leave half a key.
    partial.rename(path)
    return seed


def read_private(path: Path) -> bytes:
    """The first bytes, 4096 at most, of a file that only its owner may read.

    Raises SeedFileError if it is no file or others may read it, OSError if it cannot be read.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise SeedFileError(f"{path} is not a file: name one, or a place where one can be made")
        if stat.S_IMODE(mode) & 0o077:
            raise SeedFileError(f"{path} can be read by others than its owner: run chmod 600 {path}")
        return os.read(descriptor, _MAX_KEY_BYTES)
    finally:
        os.close(descriptor)


def _load(path: Path) -> bytes:
    text = read_private(path).decode("utf-8", errors="replace")
    if not _SEED.fullmatch(text):
        raise SeedFileError(
            f"{path} must contain 64 lower-case hex characters: restore it, or move it away for a new key"
        )
    return bytes.fromhex(text.strip())
