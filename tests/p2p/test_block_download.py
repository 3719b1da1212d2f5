"""Downloading blocks by hash: shares, windows, stalls, and that only the sender of a false block pays."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.transition import genesis_head
from svcd.net.targets import Endpoint
from svcd.p2p import block_download, schedule
from svcd.p2p.block_download import BATCH_BLOCKS, BlockDownload, DownloadFailed, Wakeup
from svcd.p2p.client import MAX_HASHES, MAX_REPLY_BYTES, BlocksReply, PeerClient, PeerStatus
from svcd.p2p.headers import HeaderChain
from svcd.p2p.peer import Peer
from svcd.p2p.schedule import FIRST_BYTES, MAX_PASSED, MAX_REQUESTS, Source
from svcd.p2p.transport import FailureKind, PeerReply
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.p2p.bench import Node, place
from tests.p2p.conftest import Grow
from tests.p2p.following import BLOCKS, asked_for, body, followed, hashes_of, is_clean, later, meet
from tests.p2p.memory_transport import Called
from tests.p2p.remote_node import RemoteNode, Script, blocks_reply, refused, silent
from tests.support import has_result, result_of


def several(node: Node, count: int, chain: Sequence[Block]) -> list[RemoteNode]:
    return [node.remote(number, blocks=chain) for number in range(1, count + 1)]


def slow_down(node: Node, seconds: float, *remotes: RemoteNode) -> None:
    for remote in remotes:
        node.transport.latency[remote.endpoint] = seconds


def all_asked(node: Node, *remotes: RemoteNode) -> Counter[str]:
    """How often each block was asked for."""
    return Counter(name for remote in remotes for names in asked_for(node, remote) for name in names)


def download_of(node: Node) -> BlockDownload:
    following = node.network.sync._following
    assert following is not None
    return following.download


# Shares


def test_a_block_without_transactions_is_asked_of_nobody(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(100))
    meet(node, remote)
    assert followed(node, grow(100))
    assert asked_for(node, remote) == []


@pytest.mark.parametrize("count", [1, 4])
def test_blocks_are_asked_for_once_each(node: Node, grow: Grow, count: int) -> None:
    chain = grow(160, pays=8)
    remotes = several(node, count, chain)
    slow_down(node, 0.2, *remotes)
    meet(node, *remotes)
    assert followed(node, chain, within=30)
    asked = all_asked(node, *remotes)
    assert set(asked) == set(hashes_of(chain))
    assert set(asked.values()) == {1}
    assert is_clean(node, *remotes)
    assert max(node.transport.most_at_once.values()) <= MAX_REQUESTS == 2


# Peers that have only later blocks


def heights_asked_for(node: Node, remote: RemoteNode, chain: Sequence[Block]) -> set[int]:
    heights = {block.header.hash.hex(): block.header.height for block in chain}
    return {heights[name] for names in asked_for(node, remote) for name in names}


def test_a_pruned_peer_is_asked_only_for_what_it_has(node: Node, grow: Grow) -> None:
    chain = grow(160, pays=8)
    archive, pruned = node.remote(1, blocks=chain), node.remote(2, blocks=chain, prune_height=101)
    slow_down(node, 0.2, archive, pruned)
    meet(node, archive, pruned)
    assert followed(node, chain, within=30)
    assert heights_asked_for(node, archive, chain) >= set(range(1, 101))
    assert min(heights_asked_for(node, pruned, chain)) >= 101
    assert is_clean(node, archive, pruned)


def test_the_chain_of_a_pruned_peer_is_fetched_from_others(node: Node, grow: Grow) -> None:
    """Its headers prove the chain; another peer, which is a block behind, has the blocks."""
    chain = grow(60, pays=8)
    pruned, archive = node.remote(1, blocks=chain, prune_height=41), node.remote(2, blocks=chain[:-1])
    meet(node, pruned, archive)
    assert followed(node, chain, within=30)
    assert is_clean(node, archive, pruned)


def test_blocks_that_no_peer_has_are_said_to_be_so(node: Node, grow: Grow) -> None:
    chain = grow(60, pays=8)
    remote = node.remote(1, blocks=chain, prune_height=41)
    meet(node, remote)
    node.until(lambda: node.network.sync._following is not None)
    failures: list[Exception] = []
    stop = download_of(node).stop
    download_of(node).stop = lambda failure: (failures.append(failure), stop(failure))[1]  # type: ignore[method-assign]
    node.run(block_download.STALL_SECONDS + 5)
    assert str(failures[0]) == "no peer has delivered block 1 for 60 s: the peers have only later blocks"
    assert min(heights_asked_for(node, remote, chain)) >= 41
    assert node.knows(remote)
    assert not node.peers.is_banned(remote.key.node_id)


@pytest.mark.parametrize("shown", [0, 60, 2**53 - 1])
def test_a_false_prune_height_keeps_nobody_from_the_chain(node: Node, grow: Grow, shown: int) -> None:
    """Shown too low, it gets requests that it cannot answer; shown too high, it gets none."""
    chain = grow(120, pays=8)
    liar = node.remote(1, blocks=chain, prune_height=121, shown_prune_height=shown)
    archive = node.remote(2, blocks=chain)
    slow_down(node, 0.2, archive)
    meet(node, liar, archive)
    assert followed(node, chain, within=90)
    assert min(heights_asked_for(node, liar, chain), default=shown) >= shown
    assert is_clean(node, archive)


def test_several_peers_share_the_work(node: Node, grow: Grow) -> None:
    chain = grow(300, pays=8)
    remotes = several(node, 4, chain)
    slow_down(node, 0.3, *remotes)
    meet(node, *remotes)
    assert followed(node, chain, within=30)
    shares = [sum(map(len, asked_for(node, remote))) for remote in remotes]
    assert sum(shares) == 300
    assert min(shares) >= 30


def test_a_slow_peer_gets_less_to_do(node: Node, grow: Grow) -> None:
    chain = grow(300, pays=8)
    slow, quick = several(node, 2, chain)
    slow_down(node, 1.0, slow)
    slow_down(node, 0.05, quick)
    meet(node, slow, quick)
    assert followed(node, chain, within=30)
    assert sum(map(len, asked_for(node, slow))) < sum(map(len, asked_for(node, quick)))
    assert is_clean(node, slow, quick)


def test_questions_grow_with_the_rate(node: Node, grow: Grow) -> None:
    """Behind a long round trip small questions would leave the line idle."""
    chain = grow(300, pays=8)
    remote = node.remote(blocks=chain)
    slow_down(node, 0.1, remote)
    meet(node, remote)
    assert followed(node, chain, within=30)
    sizes = [len(names) for names in asked_for(node, remote)]
    assert max(sizes) > 2 * sizes[0]
    assert max(sizes) <= MAX_HASHES


def test_a_block_larger_than_the_first_share_is_asked_for_alone(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "FIRST_BYTES", 100)
    chain = grow(20, pays=8)
    remote = node.remote(blocks=chain)
    meet(node, remote)
    assert followed(node, chain)
    assert len(asked_for(node, remote)[0]) == 1


def test_peers_on_our_own_tip_are_not_asked(node: Node, grow: Grow) -> None:
    node.take(*grow(40, name="o"))
    same = node.remote(1, blocks=grow(40, name="o"))
    behind = node.remote(2, blocks=grow(20, name="o"))
    ahead = node.remote(3, blocks=grow(60, name="t", pays=1))
    meet(node, same, behind, ahead)
    assert followed(node, ahead.blocks)
    assert asked_for(node, same) == asked_for(node, behind) == []
    assert is_clean(node, same, behind, ahead)


def test_a_peer_that_comes_later_helps(node: Node, grow: Grow) -> None:
    chain = grow(300, pays=8)
    first, second = several(node, 2, chain)
    slow_down(node, 0.5, first, second)
    meet(node, first)
    node.run(1)
    meet(node, second)
    assert followed(node, chain, within=30)
    assert asked_for(node, second)
    assert set(all_asked(node, first, second).values()) == {1}


def test_a_peer_on_another_branch_is_left_out_and_blamed_for_nothing(node: Node, grow: Grow) -> None:
    chain = grow(150, pays=4)
    remotes = several(node, 2, chain)
    odd = node.remote(3, blocks=grow(110, on=grow(30, pays=4), name="odd", pays=4))
    slow_down(node, 0.1, *remotes, odd)
    meet(node, *remotes, odd)
    assert followed(node, chain, within=20)
    assert is_clean(node, *remotes, odd)


# Bounds


def test_the_window_is_bounded_while_its_base_is_missing(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that holds back the first block must not make the node hold everything behind it."""
    chain = grow(300, pays=8)
    most = 40 * len(chain[0].wire())
    monkeypatch.setattr(block_download, "WINDOW_BYTES", most)
    first = hashes_of(chain)[0]
    remotes = several(node, 3, chain)

    def withhold(remote: RemoteNode) -> Script:
        def script(called: Called) -> Any:
            names = body(called)["hashes"]
            return blocks_reply([block for block in chain if block.header.hash.hex() in names and block != chain[0]])

        return script

    for remote in remotes:
        remote.scripts = {BLOCKS: withhold(remote)}
    meet(node, *remotes)
    node.run(5)
    download = download_of(node)
    assert 0 < download._schedule.ahead <= most + 2 * len(chain[0].wire())
    assert len(all_asked(node, *remotes)) <= 45
    for remote in remotes:
        remote.scripts = {}
    assert followed(node, chain, within=40)
    assert first in all_asked(node, *remotes)


