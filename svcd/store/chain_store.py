"""The SQL statements of the chain, behind methods named by intention (docs/storage.md)."""

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from heapq import merge
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import key_hash
from svcd.chain.block import Block, Header, block_wire, header_hash, parse_header
from svcd.chain.errors import Corrupt
from svcd.chain.history import History, Node, mountain_levels
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_canonical_transfer, txid_of
from svcd.chain.transition import ChainHead, ChainPoint, head_after, history_leaf
from svcd.limits import LONG_LISTS, limit
from svcd.store import database
from svcd.store.account_table import AccountReader, AccountWriter
from svcd.store.checked_producers import CheckedProducers
from svcd.store.merge_policy import MergeBudget
from svcd.store.packed_transfer import FEE, pack_transfer, parties_of_stored, payees_of_stored, unpack_transfer
from svcd.store.pruned import Pruned
from svcd.store.transfer_index import (
    ADDRESSES,
    LIVE,
    PAYMENTS,
    TRANSACTIONS,
    TransferIndex,
    TransferIndexWriter,
    by_address,
    by_recipient,
    by_reference,
    by_txid,
    place_of,
    rows_of,
)
from svcd.store.undo_records import pack, unpack

_Payee = tuple[str, bytes]
"""Reference and recipient's key hash."""
_Key = TypeVar("_Key")
_Short = TypeVar("_Short")
_MAX_HEIGHT: Final = 1 << 46
POINT: Final = "b.hash, b.height, b.slot, b.clock, b.work, b.issued"
"""The columns of a block, named b, that :func:`chain_point` reads."""


@frozen
class StoredBlock:
    """The row of a block; its transfers have rows of their own."""

    id: int
    parent: bytes
    point: ChainPoint
    header: bytes


@frozen
class StoredTransfer:
    """A canonical transfer and its place: the block, and the position in it."""

    point: ChainPoint
    position: int
    body: bytes


