"""A web site that holds every client to its limits and answers every error in JSON (docs/http.md)."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N815

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from twisted.internet import defer, protocol
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.web import http, server
from twisted.web.resource import IResource

from svcd.ports import Clock, milliseconds
from svcd.web.channel import Channel
from svcd.web.clients import Clients
from svcd.web.connections import Bodies, Connections, Turns
from svcd.web.errors import Headers
from svcd.web.fast_lane import FastLane, FastRequest
from svcd.web.limits import SiteLimits
from svcd.web.request import Request


class Recorder(Protocol):
    """Counts what a site does; called in the reactor's thread, for every request, so it must be quick."""

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """An answer was given, ``seconds`` after the last byte of the request.

        ``route`` is the declared path with its placeholders, "" where the request met none; ``method`` is what the
        client wrote; ``seconds`` is None for what never became a request.
        """

    def throttled(self, bucket: str) -> None:
        """A request was refused since its client asks too often."""


class Unrecorded:
    """Counts nothing."""

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """See :class:`Recorder`."""

    def throttled(self, bucket: str) -> None:
        """See :class:`Recorder`."""


SERVER_NAME: Final = b"svcd"


class Refused(protocol.Protocol):
    """The server's end of a connection over the caps."""

    transport: Any

    def connectionMade(self) -> None:
        """Close."""
        self.transport.loseConnection()


class Site(server.Site):
    """The factory of HTTP connections to one tree of resources.

    ``headers_by_prefix`` are the headers of errors that are found before a resource is: of a body too large under
    ``/rpc``, for instance. ``new_id`` gives the ids under which unexpected errors are logged. ``fast_lane`` answers
    plain requests to routes of ``root`` without asking it.
    """

    noisy = False
    """Whoever listens says so; Twisted would say it again with an address in memory."""
    protocol = Channel  # type: ignore[assignment]
    requestFactory = Request

    def __init__(
        self,
        root: IResource,
        *,
        limits: SiteLimits,
        clients: Clients,
        clock: Clock,
        new_id: Callable[[], str],
        headers_by_prefix: Mapping[bytes, Headers] | None = None,
        fast_lane: FastLane | None = None,
    ) -> None:
        # Twisted's own time-out is switched off: the channel has deadlines of its own.
        super().__init__(root, reactor=clock, timeout=None, parsePOSTFormSubmission=False)
        self.limits = limits
        self.clients = clients
        self.clock = clock
        self.new_id = new_id
        self.connections = Connections(limits.connections, limits.connections_per_client, limits.untaken_bytes)
        self.turns = Turns(clock)
        self.draining = False
        self.bodies = Bodies(limits, clock)
        self.answers: Counter[int] = Counter()
        self.recorder: Recorder = Unrecorded()
        """Hears of every answer, once somebody has put a recorder of their own here."""
        self.fast_lane = fast_lane
        """Looks first at what comes; None lets everything go the long way."""
        self._headers_by_prefix = dict(headers_by_prefix or {})
        self._second = -1
        self._first_headers: Headers = ()

    def startFactory(self) -> None:
        """Nothing to start: there is no access log."""

    def stopFactory(self) -> None:
        """Nothing to stop."""

    def acceptableProtocols(self) -> list[bytes]:
        """HTTP/1.1 only, over TLS too: the limits are those of :class:`svcd.web.channel.Channel`."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Channel | Refused:  # type: ignore[override]
        """The server's end of a connection from ``addr``, or one that closes it at once."""
        group = self.clients.of_connection(addr)
        if self.draining or not self.connections.admit(group):
            # Not None, which a TLS endpoint takes for a protocol.
            return Refused()
        channel: Channel = super().buildProtocol(addr)
        channel.group = group
        return channel

    def log(self, request: http.Request | FastRequest) -> None:
        """Count an answer that has been given."""
        asked = cast("Request | FastRequest", request)
        self.answers[asked.code] += 1
        self.recorder.answered(asked.route, asked.method, asked.code, self.clock.seconds() - asked.began)

    def count(self, status: int) -> None:
        """Count an answer, by its status, to what never became a request."""
        self.answers[status] += 1
        self.recorder.answered("", b"", status, None)

    def first_headers(self) -> Headers:
        """What every answer begins with; made once a second, for the time is in it."""
        now = milliseconds(self.clock) // 1000
        if self._second != now:
            self._second, date = now, http.datetimeToString(now)
            self._first_headers = ((b"Server", SERVER_NAME), (b"Date", date))
        return self._first_headers

    def headers_of(self, target: bytes) -> Headers:
        """The headers of an error that is found before the resource at ``target`` is."""
        path = target.partition(b"?")[0]
        for prefix, headers in self._headers_by_prefix.items():
            if path == prefix or path.startswith(prefix + b"/"):
                return (*self.first_headers(), *headers)
        return self.first_headers()

    async def drain(self, seconds: float) -> None:
        """Accept no more, close what is idle and wait up to ``seconds`` for the requests that have begun."""
        self.draining = True
        for connection in self.connections:
            connection.drain()
        emptied = self.connections.emptied().addTimeout(seconds, cast(IReactorTime, self.clock))
        try:
            await emptied
        except defer.TimeoutError:
            for connection in self.connections:
                connection.abort()
