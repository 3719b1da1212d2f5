"""Base units and decimal amounts of coins; integers only (docs/protocol.md 1, docs/http.md "Common rules")."""

import re
from typing import Final

from .encoding import MAX_INTEGER
from .errors import Refusal, RuleViolation

BASE_UNITS_PER_COIN: Final = 10**8
_DECIMAL_AMOUNT: Final = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]{1,8}))?")
_BASE_UNITS: Final = re.compile("[0-9]+")
_LONGEST: Final = 32


def parse_amount(value: object) -> int:
    """Base units of a decimal amount of coins such as ``"25"`` or ``"0.5"``: more than 0, at most 2^53−1.

    Raises RuleViolation(AMOUNT); a JSON number is refused, because a parser in between may already have rounded it.
    """
    if type(value) in (int, float):
        raise RuleViolation(Refusal.AMOUNT, 'amount must be a string: put it in quotes, as in "25" or "0.5"')
    match = _DECIMAL_AMOUNT.fullmatch(value) if type(value) is str and len(value) <= _LONGEST else None
    if match is None:
        raise RuleViolation(Refusal.AMOUNT, 'amount must be a decimal such as "25" or "0.5", at most 8 decimal places')
    units = int(match[1]) * BASE_UNITS_PER_COIN + int((match[2] or "").ljust(8, "0"))
    return _in_range(units, "amount")


def parse_base_units(value: object) -> int:
    """Base units in a string of digits, leading zeros allowed: 1 … 2^53−1; raises RuleViolation(AMOUNT)."""
    if type(value) is not str or not _BASE_UNITS.fullmatch(value):
        raise RuleViolation(Refusal.AMOUNT, 'amountBaseUnits must be a string of digits such as "2500000000"')
    # int() refuses thousands of digits; the first ones already tell a number that is too large.
    return _in_range(int(value.lstrip("0")[:_LONGEST] or "0"), "amountBaseUnits")


def _in_range(units: int, what: str) -> int:
    if not 1 <= units <= MAX_INTEGER:
        raise RuleViolation(Refusal.AMOUNT, f"{what} must be more than 0 and at most {MAX_INTEGER} base units")
    return units


def format_amount(units: int) -> str:
    """The shortest decimal text of base units in coins: ``"25"``, ``"0.5"``, never an exponent."""
    coins, rest = divmod(abs(units), BASE_UNITS_PER_COIN)
    text = f"{coins}.{rest:08d}".rstrip("0") if rest else str(coins)
    return f"-{text}" if units < 0 else text


def format_coins(units: int, unit: str) -> str:
    """Base units in coins with the name that the network gives these: ``"12.5 SVC"``."""
    return f"{format_amount(units)} {unit}"
