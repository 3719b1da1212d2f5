"""Files of the wallet: new ones are never written over others, secret ones are the owner's alone."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from svcd.wallet.failed import Failed

_MAX_SECRET_BYTES: Final = 4096
_SEED: Final = re.compile("[0-9a-f]{64}")


def refuse_existing(path: Path, option: str = "--keyfile") -> None:
    """Raise Failed if there is anything at ``path``, which ``option`` of the command names."""
    if os.path.lexists(path):
        raise _exists(path, option)


def write_new(path: Path, data: bytes, option: str = "--keyfile") -> None:
    """Write ``data`` to a new file of mode 0600 and wait until the disk has it; raises Failed."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _exists(path, option) from None
    except OSError as error:
        raise _failed(path, "written", error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _failed(path, "written", error) from None


def replace(path: Path, data: bytes) -> None:
    """Make ``data`` the whole content of a file of mode 0600, at once and for good; raises Failed."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        # What a process of this number left when it was killed; in a container all have the same.
        fresh.unlink(missing_ok=True)
    except OSError as error:
        raise _failed(fresh, "removed", error) from None
    write_new(fresh, data)
    try:
        fresh.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _failed(path, "written", error) from None


@contextmanager
def held(path: Path, otherwise: str) -> Iterator[None]:
    """Hold the lock of a file; raises Failed, with the sentence ``otherwise`` if another process holds it.

    Nothing is written, and a process that dies lets go.
    """
    try:
        descriptor = _open_to_lock(path)
    except OSError as error:
        raise _failed(path, "read", error) from None
    with os.fdopen(descriptor, "rb"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(otherwise) from None
        except OSError as error:
            raise _failed(path, "locked", error) from None
        yield


def _open_to_lock(path: Path) -> int:
    """A descriptor that may write where that is allowed: NFS locks no other (flock(2)), local disks do."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_bounded(path: Path, limit: int) -> bytes:
    """At most ``limit`` + 1 bytes of a file, so that the caller sees when there are too many; raises Failed."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise _failed(path, "read", error) from None


def read_secret_line(path: Path, what: str) -> str:
    """The only line of a small file that nobody but its owner may read; ``what`` it is, "the password". Raises Failed.

    The end of the line is no part of it.
    """
    try:
        text = read_secret(path, what).decode("utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{path} must hold UTF-8 text, {what} alone") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if not line or "\n" in line:
        raise Failed(f"{path} must hold one line, {what} alone")
    return line


def read_seed(path: Path) -> bytes:
    """The 32-byte seed in the key file of a node, which nobody but its owner may read; raises Failed."""
    line = read_secret_line(path, "a key of a node")
    if not _SEED.fullmatch(line):
        raise Failed(f"{path} must hold a key of a node, 64 lower-case hex characters, alone")
    return bytes.fromhex(line)


def read_secret(path: Path, what: str) -> bytes:
    """The bytes of a small file that nobody but its owner may read; raises Failed."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise _failed(path, "read", error) from None
    if mode & 0o077:
        raise Failed(f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")
    data = read_bounded(path, _MAX_SECRET_BYTES)
    if len(data) > _MAX_SECRET_BYTES:
        raise Failed(f"{path} holds more than {_MAX_SECRET_BYTES} bytes; it must hold {what} alone")
    return data


def _sync_directory(path: Path) -> None:
    """Make the name of a new file survive a power loss: coins may be sent to its address the next moment."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exists(path: Path, option: str) -> Failed:
    return Failed(f"{path} exists already and is never written over; choose another file with {option}")


def _failed(path: Path, done: str, error: OSError) -> Failed:
    reason = os.strerror(error.errno).lower() if error.errno is not None else str(error)
    return Failed(f"{path} cannot be {done}: {reason}")
