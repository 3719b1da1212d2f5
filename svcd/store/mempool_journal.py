"""The mempool's journal: a file to which the waiting transfers, and the numbers of those that left, are appended.

The format is described in docs/storage.md. A write does not wait for the disk: a kill loses nothing; a power failure
may lose the newest transfers, which their wallets submit again. A record is believed only if its digest is right.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import BinaryIO, Final

from attrs import define, field, frozen

from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.store.database import DatabaseError, DiskError
from svcd.store.database_copy import sync

FILE: Final = "mempool.journal"
NEW_FILE: Final = f"{FILE}.new"
"""The name of the file while it is rewritten."""
_FORMAT: Final = b"svcd mempool journal 1\n"
_DIGEST: Final = 32
_HEADER_BYTES: Final = len(_FORMAT) + 32 + _DIGEST
_MARKER: Final = b"\xf5\x0aTX"
"""Begins each record, so that the next one is found behind a damaged one; no canonical JSON has its first byte."""
_FRAME: Final = Struct(">4sI32s")
"""Marker, bytes of the payload, and its digest."""
_MAX_PAYLOAD: Final = 8_192
_ADDED: Final = Struct(">cQ32s32s20s20s64sQQQQB")
"""Kind, number, the fields of the transfer, and the length of its reference; reference and JSON follow."""
_REMOVED_AT_ONCE: Final = 512
_ADDITION: Final = b"+"
_REMOVAL: Final = b"-"
_BLOCK: Final = 1 << 20
"""Bytes read or written at a time."""
_SLACK: Final = 4 << 20
_PROBED: Final = 1 << 16
_LAST_RESORT: Final = "move it away: wallets and peers send the waiting transfers again"


@frozen
class JournalKind:
    """How errors of the journal are reported (see svcd.node.database_health.StoreKind)."""

    name: str = "the mempool's journal"
    refused: str = "the mempool's journal cannot be written"
    remedy: str = _LAST_RESORT


JOURNAL: Final = JournalKind()


@define
class JournalContents:
    """What a journal has."""

    genesis: bytes
    """The genesis hash of its network."""
    transfers: dict[int, Transfer] = field(factory=dict)
    """The transfers that have not left, by number; their signatures were verified before they were written."""
    has_removals: bool = False
    damaged: int = 0
    """The number of damaged places in front of the last whole record."""
    damaged_bytes: int = 0
    end: int = _HEADER_BYTES
    """Where the last whole record ends."""
    torn_bytes: int = 0
    """The bytes behind it."""

    @property
    def damage(self) -> str:
        """What is damaged, as the end of a sentence; "" if nothing is."""
        places = f"{self.damaged} place{'s' if self.damaged > 1 else ''}"
        return f"is damaged in {places}, {self.damaged_bytes} bytes in all" if self.damaged else ""

    @property
    def is_clean(self) -> bool:
        """Whether it consists of records of ``transfers``."""
        return not (self.has_removals or self.damaged or self.torn_bytes)


class MempoolJournal:
    """The only writer of a journal; for any thread, where one call waits for another. Raises DiskError."""

    def __init__(self, path: Path, params: NetworkParams) -> None:
        self.path = path
        self.size = 0
        """Bytes of whole records, and of the header."""
        self._genesis = params.genesis_hash
        self._lock = Lock()
        self._file: int | None = None
        self._identities: tuple[tuple[int, int], ...] = ()
        """Device and inode of the file; of two while it is replaced."""
        self._is_torn = False
        """Whether a part of a failed write may be behind the whole records."""
        self._size_when_rewritten = 0

    def load(self) -> JournalContents:
        """Open the journal, or create an empty one, and read it.

        Raises DatabaseError for a file of another network, or one that is no journal that this program knows.
        """
        with self._lock, _explaining():
            self._close()
            if not os.path.lexists(self.path):
                self._rewrite(())
                return JournalContents(self._genesis)
            contents = read_journal(self.path)
            if contents.genesis != self._genesis:
                raise DatabaseError(
                    f"{self.path} has the transfers of another network: use another data directory, or {_LAST_RESORT}"
                )
            self._adopt(os.open(self.path, os.O_RDWR | os.O_CLOEXEC), contents.end)
            self._is_torn = contents.torn_bytes > 0
            return contents

    def write(self, added: Iterable[tuple[int, Transfer]], removed: Sequence[int]) -> None:
        """Append that the transfers numbered ``removed`` have left, then ``added``, which have verified signatures."""
        data = b"".join([*self._removals(removed), *map(self._addition, added)])
        with self._lock, _explaining():
            self._append(data)

    @property
    def is_long(self) -> bool:
        """Whether it is to be rewritten, since it is twice as long as when that was last done, or tried."""
        return self.size > 2 * self._size_when_rewritten + _SLACK

    def rewrite(self, transfers: Iterable[tuple[int, Transfer]]) -> None:
        """Let a new file with exactly ``transfers``, which is on the disk before, take the place of this one."""
        with self._lock, _explaining():
            # In case it fails: the next attempt waits until as much has been written.
            self._size_when_rewritten = self.size
            self._rewrite(transfers)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        with self._lock, _explaining():
            os.fsync(self._opened())

    def probe(self) -> None:
        """See whether the disk accepts as much as some transfers."""
        with self._lock, _explaining():
            before = self.size
            self._append(bytes(_PROBED))
            self.size, self._is_torn = before, True
            self._cut()

    def is_lost(self) -> bool:
        """Whether another program has removed or replaced the file; for any thread."""
        # Before stat(): the file that another thread replaces meanwhile is one of both.
        known = self._identities
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return bool(known)
        except OSError:
            # The next write reports a disk that does not answer.
            return False
        return bool(known) and (found.st_dev, found.st_ino) not in (*known, *self._identities)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _opened(self) -> int:
        if self._file is None:
            raise OSError(0, "the journal is closed")
        return self._file

    def _adopt(self, file: int, size: int) -> None:
        self._close()
        self._file, self.size, self._size_when_rewritten = file, size, size
        self._is_torn = False
        self._identities = (_identity(file),)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._identities = None, ()

    def _append(self, data: bytes) -> None:
        file = self._opened()
        if self._is_torn:
            self._cut()
        try:
            _write_all(file, data, self.size)
        except OSError:
            self._is_torn = True
            with suppress(OSError):
                self._cut()
            raise
        self.size += len(data)

    def _cut(self) -> None:
        """Remove what is behind the whole records."""
        os.ftruncate(self._opened(), self.size)
        self._is_torn = False

    def _rewrite(self, transfers: Iterable[tuple[int, Transfer]]) -> None:
        new, before = self.path.with_name(NEW_FILE), self._identities
        # A symbolic link of this name must not make the node overwrite another file.
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size, data = 0, bytearray(_header(self._genesis))
            for numbered in transfers:
                data += self._addition(numbered)
                if len(data) >= _BLOCK:
                    size += _write_all(file, data, size)
                    data.clear()
            size += _write_all(file, data, size)
            os.fsync(file)
            self._identities = (*before, _identity(file))
            new.replace(self.path)
        except BaseException:
            self._identities = before
            os.close(file)
            with suppress(OSError):
                new.unlink()
            raise
        self._adopt(file, size)
        sync(self.path.parent)

    def _addition(self, numbered: tuple[int, Transfer]) -> bytes:
        number, t = numbered
        reference = (t.reference or "").encode("ascii")
        numbers = (t.amount, t.fee, t.nonce, t.timestamp, len(reference))
        packed = _ADDED.pack(_ADDITION, number, t.txid, t.sender_key, t.sender, t.recipient, t.signature, *numbers)
        return _record(packed + reference + t.wire, self._genesis)

    def _removals(self, numbers: Sequence[int]) -> Iterator[bytes]:
        for start in range(0, len(numbers), _REMOVED_AT_ONCE):
            some = numbers[start : start + _REMOVED_AT_ONCE]
            yield _record(_REMOVAL + b"".join([number.to_bytes(8, "big") for number in some]), self._genesis)


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn errors of the system inside into DiskError."""
    try:
        yield
    except OSError as error:
        raise DiskError(error.strerror or str(error)) from error


