"""The book, the bans and the anchors on disk: one JSON file, replaced whole."""

import json
import os
import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from cattrs import Converter, transform_error
from twisted.logger import Logger

from svcd.p2p.bans import KINDS, Ban
from svcd.p2p.book import Entry
from svcd.p2p.hello import is_endpoint

FORMAT: Final = 2
_LOG: Final = Logger()
_SECRET: Final = re.compile("[0-9a-f]{64}")


@frozen
class Notes:
    """What is kept between two runs."""

    format: int
    secret: str
    """The key of the book's buckets, 64 hex characters: another one would move every entry."""
    entries: list[Entry]
    anchors: list[str]
    """Two outbound peers of the last run, to be called first: an eclipse must not begin with every restart."""
    bans: list[Ban]


def load(path: Path) -> Notes | None:
    """The notes in ``path``; None where there are none, or where the file is damaged, which the log says."""
    try:
        return _read(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    except ExceptionGroup as errors:
        why = "; ".join(transform_error(errors))
    _LOG.warn("{path} cannot be read, so peers are found anew: {why}", path=str(path), why=why)
    return None


def _read(text: str) -> Notes:
    value = json.loads(text)
    if type(value) is not dict:
        raise ValueError("it must be a JSON object")
    notes = _CONVERTER.structure(value, Notes)
    if notes.format != FORMAT:
        raise ValueError(f"its format must be {FORMAT}, not {notes.format}")
    if not _SECRET.fullmatch(notes.secret):
        raise ValueError("its secret must be 64 lower-case hex characters")
    for endpoint in (*notes.anchors, *(entry.endpoint for entry in notes.entries)):
        if not is_endpoint(endpoint):
            raise ValueError(f"{endpoint!r} must be the endpoint of a node")
    for ban in notes.bans:
        if ban.name.partition(":")[0] not in KINDS or (ban.until is None and not ban.own):
            raise ValueError(f"{ban.name!r} must be the name of a ban, and only the operator's have no end")
    return notes


def _exactly(*kinds: type) -> Callable[[Any, object], Any]:
    """Takes values of these types as they are: a converter's own way is to make anything fit."""

    def take(value: Any, _: object) -> Any:
        if type(value) in kinds and (type(value) is not float or isfinite(value)):
            return value
        raise ValueError(f"{value!r:.50} must be of another type")

    return take


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _exactly(float, int))
    return converter


_CONVERTER: Final = _converter()


def save(path: Path, notes: Notes) -> None:
    """Write the notes; a crash leaves the old ones or the new ones, never half."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(_CONVERTER.unstructure(notes), file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
