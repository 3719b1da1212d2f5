"""The frame of every page: head, navigation, search, warnings about the node (docs/pages.md "Every page")."""

import re
from collections.abc import Callable, Hashable, Mapping
from html import escape
from typing import Final

from attrs import field, frozen
from twisted.web.template import Tag

from svcd.chain.params import DEFAULT_UNIT, DEVNET, NETWORKS, NetworkParams
from svcd.node.network_view import NetworkObserver
from svcd.pages.html import Content, notice, tag
from svcd.pages.texts import SCRIPT, Catalogue, Message, message

_BUILT_IN_PREFIXES: Final = frozenset(params.address_prefix for params in NETWORKS.values())
_NAVIGATION: Final = (
    ("/", message("frame.explorer")),
    ("/mempool", message("frame.mempool")),
    ("/peers", message("frame.peers")),
    ("/wallet/", message("frame.wallet")),
)
_ALONE: Final = message("frame.alone")
_NO_PEERS: Final = message("frame.no-peers")
_BEHIND: Final = message("frame.behind")
WARNINGS: Final = (_ALONE, _NO_PEERS, _BEHIND)
"""What a page can say about its node."""
_MAIN: Final = re.compile(rb"<main[^>]*>")
_VOID: Final = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
"""Elements without content and end tag."""


@frozen(kw_only=True)
class Page:
    """The content of a page between header and footer, and the settings of its head."""

    title: Content
    content: tuple[Content, ...]
    status: int = 200
    here: str = ""
    """Path of the navigation entry to highlight."""
    json: str = ""
    """Path of the JSON route with the same data; empty for none."""
    searchable: bool = True
    """Whether the page has the navigation and the search box."""
    search_text: str = ""
    """Text in the search box."""
    narrow: bool = False
    refresh: int = 0
    """Seconds after which a browser without scripts reloads the page; 0 for never."""
    warned: bool = True
    """Whether it warns of a node on which users should not rely: what it shows is from the chain."""
    styles: tuple[str, ...] = ()
    """Style sheets that only this page has."""
    scripts: tuple[str, ...] = ()
    worker: bool = False
    """Whether its scripts start a worker."""
    markup: Mapping[str, Callable[[Catalogue], bytes]] = field(factory=dict)
    """HTML to be put in the places of the placeholders with these names."""


def placeholder(name: str) -> Tag:
    """The place of the markup ``name`` in the content of a page; no text looks like it, since text is escaped."""
    return tag("slot", name=name)


@frozen
class CachedPage:
    """A page to be cached under ``key``, and drawn only when the cache does not hold it."""

    key: Hashable
    """The name of the page and all that it shows, except for the warnings about the node."""
    draw: Callable[[], Page] = field(eq=False)


