"""The accounts are a mapping, whatever was written, merged and taken back before."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.store import account_table, merge_policy
from svcd.store.account_table import AccountReader, AccountWriter
from svcd.store.database import attempt, open_reader, open_writer, transaction
from svcd.store.merge_policy import MergeBudget
from tests.store.account_runs import patched_chain, small_runs

Accounts = dict[bytes, Account]
ALL = [(bytes(20), b"\xff" * 20)]


class TakenBack(Exception):
    """Ends a transaction without a commit."""


def key(number: int) -> bytes:
    return sha256(b"%d" % number).digest()[:20]


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    small_runs(monkeypatch)
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        yield connection


def check(reader: AccountReader, accounts: Accounts, keys: int) -> None:
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


def write(connection: sqlite3.Connection, accounts: Accounts, changes: dict[bytes, Account | None]) -> None:
    """Write ``changes``, and make them in the model."""
    for changed, account in changes.items():
        if account is None:
            accounts.pop(changed, None)
        else:
            accounts[changed] = account
    AccountWriter(connection, MergeBudget()).write(changes, count=len(accounts))


CHANGES = st.dictionaries(st.integers(0, 59), st.none() | st.integers(0, 2**62), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["write", "write", "write", "take back", "fail"]), CHANGES), max_size=40)


@given(st.integers(0, 60), STEPS)
def test_the_accounts_are_a_mapping(first: int, steps: list[tuple[str, dict[int, int | None]]]) -> None:
    with patched_chain() as (connection, _):
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
            check(AccountReader(connection), accounts, 60)


def test_a_reader_sees_the_accounts_of_its_commit_while_runs_are_merged(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    accounts: Accounts = {}
    with transaction(connection):
        write(connection, accounts, {key(number): Account(number) for number in range(100)})
    with closing(open_reader(tmp_path / "chain.sqlite")) as reading:
        for at in range(60):
            before = dict(accounts)
            reading.execute("BEGIN")
            check(AccountReader(reading), before, 100)
            changes = {key((7 * at + number) % 100): Account(at, number) for number in range(at % 9)}
            with transaction(connection):
                write(connection, accounts, changes | {key(at): None})
            check(AccountReader(reading), before, 100)
            reading.execute("COMMIT")
            check(AccountReader(reading), accounts, 100)


def pages_written(path: Path, connection: sqlite3.Connection, blocks: int, accounts: int) -> float:
    """Pages that the log gets for each of some full blocks."""
    written = 0
    log = path.with_name(f"{path.name}-wal")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    for block in range(blocks):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        changed = {key(block * 7919 + 10_007 * number % accounts): Account(block, number) for number in range(400)}
        with transaction(connection):
            AccountWriter(connection, MergeBudget()).write(changed, count=accounts)
        written += log.stat().st_size // 4096
    return written / blocks


@pytest.mark.slow
def test_a_block_changes_few_pages_and_leaves_few_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table of 2,700 pages and 400 changes a block, which would be on 370 pages of it."""
    monkeypatch.setattr(account_table, "_SMALL_RUN", 400)
    path, accounts = tmp_path / "chain.sqlite", 200_000
    with closing(open_writer(path)) as connection:
        with transaction(connection):
            everyone = {key(number): Account(10**10) for number in range(accounts)}
            AccountWriter(connection, MergeBudget()).write(everyone, count=accounts)
        assert pages_written(path, connection, 300, accounts) < 100
        ((runs,),) = connection.execute("SELECT count(*) FROM account_run").fetchall()
        assert runs < 20


def some_accounts(at: int, rows: int) -> dict[bytes, Account]:
    """So many of a million accounts, others for each ``at``."""
    return {(at * 7919 + number * 10_007).to_bytes(20, "little"): Account(at, number) for number in range(rows)}


def temporary_files() -> list[str]:
    """The files into which SQLite has written pages to which it could return before the end of a transaction."""
    targets = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for target in targets if "etilqs_" in target]


