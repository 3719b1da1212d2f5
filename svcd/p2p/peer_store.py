"""The book, the bans and the anchors on disk: one JSON file, replaced whole."""

import json
import os
import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, Final

from attrs import evolve, frozen
from cattrs import Converter, transform_error
from twisted.logger import Logger

from svcd.net.endpoint import Endpoint
from svcd.net.targets import BadTarget
from svcd.p2p.address_book import Entry
from svcd.p2p.bans import KINDS, Ban, end_of, endpoint_name

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
    anchors: list[Endpoint]
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
    notes = _CONVERTER.structure(_with_endpoints_only(value), Notes)
    if notes.format != FORMAT:
        raise ValueError(f"its format must be {FORMAT}, not {notes.format}")
    if not _SECRET.fullmatch(notes.secret):
        raise ValueError("its secret must be 64 lower-case hex characters")
    for ban in notes.bans:
        if ban.name.partition(":")[0] not in KINDS or (ban.until is None and not ban.own):
            raise ValueError(f"{ban.name!r} must be the name of a ban, and only the operator's have no end")
    return evolve(notes, entries=_one_of_each(notes.entries), bans=_in_canonical_form(notes.bans))


def _with_endpoints_only(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` without entries and anchors that no node can be called at, which earlier versions took for endpoints.

    Strangers choose what is a hint, so one of those must not make the whole file count as damaged.
    """
    kept = dict(value)
    for name, text_of in (("entries", _endpoint_of), ("anchors", lambda anchor: anchor)):
        if type(kept.get(name)) is list:
            kept[name] = [each for each in kept[name] if _may_be_endpoint(text_of(each))]
    return kept


def _endpoint_of(entry: Any) -> object:
    return entry.get("endpoint") if type(entry) is dict else None


def _may_be_endpoint(value: object) -> bool:
    """Whether the converter is to judge it: it is the text of an endpoint, or no text at all."""
    try:
        return type(value) is not str or bool(Endpoint(value))
    except BadTarget:
        return False


def _one_of_each(entries: list[Entry]) -> list[Entry]:
    """The entries, of several spellings of one endpoint the one that is verified, or was seen last."""
    found: dict[Endpoint, Entry] = {}
    for entry in entries:
        other = found.setdefault(entry.endpoint, entry)
        if (entry.verified, entry.last_seen) > (other.verified, other.last_seen):
            found[entry.endpoint] = entry
    return list(found.values())


def _in_canonical_form(bans: list[Ban]) -> list[Ban]:
    """The bans with each endpoint in its canonical spelling; of several spellings the longest ban stands."""
    found: dict[tuple[str, bool], Ban] = {}
    for ban in bans:
        kind, _, text = ban.name.partition(":")
        if kind == "endpoint":
            if not _may_be_endpoint(text):
                continue
            ban = evolve(ban, name=endpoint_name(text))
        other = found.setdefault((ban.name, ban.own), ban)
        if end_of(ban) > end_of(other):
            found[ban.name, ban.own] = ban
    return list(found.values())


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
    converter.register_structure_hook(Endpoint, lambda value, _: Endpoint(_exactly(str)(value, str)))
    return converter


_CONVERTER: Final = _converter()


def save(path: Path, notes: Notes) -> None:
    """Write the notes; a crash leaves the old ones or the new ones, never half."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # Unlike json.dump, which takes three times as long, json.dumps encodes in C.
        file.write(json.dumps(_CONVERTER.unstructure(notes)))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
