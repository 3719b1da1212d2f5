"""One box for everything: height, hash, transaction id, address or reference (docs/pages.md "Search")."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlencode

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.commerce.terms import parse_reference
from svcd.pages.fields import SOUGHT, parse_block
from svcd.pages.headers import HTML
from svcd.pages.layout import FINDS, Page
from svcd.pages.parts import Column, Content, address_link, amount, listing, short, tag, when
from svcd.pages.reading import TransferLine, transfer_line
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.visible import visible
from svcd.rpc.payment_fields import REFERENCE
from svcd.web.answers import Rendered

PAYMENTS: Final = 20


@frozen
class Find:
    """Something that the sought text names."""

    says: str
    path: str


class SearchPages:
    """Leads from what somebody has in hand to the page about it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/search", "Look something up", query_fields=(SOUGHT,))
    def search(self, q: str) -> Page | Rendered:
        """Answer GET /search: the page itself where only one thing has that name."""
        with self._sources.reader.snapshot():
            finds = list(self._finds(q))
        if len(finds) == 1:
            headers = ((b"Location", finds[0].path.encode("ascii")),)
            return Rendered(b"", 303, content_type=HTML, headers=headers)
        if finds:
            items = [tag("li", tag("a", find.says, href=find.path)) for find in finds]
            content: tuple[Content, ...] = (
                tag("h1", "Several things have that name"),
                tag("ul", *items, class_="card choices"),
            )
            return Page(title="Search", content=content, sought=q)
        said = tag("p", "Nothing here is called ", tag("bdi", visible(q), class_="hash"), ".", class_="lead")
        hint = f"What can be found: {FINDS[0].lower()}{FINDS[1:]} — of this network, and known to this node."
        return Page(
            title="Search",
            content=(tag("h1", "Nothing found" if q else "Search"), *([said] if q else []), tag("p", hint)),
            status=404 if q else 200,
            sought=q,
        )

    def _finds(self, text: str) -> Iterator[Find]:
        reader, mempool = self._sources.reader, self._sources.mempool
        try:
            named = parse_block(text)
        except ValueError:
            pass
        else:
            if isinstance(named, int):
                if reader.canonical(named):
                    yield Find(f"Block {named}", f"/block/{named}")
            elif reader.stored(named):
                yield Find("A block", f"/block/{named.hex()}")
            elif named in mempool or reader.transaction(named):
                yield Find("A transfer", f"/tx/{named.hex()}")
        address = text.lower()
        if self._is_address(address):
            yield Find("An address", f"/address/{address}")
        elif self._is_used(text):
            yield Find(f"Payments under the reference {text}", f"/reference/{quote(text, safe='')}")

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
        lines = [transfer_line(self._sources, place) for place in places[:PAYMENTS]]
        lead = "References belong to nobody: anybody can pay anybody under this one, and the recipient makes the order."
        return Page(
            title="Payments under a reference",
            content=(
                tag("h1", "Payments under ", tag("bdi", reference, class_="hash")),
                tag("p", lead, class_="lead"),
                self._payments(reference, lines),
                *([_more()] if len(places) > PAYMENTS else []),
            ),
            sought=reference,
        )

    def _payments(self, reference: str, lines: list[TransferLine]) -> Tag:
        if not lines:
            return tag("p", "No block has a payment under it.", class_="empty")
        sources = self._sources
        columns: list[Column[TransferLine]] = [
            Column("Transfer", lambda line: short(line.transfer.txid.hex(), "tx", line.transfer.txid.hex())),
            Column("Time", lambda line: "" if line.time is None else when(line.time, sources.now)),
            Column("From", lambda line: address_link(sources.address(line.transfer.sender))),
            Column("To", lambda line: address_link(sources.address(line.transfer.recipient))),
            Column("Amount", lambda line: amount(line.transfer.amount), number=True),
            Column("Verification", lambda line: tag("a", "JSON", href=self._verification(reference, line))),
        ]
        return tag("div", listing(columns, lines, caption="Payments"), class_="card")

    def _verification(self, reference: str, line: TransferLine) -> str:
        recipient = self._sources.address(line.transfer.recipient)
        query = urlencode({"recipient": recipient, "amountBaseUnits": line.transfer.amount})
        return f"/rpc/commerce/payment/{quote(reference, safe='')}?{query}"


def _more() -> Tag:
    return tag("p", f"There are more than {PAYMENTS}. Whoever knows recipient and amount can ask for one.")
