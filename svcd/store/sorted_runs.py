"""Sorted runs: log-structured merge trees in SQLite, for the accounts and for the index of transfers (docs/storage.md).

The keys of a block's rows are hashes, so in one large table they would lie on thousands of pages. Instead a commit adds
a run: its rows in the order of their keys, side by side. Runs of about the same size that follow each other are merged
into a new one, some rows with each commit. All of that is part of the transaction that changes the chain, so a kill, a
backup and a reader's snapshot see nothing between two commits.

A run spans the heights of its blocks, or the numbers of its commits, and no two runs share one, except that a run has
what those span that are being merged into it. A merge moves rows in the order of their keys. So of the rows with one
key those in the target come before those in its sources, and runs in the order OLDEST_FIRST give them as they were
added.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from attrs import frozen

from svcd.store import database
from svcd.store.database import DatabaseConnection

OLDEST_FIRST: Final = "r.first, r.number DESC"
"""The order of the runs r of a tree, which is that of their tables."""
NEWEST_FIRST: Final = "r.first DESC, r.number"
_LIVE: Final = "p.place BETWEEN r.first << 16 AND (r.last << 16) + 65535"
"""Whether a row p of a dated tree is of the heights of its run r: all others are deleted."""
_STEP: Final = 2_048
"""Rows that one statement moves, in two or three milliseconds."""
_PER_ADDED_BYTE: Final = 5
"""Bytes that are merged for each one that is added to the trees."""
_ONE_MORE_UNDER_WAY: Final = 1 << 33
"""With so many bytes in merges under way, one more is merged for each that is added.

The larger the trees, the more often a row is moved. If less is merged than becomes due, more is under way, until as
much is merged. So trees of any size have few runs.
"""
_LEAST: Final = 1 << 17
"""Bytes that are merged with any addition, in some 10 ms.

