"""What a node that nobody can call does for peers that lack blocks below its own."""

import json
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block, parse_block
from svcd.chain.errors import Refusal
from svcd.node import chainstate
from svcd.node.threads import InlineWorker
from svcd.p2p import branch_push, headers
from svcd.p2p.service import PeersService
from svcd.p2p.transport import PeerReply
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import OURS, RATES, Node
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.memory_transport import Answer, Called
from tests.p2p.remote_node import RemoteNode, Script, headers_reply, ok, refused, silent
from tests.support import result_of
from tests.web.wire import Response


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


def post(node: Node, *blocks: Block, client: str = "198.51.100.7") -> Response:
    """The answer of a node to posted headers."""
    body = b'{"headers":[' + b",".join(block.header.wire() for block in blocks) + b"]}"
    return node.post("/p2p/branch", body, client)


def owed(node: Node, client: str) -> float:
    """How many tokens a client's bucket is short of a full one."""
    return round(node.limiter.buckets["p2p"].wait(client, 1_000.0, node.clock.seconds()) * 100, 3)


def heights(remote: RemoteNode) -> list[int]:
    return [int(block["height"]) for block in remote.got_at("/p2p/block")]


def hashes(blocks: list[Block]) -> list[bytes]:
    return [block.header.hash for block in blocks]


