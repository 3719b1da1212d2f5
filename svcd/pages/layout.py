"""What all pages have around them: head, navigation, search, warnings about the node (docs/pages.md "Every page")."""

import re
from collections.abc import Callable, Hashable
from typing import Any, Final

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.template import Tag, flattenString

from svcd.chain.params import NetworkParams
from svcd.node.status import Peers
from svcd.pages.parts import Content, notice, tag
from svcd.pages.visible import visible
from svcd.web.errors import HttpError, reason

MAINNET: Final = "mainnet"
FINDS: Final = "Height, block hash, transaction, address or reference"
_NAVIGATION: Final = (("/", "Explorer"), ("/mempool", "Mempool"), ("/peers", "Peers"), ("/wallet/", "Wallet"))
_MAIN: Final = re.compile(rb"<main[^>]*>")
_WORDS: Final = {
    400: "That cannot be right",
    404: "Not found",
    429: "Too many requests",
    503: "Not ready",
}


@frozen(kw_only=True)
class Page:
    """One page: what stands between its header and its footer, and what its head says."""

    title: str
    content: tuple[Content, ...]
    status: int = 200
    here: str = ""
    """The entry of the navigation that the page belongs to."""
    json: str = ""
    """Where programs read the same."""
    searchable: bool = True
    """Whether it has navigation and the search box."""
    sought: str = ""
    """What stands in the search box."""
    narrow: bool = False
    refresh: int = 0
    """Seconds after which a browser without scripts asks again; 0 for never."""
    scripts: tuple[str, ...] = ("copy.mjs",)

    @classmethod
    def of_error(cls, error: HttpError) -> "Page":
        """What a reader sees of ``error``."""
        title = _WORDS.get(error.status, reason(error.status).decode("ascii"))
        sentence = error.sentence[:1].upper() + error.sentence[1:].removesuffix(".") + "."
        back = tag("p", tag("a", "To the explorer", href="/", class_="alone"))
        words = tag("p", visible(sentence), class_="lead", dir="auto")
        return cls(title=title, content=(tag("h1", title), words, back), status=error.status, scripts=())


@frozen
class KeptPage:
    """A page that is the same for everybody while ``of`` is the same, and made only when that is new."""

    of: Hashable
    """All that it shows but for the warnings about the node, the name of the page first."""
    make: Callable[[], Page] = field(eq=False)


class Layout:
    """Draws pages for one node."""

    def __init__(self, params: NetworkParams, peers: Peers) -> None:
        self._params = params
        self._peers = peers

    def draw(self, page: Page) -> bytes:
        """The HTML of ``page``."""
        skip = tag("a", "Skip to the content", class_="skip", href="#main")
        classes = {"class_": "narrow"} if page.narrow else {}
        search = [self._search(page)] if page.searchable else []
        main = tag("main", *self._warnings(), *search, *page.content, id="main", **classes)
        body = tag("body", skip, self._header(page), main, self._footer(page))
        return b"<!DOCTYPE html>\n" + flattened(tag("html", self._head(page), body, lang="en"))

    def warned(self, html: bytes) -> bytes:
        """``html``, a page that is the same for everybody, with the warnings about this node in its main part."""
        match = _MAIN.search(html)
        warnings = b"".join(flattened(each) for each in self._warnings())
        return html if match is None else html[: match.end()] + warnings + html[match.end() :]

    def _head(self, page: Page) -> Tag:
        parts = [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", f"{page.title} · SVC {self._network}"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("link", rel="stylesheet", href="/static/style.css"),
            tag("link", rel="icon", type="image/svg+xml", href="/static/icon.svg"),
        ]
        parts += [tag("script", type="module", src=f"/static/{name}") for name in page.scripts]
        if page.refresh:
            again = tag("meta", content=str(page.refresh), http_equiv="refresh")
            parts.append(tag("noscript", again))
        return tag("head", *parts)

    @property
    def _network(self) -> str:
        return self._params.name.capitalize()

    def _header(self, page: Page) -> Tag:
        mark = tag("img", src="/static/icon.svg", alt="", width="24", height="24")
        brand = tag("a", mark, "SVC", href="/", class_="brand")
        badge = tag("span", self._network, class_="badge accent" if self._params.name == MAINNET else "badge warn")
        if not page.searchable:
            return tag("header", brand, badge, class_="top")
        links = [
            tag("a", name, href=path, **({"aria_current": "page"} if path == page.here else {}))
            for path, name in _NAVIGATION
        ]
        return tag("header", brand, badge, tag("nav", *links, aria_label="Pages of this node"), class_="top")

    def _search(self, page: Page) -> Tag:
        field = tag(
            "input",
            type="search",
            name="q",
            value=page.sought,
            placeholder=FINDS,
            aria_label=FINDS,
            maxlength="128",
            autocomplete="off",
            autocapitalize="off",
            spellcheck="false",
        )
        button = tag("button", "Search", type="submit")
        return tag("form", field, button, class_="search", role="search", action="/search", method="get")

    def warning(self) -> str:
        """Why not to rely on this node at present; "" if nothing speaks against it."""
        around = self._peers.neighbourhood()
        if self._params.name == MAINNET and not around.known_peers:
            return "it has no verified peers, so this may not be the network’s chain."
        return "it is still catching up, so this may be out of date." if around.behind else ""

    def _warnings(self) -> list[Tag]:
        sentence = self.warning()
        return [notice("warn", tag("strong", "Do not rely on this node: "), sentence)] if sentence else []

    def _footer(self, page: Page) -> Tag:
        parts = [tag("span", self._params.chain_id)]
        if page.json:
            parts.append(tag("a", "This page as JSON", href=page.json, rel="alternate", type="application/json"))
        return tag("footer", *parts, class_="bottom")


def flattened(root: Tag) -> bytes:
    """The text of an element that waits for nothing; raises FlattenerError."""
    done: list[bytes] = []
    failed: list[Failure] = []
    nobody: Any = None
    work: Deferred[bytes] = flattenString(nobody, root)
    work.addCallbacks(done.append, failed.append)
    for failure in failed:
        failure.raiseException()
    return done[0]
