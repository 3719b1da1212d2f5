"""Detects proxies that are not trusted: their ``X-Forwarded-For`` is ignored, so all clients behind one count as one.

An address counts as a proxy if ``X-Forwarded-For`` of its requests has named several clients. Any client can send such
headers, so they exempt no client from a limit. They only prevent that all clients behind the proxy pay the price of one
(docs/peers.md "Prices"), and raise an alarm for the operator (docs/operations.md "Alarms"): at once for an address of
this machine or of a private network, which no outside client can have; for a public address only if almost all clients
come through it, since any other may be a client that sends false headers.
"""

from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from math import inf
from typing import Final

from attrs import define, field, frozen
from twisted.logger import Logger

from svcd.bounded_dict import BoundedDict
from svcd.limits import Limit

FORWARDING_SECONDS: Final = 3_600.0
"""For how long after its last request with the header an address counts as a proxy."""
MAX_PROXIES: Final = 1_024
"""How many addresses with an ignored header are remembered at once."""

_BAN_OF_PROXY: Final = "An invalid block through a proxy, to have all others behind it banned"
LIMITS: Final = (
    Limit("time that an address counts as a proxy", FORWARDING_SECONDS, "seconds", _BAN_OF_PROXY),
    Limit("addresses remembered as proxies", MAX_PROXIES, "clients", _BAN_OF_PROXY),
)
FEW: Final = 16
"""A part of the network with no more addresses than this loses no proxy to make room for others."""
SWEEP_SECONDS: Final = 60.0
DOUBT_SECONDS: Final = 600.0
"""How long a public address must have been a proxy to be an alarm: peers call a node within five minutes."""
MAX_DIRECT: Final = 3
"""A public address is no alarm if clients from more parts of the network have come without a proxy in an hour."""
MAX_PARTS: Final = 64
"""How many parts of the network with clients that use no proxy are remembered."""
LOG_SECONDS: Final = 3_600.0
"""Between two log lines about proxies with a public address."""
_NAMED: Final = 3


@frozen
class _Place:
    """The place of an address in the network; ``key`` is the /64 of an IPv6 address, which one machine may own."""

    key: str
    part: str
    """The part of the network that one party may own: a /16 of IPv4, a /32 of IPv6."""
    public: bool


@lru_cache(4_096)
def _place_of(text: str) -> _Place:
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return _Place(str(address), str(IPv4Network((int(address), 16), strict=False)), address.is_global)
    key, part = (str(IPv6Network((int(address), length), strict=False)) for length in (64, 32))
    return _Place(key, part, address.is_global)


@define(eq=False)
class _Forwarder:
    """An address whose requests carry the header; times are in seconds."""

    place: _Place
    address: str
    """The address itself; the last one of several in one /64."""
    first: str
    """The first client that it named."""
    since: float = 0.0
    """Since when it has counted as a proxy."""
    until: float = 0.0
    """Until when it counts as a proxy; 0.0 while it has named only one client."""


@define(eq=False)
class _Part:
    """The addresses of one part of the network, in the order of their last requests with the header."""

    name: str
    proxies: OrderedDict[str, _Forwarder] = field(factory=OrderedDict)
    others: OrderedDict[str, _Forwarder] = field(factory=OrderedDict)
    """Addresses that have named only one client."""

    def __len__(self) -> int:
        return len(self.proxies) + len(self.others)

    def take(self, key: str) -> _Forwarder | None:
        """Remove and return a forwarder; None if there is none."""
        return self.proxies.pop(key, None) or self.others.pop(key, None)


