"""Which IP addresses may be called: public ones, by the registries of special-purpose addresses (RFC 6890).

This is the defence against server-side request forgery: URLs of merchants and peers must not reach private networks.
"""

from collections.abc import Container, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import groupby
from typing import Final

from attrs import frozen

from svcd.ip_addresses import Address, IPNetwork, parse_literal

_PRIVATE: Final = frozenset({"private", "loopback", "link-local"})
_TRANSLATED: Final = frozenset({"private"})
"""Of these, the ones that an IPv4 address behind NAT64 may have."""
_NAMEABLE: Final = frozenset({"own", "reserved"})
"""Admitted only below a network that the operator has named; carrier-grade NAT (RFC 6598) is among the reserved."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""The well-known prefix of the addresses that a translator makes of IPv4 addresses (RFC 6052 section 2.1)."""
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
"""The range of local-use prefixes (RFC 8215); `svcd.net.resolver` discovers which of them a network uses."""
_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "fd00:ec2::254", "fd20:ce::254"),  # most clouds; EC2 and Google Cloud by IPv6
            *("169.254.170.2", "169.254.170.23", "fd00:ec2::23"),  # credentials of containers: ECS, EKS
            *("168.63.129.16", "100.100.100.200", "192.0.0.192"),  # Azure, Alibaba Cloud, Oracle Cloud
        ),
    )
)
"""Metadata services of clouds, which hand out a machine's credentials."""


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
"""Every IPv4 network that is not public."""