Rows of small blocks are moved more often, of one transfer 270 times: their runs count as the same size up to some
blocks' rows. This is why it is added to what is merged, but not in full blocks.
"""

_Row = Sequence[object]


@frozen(kw_only=True)
class Tree:
    """The kind of a tree: the tables ``<name>_run`` and ``<name>_entry``."""

    name: str
    key: tuple[str, ...]
    """The columns by which the rows of a run are sorted, and in which no two rows of it are alike."""
    values: tuple[str, ...] = ()
    """The other columns; NULL in the first of them stands for a row that does not exist any more."""
    is_dated: bool = False
    """Whether the last column of the key is a place, so that the heights of a run tell which of its rows are deleted.

    In other trees the row of the newest run counts, and merges keep it only.
    """
    fan_in: int
    """So many runs of about the same size are merged: with more, less is written, and more runs are read."""
    small: int
    """Runs with fewer rows, as those of full blocks, count as the same size."""
    row_bytes: int
    """Bytes that moving a row into a run writes, with its share of what a page leaves free."""

    @property
    def runs(self) -> str:
        """The table of the runs."""
        return f"{self.name}_run"

    @property
    def table(self) -> str:
        """The table of the rows."""
        return f"{self.name}_entry"

    @property
    def source(self) -> str:
        """The rows p of the runs r, from the first of these on; a query goes on with the condition on p."""
        return f"{self.runs} r CROSS JOIN {self.table} p ON p.run = r.number"


class SortedRuns:
    """One tree. What changes it is for the inside of a transaction."""

    def __init__(self, connection: DatabaseConnection, tree: Tree) -> None:
        self._db = connection
        self.tree = tree
        self._columns = ", ".join((*tree.key, *tree.values))
        self._keys = ", ".join(tree.key)
        self._marks = ", ".join("?" * len(tree.key))

    def count_rows(self) -> int:
        """The number of rows that are not deleted, of a dated tree; reads them all."""
        return int(self._one(f"SELECT count(*) FROM {self.tree.source} AND {_LIVE}"))

    def count_strays(self) -> int:
        """The number of rows that belong to no run, which damage may leave; reads them all."""
        table, runs = self.tree.table, self.tree.runs
        return int(self._one(f"SELECT count(*) FROM {table} WHERE run NOT IN (SELECT number FROM {runs})"))

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._db.execute(sql, values).fetchall()[0][0]

    def add(self, rows: Sequence[_Row], height: int | None = None) -> int:
        """Add a run of sorted rows above all others, and begin a merge if one is due; gives about the bytes written.

        ``height`` is that of the rows' block in a dated tree.
        """
        if not rows:
            return 0
        runs = self.tree.runs
        if height is None:
            height = self._one(f"SELECT ifnull(max(last), 0) + 1 FROM {runs}")
        number = self._begin(height, height, len(rows))
        database.insert(self._db, self.tree.table, [(number, *row) for row in rows])
        self._choose()
        return len(rows) * self.tree.row_bytes

    def _begin(self, first: int, last: int, rows: int) -> int:
        runs = self.tree.runs
        number: int = self._one(f"SELECT ifnull(max(number), 0) + 1 FROM {runs}")
        self._db.execute(f"INSERT INTO {runs} VALUES (?, ?, ?, ?, NULL)", (first, number, last, rows))
        return number

    def _choose(self) -> None:
        """Begin a merge if one is due: of the newest runs that are not in one."""
        runs = self._db.execute(
            f"SELECT number, rows, first, last, target FROM {self.tree.runs} WHERE first <= last "
            "ORDER BY first DESC, number"
        ).fetchall()
        targets = {target for *_, target in runs}
        # Never one above which a merge is under way: what the new run spans must have no other.
        free = list(takewhile(lambda run: run[4] is None and run[0] not in targets, runs))
        has_oldest = not self.tree.is_dated and len(free) == len(runs)
        count = mergeable([run[1] for run in free], self.tree, has_oldest=has_oldest)
        if count:
            target = self._begin(free[count - 1][2], free[0][3], 0)
            sources = [(target, run[0]) for run in free[:count]]
            self._db.executemany(f"UPDATE {self.tree.runs} SET target = ? WHERE number = ?", sources)

    def merges(self) -> list[tuple[int, int]]:
        """Of each merge under way the bytes of its sources, and the number of its target."""
        return self._db.execute(
            f"SELECT sum(rows) * {self.tree.row_bytes}, target FROM {self.tree.runs} "
            "WHERE target NOT NULL GROUP BY target"
        ).fetchall()

    def go_on(self, target: int, about: int) -> int:
        """Move about so many bytes into the run ``target``; gives how many, at least 1."""
        tree = self.tree
        sources = [run for (run,) in self._db.execute(f"SELECT number FROM {tree.runs} WHERE target = ?", (target,))]
        up_to, values = self._first_rows(sources, min(about // tree.row_bytes, _STEP) // len(sources))
        if tree.is_dated:
            kept = f"AND {_LIVE}"
        else:
            kept = f"GROUP BY {self._keys} HAVING max(r.first) NOT NULL"
            if target == self._one(f"SELECT number FROM {tree.runs} ORDER BY first, number DESC LIMIT 1"):
                # Below it no run has an account that must be hidden.
                kept += f" AND {tree.values[0]} NOT NULL"
        # OR ROLLBACK as in database.insert.
        self._db.execute(
            f"INSERT OR ROLLBACK INTO {tree.table} SELECT {target}, {self._columns} FROM {tree.source} "
            f"AND r.number IN ({_listed(sources)}) AND {up_to} {kept} ORDER BY {self._keys}",
            values,
        )
        moved = self._db.changes()
        self._db.execute(f"UPDATE {tree.runs} SET rows = rows + ? WHERE number = ?", (moved, target))
        return max(self._delete(sources, up_to, values) * tree.row_bytes, 1)

    def _first_rows(self, sources: Sequence[int], each: int) -> tuple[str, Sequence[Any]]:
        """The condition, and its values, that of ``sources`` the next rows fulfil: about ``each`` of every one."""
        later = f"SELECT {self._keys} FROM {self.tree.table} WHERE run = ? ORDER BY {self._keys} LIMIT 1 OFFSET ?"
        bounds = [bound for run in sources for bound in self._db.execute(later, (run, max(each, 1))).fetchall()]
        return (f"({self._keys}) < ({self._marks})", min(bounds)) if bounds else ("true", ())

    def _delete(self, sources: Sequence[int], up_to: str, values: Sequence[Any]) -> int:
        """Delete these rows of ``sources``, and the runs if none are left; gives how many."""
        self._db.execute(f"DELETE FROM {self.tree.table} WHERE run IN ({_listed(sources)}) AND {up_to}", values)
        deleted = self._db.changes()
        if not values:
            self._db.execute(f"DELETE FROM {self.tree.runs} WHERE number IN ({_listed(sources)})")
        return deleted

    def forget(self, *, below: int = 0, above: int | None = None) -> None:
        """Delete the rows of all other heights of a dated tree; takes the same time however many they are."""
        runs = self.tree.runs
        self._db.execute(f"UPDATE {runs} SET first = ?1 WHERE first < ?1", (below,))
        if above is not None:
            self._db.execute(f"UPDATE {runs} SET last = ?1 WHERE last > ?1", (above,))

    def sweep(self, at_most: int) -> int:
        """Remove about so many deleted rows of runs that have no others; gives how many, 0 if none are left."""
        runs, removed = self.tree.runs, 0
        # A merge of such runs only would move nothing.
        self._db.execute(f"UPDATE {runs} SET target = NULL WHERE first > last AND target NOT NULL")
        for (number,) in self._db.execute(f"SELECT number FROM {runs} WHERE first > last").fetchall():
            is_left = True
            while is_left and removed < at_most:
                up_to, values = self._first_rows([number], min(at_most - removed, _STEP))
                removed += max(self._delete([number], up_to, values), 1)
                is_left = bool(values)
        return removed


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def mergeable(sizes: Sequence[int], tree: Tree, *, has_oldest: bool = False) -> int:
    """How many of the newest runs are to be merged into one; 0 unless ``fan_in`` of them have about the same size.

    ``sizes`` are the rows of the runs, the newest first. Runs with fewer than ``small`` count as the same size, and so
    do those between two powers of ``fan_in`` times as many. Runs that are newer than these and smaller go along.

    With ``has_oldest`` the last of them is the oldest run of all, whose rows the newer ones may replace: all are merged
    when the newer ones have as many rows. Until then those wait that have a good part of its rows.
    """
    if has_oldest and len(sizes) > 1:
        *newer, oldest = sizes
        if sum(newer) >= max(oldest, 2 * tree.small):
            return len(sizes)
        sizes = list(takewhile(lambda rows: rows < max(oldest // tree.fan_in, tree.small), sizes))
    least, size = 0, tree.small
    while True:
        count = next((at for at, rows in enumerate(sizes) if rows >= size), len(sizes))
        if sum(rows >= least for rows in sizes[:count]) >= tree.fan_in:
            return count
        if count == len(sizes):
            return 0
        least, size = size, size * tree.fan_in


def merge_some(trees: Sequence[SortedRuns], added: int) -> None:
    """Go on with the merges under way in the trees of a database, after so many bytes have been added to them.

    They share one budget in proportion to that, so a full block writes about as much whichever of them have runs to
    merge. The smallest merges are finished first, since they leave as many runs fewer as large ones.
    """
    under_way = [tree.merges() for tree in trees]
    per_byte = _PER_ADDED_BYTE + sum(size for merges in under_way for size, _ in merges) / _ONE_MORE_UNDER_WAY
    left = round(max(per_byte * added, _LEAST + (per_byte - 1) * added))
    while left > 0 and any(under_way):
        (_, target), at = min((min(merges), at) for at, merges in enumerate(under_way) if merges)
        left -= trees[at].go_on(target, left)
        under_way[at] = trees[at].merges()
