"""Tables of many rows that fit the terminal: long cells are shortened in the middle, or each row gets lines."""

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from svcd.wallet.show import plain, table

_GAP: Final = "  "
_ELLIPSIS: Final = "..."


@frozen
class Column:
    """One column; ``least`` is how many characters of a cell must stay, None if it must stay whole."""

    name: str
    right: bool = False
    least: int | None = None


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """The rows under their headings within ``width`` characters, or as wide as they are if that is None."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in (column.name, *row)) for column, *row in zip(columns, *cells, strict=True)]
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for index in sorted(range(len(columns)), key=lambda index: -widths[index]):
        least = columns[index].least
        if excess > 0 and least is not None:
            less = min(excess, max(widths[index] - max(least, len(columns[index].name)), 0))
            widths[index] -= less
            excess -= less
    if excess > 0:
        return "\n\n".join(
            table([(column.name, cell) for column, cell in zip(columns, row, strict=True)]) for row in rows
        )
    lines = [[column.name for column in columns], *cells]
    return "\n".join(_line(columns, line, widths) for line in lines)


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters of ``text``: its beginning and its end."""
    if len(text) <= width:
        return text
    kept = width - len(_ELLIPSIS)
    tail = kept // 2
    return text[: kept - tail] + _ELLIPSIS + text[len(text) - tail :]


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        short = shortened(cell, width)
        placed.append(short.rjust(width) if column.right else short.ljust(width))
    return _GAP.join(placed).rstrip()
