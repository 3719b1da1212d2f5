"""Base units and decimal amounts (docs/protocol.md 1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal
from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount, format_coins, parse_amount, parse_base_units
from tests.chain.refusing import refuses


def test_a_coin() -> None:
    assert BASE_UNITS_PER_COIN == 100_000_000
    assert parse_amount("25") == 2_500_000_000


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("0.00000001", 1),
        ("0.5", 50_000_000),
        ("0.50", 50_000_000),
        ("1.00000000", 100_000_000),
        ("10", 1_000_000_000),
        ("90071992.54740991", MAX_INTEGER),
    ],
)
def test_amount(text: str, units: int) -> None:
    assert parse_amount(text) == units


@pytest.mark.parametrize("value", ["0", "0.0", "0.00000000", "90071992.54740992", "90071993", "9" * 32])
def test_amount_out_of_range(value: str) -> None:
    with refuses(Refusal.AMOUNT, "amount must be more than 0 and at most 9007199254740991 base units"):
        parse_amount(value)


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", ".5", "5.", "05", "00.5", "1,5", "1.5.0", "1e3", "+1", "-1", " 1", "1 ", "1\n", "1_0", "١", "１"),
        *("0.000000001", "1.000000000", "9" * 33, "NaN", "Infinity", "0x1", True, None, [1], {}),
    ],
)
def test_no_amount(value: object) -> None:
    with refuses(Refusal.AMOUNT, "amount must be a decimal such as"):
        parse_amount(value)


@pytest.mark.parametrize("value", [25, 0.5, 0, float("nan")])
def test_amount_as_a_number_may_have_been_rounded(value: object) -> None:
    with refuses(Refusal.AMOUNT, "amount must be a string: put it in quotes"):
        parse_amount(value)


@pytest.mark.parametrize(
    ("text", "units"),
    [("1", 1), ("007", 7), ("9007199254740991", MAX_INTEGER), ("0" * 10_000 + "1", 1)],
)
def test_base_units(text: str, units: int) -> None:
    assert parse_base_units(text) == units


@pytest.mark.parametrize("value", ["0", "000", "9007199254740992", "9" * 10_000, "1" + "0" * 64])
def test_base_units_out_of_range(value: str) -> None:
    with refuses(Refusal.AMOUNT, "amountBaseUnits must be more than 0 and at most 9007199254740991 base units"):
        parse_base_units(value)


@pytest.mark.parametrize("value", ["", "1.0", "+1", "-1", " 1", "1\n", "1e3", "１", "١", 1, True, None, 1.0])
def test_no_base_units(value: object) -> None:
    with refuses(Refusal.AMOUNT, "amountBaseUnits must be a string of digits"):
        parse_base_units(value)


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (0, "0"),
        (1, "0.00000001"),
        (10, "0.0000001"),
        (50_000_000, "0.5"),
        (100_000_000, "1"),
        (1_000_000_000, "10"),
        (2_500_000_000, "25"),
        (MAX_INTEGER, "90071992.54740991"),
    ],
)
def test_shortest_text(units: int, text: str) -> None:
    assert format_amount(units) == text


@given(st.integers(1, MAX_INTEGER))
def test_text_of_an_amount_is_parsed_to_the_same_amount(units: int) -> None:
    assert parse_amount(format_amount(units)) == units
    assert parse_base_units(str(units)) == units


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0 Token"), (1, "0.00000001 Token"), (10**8, "1 Token"), (1_250_000_000, "12.5 Token")],
)
def test_an_amount_has_the_name_that_the_network_gives_its_coins(units: int, text: str) -> None:
    assert format_coins(units, "Token") == text
