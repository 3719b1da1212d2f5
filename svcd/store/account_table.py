"""The accounts on disk: one large table, and sorted runs of recent changes (docs/storage.md).

Keys are hashes, so the accounts of a full block lie on as many pages of a large table. A commit writes them as a run
instead: rows in the order of their keys, side by side. Some runs of about the same size are merged into the oldest of
them. When the large ones together have as many rows as there are accounts, they are merged into the table, of which
each page then takes many changes at once. Small runs are left out: they would not be merged until the end of that.

A merge moves rows in the order of their keys from newer runs into an older one, some with each commit and within it
(svcd/store/merge_policy.py). So an account is at any time what the newest run that has it says, or else the table; and
a kill, a backup and a reader's snapshot see nothing between two commits.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from itertools import takewhile
from typing import Final

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.commitment import Row
from svcd.store import database
from svcd.store.merge_policy import MergeBudget, mergeable

_NEWEST: Final = "recent_account a ON a.run = r.number AND a.key"
_ACCOUNT: Final = (
    "SELECT balance, nonce, held FROM ("
    f"SELECT balance, nonce, held FROM account_run r CROSS JOIN {_NEWEST} = ?1 ORDER BY r.number DESC LIMIT 1) "
    "UNION ALL SELECT balance, nonce, held FROM account WHERE key = ?1 LIMIT 1"
)
"""The first row is the newest one."""
_AT_ONCE: Final = 256
_RANGES: Final = "json_each(?3) range CROSS JOIN {table} a WHERE {run}a.key BETWEEN {first} AND {last}"
_BOUNDS: Final = {"first": "substr(?1, range.value, 20)", "last": "substr(?2, range.value, 20)"}
_IN_RANGES: Final = f"SELECT a.key, balance, nonce, held FROM {_RANGES.format(table='account', run='', **_BOUNDS)}"
"""For the first keys of all ranges, the last keys of all, and where in them each range begins. One statement takes a
quarter of the time of one for each range, and the interpreter is free for other threads meanwhile."""
_RECENT_IN_RANGES: Final = (
    "SELECT a.key, balance, nonce, held FROM account_run r CROSS JOIN "
    f"{_RANGES.format(table='recent_account', run='a.run = r.number AND ', **_BOUNDS)} ORDER BY r.number"
)
_SOURCES: Final = "run IN (SELECT number FROM account_run WHERE target = ?1)"
_SOME: Final = f"FROM recent_account WHERE {_SOURCES} AND key <= ?2"
_MERGED: Final = f"SELECT key, balance, nonce, held {_SOME} GROUP BY key HAVING max(run) ORDER BY key"
"""With a maximum SQLite takes the other columns from its row: the newest."""
_SMALL_TABLE: Final = 16_384
"""A table of so many accounts has 200 pages; a run would save less than it costs."""
_FAN_IN: Final = 5
"""So many runs of about the same size are merged."""
_SMALL_RUN: Final = 4_096
"""Runs with fewer rows count as the same size; a full block changes 4,000 accounts."""
ROW_BYTES: Final = 60
"""Bytes that moving a row into a run writes: 47 for the row, and the rows of that run are written again."""
TABLE_ROW_BYTES: Final = 80
"""Bytes that moving a row into the table writes, with the other accounts on its page and the page that it leaves."""
_STEP: Final = 1_024
"""Rows that one statement moves, in two or three milliseconds."""
_END: Final = b"\xff" * 21
"""Greater than every key."""
_NO_MORE: Final = (_END, None)
_TABLE: Final = 0
"""The target of a merge into the table."""


class AccountReader:
    """Reads the accounts after the tip; each method reads them from one commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def account(self, key: bytes) -> Account | None:
        """One account after the tip."""
        row = self._db.execute(_ACCOUNT, (key,)).fetchone()
        return None if row is None or row[0] is None else Account(*row)

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """Those accounts of ``keys`` that exist after the tip; more than 256 within a transaction only."""
        found: dict[bytes, Account] = {}
        wanted = sorted(keys)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            # Otherwise the result would have a copy of each key.
            same = dict(zip(some, some, strict=True))
            # A power of two, so that SQLite has few statements to prepare and cache.
            size = 1 << (len(some) - 1).bit_length()
            some += some[-1:] * (size - len(some))
            keys_in = f"IN ({','.join('?' * size)})"
            sql = (
                f"SELECT -1, key, balance, nonce, held FROM account WHERE key {keys_in} UNION ALL "
                f"SELECT r.number, a.key, balance, nonce, held FROM account_run r CROSS JOIN {_NEWEST} {keys_in} "
                "ORDER BY 1"
            )
            for _, key, balance, nonce, held in self._db.execute(sql, some + some).fetchall():
                if balance is None:
                    found.pop(same[key], None)
                else:
                    found[same[key]] = Account(balance, nonce, held)
        return found

    def account_rows(self, ranges: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        """The accounts with first ≤ key hash ≤ last of any of ``ranges``, which do not overlap.

        Two statements: while others write, within a transaction only.
        """
        firsts, lasts = (b"".join(bounds) for bounds in zip(*ranges, strict=True))
        bounds = firsts, lasts, str(list(range(1, len(firsts), 20)))
        rows = self._db.execute(_IN_RANGES, bounds).fetchall()
        recent = self._db.execute(_RECENT_IN_RANGES, bounds).fetchall()
        if not recent:
            return rows
        newest = {row[0]: row for row in (*rows, *recent)}
        return [row for row in newest.values() if row[1] is not None]

    def every_account(self) -> Iterator[Row]:
        """All accounts, ascending by key hash; while others write, within a transaction only."""
        changes = self._newest_changes()
        changed, now = next(changes, _NO_MORE)
        for row in self._db.execute("SELECT key, balance, nonce, held FROM account ORDER BY key"):
            key = row[0]
            while changed < key:
                if now is not None:
                    yield now
                changed, now = next(changes, _NO_MORE)
            if changed != key:
                yield row
        while changed != _END:
            if now is not None:
                yield now
            changed, now = next(changes, _NO_MORE)

    def _newest_changes(self) -> Iterator[tuple[bytes, Row | None]]:
        """Each key in the runs, ascending, and its account as the newest of them has it; None if it does not exist."""
        runs = [
            self._db.execute(
                "SELECT key, -run, balance, nonce, held FROM recent_account WHERE run = ? ORDER BY key", run
            )
            for run in self._db.execute("SELECT number FROM account_run").fetchall()
        ]
        last = b""
        for key, _, balance, nonce, held in merge(*runs):
            if key != last:
                last = key
                yield key, None if balance is None else (key, balance, nonce, held)

    def count_accounts(self) -> int:
        """The number of accounts; reads all of them, for the start and for checks only."""
        (count,) = self._db.execute("SELECT count(*) FROM account").fetchone()
        (more,) = self._db.execute(
            "SELECT ifnull(sum((balance IS NOT NULL) - EXISTS (SELECT 1 FROM account b WHERE b.key = a.key)), 0) "
            "FROM recent_account a WHERE NOT EXISTS ("
            "SELECT 1 FROM account_run r CROSS JOIN recent_account n ON n.run = r.number AND n.key = a.key "
            "WHERE r.number > a.run)"
        ).fetchone()
        return int(count + more)


@frozen
class _Run:
    number: int
    """The greater, the newer."""
    rows: int
    """At most so many."""
    target: int | None
    """The number of the older run into which it is being merged, or _TABLE."""


class AccountWriter:
    """Changes the accounts, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, budget: MergeBudget) -> None:
        self._db = connection
        self._budget = budget
        budget.trees.append(self)

    def write(self, accounts: Mapping[bytes, Account | None], *, count: int) -> None:
        """Set accounts, None for one that does not exist; ``count`` exist then. Goes on with merges."""
        runs = self._runs()
        if not runs and max(len(accounts), _SMALL_TABLE) >= count:
            self._write_to_table(accounts)
            return
        number = runs[-1].number + 1 if runs else 1
        rows = [
            (number, key, None, 0, None) if a is None else (number, key, a.balance, a.nonce, a.held_since)
            # In the order of their keys, as below: so each page is looked up and changed once.
            for key, a in sorted(accounts.items())
        ]
        # Before the run is added, which takes the pages that merges free: the commit would write these pages anyway.
        self._budget.merge(len(rows) * ROW_BYTES)
        database.insert(self._db, "recent_account", rows)
        self._db.execute("INSERT INTO account_run (number, rows) VALUES (?, ?)", (number, len(rows)))
        self._choose(self._runs(), count)

    def _write_to_table(self, accounts: Mapping[bytes, Account | None]) -> None:
        rows = [(key, a.balance, a.nonce, a.held_since) for key, a in sorted(accounts.items()) if a is not None]
        database.insert(self._db, "account", rows, replace=True)
        gone = [(key,) for key, account in accounts.items() if account is None]
        if gone:
            self._db.executemany("DELETE FROM account WHERE key = ?", gone)

    def _runs(self) -> list[_Run]:
        """The oldest first."""
        rows = self._db.execute("SELECT number, rows, target FROM account_run ORDER BY number")
        return [_Run(*row) for row in rows]

    def _choose(self, runs: Sequence[_Run], count: int) -> None:
        """Begin a merge if one is due: of the oldest runs into the table, or of the newest."""
        targets = {run.target for run in runs}

        def is_free(run: _Run) -> bool:
            return run.target is None and run.number not in targets

        large = list(takewhile(lambda run: is_free(run) and run.rows * _FAN_IN**2 >= count, runs))
        if large and _TABLE not in targets and max(sum(run.rows for run in large), _SMALL_TABLE) >= count:
            self._db.execute("UPDATE account_run SET target = ? WHERE number <= ?", (_TABLE, large[-1].number))
            return
        free = list(takewhile(is_free, reversed(runs)))
        if same_size := mergeable([run.rows for run in free], _SMALL_RUN, _FAN_IN):
            *newer, oldest = [run.number for run in free[:same_size]]
            self._db.executemany("UPDATE account_run SET target = ? WHERE number = ?", [(oldest, run) for run in newer])

    def merges(self) -> list[tuple[int, int]]:
        """The merges under way (:class:`svcd.store.merge_policy.Tree`)."""
        return self._db.execute(
            f"SELECT sum(rows) * iif(target = {_TABLE}, {TABLE_ROW_BYTES}, {ROW_BYTES}), target "
            "FROM account_run WHERE target NOT NULL GROUP BY target"
        ).fetchall()

    def go_on(self, target: int, about: int) -> int:
        """Move about so many bytes into a run, or into the table; gives how many, at least 1."""
        size = TABLE_ROW_BYTES if target == _TABLE else ROW_BYTES
        return max(self._move(target, min(about // size, _STEP)) * size, 1)

    def _move(self, target: int, about: int) -> int:
        """Move about so many rows; gives how many."""
        sources = self._db.execute("SELECT number FROM account_run WHERE target = ?", (target,)).fetchall()
        each = max(about // len(sources), 1)
        bounds = [
            self._db.execute("SELECT key FROM recent_account WHERE run = ? ORDER BY key LIMIT 1 OFFSET ?", (*run, each))
            for run in sources
        ]
        found = [row[0] for bound in bounds for row in bound]
        last = min(found, default=_END)
        if target == _TABLE:
            self._change_table(last)
        else:
            # Not REPLACE, which would write each page that it changes to a temporary file first (database.insert).
            self._db.execute(
                f"DELETE FROM recent_account WHERE run = ?1 AND key IN (SELECT key {_SOME})", (target, last)
            )
            self._db.execute(
                f"INSERT OR ROLLBACK INTO recent_account SELECT ?1, key, balance, nonce, held FROM ({_MERGED})",
                (target, last),
            )
        moved = self._db.execute(f"DELETE {_SOME}", (target, last)).rowcount
        if target != _TABLE:
            self._db.execute("UPDATE account_run SET rows = rows + ? WHERE number = ?", (moved, target))
        if not found:
            self._db.execute("DELETE FROM account_run WHERE target = ?", (target,))
        return moved

    def _change_table(self, last: bytes) -> None:
        """Change the table as the newest rows up to the key ``last`` say."""
        newest = self._db.execute(_MERGED, (_TABLE, last)).fetchall()
        # One row in a statement: of more, SQLite would write the pages to a temporary file first.
        self._db.executemany("REPLACE INTO account VALUES (?, ?, ?, ?)", [row for row in newest if row[1] is not None])
        gone = [(key,) for key, balance, *_ in newest if balance is None]
        if gone:
            self._db.executemany("DELETE FROM account WHERE key = ?", gone)