class Layout:
    """Renders the pages of one node; ``url`` gives the path of a static file by its name."""

    def __init__(self, params: NetworkParams, peers: NetworkObserver, *, url: Callable[[str], str]) -> None:
        self._params = params
        self._peers = peers
        self._url = url
        prefix = params.address_prefix
        self._icon = url("icon.svg" if prefix in _BUILT_IN_PREFIXES else f"icon-{prefix[0]}.svg")

    def draw(self, page: Page, catalogue: Catalogue) -> bytes:
        """The HTML of ``page`` with the texts of ``catalogue``."""
        skip = tag("a", message("frame.skip"), class_="skip", href="#main")
        classes = {"class_": "narrow"} if page.narrow else {}
        search = [self._search(page)] if page.searchable else []
        warnings = self._warnings() if page.warned else []
        main = tag("main", *warnings, *search, *page.content, id="main", **classes)
        texts = [tag("script", catalogue.for_scripts(SCRIPT), type="application/json", id="texts")]
        body = tag("body", skip, self._header(page), main, self._footer(page), *(texts if page.scripts else []))
        # Scripts take it for SVC where the page does not say it.
        unit = {} if catalogue.unit == DEFAULT_UNIT else {"data_unit": catalogue.unit}
        root = tag("html", self._head(page), body, lang=catalogue.language, **unit)
        html = b"<!DOCTYPE html>\n" + flattened(root, catalogue)
        for name, markup in page.markup.items():
            html = html.replace(b'<slot name="%b"></slot>' % name.encode("ascii"), markup(catalogue))
        return html

    def insert_warnings(self, html: bytes, catalogue: Catalogue) -> bytes:
        """The static page ``html`` with the warnings about this node at the beginning of its ``main`` element."""
        return with_warning(html, self.warning(), catalogue)

    def _head(self, page: Page) -> Tag:
        parts = [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", page.title, f" · SVC {self._network}"),
            tag("meta", name="color-scheme", content="light dark"),
            *[tag("link", rel="stylesheet", href=self._url(name)) for name in ("style.css", *page.styles)],
            tag("link", rel="icon", type="image/svg+xml", href=self._icon),
        ]
        parts += [tag("script", type="module", src=self._url(name)) for name in page.scripts]
        if page.refresh:
            again = tag("meta", content=str(page.refresh), http_equiv="refresh")
            parts.append(tag("noscript", again))
        return tag("head", *parts)

    @property
    def _network(self) -> str:
        return self._params.name.capitalize()

    @property
    def _for_tests(self) -> bool:
        """Whether the coins are worth nothing, and the node may be alone."""
        return self._params.name == DEVNET.name

    def _header(self, page: Page) -> Tag:
        mark = tag("img", src=self._icon, alt="", width="24", height="24")
        brand = tag("a", mark, "SVC", href="/", class_="brand")
        badge = tag("span", self._network, class_="badge warn" if self._for_tests else "badge accent")
        if not page.searchable:
            return tag("header", brand, badge, class_="top")
        links = [
            tag("a", name, href=path, **({"aria_current": "page"} if path == page.here else {}))
            for path, name in _NAVIGATION
        ]
        return tag("header", brand, badge, tag("nav", *links, aria_label=message("frame.navigation")), class_="top")

    def _search(self, page: Page) -> Tag:
        field = tag(
            "input",
            type="search",
            name="q",
            value=page.search_text,
            placeholder=message("frame.searchable"),
            aria_label=message("frame.searchable"),
            maxlength="128",
            autocomplete="off",
            autocapitalize="off",
            spellcheck="false",
        )
        button = tag("button", message("frame.search"), type="submit")
        return tag("form", field, button, class_="search", role="search", action="/search", method="get")

    def warning(self) -> Message | None:
        """Why users should not rely on this node at present; None if they may."""
        neighbourhood = self._peers.network_view()
        if neighbourhood.behind:
            return _BEHIND if neighbourhood.known_peers else _NO_PEERS
        return _ALONE if neighbourhood.alone and not self._for_tests else None

    def _warnings(self) -> list[Tag]:
        return _warnings(self.warning())

    def _footer(self, page: Page) -> Tag:
        parts = [tag("span", self._params.chain_id)]
        if page.searchable:
            parts.append(tag("a", message("frame.till"), href="/till/"))
            parts.append(tag("a", message("frame.reference"), href="/reference/"))
        if page.json:
            parts.append(tag("a", message("frame.json"), href=page.json, rel="alternate", type="application/json"))
        return tag("footer", *parts, class_="bottom")


def with_warning(html: bytes, sentence: Message | None, catalogue: Catalogue) -> bytes:
    """The static page ``html`` with a warning about the node, if there is one, at the beginning of its ``main``."""
    match = _MAIN.search(html)
    warnings = b"".join(flattened(each, catalogue) for each in _warnings(sentence))
    return html if match is None else html[: match.end()] + warnings + html[match.end() :]


def _warnings(sentence: Message | None) -> list[Tag]:
    return [notice("warn", tag("strong", message("frame.unreliable")), " ", sentence)] if sentence else []


def flattened(root: Tag, catalogue: Catalogue | None = None) -> bytes:
    """The HTML of an element, in the bytes that Twisted's ``flattenString`` gives, in a quarter of its time.

    An element contains elements, text and :class:`~svcd.pages.texts.Message` objects, nothing else. Raises TypeError
    for other content, for a message without a ``catalogue``, and for an element in the value of an attribute.
    """
    written: list[str] = []
    _write(root, catalogue, written.append)
    return "".join(written).encode("utf-8")


def _write(content: object, catalogue: Catalogue | None, write: Callable[[str], None]) -> None:
    if isinstance(content, str):
        write(escape(content, quote=False))
    elif isinstance(content, Tag):
        write(f"<{content.tagName!s}")
        for name, value in content.attributes.items():
            quoted = escape(_text(value, catalogue), quote=False).replace('"', "&quot;")
            write(f' {name!s}="{quoted}"')
        if content.tagName in _VOID and not content.children:
            write(" />")
            return
        write(">")
        for child in content.children:
            _write(child, catalogue, write)
        write(f"</{content.tagName!s}>")
    elif isinstance(content, Message) and catalogue is not None:
        for piece in catalogue.pieces(content):
            _write(piece, catalogue, write)
    else:
        raise TypeError(f"{content!r} cannot be written")


def _text(value: object, catalogue: Catalogue | None) -> str:
    """The text of an attribute."""
    if isinstance(value, str):
        return value
    if isinstance(value, Message) and catalogue is not None:
        return catalogue.text(value)
    raise TypeError(f"{value!r} cannot be the value of an attribute")
