"""The mempool's database (docs/storage.md).

A commit does not wait for the disk, so that it can be made in the reactor's thread. A kill loses nothing; a power cut
may lose the newest transfers, which their wallets submit again. Another thread runs the checkpoints.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Final

from attrs import frozen

from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.store import database

FILE: Final = "mempool.sqlite"
_FIELDS: Final = Struct(">32s32s20s20s64sQQQQ")
_DIGEST: Final = 32
_LOG_ROWS: Final = 4_000
"""Rows written between two checkpoints: about 4 MiB."""
_PAGES_OF_A_TURN: Final = 16
_CACHE_KIB: Final = 128


@frozen
class Row:
    """A stored transfer."""

    sequence: int
    body: bytes
    """Its canonical JSON."""
    transfer: Transfer | None
    """The parsed transfer, whose signature has been verified; None if the row is not as it was written."""


class MempoolStore:
    """The only writer; all methods but :meth:`empty_log` are for the reactor's thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, params: NetworkParams) -> None:
        self._db = connection
        self.path = path
        self._genesis = params.genesis_hash
        self._emptied_at = 0
        # Otherwise some commits would wait for the disk, and each one for a program that has locked the file.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA busy_timeout = 0")
        # The mempool is in memory, and rows are written in sequence.
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def rows(self) -> Iterator[Row]:
        """All rows by number; raises DatabaseError."""
        with database.explaining_errors(self.path, database.MEMPOOL):
            for sequence, checked, body in self._db.execute("SELECT sequence, checked, body FROM waiting"):
                yield Row(sequence, body, self._unpack(checked, body))

    def write(self, added: Iterable[tuple[int, Transfer]], removed: Iterable[int]) -> None:
        """Add transfers with verified signatures, and remove rows, in one commit; raises sqlite3.Error."""
        with database.transaction(self._db):
            self._db.executemany("DELETE FROM waiting WHERE sequence = ?", [(sequence,) for sequence in removed])
            self._db.executemany(
                "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?)",
                [(sequence, self._pack(transfer), transfer.wire) for sequence, transfer in added],
            )

    def probe(self) -> None:
        """See whether the disk accepts as much as some transfers; raises sqlite3.Error."""
        database.probe(self._db, _PAGES_OF_A_TURN)

    def is_log_long(self) -> bool:
        """Whether a checkpoint is due; then it is not due again until as much has been written."""
        if self._db.total_changes - self._emptied_at < _LOG_ROWS:
            return False
        self._emptied_at = self._db.total_changes
        return True

    def empty_log(self) -> None:
        """Run a checkpoint of the write-ahead log; for any thread, while others read and write."""
        # Must not create a new file if the database was moved away.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close the database, with a checkpoint."""
        self._db.close()

    def _pack(self, transfer: Transfer) -> bytes:
        t = transfer
        numbers = (t.amount, t.fee, t.nonce, t.timestamp)
        fields = _FIELDS.pack(t.txid, t.sender_key, t.sender, t.recipient, t.signature, *numbers)
        fields += (t.reference or "").encode("ascii")
        return self._digest(fields, t.wire) + fields

    def _unpack(self, checked: bytes, body: bytes) -> Transfer | None:
        fields = checked[_DIGEST:]
        if checked[:_DIGEST] != self._digest(fields, body):
            return None
        txid, key, sender, recipient, signature, amount, fee, nonce, timestamp = _FIELDS.unpack_from(fields)
        return Transfer(
            txid=txid,
            sender_key=key,
            sender=sender,
            recipient=recipient,
            amount=amount,
            fee=fee,
            nonce=nonce,
            timestamp=timestamp,
            reference=fields[_FIELDS.size :].decode("ascii") or None,
            signature=signature,
            wire=body,
        )

    def _digest(self, fields: bytes, body: bytes) -> bytes:
        """Detects rows that the disk has changed, or that are of another network."""
        return sha256(self._genesis + fields + body).digest()
