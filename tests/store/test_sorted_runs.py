"""The accounts are a mapping, and the index is a sorted list, whatever was written, undone, deleted and merged."""

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.store import account_runs, sorted_runs
from svcd.store.account_runs import ACCOUNTS, AccountReader, write_accounts
from svcd.store.chain_store import ChainWriter
from svcd.store.database import DatabaseConnection, attempt, open_reader, open_writer, transaction
from svcd.store.sorted_runs import NEWEST_FIRST, OLDEST_FIRST, SortedRuns, Tree, merge_some, mergeable
from svcd.store.transfer_index import TRANSFERS, place_of
from tests.chains import ChainBuilder
from tests.store.small_runs import SMALL_ACCOUNTS, SMALL_TRANSFERS, key, patched_chain, small_runs

Accounts = dict[bytes, Account]
Row = tuple[int, int]
ALL = [(bytes(20), b"\xff" * 20)]


class TakenBack(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseConnection]:
    small_runs(monkeypatch)
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        yield connection


def number_of(connection: DatabaseConnection, what: str) -> int:
    ((found,),) = connection.execute(f"SELECT count(*) FROM {what}").fetchall()  # noqa: S608
    return int(found)


# Accounts


def check_accounts(reader: AccountReader, accounts: Accounts, keys: int) -> None:
    """Everything that can be asked gives the same accounts."""
    rows = [(key, a.balance, a.nonce, a.held_since) for key, a in sorted(accounts.items())]
    assert list(reader.every_account()) == rows
    assert sorted(reader.account_rows(ALL)) == rows
    assert reader.count_accounts() == len(rows)
    wanted = [key(number) for number in range(keys)]
    assert reader.accounts(wanted) == accounts
    assert {each: account for each in wanted if (account := reader.account(each)) is not None} == accounts
    for middle in wanted[::7]:
        assert sorted(reader.account_rows([(bytes(20), middle)])) == [row for row in rows if row[0] <= middle]


def write(connection: DatabaseConnection, accounts: Accounts, changes: dict[bytes, Account | None]) -> None:
    """Write ``changes``, and make them in the model."""
    for changed, account in changes.items():
        if account is None:
            accounts.pop(changed, None)
        else:
            accounts[changed] = account
    runs = SortedRuns(connection, SMALL_ACCOUNTS)
    merge_some([runs], write_accounts(runs, changes))


CHANGES = st.dictionaries(st.integers(0, 59), st.none() | st.integers(0, 2**62), max_size=12)
WRITES = st.lists(st.tuples(st.sampled_from(["write", "write", "write", "take back", "fail"]), CHANGES), max_size=40)


@given(st.integers(0, 60), WRITES)
def test_the_accounts_are_a_mapping(first: int, steps: list[tuple[str, dict[int, int | None]]]) -> None:
    with patched_chain() as (connection, patch):
        patch.setattr(account_runs, "_STEP", 5)
        accounts: Accounts = {}
        with transaction(connection):
            write(connection, accounts, {key(number): Account(number) for number in range(first)})
        for at, (step, numbers) in enumerate(steps):
            changes = {
                key(number): None if balance is None else Account(balance, at, at if balance % 2 else None)
                for number, balance in numbers.items()
            }
            if step == "write":
                with transaction(connection):
                    write(connection, accounts, changes)
            elif step == "take back":
                with suppress(TakenBack), transaction(connection):
                    write(connection, dict(accounts), changes)
                    raise TakenBack
            elif step == "fail":
                # A branch of a reorganisation that turns out to be invalid, in the middle of a transaction.
                with transaction(connection):
                    write(connection, accounts, {key(60 + at): Account(1)})
                    with suppress(TakenBack), attempt(connection):
                        write(connection, dict(accounts), changes)
                        raise TakenBack
                    write(connection, accounts, {key(60 + at): None})
            check_accounts(AccountReader(connection), accounts, 60)


def test_a_reader_sees_the_accounts_of_its_commit_while_runs_are_merged(
    connection: DatabaseConnection, tmp_path: Path
) -> None:
    accounts: Accounts = {}
    with transaction(connection):
        write(connection, accounts, {key(number): Account(number) for number in range(100)})
    with closing(open_reader(tmp_path / "chain.sqlite")) as reading:
        for at in range(60):
            before = dict(accounts)
            reading.execute("BEGIN")
            check_accounts(AccountReader(reading), before, 100)
            changes = {key((7 * at + number) % 100): Account(at, number) for number in range(at % 9)}
            with transaction(connection):
                write(connection, accounts, changes | {key(at): None})
            check_accounts(AccountReader(reading), before, 100)
            reading.execute("COMMIT")
            check_accounts(AccountReader(reading), accounts, 100)


