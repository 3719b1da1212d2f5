"""Each new block deletes at most two old ones, and what is kept answers as before (docs/storage.md)."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogEvent, formatEvent

from svcd.chain.block import Block
from svcd.chain.errors import Wait
from svcd.chain.transaction import Transfer
from svcd.node.changes import CheckedBlock
from svcd.node.database_health import DatabaseHealth, ReportingWorker
from svcd.node.threads import InlineWorker
from svcd.store import chain_store, side_blocks
from svcd.store.chain_store import ChainReader
from svcd.store.pruned import Pruned, ReorganisationBelowPruneHeight
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node, Setting, running
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED, SIDE, branch, codes, commits, connect, connect_all, fork
from tests.node.trees import CHAINS, PEOPLE, Sprout, grow
from tests.store.contents import contents
from tests.store.statements import trace
from tests.support import result_of

ExpectedErrors = Callable[..., list[LogEvent]]
KEPT = "block canonical history account_entry prune disconnected_transfer".split()


def delete(node: Node, below: int, at_most: int = 1_000) -> None:
    """Delete old blocks as one commit does."""
    with node.store.commit():
        node.store.delete_old_blocks(below=below, at_most=at_most)
        node.store.side_blocks.trim(limit=1 << 30, spare=0, at_most=at_most)


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
        "accounts": [reader.account(key) for key in keys],
        "after": [[reader.account_after(key, block.point.height) for key in keys] for block in blocks],
        "transfers": [
            place
            for each in transfers
            if (place := reader.transaction(each.txid, TEST_PARAMS)) and place.height >= first
        ],
        "up": [list(reader.of_address(key, after=(first - 1, 2**53 - 1))) for key in keys],
    }
    for key in keys:
        listed = reader.address_transactions(key, before=(2**53, 0), limit=100)
        found[f"down {key.hex()}"] = [place for place in listed if place.height >= first]
        for reference in ("order-1", "order-2"):
            found[f"under {reference}"] = reader.under_reference(reference, after=(first - 1, 2**53), limit=100)
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
    with TemporaryDirectory() as folder, running(Path(folder), Setting()) as node:
        connect_all(node, chain, *blocks)
        reader = ChainReader(node.connections[1])
        whole = [answers(reader, first, transfers) for first in range(len(blocks) + 1)]
        while (first := reader.prune_height()) < below:
            # After each commit, the newest one of a node that was killed included.
            assert answers(reader, first, transfers) == whole[first]
            delete(node, below, at_most)
            assert first < reader.prune_height() <= first + at_most
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
        assert len(found["block_transaction"]) == len(left)
        assert len(found["undo"]) == len(blocks) + 1 - below
        assert len(found["transfer_entry"]) == sum(
            1 + len({each.sender, each.recipient}) + 2 * (each.reference is not None) for each in left
        )


def test_headers_history_and_accounts_stay(node: Node, chain: ChainBuilder) -> None:
    blocks = branch(chain, None, 9, "a")
    connect_all(node, chain, *blocks)
    before = contents(node.connections[0], KEPT)
    delete(node, 7)
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
    delete(node, 3)
    assert all(node.store.point(block.header.hash) for block in new[:-1])
    delete(node, 4)
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
    """Its blocks are deleted with later commits, the last ones first, and are still there."""
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


# With each block


def keep(node: Node, blocks: int) -> None:
    """Let the node keep so many of the newest blocks from its next block on."""
    node.chainstate.kept_from = lambda tip: tip - blocks + 1


def test_the_newest_blocks_are_kept(node: Node, chain: ChainBuilder) -> None:
    keep(node, 5)
    for height, block in enumerate(branch(chain, None, 12, "a"), 1):
        assert node.submit(block) == [CONNECTED]
        assert node.store.prune_height() == node.chain_manager.prune_height == max(height - 4, 0)


def test_a_node_that_has_more_catches_up_by_a_block_with_each_new_one(make_node: MakeNode, chain: ChainBuilder) -> None:
    node, blocks = make_node(), branch(chain, None, 18, "a")
    node.submit(*blocks[:10])
    keep(node, 5)
    heights = []
    for block in blocks[10:]:
        node.submit(block)
        heights.append(node.store.prune_height())
    assert heights == [2, 4, 6, 8, 10, 12, 13, 14]
    assert len(contents(node.connections[0])["block_transaction"]) == 5


def test_a_batch_deletes_two_for_each_of_its_blocks_in_its_one_commit(node: Node, chain: ChainBuilder) -> None:
    blocks = branch(chain, None, 16, "a")
    node.submit(*blocks[:10])
    keep(node, 2)
    with commits(node) as seen:
        node.submit(*blocks[10:13])
    assert (seen, node.store.prune_height()) == (["BEGIN IMMEDIATE", "COMMIT"], 6)
    node.submit(*blocks[13:])
    assert node.store.prune_height() == 12


def test_no_commit_deletes_a_block_that_it_has_connected(node: Node, chain: ChainBuilder) -> None:
    """No listener has heard of it."""
    blocks = branch(chain, None, 13, "a")
    node.submit(*blocks[:2])
    keep(node, 2)
    node.submit(*blocks[2:12])
    assert node.store.prune_height() == 3
    node.submit(blocks[12])
    assert node.store.prune_height() == 5


def test_a_commit_that_fails_deletes_nothing(node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise apsw.FullError("database or disk is full")

    blocks = branch(chain, None, 6, "a")
    node.submit(*blocks[:5])
    keep(node, 2)
    before = contents(node.connections[0])
    with monkeypatch.context() as patch:
        # The last thing that a commit does.
        patch.setattr(node.store.side_blocks, "trim", full)
        node.chainstate._trim_from = 0
        with pytest.raises(apsw.FullError):
            node.submit(blocks[5])
    assert contents(node.connections[0]) == before
    node.submit(blocks[5])
    assert node.store.prune_height() == 2


def left(node: Node, blocks: list[Block]) -> list[int]:
    """The indexes of the blocks that are stored."""
    return [index for index, block in enumerate(blocks) if node.holds(block)]


@pytest.fixture
def side_branch(node: Node, chain: ChainBuilder) -> tuple[list[Block], list[Block]]:
    """Blocks that extend a chain of 30 on which a branch of 29 has lost, and that branch; the first leads below it."""
    trunk, old, new = fork(chain, 28)
    connect_all(node, chain, *trunk, *old)
    connect(node, chain, *new[:-1])
    with node.store.commit():
        node.store.delete_old_blocks(below=2, at_most=2)
    keep(node, 29)
    return branch(chain, old[-1], 20, "d"), new[:-1]


def test_a_long_side_branch_goes_in_several_commits_its_end_first(
    node: Node, side_branch: tuple[list[Block], list[Block]]
) -> None:
    blocks, side = side_branch
    node.submit(blocks[0])
    assert (node.store.prune_height(), len(left(node, side))) == (3, len(side)), "it may still win"
    counts = []
    for block in blocks[1:7]:
        node.submit(block)
        found = left(node, side)
        assert found == list(range(len(found)))
        counts.append(len(found))
    assert counts == [20, 12, 4, 0, 0, 0]
    assert node.chainstate._trim_from is None


def test_the_search_for_the_end_of_a_side_branch_is_bounded_and_goes_on_where_it_was(
    node: Node, side_branch: tuple[list[Block], list[Block]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_blocks, "CONDEMNED_AT_ONCE", 10)
    blocks, side = side_branch
    node.submit(blocks[0])
    counts, most, passed = [], 0, list[str]()
    trace(node.connections[0], lambda sql: passed.append(sql) if "min(side_work)" in sql else None)
    for block in blocks[1:7]:
        node.submit(block)
        most = max(most, len(passed))
        passed.clear()
        counts.append(len(left(node, side)))
    trace(node.connections[0], None)
    assert counts == [28, 28, 20, 12, 4, 0]
    assert most <= 10 + 8 + 1


def test_a_side_branch_that_grows_while_it_is_deleted_goes_whole(
    node: Node, chain: ChainBuilder, side_branch: tuple[list[Block], list[Block]]
) -> None:
    blocks, side = side_branch
    node.submit(*blocks[:2])
    assert left(node, side) == list(range(20))
    more = [chain.block(side[index], producer=f"e{index}") for index in (3, 19)]
    assert set(codes(connect(node, chain, *more))) == {SIDE}
    for block in blocks[2:6]:
        node.submit(block)
    assert left(node, [*side, *more]) == []
    assert all(map(node.holds, blocks[:6]))


def test_many_branches_beside_one_block_are_condemned_in_several_commits(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (side_blocks, chain_store):
        monkeypatch.setattr(module, "CONDEMNED_AT_ONCE", 2)
    blocks = branch(chain, None, 20, "a")
    connect_all(node, chain, *blocks[:3])
    side = [chain.block(blocks[0], producer=f"s{number}") for number in range(5)]
    connect(node, chain, *side)
    keep(node, 1)
    heights = []
    for block in blocks[3:12]:
        node.submit(block)
        heights.append(node.store.prune_height())
    assert heights == [2, 2, 2, 4, 6, 8, 10, 11, 12]
    assert left(node, side) == []
