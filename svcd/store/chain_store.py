"""The SQL statements of the chain, behind methods named by intention (docs/operations.md "Storage")."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from svcd.chain.accounts import Account
from svcd.chain.block import Block, Header, parse_header
from svcd.chain.commitment import Row
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.store import database
from svcd.store.payment_reader import PaymentReader
from svcd.store.rows import POINT, Place, StoredBlock, place_of, point_of, stored_of
from svcd.store.undo import pack, unpack

__all__ = ["ChainReader", "ChainWriter", "Place", "StoredBlock"]

_STORED: Final = f"SELECT b.id, b.parent, b.header, {POINT}"
_CANONICAL: Final = (
    f"SELECT (SELECT max(height) FROM canonical), b.id, b.parent, b.header, {POINT} "
    "FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
)
_PAGES_OF_A_BLOCK: Final = 64
_TRANSACTION: Final = (
    f"SELECT (SELECT max(height) FROM canonical), t.position, x.body, {POINT} FROM transaction_place t "
    "JOIN canonical c ON c.height = t.height JOIN block b ON b.id = c.block "
    "JOIN block_transaction x ON x.block = b.id AND x.position = t.position WHERE t.txid = ?"
)
_ACCOUNTS_AT_ONCE: Final = 256
_ACCOUNT: Final = "SELECT balance, nonce, held FROM account WHERE key = ?"


class ChainReader(PaymentReader):
    """Questions about the committed chain; each answer is one statement, so it is consistent in itself."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Questions asked inside see one and the same commit."""
        return database.snapshot(self._db)

    def tip(self) -> ChainPoint | None:
        """The chain variables after the newest canonical block, or None in an empty database."""
        row = self._db.execute(
            f"SELECT {POINT} FROM canonical c JOIN block b ON b.id = c.block ORDER BY c.height DESC LIMIT 1"
        ).fetchone()
        return None if row is None else point_of(row)

    def point(self, block_hash: bytes) -> ChainPoint | None:
        """The chain variables after any stored block, canonical or not."""
        row = self._db.execute(f"SELECT {POINT} FROM block b WHERE b.hash = ?", (block_hash,)).fetchone()
        return None if row is None else point_of(row)

    def stored(self, block_hash: bytes) -> StoredBlock | None:
        """Any stored block, canonical or not."""
        row = self._db.execute(f"{_STORED} FROM block b WHERE b.hash = ?", (block_hash,)).fetchone()
        return None if row is None else stored_of(row)

    def canonical(self, height: int) -> StoredBlock | None:
        """The canonical block at ``height``."""
        found = self.canonical_and_height(height)
        return None if found is None else found[0]

    def canonical_and_height(self, height: int) -> tuple[StoredBlock, int] | None:
        """The same, and the height of the tip in the same commit."""
        row = self._db.execute(_CANONICAL, (height,)).fetchone()
        return None if row is None else (stored_of(row[1:]), row[0])

    def headers(self, first: int, *, limit: int) -> list[bytes]:
        """The canonical JSON of the headers of canonical blocks from height ``first`` on."""
        rows = self._db.execute(
            "SELECT b.header FROM canonical c JOIN block b ON b.id = c.block WHERE c.height >= ? "
            "ORDER BY c.height LIMIT ?",
            (first, limit),
        )
        return [header for (header,) in rows]

    def last_common(self, hashes: Iterable[bytes]) -> int:
        """The height of the first of ``hashes`` that is a canonical block; 0, the genesis, if none is."""
        for block_hash in hashes:
            row = self._db.execute(
                "SELECT c.height FROM block b JOIN canonical c ON c.height = b.height AND c.block = b.id "
                "WHERE b.hash = ?",
                (block_hash,),
            ).fetchone()
            if row is not None:
                return int(row[0])
        return 0

    def is_canonical(self, block: StoredBlock) -> bool:
        """Whether ``block`` is part of the canonical chain."""
        row = self._db.execute(
            "SELECT 1 FROM canonical WHERE height = ? AND block = ?", (block.point.height, block.id)
        ).fetchone()
        return row is not None

    def bodies(self, block: StoredBlock) -> list[bytes]:
        """The canonical JSON of a block's transfers, in order."""
        rows = self._db.execute("SELECT body FROM block_transaction WHERE block = ? ORDER BY position", (block.id,))
        return [body for (body,) in rows]

    def some_bodies(self, block: StoredBlock, *, first: int, limit: int) -> list[bytes]:
        """The canonical JSON of those from position ``first`` on."""
        rows = self._db.execute(
            "SELECT body FROM block_transaction WHERE block = ? AND position >= ? ORDER BY position LIMIT ?",
            (block.id, first, limit),
        )
        return [body for (body,) in rows]

    def account(self, key: bytes) -> Account | None:
        """One account after the tip."""
        row = self._db.execute(_ACCOUNT, (key,)).fetchone()
        return None if row is None else Account(*row)

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """Those accounts of ``keys`` that exist after the tip."""
        found = {}
        wanted = sorted(keys)
        for start in range(0, len(wanted), _ACCOUNTS_AT_ONCE):
            some = wanted[start : start + _ACCOUNTS_AT_ONCE]
            # Else what is found would keep a copy of each key.
            same = dict(zip(some, some, strict=True))
            # A few lengths only, so that SQLite knows the statements already.
            size = 1 << (len(some) - 1).bit_length()
            some += some[-1:] * (size - len(some))
            sql = f"SELECT key, balance, nonce, held FROM account WHERE key IN ({','.join('?' * size)})"
            for key, balance, nonce, held in self._db.execute(sql, some).fetchall():
                found[same[key]] = Account(balance, nonce, held)
        return found

    def account_rows(self, first: bytes, last: bytes) -> list[Row]:
        """The accounts with ``first`` ≤ key hash ≤ ``last``, ascending."""
        return self._db.execute(
            "SELECT key, balance, nonce, held FROM account WHERE key BETWEEN ? AND ? ORDER BY key", (first, last)
        ).fetchall()

    def every_account(self) -> Iterator[Row]:
        """All accounts, ascending by key hash."""
        return iter(self._db.execute("SELECT key, balance, nonce, held FROM account ORDER BY key"))

    def count_accounts(self) -> int:
        """How many accounts exist; a walk, for start-up and checks only."""
        (count,) = self._db.execute("SELECT count(*) FROM account").fetchone()
        return int(count)

    def transaction(self, txid: bytes) -> Place | None:
        """A canonical transfer by its id."""
        found = self.transaction_and_height(txid)
        return None if found is None else found[0]

    def transaction_and_height(self, txid: bytes) -> tuple[Place, int] | None:
        """The same, and the height of the tip in the same commit."""
        row = self._db.execute(_TRANSACTION, (txid,)).fetchone()
        return None if row is None else (place_of(row[1:]), row[0])

    def address_transactions(self, key: bytes, *, before: tuple[int, int], limit: int) -> list[Place]:
        """The newest canonical transfers from or to ``key`` that stand before (height, position), newest first."""
        rows = self._db.execute(
            f"SELECT a.position, x.body, {POINT} FROM address_place a JOIN canonical c ON c.height = a.height "
            "JOIN block b ON b.id = c.block JOIN block_transaction x ON x.block = b.id AND x.position = a.position "
            "WHERE a.key = ? AND (a.height, a.position) < (?, ?) ORDER BY a.height DESC, a.position DESC LIMIT ?",
            (key, *before, limit),
        )
        return [place_of(row) for row in rows]

    def returned(self) -> list[tuple[int, int, bytes]]:
        """Transfers of undone blocks that the mempool's file may lack yet, in the order in which they fell out.

        Row, number of arrival, canonical JSON. The number is 0, but for what waited before the mempool had a file of
        its own: that comes first.
        """
        rows = self._db.execute("SELECT rowid, sequence, body FROM pool ORDER BY sequence = 0, sequence, rowid")
        return rows.fetchall()

    def block_header(self, block: StoredBlock, params: NetworkParams) -> Header:
        """The parsed header of a stored block; raises Corrupt if it is not what was stored."""
        header = parse_header(json.loads(block.header), params)
        if header.hash != block.point.hash and block.point.height:
            raise Corrupt(f"the stored block at height {block.point.height} does not have its own hash")
        return header

    def block(self, stored: StoredBlock, params: NetworkParams) -> Block:
        """The parsed block; raises Corrupt if the stored header is damaged."""
        transfers = [parse_transfer(json.loads(body), params) for body in self.bodies(stored)]
        return Block(self.block_header(stored, params), tuple(transfers))


