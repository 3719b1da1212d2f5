"""Putting a newly made database in the place of an old one that no process has open."""

import os
import stat
from pathlib import Path
from typing import Final

from svcd.store.syncing import sync

_COMPANIONS: Final = ("-wal", "-shm")
"""What SQLite keeps beside a file; with another file it would be taken for that one's."""


def discard(path: Path) -> None:
    """Remove a database that was never used, if there is one, with what SQLite kept beside it."""
    for suffix in ("", *_COMPANIONS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def kept_name(path: Path) -> Path:
    """Where the old database at ``path`` is kept: a name that is free."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.old-{number}")):
        number += 1
    return path.with_name(f"{path.name}.old-{number}")


def replace_database(path: Path, fresh: Path) -> Path:
    """Make the closed database ``fresh`` that at ``path``; gives where the old one is kept. Raises OSError.

    At every moment there is a database at ``path``, so that no node that starts meanwhile begins a new chain.
    """
    fresh.chmod(stat.S_IMODE(path.stat().st_mode))
    sync(fresh)
    kept = kept_name(path)
    os.link(path, kept)
    for suffix in _COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(kept.with_name(kept.name + suffix))
    fresh.replace(path)
    sync(path.parent)
    return kept
