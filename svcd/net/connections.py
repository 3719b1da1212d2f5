"""Connections that can only go to addresses that were checked; the first of them that answers is the one."""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N803

from collections import deque
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, Final, Protocol, cast

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.net.addresses import Address, text_of
from svcd.net.calls import CallFailed
from svcd.net.meter import Meter, Metering
from svcd.net.resolving import interleaved
from svcd.net.targets import Target
from svcd.net.trust import Trust
from svcd.ports import Clock, Timer

ATTEMPT_SECONDS: Final = 0.25
"""How long an address has to answer before the next one is tried beside it (RFC 8305 section 5)."""
_CONNECTING_SHARE: Final = 0.75
"""Of a call's time for one attempt: less than all, so that the call fails for want of a connection and not of time."""


class Dialler(Clock, Protocol):
    """A reactor that opens TCP connections (twisted.internet.interfaces.IReactorTCP)."""

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: tuple[str, int] | None = None,
    ) -> object:
        """Connect ``factory``'s protocol to an address."""


class _Attempts:
    """Connects to the first endpoint that answers: Happy Eyeballs (RFC 8305 section 5).

    Not Twisted's HostnameEndpoint: that wants a reactor with a resolver of names, of which there must be none here, and
    lets ATTEMPT_SECONDS go by also after an attempt that failed at once, as each does without a route for IPv6.
    """

    def __init__(self, clock: Clock, endpoints: Sequence[tuple[Address, Any]], factory: IProtocolFactory) -> None:
        self._clock = clock
        self._waiting = deque(endpoints)
        self._factory = factory
        self._running: set[Deferred[Meter]] = set()
        self._timer: Timer | None = None
        self._ended = False
        self.outcome: Deferred[tuple[Address, Meter]] = Deferred(self._end)
        """The address that answered first, and the connection to it; or the last failure if none answers."""

    def begin(self) -> None:
        """Begin the next attempt, and in ATTEMPT_SECONDS the one after it."""
        self._timer = None
        address, endpoint = self._waiting.popleft()
        if self._waiting:
            self._timer = self._clock.callLater(ATTEMPT_SECONDS, self.begin)
        attempt: Deferred[Meter] = endpoint.connect(Metering(self._factory))
        self._running.add(attempt)
        attempt.addCallbacks(self._connected, self._failed, callbackArgs=(attempt, address), errbackArgs=(attempt,))

    def _connected(self, meter: Meter, attempt: "Deferred[Meter]", address: Address) -> None:
        self._running.discard(attempt)
        self._end()
        self.outcome.callback((address, meter))

    def _failed(self, failure: Failure, attempt: "Deferred[Meter]") -> None:
        self._running.discard(attempt)
        if self._ended:
            return
        if self._timer is not None:
            self._timer.cancel()
            self.begin()
        elif not self._running:
            self._ended = True
            self.outcome.errback(failure)

    def _end(self, _outcome: object = None) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for attempt in tuple(self._running):
            attempt.cancel()


@implementer(IStreamClientEndpoint)
class CheckedEndpoint:
    """Connects to the first of ``addresses`` that answers, and ever after to that one only.

    TLS begins after one address has won: addresses of one name differ in whether they are reached, seldom in their
    certificates, and the handshakes of those that lose would cost both sides for nothing.
    """

    def __init__(
        self, reactor: Dialler, target: Target, addresses: Sequence[Address], *, trust: Trust, seconds: float
    ) -> None:
        self.addresses = interleaved(addresses)
        self._reactor = reactor
        self._target = target
        self._trust = trust
        self._seconds = seconds
        self._choosing = DeferredLock()

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """A Deferred of the protocol, whose transport is a Meter; fails with ConnectError or CallFailed."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        if len(self.addresses) > 1:
            # Two that choose at the same time could choose two addresses.
            await self._choosing.acquire()
            try:
                if len(self.addresses) > 1:
                    return await self._attempt(factory)
            finally:
                self._choosing.release()
        return await self._attempt(factory)

    async def _attempt(self, factory: IProtocolFactory) -> Any:
        secured = self._security()
        endpoints = [(address, secured(self._endpoint(address))) for address in self.addresses]
        attempts = _Attempts(self._reactor, endpoints, factory)
        attempts.begin()
        address, meter = await attempts.outcome
        self.addresses = (address,)
        return meter.wrappedProtocol

    def _endpoint(self, address: Address) -> Any:
        kind = TCP4ClientEndpoint if isinstance(address, IPv4Address) else TCP6ClientEndpoint
        return kind(self._reactor, text_of(address), self._target.port, timeout=self._seconds * _CONNECTING_SHARE)

    def _security(self) -> Callable[[Any], Any]:
        """What wraps an endpoint in TLS if the target demands it."""
        if self._target.scheme == "http":
            return lambda endpoint: endpoint
        try:
            creator: Any = self._trust.creatorForNetloc(self._target.host.encode("ascii"), self._target.port)
        except ValueError as error:
            raise CallFailed("tls", f"{self._target.host} is no name that a certificate can be for") from error
        return lambda endpoint: wrapClientTLS(creator, endpoint, clock=cast(IReactorTime, self._reactor))
