"""The statement of an account: every change of its balance, in the order of the chain (docs/http.md).

Transfers are found by index. Blocks have no index by producer, since that would cost every node for the sake of few:
a page looks at the headers of up to BLOCKS_LOOKED_AT blocks.
"""

from bisect import bisect_left
from enum import StrEnum
from itertools import islice
from typing import Final

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_canonical_transfer
from svcd.chain.transition import ChainPoint, genesis_accounts
from svcd.limits import LONG_LISTS, limit
from svcd.store.chain_store import ChainReader, PlacedTransfer
from svcd.store.pruned import Pruned

BLOCKS_LOOKED_AT: Final = limit(2_000, "blocks that a page of a statement looks at", "blocks", LONG_LISTS)
"""Headers that a page reads to find the blocks that the account has produced; takes milliseconds."""
FEES_SUMMED: Final = limit(20_000, "transfers whose fees a page of a statement sums up", "transfers", LONG_LISTS)
"""Transfers whose fees a page sums up for the rewards of produced blocks."""
BEGINNING: Final = (0, 0)


class EntryType(StrEnum):
    """What an entry is."""

    ALLOCATION = "allocation"
    """A balance in the genesis block."""
    RECEIVED = "received"
    SENT = "sent"
    SELF = "self"
    """A transfer to itself, of which only the fee changes the balance."""
    REWARD = "reward"
    """The reward of a produced block and the fees in it."""


@frozen(kw_only=True)
class Entry:
    """One change of the balance, in base units; ``fee`` is what the account has paid."""

    type: EntryType
    height: int
    index: int
    """Its place in the block: that of the transfer; a reward comes after all transfers."""
    time: int
    """Start of the block's slot, Unix milliseconds."""
    amount: int
    fee: int = 0
    txid: bytes | None = None
    counterparty: str | None = None
    reference: str | None = None


@frozen(kw_only=True)
class StatementQuery:
    """Entries of ``key`` with ``start`` ≤ time < ``end`` in Unix milliseconds, from (height, index) on."""

    key: bytes
    start: int = 0
    end: int = MAX_INTEGER
    begin: tuple[int, int] = BEGINNING
    limit: int


@frozen
class StatementPage:
    """Entries in order; ``next`` is where the next page begins, None at the end; ``balance`` is that after ``tip``."""

    tip: ChainPoint
    balance: int
    entries: tuple[Entry, ...]
    next: tuple[int, int] | None


def read_statement(reader: ChainReader, params: NetworkParams, query: StatementQuery) -> StatementPage:
    """A page; inside a snapshot, in a thread. It may have fewer entries than ``query.limit`` before the end.

    Raises Pruned if it would begin below the blocks that are here.
    """
    return _Reading(reader, params, query, reader.existing_tip()).page()


@frozen
class _Reading:
    reader: ChainReader
    params: NetworkParams
    query: StatementQuery
    tip: ChainPoint

    def page(self) -> StatementPage:
        query = self.query
        begin = max(query.begin, (self._height_at(query.start), 0))
        first = begin[0]
        end = self._height_at(query.end) - 1
        last = min(end, first + BLOCKS_LOOKED_AT - 1)
        account = self.reader.account(query.key) or Account()
        if first > end:
            return StatementPage(self.tip, account.balance, (), None)
        self._check_kept(first)
        transfers = self.reader.of_address(query.key, after=(first, begin[1] - 1))
        ours = (each for each in transfers if query.key in (each.recipient, each.sender))
        by_place = {each.place: each for each in islice(ours, query.limit + 1) if each.height <= last}
        created = {row for row in self._created(first, last) if row >= begin}
        entries: list[Entry] = []
        summed = 0
        for key in sorted([*by_place, *created]):
            summed += key[1] if key in created else 0
            if len(entries) == query.limit or (entries and summed > FEES_SUMMED):
                return StatementPage(self.tip, account.balance, tuple(entries), key)
            entries.append(self._transfer(by_place[key]) if key in by_place else self._creation(key))
        return StatementPage(self.tip, account.balance, tuple(entries), (last + 1, 0) if last < end else None)

    def _check_kept(self, first: int) -> None:
        prune_height = self.reader.prune_height()
        if first < prune_height:
            began = self._time(min(prune_height, self.tip.height))
            raise Pruned(prune_height, f"a statement from block {first} on", f"give its time, {began}, as from")

    def _height_at(self, time: int) -> int:
        """The height of the first block at ``time`` or later; one above the tip if there is none."""
        return bisect_left(range(self.tip.height + 1), time, key=self._time)

    def _time(self, height: int) -> int:
        return self.params.slot_time(self.reader.existing(height).point.slot)

    def _created(self, first: int, last: int) -> list[tuple[int, int]]:
        """Height and number of transfers of the blocks that have created coins of the account."""
        hashes: dict[bytes, bytes] = {}
        found = [(0, 0)] if first == 0 and self.query.key in genesis_accounts(self.params) else []
        for height, key, count in self.reader.producers(max(first, 1), last):
            producer = hashes.get(key)
            if producer is None:
                producer = hashes[key] = key_hash(key)
            if producer == self.query.key:
                found.append((height, count))
        return found

    def _creation(self, place: tuple[int, int]) -> Entry:
        height, index = place
        time = self._time(height)
        if height == 0:
            amount = genesis_accounts(self.params)[self.query.key].balance
            return Entry(type=EntryType.ALLOCATION, height=height, index=index, time=time, amount=amount)
        amount = self.params.reward(height) + self.reader.fees_in(height)
        return Entry(type=EntryType.REWARD, height=height, index=index, time=time, amount=amount)

    def _transfer(self, place: PlacedTransfer) -> Entry:
        transfer, key = parse_canonical_transfer(place.body, self.params), self.query.key
        sent, received = transfer.sender == key, transfer.recipient == key
        other = transfer.recipient if sent else transfer.sender
        return Entry(
            type=EntryType.SELF if sent and received else EntryType.SENT if sent else EntryType.RECEIVED,
            height=place.height,
            index=place.position,
            time=self.params.slot_time(place.slot),
            amount=transfer.amount,
            fee=transfer.fee if sent else 0,
            txid=transfer.txid,
            counterparty=encode_address(other, self.params.address_prefix),
            reference=transfer.reference,
        )
