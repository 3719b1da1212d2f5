"""Which URLs may be called: one strict parser, and one canonical form of what it parsed.

Programs disagree about what an odd URL means: full-width digits, other dots, a backslash, ``+443`` as a port, ``127.1``
as an address. So a URL is parsed once, here; unusual forms are refused, and nothing uses the original string again.
:class:`Endpoint` is the parsed base URL of a node.
"""

import re
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from attrs import evolve, field, frozen

from svcd.ip_addresses import Address, parse_literal
from svcd.net.addresses import text_of

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_BAD_PORTS: Final = frozenset(
    map(
        int,
        "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 "
        "123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 "
        "990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 "
        "10080".split(),
    )
)
"""The Fetch standard's bad ports: a server of another protocol could take an HTTP request for its own commands."""

CALLBACK_NETWORKS: Final = "[commerce.webhooks] callbackNetworks"
"""The setting that admits callbacks to private networks."""
_PRIVATE_NAMES: Final = ("localhost", "local", "internal", "home.arpa")
_NO_NAMES: Final = ("onion",)
"""Never looked up in the DNS (RFC 7686)."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)(.*)")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
"""Every host that the URL standard parses as an IPv4 address, valid or not."""
_TO_BE_ENCODED: Final = re.compile(r'["<>\[\]^`{|}]')
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_EMPTY_PART: Final = re.compile(r"[^?]*;(?:\?.*)?|[^?]*\?")
"""A ``;`` at the end of the path or an empty query; twisted.web.client leaves them out of the request."""


class BadTarget(ValueError):
    """A URL may not be called; the text is a sentence for its author: ``subject`` and ``predicate``.

    ``category`` names the wrong part of the URL.
    """

    def __init__(self, category: str, subject: str, predicate: str) -> None:
        super().__init__(f"{subject} {predicate}")
        self.category = category
        self.predicate = predicate


def _is_path(_target: object, _attribute: object, path: str) -> None:
    if not _PATH.fullmatch(path) or _EMPTY_PART.fullmatch(path):
        raise ValueError("a path begins with / and has neither odd characters nor empty parts")


@frozen
class Target:
    """A parsed URL; made by :meth:`Rules.parse`."""

    scheme: str
    """"http" or "https"."""
    host: str
    """A name in lower-case ASCII, or the canonical literal of an IP address, without brackets."""
    port: int
    path: str = field(default="/", validator=_is_path)
    """The path and, if there is one, the query."""

    @property
    def address(self) -> Address | None:
        """The address, if the host is the literal of one."""
        return parse_literal(self.host)

    @cached_property
    def origin(self) -> str:
        """The canonical ``scheme://host[:port]``, the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != _DEFAULT_PORTS[self.scheme] else "")

    @property
    def url(self) -> str:
        """The canonical URL."""
        return self.origin + self.path

    def at(self, path: str) -> "Target":
        """The same origin with another path (and query); raises ValueError for an invalid one."""
        return evolve(self, path=path)


