"""A chain brought to life from its file, and put to rest again."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.chain.edge_cases import check_library
from svcd.chain.params import NetworkParams
from svcd.node.connector import Connector
from svcd.node.demand import OnDemand
from svcd.node.guard import Disk, Guard, GuardedWorker
from svcd.node.ledger import Chain, Ledger
from svcd.node.long_reads import LongReads
from svcd.node.mempool import Mempool
from svcd.node.producer import Producer, Workshop
from svcd.node.threads import Here, Worker
from svcd.node.transfers import Pool, Transfers
from svcd.node.verifier import Verifier
from svcd.ports import Clock
from svcd.store.chain_store import ChainReader, ChainWriter
from svcd.store.database import MEMPOOL, open_reader, open_writer, telling_damage, telling_disk_trouble
from svcd.store.mark import OpenMark
from svcd.store.mempool_store import FILE, MempoolStore

_LOG = Logger()
VERIFIER_CAPACITY = 1_024
"""Blocks that may wait for their work check; more are told to come again later."""
_LONG_CACHE_KIB = 4_096
"""Whole blocks are read once, from front to back: what they fill is hardly asked for again."""


@frozen
class Threads:
    """Where the chain's work runs."""

    writer: Worker
    """One thread: everything that is written goes through it, in order."""
    verifier: Worker
    lanes: int
    """How many threads the verifier has."""
    reader: Worker = field()
    """Where answers that take long are read; the verifier unless said otherwise."""
    guard: Guard = field(factory=lambda: Guard(_nothing))
    """Ends the node when the open database turns out to be damaged."""

    @reader.default
    def _no_reader(self) -> Worker:
        return self.verifier


def _nothing() -> None:
    """What the writer's thread is asked to do as a sign of life, and what ends nothing."""


@frozen
class PoolLimits:
    """How much may wait."""

    max_transactions: int
    max_bytes: int


@frozen
class LivingChain:
    """An open chain with its two doors; :meth:`close` it last."""

    chain: Chain
    ledger: Ledger
    transfers: Transfers
    pool: Pool
    verifier: Verifier
    clock: Clock
    threads: Threads
    _close: Callable[[], None]

    def producer(self, workshop: Workshop) -> Producer:
        """A producer on this chain that hears of every change."""
        mempool = self.transfers.mempool
        producer = Producer(self.ledger, self.chain, mempool=mempool, workshop=workshop, clock=self.clock)
        self.ledger.subscribe(producer)
        self.transfers.subscribe(producer)
        return producer

    def on_demand(self, random: Callable[[int], bytes]) -> OnDemand:
        """Blocks at the operator's word."""
        verifier, clock = self.verifier, self.clock
        return OnDemand(
            self.ledger, self.chain, transfers=self.transfers, verifier=verifier, random=random, clock=clock
        )

    async def alive(self) -> None:
        """Return once the writer's thread has answered, or is seen to move on with a long piece of work.

        A reorganisation may take minutes, and killing the node for it would only make it begin again.
        """
        answered = self.chain.writer.run(_nothing)
        steps = self.chain.connector.steps
        while not answered.called and self.chain.connector.steps == steps:
            second: Deferred[None] = Deferred()
            self.clock.callLater(1.0, second.callback, None)
            await second

    @property
    def disks(self) -> tuple[Disk, Disk]:
        """What is known of the disk under the chain, and under what waits."""
        chain = Disk(self.threads.guard, self.threads.writer, self.chain.connector.store.probe)
        return chain, Disk(self.pool.guard, Here(), self.pool.store.probe)

    @property
    def trouble(self) -> str:
        """Why one of them cannot be written, as far as it has been tried; "" if both can."""
        return next((disk.trouble for disk in self.disks if disk.trouble), "")

    async def close(self) -> None:
        """Let everything that has been taken in be committed, then close the file."""
        await self.ledger.stop()
        await self.transfers.finished()
        await self.chain.writer.run(self._close)


async def open_chain(
    params: NetworkParams, path: Path, *, threads: Threads, pool: PoolLimits, clock: Clock
) -> LivingChain:
    """Open the database at ``path``, or make one, and take up its chain and its waiting transfers.

    Raises DatabaseError or Corrupt, with a text for the operator.
    """
    check_library()
    # Damage shows where a page is read, which may be long after the file was opened.
    with telling_damage(path):
        return await _opened(params, path, threads=threads, pool=pool, clock=clock)


async def _opened(
    params: NetworkParams, path: Path, *, threads: Threads, pool: PoolLimits, clock: Clock
) -> LivingChain:
    mark, pool_mark = OpenMark(path), OpenMark(path.with_name(FILE))
    for each in (mark, pool_mark):
        if each.misses_log:
            _LOG.warn(
                "{log} is missing although the last run did not end by itself: the newest blocks or waiting transfers "
                "are lost with it, and are fetched again",
                log=str(each.log),
            )
    connection = await threads.writer.run(open_writer, path)
    store = ChainWriter(connection)
    connector = Connector(params, store)
    with telling_disk_trouble(path), mark.opening(connection):
        tip = await threads.writer.run(connector.load)
    reading = open_reader(path, threads.guard.is_damage)
    long_reads = LongReads(threads.reader, open_reader(path, threads.guard.is_damage, cache_kib=_LONG_CACHE_KIB))
    writer = GuardedWorker(threads.writer, threads.guard)
    chain = Chain(params, ChainReader(reading), long_reads, connector, writer)
    verifier = Verifier(params, threads.verifier, lanes=threads.lanes, capacity=VERIFIER_CAPACITY)
    ledger = Ledger(chain, verifier, clock)
    waiting = open_pool(params, pool_mark, threads, limits=pool)
    transfers = Transfers(chain, waiting, verifier=verifier, clock=clock)
    ledger.subscribe(transfers)
    count = await transfers.load()
    _LOG.info(
        "{chain_id}: height {height}, tip {hash}, {count} transfers wait",
        chain_id=params.chain_id,
        height=tip.height,
        hash=tip.hash.hex(),
        count=count,
    )

    def close() -> None:
        for each in (mark, pool_mark):
            with suppress(OSError):
                each.take_away()
        waiting.store.close()
        long_reads.close()
        reading.close()
        connection.close()

    return LivingChain(chain, ledger, transfers, waiting, verifier, clock, threads, close)


def open_pool(params: NetworkParams, mark: OpenMark, threads: Threads, *, limits: PoolLimits) -> Pool:
    """The mempool, empty in memory, and its file, open; raises DatabaseError."""
    path, guard = mark.database, threads.guard.of(MEMPOOL)
    with telling_damage(path, MEMPOOL):
        connection = open_writer(path, MEMPOOL)
        with telling_disk_trouble(path), mark.opening(connection):
            store = MempoolStore(connection, path, params)
    mempool = Mempool(params, max_transactions=limits.max_transactions, max_bytes=limits.max_bytes)
    return Pool(mempool, store, guard, GuardedWorker(threads.reader, guard))
