"""Detects proxies behind which all clients count as one: their ``X-Forwarded-For`` is ignored, or cannot be read.

An address counts as a proxy if ``X-Forwarded-For`` of its requests has named several clients. Any client can send such
headers, so they exempt no client from a limit. They only prevent that all clients behind the proxy pay the price of one
(docs/peers.md "Prices"), and raise an alarm for the operator (docs/monitoring.md "Alarms"): at once for an address of
this machine or of a private network, which no outside client can have; for a public address only if almost all clients
come through it, since any other may be a client that sends false headers. A trusted proxy that names no address is an
alarm too.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from typing import Final

from attrs import define, frozen
from twisted.logger import Logger

from svcd.bounded_dict import BoundedDict
from svcd.ip_addresses import prefix
from svcd.limits import limit

_BAN_OF_PROXY: Final = "Invalid data from the address of an honest node, or through a proxy, to have others banned"
_FALSE_ALARM: Final = "Sending `X-Forwarded-For` from one address, to raise the operator's alarm for an untrusted proxy"
FORWARDING_SECONDS: Final = limit(3_600.0, "time that an address counts as a proxy", "seconds", _BAN_OF_PROXY)
"""For how long after its last request with the header an address counts as a proxy."""
MAX_PROXIES: Final = limit(1_024, "addresses remembered as proxies", "addresses", _BAN_OF_PROXY)
"""How many addresses with an ignored header are remembered at once."""

FEW: Final = limit(
    16,
    "proxies in one part of the network that all stay remembered",
    "addresses",
    "Sending `X-Forwarded-For` from many addresses, to have a real proxy forgotten and then banned by an invalid block",
)
"""A part of the network with no more addresses than this loses no proxy to make room for others."""
DOUBT_SECONDS: Final = limit(
    600.0, "time that an address must have been a proxy to raise the alarm", "seconds", _FALSE_ALARM
)
"""How long a public address must have been a proxy to be an alarm: peers call a node within five minutes."""
MAX_DIRECT: Final = limit(
    3, "parts of the network with clients that use no proxy, for the alarm to be raised", "parts", _FALSE_ALARM
)
"""A public address is no alarm if clients from more parts of the network have come without a proxy in an hour."""
MAX_PARTS: Final = 64
"""How many parts of the network with clients that use no proxy are remembered."""
LOG_SECONDS: Final = 3_600.0
"""Between two log lines about proxies with a public address."""
_NAMED: Final = 3
_SHOWN: Final = 64
"""Characters of an entry that is no address."""


@frozen
class _Origin:
    """The place of an address in the network; ``key`` is the /64 of an IPv6 address, which one machine may own."""

    key: str
    part: str
    """The part of the network that one party may own: a /16 of IPv4, a /32 of IPv6."""
    public: bool


@lru_cache(4_096)
def _origin_of(text: str) -> _Origin:
    address = ip_address(text)
    return _Origin(prefix(address, v4=32, v6=64), prefix(address, v4=16, v6=32), address.is_global)


@define(eq=False)
class _Forwarder:
    """An address whose requests carry the header; times are in seconds."""

    origin: _Origin
    address: str
    """The address itself; the last one of several in one /64."""
    first: str
    """The first client that it named."""
    since: float = 0.0
    """Since when it has counted as a proxy."""
    until: float = 0.0
    """Until when it counts as a proxy; 0.0 while it has named only one client."""


class Proxies:
    """Remembers the addresses that forward requests without being trusted proxies, MAX_PROXIES at most.

    Of trusted proxies it remembers the last one that named no address.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.ignored = 0
        """Requests whose ``X-Forwarded-For`` was ignored."""
        self._parts: dict[str, OrderedDict[str, _Forwarder]] = {}
        """By part of the network, its addresses in the order of their last requests with the header."""
        self._count = 0
        self._direct: BoundedDict[str, float] = BoundedDict(MAX_PARTS)
        """By part of the public network, the time of its last request without the header."""
        self._report_at = -inf
        self._unreadable: tuple[str, str, float] | None = None
        """The last trusted proxy that named no address, what it named, and when."""

    def __len__(self) -> int:
        return self._count

    def note(self, address: str, client: str, now: float) -> None:
        """Record a request from ``address`` whose ignored header names ``client``."""
        self.ignored += 1
        origin = _origin_of(address)
        found = self._find(origin)
        if found is None:
            if self._count >= MAX_PROXIES and not self._make_room(origin.part, now):
                return
            found = _Forwarder(origin, address, client)
            self._count += 1
        part = self._parts.setdefault(origin.part, OrderedDict())
        part[origin.key] = found
        part.move_to_end(origin.key)
        found.address = address
        if found.until <= now:
            if client == found.first:
                return
            found.since = now
            self._report(found, now)
        found.until = now + FORWARDING_SECONDS

    def note_unreadable(self, address: str, entry: str, now: float) -> None:
        """Record that the trusted proxy at ``address`` named its client by ``entry``, which is no IP address."""
        self._unreadable = address, entry[:_SHOWN], now

    def note_direct(self, address: str, now: float) -> None:
        """Record a request from ``address`` without the header."""
        origin = _origin_of(address)
        if origin.public and not self._forwards(origin, now):
            self._direct[origin.part] = now

    def _make_room(self, newcomer: str, now: float) -> bool:
        """Evict an address to make room for one in the part ``newcomer`` of the network; False if none may be evicted.

        The address comes from the largest part, and is one that is no proxy if there is any. So a client with many
        addresses evicts no other client's; and no proxy is evicted for another address of its own part, nor from a
        part with FEW addresses.
        """
        crowded = max(self._parts.values(), key=len)
        victim = _oldest(crowded, now)
        if victim is None and len(crowded) <= FEW:
            parts = Counter(each.origin.part for each in self._all() if each.until <= now)
            crowded = self._parts[max(parts, key=parts.__getitem__)] if parts else crowded
            victim = _oldest(crowded, now)
        elif victim is None and crowded is not self._parts.get(newcomer):
            victim = next(iter(crowded.values()))
        if victim is None:
            return False
        del crowded[victim.origin.key]
        self._count -= 1
        if not crowded:
            del self._parts[victim.origin.part]
        return True

    def _find(self, origin: _Origin) -> _Forwarder | None:
        part = self._parts.get(origin.part)
        return part.get(origin.key) if part else None

    def _all(self) -> Iterator[_Forwarder]:
        return (each for part in self._parts.values() for each in part.values())

    def _report(self, found: _Forwarder, now: float) -> None:
        """Log a public address that has become a proxy, at most every LOG_SECONDS: strangers must not fill the log."""
        if found.origin.public and now >= self._report_at:
            self._report_at = now + LOG_SECONDS
            self._log.warn(
                "requests from {address} carry X-Forwarded-For of several clients, which is ignored: if that is your "
                "proxy, name it in [http] trustedProxies",
                address=found.address,
            )

    def forwards(self, address: str, now: float) -> bool:
        """Whether requests from ``address`` have named several clients within the last hour."""
        return self._forwards(_origin_of(address), now)

    def _forwards(self, origin: _Origin, now: float) -> bool:
        found = self._find(origin)
        return found is not None and found.until > now

    def _may_be_ours(self, proxy: _Forwarder, now: float) -> bool:
        """Whether a proxy may be the operator's; a public address is not if clients from many places use no proxy."""
        if not proxy.origin.public:
            return True
        direct = sum(now - at < FORWARDING_SECONDS for at in self._direct.values())
        return direct <= MAX_DIRECT and now - proxy.since >= DOUBT_SECONDS

    def alarm(self, now: float) -> str:
        """A sentence that names the setting that the operator must change; "" if no proxy may be the operator's."""
        if self._unreadable is not None and now - self._unreadable[2] < FORWARDING_SECONDS:
            address, entry, _ = self._unreadable
            return (
                f"the trusted proxy {address} names a client in X-Forwarded-For by {entry!a}, which is no IP "
                "address, so that limits take all such clients for one: let it send addresses, with or without a port"
            )
        found = [each for each in self._all() if each.until > now and self._may_be_ours(each, now)]
        if not found:
            return ""
        # The operator's own proxy is usually on this machine or in its network: name it before any public address.
        named = [each.address for each in sorted(found, key=lambda each: each.origin.public)[:_NAMED]]
        more = f" and {len(found) - len(named)} others" if len(found) > len(named) else ""
        return (
            f"requests from {', '.join(named)}{more} carry X-Forwarded-For of several clients, which is ignored, so "
            "that limits take all of these for one client: if that is your proxy, name it in [http] trustedProxies"
        )


def _oldest(part: Mapping[str, _Forwarder], now: float) -> _Forwarder | None:
    """The first address in ``part`` that does not count as a proxy."""
    return next((each for each in part.values() if each.until <= now), None)
