"""Rate limits: which client sends a request, and the token buckets that it draws from (docs/http.md).

The router draws the cost of each request from the client's bucket (:meth:`RateLimiter.admit`). The rates and their
defaults are `[limits]` of the configuration: ``Limits`` in svcd/config/schema.py.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_network
from typing import Final

from attrs import field, frozen
from attrs.validators import ge
from twisted.internet.address import IPv4Address as TCP4Address
from twisted.internet.address import IPv6Address as TCP6Address
from twisted.internet.interfaces import IAddress

from svcd.bounded_dict import BoundedDict
from svcd.interfaces import Clock
from svcd.ip_addresses import Address, IPNetwork, parse_address, parse_address_of_client, prefix
from svcd.limits import MALFORMED_POSTS, USED_NONCES, limit
from svcd.web.proxies import Proxies
from svcd.web.request import IncomingRequest
from svcd.web.responses import too_many_requests


@frozen
class Surcharge:
    """What some requests to a route cost more; ``when`` says which: ``with a `tip` before the newest block``."""

    tokens: float
    when: str


MAX_CLIENTS: Final = limit(
    20_000,
    "clients remembered for each rate",
    "clients",
    "More and more addresses, paths and methods, to fill the memory of rates and metrics",
)
"""How many clients each bucket remembers."""
FLOOD_SECONDS: Final = limit(60.0, "time of malformed posts that counts as a flood", "seconds", MALFORMED_POSTS)
"""For how long refused requests must have kept a client's bucket empty to count as a flood."""
LOOKUP_TOKENS: Final = limit(4.0, "good posts that the look-up of a used nonce costs as much as", "posts", USED_NONCES)
"""Tokens that a look-up of a submitted transfer on disk draws, beside the cost of the request. So a client causes fewer
look-ups a second by submissions than by reads, whose rate is made for them."""
LOOKUP: Final = Surcharge(LOOKUP_TOKENS, "with a signed transfer whose nonce is used")
_EMPTY: Final = 0.9
"""The used part of a bucket that counts as empty. With the default burst of ten seconds, a client that waits the second
that a 429 asks for stays below; a client that does not wait never does."""
_CACHE_SIZE: Final = 4096
_TCP: Final = (TCP4Address, TCP6Address)


def client_group(address: Address) -> str:
    """The addresses that share one limit: an IPv4 address alone, or the /56 of one IPv6 subscriber (RFC 6177)."""
    return prefix(address, v4=32, v6=56)


def parse_networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """The networks in CIDR notation; raises ValueError for invalid text and for host bits that are set."""
    return tuple(ip_network(text) for text in texts)


@frozen
class _Host:
    """What is known of a remote address."""

    address: Address
    text: str
    group: str | None
    """None for an exempt client."""
    is_trusted: bool


def _unchanged(address: Address) -> Address:
    return address


