"""Sees the statements of a connection."""

from collections.abc import Callable

from svcd.store.database import DatabaseConnection, DatabaseCursor


def trace(connection: DatabaseConnection, note: Callable[[str], object] | None) -> None:
    """Call ``note`` with each statement before it runs, with the values in it; None ends that."""

    def tell(cursor: DatabaseCursor, _sql: str, _values: object) -> bool:
        assert note is not None
        note(cursor.expanded_sql)
        return True

    connection.exec_trace = None if note is None else tell
