"""An HTTP client that connects to checked IP addresses only: the defence against SSRF and DNS rebinding.

A name is looked up once. If any of its addresses may not be called, the call fails; otherwise the connection is pinned
to one of the checked addresses, not to the name, which might resolve to another one by then. TLS still demands a
certificate for the name.
"""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv6Network
from types import MappingProxyType
from typing import Any, Final, Self, cast

import treq
from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, succeed
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.web.client import URI, HTTPConnectionPool, ProxyAgent
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.ip_addresses import Address
from svcd.net.addresses import AddressPolicy, BadAddress, may_be_translated
from svcd.net.calls import FAILURES, CallFailed, CallKind, CallLimits, Progress, Reply, explain, within
from svcd.net.happy_eyeballs import Admission, AdmittedEndpoint, CheckedEndpoint, Dialler, always
from svcd.net.meter import Meter
from svcd.net.resolver import Nat64Discovery, Resolver
from svcd.net.targets import Target
from svcd.net.trust import Trust

_KEPT_HEADERS = ("content-type", "retry-after")


MAX_CALLS: Final[Mapping[CallKind, int]] = MappingProxyType(
    {CallKind.ASK: 2, CallKind.HEADERS: 1, CallKind.FETCH: 2, CallKind.TELL: 4, CallKind.URGENT: 2}
)
"""Concurrent calls to one peer, by their kind; each has a connection of its own."""
IDLE_SECONDS: Final = 45
"""Less than the 60 s after which a node closes an idle connection, so that this side closes first."""
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@frozen(kw_only=True)
class OutboundRequest:
    """A request without Host, Content-Length and Connection, which follow from the rest."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None
    admit: Admission = always
    """Asked before each attempt to connect to an address; an open connection needs none."""


class PinnedClient:
    """Calls addresses that ``policy`` admits; over TLS, only servers with a certificate that ``trust`` accepts."""

    def __init__(self, reactor: Dialler, *, resolver: Resolver, policy: AddressPolicy, trust: Trust) -> None:
        self._reactor = reactor
        self._resolver = resolver
        self._policy = policy
        self._trust = trust
        self._nat64 = Nat64Discovery(resolver, reactor)

    @property
    def translators(self) -> Sequence[IPv6Network]:
        """The prefixes of the network's own NAT64 translators, once a call has needed them."""
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
        """Look up and check the host, connect, send the request, and close the connection after the response's head.

        The reply has no body: what the other side sends after the head is not read.

        Raises:
            CallFailed: there is no response.
        """
        request = OutboundRequest(method=method, target=target, headers=headers, body=body)
        progress = Progress(limits, self._reactor)
        return await progress.watch(self._call(request, limits, progress), target.origin)

    async def pin(self, target: Target, *, seconds: float, resolver: Resolver | None = None) -> "PinnedConnections":
        """Look up and check the host of ``target`` within ``seconds``, for many calls to one of its addresses.

        ``resolver`` looks the host up instead of this client's own resolver.

        Raises:
            CallFailed: the name has no address, or one that may not be called.
        """
        late = f"{target.host} was not found within {seconds:g} s"
        endpoint = await within(seconds, self._reactor, self._find(target, seconds, resolver), late)
        return PinnedConnections(self._reactor, target, endpoint)

    async def _call(self, request: OutboundRequest, limits: CallLimits, progress: Progress) -> Reply:
        endpoint = await self._find(request.target, limits.seconds)
        exchange = Exchange(self._reactor, endpoint, HTTPConnectionPool(self._reactor, persistent=False))
        return await exchange.send_for_head(request, limits.max_bytes, progress)

    async def _find(self, target: Target, seconds: float, resolver: Resolver | None = None) -> CheckedEndpoint:
        resolver = resolver or self._resolver
        addresses = [target.address] if target.address else await _resolve(resolver, target.host)
        nat64 = await self._nat64.prefixes() if any(map(may_be_translated, addresses)) else ()
        for address in addresses:
            try:
                self._policy.check(address, nat64)
            except BadAddress as error:
                sentence = f"{target.host} has an address that may not be called ({error.category})"
                if error.setting:
                    sentence += f"; the operator can allow it in {error.setting}"
                raise CallFailed("refused-address", sentence) from error
        return CheckedEndpoint(self._reactor, target, addresses, trust=self._trust, seconds=seconds)


async def _resolve(resolver: Resolver, host: str) -> Sequence[Address]:
    try:
        addresses = await resolver.resolve(host)
    except OSError as error:
        raise CallFailed("dns", f"{host} cannot be looked up: {error.strerror or error}") from error
    if not addresses:
        raise CallFailed("dns", f"{host} has no address")
    return addresses


