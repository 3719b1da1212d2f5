"""Tables, and the tables of blocks and transfers that several pages show."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.params import NetworkParams
from svcd.pages.html import (
    Content,
    address_link,
    amount,
    badge,
    byte_size,
    grouped,
    link,
    short_link,
    tag,
    when,
)
from svcd.pages.recent_blocks import BlockRow
from svcd.pages.sources import Sources, TransferRow
from svcd.pages.texts import Message, message

T = TypeVar("T")
PAGE_SIZE: Final = 20
"""Rows on one page of a list."""


def only_later(sources: Sources) -> list[Tag]:
    """A note on a list that ends at the first block that this node has; none if it has all."""
    first = sources.reader.prune_height()
    return [tag("p", message("explorer.only-later", height=first), class_="soft")] if first else []


@frozen
class Column(Generic[T]):
    """A column of a table: its heading, and the function that makes the cell of a row."""

    heading: Message
    cell: Callable[[T], Content]
    number: bool = False
    place: str = "desk"
    """The class of its place on narrow screens.

    On a phone a row has two lines: ``phone-title`` and ``phone-value`` in the first, ``phone-note`` and ``phone-extra``
    in the second; each ``phone-line`` below is a line of its own. Phones leave ``desk`` out, and tablets ``roomy`` too.
    """
    labelled: bool = False
    """Whether a phone shows the heading before the value."""

    @property
    def attributes(self) -> dict[str, str]:
        """The HTML attributes of its cells."""
        return {"class": " ".join(["number"] * self.number + ["labelled"] * self.labelled + [self.place])}


def table(columns: Sequence[Column[T]], rows: Iterable[T], *, caption: Message) -> Tag:
    """A table, whose rows have two lines on a phone; ``caption`` is for screen readers."""
    heads = [tag("th", column.heading, scope="col", **column.attributes) for column in columns]
    body = [
        tag("tr", *[tag("td", each.cell(row), data_label=each.heading, **each.attributes) for each in columns])
        for row in rows
    ]
    hidden = tag("caption", caption, class_="visually-hidden")
    return tag("table", hidden, tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="rows")


def fullness(params: NetworkParams, *, count: int, size: int) -> int:
    """How full a block is in percent, by transfers or by bytes, whichever is more; at least 1 if it has transfers."""
    share = max(count * 100 // params.max_block_transactions, size * 100 // params.max_block_bytes)
    return min(max(share, 1), 100) if count else 0


def size_and_fullness(params: NetworkParams, *, count: int, size: int) -> Message:
    """``12 kB, 3 % full``, or ``781 bytes, empty``."""
    if not count:
        return message("explorer.size-empty", size=byte_size(size))
    return message("explorer.size-full", size=byte_size(size), percent=fullness(params, count=count, size=size))


def blocks_table(sources: Sources, blocks: Iterable[BlockRow], *, caption: Message, figures: bool = True) -> Tag:
    """A table of blocks; with ``figures``, fees and sizes as ``sources.recent`` has them, else hashes."""
    columns: list[Column[BlockRow]] = [
        Column(
            message("explorer.height"),
            lambda block: link(grouped(block.header.height), "block", str(block.header.height)),
            place="phone-title",
        ),
        *_of_headers(sources, count_place="phone-value"),
    ]
    if figures:
        columns += [
            Column(message("explorer.fees"), lambda block: _fees(sources, block), number=True),
            Column(message("explorer.size"), lambda block: _size(sources, block), number=True, place="phone-extra"),
        ]
    else:
        columns.insert(2, Column(message("explorer.hash"), _hash))
    return table(columns, blocks, caption=caption)


def _of_headers(sources: Sources, *, count_place: str) -> list[Column[BlockRow]]:
    """When a block was made, who made it, and how many transfers it has."""
    now = sources.now
    return [
        Column(message("explorer.time"), lambda block: when(block.time, now), place="phone-note"),
        Column(message("explorer.made-by"), lambda block: _producer(sources, block)),
        Column(
            message("explorer.transfers"),
            lambda block: grouped(block.header.transaction_count),
            number=True,
            place=count_place,
            labelled=True,
        ),
    ]


def _hash(block: BlockRow) -> Tag:
    return short_link(block.hash.hex(), "block", block.hash.hex())


def replaced_table(sources: Sources, blocks: Iterable[BlockRow]) -> Tag:
    """A table of blocks that are not on the chain."""
    columns: list[Column[BlockRow]] = [
        Column(message("explorer.replaced"), _hash, place="phone-title"),
        *_of_headers(sources, count_place="phone-extra"),
        Column(
            message("explorer.replaced-by"),
            lambda block: link(
                message("explorer.block-at", height=block.header.height), "block", str(block.header.height)
            ),
            number=True,
            place="phone-value",
        ),
    ]
    return table(columns, blocks, caption=message("explorer.replaced-blocks"))


def _fees(sources: Sources, block: BlockRow) -> Content:
    figures = sources.recent.figures(block)
    return amount(sum(figures.fees)) if figures is not None and figures.fees else "–"


def _size(sources: Sources, block: BlockRow) -> Content:
    figures = sources.recent.figures(block)
    if figures is None:
        return "–"
    return size_and_fullness(sources.params, count=block.header.transaction_count, size=figures.size)


def _producer(sources: Sources, block: BlockRow) -> Content:
    return address_link(sources.address_of_key(block.header.producer_key)) if block.header.height else "–"


def transfers_table(
    sources: Sources, rows: Iterable[TransferRow], *, caption: Message, of: bytes | None = None, dated: bool = True
) -> Tag:
    """A table of transfers, as seen by the account ``of`` if given; ``dated`` adds the time of each block."""
    now = sources.now
    columns: list[Column[TransferRow]] = [Column(message("explorer.transfer"), _txid, place="phone-title")]
    if dated:
        columns.append(
            Column(
                message("explorer.time"),
                lambda row: _waiting() if row.time is None else when(row.time, now),
                place="phone-note",
            )
        )
    if of is not None:
        columns.append(Column(message("explorer.direction"), lambda row: _direction(row, of), place="phone-extra"))
        columns.append(
            Column(
                message("explorer.with"),
                lambda row: address_link(sources.address(_counterparty(row, of))),
                place="phone-line",
                labelled=True,
            )
        )
    else:
        columns.append(Column(message("explorer.from"), lambda row: address_link(sources.address(row.transfer.sender))))
        columns.append(
            Column(message("explorer.to"), lambda row: address_link(sources.address(row.transfer.recipient)))
        )
    line = "desk" if of is None else "phone-line"
    columns.append(Column(message("explorer.reference"), _reference, place=line, labelled=of is not None))
    columns.append(
        Column(message("explorer.amount"), lambda row: amount(row.transfer.amount), number=True, place="phone-value")
    )
    return table(columns, rows, caption=caption)


def _waiting() -> Tag:
    return badge(message("explorer.waiting"), "warn")


def _txid(row: TransferRow) -> Tag:
    txid = row.transfer.txid.hex()
    return short_link(txid, "tx", txid)


def _counterparty(row: TransferRow, of: bytes) -> bytes:
    return row.transfer.recipient if row.transfer.sender == of else row.transfer.sender


def _direction(row: TransferRow, of: bytes) -> Tag:
    sends, receives = row.transfer.sender == of, row.transfer.recipient == of
    if sends and receives:
        return badge(message("explorer.to-itself"))
    return badge(message("explorer.out")) if sends else badge(message("explorer.in"), "good")


def _reference(row: TransferRow) -> Content:
    return "–" if row.transfer.reference is None else reference_link(row.transfer.reference)


def reference_link(reference: str) -> Tag:
    """A link to the payments under ``reference``, in full."""
    return link(reference, "reference", reference, class_="mono reference", title=reference)
