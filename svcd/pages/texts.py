"""The texts of the pages: one catalogue for each language, chosen by ``Accept-Language`` (docs/pages.md "Languages").

Pages are built without a language, from :class:`Message` objects; the catalogue with which a page is rendered gives
them their texts.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from attrs import field, frozen
from twisted.web.template import Tag

from svcd.chain.params import DEFAULT_UNIT
from svcd.visible_text import decoded

DEFAULT: Final = "en"
"""The language of clients that accept none of the others."""
SCRIPT: Final = "script"
"""The section whose texts the scripts of every page need."""
COUNT: Final = "count"
"""The number that chooses between the forms of a text."""
_UNIT: Final = "unit"
"""The placeholder of what the network calls its coins."""
_FORMS: Final = ("one", "other")
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)\}")
_TAG: Final = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RANGE: Final = re.compile(
    r"[ \t]*(\*|[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)(?:[ \t]*;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?[ \t]*"
)
"""A language range and its quality (RFC 9110 section 12.5.4)."""
_SLOT: Final = re.compile(r"\{\{([a-z0-9.-]+)((?:\|[a-z]+=[^|}]*)*)\}\}")
"""A text in a static page: ``{{section.name}}``, or ``{{section.name|parameter=HTML}}``."""
_REMEMBERED: Final = 256
"""Values of ``Accept-Language``."""

Piece = Tag | str | int
Forms = Mapping[str, str]
"""The text for each form; a text without forms has only "other"."""


def grouped(number: int) -> str:
    """A number in groups of three digits, with narrow spaces; the search accepts it as well."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


@frozen
class Message:
    """A text of the catalogue, with the values of its placeholders; for an integer its digits in groups."""

    key: str
    parameters: tuple[tuple[str, "Message | Piece"], ...] = ()


def message(key: str, /, **parameters: "Message | Piece") -> Message:
    """The text ``key``, which is ``section.name``."""
    return Message(key, tuple(parameters.items()))


@frozen(eq=False)
class Catalogue:
    """The texts in one language."""

    language: str
    """The language tag (RFC 5646)."""
    texts: Mapping[str, Forms]
    unit: str = DEFAULT_UNIT
    """What the network calls its coins."""
    _for_scripts: dict[tuple[str, ...], str] = field(init=False, factory=dict)

    def pieces(self, shown: Message) -> Iterator["Tag | str | Message"]:
        """The text with the values in place of its placeholders; raises KeyError."""
        parameters = {_UNIT: self.unit, **dict(shown.parameters)}
        forms = self.texts[shown.key]
        form = "one" if "one" in forms and parameters[COUNT] == 1 else "other"
        # Every second part is the name of a placeholder.
        for index, part in enumerate(_PLACEHOLDER.split(forms[form])):
            value = parameters[part] if index % 2 else part
            yield grouped(value) if isinstance(value, int) else value

    def text(self, shown: Message) -> str:
        """A text without elements in its placeholders; raises KeyError, or TypeError for an element."""
        written = []
        for piece in self.pieces(shown):
            if isinstance(piece, Tag):
                raise TypeError(f"{shown.key} is to be plain text, and has an element in it")
            written.append(self.text(piece) if isinstance(piece, Message) else piece)
        return "".join(written)

    def fill(self, html: str) -> str:
        """A static page with its texts, escaped, in the place of ``{{section.name}}``; raises KeyError."""

        def filled(match: re.Match[str]) -> str:
            given = dict(pair.split("=", 1) for pair in match[2].split("|")[1:])
            parts = _PLACEHOLDER.split(self.texts[match[1]]["other"])
            return "".join(given[part] if index % 2 else escape(part) for index, part in enumerate(parts))

        return _SLOT.sub(filled, html)

    def for_scripts(self, *sections: str) -> str:
        """The texts of ``sections`` as JSON, in which nothing has to be escaped in HTML."""
        if sections not in self._for_scripts:
            chosen = {
                key: dict(forms) if "one" in forms else forms["other"]
                for key, forms in self.texts.items()
                if key.partition(".")[0] in sections
            }
            self._for_scripts[sections] = in_script(chosen)
        return self._for_scripts[sections]


