"""The lists of blocks and transfers that several pages show."""

from collections.abc import Iterable

from twisted.web.template import Tag

from svcd.pages.parts import Column, Content, address_link, amount, badge, link, listing, plural, short, when
from svcd.pages.reading import BlockLine, TransferLine
from svcd.pages.sources import Sources


def blocks_table(sources: Sources, blocks: Iterable[BlockLine], *, caption: str) -> Tag:
    """A list of blocks."""
    now = sources.now
    columns: list[Column[BlockLine]] = [
        Column("Height", lambda block: link(str(block.header.height), "block", str(block.header.height))),
        Column("Time", lambda block: when(block.time, now)),
        Column("Hash", lambda block: short(block.hash.hex(), "block", block.hash.hex()), wide=True),
        Column("Made by", lambda block: _producer(sources, block), wide=True),
        Column("Transfers", lambda block: str(block.header.transaction_count), number=True),
    ]
    return listing(columns, blocks, caption=caption)


def _producer(sources: Sources, block: BlockLine) -> Content:
    return address_link(sources.address_of_key(block.header.producer_key)) if block.header.height else "–"


def transfers_table(
    sources: Sources, lines: Iterable[TransferLine], *, caption: str, of: bytes | None = None, dated: bool = True
) -> Tag:
    """A list of transfers; ``of`` is the account whose list it is, ``dated`` whether their blocks differ."""
    now = sources.now
    columns: list[Column[TransferLine]] = [Column("Transfer", _txid)]
    if dated:
        columns.append(Column("Time", lambda line: "waiting" if line.time is None else when(line.time, now)))
    if of is not None:
        columns.append(Column("Direction", lambda line: _direction(line, of)))
        columns.append(Column("With", lambda line: address_link(sources.address(_other(line, of)))))
    else:
        columns.append(Column("From", lambda line: address_link(sources.address(line.transfer.sender))))
        columns.append(Column("To", lambda line: address_link(sources.address(line.transfer.recipient))))
    columns.append(Column("Reference", _reference))
    columns.append(Column("Amount", lambda line: amount(line.transfer.amount), number=True))
    return listing(columns, lines, caption=caption)


def _txid(line: TransferLine) -> Tag:
    txid = line.transfer.txid.hex()
    return short(txid, "tx", txid)


def _other(line: TransferLine, of: bytes) -> bytes:
    return line.transfer.recipient if line.transfer.sender == of else line.transfer.sender


def _direction(line: TransferLine, of: bytes) -> Tag:
    sends, gets = line.transfer.sender == of, line.transfer.recipient == of
    if sends and gets:
        return badge("to itself")
    return badge("out") if sends else badge("in", "good")


def _reference(line: TransferLine) -> Content:
    return "–" if line.transfer.reference is None else reference_link(line.transfer.reference)


def reference_link(reference: str) -> Tag:
    """A reference in a list: as long as its order made it."""
    return link(reference, "reference", reference, class_="mono reference", title=reference)


def depth(confirmations: int) -> str:
    """How deep something lies."""
    return plural(confirmations, "confirmation")
