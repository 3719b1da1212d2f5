"""The SQL statements of the chain, behind methods named by intention (docs/storage.md)."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from itertools import islice
from typing import Any, Final, NamedTuple

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import key_hash
from svcd.chain.block import Block, Header, block_wire, header_hash, parse_header
from svcd.chain.errors import Corrupt
from svcd.chain.history import History, Node, mountain_levels
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.chain.transition import ChainHead, ChainPoint, head_after, history_leaf
from svcd.limits import LONG_LISTS, LOOK_ALIKES, limit
from svcd.store import database
from svcd.store.account_runs import ACCOUNTS, AccountReader, write_accounts
from svcd.store.checked_producers import CheckedProducers
from svcd.store.database import DatabaseConnection, DatabaseCursor
from svcd.store.packed_transfer import FEE, pack_transfer, payment_of, txid_of_stored, unpack_transfer
from svcd.store.pruned import Pruned
from svcd.store.side_blocks import CONDEMNED_AT_ONCE, DELETE_TRANSFERS, SideBlocks, packed_work
from svcd.store.sorted_runs import NEWEST_FIRST, OLDEST_FIRST, SortedRuns, merge_some
from svcd.store.transfer_index import (
    TRANSFERS,
    address_key,
    payment_key,
    place_of,
    reference_key,
    rows_of,
    txid_key,
)
from svcd.store.undo_records import pack, unpack

_Payee = tuple[str, bytes]
"""Reference and recipient's key hash."""
_MAX_HEIGHT: Final = 1 << 46
_LAST_PLACE: Final = place_of(_MAX_HEIGHT, 0)
_LEAST_SWEPT: Final = 256
"""Deleted rows of the index that are removed with any block."""
POINT: Final = "b.hash, b.height, b.slot, b.clock, b.work, b.issued"
"""The columns of a block, named b, that :func:`chain_point` reads."""


@frozen
class StoredBlock:
    """The row of a block; its transfers have rows of their own."""

    id: int
    parent: bytes
    point: ChainPoint
    header: bytes


class PlacedTransfer(NamedTuple):
    """A canonical transfer that the index has: its place, its parties, and what is reported of its block.

    A tuple, which is made in a tenth of the time of an instance of a frozen class.
    """

    amount: int
    """Base units."""
    position: int
    stored: bytes
    """What is stored of it (svcd.store.packed_transfer)."""
    block_hash: bytes
    height: int
    slot: int
    """Of the block."""
    recipient: bytes
    """The 20-byte key hash."""
    sender: bytes
    """The same of the sender."""
    reference: str | None

    @property
    def place(self) -> tuple[int, int]:
        """Height and position."""
        return self.height, self.position

    @property
    def body(self) -> bytes:
        """The canonical JSON."""
        return unpack_transfer(self.stored)


@frozen
class BlockFigures:
    """How large a block is, and what its transfers pay."""

    size: int
    """Bytes of the canonical JSON of the block."""
    fees: "array[int]"
    """The fees in base units, ascending."""


def stored_block(row: Sequence[object]) -> StoredBlock:
    """A block from the columns id, parent, header and POINT."""
    number, parent, header, *point = row
    return StoredBlock(number, parent, chain_point(point), header)  # type: ignore[arg-type]


def chain_point(row: Sequence[Any]) -> ChainPoint:
    """The chain variables after a block from the columns POINT."""
    block_hash, height, slot, clock, work, issued = row
    return ChainPoint(
        hash=block_hash,
        height=height,
        slot=slot,
        difficulty_clock=clock,
        work=int.from_bytes(work, "big"),
        issued=issued,
    )


def locator_heights(height: int) -> list[int]:
    """The heights at which a locator has hashes: ``height``, 1, 2, 4, 8 … below it, and 0, the genesis.

    From the hashes another node finds the last common block, or one not much further below than that.
    """
    heights, step = [height], 1
    while heights[-1] > 0:
        heights.append(max(height - step, 0))
        step *= 2
    return heights


