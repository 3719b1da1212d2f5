"""A connection whose errors somebody else is shown as well: damage is met by whoever happens to read it."""

import sqlite3
from collections.abc import Callable
from typing import Any

Look = Callable[[BaseException], object]


def watched_by(look: Look) -> type[sqlite3.Connection]:
    """A class of connections, for :func:`sqlite3.connect`, that show every error of SQLite to ``look``."""

    class Cursor(sqlite3.Cursor):
        # Four times the same, because these are called for every row that is read.

        def execute(self, sql: str, values: Any = (), /) -> Any:
            try:
                return super().execute(sql, values)
            except sqlite3.Error as error:
                look(error)
                raise

        def fetchone(self) -> Any:
            try:
                return super().fetchone()
            except sqlite3.Error as error:
                look(error)
                raise

        def fetchall(self) -> list[Any]:
            try:
                return super().fetchall()
            except sqlite3.Error as error:
                look(error)
                raise

        def __next__(self) -> Any:
            try:
                return super().__next__()
            except sqlite3.Error as error:
                look(error)
                raise

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, values: Any = (), /) -> Any:
            return self.cursor(Cursor).execute(sql, values)

    return Connection
