"""Scripts, styles and pictures, served from memory under names that change with the content; wallet and till.

A browser may keep a file with such a name for ever and never ask again. Every file also has its plain name, under which
it is served as it is in the folder ``static`` (docs/pages.md "Files").
"""

import gzip
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from string import ascii_lowercase
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.params import DEFAULT_UNIT
from svcd.pages.bundles import bundle, imported_modules, static_page, style_sheet
from svcd.pages.layout import Layout
from svcd.pages.link_policy import LinkPolicy, LinkPolicySource
from svcd.pages.representations import Negotiated
from svcd.pages.routes import (
    FILE_NAME,
    HTML,
    REFERENCE_HEADERS,
    SANDBOXED_HEADERS,
    VARY,
    WALLET_HEADERS,
    WORKER_HEADERS,
    page,
    sandbox,
)
from svcd.pages.texts import SCRIPT, Catalogue, in_script
from svcd.web.request import IncomingRequest
from svcd.web.responses import NO_ROUTE, Cached, Headers, HttpError, Response

_CONTENT_TYPES: Final[Mapping[str, bytes]] = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".webmanifest": b"application/manifest+json",
}
"""Browsers run a module only with a JavaScript type, and ``nosniff`` forbids them to guess it."""
PAGE: Final = "wallet.html"
TILL_PAGE: Final = "till.html"
REFERENCE_PAGE: Final = "reference.html"
WORD_LIST: Final = "bip39-english.txt"
WORKERS: Final = ("light-worker.mjs", "proof-worker.mjs")
ICON: Final = "icon.svg"
SANDBOXED: Final = ("swagger-ui-bundle.js", "swagger-ui.css", "reference.mjs", "reference.css", ICON)
"""What the API reference loads."""
WALLET_SCRIPT: Final = "wallet-script"
"""The section of the texts that the scripts of the wallet need, and those of the till."""
TILL_SCRIPT: Final = "till-script"
"""The section of the texts that only the scripts of the till need."""
_NO_DATA: Final = '<script type="application/json" id="site-data">{}</script>'
_PREFIX: Final = "/static/"
_GZ: Final = ".gz"
"""What is large and of others is in the folder compressed: that would take a tenth of a second at each start."""
_DRAWN_LETTER: Final = re.compile(rb"<path .*/>")
_LETTER: Final = (
    b'<text x="16" y="23" text-anchor="middle" font-family="sans-serif" font-weight="bold" font-size="20" '
    b'fill="#fff">%b</text>'
)
_REFERENCE: Final = re.compile(rb'"/static/([a-z0-9.-]+)"')
_PLAIN: Final[Headers] = ((b"Cache-Control", b"no-cache"),)
_HASHED: Final[Headers] = ((b"Cache-Control", b"public, max-age=31536000, immutable"),)


Timing = Mapping[str, int | None]
"""See :func:`~svcd.pages.expectation.script_timing`."""


class StaticFiles:
    """The files of the folder ``static``, the icons of all letters, and the word list of the ``mnemonic`` package.

    Raises ValueError for a module that cannot be bundled, and KeyError for a file that refers to a missing one.
    """

    def __init__(self) -> None:
        folder = resources.files("svcd.pages")
        words = (resources.files("mnemonic") / "wordlist" / "english.txt").read_bytes()
        files = {file.name: file.read_bytes() for file in (folder / "static").iterdir()}
        self._packed = {name.removesuffix(_GZ): files.pop(name) for name in list(files) if name.endswith(_GZ)}
        files |= {name: gzip.decompress(data) for name, data in self._packed.items()}
        self._sources = files | _letter_icons(files[ICON]) | {WORD_LIST: words}
        self._modules = {name: data.decode() for name, data in self._sources.items() if name.endswith(".mjs")}
        self._pages = {page.name: page.read_bytes() for page in folder.iterdir() if page.name.endswith(".html")}
        self._served = {name: self._negotiated(name, data, _PLAIN) for name, data in self._sources.items()}
        self._urls: dict[str, str] = {}
        imported = {name for module in self._modules.values() for name in imported_modules(module)}
        for name in self._sources:
            # The others reach browsers in the bundles of the modules that import them.
            if name not in imported:
                self.url(name)

    @page("/static/{name}", "A file of the pages", path_fields=(FILE_NAME,), cost=1)
    def file(self, name: str) -> Negotiated:
        """Answer GET /static/{name}."""
        if name not in self._served:
            raise HttpError(404, NO_ROUTE)
        return self._served[name]

    def url(self, name: str) -> str:
        """The path of a file, which changes with its content; a module is served there as a bundle.

        Neither a bundle nor a style sheet has comments there.
        """
        if name not in self._urls:
            data = self._sources[name] if name in self._packed else self._linked(self._to_run(name))
            stem, _, ending = name.rpartition(".")
            hashed = f"{stem}.{sha256(data).hexdigest()[:16]}.{ending}"
            self._served[hashed] = self._negotiated(name, data, _HASHED)
            self._urls[name] = _PREFIX + hashed
        return self._urls[name]

    def _to_run(self, name: str) -> bytes:
        """A file as browsers need it."""
        if name in self._modules:
            return bundle(self._modules, name).encode()
        data = self._sources[name]
        return style_sheet(data.decode()).encode() if name.endswith(".css") else data

    def html(self, name: str) -> str:
        """The page called ``name`` from the folder of this module, with the paths of its files as they are now."""
        return static_page(self._linked(self._pages[name]).decode("utf-8"))

    def linked_from(self, html: str) -> dict[str, bytes]:
        """The files that a page refers to, and those that these refer to, by their paths."""
        found: dict[str, bytes] = {}
        waiting = [html.encode("utf-8")]
        while waiting:
            for name in _REFERENCE.findall(waiting.pop()):
                path = _PREFIX + name.decode()
                if path not in found:
                    found[path] = self._served[name.decode()].content
                    waiting.append(found[path])
        return found

    def _negotiated(self, name: str, data: bytes, headers: Headers) -> Negotiated:
        policy = WORKER_HEADERS if name in WORKERS else SANDBOXED_HEADERS if name in SANDBOXED else ()
        kind = _CONTENT_TYPES["." + name.rpartition(".")[2]]
        return Negotiated(data, kind, (*policy, *headers), revalidated=True, packed=self._packed.get(name, b""))

    def _linked(self, data: bytes) -> bytes:
        """``data`` in which every quoted path of a file is the one that changes with the file's content."""
        return _REFERENCE.sub(lambda match: b'"%b"' % self.url(match[1].decode()).encode(), data)


