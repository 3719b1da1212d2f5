"""Which IP addresses may be called: public ones, by the registries of special-purpose addresses (RFC 6890)."""

from collections.abc import Container
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from attrs import frozen

Address = IPv4Address | IPv6Address

_PRIVATE: Final = frozenset({"private", "loopback", "link-local"})
_METADATA: Final = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200")),
)
"""Where clouds tell a machine its own secrets."""


def _v4(category: str, *networks: str) -> tuple[tuple[IPv4Network, str], ...]:
    return tuple((IPv4Network(network), category) for network in networks)


def _v6(category: str, *networks: str) -> tuple[tuple[IPv6Network, str], ...]:
    return tuple((IPv6Network(network), category) for network in networks)


_V4: Final = (
    *_v4("loopback", "127.0.0.0/8"),
    *_v4("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    *_v4("link-local", "169.254.0.0/16"),
    *_v4("multicast", "224.0.0.0/4"),
    *_v4("reserved", "0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
    *_v4("reserved", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24", "198.18.0.0/15"),
    *_v4("reserved", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
)
"""What is no public IPv4 address; everything else is one."""

_V6: Final = (
    *_v6("loopback", "::1/128"),
    *_v6("reserved", "::/128"),
    # Mapped, compatible, translated, NAT64 (well-known and local-use), 6to4, Teredo.
    *_v6("embedded-ipv4", "::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),
    *_v6("embedded-ipv4", "2002::/16", "2001::/32"),
    *_v6("private", "fc00::/7"),
    *_v6("link-local", "fe80::/10"),
    *_v6("multicast", "ff00::/8"),
    *_v6("reserved", "2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
    *_v6("public", "2000::/3"),
)
"""What IPv6 addresses are; the first network that holds one counts, and one that none holds is reserved."""

_SENTENCES: Final = {
    "loopback": "is this machine itself",
    "private": "is an address of a private network",
    "link-local": "is an address of the local link",
    "multicast": "is a multicast address",
    "reserved": "is reserved for a special purpose",
    "metadata": "is where a cloud keeps the secrets of its machines",
    "embedded-ipv4": "hides an IPv4 address in an IPv6 address",
    "scope": "has a scope id",
    "own": "is an address of this node",
}


class BadAddress(ValueError):
    """An address may not be called; ``category`` is a key of the sentences above, the text a whole sentence."""

    def __init__(self, address: Address, category: str) -> None:
        super().__init__(f"{address} {_SENTENCES[category]}")
        self.category = category


@frozen(kw_only=True)
class AddressPolicy:
    """Which addresses may be called: public ones, and with ``allow_private`` also those of the operator's networks."""

    allow_private: bool = False
    """Admits private, loopback and link-local addresses, yet never a metadata address."""
    own: Container[Address] = frozenset()
    """The node's public addresses, which it never calls itself."""

    def check(self, address: Address) -> None:
        """Raise BadAddress unless ``address`` may be called."""
        category = "own" if address in self.own else category_of(address)
        if category == "public" or (self.allow_private and category in _PRIVATE):
            return
        raise BadAddress(address, category)

    def check_host(self, host: str) -> None:
        """Raise BadAddress if ``host`` is the literal of an address that may not be called; a name passes for now."""
        address = parse_literal(host)
        if address is not None:
            self.check(address)


def parse_literal(host: str) -> Address | None:
    """The address whose literal ``host`` is, without brackets; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def category_of(address: Address) -> str:
    """What an address is: "public", or a category of :class:`BadAddress`."""
    if address in _METADATA:
        return "metadata"
    if isinstance(address, IPv4Address):
        return next((category for network, category in _V4 if address in network), "public")
    if address.scope_id is not None:
        return "scope"
    if _is_isatap(address):
        return "embedded-ipv4"
    return next((category for network, category in _V6 if address in network), "reserved")


def _is_isatap(address: IPv6Address) -> bool:
    """Whether the interface id is ``[0200:]5efe`` and an IPv4 address (RFC 5214, section 6.1)."""
    return int(address) >> 32 & 0xFDFF_FFFF == 0x0000_5EFE
