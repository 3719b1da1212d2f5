"""Where a node listens, in Twisted's notation: kind and arguments (twisted.internet.endpoints.serverFromString)."""

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

_FIRST_ARGUMENTS: Final = {
    "tcp": ("port", "interface"),
    "tcp6": ("port", "backlog", "interface"),
    "unix": ("address", "mode"),
    "ssl": ("port", "privateKey", "certKey"),
    "systemd": ("domain", "index"),
}
_TLS_ARGUMENTS: Final = frozenset(("privateKey", "certKey", "extraCertChain", "sslmethod", "dhParameters"))
# A backslash quotes the next character, which then neither ends an argument nor its name.
_ARGUMENT: Final = re.compile(r"(?:^|:)((?:\\.|[^\\:])*)", re.DOTALL)
_NAMED: Final = re.compile(r"((?:\\.|[^\\=])*)=(.*)", re.DOTALL)
_BACKLOG: Final = 50
"""Twisted's own default."""


@frozen
class EndpointDescription:
    """A server endpoint such as `tcp:8645:interface=127.0.0.1`, and its parts.

    A `systemd:` endpoint may have the arguments of TLS, too, which Twisted knows only for `ssl:`.
    """

    kind: str
    arguments: Mapping[str, str]
    """By name, even those that the description gives without a name."""
    for_twisted: tuple[str, ...]
    """What Twisted can parse: the description or, of a `systemd:` one with the arguments of TLS, the inherited socket
    and an `ssl:` endpoint with these arguments."""

    @classmethod
    def parse(cls, endpoint: str) -> "EndpointDescription":
        """Parse a description; a backslash quotes the next character. Any text has parts, "" and a wrong one too."""
        kind, *written = _ARGUMENT.findall(endpoint)
        arguments, unnamed = dict[str, str](), iter(_FIRST_ARGUMENTS.get(kind, ()))
        tls: list[str] = []
        for argument in written:
            named = _NAMED.fullmatch(argument)
            name, value = named.groups() if named else (next(unnamed, ""), argument)
            arguments[_unquoted(name)] = _unquoted(value)
            if named and name in _TLS_ARGUMENTS:
                tls.append(argument)
        for_twisted: tuple[str, ...] = (endpoint,)
        if kind == "systemd" and tls:
            inherited = ":".join([kind, *(each for each in written if each not in tls)])
            for_twisted = inherited, ":".join(["ssl", "0", *tls])
        return cls(_unquoted(kind), arguments, for_twisted)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.kind == "ssl" or "privateKey" in self.arguments

    @property
    def interface(self) -> str:
        """The IP address of a TCP port; "" is every address of IPv4."""
        return self.arguments.get("interface", "::" if self.kind == "tcp6" else "")

    @property
    def backlog(self) -> int:
        """How many connections wait in the kernel until they are accepted."""
        return int(self.arguments.get("backlog", _BACKLOG))

    @property
    def port(self) -> int | None:
        """The number of a TCP port; None for other kinds."""
        return int(self.arguments["port"]) if self.kind in ("tcp", "tcp6", "ssl") else None


def _unquoted(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
