"""What a node that nobody can call does for peers that lack blocks below its own."""

import json
from collections.abc import Callable

import pytest

from svcd.chain.block import Block, parse_block
from svcd.p2p import handing
from tests.p2p.bench import OURS, Node
from tests.p2p.strangers import Script, Stranger, ok, refused
from tests.p2p.town import Answer, Called

Grow = Callable[..., list[Block]]
MakeNode = Callable[..., Node]
MakeStranger = Callable[..., Stranger]


def takes_what_fits(stranger: Stranger, most: int = 1_000) -> Script:
    """What an honest node does with a block: it keeps what stands on one of its own, and else lacks the parent."""

    def take(called: Called) -> Answer:
        body = called.request.body
        assert body is not None
        block = parse_block(body[len('{"block":') : -1], stranger.builder.params)
        shown = {each.header.hash: height for height, each in enumerate(stranger.blocks, 1)}
        parent = shown.get(block.header.parent_hash, 0 if block.header.height == 1 else None)
        if parent is None:
            return ok(hash=block.header.hash.hex(), state="orphan")
        if block.header.height > most:
            return refused(429)
        if block.header.hash in shown:
            return ok(hash=block.header.hash.hex(), state="known")
        stranger.blocks[parent:] = [block]
        return ok(hash=block.header.hash.hex(), state="connected")

    return take


def keeps_branches(stranger: Stranger) -> Script:
    """What an honest node does that has made blocks of its own: it shows the longer branch, and keeps the other."""
    kept: dict[bytes, list[Block]] = {}

    def take(called: Called) -> Answer:
        body = called.request.body
        assert body is not None
        block = parse_block(body[len('{"block":') : -1], stranger.builder.params)
        own, parent = block.header.hash, block.header.parent_hash
        kept.update({each.header.hash: stranger.blocks[:height] for height, each in enumerate(stranger.blocks, 1)})
        if own in kept:
            return ok(hash=own.hex(), state="known")
        if parent not in kept:
            return ok(hash=own.hex(), state="orphan")
        kept[own] = [*kept[parent], block]
        if len(kept[own]) <= len(stranger.blocks):
            return ok(hash=own.hex(), state="side")
        stranger.blocks[:] = kept[own]
        return ok(hash=own.hex(), state="connected")

    return take


def heights(stranger: Stranger) -> list[int]:
    return [int(block["height"]) for block in stranger.got_at("/p2p/block")]


def hashes(blocks: list[Block]) -> list[bytes]:
    return [block.header.hash for block in blocks]


def met(node: Node, stranger: Stranger, **how: int) -> None:
    stranger.scripts["/p2p/block"] = takes_what_fits(stranger, **how)
    node.meet(stranger)
    node.run(2)


def test_blocks_of_a_node_that_cannot_be_called_arrive_when_several_come_at_once(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node, stranger = make_node(endpoint=""), make_stranger(blocks=grow(3))
    node.take(*grow(3))
    met(node, stranger)
    node.take(*grow(8)[3:])
    node.run(5)
    assert hashes(stranger.blocks) == hashes(grow(8))
    assert heights(stranger) == [8, 4, 5, 6, 7, 8]
    assert stranger.got_at("/p2p/block")[1] == json.loads(grow(8)[3].wire())


def test_a_branch_is_handed_in_from_where_it_leaves_the_peers_chain(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node = make_node(endpoint="")
    node.take(*grow(7, on=grow(10), name="ours"))
    stranger = make_stranger(blocks=grow(3, on=grow(10), name="theirs"))
    met(node, stranger)
    longer = grow(8, on=grow(10), name="ours")
    node.take(longer[-1])
    node.run(5)
    assert hashes(stranger.blocks) == hashes(longer)
    assert heights(stranger) == [18, *range(11, 19)]


def test_a_node_that_can_be_called_is_asked(make_node: MakeNode, grow: Grow, make_stranger: MakeStranger) -> None:
    node, stranger = make_node(endpoint=OURS), make_stranger()
    met(node, stranger)
    node.take(*grow(4))
    node.run(5)
    assert heights(stranger) == [4]


def test_whoever_has_had_enough_is_left_alone_until_the_next_block(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node, stranger = make_node(endpoint=""), make_stranger()
    met(node, stranger, most=2)
    node.take(*grow(5))
    node.run(60)
    assert heights(stranger) == [5, 1, 2, 3]
    stranger.scripts["/p2p/block"] = takes_what_fits(stranger)
    node.take(grow(6)[-1])
    node.run(5)
    assert heights(stranger)[4:] == [6, 3, 4, 5, 6]


def test_no_more_is_handed_in_at_a_time_than_the_limit(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "MAX_BLOCKS", 3)
    node, stranger = make_node(endpoint=""), make_stranger()
    met(node, stranger)
    node.take(*grow(6))
    node.run(5)
    assert heights(stranger) == [6, 1, 2, 3]


def test_a_branch_over_the_limit_goes_on_where_it_stopped_though_the_peer_does_not_show_it(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "MAX_BLOCKS", 3)
    node = make_node(endpoint="")
    node.take(*grow(6, on=grow(10), name="ours"))
    stranger = make_stranger(blocks=grow(6, on=grow(10), name="theirs"))
    stranger.scripts["/p2p/block"] = keeps_branches(stranger)
    node.meet(stranger)
    node.run(2)
    for count in (7, 8, 9):
        longer = grow(count, on=grow(10), name="ours")
        node.take(longer[-1])
        node.run(5)
    assert heights(stranger) == [17, 11, 12, 13, 18, 14, 15, 16, 19, 17, 18, 19]
    assert hashes(stranger.blocks) == hashes(longer)


def test_a_peer_that_has_lost_what_it_was_handed_is_handed_it_again(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node, stranger = make_node(endpoint=""), make_stranger(blocks=grow(2))
    node.take(*grow(2))
    met(node, stranger)
    for count in (4, 6, 8):
        node.take(*grow(count)[count - 2 :])
        node.run(5)
        if count == 4:
            del stranger.blocks[2:]
    assert heights(stranger) == [4, 3, 4, 6, 5, 8, 3, 4, 5, 6, 7, 8]


def test_whoever_is_a_peer_no_more_is_handed_no_more(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node, stranger = make_node(endpoint=""), make_stranger()
    met(node, stranger)
    honest = takes_what_fits(stranger)

    def takes_one_and_goes(called: Called) -> Answer:
        answer = honest(called)
        if len(stranger.blocks) == 1:
            node.peers.drop(node.peers.all()[0])
        return answer

    stranger.scripts["/p2p/block"] = takes_one_and_goes
    node.take(*grow(4))
    node.run(0.5)
    assert heights(stranger) == [4, 1]


def test_a_peer_that_shows_more_work_is_handed_nothing(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node, stranger = make_node(endpoint=""), make_stranger()
    met(node, stranger)
    stranger.work = 10**9
    node.take(*grow(4))
    node.run(5)
    assert heights(stranger) == [4]
