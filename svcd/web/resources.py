"""Branches and leaves of a tree of resources whose errors are JSON."""

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from twisted.web.resource import Resource

from svcd.web.clients import parse_address
from svcd.web.errors import NO_ROUTE, HttpError
from svcd.web.request import Request
from svcd.web.routing import Asked

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N815

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+?)\.?(:[0-9]*)?")


class ErrorLeaf(Resource):
    """A leaf that answers every request with one error."""

    isLeaf = True

    def __init__(self, error: HttpError) -> None:
        super().__init__()
        self._error = error

    def render(self, request: Request) -> bytes:
        """Raise the error."""
        raise self._error


NOT_FOUND: Final = ErrorLeaf(HttpError(404, NO_ROUTE))
"""The leaf for a path where nothing is."""


class Branch(Resource):
    """A node of the tree that has children and is no page itself; ``otherwise`` answers what is not there."""

    def __init__(self, otherwise: Resource = NOT_FOUND) -> None:
        super().__init__()
        self._otherwise = otherwise

    def getChild(self, path: bytes, request: Request) -> Resource:
        """Called for a child that does not exist."""
        return self._otherwise

    def render(self, request: Request) -> bytes:
        """Raise 404: a branch is no page."""
        return NOT_FOUND.render(request)


def host_name(header: bytes) -> str | None:
    """The name or address in a ``Host`` header, in lower case and without the port; None if it is none."""
    match = _HOST.fullmatch(header)
    return match[1].decode("latin-1").lower() if match else None


def check_host(request: Asked, hosts: Collection[str], *, addresses: bool = False) -> None:
    """Raise HttpError 421 unless the request names one of ``hosts`` or, with ``addresses``, any IP address.

    A page of somebody else whose name was pointed at our address (DNS rebinding) sends its own name. ``hosts`` are in
    lower case and without ports, IPv6 addresses in brackets.
    """
    named = request.requestHeaders.getRawHeaders(b"Host") or []
    host = host_name(named[0]) if len(named) == 1 else None
    if host is None or not (host in hosts or (addresses and parse_address(host.strip("[]")))):
        also = " or an IP address" if addresses else ""
        raise HttpError(421, f"this site answers only as {', '.join(sorted(hosts))}{also}; check the Host header")


class AllowedHosts(Resource):
    """Lets requests pass to a resource, and to what is below it, only if :func:`check_host` does."""

    def __init__(self, resource: Any, hosts: Collection[str]) -> None:
        super().__init__()
        self.isLeaf = resource.isLeaf
        self._resource = resource
        self._hosts = frozenset(hosts)

    def getChildWithDefault(self, path: bytes, request: Request) -> Any:
        """The child of the resource behind, if the host is allowed."""
        check_host(request, self._hosts)
        return self._resource.getChildWithDefault(path, request)

    def render(self, request: Request) -> Any:
        """Render the resource behind, if the host is allowed."""
        check_host(request, self._hosts)
        return self._resource.render(request)


class PlainPaths(Resource):
    """Lets only paths in plain form pass to Klein, which would take ``//`` for ``/`` and log non-UTF-8 as an error.

    ``turn_away`` is called for each of those, before Klein is, and may raise HttpError.
    """

    isLeaf = True

    def __init__(self, resource: Resource, turn_away: Callable[[Request], None]) -> None:
        super().__init__()
        self._resource = resource
        self._turn_away = turn_away

    def render(self, request: Request) -> Any:
        """Render the resource behind; raises HttpError 404 for empty segments, 400 for what no route can match."""
        segments: list[bytes] = request.postpath or []
        if b"" in segments:
            raise HttpError(404, NO_ROUTE)
        for segment in segments:
            if b"/" in segment or not _is_utf8(segment):
                raise HttpError(400, "the path must be UTF-8 in percent-encoding, without encoded slashes")
        self._turn_away(request)
        return self._resource.render(request)


def _is_utf8(segment: bytes) -> bool:
    try:
        segment.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
