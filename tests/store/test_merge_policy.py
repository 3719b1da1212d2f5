"""A commit merges in proportion to what it adds, whichever trees have runs to merge, and the runs stay few."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import pytest
from attrs import define, evolve, field

from svcd.chain.accounts import Account
from svcd.store import account_table, merge_policy, transfer_index
from svcd.store.account_table import AccountWriter
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer, transaction
from svcd.store.merge_policy import MergeBudget, mergeable
from svcd.store.transfer_index import INDEXES, TransferIndexWriter
from tests.chains import ChainBuilder
from tests.store.account_runs import small_runs
from tests.store.test_account_table import key
from tests.store.test_transfer_index import rows_at


@define(eq=False)
class Merge:
    """Some runs that become one."""

    runs: list[int]
    rows: int
    """Of all of them."""
    left: int
    """To be moved."""
    row_bytes: int


@define
class Sizes:
    """A tree that has the sizes of its runs only."""

    small: int
    fan_in: int
    row_bytes: int
    layers: list[Merge | int] = field(factory=list)
    """Runs and merges of adjacent ones, the newest first."""
    moved: int = 0

    def add(self, rows: int) -> int:
        self.layers.insert(0, rows)
        free = self.layers[: next((at for at, each in enumerate(self.layers) if isinstance(each, Merge)), None)]
        sizes = [each for each in free if isinstance(each, int)]
        if together := mergeable(sizes, self.small, self.fan_in):
            self.layers[:together] = [self.begin(sizes[:together])]
        return rows * self.row_bytes

    def begin(self, runs: list[int]) -> Merge:
        return Merge(runs, sum(runs), sum(runs), self.row_bytes)

    @property
    def under_way(self) -> list[Merge]:
        return [each for each in self.layers if isinstance(each, Merge)]

    @property
    def runs(self) -> int:
        return sum(len(each.runs) + 1 if isinstance(each, Merge) else 1 for each in self.layers)

    def merges(self) -> list[tuple[int, int]]:
        return [(each.rows * each.row_bytes, at) for at, each in enumerate(self.under_way)]

    def go_on(self, target: int, about: int) -> int:
        merge = self.under_way[target]
        some = min(max(about // merge.row_bytes, 1), merge.left)
        merge.left -= some
        self.moved += some * merge.row_bytes
        if not merge.left:
            self.finish(merge)
        return some * merge.row_bytes

    def finish(self, merge: Merge) -> None:
        self.layers[self.layers.index(merge)] = merge.rows


@define
class AccountSizes(Sizes):
    """Runs are merged into their oldest, and the large ones into a table."""

    accounts: int = 0
    to_table: list[Merge] = field(factory=list)

    def add(self, rows: int) -> int:
        # Every second one is new.
        self.accounts += rows // 2
        size = super().add(rows)
        large: list[int] = []
        for each in reversed(self.layers):
            if isinstance(each, Merge) or each * self.fan_in**2 < self.accounts:
                break
            large.append(each)
        if not self.to_table and sum(large) >= self.accounts:
            del self.layers[-len(large) :]
            self.to_table = [Merge(large, sum(large), sum(large), account_table.TABLE_ROW_BYTES)]
        return size

    def begin(self, runs: list[int]) -> Merge:
        return Merge(runs, sum(runs), sum(runs[:-1]), self.row_bytes)

    @property
    def under_way(self) -> list[Merge]:
        return [*self.to_table, *super().under_way]

    @property
    def runs(self) -> int:
        return super().runs + sum(len(each.runs) for each in self.to_table)

    def finish(self, merge: Merge) -> None:
        if merge in self.to_table:
            self.to_table = []
        else:
            super().finish(merge)


def test_runs_stay_few_and_commits_small_up_to_a_hundred_million_transfers() -> None:
    """In full blocks, with the real constants; each block has 2,000 transfers and changes 4,000 accounts."""
    trees = [Sizes(index.small, index.fan_in, index.row_bytes) for index in INDEXES]
    trees.append(AccountSizes(account_table._SMALL_RUN, account_table._FAN_IN, account_table.ROW_BYTES))
    budget, most_moved, most_runs = MergeBudget([*trees]), 0.0, [0] * 4
    for block in range(1, 50_001):
        added = sum(tree.add(rows) for tree, rows in zip(trees, (2_000, 4_000, 2_000, 4_000), strict=True))
        before = sum(tree.moved for tree in trees)
        budget.merge(added)
        most_moved = max(most_moved, (sum(tree.moved for tree in trees) - before) / added)
        most_runs = [max(most, tree.runs) for most, tree in zip(most_runs, trees, strict=True)]
        if block == 500:
            # A payment is looked up in all runs.
            assert most_runs[2] < 15
        elif block == 5_000:
            # With what a block of a megabyte writes besides: 6 MB.
            assert most_moved < 4.1
            assert max(most_runs) < 75
    assert most_moved < 5.5
    assert max(most_runs) < 80


@pytest.mark.parametrize("with_accounts", [False, True])
@pytest.mark.parametrize(
    ("per_block", "blocks"), [(1, 5_000), (20, 20_000), (100, 10_000), (300, 12_000), (700, 6_000)]
)
def test_runs_stay_few_in_blocks_that_are_not_full(per_block: int, blocks: int, with_accounts: bool) -> None:
    """Without accounts as on a chain that has so few that they have no runs."""
    trees = [Sizes(index.small, index.fan_in, index.row_bytes) for index in INDEXES]
    accounts = AccountSizes(account_table._SMALL_RUN, account_table._FAN_IN, account_table.ROW_BYTES)
    budget, most_runs = MergeBudget([*trees, *([accounts] if with_accounts else [])]), 0
    for _ in range(blocks):
        rows = (per_block, 2 * per_block, per_block)
        budget.merge(sum(tree.add(count) for tree, count in zip(trees, rows, strict=True)))
        if with_accounts:
            budget.merge(accounts.add(2 * per_block))
        most_runs = max(most_runs, accounts.runs, *(tree.runs for tree in trees))
    assert most_runs < 75


def test_blocks_and_accounts_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[MergeBudget]()
    monkeypatch.setattr(MergeBudget, "merge", lambda budget, added: used.append(budget))
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        store, chain = ChainWriter(connection), ChainBuilder()
        (block,) = chain.chain("genesis: a1").values()
        store.connect_block(store.add_block(block, chain.point_after(block)), block.transfers, undo={}, history=())
        store.write_accounts({key(number): Account(1) for number in range(5)}, count=1 << 20)
    first, second = used
    assert first is second
    assert len(first.trees) == len(INDEXES) + 1


class Smallest:
    """A tree with merges of some sizes, that notes how far each was moved."""

    def __init__(self, *sizes: int) -> None:
        self.left = list(sizes)

    def merges(self) -> list[tuple[int, int]]:
        return [(size, at) for at, size in enumerate(self.left) if size]

    def go_on(self, target: int, about: int) -> int:
        some = min(about, self.left[target], 10)
        self.left[target] -= some
        return some


def test_one_budget_goes_to_the_smallest_merges_of_all_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "_LEAST", 5)
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 3)
    first, second = Smallest(50, 200), Smallest(300, 60)
    budget = MergeBudget([first, second])
    budget.merge(0)
    assert (first.left, second.left) == ([45, 200], [300, 60])
    budget.merge(40)
    assert (first.left, second.left) == ([0, 185], [300, 0])
    budget.merge(100)
    assert (first.left, second.left) == ([0, 0], [185, 0])
    budget.merge(1000)
    assert (first.left, second.left) == ([0, 0], [0, 0])


def test_more_is_merged_the_more_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the trees are so large that each row is moved more often."""
    monkeypatch.setattr(merge_policy, "_LEAST", 0)
    tree = Smallest(5 * merge_policy._ONE_MORE_UNDER_WAY // 2)
    MergeBudget([tree]).merge(100)
    assert 5 * merge_policy._ONE_MORE_UNDER_WAY // 2 - tree.left[0] == 100 * merge_policy._PER_ADDED_BYTE + 250


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    small_runs(monkeypatch)
    small = [evolve(index, fan_in=3, small=13) for index in INDEXES]
    monkeypatch.setattr(transfer_index, "INDEXES", small)
    monkeypatch.setattr(transfer_index, "_STEP", 4)
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 5)
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        yield connection


