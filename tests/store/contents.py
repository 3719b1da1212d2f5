"""What a database holds, table by table, so that two moments can be compared to the last byte."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from svcd.store.account_runs import ACCOUNTS, AccountReader
from svcd.store.database import DatabaseConnection
from svcd.store.transfer_index import TRANSFERS

Contents = dict[str, list[tuple[object, ...]]]

STATE = ["canonical", "undo", "history", ACCOUNTS.table, TRANSFERS.table]
"""The tables that a block changes and its undoing restores; blocks themselves and waiting transfers stay."""

RUNS = {ACCOUNTS.runs, TRANSFERS.runs}


def contents(connection: DatabaseConnection, tables: list[str] | None = None) -> Contents:
    """All rows of ``tables``, or of every table there is, in the order of their first columns.

    Of the accounts, what the newest run says, and of the index the rows that are not deleted; not how they are divided
    into runs, which depends on the blocks before.
    """
    if tables is None:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: Contents = {}
    for table in tables:
        if table == ACCOUNTS.table:
            found[table] = list(AccountReader(connection).every_account())
        elif table == TRANSFERS.table:
            live = f"{TRANSFERS.source} AND p.place >> 16 BETWEEN r.first AND r.last"
            found[table] = sorted(connection.execute(f"SELECT p.key, p.place FROM {live}"))  # noqa: S608
        elif table not in RUNS:
            found[table] = sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)  # noqa: S608
    return found


@contextmanager
def room_for_pages(pages: int, log: Path) -> Iterator[None]:
    """A full disk: inside, the write-ahead log may grow by ``pages`` pages only, as any other file of the process."""
    with files_of_at_most(log.stat().st_size + pages * 4096):
        yield


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Inside, the process can write no byte beyond the first ``size`` ones of any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
