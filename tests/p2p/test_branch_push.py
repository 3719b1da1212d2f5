"""What a node that nobody can call does for peers that lack blocks below its own."""

import json
from itertools import count, pairwise
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block, parse_block
from svcd.node.threads import InlineWorker
from svcd.p2p import relay
from svcd.p2p.service import PeersService
from svcd.p2p.transport import PeerReply
from tests.node.bench import Stepped
from tests.p2p.bench import OURS, Node
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.memory_transport import Answer, Called
from tests.p2p.remote_node import RemoteNode, Script, headers_reply, ok, refused, silent
from tests.support import result_of


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """A node that nobody can call."""
    return make_node(endpoint="")


def takes_what_fits(remote: RemoteNode, most: int = 1_000) -> Script:
    """What an honest node does with a block: it keeps what stands on one of its own, and else lacks the parent."""

    def take(called: Called) -> Answer:
        body = called.request.body
        assert body is not None
        block = parse_block(body[len('{"block":') : -1], remote.builder.params)
        shown = {each.header.hash: height for height, each in enumerate(remote.blocks, 1)}
        parent = shown.get(block.header.parent_hash, 0 if block.header.height == 1 else None)
        if parent is None:
            return ok(hash=block.header.hash.hex(), state="orphan")
        if block.header.height > most:
            return refused(429)
        if block.header.hash in shown:
            return ok(hash=block.header.hash.hex(), state="known")
        remote.blocks[parent:] = [block]
        return ok(hash=block.header.hash.hex(), state="connected")

    return take


def keeps_branches(remote: RemoteNode) -> Script:
    """What an honest node does that has made blocks of its own: it shows the longer branch, and keeps the other."""
    kept: dict[bytes, list[Block]] = {}

    def take(called: Called) -> Answer:
        body = called.request.body
        assert body is not None
        block = parse_block(body[len('{"block":') : -1], remote.builder.params)
        own, parent = block.header.hash, block.header.parent_hash
        kept.update({each.header.hash: remote.blocks[:height] for height, each in enumerate(remote.blocks, 1)})
        if own in kept:
            return ok(hash=own.hex(), state="known")
        if parent not in kept:
            return ok(hash=own.hex(), state="orphan")
        kept[own] = [*kept[parent], block]
        if len(kept[own]) <= len(remote.blocks):
            return ok(hash=own.hex(), state="side")
        remote.blocks[:] = kept[own]
        return ok(hash=own.hex(), state="connected")

    return take


def heights(remote: RemoteNode) -> list[int]:
    return [int(block["height"]) for block in remote.got_at("/p2p/block")]


def hashes(blocks: list[Block]) -> list[bytes]:
    return [block.header.hash for block in blocks]


