"""Finds the route of a request, calls it within its limits and renders the outcome."""

# Twisted is not annotated throughout.
# mypy: allow-untyped-calls

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from attrs import define, evolve, field, frozen
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.deferreds import shielded
from svcd.interfaces import Clock
from svcd.web.rate_limits import RateLimiter
from svcd.web.request import IncomingRequest
from svcd.web.responses import (
    ErrorTable,
    Headers,
    HttpError,
    Renderable,
    Response,
    Tip,
    error_response,
    internal_error,
    service_unavailable,
    to_response,
    translate,
)
from svcd.web.routes import (
    BYTES_PER_TOKEN,
    MAX_SHOWN,
    Route,
    read_values,
    routes_of,
    unknown_query_fields,
)

UNROUTED_BUCKET: Final = "read"
"""A request without a route draws one token from this bucket."""
RETRY_SECONDS: Final = 1
"""When a client asks again for a chain that is as high as it has seen: another node had its newest block first."""
LATE_READ: Final = "the node did not answer within {seconds:g} seconds; try again later"
LATE_WRITE: Final = (
    "the node did not answer within {seconds:g} seconds; it continues the request, so check the outcome before you "
    "repeat it"
)


@define
class _Node:
    """The routes that begin with the same segments."""

    children: dict[str, "_Node"] = field(factory=dict)
    placeholder: "_Node | None" = None
    routes: dict[bytes, "BoundRoute"] = field(factory=dict)
    """The routes that end here, by method."""


class Router:
    """The routes of a site, by method and path, in a tree of path segments."""

    def __init__(self) -> None:
        self._root = _Node()
        self._parents: dict[str, _Node] = {}
        """The nodes with a child, by the path to them, if it has literal segments only."""

    def add(self, bound: "BoundRoute") -> None:
        """Add a route; raises ValueError if there is one with the same method and the same form of path."""
        node, method, above = self._root, bound.route.method.encode("ascii"), ""
        for segment in bound.route.path.split("/")[1:]:
            if "{" not in above:
                self._parents[above] = node
            above = f"{above}/{segment}"
            if segment.startswith("{"):
                node.placeholder = node.placeholder or _Node()
                node = node.placeholder
            else:
                node = node.children.setdefault(segment, _Node())
        if method in node.routes:
            raise ValueError(f"{bound.route.path}: {node.routes[method].route.path} is the same path")
        node.routes[method] = bound

    def find(self, method: bytes, segments: Sequence[str]) -> "FoundRoute | None":
        """The route for the decoded segments of a path, and the values of its placeholders; None without a route.

        A literal segment takes precedence over a placeholder, which matches anything but the empty segment, even if the
        literal path has no route with ``method``.
        """
        node, values = self._find(self._root, segments, ()) or (_Node(), ())
        bound = node.routes.get(method)
        if bound is None:
            return None
        return bound, {field.name: value for field, value in zip(bound.route.path_fields, values, strict=True)}

    def find_plain(self, method: bytes, path: str) -> "FoundRoute | None":
        """The same for a whole path without percent-encoding; takes less time."""
        above, _, last = path.rpartition("/")
        node = self._parents.get(above)
        if node is not None:
            end = node.children.get(last)
            bound = None if end is None else end.routes.get(method)
            if bound is not None:
                return bound, {}
            if end is None and node.placeholder is not None and last:
                bound = node.placeholder.routes.get(method)
                if bound is not None:
                    return bound, {bound.route.path_fields[0].name: last}
        return self.find(method, path.split("/")[1:])

    def routes_at(self, segments: Sequence[str]) -> "list[BoundRoute]":
        """The routes for the decoded segments of a path, one for each method; empty without such a path."""
        node, _ = self._find(self._root, segments, ()) or (_Node(), ())
        return list(node.routes.values())

    def _find(
        self, node: _Node, segments: Sequence[str], values: tuple[str, ...]
    ) -> tuple[_Node, tuple[str, ...]] | None:
        """The node at which the routes of a path end, and the values of the placeholders before it."""
        for at, segment in enumerate(segments):
            child = node.children.get(segment)
            if node.placeholder is not None and segment:
                literal = child and self._find(child, segments[at + 1 :], values)
                if literal:
                    return literal
                child, values = node.placeholder, (*values, segment)
            if child is None:
                return None
            node = child
        return (node, values) if node.routes else None


