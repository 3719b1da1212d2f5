"""How long a chain is followed, and how much of it goes on at once.

No stranger may hold the node to a chain for ever, and no slow peer is left too soon.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.p2p import pull
from svcd.p2p.sync import MAX_RESTARTS
from tests.chains import TEST_PARAMS
from tests.p2p.bench import Node
from tests.p2p.strangers import Stranger, blocks_reply, refused
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


def had_enough(status: int = 429, retry_after: float = 0.0) -> Any:
    """The answer of a node that wants to be left alone for a while."""
    return evolve(refused(status), retry_after=retry_after)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("said", "waited"), [(0.0, 1.0), (5.0, 5.0), (1e6, 30.0)])
def test_whoever_has_had_enough_is_asked_again_later(
    node: Node, grow: Grow, make_stranger: MakeStranger, status: int, said: float, waited: float
) -> None:
    """That is no fault of it: it is neither left nor doubted."""
    stranger, asked = make_stranger(blocks=grow(60)), []

    def script(called: Called) -> Any:
        if called.query["limit"] == 1:
            return stranger.honest(called)
        asked.append(called.at)
        return had_enough(status, said) if called.at < asked[0] + 0.5 * waited else stranger.honest(called)

    node.take(*grow(20))
    stranger.scripts = {BLOCKS: script}
    node.meet(stranger)
    assert node.until(lambda: node.tip.height == 60 or node.peer(stranger).doubts, within=120)
    pauses = [later - earlier for earlier, later in pairwise(asked) if later - earlier > 0.5]
    assert len(pauses) == 1
    assert all(waited <= pause <= waited + 0.2 for pause in pauses)
    assert (node.peer(stranger).failures, node.peer(stranger).doubts) == (0, 0)


def test_whoever_has_had_enough_while_the_last_shared_block_is_looked_for_is_asked_again_too(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    stranger, asked = make_stranger(blocks=grow(60)), []

    def script(called: Called) -> Any:
        asked.append(called.at)
        return had_enough(503, 5.0) if len(asked) < 4 else stranger.honest(called)

    node.take(*grow(20))
    stranger.scripts = {BLOCKS: script}
    node.meet(stranger)
    assert node.until(lambda: node.tip.height == 60 or node.peer(stranger).doubts, within=120)
    assert all(5.0 <= later - earlier <= 5.1 for earlier, later in pairwise(asked[:4]))
    assert node.peer(stranger).doubts == 0


def test_meanwhile_others_are_asked(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    busy, other = make_stranger(1, blocks=grow(100)), make_stranger(2, blocks=grow(100))

    def script(called: Called) -> Any:
        return busy.honest(called) if called.query["limit"] == 1 else had_enough(429, 1.0)

    busy.scripts = {BLOCKS: script}
    node.meet(busy, other)
    assert node.until(lambda: node.tip.height == 100, within=10)
    assert node.peer(busy).failures == 0


def test_whoever_has_always_had_enough_is_followed_no_longer_than_anybody_who_brings_nothing(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger(blocks=grow(60))

    def script(called: Called) -> Any:
        return stranger.honest(called) if called.query["limit"] == 1 else had_enough(429, 2.0)

    stranger.scripts = {BLOCKS: script}
    node.meet(stranger)
    node.run(55)
    assert node.peer(stranger).doubts == 0
    node.run(20)
    assert node.peer(stranger).doubts == 1
    assert node.peer(stranger).failures == 0


def test_a_batch_has_no_more_bytes_than_it_may(
    node: Node, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four blocks may be full: what is verified and committed together must not fill the memory."""
    assert pull.BATCH_BYTES == 4 * 1024 * 1024
    chain = grow(100)
    two_ranges = sum(len(block.wire()) for block in chain[:32]) + 100
    monkeypatch.setattr(pull, "BATCH_BYTES", two_ranges)
    submit, batches = node.living.ledger.submit_blocks, []

    def submitted(batch: Any, entering: Any = None) -> Any:
        batches.append(len(batch))
        return submit(batch, entering)

    monkeypatch.setattr(node.living.ledger, "submit_blocks", submitted)
    stranger = make_stranger(blocks=chain)

    def script(called: Called) -> Any:
        """The first range comes last, so that all can go on at once."""
        if called.query["from"] != 1 or called.query["limit"] == 1:
            return stranger.honest(called)
        reply: Deferred[Any] = Deferred()
        node.clock.callLater(1.0, reply.callback, stranger.honest(called))
        return reply

    stranger.scripts = {BLOCKS: script}
    node.meet(stranger)
    assert node.until(lambda: node.tip.height == 100, within=10)
    assert max(batches) == 32