def limit_to(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a round have so many blocks."""
    monkeypatch.setattr(relay, "ROUND_BYTES", blocks * relay.LEAST_BLOCK_BYTES)


def says_known(node: Node, remote: RemoteNode, orphan: int = 6) -> None:
    """Meet a remote that says of all blocks that it has them, and of one that it lacks the parent."""

    def lie(called: Called) -> Answer:
        assert called.request.body is not None
        height = json.loads(called.request.body)["block"]["height"]
        return ok(hash="00" * 32, state="orphan" if int(height) == orphan else "known")

    remote.scripts["/p2p/block"] = lie
    node.meet(remote)
    node.run(2)


def asked_at(node: Node, remote: RemoteNode, path: str) -> list[Called]:
    return node.transport.calls_to(remote.endpoint, path)


def met(node: Node, remote: RemoteNode, **how: int) -> None:
    remote.scripts["/p2p/block"] = takes_what_fits(remote, **how)
    node.meet(remote)
    node.run(2)


def test_blocks_of_a_node_that_cannot_be_called_arrive_when_several_come_at_once(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(3))
    node.take(*grow(3))
    met(node, remote)
    node.take(*grow(8)[3:])
    node.run(5)
    assert hashes(remote.blocks) == hashes(grow(8))
    assert heights(remote) == [8, 4, 5, 6, 7, 8]
    assert remote.got_at("/p2p/block")[1] == json.loads(grow(8)[3].wire())


def test_a_branch_is_handed_in_from_where_it_leaves_the_peers_chain(node: Node, grow: Grow) -> None:
    node.take(*grow(7, on=grow(10), name="ours"))
    remote = node.remote(blocks=grow(3, on=grow(10), name="theirs"))
    met(node, remote)
    longer = grow(8, on=grow(10), name="ours")
    node.take(longer[-1])
    node.run(5)
    assert hashes(remote.blocks) == hashes(longer)
    assert heights(remote) == [18, *range(11, 19)]


def test_a_node_that_can_be_called_is_asked(make_node: MakeNode, grow: Grow) -> None:
    node = make_node(endpoint=OURS)
    remote = node.remote()
    met(node, remote)
    node.take(*grow(4))
    node.run(5)
    assert heights(remote) == [4]


def test_whoever_has_had_enough_is_left_alone_for_a_minute(node: Node, grow: Grow) -> None:
    remote = node.remote()
    met(node, remote, most=2)
    node.take(*grow(5))
    node.run(30)
    node.take(grow(6)[-1])
    node.run(25)
    assert heights(remote) == [5, 1, 2, 3, 6]
    remote.scripts["/p2p/block"] = takes_what_fits(remote)
    node.run(20)
    assert heights(remote)[5:] == [3, 4, 5, 6]


def test_what_was_made_before_they_met_is_handed_in_though_no_block_is_made(node: Node, grow: Grow) -> None:
    node.take(*grow(5, on=grow(10), name="ours"))
    remote = node.remote(blocks=grow(3, on=grow(10), name="theirs"))
    remote.scripts["/p2p/block"] = keeps_branches(remote)
    node.meet(remote)
    node.run(19)
    assert heights(remote) == [], "it may be about to get them from others"
    node.run(7)
    assert hashes(remote.blocks) == hashes(grow(5, on=grow(10), name="ours"))
    assert heights(remote) == [11, 12, 13, 14, 15]
    node.run(600)
    assert len(heights(remote)) == 5


def test_whoever_gets_further_by_itself_is_handed_nothing(node: Node, grow: Grow) -> None:
    remote = node.remote()
    node.take(*grow(10))
    met(node, remote)
    for height in range(1, 10):
        remote.blocks[:] = grow(height)
        node.run(14)
    assert heights(remote) == []


def test_whoever_takes_a_while_for_a_new_block_is_sent_it_once(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(3))
    node.take(*grow(3))
    met(node, remote)
    remote.scripts["/p2p/block"] = lambda _: ok(hash="00" * 32, state="connected")
    node.run(300)
    node.take(grow(4)[-1])
    node.run(15)
    remote.blocks[:] = grow(4)
    node.run(60)
    assert heights(remote) == [4]


def test_no_more_is_handed_in_at_a_time_than_the_limit(node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    size = [len(block.wire()) for block in grow(4)]
    monkeypatch.setattr(relay, "LEAST_BLOCK_BYTES", 1)
    monkeypatch.setattr(relay, "ROUND_BYTES", sum(size) - 1)
    remote = node.remote()
    says_known(node, remote)
    node.take(*grow(6))
    node.run(30)
    assert heights(remote) == [6, 1, 2, 3]


def test_whoever_gets_further_is_handed_round_after_round_without_a_rest(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3, monkeypatch)
    remote = node.remote()
    met(node, remote)
    node.take(*grow(12))
    node.run(10)
    assert heights(remote) == [12, *range(1, 13)]
    assert asked_at(node, remote, "/p2p/headers") == [], "its tip is on our chain each time"


def test_a_branch_over_the_limit_goes_on_where_it_stopped_though_the_peer_does_not_show_it(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3, monkeypatch)
    node.take(*grow(6, on=grow(10), name="ours"))
    remote = node.remote(blocks=grow(6, on=grow(10), name="theirs"))
    remote.scripts["/p2p/block"] = keeps_branches(remote)
    node.meet(remote)
    node.run(2)
    longer = grow(7, on=grow(10), name="ours")
    node.take(longer[-1])
    node.run(50)
    assert heights(remote) == [17, 11, 12, 13]
    node.run(200)
    assert heights(remote)[4:] == [14, 15, 16, 17]
    assert hashes(remote.blocks) == hashes(longer)


def test_a_peer_that_has_lost_what_it_was_handed_is_handed_it_again(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(2))
    node.take(*grow(2))
    met(node, remote)
    node.take(*grow(4)[2:])
    node.run(5)
    del remote.blocks[2:]
    node.take(*grow(6)[4:])
    node.run(50)
    assert heights(remote) == [4, 3, 4, 6, 5]
    node.run(20)
    assert heights(remote)[5:] == [3, 4, 5, 6]


def test_who_gets_no_further_rests_for_longer_each_time(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of every block that it has it, and lacks the parent of the last, to have them all again."""
    monkeypatch.setattr(relay, "MAX_BACKOFF", 200.0)
    remote = node.remote()
    node.take(*grow(4))
    says_known(node, remote, orphan=4)
    node.run(800)
    assert set(heights(remote)) == {1, 2, 3, 4}
    began = [call.at for call in asked_at(node, remote, "/p2p/block")][::4]
    assert [round(later - earlier, -1) for earlier, later in pairwise(began)] == [60, 120, 200, 200]


def test_to_fall_back_and_to_get_as_far_again_is_no_progress(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3, monkeypatch)
    remote = node.remote()
    node.take(*grow(6))
    met(node, remote)

    def shows_it_once(called: Called) -> Answer:
        answer = remote.honest(called)
        if len(remote.blocks) == 3:
            remote.blocks.clear()
        return answer

    remote.scripts["/p2p/status"] = shows_it_once
    node.run(55)
    assert heights(remote) == [1, 2, 3, 4]
    node.run(1_000)
    assert heights(remote).count(1) <= 5
    assert heights(remote).count(1) >= 2


def test_a_chain_of_its_own_that_grows_is_no_progress(node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """To claim more costs nothing; only blocks of ours show that ours have been taken."""
    limit_to(3, monkeypatch)
    remote = node.remote(blocks=grow(6, name="theirs"))
    claims = count(1)

    def claims_one_more(_: Called) -> Answer:
        height = min(next(claims), 6)
        own = remote.blocks[height - 1].header.hash
        return ok(status={"height": str(height), "hash": own.hex(), "cumulativeWork": str(height)})

    remote.scripts["/p2p/status"] = claims_one_more
    says_known(node, remote, orphan=9)
    node.take(*grow(9))
    node.run(50)
    assert heights(remote) == [6, 9, 1, 2, 3], "6 is its own, which it did not claim yet"


def test_those_in_one_part_of_the_network_rest_together(node: Node, grow: Grow) -> None:
    node.take(*grow(4))
    remotes = [node.remote(endpoint=f"http://60.5.7.{number}:8645") for number in (1, 2)]
    for remote in remotes:
        says_known(node, remote, orphan=4)
    node.run(70)
    assert sum(heights(remote).count(1) for remote in remotes) == 1


def test_they_are_handed_in_to_one_at_a_time(node: Node, grow: Grow) -> None:
    silent_one = node.remote(1)
    honest = node.remote(2)
    node.take(*grow(3))
    node.meet(silent_one, honest)
    silent_one.scripts["/p2p/block"] = silent
    honest.scripts["/p2p/block"] = takes_what_fits(honest)
    assert node.until(lambda: heights(silent_one), within=30)
    node.run(9)
    assert heights(honest) == []
    node.run(3)
    assert heights(honest) == [1, 2, 3]
    assert heights(silent_one) == [1]


def test_a_round_ends_in_time_and_the_next_is_that_of_another(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ROUND_SECONDS", 20.0)
    slow = node.remote(1)
    honest = node.remote(2)
    node.take(*grow(8))
    node.meet(slow, honest)

    def takes_its_time(called: Called) -> Answer:
        taken: Deferred[PeerReply] = Deferred()
        answer = takes_what_fits(slow)(called)
        node.clock.callLater(9.0, taken.callback, answer)
        return taken

    slow.scripts["/p2p/block"] = takes_its_time
    honest.scripts["/p2p/block"] = takes_what_fits(honest)
    assert node.until(lambda: heights(slow), within=30)
    node.run(25)
    assert heights(honest) == []
    node.run(5)
    assert heights(honest) == [1, 2, 3, 4, 5, 6, 7, 8]
    node.run(100)
    assert heights(slow) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_block_that_is_being_read_when_the_node_stops_is_waited_for_by_nobody(
    make_node: MakeNode, grow: Grow, tmp_path: Path
) -> None:
    reader = Stepped()
    node = make_node(endpoint="", reader=reader)
    remote = node.remote()
    met(node, remote)
    node.take(*grow(3))
    node.run(2)
    assert len(reader) == 1, "the last block was offered, and its parents are being read"
    service = PeersService(node.network, tmp_path / "peers.json", [], InlineWorker())
    service.startService()
    result_of(service.stopService())
    assert len(reader) == 1
    reader.fail(OSError("the database is closed"))
    node.meet(remote)
    node.take(*grow(4)[3:])
    node.run(100)
    assert len(reader) == 0
    assert heights(remote) == [3]


@pytest.mark.parametrize("own", [3, 40])
def test_a_deep_branch_is_pushed_from_its_first_block(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """A locator names few blocks that far down: the headers above the one they share say where the chains part."""
    monkeypatch.setattr(relay, "SEARCH_HEADERS", 7)
    node.take(*grow(70, on=grow(60), name="ours", step=1))
    remote = node.remote(blocks=grow(own, on=grow(60), name="theirs"))
    remote.scripts["/p2p/block"] = keeps_branches(remote)
    node.meet(remote)
    node.run(40)
    assert heights(remote) == list(range(61, 131))


def test_a_peer_that_leads_the_search_in_circles_is_pushed_nothing(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SEARCH_HEADERS", 3)
    node.take(*grow(20, on=grow(10), name="ours", step=1))
    remote = node.remote(blocks=grow(2, on=grow(10), name="theirs"))
    remote.scripts["/p2p/headers"] = lambda _: headers_reply(grow(3), 1, 12)
    remote.scripts["/p2p/block"] = keeps_branches(remote)
    node.meet(remote)
    node.run(50)
    assert len(asked_at(node, remote, "/p2p/headers")) == 2
    assert heights(remote) == []


@pytest.mark.parametrize(("step", "span"), [(1, 0), (100, 1), (1, 1)], ids=["copies", "slowly", "one higher each time"])
def test_a_search_without_end_keeps_no_branch_from_another_peer(node: Node, grow: Grow, step: int, span: int) -> None:
    """Each answer is full of our own headers, and a little higher than the last: so a search could go on for ever."""
    ours = grow(900, step=1)
    node.take(*ours)
    liar, honest = node.remote(1, blocks=grow(5, name="theirs")), node.remote(2, blocks=ours[:890])
    firsts = count(1, step)

    def little_by_little(called: Called) -> Answer:
        assert called.request.body is not None
        first, limit = next(firsts), json.loads(called.request.body)["limit"]
        found = [ours[first - 1 + span * index] for index in range(limit)]
        reply: Deferred[PeerReply] = Deferred()
        node.clock.callLater(9.0, reply.callback, headers_reply(found, first, 10**6))
        return reply

    liar.scripts = {
        "/p2p/headers": little_by_little,
        "/p2p/block": lambda _: ok(hash="00" * 32, state="orphan"),
    }
    honest.scripts["/p2p/block"] = takes_what_fits(honest)
    node.meet(liar)
    assert node.until(lambda: asked_at(node, liar, "/p2p/headers"), within=30)
    node.meet(honest)
    assert node.until(lambda: hashes(honest.blocks) == hashes(ours), within=60)


@pytest.mark.parametrize("path", ["/p2p/block", "/p2p/headers"])
def test_a_peer_that_is_banned_meanwhile_is_called_no_more(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It is banned before it answers that it lacks the parent, or during the search for the last common block."""
    monkeypatch.setattr(relay, "SEARCH_HEADERS", 2)
    ours = grow(900, step=1)
    node.take(*ours[:-1])
    remote = node.remote(blocks=grow(3, on=ours[:333], name="theirs"))
    node.meet(remote)
    remote.scripts["/p2p/block"] = lambda _: ok(hash="00" * 32, state="orphan")
    answer = remote.scripts.get(path, remote.honest)

    def is_banned(called: Called) -> Answer:
        node.peers.bans.ban_by_operator(f"endpoint:{remote.endpoint}", seconds=None, now=node.local.now())
        node.peers.drop_banned()
        return answer(called)

    remote.scripts[path] = is_banned
    node.take(ours[-1])
    assert node.until(lambda: not node.knows(remote), within=5)
    calls = len(node.transport.calls_to(remote.endpoint))
    node.run(30)
    assert len(node.transport.calls_to(remote.endpoint)) == calls


def test_the_search_for_the_last_common_block_takes_few_questions(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SEARCH_HEADERS", 2)
    ours = grow(900, step=1)
    node.take(*ours)
    remote = node.remote(blocks=grow(3, on=ours[:333], name="theirs"))
    remote.scripts["/p2p/block"] = takes_what_fits(remote)
    node.meet(remote)
    assert node.until(lambda: heights(remote), within=30)
    assert heights(remote)[0] == 334
    assert len(asked_at(node, remote, "/p2p/headers")) == 3


def test_whoever_is_a_peer_no_more_is_handed_no_more(node: Node, grow: Grow) -> None:
    remote = node.remote()
    met(node, remote)
    honest = takes_what_fits(remote)

    def takes_one_and_goes(called: Called) -> Answer:
        answer = honest(called)
        if len(remote.blocks) == 1:
            node.peers.drop(node.peers.all()[0])
        return answer

    remote.scripts["/p2p/block"] = takes_one_and_goes
    node.take(*grow(4))
    node.run(0.5)
    assert heights(remote) == [4, 1]


def test_a_peer_that_shows_more_work_is_handed_nothing(node: Node, grow: Grow) -> None:
    remote = node.remote()
    met(node, remote)
    remote.work = 10**9
    node.take(*grow(4))
    node.run(5)
    assert heights(remote) == [4]


def test_whoever_shows_more_work_after_a_round_is_asked_no_more_often_than_others(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3, monkeypatch)
    remote = node.remote()
    met(node, remote)
    node.take(*grow(6))
    assert node.until(lambda: heights(remote)[-1:] == [3])
    node.run(0.2)
    remote.work = 10**9
    before = len(asked_at(node, remote, "/p2p/status"))
    node.run(60)
    assert heights(remote) == [6, 1, 2, 3]
    assert len(asked_at(node, remote, "/p2p/status")) - before <= 16