def limit_to(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a round have so many blocks."""
    monkeypatch.setattr(branch_push, "ROUND_BYTES", blocks * branch_push.MIN_BLOCK_BYTES)


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


def test_a_peer_that_refuses_more_is_left_alone_for_a_minute(node: Node, grow: Grow) -> None:
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


def test_a_branch_from_before_the_meeting_is_pushed_without_a_new_block(node: Node, grow: Grow) -> None:
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


def test_a_peer_that_catches_up_by_itself_is_pushed_nothing(node: Node, grow: Grow) -> None:
    remote = node.remote()
    node.take(*grow(10))
    met(node, remote)
    for height in range(1, 10):
        remote.blocks[:] = grow(height)
        node.run(14)
    assert heights(remote) == []


def test_a_peer_that_is_slow_with_a_new_block_is_sent_it_once(node: Node, grow: Grow) -> None:
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
    monkeypatch.setattr(branch_push, "MIN_BLOCK_BYTES", 1)
    monkeypatch.setattr(branch_push, "ROUND_BYTES", sum(size) - 1)
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


def test_a_peer_that_makes_no_progress_is_paused_for_longer_each_time(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of every block that it has it, and lacks the parent of the last, to have them all again."""
    monkeypatch.setattr(branch_push, "MAX_BACKOFF", 200.0)
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
        claim = {"height": str(height), "hash": own.hex(), "cumulativeWork": str(height), "pruneHeight": "0"}
        return ok(status={**claim, "snapshots": []})

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
    monkeypatch.setattr(branch_push, "ROUND_SECONDS", 20.0)
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


def test_an_error_of_ours_is_not_repeated_at_once_with_any_peer(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Callable[..., list[Any]]
) -> None:
    def fail(_: object) -> None:
        raise apsw.IOError("disk I/O error")

    remotes = [node.remote(number) for number in range(4)]
    node.take(*grow(2))
    for remote in remotes:
        met(node, remote)
    with monkeypatch.context() as patch:
        patch.setattr(node.node_context.chain_manager.long_reads, "ask", fail)
        node.take(grow(3)[2])
        node.run(40)
    assert len(expected_errors(apsw.Error)) == 3, "at once, when the peers lag, and 10 seconds later"
    assert [heights(remote) for remote in remotes] == [[3]] * 4
    assert node.until(lambda: all(hashes(remote.blocks) == hashes(grow(3)) for remote in remotes), within=30)


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
    node.take(*grow(4)[3:])
    node.run(100)
    assert len(reader) == 0
    assert heights(remote) == [3]


def few_headers(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Let the node ask for so many headers at a time."""
    for name in ("FIRST_HEADERS", "PROOF_HEADERS"):
        monkeypatch.setattr(headers, name, limit)


@pytest.mark.parametrize("own", [3, 40])
def test_a_deep_branch_is_pushed_from_its_first_block(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """A locator names few blocks that far down: the headers above the one they share say where the chains part."""
    few_headers(monkeypatch, 7)
    node.take(*grow(70, on=grow(60), name="ours", step=1))
    remote = node.remote(blocks=grow(own, on=grow(60), name="theirs"))
    remote.scripts["/p2p/block"] = keeps_branches(remote)
    node.meet(remote)
    node.run(40)
    assert heights(remote) == list(range(61, 131))


def test_a_peer_that_leads_the_search_in_circles_is_pushed_nothing(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_headers(monkeypatch, 3)
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
    few_headers(monkeypatch, 2)
    ours = grow(900, step=1)
    node.take(*ours[:-1])
    remote = node.remote(blocks=grow(3, on=ours[:333], name="theirs"))
    node.meet(remote)
    remote.scripts["/p2p/block"] = lambda _: ok(hash="00" * 32, state="orphan")
    answer = remote.scripts.get(path, remote.honest)

    def is_banned(called: Called) -> Answer:
        node.ban(remote)
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
    few_headers(monkeypatch, 2)
    ours = grow(900, step=1)
    node.take(*ours)
    remote = node.remote(blocks=grow(3, on=ours[:333], name="theirs"))
    remote.scripts["/p2p/block"] = takes_what_fits(remote)
    node.meet(remote)
    assert node.until(lambda: heights(remote), within=30)
    assert heights(remote)[0] == 334
    assert len(asked_at(node, remote, "/p2p/headers")) == 3


def test_a_former_peer_is_pushed_nothing(node: Node, grow: Grow) -> None:
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


# Branches far below the tip of the receiver, which show their headers first


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side blocks may have the work of three blocks less than the tip, and few headers are posted at a time."""
    monkeypatch.setattr(chainstate, "SIDE_DEPTH", 3)
    monkeypatch.setattr(branch_push, "MAX_BRANCH_HEADERS", 4)


def as_real_node(remote: RemoteNode, receiver: Node) -> None:
    """Let a remote answer what another node under test answers."""

    def answer(called: Called) -> Answer:
        reply = receiver.post(called.request.path, called.request.body or b"", "198.51.100.9")
        return PeerReply(reply.status, reply.body)

    for path in ("/p2p/block", "/p2p/branch", "/p2p/header", "/p2p/headers"):
        remote.scripts[path] = answer


@pytest.mark.usefixtures("shallow")
def test_a_deep_branch_is_posted_once_its_headers_have_shown_more_work(
    node: Node, make_node: MakeNode, grow: Grow
) -> None:
    receiver = make_node("receiver", name="receiver")
    theirs, ours = grow(12, name="theirs"), grow(14, name="ours")
    receiver.take(*theirs)
    node.take(*ours[:13])
    remote = node.remote(blocks=theirs)
    as_real_node(remote, receiver)
    node.meet(remote)
    node.run(2)
    node.take(ours[13])
    node.run(30)
    assert receiver.tip.hash == ours[-1].header.hash
    shown = [[int(header["height"]) for header in headers] for headers in remote.got_at("/p2p/branch")]
    assert shown == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14]]
    assert heights(remote) == [14, 1, 1, *range(2, 15)]


@pytest.mark.usefixtures("shallow")
def test_a_deep_branch_with_less_work_is_shown_and_not_posted(node: Node, make_node: MakeNode, grow: Grow) -> None:
    receiver = make_node("receiver", name="receiver")
    theirs, ours = grow(12, name="theirs"), grow(8, name="ours")
    receiver.take(*theirs)
    node.take(*ours[:7])
    # The remote lies about its work, or has got more of it in the meantime.
    remote = node.remote(blocks=theirs, work=1)
    as_real_node(remote, receiver)
    node.meet(remote)
    node.run(2)
    node.take(ours[7])
    node.run(30)
    assert heights(remote) == [8, 1]
    assert len(remote.got_at("/p2p/branch")) == 2
    assert receiver.tip.hash == theirs[-1].header.hash


