"""The types of configuration values: one class per type, whose error sentence names the accepted form.

A type is part of a field's annotation (`Annotated[int, Between(1, 64)]`); `svcd.config.loader` calls its `read`. Those
that rules of a network have too are in `svcd.chain.value_types`.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from attrs import field, frozen

from svcd.chain.value_types import BadValue, String
from svcd.ip_addresses import IPNetwork, parse_literal
from svcd.net.targets import BadTarget, Endpoint
from svcd.visible_text import BadText, check_line

_BLOCK = re.compile(r"([1-9][0-9]{0,15}):([0-9a-f]{64})", re.IGNORECASE)
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_MERCHANT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_WEB_HOST = re.compile(r"([^:]+)(?::[0-9]{1,5})?")
_MAX_SHOP_NAME = 40


@frozen
class Boolean:
    """True or false; never 0, 1 or a string."""

    def read(self, value: object) -> bool:
        """Return the flag."""
        if not isinstance(value, bool):
            raise BadValue("must be true or false, without quotes")
        return value


@frozen
class Secret:
    """A secret in one line, without characters that nobody sees."""

    def read(self, value: object) -> str:
        """Return the secret."""
        text = String().read(value)
        try:
            check_line(text)
        except BadText as error:
            raise BadValue(str(error)) from error
        return text


@frozen
class FileName:
    """The name of a file, relative or absolute; it is opened at start, not here."""

    may_be_empty: bool = field(default=False, kw_only=True)

    def read(self, value: object) -> str:
        """Return the name."""
        text = String().read(value)
        if (not text and not self.may_be_empty) or "\0" in text:
            raise BadValue("must name a file")
        return text


@frozen
class MerchantName:
    """The name of a merchant, which the node stores with each watch."""

    def read(self, value: object) -> str:
        """Return the name."""
        text = String().read(value)
        if not _MERCHANT_NAME.fullmatch(text):
            raise BadValue('must be 1 to 32 lower-case letters, digits and, between them, hyphens, such as "books"')
        return text


@frozen
class ZeroOrAtLeast:
    """0, or an integer of at least ``minimum``."""

    minimum: int

    def read(self, value: object) -> int:
        """Return the integer."""
        if type(value) is not int or not (value == 0 or self.minimum <= value < 2**53):
            raise BadValue(f"must be 0 or an integer of at least {self.minimum}, without quotes")
        return value


@frozen
class BlockAtHeight:
    """The height of a block and its hash, `HEIGHT:HASH`; empty for none."""

    def read(self, value: object) -> str:
        """Return the text, the hash in lower case."""
        text = String().read(value)
        if text and not _BLOCK.fullmatch(text):
            raise BadValue(
                "must be the height of a block, a colon and the 64 hex digits of its hash, as the explorer of a node "
                "that you trust shows them, or empty"
            )
        return text.lower()


@frozen
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: object) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.words:
            raise BadValue("must be " + " or ".join(f'"{word}"' for word in self.words))
        return value


NETWORK_FILE: Final = ".toml"
"""The end of the name of every network file, which tells it from the name of a built-in network."""


@frozen
class NetworkOrFile:
    """The name of a built-in network, or a network file."""

    names: tuple[str, ...]

    def read(self, value: object) -> str:
        """Return the text."""
        text = String().read(value)
        if text not in self.names and not text.endswith(NETWORK_FILE):
            names = ", ".join(f'"{name}"' for name in self.names)
            raise BadValue(f'must be {names}, or the file of a network, such as "festival.toml"')
        return text


@frozen
class Directory:
    """A directory, as an absolute path; a relative one is below the working directory, `~` is the user's home."""

    def read(self, value: object) -> Path:
        """Return the absolute path."""
        text = String().read(value)
        if not text:
            raise BadValue("must name a folder")
        return Path(text).expanduser().absolute()


@frozen
class BaseUrl:
    """The base URL of a node, `http(s)://host[:port]`, which a hello may carry and other nodes can call."""

    may_be_empty: bool = field(default=False, kw_only=True)

    def read(self, value: object) -> str:
        """Return the URL in its canonical form, an :class:`svcd.net.targets.Endpoint`, or ""."""
        text = String().read(value)
        if not text and self.may_be_empty:
            return text
        try:
            return Endpoint(text)
        except BadTarget as error:
            raise BadValue(error.predicate) from error


@frozen
class HostName:
    """A host name or IP address without a port, as in a Host header."""

    def read(self, value: object) -> str:
        """Return the name in lower case."""
        text = String().read(value)
        if not _is_host(text):
            raise BadValue('must be a host name or IP address without a port, such as "node.example.org"')
        return text.lower()


@frozen
class Moment:
    """A date and time with its offset from UTC, in quotes or as TOML writes one; empty for none."""

    def read(self, value: object) -> str:
        """Return the moment in UTC, such as ``2026-12-01T00:00:00Z``, or ""."""
        if value == "":
            return ""
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(String().read(value))
            if moment.tzinfo is None:
                raise ValueError
            return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError) as error:
            raise BadValue('must be a date and time with its offset, such as "2026-12-01T00:00:00Z"') from error


def unix_milliseconds(moment: str) -> int:
    """The Unix time in milliseconds of what :class:`Moment` has read; 0 for ""."""
    return int(datetime.fromisoformat(moment).timestamp()) * 1000 if moment else 0


@frozen
class WebHost:
    """A host as in an `https://` address: a host name or IPv4 address, with the port unless that is 443."""

    def read(self, value: object) -> str:
        """Return host and port in lower case."""
        text = String().read(value)
        match = _WEB_HOST.fullmatch(text)
        if match is None or not _is_host(match[1]):
            raise BadValue('must be a host as in an https:// address, such as "shop.example.org" or "localhost:8443"')
        return text.lower()


@frozen
class ShopNames:
    """The names of shops, each by the address of its recipient."""

    def read(self, value: object) -> Mapping[str, str]:
        """Return the names by address; the addresses are checked with the network."""
        if not isinstance(value, dict):
            raise BadValue('must be a table of addresses and names, such as { "svc1q…" = "Tea & Cake" }')
        for name in value.values():
            try:
                check_line(String().read(name))
            except BadText as error:
                raise BadValue(f"each name {error}") from error
            if name.strip() != name or not 1 <= len(name) <= _MAX_SHOP_NAME:
                raise BadValue(f"each name must have 1 to {_MAX_SHOP_NAME} characters, without spaces around it")
        return value


@frozen
class Cidr:
    """A range of IP addresses in CIDR notation, or a single address."""

    def read(self, value: object) -> IPNetwork:
        """Return the range."""
        try:
            return ip_network(String().read(value))
        except ValueError as error:
            raise BadValue(f'must be an address range such as "127.0.0.0/8" or "::1/128" ({error})') from error


def _is_host(text: str) -> bool:
    return parse_literal(text) is not None or (len(text) <= 253 and _HOST_NAME.fullmatch(text) is not None)
