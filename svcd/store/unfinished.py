"""Folders in which a copy is being made, and those that a copy which did not end has left behind.

A lock on the folder tells one from the other: the system lets go of it when the process ends, however it ends.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

ENDING: Final = ".partial"
"""How their names end."""
_DATABASE: Final = re.compile(r".+\.sqlite(-journal|-wal|-shm)?")


def unfinished_name(folder: Path) -> Path:
    """Where the copy that is to be ``folder`` is made."""
    return folder.with_name(f"{folder.name}{ENDING}")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Let nobody take the folder for left behind meanwhile; raises OSError where it is not there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network disks have no such locks; there nobody gets one, and so nothing is removed.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_left(folder: Path) -> list[Path]:
    """Remove what copies that did not end have left beside ``folder``; gives the folders that are gone.

    They are known by their name, their mode, their owner, and that there are databases in them and nothing else.
    """
    found = {unfinished_name(folder), *_beside(folder)}
    return [path for path in sorted(found) if _is_removed(path)]


def _beside(folder: Path) -> Iterable[Path]:
    try:
        return [path for path in folder.parent.iterdir() if path.name.endswith(ENDING)]
    except OSError:
        # Whoever may write into a folder need not be allowed to read it.
        return []


def _is_removed(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(descriptor)
        if not (_is_ours(os.fstat(descriptor)) and all(_is_database(name, descriptor) for name in names)):
            return False
        # By the open folder, and no deeper: what takes its name meanwhile, or is put into it, is not ours to remove.
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
