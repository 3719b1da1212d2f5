"""Looking up the addresses of a name in worker threads: the system's resolver blocks, sometimes for minutes."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import zip_longest
from typing import Final, Protocol

from twisted.internet.defer import Deferred, DeferredSemaphore, succeed
from twisted.python.failure import Failure

from svcd.interfaces import Worker
from svcd.net.addresses import Address

MAX_ANSWERS: Final = 8
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Resolver(Protocol):
    """Looks up the addresses of a name."""

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """Return at most MAX_ANSWERS addresses, best first; the Deferred fails with OSError if there are none."""


class SystemResolver:
    """The resolver of the operating system.

    It needs threads of its own: the owner of a name can make a look-up take as long as the system is willing to wait.
    With ``most`` it does at most so many look-ups at once, because it shares the threads.
    """

    def __init__(self, worker: Worker, most: int | None = None) -> None:
        self._worker = worker
        self._slots = None if most is None else DeferredSemaphore(most)

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """See :class:`Resolver`. Names at and below "localhost" are never looked up (RFC 6761, section 6.3)."""
        if name == "localhost" or name.endswith(".localhost"):
            return succeed(_LOOPBACK)
        if self._slots is None:
            return self._worker.run(look_up, name)
        return self._slots.acquire().addCallback(self._look_up, name)

    def _look_up(self, slots: DeferredSemaphore, name: str) -> Deferred[Sequence[Address]]:
        """Look up ``name`` in a slot, which is free when the look-up ends: cancelling it frees no thread."""
        answer: Deferred[Sequence[Address]] = Deferred(lambda _: None)

        def ended(result: Sequence[Address] | Failure) -> None:
            slots.release()
            if not answer.called:
                answer.callback(result)

        self._worker.run(look_up, name).addBoth(ended)
        return answer


def look_up(name: str) -> Sequence[Address]:
    """Ask the system and block until it answers; raises OSError."""
    # The dot keeps the system from trying its search domains. As bytes, because getaddrinfo would encode text by
    # IDNA 2003.
    answers = socket.getaddrinfo(f"{name}.".encode("ascii"), None, type=socket.SOCK_STREAM)
    # Interleaved, so that eight addresses of an unreachable family leave room for the other.
    return interleaved(list(dict.fromkeys(ip_address(address[0]) for *_, address in answers)))[:MAX_ANSWERS]


def interleaved(addresses: Sequence[Address]) -> tuple[Address, ...]:
    """The addresses with their families alternating, beginning with the family of the first (RFC 8305 section 4)."""
    first = [address for address in addresses if address.version == addresses[0].version]
    others = [address for address in addresses if address.version != addresses[0].version]
    pairs = zip_longest(first, others)
    return tuple(address for pair in pairs for address in pair if address is not None)