@frozen(kw_only=True)
class Rules:
    """The form of the URLs for one purpose."""

    name: str
    """The name of such a URL, the subject of error sentences."""
    max_length: int
    """In characters."""
    allow_http: bool
    allow_private: bool
    """Admits names without a dot and names of private networks."""
    setting: str
    """The operator's setting that would admit such names."""
    bare: bool
    """Refuses a path, a query or a fragment after the port."""

    @classmethod
    def for_callbacks(cls, *, allow_http: bool = False, allow_private: bool = False) -> "Rules":
        """The rules of a merchant's callback."""
        return cls(
            name="callbackUrl",
            max_length=2048,
            allow_http=allow_http,
            allow_private=allow_private,
            setting=CALLBACK_NETWORKS,
            bare=False,
        )

    @classmethod
    def for_peers(cls, *, allow_private: bool = False) -> "Rules":
        """The rules of a peer's endpoint."""
        return cls(
            name="endpoint",
            max_length=256,
            allow_http=True,
            allow_private=allow_private,
            setting="[p2p] allowPrivate",
            bare=True,
        )

    def parse(self, text: str) -> Target:
        """Parse a URL. Whether its address may be called is decided by AddressPolicy.

        Raises:
            BadTarget: it breaks a rule.
        """
        scheme, authority, rest = self._split(text)
        if "@" in authority:
            raise self._bad("credentials", "must not have a user or a password before an @")
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            raise self._bad("host", "must have one host, an IPv6 address in brackets, and at most one port")
        host = self._host(match[1].lower())
        port = _DEFAULT_PORTS[scheme] if match[2] is None else self._port(match[2])
        target = Target(scheme, host, port, self._path(rest))
        if len(target.origin if self.bare else target.url) > self.max_length:
            raise self._bad("length", f"must have at most {self.max_length} characters")
        return target

    def _bad(self, category: str, predicate: str) -> BadTarget:
        return BadTarget(category, self.name, predicate)

    def _split(self, text: str) -> tuple[str, str, str]:
        """Scheme, authority and the rest, of printable characters only."""
        if len(text) > self.max_length:
            raise self._bad("length", f"must have at most {self.max_length} characters")
        if not re.fullmatch(r"[!-\[\]-~]*", text):
            raise self._bad("characters", "must be printable ASCII without blanks and backslashes")
        if "#" in text:
            raise self._bad("fragment", "must not have a fragment after a #")
        match = _URL.fullmatch(text)
        scheme = match[1].lower() if match else ""
        if match is None or scheme not in (_DEFAULT_PORTS if self.allow_http else ("https",)):
            schemes = "http:// or https://" if self.allow_http else "https://"
            raise self._bad("scheme", f"must begin with {schemes}")
        return scheme, match[2], match[3]

    def _host(self, text: str) -> str:
        if text.startswith("["):
            return self._ipv6(text[1:-1])
        if _ENDS_IN_A_NUMBER.fullmatch(text):
            return self._ipv4(text)
        if len(text) > 253 or not _NAME.fullmatch(text):
            raise self._bad("host", "must have a host name of letters, digits, hyphens and dots, or an IP address")
        if _is_below(text, _NO_NAMES):
            raise self._bad("host", "must have a host name that the DNS knows")
        if not self.allow_private and ("." not in text or _is_below(text, _PRIVATE_NAMES)):
            sentence = "must have a public host name, such as shop.example.com; the operator can allow it in"
            raise self._bad("host", f"{sentence} {self.setting}")
        return text

    def _ipv6(self, text: str) -> str:
        try:
            address = IPv6Address(text)
        except ValueError:
            raise self._bad("host", "must have an IPv6 address in its brackets") from None
        if address.scope_id is not None:
            raise self._bad("host", "must not have a scope id in its IPv6 address")
        if text_of(address) != text:
            raise self._bad("host", f"must have its IPv6 address in the canonical form, [{text_of(address)}]")
        return text

    def _ipv4(self, text: str) -> str:
        try:
            return str(IPv4Address(text))
        except ValueError:
            raise self._bad("host", "must have its IPv4 address as four decimal numbers, 192.0.2.1") from None

    def _port(self, text: str) -> int:
        if not _PORT.fullmatch(text) or int(text) > 65535:
            raise self._bad("port", "must have a port from 1 to 65535, in digits, or none")
        if int(text) in _BAD_PORTS:
            raise self._bad("port", f"must have another port: {text} belongs to another protocol than HTTP")
        return int(text)

    def _path(self, text: str) -> str:
        if self.bare and text:
            raise self._bad("path", "must end after the host or port, without a slash, path or query")
        path = _TO_BE_ENCODED.sub(lambda match: f"%{ord(match[0]):02X}", text)
        path = path if path.startswith("/") else f"/{path}"
        if _EMPTY_PART.fullmatch(path):
            raise self._bad("path", "must not have an empty query or a ; at the end of its path")
        if not _PATH.fullmatch(path):
            raise self._bad("path", "must have two hexadecimal digits after every %")
        return path


def _is_below(name: str, suffixes: tuple[str, ...]) -> bool:
    return any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes)


_PEER_RULES: Final = Rules.for_peers(allow_private=True)
"""The form of an endpoint. Whether this node may call it is decided by its transport (svcd.p2p.transport)."""
_parse_endpoint: Final = lru_cache(4_096)(_PEER_RULES.parse)


class Endpoint(str):
    """The base URL of a node in canonical form: scheme, lower-case host, and the port unless it is the scheme's own.

    ``http://LOCALHOST:80`` and ``http://localhost`` are one endpoint (docs/protocol.md 11): another form cannot
    evade a ban. A string, so that it serves as a key, in JSON and in log lines. The constructor raises BadTarget for
    text that cannot be the endpoint of a node.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> "Endpoint":
        """Parse ``text`` strictly; scheme and host in any case, with or without the scheme's own port."""
        return text if type(text) is Endpoint else super().__new__(cls, _parse_endpoint(text).origin)

    @property
    def host(self) -> str:
        """The name, or the canonical literal of an IP address without brackets."""
        return self._target.host

    @property
    def address(self) -> Address | None:
        """The IP address of the host; None for a name."""
        return self._target.address

    @property
    def port(self) -> int:
        """The port, the scheme's own if none is written."""
        return self._target.port

    @property
    def _target(self) -> Target:
        return _parse_endpoint(str(self))
