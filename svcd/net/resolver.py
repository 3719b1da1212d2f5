"""Looking up the addresses of a name, in threads because the system's blocks, and the NAT64 prefix (RFC 7050)."""

# mypy: allow-untyped-calls

import socket
import sys
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from itertools import zip_longest
from typing import Final, Protocol

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Clock, Worker
from svcd.ip_addresses import Address
from svcd.net.addresses import ipv4_inside

MAX_ANSWERS: Final = 8
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Resolver(Protocol):
    """Looks up the addresses of a name."""

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """Return at most MAX_ANSWERS addresses, best first; the Deferred fails with OSError if there are none."""


@define(eq=False)
class _LookUp:
    """A look-up under way, or one that waits for a slot, with those that asked for it."""

    slot: Deferred[DeferredSemaphore]
    begun: bool = False
    waiting: list[Deferred[Sequence[Address]]] = field(factory=list)

    def ask(self) -> Deferred[Sequence[Address]]:
        """The answer, which may be cancelled without effect on that of others."""
        asker: Deferred[Sequence[Address]] = Deferred(self._leave)
        self.waiting.append(asker)
        return asker

    def _leave(self, asker: Deferred[Sequence[Address]]) -> None:
        # Cancelling a look-up frees no thread, so it goes on if it has begun.
        self.waiting.remove(asker)
        if not self.waiting and not self.begun:
            self.slot.cancel()


class SystemResolver:
    """The resolver of the operating system.

    It needs threads of its own: the owner of a name can make a look-up take as long as the system is willing to wait.
    With ``max_look_ups`` it does at most so many look-ups at once, because it shares the threads. A name has one
    look-up at a time, which answers all that ask meanwhile.
    """

    _log = Logger()

    def __init__(self, worker: Worker, max_look_ups: int | None = None) -> None:
        self._worker = worker
        self._slots = DeferredSemaphore(max_look_ups or sys.maxsize)
        self._look_ups: dict[str, _LookUp] = {}

    @property
    def is_full(self) -> bool:
        """Whether a further look-up would have to wait for the end of another one."""
        return not self._slots.tokens

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        """See :class:`Resolver`. Names at and below "localhost" are never looked up (RFC 6761, section 6.3)."""
        if name == "localhost" or name.endswith(".localhost"):
            return succeed(_LOOPBACK)
        found = self._look_ups.get(name)
        if found is not None:
            return found.ask()
        found = self._look_ups[name] = _LookUp(self._slots.acquire())
        answer = found.ask()
        found.slot.addCallback(self._look_up, found, name).addBoth(self._ended, name)
        return answer

    def _look_up(self, slots: DeferredSemaphore, found: _LookUp, name: str) -> Deferred[Sequence[Address]]:
        """Look up ``name`` in a slot, which is free when the look-up ends."""

        def ended(result: Sequence[Address] | Failure) -> Sequence[Address] | Failure:
            slots.release()
            return result

        found.begun = True
        return self._worker.run(look_up, name).addBoth(ended)

    def _ended(self, result: Sequence[Address] | Failure, name: str) -> None:
        waiting = self._look_ups.pop(name).waiting
        if not waiting and isinstance(result, Failure) and not result.check(OSError, CancelledError):
            self._log.failure("a look-up whose caller had gone failed", result)
        # Popped one by one, because each may cancel others.
        while waiting:
            waiting.pop(0).callback(result)


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


WELL_KNOWN_NAME: Final = "ipv4only.arpa"
WELL_KNOWN_ADDRESSES: Final = frozenset((IPv4Address("192.0.0.170"), IPv4Address("192.0.0.171")))
"""The only addresses of that name (RFC 7050 section 2.2); if it has an IPv6 address, a translator's DNS made that."""
PREFIX_LENGTHS: Final = (32, 40, 48, 56, 64, 96)
"""Those of RFC 6052 section 2.2."""
FOUND_SECONDS: Final = 600
"""Lifetime of the result of a look-up: the machine may move to another network."""
FAILED_SECONDS: Final = 60
"""Time from a failed look-up to the next one."""


def prefixes_of(answers: Iterable[Address]) -> tuple[IPv6Network, ...]:
    """The prefixes below which ``answers``, addresses of WELL_KNOWN_NAME, contain one of the WELL_KNOWN_ADDRESSES."""
    networks = (
        IPv6Network((int(address), length), strict=False)
        for address in answers
        if isinstance(address, IPv6Address) and address.scope_id is None
        for length in PREFIX_LENGTHS
    )
    # A dict, unlike a set, keeps the order.
    found = dict.fromkeys(network for network in networks if _holds_one(network, answers))
    return tuple(found)


def _holds_one(network: IPv6Network, answers: Iterable[Address]) -> bool:
    inside = (ipv4_inside(address, network) for address in answers if isinstance(address, IPv6Address))
    return any(address in WELL_KNOWN_ADDRESSES for address in inside)


class Nat64Discovery:
    """Finds the prefixes of the network's translators (RFC 7050), and refreshes them when they are asked for.

    A translator (NAT64) leads every address below its prefix to the IPv4 address inside it (RFC 6052), private or not.
    One prefix is well known; a network's own prefixes are found by looking up a name that has IPv4 addresses only.
    """

    _log = Logger()

    def __init__(self, resolver: Resolver, clock: Clock) -> None:
        self._resolver = resolver
        self._clock = clock
        self._prefixes: Sequence[IPv6Network] | None = None
        self._looking_up = False
        self._due_at = 0.0
        self._waiting: list[Deferred[Sequence[IPv6Network]]] = []

    @property
    def known(self) -> Sequence[IPv6Network]:
        """The prefixes of the last look-up; never looks up."""
        return self._prefixes or ()

    def prefixes(self) -> Deferred[Sequence[IPv6Network]]:
        """The prefixes of the last look-up; waits only for the very first one.

        A failed look-up changes nothing; if the first one fails there are no prefixes, so that networks without DNS
        work. A slow name server is waited for: otherwise an attacker could use its delay to pass the check.
        """
        if not self._looking_up and (self._prefixes is None or self._clock.seconds() >= self._due_at):
            self._look_up()
        if self._prefixes is not None:
            return succeed(self._prefixes)
        waiting: Deferred[Sequence[IPv6Network]] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def _look_up(self) -> None:
        self._looking_up = True
        self._resolver.resolve(WELL_KNOWN_NAME).addCallback(prefixes_of).addCallbacks(self._found, self._failed)

    def _found(self, prefixes: Sequence[IPv6Network]) -> None:
        self._finish(prefixes, FOUND_SECONDS)

    def _failed(self, failure: Failure) -> None:
        # First of all: every call to an IPv6 address waits for this.
        self._finish(self._prefixes or (), FAILED_SECONDS)
        if not failure.check(OSError):
            self._log.failure("looking for the prefixes of the network's NAT64 translators failed", failure)

    def _finish(self, prefixes: Sequence[IPv6Network], seconds: float) -> None:
        self._looking_up = False
        self._prefixes = prefixes
        self._due_at = self._clock.seconds() + seconds
        # Popped one by one, because each may cancel others.
        while self._waiting:
            self._waiting.pop(0).callback(prefixes)
