"""Responses and errors of the HTTP server: one JSON encoder, and one sentence for every error (docs/http.md)."""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from attrs import define, field, frozen
from twisted.web.server import Request

Headers = tuple[tuple[bytes, bytes], ...]
"""Names and values of HTTP headers, in the order in which they are sent."""

JSON: Final = b"application/json"
NO_ROUTE: Final = "there is no such path here; paths are case-sensitive and have no slash at the end"
# Python calls 413 "Request Entity Too Large" before version 3.13.
_PHRASES: Final = {each.value: each.phrase.encode("ascii") for each in HTTPStatus} | {413: b"Content Too Large"}

_LINE_END: Final = re.compile(rb"[\r\n]")

T = TypeVar("T")

# json.dumps with options builds a new encoder for every call. No response contains itself.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


@frozen
class Tip:
    """The tip of the chain on which a response rests, and the header that names it."""

    height: int
    headers: Headers
    lines: bytes
    """The same as they are sent."""


@lru_cache(64)
def tip_of(height: int, block_hash: bytes) -> Tip:
    """The tip with this height and hash; its header is rendered once."""
    headers = ((b"Svc-Tip", b"%d:%b" % (height, block_hash.hex().encode("ascii"))),)
    return Tip(height, headers, header_lines(headers))


@frozen
class Response:
    """A response with its whole body."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()
    tip: Tip | None = None
    """None if the response does not depend on the chain."""

    @property
    def own_headers(self) -> Headers:
        """The headers that not every response has."""
        return self.headers if self.tip is None else (*self.headers, *self.tip.headers)

    @property
    def fields(self) -> Headers:
        """All headers in order; a later one of the same name replaces an earlier one."""
        own = ((b"Content-Type", self.content_type), (b"Cache-Control", b"no-store"))
        # The length of a 304 would be that of the response to a request without a condition (RFC 9110 section 8.6).
        length = () if self.status == 304 else ((b"Content-Length", b"%d" % len(self.body)),)
        return (*own, *length, *self.own_headers)

    def apply_to(self, request: Request) -> bytes:
        """Set the status and headers on a Twisted request and return the body."""
        request.setResponseCode(self.status, reason_phrase(self.status))
        for name, value in self.fields:
            request.responseHeaders.setRawHeaders(name, [value])
        return self.body


Renderable = Mapping[str, object] | tuple[int, Mapping[str, object]] | Response
"""What a route returns: the members of the JSON object beside ``"ok": true``, these with a status, or a response."""


@define
class Cached(Generic[T]):
    """The value for the latest key only, made once for each change of the key."""

    _key: object = None
    _value: T | None = None

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The value for ``key``, from ``make`` if the key has changed; ``make`` must not return None."""
        if self._value is None or self._key != key:
            self._key, self._value = key, make()
        return self._value


def json_body(members: Mapping[str, object]) -> bytes:
    """The JSON text of a success."""
    return _encode({"ok": True, **members}).encode("ascii")


def to_response(result: Renderable) -> Response:
    """The response for what a route has returned."""
    if isinstance(result, Response):
        return result
    status, members = result if isinstance(result, tuple) else (200, result)
    return Response(json_body(members), status)


def header_lines(headers: Headers) -> bytes:
    """Headers as HTTP/1.1 sends them; a later header of the same name replaces an earlier one.

    Raises ValueError for a CR or LF, with which a value would begin another header or the body (RFC 9110 section 5.5).
    """
    fields = dict(headers)
    for name, value in fields.items():
        if _LINE_END.search(name) or _LINE_END.search(value):
            raise ValueError(f"the header {name!r} contains a CR or LF")
    return b"".join([b"%b: %b\r\n" % field for field in fields.items()])


def status_line(status: int) -> bytes:
    """The first line of an HTTP/1.1 response."""
    return b"HTTP/1.1 %d %b\r\n" % (status, reason_phrase(status))


def serialize(status: int, headers: Headers, body: bytes) -> bytes:
    """The bytes of a whole HTTP/1.1 response; a later header of the same name replaces an earlier one."""
    return b"%b%b\r\n%b" % (status_line(status), header_lines(headers), body)


def reason_phrase(status: int) -> bytes:
    """The reason phrase of ``status`` (RFC 9110 section 15); Twisted's own table lacks 421 and 429."""
    return _PHRASES[status]


@define(eq=False)
class HttpError(Exception):
    """A request is answered with an error: ``status``, one ``sentence`` for the client, and further ``headers``.

    ``tokens`` are drawn from the client's bucket in addition to the cost of the route. ``members`` are in the body
    beside the sentence; the route declares them. ``tip`` is the tip of the chain on which the error rests, if on any.
    """

    status: int
    sentence: str
    headers: Headers = ()
    tokens: float = field(default=0.0, kw_only=True)
    members: Mapping[str, object] = field(default=MappingProxyType({}), kw_only=True)
    tip: Tip | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"{self.status}: {self.sentence}"


ErrorTable = Mapping[type[Exception], Callable[[Any], HttpError | None]]
"""The HTTP error for each exception type behind the routes; the nearest listed base class of an exception wins.

None means that this exception is unexpected after all.
"""


def translate(error: BaseException | None, table: ErrorTable) -> HttpError | None:
    """The HTTP error for ``error``: itself if it is one, else by ``table``; None for an unexpected exception."""
    if isinstance(error, HttpError):
        return error
    for cls in type(error).__mro__:
        if cls in table:
            return table[cls](error)
    return None


def error_response(error: HttpError) -> Response:
    """The JSON response ``{"ok": false, "error": sentence}``, with the error's members."""
    body = _encode({"ok": False, "error": error.sentence, **error.members}).encode("ascii")
    return Response(body, error.status, headers=error.headers, tip=error.tip)


def unauthorized(sentence: str) -> HttpError:
    """401 with ``WWW-Authenticate: Bearer`` (RFC 6750 section 3)."""
    return HttpError(401, sentence, ((b"WWW-Authenticate", b"Bearer"),))


def method_not_allowed(allowed: list[str], advice: str = "") -> HttpError:
    """405 with ``Allow`` (RFC 9110 section 15.5.6); ``advice`` continues the sentence."""
    methods = ", ".join(sorted(allowed))
    sentence = f"this path answers {methods} only"
    return HttpError(405, f"{sentence}; {advice}" if advice else sentence, ((b"Allow", methods.encode("ascii")),))


def request_timeout(part: str, seconds: float) -> HttpError:
    """408 for a request of which ``part`` took longer than ``seconds``."""
    return HttpError(408, f"the request's {part} did not arrive within {seconds:g} seconds")


def too_many_requests(seconds: float, sentence: str = "") -> HttpError:
    """429 with ``Retry-After`` in whole seconds, rounded up (RFC 9110 section 10.2.3); ``seconds`` is positive."""
    wait = ceil(seconds)
    return HttpError(429, sentence or f"too many requests; try again in {wait} s", ((b"Retry-After", b"%d" % wait),))


def internal_error(error_id: str) -> HttpError:
    """500 with nothing but the id under which the log has the details."""
    return HttpError(500, f"the node failed to answer; its log has the details under {error_id}")


def service_unavailable(sentence: str, seconds: int, *, tip: Tip | None = None) -> HttpError:
    """503 with ``Retry-After`` in ``seconds`` (RFC 9110 section 10.2.3)."""
    return HttpError(503, sentence, ((b"Retry-After", b"%d" % seconds),), tip=tip)
