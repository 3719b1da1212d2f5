"""The waiting transfers on disk: rows by number, and what tells a row that is not what was written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve, fields

from svcd.chain.transaction import Transfer
from svcd.store.database import MEMPOOL, open_writer
from svcd.store.mempool_store import FILE, MempoolStore
from tests.chains import TEST_PARAMS, ChainBuilder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


@pytest.fixture
def store(path: Path) -> Iterator[MempoolStore]:
    with closing(MempoolStore(open_writer(path, MEMPOOL), path, TEST_PARAMS)) as store:
        yield store


@pytest.fixture
def chain() -> ChainBuilder:
    return ChainBuilder()


def numbers(store: MempoolStore) -> list[int]:
    return [row.sequence for row in store.rows()]


def test_rows_come_back_by_number(store: MempoolStore, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", n) for n in range(1, 5)]
    store.write([(9, transfers[0]), (-8, transfers[1]), (7, transfers[2])], [])
    assert numbers(store) == [-8, 7, 9]
    store.write([(10, transfers[3])], [9, -8, 99])
    assert numbers(store) == [7, 10]


@pytest.mark.parametrize("reference", [None, "order-1"])
def test_a_transfer_comes_back_as_it_was(store: MempoolStore, chain: ChainBuilder, reference: str | None) -> None:
    transfer = chain.transfer("alice", "bob", 2**53 - 1, nonce=3, reference=reference)
    store.write([(1, transfer)], [])
    (row,) = store.rows()
    assert row.transfer is not None
    assert row.body == transfer.wire
    for each in fields(Transfer):
        assert getattr(row.transfer, each.name) == getattr(transfer, each.name), each.name


def test_all_of_a_commit_or_nothing(store: MempoolStore, chain: ChainBuilder) -> None:
    store.write([(1, chain.transfer("alice", "bob", 1))], [])
    with pytest.raises(OverflowError):
        store.write([(2**64, chain.transfer("alice", "bob", 2))], [1])
    assert numbers(store) == [1]


def test_a_row_of_another_network_is_not_trusted(path: Path, chain: ChainBuilder) -> None:
    with closing(MempoolStore(open_writer(path, MEMPOOL), path, TEST_PARAMS)) as store:
        store.write([(1, chain.transfer("alice", "bob", 1))], [])
    with closing(MempoolStore(open_writer(path, MEMPOOL), path, evolve(TEST_PARAMS, network_id=4))) as store:
        assert [row.transfer for row in store.rows()] == [None]


@pytest.mark.parametrize("place", [0, 31, 32, 64, 200, -1])
def test_a_row_with_any_byte_changed_is_not_trusted(store: MempoolStore, chain: ChainBuilder, place: int) -> None:
    store.write([(1, chain.transfer("alice", "bob", 1, reference="order-1"))], [])
    for column in ("checked", "body"):
        (whole,) = store._db.execute(f"SELECT {column} FROM waiting").fetchone()  # noqa: S608
        changed = bytearray(whole)
        changed[place] ^= 1
        store._db.execute(f"UPDATE waiting SET {column} = ?", (bytes(changed),))  # noqa: S608
        assert [row.transfer for row in store.rows()] == [None]
        store._db.execute(f"UPDATE waiting SET {column} = ?", (whole,))  # noqa: S608
        assert None not in [row.transfer for row in store.rows()]


def test_the_log_is_brought_into_the_file_by_whoever_is_asked_to(
    store: MempoolStore, path: Path, chain: ChainBuilder
) -> None:
    transfers = [(number, chain.transfer("alice", "bob", 1)) for number in range(100)]
    for _ in range(39):
        store.write(transfers, [])
        assert not store.is_log_long()
    store.write(transfers, [])
    assert (store.is_log_long(), store.is_log_long()) == (True, False)
    before = path.stat().st_size
    store.empty_log()
    assert path.stat().st_size > before
    assert len(list(store.rows())) == 100


def test_a_log_to_which_nothing_is_added_meanwhile_begins_anew(
    store: MempoolStore, path: Path, chain: ChainBuilder
) -> None:
    transfers = [(number, chain.transfer("alice", "bob", 1)) for number in range(100)]
    log, sizes = path.with_name(f"{FILE}-wal"), set()
    for _ in range(4):
        while not store.is_log_long():
            store.write(transfers, [])
        sizes.add(log.stat().st_size)
        store.empty_log()
    assert len(sizes) == 1


def test_a_file_that_was_moved_away_is_not_made_again(store: MempoolStore, path: Path) -> None:
    path.rename(path.with_name("moved"))
    with pytest.raises(sqlite3.OperationalError):
        store.empty_log()
    assert not path.exists()


def test_nobody_waits_for_another_program(store: MempoolStore, path: Path, chain: ChainBuilder) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            store.write([(1, chain.transfer("alice", "bob", 1))], [])
    store.write([(1, chain.transfer("alice", "bob", 1))], [])
