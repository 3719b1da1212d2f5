"""Deleting old blocks with 10^6 transfers: how much longer a full block's commit takes, and the disk afterwards.

``--behind N`` measures the disk of a node that has N transfers and accounts behind it, and its newest blocks whole.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final, ParamSpec, TypeVar

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred

from benchmarks.figures import Goal, Row
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
from svcd.store.chain_store import ChainWriter
from svcd.store.database import connect, open_writer

P = ParamSpec("P")
T = TypeVar("T")

_KEPT: Final = 10
"""Blocks; of the first ones, each has 2,000 transfers."""
_FULL: Final = (1_000_000, 40, 2_000, 20)
_QUICK: Final = (20_000, 4, 40, 5)
"""Transfers that are deleted, full blocks, further blocks, and transfers in each of these."""
_BATCH: Final = 50
_WEEK: Final = 10_080
"""Blocks that are whole: the fewest that a node may keep."""
_PER_BLOCK_BEHIND: Final = 50
"""Transfers in each block, all of them accounts' first."""
_BLOCKS_AT_ONCE: Final = 1_000
_CACHE_KIB: Final = 4 << 20
"""So that laying ten million rows in the order of blocks does not wait for the disk."""


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
        with closing(connect(path)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return cls(os.stat(path).st_size / 1e6, (pages - free) * size / 1e6)


def _bodies(signers: Iterable[int], counts: Iterable[int]) -> Iterator[list[Transfer]]:
    """A payment of each signer, so many in each block."""
    payers = iter(signers)
    for count in counts:
        yield [
            Signer(number).pays(unowned_key(number), amount=1_000_000, timestamp=DEVNET.genesis_time, reference="order")
            for number in islice(payers, count)
        ]


def prune(path: Path, kept: int) -> None:
    """Delete all but the newest ``kept`` blocks of a stopped node."""
    with closing(open_writer(path)) as connection:
        store = ChainWriter(connection)
        below = store.existing_tip().height - kept + 1
        while store.prune_height() < below:
            with store.commit():
                store.delete_old_blocks(below=below, at_most=_BATCH)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Deleting old blocks with 10^6 transfers: the commits of full blocks, and the disk over 2,000 further blocks."""
    transfers, full, further, per_block = _QUICK if quick else _FULL
    path = folder / DATABASE
    signers = range(full * PER_BLOCK + further * per_block)
    lay_payments(path, transfers, [Signer(number).key for number in signers])
    blocks = draft_blocks(path, _bodies(signers, [PER_BLOCK] * full + [per_block] * further))
    sizes = [Size.of(path)]
    writers: list[TimedWorker] = []

    def timed(worker: Worker) -> Worker:
        writers.append(TimedWorker(worker))
        return writers[-1]

    async def connect(reactor: Any, batches: Sequence[Sequence[bytes]], keep_blocks: int) -> list[float]:
        async with opened(path, reactor, keep_blocks=keep_blocks, writer=timed) as node_context:
            node_context.start_pruning()
            seconds = writers[-1].seconds
            seconds.clear()
            await feed(node_context.chain_manager, batches)
            # The other jobs are short ones.
            return sorted(seconds)[-len(batches) :]

    half = full // 2

    async def run(reactor: Any) -> tuple[list[float], list[float]]:
        whole = await connect(reactor, [[block] for block in blocks[:half]], 0)
        deleting = await connect(reactor, [[block] for block in blocks[half:full]], _KEPT)
        prune(path, _KEPT)
        sizes.append(Size.of(path))
        await connect(reactor, [blocks[start : start + _BATCH] for start in range(full, len(blocks), _BATCH)], _KEPT)
        return whole, deleting

    whole, deleting = on_reactor(run)
    sizes.append(Size.of(path))
    before, pruned, after = sizes
    return [
        Row(
            name="longer commit of a full block that deletes two full ones",
            figure=(median(deleting) - median(whole)) * 1000,
            unit="ms",
            baseline=median(whole) * 1000,
            baseline_is="ms without, median",
            ratio=median(deleting) / median(whole),
            goal=Goal("figure", "<=", 50),
        ),
        Row(
            name="longest of these commits",
            figure=max(deleting) * 1000,
            unit="ms",
            baseline=max(whole) * 1000,
            baseline_is="ms without",
            ratio=max(deleting) / max(whole),
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
    store.write_accounts(accounts)
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
