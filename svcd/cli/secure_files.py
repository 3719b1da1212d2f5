"""Files with secrets: new ones never overwrite others, and only their owner may read them."""

import errno
import fcntl
import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from svcd.cli.errors import CommandError, MissingFile
from svcd.seed_file import SeedFileError, SeedKind, is_encrypted, parse_seed
from svcd.visible_text import BadText, line_of, text_of

MAX_SECRET_BYTES: Final = 4096
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def refuse_root(folder: Path) -> None:
    """Raise CommandError where root would work in a directory that another user can change (docs/threats.md).

    That user can put links and other files there at any moment, also after any check, and SQLite opens files by path.

    Raises:
        OSError: there is no such directory.
    """
    found = os.stat(f"{folder}/")
    if os.geteuid() != 0:
        return
    if found.st_uid != 0:
        user = _name_of(found.st_uid)
        raise CommandError(f"{folder} belongs to {user}: run sudo -u {shlex.quote(user)} {shlex.join(sys.argv)}")
    real = folder.resolve(strict=True)
    for path in (real, *real.parents):
        found = path.stat()
        # In a directory with the sticky bit, such as /tmp, others cannot rename what is root's.
        allowed = _OTHERS_WRITE if path != real and found.st_mode & stat.S_ISVTX else 0
        if found.st_uid != 0 or found.st_mode & _OTHERS_WRITE & ~allowed:
            raise CommandError(f"root does not work in {folder}, because others can change {path}")


def _name_of(uid: int) -> str:
    """The name of a user; `#` and the number for one without a name, as sudo takes it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


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
        return line_of(read_secret(path), content)
    except BadText as error:
        raise CommandError(f"{path} {error}") from None


def read_secret_text(path: Path) -> str:
    """The text of a small file that only its owner may read; raises CommandError."""
    try:
        return text_of(read_secret(path))
    except BadText as error:
        raise CommandError(f"{path} {error}") from None


def read_seed(path: Path) -> bytes:
    """The 32-byte seed in the file of a block key, which only its owner may read; raises CommandError."""
    content = read_secret(path)
    if is_encrypted(content):
        raise CommandError(f"{path} is an encrypted keyfile already: svc wallet import --from {path} imports it")
    try:
        return parse_seed(content, SeedKind.BLOCK, path)
    except SeedFileError as error:
        raise CommandError(str(error)) from None


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
