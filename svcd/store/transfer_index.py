"""The index of transfers by id, address and reference: where each one is on the canonical chain.

A log-structured merge tree of rows (docs/storage.md). The keys of a block's rows are hashes, so in one
large table they would lie on thousands of pages. Instead each block adds a run: its rows in order, side by side. Runs
of about the same size are merged, some rows with each block (svcd/store/merge_policy.py). All of that is part of the
block's transaction: a row is there in exactly those commits that have its block.

A run has the rows of consecutive blocks; while some are merged, they and the run that they become share these rows.
Rows whose heights are not of their run any more, after a reorganisation or the deletion of old blocks, count as
deleted, and go when their run is merged.

Keys are shortened to 64 bits, so other transfers may have the same: the reader of a row looks into the transfer.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final

from attrs import field, frozen

from svcd.chain.transaction import Transfer
from svcd.store import database
from svcd.store.merge_policy import MergeBudget, mergeable

_LEAST_SWEPT: Final = 256
"""Deleted rows that are removed with any block."""
_STEP: Final = 2_048
"""Rows that one statement moves, in two or three milliseconds."""


@frozen(kw_only=True)
class Index:
    """One of the indexes."""

    runs: str
    """The table of its runs."""
    table: str
    """The table of its rows."""
    keys: tuple[str, ...]
    """The columns in front of the place by which rows are found and sorted."""
    fan_in: int = field(eq=False)
    """So many adjacent runs of about the same size are merged: with more, less is written, and more runs are read."""
    small: int = field(eq=False)
    """Runs with fewer rows, as those of full blocks, count as the same size."""
    row_bytes: int = field(eq=False)
    """Bytes that moving a row into a run writes, with its share of what a page leaves free."""

    @property
    def columns(self) -> str:
        """All columns but that of the run."""
        return ", ".join((*self.keys, "place"))


TRANSACTIONS: Final = Index(
    runs="transaction_run", table="transaction_entry", keys=("txid",), fan_in=16, small=4_096, row_bytes=24
)
ADDRESSES: Final = Index(
    runs="address_run", table="address_entry", keys=("address",), fan_in=16, small=8_192, row_bytes=24
)
PAYMENTS: Final = Index(
    runs="payment_run",
    table="payment_entry",
    keys=("reference", "recipient", "amount"),
    fan_in=4,
    small=4_096,
    row_bytes=35,
)
"""Merged more often than the others, since a payment is looked up more often."""
INDEXES: Final = (TRANSACTIONS, ADDRESSES, PAYMENTS)

Rows = Mapping[Index, Sequence[tuple[int, ...]]]
"""Rows without their run."""

_Run = tuple[int, int, int, int]
"""The run that it is being merged into, or else its own number; its number, and its first and last height."""
LIVE: Final = "p.place BETWEEN r.first << 16 AND (r.last << 16) + 65535"
"""Whether a row p of a run r is not deleted."""


def by_txid(txid: bytes) -> int:
    """The key of a transfer's id in TRANSACTIONS."""
    return int.from_bytes(txid[:8], "big", signed=True)


def by_address(key: bytes) -> int:
    """The key of a key hash in ADDRESSES."""
    return int.from_bytes(key[:8], "big", signed=True)


def by_reference(reference: str) -> int:
    """The first key of a reference in PAYMENTS."""
    return int.from_bytes(sha256(reference.encode()).digest()[:8], "big", signed=True)


def by_recipient(key: bytes) -> int:
    """The second key of a recipient's key hash in PAYMENTS."""
    return int.from_bytes(key[:4], "big", signed=True)


def place_of(height: int, position: int) -> int:
    """A place as one number: the position in a block has 16 bits."""
    return (height << 16) + position


def rows_of(transfers: Sequence[Transfer], height: int, first: int = 0) -> Rows:
    """The rows of transfers of the block at ``height``, sorted; the first of them is at position ``first``."""
    placed = list(enumerate(transfers, place_of(height, first)))
    addresses = {(by_address(key), place) for place, t in placed for key in (t.sender, t.recipient)}
    return {
        TRANSACTIONS: sorted([(by_txid(transfer.txid), place) for place, transfer in placed]),
        ADDRESSES: sorted(addresses),
        PAYMENTS: sorted(
            [
                (by_reference(transfer.reference), by_recipient(transfer.recipient), transfer.amount, place)
                for place, transfer in placed
                if transfer.reference is not None
            ]
        ),
    }