class ChainWriter(ChainReader):
    """Changes to the chain; only the writer thread calls them, inside :meth:`commit`."""

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None]:
        """The accounts that a canonical block touched as they were before it, None where there was none."""
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        if row is None:
            raise Corrupt(f"the undo record of the canonical block at height {block.point.height} is missing")
        return unpack(row[0])

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def abandon(self) -> None:
        """Roll back a transaction that a failing disk has left open."""
        self._db.execute("ROLLBACK")

    def commit(self) -> AbstractContextManager[None]:
        """One database transaction: all inside is committed together or not at all."""
        return database.transaction(self._db)

    def probe(self) -> None:
        """See whether the disk takes as much as a small block; raises sqlite3.Error."""
        database.probe(self._db, _PAGES_OF_A_BLOCK)

    def attempt(self) -> AbstractContextManager[None]:
        """A part of a transaction that is undone on an exception while the rest stands."""
        return database.attempt(self._db)

    def add_block(self, block: Block, point: ChainPoint) -> StoredBlock:
        """Store a block that has passed every check but those of the state."""
        text = block.header.wire()
        parent = block.header.parent_hash
        work = point.work.to_bytes(32, "big")
        cursor = self._db.execute(
            "INSERT INTO block (hash, parent, height, slot, clock, work, issued, header) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (point.hash, parent, point.height, point.slot, point.clock, work, point.issued, text),
        )
        number = cursor.lastrowid or 0
        if block.transfers:
            self._db.executemany(
                "INSERT INTO block_transaction VALUES (?, ?, ?)",
                [(number, position, transfer.wire) for position, transfer in enumerate(block.transfers)],
            )
        return StoredBlock(number, parent, point, text)

    def delete_with_descendants(self, block: StoredBlock) -> list[bytes]:
        """Forget a block that is not canonical, and all that build on it; gives the hashes of these others."""
        gone: list[bytes] = []
        parents = [(block.id, block.point.hash)]
        while parents:
            number, block_hash = parents.pop()
            children = self._db.execute("SELECT id, hash FROM block WHERE parent = ?", (block_hash,)).fetchall()
            gone += [child_hash for _, child_hash in children]
            parents += children
            self._db.execute("DELETE FROM block_transaction WHERE block = ?", (number,))
            self._db.execute("DELETE FROM block WHERE id = ?", (number,))
        return gone

    def write_accounts(self, accounts: Mapping[bytes, Account | None]) -> None:
        """Set accounts; None removes one that a block had created."""
        self._db.executemany(
            "INSERT INTO account VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
            "balance = excluded.balance, nonce = excluded.nonce, held = excluded.held",
            [(key, a.balance, a.nonce, a.held_since) for key, a in accounts.items() if a is not None],
        )
        gone = [(key,) for key, account in accounts.items() if account is None]
        if gone:
            self._db.executemany("DELETE FROM account WHERE key = ?", gone)

    def extend(self, block: StoredBlock, transfers: Sequence[Transfer], undo: Mapping[bytes, Account | None]) -> None:
        """Make ``block`` the newest canonical one: its place, its undo record and the indexes over its transfers."""
        height = block.point.height
        self._db.execute("INSERT INTO canonical VALUES (?, ?)", (height, block.id))
        self._db.execute("INSERT INTO undo VALUES (?, ?)", (block.id, pack(undo)))
        if not transfers:
            return
        self._db.executemany(
            "INSERT INTO transaction_place VALUES (?, ?, ?)",
            [(transfer.txid, height, position) for position, transfer in enumerate(transfers)],
        )
        self._db.executemany("INSERT INTO address_place VALUES (?, ?, ?)", _address_places(transfers, height))
        self._db.executemany("INSERT INTO payment_place VALUES (?, ?, ?, ?, ?)", _payment_places(transfers, height))

    def retract(self, block: StoredBlock, transfers: Sequence[Transfer]) -> dict[bytes, Account | None]:
        """Take the newest canonical block out of the chain; gives the accounts as they were before it."""
        height, before = block.point.height, self.undo(block)
        self._db.execute("DELETE FROM canonical WHERE height = ?", (height,))
        self._db.execute("DELETE FROM undo WHERE block = ?", (block.id,))
        self._db.executemany("DELETE FROM transaction_place WHERE txid = ?", [(t.txid,) for t in transfers])
        self._db.executemany(
            "DELETE FROM address_place WHERE key = ? AND height = ? AND position = ?",
            _address_places(transfers, height),
        )
        self._db.executemany(
            "DELETE FROM payment_place WHERE reference = ? AND recipient = ? AND amount = ? AND height = ? "
            "AND position = ?",
            _payment_places(transfers, height),
        )
        return before

    def keep_returned(self, transfers: Sequence[tuple[int, Transfer]]) -> int:
        """Keep (number of arrival or 0, transfer) pairs until the mempool's file has them; gives the last row."""
        self._db.executemany(
            "INSERT OR REPLACE INTO pool VALUES (?, ?, ?)",
            [(transfer.txid, sequence, transfer.wire) for sequence, transfer in transfers],
        )
        (last,) = self._db.execute("SELECT ifnull(max(rowid), 0) FROM pool").fetchone()
        return int(last)

    def forget_returned(self, last: int) -> None:
        """The mempool's file has what was kept up to the row ``last``; a commit of its own."""
        with self.commit():
            self._db.execute("DELETE FROM pool WHERE rowid <= ?", (last,))


def _address_places(transfers: Sequence[Transfer], height: int) -> list[tuple[bytes, int, int]]:
    places = [(transfer.sender, height, position) for position, transfer in enumerate(transfers)]
    places += [
        (transfer.recipient, height, position)
        for position, transfer in enumerate(transfers)
        if transfer.recipient != transfer.sender
    ]
    return places


def _payment_places(transfers: Sequence[Transfer], height: int) -> list[tuple[str, bytes, int, int, int]]:
    return [
        (transfer.reference, transfer.recipient, transfer.amount, height, position)
        for position, transfer in enumerate(transfers)
        if transfer.reference is not None
    ]
