"""What the chain routes take from a request, each with the sentence that says what would be right (docs/http.md)."""

import re
from typing import Any, Final

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.transaction import fold_case
from svcd.rpc import schemas
from svcd.web.routing import Field

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_TXID: Final = re.compile(r"[0-9a-fA-F]{64}")
_CURSOR: Final = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})")
NEWEST: Final = (MAX_INTEGER, MAX_INTEGER)
"""A place after every transfer."""


def parse_height(text: str) -> int:
    """A height in a path; raises ValueError."""
    if _NUMBER.fullmatch(text) and int(text) <= MAX_INTEGER:
        return int(text)
    raise ValueError(f"a height is a whole number from 0 to {MAX_INTEGER} without sign or leading zeros")


def parse_txid(text: str) -> bytes:
    """A transaction id in upper or lower case; raises ValueError."""
    if _TXID.fullmatch(text):
        return bytes.fromhex(text)
    raise ValueError("a transaction id is 64 hex characters")


def parse_limit(text: str) -> int:
    """A page's length; raises ValueError."""
    if _NUMBER.fullmatch(text) and 1 <= int(text) <= 100:
        return int(text)
    raise ValueError("must be a whole number from 1 to 100")


def parse_cursor(text: str) -> tuple[int, int]:
    """Where a page begins, as the page before it said; raises ValueError."""
    match = _CURSOR.fullmatch(text)
    if match:
        return int(match[1]), int(match[2])
    raise ValueError("must be the `next` of the page before, such as 120-3")


def parse_transaction(value: Any) -> object:
    """A signed transaction as a wallet may send it: public key and signature in either case."""
    return fold_case(value)


HEIGHT: Final = Field(
    "height", parse_height, {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}, "The height; the genesis is 0."
)
ADDRESS: Final = Field("address", str, schemas.ADDRESS, "An address of this node's network.")
TXID: Final = Field("txid", parse_txid, {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}, "The transaction id.")
LIMIT: Final = Field(
    "limit",
    parse_limit,
    {"type": "integer", "minimum": 1, "maximum": 100, "default": 25},
    "How many transfers to return at most.",
    required=False,
    default=25,
)
BEFORE: Final = Field(
    "before",
    parse_cursor,
    {"type": "string", "pattern": "^(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})$"},
    "The `next` of the page before.",
    required=False,
    default=NEWEST,
)
TRANSACTION: Final = Field(
    "transaction", parse_transaction, schemas.SIGNED_TRANSACTION, "The signed transfer to broadcast."
)
