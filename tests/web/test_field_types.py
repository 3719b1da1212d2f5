"""Field types: whatever the schema describes is read, and nothing else."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from svcd.web.field_types import Bool, Choice, Custom, FieldType, Hex, Int, Names, Text, digits_up_to

MOST = 2**53 - 1
TYPES = [
    Int(0, MOST),
    Int(1, 100),
    Bool(),
    Hex(2),
    Hex(2, any_case=True),
    Text(),
    Text("a+b?"),
    Names(("true", "ab")),
    Choice(("true", "ab")),
]
EDGES = st.sampled_from(["true", "ab", "ab\n", "01", "+1", "\u0661", "100"])
STRINGS = (
    st.text(max_size=6)
    | EDGES
    | st.lists(EDGES, max_size=3).map(",".join)
    | st.from_regex("(0|-?[0-9]{1,17})|[0-9a-fA-F]{3,5}", fullmatch=True)
)
NUMBERS = st.one_of(st.integers(-1, 101), st.integers(MOST - 1, MOST + 1))
JSON = st.one_of(STRINGS, NUMBERS, st.none(), st.booleans(), st.lists(st.integers() | EDGES, max_size=3))


def outcome(parse: Any, raw: Any) -> Any:
    """What a parser makes of a value, None if it refuses it."""
    try:
        return (parse(raw),)
    except ValueError:
        return None


@given(kind=st.sampled_from(TYPES), value=JSON)
def test_a_json_value_is_read_if_the_schema_describes_it(kind: FieldType, value: Any) -> None:
    described = Draft202012Validator(dict(kind.schema)).is_valid(value)
    # In Python "$" also matches before a newline at the end; in JSON Schema it does not.
    if "pattern" in kind.schema and str(value).endswith("\n"):
        described = False
    assert (outcome(kind.parse, value) is not None) is described


@given(kind=st.sampled_from(TYPES), text=STRINGS)
def test_a_text_is_read_as_its_json_value(kind: FieldType, text: str) -> None:
    """A number or boolean in a path or a query is the text that JSON has for it."""
    value: Any = text
    if isinstance(kind, Names):
        value = text.split(",")
    if isinstance(kind, Int | Bool):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        value = value if json.dumps(value) == text else None
    assert outcome(kind.parse_text, text) == outcome(kind.parse, value)


def test_the_route_gets_a_converted_value() -> None:
    assert Hex(2, any_case=True).parse("0aFF") == b"\x0a\xff"
    assert Int(1, 100).parse_text("25") == 25
    assert Names(("a", "b")).parse_text("b,a") == {"a", "b"}
    assert Text("[0-9]-[0-9]", convert=lambda text: text.split("-")).parse("1-2") == ["1", "2"]
    assert Choice(("1", "2"), int).parse("2") == 2
    assert Custom({}).parse_text("anything") == "anything"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Int(1, 100), "must be a whole number from 1 to 100"),
        (Bool(), "must be true or false"),
        (Hex(32), "must be 64 lower-case hex characters"),
        (Hex(32, any_case=True), "must be 64 hex characters"),
        (Text(), "must be a string"),
        (Choice(("a", "b")), "must be one of a, b"),
        (Names(("a", "b")), "must be a list of one or more of a, b, each at most once"),
    ],
)
def test_the_error_says_what_is_allowed(kind: FieldType, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        kind.parse(None)


@given(most=st.integers(0, MOST) | st.sampled_from([9, 10, 99, 100, MOST]), number=st.integers(0, 2 * MOST))
def test_digits_up_to_a_number(most: int, number: int) -> None:
    pattern = re.compile(digits_up_to(most))
    for each in (number, number % (most + 2), most, most + 1, 10 * most + 9):
        assert bool(pattern.fullmatch(str(each))) is (each <= most)
        assert not pattern.fullmatch(f"0{each}")