def read_journal(path: Path) -> JournalContents:
    """What the journal at ``path`` has, damage left out; raises OSError, and DatabaseError for any other file."""
    with path.open("rb") as file:
        return parse_journal(file, path)


def parse_journal(file: BinaryIO, path: Path) -> JournalContents:
    """What the bytes of ``file`` have; ``path`` is named in the DatabaseError that it raises if they are no journal."""
    contents = JournalContents(_network_of(file.read(_HEADER_BYTES), path))
    skipped = 0
    for payload, size in _records(file, contents.genesis):
        if payload is None:
            skipped += size
            continue
        if skipped:
            contents.damaged, contents.damaged_bytes = contents.damaged + 1, contents.damaged_bytes + skipped
        contents.end += skipped + size
        skipped = 0
        _apply(contents, payload)
    contents.torn_bytes = skipped
    return contents


def _header(genesis: bytes) -> bytes:
    return _FORMAT + genesis + sha256(_FORMAT + genesis).digest()


def _network_of(header: bytes, path: Path) -> bytes:
    genesis = header[len(_FORMAT) : -_DIGEST]
    if header != _header(genesis):
        raise DatabaseError(f"{path} is damaged at its beginning, or no mempool journal of this svcd; {_LAST_RESORT}")
    return genesis


def _record(payload: bytes, genesis: bytes) -> bytes:
    return _FRAME.pack(_MARKER, len(payload), sha256(genesis + payload).digest()) + payload