@frozen(kw_only=True)
class SiteContext:
    """What all routes of one site share.

    ``parse_json`` parses bodies; ``errors`` translates its exceptions and those of the routes; ``new_id`` makes the ids
    under which the log has unexpected errors.
    """

    _log = Logger()

    parse_json: Callable[[bytes], object]
    errors: ErrorTable
    limiter: RateLimiter
    clock: Clock
    new_id: Callable[[], str]
    router: Router = field(factory=Router)

    def http_error(self, error: Any, failure: Failure | None = None) -> HttpError:
        """The HTTP error for an exception; an unexpected one is logged and becomes 500 with the id of its log entry."""
        known = translate(error, self.errors)
        if known is not None:
            return known
        error_id = self.new_id()
        failure = failure or Failure(error)
        self._log.failure("a request failed; its client was told {error_id}", failure=failure, error_id=error_id)
        return internal_error(error_id)

    def add(self, owner: object, presentation: "Presentation") -> "list[BoundRoute]":
        """Bind the routes that the class of ``owner`` declares; raises ValueError or TypeError for a wrong one."""
        added = []
        for route, method in routes_of(owner):
            if route.bucket not in self.limiter:
                raise ValueError(f"{route.path}: there is no rate named {route.bucket!r}")
            if route.shows_chain and not hasattr(owner, "tip"):
                raise TypeError(f"{route.path} shows the chain, and its owner has no tip")
            inspect.signature(method).bind(**dict.fromkeys(route.arguments))
            bound = BoundRoute(route, owner, method, self, presentation)
            self.router.add(bound)
            added.append(bound)
        return added

    def respond_unrouted(
        self, request: IncomingRequest, presentation: "Presentation", answer: Callable[[], Response]
    ) -> Response:
        """The response of ``answer``, which may raise, to a request without a route."""
        try:
            self.limiter.admit(request, UNROUTED_BUCKET, 1.0)
            presentation.check(request)
            return answer()
        except Exception as error:
            return presentation.error_response(request, self.http_error(error))


def accept(_: IncomingRequest) -> None:
    """The check that accepts every request."""


@frozen
class Presentation:
    """The form of the responses of one part of a site; the default is JSON.

    ``check`` may raise HttpError for an admitted request; ``headers`` are added to every response.
    """

    check: Callable[[IncomingRequest], None] = accept
    to_response: Callable[[IncomingRequest, Any], Response] = field(default=lambda request, result: to_response(result))
    error_response: Callable[[IncomingRequest, HttpError], Response] = field(
        default=lambda request, error: error_response(error)
    )
    headers: Headers = ()


@frozen
class BoundRoute:
    """A route with the method that answers it, whose object is the ``owner``."""

    route: Route
    owner: object
    method: Callable[..., Any]
    site: SiteContext
    presentation: Presentation

    def respond(self, request: IncomingRequest, path_values: Mapping[str, str]) -> "Response | Deferred[Response]":
        """Draw the cost of the request and answer it; errors become responses too."""
        request.route = self.route.path
        try:
            self.site.limiter.admit(request, self.route.bucket, self.route.cost)
        except Exception as error:
            return self.presentation.error_response(request, self.site.http_error(error))
        return self.call(request, path_values)

    def call(self, request: IncomingRequest, path_values: Mapping[str, str]) -> "Response | Deferred[Response]":
        """Answer a request whose cost has been drawn; errors become responses too."""
        return _Call(self, request).start(path_values)


FoundRoute = tuple[BoundRoute, Mapping[str, str]]
"""A route, and the values of its placeholders by their names."""


