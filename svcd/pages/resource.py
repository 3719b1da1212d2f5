"""The one resource behind every path that is neither ``/rpc`` nor ``/p2p``: finds the page and answers in HTML."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from attrs import frozen
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource

from svcd.pages.assets import Assets
from svcd.pages.headers import CLOSED, HTML, WITH_FORM
from svcd.pages.layout import Page
from svcd.web.answers import Rendered, fill, fill_error
from svcd.web.api import Ports
from svcd.web.errors import NO_ROUTE, Headers, HttpError, internal, method_not_allowed, translate
from svcd.web.inputs import read_values
from svcd.web.request import Request
from svcd.web.resources import check_host
from svcd.web.routing import Route, routes_of

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

FILES: Final = "/static/{name}"
"""The label of all files in metrics: clients choose no labels."""
_WITH_SLASH: Final = {b"/pay": b"/pay/", b"/wallet": b"/wallet/"}
"""What people type, and where it is."""

Draw = Callable[[Page], bytes]
"""Makes the HTML of a page."""


@frozen
class Hosts:
    """Under what names pages are asked for, in lower case and without ports, IPv6 addresses in brackets.

    A page of somebody else whose name was pointed here (DNS rebinding) says that name; it cannot say ``addresses``.
    """

    names: frozenset[str]
    addresses: bool
    """Whether any IP address will do too."""


@frozen
class Declared:
    """One declared page of one room."""

    route: Route
    room: object
    method: Callable[..., Any]
    pattern: tuple[str, ...]

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """What stands at the placeholders of the path; None where the path is another one."""
        if len(segments) != len(self.pattern):
            return None
        found = {}
        for expected, given in zip(self.pattern, segments, strict=True):
            if expected.startswith("{") and given:
                found[expected[1:-1]] = given
            elif expected != given:
                return None
        return found


class Pages(Resource):
    """Pages, their files, and a page for every error; only GET and HEAD."""

    isLeaf = True
    _log = Logger()

    def __init__(
        self, rooms: Iterable[object], *, draw: Draw, assets: Assets, ports: Ports, hosts: Hosts | None
    ) -> None:
        super().__init__()
        self._declared = [
            Declared(route, room, method, tuple(route.path.split("/")[1:]))
            for room in rooms
            for route, method in routes_of(room)
        ]
        self._draw = draw
        self._assets = assets
        self._ports = ports
        self._hosts = hosts

    def render(self, request: Request) -> bytes:
        """The answer; nothing is raised."""
        _set(request, CLOSED)
        try:
            request.route, cost, answer = self._find(request.path.partition(b"?")[0])
            # Also where there is no such page, for the page that says so takes as long as others.
            self._ports.admit(request, "read", cost)
            if self._hosts is not None:
                check_host(request, self._hosts.names, addresses=self._hosts.addresses)
            if request.method not in (b"GET", b"HEAD"):
                raise method_not_allowed(["GET", "HEAD"])
            return answer(request)
        except Exception as error:
            return self._tell(request, error)

    def _find(self, path: bytes) -> tuple[str, float, Callable[[Request], bytes]]:
        """What is at ``path``: its label, what it costs, and what answers."""
        if path in _WITH_SLASH:
            target = _WITH_SLASH[path]
            return target.decode("ascii"), 1, partial(_redirect, target)
        segments = _segments(path)
        if len(segments) == 2 and segments[0] == "static":
            return FILES, 1, partial(self._file, segments[1])
        for declared in self._declared:
            values = declared.match(segments)
            if values is not None:
                return declared.route.path, declared.route.cost, partial(self._page, declared, values)
        return "", 1, _no_page

    def _file(self, name: str, request: Request) -> bytes:
        return fill(request, self._assets.get(name).answer(request))

    def _page(self, declared: Declared, values: dict[str, str], request: Request) -> bytes:
        answer = declared.method(**read_values(declared.route, request, values, self._ports.parse_json))
        if isinstance(answer, Page):
            _set(request, WITH_FORM if answer.searchable else CLOSED)
            answer = Rendered(self._draw(answer), answer.status, content_type=HTML)
        return fill(request, answer)

    def _tell(self, request: Request, error: Exception) -> bytes:
        told = translate(error, self._ports.errors)
        if told is None:
            error_id = self._ports.new_id()
            self._log.failure(
                "a page failed; its reader was told {error_id}", failure=Failure(error), error_id=error_id
            )
            told = internal(error_id)
        if not _wants_html(request):
            return fill_error(request, told)
        _set(request, WITH_FORM)
        body = self._draw(Page.of_error(told))
        return fill(request, Rendered(body, told.status, content_type=HTML, headers=told.headers))


def _set(request: Request, headers: Headers) -> None:
    for name, value in headers:
        request.responseHeaders.setRawHeaders(name, [value])


def _segments(path: bytes) -> tuple[str, ...]:
    """The segments of a path, decoded once; none of what no page can be called."""
    try:
        return tuple(unquote_to_bytes(segment).decode("utf-8") for segment in path.split(b"/")[1:])
    except ValueError:
        return ()


def _redirect(target: bytes, request: Request) -> bytes:
    query = quote(request.uri.partition(b"?")[2], safe="=&%:/?+,;@!$'()*~-._")
    location = target + (b"?" + query.encode("ascii") if query else b"")
    return fill(request, Rendered(b"", 301, content_type=HTML, headers=((b"Location", location),)))


def _no_page(_request: Request) -> bytes:
    raise HttpError(404, NO_ROUTE)


def _wants_html(request: Request) -> bool:
    """Whether a person reads: programs ask for everything, and get errors as everywhere else, in JSON."""
    accepted = request.requestHeaders.getRawHeaders(b"Accept") or []
    return any(b"text/html" in line.lower() for line in accepted)
