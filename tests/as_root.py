"""For tests of what root's commands do in a directory of another user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.process_level.running import ENVIRONMENT

OWNER: Final = (12_345, 12_346)
"""User and group of a node; no entry of the system's is needed for them."""

_SYS_ADMIN: Final = 21
"""The number of CAP_SYS_ADMIN (capabilities(7))."""


def _capabilities() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("CapEff")), 16)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not _capabilities() >> _SYS_ADMIN & 1, reason="only root with CAP_SYS_ADMIN can mount"
)

UNMEASURED: Final = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("COVERAGE_")}
"""For processes that become another user, who may not write what coverage would write at their end."""


@contextmanager
def directory_of_root() -> Iterator[Path]:
    """A new directory of root's that every user can reach, unlike pytest's, and only root can change."""
    folder = Path(tempfile.mkdtemp(prefix="svcd-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def give_to_owner(folder: Path) -> None:
    """Let a directory and everything in it belong to `OWNER`."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *OWNER, follow_symlinks=False)
