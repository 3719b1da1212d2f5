"""Fields of a response, missing and mistyped ones included."""

from collections.abc import Callable
from typing import Any

import pytest

from svcd.cli.errors import CommandError
from svcd.cli.response import ResponseObject, parse_object

ANSWER = ResponseObject(
    "account",
    {"text": "a", "number": "7", "count": 7, "object": {"x": "y"}, "list": [{}], "none": None, "texts": ["a"]},
)


def test_fields_of_every_type() -> None:
    assert ANSWER.text("text") == "a"
    assert ANSWER.number("number") == 7
    assert ANSWER.count("count") == 7
    assert ANSWER.object("object") == ResponseObject("object", {"x": "y"})
    assert ANSWER.objects("list") == [ResponseObject("list[0]", {})]
    assert ANSWER.texts("texts") == ["a"]


def test_a_null_field_counts_as_absent() -> None:
    assert "text" in ANSWER
    assert "none" not in ANSWER
    assert "other" not in ANSWER


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: ANSWER.text("gone"), "account lacks the field gone"),
        (lambda: ANSWER.text("count"), r"account\.count must be a string"),
        (lambda: ANSWER.number("count"), r"account\.count must be a decimal string"),
        (lambda: ANSWER.number("text"), r"account\.text must be a decimal string"),
        (lambda: ANSWER.count("number"), r"account\.number must be a whole JSON number"),
        (lambda: ANSWER.object("list"), "list must be a JSON object"),
        (lambda: ANSWER.object("object").object("x"), "x must be a JSON object"),
        (lambda: ANSWER.objects("object"), r"account\.object must be an array"),
        (lambda: ANSWER.objects("texts"), r"texts\[0\] must be a JSON object"),
        (lambda: ANSWER.texts("text"), r"account\.text must be an array of strings"),
        (lambda: ANSWER.texts("list"), r"account\.list must be an array of strings"),
    ],
)
def test_mistyped_fields_are_reported(read: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        read()


def test_only_objects_are_responses() -> None:
    assert parse_object(b'{"a":1}', "answer") == ResponseObject("answer", {"a": 1})
    assert parse_object(b'{"a":' + b"[" * 31 + b"]" * 31 + b"}", "answer") is not None
    assert parse_object(b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", "answer") is None
    for data in (b"", b"7", b"[]", b"{", b"\xff", b"[" * 100_000):
        assert parse_object(data, "answer") is None
