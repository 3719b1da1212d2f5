"""Tables that fit the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from svcd.wallet.grid import Column, grid, shortened

COLUMNS = (Column("name"), Column("coins", right=True), Column("address", least=9))
ROWS = [["tea", "2.5", "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"], ["cake", "12", "short"]]


def test_as_wide_as_it_is() -> None:
    assert grid(COLUMNS, ROWS, None) == (
        "name  coins  address\ntea     2.5  svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc\ncake     12  short"
    )


def test_long_cells_lose_their_middle() -> None:
    assert grid(COLUMNS, ROWS, 30) == ("name  coins  address\ntea     2.5  svcd1qq...y0c0qcc\ncake     12  short")


def test_where_nothing_fits_each_row_gets_lines() -> None:
    assert grid(COLUMNS, ROWS[1:], 15) == "name     cake\ncoins    12\naddress  short"


def test_no_cell_can_drive_the_terminal() -> None:
    assert grid(COLUMNS[:1], [["\x1b[2J"]], None) == "name\n\\x1b[2J"


@given(st.lists(st.tuples(*[st.text(max_size=60)] * 3).map(list), min_size=1, max_size=4), st.integers(22, 200))
def test_no_line_is_wider_than_the_terminal_unless_a_cell_must_stay_whole(rows: list[list[str]], width: int) -> None:
    columns = [Column("a", least=5), Column("b", right=True, least=5), Column("c", least=5)]
    assert all(len(line) <= width for line in grid(columns, rows, width).splitlines())


@given(st.text(), st.integers(5, 80))
def test_what_is_shortened_keeps_both_ends(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) <= width
    assert short == text or (text.startswith(short[0]) and text.endswith(short[-1]))