class PaidTransfer(NamedTuple):
    """A canonical transfer that is found by its payee: its place, and what a payment reports of its block.

    A tuple, which is made of a row in a tenth of the time of a StoredTransfer.
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


def stored_transfer(row: Sequence[Any], body: bytes) -> StoredTransfer:
    """A transfer from the columns position, body and POINT, and what is packed in the second of them."""
    return StoredTransfer(chain_point(row[2:]), row[0], body)


TRANSFERS_OF: Final = "BETWEEN ({block} << 16) AND ({block} << 16) + 65535"
"""The ids in block_transaction of the transfers of a block."""
_OF_CANONICAL: Final = f"x.id {TRANSFERS_OF.format(block='c.block')}"
_STORED: Final = f"SELECT b.id, b.parent, b.header, {POINT}"
_CANONICAL: Final = f"{_STORED} FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_WORK: Final = "SELECT b.work FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_PLACED: Final = (
    "FROM canonical c JOIN block b ON b.id = c.block JOIN block_transaction x ON x.id = (c.block << 16) + (?1 & 65535) "
    "WHERE c.height = ?1 >> 16"
)
_TRANSFER_AT: Final = f"SELECT ?1 & 65535, x.body, {POINT} {_PLACED}"
_PAID_AT: Final = f"SELECT x.body, b.hash, b.height, b.slot {_PLACED}"
"""The columns of a PaidTransfer after its amount and position."""
_PLACED_OR_NULL: Final = (
    "LEFT JOIN canonical c ON c.height = p.place >> 16 LEFT JOIN block b ON b.id = c.block "
    "LEFT JOIN block_transaction x ON x.id = (c.block << 16) + (p.place & 65535)"
)
"""What the index has and the blocks do not is damage."""
_TRANSACTION: Final = (
    f"SELECT p.place & 65535, x.body, {POINT}, p.place FROM {TRANSACTIONS.runs} r CROSS JOIN {TRANSACTIONS.table} p "
    f"ON p.run = r.number AND p.txid = ? AND {LIVE} {_PLACED_OR_NULL}"
)
MAX_TOGETHER: Final = 10
"""Up to so many transfers to a payee are all read with one statement."""
OF_PAYEE: Final = (
    "SELECT p.amount, p.place & 65535, x.body, b.hash, b.height, b.slot, p.place "
    f"FROM {PAYMENTS.runs} r CROSS JOIN {PAYMENTS.table} p "
    "ON r.last >= ?1 >> 16 AND p.run = r.number AND p.reference = ?2 AND p.recipient = ?3 AND p.place >= ?1 "
    f"AND {LIVE} {_PLACED_OR_NULL} LIMIT ?4"
)
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
NEWEST_FEES: Final = (
    f"SELECT {_FEE} FROM canonical c JOIN block_transaction x ON {_OF_CANONICAL} "
    "WHERE c.height > (SELECT max(height) FROM canonical) - ?"
)
"""In SQLite, so that the interpreter is free for other threads meanwhile."""
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
MAX_SCANNED: Final = limit(1_000, "transfers that a page of payments looks at", "transfers", LONG_LISTS)
"""How many transfers of wrong amounts are scanned, below and above, however many there are."""

_PAGES_OF_A_BLOCK: Final = 64


class ChainReader(AccountReader):
    """Queries of the committed chain; each sees one commit unless it says otherwise."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._index = TransferIndex(connection)

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
        millisecond. For :meth:`svcd.node.chainstate.LongReads.ask`, or within :meth:`snapshot`. Raises Pruned.
        """
        self.check_kept(height + 1, f"the account after block {height}")
        with self.later_undo(height) as later:
            for (data,) in later:
                # Most blocks do not touch it, which a search for its bytes shows in a fraction of the time.
                if key in data and key in (before := unpack(data)):
                    return before[key]
        return self.account(key)

    def later_undo(self, height: int) -> closing[sqlite3.Cursor]:
        """The packed undo records of the canonical blocks above ``height`` that are here, ascending, each as a row."""
        later = "SELECT u.data FROM canonical c JOIN undo u ON u.block = c.block WHERE c.height > ? ORDER BY c.height"
        return closing(self._db.execute(later, (height,)))

    def transaction(self, txid: bytes, params: NetworkParams) -> StoredTransfer | None:
        """A canonical transfer by its id; raises Corrupt."""
        for *row, place in self._db.execute(_TRANSACTION, (by_txid(txid),)):
            body = unpack_transfer(_existing(row[1], place))
            if _has_key(place, txid, (txid_of(body, params),), by_txid):
                return stored_transfer(row, body)
        return None

    def has_transaction(self, txid: bytes, params: NetworkParams) -> bool:
        """Whether there is a canonical transfer with this id; reads no transfer if there is none. Raises Corrupt."""
        return self.transaction(txid, params) is not None

    def address_transactions(self, key: bytes, *, before: tuple[int, int], limit: int) -> list[StoredTransfer]:
        """The newest canonical transfers from or to ``key`` before (height, position), newest first; raises Corrupt."""
        with self.snapshot():
            values = by_address(key), _in_range(before)
            rows = self._index.scan(ADDRESSES, "address = ? AND place < ?", values, order="DESC")
            return list(islice(self._stored(rows, key, parties_of_stored, by_address), limit))

    def address_transactions_after(self, key: bytes, after: tuple[int, int], *, limit: int) -> list[StoredTransfer]:
        """The oldest canonical transfers from or to ``key`` after (height, position), oldest first; raises Corrupt."""
        with self.snapshot():
            values = by_address(key), _in_range(after)
            rows = self._index.scan(ADDRESSES, "address = ? AND place > ?", values)
            return list(islice(self._stored(rows, key, parties_of_stored, by_address), limit))

    def _stored(
        self,
        rows: Iterable[tuple[int, ...]],
        key: _Key,
        keys_of: Callable[[bytes], Iterable[_Key]],
        shortened: Callable[[_Key], _Short],
    ) -> Iterator[StoredTransfer]:
        """The transfers of rows of the index that have ``key``; takes no more rows than needed. Raises Corrupt."""
        for *_, place in rows:
            row = self._db.execute(_TRANSFER_AT, (place,)).fetchone()
            stored = _existing(None if row is None else row[1], place)
            if _has_key(place, key, keys_of(stored), shortened):
                yield stored_transfer(row, unpack_transfer(stored))

    def disconnected(self) -> list[tuple[int, bytes]]:
        """Transfers of undone blocks that the mempool's database may not have yet, in the order of their undoing.

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

    def newest_fees(self, blocks: int) -> list[int]:
        """The fees of all transfers in the newest ``blocks`` blocks; milliseconds for full ones."""
        return [int(fee) for (fee,) in self._db.execute(NEWEST_FEES, (blocks,))]

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

    # Payments: their time does not grow with the chain (docs/storage.md)

    def around(
        self, payee: _Payee, amount: int, *, since: int, counted: int, missed: int
    ) -> tuple[list[PaidTransfer], list[PaidTransfer]]:
        """The results of :meth:`payments` with the limit ``counted`` and :meth:`near_misses` with the limit ``missed``.

        In one statement in place of three if there are few transfers, as for most orders. Raises Corrupt.
        """
        # An order mostly names a height near which it was made: then only the newest runs are read.
        rows = self._db.execute(OF_PAYEE, (_in_range((since, 0)), *_shortened(payee), MAX_TOGETHER + 1)).fetchall()
        if len(rows) > MAX_TOGETHER:
            with self.snapshot():
                return (
                    self.payments(payee, amount, since=since, limit=counted),
                    self.near_misses(payee, amount, since=since, limit=missed),
                )
        exact: list[PaidTransfer] = []
        others: list[PaidTransfer] = []
        for *row, place in rows:
            paid = PaidTransfer._make(row)
            if _has_key(place, payee, payees_of_stored(_existing(paid.stored, place)), _shortened):
                (exact if paid.amount == amount else others).append(paid)
        exact.sort(key=_order)
        return exact[:counted], _nearest(others, amount, missed) if others else []

    def _paid(self, rows: Iterable[tuple[int, ...]], payee: _Payee) -> Iterator[PaidTransfer]:
        """Those transfers of rows of PAYMENTS that are to ``payee``; raises Corrupt."""
        for *_, amount, place in rows:
            stored, *block = self._db.execute(_PAID_AT, (place,)).fetchone() or (None,)
            paid = PaidTransfer(amount, place & 65_535, _existing(stored, place), *block)
            if _has_key(place, payee, payees_of_stored(paid.stored), _shortened):
                yield paid

    def payments(self, payee: _Payee, amount: int, *, since: int, limit: int) -> list[PaidTransfer]:
        """The transfers to ``payee`` (reference and key hash) of exactly ``amount``, oldest first; raises Corrupt.

        Only those at height ``since`` and above.
        """
        with self.snapshot():
            values = *_shortened(payee), amount, _in_range((since, 0))
            rows = self._index.scan(PAYMENTS, f"{_OF_PAYEE} AND amount = ? AND place >= ?", values)
            return list(islice(self._paid(rows, payee), limit))

    def near_misses(self, payee: _Payee, amount: int, *, since: int, limit: int) -> list[PaidTransfer]:
        """The transfers to ``payee`` of the nearest other amounts, at most ``limit`` below and ``limit`` above.

        Raises Corrupt.
        """
        found: list[PaidTransfer] = []
        values, begin = (*_shortened(payee), amount), _in_range((since, 0))
        with self.snapshot():
            for side, order in (("<", "DESC"), (">", "ASC")):
                runs = self._index.scan_runs(PAYMENTS, f"{_OF_PAYEE} AND amount {side} ?", values, order=order)
                nearest = islice(merge(*runs, key=_AMOUNT, reverse=order == "DESC"), MAX_SCANNED)
                found += islice(self._paid((row for row in nearest if row[-1] >= begin), payee), limit)
        return found

    def has_received_few(self, payee: _Payee) -> bool:
        """Whether so few transfers to ``payee`` are on the chain that :meth:`received` may sort them."""
        with self.snapshot():
            rows = self._index.scan(PAYMENTS, _OF_PAYEE, _shortened(payee))
            return next(islice(rows, MAX_SCANNED, None), None) is None

    def received(self, payee: _Payee, after: tuple[int, int], *, limit: int) -> list[StoredTransfer]:
        """The oldest transfers to ``payee`` of any amount after (height, position), oldest first; sorts them all.

        Raises Corrupt.
        """
        with self.snapshot():
            values = *_shortened(payee), _in_range(after)
            rows = sorted(self._index.scan(PAYMENTS, f"{_OF_PAYEE} AND place > ?", values), key=lambda row: row[-1])
            return list(islice(self._stored(rows, payee, payees_of_stored, _shortened), limit))

    def under_reference(self, reference: str, *, limit: int) -> list[StoredTransfer]:
        """Transfers to any recipient under ``reference``, the oldest blocks first; raises Corrupt."""
        with self.snapshot():
            rows = self._index.scan(PAYMENTS, "reference = ?", (by_reference(reference),))
            return list(islice(self._stored(rows, reference, _references_of, by_reference), limit))


