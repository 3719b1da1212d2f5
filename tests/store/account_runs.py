"""Runs of recent accounts on a small chain, which would have none."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from svcd.store import account_table, merge_policy
from svcd.store.database import migrations


@contextmanager
def patched_chain() -> Iterator[tuple[sqlite3.Connection, pytest.MonkeyPatch]]:
    """An empty chain in memory with small runs, for one example of Hypothesis, and what else its end takes back."""
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as connection,
    ):
        for migration in migrations():
            connection.executescript(migration.script)
        small_runs(patch)
        yield connection, patch


def small_runs(patch: pytest.MonkeyPatch) -> None:
    """Few accounts make many runs, of which each commit merges some."""
    patch.setattr(account_table, "_SMALL_TABLE", 4)
    patch.setattr(account_table, "_SMALL_RUN", 4)
    patch.setattr(account_table, "_FAN_IN", 3)
    patch.setattr(merge_policy, "_PER_ADDED_BYTE", 3)
    patch.setattr(merge_policy, "_LEAST", account_table.ROW_BYTES)
    patch.setattr(account_table, "_STEP", 2)