def test_the_window_is_empty_in_the_end(node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was given up, absent, false or came by relay: its bytes are counted out again."""
    made: list[BlockDownload] = []
    real = BlockDownload.run

    def run(self: BlockDownload) -> Any:
        made.append(self)
        return real(self)

    monkeypatch.setattr(BlockDownload, "run", run)
    chain = grow(200, pays=4)
    good, silent_one, absent = several(node, 3, chain)
    silent_one.scripts = {BLOCKS: silent}
    absent.scripts = {BLOCKS: lambda called: blocks_reply([])}
    meet(node, good, silent_one, absent)
    node.run(0.03)
    node.node_context.chain_manager.submit_blocks([block.wire() for block in chain[:50]])
    assert followed(node, chain, within=60)
    node.run(15)
    assert [download._schedule.ahead for download in made] == [0] * len(made)
    assert not any(source.requests for download in made for source in download._schedule.sources.values())


def lines_of(action: Callable[[], object]) -> int:
    """How many lines of the download are executed, each turn of a loop counting as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in (block_download.__file__, schedule.__file__):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@contextmanager
def downloading(node: Node, grow: Grow, peers: int, blocks: int) -> Iterator[BlockDownload]:
    """A download with so many blocks in its window, for which so many peers are asked that do not answer."""
    status = PeerStatus(height=10**6, hash=b"h" * 32, work=2**200)
    for number in range(peers):
        peer = Peer(node.clock, Endpoint(place(number)), bytes([number]) * 32, f"{number}", True, 0.0, status=status)
        node.peers._peers[peer.endpoint] = peer

    async def unanswered(*_: object) -> BlocksReply:
        return await Deferred()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeerClient, "blocks_by_hash", unanswered)
        chain = HeaderChain(node.peers.all()[0], b"", genesis_head(TEST_PARAMS), 10**6)
        chain.window.extend(evolve(block.header, transaction_count=1) for block in grow(blocks))
        download = BlockDownload(node.peers, node.network.progress, chain)
        done = Deferred.fromCoroutine(download.run())
        yield download
        download.stop(DownloadFailed("the test is over"))
        with pytest.raises(DownloadFailed):
            result_of(done)