def test_changes_and_removals_leave_no_more_than_twice_the_accounts(connection: DatabaseConnection) -> None:
    accounts: Accounts = {}
    with transaction(connection):
        write(connection, accounts, {key(number): Account(number) for number in range(400)})
    most = 0
    for at in range(400):
        changes: dict[bytes, Account | None] = {key((7 * at + number) % 400): Account(at) for number in range(9)}
        with transaction(connection):
            write(connection, accounts, changes | {key(400 + at): Account(at), key(399 + at): None})
        most = max(most, number_of(connection, "account_entry"))
    assert most < 2.2 * 400
    assert number_of(connection, "account_entry WHERE balance IS NULL") < 200


def test_a_block_changes_few_pages_and_leaves_few_runs(tmp_path: Path) -> None:
    """With accounts on 300 pages and 100 changes a block, which would be on nearly as many of them."""
    path, accounts, written = tmp_path / "chain.sqlite", 20_000, 0
    tree = Tree(name="account", key=("key",), values=ACCOUNTS.values, fan_in=8, small=100, row_bytes=50)
    log = path.with_name(f"{path.name}-wal")
    with closing(open_writer(path)) as connection:
        runs = SortedRuns(connection, tree)
        with transaction(connection):
            write_accounts(runs, {key(number): Account(10**10) for number in range(accounts)})
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for block in range(100):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            changed = {key((block * 7919 + 10_007 * number) % accounts): Account(block) for number in range(100)}
            with transaction(connection):
                # As in full blocks, which is more than the least.
                added = write_accounts(runs, changed)
                merge_some([runs], added)
            written += log.stat().st_size // 4096
        assert written / 100 < 60
        assert number_of(connection, "account_run") < 25


# The index


def rows_at(height: int, count: int, seed: int = 0, keys: int = 1 << 30) -> list[Row]:
    """``count`` rows of one block, with at most so many different keys."""
    choice = Random(f"{seed} {height}")
    return sorted((choice.randrange(-keys, keys), place_of(height, at)) for at in range(count))


Blocks = dict[int, list[Row]]


def listed(connection: DatabaseConnection, order: str, key: int, first: int, last: int) -> Iterator[Row]:
    """As svcd/store/chain_store.py reads the rows of a key: in the order of the chain without sorting."""
    between = "p.place BETWEEN max(?2, r.first << 16) AND min(?3, (r.last << 16) + 65535)"
    by = f"{order}, p.place {'DESC' if order == NEWEST_FIRST else ''}"
    query = f"SELECT p.key, p.place FROM {TRANSFERS.source} AND p.key = ?1 AND {between} ORDER BY {by}"  # noqa: S608
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", (key, first, last))]
    assert not [step for step in plan if "TEMP B-TREE" in step]
    return connection.execute(query, (key, first, last))


def check_index(connection: DatabaseConnection, blocks: Blocks) -> None:
    """All rows, and those of some keys in the order of the chain, in both directions."""
    rows = sorted(row for of_block in blocks.values() for row in of_block)
    assert SortedRuns(connection, TRANSFERS).count_rows() == len(rows)
    found = connection.execute(
        f"SELECT p.key, p.place FROM {TRANSFERS.source} AND p.place >> 16 BETWEEN r.first AND r.last"  # noqa: S608
    )
    assert sorted(found) == rows
    for key_, place in rows[:: max(len(rows) // 8, 1)]:
        same = sorted((row for row in rows if row[0] == key_), key=lambda row: row[1])
        assert list(listed(connection, OLDEST_FIRST, key_, 0, 1 << 60)) == same
        assert list(listed(connection, OLDEST_FIRST, key_, place, 1 << 60)) == [row for row in same if row[1] >= place]
        assert list(listed(connection, NEWEST_FIRST, key_, 0, place)) == [row for row in same[::-1] if row[1] <= place]


def add(index: SortedRuns, height: int, rows: list[Row], swept: int = 0) -> None:
    merge_some([index], index.add(rows, height))
    index.sweep(swept)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.integers(0, 30)),
        st.tuples(st.just("connect"), st.integers(0, 3)),
        st.tuples(st.just("undo"), st.integers(1, 12)),
        st.tuples(st.just("prune"), st.integers(1, 12)),
        st.tuples(st.just("abandon"), st.integers(1, 9)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([1, 4, 1 << 30]))
def test_the_index_is_a_sorted_list(steps: list[tuple[str, int]], keys: int) -> None:
    """Connecting, undoing, deleting and rolling back."""
    with patched_chain() as (connection, _):
        index, height, floor = SortedRuns(connection, SMALL_TRANSFERS), 1, 0
        blocks: Blocks = {}
        for number, (step, size) in enumerate(steps):
            if step == "connect":
                with transaction(connection):
                    add(index, height, blocks.setdefault(height, rows_at(height, size, number, keys)), size)
                height += 1
            elif step == "undo":
                height = max(height - size, floor, 1)
                with transaction(connection):
                    index.forget(above=height - 1)
                blocks = {at: rows for at, rows in blocks.items() if at < height}
            elif step == "prune":
                floor = min(floor + size, height)
                with transaction(connection):
                    index.forget(below=floor)
                    index.sweep(size)
                blocks = {at: rows for at, rows in blocks.items() if at >= floor}
            else:
                connection.execute("BEGIN")
                add(index, height, rows_at(height, size, number, keys))
                connection.execute("ROLLBACK")
            check_index(connection, blocks)


@pytest.mark.parametrize("per_block", [1, 5, 30])
def test_few_runs_are_left(connection: DatabaseConnection, per_block: int) -> None:
    """Their number grows with the logarithm of the rows, and merging leaves no row twice."""
    index, most = SortedRuns(connection, SMALL_TRANSFERS), 0
    for height in range(1, 400):
        with transaction(connection):
            add(index, height, rows_at(height, per_block))
        most = max(most, number_of(connection, "transfer_run"))
    assert most < 40
    assert number_of(connection, "transfer_entry") == 399 * per_block


def test_a_reader_sees_the_index_of_its_commit_while_runs_are_merged(
    connection: DatabaseConnection, tmp_path: Path
) -> None:
    index = SortedRuns(connection, SMALL_TRANSFERS)
    blocks = {height: rows_at(height, 8, keys=9) for height in range(1, 20)}
    with closing(open_reader(tmp_path / "chain.sqlite")) as reading:
        for height, rows in blocks.items():
            add(index, height, rows)
        reading.execute("BEGIN")
        check_index(reading, blocks)
        for height in range(20, 60):
            add(index, height, rows_at(height, 8))
        index.forget(above=2)
        index.forget(below=2)
        check_index(reading, blocks)
        reading.execute("COMMIT")
        check_index(reading, {2: blocks[2]})


def test_undoing_takes_the_same_time_however_many_blocks_are_undone(connection: DatabaseConnection) -> None:
    index = SortedRuns(connection, SMALL_TRANSFERS)
    blocks = {height: rows_at(height, 8) for height in range(1, 200)}
    for height, rows in blocks.items():
        add(index, height, rows)
    before = connection.total_changes()
    index.forget(above=9)
    assert connection.total_changes() - before < 40
    check_index(connection, {height: rows for height, rows in blocks.items() if height < 10})


def test_undone_rows_do_not_come_back_when_their_runs_are_merged(connection: DatabaseConnection) -> None:
    index = SortedRuns(connection, SMALL_TRANSFERS)
    blocks: Blocks = {}
    for height in range(1, 30):
        add(index, height, blocks.setdefault(height, rows_at(height, 8)))
    index.forget(above=19)
    for height in range(20, 300):
        blocks[height] = rows_at(height, 8, seed=1)
        add(index, height, blocks[height], 16)
    check_index(connection, blocks)
    assert number_of(connection, "transfer_entry") == 299 * 8


def test_rows_of_deleted_blocks_go_some_at_a_time(connection: DatabaseConnection) -> None:
    index = SortedRuns(connection, SMALL_TRANSFERS)
    for height in range(1, 200):
        add(index, height, rows_at(height, 8))
    for height in range(200, 500):
        before = number_of(connection, "transfer_entry")
        add(index, height, rows_at(height, 1))
        index.forget(below=height)
        assert index.sweep(6) <= 8
        # Merges drop deleted rows, too.
        assert before - number_of(connection, "transfer_entry") < 150
    assert number_of(connection, "transfer_entry") < 100
    assert index.count_rows() == 1


@pytest.mark.parametrize("tree", [SMALL_ACCOUNTS, SMALL_TRANSFERS])
def test_rows_of_no_run_are_counted(connection: DatabaseConnection, tree: Tree) -> None:
    runs = SortedRuns(connection, tree)
    runs.add([(b"k" * 20, 1, 0, None)] if tree is SMALL_ACCOUNTS else [(1, 1 << 16)], 1)
    assert runs.count_strays() == 0
    connection.execute(f"UPDATE {tree.table} SET run = run + 1")  # noqa: S608
    assert runs.count_strays() == 1


# Merging


def temporary_files() -> list[str]:
    """The files into which SQLite has written pages to which it could return before the end of a transaction."""
    targets = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for target in targets if "etilqs_" in target]


def test_merging_needs_no_temporary_file(tmp_path: Path) -> None:
    """As it would if SQLite had to be able to undo a statement."""
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        store, moved = SortedRuns(connection, ACCOUNTS), 0
        for at in range(3 * ACCOUNTS.fan_in):
            accounts = {key(at * 7 + number * 3): Account(at) for number in range(5_000)}
            with transaction(connection):
                merge_some([store], write_accounts(store, accounts))
                assert not temporary_files()
            moved += bool(store.merges())
        assert moved


@define(eq=False)
class Merge:
    """Some runs that become one."""

    runs: list[int]
    left: int
    """Rows to be moved."""
    rows: int
    """Of what they become."""


@define
class Sizes(SortedRuns):
    """A tree that has the sizes of its runs only."""

    tree: Tree
    distinct: int = 0
    """How many rows count: of the accounts, those that exist."""
    layers: list[Merge | int] = field(factory=list)
    """Runs and merges of adjacent ones, the newest first."""
    moved: int = 0
    """Bytes."""

    def grow(self, rows: int) -> int:
        # Every second account is new.
        self.distinct += rows if self.tree.is_dated else rows // 2
        self.layers.insert(0, rows)
        free: list[int] = []
        for each in self.layers:
            if isinstance(each, Merge):
                break
            free.append(each)
        has_oldest = not self.tree.is_dated and len(free) == len(self.layers)
        if together := mergeable(free, self.tree, has_oldest=has_oldest):
            rows = sum(free[:together])
            is_all = together == len(self.layers)
            self.layers[:together] = [Merge(free[:together], rows, min(rows, self.distinct) if is_all else rows)]
        return self.layers and rows * self.tree.row_bytes

    @property
    def under_way(self) -> list[Merge]:
        return [each for each in self.layers if isinstance(each, Merge)]

    @property
    def runs(self) -> int:
        return sum(len(each.runs) + 1 if isinstance(each, Merge) else 1 for each in self.layers)

    def merges(self) -> list[tuple[int, int]]:
        return [(sum(each.runs) * self.tree.row_bytes, at) for at, each in enumerate(self.under_way)]

    def go_on(self, target: int, about: int) -> int:
        merge = self.under_way[target]
        some = min(max(about // self.tree.row_bytes, 1), merge.left)
        merge.left -= some
        self.moved += some * self.tree.row_bytes
        if not merge.left:
            self.layers[self.layers.index(merge)] = merge.rows
        return some * self.tree.row_bytes


def connect(index: Sizes, accounts: Sizes, transfers: int) -> tuple[int, int]:
    """A block of so many transfers; gives the bytes that it adds and those that it moves."""
    before, added = index.moved + accounts.moved, 0
    for tree, rows in ((index, 5 * transfers), (accounts, 2 * transfers)):
        tree.grow(rows)
        some = rows * tree.tree.row_bytes
        merge_some([index, accounts], some)
        added += some
    return added, index.moved + accounts.moved - before


@pytest.mark.slow
def test_runs_stay_few_and_commits_small_up_to_a_hundred_million_transfers() -> None:
    """In full blocks, with the real constants; each block has 2,000 transfers and changes 4,000 accounts."""
    index, accounts = Sizes(TRANSFERS), Sizes(ACCOUNTS)
    most_moved, most_runs = 0.0, 0
    for block in range(1, 50_001):
        added, moved = connect(index, accounts, 2_000)
        most_moved = max(most_moved, moved / added)
        most_runs = max(most_runs, index.runs, accounts.runs)
        if block == 500:
            assert most_runs < 30
        elif block == 5_000:
            # With what a block of a megabyte writes besides: 6 MB.
            assert most_moved < 5.2
            assert most_runs < 50
    assert most_moved < 6
    assert most_runs < 70


@pytest.mark.parametrize(
    ("per_block", "blocks"), [(1, 5_000), (20, 20_000), (100, 10_000), (300, 12_000), (700, 6_000)]
)
def test_runs_stay_few_in_blocks_that_are_not_full(per_block: int, blocks: int) -> None:
    index, accounts = Sizes(TRANSFERS), Sizes(ACCOUNTS)
    most_runs = 0
    for _ in range(blocks):
        connect(index, accounts, per_block)
        most_runs = max(most_runs, index.runs, accounts.runs)
    assert most_runs < 50


def test_blocks_and_accounts_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[list[str]] = []
    monkeypatch.setattr(
        "svcd.store.chain_store.merge_some", lambda trees, added: used.append([each.tree.name for each in trees])
    )
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        store, chain = ChainWriter(connection), ChainBuilder()
        (block,) = chain.chain("genesis: a1").values()
        store.connect_block(store.add_block(block, chain.point_after(block)), block.transfers, undo={}, history=())
        store.write_accounts({key(number): Account(1) for number in range(5)})
    assert used == [["transfer", "account"]] * 2


class Smallest(SortedRuns):
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
    monkeypatch.setattr(sorted_runs, "_LEAST", 5)
    monkeypatch.setattr(sorted_runs, "_PER_ADDED_BYTE", 3)
    first, second = Smallest(50, 200), Smallest(300, 60)
    trees = [first, second]
    merge_some(trees, 0)
    assert (first.left, second.left) == ([45, 200], [300, 60])
    merge_some(trees, 40)
    assert (first.left, second.left) == ([0, 185], [300, 0])
    merge_some(trees, 100)
    assert (first.left, second.left) == ([0, 0], [185, 0])
    merge_some(trees, 1000)
    assert (first.left, second.left) == ([0, 0], [0, 0])


def test_more_is_merged_the_more_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the trees are so large that each row is moved more often."""
    monkeypatch.setattr(sorted_runs, "_LEAST", 0)
    tree = Smallest(5 * sorted_runs._ONE_MORE_UNDER_WAY // 2)
    merge_some([tree], 100)
    assert 5 * sorted_runs._ONE_MORE_UNDER_WAY // 2 - tree.left[0] == 100 * sorted_runs._PER_ADDED_BYTE + 250


def where(connection: DatabaseConnection) -> dict[tuple[object, ...], int]:
    """The run of each row."""
    found = {("transfer", *row): run for run, *row in connection.execute("SELECT * FROM transfer_entry")}
    accounts = connection.execute("SELECT run, key, nonce FROM account_entry")
    return found | {("account", key, nonce): run for run, key, nonce in accounts}


@pytest.mark.parametrize("seed", range(2))
def test_a_commit_moves_what_the_shared_budget_allows(connection: DatabaseConnection, seed: int) -> None:
    """Blocks are connected, undone and deleted at random."""
    random, times = Random(seed), count()
    trees = index, runs = SortedRuns(connection, SMALL_TRANSFERS), SortedRuns(connection, SMALL_ACCOUNTS)
    height, floor, most_moved, most_runs = 1, 0, 0, 0
    for _ in range(300):
        transfers, changes = random.choice([0, 2, 9, 25]), random.choice([1, 4, 20])
        rows = rows_at(height, transfers, next(times))
        accounts = {key(random.randrange(300)): Account(height, next(times)) for _ in range(changes)}
        before = where(connection)
        with transaction(connection):
            added = [index.add(rows, height), write_accounts(runs, accounts)]
            for each in added:
                merge_some(trees, each)
        after = where(connection)
        gone = [row for row, run in before.items() if after.get(row) != run]
        moved = sum(24 if row[0] == "transfer" else 50 for row in gone)
        # A row of each source, for each tree, may be moved more than the budget allows.
        allowed = sorted_runs._PER_ADDED_BYTE * sum(added) + 2 * (sorted_runs._LEAST + 40 * 50)
        assert moved <= allowed
        most_moved = max(most_moved, moved)
        most_runs = max(most_runs, number_of(connection, "transfer_run"), number_of(connection, "account_run"))
        height += 1
        if random.random() < 0.05:
            height = max(height - random.randrange(20), floor, 1)
            index.forget(above=height - 1)
        elif random.random() < 0.05:
            floor = max(floor, height - 60)
            index.forget(below=floor)
        index.sweep(20)
    assert most_moved > 1_500
    assert most_runs < 50
