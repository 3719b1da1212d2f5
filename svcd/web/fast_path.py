"""The fast path: parses in one pass a request that has arrived whole and has nothing unusual about it.

Nearly all requests take it. All others take the slow path through twisted.web and Klein, which implements HTTP in full.
Both paths give the same response (tests/web/test_fast_path.py), so the fast path refuses nothing: it leaves every
request that it does not recognise to the slow path.
"""

import re
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

from attrs import define, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.web.http_headers import Headers as Fields

from svcd.web.api import FoundRoute, Router
from svcd.web.request import Answering, Recorder
from svcd.web.responses import Headers, Response, header_lines, status_line
from svcd.web.site_state import SiteState

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

MAX_BYTES: Final = 2_000
"""At most in the request line, and at most in the headers; browsers send half as much."""
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
    """A request on the fast path; implements :class:`svcd.web.request.IncomingRequest`."""

    method: bytes
    uri: bytes
    path: bytes
    requestHeaders: Fields
    content: BytesIO | None
    found: FoundRoute
    client: IAddress
    site: SiteState
    channel: Answering | None
    """None after the client has disconnected."""
    began: float
    route: str = ""
    code: int = 200
    work: "Deferred[Any] | None" = None
    """The pending response of an asynchronous route."""

    @property
    def length(self) -> int:
        """The bytes of the body."""
        return 0 if self.content is None else self.content.getbuffer().nbytes

    @property
    def recorder(self) -> Recorder:
        """Counts the response."""
        return self.site.recorder

    def respond(self) -> "Response | Deferred[Response]":
        """The response of the route; errors become responses too."""
        bound, path_values = self.found
        return bound.respond(self, path_values)

    def connection_lost(self) -> None:
        """The client has disconnected: cancel the pending response."""
        self.channel = None
        if self.work is not None:
            self.work.cancel()


def read_request(
    data: bytes, router: Router, *, site: SiteState, channel: Answering, client: IAddress
) -> tuple[FastRequest, int] | None:
    """The request from ``client`` at the start of ``data``, and where it ends; None if it must take the slow path."""
    line = _LINE.match(data)
    if line is None or line.end() > MAX_BYTES:
        return None
    start = line.end()
    end = data.find(b"\r\n\r\n", start, start + MAX_BYTES)
    head = read_head(data[start:end]) if end > 0 else None
    if head is None:
        return None
    method, path, query = line.groups()
    found = router.find_plain(method, path.decode("ascii"))
    body_at, length = end + 4, head.length
    if found is None or (length and (method == b"GET" or body_at + length > len(data))):
        return None
    request = FastRequest(
        method=method,
        uri=path + query,
        path=path,
        requestHeaders=head.fields,
        content=BytesIO(data[body_at : body_at + length]) if length else None,
        found=found,
        client=client,
        site=site,
        channel=channel,
        began=site.clock.seconds(),
    )
    return request, body_at + length


def head_of(request: FastRequest, answer: Response) -> bytes:
    """The status line and the headers of ``answer``."""
    site, tip, headers = request.site, answer.tip, answer.headers
    if site.draining:
        tip, headers = None, (*answer.own_headers, *CLOSING)
    first, tail = _head(request.found[0].presentation.headers, answer.status, answer.content_type, headers)
    # The headers of the site and the tip are not part of _head: they change every second and with every block.
    named = b"" if tip is None else tip.lines
    return b"".join((first, site.first_headers()[1], tail.replace(b"\0", b"%d" % len(answer.body)), named, b"\r\n"))
