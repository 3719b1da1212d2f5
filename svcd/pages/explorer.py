"""The pages of one block, one transfer and one address (docs/pages.md "Explorer")."""

from typing import Final

from twisted.web.template import Tag

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address
from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.chain.work import block_work
from svcd.pages.fields import BEFORE, BLOCK, FIRST, TXID
from svcd.pages.layout import KeptPage, Page
from svcd.pages.overview import scaled
from svcd.pages.parts import (
    Content,
    amount,
    badge,
    empty,
    facts,
    link,
    notice,
    paging,
    plural,
    section,
    tag,
    utc,
    when,
    whole,
)
from svcd.pages.qr import qr_code
from svcd.pages.reading import TransferLine, transfer_line, transfer_of
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.tables import depth, reference_link, transfers_table
from svcd.rpc.fields import ADDRESS, NEWEST
from svcd.store.chain_store import StoredBlock
from svcd.web.errors import HttpError

PAGE: Final = 20
"""Transfers on one page of a list."""


class BlockPage:
    """One block with its transfers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/block/{block}", "A block by height or hash", path_fields=(BLOCK,), query_fields=(FIRST,))
    def block(self, block: int | bytes, first: int) -> KeptPage:
        """Answer GET /block/{height or hash}."""
        sources, reader = self._sources, self._sources.reader
        with reader.snapshot():
            tip = sources.tip()
            stored = reader.canonical(block) if isinstance(block, int) else reader.stored(block)
            if stored is None:
                raise HttpError(404, f"there is no such block here; the newest one is {tip.height}")
            canonical = reader.is_canonical(stored)
        shown = ("block", stored.point.hash, canonical, first, tip.height, sources.second)
        return KeptPage(shown, lambda: self._draw(stored, tip, first, canonical=canonical))

    def _draw(self, stored: StoredBlock, tip: ChainPoint, first: int, *, canonical: bool) -> Page:
        sources, reader = self._sources, self._sources.reader
        bodies = reader.some_bodies(stored, first=first, limit=PAGE)
        header, height = reader.block_header(stored, sources.params), stored.point.height
        lines = [TransferLine(transfer_of(sources, body)) for body in bodies]
        about = facts(self._facts(stored, header, tip.height - height + 1 if canonical else 0))
        return Page(
            title=f"Block {height}",
            content=(
                tag("div", tag("h1", f"Block {height}"), self._neighbours(height, tip), class_="row apart"),
                *([] if canonical else [_off_chain(height)]),
                tag("div", about, class_="card"),
                section(plural(header.transaction_count, "transfer"), *self._transfers(stored, lines, first, header)),
            ),
            json=f"/rpc/block/{height}" if canonical else "",
        )

    def _facts(self, stored: StoredBlock, header: Header, confirmations: int) -> list[tuple[str, Content]]:
        params, time = self._sources.params, self._sources.params.slot_time(header.slot)
        pairs: list[tuple[str, Content]] = [
            ("State", badge(depth(confirmations), "good") if confirmations else badge("not on the chain", "bad")),
            ("Time", tag("span", utc(time), " (", when(time, self._sources.now), ")")),
            ("Hash", whole(stored.point.hash.hex(), "the hash")),
        ]
        if not header.height:
            return [*pairs, ("In existence", amount(stored.point.issued))]
        producer = self._sources.address_of_key(header.producer_key)
        parent = header.parent_hash.hex()
        points = f"{header.multiplier // 10_000}.{header.multiplier % 10_000 // 100:02d}"
        return [
            *pairs,
            ("Parent", whole(parent, "the hash of the parent", "block", parent)),
            ("Made by", whole(producer, "the address", "address", producer)),
            ("Reward", tag("span", amount(params.reward(header.height)), " and the fees")),
            ("Slot", str(header.slot)),
            ("Difficulty", f"{scaled(block_work(header.base_target))}, eased × {points} by holding"),
            ("State root", whole(header.state_root.hex(), "the state root")),
        ]

    def _neighbours(self, height: int, tip: ChainPoint) -> Tag:
        links = []
        if height:
            links.append(link("← Earlier", "block", str(height - 1), class_="button small"))
        if height < tip.height:
            links.append(link("Later →", "block", str(height + 1), class_="button small"))
        return tag("div", *links, class_="row")

    def _transfers(self, stored: StoredBlock, lines: list[TransferLine], first: int, header: Header) -> list[Content]:
        if not lines:
            return [empty("No transfers in this block." if not first else "There are no more transfers.")]
        path = f"/block/{stored.point.hash.hex()}"
        ways: list[Content] = []
        if first:
            ways.append(tag("a", "← Earlier ones", href=f"{path}?first={max(first - PAGE, 0)}", class_="button"))
        if first + len(lines) < header.transaction_count:
            ways.append(tag("a", "More →", href=f"{path}?first={first + len(lines)}", class_="button"))
        table = transfers_table(self._sources, lines, caption="Transfers of this block", dated=False)
        return [tag("div", table, class_="card"), *([paging(*ways)] if ways else [])]


def _off_chain(height: int) -> Tag:
    there = link(f"the one that is at height {height}", "block", str(height))
    return notice("warn", "This block is not on the chain: another one won. See ", there, ".")


class TransactionPage:
    """One transfer, on the chain or waiting."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/tx/{txid}", "A transfer by its transaction id", path_fields=(TXID,))
    def transaction(self, txid: bytes) -> Page:
        """Answer GET /tx/{txid}."""
        sources = self._sources
        with sources.reader.snapshot():
            tip = sources.tip()
            place = sources.reader.transaction(txid)
        if place is not None:
            line = transfer_line(sources, place)
            state: Content = badge(depth(tip.height - place.point.height + 1), "good")
        else:
            entry = sources.mempool.get(txid)
            if entry is None:
                raise HttpError(404, "neither the chain nor the mempool of this node holds such a transfer")
            line, state = TransferLine(entry.transfer), badge("waiting for a block", "warn")
        return Page(
            title="Transfer",
            content=(
                tag("h1", "Transfer"),
                tag("div", amount(line.transfer.amount, class_="amount big"), class_="card"),
                tag("div", facts(self._facts(line, state)), class_="card"),
            ),
            json=f"/rpc/transaction/{txid.hex()}" if place is not None else "",
        )

    def _facts(self, line: TransferLine, state: Content) -> list[tuple[str, Content]]:
        sources, transfer = self._sources, line.transfer
        sender, recipient = sources.address(transfer.sender), sources.address(transfer.recipient)
        pairs: list[tuple[str, Content]] = [("State", state)]
        if line.height is not None and line.time is not None:
            pairs.append(("Block", link(str(line.height), "block", str(line.height))))
            pairs.append(("Time", tag("span", utc(line.time), " (", when(line.time, sources.now), ")")))
        pairs += [
            ("From", whole(sender, "the sender’s address", "address", sender)),
            ("To", whole(recipient, "the recipient’s address", "address", recipient)),
            ("Reference", reference_link(transfer.reference) if transfer.reference else "none"),
            ("Fee", amount(transfer.fee)),
            ("Nonce", str(transfer.nonce)),
            ("Signed", utc(transfer.timestamp)),
            ("Transaction id", whole(transfer.txid.hex(), "the transaction id")),
        ]
        return pairs


