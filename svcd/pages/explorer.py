"""The explorer: a block, a transfer, an address, the peers (docs/pages.md)."""

from urllib.parse import urlencode

from twisted.web.template import Tag

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address
from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.chain.work import block_work
from svcd.pages.error_pages import NotFound
from svcd.pages.expectation import arrived
from svcd.pages.html import (
    Content,
    amount,
    badge,
    byte_size,
    copyable,
    empty_list,
    facts,
    instant,
    instant_and_age,
    link,
    notice,
    pagination,
    scaled,
    section,
    shortened,
    tag,
    when,
)
from svcd.pages.layout import CachedPage, Page
from svcd.pages.qr import qr_code
from svcd.pages.recent_blocks import canonical_blocks
from svcd.pages.routes import BEFORE_HEIGHT, BLOCK, FIRST, page
from svcd.pages.sources import (
    PeerRow,
    Sources,
    TransferRow,
    parse_body,
    transfer_row,
)
from svcd.pages.tables import (
    PAGE_SIZE,
    Column,
    blocks_table,
    only_later,
    reference_link,
    size_and_fullness,
    table,
    transfers_table,
)
from svcd.pages.texts import Message, grouped, message
from svcd.rpc.fields import ADDRESS, BEFORE, NEWEST, TXID
from svcd.store.chain_store import StoredBlock
from svcd.visible_text import visible


