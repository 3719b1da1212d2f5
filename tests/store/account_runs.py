"""Runs of recent accounts on a small chain, which would have none."""

import pytest

from svcd.store import account_table


def small_runs(patch: pytest.MonkeyPatch) -> None:
    """Few accounts make many runs, of which each commit merges some."""
    patch.setattr(account_table, "_SMALL_TABLE", 4)
    patch.setattr(account_table, "_SMALL_RUN", 4)
    patch.setattr(account_table, "_FAN_IN", 3)
    patch.setattr(account_table, "_MERGED_PER_ROW", 3)
    patch.setattr(account_table, "_LEAST_MERGED", 1)
    patch.setattr(account_table, "_STEP", 2)
