"""Strict JSON in, canonical JSON out (docs/protocol.md 2)."""

import json
import time
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain import encoding
from svcd.chain.encoding import (
    MAX_INTEGER,
    canonical,
    decimal_u53,
    exact_fields,
    hex_bytes,
    integer,
    parse_json,
    parse_wire_object,
    tagged_hash,
)
from svcd.chain.errors import Refusal, RuleViolation
from tests.chain.refusing import refuses
from tests.chains import TEST_PARAMS, ChainBuilder


def test_tagged_hash_separates_tag_and_data_by_a_zero_byte() -> None:
    assert tagged_hash("svc/tx/v2", b"data") == sha256(b"svc/tx/v2\x00data").digest()
    assert tagged_hash("ab", b"c") != tagged_hash("a", b"bc")


# Strict parsing


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


ACCEPTED: dict[str, tuple[bytes, object]] = {
    "object": (b'{"a":[1,"b",true,null]}', {"a": [1, "b", True, None]}),
    "blanks": (b' {\n\t"a" : 1\r} ', {"a": 1}),
    "2^53": (b"9007199254740992", 2**53),
    "-2^53": (b"-9007199254740992", -(2**53)),
    "zero": (b"0", 0),
    "surrogate pair": (rb'"\ud83d\ude00"', "\U0001f600"),
    "UTF-8": ('"é\U0001f600"'.encode(), "é\U0001f600"),
    "same key in two objects": (b'[{"a":1},{"a":2}]', [{"a": 1}, {"a": 2}]),
    "depth 8": (nested(8), json.loads(nested(8))),
    "depth 8 around text": ('[[[[[[[["é"]]]]]]]]'.encode(), [[[[[[[["é"]]]]]]]]),
}

TRAPS: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (b'{"a":"\xff"}', "byte 6 is not UTF-8"),
    "overlong UTF-8": (b'"\xc0\xaf"', "not UTF-8"),
    "UTF-8 of a surrogate": (b'"\xed\xa0\x80"', "not UTF-8"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    "byte order mark": (b'\xef\xbb\xbf{"a":1}', "not JSON"),
    "nothing": (b"", "not JSON"),
    "two values": (b"1 2", "not JSON: extra data at character 2"),
    "single quotes": (b"{'a':1}", "not JSON"),
    "trailing comma": (b"[1,]", "not JSON"),
    "leading zero": (b"[01]", "not JSON"),
    "plus sign": (b"[+1]", "not JSON"),
    "control character in a string": (b'"a\nb"', "not JSON"),
    "duplicate key": (b'{"a":1,"b":2,"a":1}', 'the key "a" occurs twice'),
    "nested duplicate key": (b'{"x":[{"a":1,"a":2}]}', 'the key "a" occurs twice'),
    "duplicate key by an escape": (rb'{"a":1,"\u0061":1}', 'the key "a" occurs twice'),
    "float": (
        b'{"a":1.5}',
        '1.5 is not accepted; numbers must be whole, and decimal amounts are strings such as "0.5"',
    ),
    "float that is whole": (b"[1.0]", "1.0 is not accepted"),
    "exponent": (b"[1e3]", "1e3 is not accepted"),
    "minus zero": (b"[-0]", "-0 is not accepted"),
    "minus zero as a float": (b"[-0.0]", "-0.0 is not accepted"),
    "2^53+1": (b"[9007199254740993]", "over 2^53"),
    "-2^53-1": (b"[-9007199254740993]", "over 2^53"),
    "17 digits": (b"[10000000000000000]", "over 2^53"),
    "5,000 digits": (b"1" * 5000, "over 2^53"),
    "5,000 digits and a point": (b"1" * 5000 + b".5", "is not accepted"),
    "NaN": (b"[NaN]", "NaN is not JSON"),
    "Infinity": (b"[Infinity]", "Infinity is not JSON"),
    "-Infinity": (b"[-Infinity]", "-Infinity is not JSON"),
    "lone high surrogate": (rb'"\ud800"', "surrogate"),
    "lone low surrogate": (rb'["\udfff"]', "surrogate"),
    "reversed surrogate pair": (rb'"\ude00\ud83d"', "surrogate"),
    "lone surrogate in a key": (rb'{"\ud800":1}', "surrogate"),
    "lone surrogate in a nested value": (rb'{"a":{"b":["\udc00"]}}', "surrogate"),
    "depth 9": (nested(9), "more than 8 levels"),
    "depth 9 in objects": (b'{"a":' * 9 + b"1" + b"}" * 9, "more than 8 levels"),
    "depth 100,000": (nested(100_000), "more than 8 levels"),
    "depth 100,000, never closed": (b'{"a":[' * 50_000, "more than 8 levels"),
    "arrays without end": (
        b"[" + b"[]," * 100_000 + b"[]]",
        "more arrays, objects or members than JSON of 300004",
    ),
    "objects without end": (b"[" + b"{}," * 100_000 + b"{}]", "more arrays, objects or members"),
    "numbers without end": (b"[" + b"1," * 100_000 + b"1]", "more arrays, objects or members"),
    "eight levels that are never closed": (b"[[]," + b"[" * 7, "not JSON: expecting value"),
    "depth 9 that strings conceal": (b'["]",' * 9 + b"1" + b"]" * 9, "more than 8 levels"),
    "depth 9 in objects that strings conceal": (b'{"a":"}","b":' * 9 + b"1" + b"}" * 9, "more than 8 levels"),
    "depth 1,010 that strings conceal": (b'["]",' * 1_010 + b"1" + b"]" * 1_010, "more than 8 levels"),
}


