"""The feed of an address: every payment to it in the order of the chain, those undone too (docs/payments.md).

Pure but for the store: nothing is kept for a reader. All that a feed has told is in the cursor that the reader gives.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Set
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.commerce.payment_list import GIVE_SINCE_HEIGHT, Position, take_received
from svcd.limits import LONG_LISTS, limit
from svcd.node.mempool import MempoolEntry
from svcd.store.chain_store import ChainReader, PlacedTransfer, locator_heights
from svcd.store.packed_transfer import txid_of_stored

MAX_ENTRIES: Final = limit(1_000, "entries of a page of a feed", "entries", LONG_LISTS)
MAX_PENDING: Final = limit(1_000, "waiting transfers that a page of a feed lists", "transfers", LONG_LISTS)
ROWS_PER_ENTRY: Final = limit(2, "transfers that a page of a feed looks at for each entry", "transfers", LONG_LISTS)
"""Some of them may be from the address. Never fewer than LEAST_ROWS are looked at."""
LEAST_ROWS: Final = 200
WHOLE: Final = 65_535
"""The position in a cursor whose block has been told whole."""
_VERSION: Final = b"\1"
_HEIGHT: Final = 6
_PART: Final = 16
"""How many bytes of a hash a cursor has: a second block or set of transfers with the same takes 2^128 attempts."""
_HEAD: Final = len(_VERSION) + _HEIGHT + 2 + _PART
CURSOR_CHARACTERS: Final = (55, 1_100)
"""The least and the most characters of a cursor: with one hash, and with those below the greatest height."""
NOTHING: Final = bytes(_PART)
"""The digest of no waiting transfers."""


@frozen
class Place:
    """Up to where a feed has been told: a block, a position in it, and the hashes by which any node finds the block.

    It says nothing that a node believes: each hash is compared with the canonical chain.
    """

    height: int
    position: int
    """Of the last transfer told; WHOLE for all."""
    hashes: tuple[bytes, ...]
    """The first bytes of the hashes of the blocks at `locator_heights` of the height."""

    @classmethod
    def on(cls, reader: ChainReader, position: Position) -> "Place":
        """A place on the canonical chain; inside a snapshot."""
        height, at = position
        return cls(height, at, tuple([each[:_PART] for each in reader.hashes_at(locator_heights(height))]))


@frozen
class FeedCursor:
    """The end of a page: a place on the chain, and a digest of the waiting transfers that were listed."""

    place: Place
    pending: bytes

    def __str__(self) -> str:
        """The API's form: base64 for URLs without padding."""
        place = self.place
        head = _VERSION + place.height.to_bytes(_HEIGHT, "big") + place.position.to_bytes(2, "big") + self.pending
        return urlsafe_b64encode(head + b"".join(place.hashes)).rstrip(b"=").decode("ascii")


