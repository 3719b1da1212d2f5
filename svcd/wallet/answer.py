"""Reading what a node answers: a member that is absent or of another type is a sentence, never a KeyError."""

import json
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from svcd.chain.encoding import decimal_u53, integer
from svcd.chain.errors import RuleViolation
from svcd.wallet.failed import Unanswered

MAX_DEPTH: Final = 32
"""Levels of objects and arrays in an answer: no function that walks through it runs out of stack."""


@frozen
class Answer:
    """One JSON object of a node's answer; ``name`` says in sentences where it stands. Its methods raise Unanswered."""

    name: str
    members: Mapping[str, object]

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def value(self, name: str) -> object:
        """The member ``name``, which must be there."""
        if name not in self.members:
            raise wrong(f"{self.name} lacks the field {name}")
        return self.members[name]

    def object(self, name: str) -> "Answer":
        """The object in the member ``name``."""
        return as_object(self.value(name), name)

    def objects(self, name: str) -> "list[Answer]":
        """The objects in the array in the member ``name``."""
        value = self.value(name)
        if not isinstance(value, list):
            raise wrong(f"{self.name}.{name} must be an array")
        return [as_object(item, f"{name}[{position}]") for position, item in enumerate(value)]

    def text(self, name: str) -> str:
        """The string in the member ``name``."""
        value = self.value(name)
        if not isinstance(value, str):
            raise wrong(f"{self.name}.{name} must be a string")
        return value

    def texts(self, name: str) -> list[str]:
        """The strings in the array in the member ``name``."""
        value = self.value(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise wrong(f"{self.name}.{name} must be an array of strings")
        return value

    def number(self, name: str) -> int:
        """The number in the member ``name``: a decimal string, as heights, amounts and times are."""
        try:
            return decimal_u53(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise wrong(violation.detail) from None

    def count(self, name: str) -> int:
        """The number in the member ``name``: a JSON integer, as counts and confirmations are."""
        try:
            return integer(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise wrong(violation.detail) from None


def wrong(detail: str) -> Unanswered:
    """The failure that a node's answer with ``detail`` wrong is."""
    return Unanswered(f"the node does not answer as svcd does: {detail}")


def as_object(value: object, name: str) -> Answer:
    """``value`` as an object; raises Unanswered."""
    if not isinstance(value, dict):
        raise wrong(f"{name} must be a JSON object")
    return Answer(name, value)


def parse_object(data: bytes, name: str) -> Answer | None:
    """The JSON object in ``data``, or None if there is none or it is nested deeper than any node's answer."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return Answer(name, value) if isinstance(value, dict) and _is_shallow(value, MAX_DEPTH) else None


def _is_shallow(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in inner)
