"""Elements, text formats and charts: properties for any text and any number."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.web.template import Tag, flattenString

from svcd.chain.errors import RuleViolation
from svcd.pages.html import (
    ago,
    amount,
    bare_amount,
    copy_button,
    duration,
    grouped,
    link,
    scaled,
    shortened,
    tag,
    utc,
)
from svcd.pages.layout import flattened
from svcd.pages.routes import parse_typed_amount
from svcd.pages.texts import load, message
from tests.pages.reading import Document

ENGLISH = load().choose(b"")
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=60)


@given(TEXT)
def test_any_text_survives_escaping(text: str) -> None:
    inside = tag("p", text, link(text, "tx", text), copy_button(text, "it"), title=text)
    page = Document("<!DOCTYPE html>\n" + flattened(tag("html", tag("body", inside)), ENGLISH).decode())
    assert page.visible.strip("\n") == (text * 2).strip("\n")
    assert page.all("p")[0]["title"] == page.all("button")[0]["data-copy"] == text
    assert [name for name, _ in page.elements] == ["html", "body", "p", "a", "button", "span"]
    assert page.inner_links


ELEMENTS = st.recursive(
    st.text(max_size=20),
    lambda inside: st.builds(
        lambda name, attributes, children: tag(name, *children, **attributes),
        st.sampled_from(["p", "td", "script", "img", "br", "input", "option"]),
        st.dictionaries(st.sampled_from(["class_", "data_copy", "title"]), st.text(max_size=20)),
        st.lists(inside, max_size=3),
    ),
)


@given(ELEMENTS)
def test_elements_are_written_as_twisted_writes_them(element: Tag | str) -> None:
    root = tag("div", element)
    written: list[bytes] = []
    flattenString(None, root).addCallback(written.append)
    assert [flattened(root)] == written


@pytest.mark.parametrize(
    "root",
    [
        tag("p", ENGLISH),  # type: ignore[arg-type]
        tag("p", b"bytes"),  # type: ignore[arg-type]
        tag("p", title=tag("b")),  # type: ignore[arg-type]
        tag("p", title=message("search.no-match", text=tag("b"))),
    ],
)
def test_other_content_is_refused(root: Tag) -> None:
    with pytest.raises(TypeError):
        flattened(root, ENGLISH)


def test_a_message_needs_a_catalogue() -> None:
    for root in (tag("p", message("frame.copy")), tag("p", title=message("frame.copy"))):
        with pytest.raises(TypeError):
            flattened(root)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0, "just now"),
        (1, "1 second ago"),
        (59, "59 seconds ago"),
        (60, "1 minute ago"),
        (7_199, "1 hour ago"),
        (86_400 * 3, "3 days ago"),
        (-5, "in a moment"),
        (-600, "later"),
    ],
)
def test_relative_times(seconds: int, says: str) -> None:
    assert ENGLISH.text(ago(1_000_000_000, 1_000_000_000 + seconds * 1000)) == says


def test_absolute_times_are_in_utc() -> None:
    assert utc(1_793_491_200_000) == "2026-11-01 00:00:00 UTC"


@given(TEXT)
def test_shortened_text_keeps_both_ends(text: str) -> None:
    short = shortened(text)
    assert len(short) <= 19
    assert short == text or (short[:8], short[-8:]) == (text[:8], text[-8:])


@given(st.integers(0, 2**256))
def test_scaled_numbers_are_short(number: int) -> None:
    text = scaled(number)
    assert len(text) <= 9 or number >= 10**21
    assert text.split(" ")[0].replace(".", "").isdigit()


@pytest.mark.parametrize(
    ("number", "text"), [(7, "7"), (999, "999"), (1_000, "1.00 k"), (1_253_999, "1.25 M"), (123_456_789, "123 M")]
)
def test_large_numbers(number: int, text: str) -> None:
    assert scaled(number) == text


def test_numbers_in_groups_and_spans() -> None:
    assert grouped(1_399_999).split("\N{NARROW NO-BREAK SPACE}") == ["1", "399", "999"]
    assert [duration(seconds) for seconds in (10, 119, 120, 7_200)] == ["10 s", "119 s", "2 min", "2 h"]
    group, unit = '<span class="group">{}</span>', '<span class="unit">SVC</span>'
    for units, digits in [
        (1, "0.000|000|01"),
        (12_345_678, "0.123|456|78"),
        (123_400_000_000, "1|234"),
        (1_234_500_000_000, "12|345"),
        (9_007_199_254_740_991, "90|071|992.547|409|91"),
        (250_000_000, "2.5"),
    ]:
        first, *rest = digits.split("|")
        expected = f'<span class="amount">{first}{"".join(group.format(each) for each in rest)} {unit}</span>'
        assert flattened(amount(units), ENGLISH).decode() == expected
        assert flattened(bare_amount(units)).decode() == expected.replace(f" {unit}", "")


VECTORS = Path(__file__).parents[1] / "vectors"
TYPED = json.loads((VECTORS / "typed_amounts.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "units"), TYPED["read"].items())
def test_a_typed_amount_may_have_a_comma_where_it_cannot_mean_thousands(text: str, units: str) -> None:
    assert parse_typed_amount(text, "SVC") == int(units)


@pytest.mark.parametrize("text", ["2.5 Token", "2.5\N{NO-BREAK SPACE}Token", "2,5Token", "2.5"])
def test_a_typed_amount_may_have_the_unit_of_the_network_behind_it(text: str) -> None:
    assert parse_typed_amount(text, "Token") == 250_000_000
    with pytest.raises(RuleViolation):
        parse_typed_amount("2.5 SVC", "Token")


@pytest.mark.parametrize("text", TYPED["refused"])
def test_a_typed_amount_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(RuleViolation):
        parse_typed_amount(text, "SVC")