@pytest.mark.usefixtures("shallow")
def test_headers_show_more_work_in_several_posts(make_node: MakeNode, grow: Grow) -> None:
    node = make_node()
    node.take(*grow(12, name="theirs"))
    ours = grow(14, name="ours")
    assert post(node, *ours[:4]).json == {"ok": True, "state": "more"}
    assert post(node, *ours[4:8]).json["state"] == "more"
    assert node.post("/p2p/block", b'{"block":' + ours[0].wire() + b"}", "198.51.100.7").json["state"] == "deep"
    assert post(node, *ours[8:12], client="203.0.113.3").json["state"] == "more", "anybody may go on"
    assert post(node, *ours[12:]).json["state"] == "wanted"
    states = [
        node.post("/p2p/block", b'{"block":' + block.wire() + b"}", "198.51.100.7").json["state"] for block in ours
    ]
    assert states[-1] == "connected"
    assert "deep" not in states


@pytest.mark.usefixtures("shallow")
def test_headers_that_go_on_from_no_known_block_are_orphans(make_node: MakeNode, grow: Grow) -> None:
    node = make_node()
    ours = grow(14, name="ours")
    assert post(node, *ours[4:8]).json["state"] == "orphan"
    assert post(node, *ours[:4]).json["state"] == "wanted"
    assert post(node, *ours[8:]).json["state"] == "orphan", "the ones before have not been shown"


def test_a_header_in_a_branch_that_breaks_a_rule_bans_the_posts_of_its_sender(
    make_node: MakeNode, builder: ChainBuilder
) -> None:
    node = make_node()
    bad = builder.block(producer="liar", break_=Refusal.WORK)
    answer = post(node, bad)
    assert answer.status == 400
    assert "does not reach its target" in answer.json["error"]
    assert post(node, bad).status == 403


def test_headers_that_are_not_one_chain_are_refused(make_node: MakeNode, grow: Grow) -> None:
    node = make_node()
    blocks = grow(3)
    answer = post(node, blocks[0], blocks[2])
    assert answer.status == 400
    assert answer.json["error"] == "the headers must be those of one chain, each the child of the one before"


@pytest.mark.parametrize("count", [0, 101])
def test_headers_of_a_branch_come_a_hundred_at_a_time(make_node: MakeNode, grow: Grow, count: int) -> None:
    answer = post(make_node(), *grow(101)[:count])
    assert answer.status == 400
    assert answer.json["error"] == "headers: must be an array of 1 to 100 headers"


def test_the_headers_of_one_branch_are_checked_at_a_time(make_node: MakeNode, grow: Grow) -> None:
    checker = Stepped()
    node = make_node(checker=checker, reader=InlineWorker())
    body = b'{"headers":[' + grow(1)[0].header.wire() + b"]}"
    first = node.send("/p2p/branch", body, "198.51.100.7")
    assert first.responses() == []
    assert post(node, grow(1)[0]).status == 503
    assert node.post("/p2p/branch", b'{"headers":[7]}', "198.51.100.7").status == 503, "nothing is read meanwhile"
    checker.finish()
    assert first.response().json["state"] == "wanted"
    again = node.send("/p2p/branch", body, "198.51.100.7")
    checker.finish()
    assert again.response().status == 200


def test_a_header_of_the_future_ends_a_branch_for_now(make_node: MakeNode, builder: ChainBuilder, grow: Grow) -> None:
    node = make_node()
    node.take(*grow(3))
    early = builder.block(None, slot=LATE + TEST_PARAMS.drift_slots + 1, producer="early")
    assert post(node, early).json["state"] == "early"


