"""What the connections of a site share: its resources, limits, budgets, and the first headers of every response."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, cast

from twisted.internet import defer
from twisted.internet.interfaces import IReactorTime
from twisted.web import http, server
from twisted.web.resource import IResource

from svcd.interfaces import Clock, milliseconds
from svcd.web.api import Router
from svcd.web.connections import BodyBudget, Connections, PipelineQueue, SiteLimits, UnreadBudget
from svcd.web.rate_limits import Clients
from svcd.web.request import IncomingRequest, Recorder
from svcd.web.responses import Headers, header_lines

SERVER_NAME: Final = b"svcd"


@lru_cache(1)
def _first_headers(second: int) -> tuple[Headers, bytes]:
    headers = ((b"Server", SERVER_NAME), (b"Date", http.datetimeToString(second)))
    return headers, header_lines(headers)


class SiteState(server.Site):
    """What the connections of one site share; :class:`svcd.web.site.Site` makes the connections.

    ``headers_by_prefix`` are the headers of errors that occur before a resource is found, such as a body too large
    under ``/rpc``. ``new_id`` makes the ids under which unexpected errors are logged. The sites of a process share
    ``unread``. Plain requests to the routes in ``router`` take the fast path and do not go through the resource tree;
    None if all take the slow path.
    """

    noisy = False
    """The listening service logs its address; Twisted would log it again with a memory address."""

    def __init__(
        self,
        root: IResource,
        *,
        limits: SiteLimits,
        unread: UnreadBudget,
        clients: Clients,
        clock: Clock,
        new_id: Callable[[], str],
        headers_by_prefix: Mapping[bytes, Headers] | None = None,
        router: Router | None = None,
    ) -> None:
        # Twisted's own time-out is switched off: the channel has deadlines of its own.
        super().__init__(root, reactor=clock, timeout=None, parsePOSTFormSubmission=False)
        self.limits = limits
        self.clients = clients
        self.clock = clock
        self.new_id = new_id
        self.unread = unread
        self.connections = Connections(limits.connections, limits.connections_per_client, unread)
        self.turns = PipelineQueue(clock)
        self.draining = False
        self.bodies = BodyBudget(limits, clock)
        self.recorder = Recorder()
        """The metrics replace it."""
        self.router = router
        self._headers_by_prefix = dict(headers_by_prefix or {})

    def set_limits(self, limits: SiteLimits) -> None:
        """Change the limits, but for those of bodies; open connections keep the deadline that they have at present."""
        self.limits = limits
        self.connections.set_limits(limits.connections, limits.connections_per_client)

    def startFactory(self) -> None:
        """Nothing to start: there is no access log."""

    def stopFactory(self) -> None:
        """Nothing to stop."""

    def log(self, request: IncomingRequest) -> None:  # type: ignore[override]
        """Count a response that was sent."""
        self.recorder.answered(request.route, request.method, request.code, self.clock.seconds() - request.began)

    def first_headers(self) -> tuple[Headers, bytes]:
        """The first headers of every response, and the same as they are sent."""
        return _first_headers(milliseconds(self.clock) // 1000)

    def headers_of(self, target: bytes) -> Headers:
        """The headers of an error that occurs before the resource at ``target`` is found."""
        path = target.partition(b"?")[0]
        for prefix, headers in self._headers_by_prefix.items():
            if path == prefix or path.startswith(prefix + b"/"):
                return (*self.first_headers()[0], *headers)
        return self.first_headers()[0]

    async def drain(self, seconds: float) -> None:
        """Refuse new connections, close idle ones and wait up to ``seconds`` for requests; then abort the rest."""
        self.draining = True
        for connection in self.connections:
            connection.drain()
        emptied = self.connections.emptied().addTimeout(seconds, cast(IReactorTime, self.clock))
        try:
            await emptied
        except defer.TimeoutError:
            for connection in self.connections:
                connection.abort()
