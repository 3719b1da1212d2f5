"""The file ``<database>-tree``: one level of the state tree after some block, which saves a start reading all accounts.

The file says which block it belongs to. The accounts after a block are the same in every database that has the block,
so the file is right in each of these, and no other file or commit has to be in step with it (docs/storage.md).
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Final

from attrs import define, frozen

from svcd.chain.state_tree import Child, InnerNode, Level, Place
from svcd.store.database_copy import sync

_MAGIC: Final = b"svcd state tree\2"
_HEAD: Final = Struct(">16s32sQQBQ")
"""Magic, hash and height of the block, number of accounts, depth of the level, bytes of the branches below it."""
_PLACE: Final = Struct(">Q")
_BRANCH: Final = Struct(">BB20s32s")
"""Kind, depth, key and hash of a branch; what is on its sides follows, the left one first."""
_BUCKET: Final = Struct(">B32s")
"""Kind and hash of a bucket."""
_ONE, _MANY, _IS_BRANCH = 1, 2, 3
_MAX_DEPTH: Final = 40
_HASH_SIZE: Final = 32


@frozen
class SavedTree:
    """A level of the state tree after a block, and the branches below it."""

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
                _, block, height, accounts, depth, below = _HEAD.unpack(head)
                nodes = 1 << min(depth, _MAX_DEPTH)
                size = os.fstat(file.fileno()).st_size
                if size != _HEAD.size + nodes * (1 + _HASH_SIZE) + below + _HASH_SIZE:
                    raise NoSavedTree(f"{self.path} is {size} bytes long, which does not fit its contents")
                kinds, hashes, checksum = bytearray(nodes), bytearray(_HASH_SIZE * nodes), bytearray(_HASH_SIZE)
                branches = bytearray(below)
                for part in (kinds, hashes, branches, checksum):
                    _fill(file.fileno(), part)
        except FileNotFoundError:
            raise NoSavedTree(f"there is no {self.path}") from None
        except OSError as error:
            raise NoSavedTree(f"{self.path} cannot be read: {error.strerror}") from error
        if _checksum(head, kinds, hashes, branches) != checksum:
            raise NoSavedTree(f"{self.path} is damaged: its checksum is wrong")
        return SavedTree(block, height, accounts, Level(depth, kinds, hashes, _unpack(bytes(branches))))

    def write(self, tree: SavedTree) -> None:
        """Put ``tree`` into the file in place of what is there, which stays until the new one is on the disk.

        Takes tenths of a second with 10^7 accounts, most of them without the interpreter. Raises OSError.
        """
        level, branches = tree.level, _pack(tree.level.branches)
        head = _HEAD.pack(_MAGIC, tree.block, tree.height, tree.accounts, level.depth, len(branches))
        parts = (head, level.kinds, level.hashes, branches)
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


def _pack(branches: Mapping[Place, InnerNode]) -> bytes:
    """Place and branch one after the other."""
    parts: list[bytes] = []

    def add(child: Child) -> None:
        if isinstance(child, InnerNode):
            parts.append(_BRANCH.pack(_IS_BRANCH, child.depth, child.key.to_bytes(20, "big"), child.node))
            add(child.left)
            add(child.right)
        else:
            parts.append(_BUCKET.pack(_MANY if len(child) == _HASH_SIZE else _ONE, child[:_HASH_SIZE]))

    for place, branch in branches.items():
        parts.append(_PLACE.pack(place))
        add(branch)
    return b"".join(parts)


def _unpack(data: bytes) -> dict[Place, InnerNode]:
    """The inverse of :func:`_pack`, for data whose checksum is right."""
    at = 0

    def take() -> Child:
        nonlocal at
        if data[at] == _IS_BRANCH:
            _, depth, key, node = _BRANCH.unpack_from(data, at)
            at += _BRANCH.size
            left = take()
            return InnerNode(depth, int.from_bytes(key, "big"), left, take(), node)
        kind, digest = data[at], data[at + 1 : at + _BUCKET.size]
        at += _BUCKET.size
        return digest if kind == _MANY else digest + bytes([kind])

    branches: dict[Place, InnerNode] = {}
    while at < len(data):
        (place,) = _PLACE.unpack_from(data, at)
        at += _PLACE.size
        child = take()
        if isinstance(child, InnerNode):
            branches[place] = child
    return branches


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