class TransferIndex:
    """Looks up rows; all reads of one answer must be within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def scan(
        self, index: Index, condition: str, values: Sequence[int], *, order: str = "ASC"
    ) -> Iterator[tuple[int, ...]]:
        """The rows that fulfil ``condition``; if it leaves one key only, in the order of the chain.

        ``order`` is "ASC" or "DESC". Runs are read when they are needed.
        """
        # A run that is being merged and the run that it becomes part of have rows of the same heights.
        for _, runs in groupby(self._runs(index, order), key=itemgetter(0)):
            rows = [self._rows(index, condition, values, order, run) for run in runs]
            yield from merge(*rows, key=itemgetter(-1), reverse=order == "DESC")

    def scan_runs(
        self, index: Index, condition: str, values: Sequence[int], *, order: str = "ASC"
    ) -> list[Iterator[tuple[int, ...]]]:
        """The same for each run, in the order of the keys."""
        return [self._rows(index, condition, values, order, run) for run in self._runs(index, order)]

    def _runs(self, index: Index, order: str) -> list[_Run]:
        return self._db.execute(
            f"SELECT ifnull(target, number) AS merged, number, first, last FROM {index.runs} "
            f"ORDER BY (SELECT r.first FROM {index.runs} r WHERE r.number = merged) {order}, merged"
        ).fetchall()

    def _rows(
        self, index: Index, condition: str, values: Sequence[int], order: str, run: _Run
    ) -> Iterator[tuple[int, ...]]:
        _, number, first, last = run
        by = ", ".join(f"{column} {order}" for column in (*index.keys, "place"))
        return self._db.execute(
            f"SELECT {index.columns} FROM {index.table} WHERE run = ? AND place BETWEEN ? AND ? AND {condition} "
            f"ORDER BY {by}",
            (number, place_of(first, 0), place_of(last, 65_535), *values),
        )

    def has(self, index: Index, row: tuple[int, ...]) -> bool:
        """Whether a row is there."""
        is_row = " AND ".join(f"{column} = ?" for column in (*index.keys, "place"))
        return next(self.scan(index, is_row, row), None) is not None

    def count(self, index: Index) -> int:
        """How many rows there are; reads them all."""
        query = f"SELECT count(*) FROM {index.runs} r CROSS JOIN {index.table} p ON p.run = r.number WHERE {LIVE}"
        (count,) = self._db.execute(query).fetchone()
        return int(count)


class _IndexTree:
    """The tree of one index; changed inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, index: Index) -> None:
        self._db = connection
        self.index = index

    def add(self, first: int, last: int, rows: Sequence[tuple[int, ...]]) -> None:
        """Add a run above all others. Begins a merge if one is due."""
        number = self._new(first, last, len(rows))
        database.insert(self._db, self.index.table, [(number, *row) for row in rows])
        self._choose()

    def all_deleted(self) -> list[int]:
        """The runs that have deleted rows only, or none."""
        deleted = f"FROM {self.index.runs} WHERE first > last"
        self._db.execute(f"UPDATE {self.index.runs} SET target = NULL WHERE number IN (SELECT number {deleted})")
        return [number for (number,) in self._db.execute(f"SELECT number {deleted}")]

    def sweep(self, number: int, at_most: int) -> int:
        """Remove some rows of a run that has deleted ones only, or the run when it has none; gives how many rows."""
        removed = self._move([number], number, min(at_most, _STEP))
        if not removed:
            self._db.execute(f"DELETE FROM {self.index.runs} WHERE number = ?", (number,))
        return removed

    def merges(self) -> list[tuple[int, int]]:
        """The merges under way (:class:`svcd.store.merge_policy.Tree`)."""
        return self._db.execute(
            f"SELECT sum(rows) * {self.index.row_bytes}, target FROM {self.index.runs} "
            "WHERE target NOT NULL GROUP BY target"
        ).fetchall()

    def go_on(self, target: int, about: int) -> int:
        """Move about so many bytes into the run ``target``; gives how many, at least 1."""
        runs, size = self.index.runs, self.index.row_bytes
        sources = [run for (run,) in self._db.execute(f"SELECT number FROM {runs} WHERE target = ?", (target,))]
        moved = self._move(sources, target, min(about // size, _STEP))
        if not moved:
            self._db.execute(f"DELETE FROM {runs} WHERE target = ?", (target,))
        return max(moved * size, 1)

    def _new(self, first: int, last: int, count: int) -> int:
        insert = f"INSERT INTO {self.index.runs} (first, last, rows) VALUES (?, ?, ?)"
        return self._db.execute(insert, (first, last, count)).lastrowid or 0

    def _choose(self) -> None:
        """Begin a merge if one is due: of the newest runs, which are side by side."""
        index = self.index
        runs = self._db.execute(
            f"SELECT number, rows, first, last FROM {index.runs} r WHERE first <= last "
            f"AND target IS NULL AND NOT EXISTS (SELECT 1 FROM {index.runs} s WHERE s.target = r.number) "
            f"AND first > ifnull((SELECT max(last) FROM {index.runs} WHERE target NOT NULL), -1) ORDER BY first DESC"
        ).fetchall()
        group = runs[: mergeable([rows for _, rows, *_ in runs], index.small, index.fan_in)]
        if group:
            # Never an old run: its deleted rows would come back with a wider range of heights.
            target = self._new(group[-1][2], group[0][3], 0)
            targets = [(target, number) for number, *_ in group]
            self._db.executemany(f"UPDATE {index.runs} SET target = ? WHERE number = ?", targets)

    def _move(self, sources: Sequence[int], target: int, about: int) -> int:
        """Move about so many rows into a run, or delete them if it is their own; gives how many."""
        index, keys = self.index, self.index.columns
        each = max(about // len(sources), 1)
        later = f"SELECT {keys} FROM {index.table} WHERE run = ? ORDER BY {keys} LIMIT 1 OFFSET ?"
        bounds = [bound for run in sources for bound in self._db.execute(later, (run, each)).fetchall()]
        runs = ", ".join(map(str, sources))
        up_to, values = "", tuple[int, ...]()
        if bounds:
            values = min(bounds)
            up_to = f"AND ({keys}) <= ({', '.join('?' * len(values))})"
        moved = 0
        if target not in sources:
            moved = self._db.execute(
                # OR ROLLBACK as in database.insert.
                f"INSERT OR ROLLBACK INTO {index.table} SELECT {target}, {keys} "
                f"FROM {index.runs} r CROSS JOIN {index.table} p ON p.run = r.number "
                f"WHERE r.number IN ({runs}) AND {LIVE} {up_to} ORDER BY {keys}",
                values,
            ).rowcount
            self._db.execute(f"UPDATE {index.runs} SET rows = rows + ? WHERE number = ?", (moved, target))
        deleted = self._db.execute(f"DELETE FROM {index.table} WHERE run IN ({runs}) {up_to}", values).rowcount
        return max(moved, deleted)


class TransferIndexWriter(TransferIndex):
    """Changes the indexes, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, budget: MergeBudget) -> None:
        super().__init__(connection)
        self._trees = [_IndexTree(connection, index) for index in INDEXES]
        self._budget = budget
        budget.trees += self._trees

    def add(self, first: int, last: int, rows: Rows) -> None:
        """Add the sorted rows of blocks above all others, from height ``first`` to ``last``. Goes on with merges."""
        size = 0
        for tree in self._trees:
            if added := rows[tree.index]:
                tree.add(first, last, added)
                size += len(added) * tree.index.row_bytes
        self._budget.merge(size)
        self.sweep(_LEAST_SWEPT + sum(map(len, rows.values())))

    def forget_from(self, height: int) -> None:
        """Delete the rows of the blocks from ``height`` on; takes the same time however many they are."""
        for index in INDEXES:
            self._db.execute(f"UPDATE {index.runs} SET last = ?1 - 1 WHERE last >= ?1", (height,))

    def forget_below(self, height: int) -> None:
        """Delete the rows of the blocks below ``height``; takes the same time however many they are."""
        for index in INDEXES:
            self._db.execute(f"UPDATE {index.runs} SET first = ?1 WHERE first < ?1", (height,))

    def sweep(self, at_most: int) -> int:
        """Remove about so many deleted rows, of runs that have no others; gives how many, 0 if none are left."""
        removed = 0
        for tree in self._trees:
            for number in tree.all_deleted():
                while removed < at_most:
                    some = tree.sweep(number, at_most - removed)
                    removed += max(some, 1)
                    if not some:
                        break
        return removed
