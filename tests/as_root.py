"""For tests of what root's commands do in a directory of another user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

OWNER: Final = (12_345, 12_346)
"""User and group of a node; no entry of the system's is needed for them."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


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