def in_script(value: object) -> str:
    """``value`` as JSON in which nothing has to be escaped in HTML."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


class Catalogues:
    """The catalogues of all languages."""

    def __init__(self, catalogues: Iterable[Catalogue]) -> None:
        found = {each.language.lower(): each for each in catalogues}
        self._default = found[DEFAULT]
        self._by_tag = {DEFAULT: self._default, **found}
        self._chosen = lru_cache(_REMEMBERED)(self._choose)

    def __iter__(self) -> Iterator[Catalogue]:
        return iter(self._by_tag.values())

    def choose(self, accepted: bytes) -> Catalogue:
        """The catalogue for the value of ``Accept-Language``; English if the client accepts none."""
        return self._chosen(accepted)

    def _choose(self, accepted: bytes) -> Catalogue:
        matches = [_RANGE.fullmatch(part) for part in accepted.decode("latin-1").split(",")]
        ranges = [(float(match[2] or 1), match[1].lower()) for match in matches if match]
        refused = {wanted for quality, wanted in ranges if not quality}
        # The sort is stable: of equal qualities the first one counts.
        for quality, wanted in sorted(ranges, key=lambda pair: -pair[0]):
            found = self._match(wanted, refused)
            if quality and found is not None:
                return found
        return self._default

    def _match(self, wanted: str, refused: set[str]) -> Catalogue | None:
        """The catalogue for a language range: for de-AT also de (RFC 4647 section 3.4), and for pt also pt-BR."""
        if wanted == "*":
            return next((each for tag, each in self._by_tag.items() if tag not in refused), None)
        subtags = wanted.split("-")
        for length in range(len(subtags), 0, -1):
            found = self._by_tag.get("-".join(subtags[:length]))
            if found is not None:
                return found
        return next((each for tag, each in self._by_tag.items() if tag.startswith(f"{wanted}-")), None)


def load(folder: Traversable | None = None, *, unit: str = DEFAULT_UNIT) -> Catalogues:
    """The catalogues of the files ``<language tag>.json`` in ``folder``, by default those of the package.

    Raises ValueError for a file that has not the texts of English, each with the same placeholders and forms.
    """
    folder = folder or resources.files("svcd.pages") / "texts"
    found = {file.name.removesuffix(".json"): _read(file) for file in folder.iterdir() if file.name.endswith(".json")}
    if DEFAULT not in found:
        raise ValueError(f"there is no {DEFAULT}.json among the texts of the pages")
    for tag, texts in sorted(found.items()):
        if not _TAG.fullmatch(tag):
            raise ValueError(f"{tag}.json: a file of texts is named by a language tag such as de or pt-BR")
        _compare(tag, texts, found[DEFAULT])
    return Catalogues(Catalogue(tag, texts, unit) for tag, texts in sorted(found.items()))


def _read(file: Traversable) -> dict[str, Forms]:
    try:
        sections = json.loads(decoded(file.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error
    if not isinstance(sections, dict):
        raise ValueError(f"{file.name} must be an object of sections")
    texts: dict[str, Forms] = {}
    for section, entries in sections.items():
        if not _NAME.fullmatch(section) or not isinstance(entries, dict):
            raise ValueError(f"{file.name}: the section {section!r} must be an object of texts")
        for name, entry in entries.items():
            forms = {"other": entry} if isinstance(entry, str) else entry
            sound = isinstance(forms, dict) and all(isinstance(each, str) and each for each in forms.values())
            if not _NAME.fullmatch(name) or not sound or tuple(forms) not in (_FORMS, _FORMS[1:]):
                raise ValueError(f'{file.name}: {section}.{name} must be a text, or {{"one": text, "other": text}}')
            texts[f"{section}.{name}"] = forms
    return texts


def _compare(tag: str, texts: Mapping[str, Forms], model: Mapping[str, Forms]) -> None:
    for key in model.keys() ^ texts.keys():
        raise ValueError(f"{tag}.json {'has no text' if key in model else 'must not have'} {key}")
    for key, forms in texts.items():
        needed = _placeholders(model[key]["other"])
        if ("one" in model[key]) != ("one" in forms):
            raise ValueError(f"{tag}.json: {key} must have the same forms as in {DEFAULT}.json")
        for form, written in forms.items():
            optional = {COUNT} if form == "one" else set()
            if _placeholders(written) | optional != needed | optional or re.search(
                r"[{}]", _PLACEHOLDER.sub("", written)
            ):
                raise ValueError(f"{tag}.json: {key} must have exactly the placeholders {sorted(needed)}")


def _placeholders(written: str) -> set[str]:
    return set(_PLACEHOLDER.findall(written))
