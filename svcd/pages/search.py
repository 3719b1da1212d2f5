"""Search by height, block hash, transaction id, address or reference (docs/pages.md "Search and references")."""

from collections.abc import Iterator
from urllib.parse import quote

from attrs import frozen

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.commerce.payment_request import parse_reference
from svcd.pages.html import Content, tag
from svcd.pages.layout import Page
from svcd.pages.routes import HTML, SEARCH_TEXT, page, parse_block_id
from svcd.pages.sources import Sources
from svcd.pages.tables import only_later
from svcd.pages.texts import Message, message
from svcd.visible_text import visible
from svcd.web.responses import Response


@frozen
class SearchResult:
    """A page that matches the search text."""

    title: Message
    path: str


class SearchPage:
    """The search."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/search", "Search", query_fields=(SEARCH_TEXT,))
    def search(self, q: str) -> Page | Response:
        """Answer GET /search; redirects to the page if there is only one result."""
        with self._sources.reader.snapshot():
            results = list(self._matches(q))
        if len(results) == 1:
            headers = ((b"Location", results[0].path.encode("ascii")),)
            return Response(b"", 303, content_type=HTML, headers=headers)
        if results:
            items = [tag("li", tag("a", result.title, href=result.path)) for result in results]
            content: tuple[Content, ...] = (
                tag("h1", message("search.several")),
                tag("ul", *items, class_="card choices"),
            )
            return Page(title=message("search.title"), content=content, search_text=q)
        typed = tag("bdi", visible(q), class_="hash")
        no_match = tag("p", message("search.no-match", text=typed), class_="lead")
        heading = tag("h1", message("search.nothing") if q else message("search.title"))
        return Page(
            title=message("search.title"),
            content=(heading, *([no_match, *only_later(self._sources)] if q else []), tag("p", message("search.hint"))),
            status=404 if q else 200,
            search_text=q,
        )

    def _matches(self, text: str) -> Iterator[SearchResult]:
        reader, mempool = self._sources.reader, self._sources.mempool
        try:
            named = parse_block_id(text)
        except ValueError:
            pass
        else:
            if isinstance(named, int):
                if reader.canonical(named):
                    yield SearchResult(message("search.height", height=str(named)), f"/block/{named}")
            elif reader.stored(named):
                yield SearchResult(message("search.block"), f"/block/{named.hex()}")
            elif named in mempool or reader.transaction(named, self._sources.params):
                yield SearchResult(message("search.transfer"), f"/tx/{named.hex()}")
        address = text.lower()
        if self._is_address(address):
            yield SearchResult(message("search.address"), f"/address/{address}")
        elif self._is_used(text):
            yield SearchResult(message("search.reference", reference=text), f"/reference/{quote(text, safe='')}")

    def _is_address(self, text: str) -> bool:
        try:
            decode_address(text, self._sources.params.address_prefix)
        except RuleViolation:
            return False
        return True

    def _is_used(self, text: str) -> bool:
        try:
            reference = parse_reference(text)
        except RuleViolation:
            return False
        waiting = self._sources.referenced.newest(reference, limit=1)
        return bool(waiting or self._sources.reader.under_reference(reference, limit=1))
