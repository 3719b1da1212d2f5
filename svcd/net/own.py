"""Which public addresses are this machine's own."""

import socket
from collections.abc import Iterable

from svcd.net.addresses import Address, category_of


class OwnAddresses:
    """Holds a public address if a socket can be bound to it, or if it is one of ``further``.

    The list of a machine's interfaces changes while it runs; binding asks the kernel, and sends nothing. ``further``
    are addresses that only a router in front knows, as the operator has named them.
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
