"""IPv4 addresses inside IPv6 ones, for networks that reach IPv4 through a translator (NAT64).

An address below a translator's prefix leads to the IPv4 address that it holds (RFC 6052), be that private or not. One
prefix is well known; others are the network's own, and are found by asking for a name that has IPv4 addresses only
(RFC 7050).
"""

# mypy: allow-untyped-calls

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.net.addresses import Address, ipv4_inside
from svcd.net.resolving import Resolver
from svcd.ports import Clock

WELL_KNOWN_NAME: Final = "ipv4only.arpa"
WELL_KNOWN_ADDRESSES: Final = frozenset((IPv4Address("192.0.0.170"), IPv4Address("192.0.0.171")))
"""All that the name has (RFC 7050 section 2.2); an IPv6 address of it was made by a translator's DNS."""
PREFIX_LENGTHS: Final = (32, 40, 48, 56, 64, 96)
"""Those of RFC 6052 section 2.2."""
FOUND_SECONDS: Final = 600
"""How long an answer holds: a machine may be moved to another network."""
FAILED_SECONDS: Final = 60
"""How long no further look-up is made after one that failed."""


def prefixes_of(answers: Iterable[Address]) -> tuple[IPv6Network, ...]:
    """The prefixes under which ``answers``, addresses of WELL_KNOWN_NAME, hold one of the WELL_KNOWN_ADDRESSES."""
    networks = (
        IPv6Network((int(address), length), strict=False)
        for address in answers
        if isinstance(address, IPv6Address) and address.scope_id is None
        for length in PREFIX_LENGTHS
    )
    # A dict instead of a set for the order to be kept.
    found = dict.fromkeys(network for network in networks if _holds_one(network, answers))
    return tuple(found)


def _holds_one(network: IPv6Network, answers: Iterable[Address]) -> bool:
    inside = (ipv4_inside(address, network) for address in answers if isinstance(address, IPv6Address))
    return any(address in WELL_KNOWN_ADDRESSES for address in inside)


class Nat64Discovery:
    """Finds the prefixes of the network's translators, and looks again now and then."""

    _log = Logger()

    def __init__(self, resolver: Resolver, clock: Clock) -> None:
        self._resolver = resolver
        self._clock = clock
        self._prefixes: Sequence[IPv6Network] | None = None
        self._looking = False
        self._due_at = 0.0
        self._waiting: list[Deferred[Sequence[IPv6Network]]] = []

    @property
    def known(self) -> Sequence[IPv6Network]:
        """The prefixes that were found last, without looking."""
        return self._prefixes or ()

    def prefixes(self) -> Deferred[Sequence[IPv6Network]]:
        """The prefixes that were found last; only the very first look-up is waited for.

        A failed look-up changes nothing, and at first means that there is none: a network without any DNS must do. A
        name server that only answers late is waited for, so that it cannot be used to get past the check.
        """
        if not self._looking and (self._prefixes is None or self._clock.seconds() >= self._due_at):
            self._look()
        if self._prefixes is not None:
            return succeed(self._prefixes)
        waiting: Deferred[Sequence[IPv6Network]] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def _look(self) -> None:
        self._looking = True
        self._resolver.resolve(WELL_KNOWN_NAME).addCallback(prefixes_of).addCallbacks(self._found, self._failed)

    def _found(self, prefixes: Sequence[IPv6Network]) -> None:
        self._finish(prefixes, FOUND_SECONDS)

    def _failed(self, failure: Failure) -> None:
        # First, whatever has failed: every call to an IPv6 address waits for it.
        self._finish(self._prefixes or (), FAILED_SECONDS)
        if not failure.check(OSError):
            self._log.failure("looking for the prefixes of the network's NAT64 translators failed", failure)

    def _finish(self, prefixes: Sequence[IPv6Network], seconds: float) -> None:
        self._looking = False
        self._prefixes = prefixes
        self._due_at = self._clock.seconds() + seconds
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(prefixes)
