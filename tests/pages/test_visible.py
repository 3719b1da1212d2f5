"""Invisible characters are escaped; js/visible.test.mjs runs the same cases against the scripts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.payment_request import FORBIDDEN_IN_LABEL
from svcd.pages.visible import visible

TEXTS = json.loads((Path(__file__).parents[1] / "vectors" / "visible.json").read_text("utf-8"))["texts"]


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case["name"])
def test_texts(case: dict[str, str]) -> None:
    assert visible(case["text"]) == case["shown"]


@given(st.text())
def test_no_bidi_or_invisible_character_remains(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not set(shown) & set("\u200b\u200c\u2060\ufeff\u00ad\u3164\n")
    assert not any(c < " " or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in shown)


@given(st.from_regex(f"[{FORBIDDEN_IN_LABEL}]", fullmatch=True))
def test_characters_forbidden_in_labels_are_escaped(odd: str) -> None:
    assert visible(f"a{odd}b") == f"a\\u{{{ord(odd):x}}}b"
