"""What a node says: JSON that all programs read alike, with every text shown visibly, about what was asked for.

A node, or a proxy in front of it, chooses each byte of an answer. Nothing else in svcd.cli reads the JSON of one:
a text leaves a :class:`ResponseObject` as :meth:`~ResponseObject.text` shows it, as an identifier of a known form, or
as JSON in ASCII.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from svcd.chain.encoding import decimal_u53, integer, parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.cli.errors import NoValidResponse
from svcd.visible_text import visible

if TYPE_CHECKING:
    from svcd.chain.transaction import Transfer

MAX_DEPTH: Final = 16
"""Levels of nesting; an svcd node sends nine at most, and no recursive function exhausts the stack."""
MAX_TEXT: Final = 4_096
"""Characters of a text that is shown; the longest one of an svcd node, a URL, has half as many."""

_CURSOR: Final = re.compile("[0-9A-Za-z_-]{1,100}")
_HEX: Final = re.compile("[0-9a-f]{64}")
_SIGNED: Final = "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()


def invalid_response(detail: str) -> NoValidResponse:
    """The error for a response that breaks the API in the way that ``detail`` says."""
    return NoValidResponse(f"the node does not answer as svcd does: {detail}")


@frozen
class Verbatim:
    """A part of an answer that only :func:`dumps` can read."""

    _value: object = field(repr=False)


@frozen
class ResponseObject:
    """One JSON object in a node's response; ``name`` locates it in errors. Every method raises NoValidResponse."""

    name: str
    _members: Mapping[str, object] = field(repr=False)

    def __contains__(self, name: str) -> bool:
        return self._members.get(name) is not None

    def _value(self, name: str) -> object:
        if name not in self._members:
            raise invalid_response(f"{self.name} lacks the field {name}")
        return self._members[name]

    def text(self, name: str) -> str:
        """The string in the field ``name``, with what is invisible in it escaped (:mod:`svcd.visible_text`)."""
        value = self._value(name)
        if not isinstance(value, str):
            raise invalid_response(f"{self.name}.{name} must be a string")
        return _shown(value, f"{self.name}.{name}")

    def texts(self, name: str) -> list[str]:
        """The array of strings in the field ``name``, each as :meth:`text` has it."""
        value = self._value(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid_response(f"{self.name}.{name} must be an array of strings")
        return [_shown(item, f"{self.name}.{name}") for item in value]

    def shown(self) -> dict[str, object]:
        """All members at all levels, with each name and each string as :meth:`text` has it."""
        return {_shown(name, self.name): _all_shown(value, self.name) for name, value in self._members.items()}

    def identifier(self, name: str, form: "re.Pattern[str]", words: str) -> str:
        """The string in the field ``name``, all of which has this form, named by ``words``: for paths and commands."""
        value = self._value(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise invalid_response(f"{self.name}.{name} must be {words}")
        return value

    def hash(self, name: str) -> str:
        """The 32 bytes in hex in the field ``name``."""
        return self.identifier(name, _HEX, "64 lower-case hex digits")

    def cursor(self) -> str | None:
        """Where the page after this one of a list begins; None for the last page."""
        return self.identifier("next", _CURSOR, "the position of a page") if "next" in self else None

    def number(self, name: str) -> int:
        """The decimal string in the field ``name``, as heights, amounts and times are encoded."""
        try:
            return decimal_u53(self._value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def count(self, name: str) -> int:
        """The JSON integer in the field ``name``, as counts and confirmations are encoded."""
        try:
            return integer(self._value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def quantity(self, name: str) -> int | float:
        """The JSON number in the field ``name``, whole or not."""
        value = self._value(name)
        if type(value) is int or type(value) is float:
            return value
        raise invalid_response(f"{self.name}.{name} must be a number")

    def flag(self, name: str) -> bool:
        """The truth value in the field ``name``."""
        value = self._value(name)
        if not isinstance(value, bool):
            raise invalid_response(f"{self.name}.{name} must be true or false")
        return value

    def network(self, networks: Iterable[NetworkParams]) -> NetworkParams:
        """The one of ``networks`` whose id is in the field ``networkId``."""
        number = self.count("networkId")
        for params in networks:
            if params.network_id == number:
                return params
        raise invalid_response(
            f"{self.name} is on network {number}, which svc does not know without its file (--network)"
        )

    def transfer(self, params: NetworkParams) -> "Transfer":
        """The transfer of this network whose fields the object has, but for the check of its signature."""
        # What reads transfers takes longer to import than most commands run.
        from svcd.chain.transaction import parse_transfer

        try:
            return parse_transfer({name: self._value(name) for name in _SIGNED}, params)
        except RuleViolation as violation:
            raise invalid_response(f"{self.name}: {violation.detail}") from None

    def check(self, **asked: object) -> None:
        """Raise NoValidResponse unless fields have the values that were ``asked`` for: it would be about another thing.

        A value of None means that the object must not have the field.
        """
        for name, value in asked.items():
            found = self._members.get(name)
            if type(found) is not type(value) or found != value:
                wrong = "is there, and was not requested" if value is None else f"is not {value!r}, which was requested"
                raise invalid_response(f"{self.name}.{name} {wrong}")

    def verbatim(self, name: str) -> Verbatim:
        """The field ``name`` for :func:`dumps`, None if it is absent."""
        return Verbatim(self._members.get(name))

    def with_members(self, members: Mapping[str, object]) -> "ResponseObject":
        """The object with these members besides its own, or in the place of them."""
        return evolve(self, members={**self._members, **members})

    def only(self, names: Collection[str]) -> "ResponseObject":
        """The object without members of other names, for one that is kept: those may take any memory."""
        return evolve(self, members={name: value for name, value in self._members.items() if name in names})

    # Last, because the rest of the class would take its name for that of the type.

    def object(self, name: str) -> "ResponseObject":
        """The object in the field ``name``."""
        return _as_object(self._value(name), name)

    def objects(self, name: str) -> "list[ResponseObject]":
        """The array of objects in the field ``name``."""
        value = self._value(name)
        if not isinstance(value, list):
            raise invalid_response(f"{self.name}.{name} must be an array")
        return [_as_object(item, f"{name}[{position}]") for position, item in enumerate(value)]


def dumps(value: object, *, indent: int | None = None) -> str:
    """JSON in ASCII of a value in which objects of a node may be, on one line without ``indent``.

    Programs get what the node says unchanged. A terminal gets it escaped, since JSON in ASCII has neither control
    characters nor invisible ones.
    """
    return json.dumps(value, indent=indent, separators=None if indent else (",", ":"), default=_content)


def _content(value: object) -> object:
    if isinstance(value, ResponseObject):
        return value._members
    if isinstance(value, Verbatim):
        return value._value
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _shown(text: str, where: str) -> str:
    """The one way of a node's text to people."""
    if len(text) > MAX_TEXT:
        raise invalid_response(f"{where} has {len(text)} characters, more than {MAX_TEXT}")
    return visible(text)


def _all_shown(value: object, where: str) -> object:
    if isinstance(value, dict):
        return {_shown(name, where): _all_shown(item, where) for name, item in value.items()}
    if isinstance(value, list):
        return [_all_shown(item, where) for item in value]
    return _shown(value, where) if isinstance(value, str) else value


def _as_object(value: object, name: str) -> ResponseObject:
    if not isinstance(value, dict):
        raise invalid_response(f"{name} must be a JSON object")
    return ResponseObject(name, value)


def parse_object(data: bytes, name: str) -> ResponseObject:
    """The JSON object in ``data``; raises NoValidResponse for anything but JSON that all programs read alike."""
    try:
        value = parse_json(data, counted=False, fractions=True, levels=MAX_DEPTH)
    except RuleViolation as violation:
        raise NoValidResponse(violation.detail) from None
    if not isinstance(value, dict):
        raise NoValidResponse(f"{name} must be a JSON object")
    return ResponseObject(name, value)
