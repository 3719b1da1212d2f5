"""Waiting transfers on disk: changes gather while others are being written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define
from twisted.internet.defer import Deferred

from svcd.node.journal import PoolJournal
from svcd.node.mempool import Entry
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer
from tests.chains import ChainBuilder
from tests.node.bench import Stepped
from tests.support import has_result, result_of


@define
class Bench:
    journal: PoolJournal
    writer: Stepped
    connection: sqlite3.Connection
    entries: list[Entry]

    def on_disk(self) -> list[int]:
        """The sequence numbers of what waits on disk."""
        return [sequence for sequence, _ in ChainWriter(self.connection).pooled()]

    def add(self, *numbers: int) -> Deferred[None]:
        return self.journal.record([self.entries[number] for number in numbers], [])

    def remove(self, *numbers: int) -> Deferred[None]:
        return self.journal.record([], [self.entries[number] for number in numbers])


@pytest.fixture
def bench(tmp_path: Path, chain: ChainBuilder) -> Iterator[Bench]:
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        writer = Stepped()
        entries = [Entry(chain.transfer("alice", "bob", 1), number) for number in range(9)]
        yield Bench(PoolJournal(writer, ChainWriter(connection)), writer, connection, entries)


def test_what_is_recorded_is_committed_when_it_is_said(bench: Bench) -> None:
    committed = bench.add(1)
    assert not has_result(committed)
    assert bench.on_disk() == []
    bench.writer.step()
    assert has_result(committed)
    assert bench.on_disk() == [1]


def test_changes_gather_while_others_are_being_written(bench: Bench) -> None:
    first = bench.add(1)
    rest = [bench.add(2), bench.add(3, 4), bench.remove(1)]
    assert len(bench.writer) == 1
    bench.writer.step()
    assert (has_result(first), any(map(has_result, rest))) == (True, False)
    assert bench.on_disk() == [1]
    assert len(bench.writer) == 1
    bench.writer.step()
    assert all(map(has_result, rest))
    assert bench.on_disk() == [2, 3, 4]
    assert len(bench.writer) == 0


def test_what_came_and_went_before_it_was_written_is_not_written(bench: Bench) -> None:
    bench.add(1)
    came, went = bench.add(2), bench.remove(2)
    bench.writer.finish()
    assert has_result(came)
    assert has_result(went)
    assert bench.on_disk() == [1]


def test_what_went_and_came_again_is_there(bench: Bench) -> None:
    bench.add(1)
    bench.writer.finish()
    bench.add(2)
    bench.remove(1)
    bench.add(1)
    bench.writer.finish()
    assert bench.on_disk() == [1, 2]


def test_one_change_adds_and_removes(bench: Bench) -> None:
    bench.add(1)
    bench.journal.record([bench.entries[2]], [bench.entries[1]])
    bench.writer.finish()
    assert bench.on_disk() == [2]


def test_whoever_waits_may_record_more(bench: Bench) -> None:
    bench.add(1).addCallback(lambda _: bench.add(2))
    bench.add(3)
    bench.writer.finish()
    assert bench.on_disk() == [1, 2, 3]


def fail_on(bench: Bench, sequence: int) -> None:
    """Let every attempt to write this entry fail."""
    bench.connection.execute(
        f"CREATE TEMP TRIGGER full BEFORE INSERT ON pool WHEN NEW.sequence = {sequence} "
        "BEGIN SELECT RAISE(ABORT, 'full'); END"
    )


def test_a_failure_is_told_to_all_who_wait_for_it_and_to_nobody_else(bench: Bench) -> None:
    fail_on(bench, 2)
    first = bench.add(1)
    failing = [bench.add(2), bench.add(3)]
    bench.writer.step()
    bench.writer.step()
    assert has_result(first)
    for failed in failing:
        with pytest.raises(sqlite3.IntegrityError, match="full"):
            result_of(failed)
    later = bench.add(4)
    bench.writer.finish()
    assert has_result(later)
    assert bench.on_disk() == [1, 4]


def test_what_could_not_be_removed_goes_with_the_next_change(bench: Bench) -> None:
    bench.add(1, 3)
    bench.writer.finish()
    fail_on(bench, 2)
    bench.add(5)
    failed = [bench.remove(1), bench.add(2)]
    bench.writer.finish()
    for change in failed:
        with pytest.raises(sqlite3.IntegrityError, match="full"):
            result_of(change)
    assert bench.on_disk() == [1, 3, 5]
    bench.add(4)
    bench.writer.finish()
    assert bench.on_disk() == [3, 4, 5]


def test_what_could_not_be_replaced_stays(bench: Bench) -> None:
    bench.add(1, 3)
    bench.writer.finish()
    fail_on(bench, 2)
    failed = bench.journal.record([bench.entries[2]], [bench.entries[1]])
    bench.writer.finish()
    with pytest.raises(sqlite3.IntegrityError, match="full"):
        result_of(failed)
    bench.add(4)
    bench.writer.finish()
    assert bench.on_disk() == [1, 3, 4]


def test_what_could_not_be_removed_and_came_again_stays(bench: Bench) -> None:
    bench.add(1)
    bench.writer.finish()
    fail_on(bench, 2)
    bench.add(3)
    failed = [bench.remove(1), bench.add(2)]
    bench.writer.finish()
    for change in failed:
        with pytest.raises(sqlite3.IntegrityError, match="full"):
            result_of(change)
    bench.add(1)
    bench.writer.finish()
    assert bench.on_disk() == [1, 3]
