"""Members of answers: given when they are what they must be, a sentence when not."""

from collections.abc import Callable
from typing import Any

import pytest

from svcd.wallet.answer import Answer, parse_object
from svcd.wallet.failed import Failed

ANSWER = Answer(
    "account",
    {"text": "a", "number": "7", "count": 7, "object": {"x": "y"}, "list": [{}], "none": None, "texts": ["a"]},
)


def test_members_of_every_kind() -> None:
    assert ANSWER.text("text") == "a"
    assert ANSWER.number("number") == 7
    assert ANSWER.count("count") == 7
    assert ANSWER.object("object") == Answer("object", {"x": "y"})
    assert ANSWER.objects("list") == [Answer("list[0]", {})]
    assert ANSWER.texts("texts") == ["a"]


def test_a_member_that_is_null_counts_as_absent() -> None:
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
def test_members_that_are_something_else(read: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        read()


def test_only_an_object_is_an_answer() -> None:
    assert parse_object(b'{"a":1}', "answer") == Answer("answer", {"a": 1})
    assert parse_object(b'{"a":' + b"[" * 31 + b"]" * 31 + b"}", "answer") is not None
    assert parse_object(b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", "answer") is None
    for data in (b"", b"7", b"[]", b"{", b"\xff", b"[" * 100_000):
        assert parse_object(data, "answer") is None