_V6: Final = (
    *_v6("loopback", "::1/128"),
    *_v6("reserved", "::/128"),
    # Mapped, compatible, translated, NAT64 (well-known and local-use), 6to4, Teredo.
    *_v6("embedded-ipv4", "::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", str(_NAT64), str(_LOCAL_NAT64)),
    *_v6("embedded-ipv4", "2002::/16", "2001::/32"),
    *_v6("private", "fc00::/7"),
    *_v6("link-local", "fe80::/10"),
    *_v6("multicast", "ff00::/8"),
    *_v6("reserved", "2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
    *_v6("public", "2000::/3"),
)
"""IPv6 networks; the first one that contains an address decides, and an address in none of them is reserved."""

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
    """An address may not be called; ``category`` is a key of _SENTENCES, the text a whole sentence.

    ``setting`` is the operator's setting that could admit it, or "".
    """

    def __init__(
        self, address: Address, category: str, *, inside: IPv4Address | None = None, setting: str = ""
    ) -> None:
        """``inside`` is the IPv4 address that NAT64 translates ``address`` to; ``category`` is then about that one."""
        shown = text_of(address) if inside is None else f"{text_of(address)} leads by NAT64 to {inside}, which"
        super().__init__(f"{shown} {_SENTENCES[category]}")
        self.category = category
        self.setting = setting


@frozen(kw_only=True)
class AddressPolicy:
    """Which addresses may be called: public ones, and those that the operator admits beside them.

    A metadata address is never admitted, nor is a multicast address or one that hides an IPv4 address.
    """

    allow_private: bool = False
    """Admits private, loopback and link-local addresses."""
    networks: tuple[IPNetwork, ...] = ()
    """Admit also the node's own and reserved addresses in them."""
    setting: str = ""
    """The name of the setting of ``networks``, for a refusal."""
    own: Container[Address] = frozenset()
    """The node's own public addresses, which it never calls."""

    def check(self, address: Address, nat64: Iterable[IPv6Network] = ()) -> None:
        """Raise BadAddress unless ``address`` may be called.

        Where NAT64 translates it to an IPv4 address, that one must be admitted as well. ``nat64`` are the prefixes of
        the network's own translators; RFC 6052's well-known prefix is always included.
        """
        inside = [ipv4 for prefix in (_NAT64, *nat64) if (ipv4 := ipv4_inside(address, prefix)) is not None]
        category = self._category(address)
        if inside and (address in _NAT64 or address in _LOCAL_NAT64):
            category = "public"
        if not self._admits(address, category, _PRIVATE):
            raise BadAddress(address, category, setting=self._setting(category, _PRIVATE))
        for ipv4 in inside:
            category = self._category(ipv4)
            # Loopback and link-local addresses would be those of the translator, not of this machine.
            if not self._admits(ipv4, category, _TRANSLATED):
                raise BadAddress(address, category, inside=ipv4, setting=self._setting(category, _TRANSLATED))

    def _admits(self, address: Address, category: str, private: frozenset[str]) -> bool:
        if category == "public" or (self.allow_private and category in private):
            return True
        return category in private | _NAMEABLE and any(address in network for network in self.networks)

    def _setting(self, category: str, private: frozenset[str]) -> str:
        return self.setting if category in private | _NAMEABLE else ""

    def _category(self, address: Address) -> str:
        return "own" if address in self.own else category_of(address)

    def check_host(self, host: str) -> None:
        """Raise BadAddress if ``host`` is the literal of an address that may not be called; names pass."""
        address = parse_literal(host)
        if address is not None:
            self.check(address)


def text_of(address: Address) -> str:
    """The address in the form of RFC 5952 section 4, an IPv6 one in hexadecimal groups throughout.

    Python's own text of an IPv6 address that holds an IPv4 one depends on Python's version.
    """
    if isinstance(address, IPv4Address):
        return str(address)
    groups = [int(address) >> shift & 0xFFFF for shift in range(112, -1, -16)]
    # The indices of each run of zeros; the first of the longest runs becomes "::".
    runs = [[index for index, _ in run] for zero, run in groupby(enumerate(groups), lambda one: one[1] == 0) if zero]
    longest = max(runs, key=len, default=[])
    texts = [f"{group:x}" for group in groups]
    if len(longest) < 2:
        text = ":".join(texts)
    else:
        text = "::".join((":".join(texts[: longest[0]]), ":".join(texts[longest[-1] + 1 :])))
    return text if address.scope_id is None else f"{text}%{address.scope_id}"


def ipv4_inside(address: Address, prefix: IPv6Network) -> IPv4Address | None:
    """The IPv4 address that a NAT64 translator with ``prefix`` translates ``address`` to; None outside of the prefix.

    ``prefix`` has one of the lengths of RFC 6052 section 2.2; octet 8 is skipped unread.
    """
    if not isinstance(address, IPv6Address) or address not in prefix:
        return None
    octets = address.packed if prefix.prefixlen == 96 else address.packed[:8] + address.packed[9:]
    first = prefix.prefixlen // 8
    return IPv4Address(octets[first : first + 4])


def untranslated(address: Address, nat64: Iterable[IPv6Network] = ()) -> Address:
    """The public IPv4 address that NAT64 translates ``address`` to; ``address`` itself where there is none.

    Rate limits and address buckets count hosts by it: otherwise all of IPv4 would be one /64 behind a translator.
    ``nat64`` are the prefixes of the network's own translators. The result is never a private IPv4 address.
    """
    if isinstance(address, IPv4Address):
        return address
    inside = (ipv4_inside(address, prefix) for prefix in (_NAT64, *nat64))
    return next((ipv4 for ipv4 in inside if ipv4 is not None and category_of(ipv4) == "public"), address)


def may_be_translated(address: Address) -> bool:
    """Whether ``address`` could be below a prefix of the network's own NAT64 translators, which must be looked up."""
    if isinstance(address, IPv4Address):
        return False
    return address in _LOCAL_NAT64 or category_of(address) in ("public", "private")


def category_of(address: Address) -> str:
    """The category of an address: "public", or one of :class:`BadAddress`."""
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
    """Whether the interface identifier is ``[0200:]5efe`` and an IPv4 address (RFC 5214, section 6.1)."""
    return int(address) >> 32 & 0xFDFF_FFFF == 0x0000_5EFE
