"""The accounts on disk, as sorted runs of their changes (docs/storage.md): the newest run that has one counts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from svcd.chain.accounts import Account
from svcd.chain.state_tree import Row
from svcd.store.database import DatabaseConnection
from svcd.store.sorted_runs import NEWEST_FIRST, OLDEST_FIRST, SortedRuns, Tree

ACCOUNTS: Final = Tree(
    name="account", key=("key",), values=("balance", "nonce", "held"), fan_in=6, small=4_096, row_bytes=50
)
_COLUMNS: Final = "p.key, balance, nonce, held"
_ACCOUNT: Final = f"SELECT balance, nonce, held FROM {ACCOUNTS.source} AND p.key = ? ORDER BY {NEWEST_FIRST} LIMIT 1"
_IN_RANGES: Final = (
    f"SELECT {_COLUMNS} FROM {ACCOUNTS.runs} r CROSS JOIN json_each(?3) range CROSS JOIN {ACCOUNTS.table} p "
    "ON p.run = r.number AND p.key BETWEEN substr(?1, range.value, 20) AND substr(?2, range.value, 20) "
    f"ORDER BY {OLDEST_FIRST}"
)
"""For the first keys of all ranges, the last keys of all, and where in them each range begins. One statement takes a
quarter of the time of one for each range, and the interpreter is free for other threads meanwhile."""
_BETWEEN: Final = (
    f"SELECT {_COLUMNS} FROM {ACCOUNTS.source} AND p.key > ?1 AND p.key <= ?2 "
    "GROUP BY p.key HAVING max(r.first) NOT NULL AND balance NOT NULL"
)
"""With a maximum SQLite takes the other columns from its row: the newest."""
_LATER: Final = f"SELECT key FROM {ACCOUNTS.table} WHERE run = ? AND key > ? ORDER BY key LIMIT 1 OFFSET ?"
_AT_ONCE: Final = 256
_STEP: Final = 4_096
"""Accounts of one run that are read at once."""
_END: Final = b"\xff" * 21
"""Greater than every key."""


class AccountReader:
    """Reads the accounts after the tip; each method reads them from one commit."""

    def __init__(self, connection: DatabaseConnection) -> None:
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
            sql = (
                f"SELECT {_COLUMNS} FROM {ACCOUNTS.source} AND p.key IN ({','.join('?' * size)}) "
                f"ORDER BY {OLDEST_FIRST}"
            )
            for key, balance, nonce, held in self._db.execute(sql, some).fetchall():
                if balance is None:
                    found.pop(same[key], None)
                else:
                    found[same[key]] = Account(balance, nonce, held)
        return found

    def account_rows(self, ranges: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        """The accounts with first ≤ key hash ≤ last of any of ``ranges``, which do not overlap."""
        firsts, lasts = (b"".join(bounds) for bounds in zip(*ranges, strict=True))
        rows = self._db.execute(_IN_RANGES, (firsts, lasts, str(list(range(1, len(firsts), 20))))).fetchall()
        newest = {row[0]: row for row in rows}
        return [row for row in newest.values() if row[1] is not None]

    def every_account(self) -> Iterator[Row]:
        """All accounts, ascending by key hash; while others write, within a transaction only."""
        for bounds in self._steps():
            yield from self._db.execute(_BETWEEN, bounds).fetchall()

    def count_accounts(self) -> int:
        """The number of accounts; reads all of them, for the start and for checks only."""
        count = f"SELECT count(*) FROM ({_BETWEEN})"
        return sum(int(self._db.execute(count, bounds).fetchall()[0][0]) for bounds in self._steps())

    def _steps(self) -> Iterator[tuple[bytes, bytes]]:
        """Bounds of keys, ascending, the first of each excluded: between them are some thousand rows."""
        runs = [number for (number,) in self._db.execute(f"SELECT number FROM {ACCOUNTS.runs}")]
        after = b""
        while after != _END:
            later = [row[0] for run in runs for row in self._db.execute(_LATER, (run, after, _STEP)).fetchall()]
            up_to = min(later, default=_END)
            yield after, up_to
            after = up_to


def write_accounts(runs: SortedRuns, accounts: Mapping[bytes, Account | None]) -> int:
    """Set accounts, None for one that does not exist; gives about the bytes written."""
    rows = [
        (key, None, 0, None) if a is None else (key, a.balance, a.nonce, a.held_since)
        for key, a in sorted(accounts.items())
    ]
    return runs.add(rows)
