"""The SQL statements of the chain, behind methods named by intention (docs/operations.md "Storage")."""

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
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
from svcd.limits import LONG_LISTS, limit
from svcd.store import database
from svcd.store.account_table import AccountReader, AccountWriter
from svcd.store.pruned import Pruned
from svcd.store.undo_records import pack, unpack

_PRUNE_HEIGHT: Final = "(SELECT height FROM prune WHERE row = 1)"
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
    body: bytes
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


def stored_transfer(row: Sequence[Any]) -> StoredTransfer:
    """A transfer from the columns position, body and POINT."""
    return StoredTransfer(chain_point(row[2:]), row[0], row[1])


TRANSFERS_OF: Final = "BETWEEN ({block} << 16) AND ({block} << 16) + 65535"
"""The ids in block_transaction of the transfers of a block."""
_OF_CANONICAL: Final = f"x.id {TRANSFERS_OF.format(block='c.block')}"
_JOINED: Final = (
    "JOIN canonical c ON c.height = p.height JOIN block b ON b.id = c.block "
    "JOIN block_transaction x ON x.id = (c.block << 16) + p.position"
)

_STORED: Final = f"SELECT b.id, b.parent, b.header, {POINT}"
_CANONICAL: Final = f"{_STORED} FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_WORK: Final = "SELECT b.work FROM canonical c JOIN block b ON b.id = c.block WHERE c.height = ?"
_TRANSACTION: Final = (
    f"SELECT t.position, x.body, {POINT} FROM transaction_place t "
    "JOIN canonical c ON c.height = t.height JOIN block b ON b.id = c.block "
    "JOIN block_transaction x ON x.id = (c.block << 16) + t.position "
    f"WHERE t.txid = ? AND t.height >= {_PRUNE_HEIGHT}"
)
_HAS_TRANSACTION: Final = "SELECT 1 FROM transaction_place WHERE txid = ?"
_PAID: Final = "p.amount, p.position, x.body, b.hash, b.height, b.slot"
"""The columns of a PaidTransfer."""
PAYMENTS: Final = (
    f"SELECT {_PAID} FROM payment_place p {_JOINED} "
    f"WHERE p.reference = ? AND p.recipient = ? AND p.amount = ? AND p.height >= max(?, {_PRUNE_HEIGHT}) "
    "ORDER BY p.height, p.position LIMIT ?"
)
OF_PAYEE: Final = (
    f"SELECT {_PAID} FROM payment_place p LEFT {_JOINED.replace(' JOIN', ' LEFT JOIN')} "
    f"WHERE p.reference = ? AND p.recipient = ? AND p.height >= {_PRUNE_HEIGHT} "
    "ORDER BY p.amount, p.height, p.position LIMIT ?"
)
"""With LEFT JOIN, SQLite begins with the index, and LIMIT counts the rows that it finds there."""
_BESIDE_AMOUNT: Final = (
    f"SELECT {_PAID} FROM (SELECT amount, height, position FROM ("
    "SELECT amount, height, position FROM payment_place WHERE reference = ? AND recipient = ? AND amount {side} ? "
    "ORDER BY amount {order} LIMIT ?) "
    f"WHERE height >= max(?, {_PRUNE_HEIGHT}) "
    "ORDER BY amount {order} LIMIT ?) p " + _JOINED
)
BELOW_AMOUNT: Final = _BESIDE_AMOUNT.format(side="<", order="DESC")
ABOVE_AMOUNT: Final = _BESIDE_AMOUNT.format(side=">", order="ASC")
UNDER_REFERENCE: Final = (
    f"SELECT p.position, x.body, {POINT} FROM payment_place p {_JOINED} "
    f"WHERE p.reference = ? AND p.height >= {_PRUNE_HEIGHT} "
    "ORDER BY p.recipient, p.amount, p.height, p.position LIMIT ?"
)
PRODUCERS: Final = (
    "SELECT c.height, json_extract(CAST(b.header AS TEXT), '$.producerPublicKey'), "
    "json_extract(CAST(b.header AS TEXT), '$.transactionCount') "
    "FROM canonical c JOIN block b ON b.id = c.block WHERE c.height BETWEEN ? AND ? ORDER BY c.height"
)
FEES_IN: Final = (
    "SELECT ifnull(sum(CAST(json_extract(CAST(x.body AS TEXT), '$.fee') AS INTEGER)), 0) "
    f"FROM canonical c JOIN block_transaction x ON {_OF_CANONICAL} WHERE c.height = ?"
)
NEWEST_FEES: Final = (
    "SELECT json_extract(CAST(x.body AS TEXT), '$.fee') "
    f"FROM canonical c JOIN block_transaction x ON {_OF_CANONICAL} "
    "WHERE c.height > (SELECT max(height) FROM canonical) - ?"
)
"""In SQLite, so that the interpreter is free for other threads meanwhile."""
FIGURES: Final = (
    "SELECT ifnull(sum(length(x.body)), 0), "
    "json_group_array(CAST(json_extract(CAST(x.body AS TEXT), '$.fee') AS INTEGER)) "
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
_PLACED: Final = (
    f"SELECT a.position, x.body, {POINT} FROM address_place a JOIN canonical c ON c.height = a.height "
    "JOIN block b ON b.id = c.block JOIN block_transaction x ON x.id = (c.block << 16) + a.position "
    f"WHERE a.key = ? AND a.height >= {_PRUNE_HEIGHT} "
    "AND (a.height, a.position) {side} (?, ?) ORDER BY a.height {order}, a.position {order} LIMIT ?"
)
BEFORE_PLACE: Final = _PLACED.format(side="<", order="DESC")
AFTER_PLACE: Final = _PLACED.format(side=">", order="ASC")
RECEIVED_MORE: Final = "SELECT 1 FROM payment_place WHERE reference = ? AND recipient = ? LIMIT 1 OFFSET ?"
RECEIVED: Final = (
    f"SELECT p.position, x.body, {POINT} FROM (SELECT height, position FROM payment_place WHERE reference = ? "
    f"AND recipient = ? AND height >= {_PRUNE_HEIGHT} AND (height, position) > (?, ?) "
    f"ORDER BY height, position LIMIT ?) p {_JOINED} ORDER BY p.height, p.position"
)
MAX_SCANNED: Final = limit(1_000, "transfers that a page of payments looks at", "transfers", LONG_LISTS)
"""How many transfers of wrong amounts are scanned, below and above, however many there are."""

_TRANSACTIONS: Final = b',"transactions":[]'
"""The bytes around the transfers of a block that its header does not have."""
MAX_TOGETHER: Final = 10
"""Up to so many transfers to a payee are all read with one statement."""
_PAGES_OF_A_BLOCK: Final = 64


class ChainReader(AccountReader):
    """Queries of the committed chain; each is one statement, and so consistent in itself, unless it says otherwise."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A context in which all queries see the same commit."""
        return database.snapshot(self._db)

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
                for height in range(max(block.point.height - params.blocks_between, 0) + 1, block.point.height + 1)
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
        bodies = [body for (body,) in rows]
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

    def transaction(self, txid: bytes) -> StoredTransfer | None:
        """A canonical transfer by its id."""
        row = self._db.execute(_TRANSACTION, (txid,)).fetchone()
        return None if row is None else stored_transfer(row)

    def has_transaction(self, txid: bytes) -> bool:
        """Whether there is a canonical transfer with this id; reads one index, and not the transfer."""
        return self._db.execute(_HAS_TRANSACTION, (txid,)).fetchone() is not None

    def address_transactions(self, key: bytes, *, before: tuple[int, int], limit: int) -> list[StoredTransfer]:
        """The newest canonical transfers from or to ``key`` before (height, position), newest first."""
        return [stored_transfer(row) for row in self._db.execute(BEFORE_PLACE, (key, *before, limit))]

    def address_transactions_after(self, key: bytes, after: tuple[int, int], *, limit: int) -> list[StoredTransfer]:
        """The oldest canonical transfers from or to ``key`` after (height, position), oldest first."""
        return [stored_transfer(row) for row in self._db.execute(AFTER_PLACE, (key, *after, limit))]

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
        ((size, fees),) = self._db.execute(FIGURES, (block.id,)).fetchall()
        self._check_block(block)
        ordered = array("q", sorted(json.loads(fees)))
        return BlockFigures(len(block.header) + len(_TRANSACTIONS) + size + max(len(ordered) - 1, 0), ordered)

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

    # Payments: their time does not grow with the chain (docs/operations.md)

    def around(
        self, payee: tuple[str, bytes], amount: int, *, since: int, counted: int, missed: int
    ) -> tuple[list[PaidTransfer], list[PaidTransfer]]:
        """The results of :meth:`payments` with the limit ``counted`` and :meth:`near_misses` with the limit ``missed``.

        In one statement in place of three if there are few transfers, as for most orders. Raises Corrupt.
        """
        rows = self._db.execute(OF_PAYEE, (*payee, MAX_TOGETHER + 1)).fetchall()
        if len(rows) > MAX_TOGETHER:
            return (
                self.payments(payee, amount, since=since, limit=counted),
                self.near_misses(payee, amount, since=since, limit=missed),
            )
        paid = [PaidTransfer._make(row) for row in rows]
        return _split_by_amount(paid, amount, since=since, counted=counted, missed=missed)

    def payments(self, payee: tuple[str, bytes], amount: int, *, since: int, limit: int) -> list[PaidTransfer]:
        """The transfers to ``payee`` (reference and key hash) of exactly ``amount``, oldest first.

        Only those at height ``since`` and above.
        """
        rows = self._db.execute(PAYMENTS, (*payee, amount, since, limit))
        return [PaidTransfer._make(row) for row in rows]

    def near_misses(self, payee: tuple[str, bytes], amount: int, *, since: int, limit: int) -> list[PaidTransfer]:
        """The transfers to ``payee`` of the nearest other amounts, at most ``limit`` below and ``limit`` above."""
        return [
            PaidTransfer._make(row)
            for statement in (BELOW_AMOUNT, ABOVE_AMOUNT)
            for row in self._db.execute(statement, (*payee, amount, MAX_SCANNED, since, limit))
        ]

    def has_received_few(self, payee: tuple[str, bytes]) -> bool:
        """Whether so few transfers to ``payee`` are on the chain that :meth:`received` may sort them."""
        return self._db.execute(RECEIVED_MORE, (*payee, MAX_SCANNED)).fetchone() is None

    def received(self, payee: tuple[str, bytes], after: tuple[int, int], *, limit: int) -> list[StoredTransfer]:
        """The oldest transfers to ``payee`` of any amount after (height, position), oldest first; sorts them all."""
        return [stored_transfer(row) for row in self._db.execute(RECEIVED, (*payee, *after, limit))]

    def under_reference(self, reference: str, *, limit: int) -> list[StoredTransfer]:
        """Transfers to any recipient under ``reference``, by recipient, amount and age."""
        return [stored_transfer(row) for row in self._db.execute(UNDER_REFERENCE, (reference, limit))]


def _check_hash(block: StoredBlock, found: bytes) -> None:
    """Raise Corrupt if the stored header of ``block`` has another hash; the genesis has one by definition."""
    if found != block.point.hash and block.point.height:
        raise Corrupt(f"the stored block at height {block.point.height} does not have its own hash")


def _split_by_amount(
    places: Iterable[PaidTransfer], amount: int, *, since: int, counted: int, missed: int
) -> tuple[list[PaidTransfer], list[PaidTransfer]]:
    """The payments of ``amount``, and the nearest others, from the transfers of OF_PAYEE; raises Corrupt."""
    less: list[PaidTransfer] = []
    exact: list[PaidTransfer] = []
    more: list[PaidTransfer] = []
    for place in places:
        if place.body is None:
            raise Corrupt("a transfer that the index of payments names is missing")
        if place.height >= since:
            (exact if place.amount == amount else less if place.amount < amount else more).append(place)
    return exact[:counted], less[-missed:] + more[:missed]


class ChainWriter(ChainReader):
    """Changes to the chain; only the writer thread calls them, inside :meth:`commit`."""

    def undo(self, block: StoredBlock) -> dict[bytes, Account | None]:
        """The accounts that a canonical block touched as they were before it, None for those that did not exist.

        Raises Pruned.
        """
        row = self._db.execute("SELECT data FROM undo WHERE block = ?", (block.id,)).fetchone()
        self._check_block(block)
        if row is None:
            raise Corrupt(f"the undo record of the canonical block at height {block.point.height} is missing")
        return unpack(row[0])

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

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
        if block.transfers:
            database.insert(
                self._db,
                "block_transaction",
                [((number << 16) + position, transfer.wire) for position, transfer in enumerate(block.transfers)],
            )
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

    def write_accounts(self, accounts: Mapping[bytes, Account | None], *, count: int) -> None:
        """Set accounts, None for one that a block had created; ``count`` exist then."""
        AccountWriter(self._db).write(accounts, count=count)

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
        self._db.execute("INSERT INTO undo VALUES (?, ?)", (block.id, pack(undo)))
        rows = [(height, level, node) for level, node in enumerate(history) if level]
        self._db.executemany("INSERT INTO history VALUES (?, ?, ?)", rows)
        if not transfers:
            return
        places = [(transfer.txid, height, position) for position, transfer in enumerate(transfers)]
        database.insert(self._db, "transaction_place", sorted(places))
        database.insert(self._db, "address_place", sorted(_address_places(transfers, height)))
        database.insert(self._db, "payment_place", _payment_places(transfers, height))

    def disconnect_block(self, block: StoredBlock, transfers: Sequence[Transfer]) -> dict[bytes, Account | None]:
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
        self._delete_places(transfers, height)
        return before

    def _delete_places(self, transfers: Sequence[Transfer], height: int, first: int = 0) -> None:
        """Remove from the indexes transfers of the block at ``height``, the first of which is at position ``first``."""
        self._db.executemany("DELETE FROM transaction_place WHERE txid = ?", sorted((t.txid,) for t in transfers))
        self._db.executemany(
            "DELETE FROM address_place WHERE key = ? AND height = ? AND position = ?",
            sorted(_address_places(transfers, height, first)),
        )
        self._db.executemany(
            "DELETE FROM payment_place WHERE reference = ? AND recipient = ? AND amount = ? AND height = ? "
            "AND position = ?",
            sorted(_payment_places(transfers, height, first)),
        )

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


def _address_places(transfers: Sequence[Transfer], height: int, first: int = 0) -> list[tuple[bytes, int, int]]:
    places = [(transfer.sender, height, position) for position, transfer in enumerate(transfers, first)]
    places += [
        (transfer.recipient, height, position)
        for position, transfer in enumerate(transfers, first)
        if transfer.recipient != transfer.sender
    ]
    return places


def _payment_places(transfers: Sequence[Transfer], height: int, first: int = 0) -> list[tuple[object, ...]]:
    return [
        (transfer.reference, transfer.recipient, transfer.amount, height, position)
        for position, transfer in enumerate(transfers, first)
        if transfer.reference is not None
    ]
