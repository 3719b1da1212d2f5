"""Opens the databases of a node, builds everything that works on the chain, and closes it again in order."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.chain.signature import check_library
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock, Worker
from svcd.limits import limit
from svcd.node.chain_manager import ChainManager
from svcd.node.chainstate import Chainstate, LongReads, OpenChain
from svcd.node.database_health import DatabaseHealth, DiskProbe, ReportingWorker
from svcd.node.mempool import Mempool
from svcd.node.pinned_block import PinnedBlock
from svcd.node.pruner import Pruner
from svcd.node.state_tree_keeper import StateTreeKeeper
from svcd.node.threads import InlineWorker
from svcd.node.transaction_pool import TransactionPool
from svcd.node.verifier import Verifier
from svcd.store.block_deletion import BlockDeletion
from svcd.store.chain_store import ChainReader, ChainWriter
from svcd.store.database import (
    MEMPOOL,
    DatabaseError,
    UncleanShutdownMarker,
    explaining_errors,
    explaining_os_errors,
    on_progress,
    open_checkpointer,
    open_reader,
    open_writer,
)
from svcd.store.mempool_store import FILE, MempoolStore
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
    """A job for the writer's thread that shows that the thread is alive."""


@frozen
class NodeThreads:
    """The threads in which the chain's work runs."""

    writer: Worker
    """One thread: all writes to the chain's database go through it, in order."""
    verifier: Worker
    verifier_threads: int
    reader: Worker
    """For long reads."""
    disk: Worker
    """Two threads that wait for the disk, never behind a long read: for the log of the mempool, and the state tree."""
    health: DatabaseHealth = field(factory=lambda: DatabaseHealth(_do_nothing))
    """Ends the node when an open database turns out to be damaged."""


