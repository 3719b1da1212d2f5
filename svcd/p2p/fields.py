"""What the routes between nodes take and give, as they declare it (docs/http.md "Peers")."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.transaction import fold_case
from svcd.web.routing import Field, Schema, object_schema

MAX_BLOCKS: Final = 16
"""Blocks in one answer, so in one question too."""
MAX_PEERS: Final = 100
DEFAULT_PEERS: Final = 50
MAX_TRANSACTIONS: Final = 256
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}")

HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
DECIMAL: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}
NODE_ID: Final[Schema] = {"type": "string", "pattern": "^svcnode_[0-9a-f]{32}$"}
TEXT: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
CLAIMS: Final[Mapping[str, Schema]] = {
    "softwareVersion": TEXT,
    "protocolVersion": TEXT,
    "networkId": {"type": "integer"},
    "chainId": TEXT,
    "genesisHash": HASH,
    "nodeId": NODE_ID,
    "nodePublicKey": HASH,
    "height": DECIMAL,
    "hash": HASH,
    "timestamp": DECIMAL,
    "endpoint": TEXT,
}
HELLO: Final = object_schema({**CLAIMS, "signature": {"type": "string", "pattern": "^[0-9a-f]{128}$"}})
OBJECT: Final[Schema] = {"type": "object"}
OBJECTS: Final[Schema] = {"type": "array", "items": OBJECT}


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _NUMBER.fullmatch(text) and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"must be a whole number from {least} to {most}")

    return parse


def query_number(name: str, least: int, most: int, default: int, description: str) -> Field:
    """A whole number from ``least`` to ``most`` in the query, ``default`` where it is left out."""
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return Field(name, _number(least, most), schema, description, required=False, default=default)


FROM: Final = query_number("from", 0, MAX_INTEGER, 0, "The height of the first block.")
LIMIT: Final = query_number("limit", 1, MAX_BLOCKS, MAX_BLOCKS, "How many blocks to return at most.")
PEERS: Final = query_number(
    "limit", 1, MAX_INTEGER, DEFAULT_PEERS, "How many peers to return at most; more than 100 is 100."
)
SINCE: Final = query_number("after", 0, MAX_INTEGER, 0, "The `next` of the answer before.")
TRANSFERS: Final = query_number("limit", 1, MAX_TRANSACTIONS, MAX_TRANSACTIONS, "How many transfers to return at most.")


def _flag(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("must be true or false")


CALL_BACK: Final = Field(
    "callBack",
    _flag,
    {"type": "string", "enum": ["true", "false"], "default": "false"},
    "Whether the caller wants to be called at the endpoint of its hello, to learn whether it can be reached.",
    required=False,
    default=False,
)
GREETING: Final = Field("hello", lambda value: value, HELLO, "The signed hello of the caller.")
TRANSACTION: Final = Field("transaction", fold_case, OBJECT, "The signed transfer.")
