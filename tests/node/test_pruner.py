"""Old blocks are deleted a little at a time, and what is kept answers as before (docs/storage.md)."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent

from svcd.chain.block import Block
from svcd.chain.errors import Wait
from svcd.chain.transaction import Transfer
from svcd.node.changes import CheckedBlock
from svcd.node.database_health import DatabaseHealth, ReportingWorker
from svcd.node.pruner import Pruner
from svcd.node.threads import InlineWorker
from svcd.store.block_deletion import BlockDeletion
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_checkpointer
from svcd.store.pruned import Pruned, ReorganisationBelowPruneHeight
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node, Setting, Stepped, running
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED, SIDE, branch, codes, connect, connect_all, fork
from tests.node.trees import CHAINS, PEOPLE, Sprout, grow
from tests.store.contents import contents
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]
KEPT = "block canonical history account prune disconnected_transfer".split()


def deletion_of(node: Node) -> BlockDeletion:
    return BlockDeletion(node.connections[0])


def delete(node: Node, below: int, at_most: int = 1_000) -> None:
    deletion = deletion_of(node)
    while deletion.delete_some(below=below, at_most=at_most).more:
        pass


def answers(reader: ChainReader, first: int, transfers: list[Transfer]) -> dict[str, Any]:
    """What a node answers about blocks at height ``first`` and above."""
    tip, keys = reader.existing_tip(), [key_of(name).hash for name in PEOPLE]
    blocks = [reader.existing(height) for height in range(first, tip.height + 1)]
    found: dict[str, Any] = {
        "tip": tip,
        "headers": reader.headers(0, limit=100),
        "blocks": [reader.wire(block) for block in blocks],
        "figures": [reader.figures(block) for block in blocks],
        "fees": [reader.fees_in(block.point.height) for block in blocks],
        "newest": reader.newest_fees(len(blocks)),
        "accounts": [reader.account(key) for key in keys],
        "after": [[reader.account_after(key, block.point.height) for key in keys] for block in blocks],
        "transfers": [
            place
            for each in transfers
            if (place := reader.transaction(each.txid, TEST_PARAMS)) and place.point.height >= first
        ],
        "up": [reader.address_transactions_after(key, (first - 1, 2**53 - 1), limit=100) for key in keys],
    }
    for key in keys:
        listed = reader.address_transactions(key, before=(2**53, 0), limit=100)
        found[f"down {key.hex()}"] = [place for place in listed if place.point.height >= first]
        for reference in ("order-1", "order-2"):
            found[f"received {reference} {key.hex()}"] = reader.received(
                (reference, key), (first - 1, 2**53), limit=100
            )
            around = reader.around((reference, key), 1, since=first, counted=100, missed=100)
            found[f"around {reference} {key.hex()}"] = around
    return found


@given(CHAINS, st.data())
def test_a_pruned_store_answers_as_an_archive_does(tree: list[Sprout], data: st.DataObject) -> None:
    """At the prune height and above; below it, every read of a block raises Pruned."""
    chain = ChainBuilder()
    blocks = grow(chain, tree)
    transfers = [transfer for block in blocks for transfer in block.transfers]
    below = data.draw(st.integers(1, len(blocks)), "below")
    at_most = data.draw(st.integers(1, 5), "at most")
    stop_after = data.draw(st.integers(0, 20), "stopped after so many commits")
    with TemporaryDirectory() as folder, running(Path(folder), Setting()) as node:
        connect_all(node, chain, *blocks)
        reader, deletion = ChainReader(node.connections[1]), deletion_of(node)
        whole = [answers(reader, first, transfers) for first in range(len(blocks) + 1)]
        for _ in range(stop_after):
            if not deletion.delete_some(below=below, at_most=at_most).more:
                break
        # After each commit, the newest one of a node that was killed included.
        first = reader.prune_height()
        assert answers(reader, first, transfers) == whole[first]
        delete(node, below, at_most)
        assert reader.prune_height() == below
        assert answers(reader, below, transfers) == whole[below]
        for height in range(below):
            block = reader.existing(height)
            reads: list[Callable[[], object]] = [
                lambda block=block: reader.bodies(block),  # type: ignore[misc]
                lambda block=block: reader.wire(block),  # type: ignore[misc]
                lambda block=block: reader.figures(block),  # type: ignore[misc]
                lambda height=height: reader.fees_in(height),  # type: ignore[misc]
            ]
            for read in reads:
                with pytest.raises(Pruned, match=f"only blocks from height {below} on"):
                    read()
        gone = {block.header.hash for block in blocks[: below - 1]}
        left = [each for block in blocks if block.header.hash not in gone for each in block.transfers]
        found = contents(node.connections[0])
        assert len(found["block_transaction"]) == len(found["transaction_entry"]) == len(left)
        assert len(found["undo"]) == len(blocks) + 1 - below
        assert len(found["payment_entry"]) == sum(each.reference is not None for each in left)
        assert len(found["address_entry"]) == sum(len({each.sender, each.recipient}) for each in left)


def test_headers_history_and_accounts_stay(node: Node, chain: ChainBuilder) -> None:
    blocks = branch(chain, None, 9, "a")
    connect_all(node, chain, *blocks)
    before = contents(node.connections[0], KEPT)
    delete(node, 7, at_most=1)
    assert contents(node.connections[0], KEPT) == {**before, "prune": [(1, 7, b"")]}
    more = branch(chain, blocks[-1], 3, "a")
    connect_all(node, chain, *more)
    node.chainstate.load()
    assert node.chainstate.tip == chain.point_after(more[-1])


def test_branches_that_can_never_win_are_deleted(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    assert set(codes(connect(node, chain, *new[:-1]))) == {SIDE}
    # They leave the chain at block 2: undoing block 3 leads there.
    delete(node, 3, at_most=1)
    assert all(node.store.point(block.header.hash) for block in new[:-1])
    delete(node, 4, at_most=1)
    assert not any(node.store.point(block.header.hash) for block in new)
    assert all(node.store.point(block.header.hash) for block in old)


def test_a_reorganisation_down_to_the_prune_height_is_made(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    delete(node, 3)
    connect_all(node, chain, *new)


def checked(chain: ChainBuilder, block: Block, proven_work: int) -> CheckedBlock:
    return CheckedBlock(block, chain.head_after(block), proven_work)


def test_a_chain_with_more_work_from_below_ends_the_node(
    node: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    delete(node, 4)
    before = contents(node.connections[0])
    # What headers have not shown to have more work is not taken, and hurts nobody.
    assert codes(connect(node, chain, new[0])) == [Wait.DEEP]
    stops: list[str] = []
    worker = ReportingWorker(InlineWorker(), DatabaseHealth(lambda: stops.append("stop")))
    work = chain.point_after(new[-1]).work
    for _ in range(2):
        with pytest.raises(ReorganisationBelowPruneHeight):
            result_of(worker.run(node.chainstate.connect, [checked(chain, block, work) for block in new]))
    assert (stops, contents(node.connections[0])) == (["stop"], before)
    (event,) = expected_errors()
    assert formatEvent(event) == (
        "alarm: a chain with more work leaves this node's at block 2, and this node has only blocks from height 4 on, "
        "so it cannot follow. The node stops. Ask other operators whether that chain is the network's; if it is, move "
        "chain.sqlite away and start the node, which then fetches that chain"
    )


def test_a_stored_branch_that_wins_from_below_ends_the_node(node: Node, chain: ChainBuilder) -> None:
    """Its blocks are being deleted, the last ones first, and the others are still there."""
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    assert set(codes(connect(node, chain, *new[:-2]))) == {SIDE}
    with node.store.commit():
        node.store.set_prune_height(4)
    before = contents(node.connections[0])
    with pytest.raises(ReorganisationBelowPruneHeight):
        connect(node, chain, *new[-2:])
    assert contents(node.connections[0]) == before


def show_work(node: Node, work: int) -> None:
    """Let the chain have begun from a snapshot, with headers of so much work."""
    with node.store.commit():
        node.connections[0].execute("UPDATE prune SET proven_work = ?", (work.to_bytes(32, "big"),))


@pytest.mark.parametrize("proven", [True, False], ids=["shown by headers", "its own work"])
def test_a_chain_with_less_work_than_the_start_has_shown_is_not_taken_from_below(
    node: Node, chain: ChainBuilder, proven: bool
) -> None:
    """The tip may be far below the newest header, so that many a chain has more work than it."""
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    delete(node, 4)
    work, tip = chain.point_after(new[-1]).work, node.chainstate.tip
    show_work(node, work)
    candidate = checked(chain, new[0], work if proven else 0)
    if not proven:
        candidate = evolve(candidate, head=evolve(candidate.head, point=evolve(candidate.point, work=work)))
    assert codes(node.chainstate.connect([candidate])) == [Wait.DEEP]
    assert node.chainstate.tip == tip
    show_work(node, work - 1)
    with pytest.raises(ReorganisationBelowPruneHeight):
        node.chainstate.connect([candidate])


@pytest.mark.parametrize("missing", [0, 1], ids=["as much", "less"])
def test_a_stored_branch_with_no_more_work_than_the_start_has_shown_is_not_taken(
    node: Node, chain: ChainBuilder, missing: int
) -> None:
    """Such as the chain that was here before the start from a snapshot."""
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    assert set(codes(connect(node, chain, *new[:-1]))) == {SIDE}
    with node.store.commit():
        node.store.set_prune_height(4)
    work, before = chain.point_after(new[-1]).work, node.chainstate.tip
    show_work(node, work + missing)
    assert codes(connect(node, chain, new[-1])) == [Wait.DEEP]
    assert node.chainstate.tip == before
    assert node.store.point(new[-1].header.hash) is None
    show_work(node, work - 1)
    with pytest.raises(ReorganisationBelowPruneHeight):
        connect(node, chain, new[-1])


# The component


class SlowClock(Clock):
    """A clock on which each look takes ``took`` seconds."""

    took = 0.0

    def seconds(self) -> float:
        self.advance(self.took)
        return super().seconds()


PrunerOf = Callable[..., Pruner]


@pytest.fixture
def pruner_of() -> Iterator[PrunerOf]:
    """``pruner_of(node, writer, keep, …)``: a pruner that has begun."""
    with ExitStack() as connections:

        def make(
            node: Node,
            writer: Any,
            keep: int,
            clock: Any = None,
            disk: Any = None,
            evaluated: Callable[[], int] | None = None,
        ) -> Pruner:
            (_, _, path), *_ = node.connections[0].execute("PRAGMA database_list")
            log = connections.enter_context(closing(open_checkpointer(Path(path))))
            disk = InlineWorker() if disk is None else disk
            pruner = Pruner(deletion_of(node), node.chain_manager, writer, clock or node.clock, disk, log, keep)
            pruner.begin(evaluated)
            return pruner

        yield make


def test_the_newest_blocks_are_kept(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    pruner_of(node, InlineWorker(), keep=5)
    for height, block in enumerate(branch(chain, None, 12, "a"), 1):
        assert node.submit(block) == [CONNECTED]
        assert node.store.prune_height() == node.chain_manager.prune_height == max(height - 4, 0)


def test_it_goes_on_where_it_was(make_node: MakeNode, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    node = make_node()
    assert set(node.submit(*branch(chain, None, 12, "a"))) == {CONNECTED}
    deletion_of(node).delete_some(below=8, at_most=2)
    assert node.store.prune_height() == 2
    pruner_of(node, InlineWorker(), keep=5)
    assert node.store.prune_height() == 8
    assert len(contents(node.connections[0])["block_transaction"]) == 5


def test_other_work_of_the_writer_comes_between_two_jobs(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    assert set(node.submit(*branch(chain, None, 12, "a"))) == {CONNECTED}
    worker = Stepped()
    clock = SlowClock()
    clock.took = 0.007
    pruner = pruner_of(node, worker, keep=2, clock=clock)
    pruner._transfers = 1
    for _ in range(5):
        assert len(worker) == 1
        worker.step()
    stopped = pruner.stop()
    worker.finish()
    result_of(stopped)
    assert 0 < node.store.prune_height() < 11
    pruner.start()
    assert len(worker) == 0


def test_more_jobs_are_queued_while_the_chain_grows_faster(
    node: Node, chain: ChainBuilder, pruner_of: PrunerOf
) -> None:
    blocks = branch(chain, None, 40, "a")
    node.submit(*blocks[:10])
    worker = Stepped()
    pruner = pruner_of(node, worker, keep=2)
    assert len(worker) == 1
    node.submit(*blocks[10:])
    # Nothing was deleted meanwhile: the lag has grown by 30 blocks.
    pruner._transfers = 1
    worker.step()
    assert len(worker) > 8
    worker.finish()
    assert node.store.prune_height() == 39


def test_a_job_deletes_as_much_as_its_time_allows(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    blocks = branch(chain, None, 30, "a")
    node.submit(*blocks[:20])
    clock = SlowClock()
    clock.took = 0.011
    pruner = pruner_of(node, InlineWorker(), keep=2, clock=clock)
    assert node.store.prune_height() == 19
    assert pruner._transfers < 64
    clock.took, pruner._transfers = 0.001, 4
    node.submit(*blocks[20:])
    assert pruner._transfers > 4


def test_a_full_disk_is_tried_again_with_the_next_block(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    blocks = branch(chain, None, 8, "a")
    node.submit(*blocks[:6])
    worker = Stepped()
    pruner_of(node, worker, keep=2)
    worker.fail(sqlite3.OperationalError("database or disk is full"))
    assert (len(worker), node.store.prune_height()) == (0, 0)
    node.submit(blocks[6])
    worker.finish()
    assert node.store.prune_height() == 6


def test_a_block_at_which_the_watches_were_not_evaluated_stays(
    node: Node, chain: ChainBuilder, pruner_of: PrunerOf
) -> None:
    blocks, evaluated = branch(chain, None, 12, "a"), -1
    pruner_of(node, InlineWorker(), keep=2, evaluated=lambda: evaluated)
    node.submit(*blocks[:9])
    assert node.store.prune_height() == 0
    evaluated = 4
    node.submit(blocks[9])
    assert node.store.prune_height() == 5
    assert node.store.bodies(node.store.existing(5))
    evaluated = 11
    node.submit(*blocks[10:])
    assert node.store.prune_height() == 11


def test_the_next_jobs_come_after_the_checkpoint(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    node.submit(*branch(chain, None, 12, "a"))
    writer, disk = Stepped(), Stepped()
    pruner = pruner_of(node, writer, keep=2, disk=disk)
    assert (len(writer), len(disk)) == (0, 1)
    disk.step()
    assert (len(writer), len(disk)) == (1, 0)
    pruner._transfers, pruner._unwritten = 1, 999
    writer.step()
    assert (len(writer), len(disk)) == (0, 1)
    disk.step()
    assert (len(writer), len(disk), pruner._unwritten) == (1, 0, 0)


def test_a_log_that_a_long_read_keeps_is_not_filled(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    blocks = branch(chain, None, 12, "a")
    node.submit(*blocks[:11])
    writer = Stepped()
    pruner = pruner_of(node, writer, keep=2)
    reader = ChainReader(node.connections[1])
    with reader.snapshot():
        reader.tip()
        pruner._transfers, pruner._unwritten = 1, 999
        writer.step()
        assert len(writer) == 0
    node.submit(blocks[11])
    writer.finish()
    assert node.store.prune_height() == 11


def test_a_large_side_block_takes_a_job_of_its_own(node: Node, chain: ChainBuilder) -> None:
    """Its bytes count, so that no commit deletes dozens of full blocks."""
    trunk, old, new = fork(chain, 6)
    connect_all(node, chain, *trunk, *old)
    connect(node, chain, *new[:-1])
    with node.store.commit():
        node.connections[0].execute("UPDATE block SET size = 1000000 WHERE side_work IS NOT NULL")
    delete(node, 3)
    count, deletion = len(new) - 1, deletion_of(node)
    for left in range(count - 1, -1, -1):
        deletion.delete_some(below=4, at_most=64)
        assert sum(node.store.point(block.header.hash) is not None for block in new[:-1]) == left


def test_the_search_for_the_end_of_a_branch_takes_its_part_of_a_job(node: Node, chain: ChainBuilder) -> None:
    """A long branch is passed once, and not again for each job that deletes some of its blocks."""
    trunk, old, new = fork(chain, 30)
    connect_all(node, chain, *trunk, *old)
    connect(node, chain, *new[:-1])
    delete(node, 3)
    side = [block.header.hash for block in new[:-1]]
    deletion, most, left = deletion_of(node), 0, [len(side)]
    searched: list[str] = []
    node.connections[0].set_trace_callback(lambda sql: searched.append(sql) if "id <> " in sql else None)
    while deletion.delete_some(below=4, at_most=4).more:
        most, left = max(most, len(searched)), [*left, sum(node.store.point(each) is not None for each in side)]
        searched.clear()
    node.connections[0].set_trace_callback(None)
    assert left[-1] == 0
    assert most <= 5
    # Passing a block counts as one transfer, and deleting it as two or three.
    assert len(left) <= len(side) + 3
    assert max(before - after for before, after in pairwise(left)) <= 4


def test_a_branch_that_was_trimmed_meanwhile_is_searched_from_what_is_left(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 12)
    connect_all(node, chain, *trunk, *old)
    connect(node, chain, *new[:-1])
    delete(node, 3)
    deletion = deletion_of(node)
    deletion.delete_some(below=4, at_most=10)
    with node.store.commit():
        gone = node.store.stored(new[4].header.hash)
        assert gone is not None
        node.store.delete_with_descendants(gone)
    while deletion.delete_some(below=4, at_most=1).more:
        pass
    assert not any(node.store.point(block.header.hash) for block in new)
    assert all(node.store.point(block.header.hash) for block in old)


def test_a_job_that_had_less_to_delete_does_not_make_the_next_one_larger(
    node: Node, chain: ChainBuilder, pruner_of: PrunerOf
) -> None:
    pruner = pruner_of(node, InlineWorker(), keep=2)
    for block in branch(chain, None, 12, "a"):
        node.submit(block)
    assert node.store.prune_height() == 11
    assert pruner._transfers == 64


def test_the_write_ahead_log_is_written_back_after_deleted_rows_only(
    node: Node, chain: ChainBuilder, pruner_of: PrunerOf
) -> None:
    disk = Stepped()
    pruner = pruner_of(node, InlineWorker(), keep=2, disk=disk)
    blocks = branch(chain, None, 40, "a")
    node.submit(*blocks[:3])
    disk.step()
    for block in blocks[3:]:
        node.submit(block)
    assert node.store.prune_height() == 39
    # A transfer, its index entries with their runs, and a height of each block.
    assert (len(disk), pruner._unwritten) == (0, 4 * 38 + 1)


def test_a_job_that_began_before_is_waited_for(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    writer = Stepped()
    pruner = pruner_of(node, writer, keep=2)
    node.submit(*branch(chain, None, 4, "a"))
    assert len(writer) == 1
    done = pruner.earlier_jobs_done()
    assert (has_result(done), node.store.prune_height()) == (False, 0)
    writer.step()
    assert (has_result(done), node.store.prune_height()) == (False, 3)
    writer.step()
    assert has_result(done)


def test_a_new_pruning_run_begins_with_one_job_at_a_time(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    """The lag of a run that ended with nothing left is no measure of the next one."""
    blocks, evaluated = branch(chain, None, 40, "a"), 3
    worker = Stepped()
    pruner_of(node, worker, keep=2, evaluated=lambda: evaluated)
    node.submit(*blocks[:39])
    worker.finish()
    assert node.store.prune_height() == 4
    evaluated = 39
    node.submit(blocks[39])
    assert len(worker) == 1
    worker.finish()
    assert node.store.prune_height() == 39


def test_a_height_that_falls_while_a_job_waits_is_heeded(node: Node, chain: ChainBuilder, pruner_of: PrunerOf) -> None:
    """As by a new watch over payments in old blocks."""
    worker, evaluated = Stepped(), 12
    pruner_of(node, worker, keep=2, evaluated=lambda: evaluated)
    node.submit(*branch(chain, None, 12, "a"))
    assert len(worker) == 1
    evaluated = 4
    worker.finish()
    assert node.store.prune_height() == 5
