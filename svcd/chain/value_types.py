"""Types of values that a person writes: one class per type, whose error sentence names the accepted form.

Configuration and network files have them. Rules of a network are also written by `svc network show --json`, for
programs: `read` reads what a file has, and `of_json` what that has.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from attrs import frozen

from .encoding import MAX_INTEGER, decimal_u53
from .errors import RuleViolation
from .units import format_amount, parse_amount

_FIRST_YEAR: Final = 2020
_LAST_YEAR: Final = 2199


class BadValue(ValueError):
    """A value is not of its type; the text says what would be right and follows the value and a colon."""


class ValueType(Protocol):
    """A type of value: converts the value in the file into the one that the program uses."""

    def read(self, value: object) -> object:
        """Convert the value.

        Raises:
            BadValue: it is not of this type.
        """
        ...


class RuleType(ValueType, Protocol):
    """A type of value of a rule of a network."""

    def of_json(self, value: object) -> object:
        """Convert the value that JSON has; raises BadValue."""
        ...


@frozen
class String:
    """Any string."""

    def read(self, value: object) -> str:
        """Return the string."""
        if not isinstance(value, str):
            raise BadValue("must be a string in quotes")
        return value

    of_json = read


@frozen
class Between:
    """An integer within bounds, both included."""

    low: int
    high: int

    def read(self, value: object) -> int:
        """Return the integer."""
        if type(value) is not int or not self.low <= value <= self.high:
            raise BadValue(f"must be an integer from {self.low} to {self.high}, without quotes")
        return value

    of_json = read


@frozen
class Height(Between):
    """The height of a block within bounds; in JSON a decimal string."""

    def of_json(self, value: object) -> int:
        """Return the height."""
        return _digits(value, self.low, self.high)


@frozen
class Matching:
    """A string of which all matches a regular expression; ``wanted`` completes "must be"."""

    pattern: str
    wanted: str
    taken: tuple[tuple[str, str], ...] = ()
    """Pairs of a string that is refused, and whose it is."""

    def read(self, value: object) -> str:
        """Return the string."""
        text = String().read(value)
        if not re.fullmatch(self.pattern, text):
            raise BadValue(f"must be {self.wanted}")
        for other, owner in self.taken:
            if text == other:
                raise BadValue(f"is that of {owner}; choose another one")
        return text

    of_json = read


@frozen
class PowerOfTwo:
    """A power of two, written ``2^EXPONENT`` in quotes, with an exponent within bounds; in JSON 64 hex digits."""

    low: int
    high: int

    def read(self, value: object) -> int:
        """Return the number."""
        match = re.fullmatch(r"2\^([1-9][0-9]{0,2})", value) if isinstance(value, str) else None
        if match is None or not self.low <= int(match[1]) <= self.high:
            raise BadValue(f'must be a power of two in quotes, from "2^{self.low}" to "2^{self.high}"')
        return 1 << int(match[1])

    def of_json(self, value: object) -> int:
        """Return the number."""
        for exponent in range(self.low, self.high + 1):
            if value == f"{1 << exponent:064x}":
                return 1 << exponent
        raise BadValue(f"must be 64 lower-case hex digits, of a power of two from 2^{self.low} to 2^{self.high}")


@frozen
class UtcSecond:
    """A date and time of TOML in UTC, to the second, without quotes; in JSON Unix milliseconds."""

    def read(self, value: object) -> int:
        """Return the Unix time in milliseconds."""
        if not (
            isinstance(value, datetime)
            and value.utcoffset() == timedelta(0)
            and value.microsecond == 0
            and _FIRST_YEAR <= value.year <= _LAST_YEAR
        ):
            raise BadValue("must be a date and time in UTC to the second, without quotes, such as 2026-12-01T00:00:00Z")
        return int(value.timestamp()) * 1000

    def of_json(self, value: object) -> int:
        """Return the Unix time in milliseconds."""
        first, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (_FIRST_YEAR, _LAST_YEAR + 1))
        time = _digits(value, first * 1000, end * 1000 - 1000)
        if time % 1000:
            raise BadValue("must be a whole second, in Unix milliseconds")
        return time


@frozen
class Steps:
    """A list of pairs of integers."""

    def read(self, value: object) -> tuple[tuple[int, int], ...]:
        """Return the pairs."""
        if not isinstance(value, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(each) is int for each in pair) for pair in value
        ):
            raise BadValue("must be a list of pairs of integers, such as [[0, 10000], [8640, 10200]]")
        return tuple((first, second) for first, second in value)

    of_json = read


@frozen
class Coins:
    """An amount of coins, a decimal number in quotes, at least ``minimum`` base units; in JSON base units."""

    minimum: int

    def read(self, value: object) -> int:
        """Return the base units."""
        wanted = f'must be an amount of coins in quotes, such as "10000", and at least "{format_amount(self.minimum)}"'
        if value == "0" and self.minimum == 0:
            return 0
        try:
            units = parse_amount(value)
        except RuleViolation as error:
            raise BadValue(wanted) from error
        if units < self.minimum:
            raise BadValue(wanted)
        return units

    def of_json(self, value: object) -> int:
        """Return the base units."""
        return _digits(value, self.minimum, MAX_INTEGER)


@frozen
class ListOf:
    """A list whose members are all of one type."""

    member: ValueType

    def read(self, value: object) -> tuple[object, ...]:
        """Return the members in order."""
        if not isinstance(value, list):
            raise BadValue('must be a list in brackets, such as ["…", "…"]')
        return tuple(self.member.read(each) for each in value)

    of_json = read


def _digits(value: object, low: int, high: int) -> int:
    try:
        number = decimal_u53(value, "it")
    except RuleViolation:
        number = -1
    if not low <= number <= high:
        raise BadValue(f"must be a string of digits from {low} to {high}")
    return number