@pytest.mark.parametrize("state", ["requested", "lacking", "here"])
def test_a_step_costs_no_more_the_more_blocks_are_in_the_window(node: Node, grow: Grow, state: str) -> None:
    """Each answer causes a step, and hostile peers answer as often as they like."""
    lines = []
    for blocks in (600, 1_800):
        with downloading(node, grow, 72, blocks) as download:
            queue = list(download._queue)
            assert len(queue) == blocks
            if state == "lacking":
                for wanted in queue:
                    wanted.lacking = {peer.endpoint: inf for peer in node.peers.all()}
                download._cancel_all()
            elif state == "here":
                download._cancel_all()
                for wanted in queue[1:]:
                    wanted.block = Block(wanted.header, ())
                download._schedule.missing = queue[:1]
            download.wake()
            lines.append(lines_of(download.wake))
    assert lines[1] <= lines[0] * 1.1
    assert lines[1] <= 72 * (40 if state != "lacking" else 40 + 6 * MAX_PASSED)


def test_a_batch_has_no_more_blocks_and_bytes_than_it_may(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four blocks may be full: what is verified and committed together must not fill the memory."""
    assert block_download.BATCH_BYTES == 4 * 1024 * 1024
    chain = grow(200, pays=1)
    submit, batches = node.node_context.chain_manager.submit_blocks, []

    def submitted(batch: Any, *given: Any, **named: Any) -> Any:
        batches.append(len(batch))
        return submit(batch, *given, **named)

    monkeypatch.setattr(node.node_context.chain_manager, "submit_blocks", submitted)
    meet(node, node.remote(blocks=chain))
    assert followed(node, chain)
    assert (sum(batches), max(batches)) == (200, BATCH_BLOCKS)
    batches.clear()
    monkeypatch.setattr(block_download, "BATCH_BYTES", 10 * len(chain[0].wire()))
    more = grow(300, pays=1)
    meet(node, node.remote(2, blocks=more))
    assert followed(node, more)
    assert sum(batches) == 100
    assert max(batches) <= 12


def cut_at(remote: RemoteNode, most: int) -> Script:
    """An honest answer that ends where it has so many bytes, as a full one does at 3 MiB."""

    def script(called: Called) -> Any:
        names, size, found = body(called)["hashes"], 0, []
        held = {block.header.hash.hex(): block for block in remote.blocks}
        for name in names:
            size += len(held[name].wire())
            if found and size > most:
                break
            found.append(held[name])
        return blocks_reply(found)

    return script


def test_the_rest_of_a_full_answer_is_requested_from_the_same_peer_at_once(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates may be too small; a full answer says nothing about the blocks that found no room."""
    chain = grow(60, pays=8)
    size = len(chain[0].wire())
    monkeypatch.setattr(block_download, "MAX_REPLY_BYTES", 10 * size)
    monkeypatch.setattr(block_download, "_HEADER_BYTES", 1)
    monkeypatch.setattr(block_download, "_TRANSACTION_BYTES", 1)
    remote = node.remote(blocks=chain)
    remote.scripts = {BLOCKS: cut_at(remote, 10 * size)}
    meet(node, remote)
    assert followed(node, chain, within=5), "a peer that lacked a block would rest longer"
    assert is_clean(node, remote)
    assert MAX_REPLY_BYTES == 3 * 1024 * 1024


def test_a_peer_that_pads_its_answers_is_taken_for_no_fast_one(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its answers has one block, and as much besides as the answer may have, which does not count."""
    chain = grow(100, pays=20)
    monkeypatch.setattr(block_download, "MAX_REPLY_BYTES", TEST_PARAMS.max_block_bytes + 50_000)
    honest, padder = node.remote(1, blocks=chain), node.remote(2, blocks=chain)
    slow_down(node, 0.1, honest)

    def padded(called: Called) -> PeerReply:
        [first, *_] = body(called)["hashes"]
        reply = blocks_reply([block for block in chain if block.header.hash.hex() == first])
        padding = b"a" * (called.request.max_bytes - len(reply.body) - 20)
        return PeerReply(200, b'{"pad":"' + padding + b'",' + reply.body[1:])

    padder.scripts = {BLOCKS: padded}
    meet(node, padder, honest)
    assert followed(node, chain, within=50)
    assert len(asked_for(node, padder)) <= 4


def test_a_peer_that_gets_the_blocks_later_is_asked_again(node: Node, grow: Grow) -> None:
    """It announces a chain that it is itself still fetching."""
    chain = grow(60, pays=4)
    remote = node.remote(blocks=chain, scripts={BLOCKS: lambda _: blocks_reply([])})
    meet(node, remote)
    node.run(5)
    assert node.tip.height == 0
    remote.scripts = {}
    assert followed(node, chain, within=12)
    assert is_clean(node, remote)


# Stalls and failures


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: refused(500),
        lambda _: FailureKind.UNREACHABLE,
        lambda _: FailureKind.MALFORMED,
        lambda _: blocks_reply([b"{}"]),
    ],
)
def test_failures_are_asked_for_elsewhere_and_cost_no_ban(node: Node, grow: Grow, answer: Any) -> None:
    """Neither a connection that breaks in the middle of an answer nor a block in another form is a lie."""
    chain = grow(100, pays=4)
    broken, good = several(node, 2, chain)
    broken.scripts = {BLOCKS: answer}
    meet(node, broken, good)
    assert followed(node, chain, within=15)
    assert is_clean(node, good)
    assert not node.peers.is_banned(broken.key.node_id)


def test_an_error_of_ours_at_an_answer_is_not_repeated_at_once(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    remote = node.remote(blocks=grow(60, pays=1))
    with monkeypatch.context() as patch:
        patch.setattr(Source, "measure", lambda *_: 1 / 0)
        meet(node, remote)
        node.run(8)
    assert len(asked_for(node, remote)) == len(expected_errors(ZeroDivisionError)) <= MAX_REQUESTS
    assert followed(node, remote.blocks, within=5)
    assert is_clean(node, remote)


def test_an_error_of_ours_leaves_no_batch_behind(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    """The next download would fetch the blocks of the batch again, and a node that stops would close its database."""
    remote, held = node.remote(blocks=grow(60, pays=1)), list[Callable[[], object]]()
    submit = node.node_context.chain_manager.submit_blocks

    def hold(*args: Any, **kwargs: Any) -> "Deferred[Any]":
        outcome: Deferred[Any] = Deferred()
        held.append(lambda: submit(*args, **kwargs).chainDeferred(outcome))
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(node.node_context.chain_manager, "submit_blocks", hold)
        meet(node, remote)
        assert node.until(lambda: held)
        patch.setattr(BlockDownload, "_leave_out_stored", lambda *_: 1 / 0)
        download_of(node).wake()
        stopped = Deferred.fromCoroutine(node.network.sync.stop())
        node.run(5)
        assert node.network.sync.running
        assert not has_result(stopped)
    for release in held:
        release()
    node.run(1)
    assert not node.network.sync.running
    assert has_result(stopped)
    assert node.tip.height == 60
    expected_errors(ZeroDivisionError)


def test_a_distant_peer_is_waited_for_where_there_is_no_other(node: Node, grow: Grow) -> None:
    chain = grow(60, pays=4)
    remote = node.remote(blocks=chain)
    remote.scripts = {BLOCKS: later(node, 9.0, remote)}
    meet(node, remote)
    assert followed(node, chain, within=45)
    assert is_clean(node, remote)


def test_a_peer_that_never_answers_is_given_up(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(40, pays=1), scripts={BLOCKS: silent})
    meet(node, remote)
    node.run(70)
    assert not node.network.sync.running
    assert node.network.network_view().behind == ""
    assert not node.peers.is_banned(remote.key.node_id), "slowness is no crime"


@pytest.mark.parametrize("status", [429, 503])
def test_a_peer_that_has_had_enough_rests_and_others_are_asked(node: Node, grow: Grow, status: int) -> None:
    chain = grow(100, pays=4)
    busy, other = several(node, 2, chain)
    busy.scripts = {BLOCKS: lambda _: evolve(refused(status), retry_after=5.0)}
    meet(node, busy, other)
    assert followed(node, chain, within=10)
    assert is_clean(node, busy, other)


def test_a_peer_that_has_always_had_enough_is_followed_no_longer_than_one_that_brings_nothing(
    node: Node, grow: Grow
) -> None:
    remote = node.remote(blocks=grow(60, pays=1), scripts={BLOCKS: lambda _: refused(429)})
    meet(node, remote)
    node.run(55)
    assert node.network.sync.running
    node.run(8)
    assert not node.network.sync.running
    assert is_clean(node, remote)


def test_a_peer_that_is_left_in_the_middle_of_a_transfer(node: Node, grow: Grow) -> None:
    chain = grow(100, pays=4)
    leaving, staying = several(node, 2, chain)
    slow_down(node, 0.3, leaving, staying)
    meet(node, leaving, staying)
    node.run(1.0)
    leaving.scripts = {"": silent}
    node.peers.drop(node.peer(leaving))
    assert followed(node, chain, within=40)
    assert is_clean(node, staying)


# False blocks


def with_another_body(block: Block, other: Block) -> bytes:
    """The header of one block over the transfers of another."""
    return block.header.wire(b",".join(transfer.wire for transfer in other.transfers))


@pytest.mark.parametrize("deed", ["body", "signature"])
def test_only_the_sender_of_a_false_block_pays(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    monkeypatch.setattr(schedule, "FIRST_BYTES", 40_000)
    chain, other = grow(150, pays=4), grow(5, name="other", pays=2)
    honest = several(node, 3, chain)
    criminal = node.remote(5, blocks=chain)

    def script(called: Called) -> Any:
        names = body(called)["hashes"]
        found = [block for block in chain if block.header.hash.hex() in names]
        if deed == "body":
            return blocks_reply([with_another_body(found[0], other[0]), *found[1:]])
        forged = found[0].transfers[0].signature.hex().encode()
        return blocks_reply([found[0].wire().replace(forged, b"00" * 64), *found[1:]])

    criminal.scripts = {BLOCKS: script}
    for remote in (*honest, criminal):
        node.transport.latency[remote.endpoint] = 0.1
    meet(node, *honest, criminal)
    assert followed(node, chain, within=15)
    assert node.peers.is_banned(criminal.key.node_id)
    assert is_clean(node, *honest)


def test_a_header_with_another_signature_over_a_good_block_changes_nothing(node: Node, grow: Grow) -> None:
    """The hash leaves the signature out: the one that was checked with the header is kept."""
    chain = grow(20, pays=1)
    remote = node.remote(blocks=chain)

    def script(called: Called) -> Any:
        names = body(called)["hashes"]
        forged = [
            Block(evolve(block.header, signature=bytes(64)), block.transfers)
            for block in chain
            if block.header.hash.hex() in names
        ]
        return blocks_reply(forged)

    remote.scripts = {BLOCKS: script}
    meet(node, remote)
    assert followed(node, chain)
    stored = node.node_context.chain_manager.reader.stored(chain[0].header.hash)
    assert stored is not None
    assert stored.header == chain[0].header.wire()


@pytest.mark.parametrize("deed", ["others", "twice", "reversed"])
def test_blocks_that_were_not_asked_for_help_and_harm_nobody(node: Node, grow: Grow, deed: str) -> None:
    node.take(*grow(20, pays=1))
    chain = grow(150, pays=1)
    honest, liar = node.remote(1, blocks=chain), node.remote(2, blocks=chain)

    def script(called: Called) -> Any:
        names = body(called)["hashes"]
        found = [block for block in chain if block.header.hash.hex() in names]
        return blocks_reply({"others": chain[:5], "twice": [found[0]] * 2, "reversed": found[::-1]}[deed])

    liar.scripts = {BLOCKS: script}
    slow_down(node, 0.1, honest, liar)
    meet(node, honest, liar)
    assert followed(node, chain, within=20)
    assert is_clean(node, honest)


@pytest.mark.parametrize("rule", [Refusal.STATE_ROOT, Refusal.NONCE, Refusal.TRANSACTION_SIGNATURE])
def test_an_invalid_block_is_the_fault_of_the_peer_whose_chain_it_is(
    node: Node, grow: Grow, builder: ChainBuilder, rule: Refusal
) -> None:
    """Its body is what its header commits to, so that the peers that sent it did as they were asked."""
    bad = builder.block(grow(39, pays=1)[-1], break_=rule, producer="criminal")
    criminal = node.remote(1, blocks=[*grow(39, pays=1), bad], work=10**6)
    sender = node.remote(2, blocks=[*grow(39, pays=1), bad])
    meet(node, criminal)
    meet(node, sender)
    node.run(5)
    assert node.peers.is_banned(criminal.key.node_id)
    assert not node.peers.is_banned(sender.key.node_id)
    assert node.tip.height == 39


# Waiting for news


def waiting(wakeup: Wakeup, seconds: float = 10.0) -> "Deferred[None]":
    return Deferred.fromCoroutine(wakeup.wait(seconds))


def test_news_wake() -> None:
    clock = Clock()
    wakeup = Wakeup(clock)
    done = waiting(wakeup)
    assert not has_result(done)
    wakeup.set()
    assert has_result(done)
    assert clock.getDelayedCalls() == []


def test_a_wakeup_fires_after_ten_seconds() -> None:
    clock = Clock()
    done = waiting(Wakeup(clock))
    clock.advance(9.9)
    assert not has_result(done)
    clock.advance(0.1)
    assert has_result(done)
    assert clock.getDelayedCalls() == []


def test_news_that_come_before_are_heard_once() -> None:
    clock = Clock()
    wakeup = Wakeup(clock)
    wakeup.set()
    wakeup.set()
    assert has_result(waiting(wakeup))
    second = waiting(wakeup)
    assert not has_result(second)
    wakeup.set()
    assert has_result(second)


def test_a_wait_that_is_cancelled_leaves_no_timer() -> None:
    clock = Clock()
    wakeup = Wakeup(clock)
    done = waiting(wakeup)
    done.addErrback(lambda failure: failure.trap(CancelledError))
    done.cancel()
    assert clock.getDelayedCalls() == []
    wakeup.set()
    assert has_result(waiting(wakeup))


@given(st.lists(st.integers(1, 100_000), max_size=30))
def test_a_rate_is_never_zero_nor_endless(sizes: list[int]) -> None:
    """Bytes to have under way stay within reason, whatever a peer's answers were like."""
    source = Source(None)  # type: ignore[arg-type]
    for size in sizes:
        source.measure(size, size / 1e9)
    assert source.target >= FIRST_BYTES / 4