def _letter_icons(icon: bytes) -> dict[str, bytes]:
    """For each letter the icon with that letter in place of the one that it draws."""
    return {
        f"icon-{letter}.svg": _DRAWN_LETTER.sub(_LETTER % letter.upper().encode("ascii"), icon)
        for letter in ascii_lowercase
    }


@cache
def static_files() -> StaticFiles:
    """The files, which are compressed only once for all sites of a process."""
    return StaticFiles()


def wallet_html(template: str, catalogue: Catalogue, data: str = "{}", *more: str) -> bytes:
    """The page of the wallet, or another such page, in a language.

    ``data`` is JSON of what the scripts need of the node; ``more`` are sections of texts that the scripts of another
    page need.
    """
    scripts = catalogue.for_scripts(SCRIPT, WALLET_SCRIPT, *more)
    texts = f'<script type="application/json" id="texts">{scripts}</script>\n'
    unit = "" if catalogue.unit == DEFAULT_UNIT else f' data-unit="{catalogue.unit}"'
    filled = catalogue.fill(template).replace('<html lang="en">', f'<html lang="{catalogue.language}"{unit}>', 1)
    told = filled.replace(_NO_DATA, _NO_DATA.replace("{}", data), 1)
    return told.replace("</body>", f"{texts}</body>", 1).encode("utf-8")


@frozen
class StaticPage:
    """A page that is the same for every client of one language."""

    draw: Callable[[Catalogue], Negotiated]


@define
class _ScriptedPage:
    """A page of which a script makes what people see, with data for it and the warnings about the node."""

    _layout: Layout
    _html: str
    _links: LinkPolicySource
    _timing: Timing
    _headers: Headers
    _texts: tuple[str, ...] = ()
    """Sections of texts that the page needs beside those of the wallet."""
    _drawn: dict[str, Cached[Negotiated]] = field(init=False, factory=lambda: defaultdict(Cached))
    """By language."""

    def in_language(self, catalogue: Catalogue) -> Negotiated:
        drawn, links = self._drawn[catalogue.language], self._links()
        return drawn.get((self._layout.warning(), links), lambda: self._draw(catalogue, links))

    def _draw(self, catalogue: Catalogue, links: LinkPolicy) -> Negotiated:
        data = in_script({**links.script_data, **self._timing})
        html = wallet_html(self._html, catalogue, data, *self._texts)
        return Negotiated(self._layout.insert_warnings(html, catalogue), HTML, (*self._headers, VARY))


class ScriptedPages:
    """The wallet and the till, which are the same for every client of one language."""

    def __init__(self, layout: Layout, files: StaticFiles, links: LinkPolicySource, timing: Timing) -> None:
        self._wallet = _ScriptedPage(layout, files.html(PAGE), links, timing, WALLET_HEADERS)
        self._till = _ScriptedPage(layout, files.html(TILL_PAGE), links, timing, (), (TILL_SCRIPT,))

    @page("/wallet/", "The wallet", cost=1)
    def wallet(self) -> StaticPage:
        """Answer GET /wallet/, the target of a payment request's ``walletPath``; only scripts read the payment."""
        return StaticPage(self._wallet.in_language)

    @page("/till/", "The till", cost=1)
    def till(self) -> StaticPage:
        """Answer GET /till/."""
        return StaticPage(self._till.in_language)


@frozen
class SandboxedPage:
    """A page whose policy names the host at which it was asked for."""

    _page: Negotiated

    def respond(self, request: IncomingRequest) -> Response:
        """The response to ``request``."""
        host = (request.requestHeaders.getRawHeaders(b"Host") or [b""])[0]
        response = self._page.respond(request)
        return evolve(response, headers=(sandbox(host), *response.headers))


class ApiReferencePage:
    """The reference of the HTTP interface, which Swagger UI makes in the browser of the node's OpenAPI document."""

    def __init__(self, files: StaticFiles) -> None:
        html = files.html(REFERENCE_PAGE).encode("utf-8")
        self._page = SandboxedPage(Negotiated(html, HTML, REFERENCE_HEADERS, revalidated=True))

    @page("/reference/", "The reference of the HTTP interface", cost=1)
    def reference(self) -> SandboxedPage:
        """Answer GET /reference/."""
        return self._page
