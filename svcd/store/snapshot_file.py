"""Files of snapshots: the records of all accounts, the manifest, and a checksum of each chunk (docs/storage.md).

A file is written under another name first, so that it is whole or not there. A chunk is read in one piece, and its
checksum shows a damaged disk before a peer sees the chunk.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, overload
from zlib import crc32

from attrs import frozen

from svcd.chain.accounts import KEY_BITS
from svcd.chain.encoding import parse_json
from svcd.chain.errors import Corrupt, RuleViolation
from svcd.chain.snapshot import RECORD_BYTES, Chunk, Manifest, check_manifest, cut, join, leaves, parse_manifest
from svcd.chain.state_root import subtree_root
from svcd.chain.transition import ChainPoint

Pause = Callable[[], object]
"""Called between small pieces of work, to let other threads run; may raise to give up."""
_PIECE_ACCOUNTS: Final = 256
"""Accounts that are hashed between two pauses, in a millisecond."""
_SYNC_BYTES: Final = 16 * 1024 * 1024
"""Bytes written between two fsyncs, so that other writers do not wait for long."""
_TAIL: Final = Struct(">8sQII")
"""At the end of the file: format, number of accounts, bytes of the manifest, checksum of what lies between.

That is the manifest in canonical JSON, and the checksum of each chunk.
"""
_FORMAT: Final = b"svcsnap1"
_SUM: Final = Struct(">I")


class _Keys(Sequence[bytes]):
    """The key hashes of some records in a file, in order."""

    def __init__(self, records: mmap.mmap | bytes, begin: int, end: int) -> None:
        self._records, self._begin, self._end = records, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = (self._begin + index) * RECORD_BYTES
        return self._records[at : at + KEY_BITS // 8]


def write_snapshot(path: Path, point: ChainPoint, state_root: bytes, records: Iterable[bytes], pause: Pause) -> None:
    """Write the snapshot of the block ``point``, which has the ``state_root``.

    ``records`` are pieces with the records of all accounts in order, taken to the end before anything else is done;
    ``pause`` is called after each.

    Raises:
        Corrupt: the accounts do not give the state root.
        RuleViolation: there would be more chunks than a snapshot may have.
        OSError: the disk refuses; as after every exception, there is no file then.
    """
    partial = path.with_name(f"{path.name}.new")
    try:
        # A symbolic link of this name must not make the node overwrite another file.
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            _write_records(file, records, pause)
            chunks, sums = _read_chunks(file, pause)
            manifest = Manifest(point.height, point.hash, tuple(chunks))
            _check(manifest, state_root)
            wire, footer = manifest.wire(), b"".join(map(_SUM.pack, sums))
            file.write(wire + footer + _TAIL.pack(_FORMAT, manifest.accounts, len(wire), crc32(wire + footer)))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _check(manifest: Manifest, state_root: bytes) -> None:
    try:
        check_manifest(manifest, state_root)
    except RuleViolation as violation:
        raise Corrupt(f"no snapshot can be made of the accounts on disk: {violation.detail}") from violation
    parse_manifest(parse_json(manifest.wire()))


def _write_records(file: BinaryIO, records: Iterable[bytes], pause: Pause) -> None:
    unsynced = 0
    for piece in records:
        file.write(piece)
        unsynced += len(piece)
        if unsynced >= _SYNC_BYTES:
            unsynced = 0
            file.flush()
            os.fsync(file.fileno())
        pause()
    file.flush()


def _read_chunks(file: BinaryIO, pause: Pause) -> tuple[list[Chunk], list[int]]:
    """The chunks of the records in a file, and their checksums."""
    size = file.tell()
    if not size:
        return [Chunk(0, 0, bytes(32))], [0]
    chunks: list[Chunk] = []
    sums: list[int] = []
    first = 0
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as records:
        for depth, begin, end in cut(_Keys(records, 0, size // RECORD_BYTES)):
            pieces = []
            for below, left, right in cut(_Keys(records, begin, end), _PIECE_ACCOUNTS, depth):
                piece = records[(begin + left) * RECORD_BYTES : (begin + right) * RECORD_BYTES]
                pieces.append((below, right - left, subtree_root(leaves(piece), below)))
                pause()
            chunks.append(Chunk(depth, *join(pieces, _PIECE_ACCOUNTS, depth=depth, first=first)))
            sums.append(crc32(records[begin * RECORD_BYTES : end * RECORD_BYTES]))
            first += 1 << KEY_BITS - depth
    return chunks, sums


class SnapshotDamaged(Exception):
    """A file is not the snapshot that was written; it is no part of the chain, and can be made again."""


@frozen
class SnapshotFile:
    """A whole snapshot on disk."""

    path: Path
    manifest: Manifest
    wire: bytes
    """The canonical JSON of the manifest."""
    digest: bytes
    """See :attr:`svcd.chain.snapshot.Manifest.digest`."""
    _sums: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> "SnapshotFile":
        """Read the manifest; raises SnapshotDamaged if the file is no whole snapshot, OSError if it cannot be read."""
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL.size, 0))
            tail = file.read()
            if len(tail) != _TAIL.size or not tail.startswith(_FORMAT):
                raise SnapshotDamaged(f"{path} is not a whole snapshot")
            _, accounts, length, checksum = _TAIL.unpack(tail)
            begin = accounts * RECORD_BYTES
            file.seek(min(begin, size))
            footer = file.read(max(size - begin - _TAIL.size, 0))
        if crc32(footer) != checksum:
            raise SnapshotDamaged(f"{path} is damaged: its manifest does not have its checksum")
        wire = footer[:length]
        manifest = parse_manifest(parse_json(wire))
        sums = tuple([number for (number,) in _SUM.iter_unpack(footer[length:])])
        return cls(path, manifest, wire, manifest.digest, sums)

    def chunk(self, index: int) -> bytes:
        """The records of a chunk; raises SnapshotDamaged if they are not as written, OSError if they cannot be read."""
        first, end = (self.manifest.starts[at] * RECORD_BYTES for at in (index, index + 1))
        with self.path.open("rb") as file:
            file.seek(first)
            records = file.read(end - first)
        if len(records) != end - first or crc32(records) != self._sums[index]:
            raise SnapshotDamaged(f"{self.path} is damaged: chunk {index} does not have its checksum")
        return records
