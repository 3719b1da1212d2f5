"""The fast path: parses and answers in one pass a request that has arrived whole and has nothing unusual about it.

Nearly all requests take it. All others take the slow path through twisted.web and Klein, which implements HTTP in full.
Both paths give the same response (tests/web/test_fast_path.py), so the fast path refuses nothing: it leaves every
request that it does not recognise to the slow path.
"""

import re
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers as Fields

from svcd.web.api import BoundRoute, Router
from svcd.web.responses import Headers, Response, header_lines, status_line

if TYPE_CHECKING:
    from svcd.web.channel import Channel
    from svcd.web.site import Site

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

MOST_BYTES: Final = 2_000
"""At most in the request line, and at most in the headers; browsers send half as much."""
_LOG: Final = Logger()
_REMEMBERED: Final = 256
_HARMLESS: Final = re.compile(
    rb"(?:(?:Host|User-Agent|Accept|Accept-Encoding|Accept-Language|Connection|Content-Type|Content-Length)"
    rb":[^\r\n]*(?:\r\n|\Z))+",
    re.IGNORECASE,
)
"""Headers that hold no secret, and that a client sends alike with each of its requests."""
_LINE: Final = re.compile(rb"(GET|POST) (/[A-Za-z0-9._~:/-]*)((?:\?[A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?) HTTP/1\.1\r\n")
"""A request line whose path has no percent-encoding."""
_FIELD: Final = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([\x20-\x7e\t]*)")
_LENGTH: Final = re.compile(rb"0|[1-9][0-9]{0,8}")
CLOSING: Final[Headers] = ((b"Connection", b"close"),)
_UNUSUAL: Final = (b"Transfer-Encoding", b"Expect", b"Upgrade")


@frozen
class Head:
    """The headers of a request, never changed: requests with the same harmless ones share them."""

    fields: Fields
    length: int
    """Bytes of the body that follows."""


def read_head(block: bytes) -> Head | None:
    """Parse the headers in ``block``, which ends before the empty line; None if any of them is unusual.

    Only harmless headers are kept for the next request: a bearer token or a cookie does not outlive its request.
    """
    return _read_harmless_head(block) if _HARMLESS.fullmatch(block) else _parse_head(block)


@lru_cache(_REMEMBERED)
def _read_harmless_head(block: bytes) -> Head | None:
    return _parse_head(block)


def _parse_head(block: bytes) -> Head | None:
    fields = Fields()
    for line in block.split(b"\r\n"):
        match = _FIELD.fullmatch(line)
        if match is None:
            return None
        fields.addRawHeader(match[1], match[2].rstrip(b" \t"))
    if len(fields.getRawHeaders(b"Host") or ()) != 1 or any(fields.hasHeader(name) for name in _UNUSUAL):
        return None
    if any(value.lower() != b"keep-alive" for value in fields.getRawHeaders(b"Connection") or ()):
        return None
    lengths = fields.getRawHeaders(b"Content-Length") or [b"0"]
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        return None
    return Head(fields, int(lengths[0]))


@lru_cache(_REMEMBERED)
def _head(common: Headers, status: int, content_type: bytes, headers: Headers) -> tuple[bytes, bytes]:
    """The status line of a response, and its headers with a zero byte in the place of the body's length."""
    fields = dict((*common, *Response(b"", status, content_type, headers).fields))
    if b"Content-Length" in fields:
        fields[b"Content-Length"] = b"\0"
    return status_line(status), header_lines(tuple(fields.items()))


@define(eq=False)
class FastRequest:
    """A request on the fast path; implements :class:`svcd.web.routes.IncomingRequest`."""

    method: bytes
    uri: bytes
    path: bytes
    requestHeaders: Fields
    content: BytesIO | None
    client: IAddress
    site: "Site"
    channel: "Channel | None"
    """None after the client has disconnected."""
    began: float
    route: str = ""
    code: int = 200
    sentLength: int = 0
    work: "Deferred[Any] | None" = None
    """The pending response of an asynchronous route."""

    def connection_lost(self) -> None:
        """The client has disconnected: cancel the pending response."""
        self.channel = None
        if self.work is not None:
            self.work.cancel()


def take(router: Router, channel: "Channel", data: bytes) -> bool:
    """Answer the request at the start of ``data``; False, with nothing done, if it must take the slow path."""
    line = _LINE.match(data)
    if line is None or line.end() > MOST_BYTES:
        return False
    start = line.end()
    end = data.find(b"\r\n\r\n", start, start + MOST_BYTES)
    head = read_head(data[start:end]) if end > 0 else None
    if head is None:
        return False
    method, path, query = line.groups()
    found = router.find(method, path.decode("ascii").split("/")[1:])
    body_at, length = end + 4, head.length
    if found is None or (length and (method == b"GET" or body_at + length > len(data))):
        return False
    site = channel.site
    request = FastRequest(
        method=method,
        uri=path + query,
        path=path,
        requestHeaders=head.fields,
        content=BytesIO(data[body_at : body_at + length]) if length else None,
        client=channel.getPeer(),
        site=site,
        channel=channel,
        began=site.clock.seconds(),
    )
    if not channel.begin_fast(request, length, data[body_at + length :]):
        return False
    served, values = found
    answer = served.respond(request, values)
    if isinstance(answer, Response):
        try:
            _send(request, served, answer)
        except Exception:
            _failed(Failure(), request)
    else:
        request.work = answer
        answer.addCallback(lambda late: _send(request, served, late)).addErrback(_failed, request)
    return True


def _failed(failure: Failure, request: FastRequest) -> None:
    if not failure.check(CancelledError) or request.channel is not None:
        _LOG.failure("an answer could not be sent", failure=failure)
        if request.channel is not None:
            request.channel.abort()


def _send(request: FastRequest, served: BoundRoute, answer: Response) -> None:
    channel, site = request.channel, request.site
    if channel is None:
        return
    body, tip, headers = answer.body, answer.tip, answer.headers
    if site.draining:
        tip, headers = None, (*answer.own_headers, *CLOSING)
    request.code, request.sentLength = answer.status, len(body)
    first, rest = _head(served.presentation.headers, answer.status, answer.content_type, headers)
    # The headers of the site and the tip are not part of _head: they change every second and with every block.
    named = b"" if tip is None else tip.lines
    channel.send(
        b"".join((first, site.first_headers()[1], rest.replace(b"\0", b"%d" % len(body)), named, b"\r\n")), body
    )
    site.log(request)
    channel.requestDone(request)
