"""HTTP calls that go to an address that was checked, and nowhere else.

A name is looked up once. If one of its addresses may not be called, none is; otherwise the connection is made to an
address that was looked at, not to the name, which might by then mean another. TLS still demands a certificate for the
name.
"""

# mypy: allow-untyped-calls

from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Network
from types import MappingProxyType
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.web.client import HTTPConnectionPool

from svcd.net.addresses import Address, AddressPolicy, BadAddress, may_be_translated
from svcd.net.calls import CallFailed, CallLimits, Lane, Progress, Reply, within
from svcd.net.connections import CheckedEndpoint, Dialler
from svcd.net.exchange import Exchange, Request
from svcd.net.nat64 import Nat64Discovery
from svcd.net.resolving import Resolver
from svcd.net.targets import Target
from svcd.net.trust import Trust

PLACES: Final[Mapping[Lane, int]] = MappingProxyType(
    {Lane.ASK: 2, Lane.HEADERS: 1, Lane.FETCH: 2, Lane.TELL: 4, Lane.URGENT: 2}
)
"""How many calls to one peer may be under way at a time, by lane: each has a connection to itself."""
IDLE_SECONDS: Final = 45
"""Less than the 60 s after which a node closes an idle connection, so that it is we who close it."""
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class PinnedCaller:
    """Makes calls to addresses that ``policy`` admits, over TLS only with certificates of ``trust``."""

    def __init__(self, reactor: Dialler, *, resolver: Resolver, policy: AddressPolicy, trust: Trust) -> None:
        self._reactor = reactor
        self._resolver = resolver
        self._policy = policy
        self._trust = trust
        self._nat64 = Nat64Discovery(resolver, reactor)

    @property
    def translators(self) -> Sequence[IPv6Network]:
        """The prefixes of the network's own translators (NAT64), as far as they have been needed."""
        return self._nat64.known

    async def call(
        self,
        method: str,
        target: Target,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        limits: CallLimits,
    ) -> Reply:
        """Look up, check, connect, ask, and close the connection.

        Raises:
            CallFailed: there is no answer.
        """
        request = Request(method=method, target=target, headers=headers, body=body)
        progress = Progress(limits, self._reactor)
        return await progress.watch(self._call(request, limits, progress), target.origin)

    async def pin(self, target: Target, *, seconds: float) -> "PinnedPeer":
        """Look up and check the host of ``target`` within ``seconds``, for many calls to one of its addresses.

        Raises:
            CallFailed: the name has no address, or one that may not be called.
        """
        late = f"{target.host} was not found within {seconds:g} s"
        endpoint = await within(seconds, self._reactor, self._find(target, seconds), late)
        return PinnedPeer(self._reactor, target, endpoint)

    async def _call(self, request: Request, limits: CallLimits, progress: Progress) -> Reply:
        endpoint = await self._find(request.target, limits.seconds)
        exchange = Exchange(self._reactor, endpoint, HTTPConnectionPool(self._reactor, persistent=False))
        return await exchange.send(request, limits.max_bytes, progress)

    async def _find(self, target: Target, seconds: float) -> CheckedEndpoint:
        addresses = [target.address] if target.address else await self._resolve(target.host)
        nat64 = await self._nat64.prefixes() if any(map(may_be_translated, addresses)) else ()
        for address in addresses:
            try:
                self._policy.check(address, nat64)
            except BadAddress as error:
                sentence = f"{target.host} has an address that may not be called ({error.category})"
                raise CallFailed("refused-address", sentence) from error
        return CheckedEndpoint(self._reactor, target, addresses, trust=self._trust, seconds=seconds)

    async def _resolve(self, host: str) -> Sequence[Address]:
        try:
            addresses = await self._resolver.resolve(host)
        except OSError as error:
            raise CallFailed("dns", f"{host} cannot be looked up: {error.strerror or error}") from error
        if not addresses:
            raise CallFailed("dns", f"{host} has no address")
        return addresses


class PinnedPeer:
    """Calls to one place over at most as many connections as there are ``PLACES``, all kept and to one address.

    A connection that was lost is made anew to the same address. Close it when it is no longer needed.
    """

    def __init__(self, reactor: Dialler, target: Target, endpoint: CheckedEndpoint) -> None:
        self.target = target
        self._reactor = reactor
        self._endpoint = endpoint
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.maxPersistentPerHost = sum(PLACES.values())
        self._pool.cachedConnectionTimeout = IDLE_SECONDS
        # It would wrap connections to send again what was lost; whether to do so is for the caller to say.
        self._pool.retryAutomatically = False
        self._exchange = Exchange(reactor, endpoint, self._pool)
        self._places = {lane: DeferredSemaphore(places) for lane, places in PLACES.items()}
        self._running: set[Deferred[Reply]] = set()
        self._closed = False

    @property
    def address(self) -> Address:
        """The address that is called; until the first connection, the one that is tried first."""
        return self._endpoint.addresses[0]

    async def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        limits: CallLimits,
        lane: Lane = Lane.ASK,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Reply:
        """Ask for ``path``; the wait for a free connection of ``lane`` counts.

        ``on_bytes`` is called with the number of bytes of the answer's body as they arrive. Cancelling the call closes
        its connection at once.

        Raises:
            CallFailed: there is no answer.
            ValueError: ``path`` is none.
        """
        request = Request(method=method, target=self.target.at(path), headers=headers, body=body)
        if self._closed:
            raise self._gone()
        progress = Progress(limits, self._reactor, on_bytes)
        running = progress.watch(self._call(request, limits, lane, progress), self.target.origin)
        self._running.add(running)
        try:
            return await running
        except CancelledError:
            if self._closed:
                raise self._gone() from None
            raise
        finally:
            self._running.discard(running)

    async def close(self) -> None:
        """Close all connections; calls that wait for an answer fail."""
        self._closed = True
        for running in tuple(self._running):
            running.cancel()
        await self._pool.closeCachedConnections()

    async def _call(self, request: Request, limits: CallLimits, lane: Lane, progress: Progress) -> Reply:
        await self._places[lane].acquire()
        try:
            return await self._exchange.send(request, limits.max_bytes, progress)
        finally:
            self._places[lane].release()

    def _gone(self) -> CallFailed:
        return CallFailed("connect", f"the connections to {self.target.origin} have been closed")
