"""Answers requests to declared routes, and binds them to Klein: limits, checks and errors are the same for all."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NoReturn, cast
from urllib.parse import parse_qsl

from attrs import field, frozen
from klein import Klein
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from svcd.ports import Clock
from svcd.web.answers import Answer, Rendered, put_on, rendered, rendered_error
from svcd.web.clients import Throttle
from svcd.web.errors import NO_ROUTE, ErrorTable, Headers, HttpError, internal, method_not_allowed, too_many, translate
from svcd.web.request import Request
from svcd.web.resources import PlainPaths
from svcd.web.router import Router, Served
from svcd.web.routing import BYTES_PER_TOKEN, Asked, Field, Route, routes_of

STRAYS: Final = "read"
"""The bucket of what has no route: Klein takes as long over it as over an answer."""
LATE_READ: Final = "the node did not answer within {seconds:g} seconds; try again later"
LATE_WRITE: Final = (
    "the node did not answer within {seconds:g} seconds; it goes on, so look at what came of it before repeating"
)
MAX_QUERY_FIELDS: Final = 100
MAX_SHOWN: Final = 64
"""How much of a name that a client sent is repeated to it."""


def read_values(
    route: Route, request: Asked, path_values: Mapping[str, str], parse_json: Callable[[bytes], object]
) -> dict[str, object]:
    """The validated values of all fields of ``route``, by the arguments of its method.

    Raises HttpError, and whatever ``parse_json`` and the fields' ``parse`` raise that is no ValueError.
    """
    values = {each.argument: _parse(each, path_values[each.name]) for each in route.path_fields}
    if route.query_fields:
        values |= _read(route.query_fields, _query(route, request))
    if route.raw_body:
        values["body"] = _bytes(request)
    elif route.method != "GET":
        values |= _read(route.body_fields, _body(route, request, parse_json))
    return values


def _read(fields: tuple[Field, ...], given: Mapping[str, Any]) -> dict[str, object]:
    values = {}
    for each in fields:
        if each.name in given:
            values[each.argument] = _parse(each, given[each.name])
        elif each.required:
            raise HttpError(400, f"{each.name} is missing: {each.description}")
        else:
            values[each.argument] = each.default
    return values


def _parse(declared: Field, raw: Any) -> object:
    try:
        return declared.parse(raw)
    except ValueError as error:
        raise HttpError(400, f"{declared.name}: {error}") from error


def _query(route: Route, request: Asked) -> dict[str, str]:
    # Not request.args: Twisted also splits at semicolons, so that one value could pass for two.
    try:
        pairs = _pairs(request.uri.partition(b"?")[2].decode("ascii"))
    except UnicodeDecodeError as error:
        raise HttpError(400, "the query must be UTF-8 in percent-encoding") from error
    except ValueError as error:
        raise HttpError(400, f"the query may have at most {MAX_QUERY_FIELDS} fields") from error
    names = [name for name, _ in pairs]
    for each in route.query_fields:
        if names.count(each.name) > 1:
            raise HttpError(400, f"{each.name} stands more than once in the query; once is right")
    return dict(pairs)


def _pairs(text: str) -> list[tuple[str, str]]:
    if "%" in text or "+" in text or text.count("&") >= MAX_QUERY_FIELDS:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    # Nothing to decode, as in nearly every query: a fifth of the time, and the same outcome.
    splits = [part.partition("=") for part in text.split("&") if part]
    return [(name, value) for name, _, value in splits]


def _bytes(request: Asked) -> bytes:
    return request.content.read() if request.content is not None else b""


def _body(route: Route, request: Asked, parse_json: Callable[[bytes], object]) -> dict[str, object]:
    data = _bytes(request)
    try:
        body = parse_json(data) if data else {}
    except RecursionError as error:
        raise HttpError(400, "the body is nested too deeply") from error
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be a JSON object")
    known = [each.name for each in route.body_fields]
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        allowed = f"the known ones are {', '.join(known)}" if known else "this route has none"
        raise HttpError(400, f"unknown field {unknown[:MAX_SHOWN]!r} in the body; {allowed}")
    return body


# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls


@frozen(kw_only=True)
class Ports:
    """What every route of one site works with.

    ``parse_json`` reads bodies strictly; ``errors`` tells its exceptions and those of the routes; ``throttle`` draws
    from the client's buckets; ``clock`` bounds the answers; ``new_id`` gives the ids of unexpected errors in the log;
    ``router`` finds the routes.
    """

    _log = Logger()

    parse_json: Callable[[bytes], object]
    errors: ErrorTable
    throttle: Throttle
    clock: Clock
    new_id: Callable[[], str]
    router: Router = field(factory=Router)

    def admit(self, request: Asked, bucket: str, cost: float) -> None:
        """Draw ``cost`` from the bucket of the request's client; raises HttpError(429) where that is not to be had."""
        wait = self.throttle.wait(request, bucket, cost)
        if wait > 0:
            refuse(request, bucket, wait)

    def tell(self, error: Any, failure: Failure | None = None) -> HttpError:
        """What the client is told of ``error``; the details of one that nobody expected go to the log under an id."""
        told = translate(error, self.errors)
        if told is None:
            error_id = self.new_id()
            failure = failure or Failure(error)
            self._log.failure("a request failed; its client was told {error_id}", failure=failure, error_id=error_id)
            told = internal(error_id)
        return told