TRANSFERS_OF: Final = "BETWEEN ({block} << 16) AND ({block} << 16) + 65535"
"""The ids in block_transaction of the transfers of a block."""
_OF_CANONICAL: Final = f"x.id {TRANSFERS_OF.format(block='c.block')}"
_STORED: Final = f"SELECT b.id, b.parent, b.header, {POINT}"
_CANONICAL: Final = f"{_STORED} FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_WORK: Final = "SELECT b.work FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_PLACED: Final = (
    "LEFT JOIN canonical c ON c.height = p.place >> 16 LEFT JOIN block b ON b.id = c.block "
    "LEFT JOIN block_transaction x ON x.id = (c.block << 16) + (p.place & 65535)"
)
"""What the index has and the blocks do not is damage."""
_INDEXED: Final = (
    f"SELECT p.place, x.body, b.hash, b.slot FROM {TRANSFERS.source} "
    "AND r.last >= ?2 >> 16 AND r.first <= ?3 >> 16 AND p.key = ?1 "
    f"AND p.place BETWEEN max(?2, r.first << 16) AND min(?3, (r.last << 16) + 65535) {_PLACED} "
)
"""Of a key and the places between two. In the order of the chain no row is read that is not given, and none is sorted
(svcd/store/sorted_runs.py)."""
OLDEST: Final = f"{_INDEXED} ORDER BY {OLDEST_FIRST}, p.place"
_NEWEST: Final = f"{_INDEXED} ORDER BY {NEWEST_FIRST}, p.place DESC"
PRODUCED: Final = (
    "b.height, json_extract(CAST(b.header AS TEXT), '$.producerPublicKey'), "
    "json_extract(CAST(b.header AS TEXT), '$.transactionCount')"
)
"""Height, producer's public key and number of transfers of a block."""
PRODUCERS: Final = (
    f"SELECT {PRODUCED} FROM canonical c JOIN block b ON b.id = c.block "
    "WHERE c.height BETWEEN ? AND ? ORDER BY c.height"
)
_FEE: Final = FEE.format(body="x.body")
FEES_IN: Final = (
    f"SELECT ifnull(sum({_FEE}), 0) FROM canonical c JOIN block_transaction x ON {_OF_CANONICAL} WHERE c.height = ?"
)
FIGURES: Final = (
    f"SELECT json_group_array({_FEE}), (SELECT size FROM block WHERE id = ?1) "
    f"FROM block_transaction x WHERE x.id {TRANSFERS_OF.format(block='?1')}"
)
REPLACED_BLOCKS: Final = f"""
    WITH RECURSIVE side (id) AS (
        SELECT b.id FROM canonical c JOIN block p ON p.id = c.block JOIN block b ON b.parent = p.hash
        WHERE c.height >= ?1 AND NOT EXISTS (SELECT 1 FROM canonical k WHERE k.height = b.height AND k.block = b.id)
        UNION ALL SELECT b.id FROM side JOIN block p ON p.id = side.id JOIN block b ON b.parent = p.hash LIMIT ?2
    )
    {_STORED} FROM side JOIN block b ON b.id = side.id ORDER BY b.height DESC, b.id DESC LIMIT ?3"""
"""By the parents, since there is no index of blocks by height."""
MAX_SCANNED: Final = limit(200, "transfers that a page of payments looks at", "transfers", LONG_LISTS)
"""Some of them may be to others."""
MAX_COMPARED: Final = limit(
    100, "transfers under a reference among which a verification finds mismatches", "transfers", LOOK_ALIKES
)
"""The oldest ones from the order's height on."""

_PAGES_OF_A_BLOCK: Final = 64
_ENTRIES_OF_A_TRANSFER: Final = 5
"""At most."""


