"""A chain brought to life from its file, and put to rest again (docs/storage.md)."""

import errno
import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import apsw
import pytest
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock
from twisted.logger import LogEvent

from svcd.chain.errors import Corrupt, Wait
from svcd.chain.params import DEVNET
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Worker
from svcd.node import pending_change
from svcd.node import transaction_pool as pool_module
from svcd.node.changes import BlockStatus
from svcd.node.mempool import Mempool
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.pinned_block import PinnedBlock
from svcd.node.threads import InlineWorker
from svcd.node.transaction_pool import SubmitResult
from svcd.store import database
from svcd.store.database import DatabaseError, DiskError, UncleanShutdownMarker, connect
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Stepped, code_of, late_clock, wire_of
from tests.node.connecting import branch
from tests.node.test_snapshot_start import add_headers, add_state, grow
from tests.store.statements import trace
from tests.support import has_result, result_of
from tests.torture.audit import audit

ExpectedErrors = Callable[..., list[LogEvent]]


class Brake(Stepped):
    """A thread that works at once until it is held."""

    held = False

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return (super().run if self.held else InlineWorker().run)(function, *args, **kwargs)


class Bench:
    """An open node and the threads it lives on."""

    def __init__(
        self, path: Path, keep_blocks: int = 0, expect: PinnedBlock | None = None, reader: Worker | None = None
    ) -> None:
        self.path = path
        self.expect = expect
        self.keep_blocks = keep_blocks
        self.writer = Brake()
        self.checker = Brake()
        self.reader = reader or self.checker
        self.clock: Clock = late_clock()
        self.node_context = self.open()

    def open(self) -> NodeContext:
        threads = NodeThreads(self.writer, self.checker, 2, reader=self.reader, disk=self.checker)
        mempool = Mempool(TEST_PARAMS, max_transactions=1000, max_bytes=2**20)
        opening = open_node(
            TEST_PARAMS,
            self.path,
            threads=threads,
            mempool=mempool,
            clock=self.clock,
            keep_blocks=self.keep_blocks,
            expect=self.expect,
        )
        node_context = result_of(Deferred.fromCoroutine(opening))
        node_context.start_pruning()
        return node_context

    def submit(self, *blocks: Any) -> Deferred[Any]:
        return self.node_context.chain_manager.submit_blocks([wire_of(block) for block in blocks])

    def close(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.node_context.close())

    def finish(self) -> None:
        while len(self.writer) or len(self.checker) or self.clock.getDelayedCalls():
            self.checker.finish()
            self.writer.finish()
            self.clock.advance(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.sqlite"


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    bench = Bench(path)
    yield bench
    closed = bench.close()
    bench.finish()
    assert has_result(closed)


def test_a_new_chain(bench: Bench) -> None:
    assert bench.node_context.chain_manager.tip.height == 0
    assert len(bench.node_context.transaction_pool.mempool) == 0


def test_a_chain_and_what_waits_are_taken_up(bench: Bench, chain: ChainBuilder) -> None:
    block = chain.block(transfers=[chain.transfer("alice", "bob", 5)])
    waiting = chain.transfer("alice", "bob", 6)
    bench.submit(block)
    bench.node_context.transaction_pool.submit(waiting)
    closed = bench.close()
    bench.finish()
    assert has_result(closed)
    bench.node_context = bench.open()
    assert bench.node_context.chain_manager.tip.hash == block.header.hash
    assert [entry.transfer.txid for entry in bench.node_context.transaction_pool.mempool.entries()] == [waiting.txid]


def test_the_mempool_follows_the_chain(bench: Bench, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    bench.node_context.transaction_pool.submit(transfer)
    bench.finish()
    assert len(bench.node_context.transaction_pool.mempool) == 1
    bench.submit(chain.block(transfers=[transfer]))
    assert len(bench.node_context.transaction_pool.mempool) == 0


def alive(bench: Bench) -> Deferred[None]:
    """The sign of life that somebody waits for."""
    return Deferred.fromCoroutine(bench.node_context.alive())


# Closing


def test_a_closed_chain_leaves_three_files(bench: Bench, chain: ChainBuilder, path: Path) -> None:
    bench.submit(*chain.chain("genesis: b[1..3]").values())
    result_of(bench.close())
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "chain.sqlite",
        "chain.sqlite-tree",
        "mempool.journal",
    ]
    assert audit(path, TEST_PARAMS.rules).height == 3
    bench.node_context = bench.open()


def test_closing_waits_for_a_commit(bench: Bench, chain: ChainBuilder, path: Path) -> None:
    bench.writer.held = True
    outcomes = bench.submit(chain.block())
    closed = bench.close()
    assert not has_result(closed)
    bench.finish()
    assert has_result(closed)
    assert result_of(outcomes) == ["connected"]
    assert audit(path, TEST_PARAMS.rules).height == 1
    bench.writer.held = False
    bench.node_context = bench.open()


def test_closing_waits_for_a_block_that_is_being_verified(bench: Bench, chain: ChainBuilder, path: Path) -> None:
    """It is looked up on disk on its way, and sent away only then: its sender is told to bring it again."""
    bench.checker.held = True
    outcomes = bench.submit(chain.block())
    bench.checker.step()
    closed = bench.close()
    assert len(bench.checker) == 1
    assert not has_result(closed)
    bench.finish()
    assert has_result(closed)
    assert [code_of(outcome) for outcome in result_of(outcomes)] == [Wait.BUSY]
    assert audit(path, TEST_PARAMS.rules).height == 0
    bench.checker.held = False
    bench.node_context = bench.open()


def test_a_closing_chain_takes_in_no_more(bench: Bench, chain: ChainBuilder) -> None:
    bench.checker.held = True
    begun, closed = bench.submit(chain.block()), bench.close()
    late = bench.submit(chain.block(producer="late"), b"no block at all")
    assert [code_of(outcome) for outcome in result_of(late)] == [Wait.BUSY] * 2
    assert len(bench.checker) == 1, "no thread is bothered"
    bench.finish()
    assert has_result(begun)
    assert has_result(closed)
    bench.checker.held = False
    bench.node_context = bench.open()


def test_closing_waits_until_every_transfer_is_written(bench: Bench, chain: ChainBuilder) -> None:
    bench.writer.held = bench.checker.held = True
    receptions = [bench.node_context.transaction_pool.submit(chain.transfer("alice", "bob", 5)) for _ in range(3)]
    closed = bench.close()
    bench.finish()
    assert has_result(closed)
    assert [result_of(reception) for reception in receptions] == [SubmitResult.ACCEPTED] * 3
    bench.writer.held = bench.checker.held = False
    bench.node_context = bench.open()
    assert len(bench.node_context.transaction_pool.mempool) == 3


def test_closing_waits_for_the_transfers_of_undone_blocks(bench: Bench, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(8)]
    old = chain.block(transfers=transfers)
    new = chain.chain("genesis: n[1..2]")
    bench.submit(old)
    bench.submit(*new.values())
    closed = bench.close()
    bench.finish()
    assert has_result(closed)
    bench.node_context = bench.open()
    entries = bench.node_context.transaction_pool.mempool.entries()
    assert [entry.transfer.txid for entry in entries] == [transfer.txid for transfer in transfers]


def test_a_journal_that_cannot_be_written_does_not_keep_the_chain_open(
    bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transfers are refused, the node goes on, and tries again now and then whether the disk takes them."""

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", fail)
        reception = bench.node_context.transaction_pool.submit(chain.transfer("alice", "bob", 5))
        bench.finish()
        with pytest.raises(DiskError, match="No space left on device"):
            result_of(reception)
        disk = bench.node_context.disks[1]
        assert disk.trouble == "the mempool's journal cannot be written: No space left on device"
        result_of(Deferred.fromCoroutine(disk.try_again()))
        assert disk.trouble
    result_of(Deferred.fromCoroutine(disk.try_again()))
    assert not disk.trouble
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", fail)
        bench.node_context.transaction_pool.submit(chain.transfer("alice", "bob", 5)).addErrback(lambda _: None)
        closed = bench.close()
        bench.finish()
        assert has_result(closed)
    with pytest.raises(apsw.ConnectionClosedError, match="closed"):
        bench.node_context.chain_manager.reader.tip()
    bench.node_context = bench.open()


# Signs of life


def test_a_node_whose_writer_answers_is_alive(bench: Bench) -> None:
    assert has_result(alive(bench))


def test_a_node_is_alive_as_soon_as_its_writer_answers(bench: Bench) -> None:
    bench.writer.held = True
    sign = alive(bench)
    bench.clock.pump([1] * 60)
    assert not has_result(sign), "nothing moves"
    bench.writer.finish()
    bench.clock.advance(1)
    assert has_result(sign)
    assert bench.clock.getDelayedCalls() == []


def test_a_node_with_a_long_piece_of_work_is_alive_while_it_moves_on(bench: Bench, chain: ChainBuilder) -> None:
    chainstate = bench.node_context.chain.chainstate
    bench.writer.held = True
    for _ in range(3):
        sign = alive(bench)
        bench.clock.pump([1] * 60)
        assert not has_result(sign)
        chainstate.steps += 1
        bench.clock.advance(1)
        assert has_result(sign)
    bench.writer.finish()


def test_every_block_applied_or_undone_is_a_step(bench: Bench, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b[1..2]\ngenesis: c[1..3]")
    steps = []
    for names in (("b1", "b2"), ("c1", "c2", "c3")):
        before = bench.node_context.chain.chainstate.steps
        result_of(bench.submit(*(b[name] for name in names)))
        steps.append(bench.node_context.chain.chainstate.steps - before)
    assert bench.node_context.chain_manager.tip.hash == b["c3"].header.hash
    assert steps[0] == 2
    assert steps[1] >= 5, "two are undone and three applied, one of them twice where c2 wins the tie"


def test_a_state_that_becomes_the_chain_is_many_steps(
    path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10^7 accounts it takes a minute and a half, in which the writer's thread answers nothing else."""
    monkeypatch.setattr(database, "_STEPS", 20)
    bench = Bench(path)
    context, blocks = bench.node_context, grow(chain, 40)
    add_headers(context.staging, blocks)
    add_state(context.staging, chain, blocks[19])
    seen: list[tuple[str, int]] = []
    trace(context.staging._db, lambda sql: seen.append((sql, context.chain.chainstate.steps)))
    assert result_of(context.chain_manager.adopt_snapshot(context.staging))
    trace(context.staging._db, None)
    grown = {sql: later - before for (sql, before), (_, later) in pairwise(seen)}
    for beginning in ("SELECT key, balance", "INSERT INTO block", "INSERT INTO canonical", "INSERT INTO history"):
        (steps,) = [steps for sql, steps in grown.items() if sql.startswith(beginning)]
        assert steps > 2, beginning
    result_of(bench.close())


# Files that cannot be used


def failure(path: Path) -> Exception:
    with pytest.raises((DatabaseError, Corrupt)) as failed:
        Bench(path)
    return failed.value


def test_a_damaged_page_is_told_in_one_sentence(path: Path, chain: ChainBuilder) -> None:
    bench = Bench(path)
    bench.submit(*chain.chain("genesis: b[1..3]").values())
    result_of(bench.close())
    with closing(connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'canonical'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    told = failure(path)
    assert isinstance(told, DatabaseError)
    assert str(told) == (
        f"{path} cannot be opened as a database: a page fails its checksum; "
        "try `svc db rebuild`, restore it from a backup, or move it away and the node fetches the chain again"
    )


def test_the_chain_of_another_network_is_told_in_one_sentence(path: Path) -> None:
    result_of(Bench(path).close())
    threads = NodeThreads(InlineWorker(), InlineWorker(), 2, InlineWorker(), InlineWorker())
    mempool = Mempool(DEVNET, max_transactions=1000, max_bytes=2**20)
    opening = open_node(DEVNET, path, threads=threads, mempool=mempool, clock=late_clock(DEVNET))
    with pytest.raises(Corrupt, match="does not have the chain of SVC-DEVNET: use another data directory"):
        result_of(Deferred.fromCoroutine(opening))
    gc.collect()
    assert not UncleanShutdownMarker(path).log_is_missing, "and with the right one nothing is said to be lost"


def test_closing_waits_for_a_transfer_that_is_being_verified(
    bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_FLOOD", 0)
    bench.checker.held = True
    transfer = chain.transfer("alice", "bob", 5)
    reception = bench.node_context.transaction_pool.submit(transfer)
    bench.clock.advance(0)
    closed = bench.close()
    assert len(bench.checker) == 1
    assert not has_result(closed)
    bench.finish()
    assert has_result(closed)
    assert result_of(reception) is SubmitResult.ACCEPTED
    bench.checker.held = False
    bench.node_context = bench.open()
    assert [entry.transfer.txid for entry in bench.node_context.transaction_pool.mempool.entries()] == [transfer.txid]


# A block that the operator knows


def test_a_chain_on_disk_without_the_expected_block_is_refused(path: Path, chain: ChainBuilder) -> None:
    blocks = branch(chain, None, 4, "a")
    bench = Bench(path)
    result_of(bench.submit(*blocks))
    result_of(bench.close())
    wrong = PinnedBlock(3, bytes(32))
    with pytest.raises(DatabaseError) as refusal:
        Bench(path, expect=wrong)
    assert str(refusal.value) == (
        f"the chain in {path} is refused: its block 3 is {blocks[2].header.hash.hex()}, and [chain] expect = {wrong}; "
        "correct the setting, or move the file away, and the node fetches the chain that has this block"
    )
    for height, block_hash in ((3, blocks[2].header.hash), (5, bytes(32))):
        result_of(Bench(path, expect=PinnedBlock(height, block_hash)).close())


# Long reads


class OneThread:
    """A worker with a thread of its own, in which its Deferreds fire as well."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self._pool.submit(lambda: execute(function, *args, **kwargs).chainDeferred(done))
        return done

    def finish(self) -> None:
        """Wait for the work that has been given to it."""
        self._pool.submit(lambda: None).result()


@pytest.mark.parametrize("names", [["b3"], ["c2", "c3"]], ids=["parent in memory", "parent on disk"])
def test_a_long_read_holds_up_no_block(
    path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """Nor what its change does not list, which is looked up after the commit."""
    monkeypatch.setattr(pending_change, "MAX_LISTED", 0)
    transfer = chain.transfer("alice", "bob", 5)
    blocks = chain.chain("genesis: b[1..2]\ngenesis: c[1..2]")
    blocks |= {name: chain.block(blocks[f"{name[0]}2"], transfers=[transfer]) for name in ("b3", "c3")}
    first = Bench(path)
    result_of(first.submit(blocks["b1"], blocks["b2"], blocks["c1"]))
    result_of(first.close())
    reader = OneThread()
    bench = Bench(path, reader=reader)
    node = bench.node_context
    node.transaction_pool.submit(transfer)
    bench.clock.advance(1)
    tips = list[ChainPoint]()
    node.chain_manager.subscribe(SimpleNamespace(chain_changed=lambda change: tips.append(change.tip)))
    reading, let_go = Event(), Event()
    try:
        asked = node.chain.long_reads.ask(lambda _: (reading.set(), let_go.wait(60)))
        assert reading.wait(60)
        outcomes = result_of(bench.submit(*(blocks[name] for name in names)))
        assert code_of(outcomes[-1]) == BlockStatus.CONNECTED
        assert tips == [chain.point_after(blocks[names[-1]])]
        assert len(node.transaction_pool.mempool) == 0
        assert not has_result(asked)
    finally:
        let_go.set()
        reader.finish()
    assert result_of(asked) == (None, True)
    closed = bench.close()
    reader.finish()
    result_of(closed)


# Old blocks


def test_old_blocks_are_deleted_as_the_chain_grows_and_after_a_restart(path: Path, chain: ChainBuilder) -> None:
    blocks = branch(chain, None, 16, "a")
    archive = Bench(path)
    result_of(archive.submit(*blocks[:9]))
    assert archive.node_context.chain_manager.reader.prune_height() == 0
    result_of(archive.close())
    for keep, first, last, height in ((4, 9, 11, 4), (4, 11, 12, 6), (0, 12, 14, 6), (4, 14, 16, 10)):
        pruned = Bench(path, keep_blocks=keep)
        result_of(pruned.submit(*blocks[first:last]))
        manager = pruned.node_context.chain_manager
        assert (manager.prune_height, manager.reader.prune_height()) == (height, height)
        result_of(pruned.close())


def test_a_block_stays_until_its_payments_have_been_evaluated(path: Path, chain: ChainBuilder) -> None:
    """The webhooks would never see a payment in it; and a new watch may need an earlier block than the one before."""
    bench = Bench(path, keep_blocks=2)
    heights = [0]
    bench.node_context.start_pruning(lambda: heights[-1])
    blocks, pruned = branch(chain, None, 12, "a"), []
    for evaluated, block in zip([0, 0, 0, 0, 2, 2, 2, 9, 3, 20, 20, 20], blocks, strict=True):
        heights.append(evaluated)
        bench.submit(block)
        pruned.append(bench.node_context.chain_manager.prune_height)
    assert pruned == [0, 1, 1, 1, 3, 3, 3, 5, 5, 7, 9, 11], "two with each block, none above the height"
    closed = bench.close()
    bench.finish()
    assert has_result(closed)
