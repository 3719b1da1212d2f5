"""Whoever reads a damaged file: the watch hears of it, and the reader too."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import is_damage, open_reader, open_writer

ROWS = 2000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of which every page but the first of one table is spoiled."""
    path = tmp_path / "chain.sqlite"
    with closing(open_writer(path)) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany("INSERT INTO numbers VALUES (?, ?)", [(n, "x" * 100) for n in range(ROWS)])
        leaves = connection.execute("SELECT pageno FROM dbstat WHERE name = 'numbers' AND pagetype = 'leaf'")
        pages = [page for (page,) in leaves]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        for page in pages[1:]:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    return path


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda db: db.execute("SELECT text FROM numbers WHERE number = ?", (ROWS - 1,)), id="execute"),
        pytest.param(lambda db: db.execute("SELECT text FROM numbers").fetchall(), id="fetchall"),
        pytest.param(lambda db: list(db.execute("SELECT text FROM numbers")), id="iterate"),
        pytest.param(lambda db: _one_by_one(db.execute("SELECT text FROM numbers")), id="fetchone"),
    ],
)
def test_damage_is_shown_and_raised(database: Path, read: Callable[[sqlite3.Connection], object]) -> None:
    seen: list[BaseException] = []
    with closing(open_reader(database, seen.append)) as connection:
        with pytest.raises(sqlite3.DatabaseError) as raised:
            read(connection)
        assert seen == [raised.value]
        assert is_damage(raised.value)


def _one_by_one(cursor: sqlite3.Cursor) -> None:
    while cursor.fetchone() is not None:
        pass


def test_what_is_whole_is_read_without_a_word(database: Path) -> None:
    seen: list[BaseException] = []
    with closing(open_reader(database, seen.append)) as connection:
        assert connection.execute("SELECT text FROM numbers WHERE number = 0").fetchone() == ("x" * 100,)
        assert list(connection.execute("SELECT number FROM numbers WHERE number < 3")) == [(0,), (1,), (2,)]
    assert seen == []
