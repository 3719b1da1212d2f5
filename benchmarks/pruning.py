"""Deleting old blocks with 10^6 transfers: how long each job keeps the writer, and the disk afterwards.

``--behind N`` measures the disk of a node that has N transfers and accounts behind it, and its newest blocks whole.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from benchmarks.figures import Goal, Row, percentile_99
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import Signer, create_chain, draft_blocks, unowned_key
from benchmarks.processes import DATABASE
from benchmarks.program import main, on_reactor
from benchmarks.verification import PER_BLOCK, body_of, lay_payments
from svcd.chain.accounts import Account
from svcd.chain.block import Block, parse_block
from svcd.chain.history import Node
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.chain.transition import ChainPoint, history_leaf
from svcd.interfaces import Worker
from svcd.node.node_context import NodeContext
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer

P = ParamSpec("P")
T = TypeVar("T")

_KEPT: Final = 10
"""Blocks; of the first ones, each has 2,000 transfers."""
_FULL: Final = (1_000_000, 2_000, 20)
_QUICK: Final = (20_000, 40, 5)
"""Transfers that are deleted, further blocks, and transfers in each of them."""
_BATCH: Final = 50
_WEEK: Final = 10_080
"""Blocks that are whole: the fewest that a node may keep."""
_PER_BLOCK_BEHIND: Final = 50
"""Transfers in each block, all of them accounts' first."""
_BLOCKS_AT_ONCE: Final = 1_000
_CACHE_KIB: Final = 4 << 20
"""So that laying ten million rows in the order of blocks does not wait for the disk."""
_POLL_SECONDS: Final = 0.05


def _processor_wait() -> float:
    """Seconds for which this thread had work, while other programs had all processors."""
    return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9


