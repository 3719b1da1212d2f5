"""Strict JSON in, canonical JSON out, domain-separated hashes (docs/protocol.md 2)."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from math import isfinite
from typing import Final, NoReturn

from .errors import Refusal, RuleViolation

MAX_INTEGER: Final = 2**53 - 1
"""The largest height, slot, nonce, amount or time on the wire."""

MAX_JSON_INTEGER: Final = 2**53
MAX_DEPTH: Final = 8
"""Levels of nesting in JSON."""
FREE_VALUES: Final = 1_000
"""The number of arrays and objects, and of commas, that JSON of any size may have."""
CONTAINER_BYTES: Final = 200
"""One further array or object is allowed for each of so many bytes: the shortest transfer has two in 453 bytes."""
MEMBER_BYTES: Final = 32
"""One further comma is allowed for each of so many bytes: the shortest transfer has eleven in 453 bytes."""

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_TRAILING_COMMA: Final = {
    "Illegal trailing comma before end of array": "expecting value",
    "Illegal trailing comma before end of object": "expecting property name enclosed in double quotes",
}
_HEX: Final = {n: re.compile(f"[0-9a-f]{{{2 * n}}}") for n in (8, 32, 64)}


def tagged_hash(tag: str, data: bytes) -> bytes:
    """SHA-256 of ``ascii(tag) 00 data``: 32 bytes that no other tag can give."""
    return sha256(tag.encode("ascii") + b"\0" + data).digest()


# json.dumps with options builds a new encoder for every call.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def canonical(value: object) -> bytes:
    """The one canonical JSON text of ``value`` (RFC 8785 for objects with ASCII keys, strings, integers and arrays)."""
    return _encode(value).encode("utf-8")


def _refuse(detail: str) -> NoReturn:
    raise RuleViolation(Refusal.ENCODING, detail)


def _syntax_error(error: json.JSONDecodeError) -> str:
    """The error and its position, in the words of Python 3.11; 3.13 and newer word a trailing comma differently."""
    wanted = _TRAILING_COMMA.get(error.msg)
    if wanted is None:
        return f"{error.msg.lower()} at character {error.pos}"
    # The newer ones point at the comma, the older ones at the bracket behind it.
    bracket = next(at for at in range(error.pos + 1, len(error.doc)) if error.doc[at] in "]}")
    return f"{wanted} at character {bracket}"


def _integer(text: str) -> int:
    if text == "-0":
        _refuse("-0 is not accepted; write 0")
    if len(text) > 17 or abs(int(text)) > MAX_JSON_INTEGER:
        _refuse("an integer over 2^53 is not accepted; amounts and heights are decimal strings")
    return int(text)


def _fraction(text: str) -> float:
    if not isfinite(float(text)):
        _refuse(f"{text[:32]} is too large for a number")
    return float(text)


def _float(text: str) -> NoReturn:
    _refuse(f'{text[:32]} is not accepted; numbers must be whole, and decimal amounts are strings such as "0.5"')


def _constant(text: str) -> NoReturn:
    _refuse(f"{text} is not JSON; numbers must be whole")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        _refuse(f"the key {json.dumps(twice[:64])} occurs twice in one object; a key may occur once")
    return found


def _walk(values: Iterable[object], levels: int, most: int) -> None:
    """Raise RuleViolation(ENCODING) for half of a surrogate pair in ``values``, and for more than ``levels`` below."""
    for value in values:
        if isinstance(value, str):
            if not value.isascii() and re.search("[\ud800-\udfff]", value):
                _refuse("a string contains half of a surrogate pair; strings must be valid Unicode")
        elif isinstance(value, dict | list):
            if not levels:
                _too_deep(most)
            _walk([*value, *value.values()] if isinstance(value, dict) else value, levels - 1, most)


def _too_deep(most: int) -> NoReturn:
    _refuse(f"the JSON is nested more than {most} levels deep")


_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_MARKS: Final = bytes(sorted(set(range(256)) - set(b"[]{},")))
_STRING: Final = re.compile(rb'"[^"]*"')
_FREE_TEXT_BYTES: Final = 64 * 1024


def _check_structure(data: bytes) -> None:
    """Raise RuleViolation(ENCODING) if JSON is nested too deep, or has far more values than is usual for its size.

    An array takes two bytes on the wire and fifty times as many in memory, so this looks at the bytes alone, before any
    value is built, and need not tell JSON from what is none. Brackets and commas in strings do not count, but in JSON
    of more than 64 KiB, which is made of blocks and transfers and has none of either there. Brackets in strings may
    conceal nesting, which is left to the parser.
    """
    size = len(data)
    excess = _excess(data, size)
    if excess is not None and size <= _FREE_TEXT_BYTES:
        excess = _excess(_STRING.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b"")), size)
    if excess is not None:
        _refuse(excess)


def _excess(data: bytes, size: int) -> str | None:
    """The limit that ``data``, a part of JSON of ``size`` bytes, exceeds, as a sentence; None if it exceeds none."""
    marks = data.translate(_BRACKETS, _NO_MARKS)
    containers = marks.count(b"[")
    most_containers = FREE_VALUES + size // CONTAINER_BYTES
    most_commas = FREE_VALUES + size // MEMBER_BYTES
    if containers > MAX_DEPTH:
        # Above the limit, the first ones suffice to find the right sentence.
        brackets = marks[: 2 * most_containers + most_commas].translate(None, b",")
        for _ in range(MAX_DEPTH):
            brackets = brackets.replace(b"[]", b"")
        if b"[]" in brackets or brackets.count(b"[") > MAX_DEPTH:
            return f"the JSON is nested more than {MAX_DEPTH} levels deep"
    if containers > most_containers or marks.count(b",") > most_commas:
        return f"the JSON has more arrays, objects or members than JSON of {size} bytes may have"
    return None


_decode: Final[Callable[[str], object]] = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
).decode
_decode_fractions: Final[Callable[[str], object]] = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_int=_integer, parse_constant=_constant
).decode
_decode_wire: Final[Callable[[str], object]] = json.JSONDecoder(
    parse_float=_float, parse_int=_integer, parse_constant=_constant
).decode


def _decoded(data: bytes, decode: Callable[[str], object], levels: int = MAX_DEPTH) -> object:
    try:
        return decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        _refuse(f"byte {error.start} is not UTF-8; JSON must be UTF-8")
    except json.JSONDecodeError as error:
        _refuse(f"not JSON: {_syntax_error(error)}")
    except RecursionError:
        _too_deep(levels)


def parse_json(data: bytes, *, counted: bool = True, fractions: bool = False, levels: int = MAX_DEPTH) -> object:
    """The value of the strict JSON ``data``.

    Raises RuleViolation(ENCODING) for anything but strict UTF-8, for duplicate keys, floats, NaN, ``-0``, integers over
    2^53, lone surrogates, more than ``levels`` of nesting and far more values than is usual for its size. The last
    only if ``counted``; a client does not count, because lists of a node have many small values. With ``fractions``,
    finite floats are accepted: the operator's answers have them.
    """
    if counted:
        _check_structure(data)
    value = _decoded(data, _decode_fractions if fractions else _decode, levels)
    if not (_is_plain(data) and data.count(b"{") + data.count(b"[") <= levels):
        _walk([value], levels, levels)
    return value


def _is_plain(data: bytes) -> bool:
    """Whether no string in JSON ``data`` can hold half of a surrogate pair, as in every transfer."""
    return data.isascii() and b"\\" not in data


def parse_wire_object(data: bytes) -> dict[str, object]:
    """The object in ``data`` for callers that compare the whole canonical text afterwards.

    That comparison refuses duplicate keys, blanks, floats and escapes, so this parser need only be safe, and is
    several times faster than :func:`parse_json`. Raises RuleViolation(ENCODING).
    """
    _check_structure(data)
    value = _decoded(data, _decode_wire)
    if type(value) is not dict:
        _refuse("a JSON object is expected")
    return value


def exact_fields(value: object, fields: frozenset[str], what: str) -> dict[str, object]:
    """``value`` as an object with exactly ``fields``; raises RuleViolation(FIELDS) that names the odd one."""
    if type(value) is not dict:
        raise RuleViolation(Refusal.FIELDS, f"{what} must be a JSON object")
    if value.keys() != fields:
        unknown = sorted(value.keys() - fields)
        if unknown:
            raise RuleViolation(Refusal.FIELDS, f"{what} has an unknown field {json.dumps(unknown[0][:64])}")
        raise RuleViolation(Refusal.FIELDS, f"{what} lacks the field {min(fields - value.keys())}")
    return value


def decimal_u53(value: object, what: str) -> int:
    """The integer 0 … 2^53−1 in a decimal string without leading zeros; raises RuleViolation(FORMAT)."""
    if type(value) is str and _DECIMAL.fullmatch(value):
        number = int(value)
        if number <= MAX_INTEGER:
            return number
    raise RuleViolation(
        Refusal.FORMAT, f'{what} must be a decimal string without leading zeros, from "0" to "{MAX_INTEGER}"'
    )


def hex_bytes(value: object, size: int, what: str) -> bytes:
    """The ``size`` bytes (8, 32 or 64) in a lower-case hex string; raises RuleViolation(FORMAT)."""
    if type(value) is str and _HEX[size].fullmatch(value):
        return bytes.fromhex(value)
    raise RuleViolation(Refusal.FORMAT, f"{what} must be {2 * size} lower-case hex characters")


def integer(value: object, what: str) -> int:
    """A JSON integer that is no boolean; raises RuleViolation(FORMAT)."""
    if type(value) is int and 0 <= value <= MAX_INTEGER:
        return value
    raise RuleViolation(Refusal.FORMAT, f"{what} must be a whole JSON number from 0 to {MAX_INTEGER}")
