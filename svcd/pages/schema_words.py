"""JSON schemas of an OpenAPI document in words, for the API reference (docs/pages.md "API reference").

The text is English, as all that the document says.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field, frozen
from twisted.web.template import Tag

from svcd.pages.html import Content, tag

Schema = Mapping[str, Any]
_MARKED: Final = re.compile(r"(`[^`]+`|\*\*[^*]+\*\*)")
_REFERENCE: Final = "#/components/schemas/"
_LONG_PATTERN: Final = 60
"""Characters from which on a pattern is folded away: the description says in words what it allows."""
_PRIMITIVES: Final = {
    "string": "string",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
}
KEYWORDS: Final = frozenset(
    (
        *("$ref", "type", "properties", "required", "additionalProperties", "description", "examples", "items"),
        *("pattern", "minLength", "maxLength", "const", "minimum", "maximum", "enum", "minItems", "maxItems"),
        *("default", "not", "format", "uniqueItems", "anyOf", "oneOf"),
    )
)
"""What these functions know of a schema. `additionalProperties` is never shown: an answer has no other members."""


def inline(text: str) -> list[Content]:
    """A line of a description, in which backticks mark code and pairs of asterisks mark important words."""

    def marked(part: str) -> Tag:
        return tag("code", part.strip("`")) if part.startswith("`") else tag("strong", part.strip("*"))

    # Every second part is marked.
    return [marked(part) if at % 2 else part for at, part in enumerate(_MARKED.split(text)) if part]


def schema_anchor(name: str) -> str:
    """The id of the description of a named schema."""
    return f"schema-{name.lower()}"


@frozen
class MemberRow:
    """A member of an object: its path from the object that is described, such as ``tip`` and ``height``."""

    path: tuple[str, ...]
    schema: Schema
    required: bool
    about: str
    """Its description, and that of the named schema whose members are below it."""
    named: str = ""
    """The name of the schema that the members below this one describe; empty if they describe none with a name."""


@define
class Schemas:
    """The named schemas of a document, of which each is described in one place."""

    _named: Mapping[str, Schema]
    _uses: Counter[str] = field(init=False, factory=Counter)

    def count(self, places: Iterable[object]) -> None:
        """Count the references in ``places``, and in all named schemas that these lead to."""
        waiting: list[object] = list(places)
        while waiting:
            for name in _references(waiting.pop()):
                self._uses[name] += 1
                if self._uses[name] == 1:
                    waiting.append(self._named[name])

    def target(self, schema: Schema) -> str:
        """The name of the schema that ``schema`` refers to; empty if it refers to none."""
        return str(schema.get("$ref", "")).removeprefix(_REFERENCE)

    def resolved(self, schema: Schema) -> Schema:
        """The definition behind a reference."""
        name = self.target(schema)
        return self._named[name] if name else schema

    def apart(self) -> list[str]:
        """The names of the schemas that are described on their own: all but objects that one place alone refers to."""
        return [name for name in sorted(self._named) if self._uses[name] and not self._stands_here(name)]

    def _stands_here(self, name: str) -> bool:
        return self._uses[name] == 1 and "properties" in self._named[name]

    def rows(self, schema: Schema, path: tuple[str, ...] = ()) -> Iterator[MemberRow]:
        """The members of an object, and those of the objects in it that are not described apart, depth first."""
        required = schema.get("required", ())
        for name, member in schema.get("properties", {}).items():
            suffix, core = self._core(member)
            named = self.target(core)
            inside = self.resolved(core) if not named or self._stands_here(named) else {}
            here = (*path, name + suffix) if "properties" in inside else (*path, name)
            told = [member.get("description", ""), inside.get("description", "") if named else ""]
            about = " ".join(filter(None, told))
            yield MemberRow((*path, name), member, name in required, about, named if inside else "")
            yield from self.rows(inside, here)

    def _core(self, schema: Schema) -> tuple[str, Schema]:
        """What a list contains, with ``[]`` for each list around it, or what may be null instead."""
        if schema.get("type") == "array" and "items" in schema:
            suffix, core = self._core(schema["items"])
            return f"[]{suffix}", core
        options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
        return self._core(options[0]) if len(options) == 1 else ("", schema)

    def words(self, schema: Schema) -> list[Content]:
        """The type of a value with its limits: ``list of at most 20 Transfer``."""
        name = self.target(schema)
        if name:
            link = tag("a", name, href=f"#{schema_anchor(name)}")
            return [link, *_default(schema)]
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return joined([self.words(each) for each in schema[choice]], " or ")
        if "const" in schema:
            return ["always ", _value(schema["const"])]
        if "enum" in schema:
            return ["one of ", *joined([[_value(each)] for each in schema["enum"]], ", "), *_default(schema)]
        if schema.get("type") == "array":
            return self._list(schema)
        return [*_sized(schema), *_format(schema), *_exceptions(schema), *_default(schema), *_pattern(schema)]

    def _list(self, schema: Schema) -> list[Content]:
        size = _range(schema.get("minItems"), schema.get("maxItems"))
        once: list[Content] = [", each once"] if schema.get("uniqueItems") else []
        return [f"list of {size} " if size else "list of ", *self.words(schema.get("items", {})), *once]


def _references(value: object) -> Iterator[str]:
    """The names of the schemas to which a part of the document refers."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            if name == "$ref" and str(member).startswith(_REFERENCE):
                yield str(member).removeprefix(_REFERENCE)
            elif name not in ("example", "examples"):
                yield from _references(member)
            if name == "properties":
                # The choices of a member, or of a list, are not described below it, so it counts twice.
                cores = [each.get("items", each) for each in member.values()]
                yield from _references([core["oneOf"] for core in cores if "oneOf" in core])
    elif isinstance(value, list):
        for member in value:
            yield from _references(member)


def joined(options: Iterable[list[Content]], between: str) -> list[Content]:
    """What the ``options`` contain, with ``between`` between them."""
    found: list[Content] = []
    for at, option in enumerate(options):
        found += [between, *option] if at else option
    return found


def _value(value: object) -> Content:
    return tag("code", value if isinstance(value, str) else json.dumps(value))


def _range(least: int | None, most: int | None) -> str:
    if least and least == most:
        return str(least)
    if least and most is not None:
        return f"{least} to {most}"
    if most is not None:
        return f"at most {most}"
    return f"at least {least}" if least else ""


def _sized(schema: Schema) -> list[Content]:
    kind = str(schema.get("type", ""))
    words = _PRIMITIVES.get(kind, "any value")
    if kind in ("integer", "number"):
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None:
            words += f" from {least}" + ("" if most is None else f" to {most}")
        elif most is not None:
            words += f" up to {most}"
    size = _range(schema.get("minLength"), schema.get("maxLength"))
    return [f"{words} of {size} characters" if size else words]


def _format(schema: Schema) -> list[Content]:
    return [f" ({schema['format']})"] if "format" in schema else []


def _pattern(schema: Schema) -> list[Content]:
    pattern = schema.get("pattern")
    if pattern is None:
        return []
    if len(pattern) < _LONG_PATTERN:
        return ["; pattern ", tag("code", pattern)]
    return [tag("details", tag("summary", "Pattern"), tag("code", pattern))]


def _exceptions(schema: Schema) -> list[Content]:
    refused = schema.get("not", {})
    if "enum" in refused:
        return [", but not ", *joined([[_value(each)] for each in refused["enum"]], " or ")]
    return [", not matching ", tag("code", refused["pattern"])] if "pattern" in refused else []


def _default(schema: Schema) -> list[Content]:
    return ["; ", _value(schema["default"]), " if left out"] if "default" in schema else []
