"""Opens the databases of a node, builds everything that works on the chain, and closes it again in order."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.chain.signature import check_library
from svcd.interfaces import Clock, Worker
from svcd.limits import limit
from svcd.node.chain_manager import ChainManager
from svcd.node.chainstate import Chainstate
from svcd.node.clock_guard import ClockGuard
from svcd.node.database_health import DatabaseHealth, DiskProbe, ReportingWorker
from svcd.node.mempool import Mempool
from svcd.node.open_chain import LongReads, OpenChain
from svcd.node.pinned_block import PinnedBlock
from svcd.node.state_tree_keeper import StateTreeKeeper
from svcd.node.transaction_pool import TransactionPool
from svcd.node.verifier import Verifier
from svcd.store.chain_store import ChainReader, ChainWriter
from svcd.store.database import (
    DatabaseError,
    UncleanShutdownMarker,
    explaining_errors,
    explaining_os_errors,
    on_progress,
    open_reader,
    open_writer,
)
from svcd.store.mempool_journal import FILE, JOURNAL, MempoolJournal
from svcd.store.snapshot_staging import SnapshotStaging
from svcd.store.state_tree_file import StateTreeFile

_LOG: Final = Logger()
VERIFIER_CAPACITY: Final = limit(
    1_024, "blocks that wait for the check of their work", "blocks", "More blocks than can be verified"
)
"""Blocks that may wait for the check of their work; further ones are refused for the moment."""

_LONG_READS_CACHE_KIB: Final = 4_096
"""Small: long reads go through whole blocks once, which are hardly read again."""


def _do_nothing() -> None:
    """A job for the writer's thread, which shows that the thread is alive and has done all earlier jobs."""


@frozen
class NodeThreads:
    """The threads in which the chain's work runs."""

    writer: Worker
    """One thread: all writes to the chain's database go through it, in order."""
    verifier: Worker
    verifier_threads: int
    reader: Worker
    """One thread, for long reads."""
    disk: Worker
    """Three threads that wait for the disk, never behind a long read.

    For the mempool's journal, the state tree, and the log of the chain's database.
    """
    health: DatabaseHealth = field(factory=lambda: DatabaseHealth(_do_nothing))
    """Ends the node when an open database turns out to be damaged."""


@frozen
class NodeContext:
    """An open chain with everything that works on it; :meth:`close` it last."""

    chain: OpenChain
    chain_manager: ChainManager
    transaction_pool: TransactionPool
    verifier: Verifier
    guard: ClockGuard
    threads: NodeThreads
    state_tree_keeper: StateTreeKeeper
    staging: SnapshotStaging
    """For the thread of the chain's writer only."""
    _keep_blocks: int
    """How many of the newest blocks are kept whole; 0 for all."""
    _close: Callable[[], None]

    @property
    def clock(self) -> Clock:
        """The node's clock, with its timers."""
        return self.guard.clock

    async def alive(self) -> None:
        """Return once the writer's thread has answered or has made progress with a long piece of work.

        A reorganisation may take minutes, and so may the commit by which a snapshot becomes the chain: a node killed
        for that would only begin it again.
        """
        answered = self.chain.writer.run(_do_nothing)
        steps = self.chain.chainstate.steps
        while not answered.called and self.chain.chainstate.steps == steps:
            await deferLater(cast(IReactorTime, self.clock), 1.0)

    @property
    def disks(self) -> tuple[DiskProbe, DiskProbe]:
        """Probes of the disk under the chain's database and under the mempool's journal."""
        pool = self.transaction_pool
        chain = DiskProbe(self.threads.health, self.threads.writer, self.chain.chainstate.store.probe)
        return chain, DiskProbe(pool.health, self.threads.disk, pool.journal.probe)

    @property
    def trouble(self) -> str:
        """Why the last write to one of the databases failed; "" if none did."""
        return next((disk.trouble for disk in self.disks if disk.trouble), "")

    def start_pruning(self, evaluated: Callable[[], int] | None = None) -> None:
        """Delete old blocks from the next block on, if not all are kept, and none above the height ``evaluated()``."""

        def kept_from(tip: int) -> int:
            first = tip - self._keep_blocks + 1
            return first if evaluated is None else min(first, evaluated() + 1)

        if self._keep_blocks:
            self.chain.chainstate.kept_from = kept_from

    async def deletions_done(self) -> None:
        """Wait for the deletions of blocks that may have read ``evaluated()`` of :meth:`start_pruning` before now."""
        if self._keep_blocks:
            await self.chain.writer.run(_do_nothing)

    async def close(self) -> None:
        """Commit everything that has been submitted, then close the databases."""
        await self.chain_manager.stop()
        await self.transaction_pool.finished()
        await self.state_tree_keeper.finish()
        self.chain_manager.end_shared_commit()
        await self.chain.long_reads.close()
        await self.chain.writer.run(self._close)


