"""Connecting to the first of several checked addresses that answers: Happy Eyeballs (RFC 8305)."""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N803

from collections import deque
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, Final, Protocol, cast

from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.interfaces import Clock, Timer
from svcd.ip_addresses import Address
from svcd.net.addresses import text_of
from svcd.net.calls import CallFailed, CallPostponed
from svcd.net.meter import Meter, Metering
from svcd.net.resolver import interleaved
from svcd.net.targets import Target
from svcd.net.trust import Trust

ATTEMPT_SECONDS: Final = 0.25
"""Time before the next address is tried as well (RFC 8305 section 5)."""
_CONNECTING_SHARE: Final = 0.75
"""Share of a call's time for one attempt: less than all, so that the error names the connection, not the time."""


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
        """Connect a protocol of ``factory`` to an address."""


Admission = Callable[[Address], bool]
"""Whether a connection to an address may be attempted now; asked once for each attempt, which then counts."""


def always(_address: Address) -> bool:
    """Admit every attempt."""
    return True


class _Attempts:
    """The attempts to connect to several endpoints; the first that answers wins (RFC 8305 section 5).

    Addresses that ``admit`` refuses are left out; the outcome is CallPostponed if it refuses all.

    Not Twisted's HostnameEndpoint: it resolves names itself, which must not happen here, and it waits ATTEMPT_SECONDS
    even after an attempt that failed at once, as each does without a route for IPv6.
    """

    def __init__(
        self, clock: Clock, endpoints: Sequence[tuple[Address, Any]], factory: IProtocolFactory, admit: Admission
    ) -> None:
        self._clock = clock
        self._waiting = deque(endpoints)
        self._factory = factory
        self._admit = admit
        self._failure = Failure(CallPostponed("every address has been called as often as it may be at present"))
        """The last failure."""
        self._running: set[Deferred[Meter]] = set()
        self._timer: Timer | None = None
        self._ended = False
        self.outcome: Deferred[tuple[Address, Meter]] = Deferred(self._end)
        """The first address that answered, and the connection to it; the last failure if none did."""

    def begin(self) -> None:
        """Begin the next attempt, and the one after it in ATTEMPT_SECONDS."""
        self._timer = None
        while self._waiting:
            address, endpoint = self._waiting.popleft()
            if self._admit(address):
                self._dial(address, endpoint)
                return
        self._fail_if_none_remains()

    def _dial(self, address: Address, endpoint: Any) -> None:
        if self._waiting:
            self._timer = self._clock.callLater(ATTEMPT_SECONDS, self.begin)
        attempt: Deferred[Meter] = maybeDeferred(endpoint.connect, Metering(self._factory))
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
        self._failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self.begin()
        else:
            self._fail_if_none_remains()

    def _fail_if_none_remains(self) -> None:
        if not self._running:
            self._ended = True
            self.outcome.errback(self._failure)

    def _end(self, _outcome: object = None) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for attempt in tuple(self._running):
            attempt.cancel()


@implementer(IStreamClientEndpoint)
class CheckedEndpoint:
    """Connects to the first of ``addresses`` that answers, and from then on to that one only.

    TLS begins after one address has won: the addresses of a name differ in reachability, seldom in certificates, and
    the handshakes of the losers would be wasted work for both sides.
    """

    def __init__(
        self, reactor: Dialler, target: Target, addresses: Sequence[Address], *, trust: Trust, seconds: float
    ) -> None:
        self.addresses = interleaved(addresses)
        self._reactor = reactor
        self._target = target
        self._trust = trust
        self._seconds = seconds
        self._selection = DeferredLock()

    def connect(self, factory: IProtocolFactory, admit: Admission = always) -> Deferred[Any]:
        """A Deferred of the protocol, whose transport is a Meter; fails with ConnectError or CallFailed.

        Only addresses that ``admit`` lets pass are tried; fails with CallPostponed if that is none.
        """
        return Deferred.fromCoroutine(self._connect(factory, admit))

    async def _connect(self, factory: IProtocolFactory, admit: Admission) -> Any:
        if len(self.addresses) > 1:
            # Concurrent calls could otherwise settle on different addresses.
            await self._selection.acquire()
            try:
                if len(self.addresses) > 1:
                    return await self._attempt(factory, admit)
            finally:
                self._selection.release()
        return await self._attempt(factory, admit)

    async def _attempt(self, factory: IProtocolFactory, admit: Admission) -> Any:
        secured = self._security()
        endpoints = [(address, secured(self._endpoint(address))) for address in self.addresses]
        attempts = _Attempts(self._reactor, endpoints, factory, admit)
        attempts.begin()
        address, meter = await attempts.outcome
        self.addresses = (address,)
        return meter.wrappedProtocol

    def _endpoint(self, address: Address) -> Any:
        kind = TCP4ClientEndpoint if isinstance(address, IPv4Address) else TCP6ClientEndpoint
        return kind(self._reactor, text_of(address), self._target.port, timeout=self._seconds * _CONNECTING_SHARE)

    def _security(self) -> Callable[[Any], Any]:
        """Return a function that wraps an endpoint in TLS if the target has the scheme https."""
        if self._target.scheme == "http":
            return lambda endpoint: endpoint
        try:
            creator: Any = self._trust.creatorForNetloc(self._target.host.encode("ascii"), self._target.port)
        except ValueError as error:
            raise CallFailed("tls", f"{self._target.host} is not a name that a certificate can be for") from error
        return lambda endpoint: wrapClientTLS(creator, endpoint, clock=cast(IReactorTime, self._reactor))


@implementer(IStreamClientEndpoint)
class AdmittedEndpoint:
    """A checked endpoint for one request, whose attempts to connect have to be admitted."""

    def __init__(self, endpoint: CheckedEndpoint, admit: Admission) -> None:
        self._endpoint = endpoint
        self._admit = admit

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """See :meth:`CheckedEndpoint.connect`."""
        return self._endpoint.connect(factory, self._admit)
