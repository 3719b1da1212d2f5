"""Places in a JSON value, and other values for them: what a node says, changed member by member."""

from collections.abc import Iterator
from typing import Any, Final

DELETED: Final = object()
"""The value of a place that is to be missing."""
Place = tuple[str | int, ...]
"""The keys that lead to a member or an element."""


def places(value: object, below: Place = ()) -> Iterator[tuple[Place, object]]:
    """Every member and element with its value, at all levels."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*below, key), item
        yield from places(item, (*below, key))


def put(members: dict[str, Any], place: Place, value: object) -> None:
    """Put a value in a place; a list may have become shorter than when the place was found, and stays as it is then."""
    *way, last = place
    target: Any = members
    for key in way:
        if isinstance(target, list) and len(target) <= int(key):
            return
        target = target[key]
    if isinstance(target, list) and len(target) <= int(last):
        return
    if value is DELETED:
        del target[last]
    else:
        target[last] = value
