"""kill -9 while runs of accounts are merged: the accounts are those of a whole commit, and the merges go on."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from attrs import evolve

from svcd.chain.accounts import Account
from svcd.store import sorted_runs
from svcd.store.account_runs import ACCOUNTS, AccountReader, write_accounts
from svcd.store.database import open_writer, transaction
from svcd.store.sorted_runs import SortedRuns, merge_some
from tests.torture.test_kill import ROOT

COUNT = 2_000
AMONG = 50
"""Accounts that a commit changes."""
NUMBERED = bytes(20)
"""The account whose balance is the number of commits."""


def changes(commit: int) -> dict[bytes, Account | None]:
    """What a commit writes; the first one creates all accounts, and later ones remove some."""
    numbers = range(1, COUNT) if commit == 1 else Random(commit).sample(range(1, COUNT), AMONG)
    return {NUMBERED: Account(commit)} | {
        number.to_bytes(20, "big"): None if (number + commit) % 9 == 0 else Account(number, commit)
        for number in numbers
    }


def commit_for_ever(path: Path) -> None:
    """A commit for each line of the standard input, in runs that are merged all the time."""
    sorted_runs._STEP, sorted_runs._LEAST = 40, 0  # type: ignore[misc]
    with closing(open_writer(path)) as connection:
        found = AccountReader(connection).account(NUMBERED)
        commit = 0 if found is None else found.balance
        while sys.stdin.readline():
            commit += 1
            with transaction(connection):
                runs = SortedRuns(connection, evolve(ACCOUNTS, fan_in=5, small=60))
                merge_some([runs], write_accounts(runs, changes(commit)))
            print(flush=True)


def commit_until_killed(path: Path, commits: int) -> None:
    """Let a process commit, and kill it after so many commits, in the middle of what follows."""
    program = "import sys; from pathlib import Path; from tests.torture.test_kill_account_merge import commit_for_ever"
    command = [sys.executable, "-c", f"{program}; commit_for_ever(Path(sys.argv[1]))", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # More commits than are waited for, one of which the kill interrupts or not.
        process.stdin.write(b"\n" * (commits + 20))
        process.stdin.flush()
        for _ in range(commits):
            assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_kill_leaves_the_accounts_of_a_whole_commit(tmp_path: Path) -> None:
    path, random = tmp_path / "chain.sqlite", Random(1)
    accounts: dict[bytes, Account | None] = {}
    commit, kills, merging = 0, 0, 0
    # Which statement a kill hits is chance; about one in three leaves a merge under way.
    while kills < 12 or merging < 4:
        assert kills < 200, "no kill leaves a merge under way"
        kills += 1
        wanted = random.randint(1, 12)
        commit_until_killed(path, wanted)
        with closing(open_writer(path)) as connection:
            reader = AccountReader(connection)
            found = reader.account(NUMBERED)
            assert found is not None
            assert found.balance >= commit + wanted
            for number in range(commit + 1, found.balance + 1):
                accounts |= changes(number)
            commit = found.balance
            rows = [(key, a.balance, a.nonce, a.held_since) for key, a in sorted(accounts.items()) if a is not None]
            assert list(reader.every_account()) == rows
            assert sorted(reader.account_rows([(bytes(20), b"\xff" * 20)])) == rows
            ((under_way,),) = connection.execute("SELECT count(*) FROM account_run WHERE target NOT NULL").fetchall()
            merging += under_way > 0