class BlockPage:
    """A block with its transfers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/block/{block}", "A block by height or hash", path_fields=(BLOCK,), query_fields=(FIRST,))
    def block(self, block: int | bytes, first: int) -> CachedPage:
        """Answer GET /block/{height or hash}."""
        sources, reader = self._sources, self._sources.reader
        with reader.snapshot():
            tip = sources.tip()
            stored = reader.canonical(block) if isinstance(block, int) else reader.stored(block)
            if stored is None:
                raise NotFound(
                    f"the newest block of this node’s chain is {tip.height}",
                    message("explorer.no-block"),
                    message("explorer.no-block-text", height=tip.height),
                )
            canonical = reader.is_canonical(stored)
        shown = ("block", stored.point.hash, canonical, first, tip.height, sources.second)
        return CachedPage(shown, lambda: self._draw(stored, tip, first, canonical=canonical))

    def _draw(self, stored: StoredBlock, tip: ChainPoint, first: int, *, canonical: bool) -> Page:
        sources, reader = self._sources, self._sources.reader
        bodies = reader.some_bodies(stored, first=first, limit=PAGE_SIZE)
        header, height = reader.block_header(stored, sources.params), stored.point.height
        rows = [TransferRow(parse_body(sources, body)) for body in bodies]
        about = facts(self._facts(stored, header, tip.height - height + 1 if canonical else 0))
        return Page(
            title=message("explorer.block-at", height=height),
            content=(
                tag(
                    "div",
                    tag("h1", message("explorer.block-at", height=height)),
                    self._previous_and_next(height, tip),
                    class_="row apart",
                ),
                *([] if canonical else [_not_canonical(height)]),
                tag("div", about, class_="card"),
                section(
                    message("explorer.count-transfers", count=header.transaction_count),
                    *self._transfers(stored, rows, first, header),
                ),
            ),
            json=f"/rpc/block/{height}" if canonical else "",
            scripts=("copy.mjs", "times.mjs"),
        )

    def _facts(self, stored: StoredBlock, header: Header, confirmations: int) -> list[tuple[Message, Content]]:
        params, time = self._sources.params, self._sources.params.slot_time(header.slot)
        pairs: list[tuple[Message, Content]] = [
            (
                message("explorer.state"),
                badge(message("script.confirmations", count=confirmations), "good")
                if confirmations
                else badge(message("explorer.not-on-the-chain"), "bad"),
            ),
            (message("explorer.time"), instant_and_age(time, self._sources.now)),
            (message("explorer.hash"), copyable(stored.point.hash.hex(), message("explorer.the-hash"))),
        ]
        if not header.height:
            return [*pairs, (message("explorer.coins-issued"), amount(stored.point.issued))]
        producer = self._sources.address_of_key(header.producer_key)
        parent = header.parent_hash.hex()
        points = f"{header.multiplier // 10_000}.{header.multiplier % 10_000 // 100:02d}"
        return [
            *pairs,
            (message("explorer.parent"), copyable(parent, message("explorer.the-parent"), "block", parent)),
            (message("explorer.made-by"), copyable(producer, message("explorer.the-address"), "address", producer)),
            (message("explorer.reward"), message("explorer.and-the-fees", amount=amount(params.reward(header.height)))),
            *self._figures(stored, header),
            (message("explorer.slot"), grouped(header.slot)),
            (
                message("explorer.difficulty"),
                scaled(block_work(header.base_target)),
            ),
            (message("explorer.holding-multiplier"), f"× {points}"),
            (message("explorer.state-root"), copyable(header.state_root.hex(), message("explorer.the-state-root"))),
        ]

    def _figures(self, stored: StoredBlock, header: Header) -> list[tuple[Message, Content]]:
        figures = self._sources.recent.figures_of(stored)
        count = header.transaction_count
        size = (message("explorer.size"), size_and_fullness(self._sources.params, count=count, size=figures.size))
        if not figures.fees:
            return [size, (message("explorer.fees"), message("explorer.none"))]
        lowest, median, highest = (amount(figures.fees[at]) for at in (0, len(figures.fees) // 2, -1))
        each: Content = lowest
        if figures.fees[0] != figures.fees[-1]:
            each = message("explorer.fees-spread", lowest=lowest, highest=highest, median=median)
        total = amount(sum(figures.fees))
        return [size, (message("explorer.fees"), total), (message("explorer.fee-per-transfer"), each)]

    def _previous_and_next(self, height: int, tip: ChainPoint) -> Tag:
        links = []
        if height:
            links.append(link(message("explorer.earlier"), "block", str(height - 1), class_="button small"))
        if height < tip.height:
            links.append(link(message("explorer.later"), "block", str(height + 1), class_="button small"))
        return tag("div", *links, class_="row")

    def _transfers(self, stored: StoredBlock, rows: list[TransferRow], first: int, header: Header) -> list[Content]:
        if not rows:
            return [empty_list(message("explorer.no-more-transfers") if first else message("explorer.no-transfers"))]
        path = f"/block/{stored.point.hash.hex()}"
        pages: list[Content] = []
        if first:
            pages.append(
                tag(
                    "a",
                    message("explorer.earlier-ones"),
                    href=f"{path}?first={max(first - PAGE_SIZE, 0)}",
                    class_="button",
                )
            )
        if first + len(rows) < header.transaction_count:
            pages.append(tag("a", message("explorer.more"), href=f"{path}?first={first + len(rows)}", class_="button"))
        transfers = transfers_table(self._sources, rows, caption=message("explorer.transfers-of-block"), dated=False)
        return [tag("div", transfers, class_="card"), *pagination(*pages)]


def _not_canonical(height: int) -> Tag:
    there = link(message("explorer.block-at-height", height=height), "block", str(height))
    return notice("warn", message("explorer.lost", block=there))


class BlocksPage:
    """The blocks of the chain, some at a time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/blocks", "The blocks below a height", query_fields=(BEFORE_HEIGHT,))
    def blocks(self, before: int) -> CachedPage:
        """Answer GET /blocks."""
        sources = self._sources
        shown = ("blocks", sources.chain_manager.tip.hash, before, sources.second)
        return CachedPage(shown, lambda: self._draw(before))

    def _draw(self, before: int) -> Page:
        sources, reader = self._sources, self._sources.reader
        with reader.snapshot():
            tip = sources.tip()
            blocks = canonical_blocks(reader, sources.params, tip, before=before, limit=PAGE_SIZE)
        first, last = blocks[-1].header.height, blocks[0].header.height
        heading = message("explorer.blocks-from-to", first=first, last=last)
        pages: list[Content] = []
        if last < tip.height:
            newer = min(last + 1 + PAGE_SIZE, tip.height + 1)
            pages.append(tag("a", message("explorer.newer"), href=f"/blocks?before={newer}", class_="button"))
        if first:
            pages.append(tag("a", message("explorer.older"), href=f"/blocks?before={first}", class_="button"))
        return Page(
            title=heading,
            content=(
                tag("h1", heading),
                tag("div", blocks_table(sources, blocks, caption=heading, figures=False), class_="card"),
                *pagination(*pages),
            ),
        )


