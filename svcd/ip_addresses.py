"""IP addresses: how they are parsed, and the networks by which limits and bans group them."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
_WITH_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?")
"""An IPv6 address in brackets or an IPv4 address, with or without a port."""


def parse_literal(text: str) -> Address | None:
    """Parse an IP address without brackets; None for anything else."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def parse_address(text: str) -> Address | None:
    """Parse an IP address without brackets, an IPv4-mapped IPv6 address as IPv4; None for anything else."""
    address = parse_literal(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_address_of_client(text: str) -> Address | None:
    """Parse an IP address as proxies write it: also in brackets, and with a port; None for anything else."""
    address = parse_address(text)
    if address is None and (found := _WITH_PORT.fullmatch(text)):
        address = parse_address(found[1] or found[2])
    return address


def prefix(address: Address, *, v4: int, v6: int) -> str:
    """The network of ``address`` with a prefix of ``v4`` or ``v6`` bits; of a whole address its own text."""
    length = v4 if isinstance(address, IPv4Address) else v6
    if length == address.max_prefixlen:
        return str(address)
    network = IPv4Network if isinstance(address, IPv4Address) else IPv6Network
    return str(network((int(address), length), strict=False))
