"""The slow path: requests as twisted.web parses them, with JSON errors and bounded bodies, and routes on Klein."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N815

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Final, NoReturn, cast
from urllib.parse import unquote_to_bytes

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.error import UnsupportedMethod
from twisted.web.resource import Resource

from svcd.limits import limit
from svcd.web.api import UNROUTED_BUCKET, FoundRoute, Presentation, SiteContext, accept
from svcd.web.request import IncomingRequest, Recorder
from svcd.web.resources import CORS_HEADERS, answer_preflight
from svcd.web.responses import NO_ROUTE, HttpError, Response, error_response, internal_error, method_not_allowed
from svcd.web.routes import Route
from svcd.web.site_state import SiteState

_TINY_CHUNKS: Final = "Endless headers, thousands of tiny chunks or digits of a `Content-Length`, to hold up a parser"
FREE_PIECES: Final = limit(256, "chunks of a body, whatever their size", "chunks", _TINY_CHUNKS)
"""How many chunks of any size a body may have; every MIN_PIECE bytes of it allow one more."""
MIN_PIECE: Final = limit(256, "bytes in each further chunk, on average", "bytes", _TINY_CHUNKS)

_ABSOLUTE = (b"http://", b"https://")
_PLAIN_PATH: Final = "the path must be UTF-8 in percent-encoding, without encoded slashes"


class Request(server.Request):
    """A request to a :class:`svcd.web.site.Site`; resources may raise HttpError while they render."""

    channel: Any
    """The :class:`svcd.web.channel.Channel`; None after the client has disconnected."""
    site: SiteState
    content: BytesIO
    defaultContentType = None
    began = 0.0
    """When its last byte arrived, in the clock's seconds."""
    route = ""
    """The declared path, with placeholders, of the matching route; "" if none matches."""
    found: FoundRoute | None = None
    """The route."""
    _is_chunked = False
    _pieces = 0
    _log = Logger()

    @property
    def recorder(self) -> Recorder:
        """Counts the response."""
        return self.site.recorder

    def gotLength(self, length: int | None) -> None:
        """Store the body in memory, never on disk; the channel enforces the limit of its size."""
        self.content = BytesIO()
        self._is_chunked = length is None

    def handleContentChunk(self, data: bytes) -> None:
        """Store more of the body if the channel allows it; raises HttpError 400 for too many chunks."""
        self._pieces += 1
        if self._is_chunked and self._pieces > FREE_PIECES + self.content.tell() // MIN_PIECE:
            # Returning after a refusal would let Twisted decode the rest of the data all the same.
            raise HttpError(400, f"the body comes in too many chunks of less than {MIN_PIECE} bytes")
        if self.channel.reserve_body(len(data)):
            self.content.write(data)

    def drop_body(self) -> None:
        """Free the memory of the body: the request is refused, but its connection may stay open for a while."""
        self.content = BytesIO()

    def getRequestHostname(self) -> bytes:
        """A fixed name: no answer depends on ``Host``, and Klein fails on a Host that is no valid domain name."""
        return b"localhost"

    def process(self) -> None:
        """Find the resource and render it; errors are answered in JSON."""
        self.site = self.channel.site
        self.began = self.site.clock.seconds()
        for name, value in self.site.first_headers()[0]:
            self.responseHeaders.setRawHeaders(name, [value])
        try:
            self._check_head()
            if not self.path.startswith(b"/"):
                self._take_absolute_target()
            self.prepath = []
            self.postpath = [unquote_to_bytes(segment) for segment in self.path[1:].split(b"/")]
            self.render(self.site.getResourceFor(self))
        except HttpError as error:
            self.refuse(error)
        except Exception:
            self.processingFailed(Failure())

    def render(self, resrc: Any) -> None:
        """Render ``resrc`` and send the response."""
        try:
            body = resrc.render(self)
        except UnsupportedMethod as error:
            allowed: list[bytes] = list(error.allowedMethods)
            raise method_not_allowed([method.decode("ascii") for method in allowed]) from error
        if body is server.NOT_DONE_YET:
            return
        if self.code != 304:
            self.setHeader(b"Content-Length", b"%d" % len(body))
        self.write(body)
        self.finish()

    def answer_later(self, work: Deferred[Response]) -> int:
        """Send the response of ``work`` once it is there; a client that disconnects cancels it."""

        def send(response: Response) -> None:
            self.write(response.apply_to(self))
            self.finish()

        self.notifyFinish().addErrback(lambda _: work.cancel())
        work.addCallback(send)
        work.addErrback(lambda failure: failure.trap(CancelledError) and None)
        return server.NOT_DONE_YET

    def refuse(self, error: HttpError) -> None:
        """Answer with ``error``; if a response has begun, abort, so that the client sees that it is incomplete."""
        if self.channel is None:
            return
        if self.startedWriting:
            self.channel.abort()
            return
        self.write(error_response(error).apply_to(self))
        self.finish()

    def processingFailed(self, reason: Failure) -> Failure:
        """Log ``reason`` under an id and answer 500 with that id and nothing else."""
        error_id = self.site.new_id()
        self._log.failure("a request failed; its client was told {error_id}", failure=reason, error_id=error_id)
        self.refuse(internal_error(error_id))
        return reason

    def _check_head(self) -> None:
        """Raise HttpError 400 for errors that Twisted accepts (RFC 9110 section 9.1, RFC 9112 section 3.2)."""
        if self.method != self.method.upper():
            raise HttpError(400, "methods are case-sensitive: write GET, HEAD, POST and OPTIONS in capital letters")
        hosts = len(self.requestHeaders.getRawHeaders(b"Host") or [])
        if hosts > 1 or (hosts == 0 and self.clientproto == b"HTTP/1.1"):
            raise HttpError(400, f"a request of HTTP/1.1 has one Host header, not {hosts}")

    def _take_absolute_target(self) -> None:
        """Reduce a target in absolute form to its path (RFC 9112 section 3.2.2); raises HttpError for other forms."""
        if self.method == b"CONNECT":
            raise method_not_allowed(["GET", "HEAD", "POST", "OPTIONS"])
        scheme = next((scheme for scheme in _ABSOLUTE if self.path.lower().startswith(scheme)), None)
        if scheme is None:
            raise HttpError(400, "the request's target must be a path that starts with a slash")
        authority, slash, path = self.path[len(scheme) :].partition(b"/")
        self.requestHeaders.setRawHeaders(b"Host", [authority])
        self.path = slash + path or b"/"