class Clients:
    """Finds the client group of connections and requests.

    ``trusted_proxies`` may name their client in ``X-Forwarded-For``; ``exempt`` clients are under no limit.
    """

    def __init__(self, trusted_proxies: Iterable[str] = (), exempt: Iterable[str] = ()) -> None:
        self.proxies = Proxies()
        """Records the values of that header that are ignored or that nobody can read."""
        self.counted: Callable[[Address], Address] = _unchanged
        """The address that bans and prices apply to: for an IPv4 host behind NAT64 its IPv4 address."""
        self._trusted = parse_networks(trusted_proxies)
        self.set_exempt(exempt)

    def set_exempt(self, exempt: Iterable[str]) -> None:
        """Change the clients that are under no limit; connections that are open keep the group that they have."""
        self._exempt = parse_networks(exempt)
        self._host = lru_cache(_CACHE_SIZE)(self._look_up)

    def of_connection(self, peer: IAddress | None) -> str | None:
        """The group whose connections are counted; None for a Unix socket, an exempt client and a trusted proxy."""
        host = self._remote(peer)
        return None if host is None or host.is_trusted else host.group

    def of_request(self, request: IncomingRequest) -> str | None:
        """The group whose buckets the request draws from; None for a Unix socket and an exempt client."""
        host = self._client(request, self._remote(request.client))
        return None if host is None else host.group

    def address_of_request(self, request: IncomingRequest) -> str | None:
        """The client's address; None for a Unix socket and an exempt client."""
        host = self._client(request, self._remote(request.client))
        return None if host is None or host.group is None else self._counted(host)

    def note_request(self, request: IncomingRequest, now: float) -> str | None:
        """The same as :meth:`of_request`.

        Also records at ``now``, in seconds, whether an untrusted client has sent ``X-Forwarded-For``, which is ignored,
        or a trusted proxy one that names no address.
        """
        host = self._remote(request.client)
        if host is None:
            return None
        if host.is_trusted:
            client, unreadable = self._forwarded(request)
            if unreadable:
                self.proxies.note_unreadable(host.text, unreadable, now)
            return (client or host).group
        lines = request.requestHeaders.getRawHeaders(b"X-Forwarded-For")
        if not lines:
            self.proxies.note_direct(self._counted(host), now)
            return host.group
        named = parse_address_of_client(lines[-1].decode("latin-1").rpartition(",")[2].strip())
        if named is not None:
            self.proxies.note(self._counted(host), str(named), now)
        return host.group

    def _counted(self, host: _Host) -> str:
        counted = self.counted(host.address)
        # Formatting an address takes longer than all the rest, and nearly every address counts under its own text.
        return host.text if counted is host.address else str(counted)

    def _client(self, request: IncomingRequest, remote: _Host | None) -> _Host | None:
        """The client of a request whose connection comes from ``remote``."""
        return self._forwarded(request)[0] or remote if remote is not None and remote.is_trusted else remote

    def _forwarded(self, request: IncomingRequest) -> tuple[_Host | None, str]:
        """The last address in ``X-Forwarded-For`` that is no trusted proxy: the last one that a client cannot forge.

        If what stands in its place is no address, None and that text.
        """
        lines = request.requestHeaders.getRawHeaders(b"X-Forwarded-For") or []
        for entry in reversed(b",".join(lines).decode("latin-1").split(",")):
            # Not everything that a client may send is kept in memory.
            address = parse_address_of_client(entry.strip())
            if address is None:
                return None, entry.strip()
            host = self._host(str(address))
            if host is None or not host.is_trusted:
                return host, ""
        return None, ""

    def _remote(self, peer: IAddress | None) -> _Host | None:
        """The other end of a connection; None for a Unix socket."""
        return self._host(peer.host) if isinstance(peer, _TCP) else None

    def _look_up(self, host: str) -> _Host | None:
        address = parse_address(host)
        if address is None:
            return None
        group = None if any(address in network for network in self._exempt) else client_group(address)
        return _Host(address, str(address), group, any(address in network for network in self._trusted))


@frozen
class Rate:
    """A token bucket refills with ``per_second`` tokens, up to ``burst``; a rate of 0 sets no limit."""

    per_second: float = field(validator=ge(0))
    burst: float = field(validator=ge(1))


NO_LIMIT: Final = Rate(0, 1)


def rates_of(per_second: Mapping[str, float], burst_seconds: float) -> dict[str, Rate]:
    """Rates by name; a burst is the tokens of ``burst_seconds``, at least one."""
    return {name: Rate(rate, max(rate * burst_seconds, 1)) for name, rate in per_second.items()}


