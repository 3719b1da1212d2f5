"""IP addresses: how they are parsed, and the networks by which limits and bans group them."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


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


def prefix(address: Address, *, v4: int, v6: int) -> str:
    """The network of ``address`` with a prefix of ``v4`` or ``v6`` bits; of a whole address its own text."""
    length = v4 if isinstance(address, IPv4Address) else v6
    if length == address.max_prefixlen:
        return str(address)
    network = IPv4Network if isinstance(address, IPv4Address) else IPv6Network
    return str(network((int(address), length), strict=False))
