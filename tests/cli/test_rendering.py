"""Amounts, times and tables as text, with control characters escaped."""

from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import MAX_INTEGER
from svcd.cli.rendering import (
    TableColumn,
    ellipsize,
    format_time,
    property_table,
    table,
)


def test_a_table_has_two_columns() -> None:
    assert property_table([("a", "1"), ("longer", "2\n3"), ("none", "")]) == "a       1\nlonger  2\\u{a}3\nnone"
    assert property_table([]) == ""


def test_times_are_in_utc_up_to_the_largest() -> None:
    assert format_time(1_793_491_200_999) == "2026-11-01 00:00:00 UTC"
    assert format_time(253_402_300_799_999) == "9999-12-31 23:59:59 UTC"
    assert format_time(MAX_INTEGER) == f"{MAX_INTEGER} ms after 1970-01-01 00:00:00 UTC"


COLUMNS = (TableColumn("name"), TableColumn("coins", align_right=True), TableColumn("address", min_width=9))
ROWS = [["tea", "2.5", "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"], ["cake", "12", "short"]]


def test_a_table_without_a_width_is_not_shortened() -> None:
    assert table(COLUMNS, ROWS, None) == (
        "name  coins  address\ntea     2.5  svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc\ncake     12  short"
    )


def test_long_cells_are_shortened_in_the_middle() -> None:
    assert table(COLUMNS, ROWS, 30) == ("name  coins  address\ntea     2.5  svcd1qq...y0c0qcc\ncake     12  short")


def test_a_table_that_does_not_fit_becomes_property_tables() -> None:
    assert table(COLUMNS, ROWS[1:], 15) == "name     cake\ncoins    12\naddress  short"


def test_no_cell_can_drive_the_terminal() -> None:
    assert table(COLUMNS[:1], [["\x1b[2J"]], None) == "name\n\\u{1b}[2J"


@given(st.lists(st.tuples(*[st.text(max_size=60)] * 3).map(list), min_size=1, max_size=4), st.integers(22, 200))
def test_no_line_is_wider_than_the_terminal_unless_a_cell_must_stay_whole(rows: list[list[str]], width: int) -> None:
    columns = [
        TableColumn("a", min_width=5),
        TableColumn("b", align_right=True, min_width=5),
        TableColumn("c", min_width=5),
    ]
    assert all(len(line) <= width for line in table(columns, rows, width).splitlines())


@given(st.text(), st.integers(5, 80))
def test_shortened_text_keeps_both_ends(text: str, width: int) -> None:
    short = ellipsize(text, width)
    assert len(short) <= width
    assert short == text or (text.startswith(short[0]) and text.endswith(short[-1]))