BOMB_BYTES = 2 * 1024 * 1024
BOMBS = {
    "arrays": b"[],",
    "objects": b"{},",
    "nested arrays": b"[[[]]],",
    "nested objects": b'{"a":{"b":{}}},',
    "numbers": b"1,",
    "empty strings": b'"",',
    "short members": b'{"a":1,"b":2,"c":3},',
    "strings of brackets": b'"[[[[[[[[[",',
    "never closed": b"[",
    "objects, never closed": b'{"a":',
}


@pytest.mark.parametrize("parse", [parse_json, parse_wire_object])
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_of_many_values_is_refused_before_one_is_built(name: str, parse: Callable[[bytes], object]) -> None:
    part = BOMBS[name]
    bomb = b"[" + part * (BOMB_BYTES // len(part))
    tracemalloc.start()
    try:
        with pytest.raises(RuleViolation, match=r"more than 8 levels|more arrays, objects or members"):
            parse(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * BOMB_BYTES


def test_largest_value_that_is_accepted_takes_little_memory() -> None:
    """What is just below the bound; without it, a bomb of arrays takes twenty times its size and more."""
    members = b",".join(b'"%07d":"%07d%014d"' % (number, number, number) for number in range(BOMB_BYTES // 34))
    data = b"{" + members + b"}"
    tracemalloc.start()
    try:
        assert isinstance(parse_json(data), dict)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * BOMB_BYTES


def test_full_block_of_the_shortest_transfers_is_accepted() -> None:
    maker = ChainBuilder()
    shortest = maker.transfer("alice", "b", 1, timestamp=0, nonce=0).wire
    most = TEST_PARAMS.max_block_transactions
    full = maker.block(None).wire().replace(b'"transactions":[', b'"transactions":[' + b",".join([shortest] * most))
    assert full.count(shortest) == most
    assert parse_wire_object(full) == parse_json(full)
    spread = json.dumps(parse_json(full), indent=4).encode()
    assert parse_json(spread) == parse_json(full)


@pytest.mark.parametrize("part", [b"[]", b"{}"])
def test_so_many_values_and_no_more(part: bytes) -> None:
    """1,000, one more for each 200 bytes, and the array around them."""
    assert parse_json(b"[" + b",".join([part] * 1_014) + b"]") == [json.loads(part)] * 1_014
    with refuses(Refusal.ENCODING, "more arrays, objects or members than JSON of 3046 bytes may have"):
        parse_json(b"[" + b",".join([part] * 1_015) + b"]")


def test_so_many_commas_and_no_more() -> None:
    """1,000, and one more for each 32 bytes."""
    assert parse_json(b"[" + b",".join([b"1"] * 1_067) + b"]") == [1] * 1_067
    with refuses(Refusal.ENCODING, "more arrays, objects or members"):
        parse_json(b"[" + b",".join([b"1"] * 1_068) + b"]")


@pytest.mark.parametrize("data", [b'{"a":' + nested(8) + b"}", b'{"a":[' + b"1," * 1_060 + nested(7) + b"]}"])
def test_nesting_is_found_before_an_object_is_parsed(data: bytes) -> None:
    with refuses(Refusal.ENCODING, "more than 8 levels"):
        parse_wire_object(data)


def test_an_object_that_is_too_deep_for_the_parser_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object, **__: object) -> object:
        raise RecursionError

    monkeypatch.setattr(encoding, "_decode_wire", too_deep)
    with refuses(Refusal.ENCODING, "more than 8 levels"):
        parse_wire_object(b"{}")


def test_brackets_in_strings_count_only_in_json_of_more_than_64_kib() -> None:
    data = b'["' + b"[" * 500 + b"k" * (64 * 1024 - 504) + b'"]'
    assert len(data) == 64 * 1024
    parse_json(data)
    with refuses(Refusal.ENCODING, "more than 8 levels"):
        parse_json(data + b" ")


TEXTS = ["[" * 500, "[" * 500 + "\\", "{]" * 500, "," * 5_000, '"[' * 500, "\\[" * 500, '\\"{,' * 500, "]]]][[[["]


@pytest.mark.parametrize("text", TEXTS)
def test_brackets_and_commas_in_strings_do_not_count(text: str) -> None:
    value = {"label": text, text: [{}] * 20}
    assert parse_json(canonical(value)) == value


def test_nesting_that_strings_conceal_is_found() -> None:
    with refuses(Refusal.ENCODING, "more than 8 levels"):
        parse_json(b'[[[["]]]]",' + nested(8) + b',"[[[["]]]]')


@pytest.mark.parametrize("name", ACCEPTED)
def test_strict_json_accepts(name: str) -> None:
    data, value = ACCEPTED[name]
    assert parse_json(data) == value


@pytest.mark.parametrize("name", TRAPS)
def test_strict_json_refuses(name: str) -> None:
    data, reason = TRAPS[name]
    with refuses(Refusal.ENCODING, reason):
        parse_json(data)


def test_a_refusal_does_not_repeat_all_that_was_sent() -> None:
    for data in (b"[" + b"1" * 9999 + b".0]", b'{"' + b"k" * 9999 + b'":1,"' + b"k" * 9999 + b'":1}'):
        with pytest.raises(Exception, match=r"accepted|twice") as caught:
            parse_json(data)
        assert len(str(caught.value)) < 250


LONG = "k" * 100
SENTENCES: list[tuple[bytes, str]] = [
    (b"[-0]", "-0 is not accepted; write 0"),
    (b"[9007199254740993]", "an integer over 2^53 is not accepted; amounts and heights are decimal strings"),
    (
        b"1" * 100 + b".5",
        f'{"1" * 32} is not accepted; numbers must be whole, and decimal amounts are strings such as "0.5"',
    ),
    (
        f'{{"{LONG}":1,"{LONG}":2}}'.encode(),
        f'the key "{LONG[:64]}" occurs twice in one object; a key may occur once',
    ),
    (rb'"\ud800"', "a string contains half of a surrogate pair; strings must be valid Unicode"),
    (b"[", "not JSON: expecting value at character 1"),
    # The same on every Python: from 3.13 on the json module has words of its own for these.
    (b"[1,]", "not JSON: expecting value at character 3"),
    (b'{"a":[1 , \n ]}', "not JSON: expecting value at character 12"),
    (b'{"a":1,}', "not JSON: expecting property name enclosed in double quotes at character 7"),
    (b'{"a":1 , }', "not JSON: expecting property name enclosed in double quotes at character 9"),
]


@pytest.mark.parametrize(("data", "sentence"), SENTENCES)
def test_sentences_of_strict_json(data: bytes, sentence: str) -> None:
    with pytest.raises(RuleViolation) as caught:
        parse_json(data)
    assert caught.value.detail == sentence


@pytest.mark.parametrize(
    ("message", "text", "comma", "sentence"),
    [
        ("Illegal trailing comma before end of array", "[1, ]", 2, "expecting value at character 4"),
        ("Illegal trailing comma before end of array", "[[],]", 3, "expecting value at character 4"),
        (
            "Illegal trailing comma before end of object",
            '{"a":1,}',
            6,
            "expecting property name enclosed in double quotes at character 7",
        ),
    ],
)
def test_all_python_versions_word_a_misplaced_comma_alike(
    monkeypatch: pytest.MonkeyPatch, message: str, text: str, comma: int, sentence: str
) -> None:
    def newer(*_: object, **__: object) -> object:
        raise json.JSONDecodeError(message, text, comma)

    monkeypatch.setattr(encoding, "_decode_wire", newer)
    with pytest.raises(RuleViolation) as caught:
        parse_wire_object(text.encode())
    assert caught.value.detail == f"not JSON: {sentence}"


def test_duplicate_key_behind_many_others_is_found_quickly() -> None:
    keys = [f"{number:06d}" for number in range(20_000)]
    data = ("{" + ",".join(f'"{key}":"{key * 4}"' for key in [*keys, keys[-1]]) + "}").encode()
    start = time.process_time()
    with refuses(Refusal.ENCODING, '"019999" occurs twice'):
        parse_json(data)
    assert time.process_time() - start < 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_text_is_parsed_to_the_same_value(value: object) -> None:
    assert parse_json(canonical([value])[1:-1]) == value


@given(st.dictionaries(st.text('ab\u0000\x7f"\\é', max_size=3), st.integers(-5, 5)))
def test_order_of_fields_does_not_matter(value: dict[str, int]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_canonical_text_has_no_blanks_and_sorted_keys() -> None:
    assert canonical({"b": [1, {"d": 2, "c": "é\n"}], "a": True}) == '{"a":true,"b":[1,{"c":"é\\n","d":2}]}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_canonical_text_of_no_json_value_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON compliant|surrogates not allowed"):
        canonical([value])


# RFC 8785


def jcs(vectors: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((vectors / "rfc8785_jcs.json").read_text())["vectors"]
    return found


@pytest.mark.parametrize("name", ["arrays", "french", "unicode"])
def test_rfc_8785(vectors: Path, name: str) -> None:
    vector = jcs(vectors)[name]
    assert canonical(parse_json(bytes.fromhex(vector["input_utf8_hex"]))).hex() == vector["canonical_hex"]


def test_rfc_8785_escapes(vectors: Path) -> None:
    """Where a key lies beyond the BMP, RFC 8785 sorts by UTF-16; no key of ours does, so the fields are compared."""
    vector = jcs(vectors)["weird"]
    value = parse_json(bytes.fromhex(vector["input_utf8_hex"]))
    expected = bytes.fromhex(vector["canonical_hex"])
    assert isinstance(value, dict)
    assert parse_json(expected) == value
    del value["\U0001f602"]
    assert canonical(value) == expected.replace('"\U0001f602":"Smiley",'.encode(), b"")


@pytest.mark.parametrize("name", ["structures", "values"])
def test_rfc_8785_numbers_that_are_not_whole_are_refused(vectors: Path, name: str) -> None:
    with refuses(Refusal.ENCODING, "numbers must be whole"):
        parse_json(bytes.fromhex(jcs(vectors)[name]["input_utf8_hex"]))


# Objects whose text is compared afterwards


def test_wire_object() -> None:
    assert parse_wire_object(b'{"a":[1]}') == {"a": [1]}


@pytest.mark.parametrize("data", [b"[]", b"1", b'"a"', b"null"])
def test_wire_object_is_an_object(data: bytes) -> None:
    with refuses(Refusal.ENCODING, "a JSON object is expected"):
        parse_wire_object(data)


@pytest.mark.parametrize(
    "name",
    ["not UTF-8", "byte order mark", "nothing", "float", "-0", "5,000 digits", "NaN", "Infinity", "depth 100,000"],
)
def test_wire_object_is_parsed_safely(name: str) -> None:
    data, reason = TRAPS.get(name, (b'{"a":-0}', "-0 is not accepted"))
    with refuses(Refusal.ENCODING, reason):
        parse_wire_object(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [(b"[]", "a JSON object is expected"), (b"[", "not JSON: expecting value at character 1")],
)
def test_sentences_of_wire_objects(data: bytes, sentence: str) -> None:
    with pytest.raises(RuleViolation) as caught:
        parse_wire_object(data)
    assert caught.value.detail == sentence


# Fields


def test_exact_fields() -> None:
    assert exact_fields({"a": 1, "b": 2}, frozenset("ab"), "thing") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "thing must be a JSON object"),
        (None, "thing must be a JSON object"),
        ({"a": 1}, "thing lacks the field b"),
        ({"a": 1, "b": 2, "c": 3}, 'thing has an unknown field "c"'),
        ({"a": 1, "B": 2}, 'thing has an unknown field "B"'),
        ({"a": 1, "b": 2, "\ud800": 3}, r'thing has an unknown field "\ud800"'),
        ({"a": 1, "b": 2, LONG: 3}, f'thing has an unknown field "{LONG[:64]}"'),
    ],
)
def test_other_fields_are_named(value: object, reason: str) -> None:
    with refuses(Refusal.FIELDS, reason):
        exact_fields(value, frozenset("ab"), "thing")


@pytest.mark.parametrize("text", ["0", "1", "10", "1000000000000000", "9007199254740991"])
def test_decimal_string(text: str) -> None:
    assert decimal_u53(text, "height") == int(text)


NO_DECIMALS = [
    "", "+1", "-1", "-0", " 1", "1 ", "1\n", "\n1", "01", "00", "1.0", "1e3", "1_000", "0x1", "١", "１", "1２", "²",
    "9007199254740992", "9007199254740993", "9999999999999999", "10000000000000000", "9" * 5000, "１" * 16, "None",
]  # fmt: skip


@pytest.mark.parametrize("value", [*NO_DECIMALS, 1, True, None, 1.0, b"1", ["1"], {}])
def test_no_decimal_string(value: object) -> None:
    with refuses(
        Refusal.FORMAT, 'height must be a decimal string without leading zeros, from "0" to "9007199254740991"'
    ):
        decimal_u53(value, "height")


@given(st.integers(0, MAX_INTEGER))
def test_decimal_string_of_every_number(number: int) -> None:
    assert decimal_u53(str(number), "height") == number


@pytest.mark.parametrize("size", [8, 32, 64])
def test_hex(size: int) -> None:
    assert hex_bytes("0f" * size, size, "root") == b"\x0f" * size
    assert hex_bytes("0123456789abcdef" * (size // 8), size, "root").hex() == "0123456789abcdef" * (size // 8)


@pytest.mark.parametrize("size", [8, 32, 64])
@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda text: text[:-1],
        lambda text: text[:-2],
        lambda text: text + "0",
        lambda text: text + "00",
        lambda text: text + "\n",
        lambda text: text[:-1] + "\n",
        lambda text: text[:-1] + "g",
        lambda text: text[:-1] + "０",
        lambda text: "0x" + text[2:],
        lambda text: " " + text[1:],
        lambda text: text[:-2] + " 0",
        str.encode,
        lambda text: int(text, 16),
        lambda text: None,
    ],
)
def test_no_hex(size: int, change: Any) -> None:
    with refuses(Refusal.FORMAT, f"root must be {2 * size} lower-case hex characters"):
        hex_bytes(change("0f" * size), size, "root")


@pytest.mark.parametrize("value", [0, 1, MAX_INTEGER])
def test_integer(value: int) -> None:
    assert integer(value, "version") == value


@pytest.mark.parametrize("value", [True, False, -1, MAX_INTEGER + 1, 1.0, "1", None, [1]])
def test_no_integer(value: object) -> None:
    with refuses(Refusal.FORMAT, "version must be a whole JSON number from 0 to 9007199254740991"):
        integer(value, "version")
