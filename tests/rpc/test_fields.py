"""Fields whose rule stands in chain or commerce: schema and parser agree, at the edges too."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from svcd.chain.address import decode_address, encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.rpc import fields, operator_routes
from svcd.web.routes import Field
from tests.web.examples import inlined

JSON: list[Any] = [None, True, False, "1", "", [], {}, 1.5, 0, 1, -1]
REFERENCES = ["", "a", "Az09._:-", ".", "..", "...", "x" * 64, "x" * 65, "a b", "a/b", "\u00e9", "%41"]
LABELS = ["a", "x" * 80, "x" * 81, "\u00e9", "\U0001f4b0" * 80, "\U0001f4b0" * 81, "a\x00", "\u202e", "\u2066", "\x85"]
MOST = [str(MAX_INTEGER), str(MAX_INTEGER + 1), "1" * 17]
COINS = [
    "1",
    "1.0",
    "0",
    "0.0",
    "0.00000001",
    "1.000000001",
    "01",
    ".5",
    "5.",
    "1e3",
    "+1",
    "",
    "1" * 8 + "." + "1" * 8,
    "1,5",
]


def is_read(field: Field, value: Any) -> bool:
    try:
        field.type.parse(value)
    except (ValueError, RuleViolation):
        return False
    return True


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (fields.BEFORE, ["0-0", "1-", "-1", "01-0", "0-01", "9" * 16 + "-0", "9" * 17 + "-0", "0-" + "9" * 17, ""]),
        (fields.REFERENCE, [*REFERENCES, *JSON]),
        (fields.AMOUNT, [*COINS, "1" * 8 + "." + "1" * 8, 25, None, True]),
        (
            fields.AMOUNT_BASE_UNITS,
            ["1", "007", "0" * 80 + "1", "0", "000", *MOST],
        ),
        (fields.AMOUNT_BASE_UNITS, ["1", "1.0", "-1", "", " 1", 1, None, "1" * 65]),
        (fields.LABEL, [*LABELS, None, 5, True]),
        (
            fields.SINCE_HEIGHT,
            ["0", "00", "01", "-1", "+1", "1.0", "x", *MOST, *JSON],
        ),
        (operator_routes.PATH, ["/a", "a", "", "./a", "/a\0", "/" * 4_000, "/" * 4_001, *JSON]),
    ],
    ids=lambda value: value.name if isinstance(value, Field) else "",
)
def test_schema_and_parser_of_a_custom_field_agree(field: Field, values: list[Any]) -> None:
    described = [value for value in values if Draft202012Validator(inlined(field.schema)).is_valid(value)]
    assert described == [value for value in values if is_read(field, value)]
    assert 0 < len(described) < len(values)


@pytest.mark.parametrize("prefix", ["svc", "svcd"])
@pytest.mark.parametrize("schema", [inlined(fields.ADDRESS.schema)])
def test_the_published_schema_of_addresses(prefix: str, schema: dict[str, Any]) -> None:
    """All but the checksum, which no pattern can tell."""
    right = encode_address(bytes(range(20)), prefix)
    wrong = [right[:-1], right + "q", right.upper(), right.replace("1q", "1p"), right[:-1] + "b", f"{prefix}1q", ""]
    assert Draft202012Validator(schema).is_valid(right)
    for text in wrong:
        assert not Draft202012Validator(schema).is_valid(text)
        with pytest.raises(RuleViolation):
            decode_address(text, prefix)
