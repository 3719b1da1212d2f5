"""Waiting for the disk."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return once the disk has what is in a file, or the names in a folder; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
