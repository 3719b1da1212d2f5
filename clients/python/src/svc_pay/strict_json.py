"""JSON in which each value has exactly one form (docs/protocol.md 2), as proofs have it."""

import json
import re
from collections.abc import Collection
from typing import Final

from svc_pay.chain import GREATEST
from svc_pay.errors import InvalidProof

_DECIMAL: Final = re.compile("0|[1-9][0-9]{0,15}")
_HEX: Final = re.compile("(?:[0-9a-f]{2})*")
_DIGITS: Final = 17


def must(truth: bool, sentence: str) -> None:
    """Raise InvalidProof with ``sentence`` unless ``truth`` holds."""
    if not truth:
        raise InvalidProof(sentence)


def strict_json(text: bytes, most: int) -> object:
    """The value of a JSON text of at most so many bytes; raises InvalidProof."""
    must(len(text) <= most, f"the answer has {len(text)} bytes, more than {most}")
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError):
        raise InvalidProof("the answer is not JSON") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    must(len(found) == len(pairs), "a key occurs twice in one object")
    return found


def _whole(text: str) -> int:
    must(len(text) <= _DIGITS and text != "-0", f"{text[:32]} is not a whole number of at most {_DIGITS} digits")
    return int(text)


def _no_number(text: str) -> object:
    raise InvalidProof(f"{text[:32]} is not a whole number")


def exact_fields(value: object, names: Collection[str], what: str) -> dict[str, object]:
    """The members of an object that has exactly these; raises InvalidProof."""
    if not isinstance(value, dict):
        raise InvalidProof(f"{what} must be an object")
    for name in value:
        must(name in names, f"{what} has the unknown member {json.dumps(name[:32])}")
    for name in names:
        must(name in value, f"{what} lacks the member {name}")
    return value


def elements(value: object, what: str) -> list[object]:
    """The elements of an array; raises InvalidProof."""
    if not isinstance(value, list):
        raise InvalidProof(f"{what} must be an array")
    return value


def decimal(value: object, what: str) -> int:
    """The number in a decimal string of at most 2^53 - 1; raises InvalidProof."""
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or int(value) > GREATEST:
        raise InvalidProof(f"{what} must be a decimal string from 0 to {GREATEST}")
    return int(value)


def whole(value: object, what: str) -> int:
    """An integer of JSON from 0 to 2^53 - 1; raises InvalidProof."""
    if type(value) is not int or not 0 <= value <= GREATEST:
        raise InvalidProof(f"{what} must be a whole number")
    return value


def hex_bytes(value: object, size: int, what: str) -> bytes:
    """The bytes of lower-case hex of so many bytes; raises InvalidProof."""
    if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
        raise InvalidProof(f"{what} must be {2 * size} lower-case hex characters")
    return bytes.fromhex(value)
