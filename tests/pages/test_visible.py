"""What nobody would see is written out; the scripts do the same with the same texts (js/visible.test.mjs)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.terms import UNSHOWABLE
from svcd.pages.visible import visible

TEXTS = json.loads((Path(__file__).parents[1] / "vectors" / "visible.json").read_text("utf-8"))["texts"]


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case["name"])
def test_texts(case: dict[str, str]) -> None:
    assert visible(case["text"]) == case["shown"]


@given(st.text())
def test_nothing_stays_that_turns_text_around_or_cannot_be_seen(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not set(shown) & set("\u200b\u200c\u2060\ufeff\u00ad\u3164\n")
    assert not any(c < " " or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in shown)


@given(st.from_regex(f"[{UNSHOWABLE}]", fullmatch=True))
def test_whatever_no_label_may_hold_is_written_out(odd: str) -> None:
    assert visible(f"a{odd}b") == f"a\\u{{{ord(odd):x}}}b"
