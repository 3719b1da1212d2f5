"""Reads JSON objects of a node; unknown members are ignored, and a missing or malformed one raises InvalidAnswer."""

import re
from collections.abc import Mapping
from typing import Final

from svc_pay._svcd.chain.address import decode_address
from svc_pay._svcd.chain.encoding import decimal_u53, integer, parse_json
from svc_pay._svcd.chain.errors import RuleViolation
from svc_pay._svcd.chain.units import format_amount
from svc_pay._svcd.visible_text import shown
from svc_pay.errors import InvalidAnswer

_HASH: Final = re.compile("[0-9a-f]{64}")
_PREFIX: Final = re.compile("([a-z]{2,8})1")


class Members:
    """The members of a JSON object."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise InvalidAnswer(f"{where} must be an object")
        self.raw: Mapping[str, object] = value
        self._where = where

    @classmethod
    def of(cls, body: bytes, where: str) -> "Members":
        """The members of the object in a JSON text, which is strict: docs/protocol.md 2 says what that refuses."""
        try:
            return cls(parse_json(body, counted=False), where)
        except RuleViolation as violation:
            raise InvalidAnswer(f"{where} is not the JSON of a node: {violation.detail}") from None

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def object(self, name: str) -> "Members":
        """An object."""
        return Members(self.raw.get(name), f"{name} in {self._where}")

    def objects(self, name: str) -> "list[Members]":
        """An array of objects."""
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "an array")
        return [Members(each, f"each of {name} in {self._where}") for each in value]

    def texts(self, name: str) -> list[str]:
        """An array of strings."""
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, "an array of strings")
        return value

    def text(self, name: str) -> str:
        """A string."""
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A string; None if it is null or absent."""
        return self.text(name) if name in self else None

    def hash(self, name: str) -> str:
        """A txid, or the hash of a block: 64 lower-case hex digits."""
        value = self.raw.get(name)
        if not isinstance(value, str) or not _HASH.fullmatch(value):
            raise self._wrong(name, "64 lower-case hex digits")
        return value

    def hash_or_none(self, name: str) -> str | None:
        """The same; None if it is null or absent."""
        return self.hash(name) if name in self else None

    def address(self, name: str, like: str | None = None) -> str:
        """An address of the network of the address ``like``; without that, of any network."""
        value = self.text(name)
        begin = _PREFIX.match(value if like is None else like)
        try:
            decode_address(value, begin[1] if begin else "svc", name)
        except RuleViolation:
            raise self._wrong(name, "an address of the network") from None
        return value

    def one_of(self, name: str, *known: str) -> str | None:
        """One of some words; None if it is null or absent."""
        value = self.raw.get(name)
        if value is not None and value not in known:
            raise self._wrong(name, f"null or one of {', '.join(known)}")
        return None if value is None else str(value)

    def amount(self, name: str = "amount") -> int:
        """An amount in base units; if the object has it in coins, too, both are the same."""
        units, coins = self.number(name), self.raw.get(f"{name}Svc")
        if coins is not None and coins != format_amount(units):
            raise InvalidAnswer(f"{name} and {name}Svc in {self._where} must be the same")
        return units

    def sentence(self, name: str) -> str:
        """A string for a person to read: what is invisible in it is escaped, and it has at most 1,000 characters."""
        return shown(self.text(name))

    def sentence_or_none(self, name: str) -> str | None:
        """The same; None if it is null or absent."""
        return self.sentence(name) if name in self else None

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.raw.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def count(self, name: str) -> int:
        """A JSON integer."""
        try:
            return integer(self.raw.get(name), f"{name} in {self._where}")
        except RuleViolation as violation:
            raise InvalidAnswer(violation.detail) from None

    def number(self, name: str) -> int:
        """The integer in a decimal string."""
        try:
            return decimal_u53(self.raw.get(name), f"{name} in {self._where}")
        except RuleViolation as violation:
            raise InvalidAnswer(violation.detail) from None

    def number_or_none(self, name: str) -> int | None:
        """The integer in a decimal string; None if it is null or absent."""
        return self.number(name) if name in self else None

    def _wrong(self, name: str, form: str) -> InvalidAnswer:
        return InvalidAnswer(f"{name} in {self._where} must be {form}")
