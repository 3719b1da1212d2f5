"""Damage to the file of a closed database, as a failing disk does it."""

import sqlite3
from contextlib import closing
from enum import StrEnum
from pathlib import Path


class Damage(StrEnum):
    """What becomes of the page in which a table begins."""

    NUMBER = "a number in a row has changed"
    CELLS = "SQLite cannot find the rows of the page"
    PAGE = "the page is all zeros"


def clear_page_with(path: Path, text: bytes) -> None:
    """Make the page with ``text`` all zeros."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    begin = content.index(text) // size * size
    content[begin : begin + size] = bytes(size)
    path.write_bytes(content)


def damage_table(path: Path, table: str, key: bytes, damage: Damage) -> None:
    """Damage a table that fits into a page; the row with the primary key ``key`` has a number of a byte behind it."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    begin = (page - 1) * size
    match damage:
        case Damage.NUMBER:
            content[content.index(key, begin, begin + size) + len(key)] ^= 1
        case Damage.CELLS:
            # Behind the header of a page of an index without children are the places of its rows.
            content[begin + 8 : begin + 16] = b"\xff" * 8
        case Damage.PAGE:
            content[begin : begin + size] = bytes(size)
    path.write_bytes(content)
