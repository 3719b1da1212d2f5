"""Proxies that are not trusted: the client that they name is ignored, so that all behind them are one client.

A proxy is told by what it sends: several different addresses in the ``X-Forwarded-For`` of requests from one address.
Anybody can send that, so it lets nobody out of a limit. It only keeps the price of one client from being paid by all
the others behind the proxy (docs/peers.md "Prices"), and it is an alarm for the operator.
"""

from collections import OrderedDict
from ipaddress import ip_address
from typing import Final

from attrs import define, field

FORWARDING_SECONDS: Final = 3_600.0
"""How long after its last such request an address counts as a proxy."""
MAX_PROXIES: Final = 1_024
"""How many addresses with an ignored header are remembered at once."""
_NAMED: Final = 3


@define
class _Forwarder:
    """An address whose requests carry the header; times are in seconds."""

    first: str
    """The first client that it named."""
    until: float = 0.0
    """Until when it counts as a proxy; 0.0 while it has named only one client."""


@define
class UntrustedProxies:
    """Remembers which addresses that are no trusted proxies forward requests, at most 1,024 of them."""

    ignored: int = 0
    """Requests whose ``X-Forwarded-For`` was ignored."""
    _of: OrderedDict[str, _Forwarder] = field(factory=OrderedDict)

    def note(self, address: str, client: str, now: float) -> None:
        """A request came from ``address`` that names ``client`` as the one it is for, which is ignored."""
        self.ignored += 1
        found = self._of.get(address)
        if found is None:
            found = self._of[address] = _Forwarder(client)
            if len(self._of) > MAX_PROXIES:
                self._of.popitem(last=False)
        self._of.move_to_end(address)
        if client != found.first or found.until > now:
            found.until = now + FORWARDING_SECONDS

    def forwards(self, address: str, now: float) -> bool:
        """Whether requests from ``address`` have named several clients within the last hour."""
        found = self._of.get(address)
        return found is not None and found.until > now

    def alarm(self, now: float) -> str:
        """What the operator must set, as a sentence; "" if no address forwards."""
        found = [address for address, forwarder in self._of.items() if forwarder.until > now]
        if not found:
            return ""
        # The operator's own proxy is mostly on this machine or in its network: it must not drown in others.
        named = sorted(found, key=lambda address: ip_address(address).is_global)[:_NAMED]
        more = f" and {len(found) - len(named)} others" if len(found) > len(named) else ""
        return (
            f"requests from {', '.join(named)}{more} carry X-Forwarded-For of several clients, which is ignored, so "
            "that limits take all of these for one client: if that is your proxy, name it in [http] trustedProxies"
        )