async def open_node(
    params: NetworkParams,
    path: Path,
    *,
    threads: NodeThreads,
    mempool: Mempool,
    clock: Clock,
    keep_blocks: int = 0,
    expect: PinnedBlock | None = None,
) -> NodeContext:
    """Open or create the chain's database at ``path`` and the journal beside it, and load both; ``mempool`` is empty.

    Only the newest ``keep_blocks`` blocks are kept whole after :meth:`NodeContext.start_pruning`; all if it is 0.
    No chain is followed without the block ``expect``. Raises DatabaseError, even if the chain here does not have that
    block, or Corrupt, with a text for the operator.
    """
    check_library()
    marker = UncleanShutdownMarker(path)
    _warn_of_missing_log(marker)
    # Damage shows where a page is read, which may be long after the file was opened.
    with explaining_errors(path):
        connection = await threads.writer.run(open_writer, path)
        tree_file = StateTreeFile(path)
        chainstate = Chainstate(params, ChainWriter(connection), tree_file)
        on_progress(connection, chainstate.count_step)
        with explaining_os_errors(path), marker.opening(connection):
            await threads.writer.run(_load, chainstate, path, expect)
        reading = open_reader(path, threads.health.is_damage)
        long_reading = open_reader(path, cache_kib=_LONG_READS_CACHE_KIB)
        long_reads = LongReads(threads.reader, long_reading, threads.health.is_damage)
        writer = ReportingWorker(threads.writer, threads.health)
        chain = OpenChain(params, ChainReader(reading), long_reads, chainstate, writer)
        verifier = Verifier(
            params,
            threads.verifier,
            threads=threads.verifier_threads,
            capacity=VERIFIER_CAPACITY,
            known=mempool.transfer,
        )
        chain_manager, guard = ChainManager(chain, verifier, clock, expect=expect), ClockGuard(clock)
        transaction_pool = TransactionPool(
            chain,
            mempool,
            journal=MempoolJournal(path.with_name(FILE), params),
            health=threads.health.of(JOURNAL),
            worker=threads.disk,
            verifier=verifier,
            guard=guard,
        )
        chain_manager.subscribe(transaction_pool)
        chain_manager.list_changes_for(transaction_pool.waiting)
        state_tree_keeper = StateTreeKeeper(chain, tree_file, threads.disk)
        chain_manager.subscribe(state_tree_keeper)
        await transaction_pool.load()

    def close() -> None:
        with suppress(OSError):
            marker.remove()
        transaction_pool.journal.close()
        reading.close()
        connection.close()

    parts = threads, state_tree_keeper, SnapshotStaging(connection, params), keep_blocks
    return NodeContext(chain, chain_manager, transaction_pool, verifier, guard, *parts, close)


def _warn_of_missing_log(marker: UncleanShutdownMarker) -> None:
    if marker.log_is_missing:
        _LOG.warn(
            "{log} is missing although the last run did not shut down cleanly: the newest blocks are lost with it, and "
            "are fetched again",
            log=str(marker.log),
        )


def _load(chainstate: Chainstate, path: Path, expect: PinnedBlock | None) -> None:
    """Load the tip of the chain on disk; raises DatabaseError if it has another block than the operator expects."""
    chainstate.load()
    stored = None if expect is None else chainstate.store.canonical(expect.height)
    if expect is not None and stored is not None and (refusal := expect.refusal(stored.point)) is not None:
        raise DatabaseError(
            f"the chain in {path} is refused: {refusal.detail}; correct the setting, or move the file away, and the "
            "node fetches the chain that has this block"
        )
