"""How pages are declared: as routes whose answers are HTML."""

from collections.abc import Mapping
from typing import Final

from svcd.web.routing import Field, Route, Schema

_TEXT: Final[Mapping[int, Schema]] = {200: {"type": "string"}}


def page(
    path: str,
    summary: str,
    *,
    path_fields: tuple[Field, ...] = (),
    query_fields: tuple[Field, ...] = (),
    cost: float = 2,
) -> Route:
    """A page at ``path``, which draws from the same bucket as reads of JSON do."""
    return Route(
        "GET",
        path,
        summary,
        bucket="read",
        answers=_TEXT,
        path_fields=path_fields,
        query_fields=query_fields,
        cost=cost,
        media_type="text/html",
    )
