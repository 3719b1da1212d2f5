"""Which side blocks are stored, and which are deleted again: they are not executed, and cost little to make."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import Wait
from svcd.chain.transition import ChainHead
from svcd.chain.work import block_work
from svcd.node import chain_manager, chainstate
from svcd.node.chainstate import least_side_work
from svcd.node.changes import BlockStatus
from svcd.store.chain_store import StoredBlock
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node, code_of
from tests.node.conftest import MakeNode
from tests.support import result_of

CONNECTED, SIDE, KNOWN, DEEP = BlockStatus.CONNECTED, BlockStatus.SIDE, BlockStatus.KNOWN, Wait.DEEP


@pytest.fixture(autouse=True)
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side blocks may have the work of five blocks less than the tip."""
    monkeypatch.setattr(chainstate, "SIDE_DEPTH", 5)


def branches(chain: ChainBuilder, text: str) -> dict[str, Block]:
    return chain.chain(text)


def submit_proven(node: Node, chain: ChainBuilder, *blocks: Block, tip: Block) -> list[object]:
    """What becomes of blocks of which headers have shown that ``tip`` is the end of their chain."""
    work = chain.point_after(tip).work
    wires = [block.wire() for block in blocks]
    return [code_of(outcome) for outcome in result_of(node.chain_manager.submit_blocks(wires, proven_work=work))]


def stored(node: Node, blocks: dict[str, Block]) -> str:
    """The names of the blocks that are stored."""
    return " ".join(name for name, block in blocks.items() if node.holds(block))


def test_the_bound_is_the_work_of_so_many_blocks_with_the_next_target(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..9]")
    node.submit(*blocks.values())
    tip = node.chain_manager.tip
    target = chain.block(blocks["b9"]).header.base_target
    assert least_side_work(TEST_PARAMS, tip) == tip.work - 5 * block_work(target)
    assert node.chain_manager.keeps(tip.work - 5 * block_work(target))
    assert not node.chain_manager.keeps(tip.work - 5 * block_work(target) - 1)


def test_a_block_far_below_the_tip_is_not_stored_nor_its_work_checked(
    node: Node, chain: ChainBuilder, argon: list[bytes]
) -> None:
    blocks = chain.chain("genesis: b[1..9]\nb2: c3\nb4: d5")
    node.submit(*(blocks[f"b{number}"] for number in range(1, 10)))
    argon.clear()
    assert node.submit(blocks["c3"]) == [DEEP]
    assert argon == []
    assert not node.holds(blocks["c3"])
    assert node.submit(blocks["d5"]) == [SIDE]
    assert node.submit(blocks["c3"]) == [DEEP], "nothing is remembered of it"


def test_a_branch_of_which_headers_show_more_work_is_followed_however_deep(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..9]\ngenesis: c[1..10]")
    ours, theirs = [blocks[f"b{n}"] for n in range(1, 10)], [blocks[f"c{n}"] for n in range(1, 11)]
    node.submit(*ours)
    assert submit_proven(node, chain, *theirs[:4], tip=theirs[-1]) == [SIDE] * 4
    assert submit_proven(node, chain, *theirs[4:], tip=theirs[-1])[-1] is CONNECTED
    assert node.tip == theirs[-1].header.hash


def test_blocks_that_are_expected_may_be_posted_however_deep(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..9]\ngenesis: c[1..10]")
    theirs = [blocks[f"c{n}"] for n in range(1, 11)]
    node.submit(*(blocks[f"b{n}"] for n in range(1, 10)))
    node.chain_manager.want([block.header.hash for block in theirs], chain.point_after(theirs[-1]).work)
    for block in theirs:
        node.submit(block)
    assert node.tip == theirs[-1].header.hash


def test_a_branch_that_is_expected_no_longer_counts_once_the_tip_has_left_it_behind(
    node: Node, chain: ChainBuilder
) -> None:
    blocks = chain.chain("genesis: b[1..15]\ngenesis: c[1..8]")
    node.submit(*(blocks[f"b{n}"] for n in range(1, 7)))
    theirs = [blocks[f"c{n}"] for n in range(1, 9)]
    node.chain_manager.want([block.header.hash for block in theirs], chain.point_after(theirs[-1]).work)
    assert node.submit(theirs[0]) == [SIDE]
    node.submit(*(blocks[f"b{n}"] for n in range(7, 16)))
    assert node.submit(theirs[1]) == [DEEP]


