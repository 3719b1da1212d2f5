"""Typed access to a node's JSON responses: a missing or mistyped field is an error sentence, never a KeyError."""

import json
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from svcd.chain.encoding import decimal_u53, integer
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.cli.errors import NoValidResponse

MAX_DEPTH: Final = 32
"""Nesting levels of a response, so that no recursive function exhausts the stack."""


@frozen
class ResponseObject:
    """One JSON object in a node's response; ``name`` locates it in errors. Every method raises NoValidResponse."""

    name: str
    members: Mapping[str, object]

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def value(self, name: str) -> object:
        """The field ``name``, of any type."""
        if name not in self.members:
            raise invalid_response(f"{self.name} lacks the field {name}")
        return self.members[name]

    def object(self, name: str) -> "ResponseObject":
        """The object in the field ``name``."""
        return _as_object(self.value(name), name)

    def objects(self, name: str) -> "list[ResponseObject]":
        """The array of objects in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, list):
            raise invalid_response(f"{self.name}.{name} must be an array")
        return [_as_object(item, f"{name}[{position}]") for position, item in enumerate(value)]

    def text(self, name: str) -> str:
        """The string in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, str):
            raise invalid_response(f"{self.name}.{name} must be a string")
        return value

    def texts(self, name: str) -> list[str]:
        """The array of strings in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid_response(f"{self.name}.{name} must be an array of strings")
        return value

    def number(self, name: str) -> int:
        """The decimal string in the field ``name``, as heights, amounts and times are encoded."""
        try:
            return decimal_u53(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def count(self, name: str) -> int:
        """The JSON integer in the field ``name``, as counts and confirmations are encoded."""
        try:
            return integer(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def network(self) -> NetworkParams:
        """The network whose id is in the field ``networkId``."""
        number = self.count("networkId")
        for params in NETWORKS.values():
            if params.network_id == number:
                return params
        raise invalid_response(f"{self.name} is on network {number}, which svc does not know")


def invalid_response(detail: str) -> NoValidResponse:
    """The error for a response that breaks the API in the way that ``detail`` says."""
    return NoValidResponse(f"the node does not answer as svcd does: {detail}")


def parse_object(data: bytes, name: str) -> ResponseObject | None:
    """The JSON object in ``data``; None for anything else, and for one nested deeper than ``MAX_DEPTH``."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return ResponseObject(name, value) if isinstance(value, dict) and _is_shallow(value, MAX_DEPTH) else None


def _as_object(value: object, name: str) -> ResponseObject:
    if not isinstance(value, dict):
        raise invalid_response(f"{name} must be a JSON object")
    return ResponseObject(name, value)


def _is_shallow(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in inner)
