"""A start from a snapshot that is under way: headers and accounts beside the chain, until they become the chain.

What a commit has written is there after a kill, and the start goes on from it (docs/storage.md).
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import Final

from attrs import frozen

from svcd.chain.accounts import KEY_BITS, Account
from svcd.chain.address import key_hash
from svcd.chain.block import Header, parse_header
from svcd.chain.commitment import Row
from svcd.chain.encoding import parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.history import NODE_SIZE, History, Node, mountain_levels
from svcd.chain.params import NetworkParams
from svcd.chain.snapshot import Manifest, parse_manifest
from svcd.chain.transition import ChainHead, ChainPoint, genesis_head, genesis_point, history_leaf
from svcd.store import database
from svcd.store.chain_store import PRODUCED, chain_point

_POINT: Final = "hash, height, slot, clock, work, issued"
_PRODUCERS: Final = f"SELECT {PRODUCED} FROM snapshot_header b WHERE b.height BETWEEN ? AND ? ORDER BY b.height"
_EVERY_HEADER: Final = (
    # Damage may give a column any type: a cast spares Python a text that is none.
    "SELECT CAST(height AS INTEGER), CAST(hash AS BLOB), CAST(parent AS BLOB), CAST(slot AS INTEGER), "
    "CAST(clock AS INTEGER), CAST(work AS BLOB), CAST(issued AS INTEGER), CAST(header AS BLOB), CAST(history AS BLOB), "
    "CAST(checksum AS BLOB) FROM snapshot_header ORDER BY height"
)
_LEVELS: Final = json.dumps(list(range(1, 64)))
_BODY_BYTES: Final = len(b',"transactions":[]')
_STATE: Final = ("snapshot_progress", "snapshot_chunk", "snapshot_account")
_KEY_BYTES: Final = KEY_BITS // 8
_ACCOUNT_TABLE: Final = (
    "CREATE TABLE snapshot_account (key BLOB PRIMARY KEY, balance INTEGER NOT NULL, nonce INTEGER NOT NULL, "
    "held INTEGER) STRICT, WITHOUT ROWID"
)


def _checksum(
    height: int,
    block_hash: bytes,
    parent: bytes,
    slot: int,
    clock: int,
    work: bytes,
    issued: int,
    header: bytes,
    nodes: bytes,
) -> bytes:
    """What tells whether the disk has damaged a row of a header."""
    numbers = f"{height} {slot} {clock} {issued} ".encode("ascii")
    return sha256(b"".join((numbers, block_hash, parent, work, header, nodes))).digest()[:8]


class StagingDamaged(Exception):
    """What is staged of a start from a snapshot is damaged; it is no part of the chain, and is fetched again."""


@frozen
class StateProgress:
    """How much of the state of a snapshot is here."""

    manifest: Manifest
    missing: tuple[int, ...]
    """The indexes of the chunks that are not here, ascending."""


class SnapshotStaging:
    """The tables of a start from a snapshot, for the writer's thread; each change is a commit of its own."""

    def __init__(self, connection: sqlite3.Connection, params: NetworkParams) -> None:
        self._db = connection
        self._params = params

    # Headers

    def tip(self) -> ChainPoint:
        """The chain variables after the newest header; those of the genesis if there is none."""
        row = self._db.execute(f"SELECT {_POINT} FROM snapshot_header ORDER BY height DESC LIMIT 1").fetchone()
        return genesis_point(self._params) if row is None else chain_point(row)

    def point(self, height: int) -> ChainPoint | None:
        """The chain variables after the block at ``height``; None above the newest header."""
        if not height:
            return genesis_point(self._params)
        row = self._db.execute(f"SELECT {_POINT} FROM snapshot_header WHERE height = ?", (height,)).fetchone()
        return None if row is None else chain_point(row)

    def _existing(self, height: int) -> ChainPoint:
        point = self.point(height)
        if point is None:
            raise StagingDamaged(f"the header at height {height} is missing in the start from a snapshot")
        return point

    def header(self, height: int) -> Header:
        """The header at ``height``, 1 or more; raises StagingDamaged."""
        row = self._db.execute("SELECT header FROM snapshot_header WHERE height = ?", (height,)).fetchone()
        if row is None:
            raise StagingDamaged(f"the header at height {height} is missing in the start from a snapshot")
        try:
            return parse_header(json.loads(row[0]), self._params)
        except (ValueError, RuleViolation) as error:
            raise StagingDamaged(f"the header at height {height} is damaged in the start from a snapshot") from error

    def check_headers(self) -> None:
        """Raise StagingDamaged unless all headers are as they were staged; reads them all, 3 s for half a million."""
        next_height = 1
        with closing(self._db.execute(_EVERY_HEADER)) as rows:
            for *row, checksum in rows:
                if None in row or row[0] != next_height or _checksum(*row) != checksum:
                    raise StagingDamaged(f"the header at height {next_height} is damaged in the start from a snapshot")
                next_height += 1

    def producers(self, first: int, last: int) -> list[tuple[int, bytes, int]]:
        """Height, producer's public key and number of transfers of the blocks from ``first`` to ``last``."""
        rows = self._db.execute(_PRODUCERS, (first, last))
        return [(height, bytes.fromhex(key), count) for height, key, count in rows]

    def head(self, height: int) -> ChainHead:
        """The block at ``height`` as the block to build on; raises StagingDamaged."""
        if not height:
            return genesis_head(self._params)
        first, mountains = 0, list[Node]()
        for level in mountain_levels(height + 1):
            mountains.append(self._history_node(first + (1 << level) - 1, level))
            first += 1 << level
        between = self._params.most_blocks_between
        heights = range(max(height - between, 0) + 1, height + 1) if between else ()
        producers = tuple([key_hash(self.header(each).producer_key) for each in heights])
        point = self._existing(height)
        return ChainHead(point=point, history=History(height + 1, tuple(mountains)), producers=producers)

    def _history_node(self, last: int, level: int) -> Node:
        """The node over the 2^``level`` blocks that end at height ``last``."""
        if not level:
            point = self._existing(last)
            return history_leaf(point, work=point.work - (self._existing(last - 1).work if last else 0))
        row = self._db.execute("SELECT history FROM snapshot_header WHERE height = ?", (last,)).fetchone()
        node = b"" if row is None else row[0][(level - 1) * NODE_SIZE : level * NODE_SIZE]
        if len(node) != NODE_SIZE:
            raise StagingDamaged(f"a node of the history at height {last} is missing in the start from a snapshot")
        return node

    def add_headers(self, parent: ChainHead, headers: Sequence[Header], heads: Sequence[ChainHead]) -> None:
        """Add verified ``headers`` on the block ``parent``, and remove those that were above it before.

        ``heads`` are the same as the blocks to build on. State that belongs to a removed header is forgotten.
        """
        rows = []
        before = parent
        for header, head in zip(headers, heads, strict=True):
            point = head.point
            leaf = history_leaf(point, work=point.work - before.point.work)
            nodes = b"".join(before.history.completed_by(leaf)[1:])
            variables = (point.slot, point.difficulty_clock, point.work.to_bytes(32, "big"), point.issued)
            row = (point.height, point.hash, header.parent_hash, *variables, header.wire(), nodes)
            rows.append((*row, _checksum(*row)))
            before = head
        with database.transaction(self._db):
            self._db.execute("DELETE FROM snapshot_header WHERE height > ?", (parent.point.height,))
            database.insert(self._db, "snapshot_header", rows)
            progress = self.progress()
            if progress is not None:
                left = self.point(progress.manifest.height)
                if left is None or left.hash != progress.manifest.hash:
                    self._delete(_STATE)

    # State

    def progress(self) -> StateProgress | None:
        """How much of the state is here; None if no snapshot has been chosen. Raises StagingDamaged."""
        row = self._db.execute("SELECT manifest FROM snapshot_progress").fetchone()
        if row is None:
            return None
        try:
            manifest = parse_manifest(parse_json(row[0]))
        except RuleViolation as violation:
            raise StagingDamaged("the manifest of the snapshot is damaged") from violation
        done = {number for (number,) in self._db.execute("SELECT number FROM snapshot_chunk")}
        missing = [index for index in range(len(manifest.chunks)) if index not in done]
        return StateProgress(manifest, tuple(missing))

    def begin_state(self, manifest: Manifest) -> None:
        """Begin with the chunks of a snapshot; those of another one are removed."""
        with database.transaction(self._db):
            self._delete(_STATE)
            self._db.execute("INSERT INTO snapshot_progress VALUES (1, ?)", (manifest.wire(),))

    def add_chunk(self, index: int, accounts: Iterable[tuple[bytes, Account]]) -> None:
        """Add the accounts of a chunk that has been checked."""
        rows = [(key, account.balance, account.nonce, account.held_since) for key, account in accounts]
        with database.transaction(self._db):
            database.insert(self._db, "snapshot_account", rows)
            self._db.execute("INSERT INTO snapshot_chunk VALUES (?)", (index,))

    def every_account(self) -> Iterator[Row]:
        """All accounts, ascending by key hash; raises StagingDamaged."""
        # Damage may give a column any type: a cast spares Python a text that is none.
        query = (
            "SELECT CAST(key AS BLOB), CAST(balance AS INTEGER), CAST(nonce AS INTEGER), CAST(held AS INTEGER) "
            "FROM snapshot_account ORDER BY key"
        )
        before = b""
        with closing(self._db.execute(query)) as rows:
            for row in rows:
                key, balance, nonce, held = row
                # Of all other values the state root tells.
                is_whole = None not in (key, balance, nonce) and len(key) == _KEY_BYTES and key > before
                if not is_whole or min(balance, nonce, held or 0) < 0:
                    raise StagingDamaged("an account of the snapshot is damaged")
                before = key
                yield row

    def forget_state(self) -> None:
        """Remove the accounts, and what is known of their snapshot."""
        self._remove(_STATE)

    def clear(self) -> None:
        """Remove everything."""
        self._remove((*_STATE, "snapshot_header"))

    @contextmanager
    def clearing_damage(self, *, headers: bool = True) -> Iterator[None]:
        """If what is staged turns out to be damaged inside, remove it and raise StagingDamaged.

        Only for work that reads and writes nothing else in the file. The headers stay if ``headers`` is false, for work
        that reads none. If other parts of the file are damaged as well, that shows where they are read.
        """
        remove = self.clear if headers else self.forget_state
        try:
            yield
        except StagingDamaged:
            remove()
            raise
        except sqlite3.DatabaseError as error:
            if not database.is_damage(error):
                raise
            remove()
            raise StagingDamaged(f"what was fetched for the start from a snapshot is damaged: {error}") from error

    def _remove(self, tables: Sequence[str]) -> None:
        try:
            with database.transaction(self._db):
                self._delete(tables)
        except sqlite3.DatabaseError as error:
            if not database.is_damage(error):
                raise
            # SQLite reads the pages that it is to delete.
            self._replace(tables)

    def _replace(self, tables: Sequence[str]) -> None:
        """Put empty tables in the place of some of which SQLite cannot read every page.

        The pages of the old ones stay unused until ``svc db compact``, and are never written again: a damaged page may
        name others that are not its own.
        """
        self._db.execute("PRAGMA writable_schema = ON")
        try:
            with database.transaction(self._db):
                for table in tables:
                    (definition,) = self._db.execute(
                        "SELECT sql FROM sqlite_schema WHERE name = ?", (table,)
                    ).fetchone()
                    self._db.execute(f"ALTER TABLE {table} RENAME TO damaged_{table}")
                    self._db.execute(definition)
                    self._db.execute("DELETE FROM sqlite_schema WHERE tbl_name = ?", (f"damaged_{table}",))
        finally:
            self._db.execute("PRAGMA writable_schema = RESET")

    def _delete(self, tables: Iterable[str]) -> None:
        for table in tables:
            self._db.execute(f"DELETE FROM {table}")

    def become_chain(self, height: int) -> None:
        """Make the headers up to ``height``, and the accounts, those of the chain, within the caller's commit.

        No block but the genesis may be canonical.
        """
        self._db.execute(
            "INSERT INTO block (hash, parent, height, slot, clock, work, issued, header, size) "
            f"SELECT hash, parent, height, slot, clock, work, issued, header, length(header) + {_BODY_BYTES} "
            "FROM snapshot_header WHERE height <= ? ORDER BY height ON CONFLICT (hash) DO UPDATE SET side_work = NULL",
            (height,),
        )
        self._db.execute(
            "INSERT INTO canonical SELECT s.height, b.id FROM snapshot_header s JOIN block b ON b.hash = s.hash "
            "WHERE s.height <= ? ORDER BY s.height",
            (height,),
        )
        self._db.execute(
            f"INSERT INTO history SELECT height, value, substr(history, (value - 1) * {NODE_SIZE} + 1, {NODE_SIZE}) "
            f"FROM snapshot_header JOIN json_each(?) ON value * {NODE_SIZE} <= length(history) "
            "WHERE height <= ? ORDER BY height",
            (_LEVELS, height),
        )
        self._db.execute(
            "UPDATE prune SET proven_work = (SELECT work FROM snapshot_header ORDER BY height DESC LIMIT 1) "
            "WHERE row = 1"
        )
        # Of blocks that were here whole before.
        self._db.execute("DELETE FROM block_transaction WHERE block IN (SELECT block FROM canonical)")
        self._db.execute("DELETE FROM undo")
        self._db.execute("DROP TABLE account")
        self._db.execute("ALTER TABLE snapshot_account RENAME TO account")
        self._db.execute(_ACCOUNT_TABLE)
        for table in ("account_run", "recent_account", "snapshot_progress", "snapshot_chunk", "snapshot_header"):
            self._db.execute(f"DELETE FROM {table}")
