"""A start from a snapshot that is under way: headers and accounts beside the chain, until they become the chain.

What a commit has written is there after a kill, and the start goes on from it (docs/storage.md).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import apsw
from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import key_hash
from svcd.chain.block import Header, parse_header
from svcd.chain.encoding import parse_json
from svcd.chain.history import NODE_SIZE, History, Node, mountain_levels
from svcd.chain.params import NetworkParams
from svcd.chain.snapshot import Manifest, parse_manifest
from svcd.chain.state_tree import Row
from svcd.chain.transition import ChainHead, ChainPoint, genesis_head, genesis_point, history_leaf
from svcd.store import database
from svcd.store.chain_store import PRODUCED, chain_point
from svcd.store.database import DatabaseConnection

_POINT: Final = "hash, height, slot, clock, work, issued"
_PRODUCERS: Final = f"SELECT {PRODUCED} FROM snapshot_header b WHERE b.height BETWEEN ? AND ? ORDER BY b.height"
_LEVELS: Final = json.dumps(list(range(1, 64)))
_BODY_BYTES: Final = len(b',"transactions":[]')
_STATE: Final = ("snapshot_progress", "snapshot_chunk", "snapshot_account")
_ALL: Final = ("snapshot_header", *_STATE)
_RUN: Final = 1
"""The run of the accounts once they are those of the chain (svcd/store/sorted_runs.py)."""


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

    def __init__(self, connection: DatabaseConnection, params: NetworkParams) -> None:
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
        return parse_header(json.loads(row[0]), self._params)

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
            rows.append((point.height, point.hash, header.parent_hash, *variables, header.wire(), nodes))
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
        """How much of the state is here; None if no snapshot has been chosen."""
        row = self._db.execute("SELECT manifest FROM snapshot_progress").fetchone()
        if row is None:
            return None
        manifest = parse_manifest(parse_json(row[0]))
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
        rows = [(_RUN, key, account.balance, account.nonce, account.held_since) for key, account in accounts]
        with database.transaction(self._db):
            database.insert(self._db, "snapshot_account", rows)
            self._db.execute("INSERT INTO snapshot_chunk VALUES (?)", (index,))

    def every_account(self) -> Iterator[Row]:
        """All accounts, ascending by key hash."""
        query = f"SELECT key, balance, nonce, held FROM snapshot_account WHERE run = {_RUN} ORDER BY key"
        with closing(self._db.execute(query)) as rows:
            yield from rows

    def clear(self) -> None:
        """Remove everything."""
        with database.transaction(self._db):
            self._delete(_ALL)

    @contextmanager
    def discarding_damage(self) -> Iterator[None]:
        """If what is staged turns out to be damaged inside, remove all of it and raise StagingDamaged.

        An error of the database stays as it is if anything else in the file is damaged.
        """
        try:
            yield
        except StagingDamaged:
            self.clear()
            raise
        except apsw.Error as error:
            if not database.is_damage(error):
                raise
            self._remove_damaged(error)
            raise StagingDamaged(
                f"what was fetched for the start from a snapshot is damaged: {database.describe(error)}"
            ) from error

    def _remove_damaged(self, error: apsw.Error) -> None:
        """Remove everything, damaged pages included; raises ``error`` if the rest of the file is not sound then."""
        with database.transaction(self._db):
            # SQLite reads the pages that it frees.
            with database.unverified(self._db):
                self._delete(_ALL)
            # A damaged page may have named pages of other tables, which would be free now.
            if self._db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise error

    def _delete(self, tables: Iterable[str]) -> None:
        for table in tables:
            self._db.execute(f"DELETE FROM {table}")

    def become_chain(self, height: int, *, accounts: int) -> None:
        """Make the headers up to ``height``, and the accounts, those of the chain, within the caller's commit.

        There are so many ``accounts``.

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
        (definition,) = self._db.execute("SELECT sql FROM sqlite_schema WHERE name = 'snapshot_account'").fetchone()
        self._db.execute("DROP TABLE account_entry")
        self._db.execute("ALTER TABLE snapshot_account RENAME TO account_entry")
        self._db.execute(definition)
        for table in ("account_run", "snapshot_progress", "snapshot_chunk", "snapshot_header"):
            self._db.execute(f"DELETE FROM {table}")
        self._db.execute("INSERT INTO account_run VALUES (1, ?, 1, ?, NULL)", (_RUN, accounts))