class PinnedConnections:
    """Persistent connections to one address of one host, at most ``MAX_CALLS`` for each kind of call.

    A lost connection is opened again to the same address. Call :meth:`close` when they are no longer needed.
    """

    def __init__(self, reactor: Dialler, target: Target, endpoint: CheckedEndpoint) -> None:
        self.target = target
        self._reactor = reactor
        self._endpoint = endpoint
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.maxPersistentPerHost = sum(MAX_CALLS.values())
        self._pool.cachedConnectionTimeout = IDLE_SECONDS
        # Twisted would send a lost request again; that is for the caller to decide.
        self._pool.retryAutomatically = False
        self._exchange = Exchange(reactor, endpoint, self._pool)
        self._slots = {kind: DeferredSemaphore(calls) for kind, calls in MAX_CALLS.items()}
        self._running: set[Deferred[Reply]] = set()
        self._closed = False

    @property
    def address(self) -> Address:
        """The address that is called; before the first connection, the one that will be tried first."""
        return self._endpoint.addresses[0]

    async def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        limits: CallLimits,
        kind: CallKind = CallKind.ASK,
        on_bytes: Callable[[int], None] | None = None,
        admit: Admission = always,
    ) -> Reply:
        """Send a request for ``path``; the wait for a free slot among the calls of this ``kind`` counts as a stage.

        ``on_bytes`` is called with the number of bytes of the response's body as they arrive. If a connection has to be
        opened, only addresses that ``admit`` lets pass are tried. Cancelling the call closes its connection at once.

        Raises:
            CallFailed: there is no response.
            CallPostponed: ``admit`` let no address pass.
            ValueError: ``path`` is not a valid path.
        """
        request = OutboundRequest(method=method, target=self.target.at(path), headers=headers, body=body, admit=admit)
        if self._closed:
            raise self._closed_error()
        progress = Progress(limits, self._reactor, on_bytes)
        running = progress.watch(self._call(request, limits, kind, progress), self.target.origin)
        self._running.add(running)
        try:
            return await running
        except CancelledError:
            if self._closed:
                raise self._closed_error() from None
            raise
        finally:
            self._running.discard(running)

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self._closed = True
        for running in tuple(self._running):
            running.cancel()
        await self._pool.closeCachedConnections()

    async def _call(self, request: OutboundRequest, limits: CallLimits, kind: CallKind, progress: Progress) -> Reply:
        await self._slots[kind].acquire()
        try:
            return await self._exchange.send(request, limits.max_bytes, progress)
        finally:
            self._slots[kind].release()

    def _closed_error(self) -> CallFailed:
        return CallFailed("connect", f"the connections to {self.target.origin} have been closed")


