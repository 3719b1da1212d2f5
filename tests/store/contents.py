"""What a database holds, table by table, so that two moments can be compared to the last byte."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Contents = dict[str, list[tuple[object, ...]]]

STATE = "account canonical undo history transaction_place address_place payment_place".split()
"""The tables that a block changes and its undoing restores; blocks themselves and waiting transfers stay."""


def contents(connection: sqlite3.Connection, tables: list[str] | None = None) -> Contents:
    """All rows of ``tables``, or of every table there is, in the order of their first columns."""
    if tables is None:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}  # noqa: S608


@contextmanager
def room_for_pages(pages: int, log: Path) -> Iterator[None]:
    """A full disk: inside, the write-ahead log may grow by ``pages`` pages only, as any other file of the process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + pages * 4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
