"""Charts stay in their frame, and their axes end at short numbers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.pages.charts import HEIGHT, WIDTH, Series, bar_chart, line_chart, round_top, seconds_top, values_table

VALUES = st.lists(st.integers(0, 2**64), min_size=1, max_size=100)


def series(values: list[int]) -> Series:
    readings = [f"Block {index}: {value}" for index, value in enumerate(values)]
    return Series(heading="Heading", values=values, readings=readings, note="note", first="first", last="last")


def drawing(text: str, kind: str) -> str:
    (path,) = re.findall(rf'<path class="{kind}" d="([^"]*)">', text)
    return str(path)


@given(VALUES)
def test_bars_stay_within_their_frame(values: list[int]) -> None:
    text = bar_chart(series(values), mark=5, top=20, axis=str)
    heights = [float(part.split("h")[0]) for part in drawing(text, "bars").split("v-")[1:]]
    assert len(heights) == sum(value > 0 for value in values)
    assert all(0 < height <= HEIGHT for height in heights)
    assert text.count("<title>") == len(values)
    assert "<span>20</span><span>10</span><span>0</span>" in text
    assert f"M0 75.00H{WIDTH}" in drawing(text, "mark")


@given(VALUES)
def test_lines_stay_within_their_frame(values: list[int]) -> None:
    text = line_chart(series(values), axis=str)
    points = [float(number) for number in re.findall(r"[0-9.]+", drawing(text, "line"))]
    assert len(points) == 4 * len(values)
    assert all(0 <= x <= WIDTH for x in points[::2])
    assert all(0 <= y <= HEIGHT for y in points[1::2])
    assert all(f"Block {index}: {value}</title>" in text for index, value in enumerate(values))


def test_text_in_charts_is_escaped() -> None:
    odd = Series(heading="<h>", values=[1], readings=['<r>"'], note="<n>&", first="<f>", last="<l>")
    text = bar_chart(odd, top=2, axis=lambda _: "<a>") + values_table(["<c>"], [["<v>"]], caption="<t>")
    assert not re.search("<[^>]*<|<(?:h|r|n|f|l|a|c|v|t)>|&(?!lt;|gt;|amp;|quot;)", text)


@given(st.integers(0, 2**64))
def test_an_axis_ends_just_above_the_most(most: int) -> None:
    top = round_top(most)
    assert most <= top <= max(2 * most, 2)
    assert top % 2 == 0
    assert len(str(top // 2).rstrip("0")) == 1


@given(st.integers(0, 2**40))
def test_an_axis_of_time_ends_just_above_the_most(most: int) -> None:
    assert most <= seconds_top(most) <= max(3 * most, 172_800 if most > 86_400 else 10)


@pytest.mark.parametrize(
    ("most", "top"), [(0, 2), (1, 2), (3, 4), (7, 8), (9, 10), (11, 20), (95, 100), (1_999, 2_000)]
)
def test_ends_of_axes(most: int, top: int) -> None:
    assert round_top(most) == top
