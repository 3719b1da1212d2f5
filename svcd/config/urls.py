"""Under which URLs one node can tell others to call it.

What a hello may carry and what a peer may dial are judged where hellos and calls are, out of a configuration's sight.
Both rules are told here once more, as sentences; a test holds the three against each other.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

_MAX_LENGTH: Final = 256
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_SHAPE: Final = '"http://host:port" or "https://host:port" without a user, path or slash at the end'
_URL: Final = re.compile(r"(https?)://(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::([0-9]+))?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[Xx][0-9A-Fa-f]*)")
_BAD_PORTS: Final = frozenset(
    map(
        int,
        "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 "
        "123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 "
        "990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 "
        "10080".split(),
    )
)
"""Ports of other protocols, which the Fetch standard keeps HTTP away from."""


def fault_of(url: str) -> str | None:
    """What is wrong with the base URL of a node, and what would be right; None if nothing is."""
    match = _URL.fullmatch(url)
    if match is None:
        return f"must be {_SHAPE}"
    scheme, ipv6, name, port = match.groups()
    # A caller writes the URL in its canonical form: without the scheme's own port, with a slash at the end.
    if max(len(url), len(url.removesuffix(_DEFAULT_PORTS[scheme])) + 1) > _MAX_LENGTH:
        return f"must have at most {_MAX_LENGTH} characters, with a slash at the end"
    return (_fault_of_ipv6(ipv6) if name is None else _fault_of_name(name)) or _fault_of_port(port)


def _fault_of_ipv6(text: str) -> str | None:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return "must have an IPv6 address in its brackets"
    return None if str(address) == text else f"must have its IPv6 address in the canonical form, [{address}]"


def _fault_of_name(text: str) -> str | None:
    if _ENDS_IN_A_NUMBER.fullmatch(text):
        try:
            IPv4Address(text)
        except AddressValueError:
            return "must have its IPv4 address as four decimal numbers, such as 192.0.2.1"
        return None
    if not _NAME.fullmatch(text) or text.lower().split(".")[-1] == "onion":
        return "must have a host name that the DNS can know, such as node.example.org, or an IP address"
    return None


def _fault_of_port(text: str | None) -> str | None:
    if text is None:
        return None
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        return "must have a port from 1 to 65535 without zeros in front, or none"
    return (
        f"must have another port, for {text} belongs to another protocol than HTTP" if int(text) in _BAD_PORTS else None
    )
