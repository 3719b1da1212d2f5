"""The types of the values in requests: each reads a value and describes it as a JSON schema, from the same rule."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from attrs import field, frozen

Schema = Mapping[str, object]
"""A JSON schema (draft 2020-12, as OpenAPI 3.1 uses it)."""
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,15}")


class SchemaReference(str):
    """The text of a ``$ref`` to a component of the document; it brings the component's ``definition`` along."""

    name: str
    definition: Schema

    def __new__(cls, name: str, definition: Schema) -> "SchemaReference":
        """The reference to ``definition``, which the document has as ``name``."""
        text = super().__new__(cls, f"#/components/schemas/{name}")
        text.name, text.definition = name, definition
        return text


def component(name: str, definition: Schema) -> Schema:
    """A reference to ``definition``, which the document has once, as ``name``, however often it is referred to."""
    return {"$ref": SchemaReference(name, definition)}


def constant(value: bool | int | str) -> Schema:
    """The schema of one value; with its type, which some generators of clients need."""
    types: Mapping[type, str] = {bool: "boolean", int: "integer", str: "string"}
    return {"type": types[type(value)], "const": value}


def with_example(schema: Schema, value: object) -> Schema:
    """``schema`` with an example of its own."""
    return {**schema, "examples": [value]}


def described(schema: Schema, text: str) -> Schema:
    """``schema`` with a description of its own: what a member of an object is, where its name does not say."""
    return {**schema, "description": text}


def all_described(properties: Mapping[str, Schema], texts: Mapping[str, str]) -> dict[str, Schema]:
    """``properties`` of an object with the descriptions in ``texts``, by name; raises KeyError for an unknown name."""
    return {**properties, **{name: described(properties[name], text) for name, text in texts.items()}}


def or_null(schema: Schema) -> Schema:
    """The schema of a value or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def digits_up_to(maximum: int) -> str:
    """A regular expression for the decimal digits of 0 to ``maximum``, without leading zeros and without anchors."""
    digits = str(maximum)
    shorter = ["0", f"[1-9][0-9]{{0,{len(digits) - 2}}}"][: len(digits)]
    lower = [
        f"{digits[:at]}[{minimum}-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}"
        for at, digit in enumerate(digits)
        for minimum in (1 if at == 0 else 0,)
        if int(digit) > minimum
    ]
    return f"({'|'.join([*shorter, *lower, digits])})"


class FieldType(Protocol):
    """How a value is read and described. The parsers raise ValueError with a sentence that says what is allowed."""

    @property
    def schema(self) -> Schema:
        """The JSON schema of the value."""

    def parse(self, value: Any) -> object:
        """The value of a member of a JSON body."""

    def parse_text(self, text: str) -> object:
        """The value of a text in a path or a query."""


@frozen
class Int:
    """A whole number from ``minimum`` to ``maximum``: a JSON number, or digits without leading zeros in text."""

    minimum: int
    maximum: int
    example: int | None = None

    @property
    def schema(self) -> Schema:
        """An integer with its bounds."""
        schema: Schema = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        return schema if self.example is None else with_example(schema, self.example)

    def parse(self, value: Any) -> int:
        """A JSON integer."""
        if type(value) is int and self.minimum <= value <= self.maximum:
            return value
        raise ValueError(f"must be a whole number from {self.minimum} to {self.maximum}")

    def parse_text(self, text: str) -> int:
        """Decimal digits."""
        return self.parse(int(text) if _NUMBER.fullmatch(text) else None)


@frozen
class Bool:
    """A JSON boolean; ``true`` or ``false`` in a query."""

    @property
    def schema(self) -> Schema:
        """A boolean."""
        return {"type": "boolean"}

    def parse(self, value: Any) -> bool:
        """A JSON boolean."""
        if type(value) is bool:
            return value
        raise ValueError("must be true or false")

    def parse_text(self, text: str) -> bool:
        """The word for a JSON boolean."""
        return self.parse({"true": True, "false": False}.get(text))


@frozen
class Text:
    """A string that ``pattern`` matches as a whole; the route gets what ``convert`` makes of it.

    ``rule`` is the error sentence without its subject; ``convert`` may raise ValueError with another one. ``more`` are
    further keywords of the schema, which is a component of the document if it has a ``name``.
    """

    pattern: str = ""
    rule: str = "must be a string"
    convert: Callable[[str], object] = str
    more: Schema = field(factory=dict)
    name: str = field(kw_only=True, default="")
    _regex: re.Pattern[str] = field(init=False)

    @_regex.default
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @property
    def schema(self) -> Schema:
        """A string with its pattern, which is anchored."""
        pattern = {"pattern": f"^{self.pattern}$"} if self.pattern else {}
        schema = {"type": "string", **pattern, **self.more}
        return component(self.name, schema) if self.name else schema

    def parse(self, value: Any) -> object:
        """A JSON string."""
        if type(value) is str and (not self.pattern or self._regex.fullmatch(value)):
            return self.convert(value)
        raise ValueError(self.rule)

    parse_text = parse


def Hex(size: int, *, any_case: bool = False) -> Text:  # noqa: N802
    """``size`` bytes in hex; in lower case, or in ``any_case``."""
    digits, case = ("0-9a-fA-F", "") if any_case else ("0-9a-f", "lower-case ")
    example = {"examples": ["0123456789abcdef" * (size // 8)]}
    return Text(f"[{digits}]{{{2 * size}}}", f"must be {2 * size} {case}hex characters", bytes.fromhex, example)


@frozen
class Choice:
    """One of ``allowed``; the route gets what ``convert`` makes of it."""

    allowed: tuple[str, ...]
    convert: Callable[[str], object] = str
    name: str = field(kw_only=True, default="")
    """Of the component of the document; "" for none."""

    @property
    def schema(self) -> Schema:
        """An enumeration of strings."""
        schema = {"type": "string", "enum": list(self.allowed)}
        return component(self.name, schema) if self.name else schema

    def parse(self, value: Any) -> object:
        """A JSON string."""
        if type(value) is str and value in self.allowed:
            return self.convert(value)
        raise ValueError(f"must be one of {', '.join(self.allowed)}")

    parse_text = parse


@frozen
class Names:
    """One or more of ``allowed``, each at most once: a list in JSON, with commas in a path or a query."""

    allowed: tuple[str, ...]
    name: str = field(kw_only=True, default="")
    """Of the component that one name of the list is; "" for none."""
    example: tuple[str, ...] = field(kw_only=True, default=())

    @property
    def one(self) -> Choice:
        """The type of one name."""
        return Choice(self.allowed, name=self.name)

    @property
    def schema(self) -> Schema:
        """A list of distinct strings."""
        schema: Schema = {"type": "array", "items": self.one.schema, "minItems": 1, "uniqueItems": True}
        return with_example(schema, list(self.example)) if self.example else schema

    def parse(self, value: Any) -> frozenset[str]:
        """A JSON list."""
        if type(value) is list and value and all(type(name) is str and name in self.allowed for name in value):
            names = frozenset(value)
            if len(names) == len(value):
                return names
        raise ValueError(f"must be a list of one or more of {', '.join(self.allowed)}, each at most once")

    def parse_text(self, text: str) -> frozenset[str]:
        """Names with commas between them."""
        return self.parse(text.split(","))


@frozen
class Custom:
    """A value whose rule is elsewhere: ``schema`` describes it, ``parse`` reads it; by default the route checks it.

    A test must compare ``schema`` and ``parse`` at their edges.
    """

    schema: Schema
    parse: Callable[[Any], object] = lambda value: value

    def parse_text(self, text: str) -> object:
        """The same for a text."""
        return self.parse(text)
