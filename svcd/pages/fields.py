"""What pages take from their addresses, beyond what the JSON routes take too."""

import re
from typing import Final

from svcd.rpc.fields import parse_cursor, parse_height, parse_txid
from svcd.web.routing import Field, Schema

_TEXT: Final[Schema] = {"type": "string"}
_HASH: Final = re.compile("[0-9a-fA-F]{64}")
MAX_SOUGHT: Final = 128


def parse_block(text: str) -> int | bytes:
    """A block by its height or its hash; raises ValueError."""
    return bytes.fromhex(text) if _HASH.fullmatch(text) else parse_height(text)


def parse_first(text: str) -> int:
    """The position that a page of a block's transfers begins with; raises ValueError."""
    return parse_height(text)


def parse_sought(text: str) -> str:
    """What somebody looks for, without the blanks that come along when it is copied; raises ValueError."""
    if len(text) > MAX_SOUGHT:
        raise ValueError(f"nothing that can be found here has more than {MAX_SOUGHT} characters")
    return text.strip()


BLOCK: Final = Field("block", parse_block, _TEXT, "The height or the hash of a block.")
TXID: Final = Field("txid", parse_txid, _TEXT, "The transaction id.")
FIRST: Final = Field("first", parse_first, _TEXT, "Where the list begins.", required=False, default=0)
BEFORE: Final = Field("before", parse_cursor, _TEXT, "Where the list begins.", required=False)
AFTER: Final = Field("after", parse_first, _TEXT, "Where the list begins.", required=False, default=0)
SOUGHT: Final = Field("q", parse_sought, _TEXT, "What is looked for.", required=False, default="")
