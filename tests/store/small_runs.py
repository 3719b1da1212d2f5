"""Trees of small runs, so that few rows make many of them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256

import pytest
from attrs import evolve

from svcd.store import chain_store, sorted_runs
from svcd.store.account_runs import ACCOUNTS
from svcd.store.database import DatabaseConnection, migrations
from svcd.store.transfer_index import TRANSFERS

SMALL_ACCOUNTS = evolve(ACCOUNTS, fan_in=3, small=4)
SMALL_TRANSFERS = evolve(TRANSFERS, fan_in=3, small=13)


@contextmanager
def patched_chain() -> Iterator[tuple[DatabaseConnection, pytest.MonkeyPatch]]:
    """An empty chain in memory with small runs, for one example of Hypothesis, and what else its end takes back."""
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(DatabaseConnection(":memory:")) as connection,
    ):
        for migration in migrations():
            connection.execute(migration.script)
        small_runs(patch)
        yield connection, patch


def small_runs(patch: pytest.MonkeyPatch) -> None:
    """Let few rows make many runs, of which each commit merges some."""
    patch.setattr(chain_store, "ACCOUNTS", SMALL_ACCOUNTS)
    patch.setattr(chain_store, "TRANSFERS", SMALL_TRANSFERS)
    patch.setattr(sorted_runs, "_PER_ADDED_BYTE", 4)
    patch.setattr(sorted_runs, "_LEAST", 150)
    patch.setattr(sorted_runs, "_STEP", 7)


def key(number: int) -> bytes:
    """A key hash."""
    return sha256(b"%d" % number).digest()[:20]