@frozen
class TimedWorker:
    """A worker that notes the seconds of each job, with the waits for the disk and without those for a processor."""

    worker: Worker
    seconds: list[float] = field(factory=list)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.interfaces.Worker`."""

        def timed() -> T:
            began = time.perf_counter() - _processor_wait()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds.append(time.perf_counter() - _processor_wait() - began)

        return self.worker.run(timed)


@frozen
class Size:
    """Megabytes of the database's file."""

    file: float
    used: float
    """Without the pages that are free for new rows."""

    @classmethod
    def of(cls, path: Path) -> "Size":
        """The size of the database at ``path`` now."""
        with closing(sqlite3.connect(path)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return cls(os.stat(path).st_size / 1e6, (pages - free) * size / 1e6)


def _bodies(blocks: int, per_block: int) -> Iterator[list[Transfer]]:
    for start in range(0, blocks * per_block, per_block):
        yield [
            Signer(number).pays(unowned_key(number), amount=1_000_000, timestamp=DEVNET.genesis_time, reference="order")
            for number in range(start, start + per_block)
        ]


async def until_pruned(node_context: NodeContext, kept: int) -> None:
    """Return when nothing is left to delete of a chain whose newest ``kept`` blocks are kept whole."""
    manager = node_context.chain_manager
    while manager.reader.prune_height() < manager.tip.height - kept + 1:
        await deferLater(cast(Any, node_context.clock), _POLL_SECONDS)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Deleting old blocks with 10^6 transfers: the writer's pauses, and the disk over 2,000 further blocks."""
    transfers, further, per_block = _QUICK if quick else _FULL
    path = folder / DATABASE
    lay_payments(path, transfers + _KEPT * PER_BLOCK, [Signer(number).key for number in range(further * per_block)])
    blocks = draft_blocks(path, _bodies(further, per_block))
    sizes = [Size.of(path)]
    writers: list[TimedWorker] = []

    def timed(worker: Worker) -> Worker:
        writers.append(TimedWorker(worker))
        return writers[-1]

    async def run(reactor: Any) -> tuple[list[float], float, float]:
        async with opened(path, reactor, keep_blocks=_KEPT, writer=timed) as node_context:
            seconds = writers[0].seconds
            seconds.clear()
            began = time.perf_counter()
            node_context.start_pruning()
            await until_pruned(node_context, _KEPT)
            took, jobs = time.perf_counter() - began, list(seconds)
            sizes.append(Size.of(path))
            began = time.perf_counter()
            await feed(
                node_context.chain_manager,
                (blocks[start : start + _BATCH] for start in range(0, further, _BATCH)),
            )
            connected = further * per_block / (time.perf_counter() - began)
            await until_pruned(node_context, _KEPT)
        sizes.append(Size.of(path))
        return jobs, took, connected

    jobs, took, connected = on_reactor(run)
    before, pruned, after = sizes
    name = f"{transfers:,} transfers"
    return [
        Row(
            name=f"longest job of the writer while {name} are deleted",
            figure=max(jobs) * 1000,
            unit="ms",
            baseline=percentile_99(jobs) * 1000,
            baseline_is=f"ms, 99th percentile of {len(jobs):,}",
            ratio=max(jobs) / percentile_99(jobs),
            goal=Goal("figure", "<=", 20),
        ),
        Row(
            name="transfers deleted",
            figure=transfers / took,
            unit="/s",
            baseline=connected,
            baseline_is=f"/s connected and deleted, {per_block} in each block",
            ratio=transfers / took / connected,
        ),
        Row(
            name=f"in use on disk with {_KEPT} blocks whole",
            figure=pruned.used,
            unit="MB",
            baseline=before.used,
            baseline_is="MB with all blocks",
            ratio=pruned.used / before.used,
        ),
        Row(
            name=f"the same after {further:,} further blocks",
            figure=after.used,
            unit="MB",
            baseline=pruned.used,
            baseline_is="MB before them",
            ratio=after.used / pruned.used,
        ),
        Row(
            name=f"file after {further:,} further blocks, pruned",
            figure=after.file,
            unit="MB",
            baseline=pruned.file,
            baseline_is="MB before them",
            ratio=after.file / pruned.file,
            goal=Goal("ratio", "<=", 1),
        ),
    ]


def measure_behind(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """The file of a node that keeps 10,080 blocks whole, with ``number`` transfers and accounts behind it."""
    path = folder / DATABASE
    transfers = int(number)
    _lay_pruned_chain(path, transfers // _PER_BLOCK_BEHIND, _WEEK // 100 if quick else _WEEK)
    size = Size.of(path)
    return [
        Row(
            name=f"file of a pruned node with {transfers:,} transfers behind it",
            figure=size.file,
            unit="MB",
            baseline=size.used,
            baseline_is="MB in use",
            ratio=size.file / size.used,
            goal=Goal("figure", "<=", 1_300),
        )
    ]


def _lay_pruned_chain(path: Path, blocks: int, whole: int) -> None:
    """Make the database of a node that has kept the newest ``whole`` of ``blocks``, as its pages would be.

    Rows come in the order of the blocks, and so in random places of the tables, which are fuller after a VACUUM. The
    header is that of one block, and nobody has signed the transfers: the bytes are as many, but no node could start.
    """
    create_chain(path, [])
    (wire,) = draft_blocks(path, [[]])
    empty = parse_block(wire, DEVNET)
    with closing(open_writer(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        store = ChainWriter(connection)
        genesis = store.existing_tip()
        for start in range(1, blocks + 1, _BLOCKS_AT_ONCE):
            with store.commit():
                for height in range(start, min(start + _BLOCKS_AT_ONCE, blocks + 1)):
                    point = evolve(genesis, hash=sha256(b"%d" % height).digest(), height=height)
                    _lay_block(store, empty, point, deleted=blocks - whole)
        with store.commit():
            store.set_prune_height(blocks - whole + 1)


def _lay_block(store: ChainWriter, empty: Block, point: ChainPoint, *, deleted: int) -> None:
    height = point.height
    first = (height - 1) * _PER_BLOCK_BEHIND
    numbers = range(first, first + _PER_BLOCK_BEHIND)
    accounts = {unowned_key(number): Account(1_000_000 + number) for number in numbers}
    store.write_accounts(accounts, count=numbers.stop)
    transfers: tuple[Transfer, ...] = ()
    if height > deleted:
        transfers = tuple([parse_canonical_transfer(body_of(number)[1], DEVNET) for number in numbers])
    stored = store.add_block(Block(empty.header, transfers), point)
    before: dict[bytes, Account | None] = dict.fromkeys(accounts)
    before |= {transfer.sender: Account(1_000_000) for transfer in transfers}
    # A node of each level whose last block this is.
    node: Node = history_leaf(point, work=1)
    levels = ((height + 1) & -(height + 1)).bit_length()
    store.connect_block(stored, transfers, undo=before if transfers else {}, history=[node] * levels)


if __name__ == "__main__":
    main(measure, {"behind": ("TRANSFERS", measure_behind)})
