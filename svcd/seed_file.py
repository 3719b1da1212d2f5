"""Secrets that a node makes for itself, in files that only its owner may read: its keys and the operator's token.

The file of a key (docs/block-key.md) has two lines: the 32-byte seed in 64 hex digits, and a checksum over the kind of
the key and these digits. Without it a changed digit would silently be another identity.
"""

import os
import re
import stat
from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.visible_text import BadText, line_of, text_of

_SEED_BYTES: Final = 32
_HEX: Final = re.compile("[0-9a-f]{64}")
_CHECKSUM: Final = re.compile("sha256:[0-9a-f]{16}")
_MAX_FILE_BYTES: Final = 4096


class SeedKind(Enum):
    """What a key is for; the value is what the checksum and messages call it."""

    NODE = "node key"
    BLOCK = "block key"


class SeedFileError(Exception):
    """A file with a secret cannot be used; the text says why, and what to do."""


def render_seed(seed: bytes, kind: SeedKind) -> bytes:
    """The bytes of the file of a 32-byte ``seed``."""
    return f"{seed.hex()}\n{_checksum(seed.hex(), kind)}\n".encode("ascii")


def parse_seed(content: bytes, kind: SeedKind, path: Path) -> bytes:
    """The 32-byte seed in the content of the file at ``path``; raises SeedFileError."""
    try:
        digits, _, checksum = text_of(content).removesuffix("\n").partition("\n")
    except BadText as error:
        raise SeedFileError(f"{path} {error}; restore it, or move it away for a new key") from None
    if _HEX.fullmatch(digits) and not checksum:
        make = "svc node key import makes an encrypted key of its digits, " if kind is SeedKind.BLOCK else ""
        raise SeedFileError(
            f"{path} lacks the second line, the checksum of the key: {make or 'restore it, '}or move it away for a new "
            "key"
        )
    if not (_HEX.fullmatch(digits) and _CHECKSUM.fullmatch(checksum)):
        raise SeedFileError(
            f"{path} must contain two lines, the {kind.value} of 64 lower-case hex digits and its checksum: restore "
            "it, or move it away for a new key"
        )
    for other in SeedKind:
        if other is not kind and checksum == _checksum(digits, other):
            raise SeedFileError(f"{path} contains a {other.value}, and must contain the {kind.value}: restore it")
    if checksum != _checksum(digits, kind):
        raise SeedFileError(
            f"{path} is damaged, because the {kind.value} in it does not have its checksum: restore it, or move it "
            "away for a new key"
        )
    return bytes.fromhex(digits)


@frozen
class CopiedSeed:
    """A seed that a person has copied, such as from paper."""

    seed: bytes
    is_checked: bool
    """Whether its checksum was copied as well."""


def is_encrypted(content: bytes) -> bool:
    """Whether the content of a key's file is that of an encrypted keyfile, which is JSON (svcd.keyfile)."""
    return content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def parse_copy(text: str, kind: SeedKind, origin: str) -> CopiedSeed:
    """The seed in 64 hex digits, in groups and in either case, with its checksum behind them or without.

    ``origin`` is where the text is from, for the SeedFileError that is raised if they are wrong.
    """
    words = text.lower().split()
    checksum = words.pop() if words and words[-1].startswith("sha256:") else ""
    digits = "".join(words)
    if not _HEX.fullmatch(digits):
        raise SeedFileError(f"{origin} must have the 64 hex digits of a {kind.value}, and may have its checksum")
    if checksum and checksum != _checksum(digits, kind):
        raise SeedFileError(f"{origin} has a wrong digit, or the checksum of another key: compare it with the original")
    return CopiedSeed(bytes.fromhex(digits), bool(checksum))


def load_or_make(path: Path, kind: SeedKind, random: Callable[[int], bytes]) -> bytes:
    """The 32-byte seed in ``path``; if there is no file it is created from ``random``, with mode 0600.

    Raises SeedFileError for a file that others may read, that is damaged, or that cannot be read or created.
    """
    content = _load_or_make(path, lambda: render_seed(random(_SEED_BYTES), kind))
    return parse_seed(content, kind, path)


def load_or_make_token(path: Path, random: Callable[[int], bytes]) -> str:
    """The operator's bearer token in such a file, in one line without a checksum, as a program that sends it reads it.

    A changed digit needs none: the node refuses the token that the program has.
    """
    content = _load_or_make(path, lambda: f"{random(_SEED_BYTES).hex()}\n".encode("ascii"))
    try:
        token = line_of(content, "the token")
    except BadText as error:
        raise SeedFileError(f"{path} {error}") from None
    if not _HEX.fullmatch(token):
        raise SeedFileError(f"{path} must contain 64 lower-case hex digits: restore it, or move it away for another")
    return token


def read_private(path: Path) -> bytes:
    """The first bytes, 4096 at most, of a file that only its owner may read.

    Raises SeedFileError if it is no file or others may read it, OSError if it cannot be read.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise SeedFileError(f"{path} is not a file: name one, or a place where one can be made")
        if stat.S_IMODE(mode) & 0o077:
            raise SeedFileError(f"{path} can be read by others than its owner: run chmod 600 {path}")
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


def _checksum(digits: str, kind: SeedKind) -> str:
    return f"sha256:{sha256(f'svcd {kind.value}: {digits}'.encode('ascii')).hexdigest()[:16]}"


def _load_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of the file, which is made if it is missing."""
    try:
        if not path.exists():
            _write(path, make())
        return read_private(path)
    except OSError as error:
        raise SeedFileError(
            f"{path} cannot be read or made: {error.strerror}; it must be in a folder that exists and be open to the "
            "user that runs the node"
        ) from error


def _write(path: Path, content: bytes) -> None:
    """Write a new file: a crash leaves all of it or nothing, and a power failure does not take it back."""
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
