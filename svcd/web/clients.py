"""Who is asking: the group of addresses that one limit counts as one client (docs/http.md)."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Protocol

from twisted.internet.address import IPv4Address as TCP4Address
from twisted.internet.address import IPv6Address as TCP6Address
from twisted.internet.interfaces import IAddress

from svcd.ports import Clock
from svcd.web.buckets import Buckets
from svcd.web.forwarding import UntrustedProxies
from svcd.web.routing import Asked

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REMEMBERED: Final = 4096
_TCP: Final = (TCP4Address, TCP6Address)


class Throttle(Protocol):
    """Holds clients to their rates."""

    def knows(self, bucket: str) -> bool:
        """Whether there is a rate of this name."""

    def client(self, request: Asked) -> str | None:
        """The address that asks; None for one that is under no limit."""

    def wait(self, request: Asked, bucket: str, cost: float) -> float:
        """Draw ``cost`` from the request's client's bucket and return 0.0, or the seconds until it can be paid."""

    def shortages(self, request: Asked, costs: Mapping[str, float]) -> Mapping[str, float]:
        """The buckets that do not have the cost named for them, and the seconds until they will; nothing is drawn.

        Empty as well while nobody has been refused lately.
        """

    def owe(self, request: Asked, bucket: str, tokens: float) -> None:
        """Draw ``tokens`` from the request's client's bucket even if it has less, for what has been done already."""

    def penalise(self, request: Asked, bucket: str, tokens: float, *, paid: float) -> bool:
        """The same for a refused request that has ``paid`` tokens before.

        Returns whether such requests alone have kept the client's bucket empty for a minute.
        """


def parse_address(text: str) -> Address | None:
    """The address in ``text``, an IPv4-mapped IPv6 address as IPv4; None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_group(address: Address) -> str:
    """The client that ``address`` belongs to: an IPv4 address, or the /56 that one IPv6 subscriber gets (RFC 6177)."""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((int(address), 56), strict=False))


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks in CIDR notation; raises ValueError for one that is none or has host bits set."""
    return tuple(ip_network(text) for text in texts)


def _as_it_is(address: Address) -> Address:
    return address


class Clients:
    """Tells the client group of connections and requests.

    ``trusted_proxies`` may say in ``X-Forwarded-For`` for whom they ask; ``exempt`` clients are under no limit.
    """

    untrusted: UntrustedProxies
    """What others say in that header."""
    counted: Callable[[Address], Address]
    """Tells the address for which one counts where single addresses matter: of an IPv4 host behind NAT64 its own."""

    def __init__(self, trusted_proxies: Iterable[str] = (), exempt: Iterable[str] = ()) -> None:
        self.untrusted = UntrustedProxies()
        self.counted = _as_it_is
        self._trusted = parse_networks(trusted_proxies)
        self._exempt = parse_networks(exempt)
        self._address_of_host = lru_cache(_REMEMBERED)(parse_address)
        self._group_of_host = lru_cache(_REMEMBERED)(self._find_group)
        self._is_trusted = lru_cache(_REMEMBERED)(self._find_trusted)

    def of_connection(self, peer: IAddress | None) -> str | None:
        """The group whose connections are counted; None for a Unix socket, an exempt client and a trusted proxy."""
        host = _host(peer)
        return None if host is None or self._is_trusted(host) else self._group_of_host(host)

    def of_request(self, request: Asked) -> str | None:
        """The group whose buckets the request draws from; None for a Unix socket and for an exempt client."""
        host = self._asking(request)
        return None if host is None else self._group_of_host(host)

    def address_of_request(self, request: Asked) -> str | None:
        """The address that asks; None for a Unix socket and for an exempt client."""
        host = self._asking(request)
        limited = host is not None and self._group_of_host(host) is not None
        return self._counted(host) if host is not None and limited else None

    def _counted(self, host: str) -> str | None:
        """The address for which whoever asks from ``host`` counts; None where that is no address."""
        address = self._address_of_host(host)
        return None if address is None else str(self.counted(address))

    def note_forwarding(self, request: Asked, now: float) -> None:
        """Remember at ``now``, in seconds, whether a request has an ``X-Forwarded-For``, which is then ignored."""
        host = _host(request.client)
        address = None if host is None or self._is_trusted(host) else self._counted(host)
        if address is None:
            return
        lines = request.requestHeaders.getRawHeaders(b"X-Forwarded-For")
        if not lines:
            self.untrusted.note_direct(address, now)
            return
        client = parse_address(lines[-1].decode("latin-1").rpartition(",")[2].strip())
        if client is not None:
            self.untrusted.note(address, str(client), now)

    def _asking(self, request: Asked) -> str | None:
        host = _host(request.client)
        if host is not None and self._trusted and self._is_trusted(host):
            return self._forwarded(request) or host
        return host

    def _forwarded(self, request: Asked) -> str | None:
        """The last address in ``X-Forwarded-For`` that is not a trusted proxy: the last one that nobody can forge."""
        lines = request.requestHeaders.getRawHeaders(b"X-Forwarded-For") or []
        for entry in reversed(b",".join(lines).decode("latin-1").split(",")):
            host = entry.strip()
            if parse_address(host) is None:
                return None
            if not self._is_trusted(host):
                return host
        return None

    def _find_group(self, host: str) -> str | None:
        address = parse_address(host)
        if address is None or any(address in network for network in self._exempt):
            return None
        return client_group(address)

    def _find_trusted(self, host: str) -> bool:
        address = parse_address(host)
        return address is not None and any(address in network for network in self._trusted)


def _host(peer: IAddress | None) -> str | None:
    return peer.host if isinstance(peer, _TCP) else None


class ClientThrottle:
    """Holds every client group to its buckets: the throttle of a public site."""

    def __init__(self, clients: Clients, buckets: Buckets, clock: Clock) -> None:
        self._clients = clients
        self._buckets = buckets
        self._clock = clock

    def knows(self, bucket: str) -> bool:
        """Whether there is a rate of this name."""
        return bucket in self._buckets.rates

    def client(self, request: Asked) -> str | None:
        """The address that asks; None for one that is under no limit."""
        return self._clients.address_of_request(request)

    def wait(self, request: Asked, bucket: str, cost: float) -> float:
        """Draw ``cost`` from the bucket of the request's client group."""
        group, now = self._clients.of_request(request), self._clock.seconds()
        self._clients.note_forwarding(request, now)
        return 0.0 if group is None else self._buckets.take(bucket, group, cost, now)

    def shortages(self, request: Asked, costs: Mapping[str, float]) -> Mapping[str, float]:
        """The buckets of the request's client group that do not have the cost named for them; nothing is drawn."""
        now = self._clock.seconds()
        if now >= self._buckets.short_until:
            # Mostly so, and it costs an answer nothing to know that.
            return {}
        group = self._clients.of_request(request)
        if group is None:
            return {}
        waits = {bucket: self._buckets.wait(bucket, group, cost, now) for bucket, cost in costs.items()}
        return {bucket: wait for bucket, wait in waits.items() if wait}

    def owe(self, request: Asked, bucket: str, tokens: float) -> None:
        """Draw ``tokens`` from the bucket of the request's client group even if it has less."""
        group = self._clients.of_request(request)
        if group is not None:
            self._buckets.owe(bucket, group, tokens, self._clock.seconds())

    def penalise(self, request: Asked, bucket: str, tokens: float, *, paid: float) -> bool:
        """The same for a refused request; whether those alone have kept the group's bucket empty for a minute."""
        group, now = self._clients.of_request(request), self._clock.seconds()
        return group is not None and self._buckets.penalise(bucket, group, tokens, now, paid=paid)


class Unlimited:
    """Lets everything pass: the throttle of an operator's site."""

    def knows(self, bucket: str) -> bool:
        """Every name will do."""
        return True

    def client(self, request: Asked) -> None:
        """Nobody is under a limit."""

    def wait(self, request: Asked, bucket: str, cost: float) -> float:
        """Nobody waits."""
        return 0.0

    def shortages(self, request: Asked, costs: Mapping[str, float]) -> Mapping[str, float]:
        """Nothing is short."""
        return {}

    def owe(self, request: Asked, bucket: str, tokens: float) -> None:
        """Nobody owes anything."""

    def penalise(self, request: Asked, bucket: str, tokens: float, *, paid: float) -> bool:
        """No refusal costs anything."""
        return False
