"""Looking into a database that no node uses: what is stored, row by row, to be compared with what should be.

The SQL here repeats what the node never asks: whether every row that should be there is, and no other.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import evolve

from svcd.chain.accounts import Account
from svcd.chain.errors import Corrupt
from svcd.chain.transaction import Transfer
from svcd.store.chain_store import ChainReader, StoredBlock
from svcd.store.database import CHAIN, DatabaseError, Kind, is_damage, migrations, telling_damage
from svcd.store.mark import OpenMark
from svcd.store.rows import POINT, stored_of
from svcd.store.undo import unpack

INDEXES = ("transaction_place", "address_place", "payment_place")


@contextmanager
def opened_for_inspection(path: Path, kind: Kind = CHAIN) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing of what was committed to the file at ``path``.

    Raises DatabaseError: there is no such file, it is damaged, or of another schema than this program's.
    """
    if not path.is_file():
        raise DatabaseError(f"there is no {path}; name the data directory of a node")
    # Not as read-only: what a killed node left in the write-ahead log has to be taken up.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with (
        # Who is here has the tool in hand.
        telling_damage(path, evolve(kind, tool="")),
        _log_taken_up(OpenMark(path)),
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db,
    ):
        db.execute("PRAGMA query_only = 1")
        (present,) = db.execute("PRAGMA user_version").fetchone()
        newest = migrations(kind)[-1].version
        if present != newest:
            program = "a newer program" if present > newest else "the node once, which brings it up to date"
            raise DatabaseError(f"{path} has the schema {present} and this program knows {newest}: start {program}")
        yield db


@contextmanager
def _log_taken_up(mark: OpenMark) -> Iterator[None]:
    """Take away a killed node's mark with its log, which the closing of the connection inside brings into the file.

    Where the log was missing before, the mark stays, and the node says what is lost.
    """
    cut_off = mark.path.exists() and mark.log.exists()
    try:
        yield
    finally:
        if cut_off and not mark.log.exists():
            mark.take_away()


@contextmanager
def unreadable_is_corrupt() -> Iterator[None]:
    """What SQLite cannot read inside is damage of one place only: raises Corrupt."""
    try:
        yield
    except sqlite3.Error as error:
        raise Corrupt(f"it cannot be read: {error}") from error


def integrity(connection: sqlite3.Connection) -> list[str]:
    """What SQLite finds wrong with the file itself; it reads all of it."""
    try:
        found = [str(text) for (text,) in connection.execute("PRAGMA integrity_check")]
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return [str(error)]  # Of some pages it does not even get so far as to say which.
    return [] if found == ["ok"] else found


class Inspector(ChainReader):
    """Questions about a chain at rest."""

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None] | None:
        """The accounts before a block by its undo record, or None if there is none; raises Corrupt."""
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        return None if row is None else unpack(row[0])

    def transaction_place(self, txid: bytes) -> tuple[int, int] | None:
        """Height and position at which the index has a transfer."""
        row = self._db.execute("SELECT height, position FROM transaction_place WHERE txid = ?", (txid,)).fetchone()
        return None if row is None else (row[0], row[1])

    def has_address_place(self, key: bytes, height: int, position: int) -> bool:
        """Whether the index has a transfer of an account."""
        query = "SELECT 1 FROM address_place WHERE key = ? AND height = ? AND position = ?"
        return self._db.execute(query, (key, height, position)).fetchone() is not None

    def has_payment_place(self, transfer: Transfer, height: int, position: int) -> bool:
        """Whether the index has a transfer under its reference."""
        row = self._db.execute(
            "SELECT 1 FROM payment_place WHERE reference = ? AND recipient = ? AND amount = ? AND height = ? "
            "AND position = ?",
            (transfer.reference, transfer.recipient, transfer.amount, height, position),
        ).fetchone()
        return row is not None

    def rows_of(self, table: str) -> int:
        """How many rows one of INDEXES, ``canonical`` or ``undo`` has."""
        (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def side_blocks(self) -> Iterator[StoredBlock]:
        """The stored blocks that are not canonical, parents first."""
        rows = self._db.execute(
            f"SELECT b.id, b.parent, b.header, {POINT} FROM block b "
            "WHERE NOT EXISTS (SELECT 1 FROM canonical c WHERE c.block = b.id) ORDER BY b.height, b.id"
        )
        return map(stored_of, rows)