@frozen
class NodeContext:
    """An open chain with everything that works on it; :meth:`close` it last."""

    chain: OpenChain
    chain_manager: ChainManager
    transaction_pool: TransactionPool
    verifier: Verifier
    clock: Clock
    threads: NodeThreads
    state_tree_keeper: StateTreeKeeper
    staging: SnapshotStaging
    """For the thread of the chain's writer only."""
    _pruner: Pruner | None
    """None if all blocks are kept."""
    _close: Callable[[], None]

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
        """Probes of the disk under the chain's database and under the mempool's."""
        pool = self.transaction_pool
        chain = DiskProbe(self.threads.health, self.threads.writer, self.chain.chainstate.store.probe)
        return chain, DiskProbe(pool.health, InlineWorker(), pool.store.probe)

    @property
    def trouble(self) -> str:
        """Why the last write to one of the databases failed; "" if none did."""
        return next((disk.trouble for disk in self.disks if disk.trouble), "")

    def start_pruning(self, evaluated: Callable[[], int] | None = None) -> None:
        """Delete old blocks from now on, if not all are kept, and none above the height ``evaluated()``."""
        if self._pruner is not None:
            self._pruner.begin(evaluated)

    async def deletions_done(self) -> None:
        """Wait for the deletions of blocks that may have read ``evaluated()`` of :meth:`start_pruning` before now."""
        if self._pruner is not None:
            await self._pruner.earlier_jobs_done()

    async def close(self) -> None:
        """Commit everything that has been submitted, then close the databases."""
        await self.chain_manager.stop()
        await self.transaction_pool.finished()
        if self._pruner is not None:
            await self._pruner.stop()
        await self.state_tree_keeper.finish()
        self.chain_manager.end_shared_commit()
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
    """Open or create the chain's database at ``path`` and the mempool's beside it, and load both; ``mempool`` is empty.

    Only the newest ``keep_blocks`` blocks are kept whole after :meth:`NodeContext.start_pruning`; all if it is 0.
    No chain is followed without the block ``expect``. Raises DatabaseError, even if the chain here does not have that
    block, or Corrupt, with a text for the operator.
    """
    check_library()
    markers = [UncleanShutdownMarker(path), UncleanShutdownMarker(path.with_name(FILE))]
    _warn_of_missing_logs(markers)
    # Damage shows where a page is read, which may be long after the file was opened.
    with explaining_errors(path):
        connection = await threads.writer.run(open_writer, path)
        tree_file = StateTreeFile(path)
        chainstate = Chainstate(params, ChainWriter(connection), tree_file)
        on_progress(connection, chainstate.note_step)
        with explaining_os_errors(path), markers[0].opening(connection):
            tip = await threads.writer.run(_load, chainstate, path, expect)
        reading = open_reader(path, threads.health.is_damage)
        long_reading = open_reader(path, threads.health.is_damage, cache_kib=_LONG_READS_CACHE_KIB)
        long_reads = LongReads(threads.reader, long_reading)
        writer = ReportingWorker(threads.writer, threads.health)
        chain = OpenChain(params, ChainReader(reading), long_reads, chainstate, writer)
        verifier = Verifier(
            params,
            threads.verifier,
            threads=threads.verifier_threads,
            capacity=VERIFIER_CAPACITY,
            known=mempool.transfer,
        )
        chain_manager = ChainManager(chain, verifier, clock, expect=expect)
        transaction_pool = _open_pool(chain, mempool, markers[1], threads=threads, verifier=verifier, clock=clock)
        chain_manager.subscribe(transaction_pool)
        chain_manager.list_changes_for(transaction_pool.waiting)
        state_tree_keeper = StateTreeKeeper(chain, tree_file, threads.disk)
        chain_manager.subscribe(state_tree_keeper)
        count = await transaction_pool.load()
        pruner = None
        if keep_blocks:
            disk = ReportingWorker(threads.disk, threads.health)
            pruner = Pruner(
                BlockDeletion(connection), chain_manager, writer, clock, disk, open_checkpointer(path), keep_blocks
            )
    _LOG.info(
        "{chain_id}: height {height}, tip {hash}, {count} transfers wait",
        chain_id=params.chain_id,
        height=tip.height,
        hash=tip.hash.hex(),
        count=count,
    )

    def close() -> None:
        for marker in markers:
            with suppress(OSError):
                marker.remove()
        transaction_pool.store.close()
        long_reads.close()
        reading.close()
        if pruner is not None:
            pruner.log_connection.close()
        connection.close()

    parts = threads, state_tree_keeper, SnapshotStaging(connection, params), pruner
    return NodeContext(chain, chain_manager, transaction_pool, verifier, clock, *parts, close)


def _warn_of_missing_logs(markers: Iterable[UncleanShutdownMarker]) -> None:
    for marker in markers:
        if marker.log_is_missing:
            _LOG.warn(
                "{log} is missing although the last run did not shut down cleanly: the newest blocks or waiting "
                "transfers are lost with it, and are fetched again",
                log=str(marker.log),
            )


def _load(chainstate: Chainstate, path: Path, expect: PinnedBlock | None) -> ChainPoint:
    """The tip of the chain on disk; raises DatabaseError if it has another block than the operator expects."""
    tip = chainstate.load()
    stored = None if expect is None else chainstate.store.canonical(expect.height)
    if expect is not None and stored is not None and (refusal := expect.refusal(stored.point)) is not None:
        raise DatabaseError(
            f"the chain in {path} is refused: {refusal.detail}; correct the setting, or move the file away, and the "
            "node fetches the chain that has this block"
        )
    return tip


def _open_pool(
    chain: OpenChain,
    mempool: Mempool,
    marker: UncleanShutdownMarker,
    *,
    threads: NodeThreads,
    verifier: Verifier,
    clock: Clock,
) -> TransactionPool:
    path, health = marker.database, threads.health.of(MEMPOOL)
    with explaining_errors(path, MEMPOOL):
        connection = open_writer(path, MEMPOOL)
        with explaining_os_errors(path), marker.opening(connection):
            store = MempoolStore(connection, path, chain.params)
    worker = ReportingWorker(threads.disk, health)
    return TransactionPool(chain, mempool, store=store, health=health, worker=worker, verifier=verifier, clock=clock)