@define
class _Call:
    """One call of a route, whose cost has been drawn."""

    _log = Logger()

    bound: BoundRoute
    request: IncomingRequest
    min_height: int | None = None

    def start(self, path_values: Mapping[str, str]) -> "Response | Deferred[Response]":
        """Call the method; a coroutine gets a deadline."""
        bound, request = self.bound, self.request
        try:
            bound.presentation.check(request)
            guards = bound.route.guards
            checked = [guard.check(bound.owner, request) for guard in guards]
            values = self._values(path_values)
            for guard, result in zip(guards, checked, strict=True):
                if guard.argument is not None:
                    values[guard.argument] = result
            if bound.route.takes_min_height:
                self.min_height = values.pop("min_height", None)  # type: ignore[assignment]
                if self.min_height is not None and (too_low := self._too_low(bound.owner.tip)):  # type: ignore[attr-defined]
                    raise too_low
            if bound.route.with_client:
                values["client"] = bound.site.limiter.clients.address_of_request(request)
            if bound.route.with_host:
                values["host"] = (request.requestHeaders.getRawHeaders(b"Host") or [b""])[-1].decode("latin-1")
            if bound.route.with_charge:
                values["charge"] = partial(bound.site.limiter.owe, request, bound.route.bucket)
            result = bound.method(**values)
            if not inspect.iscoroutine(result):
                return self._render(result)
        except Exception as error:
            return self._render_error(error)
        return self._bounded(Deferred.fromCoroutine(result)).addCallback(self._render).addErrback(self._failed)

    def _values(self, path_values: Mapping[str, str]) -> dict[str, object]:
        """The values of the fields; raises HttpError with the tokens that a malformed request costs."""
        route, site = self.bound.route, self.bound.site
        try:
            return read_values(route, self.request, path_values, site.parse_json)
        except Exception as error:
            known = translate(error, site.errors)
            if known is None or not route.malformed_tokens:
                raise
            raise evolve(known, tokens=route.malformed_tokens) from error

    def _too_low(self, tip: Tip | None) -> HttpError | None:
        """503 if the client asks for a higher chain than that of ``tip``."""
        if self.min_height is None or tip is None or tip.height >= self.min_height:
            return None
        sentence = (
            f"the chain of this node ends at height {tip.height}, below minHeight {self.min_height}; "
            f"try again in {RETRY_SECONDS} s, or ask another node"
        )
        return service_unavailable(sentence, RETRY_SECONDS, tip=tip)

    def _render(self, result: Any) -> Response:
        response = self.bound.presentation.to_response(self.request, result)
        self._charge(len(response.body))
        if self.min_height is not None and (too_low := self._too_low(response.tip)):
            raise too_low
        return response

    def _charge(self, size: int) -> None:
        """Charge what a response of ``size`` bytes costs beyond the route's cost."""
        route = self.bound.route
        more = size / BYTES_PER_TOKEN - route.cost
        if route.by_size and more > 0:
            self.bound.site.limiter.owe(self.request, route.bucket, more)

    def _bounded(self, work: Deferred[Renderable]) -> Deferred[Renderable]:
        """``work`` under the route's deadline, and protected from cancellation unless the route is cancellable."""
        if work.called:
            return work
        route = self.bound.route
        if self.request.channel is not None:
            self.request.channel.answer_within(route.seconds)
        if not route.cancellable:
            work = shielded(work, self._failed_alone)
        return work.addTimeout(route.seconds, cast(IReactorTime, self.bound.site.clock))

    def _failed_alone(self, failure: Failure) -> None:
        """Note a failure after the client has gone or the time is up."""
        known = translate(failure.value, self.bound.site.errors)
        if known is None:
            self._log.failure("a request failed after its client had gone or timed out", failure=failure)
        else:
            # Disconnecting before the refusal must not be cheaper than waiting for it.
            self._penalise(known)

    def _failed(self, failure: Failure) -> Response:
        route = self.bound.route
        if not failure.check(CancelledError, defer.TimeoutError):
            return self._render_error(failure.value, failure)
        # The whole response may have been read: disconnecting or asking again must not be cheaper than taking it.
        self._charge(route.by_size)
        if failure.check(CancelledError) and self.request.channel is None:
            failure.raiseException()  # The client has gone, which its connection knows.
        sentence = LATE_READ if route.cancellable else LATE_WRITE
        late = HttpError(503, sentence.format(seconds=route.seconds))
        return self.bound.presentation.error_response(self.request, late)

    def _render_error(self, error: Any, failure: Failure | None = None) -> Response:
        known = self.bound.site.http_error(error, failure)
        known = self._too_low(known.tip) or known
        self._penalise(known)
        return self.bound.presentation.error_response(self.request, self._with_unknown_field(known))

    def _with_unknown_field(self, error: HttpError) -> HttpError:
        """``error``, which also names an unknown field of the query if it is 400: perhaps a required one misspelt."""
        route = self.bound.route
        unknown = unknown_query_fields(route, self.request) if error.status == 400 and route.query_fields else []
        if not unknown:
            return error
        sentence = f"{error.sentence.removesuffix('.')}; {unknown[0][:MAX_SHOWN]!r} in the query is unknown here"
        return evolve(error, sentence=sentence)

    def _penalise(self, error: HttpError) -> None:
        """Charge what the refusal costs, and report a client that floods."""
        if not error.tokens:
            return
        route, limiter = self.bound.route, self.bound.site.limiter
        floods = limiter.penalise(self.request, route.bucket, error.tokens, paid=route.cost)
        client = limiter.clients.address_of_request(self.request)
        if floods and client is not None and route.on_flood is not None:
            route.on_flood(self.bound.owner, client)