def refuse(request: Asked, bucket: str, wait: float) -> NoReturn:
    """Raise HttpError(429) for a request whose client's bucket has its cost in ``wait`` seconds."""
    request.site.recorder.throttled(bucket)
    raise too_many(wait)


@frozen
class Presentation:
    """How one part of a site answers: in JSON, if nothing else is said.

    ``check`` may raise HttpError for a request that has been paid for; ``rendered`` renders what a method returns, and
    ``rendered_error`` what a client is told; ``headers`` come with every answer.
    """

    check: Callable[[Asked], None] = field(default=lambda request: None)
    rendered: Callable[[Any], Rendered] = field(default=rendered)
    rendered_error: Callable[[Asked, HttpError], Rendered] = field(default=lambda request, told: rendered_error(told))
    headers: Headers = ()


@frozen
class Bound:
    """A route, and the room whose method answers it."""

    route: Route
    room: object
    method: Callable[..., Any]


@frozen
class Call:
    """One request to one route."""

    bound: Bound
    request: Asked

    @property
    def route(self) -> Route:
        """The route."""
        return self.bound.route


class Routes:
    """The routes that rooms declare: one part of a site, which answers them all in the same way."""

    _log = Logger()

    def __init__(self, ports: Ports, presentation: Presentation) -> None:
        self._ports = ports
        self._presentation = presentation

    def add(self, room: object) -> list[Served]:
        """Let the router find the routes that ``room``'s class declares, which are returned.

        Raises ValueError or TypeError for one that cannot work.
        """
        added = []
        for route, method in routes_of(room):
            if not self._ports.throttle.knows(route.bucket):
                raise ValueError(f"{route.path}: there is no rate named {route.bucket!r}")
            inspect.signature(method).bind(**dict.fromkeys(route.arguments))
            served = Served(route, partial(self._respond, Bound(route, room, method)), self._presentation.headers)
            self._ports.router.add(served)
            added.append(served)
        return added

    def stray(self, request: Asked, answer: Callable[[], Rendered]) -> Rendered:
        """What ``answer`` gives or raises for a request to what is no declared route."""
        try:
            self._ports.admit(request, STRAYS, 1.0)
            self._presentation.check(request)
            return answer()
        except Exception as error:
            return self._presentation.rendered_error(request, self._ports.tell(error))

    def _respond(self, bound: Bound, request: Asked, path_values: Mapping[str, str]) -> Rendered | Deferred[Rendered]:
        ports, route, call = self._ports, bound.route, Call(bound, request)
        request.route = route.path
        try:
            ports.admit(request, route.bucket, route.cost)
            self._presentation.check(request)
            for guard in route.guards:
                guard.check(bound.room, request)
            values = self._values(call, path_values)
            if route.with_client:
                values["client"] = ports.throttle.client(request)
            result = bound.method(**values)
            if not inspect.iscoroutine(result):
                return self._paid(call, result)
        except Exception as error:
            return self._tell(call, error)
        work = self._bounded(call, Deferred.fromCoroutine(result))
        return work.addCallback(partial(self._paid, call)).addErrback(partial(self._failed, call))

    def _values(self, call: Call, path_values: Mapping[str, str]) -> dict[str, object]:
        """What the request brings; raises HttpError with the tokens that it costs not to bring it as declared."""
        route = call.route
        try:
            return read_values(route, call.request, path_values, self._ports.parse_json)
        except Exception as error:
            told = translate(error, self._ports.errors)
            if told is None or not route.malformed_tokens:
                raise
            raise HttpError(told.status, told.sentence, told.headers, tokens=route.malformed_tokens) from error

    def _paid(self, call: Call, answer: Any) -> Rendered:
        """``answer``, for whose size its client has paid or owes."""
        made = self._presentation.rendered(answer)
        self._charge(call, len(made.body))
        return made

    def _charge(self, call: Call, size: int) -> None:
        """Have the client owe what ``size`` bytes cost over the cost of every request."""
        route = call.route
        more = size / BYTES_PER_TOKEN - route.cost
        if route.by_size and more > 0:
            self._ports.throttle.owe(call.request, route.bucket, more)

    def _bounded(self, call: Call, work: Deferred[Answer]) -> Deferred[Answer]:
        """``work`` with the route's deadline; what must go on is out of reach of every cancellation."""
        if work.called:
            return work
        route = call.route
        call.request.answer_within(route.seconds)
        if not route.cancellable:
            work = self._shielded(call, work)
        return work.addTimeout(route.seconds, cast(IReactorTime, self._ports.clock))

    def _shielded(self, call: Call, work: Deferred[Answer]) -> Deferred[Answer]:
        outcome: Deferred[Answer] = Deferred()

        def done(result: Any) -> None:
            if not outcome.called:
                outcome.callback(result)
            elif isinstance(result, Failure):
                told = translate(result.value, self._ports.errors)
                if told is None:
                    self._log.failure("work that nobody waited for any more failed", failure=result)
                else:
                    # Hanging up before the refusal must not be cheaper than hearing it.
                    self._penalise(call, told)

        work.addBoth(done)
        return outcome

    def _failed(self, call: Call, failure: Failure) -> Rendered:
        if failure.check(CancelledError, defer.TimeoutError):
            # What was read may have been all there is; hanging up or asking again must not be cheaper than taking it.
            self._charge(call, call.route.by_size)
            if failure.check(CancelledError) and call.request.channel is None:
                failure.raiseException()  # The client went away, and its connection knows.
            sentence = LATE_READ if call.route.cancellable else LATE_WRITE
            late = HttpError(503, sentence.format(seconds=call.route.seconds))
            return self._presentation.rendered_error(call.request, late)
        return self._tell(call, failure.value, failure)

    def _penalise(self, call: Call, told: HttpError) -> None:
        """Have the client pay what the refusal costs, and tell the room of one that goes on like that."""
        if not told.tokens:
            return
        route, throttle = call.route, self._ports.throttle
        persistent = throttle.penalise(call.request, route.bucket, told.tokens, paid=route.cost)
        client = throttle.client(call.request)
        if persistent and client is not None and route.on_persistence is not None:
            route.on_persistence(call.bound.room, client)

    def _tell(self, call: Call, error: Any, failure: Failure | None = None) -> Rendered:
        told = self._ports.tell(error, failure)
        self._penalise(call, told)
        return self._presentation.rendered_error(call.request, told)


