"""The one resource behind every path that is neither ``/rpc`` nor ``/p2p``: finds the page and answers in HTML."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Final, NoReturn, cast
from urllib.parse import quote, unquote_to_bytes

from attrs import evolve, frozen
from twisted.web.resource import Resource

from svcd.pages.assets import Assets
from svcd.pages.headers import CLOSED, HTML, WITH_FORM
from svcd.pages.layout import KeptPage, Layout, Page
from svcd.web.answers import Rendered, put_on, rendered_error
from svcd.web.api import Ports, Presentation, Routes
from svcd.web.errors import NO_ROUTE, Headers, HttpError, method_not_allowed
from svcd.web.request import Request
from svcd.web.resources import check_host
from svcd.web.routing import Asked

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

FILES: Final = "/static/{name}"
"""The label of all files in metrics: clients choose no labels."""
_WITH_SLASH: Final = {b"/pay": b"/pay/", b"/wallet": b"/wallet/"}
"""What people type, and where it is."""

KEPT: Final = 128
"""Pages of a few kilobytes that are kept for the next who asks."""


@frozen
class Hosts:
    """Under what names pages are asked for, in lower case and without ports, IPv6 addresses in brackets.

    A page of somebody else whose name was pointed here (DNS rebinding) says that name; it cannot say ``addresses``.
    """

    names: frozenset[str]
    addresses: bool
    """Whether any IP address will do too."""


class Pages(Resource):
    """Pages, their files, and a page for every error; only GET and HEAD."""

    isLeaf = True

    def __init__(
        self, rooms: Iterable[object], *, layout: Layout, assets: Assets, ports: Ports, hosts: Hosts | None
    ) -> None:
        super().__init__()
        self._layout = layout
        self._kept = lru_cache(KEPT)(self._render_kept)
        self._assets = assets
        self._router = ports.router
        self._hosts = hosts
        self._routes = Routes(ports, Presentation(self._check, self._rendered, self._rendered_error))
        for room in rooms:
            self._routes.add(room)

    def render(self, request: Request) -> bytes:
        """The answer; nothing is raised."""
        path = request.path.partition(b"?")[0]
        segments = _segments(path)
        found = self._router.find(b"GET", segments)
        if found is not None:
            served, values = found
            # Not a Deferred: pages are drawn at once.
            return put_on(request, cast(Rendered, served.respond(request, values)))
        answer: Callable[[], Rendered] = _no_page
        if path in _WITH_SLASH:
            request.route = _WITH_SLASH[path].decode("ascii")
            answer = partial(_redirect, _WITH_SLASH[path], request)
        elif len(segments) == 2 and segments[0] == "static":
            request.route = FILES
            answer = partial(self._file, segments[1], request)
        return put_on(request, self._routes.stray(request, answer))

    def _check(self, request: Asked) -> None:
        if self._hosts is not None:
            check_host(request, self._hosts.names, addresses=self._hosts.addresses)
        if request.method not in (b"GET", b"HEAD"):
            raise method_not_allowed(["GET", "HEAD"])

    def _file(self, name: str, request: Request) -> Rendered:
        return _with(CLOSED, self._assets.get(name).answer(request))

    def _rendered(self, answer: Page | KeptPage | Rendered) -> Rendered:
        if isinstance(answer, Rendered):
            return _with(CLOSED, answer)
        if isinstance(answer, KeptPage):
            return self._kept(answer, self._layout.warning())
        headers = WITH_FORM if answer.searchable else CLOSED
        return Rendered(self._layout.draw(answer), answer.status, content_type=HTML, headers=headers)

    def _render_kept(self, kept: KeptPage, _warning: str) -> Rendered:
        return self._rendered(kept.make())

    def _rendered_error(self, request: Asked, told: HttpError) -> Rendered:
        if not _wants_html(request):
            return _with(CLOSED, rendered_error(told))
        body = self._layout.draw(Page.of_error(told))
        return _with(WITH_FORM, Rendered(body, told.status, content_type=HTML, headers=told.headers))


def _with(headers: Headers, answer: Rendered) -> Rendered:
    return evolve(answer, headers=(*headers, *answer.headers))


def _segments(path: bytes) -> tuple[str, ...]:
    """The segments of a path, decoded once; none of what no page can be called."""
    try:
        return tuple(unquote_to_bytes(segment).decode("utf-8") for segment in path.split(b"/")[1:])
    except ValueError:
        return ()


def _redirect(target: bytes, request: Request) -> Rendered:
    query = quote(request.uri.partition(b"?")[2], safe="=&%:/?+,;@!$'()*~-._")
    location = target + (b"?" + query.encode("ascii") if query else b"")
    return Rendered(b"", 301, content_type=HTML, headers=(*CLOSED, (b"Location", location)))


def _no_page() -> NoReturn:
    raise HttpError(404, NO_ROUTE)


def _wants_html(request: Asked) -> bool:
    """Whether a person reads: programs ask for everything, and get errors as everywhere else, in JSON."""
    accepted = request.requestHeaders.getRawHeaders(b"Accept") or []
    return any(b"text/html" in line.lower() for line in accepted)
