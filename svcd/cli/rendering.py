"""Text for people: tables, amounts and times, as pure functions."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import frozen

from svcd.visible_text import visible

Rows = Sequence[tuple[str, str]]

_GAP: Final = "  "
_ELLIPSIS: Final = "..."
_MAX_MILLISECONDS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, and of datetime's range."""


def confirmations_of(count: int, required: int) -> str:
    """Confirmations, and how many are required: ``"1 of 2"``, and where there are more of them ``"9 (2 required)"``."""
    return f"{count:,} ({required:,} required)" if count > required else f"{count:,} of {required:,}"


def format_time(milliseconds: int) -> str:
    """A Unix time in UTC, to the second."""
    if milliseconds > _MAX_MILLISECONDS:
        return f"{milliseconds} ms after 1970-01-01 00:00:00 UTC"
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def property_table(rows: Rows) -> str:
    """Names and values in two columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{visible(name):<{width}}  {visible(value)}".rstrip() for name, value in rows)


@frozen
class TableColumn:
    """A column of a table; its cells are shortened to ``min_width`` characters at most, or never if that is None."""

    name: str
    align_right: bool = False
    min_width: int | None = None


def table(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """The rows under their headings, fitted into ``width`` characters (None for any width).

    Long cells are shortened in the middle. If that is not enough, each row becomes a property table.
    """
    cells = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in (column.name, *row)) for column, *row in zip(columns, *cells, strict=True)]
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for index in sorted(range(len(columns)), key=lambda index: -widths[index]):
        min_width = columns[index].min_width
        if excess > 0 and min_width is not None:
            cut = min(excess, max(widths[index] - max(min_width, len(columns[index].name)), 0))
            widths[index] -= cut
            excess -= cut
    if excess > 0:
        return "\n\n".join(
            property_table([(column.name, cell) for column, cell in zip(columns, row, strict=True)]) for row in rows
        )
    lines = [[column.name for column in columns], *cells]
    return "\n".join(_line(columns, line, widths) for line in lines)


def ellipsize(text: str, width: int) -> str:
    """The beginning and the end of ``text``, in at most ``width`` characters."""
    if len(text) <= width:
        return text
    kept = width - len(_ELLIPSIS)
    tail = kept // 2
    return text[: kept - tail] + _ELLIPSIS + text[len(text) - tail :]


def _line(columns: Sequence[TableColumn], cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        short = ellipsize(cell, width)
        aligned.append(short.rjust(width) if column.align_right else short.ljust(width))
    return _GAP.join(aligned).rstrip()
