"""Branches of the resource tree, the hosts that a site answers as, and what pages of other origins may read."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

import re
from collections.abc import Collection
from typing import Final

from twisted.web import http, server
from twisted.web.resource import Resource

from svcd.ip_addresses import parse_address
from svcd.web.request import IncomingRequest
from svcd.web.responses import NO_ROUTE, Headers, HttpError

CORS_HEADERS: Final[Headers] = (
    (b"Access-Control-Allow-Origin", b"*"),
    (b"Access-Control-Expose-Headers", b"Allow, Date, Retry-After, Svc-Tip, WWW-Authenticate"),
)
"""The headers of every response, errors included; a site gets them as ``headers_by_prefix``."""
_PREFLIGHT: Final[Headers] = (
    (b"Access-Control-Allow-Methods", b"GET, HEAD, POST, OPTIONS"),
    (b"Access-Control-Max-Age", b"86400"),
    (b"Cache-Control", b"no-store"),
)
_HEADER_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110 section 5.6.2."""
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+?)\.?(:[0-9]*)?")


class Branch(Resource):
    """A resource that has children and no page of its own; ``otherwise`` answers for children that do not exist."""

    def __init__(self, otherwise: Resource | None = None) -> None:
        super().__init__()
        self._otherwise = otherwise

    def getChild(self, path: bytes, request: server.Request) -> Resource:
        """The resource for a child that does not exist; by default a branch without children."""
        return self._otherwise or Branch()

    def render(self, request: server.Request) -> bytes:
        """Raise HttpError 404: a branch has no page."""
        raise HttpError(404, NO_ROUTE)


def host_name(header: bytes) -> str | None:
    """The name or address in a ``Host`` header, in lower case and without the port; None if the header is malformed."""
    match = _HOST.fullmatch(header)
    return match[1].decode("latin-1").lower() if match else None


def check_host(request: IncomingRequest, hosts: Collection[str], *, addresses: bool = False) -> None:
    """Raise HttpError 421 unless the request names one of ``hosts`` or, with ``addresses``, any IP address.

    This stops DNS rebinding: a foreign page whose name was pointed at this address sends its own name. ``hosts`` are in
    lower case and without ports, IPv6 addresses in brackets.
    """
    named = request.requestHeaders.getRawHeaders(b"Host") or []
    host = host_name(named[0]) if len(named) == 1 else None
    if host is None or not (host in hosts or (addresses and parse_address(host.strip("[]")))):
        also = " or an IP address" if addresses else ""
        raise HttpError(421, f"this site answers only as {', '.join(sorted(hosts))}{also}; check the Host header")


def allowed_headers(request: server.Request) -> bytes:
    """The request headers that a page of another origin may send: those that its browser asks for.

    Never ``Authorization``: a token that a page of another origin has is in the wrong place. ``*`` instead of the names
    would allow it in some browsers.
    """
    lines = request.requestHeaders.getRawHeaders(b"Access-Control-Request-Headers") or []
    names = [name.strip(b" \t") for name in b",".join(lines).split(b",")]
    allowed = [name for name in names if _HEADER_NAME.fullmatch(name) and name.lower() != b"authorization"]
    return b", ".join(allowed) or b"Content-Type"


def answer_preflight(request: server.Request) -> int:
    """Answer OPTIONS with 204 and what pages of every origin may send."""
    for name, value in (*_PREFLIGHT, (b"Access-Control-Allow-Headers", allowed_headers(request))):
        request.responseHeaders.setRawHeaders(name, [value])
    request.setResponseCode(http.NO_CONTENT)
    request.finish()
    return server.NOT_DONE_YET