class TransactionPage:
    """A transfer in a block or in the mempool."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/tx/{txid}", "A transfer by its transaction id", path_fields=(TXID,))
    def transaction(self, txid: bytes) -> Page:
        """Answer GET /tx/{txid}."""
        sources = self._sources
        with sources.reader.snapshot():
            tip = sources.tip()
            place = sources.reader.transaction(txid, sources.params)
        if place is not None:
            row = transfer_row(sources, place)
            state = badge(message("script.confirmations", count=tip.height - place.height + 1), "good")
            state(**{"data-block": place.block_hash.hex()})
        else:
            entry = sources.mempool.get(txid)
            if entry is None:
                raise self._not_found()
            row = TransferRow(entry.transfer, entry=entry)
            state = badge(message("explorer.waiting-for-a-block"), "warn")(**{"data-block": ""})
        state(**{"data-txid": txid.hex()})
        return Page(
            title=message("explorer.transfer-of", txid=shortened(txid.hex())),
            content=(
                tag("h1", message("explorer.transfer")),
                tag("div", amount(row.transfer.amount, class_="amount big"), class_="card"),
                tag("div", facts(self._facts(row, state)), class_="card"),
            ),
            json=f"/rpc/transaction/{txid.hex()}" if place is not None else "",
            scripts=("copy.mjs", "times.mjs", "transfer-page.mjs"),
        )

    def _not_found(self) -> NotFound:
        first = self._sources.reader.prune_height()
        return NotFound(
            "this node has no transfer with this id: it may not have arrived yet, or was refused or replaced, "
            "or has expired"
            + (f", or is in a block below height {first}, which this node does not have" if first else ""),
            message("explorer.no-transfer"),
            message("explorer.only-later", height=first) if first else message("explorer.no-transfer-text"),
        )

    def _facts(self, row: TransferRow, state: Tag) -> list[tuple[Message, Content]]:
        sources, transfer = self._sources, row.transfer
        sender, recipient = sources.address(transfer.sender), sources.address(transfer.recipient)
        pairs: list[tuple[Message, Content]] = [(message("explorer.state"), state)]
        if row.height is not None and row.time is not None:
            pairs.append((message("explorer.block"), link(grouped(row.height), "block", str(row.height))))
            pairs.append((message("explorer.time"), instant_and_age(row.time, sources.now)))
        if row.entry is not None:
            if not sources.mempool.is_in_line(row.entry):
                pairs.append((message("explorer.block"), message("explorer.after-missing")))
            pairs.append((message("explorer.arrived"), arrived(row.entry, sources.now)))
        pairs += [
            (message("explorer.from"), copyable(sender, message("explorer.the-sender"), "address", sender)),
            (message("explorer.to"), copyable(recipient, message("explorer.the-recipient"), "address", recipient)),
            (
                message("explorer.reference"),
                reference_link(transfer.reference) if transfer.reference else message("explorer.none"),
            ),
            (message("explorer.fee"), amount(transfer.fee)),
            (message("explorer.size"), byte_size(len(transfer.wire))),
            (message("explorer.nonce"), grouped(transfer.nonce)),
            (message("explorer.signed"), instant(transfer.timestamp)),
            (message("explorer.transaction-id"), copyable(transfer.txid.hex(), message("explorer.the-transaction-id"))),
        ]
        if row.height is not None and transfer.reference is not None:
            pairs.append(
                (message("explorer.proof"), _proof(transfer.reference, recipient, transfer.amount, row.height))
            )
        return pairs


def _proof(reference: str, recipient: str, amount: int, height: int) -> Tag:
    """The ways to the proof of a payment in the block at ``height``, and to the page that checks one."""
    terms = {"recipient": recipient, "amountBaseUnits": amount, "sinceHeight": height, "chain": 1}
    path = f"/rpc/commerce/payment/{reference}/proof?{urlencode(terms)}"
    download = tag("a", message("explorer.proof-file"), href=path, download=f"proof-{reference}.json", class_="button")
    check = tag("a", message("explorer.proof-check"), href="/proof/", class_="button")
    return tag("div", download, check, class_="row")


class AddressPage:
    """An address with its balance and its transfers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/address/{address}", "An address", path_fields=(ADDRESS,), query_fields=(BEFORE,), cost=4)
    def address(self, address: str, before: tuple[int, int] | None) -> Page:
        """Answer GET /address/{address}."""
        sources = self._sources
        key = decode_address(address, sources.params.address_prefix)
        with sources.reader.snapshot():
            account = sources.reader.account(key)
            places = sources.reader.address_transactions(key, before=before or NEWEST, limit=PAGE_SIZE + 1)
        rows = [transfer_row(sources, place) for place in places[:PAGE_SIZE]]
        if before is None:
            rows = [*self._waiting(key), *rows]
        pages: list[Content] = []
        if before:
            pages.append(link(message("explorer.newest"), "address", address, class_="button"))
        if len(places) > PAGE_SIZE:
            last = places[PAGE_SIZE - 1]
            older = f"/address/{address}?before={last.height}-{last.position}"
            pages.append(tag("a", message("explorer.older"), href=older, class_="button"))
        if rows:
            transfers = transfers_table(sources, rows, caption=message("explorer.transfers-of-address"), of=key)
            listed: list[Content] = [tag("div", transfers, class_="card")]
        else:
            listed = [empty_list(message("explorer.no-transfers-of-address"))]
        code = tag("div", qr_code(address, message("explorer.qr-code")), class_="code")
        about = tag("div", facts(self._facts(address, key, account)), code, class_="card beside")
        transfers = section(message("explorer.transfers"), *listed, *only_later(sources), *pagination(*pages))
        return Page(
            title=message("explorer.address-of", address=shortened(address)),
            content=(tag("h1", message("explorer.address")), about, transfers),
            json=f"/rpc/balance/{address}",
            scripts=("copy.mjs", "times.mjs"),
        )

    def _waiting(self, key: bytes) -> list[TransferRow]:
        """The newest transfers from or to an address that wait for a block."""
        found = {entry.sequence: entry for entry in self._sources.incoming.newest(key, limit=PAGE_SIZE)}
        found |= {entry.sequence: entry for entry in self._sources.mempool.sent_by(key)}
        return [TransferRow(found[number].transfer) for number in sorted(found, reverse=True)[:PAGE_SIZE]]

    def _facts(self, address: str, key: bytes, account: Account | None) -> list[tuple[Message, Content]]:
        pairs: list[tuple[Message, Content]] = [
            (message("explorer.address"), copyable(address, message("explorer.the-address")))
        ]
        if account is None:
            return [
                *pairs,
                (message("explorer.balance"), amount(0)),
                (message("explorer.state"), message("explorer.in-no-block")),
            ]
        pending = self._sources.mempool.pending_nonce(key, account)
        sent: Content = grouped(account.nonce)
        if pending > account.nonce:
            sent = message("explorer.sent-and-waiting", sent=account.nonce, waiting=pending - account.nonce)
        pairs += [(message("explorer.balance"), amount(account.balance)), (message("explorer.transfers-sent"), sent)]
        if account.held_since is not None:
            since = self._sources.params.slot_time(account.held_since)
            pairs.append((message("explorer.holding-since"), instant_and_age(since, self._sources.now)))
        return pairs


