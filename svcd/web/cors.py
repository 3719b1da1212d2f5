"""Cross-origin reading of everything under one resource (the Fetch standard, section 3.2)."""

from typing import Any, Final

from twisted.web import http, server
from twisted.web.resource import Resource, getChildForRequest

from svcd.web.errors import Headers
from svcd.web.request import Request

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

HEADERS: Final[Headers] = ((b"Access-Control-Allow-Origin", b"*"),)
"""What every answer carries, errors included; a site is told of it as ``headers_by_prefix``."""

_PREFLIGHT: Final[Headers] = (
    (b"Access-Control-Allow-Methods", b"GET, HEAD, POST, OPTIONS"),
    (b"Access-Control-Allow-Headers", b"Authorization, Content-Type"),
    (b"Access-Control-Max-Age", b"86400"),
    (b"Cache-Control", b"no-store"),
)


class Cors(Resource):
    """A leaf around a resource: lets pages of every origin read its answers, and answers OPTIONS itself with 204."""

    isLeaf = True

    def __init__(self, resource: Any) -> None:
        super().__init__()
        self._resource = resource

    def render(self, request: Request) -> Any:
        """Set the headers before anything can fail, then render the resource behind."""
        for name, value in HEADERS:
            request.responseHeaders.setRawHeaders(name, [value])
        if request.method != b"OPTIONS":
            return getChildForRequest(self._resource, request).render(request)
        for name, value in _PREFLIGHT:
            request.responseHeaders.setRawHeaders(name, [value])
        request.setResponseCode(http.NO_CONTENT)
        request.finish()
        return server.NOT_DONE_YET