@lru_cache(256)
def parse_cursor(text: str) -> FeedCursor:
    """The cursor in ``text``, of which there is one form only; raises ValueError.

    The parsed ones are kept, since all feeds in which nothing is new have the same.
    """
    if CURSOR_CHARACTERS[0] <= len(text) <= CURSOR_CHARACTERS[1] and text.isascii():
        with suppress(ValueError):
            cursor = _cursor_of(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            if str(cursor) == text:
                return cursor
    raise ValueError("must be the `next` of an answer of a feed")


def _cursor_of(raw: bytes) -> FeedCursor:
    """The cursor whose bytes begin like ``raw``; raises ValueError if there are too few."""
    height = int.from_bytes(raw[1 : 1 + _HEIGHT], "big")
    position = int.from_bytes(raw[1 + _HEIGHT : 3 + _HEIGHT], "big")
    hashes = [raw[at : at + _PART] for at in range(_HEAD, len(raw), _PART)]
    if len(hashes) != len(locator_heights(height)):
        raise ValueError
    return FeedCursor(Place(height, position, tuple(hashes)), raw[_HEAD - _PART : _HEAD])


@frozen(kw_only=True)
class FeedQuery:
    """Payments to the key hash ``key`` after a place, in blocks from height ``since`` on."""

    key: bytes
    after: Place | None
    since: int
    limit: int


@frozen
class FeedPage:
    """The ``entries`` of a page on the chain, as JSON without brackets; ``told`` are the txids of its payments."""

    tip: ChainPoint
    entries: str
    told: Set[bytes]
    end: Place
    """Where the next page begins."""
    reaches_tip: bool
    is_full: bool
    """Whether it has as many entries as were asked for; otherwise it ends at the tip, or after so many transfers."""

    @classmethod
    def without_news(cls, tip: ChainPoint, place: Place) -> "FeedPage":
        """The page of who knows all up to the ``tip``, whose place is ``place``."""
        return cls(tip, "", frozenset(), place, reaches_tip=True, is_full=False)


class FeedReader:
    """Reads pages of feeds, in any thread."""

    def __init__(self, params: NetworkParams) -> None:
        self._params = params
        self._tip: tuple[bytes, Place] | None = None
        """The hash of a tip, and its place with all of it told: the end of most pages."""

    def place_of_tip(self, tip_hash: bytes) -> Place | None:
        """The place at the end of the block that is the tip, if a page up to it has been read."""
        known = self._tip
        return known[1] if known is not None and known[0] == tip_hash else None

    def read(self, reader: ChainReader, query: FeedQuery, *, rows: int, begin: "Begin | None" = None) -> FeedPage:
        """A page that looks at ``rows`` transfers at most, from ``begin`` if that is known already; inside a snapshot.

        Raises Pruned if it would begin below the blocks that are here.
        """
        begin, tip = begin or begin_of(reader, query), reader.existing_tip()
        (after, undone), first = begin, begin.first
        reader.check_kept(first, f"payments from block {first} on", GIVE_SINCE_HEIGHT)
        entries = [] if undone is None else [_rewind_json(*undone)]
        room = query.limit - len(entries)
        transfers = reader.of_address(query.key, after=after)
        found, last = take_received(transfers, query.key, after=after, limit=room, rows=rows)
        told = [txid_of_stored(each.stored, self._params) for each in found]
        entries += self._payments_json(found, told)
        end = self._end_of(reader, tip) if last is None else Place.on(reader, last)
        return FeedPage(tip, ",".join(entries), frozenset(told), end, last is None, len(found) == room)

    def _end_of(self, reader: ChainReader, tip: ChainPoint) -> Place:
        place = self.place_of_tip(tip.hash)
        if place is None:
            place = Place.on(reader, (tip.height, WHOLE))
            self._tip = tip.hash, place
        return place

    def _payments_json(self, found: Iterable[PlacedTransfer], txids: Iterable[bytes]) -> list[str]:
        # Written by hand, in a sixth of the time of an encoder: no text in it has a character to escape.
        params, block, height = self._params, "", -1
        senders: dict[bytes, str] = {}
        entries = []
        for each, txid in zip(found, txids, strict=True):
            if each.height != height:
                height, time = each.height, params.slot_time(each.slot)
                block = f'"height":"{height}","hash":"{each.block_hash.hex()}","time":"{time}"'
            sender = senders.get(each.sender)
            if sender is None:
                sender = senders[each.sender] = encode_address(each.sender, params.address_prefix)
            paid = _transfer_json(each, txid, sender)
            entries.append(f'{{"type":"payment",{paid},{block},"position":{each.position}}}')
        return entries

    def waiting_json(self, entries: Iterable[MempoolEntry], told: Set[bytes]) -> tuple[str, bytes]:
        """The waiting transfers of ``entries`` that are not ``told``, as JSON without brackets, and their digest."""
        shown = [entry for entry in entries if entry.transfer.txid not in told]
        if not shown:
            return "", NOTHING
        texts = []
        for entry in shown:
            transfer = entry.transfer
            sender = encode_address(transfer.sender, self._params.address_prefix)
            texts.append(f'{{{_transfer_json(transfer, transfer.txid, sender)},"arrivalTime":"{entry.arrival}"}}')
        # In an order that all nodes have: they need not have met the transfers in the same.
        digest = sha256(b"".join(sorted(entry.transfer.txid for entry in shown))).digest()
        return ",".join(texts), digest[:_PART]


class Begin(NamedTuple):
    """After which place a page begins, and what a reorganisation has left of what the feed has told."""

    after: Position
    undone: tuple[int, bytes] | None
    """Height and hash of the newest block of the cursor that is canonical, if its last one is not."""

    @property
    def first(self) -> int:
        """The height of the first block that has to be read."""
        height, position = self.after
        return height + (position == WHOLE)


def begin_of(reader: ChainReader, query: FeedQuery) -> Begin:
    """Where the page begins that ``query`` asks for; reads some hashes, inside a snapshot."""
    after, undone = _resume(reader, query.after)
    return Begin(max(after, (query.since - 1, WHOLE)), undone)


def _resume(reader: ChainReader, after: Place | None) -> tuple[Position, tuple[int, bytes] | None]:
    """The last canonical place that is told, and the newest canonical block if the last one told is not.

    That is the genesis if none is, for it is the ancestor of all.
    """
    if after is None:
        return (-1, WHOLE), None
    for height, part in zip(locator_heights(after.height), after.hashes, strict=True):
        for block_hash in reader.hashes_at([height]):
            if block_hash.startswith(part):
                is_last = height == after.height
                return (height, after.position if is_last else WHOLE), None if is_last else (height, block_hash)
    (genesis,) = reader.hashes_at([0])
    return (0, WHOLE), (0, genesis)


def _rewind_json(height: int, block_hash: bytes) -> str:
    return f'{{"type":"rewind","height":"{height}","hash":"{block_hash.hex()}"}}'


def _transfer_json(transfer: PlacedTransfer | Transfer, txid: bytes, sender: str) -> str:
    reference = "null" if transfer.reference is None else f'"{transfer.reference}"'
    return (
        f'"txid":"{txid.hex()}","reference":{reference},"amount":"{transfer.amount}",'
        f'"amountSvc":"{format_amount(transfer.amount)}","sender":"{sender}"'
    )