class AddressPage:
    """One account with its transfers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/address/{address}", "An address", path_fields=(ADDRESS,), query_fields=(BEFORE,), cost=4)
    def address(self, address: str, before: tuple[int, int] | None) -> Page:
        """Answer GET /address/{address}."""
        sources = self._sources
        key = decode_address(address, sources.params.address_prefix)
        with sources.reader.snapshot():
            account = sources.reader.account(key)
            places = sources.reader.address_transactions(key, before=before or NEWEST, limit=PAGE + 1)
        lines = [transfer_line(sources, place) for place in places[:PAGE]]
        ways: list[Content] = []
        if before:
            ways.append(link("← Newest", "address", address, class_="button"))
        if len(places) > PAGE:
            last = places[PAGE - 1]
            older = f"/address/{address}?before={last.point.height}-{last.position}"
            ways.append(tag("a", "Older →", href=older, class_="button"))
        if lines:
            table = transfers_table(sources, lines, caption="Transfers of this address", of=key)
            listed: list[Content] = [tag("div", table, class_="card")]
        else:
            listed = [empty("No block has a transfer from or to this address.")]
        code = tag("div", qr_code(address, "QR code of the address"), class_="code")
        about = tag("div", facts(self._facts(address, key, account)), code, class_="card beside")
        transfers = section("Transfers", *listed, *([paging(*ways)] if ways else []))
        return Page(title="Address", content=(tag("h1", "Address"), about, transfers), json=f"/rpc/balance/{address}")

    def _facts(self, address: str, key: bytes, account: Account | None) -> list[tuple[str, Content]]:
        pairs: list[tuple[str, Content]] = [("Address", whole(address, "the address"))]
        if account is None:
            return [*pairs, ("Balance", amount(0)), ("State", "the chain has not seen it yet")]
        pending = self._sources.mempool.pending_nonce(key, account)
        sent = (
            str(account.nonce) if pending == account.nonce else f"{account.nonce}, and {pending - account.nonce} wait"
        )
        pairs += [("Balance", amount(account.balance)), ("Transfers sent", sent)]
        if account.held_since is not None:
            since = self._sources.params.slot_time(account.held_since)
            pairs.append(("Holding since", tag("span", utc(since), " (", when(since, self._sources.now), ")")))
        return pairs