@pytest.mark.usefixtures("shallow")
def test_two_nodes_show_the_same_branch_and_each_header_is_verified_once(make_node: MakeNode, grow: Grow) -> None:
    node = make_node(rates={**RATES, "p2p": 100})
    node.take(*grow(12, name="theirs"))
    ours = grow(14, name="ours")
    one, other = "198.51.100.7", "203.0.113.3"
    states, paid = [], []
    for first in range(0, 14, 4):
        for client in (one, other):
            before = owed(node, client)
            states.append(post(node, *ours[first : first + 4], client=client).json["state"])
            paid.append(owed(node, client) - before)
    assert states == [*["more"] * 6, "wanted", "wanted"]
    assert paid == [5, 1, 5, 1, 5, 1, 3, 1], "a token for the post, and one for each header that is verified"


@pytest.mark.usefixtures("shallow")
def test_headers_that_prove_nothing_push_no_branch_out(
    make_node: MakeNode, grow: Grow, builder: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of blocks that are stored, nor those whose work is wrong."""
    monkeypatch.setattr(branch_push, "SHOWN_HEADERS", 8)
    node = make_node()
    theirs = grow(12, name="theirs")
    node.take(*theirs)
    ours = grow(14, name="ours")
    assert post(node, *ours[:4]).json["state"] == "more"
    assert post(node, *theirs[:12], client="203.0.113.3").json["state"] == "more"
    for number in range(8):
        bad = builder.block(producer=f"liar {number}", break_=Refusal.WORK)
        assert post(node, bad, client=f"192.0.2.{number}").status == 400
    assert post(node, *ours[4:8]).json["state"] == "more"


@pytest.mark.usefixtures("shallow")
def test_another_end_of_a_branch_that_was_shown_goes_on_from_there(make_node: MakeNode, grow: Grow) -> None:
    node = make_node()
    node.take(*grow(12, name="theirs"))
    ours, others = grow(8, name="ours"), grow(10, on=grow(4, name="ours"), name="others")
    assert post(node, *ours).json["state"] == "more"
    assert post(node, *others[4:8]).json["state"] == "more"
    assert post(node, *others[8:]).json["state"] == "wanted"
    assert node.post("/p2p/block", b'{"block":' + ours[0].wire() + b"}", "198.51.100.7").json["state"] == "side"


@pytest.mark.usefixtures("shallow")
def test_the_first_blocks_of_a_long_branch_are_wanted(
    make_node: MakeNode, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are posted first; for the others the headers are shown again from there on."""
    monkeypatch.setattr(branch_push, "MAX_WANTED", 3)
    node = make_node()
    node.take(*grow(12, name="theirs"))
    ours = grow(14, name="ours")

    def states(blocks: list[Block]) -> list[str]:
        posts = (node.post("/p2p/block", b'{"block":' + block.wire() + b"}", "198.51.100.7") for block in blocks)
        return [answer.json["state"] for answer in posts]

    assert post(node, *ours).json["state"] == "wanted"
    assert states(ours[:4]) == ["side", "side", "side", "deep"]
    assert post(node, *ours[3:]).json["state"] == "wanted"
    assert states(ours[3:7]) == ["side", "side", "side", "deep"]


@pytest.mark.usefixtures("shallow")
def test_headers_are_shown_as_long_as_a_round_lasts(
    node: Node, make_node: MakeNode, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_push, "ROUND_SECONDS", 15.0)
    monkeypatch.setattr(branch_push, "MAX_BRANCH_HEADERS", 1)
    theirs, ours = grow(12, name="theirs"), grow(14, name="ours")
    node.take(*ours[:13])
    remote = node.remote(blocks=theirs)
    receiver = make_node("receiver", name="receiver")
    receiver.take(*theirs)
    as_real_node(remote, receiver)

    def slowly(_: Called) -> Answer:
        reply = Deferred[PeerReply]()
        node.clock.callLater(5.0, reply.callback, PeerReply(200, b'{"ok":true,"state":"more"}'))
        return reply

    remote.scripts["/p2p/branch"] = slowly
    node.meet(remote)
    node.run(2)
    node.take(ours[13])
    node.run(60)
    assert len(remote.got_at("/p2p/branch")) == 3
