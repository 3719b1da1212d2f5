"""What is announced of a request's fields is what is taken, at the edges too."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from svcd.chain.address import decode_address, encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.node.demand import MAX_BLOCKS, MAX_DEPTH
from svcd.rpc import fields, operator, payment_fields, schemas
from svcd.web.routing import Field

NUMBERS = ["", "-1", "0", "00", "01", "1", "+1", "1.0", "25", "100", "101", str(MAX_INTEGER), str(MAX_INTEGER + 1), "x"]
HEX = ["", "0" * 63, "0" * 64, "0" * 65, "f" * 64, "F" * 64, "g" * 64, " " + "0" * 63]
IN_PATHS_AND_QUERIES = (fields.HEIGHT, fields.LIMIT, fields.BEFORE, fields.TXID, payment_fields.CONFIRMATIONS_TEXT)
JSON: list[Any] = [None, True, False, "1", "", [], {}, 1.5, 0, 1, -1]
REFERENCES = ["", "a", "Az09._:-", ".", "..", "...", "x" * 64, "x" * 65, "a b", "a/b", "\u00e9", "%41"]
LABELS = ["a", "x" * 80, "x" * 81, "\u00e9", "\U0001f4b0" * 80, "\U0001f4b0" * 81, "a\x00", "\u202e", "\u2066", "\x85"]
COINS = ["1", "1.0", "0.00000001", "1.000000001", "01", ".5", "5.", "1e3", "+1", "", "1" * 8 + "." + "1" * 8, "1,5"]


def is_announced(field: Field, value: Any) -> bool:
    """Whether ``value`` fits the schema; a number in a path or query is the text that JSON has for it."""
    if field in IN_PATHS_AND_QUERIES and field.schema["type"] == "integer":
        if not re.fullmatch("0|-?[1-9][0-9]*", value):
            return False
        value = int(value)
    return bool(Draft202012Validator(dict(field.schema)).is_valid(value))


def is_taken(field: Field, value: Any) -> bool:
    try:
        field.parse(value)
    except (ValueError, RuleViolation):
        return False
    return True


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (fields.HEIGHT, NUMBERS),
        (fields.LIMIT, NUMBERS),
        (fields.BEFORE, ["0-0", "1-", "-1", "01-0", "0-01", "9" * 16 + "-0", "9" * 17 + "-0", "0-" + "9" * 17, ""]),
        (fields.TXID, HEX),
        (payment_fields.REFERENCE, [*REFERENCES, *JSON]),
        (payment_fields.NEW_REFERENCE, [*REFERENCES, *JSON]),
        (payment_fields.AMOUNT, [*COINS, 25, None, True]),
        (payment_fields.AMOUNT_BASE_UNITS, ["1", "007", "0" * 80 + "1", str(MAX_INTEGER), "0", "000", "1" * 17]),
        (payment_fields.AMOUNT_BASE_UNITS, ["1", "1.0", "-1", "", " 1", 1, None, "1" * 65]),
        (payment_fields.CONFIRMATIONS, [*JSON, 12, 1000, 1001]),
        (payment_fields.CONFIRMATIONS_TEXT, [*NUMBERS, "1000", "1001"]),
        (payment_fields.LABEL, [*LABELS, None, 5, True]),
        (payment_fields.SINCE_HEIGHT, ["0", "00", "01", "-1", "+1", "1.0", "x", str(MAX_INTEGER), "9" * 17, *JSON]),
        (operator._BLOCKS, [*JSON, MAX_BLOCKS, MAX_BLOCKS + 1]),
        (operator._DEPTH, [*JSON, MAX_DEPTH, MAX_DEPTH + 1]),
        (operator._DROP, JSON),
        (operator._PRODUCER, [*HEX, *JSON]),
    ],
    ids=lambda value: value.name if isinstance(value, Field) else "",
)
def test_what_is_announced_is_what_is_taken(field: Field, values: list[Any]) -> None:
    announced = [value for value in values if is_announced(field, value)]
    assert announced == [value for value in values if is_taken(field, value)]
    assert 0 < len(announced) < len(values)


@pytest.mark.parametrize("prefix", ["svc", "svcd"])
@pytest.mark.parametrize("schema", [schemas.ADDRESS, fields.ADDRESS.schema])
def test_what_is_announced_of_addresses(prefix: str, schema: dict[str, Any]) -> None:
    """All but the checksum, which no pattern can tell."""
    right = encode_address(bytes(range(20)), prefix)
    wrong = [right[:-1], right + "q", right.upper(), right.replace("1q", "1p"), right[:-1] + "b", f"{prefix}1q", ""]
    assert Draft202012Validator(schema).is_valid(right)
    for text in wrong:
        assert not Draft202012Validator(schema).is_valid(text)
        with pytest.raises(RuleViolation):
            decode_address(text, prefix)
