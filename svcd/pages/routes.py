"""How a page declares its route, and the fields that only pages have; the others are in ``rpc/fields.py``."""

import re
from collections.abc import Mapping
from typing import Final

from svcd.rpc.fields import HEIGHT_TYPE
from svcd.web.field_types import Schema, Text
from svcd.web.routes import Field, Route

_HTML: Final[Mapping[int, Schema]] = {200: {"type": "string"}}
_HASH: Final = re.compile("[0-9a-fA-F]{64}")
MAX_SEARCH_TEXT: Final = 128


def parse_block(text: str) -> int | bytes:
    """The height or the 32-byte hash of a block; raises ValueError."""
    if _HASH.fullmatch(text):
        return bytes.fromhex(text)
    try:
        return HEIGHT_TYPE.parse_text(text)
    except ValueError:
        raise ValueError(f"must be a height from 0 to {HEIGHT_TYPE.most} or a hash of 64 hex characters") from None


def parse_search_text(text: str) -> str:
    """The text to search for, without surrounding white space; raises ValueError."""
    if len(text) > MAX_SEARCH_TEXT:
        raise ValueError(f"a search text has at most {MAX_SEARCH_TEXT} characters")
    return text.strip()


BLOCK: Final = Field("block", Text(convert=parse_block), "The height or the hash of a block.")
FIRST: Final = Field("first", HEIGHT_TYPE, "Where the list begins.", default=0)
AFTER: Final = Field("after", HEIGHT_TYPE, "Where the list begins.", default=0)
SEARCH_TEXT: Final = Field("q", Text(convert=parse_search_text), "The text to search for.", default="")


def page(
    path: str,
    summary: str,
    *,
    path_fields: tuple[Field, ...] = (),
    query_fields: tuple[Field, ...] = (),
    cost: float = 2,
) -> Route:
    """The route of a page at ``path``; it draws ``cost`` tokens from the bucket of the JSON reads."""
    return Route(
        "GET",
        path,
        summary,
        bucket="read",
        answers=_HTML,
        path_fields=path_fields,
        query_fields=query_fields,
        cost=cost,
        media_type="text/html",
    )