class UntrustedProxies:
    """Remembers the addresses that forward requests without being trusted proxies, MAX_PROXIES at most."""

    _log = Logger()

    def __init__(self) -> None:
        self.ignored = 0
        """Requests whose ``X-Forwarded-For`` was ignored."""
        self._parts: dict[str, _Part] = {}
        self._count = 0
        self._direct: BoundedDict[str, float] = BoundedDict(MAX_PARTS)
        """By part of the public network, the time of its last request without the header."""
        self._report_at = self._sweep_at = -inf

    def __len__(self) -> int:
        return self._count

    def note(self, address: str, client: str, now: float) -> None:
        """Record a request from ``address`` whose ignored header names ``client``."""
        self.ignored += 1
        place = _place_of(address)
        part = self._parts.get(place.part)
        found = part.take(place.key) if part else None
        if found is None:
            if self._count >= MAX_PROXIES and not self._make_room(place.part, now):
                return
            found = _Forwarder(place, address, client)
            self._count += 1
        part = self._parts.setdefault(place.part, _Part(place.part))
        found.address = address
        if found.until <= now and client == found.first:
            part.others[place.key] = found
            return
        if found.until <= now:
            found.since = now
            self._report(found, now)
        found.until = now + FORWARDING_SECONDS
        part.proxies[place.key] = found

    def note_direct(self, address: str, now: float) -> None:
        """Record a request from ``address`` without the header."""
        place = _place_of(address)
        if place.public and not self._forwards(place, now):
            self._direct[place.part] = now

    def _make_room(self, newcomer: str, now: float) -> bool:
        """Evict an address to make room for one in the part ``newcomer`` of the network; False if none may be evicted.

        The address comes from the largest part, and is one that is no proxy if there is any. So a client with many
        addresses evicts no other client's; and no proxy is evicted for another address of its own part, nor from a
        part with FEW addresses.
        """
        self._sweep(now)
        if self._count < MAX_PROXIES:
            return True
        crowded = max(self._parts.values(), key=len)
        if not crowded.others and len(crowded) <= FEW:
            crowded = max(self._parts.values(), key=lambda part: len(part.others))
        elif not crowded.others and crowded.name != newcomer:
            return self._forget(crowded, crowded.proxies)
        return self._forget(crowded, crowded.others)

    def _forget(self, part: _Part, forwarders: OrderedDict[str, _Forwarder]) -> bool:
        """Forget the oldest of ``forwarders`` in ``part``; False if there is none."""
        if not forwarders:
            return False
        forwarders.popitem(last=False)
        self._count -= 1
        if not part:
            del self._parts[part.name]
        return True

    def _sweep(self, now: float) -> None:
        """Forget expired proxies; at most every SWEEP_SECONDS, since it visits all parts."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_SECONDS
        for part in list(self._parts.values()):
            # In order of expiry.
            while part.proxies and next(iter(part.proxies.values())).until <= now:
                self._forget(part, part.proxies)

    def _report(self, found: _Forwarder, now: float) -> None:
        """Log a public address that has become a proxy, at most every LOG_SECONDS: strangers must not fill the log."""
        if found.place.public and now >= self._report_at:
            self._report_at = now + LOG_SECONDS
            self._log.warn(
                "requests from {address} carry X-Forwarded-For of several clients, which is ignored: if that is your "
                "proxy, name it in [http] trustedProxies",
                address=found.address,
            )

    def forwards(self, address: str, now: float) -> bool:
        """Whether requests from ``address`` have named several clients within the last hour."""
        return self._forwards(_place_of(address), now)

    def _forwards(self, place: _Place, now: float) -> bool:
        part = self._parts.get(place.part)
        found = part.proxies.get(place.key) if part else None
        return found is not None and found.until > now

    def _may_be_ours(self, proxy: _Forwarder, now: float) -> bool:
        """Whether a proxy may be the operator's; a public address is not if clients from many places use no proxy."""
        if not proxy.place.public:
            return True
        direct = sum(now - at < FORWARDING_SECONDS for at in self._direct.values())
        return direct <= MAX_DIRECT and now - proxy.since >= DOUBT_SECONDS

    def alarm(self, now: float) -> str:
        """A sentence that tells the operator which setting to change; "" if no proxy may be the operator's."""
        proxies = [each for part in self._parts.values() for each in part.proxies.values()]
        found = [each for each in proxies if each.until > now and self._may_be_ours(each, now)]
        if not found:
            return ""
        # The operator's own proxy is usually on this machine or in its network: name it before any public address.
        named = [each.address for each in sorted(found, key=lambda each: each.place.public)[:_NAMED]]
        more = f" and {len(found) - len(named)} others" if len(found) > len(named) else ""
        return (
            f"requests from {', '.join(named)}{more} carry X-Forwarded-For of several clients, which is ignored, so "
            "that limits take all of these for one client: if that is your proxy, name it in [http] trustedProxies"
        )