class Api:
    """The routes of several rooms on one Klein app, mounted at ``mount`` (``"/rpc"``, or ``""`` for the root)."""

    def __init__(self, mount: str, ports: Ports, headers: Headers = ()) -> None:
        """Make one whose answers all have ``headers``; raises ValueError if there is no rate for what has no route."""
        if not ports.throttle.knows(STRAYS):
            raise ValueError(f"there is no rate named {STRAYS!r}")
        self.routes: list[Route] = []
        self._mount = mount
        self._ports = ports
        self._served = Routes(ports, Presentation(headers=headers))
        self._klein = Klein()
        self._klein.handle_errors(HTTPException)(self._not_routed)
        self._dearest: dict[str, float] = {STRAYS: 1.0}

    def add(self, room: object) -> None:
        """Bind the routes that ``room``'s class declares; raises ValueError or TypeError for one that cannot work."""
        for served in self._served.add(room):
            route = served.route
            if not route.path.startswith(self._mount + "/"):
                raise ValueError(f"{route.path} is not below {self._mount}")
            self._bind(served)
            self.routes.append(route)
            self._dearest[route.bucket] = max(route.cost, self._dearest.get(route.bucket, 0.0))

    def resource(self) -> Resource:
        """The leaf to be mounted."""
        return PlainPaths(self._klein.resource(), self._turn_away)

    def _bind(self, served: Served) -> None:
        def answer(request: Request, **path_values: str) -> bytes | Deferred[bytes]:
            found = served.respond(request, path_values)
            if isinstance(found, Rendered):
                return put_on(request, found)
            return found.addCallback(partial(put_on, request))

        route = served.route
        name = f"{route.method} {route.path}"
        self._klein.route(route.rule.removeprefix(self._mount), methods=[route.method], endpoint=name)(answer)

    def _turn_away(self, request: Request) -> None:
        """Refuse whoever has nothing left before Klein is asked, whose machinery is most of what an answer takes.

        What is paid for is for Klein, and so is the first refusal in a while.
        """
        throttle = self._ports.throttle
        short = throttle.shortages(request, self._dearest)
        if not short:
            return
        path, bucket, cost = self._price(request)
        if cost < self._dearest[bucket]:
            short = throttle.shortages(request, {bucket: cost})
        wait = short.get(bucket)
        if wait:
            request.route = path
            refuse(request, bucket, wait)

    def _price(self, request: Request) -> tuple[str, str, float]:
        """The declared path of the route that is asked for, and what is drawn from which bucket."""
        method = b"GET" if request.method == b"HEAD" else request.method
        # PlainPaths has seen that it is UTF-8.
        segments = [segment.decode("utf-8") for segment in [*(request.prepath or []), *(request.postpath or [])]]
        found = self._ports.router.find(method, segments)
        if found is None:
            return "", STRAYS, 1.0
        route = found[0].route
        return route.path, route.bucket, route.cost

    def _not_routed(self, request: Request, failure: Failure) -> bytes:
        return put_on(request, self._served.stray(request, partial(_refused, failure.value)))


def _refused(refusal: Any) -> NoReturn:
    """Raise what Klein says of a request that has no route."""
    if isinstance(refusal, MethodNotAllowed):
        raise method_not_allowed(list(refusal.valid_methods or ()))
    raise HttpError(404, NO_ROUTE)
