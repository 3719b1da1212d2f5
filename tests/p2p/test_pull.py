"""How long a chain is followed: no stranger may hold the node to it for ever, and no slow peer is left too soon."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.p2p.sync import MAX_RESTARTS
from tests.chains import TEST_PARAMS
from tests.p2p.bench import Node
from tests.p2p.strangers import Stranger, blocks_reply
from tests.p2p.town import Called

Grow = Callable[..., list[Block]]
MakeStranger = Callable[..., Stranger]

BLOCKS = "/p2p/blocks"
BLOCK_SECONDS = TEST_PARAMS.slot_seconds * TEST_PARAMS.slots_per_block


@pytest.mark.parametrize("quicker", [1, 3])
def test_new_blocks_do_not_keep_a_claim_by_coming_as_they_do(
    node: Node, grow: Grow, make_stranger: MakeStranger, quicker: int
) -> None:
    """A boaster hands on the blocks of the honest chain, also where chance lets three times as many come as usual."""
    length = 20
    node.take(*grow(length))

    def script(called: Called) -> Any:
        first = called.query["from"]
        return blocks_reply(grow(length)[first - 1 : first - 1 + called.query["limit"]]) if first <= length else None

    node.meet(make_stranger(work=2**255, height=2**53 - 1, scripts={BLOCKS: script}))
    pressing = 0
    for second in range(240):
        length += quicker if second % BLOCK_SECONDS == 0 else 0
        node.run(1)
        pressing += node.peers.neighbourhood().behind != ""
    assert node.tip.height > 60
    assert 50 < pressing <= 130, "a minute, and another after the first doubt has ended"


def test_a_slow_peer_that_brings_eight_times_as_many_blocks_as_come_is_followed_to_the_end(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger(blocks=grow(320))

    def slowly(called: Called) -> Any:
        reply: Deferred[Any] = Deferred()
        # Two ranges of sixteen are asked for at a time.
        node.clock.callLater(32 * BLOCK_SECONDS / 8, reply.callback, stranger.honest(called))
        return reply

    node.meet(stranger)
    node.run(2)
    stranger.scripts = {BLOCKS: slowly}
    stranger.blocks = grow(700)
    assert node.until(lambda: node.tip.height == 700, within=130)
    assert node.peer(stranger).doubts == 0


def test_whoever_shows_another_chain_at_every_question_is_soon_left(node: Node, make_stranger: MakeStranger) -> None:
    """It never delivers a block, and has always just moved to a greater chain: that could go on for ever."""
    liar = make_stranger(height=100, work=10**6, scripts={BLOCKS: lambda _: blocks_reply([])})

    def greater_each_time(called: Called) -> Any:
        liar.work = (liar.work or 0) + 1
        return liar.honest(called)

    liar.scripts["/p2p/status"] = greater_each_time
    node.meet(liar)
    node.run(5)
    assert node.peer(liar).doubts == 1
    starts = [called.query["from"] for called in node.town.calls_to(liar.endpoint, BLOCKS)].count(1)
    assert starts == MAX_RESTARTS == 5
