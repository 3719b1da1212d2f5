"""Which public addresses are this machine's own.

A module of its own: its tests need real sockets, and those of the policy in `svcd/net/addresses.py` are repeated for a
thousand changed copies of it (tests/mutation).
"""

import socket
from collections.abc import Iterable
from errno import EAFNOSUPPORT
from ipaddress import ip_address
from typing import Final

from svcd.ip_addresses import Address
from svcd.net.addresses import category_of

_PORT: Final = 9
"""Any port: connecting a UDP socket sends nothing."""


class OwnAddresses:
    """The public addresses of this machine: those that the kernel delivers to it, and the ones in ``further``.

    The kernel is asked each time, because addresses come and go while the node runs, as keepalived's do. ``further``
    are addresses of a router in front of the machine, as the operator has configured them.
    """

    def __init__(self, further: Iterable[Address] = ()) -> None:
        self._further = frozenset(further)

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, Address) or category_of(address) != "public":
            return False
        return address in self._further or _is_local(address)


def _is_local(address: Address) -> bool:
    """Whether packets to ``address`` stay on this machine.

    Asks the kernel by a socket that sends nothing, which needs no rights and takes some 20 microseconds. The list of
    the interfaces' addresses (getifaddrs) would need a netlink socket, which the systemd unit does not allow, and waits
    while interfaces change. Raises OSError if no socket can be made.
    """
    try:
        probe = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno == EAFNOSUPPORT:
            return False
        raise
    with probe:
        try:
            if address.version == 4:
                # With ip_nonlocal_bind any address can be bound, but only one of the machine can be the source of a
                # connection (ip_route_output_key in Linux).
                probe.bind((str(address), 0))
            # The source of a connection to an IPv6 address of the machine is that address (RFC 6724 section 5, rule 1).
            probe.connect((str(address), _PORT))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address