_OF_PAYEE: Final = "reference = ? AND recipient = ?"
_AMOUNT: Final = itemgetter(2)
_order: Final = attrgetter("height", "position")


def _shortened(payee: _Payee) -> tuple[int, int]:
    reference, recipient = payee
    return by_reference(reference), by_recipient(recipient)


def _references_of(stored: bytes) -> list[str]:
    return [reference for reference, _ in payees_of_stored(stored)]


def _in_range(place: tuple[int, int]) -> int:
    """A place that a client has given, as one number between the places before it and after it."""
    height, position = place
    return place_of(min(max(height, -1), _MAX_HEIGHT), min(max(position, -1), 65_535))


def _existing(stored: bytes | None, place: int) -> bytes:
    """What is stored of a transfer that the index has; raises Corrupt if nothing is."""
    if stored is None:
        raise Corrupt(f"a transfer that the index has at height {place >> 16} is missing")
    return stored


def _has_key(place: int, key: _Key, found: Iterable[_Key], shortened: Callable[[_Key], _Short]) -> bool:
    """Whether ``key`` is one of those ``found`` in a transfer that the index has; raises Corrupt if none is alike."""
    if key in found:
        return True
    if shortened(key) not in map(shortened, found):
        raise Corrupt(f"the index has a transfer at height {place >> 16} under a key that it does not have")
    return False