def where(connection: sqlite3.Connection) -> dict[tuple[object, ...], int]:
    """The run of each row of the indexes."""
    return {
        (index.table, *row): run
        for index in INDEXES
        for run, *row in connection.execute(f"SELECT run, {index.columns} FROM {index.table}")  # noqa: S608
    }


def accounts_in_runs(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    return set(connection.execute("SELECT run, key FROM recent_account"))


@pytest.mark.parametrize("seed", range(2))
def test_a_commit_moves_what_the_shared_budget_allows(connection: sqlite3.Connection, seed: int) -> None:
    """Blocks are connected, undone and deleted at random."""
    random, times = Random(seed), count()
    budget = MergeBudget()
    entries, writer = TransferIndexWriter(connection, budget), AccountWriter(connection, budget)
    height, floor, most_moved, most_runs = 1, 0, 0, 0
    # Of each source a row more than asked for is moved in a step.
    over = 40 * account_table.ROW_BYTES
    for _ in range(300):
        transfers, changes = random.choice([0, 2, 9, 25]), random.choice([1, 4, 20])
        rows = rows_at(height, transfers, next(times))
        accounts = {key(random.randrange(300)): Account(height) for _ in range(changes)}
        before, in_runs = where(connection), accounts_in_runs(connection)
        with transaction(connection):
            entries.add(height, height, rows)
            writer.write(accounts, count=300)
        after, left = where(connection), accounts_in_runs(connection)
        moved = sum(24 for row, run in before.items() if row in after and after[row] != run)
        moved += sum(account_table.ROW_BYTES for row in in_runs - left)
        added = sum(len(rows[index]) * index.row_bytes for index in INDEXES) + len(accounts) * account_table.ROW_BYTES
        assert moved <= merge_policy._PER_ADDED_BYTE * added + 2 * merge_policy._LEAST + over
        most_moved = max(most_moved, moved)
        tables = ["account_run", *(index.runs for index in INDEXES)]
        runs = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608
        most_runs = max(most_runs, *runs)
        height += 1
        if random.random() < 0.05:
            height = max(height - random.randrange(20), floor, 1)
            entries.forget_from(height)
        elif random.random() < 0.05:
            floor = max(floor, height - 60)
            entries.forget_below(floor)
    assert most_moved > 2_000
    assert most_runs < 50
