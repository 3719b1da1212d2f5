"""A user's file of prices of a coin: CSV with a header, times in UTC (docs/command-line.md, `svc export --prices`).

Prices and values are exact: decimals are read as integers and fractions, never as floats.
"""

import csv
import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.cli.errors import CommandError
from svcd.cli.rendering import format_time
from svcd.cli.secure_files import read_bounded
from svcd.visible_text import BadText, text_of

_CURRENCY: Final = re.compile("[A-Z0-9]{2,10}")
_TIME: Final = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})Z?)?")
_PRICE: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?")
_SHOWN: Final = 64
_MAX_BYTES: Final = 1 << 26


@frozen
class Prices:
    """What one coin cost in a currency, from each of these times on; each time is later than the one before."""

    source: str
    """The file, for errors."""
    currency: str
    times: tuple[int, ...]
    """Unix milliseconds."""
    prices: tuple[str, ...]
    """Decimals above 0."""

    def at(self, time: int) -> str:
        """The newest price at or before a time in Unix milliseconds; raises CommandError if the first is later."""
        place = bisect_right(self.times, time)
        if not place:
            raise CommandError(
                f"{self.source} has no price for {format_time(time)}: the first one, in line 2, is for"
                f" {format_time(self.times[0])}; add an earlier one, or export from a later day with --from"
            )
        return self.prices[place - 1]


def read_prices(path: Path) -> Prices:
    """The prices in a file; raises CommandError."""
    try:
        return parse_prices(text_of(read_bounded(path, _MAX_BYTES)), str(path))
    except BadText as error:
        raise CommandError(f"{path} {error}") from None
    except ValueError as error:
        raise CommandError(f"{path}, {error}") from None


def parse_prices(text: str, source: str) -> Prices:
    """The prices in the text of a file; raises ValueError with a sentence that names the line."""
    times: list[int] = []
    prices: list[str] = []
    lines = _lines(text)
    number, header = next(lines, (1, []))
    if len(header) != 2 or header[0] != "time" or not _CURRENCY.fullmatch(header[1]):
        raise ValueError(f"line {number}: must be time and a currency, such as time,EUR")
    for number, cells in lines:
        if len(cells) != 2:
            raise ValueError(f"line {number}: must be a time and a price with one comma between them")
        time = _milliseconds(cells[0])
        if time is None:
            raise ValueError(
                f"line {number}: {cells[0][:_SHOWN]!r} is not a time in UTC such as 2026-11-30 or 2026-11-30 14:05:00"
            )
        if times and time <= times[-1]:
            raise ValueError(f"line {number}: {cells[0]} is not later than the time in the line before")
        if not _PRICE.fullmatch(cells[1]) or not Fraction(cells[1]):
            raise ValueError(
                f"line {number}: {cells[1][:_SHOWN]!r} is not a price; give a decimal above 0 such as 0.48, with at"
                " most 18 decimal places"
            )
        times.append(time)
        prices.append(cells[1])
    if not times:
        raise ValueError("line 2: there is no price")
    return Prices(source, header[1], tuple(times), tuple(prices))


def value_of(units: int, price: str) -> int:
    """The value of base units at a price of a coin, in hundred-millionths of its currency.

    Rounded to the nearest, and a half to the even neighbour.
    """
    return round(units * Fraction(price))


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line of CSV (RFC 4180); raises ValueError."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        try:
            cells = list(islice(reader, 1))
        except csv.Error:
            raise ValueError(f"line {max(reader.line_num, 1)}: is not CSV") from None
        if not cells:
            return
        yield reader.line_num, cells[0]


def _milliseconds(text: str) -> int | None:
    """The Unix time of a date, or of a date and a time, in UTC; None if it is neither."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1000