class ChainReader(AccountReader):
    """Queries of the committed chain; each sees one commit unless it says otherwise."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A context in which all queries see the same commit."""
        return database.snapshot(self._db)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def tip(self) -> ChainPoint | None:
        """The chain variables after the newest canonical block, or None in an empty database."""
        row = self._db.execute(
            f"SELECT {POINT} FROM canonical c JOIN block b ON b.id = c.block ORDER BY c.height DESC LIMIT 1"
        ).fetchone()
        return None if row is None else chain_point(row)

    def existing_tip(self) -> ChainPoint:
        """The same in a database that must have a chain; raises Corrupt."""
        tip = self.tip()
        if tip is None:
            raise Corrupt("the database has no chain in it")
        return tip

    def prune_height(self) -> int:
        """The lowest height from which on all blocks are here whole, and not their headers only; 0 if all are."""
        return int(self._db.execute("SELECT height FROM prune WHERE row = 1").fetchone()[0])

    def proven_work(self) -> int:
        """The cumulative work that headers had shown when the chain began from a snapshot; 0 if it did not."""
        return int.from_bytes(self._db.execute("SELECT proven_work FROM prune WHERE row = 1").fetchone()[0], "big")

    def check_kept(self, height: int, asked: str, advice: str = "ask for those") -> None:
        """Raise Pruned, with ``asked`` and ``advice`` in its sentence, if the block at ``height`` is not here whole.

        Outside a snapshot this must come after the read that it is for: blocks may be deleted in between.
        """
        prune_height = self.prune_height()
        if height < prune_height:
            raise Pruned(prune_height, asked, advice)

    def point(self, block_hash: bytes) -> ChainPoint | None:
        """The chain variables after any stored block, canonical or not."""
        row = self._db.execute(f"SELECT {POINT} FROM block b WHERE b.hash = ?", (block_hash,)).fetchone()
        return None if row is None else chain_point(row)

    def head(
        self,
        block: StoredBlock,
        params: NetworkParams,
        known: Callable[[bytes], ChainHead | None] = lambda _: None,
    ) -> ChainHead:
        """Any stored block as the block to build on; raises Corrupt.

        Of a side block all headers of its branch are read, or those after the last one that is ``known``.
        """
        branch: list[Header] = []
        while not self.is_canonical(block):
            if (head := known(block.point.hash)) is not None:
                return self._head_after(params, head, branch)
            branch.append(self.block_header(block, params))
            parent = self.stored(block.parent)
            if parent is None:
                raise Corrupt(f"the parent of the stored block {block.point.hash.hex()} is missing")
            block = parent
        producers = tuple(
            [
                key_hash(self.block_header(self.existing(height), params).producer_key)
                for height in range(max(block.point.height - params.most_blocks_between, 0) + 1, block.point.height + 1)
            ]
        )
        head = ChainHead(point=block.point, history=self._history(block.point), producers=producers)
        return self._head_after(params, head, branch)

    @staticmethod
    def _head_after(params: NetworkParams, head: ChainHead, newest_first: Sequence[Header]) -> ChainHead:
        for header in reversed(newest_first):
            head = head_after(params, head, header)
        return head

    def _history(self, point: ChainPoint) -> History:
        """The history tree over the canonical blocks up to ``point``."""
        blocks, first = point.height + 1, 0
        mountains: list[Node] = []
        for level in mountain_levels(blocks):
            mountains.append(self.history_node(first, level))
            first += 1 << level
        return History(blocks, tuple(mountains))

    def history_node(self, first: int, level: int) -> Node:
        """The node of the history tree over the 2^``level`` canonical blocks from height ``first`` on; raises Corrupt.

        ``first`` is a multiple of 2^``level``.
        """
        last = first + (1 << level) - 1
        if not level:
            point = self.existing(last).point
            return history_leaf(point, work=point.work - (self.cumulative_work(last - 1) if last else 0))
        row = self._db.execute("SELECT node FROM history WHERE height = ? AND level = ?", (last, level)).fetchone()
        if row is None:
            raise Corrupt(f"the node of level {level} of the history at height {last} is missing")
        node: Node = row[0]
        return node

    def cumulative_work(self, height: int) -> int:
        """The work of the canonical chain up to the block at ``height``; raises Corrupt if there is none."""
        row = self._db.execute(_WORK, (height,)).fetchone()
        if row is None:
            raise Corrupt(f"the canonical block at height {height} is missing")
        return int.from_bytes(row[0], "big")

    def stored(self, block_hash: bytes) -> StoredBlock | None:
        """Any stored block, canonical or not."""
        row = self._db.execute(f"{_STORED} FROM block b WHERE b.hash = ?", (block_hash,)).fetchone()
        return None if row is None else stored_block(row)

    def canonical(self, height: int) -> StoredBlock | None:
        """The canonical block at ``height``."""
        row = self._db.execute(_CANONICAL, (height,)).fetchone()
        return None if row is None else stored_block(row)

    def existing(self, height: int) -> StoredBlock:
        """The same at a height that the chain must have; raises Corrupt."""
        stored = self.canonical(height)
        if stored is None:
            raise Corrupt(f"the canonical block at height {height} is missing")
        return stored

    def headers(self, first: int, *, limit: int) -> list[bytes]:
        """The canonical JSON of the headers of canonical blocks from height ``first`` on."""
        rows = self._db.execute(
            "SELECT b.header FROM canonical c JOIN block b ON b.id = c.block WHERE c.height >= ? "
            "ORDER BY c.height LIMIT ?",
            (first, limit),
        )
        return [header for (header,) in rows]

    def hashes_at(self, heights: Iterable[int]) -> list[bytes]:
        """The hashes of the canonical blocks at ``heights``, in this order, without the heights that have none."""
        hash_at = "SELECT b.hash FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
        return [block_hash for height in heights for (block_hash,) in self._db.execute(hash_at, (height,))]

    def last_common(self, hashes: Iterable[bytes]) -> int:
        """The height of the first of ``hashes`` that is a canonical block; 0, the genesis, if none is."""
        for block_hash in hashes:
            row = self._db.execute(
                "SELECT c.height FROM block b JOIN canonical c ON c.height = b.height AND c.block = b.id "
                "WHERE b.hash = ?",
                (block_hash,),
            ).fetchone()
            if row is not None:
                return int(row[0])
        return 0

    def is_canonical(self, block: StoredBlock) -> bool:
        """Whether ``block`` is part of the canonical chain."""
        row = self._db.execute(
            "SELECT 1 FROM canonical WHERE height = ? AND block = ?", (block.point.height, block.id)
        ).fetchone()
        return row is not None

    def bodies(self, block: StoredBlock) -> list[bytes]:
        """The canonical JSON of a block's transfers, in order; raises Pruned."""
        return self.some_bodies(block, first=0, limit=1 << 16)

    def _check_block(self, block: StoredBlock) -> None:
        self.check_kept(block.point.height, f"block {block.point.height}")

    def some_bodies(self, block: StoredBlock, *, first: int, limit: int) -> list[bytes]:
        """The canonical JSON of a block's transfers from position ``first`` on; raises Pruned."""
        rows = self._db.execute(
            "SELECT body FROM block_transaction WHERE id BETWEEN (?1 << 16) + ?2 AND (?1 << 16) + 65535 "
            "ORDER BY id LIMIT ?3",
            (block.id, min(first, 65_536), limit),
        )
        bodies = [unpack_transfer(stored) for (stored,) in rows]
        self._check_block(block)
        return bodies

    def account_after(self, key: bytes, height: int) -> Account | None:
        """One account as it was after the canonical block at ``height``, which need not be the tip.

        Reads the undo records of the later blocks up to the first one that touched the account; a full block's takes a
        millisecond. For :meth:`svcd.node.open_chain.LongReads.ask`, or within :meth:`snapshot`. Raises Pruned.
        """
        self.check_kept(height + 1, f"the account after block {height}")
        with self.later_undo(height) as later:
            for (data,) in later:
                # Most blocks do not touch it, which a search for its bytes shows in a fraction of the time.
                if key in data and key in (before := unpack(data)):
                    return before[key]
        return self.account(key)

    def later_undo(self, height: int) -> closing[DatabaseCursor]:
        """The packed undo records of the canonical blocks above ``height`` that are here, ascending, each as a row."""
        later = "SELECT u.data FROM canonical c JOIN undo u ON u.block = c.block WHERE c.height > ? ORDER BY c.height"
        return closing(self._db.execute(later, (height,)))

    def transaction(self, txid: bytes, params: NetworkParams) -> PlacedTransfer | None:
        """A canonical transfer by its id; raises Corrupt."""
        key = txid_key(txid)
        for transfer in self._indexed(OLDEST, key):
            found = txid_of_stored(transfer.stored, params)
            if found == txid:
                return transfer
            _check_key(transfer, key, txid_key(found))
        return None

    def has_transaction(self, txid: bytes, params: NetworkParams) -> bool:
        """Whether there is a canonical transfer with this id; reads no transfer if there is none. Raises Corrupt."""
        return self.transaction(txid, params) is not None

    def address_transactions(self, key: bytes, *, before: tuple[int, int], limit: int) -> list[PlacedTransfer]:
        """The newest canonical transfers from or to ``key`` before (height, position), newest first; raises Corrupt."""
        found = self._of_address(_NEWEST, key, last=_in_range(before) - 1)
        return list(islice((each for each in found if key in (each.recipient, each.sender)), limit))

    def of_address(self, address: bytes, *, after: tuple[int, int]) -> Iterator[PlacedTransfer]:
        """The canonical transfers from or to ``address`` after (height, position), oldest first; raises Corrupt.

        Each is read when it is needed. Those of others that have the same key by chance are among them: so who takes
        no more than some of them reads no more than some.
        """
        return self._of_address(OLDEST, address, first=_in_range(after) + 1)

    def _of_address(
        self, query: str, address: bytes, *, first: int = 0, last: int = _LAST_PLACE
    ) -> Iterator[PlacedTransfer]:
        key = address_key(address)
        for transfer in self._indexed(query, key, first=first, last=last):
            if address not in (transfer.recipient, transfer.sender):
                _check_key(transfer, key, address_key(transfer.recipient), address_key(transfer.sender))
            yield transfer

    def _indexed(self, query: str, key: int, *, first: int = 0, last: int = _LAST_PLACE) -> Iterator[PlacedTransfer]:
        """The transfers that the index has under a key, at places from ``first`` to ``last``; raises Corrupt.

        Each is read when it is needed. Others may have the same key by chance.
        """
        with closing(self._db.execute(query, (key, max(first, 0), last))) as rows:
            for place, stored, block_hash, slot in rows:
                if stored is None:
                    raise Corrupt(f"a transfer that the index has at height {place >> 16} is missing")
                recipient, sender, reference, amount = payment_of(stored)
                yield PlacedTransfer(
                    amount, place & 65_535, stored, block_hash, place >> 16, slot, recipient, sender, reference
                )

    def disconnected(self) -> list[tuple[int, bytes]]:
        """Transfers of undone blocks that the mempool's journal may not have yet, in the order of their undoing.

        Row and canonical JSON.
        """
        return self._db.execute("SELECT number, body FROM disconnected_transfer ORDER BY number").fetchall()

    def producers(self, first: int, last: int) -> list[tuple[int, bytes, int]]:
        """Height, producer's public key and number of transfers of the canonical blocks from ``first`` to ``last``."""
        rows = self._db.execute(PRODUCERS, (first, last))
        return [(height, bytes.fromhex(key), count) for height, key, count in rows]

    def fees_in(self, height: int) -> int:
        """The fees of all transfers in a canonical block; milliseconds for a full one. Raises Pruned."""
        ((fees,),) = self._db.execute(FEES_IN, (height,)).fetchall()
        self.check_kept(height, f"the fees in block {height}")
        return int(fees)

    def figures(self, block: StoredBlock) -> BlockFigures:
        """Size and fees of any stored block; a millisecond for a full one, in memory. Raises Pruned."""
        ((fees, size),) = self._db.execute(FIGURES, (block.id,)).fetchall()
        self._check_block(block)
        ordered = array("q", sorted(json.loads(fees)))
        return BlockFigures(size, ordered)

    def replaced_blocks(self, first: int, *, limit: int) -> list[StoredBlock]:
        """Blocks that lost to canonical ones, on branches from canonical blocks at height ``first`` and above.

        The highest first; of many branches, some.
        """
        rows = self._db.execute(REPLACED_BLOCKS, (first, 16 * limit, limit))
        return [stored_block(row) for row in rows]

    def work_and_slots(self, height: int, *, limit: int) -> list[tuple[int, int]]:
        """The cumulative work and the slot of the ``limit`` canonical blocks that end at ``height``, in order."""
        rows = self._db.execute(
            "SELECT b.work, b.slot FROM canonical c JOIN block b ON b.id = c.block "
            "WHERE c.height BETWEEN ? AND ? ORDER BY c.height",
            (height - limit + 1, height),
        )
        return [(int.from_bytes(work, "big"), slot) for work, slot in rows]

    def block_header(self, block: StoredBlock, params: NetworkParams) -> Header:
        """The parsed header of a stored block; raises Corrupt if it does not have the block's hash."""
        header = parse_header(json.loads(block.header), params)
        _check_hash(block, header.hash)
        return header

    def wire(self, block: StoredBlock) -> bytes:
        """The canonical JSON of a stored block; raises Pruned, and Corrupt if the header does not have its hash."""
        try:
            block_hash = header_hash(block.header)
        except ValueError:
            block_hash = b""
        _check_hash(block, block_hash)
        return block_wire(block.header, b",".join(self.bodies(block)))

    def block(self, stored: StoredBlock, params: NetworkParams) -> Block:
        """The parsed block; raises Pruned, and Corrupt if the stored header is damaged."""
        transfers = [parse_canonical_transfer(body, params) for body in self.bodies(stored)]
        return Block(self.block_header(stored, params), tuple(transfers))

    # Payments: their time does not grow with the chain, nor with what is sent besides (docs/storage.md)

    def around(
        self, payee: _Payee, amount: int, *, since: int, counted: int, missed: int
    ) -> tuple[list[PlacedTransfer], list[PlacedTransfer]]:
        """The transfers to ``payee`` of exactly ``amount``, and those of the nearest other amounts; raises Corrupt.

        Of the first, as :meth:`payments` gives them, at most ``counted``. Of the others at most ``missed`` below and
        ``missed`` above, among the oldest MAX_COMPARED transfers under the reference. Only those at height ``since``
        and above. Two statements if there are more than these; while others write, within a transaction only.
        """
        reference, recipient = payee
        exact: list[PlacedTransfer] = []
        others: list[PlacedTransfer] = []
        # An order mostly names a height near which it was made: then only the newest runs are read.
        for compared, transfer in enumerate(self.of_reference(reference, after=(since - 1, 65_535)), 1):
            if transfer.recipient == recipient:
                (exact if transfer.amount == amount else others).append(transfer)
            if compared == MAX_COMPARED:
                exact = self.payments(payee, amount, since=since, limit=counted)
                break
        return exact[:counted], _nearest(others, amount, missed) if others else []

    def payments(self, payee: _Payee, amount: int, *, since: int, limit: int) -> list[PlacedTransfer]:
        """The transfers to ``payee`` (reference and key hash) of exactly ``amount``, oldest first; raises Corrupt.

        Only those at height ``since`` and above; whatever else is under the reference.
        """
        asked, found = (*payee, amount), list[PlacedTransfer]()
        key = payment_key(*asked)
        for transfer in self._indexed(OLDEST, key, first=_in_range((since, 0))):
            there = (transfer.reference or "", transfer.recipient, transfer.amount)
            if there == asked:
                found.append(transfer)
                if len(found) == limit:
                    break
            else:
                _check_key(transfer, key, payment_key(*there))
        return found

    def under_reference(self, reference: str, *, after: tuple[int, int] = (-1, 0), limit: int) -> list[PlacedTransfer]:
        """The oldest transfers to any recipient under ``reference`` after (height, position), oldest first.

        Raises Corrupt.
        """
        return list(islice(self.of_reference(reference, after=after), limit))

    def of_reference(self, reference: str, *, after: tuple[int, int]) -> Iterator[PlacedTransfer]:
        """All of these, each read when it is needed."""
        key = reference_key(reference)
        for transfer in self._indexed(OLDEST, key, first=_in_range(after) + 1):
            if transfer.reference == reference:
                yield transfer
            else:
                _check_key(transfer, key, reference_key(transfer.reference or ""))


