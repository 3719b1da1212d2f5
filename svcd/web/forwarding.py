"""Proxies that are not trusted: the client that they name is ignored, so that all behind them are one client.

A proxy is told by what it sends: several different addresses in the ``X-Forwarded-For`` of requests from one address.
Any client can send that, so it exempts no client from a limit. It only keeps the price of one client from being paid by
all the others behind the proxy (docs/peers.md "Prices"), and it is an alarm for the operator (docs/operations.md
"Alarms"): at once for an address of a private network or of this machine, where no stranger is. A public address is a
stranger's unless almost no client comes from elsewhere.
"""

from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from math import inf
from typing import Final

from attrs import define, field, frozen
from twisted.logger import Logger

FORWARDING_SECONDS: Final = 3_600.0
"""How long after its last such request an address counts as a proxy."""
MAX_PROXIES: Final = 1_024
"""How many addresses with an ignored header are remembered at once."""
FEW: Final = 16
"""So many of one part of the network make no crowd, of which proxies would give way to others."""
SWEEP_SECONDS: Final = 60.0
DOUBT_SECONDS: Final = 600.0
"""How long a public address must have been a proxy to be an alarm: peers call a node within five minutes."""
MAX_DIRECT: Final = 3
"""From how many parts of the network clients may come without a proxy in an hour, if one is to be an alarm."""
MAX_PARTS: Final = 64
"""How many of those are remembered."""
LOG_SECONDS: Final = 3_600.0
"""Between two lines of the log about proxies with a public address."""
_NAMED: Final = 3


@frozen
class _Place:
    """What an address counts as; of IPv6 that is its /64, from which one machine may choose."""

    key: str
    part: str
    """The part of the network that one party may well own: a /16 of IPv4, a /32 of IPv6."""
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
    """The address itself, of several in one /64 the last."""
    first: str
    """The first client that it named."""
    since: float = 0.0
    """Since when it has counted as a proxy."""
    until: float = 0.0
    """Until when it counts as one; 0.0 while it has named only one client."""


@define(eq=False)
class _Part:
    """The addresses of one part of the network, in the order of their last requests with the header."""

    name: str
    proxies: OrderedDict[str, _Forwarder] = field(factory=OrderedDict)
    others: OrderedDict[str, _Forwarder] = field(factory=OrderedDict)
    """Those that have named one client only."""

    def __len__(self) -> int:
        return len(self.proxies) + len(self.others)

    def take(self, key: str) -> _Forwarder | None:
        """Take out one; None if it is not there."""
        return self.proxies.pop(key, None) or self.others.pop(key, None)


class UntrustedProxies:
    """Remembers which addresses that are no trusted proxies forward requests, at most 1,024 of them."""

    _log = Logger()

    def __init__(self) -> None:
        self.ignored = 0
        """Requests whose ``X-Forwarded-For`` was ignored."""
        self._parts: dict[str, _Part] = {}
        self._count = 0
        self._direct: OrderedDict[str, float] = OrderedDict()
        """By part of the public network, the time of its last request without the header; the newest parts only."""
        self._report_at = self._sweep_at = -inf

    def __len__(self) -> int:
        return self._count

    def note(self, address: str, client: str, now: float) -> None:
        """A request came from ``address`` that names ``client`` as the one it is for, which is ignored."""
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
        """A request came from ``address`` that has no such header."""
        place = _place_of(address)
        if place.public and not self._forwards(place, now):
            self._direct[place.part] = now
            self._direct.move_to_end(place.part)
            if len(self._direct) > MAX_PARTS:
                self._direct.popitem(last=False)

    def _make_room(self, newcomer: str, now: float) -> bool:
        """Forget an address for one in the part ``newcomer`` of the network; False if none is worth less.

        One of the part that has most gives way, first one that is no proxy: so a client with many addresses takes
        no other client's place, and no proxy gives way to another address of its own part, or where a part has few.
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
        """Forget the oldest of some ``forwarders`` in ``part``; False if there is none."""
        if not forwarders:
            return False
        forwarders.popitem(last=False)
        self._count -= 1
        if not part:
            del self._parts[part.name]
        return True

    def _sweep(self, now: float) -> None:
        """Forget those that are no proxies any more; at most once a minute, for it looks at all."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_SECONDS
        for part in list(self._parts.values()):
            # They stand in the order in which they end.
            while part.proxies and next(iter(part.proxies.values())).until <= now:
                self._forget(part, part.proxies)

    def _report(self, found: _Forwarder, now: float) -> None:
        """Log a proxy that is no alarm yet, now and then: strangers must not fill the log."""
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
        """Whether a proxy may be the operator's: where many clients come without one, a public address is not."""
        if not proxy.place.public:
            return True
        direct = sum(now - at < FORWARDING_SECONDS for at in self._direct.values())
        return direct <= MAX_DIRECT and now - proxy.since >= DOUBT_SECONDS

    def alarm(self, now: float) -> str:
        """What the operator must set, as a sentence; "" if no address forwards that may be the operator's proxy."""
        proxies = [each for part in self._parts.values() for each in part.proxies.values()]
        found = [each for each in proxies if each.until > now and self._may_be_ours(each, now)]
        if not found:
            return ""
        # The operator's own proxy is mostly on this machine or in its network: it must not drown in others.
        named = [each.address for each in sorted(found, key=lambda each: each.place.public)[:_NAMED]]
        more = f" and {len(found) - len(named)} others" if len(found) > len(named) else ""
        return (
            f"requests from {', '.join(named)}{more} carry X-Forwarded-For of several clients, which is ignored, so "
            "that limits take all of these for one client: if that is your proxy, name it in [http] trustedProxies"
        )