def _nearest(others: Iterable[PaidTransfer], amount: int, limit: int) -> list[PaidTransfer]:
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

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        budget = MergeBudget()
        self._entries = TransferIndexWriter(connection, budget)
        self._accounts = AccountWriter(connection, budget)
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
        """See whether the disk accepts as much as a small block; raises sqlite3.Error."""
        database.probe(self._db, _PAGES_OF_A_BLOCK)

    def attempt(self) -> AbstractContextManager[None]:
        """A savepoint: a part of a transaction that is undone on an exception."""
        return database.attempt(self._db)

    def add_block(self, block: Block, point: ChainPoint, *, side_work: int | None = None) -> StoredBlock:
        """Store a block that has passed all checks but those that need the state.

        ``side_work`` is the work by which it is kept if it is not canonical (see :meth:`trim_side_blocks`), and None if
        it is about to become canonical.
        """
        text = block.header.wire()
        parent = block.header.parent_hash
        side = None if side_work is None else side_work.to_bytes(32, "big")
        variables = (point.height, point.slot, point.difficulty_clock, point.work.to_bytes(32, "big"), point.issued)
        cursor = self._db.execute(
            "INSERT INTO block (hash, parent, height, slot, clock, work, issued, header, size, side_work) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (point.hash, parent, *variables, text, block.size, side),
        )
        number = cursor.lastrowid or 0
        if side is not None:
            self._raise_side_work(parent, side)
        packed = map(pack_transfer, [transfer.wire for transfer in block.transfers])
        database.insert(self._db, "block_transaction", list(enumerate(packed, number << 16)))
        return StoredBlock(number, parent, point, text)

    def _raise_side_work(self, block_hash: bytes, work: bytes) -> None:
        """Let a side block and its ancestors be kept for at least the work of a descendant."""
        found: tuple[bytes] | None = (block_hash,)
        while found is not None:
            found = self._db.execute(
                "UPDATE block SET side_work = ?2 WHERE hash = ?1 AND side_work < ?2 RETURNING parent", (*found, work)
            ).fetchone()

    def trim_side_blocks(self, *, limit: int, spare: int, at_most: int) -> int | None:
        """Delete side blocks, with their descendants, until ``limit`` bytes are left.

        The branch with the least work goes first, and at most ``at_most`` blocks at a time. Branches with more work
        than ``spare`` stay. Gives the least ``spare`` with which more must go, and None if no more must.
        """
        (excess,) = self._db.execute(
            "SELECT ifnull(sum(size), 0) - ? FROM block WHERE side_work IS NOT NULL", (limit,)
        ).fetchone()
        path: list[tuple[int, bytes]] = []
        while excess > 0 or path:
            if not path:
                least = self._db.execute(
                    "SELECT id, hash FROM block WHERE side_work <= ? ORDER BY side_work LIMIT 1",
                    (spare.to_bytes(32, "big"),),
                ).fetchone()
                if least is None:
                    (kept,) = self._db.execute("SELECT min(side_work) FROM block WHERE side_work NOT NULL").fetchone()
                    return None if kept is None else int.from_bytes(kept, "big")
                path.append(least)
            child = self._db.execute("SELECT id, hash FROM block WHERE parent = ? LIMIT 1", (path[-1][1],)).fetchone()
            if child is not None:
                path.append(child)
            elif not at_most:
                return spare
            else:
                excess -= self._delete(path.pop()[0])
                at_most -= 1
        return None

    def _delete(self, number: int) -> int:
        """Delete a block and its transfers; gives its size."""
        self._db.execute(f"DELETE FROM block_transaction WHERE id {TRANSFERS_OF.format(block='?1')}", (number,))
        (size,) = self._db.execute("DELETE FROM block WHERE id = ? RETURNING size", (number,)).fetchone()
        return int(size)

    def delete_with_descendants(self, block: StoredBlock) -> list[bytes]:
        """Delete a block that is not canonical, and its descendants; gives the hashes of these."""
        gone: list[bytes] = []
        parents = [(block.id, block.point.hash)]
        while parents:
            number, block_hash = parents.pop()
            children = self._db.execute("SELECT id, hash FROM block WHERE parent = ?", (block_hash,)).fetchall()
            gone += [child_hash for _, child_hash in children]
            parents += children
            self._delete(number)
        return gone

    def set_prune_height(self, height: int) -> None:
        """Note that blocks below ``height`` are not here whole any more; in the commit that deletes of them first."""
        self._db.execute("UPDATE prune SET height = ?1 WHERE row = 1 AND height < ?1", (height,))
        self._entries.forget_below(height)

    def write_accounts(self, accounts: Mapping[bytes, Account | None], *, count: int) -> None:
        """Set accounts, None for one that a block had created; ``count`` exist then."""
        self._accounts.write(accounts, count=count)

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
        self._entries.add(height, height, rows_of(transfers, height))
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
        self._entries.forget_from(height)
        return before

    def save_disconnected(self, transfers: Sequence[Transfer]) -> int:
        """Save transfers of undone blocks for the mempool's database; gives the last row."""
        self._db.executemany(
            "INSERT OR REPLACE INTO disconnected_transfer (txid, body) VALUES (?, ?)",
            [(transfer.txid, transfer.wire) for transfer in transfers],
        )
        (last,) = self._db.execute("SELECT ifnull(max(number), 0) FROM disconnected_transfer").fetchone()
        return int(last)

    def forget_disconnected(self, last: int) -> None:
        """Delete the saved transfers up to row ``last``, which are in the mempool's database; a commit of its own."""
        with self.commit():
            self._db.execute("DELETE FROM disconnected_transfer WHERE number <= ?", (last,))