class PeersPage:
    """The nodes that this node has called and verified."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/peers", "Verified peers")
    def peers(self) -> Page:
        """Answer GET /peers."""
        sources = self._sources
        now, neighbourhood = sources.now, sources.peers.network_view()
        sample = sorted(sources.sample(), key=lambda peer: peer.endpoint)
        columns: list[Column[PeerRow]] = [
            Column(
                message("explorer.address"),
                lambda peer: tag("bdi", visible(peer.endpoint), class_="hash"),
                place="phone-title",
            ),
            Column(
                message("explorer.node"),
                lambda peer: tag("bdi", visible(peer.node_id), class_="hash small"),
                place="phone-note",
            ),
            Column(
                message("explorer.height"),
                lambda peer: grouped(peer.height),
                number=True,
                place="phone-value",
                labelled=True,
            ),
            Column(message("explorer.last-seen"), lambda peer: when(peer.last_seen, now), place="phone-extra"),
        ]
        if sources.params.producers:
            columns.append(Column(message("explorer.changes"), _changes, place="phone-extra", labelled=True))
        if sample:
            listed: Content = tag(
                "div", table(columns, sample, caption=message("explorer.verified-peers")), class_="card"
            )
        else:
            listed = empty_list(message("explorer.no-peers"))
        disagree = bool(neighbourhood.producer_changes)
        warning: Content = notice("warn", message("explorer.changes-warning")) if disagree else ""
        lead = tag("p", message("explorer.connected", count=neighbourhood.known_peers), class_="lead")
        return Page(
            title=message("frame.peers"),
            content=(tag("h1", message("frame.peers")), lead, warning, listed),
            here="/peers",
            json="/p2p/peers" if sources.serves_peers else "",
        )


def _changes(peer: PeerRow) -> Content:
    if peer.other_changes is None:
        return "–"
    return message("explorer.changes-other") if peer.other_changes else message("explorer.changes-same")
