"""Looking up the addresses of a name, in threads of its own: the system's resolver blocks, for minutes if it must."""

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import zip_longest
from typing import Final, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed

from svcd.net.addresses import Address

P = ParamSpec("P")
T = TypeVar("T")

MAX_ANSWERS: Final = 8
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Worker(Protocol):
    """A place where a function may run while the reactor goes on."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """A Deferred of what ``function`` returns; cancelling it does not stop the work."""


class Resolver(Protocol):
    """Tells the addresses of a name."""

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """At most MAX_ANSWERS addresses, best first; the Deferred fails with OSError if there are none."""


class SystemResolver:
    """The resolver of the operating system.

    Give it threads of its own: whoever owns a name can make its look-up take as long as the system is willing to wait.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """See :class:`Resolver`. Names at and below "localhost" are never looked up (RFC 6761, section 6.3)."""
        if name == "localhost" or name.endswith(".localhost"):
            return succeed(_LOOPBACK)
        return self._worker.run(look_up, name)


def look_up(name: str) -> Sequence[Address]:
    """Ask the system, and wait; raises OSError."""
    # The dot keeps the system from trying the name below its own search domains first. As bytes, because getaddrinfo
    # would convert text by a standard of 2003.
    answers = socket.getaddrinfo(f"{name}.".encode("ascii"), None, type=socket.SOCK_STREAM)
    # In turns, so that eight addresses of a family which is not reached leave room for the other.
    return interleaved(list(dict.fromkeys(ip_address(address[0]) for *_, address in answers)))[:MAX_ANSWERS]


def interleaved(addresses: Sequence[Address]) -> tuple[Address, ...]:
    """The addresses with both families taking turns, beginning with the family of the first (RFC 8305 section 4)."""
    first = [address for address in addresses if address.version == addresses[0].version]
    others = [address for address in addresses if address.version != addresses[0].version]
    pairs = zip_longest(first, others)
    return tuple(address for pair in pairs for address in pair if address is not None)
