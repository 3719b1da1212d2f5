"""Secret seeds in files of the data directory: created on the first start, readable by their owner only."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SEED: Final = re.compile(r"[0-9a-f]{64}\n?")


class SeedFileError(Exception):
    """A seed file cannot be used; the text says why, and what to do."""


def load_or_make(path: Path, random: Callable[[int], bytes]) -> bytes:
    """The 32-byte seed in ``path``, 64 hex characters; if there is no file it is created from ``random``, mode 0600.

    Raises SeedFileError for a file that others may read, that has other contents, or that cannot be read or created.
    """
    try:
        return _load(path) if path.exists() else _make(path, random(32))
    except OSError as error:
        raise SeedFileError(
            f"{path} cannot be read or made: {error.strerror}; it must be in a folder that exists and be open to the "
            "user that runs the node"
        ) from error


def load_or_make_token(path: Path, random: Callable[[int], bytes]) -> str:
    """The operator's bearer token: the 64 hex characters of such a file."""
    return load_or_make(path, random).hex()


def _make(path: Path, seed: bytes) -> bytes:
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(seed.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Written under another name first: a crash must not leave half a key.
    partial.rename(path)
    return seed


def _load(path: Path) -> bytes:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise SeedFileError(f"{path} is not a file: name one, or a place where one can be made")
    if stat.S_IMODE(mode) & 0o077:
        raise SeedFileError(f"{path} can be read by others than its owner: run chmod 600 {path}")
    text = path.read_text("utf-8", errors="replace")
    if not _SEED.fullmatch(text):
        raise SeedFileError(f"{path} must hold 64 lower-case hex characters: restore it, or move it away for a new key")
    return bytes.fromhex(text.strip())
