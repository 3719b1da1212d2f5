"""Files with secrets: new ones never overwrite others, and only their owner may read them."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from svcd.cli.errors import CommandError, MissingFile

MAX_SECRET_BYTES: Final = 4096
_SEED: Final = re.compile("[0-9a-f]{64}")


def require_absent(path: Path, option: str = "--keyfile") -> None:
    """Raise CommandError if ``path``, the value of ``option``, exists."""
    if os.path.lexists(path):
        raise _exists(path, option)


def write_new_file(path: Path, data: bytes, option: str = "--keyfile", *, mode: int = 0o600) -> None:
    """Write ``data`` to a new file and sync it to disk; raises CommandError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(path, option) from None
    except OSError as error:
        raise _failure(path, "written", error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _failure(path, "written", error) from None


def write_whole_file(path: Path, data: bytes, option: str, *, mode: int) -> None:
    """Write ``data`` to a new file, which others see whole or not at all; raises CommandError."""
    temporary = _write_temporary(path, data, mode)
    try:
        # A link is never made over another file.
        path.hardlink_to(temporary)
        _sync_directory(path.parent)
    except FileExistsError:
        raise _exists(path, option) from None
    except OSError as error:
        raise _failure(path, "written", error) from None
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace the content of a file atomically and durably; raises CommandError."""
    temporary = _write_temporary(path, data, mode)
    try:
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _failure(path, "written", error) from None


def _write_temporary(path: Path, data: bytes, mode: int) -> Path:
    """A new file with ``data`` beside ``path``; raises CommandError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        # A killed process with the same id may have left it; in containers every process has the same id.
        temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(temporary, "removed", error) from None
    write_new_file(temporary, data, mode=mode)
    return temporary


@contextmanager
def lock_file(path: Path, if_locked: str) -> Iterator[None]:
    """Hold an advisory lock on a file, which ends with the process. Nothing is written.

    Raises CommandError, with the sentence ``if_locked`` if another process holds the lock.
    """
    try:
        descriptor = _open_to_lock(path)
    except OSError as error:
        raise _failure(path, "read", error) from None
    with os.fdopen(descriptor, "rb"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(if_locked) from None
        except OSError as error:
            raise _failure(path, "locked", error) from None
        if not _is_at(path, descriptor):
            # Another process has replaced it between our opening and our locking.
            raise CommandError(if_locked)
        yield


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _open_to_lock(path: Path) -> int:
    """A descriptor that is writable where permitted: NFS needs that for an exclusive lock, local disks do not."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a file; raises CommandError if there are more than ``limit``."""
    try:
        with path.open("rb") as file:
            return _read(file, path, limit)
    except OSError as error:
        raise _failure(path, "read", error) from None


def read_secret(path: Path, limit: int = MAX_SECRET_BYTES) -> bytes:
    """The bytes of a file that only its owner may read, who runs the command or is root; raises CommandError.

    The very file that is read is checked, even if another one takes its name meanwhile. Run by root, the file may also
    belong to the owner of its folder, such as the data directory of a node.
    """
    try:
        with path.open("rb") as file:
            _check_private(os.fstat(file.fileno()), path)
            return _read(file, path, limit)
    except OSError as error:
        raise _failure(path, "read", error) from None


def _read(file: BinaryIO, path: Path, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise CommandError(f"{path} has more than {limit} bytes")
    return data


def _check_private(found: os.stat_result, path: Path) -> None:
    user, mode = os.geteuid(), stat.S_IMODE(found.st_mode)
    trusted = {0, user} | ({path.parent.stat().st_uid} if user == 0 else set())
    if found.st_uid not in trusted:
        raise CommandError(
            f"{path} belongs to another user (uid {found.st_uid}), who may change it: copy what you trust to a file of"
            " your own"
        )
    if mode & 0o077:
        raise CommandError(f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")


def read_secret_line(path: Path, content: str) -> str:
    """The only line of a small file that only its owner may read, without its end; raises CommandError.

    ``content`` is for the error, such as "the password".
    """
    try:
        text = read_secret(path).decode("utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"{path} must be UTF-8 text and contain only {content}") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if not line or "\n" in line:
        raise CommandError(f"{path} must have one line and contain only {content}")
    return line


def read_seed(path: Path) -> bytes:
    """The 32-byte seed in a node's key file, which only its owner may read; raises CommandError."""
    line = read_secret_line(path, "a node's key")
    if line.startswith("{"):
        raise CommandError(f"{path} is an encrypted keyfile already: svc wallet import --from {path} imports it")
    if not _SEED.fullmatch(line):
        raise CommandError(f"{path} must contain only a node's key, 64 lower-case hex characters")
    return bytes.fromhex(line)


def _sync_directory(path: Path) -> None:
    """Make the name of a new file survive a power failure: coins may be sent to its address at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exists(path: Path, option: str) -> CommandError:
    return CommandError(f"{path} exists already and is never overwritten; choose another file with {option}")


def _failure(path: Path, action: str, error: OSError) -> CommandError:
    reason = os.strerror(error.errno).lower() if error.errno is not None else str(error)
    kind = MissingFile if isinstance(error, FileNotFoundError) else CommandError
    return kind(f"{path} cannot be {action}: {reason}")