class TokenBucket:
    """The buckets of all clients under one rate.

    For each client it stores only the time at which its bucket is full again (the virtual scheduling algorithm of ITU-T
    I.371 Annex A); a client whose time has passed is the same as an unknown one. Times are in seconds.
    """

    def __init__(self, rate: Rate, max_clients: int = MAX_CLIENTS) -> None:
        self._rate = rate
        self._max_clients = max_clients
        self._full_at: dict[str, float] = {}
        self._capacity = rate.burst / rate.per_second if rate.per_second else 0.0

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: str, cost: float, now: float) -> float:
        """Take ``cost`` tokens and return 0.0, or take none and return the seconds until there are enough.

        A cost above the burst counts as the whole burst; otherwise it could never be paid.
        """
        wait = self.wait(client, cost, now)
        if not wait and self._rate.per_second:
            self._store(client, max(self._full_at.get(client, now), now) + self._seconds(cost))
        return wait

    def wait(self, client: str, cost: float, now: float) -> float:
        """What :meth:`take` would return, without taking any."""
        full_at = self._full_at.get(client)
        if full_at is None:
            return 0.0
        if full_at > now + 2 * self._capacity:
            # Longer than the greatest debt: the clock was set back, which must not shut the client out.
            full_at = self._full_at[client] = now + self._capacity
        wait = full_at + self._seconds(cost) - now - self._capacity
        return wait if wait > 1e-9 else 0.0

    def owe(self, client: str, tokens: float, now: float) -> None:
        """Take ``tokens`` even if there are fewer; debt never exceeds the burst."""
        if self._rate.per_second:
            full_at = max(self._full_at.get(client, now), now) + tokens / self._rate.per_second
            self._store(client, min(full_at, now + 2 * self._capacity))

    def is_empty(self, client: str, now: float) -> bool:
        """Whether nine tenths or more of the client's bucket are used; never where there is no limit."""
        return self._full_at.get(client, now) - now >= _EMPTY * self._capacity > 0

    def _seconds(self, cost: float) -> float:
        """How long the refill of ``cost`` tokens takes."""
        return (cost if cost < self._rate.burst else self._rate.burst) / self._rate.per_second

    def _store(self, client: str, full_at: float) -> None:
        if client not in self._full_at and len(self._full_at) >= self._max_clients:
            # Drop the quarter that owes least: buckets that are full again, or soon will be. To sort the times alone
            # takes a third as long as to sort the clients by them, for which the reactor's thread has no time.
            count = self._max_clients // 4 + 1
            most = sorted(self._full_at.values())[count - 1]
            least = [each for each, full_again_at in self._full_at.items() if full_again_at <= most]
            for dropped in least[:count]:
                del self._full_at[dropped]
        self._full_at[client] = full_at


class FloodDetector:
    """Detects clients whose refused requests alone keep a bucket empty for FLOOD_SECONDS."""

    def __init__(self, rate: Rate, max_clients: int = MAX_CLIENTS) -> None:
        self._refused = TokenBucket(rate, max_clients)
        self._empty_since: BoundedDict[str, float] = BoundedDict(max_clients)

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, client: str, tokens: float, now: float) -> bool:
        """Draw the ``tokens`` of a refused request at ``now``, in seconds; True for a flood."""
        since = self._empty_since.get(client, now) if self._refused.is_empty(client, now) else now
        self._refused.owe(client, tokens, now)
        if not self._refused.is_empty(client, now):
            return False
        self._empty_since[client] = since
        return now - since >= FLOOD_SECONDS


class RateLimiter:
    """The token buckets of a site, by name; a route names the bucket that it draws from.

    ``note_forwarding`` is False for a site without limits or bans: an ``X-Forwarded-For`` header changes nothing there.
    """

    def __init__(
        self, clients: Clients, rates: Mapping[str, Rate], clock: Clock, *, note_forwarding: bool = True
    ) -> None:
        self.clients = clients
        self._clock = clock
        self._note_forwarding = note_forwarding
        self.set_rates(rates)

    def set_rates(self, rates: Mapping[str, Rate]) -> None:
        """Change the rates; all buckets are full then."""
        self.buckets = {name: TokenBucket(rate) for name, rate in rates.items()}
        self._floods = {name: FloodDetector(rate) for name, rate in rates.items()}

    def __contains__(self, bucket: str) -> bool:
        return bucket in self.buckets

    def take(self, request: IncomingRequest, bucket: str, cost: float) -> float:
        """Draw ``cost`` tokens for the request's client group and return 0.0, or the seconds until there are enough."""
        now = self._clock.seconds()
        clients = self.clients
        group = clients.note_request(request, now) if self._note_forwarding else clients.of_request(request)
        return 0.0 if group is None else self.buckets[bucket].take(group, cost, now)

    def admit(self, request: IncomingRequest, bucket: str, cost: float) -> None:
        """Draw ``cost`` tokens, or raise HttpError(429)."""
        wait = self.take(request, bucket, cost)
        if wait:
            request.recorder.throttled(bucket)
            raise too_many_requests(wait)

    def owe(self, request: IncomingRequest, bucket: str, tokens: float) -> None:
        """Draw ``tokens`` even if there are fewer, for work that has been done already."""
        group = self.clients.of_request(request)
        if group is not None:
            self.buckets[bucket].owe(group, tokens, self._clock.seconds())

    def penalise(self, request: IncomingRequest, bucket: str, tokens: float, *, paid: float) -> bool:
        """Draw ``tokens`` for a refused request that has ``paid`` its cost before; True if its client floods."""
        group, now = self.clients.of_request(request), self._clock.seconds()
        if group is None:
            return False
        self.buckets[bucket].owe(group, tokens, now)
        return self._floods[bucket].note(group, paid + tokens, now)
