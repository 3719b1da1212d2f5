"""The files beside the pages: read once, served from memory under what they hold (docs/pages.md "Files")."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from attrs import frozen
from twisted.web import http

from svcd.web.answers import Rendered
from svcd.web.errors import NO_ROUTE, Headers, HttpError
from svcd.web.request import Request

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls

_KINDS: Final[Mapping[str, bytes]] = {
    ".css": b"text/css; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".webmanifest": b"application/manifest+json",
}
"""Browsers run no module that is not called JavaScript, and ``nosniff`` lets them guess nothing."""
WORDS: Final = "bip39-english.txt"


@frozen
class Asset:
    """A file, with the content type and the tag under which it is served."""

    data: bytes
    kind: bytes
    tag: bytes

    def answer(self, request: Request) -> Rendered:
        """The file, or 304 where the client has this very one (RFC 9110 section 13.1.2)."""
        headers: Headers = ((b"ETag", self.tag), (b"Cache-Control", b"no-cache"))
        if request.setETag(self.tag) is http.CACHED:
            return Rendered(b"", 304, content_type=self.kind, headers=headers)
        return Rendered(self.data, content_type=self.kind, headers=headers)


class Assets:
    """What is in the folder ``static``, and the word list that the wallet's mnemonics are made of."""

    def __init__(self) -> None:
        folder = resources.files("svcd.pages")
        self._files = dict(_found(folder / "static"))
        self._files[WORDS] = _asset(WORDS, (resources.files("mnemonic") / "wordlist" / "english.txt").read_bytes())
        self._pages = {page.name: page.read_bytes() for page in folder.iterdir() if page.name.endswith(".html")}

    def get(self, name: str) -> Asset:
        """The file of this name; raises HttpError 404."""
        if name not in self._files:
            raise HttpError(404, NO_ROUTE)
        return self._files[name]

    def page(self, name: str) -> bytes:
        """The page of this name beside this module, which is the same for everybody."""
        return self._pages[name]


def _found(folder: Traversable) -> Iterator[tuple[str, Asset]]:
    for file in folder.iterdir():
        if file.is_file():
            yield file.name, _asset(file.name, file.read_bytes())


def _asset(name: str, data: bytes) -> Asset:
    tag = b'"' + sha256(data).hexdigest()[:32].encode("ascii") + b'"'
    return Asset(data, _KINDS["." + name.rpartition(".")[2]], tag)
