"""Files of prices: what is read exactly, and what is refused with its line."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.cli.errors import CommandError
from svcd.cli.prices import Prices, parse_prices, read_prices, value_of

DAY = 86_400_000
FIRST = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000


def prices_of(*lines: str, end: str = "\n") -> Prices:
    return parse_prices("".join(line + end for line in ("time,EUR", *lines)), "prices.csv")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_times_are_days_or_seconds_in_utc(end: str) -> None:
    found = prices_of(
        "2026-11-01,0.5", "2026-11-01 00:00:01,0.48", '"2026-11-02T00:00:00Z","1"', "2026-11-03T12:30:15,2", end=end
    )
    late = FIRST + 2 * DAY + (12 * 3600 + 30 * 60 + 15) * 1000
    assert found == Prices("prices.csv", "EUR", (FIRST, FIRST + 1000, FIRST + DAY, late), ("0.5", "0.48", "1", "2"))
    assert parse_prices("time,EUR\n2026-11-01,0.5", "p").prices == ("0.5",), "without a newline at its end"


def test_the_newest_price_at_or_before_a_time_counts() -> None:
    found = prices_of("2026-11-01,0.5", "2026-11-02,0.6", "2026-11-04,0.7")
    times = (FIRST, FIRST + DAY - 1, FIRST + DAY, FIRST + 3 * DAY - 1, FIRST + 3 * DAY, FIRST + 99 * DAY)
    assert [found.at(time) for time in times] == ["0.5", "0.5", "0.6", "0.6", "0.7", "0.7"]
    with pytest.raises(CommandError) as refused:
        found.at(FIRST - 1)
    assert str(refused.value) == (
        "prices.csv has no price for 2026-10-31 23:59:59 UTC: the first one, in line 2, is for 2026-11-01 00:00:00 "
        "UTC; add an earlier one, or export from a later day with --from"
    )


GOOD = "2026-11-01,0.5"


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "line 2: there is no price"),
        ([GOOD, ""], "line 3: must be a time and a price with one comma between them"),
        ([GOOD, "2026-11-02"], "line 3: must be a time and a price with one comma between them"),
        ([GOOD, "2026-11-02,1,5"], "line 3: must be a time and a price with one comma between them"),
        ([GOOD, "2026-11-02;1"], "line 3: must be a time and a price with one comma between them"),
        ([GOOD, '2026-11-02,"1'], "line 3: is not CSV"),
        ([GOOD, '2026-11-02,"1"2'], "line 3: is not CSV"),
        *(
            ([GOOD, f"{time},1"], f"line 3: {time!r} is not a time in UTC such as 2026-11-30 or 2026-11-30 14:05:00")
            for time in (
                *("", "yesterday", "02.11.2026", "2026-11-31", "2026-13-01", "2026-11-02 24:00:00", "0000-01-01"),
                *("2026-11-02 12:00", "2026-11-02 12:00:00+01:00", "2026-11-02Z", " 2026-11-02", "1793491200"),
                "٢٠٢٦-11-02",
            )
        ),
        *(
            (
                [GOOD, f"2026-11-02,{price}"],
                f"line 3: {price!r} is not a price; give a decimal above 0 such as 0.48, with at most 18 decimal"
                " places",
            )
            for price in (
                *(
                    "",
                    "0",
                    "0.00",
                    "-1",
                    "+1",
                    "nan",
                    "Infinity",
                    "1e3",
                    "0x1",
                    " 1",
                    "1 ",
                    ".5",
                    "1.",
                    "01",
                    "١",
                    "1_0",
                ),
                *("0.0000000000000000001", "1000000000000000000", "€1"),
            )
        ),
        ([GOOD, GOOD], "line 3: 2026-11-01 is not later than the time in the line before"),
        (
            [GOOD, "2026-11-01 00:00:00,1"],
            "line 3: 2026-11-01 00:00:00 is not later than the time in the line before",
        ),
        (
            [GOOD, "2026-11-03,1", "2026-11-02,1"],
            "line 4: 2026-11-02 is not later than the time in the line before",
        ),
    ],
)
def test_a_wrong_line_is_named(lines: list[str], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        prices_of(*lines)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "header",
    ["", "time", "time,eur", "time,", "time,price,EUR", "Time,EUR", "date,EUR", GOOD, "time;EUR", "time,=EUR()"],
)
def test_the_header_names_the_currency(header: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1: must be time and a currency, such as time,EUR$"):
        parse_prices(f"{header}\n{GOOD}\n" if header else "", "prices.csv")


def test_a_file_is_utf_8_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(b"\xef\xbb\xbftime,EUR\r\n2026-11-01,0.5\r\n")
    assert read_prices(path) == Prices(str(path), "EUR", (FIRST,), ("0.5",))
    path.write_bytes("time,EUR\n".encode("utf-16"))
    with pytest.raises(CommandError, match="must be UTF-8 text"):
        read_prices(path)
    path.write_bytes(b"time,EUR\n2026-11-01,0\n")
    with pytest.raises(CommandError, match=r"prices\.csv, line 2: '0' is not a price"):
        read_prices(path)
    path.unlink()
    with pytest.raises(CommandError, match=r"prices\.csv cannot be read: no such file"):
        read_prices(path)


@pytest.mark.parametrize(
    ("units", "price", "value"),
    [
        (2_604_166_667, "0.48", 1_250_000_000),
        (10**8, "0.000000005", 0),
        (10**8, "0.000000015", 2),
        (10**8, "0.0000000050000000001", 1),
        (-(10**8), "0.000000015", -2),
        (3, "0.5", 2),
        (1, "0.5", 0),
        (2**53 - 1, "999999999999999999.999999999999999999", (2**53 - 1) * 10**18),
        (0, "1", 0),
    ],
)
def test_a_value_is_rounded_to_8_decimals_and_a_half_to_the_even_one(units: int, price: str, value: int) -> None:
    assert value_of(units, price) == value


@given(st.integers(-(2**53), 2**53), st.decimals("0.000000000000000001", "1000000", places=18))
def test_a_value_is_exact_before_it_is_rounded(units: int, price: Decimal) -> None:
    with localcontext(prec=100):
        exact = (units * price).to_integral_value(ROUND_HALF_EVEN)
    assert value_of(units, f"{price:f}") == int(exact)
