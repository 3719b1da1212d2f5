"""Which public addresses are this machine's own.

A module of its own: its tests need real sockets, and those of the policy in `svcd/net/addresses.py` are repeated for a
thousand changed copies of it (tests/mutation).
"""

import socket
from collections.abc import Iterable

from svcd.net.addresses import Address, category_of


class OwnAddresses:
    """The public addresses of this machine: those that a socket can be bound to, and the ones in ``further``.

    The list of a machine's interfaces changes while it runs; binding asks the kernel, and sends nothing. ``further``
    are addresses of a router in front of the machine, as the operator has configured them.
    """

    def __init__(self, further: Iterable[Address] = ()) -> None:
        self._further = frozenset(further)

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, Address) or category_of(address) != "public":
            return False
        if address in self._further:
            return True
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            try:
                bound.bind((str(address), 0))
            except OSError:
                return False
        return True
