"""The one resource behind every path outside of ``/rpc`` and ``/p2p``: routes to a page or a file, errors in HTML."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, Final, NoReturn
from urllib.parse import quote, unquote_to_bytes

from attrs import evolve, frozen
from twisted.web.resource import Resource

from svcd.pages.checkout import CheckoutPage
from svcd.pages.error_pages import error_page
from svcd.pages.expectation import script_timing
from svcd.pages.explorer import AddressPage, BlockPage, BlocksPage, PeersPage, TransactionPage
from svcd.pages.layout import CachedPage, Layout, Page
from svcd.pages.mempool_page import MempoolPage
from svcd.pages.overview import OverviewPage
from svcd.pages.proof_page import ProofPage
from svcd.pages.qr import QrCodeRoute
from svcd.pages.reference import ReferencePage
from svcd.pages.representations import GZIP, Negotiated, compressed, takes_gzip
from svcd.pages.routes import HTML, SECURITY_HEADERS, SECURITY_HEADERS_WITH_FORM, SECURITY_HEADERS_WITH_WORKER
from svcd.pages.search import SearchPage
from svcd.pages.sources import Sources
from svcd.pages.static_files import ApiReferencePage, SandboxedPage, ScriptedPages, StaticPage, static_files
from svcd.pages.texts import Catalogue, Catalogues, Message, load
from svcd.web.api import Presentation, SiteContext
from svcd.web.request import IncomingRequest
from svcd.web.resources import check_host
from svcd.web.responses import NO_ROUTE, Headers, HttpError, Response, error_response, method_not_allowed
from svcd.web.slow_path import Request

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

PagesMaker = Callable[[SiteContext], Resource]
_PAGES: Final = (
    OverviewPage,
    BlockPage,
    BlocksPage,
    TransactionPage,
    AddressPage,
    MempoolPage,
    PeersPage,
    SearchPage,
    ReferencePage,
    CheckoutPage,
    ProofPage,
)
_REDIRECTS: Final = {path: path + b"/" for path in (b"/pay", b"/wallet", b"/till", b"/proof", b"/reference")}
_VARY: Final = (b"Vary", b"Accept-Language, Accept-Encoding")
CACHE_SIZE: Final = 128
"""Rendered pages, of a few kilobytes each, that are kept for further requests."""


@frozen
class PageHosts:
    """The ``Host`` headers that pages answer to: lower case, without ports, IPv6 addresses in brackets.

    DNS rebinding, which points an attacker's name at this node, sends that name and so fails even with ``addresses``.
    """

    names: frozenset[str]
    addresses: bool
    """Whether any IP address is accepted too."""


def pages_resource(sources: Sources, hosts: PageHosts | None, catalogues: Catalogues | None = None) -> PagesMaker:
    """A function that makes the resource of all pages once the site has its throttle; ``hosts`` None accepts any.

    Without ``catalogues`` the texts are those of the package; raises ValueError if these are wrong.
    """
    files, texts = static_files(), catalogues or load(unit=sources.params.unit)
    layout = Layout(sources.params, sources.peers, url=files.url)
    scripted = ScriptedPages(layout, files, sources.links, script_timing(sources))
    made = [page(sources) for page in _PAGES]
    pages = [*made, QrCodeRoute(sources.params), scripted, ApiReferencePage(files), files]
    return partial(PagesResource, pages, layout=layout, catalogues=texts, hosts=hosts)


class PagesResource(Resource):
    """Pages, static files, and an error page for everything else; only GET and HEAD."""

    isLeaf = True

    def __init__(
        self,
        pages: Iterable[object],
        site: SiteContext,
        *,
        layout: Layout,
        catalogues: Catalogues,
        hosts: PageHosts | None,
    ) -> None:
        super().__init__()
        self._layout = layout
        self._catalogues = catalogues
        self._cached = lru_cache(CACHE_SIZE)(self._render_cached)
        self._site = site
        self._hosts = hosts
        self._presentation = Presentation(self._check, self._rendered, self._rendered_error)
        for page in pages:
            site.add(page, self._presentation)

    def render(self, request: Request) -> Any:
        """The response body, or NOT_DONE_YET; errors become error pages, and nothing is raised."""
        path = request.path.partition(b"?")[0]
        segments = _segments(path)
        found = self._site.router.find(b"GET", segments)
        if found is not None:
            served, values = found
            response = served.respond(request, values)
            return response.apply_to(request) if isinstance(response, Response) else request.answer_later(response)
        answer: Callable[[], Response] = _not_found
        if path in _REDIRECTS:
            request.route = _REDIRECTS[path].decode("ascii")
            answer = partial(_redirect, _REDIRECTS[path], request)
        return self._site.respond_unrouted(request, self._presentation, answer).apply_to(request)

    def _check(self, request: IncomingRequest) -> None:
        if self._hosts is not None:
            check_host(request, self._hosts.names, addresses=self._hosts.addresses)
        if request.method not in (b"GET", b"HEAD"):
            raise method_not_allowed(["GET", "HEAD"])
        if request.requestHeaders.hasHeader(b"Service-Worker"):
            # The policy of the wallet allows workers, and cannot exclude service workers, which would outlive it.
            raise HttpError(403, "no file of this node is a service worker")

    def _language(self, request: IncomingRequest) -> Catalogue:
        lines = request.requestHeaders.getRawHeaders(b"Accept-Language") or ()
        return self._catalogues.choose(b",".join(lines))

    def _rendered(
        self, request: IncomingRequest, answer: Page | CachedPage | StaticPage | SandboxedPage | Negotiated | Response
    ) -> Response:
        if isinstance(answer, Negotiated | SandboxedPage):
            return _with_headers(SECURITY_HEADERS, answer.respond(request))
        if isinstance(answer, Response):
            return _with_headers(SECURITY_HEADERS, answer)
        catalogue = self._language(request)
        if isinstance(answer, StaticPage):
            return _with_headers(SECURITY_HEADERS, answer.draw(catalogue).respond(request))
        if isinstance(answer, CachedPage):
            return self._cached(answer, self._layout.warning(), catalogue, takes_gzip(request))
        return self._drawn(answer, catalogue, takes_gzip(request))

    def _drawn(self, answer: Page, catalogue: Catalogue, smaller: bool, headers: Headers = ()) -> Response:
        """The response with a page, compressed if it is to be ``smaller``."""
        security = SECURITY_HEADERS_WITH_FORM if answer.searchable else SECURITY_HEADERS
        security = SECURITY_HEADERS_WITH_WORKER if answer.worker else security
        body, common = self._layout.draw(answer, catalogue), (*security, _VARY, *headers)
        if smaller:
            return Response(compressed(body), answer.status, content_type=HTML, headers=(*common, *GZIP))
        return Response(body, answer.status, content_type=HTML, headers=common)

    def _render_cached(
        self, cached: CachedPage, _warning: Message | None, catalogue: Catalogue, smaller: bool
    ) -> Response:
        return self._drawn(cached.draw(), catalogue, smaller)

    def _rendered_error(self, request: IncomingRequest, error: HttpError) -> Response:
        if not _wants_html(request):
            return _with_headers(SECURITY_HEADERS, error_response(error))
        page = error_page(error, request.route)
        return self._drawn(page, self._language(request), takes_gzip(request), error.headers)


def _with_headers(headers: Headers, answer: Response) -> Response:
    """``answer`` with those of ``headers`` that it does not have itself: of two policies both would apply."""
    own = {name for name, _ in answer.headers}
    return evolve(answer, headers=(*[each for each in headers if each[0] not in own], *answer.headers))


def _segments(path: bytes) -> tuple[str, ...]:
    """The segments of a path, percent-decoded once; empty if they are not UTF-8, which matches no route."""
    try:
        return tuple(unquote_to_bytes(segment).decode("utf-8") for segment in path.split(b"/")[1:])
    except ValueError:
        return ()


def _redirect(target: bytes, request: Request) -> Response:
    query = quote(request.uri.partition(b"?")[2], safe="=&%:/?+,;@!$'()*~-._")
    location = target + (b"?" + query.encode("ascii") if query else b"")
    return Response(b"", 301, content_type=HTML, headers=(*SECURITY_HEADERS, (b"Location", location)))


def _not_found() -> NoReturn:
    raise HttpError(404, NO_ROUTE)


def _wants_html(request: IncomingRequest) -> bool:
    """Whether the client asks for HTML; others, such as ``*/*``, get errors in JSON as from every other route."""
    accepted = request.requestHeaders.getRawHeaders(b"Accept") or []
    return any(b"text/html" in line.lower() for line in accepted)