def _records(file: BinaryIO, genesis: bytes) -> Iterator[tuple[bytes | None, int]]:
    """The payload of each whole record, and its bytes in the file; None for bytes that belong to none."""
    buffer, at, is_end = b"", 0, False
    while True:
        if not is_end and len(buffer) - at < _FRAME.size + _MAX_PAYLOAD:
            more = file.read(_BLOCK)
            buffer, at, is_end = buffer[at:] + more, 0, not more
            continue
        if at == len(buffer):
            return
        payload = _payload_at(buffer, at, genesis)
        if payload is not None:
            size = _FRAME.size + len(payload)
        else:
            following = buffer.find(_MARKER, at + 1)
            # Its first bytes may be the last of what has been read.
            size = (following if following >= 0 else max(len(buffer) - len(_MARKER) + 1, at + 1)) - at
        yield payload, size
        at += size


def _payload_at(buffer: bytes, at: int, genesis: bytes) -> bytes | None:
    if len(buffer) - at < _FRAME.size:
        return None
    marker, length, digest = _FRAME.unpack_from(buffer, at)
    if marker != _MARKER or not 0 < length <= _MAX_PAYLOAD:
        return None
    payload = buffer[at + _FRAME.size : at + _FRAME.size + length]
    return payload if len(payload) == length and sha256(genesis + payload).digest() == digest else None


def _apply(contents: JournalContents, payload: bytes) -> None:
    if payload[:1] == _REMOVAL:
        contents.has_removals = True
        for start in range(1, len(payload), 8):
            contents.transfers.pop(int.from_bytes(payload[start : start + 8], "big"), None)
        return
    _, number, txid, key, sender, recipient, signature, *numbers, length = _ADDED.unpack_from(payload)
    amount, fee, nonce, timestamp = numbers
    contents.transfers[number] = Transfer(
        txid=txid,
        sender_key=key,
        sender=sender,
        recipient=recipient,
        amount=amount,
        fee=fee,
        nonce=nonce,
        timestamp=timestamp,
        reference=payload[_ADDED.size : _ADDED.size + length].decode("ascii") or None,
        signature=signature,
        wire=payload[_ADDED.size + length :],
    )


def _write_all(file: int, data: bytes | bytearray, position: int) -> int:
    written = 0
    with memoryview(data) as rest:
        while written < len(data):
            written += os.pwrite(file, rest[written:], position + written)
    return written


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino
