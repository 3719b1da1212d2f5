"""The index of transfers is a sorted list of rows, whatever was connected, undone, deleted and merged before."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.store import merge_policy, transfer_index
from svcd.store.database import open_reader, open_writer, transaction
from svcd.store.merge_policy import MergeBudget
from svcd.store.transfer_index import (
    ADDRESSES,
    INDEXES,
    PAYMENTS,
    TRANSACTIONS,
    Index,
    Rows,
    TransferIndex,
    TransferIndexWriter,
    place_of,
)

Row = tuple[int, ...]


def rows_at(height: int, count: int, seed: int = 0, keys: int = 1 << 30) -> Rows:
    """``count`` rows of each kind in one block, each column with at most so many different keys."""
    choice = Random(f"{seed} {height}")
    places = range(place_of(height, 0), place_of(height, count))
    return {
        index: sorted((*(choice.randrange(-keys, keys) for _ in index.keys), place) for place in places)
        for index in INDEXES
    }


class Model:
    """The index as a plain list of rows by height."""

    def __init__(self) -> None:
        self.blocks: dict[int, Rows] = {}

    def rows(self, index: Index) -> list[Row]:
        return sorted(row for rows in self.blocks.values() for row in rows[index])


def check(found: TransferIndex, model: Model) -> None:
    """All rows, and the transfers of some keys in the order of the chain, in both directions."""
    for index in INDEXES:
        rows = model.rows(index)
        assert sorted(found.scan(index, "true", ())) == rows
        assert found.count(index) == len(rows)
        for row in rows[:: max(len(rows) // 8, 1)]:
            assert found.has(index, row)
            assert not found.has(index, (*row[:-1], row[-1] ^ 1 << 40))
            place = row[-1]
            same = sorted((each for each in rows if each[:-1] == row[:-1]), key=lambda each: each[-1])
            condition = " AND ".join(f"{column} = ?" for column in index.keys)
            later = found.scan(index, f"{condition} AND place >= ?", row)
            assert list(islice(later, 5)) == [each for each in same if each[-1] >= place][:5]
            earlier = found.scan(index, f"{condition} AND place <= ?", row, order="DESC")
            assert list(islice(earlier, 5)) == [each for each in same[::-1] if each[-1] <= place][:5]


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little merging with each block, so that few blocks make many runs."""
    small = [evolve(index, fan_in=3, small=13) for index in INDEXES]
    monkeypatch.setattr(transfer_index, "INDEXES", small)
    monkeypatch.setattr(transfer_index, "_LEAST_SWEPT", 2)
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 4)
    monkeypatch.setattr(merge_policy, "_LEAST", 150)
    monkeypatch.setattr(transfer_index, "_STEP", 7)


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.integers(0, 30)),
        st.tuples(st.just("connect"), st.integers(0, 3)),
        st.tuples(st.just("undo"), st.integers(1, 12)),
        st.tuples(st.just("prune"), st.integers(1, 12)),
        st.tuples(st.just("abandon"), st.integers(1, 9)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([1, 4, 1 << 30]))
def test_the_index_is_a_sorted_list(steps: list[tuple[str, int]], keys: int) -> None:
    """Connecting, undoing, deleting and rolling back, with a new connection after each restart."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        make_small(patch)
        with closing(open_writer(Path(folder, "chain.sqlite"))) as connection:
            run_steps(connection, steps, keys)


def run_steps(connection: sqlite3.Connection, steps: list[tuple[str, int]], keys: int) -> None:
    index, model, height, floor = TransferIndexWriter(connection, MergeBudget()), Model(), 1, 0
    for number, (step, count) in enumerate(steps):
        if step == "connect":
            with transaction(connection):
                index.add(height, height, model.blocks.setdefault(height, rows_at(height, count, number, keys)))
            height += 1
        elif step == "undo":
            height = max(height - count, floor, 1)
            with transaction(connection):
                index.forget_from(height)
            model.blocks = {at: rows for at, rows in model.blocks.items() if at < height}
        elif step == "prune":
            floor = min(floor + count, height)
            with transaction(connection):
                index.forget_below(floor)
                index.sweep(count)
            model.blocks = {at: rows for at, rows in model.blocks.items() if at >= floor}
        elif step == "abandon":
            connection.execute("BEGIN")
            index.add(height, height, rows_at(height, count, number, keys))
            connection.execute("ROLLBACK")
        else:
            index = TransferIndexWriter(connection, MergeBudget())
    check(index, model)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        yield connection


def stored(connection: sqlite3.Connection, table: str) -> int:
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608
    return int(count)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("per_block", [1, 5, 30])
def test_few_runs_are_left(connection: sqlite3.Connection, per_block: int) -> None:
    """Their number grows with the logarithm of the rows, and merging leaves no row twice."""
    index, most = TransferIndexWriter(connection, MergeBudget()), 0
    for height in range(1, 400):
        with transaction(connection):
            index.add(height, height, rows_at(height, per_block))
        most = max(most, stored(connection, "payment_run"))
    assert most < 40
    assert [stored(connection, each.table) for each in INDEXES] == [399 * per_block] * 3


@pytest.mark.usefixtures("small_runs")
def test_a_reader_sees_the_rows_of_its_commit_while_runs_are_merged(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    index, model = TransferIndexWriter(connection, MergeBudget()), Model()
    with closing(open_reader(tmp_path / "chain.sqlite")) as reading:
        for height in range(1, 20):
            index.add(height, height, model.blocks.setdefault(height, rows_at(height, 8)))
        reading.execute("BEGIN")
        check(TransferIndex(reading), model)
        for height in range(20, 60):
            index.add(height, height, rows_at(height, 8))
        index.forget_from(3)
        index.forget_below(2)
        check(TransferIndex(reading), model)
        reading.execute("COMMIT")
        model.blocks = {2: model.blocks[2]}
        check(TransferIndex(reading), model)


@pytest.mark.usefixtures("small_runs")
def test_undoing_takes_the_same_time_however_many_blocks_are_undone(connection: sqlite3.Connection) -> None:
    index = TransferIndexWriter(connection, MergeBudget())
    for height in range(1, 200):
        index.add(height, height, rows_at(height, 8))
    before = connection.total_changes
    index.forget_from(10)
    assert connection.total_changes - before < 100
    assert {row[-1] >> 16 for row in index.scan(TRANSACTIONS, "true", ())} == set(range(1, 10))


@pytest.mark.usefixtures("small_runs")
def test_undone_rows_do_not_come_back_when_their_runs_are_merged(connection: sqlite3.Connection) -> None:
    index, model = TransferIndexWriter(connection, MergeBudget()), Model()
    for height in range(1, 30):
        index.add(height, height, model.blocks.setdefault(height, rows_at(height, 8)))
    index.forget_from(20)
    for height in range(20, 300):
        index.add(height, height, rows_at(height, 8, seed=1))
        model.blocks[height] = rows_at(height, 8, seed=1)
    check(index, model)


@pytest.mark.usefixtures("small_runs")
def test_rows_of_deleted_blocks_go_some_at_a_time(connection: sqlite3.Connection) -> None:
    index = TransferIndexWriter(connection, MergeBudget())
    for height in range(1, 200):
        index.add(height, height, rows_at(height, 8))
    for height in range(200, 500):
        index.add(height, height, rows_at(height, 1))
        index.forget_below(height)
        assert index.sweep(20) <= 24
    assert sum(stored(connection, each.table) for each in INDEXES) < 300
    assert [index.count(each) for each in (TRANSACTIONS, ADDRESSES, PAYMENTS)] == [1, 1, 1]