# How much is kept


Limit = Callable[[int], None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """``limit(blocks)``: keep as many side blocks as have the bytes of so many empty ones."""

    def keep(blocks: int) -> None:
        size = ChainBuilder().block().size
        # Sizes of empty blocks differ by the digits of their numbers.
        monkeypatch.setattr(chainstate, "MAX_SIDE_BYTES", blocks * (size + 8))

    return keep


def test_of_too_many_side_blocks_the_branch_with_the_least_work_goes_first(
    node: Node, chain: ChainBuilder, limit: Limit
) -> None:
    blocks = branches(
        chain,
        """
        genesis: b[1..5]
        b1: c2
        b2: d[3..4]
        b3: e4
        """,
    )
    limit(3)
    node.submit(*(blocks[f"b{n}"] for n in range(1, 6)))
    for name in ("c2", "d3", "d4"):
        assert node.submit(blocks[name]) == [SIDE]
    assert stored(node, blocks) == "b1 b2 b3 b4 b5 c2 d3 d4"
    assert node.submit(blocks["e4"]) == [SIDE]
    assert stored(node, blocks) == "b1 b2 b3 b4 b5 d3 d4 e4", "c2 has less work than the others"


def test_a_branch_goes_with_all_its_blocks(node: Node, chain: ChainBuilder, limit: Limit) -> None:
    blocks = branches(chain, "genesis: b[1..6]\nb1: c[2..4]\nb2: d[3..5]")
    limit(5)
    node.submit(*(blocks[f"b{n}"] for n in range(1, 7)))
    for name in ("c2", "c3", "c4", "d3", "d4", "d5"):
        node.submit(blocks[name])
    assert stored(node, blocks) == "b1 b2 b3 b4 b5 b6 d3 d4 d5"


def test_a_branch_that_is_being_followed_stays_whatever_its_size(node: Node, chain: ChainBuilder, limit: Limit) -> None:
    blocks = branches(chain, "genesis: b[1..9]\ngenesis: c[1..10]\nb6: d7")
    limit(2)
    node.submit(*(blocks[f"b{n}"] for n in range(1, 10)))
    theirs = [blocks[f"c{n}"] for n in range(1, 11)]
    assert submit_proven(node, chain, *theirs[:6], tip=theirs[-1]) == [SIDE] * 6
    assert node.submit(blocks["d7"]) == [SIDE]
    assert not node.holds(blocks["d7"]), "it is the only one that may go"
    assert submit_proven(node, chain, *theirs[6:], tip=theirs[-1])[-1] is CONNECTED


def test_a_branch_that_was_followed_is_a_side_branch_like_others_once_the_tip_has_more_work(
    node: Node, chain: ChainBuilder, limit: Limit
) -> None:
    """Though no other side block comes, nor a reorganisation."""
    blocks = branches(chain, "genesis: b[1..13]\ngenesis: c[1..10]")
    limit(2)
    node.submit(*(blocks[f"b{n}"] for n in range(1, 10)))
    theirs = [blocks[f"c{n}"] for n in range(1, 11)]
    assert submit_proven(node, chain, *theirs[:6], tip=theirs[-1]) == [SIDE] * 6
    for number in range(10, 13):
        node.submit(blocks[f"b{number}"])
    assert not any(map(node.holds, theirs))


def test_a_stored_block_counts_as_part_of_the_chain_that_goes_on_from_it(
    node: Node, chain: ChainBuilder, limit: Limit
) -> None:
    """It was posted by itself, and headers show later that a chain with more work than the tip is built on it."""
    blocks = branches(chain, "genesis: b[1..5]\nb1: c[2..6]\nb2: d[3..4]")
    node.submit(*(blocks[f"b{n}"] for n in range(1, 6)))
    assert node.submit(blocks["c2"]) == [SIDE]
    assert submit_proven(node, chain, blocks["c3"], tip=blocks["c6"]) == [SIDE]
    limit(1)
    node.submit(blocks["d3"], blocks["d4"])
    assert stored(node, blocks) == "b1 b2 b3 b4 b5 c2 c3"


def test_blocks_that_a_reorganisation_undoes_are_side_blocks(node: Node, chain: ChainBuilder, limit: Limit) -> None:
    blocks = branches(chain, "genesis: b[1..4]\nb1: c[2..5]")
    node.submit(*(blocks[f"b{n}"] for n in range(1, 5)))
    limit(2)
    node.submit(*(blocks[f"c{n}"] for n in range(2, 6)))
    assert node.tip == blocks["c5"].header.hash
    assert stored(node, blocks) == "b1 c2 c3 c4 c5", "three are too many, and a branch goes as a whole"


def test_many_are_deleted_in_several_commits(
    node: Node, chain: ChainBuilder, limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chainstate, "_TRIMMED_AT_ONCE", 2)
    blocks = branches(chain, "genesis: b[1..6]\nb1: c[2..6]\nb6: b[7..9]")
    node.submit(*(blocks[f"b{n}"] for n in range(1, 7)))
    node.submit(*(blocks[f"c{n}"] for n in range(2, 6)))
    limit(1)
    kept = []
    for name in ("b7", "b8", "b9"):
        node.submit(blocks[name])
        kept.append(sum(node.holds(blocks[f"c{n}"]) for n in range(2, 6)))
    assert kept == [4, 4, 4], "nothing has been added beside the chain"
    node.submit(blocks["c6"])
    kept = [sum(node.holds(blocks[f"c{n}"]) for n in range(2, 7))]
    for _ in range(2):
        parent = chain.block(blocks["b9"], producer=f"x{len(kept)}")
        node.submit(parent)
        kept.append(sum(node.holds(blocks[f"c{n}"]) for n in range(2, 7)))
    assert kept == [3, 1, 0]


def test_side_blocks_are_counted_again_after_a_restart(make_node: MakeNode, chain: ChainBuilder, limit: Limit) -> None:
    blocks = branches(chain, "genesis: b[1..5]\nb1: c2\nb2: d3")
    node = make_node()
    node.submit(*(blocks[f"b{n}"] for n in range(1, 5)))
    node.submit(blocks["c2"], blocks["d3"])
    node.close()
    limit(1)
    again = make_node()
    again.submit(blocks["b5"])
    assert stored(again, blocks) == "b1 b2 b3 b4 b5 d3"


# Building on them


def test_blocks_that_are_looked_up_push_no_checked_header_out(
    make_node: MakeNode, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask for a stored block as a parent; what has been checked for its work stays remembered."""
    monkeypatch.setattr(chain_manager, "REMEMBERED_HEADERS", 3)
    node = make_node()
    blocks = branches(chain, "genesis: b[1..5]\nb5: c[6..8]")
    node.submit(*(blocks[f"b{n}"] for n in range(1, 6)))
    manager = node.chain_manager
    parent = result_of(Deferred.fromCoroutine(manager.head(blocks["b5"].header.hash)))
    assert parent is not None
    headers = [blocks[f"c{n}"].header for n in range(6, 9)]
    result_of(Deferred.fromCoroutine(manager.check_headers(parent, headers)))
    for number in range(1, 5):
        assert result_of(Deferred.fromCoroutine(manager.head(blocks[f"b{number}"].header.hash))) is not None
    assert all(manager.checked_head(header.hash) is not None for header in headers)


def test_of_a_branch_on_disk_only_the_headers_after_a_known_one_are_read(node: Node, chain: ChainBuilder) -> None:
    blocks = branches(chain, "genesis: b[1..5]\ngenesis: c[1..4]")
    node.submit(*blocks.values())
    reader = node.chain_manager.reader
    heads = {f"c{n}": reader.head(existing(node, blocks[f"c{n}"]), TEST_PARAMS) for n in range(1, 5)}
    asked: list[bytes] = []

    def known(block_hash: bytes) -> ChainHead | None:
        asked.append(block_hash)
        return heads["c2"] if block_hash == blocks["c2"].header.hash else None

    assert reader.head(existing(node, blocks["c4"]), TEST_PARAMS, known) == heads["c4"]
    assert asked == [blocks[name].header.hash for name in ("c4", "c3", "c2")]


def existing(node: Node, block: Block) -> StoredBlock:
    stored = node.chain_manager.reader.stored(block.header.hash)
    assert stored is not None
    return stored
