"""Damage to the file of a database, as a failing disk does it."""

from contextlib import closing
from pathlib import Path
from random import Random

from svcd.store.database import connect

PAGE = 4096


def pages_of(path: Path, table: str) -> list[int]:
    """The numbers of the pages of a table or index in the file, from its root on."""
    with closing(connect(path)) as connection:
        found = connection.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY path", (table,))
        return [number for (number,) in found]


def flip_bit(path: Path, page: int, random: Random) -> None:
    """Flip a random bit of a page."""
    _change(path, page, random.randrange(PAGE), 1 << random.randrange(8))


def change_last_byte(path: Path, page: int) -> None:
    """Change the last byte before the page's checksum, which is in the row that was written first."""
    _change(path, page, PAGE - 9, 1)


def overwrite(path: Path, page: int, at: int, content: bytes) -> None:
    """Write ``content`` at a place in a page."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE + at)
        file.write(content)


def _change(path: Path, page: int, at: int, bits: int) -> None:
    byte = path.read_bytes()[(page - 1) * PAGE + at]
    overwrite(path, page, at, bytes([byte ^ bits]))
