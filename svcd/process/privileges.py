"""Root's rights, given up before root works in a directory that another user can write to (docs/threats.md).

The node's user owns the data directory and can put links, pipes and other files there at any moment, even while a
command of root's runs. SQLite opens its files by path, so no check before the opening would hold. Therefore root
becomes the owner of the directory: the kernel refuses what that user may not touch, and new files belong to the user.
"""

import ctypes
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x20000
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectory(Exception):
    """Root cannot work safely in a directory; the text is a clause that follows the name of the directory."""


def become_owner(folder: Path) -> Path:
    """Give root the rights of the owner of ``folder`` for the rest of the process; other users keep their own.

    In a directory of root's own, which only root may change, root stays root. Where the directory's owner cannot reach
    it by its path (systemd keeps those of dynamic users below /var/lib/private), or others could put another directory
    in its place, the process gets a mount namespace in which they can neither block nor change the path.

    Returns:
        The path of the directory from now on: ``folder``, or another name of it. The working directory may be changed.

    Raises:
        OSError: there is no such directory, root cannot open it, or the system does not let root change its identity.
        UnsafeDirectory: root cannot work there without following what another user put there.
    """
    if os.geteuid() != 0:
        os.close(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        return folder
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        return _as_root(descriptor, folder, found) if found.st_uid == 0 else _as_owner(descriptor, found)
    finally:
        os.close(descriptor)


def _as_owner(descriptor: int, found: os.stat_result) -> Path:
    uid, gid = found.st_uid, _group(found)
    os.fchdir(descriptor)
    os.setgroups([])
    with _effective(uid, gid):
        closed = _first(_cannot_be_searched, Path.cwd())
    if closed is not None:
        _move_to(closed)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _check(Path(), found)
    return Path()


def _as_root(descriptor: int, folder: Path, found: os.stat_result) -> Path:
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeDirectory("belongs to root but others can write to it: run chmod go-w on it")
    real = Path(os.path.realpath(folder))
    changeable = _first(_others_can_change, real)
    if changeable is not None:
        os.fchdir(descriptor)
        _move_to(changeable)
        real = Path()
    _check(real, found)
    # Another user may change a symbolic link on the way, but nothing on the resolved path.
    return folder if Path(os.path.abspath(folder)) == real else real


def _group(found: os.stat_result) -> int:
    """The primary group of the owner; of a user without an entry, such as a dynamic one, that of the directory."""
    try:
        return pwd.getpwuid(found.st_uid).pw_gid
    except KeyError:
        return found.st_gid


@contextmanager
def _effective(uid: int, gid: int) -> Iterator[None]:
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def _first(is_barrier: Callable[[Path], bool], path: Path) -> Path | None:
    """The topmost ancestor that is a barrier, below the root directory, over which nothing can be mounted."""
    return next(filter(is_barrier, [*reversed(path.parents)][1:]), None)


def _cannot_be_searched(ancestor: Path) -> bool:
    return not os.access(ancestor, os.X_OK, effective_ids=True)


def _others_can_change(ancestor: Path) -> bool:
    """Whether a user other than root can rename or replace what root has in a directory."""
    found = os.stat(ancestor)
    return found.st_uid != 0 or bool(found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX)


def _move_to(barrier: Path) -> None:
    """Mount the working directory over one of its ancestors: nothing else below that one is needed any more."""
    try:
        _mount_here_over(barrier)
    except OSError as error:
        raise UnsafeDirectory(
            f"cannot be used by root: {barrier} is closed to the owner or open to others, and the system allows no "
            f"mount namespace ({error.strerror}). Run the command as the owner"
        ) from error
    os.chdir(barrier)


def _mount_here_over(target: Path) -> None:
    """Mount the working directory over ``target``, for this process only."""
    library = ctypes.CDLL(None, use_errno=True)
    _call(library.unshare(_CLONE_NEWNS))
    _call(library.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
    _call(library.mount(b".", os.fsencode(target), None, ctypes.c_ulong(_MS_BIND), None))


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _check(path: Path, opened: os.stat_result) -> None:
    if not os.path.samestat(path.stat(), opened):
        raise UnsafeDirectory("was replaced by another directory just now: try again")