class Exchange:
    """Sends requests to ``endpoint`` over the connections of ``pool``."""

    def __init__(self, reactor: Dialler, endpoint: CheckedEndpoint, pool: HTTPConnectionPool) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._pool = pool

    async def send(self, request: OutboundRequest, max_bytes: int, progress: Progress) -> Reply:
        """Send ``request`` and receive a response of up to ``max_bytes``, head included; raises CallFailed.

        ``progress`` begins a stage for the connection and one for the transfer, and measures the latter. The connection
        is closed at the end in any case, unless the pool keeps it for another request.
        """
        return await self._on_connection(request, max_bytes, progress, self._receive)

    async def send_for_head(self, request: OutboundRequest, max_bytes: int, progress: Progress) -> Reply:
        """Send ``request`` and receive the head of the response, of up to ``max_bytes``.

        The connection is closed right after the head. Raises CallFailed.
        """
        return await self._on_connection(request, max_bytes, progress, self._receive_head)

    async def _on_connection(
        self,
        request: OutboundRequest,
        max_bytes: int,
        progress: Progress,
        receive: "Callable[[OutboundRequest, _RequestConnection, Progress], Awaitable[Reply]]",
    ) -> Reply:
        origin = request.target.origin
        progress.begin_stage()
        with _RequestConnection(self._pool, request.target, max_bytes, progress) as connection:
            try:
                reply = await receive(request, connection, progress)
            except FAILURES as error:
                if not connection.exceeded:
                    raise explain(error, origin) from error
            # Also without an error: a body of unknown length looks complete when the Meter closes the connection.
            if connection.exceeded:
                raise CallFailed("too-large", f"{origin} answers with more than {max_bytes} bytes or too long a head")
            return reply

    async def _receive(self, request: OutboundRequest, connection: "_RequestConnection", progress: Progress) -> Reply:
        body = bytearray()

        def take(data: bytes) -> None:
            body.extend(data)
            progress.body_received(len(data))

        response = await self._ask(request, connection)
        connection.expect_body()
        await treq.collect(response, take)
        return _reply(request.target, response, bytes(body))

    async def _receive_head(
        self, request: OutboundRequest, connection: "_RequestConnection", _progress: Progress
    ) -> Reply:
        response = await self._ask(request, connection)
        connection.close()
        return _reply(request.target, response, b"")

    def _ask(self, request: OutboundRequest, connection: "_RequestConnection") -> Deferred[Any]:
        """Send a request; a Deferred of the head of its response.

        ProxyAgent sends the path of the target as it is, where Agent composes it with urllib, which in newer versions
        of Python 3.13 doubles two slashes at its start. Its key for the pool is the same for all targets, so the pool
        stand-in has the key. Raises SchemeNotSupported if twisted.web.client reads another origin than the target's.
        """
        target = request.target
        uri = URI.fromBytes(f"{target.origin}/".encode("ascii"))
        if (uri.scheme, uri.host, uri.port) != (target.scheme.encode(), target.host.encode(), target.port):
            raise SchemeNotSupported(f"the URL for {target.origin} was parsed in two ways")
        endpoint = AdmittedEndpoint(self._endpoint, request.admit)
        agent = ProxyAgent(endpoint, cast(IReactorTime, self._reactor), connection)
        headers = Headers({"Host": [target.origin.partition("://")[2]]})
        for name, value in request.headers.items():
            headers.addRawHeader(name, value)
        body = None if request.body is None else _WholeBody(request.body)
        answer: Deferred[Any] = agent.request(
            request.method.encode("ascii"), target.path.encode("ascii"), headers, body
        )
        return answer


class _RequestConnection:
    """The connection of one request: a stand-in for the pool that is handed to an agent.

    An agent uses ``persistent`` and ``getConnection`` of its pool (twisted.web.client of Twisted 26.10.0).
    """

    def __init__(self, pool: HTTPConnectionPool, target: Target, max_bytes: int, progress: Progress) -> None:
        self.persistent: bool = pool.persistent
        self._pool = pool
        self._key = (target.scheme, target.host, target.port)
        self._max_bytes = max_bytes
        self._progress = progress
        self._meter: Meter | None = None

    def getConnection(self, _key: Any, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        """Take a connection from the pool and expect a response on it."""
        return self._pool.getConnection(self._key, endpoint).addCallback(self._taken, endpoint)

    def _taken(self, connection: Any, endpoint: IStreamClientEndpoint) -> Any:
        meter: Meter = connection.transport
        if meter.disconnecting:
            # Its last call closed it in this iteration of the reactor; the pool will notice in the next one.
            return self.getConnection(self._key, endpoint)
        meter.expect_answer(self._max_bytes)
        self._progress.begin_stage(lambda: meter.moved)
        self._meter = meter
        return connection

    @property
    def exceeded(self) -> bool:
        """Whether the response was longer than allowed."""
        return self._meter is not None and self._meter.exceeded

    def expect_body(self) -> None:
        """The response's head has arrived."""
        if self._meter is not None:
            self._meter.expect_body()

    def close(self) -> None:
        """Close the connection, because the rest of the response is not wanted."""
        if self._meter is not None:
            self._meter.abortConnection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # After a complete response the connection is closed, or the pool has it back. The pool must not keep it if the
        # response came before the whole request was sent.
        if self._meter is not None and (error is not None or self._meter.sending):
            self._meter.abortConnection()


@implementer(IBodyProducer)
class _WholeBody:
    """A request body in memory, which is written at once.

    Twisted's client does not read while it writes a body in pieces, and would lose an early response (413, 503).
    """

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: everything is written."""

    def resumeProducing(self) -> None:
        """Do nothing: everything is written."""

    def stopProducing(self) -> None:
        """Do nothing: everything is written."""


def _reply(target: Target, response: Any, body: bytes) -> Reply:
    if not 200 <= response.code <= 599:
        raise CallFailed("protocol", f"{target.origin} answers with a status that HTTP does not have")
    return Reply(status=response.code, headers=_kept(response.headers), body=body)


def _kept(headers: Headers) -> dict[str, str]:
    # By bytes: text would have to be UTF-8, which nothing ensures.
    values = {name: headers.getRawHeaders(name.encode("ascii")) for name in _KEPT_HEADERS}
    return {name: lines[-1].decode("latin-1") for name, lines in values.items() if lines}
