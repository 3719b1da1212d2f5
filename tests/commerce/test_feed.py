"""The feed of an address: who applies its entries in order has the payments of the chain, whatever happens to it."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import example, given
from hypothesis import strategies as st

from svcd.chain.address import encode_address, key_hash_of
from svcd.chain.transition import ChainPoint
from svcd.commerce.feed import (
    NOTHING,
    WHOLE,
    FeedCursor,
    FeedPage,
    FeedQuery,
    FeedReader,
    Place,
    parse_cursor,
)
from svcd.store.chain_store import ChainReader, PlacedTransfer, locator_heights
from svcd.store.packed_transfer import txid_of_stored
from svcd.store.pruned import Pruned
from tests.chains import TEST_PARAMS, key_of

SHOP, STRANGER, LOOK_ALIKE = key_of("bob").hash, key_of("alice").hash, key_of("carol").hash
"""The index has the transfers of the last one under the same key as those of the first, as if by chance."""
HASHES = st.binary(min_size=16, max_size=16)
MAX_UNDONE = 50


@st.composite
def cursors(draw: st.DrawFn) -> FeedCursor:
    """Any cursor."""
    height = draw(st.one_of(st.integers(0, 70), st.integers(0, 2**48 - 1)))
    size = len(locator_heights(height))
    hashes = tuple(draw(st.lists(HASHES, min_size=size, max_size=size)))
    return FeedCursor(Place(height, draw(st.integers(0, WHOLE)), hashes), draw(HASHES))


@given(cursors())
@example(FeedCursor(Place(2**48 - 1, WHOLE, (bytes(16),) * 50), bytes(16)))
def test_a_cursor_is_read_as_it_was_written(cursor: FeedCursor) -> None:
    assert parse_cursor(str(cursor)) == cursor
    assert len(str(cursor)) <= 1_100


@given(cursors(), st.data())
def test_a_cursor_has_one_form(cursor: FeedCursor, data: st.DataObject) -> None:
    text = str(cursor)
    at = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.sampled_from("ABab09_-+/=é \n"))
    changed = data.draw(
        st.sampled_from(
            [text[:at], text[at + 1 :], text + "A" * 4, text + "=", text[:at] + character + text[at:]],
        )
    )
    replaced = text[:at] + character + text[at + 1 :]
    for other in {changed, replaced} - {text}:
        if (found := read(other)) is not None:
            assert str(found) == other
            assert found != cursor


def read(text: str) -> FeedCursor | None:
    """The cursor in a text; None if it is refused, with the one sentence that there is."""
    try:
        return parse_cursor(text)
    except ValueError as error:
        refusal = str(error)
    assert refusal == "must be the `next` of an answer of a feed"
    return None


@pytest.mark.parametrize("version", [b"\0", b"\2"])
def test_a_cursor_of_another_version_is_refused(version: bytes) -> None:
    text = str(FeedCursor(Place(0, 0, (bytes(16),)), NOTHING))
    raw = version + parse_bytes(text)[1:]
    with pytest.raises(ValueError, match="must be the `next`"):
        parse_cursor(urlsafe_b64encode(raw).rstrip(b"=").decode())


def parse_bytes(text: str) -> bytes:
    cursor = parse_cursor(text)
    return b"\1" + cursor.place.height.to_bytes(6, "big") + bytes(2) + cursor.pending + b"".join(cursor.place.hashes)


@frozen(eq=False)
class Block:
    """A block of a model: its hash, and sender and recipient of each transfer with the amount."""

    hash: bytes
    transfers: tuple[tuple[bytes, bytes, int], ...]


NUMBERS = count(1)
GENESIS = Block(TEST_PARAMS.genesis_hash, ())


@define
class Chain:
    """What a node has of a chain, as the store shows it."""

    blocks: list[Block] = field(factory=lambda: [GENESIS])
    prune_height: int = 0

    def grow(self, random: Random) -> None:
        number = next(NUMBERS)
        parties = [random.choice([(STRANGER, SHOP)] * 3 + [(SHOP, STRANGER), (SHOP, SHOP), (STRANGER, LOOK_ALIKE)])]
        parties *= random.choice([0, 0, 1, 1, 2, 7])
        transfers = tuple((*each, 100 * number + at) for at, each in enumerate(parties))
        self.blocks.append(Block(sha256(b"%d" % number).digest(), transfers))

    def reorganise(self, random: Random) -> None:
        undone = min(random.choice([1, 1, 2, 3, random.randint(1, MAX_UNDONE)]), len(self.blocks) - 1)
        del self.blocks[len(self.blocks) - undone :]
        for _ in range(undone + 1):
            self.grow(random)

    def existing_tip(self) -> ChainPoint:
        tip = self.blocks[-1]
        return ChainPoint(hash=tip.hash, height=len(self.blocks) - 1, slot=0, difficulty_clock=0, work=0, issued=0)

    def hashes_at(self, heights: Sequence[int]) -> list[bytes]:
        return [self.blocks[height].hash for height in heights if height < len(self.blocks)]

    def check_kept(self, height: int, asked: str, advice: str) -> None:
        if height < self.prune_height:
            raise Pruned(self.prune_height, asked, advice)

    def of_address(self, _: bytes, *, after: tuple[int, int]) -> Iterator[PlacedTransfer]:
        for height, block in enumerate(self.blocks):
            for position, (sender, recipient, amount) in enumerate(block.transfers):
                if (height, position) > after:
                    reference = f"order-{amount}" if amount % 2 else None
                    stored = stored_of(sender, recipient, amount, reference)
                    yield PlacedTransfer(
                        amount, position, stored, block.hash, height, height, recipient, sender, reference
                    )

    def payments(self, since: int = 0) -> list[tuple[int, int, int]]:
        """The oracle: height, position and amount of each payment to the shop, by looking at each transfer."""
        return [
            (height, position, amount)
            for height, block in enumerate(self.blocks)
            for position, (_, recipient, amount) in enumerate(block.transfers)
            if recipient == SHOP and height >= since
        ]


def stored_of(sender: bytes, recipient: bytes, amount: int, reference: str | None) -> bytes:
    addresses = [encode_address(key, TEST_PARAMS.address_prefix) for key in (recipient, sender)]
    return '"'.join(("1", "3", "0", str(amount), reference or "", *addresses, "1")).encode() + bytes(96)


@define
class Shop:
    """A reader: its book, and the cursor that it keeps with it in one step."""

    book: list[tuple[int, int, int]] = field(factory=list)
    after: FeedCursor | None = None
    since: int = 0

    def read(self, chain: Chain, reader: FeedReader, *, limit: int = 100, rows: int = 50) -> FeedPage:
        """Read a page, and apply it."""
        place = None if self.after is None else self.after.place
        query = FeedQuery(key=SHOP, after=place, since=self.since, limit=limit)
        page = reader.read(as_store(chain), query, rows=rows)
        entries: Any = json.loads(f"[{page.entries}]")
        assert len(entries) <= limit
        book = list(self.book)
        for entry in entries:
            height = int(entry["height"])
            assert bytes.fromhex(entry["hash"]) == chain.blocks[height].hash
            if entry["type"] == "rewind":
                book = [each for each in book if each[0] <= height]
            else:
                book.append((height, entry["position"], int(entry["amount"])))
                assert book[-1] > max(book[:-1], default=(-1, 0, 0)), "in order, and none twice"
        assert [bytes.fromhex(each["txid"]) in page.told for each in entries if "txid" in each] == [True] * len(
            page.told
        )
        self.book, self.after = book, parse_cursor(str(FeedCursor(page.end, NOTHING)))
        return page

    def catch_up(self, chain: Chain, reader: FeedReader, **bounds: int) -> None:
        """Read until the tip."""
        while not self.read(chain, reader, **bounds).reaches_tip:
            pass


def as_store(chain: Chain) -> ChainReader:
    store: Any = chain
    return store  # type: ignore[no-any-return]


def play(random: Random, steps: int) -> None:
    """A story of two nodes and a shop that asks the one or the other, at any time and for any part."""
    chains = [Chain(), Chain()]
    readers = [FeedReader(TEST_PARAMS), FeedReader(TEST_PARAMS)]
    shop = Shop(since=random.choice([0, 0, 3]))
    for _ in range(steps):
        at = random.randrange(2)
        chain = chains[at]
        match random.choice(["grow", "grow", "reorganise", "follow", "read", "read", "read", "restart", "kill"]):
            case "grow":
                for _ in range(random.choice([1, 2, 30])):
                    chain.grow(random)
            case "reorganise":
                chain.reorganise(random)
            case "follow":
                chain.blocks = list(chains[1 - at].blocks)
            case "restart":
                readers[at] = FeedReader(TEST_PARAMS)
            case "kill":
                # The answer is lost, or the shop ends before it has kept what it read.
                evolve(shop).read(chain, readers[at])
            case "read":
                shop.read(chain, readers[at], limit=random.choice([1, 2, 3, 100]), rows=random.choice([1, 2, 5, 50]))
        if random.randrange(4) == 0:
            shop.catch_up(chain, readers[at], limit=random.choice([1, 2, 100]), rows=random.choice([1, 3, 50]))
            assert shop.book == chain.payments(shop.since)
    shop.catch_up(chains[0], readers[0])
    assert shop.book == chains[0].payments(shop.since)


@given(st.integers(0, 2**32))
def test_a_reader_has_the_payments_of_the_chain_whatever_happens(seed: int) -> None:
    play(Random(seed), 12)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_stories(part: int) -> None:
    for seed in range(part * 250, (part + 1) * 250):
        play(Random(seed), 40)


@given(cursors(), st.integers(0, 2**32), st.data())
def test_a_forged_cursor_changes_only_where_its_feed_begins(forged: FeedCursor, seed: int, data: st.DataObject) -> None:
    chain, random = Chain(), Random(seed)
    for _ in range(random.randrange(20)):
        chain.grow(random)
    real = [block.hash[:16] for block in chain.blocks]
    hashes = tuple(data.draw(st.sampled_from([each, *real])) for each in forged.place.hashes)
    shop = Shop(after=evolve(forged, place=evolve(forged.place, hashes=hashes)))
    shop.catch_up(chain, FeedReader(TEST_PARAMS))
    payments = chain.payments()
    assert shop.book == payments[len(payments) - len(shop.book) :]


def test_what_no_node_knows_is_told_from_the_genesis_on() -> None:
    """Of another network, or forged: all that the feed has told is undone."""
    chain, random = Chain(), Random(2)
    for _ in range(9):
        chain.grow(random)
    shop = Shop(book=[(5, 0, 1)], after=FeedCursor(Place(5, WHOLE, (b"x" * 16,) * 5), NOTHING))
    shop.catch_up(chain, FeedReader(TEST_PARAMS))
    assert shop.book == chain.payments()


def test_a_rewind_below_the_height_that_the_feed_began_at_tells_nothing_below_it() -> None:
    chain, random = Chain(), Random(3)
    for _ in range(20):
        chain.grow(random)
    shop, reader = Shop(since=12), FeedReader(TEST_PARAMS)
    shop.catch_up(chain, reader)
    del chain.blocks[6:]
    for _ in range(20):
        chain.grow(random)
    shop.catch_up(chain, reader, limit=1)
    assert shop.book == chain.payments(12)


def test_blocks_that_are_not_here_any_more_are_needed_only_for_what_is_to_be_told() -> None:
    chain, random, reader = Chain(), Random(4), FeedReader(TEST_PARAMS)
    for _ in range(30):
        chain.grow(random)
    early, late = Shop(), Shop(since=20)
    early.read(chain, reader, limit=1)
    late.catch_up(chain, reader)
    chain.prune_height = 20
    assert early.after is not None
    assert early.after.place.height < 19
    for shop in (early, Shop(), Shop(since=19)):
        with pytest.raises(Pruned, match="this node has only blocks from height 20 on; give that or more as sinceHeig"):
            shop.read(chain, reader)
    Shop(since=20).catch_up(chain, reader)
    late.catch_up(chain, reader)
    early.since = 20
    early.catch_up(chain, reader)


def test_in_the_middle_of_a_block_the_whole_block_must_be_here() -> None:
    chain, reader = Chain(), FeedReader(TEST_PARAMS)
    chain.blocks.append(Block(b"b" * 32, ((STRANGER, SHOP, 1), (STRANGER, SHOP, 3))))
    shop, whole = Shop(), Shop()
    shop.read(chain, reader, limit=1)
    whole.catch_up(chain, reader)
    chain.prune_height = 2
    assert whole.read(chain, reader).reaches_tip
    with pytest.raises(Pruned, match="payments from block 1 on"):
        shop.read(chain, reader)


def test_no_page_looks_at_more_transfers_than_it_may() -> None:
    chain, reader = Chain(), FeedReader(TEST_PARAMS)
    sent = ((SHOP, STRANGER, 1), (STRANGER, LOOK_ALIKE, 2)) * 10
    chain.blocks += [Block(b"b" * 32, sent), Block(b"c" * 32, ((STRANGER, SHOP, 5),))]
    shop = Shop()
    page = shop.read(chain, reader, rows=15)
    assert (page.entries, page.end.height, page.end.position, page.reaches_tip) == ("", 1, 14, False)
    page = shop.read(chain, reader, rows=15)
    assert shop.book == [(2, 0, 5)]
    assert (page.end.height, page.end.position, page.reaches_tip) == (2, WHOLE, True)


def test_an_entry_has_what_the_store_has() -> None:
    chain = Chain([GENESIS, Block(b"b" * 32, ((STRANGER, SHOP, 7), (SHOP, SHOP, 1_000_000_000)))])
    query = FeedQuery(key=SHOP, after=None, since=0, limit=9)
    found: Any = json.loads(f"[{FeedReader(TEST_PARAMS).read(as_store(chain), query, rows=9).entries}]")
    first, second = chain.of_address(SHOP, after=(-1, 0))
    assert found[0] == {
        "type": "payment",
        "txid": txid_of_stored(first.stored, TEST_PARAMS).hex(),
        "reference": "order-7",
        "amount": "7",
        "amountSvc": "0.00000007",
        "sender": encode_address(STRANGER, TEST_PARAMS.address_prefix),
        "height": "1",
        "hash": (b"b" * 32).hex(),
        "time": str(TEST_PARAMS.slot_time(1)),
        "position": 0,
    }
    assert (found[1]["reference"], found[1]["amountSvc"], found[1]["position"]) == (None, "10", 1)
    assert key_hash_of(found[1]["sender"].encode()) == SHOP, "a transfer to oneself is a payment too"
    assert second.place == (1, 1)
