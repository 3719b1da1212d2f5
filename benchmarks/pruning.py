"""Deleting old blocks with 10^6 transfers: how long each job keeps the writer, and the disk afterwards."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from benchmarks.figures import Goal, Row, percentile_99
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import Signer, draft_blocks, unowned_key
from benchmarks.processes import DATABASE
from benchmarks.program import main, on_reactor
from benchmarks.verification import PER_BLOCK, lay_payments
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer
from svcd.interfaces import Worker
from svcd.node.node_context import NodeContext

P = ParamSpec("P")
T = TypeVar("T")

_KEPT: Final = 10
"""Blocks; of the first ones, each has 2,000 transfers."""
_FULL: Final = (1_000_000, 2_000, 20)
_QUICK: Final = (20_000, 40, 5)
"""Transfers that are deleted, further blocks, and transfers in each of them."""
_BATCH: Final = 50
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
class _Size:
    """Megabytes of the database's file."""

    file: float
    used: float
    """Without the pages that are free for new rows."""

    @classmethod
    def of(cls, path: Path) -> "_Size":
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


async def _pruned(node_context: NodeContext) -> None:
    """Return when nothing is left to delete."""
    manager = node_context.chain_manager
    while manager.reader.prune_height() < manager.tip.height - _KEPT + 1:
        await deferLater(cast(Any, node_context.clock), _POLL_SECONDS)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Deleting old blocks with 10^6 transfers: the writer's pauses, and the disk over 2,000 further blocks."""
    transfers, further, per_block = _QUICK if quick else _FULL
    path = folder / DATABASE
    lay_payments(path, transfers + _KEPT * PER_BLOCK, [Signer(number).key for number in range(further * per_block)])
    blocks = draft_blocks(path, _bodies(further, per_block))
    sizes = [_Size.of(path)]
    writers: list[TimedWorker] = []

    def timed(worker: Worker) -> Worker:
        writers.append(TimedWorker(worker))
        return writers[-1]

    async def run(reactor: Any) -> tuple[list[float], float]:
        async with opened(path, reactor, keep_blocks=_KEPT, writer=timed) as node_context:
            seconds = writers[0].seconds
            seconds.clear()
            began = time.perf_counter()
            node_context.start_pruning()
            await _pruned(node_context)
            took, jobs = time.perf_counter() - began, list(seconds)
            sizes.append(_Size.of(path))
            await feed(
                node_context.chain_manager,
                (blocks[start : start + _BATCH] for start in range(0, further, _BATCH)),
            )
            await _pruned(node_context)
        sizes.append(_Size.of(path))
        return jobs, took

    jobs, took = on_reactor(run)
    before, pruned, after = sizes
    name = f"{transfers:,} transfers"
    return [
        Row(
            name=f"longest job of the writer while {name} are deleted",
            figure=max(jobs) * 1000,
            unit="ms",
            baseline=percentile_99(jobs) * 1000,
            baseline_is="ms, 99th percentile",
            goal=Goal("figure", "<=", 20),
        ),
        Row(name="transfers deleted", figure=transfers / took, unit="/s"),
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


if __name__ == "__main__":
    main(measure)
