"""One HTTP request and its answer over connections to one checked place."""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Mapping
from typing import Any, Self

from attrs import frozen
from treq import collect
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.net.calls import FAILURES, CallFailed, Progress, Reply, explain
from svcd.net.connections import CheckedEndpoint, Dialler
from svcd.net.meter import Meter
from svcd.net.targets import Target

_KEPT_HEADERS = ("content-type", "retry-after")


@frozen(kw_only=True)
class Request:
    """What is sent, apart from Host, Content-Length and Connection, which follow from it."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None


class Exchange:
    """Sends requests to ``endpoint`` over the connections of ``pool``.

    Not through treq's client: that decodes gzip, keeps cookies and reads URLs in its own way, and none of these can be
    switched off.
    """

    def __init__(self, reactor: Dialler, endpoint: CheckedEndpoint, pool: HTTPConnectionPool) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._pool = pool

    async def send(self, request: Request, max_bytes: int, progress: Progress) -> Reply:
        """Send ``request`` and take an answer of up to ``max_bytes``, head included; raises CallFailed.

        ``progress`` begins a stage for the connection and one for the transfer, and measures the latter.

        The connection is closed at the end whatever happened, unless the pool keeps it for another request.
        """
        place = request.target.origin
        progress.begin_stage()
        with _Lease(self._pool, max_bytes, progress) as lease:
            try:
                reply = await self._receive(request, lease, progress)
            except FAILURES as error:
                if not lease.exceeded:
                    raise explain(error, place) from error
            # Also without an error: when we close the connection, a body of unknown length looks complete.
            if lease.exceeded:
                raise CallFailed("too-large", f"{place} answers with more than {max_bytes} bytes or too long a head")
            return reply

    async def _receive(self, request: Request, lease: "_Lease", progress: Progress) -> Reply:
        body = bytearray()

        def take(data: bytes) -> None:
            body.extend(data)
            progress.body_received(len(data))

        response = await self._agent(request.target, lease).request(
            request.method.encode("ascii"),
            request.target.url.encode("ascii"),
            Headers({name: [value] for name, value in request.headers.items()}),
            None if request.body is None else _WholeBody(request.body),
        )
        lease.expect_body()
        await collect(response, take)
        if not 200 <= response.code <= 599:
            raise CallFailed("protocol", f"{request.target.origin} answers with a status that HTTP does not have")
        return Reply(status=response.code, headers=_kept(response.headers), body=bytes(body))

    def _agent(self, target: Target, lease: "_Lease") -> Any:
        return Agent.usingEndpointFactory(self._reactor, _Pin(target, self._endpoint), lease)


class _Lease:
    """One request's hold on a connection: what an Agent sees of the pool."""

    def __init__(self, pool: HTTPConnectionPool, max_bytes: int, progress: Progress) -> None:
        self.persistent: bool = pool.persistent
        self._pool = pool
        self._max_bytes = max_bytes
        self._progress = progress
        self._meter: Meter | None = None

    def getConnection(self, key: Any, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        """A connection of the pool, from now on with an answer to come."""
        return self._pool.getConnection(key, endpoint).addCallback(self._taken, key, endpoint)

    def _taken(self, connection: Any, key: Any, endpoint: IStreamClientEndpoint) -> Any:
        meter: Meter = connection.transport
        if meter.disconnecting:
            # Its last call closed it in this turn of the reactor, of which the pool will hear in the next one.
            return self.getConnection(key, endpoint)
        meter.expect_answer(self._max_bytes)
        self._progress.begin_stage(lambda: meter.moved)
        self._meter = meter
        return connection

    @property
    def exceeded(self) -> bool:
        """Whether more has come than was allowed."""
        return self._meter is not None and self._meter.exceeded

    def expect_body(self) -> None:
        """The head of the answer has come."""
        if self._meter is not None:
            self._meter.expect_body()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After a whole answer the connection is closed already, or the pool keeps it; it must not if the answer came
        # before the request was sent.
        if self._meter is not None and (kind is not None or self._meter.sending):
            self._meter.abortConnection()


@implementer(IAgentEndpointFactory)
@frozen
class _Pin:
    """Says where to connect for one URL, and for no other."""

    target: Target
    endpoint: CheckedEndpoint

    def endpointForURI(self, uri: URI) -> CheckedEndpoint:
        """The endpoint, if twisted.web.client reads the URL as we do."""
        target = self.target
        ours = (target.scheme.encode(), target.host.encode(), target.port, target.path.encode())
        if (uri.scheme, uri.host, uri.port, uri.originForm) != ours:
            raise SchemeNotSupported(f"the URL for {target.origin} was read in two ways")
        return self.endpoint


@implementer(IBodyProducer)
class _WholeBody:
    """A request's body that is written at once, to a Meter, which hands it to the transport in pieces.

    While Twisted's client is itself writing a body it does not read, and an early answer (413, 503) would be lost.
    """

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to pause."""

    def resumeProducing(self) -> None:
        """Nothing is left to resume."""

    def stopProducing(self) -> None:
        """Nothing is left to stop."""


def _kept(headers: Headers) -> dict[str, str]:
    # Asked for as bytes: as text they would have to be UTF-8, and nothing sees to that.
    values = {name: headers.getRawHeaders(name.encode("ascii")) for name in _KEPT_HEADERS}
    return {name: lines[-1].decode("latin-1") for name, lines in values.items() if lines}
