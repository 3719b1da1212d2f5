"""The accounts after an earlier block are those that replaying the blocks gives, whatever later ones have changed."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.chain.snapshot import pack_account
from svcd.store import snapshot_store
from svcd.store.account_runs import write_accounts
from svcd.store.database import DatabaseConnection, transaction
from svcd.store.snapshot_store import StateReader
from svcd.store.sorted_runs import SortedRuns, merge_some
from svcd.store.undo_records import pack
from tests.store.small_runs import SMALL_ACCOUNTS, key, patched_chain
from tests.store.test_external_sort import nothing, small_sort

Accounts = dict[bytes, Account]
CHANGES = st.dictionaries(st.integers(0, 29), st.none() | st.integers(0, 2**53 - 1), max_size=12)


def connected(connection: DatabaseConnection, changes: Sequence[dict[int, int | None]]) -> list[Accounts]:
    """Blocks that set accounts, or remove them, with their undo records; gives the accounts after each."""
    after: list[Accounts] = [{}]
    for height, numbers in enumerate(changes, 1):
        accounts = dict(after[-1])
        changed = {
            key(number): None if balance is None else Account(balance, height, height if balance % 2 else None)
            for number, balance in numbers.items()
        }
        undo = {each: accounts.get(each) for each in changed}
        for each, account in changed.items():
            accounts.pop(each, None)
            if account is not None:
                accounts[each] = account
        with transaction(connection):
            runs = SortedRuns(connection, SMALL_ACCOUNTS)
            merge_some([runs], write_accounts(runs, changed))
            connection.execute(
                "INSERT INTO block (id, hash, parent, height, slot, clock, work, issued, header, size) "
                "VALUES (?, ?, x'', ?, 0, 0, zeroblob(32), 0, x'', 0)",
                (height, height.to_bytes(32, "big"), height),
            )
            connection.execute("INSERT INTO canonical VALUES (?, ?)", (height, height))
            connection.execute("INSERT INTO undo VALUES (?, ?)", (height, pack(undo)))
        after.append(accounts)
    return after


def read(connection: DatabaseConnection, height: int) -> bytes:
    return b"".join(StateReader(connection).records(height, Path("/tmp"), nothing))


@given(st.lists(CHANGES, min_size=1, max_size=12))
def test_the_accounts_after_every_block_are_those_of_a_replay(changes: list[dict[int, int | None]]) -> None:
    with patched_chain() as (connection, patch):
        small_sort(patch)
        patch.setattr(snapshot_store, "_ROWS", 3)
        for height, accounts in enumerate(connected(connection, changes)):
            expected = [pack_account(each, a.balance, a.nonce, a.held_since) for each, a in sorted(accounts.items())]
            assert read(connection, height) == b"".join(expected)
