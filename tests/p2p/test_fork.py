"""Where a peer's chain leaves ours: found with few questions, and never with trust."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.p2p.caller import CallFailed, Trouble
from svcd.p2p.client import PeerClient
from svcd.p2p.fork import BlockMissing, MalformedBlock, fork_height
from tests.node.bench import Inline
from tests.p2p.bench import Node
from tests.p2p.strangers import Stranger, blocks_reply
from tests.support import has_result, result_of

Grow = Callable[..., list[Block]]
MakeStranger = Callable[..., Stranger]


def search(node: Node, stranger: Stranger, height: int | None = None) -> "Deferred[int]":
    client = PeerClient(node.home.params, node.town, Inline())
    height = stranger.tip.height if height is None else height
    return node.begin(fork_height(node.home, client, stranger.endpoint, height))


def found(node: Node, stranger: Stranger, height: int | None = None) -> int:
    searching = search(node, stranger, height)
    node.run(60)
    return result_of(searching)


def questions(node: Node, stranger: Stranger) -> list[int]:
    """The heights that were asked about."""
    calls = node.town.calls_to(stranger.endpoint, "/p2p/blocks")
    assert all(call.query["limit"] == 1 for call in calls)
    return [call.query["from"] for call in calls]


@pytest.mark.parametrize(
    ("ours", "shared", "theirs"),
    [
        (0, 0, 0),
        (0, 0, 5),
        (5, 0, 0),
        (5, 5, 5),
        (5, 5, 20),
        (20, 5, 5),
        (5, 0, 5),
        (20, 19, 21),
        (20, 12, 40),
        (40, 12, 20),
        (60, 1, 60),
    ],
)
def test_the_last_shared_block_is_found(
    node: Node, grow: Grow, make_stranger: MakeStranger, ours: int, shared: int, theirs: int
) -> None:
    trunk = grow(shared)
    node.take(*grow(ours - shared, on=trunk, name="o"))
    stranger = make_stranger(blocks=grow(theirs - shared, on=trunk, name="t"))
    assert found(node, stranger) == shared


def test_a_longer_chain_of_the_same_blocks_takes_one_question(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    node.take(*grow(40))
    stranger = make_stranger(blocks=grow(60))
    assert found(node, stranger) == 40
    assert questions(node, stranger) == [40]


def test_steps_back_double_and_the_rest_is_halved(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(60))
    stranger = make_stranger(blocks=grow(40, on=grow(20), name="t"))
    assert found(node, stranger) == 20
    assert questions(node, stranger) == [60, 59, 57, 53, 45, 29, 14, 21, 17, 19, 20]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shared=st.integers(0, 60), claimed=st.integers(0, 2**53 - 1))
def test_few_questions_whatever_is_claimed(
    node: Node, grow: Grow, make_stranger: MakeStranger, shared: int, claimed: int
) -> None:
    if node.tip.height == 0:
        node.take(*grow(60))
    stranger = make_stranger(blocks=grow(70 - shared, on=grow(shared), name="t"))
    node.town.calls.clear()
    assert found(node, stranger, claimed) == min(shared, claimed)
    assert len(questions(node, stranger)) <= 14


def test_somebody_who_shows_nothing(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """A claim without a block behind it costs one question."""
    node.take(*grow(20))
    stranger = make_stranger(blocks=grow(30), scripts={"/p2p/blocks": lambda _: blocks_reply([])})
    searching = search(node, stranger)
    node.run(1)
    with pytest.raises(BlockMissing, match="does not show block 20"):
        result_of(searching)
    assert questions(node, stranger) == [20]


def test_a_block_that_is_none(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(5))
    stranger = make_stranger(blocks=grow(9), scripts={"/p2p/blocks": lambda _: blocks_reply([b'{"height":"5"}'])})
    searching = search(node, stranger)
    node.run(1)
    with pytest.raises(MalformedBlock, match="its block 5 is malformed: block lacks the field"):
        result_of(searching)


def test_somebody_who_does_not_answer(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(5))
    stranger = make_stranger(blocks=grow(9), scripts={"/p2p/blocks": lambda _: None})
    searching = search(node, stranger)
    node.run(31)
    with pytest.raises(CallFailed) as failed:
        result_of(searching)
    assert failed.value.trouble is Trouble.TIMEOUT


def test_a_lost_answer_is_not_the_end_of_the_search(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """Every third answer is lost, and the search takes seven."""
    node.take(*grow(40))
    stranger = make_stranger(blocks=grow(40, on=grow(4), name="l"))
    turns = count(1)
    stranger.scripts["/p2p/blocks"] = lambda called: stranger.honest(called) if next(turns) % 3 else None
    searching = search(node, stranger)
    assert node.until(lambda: has_result(searching), within=30)
    assert result_of(searching) == 4


def test_somebody_who_answers_at_the_last_moment_is_not_asked_for_long(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    """Each answer may take as long as a batch of blocks; all of them together may not."""
    node.take(*grow(60))
    stranger = make_stranger(blocks=grow(60, on=grow(1), name="t"))
    node.town.latency[stranger.endpoint] = 14.0
    searching = search(node, stranger)
    assert node.until(lambda: has_result(searching), within=60)
    with pytest.raises(CallFailed) as failed:
        result_of(searching)
    assert failed.value.trouble is Trouble.TIMEOUT


def test_a_peer_whose_chain_is_shorter_than_it_showed(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """It claims 50 blocks and has 10 now."""
    node.take(*grow(40))
    stranger = make_stranger(blocks=grow(10))
    searching = search(node, stranger, 50)
    node.run(1)
    with pytest.raises(BlockMissing):
        result_of(searching)
