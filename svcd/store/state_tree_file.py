"""The file ``<database>-tree``: one level of the state tree after some block, which saves a start reading all accounts.

The file says which block it belongs to. The accounts after a block are the same in every database that has the block,
so the file is right in each of these, and no other file or commit has to be in step with it (docs/storage.md).
"""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Final

from attrs import define, frozen

from svcd.chain.commitment import Level
from svcd.store.database_copy import sync

_MAGIC: Final = b"svcd state tree\1"
_HEAD: Final = Struct(">16s32sQQB")
"""Magic, hash and height of the block, number of accounts, depth of the level."""
_MAX_DEPTH: Final = 40
_HASH_SIZE: Final = 32


@frozen
class SavedTree:
    """A level of the state tree after a block."""

    block: bytes
    """The hash of the block."""
    height: int
    accounts: int
    """How many there are."""
    level: Level


class NoSavedTree(Exception):
    """There is no tree in the file; the text is a clause that says why."""


@define
class StateTreeFile:
    """The file beside the chain's database at ``database``."""

    database: Path

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.database.with_name(f"{self.database.name}-tree")

    def read(self) -> SavedTree:
        """The saved tree; raises NoSavedTree if the file is missing, damaged or of another program's format."""
        try:
            with self.path.open("rb", buffering=0) as file:
                head = file.read(_HEAD.size)
                if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                    raise NoSavedTree(f"{self.path} is not a state tree of this program")
                _, block, height, accounts, depth = _HEAD.unpack(head)
                nodes = 1 << min(depth, _MAX_DEPTH)
                size = os.fstat(file.fileno()).st_size
                if size != _HEAD.size + nodes * (1 + _HASH_SIZE) + _HASH_SIZE:
                    raise NoSavedTree(f"{self.path} is {size} bytes long, which does not fit its contents")
                kinds, hashes, checksum = bytearray(nodes), bytearray(_HASH_SIZE * nodes), bytearray(_HASH_SIZE)
                for part in (kinds, hashes, checksum):
                    _fill(file.fileno(), part)
        except FileNotFoundError:
            raise NoSavedTree(f"there is no {self.path}") from None
        except OSError as error:
            raise NoSavedTree(f"{self.path} cannot be read: {error.strerror}") from error
        if _checksum(head, kinds, hashes) != checksum:
            raise NoSavedTree(f"{self.path} is damaged: its checksum is wrong")
        return SavedTree(block, height, accounts, Level(depth, kinds, hashes))

    def write(self, tree: SavedTree) -> None:
        """Put ``tree`` into the file in place of what is there, which stays until the new one is on the disk.

        Takes tenths of a second with 10^7 accounts, most of them without the interpreter. Raises OSError.
        """
        head = _HEAD.pack(_MAGIC, tree.block, tree.height, tree.accounts, tree.level.depth)
        parts = (head, tree.level.kinds, tree.level.hashes)
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            # A symbolic link of this name must not make the node overwrite another file.
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                for part in (*parts, _checksum(*parts)):
                    _write_all(file.fileno(), part)
                os.fsync(file.fileno())
            new.replace(self.path)
        except BaseException:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        sync(self.path.parent)


def _checksum(*parts: bytes | bytearray) -> bytes:
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _fill(descriptor: int, part: bytearray) -> None:
    """Read as many bytes as ``part`` is long; the system may give fewer at once. Raises NoSavedTree at the end."""
    view = memoryview(part)
    while view:
        count = os.readv(descriptor, [view])
        if not count:
            raise NoSavedTree("the state tree's file became shorter while it was read")
        view = view[count:]


def _write_all(descriptor: int, part: bytes | bytearray) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]
