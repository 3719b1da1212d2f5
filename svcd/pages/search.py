"""Search by height, block hash, transaction id, address or reference (docs/pages.md "Search")."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlencode

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.commerce.payment_request import parse_reference
from svcd.pages.html import Content, address_link, amount, short_link, tag, visible, when
from svcd.pages.layout import SEARCHABLE, Page
from svcd.pages.routes import HTML, SEARCH_TEXT, page, parse_block
from svcd.pages.sources import Sources, TransferRow, transfer_row
from svcd.pages.tables import Column, table
from svcd.rpc.fields import REFERENCE
from svcd.web.responses import Response

PAYMENTS: Final = 20


@frozen
class SearchResult:
    """A page that matches the search text."""

    title: str
    path: str


class SearchPage:
    """The search, and the payments under a reference."""

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
                tag("h1", "Several results"),
                tag("ul", *items, class_="card choices"),
            )
            return Page(title="Search", content=content, search_text=q)
        no_match = tag("p", "No match for ", tag("bdi", visible(q), class_="hash"), ".", class_="lead")
        hint = f"Search for: {SEARCHABLE[0].lower()}{SEARCHABLE[1:]} of this network."
        return Page(
            title="Search",
            content=(tag("h1", "Nothing found" if q else "Search"), *([no_match] if q else []), tag("p", hint)),
            status=404 if q else 200,
            search_text=q,
        )

    def _matches(self, text: str) -> Iterator[SearchResult]:
        reader, mempool = self._sources.reader, self._sources.mempool
        try:
            named = parse_block(text)
        except ValueError:
            pass
        else:
            if isinstance(named, int):
                if reader.canonical(named):
                    yield SearchResult(f"Block {named}", f"/block/{named}")
            elif reader.stored(named):
                yield SearchResult("A block", f"/block/{named.hex()}")
            elif named in mempool or reader.transaction(named):
                yield SearchResult("A transfer", f"/tx/{named.hex()}")
        address = text.lower()
        if self._is_address(address):
            yield SearchResult("An address", f"/address/{address}")
        elif self._is_used(text):
            yield SearchResult(f"Payments under the reference {text}", f"/reference/{quote(text, safe='')}")

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
        return bool(self._sources.reader.under_reference(reference, limit=1))

    @page("/reference/{reference}", "Payments under a reference", path_fields=(REFERENCE,), cost=4)
    def reference(self, reference: str) -> Page:
        """Answer GET /reference/{reference}."""
        with self._sources.reader.snapshot():
            places = self._sources.reader.under_reference(reference, limit=PAYMENTS + 1)
        rows = [transfer_row(self._sources, place) for place in places[:PAYMENTS]]
        lead = "Anybody can pay anybody under this reference: an order is a reference of one recipient."
        return Page(
            title="Payments under a reference",
            content=(
                tag("h1", "Payments under ", tag("bdi", reference, class_="hash")),
                tag("p", lead, class_="lead"),
                self._payments(reference, rows),
                *([_more()] if len(places) > PAYMENTS else []),
            ),
            search_text=reference,
        )

    def _payments(self, reference: str, rows: list[TransferRow]) -> Tag:
        if not rows:
            return tag("p", "No block has a payment under this reference.", class_="empty")
        sources = self._sources
        columns: list[Column[TransferRow]] = [
            Column("Transfer", lambda row: short_link(row.transfer.txid.hex(), "tx", row.transfer.txid.hex())),
            Column("Time", lambda row: "" if row.time is None else when(row.time, sources.now)),
            Column("From", lambda row: address_link(sources.address(row.transfer.sender))),
            Column("To", lambda row: address_link(sources.address(row.transfer.recipient))),
            Column("Amount", lambda row: amount(row.transfer.amount), number=True),
            Column("Verification", lambda row: tag("a", "JSON", href=self._verification(reference, row))),
        ]
        return tag("div", table(columns, rows, caption="Payments"), class_="card")

    def _verification(self, reference: str, row: TransferRow) -> str:
        recipient = self._sources.address(row.transfer.recipient)
        query = urlencode({"recipient": recipient, "amountBaseUnits": row.transfer.amount})
        return f"/rpc/commerce/payment/{quote(reference, safe='')}?{query}"


def _more() -> Tag:
    return tag("p", f"There are more than {PAYMENTS} payments. To find one, verify it by recipient and amount.")
