"""The book, the bans and the anchors on disk: one JSON file, replaced whole."""

import json
import os
from pathlib import Path
from typing import Final

from attrs import frozen
from cattrs import Converter
from twisted.logger import Logger

from svcd.p2p.book import Entry

FORMAT: Final = 1
_LOG: Final = Logger()
_CONVERTER: Final = Converter(forbid_extra_keys=True)


@frozen
class Notes:
    """What is kept between two runs."""

    format: int
    secret: str
    """The key of the book's buckets, 64 hex characters: another one would move every entry."""
    entries: list[Entry]
    anchors: list[str]
    """Two outbound peers of the last run, to be called first: an eclipse must not begin with every restart."""
    banned_until: dict[str, float]
    banned_for_good: list[str]


def load(path: Path) -> Notes | None:
    """The notes in ``path``; None where there are none, or where the file is damaged, which the log says."""
    try:
        notes = _CONVERTER.structure(json.loads(path.read_text("utf-8")), Notes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, ExceptionGroup) as error:
        _LOG.warn("{path} cannot be read, so peers are found anew: {why}", path=str(path), why=str(error))
        return None
    return notes if notes.format == FORMAT else None


def save(path: Path, notes: Notes) -> None:
    """Write the notes; a crash leaves the old ones or the new ones, never half."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(_CONVERTER.unstructure(notes), file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