class KleinApi(Resource):
    """Routes on a Klein app as a leaf to be mounted at ``mount`` (``"/rpc"``, or ``""`` for the root).

    The site's router, which the fast path asks too, finds the route of a request. Klein runs it: it waits for a
    coroutine, cancels it when the client disconnects, and sends the response.
    """

    isLeaf = True

    def __init__(
        self, mount: str, site: SiteContext, *, shared: bool = False, check: Callable[[IncomingRequest], None] = accept
    ) -> None:
        """Pages of every origin may read what is ``shared``; for ``check`` see :class:`Presentation`.

        Raises ValueError without a rate for requests that have no route.
        """
        if UNROUTED_BUCKET not in site.limiter:
            raise ValueError(f"there is no rate named {UNROUTED_BUCKET!r}")
        super().__init__()
        self.routes: list[Route] = []
        self._mount = mount
        self._site = site
        self._shared = shared
        self._presentation = Presentation(check, headers=CORS_HEADERS if shared else ())
        klein = Klein()
        klein.route("/")(self._answer)
        self._klein: Any = klein.resource()

    def add(self, *owners: object) -> None:
        """Bind the routes that the classes of ``owners`` declare; raises ValueError or TypeError for a wrong one."""
        for owner in owners:
            for bound in self._site.add(owner, self._presentation):
                if not bound.route.path.startswith(self._mount + "/"):
                    raise ValueError(f"{bound.route.path} is not below {self._mount}")
                self.routes.append(bound.route)

    def render(self, request: Request) -> Any:
        """Find the route and draw its cost, then let Klein run it: Klein takes longer than most responses.

        Raises HttpError 429, and 400 for a path that is not UTF-8 or has an encoded slash; for the latter the check of
        the presentation comes first.
        """
        for name, value in self._presentation.headers:
            request.responseHeaders.setRawHeaders(name, [value])
        if self._shared and request.method == b"OPTIONS":
            return answer_preflight(request)
        try:
            segments = _decoded([*(request.prepath or ()), *(request.postpath or ())])
        except HttpError:
            # The check comes first: a wrong Host is answered 421 under every path.
            self._presentation.check(request)
            raise
        request.found = self._site.router.find(b"GET" if request.method == b"HEAD" else request.method, segments)
        if request.found is None:
            refuse = partial(self._refuse, segments)
            return self._site.respond_unrouted(request, self._presentation, refuse).apply_to(request)
        route = request.found[0].route
        request.route = route.path
        self._site.limiter.admit(request, route.bucket, route.cost)
        # The path has been read: for Klein every request is one to its root.
        request.postpath = [b""]
        return self._klein.render(request)

    def _answer(self, request: Request) -> bytes | Deferred[bytes]:
        bound, path_values = cast(FoundRoute, request.found)
        response = bound.call(request, path_values)
        if isinstance(response, Response):
            return response.apply_to(request)
        return response.addCallback(lambda late: late.apply_to(request))

    def _refuse(self, segments: Sequence[str]) -> NoReturn:
        """Raise HttpError 405 if the path has routes for other methods, otherwise 404."""
        routes = [bound.route for bound in self._site.router.routes_at(segments)]
        if not routes:
            raise HttpError(404, NO_ROUTE)
        methods = [route.method for route in routes]
        advice = next((route.other_methods for route in routes if route.other_methods), "")
        raise method_not_allowed([*methods, *["HEAD"] * ("GET" in methods), *["OPTIONS"] * self._shared], advice)


def _decoded(path: Sequence[bytes]) -> list[str]:
    """The segments of a path, percent-decoded already; raises HttpError 400."""
    try:
        segments = [segment.decode("utf-8") for segment in path]
    except UnicodeDecodeError as error:
        raise HttpError(400, _PLAIN_PATH) from error
    if any("/" in segment for segment in segments):
        raise HttpError(400, _PLAIN_PATH)
    return segments