def _check_key(transfer: PlacedTransfer, key: int, *keys: int) -> None:
    """Raise Corrupt unless ``key``, under which the index has a transfer, is one of its ``keys``."""
    if key not in keys:
        raise Corrupt(f"the index has a transfer at height {transfer.height} under a key that it does not have")


def _in_range(place: tuple[int, int]) -> int:
    """A place that a client has given, as one number between the places before it and after it."""
    height, position = place
    return place_of(min(max(height, -1), _MAX_HEIGHT), min(max(position, -1), 65_535))


def _nearest(others: Iterable[PlacedTransfer], amount: int, limit: int) -> list[PlacedTransfer]:
    """Of each side of ``amount`` the nearest."""
    ordered = sorted(others)
    less = [paid for paid in ordered if paid.amount < amount]
    return less[-limit:] + ordered[len(less) :][:limit]


def _check_hash(block: StoredBlock, found: bytes) -> None:
    """Raise Corrupt if the stored header of ``block`` has another hash; the genesis has one by definition."""
    if found != block.point.hash and block.point.height:
        raise Corrupt(f"the stored block at height {block.point.height} does not have its own hash")


class ChainWriter(ChainReader):
    """Changes to the chain; only the writer thread calls them, inside :meth:`commit`."""

    def __init__(self, connection: DatabaseConnection) -> None:
        super().__init__(connection)
        self._index = SortedRuns(connection, TRANSFERS)
        self._accounts = SortedRuns(connection, ACCOUNTS)
        self.side_blocks = SideBlocks(connection)
        self.checked_producers = CheckedProducers(connection)

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None]:
        """The accounts that a canonical block touched as they were before it, None for those that did not exist.

        Raises Pruned.
        """
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        self._check_block(block)
        if row is None:
            raise Corrupt(f"the undo record of the canonical block at height {block.point.height} is missing")
        return unpack(row[0])

    def abandon(self) -> None:
        """Roll back a transaction that a failing disk has left open."""
        self._db.execute("ROLLBACK")

    def commit(self) -> AbstractContextManager[None]:
        """One database transaction: all inside is committed together or not at all."""
        return database.transaction(self._db)

    def probe(self) -> None:
        """See whether the disk accepts as much as a small block; raises apsw.Error."""
        database.probe(self._db, _PAGES_OF_A_BLOCK)

    def attempt(self) -> AbstractContextManager[None]:
        """A savepoint: a part of a transaction that is undone on an exception."""
        return database.attempt(self._db)

    def add_block(self, block: Block, point: ChainPoint, *, side_work: int | None = None) -> StoredBlock:
        """Store a block that has passed all checks but those that need the state.

        ``side_work`` is the work by which it is kept if it is not canonical (svcd.store.side_blocks), and None if it is
        about to become canonical.
        """
        text = block.header.wire()
        parent = block.header.parent_hash
        side = None if side_work is None else packed_work(side_work)
        variables = (point.height, point.slot, point.difficulty_clock, packed_work(point.work), point.issued)
        self._db.execute(
            "INSERT INTO block (hash, parent, height, slot, clock, work, issued, header, size, side_work) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (point.hash, parent, *variables, text, block.size, side),
        )
        number = self._db.last_insert_rowid()
        if side_work is not None:
            self.side_blocks.raise_work(parent, side_work)
        packed = map(pack_transfer, [transfer.wire for transfer in block.transfers])
        database.insert(self._db, "block_transaction", list(enumerate(packed, number << 16)))
        return StoredBlock(number, parent, point, text)

    def delete_old_blocks(self, *, below: int, at_most: int) -> bool:
        """Delete at most ``at_most`` blocks, the oldest ones, and none at height ``below`` or above.

        Transfers, undo records and index entries go; headers, history nodes and accounts stay. Side branches that leave
        the chain there are condemned: gives whether there are any. :meth:`SideBlocks.trim` deletes them.
        """
        height = first = self.prune_height()
        deleted = condemned = 0
        while height < min(below, first + at_most):
            block = self.existing(height)
            some = self.side_blocks.condemn_children(block.parent)
            condemned += some
            if some == CONDEMNED_AT_ONCE:
                # There may be more of them, which the next commit condemns.
                break
            self._db.execute(DELETE_TRANSFERS, (block.id,))
            deleted += self._db.changes()
            self._db.execute("DELETE FROM undo WHERE block = ?", (block.id,))
            height += 1
        if height > first:
            self.set_prune_height(height)
        self._index.sweep(_ENTRIES_OF_A_TRANSFER * deleted)
        return condemned > 0

    def set_prune_height(self, height: int) -> None:
        """Note that blocks below ``height`` are not here whole any more, in the commit that deletes them."""
        self._db.execute("UPDATE prune SET height = ?1 WHERE row = 1 AND height < ?1", (height,))
        self._index.forget(below=height)

    def write_accounts(self, accounts: Mapping[bytes, Account | None]) -> None:
        """Set accounts, None for one that a block had created. Goes on with merges."""
        self._merge(write_accounts(self._accounts, accounts))

    def _merge(self, added: int) -> None:
        merge_some((self._index, self._accounts), added)

    def connect_block(
        self,
        block: StoredBlock,
        transfers: Sequence[Transfer],
        *,
        undo: Mapping[bytes, Account | None],
        history: Sequence[Node],
    ) -> None:
        """Make ``block`` the newest canonical one; writes its undo record and the indexes of its transfers.

        ``history`` are the nodes of the history tree that it completes, from its leaf up.
        """
        height = block.point.height
        self._db.execute("INSERT INTO canonical VALUES (?, ?)", (height, block.id))
        self._db.execute("UPDATE block SET side_work = NULL WHERE id = ? AND side_work IS NOT NULL", (block.id,))
        rows = [(height, level, node) for level, node in enumerate(history) if level]
        self._db.executemany("INSERT INTO history VALUES (?, ?, ?)", rows)
        entries = rows_of(transfers, height)
        self._merge(self._index.add(entries, height))
        self._index.sweep(_LEAST_SWEPT + len(entries))
        # After the merges, since it takes the pages that they free: the commit would write these pages anyway.
        self._db.execute("INSERT INTO undo VALUES (?, ?)", (block.id, pack(undo)))

    def disconnect_block(self, block: StoredBlock) -> dict[bytes, Account | None]:
        """Remove the newest canonical block from the chain; gives the accounts as they were before it."""
        height, before = block.point.height, self.undo(block)
        self._db.execute("DELETE FROM canonical WHERE height = ?", (height,))
        self._db.execute(
            "UPDATE block SET side_work = max(work, ifnull("
            "(SELECT max(child.side_work) FROM block child WHERE child.parent = ?1), work)) WHERE hash = ?1",
            (block.point.hash,),
        )
        self._db.execute("DELETE FROM undo WHERE block = ?", (block.id,))
        self._db.execute("DELETE FROM history WHERE height = ?", (height,))
        self._index.forget(above=height - 1)
        return before

    def save_disconnected(self, transfers: Sequence[Transfer]) -> int:
        """Save transfers of undone blocks for the mempool's journal; gives the last row."""
        self._db.executemany(
            "INSERT OR REPLACE INTO disconnected_transfer (txid, body) VALUES (?, ?)",
            [(transfer.txid, transfer.wire) for transfer in transfers],
        )
        (last,) = self._db.execute("SELECT ifnull(max(number), 0) FROM disconnected_transfer").fetchone()
        return int(last)

    def forget_disconnected(self, last: int) -> None:
        """Delete the saved transfers up to row ``last``, which are in the mempool's journal; a commit of its own."""
        with self.commit():
            self._db.execute("DELETE FROM disconnected_transfer WHERE number <= ?", (last,))
