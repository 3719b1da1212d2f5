"""For tests of what root's commands do in a directory of another user."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.process_level.running import ENVIRONMENT

OWNER: Final = (12_345, 12_346)
"""User and group of a node; no entry of the system's is needed for them."""

_MOUNT = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
raise SystemExit(library.unshare(0x20000) or library.mount(None, b"/", None, ctypes.c_ulong(0x44000), None))
"""


def _can_mount() -> bool:
    """Whether root can have a mount namespace here: not without CAP_SYS_ADMIN, nor where / is no mount (chroot(2))."""
    return os.geteuid() == 0 and subprocess.run([sys.executable, "-c", _MOUNT], check=False).returncode == 0


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
needs_mounts = pytest.mark.skipif(
    not _can_mount(), reason="only root can mount, and only where / is a mount of its own"
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
