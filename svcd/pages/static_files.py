"""Scripts, styles and pictures, served from memory with an ETag, and the wallet's page (docs/pages.md "Headers")."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from attrs import frozen
from twisted.web import http

from svcd.pages.layout import Layout
from svcd.pages.routes import HTML, WALLET_FEATURES, page
from svcd.web.request import Request
from svcd.web.responses import NO_ROUTE, Headers, HttpError, Response

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls

_CONTENT_TYPES: Final[Mapping[str, bytes]] = {
    ".css": b"text/css; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".webmanifest": b"application/manifest+json",
}
"""Browsers run a module only with a JavaScript type, and ``nosniff`` forbids them to guess it."""
WORD_LIST: Final = "bip39-english.txt"


@frozen
class StaticFile:
    """The content of a file with its content type and its ETag."""

    data: bytes
    content_type: bytes
    etag: bytes

    def respond(self, request: Request) -> Response:
        """The file, or 304 if the client's copy has the same ETag (RFC 9110 section 13.1.2)."""
        headers: Headers = ((b"ETag", self.etag), (b"Cache-Control", b"no-cache"))
        if request.setETag(self.etag) is http.CACHED:
            return Response(b"", 304, content_type=self.content_type, headers=headers)
        return Response(self.data, content_type=self.content_type, headers=headers)


class StaticFiles:
    """The files of the folder ``static``, and the BIP-39 word list of the ``mnemonic`` package."""

    def __init__(self) -> None:
        folder = resources.files("svcd.pages")
        self._files = dict(_read_folder(folder / "static"))
        words = (resources.files("mnemonic") / "wordlist" / "english.txt").read_bytes()
        self._files[WORD_LIST] = _static_file(WORD_LIST, words)
        self._pages = {page.name: page.read_bytes() for page in folder.iterdir() if page.name.endswith(".html")}

    def get(self, name: str) -> StaticFile:
        """The file called ``name``; raises HttpError 404."""
        if name not in self._files:
            raise HttpError(404, NO_ROUTE)
        return self._files[name]

    def page(self, name: str) -> bytes:
        """The static page called ``name``, from the folder of this module."""
        return self._pages[name]


def _read_folder(folder: Traversable) -> Iterator[tuple[str, StaticFile]]:
    for file in folder.iterdir():
        if file.is_file():
            yield file.name, _static_file(file.name, file.read_bytes())


def _static_file(name: str, data: bytes) -> StaticFile:
    etag = b'"' + sha256(data).hexdigest()[:32].encode("ascii") + b'"'
    return StaticFile(data, _CONTENT_TYPES["." + name.rpartition(".")[2]], etag)


class WalletPage:
    """The target of a payment request's ``walletPath``; only the scripts read the payment from the address."""

    def __init__(self, layout: Layout, files: StaticFiles) -> None:
        self._layout = layout
        self._files = files

    @page("/wallet/", "The wallet", cost=1)
    def wallet(self) -> Response:
        """Answer GET /wallet/."""
        html = self._layout.insert_warnings(self._files.page("wallet.html"))
        return Response(html, content_type=HTML, headers=WALLET_FEATURES)