def test_runs_of_five_full_blocks_each_are_merged_in_the_next_two_commits(tmp_path: Path) -> None:
    """As they are written while a node catches up over full blocks."""
    rows = 5 * account_table._SMALL_RUN
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        for at in range(account_table._FAN_IN + 2):
            with transaction(connection):
                AccountWriter(connection, MergeBudget()).write(some_accounts(at, rows), count=10**7)
                assert not temporary_files()
        runs = connection.execute("SELECT number, rows, target FROM account_run").fetchall()
        assert runs == [(1, 5 * rows, None), (6, rows, None), (7, rows, None)]


def test_runs_are_few_however_many_large_commits_there_were(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_table, "_FAN_IN", 5)
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 4)
    monkeypatch.setattr(merge_policy, "_LEAST", 0)
    most, count, rows = 0, 10_000, 5 * account_table._SMALL_RUN
    for at in range(600):
        with transaction(connection):
            AccountWriter(connection, MergeBudget()).write(some_accounts(at, rows), count=count)
        ((runs,),) = connection.execute("SELECT count(*) FROM account_run").fetchall()
        most = max(most, runs)
    # Of three sizes up to 2,500 rows, four each that wait and five that are being merged, and those that wait for the
    # table.
    assert 8 < most < 4 * 9


def test_a_run_is_merged_in_small_steps(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit merges more rows than its own allow, however many are waiting."""
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 0)
    writer = AccountWriter(connection, MergeBudget())
    with transaction(connection):
        writer.write({key(number): Account(1) for number in range(1000)}, count=1000)
        writer.write({key(number): Account(2) for number in range(600)}, count=1000)
        assert connection.execute("SELECT rows, target FROM account_run").fetchall() == [(600, None)]
        writer.write({key(number): Account(3) for number in range(600, 1000)}, count=1000)
    assert connection.execute("SELECT rows, target FROM account_run").fetchall() == [(600, 0), (400, 0)]

    def rows() -> int:
        ((count,),) = connection.execute("SELECT count(*) FROM recent_account").fetchall()
        return int(count)

    left = [rows()]
    assert left[0] > 990
    while left[-1]:
        with transaction(connection):
            writer.write({}, count=1000)
        left.append(rows())
    # One row of each run may be merged more than the commit allows.
    assert max(before - after for before, after in pairwise(left)) <= 2 * (1 + 1)
    accounts = {key(number): Account(2 if number < 600 else 3) for number in range(1000)}
    check(AccountReader(connection), accounts, 1000)


def test_small_runs_do_not_wait_for_the_table(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are merged with each other while the large ones are merged into it."""
    monkeypatch.setattr(merge_policy, "_PER_ADDED_BYTE", 0)
    writer, runs = AccountWriter(connection, MergeBudget()), "SELECT number, target FROM account_run ORDER BY number"
    with transaction(connection):
        writer.write({key(number): Account(1) for number in range(1000)}, count=1000)
        for at, (rows, count) in enumerate([(900, 1200), (50, 1200), (40, 900)]):
            assert connection.execute(runs).fetchall() == [(run, None) for run in range(1, at + 1)]
            writer.write({key(number): Account(2 + at) for number in range(rows)}, count=count)
        assert connection.execute(runs).fetchall() == [(1, 0), (2, None), (3, None)]
        writer.write({key(number): Account(5) for number in range(38)}, count=900)
        assert connection.execute(runs).fetchall() == [(1, 0), (2, None), (3, 2), (4, 2)]
        for _ in range(1000):
            writer.write({}, count=900)
    assert (1, 0) not in connection.execute(runs).fetchall()
    newest = [(38, 5), (40, 4), (50, 3), (900, 2), (1000, 1)]
    balances = {number: next(balance for end, balance in newest if number < end) for number in range(1000)}
    check(AccountReader(connection), {key(number): Account(balance) for number, balance in balances.items()}, 1000)
