"""Relay: to which peers, in what order, how often, in what form, and that no peer waits for a slow one."""

import json
from hashlib import sha256
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.net.calls import CallKind
from svcd.net.http_client import MAX_CALLS
from svcd.p2p import relay
from svcd.p2p.transport import FailureKind
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import OURS, Node
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.following import make_peers
from tests.p2p.memory_transport import LATENCY, Called
from tests.p2p.remote_node import RemoteNode, ok, refused, silent
from tests.submitting import submitted
from tests.support import result_of

BLOCK, BLOCKS, HEADER, TRANSACTION = "/p2p/block", "/p2p/blocks", "/p2p/header", "/p2p/transaction"


@pytest.fixture
def maker() -> ChainBuilder:
    """A maker of transfers with nonces of its own."""
    return ChainBuilder()


def transfer(maker: ChainBuilder, sender: str = "alice", amount: int = 5) -> Transfer:
    return maker.transfer(sender, "bob", amount, timestamp=maker.params.slot_time(LATE))


def submit(node: Node, *transfers: Transfer) -> None:
    for each in transfers:
        submitted(node.node_context.transaction_pool, each, node.clock)


def txids(node: Node, remote: RemoteNode) -> list[bytes]:
    return [parse_transfer(value, node.local.params).txid for value in remote.got_at(TRANSACTION)]


def heights(remote: RemoteNode) -> list[int]:
    return [int(value["height"]) for value in remote.got_at(BLOCK)]


# Blocks


def test_a_new_block_goes_to_every_peer_at_once(node: Node, grow: Grow) -> None:
    remotes = make_peers(node, 5, settle=2)
    node.take(*grow(1))
    now = node.local.now()
    calls = [called for called in node.transport.calls if called.path == BLOCK]
    assert {called.endpoint for called in calls} == {each.endpoint for each in remotes}
    assert [called.at for called in calls] == [now] * 5
    node.run(0.5)
    for remote in remotes:
        assert remote.got_at(BLOCK) == [json.loads(grow(1)[0].wire())]


def test_a_block_is_sent_byte_for_byte(node: Node) -> None:
    make_peers(node, 1, settle=2)
    builder = ChainBuilder()
    block = builder.block(None, transfers=[builder.transfer("alice", "bob", 5, reference="order-1")])
    node.take(block)
    (called,) = [called for called in node.transport.calls if called.path == BLOCK]
    assert called.request.body == b'{"block":' + block.wire() + b"}"


def test_a_block_is_not_read_again_to_be_sent(make_node: MakeNode, grow: Grow) -> None:
    reader = Stepped()
    node = make_node(reader=reader)
    (remote,) = make_peers(node, 1, settle=2)
    node.take(*grow(2, pays=1))
    node.run(1)
    assert heights(remote) == [2]
    assert len(reader) == 0


def test_a_relay_that_was_stopped_sends_nothing(node: Node, grow: Grow) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    node.network.relay.stop()
    node.take(*grow(1))
    node.run(1)
    assert heights(remote) == []


def test_of_several_blocks_the_newest_is_offered(node: Node, grow: Grow) -> None:
    """Whoever lacks what is between asks for it."""
    (remote,) = make_peers(node, 1, settle=2)
    node.take(*grow(5))
    node.run(1)
    assert heights(remote) == [5]


def test_a_side_block_is_not_passed_on(node: Node, grow: Grow) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    node.take(*grow(3))
    node.take(*grow(1, name="side"))
    node.run(1)
    assert heights(remote) == [3]


def test_a_reorganisation_is_passed_on(node: Node, grow: Grow) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    node.take(*grow(2))
    node.take(*grow(3, name="side"))
    node.run(1)
    assert [value["height"] for value in remote.got_at(BLOCK)] == ["2", "3"]


def test_a_block_is_not_sent_twice(node: Node, grow: Grow) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    first, other = grow(1), grow(2, name="other")
    node.take(*first)
    node.take(*other)
    node.take(*grow(2, on=first, name="again")[1:])
    node.run(1)
    assert heights(remote) == [1, 2, 3]
    node.take(*grow(3, on=other, name="again")[2:])
    assert node.tip.height == 5
    node.run(1)
    assert heights(remote) == [1, 2, 3, 5]


def test_a_block_is_not_sent_to_whom_has_shown_it(node: Node, grow: Grow) -> None:
    ahead, other = node.remote(1, blocks=grow(3)), node.remote(2)
    node.meet(ahead, other)
    node.run(1)
    assert node.tip.height == 3
    assert heights(ahead) == []
    assert heights(other) == [3]


def test_old_blocks_are_not_offered_to_those_who_are_further(node: Node, grow: Grow) -> None:
    """While we catch up, peers would be sent what they sent us long ago."""
    remotes = [node.remote(number, blocks=grow(120)) for number in range(3)]
    node.meet(*remotes)
    node.run(2)
    assert node.tip.height == 120
    assert [heights(remote) for remote in remotes] == [[]] * 3


def announced(remote: RemoteNode) -> list[int]:
    """The heights of the headers that it was sent."""
    return [int(value["header"]["height"]) for value in remote.got_at(HEADER)]


def fetches_itself(_called: Called) -> Any:
    """What a node answers that can call the announcing one."""
    return ok(hash="00" * 32, state="asked")


def test_a_small_block_goes_whole_to_eight_inbound_peers_too(make_node: MakeNode, grow: Grow) -> None:
    node = make_node(outbound=2)
    chosen = [node.remote(number) for number in range(2)]
    callers = [node.remote(number, scripts={HEADER: fetches_itself}) for number in range(2, 14)]
    node.meet(*chosen)
    node.meet(*callers[:6], outbound=False)
    node.meet(*callers[6:], outbound=False)
    node.take(*grow(1))
    node.run(1)
    assert [heights(remote) for remote in chosen] == [[1]] * 2
    assert sum(len(heights(remote)) for remote in callers) == relay.OTHERS == 8
    assert all(heights(remote) or announced(remote) == [1] for remote in callers)
    assert sum(len(announced(remote)) for remote in callers) == 4


def test_acquaintances_are_drawn_at_random(make_node: MakeNode, grow: Grow, maker: ChainBuilder) -> None:
    """Those that called first may be all one party, which tells nobody.

    The eight are drawn anew for each event: a window over one order of 16 callers would show 16 groups at most.
    """
    node = make_node(outbound=1)
    node.meet(node.remote(99))
    callers = [node.remote(number, scripts={HEADER: fetches_itself}) for number in range(16)]
    for start in range(0, 16, 4):
        node.meet(*callers[start : start + 4], outbound=False)
    sent = [transfer(maker, amount=number + 1) for number in range(16)]
    for each, block in zip(sent, grow(16), strict=True):
        node.take(block)
        submit(node, each)
        node.run(0.5)
    told_blocks = [heights(caller) for caller in callers]
    told_transfers = [txids(node, caller) for caller in callers]
    assert all(0 < len(told) < 16 for told in (*told_blocks, *told_transfers))
    groups = [tuple(height in told for told in told_blocks) for height in range(1, 17)]
    groups += [tuple(each.txid in told for told in told_transfers) for each in sent]
    assert {sum(group) for group in groups} == {relay.OTHERS}
    assert len(set(groups)) > 16 + 8


def test_a_peer_that_has_the_transfer_takes_no_slot(make_node: MakeNode, grow: Grow, maker: ChainBuilder) -> None:
    node = make_node(outbound=1)
    node.meet(node.remote(99))
    callers = [node.remote(number, scripts={HEADER: fetches_itself}) for number in range(20)]
    for start in range(0, 20, 5):
        node.meet(*callers[start : start + 5], outbound=False)
    sent, block = transfer(maker), grow(1)[0]
    for caller in callers[:10]:
        node.peer(caller).mark_known(sent.txid)
        node.peer(caller).mark_known(block.header.hash)
    submit(node, sent)
    node.take(block)
    node.run(1)
    for told in ([txids(node, caller) for caller in callers], [heights(caller) for caller in callers]):
        assert [len(items) for items in told[:10]] == [0] * 10
        assert sum(len(items) for items in told[10:]) == relay.OTHERS


def test_a_peer_that_refuses_or_is_silent_is_not_held_against(node: Node, grow: Grow) -> None:
    """That it is slow is found out by asking for its status; a block that it does not want may be one it cannot see."""
    scripts = [{BLOCK: silent}, {BLOCK: lambda _: refused(400)}, {BLOCK: lambda _: refused(503)}]
    remotes = [node.remote(number, scripts=script) for number, script in enumerate(scripts)]
    node.meet(*remotes)
    node.take(*grow(1))
    node.run(15)
    assert all(node.knows(remote) for remote in remotes)
    assert node.peers.bans.listed(node.local.now()) == []


# Transfers


def test_transfers_go_in_the_order_in_which_they_came(node: Node, maker: ChainBuilder) -> None:
    remotes = make_peers(node, 3, settle=2)
    sent = [transfer(maker, amount=number) for number in range(1, 11)]
    submit(node, *sent)
    node.run(2)
    for remote in remotes:
        assert txids(node, remote) == [each.txid for each in sent]


def test_a_transfer_is_not_sent_twice(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    sent = transfer(maker)
    submit(node, sent, sent)
    node.run(1)
    node.node_context.transaction_pool.drop([sent.txid])
    submit(node, sent)
    node.run(1)
    assert txids(node, remote) == [sent.txid]


def test_a_transfer_of_an_undone_block_is_not_sent_again(node: Node, grow: Grow) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    builder = ChainBuilder()
    sent = builder.transfer("alice", "bob", 5, timestamp=builder.params.slot_time(LATE - 10))
    submit(node, sent)
    node.run(1)
    node.take(builder.block(None, slot=LATE - 10, transfers=[sent]))
    node.take(*grow(2, name="empty"))
    node.run(1)
    assert sent.txid in node.node_context.transaction_pool.mempool
    assert txids(node, remote) == [sent.txid]


def test_a_slow_peer_delays_nobody(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    slow, quick = make_peers(node, 2, settle=2)
    slow.scripts = {TRANSACTION: silent, BLOCK: silent}
    submit(node, *[transfer(maker, amount=number) for number in range(1, 11)])
    node.take(*grow(1))
    node.run(0.5)
    assert len(txids(node, quick)) == 10
    assert heights(quick) == [1]


def test_a_block_does_not_wait_for_transfers(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    node.transport.latency[remote.endpoint] = 1.0
    submit(node, *[transfer(maker, amount=number) for number in range(1, 11)])
    node.run(0.5)
    node.take(*grow(1))
    node.run(1.1)
    assert heights(remote) == [1]
    assert len(txids(node, remote)) == relay.IN_FLIGHT == MAX_CALLS[CallKind.TELL] == 4


def test_a_block_waits_for_nothing_that_its_peer_is_slow_to_take_or_to_send(
    node: Node, grow: Grow, maker: ChainBuilder
) -> None:
    """Transfers that it does not answer, and blocks that it claims to have, hold all their places."""
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: silent, BLOCKS: silent}
    submit(node, *[transfer(maker, amount=number) for number in range(1, 11)])
    for block in grow(5, name="other"):
        asked = node.peers.client.blocks_by_hash(remote.endpoint, [block.header])
        node.begin(asked).addErrback(lambda _: None)
    node.run(0.5)
    node.take(*grow(1))
    node.run(2 * LATENCY)
    assert heights(remote) == [1]


def test_of_blocks_that_wait_for_a_slow_peer_the_newest_is_kept(node: Node, grow: Grow) -> None:
    slow, other = make_peers(node, 2, settle=2)
    slow.scripts = {BLOCK: silent}
    for block in grow(6):
        node.take(block)
        node.run(0.5)
    assert heights(other) == [1, 2, 3, 4, 5, 6]
    assert heights(slow) == [1, 2]
    slow.scripts = {}
    node.run(30)
    assert heights(slow) == [1, 2, 6]
    node.take(*grow(7)[6:])
    node.run(0.5)
    assert heights(slow) == [1, 2, 6, 7]


@pytest.mark.parametrize("shown", [3, 4])
def test_a_block_is_not_sent_to_a_slow_peer_that_has_shown_it_or_a_later_one(
    node: Node, grow: Grow, shown: int
) -> None:
    (slow,) = make_peers(node, 1, settle=2)
    slow.scripts = {BLOCK: silent}
    for block in grow(3):
        node.take(block)
    node.peer(slow).mark_known(grow(shown)[-1].header.hash)
    node.take(*grow(shown)[3:])
    node.run(30)
    assert heights(slow) == [1, 2]


# Larger blocks


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every block count as a large one."""
    monkeypatch.setattr(relay, "SMALL_BLOCK", 0)


def full(count: int) -> Block:
    """A block with so many transfers."""
    builder = ChainBuilder()
    return builder.block(None, transfers=[builder.transfer("alice", "bob", 5) for _ in range(count)])


@pytest.mark.parametrize("transfers", [20, 40])
def test_a_larger_block_goes_as_a_header_to_all_peers(make_node: MakeNode, transfers: int) -> None:
    node, block = make_node(outbound=4), full(transfers)
    chosen = [node.remote(number, scripts={HEADER: fetches_itself}) for number in range(4)]
    callers = [node.remote(number, scripts={HEADER: fetches_itself}) for number in range(4, 8)]
    node.meet(*chosen)
    node.meet(*callers, outbound=False)
    node.take(block)
    node.run(1)
    large = len(block.wire()) > relay.SMALL_BLOCK == 16_384
    assert large is (transfers == 40)
    assert sum(len(heights(remote)) for remote in chosen) == (0 if large else 4)
    assert sum(len(heights(remote)) for remote in callers) == (0 if large else 4)
    told = [remote for remote in (*chosen, *callers) if announced(remote)]
    assert len(told) == (8 if large else 0)
    for remote in told:
        assert remote.got_at(HEADER) == [{"endpoint": OURS, "header": json.loads(block.header.wire())}]


@pytest.mark.usefixtures("all_large")
def test_a_peer_that_wants_an_announced_block_is_sent_it(node: Node, grow: Grow) -> None:
    remotes = make_peers(node, 5, settle=2)
    node.take(*grow(1))
    node.run(1)
    assert [heights(remote) for remote in remotes] == [[1]] * 5
    assert all(announced(remote) for remote in remotes)


@pytest.mark.usefixtures("all_large")
def test_peers_that_have_got_a_block_from_others_while_it_waits_are_not_sent_it(
    make_node: MakeNode, grow: Grow
) -> None:
    """Where nobody can call the node, all of its peers want each block, and its uplink may be slow."""
    node = make_node(endpoint="")
    remotes = make_peers(node, 8, settle=2)
    told: list[str] = []

    def wants_it_once(called: Called) -> Any:
        told.append(called.endpoint)
        return ok(hash="00" * 32, state="known" if told.count(called.endpoint) > 1 else "wanted")

    def takes_a_while(called: Called) -> Any:
        reply: Deferred[Any] = Deferred()
        node.clock.callLater(9.0, reply.callback, ok(hash="00" * 32, state="connected"))
        return reply

    for remote in remotes:
        remote.scripts = {HEADER: wants_it_once, BLOCK: takes_a_while}
    node.take(*grow(1))
    node.run(15)
    assert sum(len(heights(remote)) for remote in remotes) == relay.UPLOADS
    assert sorted(told.count(remote.endpoint) for remote in remotes) == [1, 1, 2, 2, 2, 2, 2, 2]


def take_all_uploads(node: Node, grow: Grow) -> list[RemoteNode]:
    """Outbound peers that never finish reading a first block, so that further outbound peers wait for the next one."""
    slow = make_peers(node, relay.UPLOADS, settle=2, scripts={BLOCK: silent})
    node.transport.dripping.update(remote.endpoint for remote in slow)
    node.take(*grow(1))
    node.run(0.1)
    return slow


@pytest.mark.usefixtures("all_large")
def test_a_block_that_had_to_wait_is_announced_again_before_it_is_sent(node: Node, grow: Grow) -> None:
    slow = take_all_uploads(node, grow)
    for remote in slow:
        node.peer(remote).mark_known(grow(2)[1].header.hash)
    other = node.remote(5)
    node.meet(other)
    node.take(*grow(2)[1:])
    node.run(relay.UPLOAD_SECONDS - 1)
    assert (announced(other), heights(other)) == ([2], [])
    node.run(2)
    assert (announced(other), heights(other)) == ([2, 2], [2])


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("state", ["known", "asked", "early", "nonsense"])
def test_a_peer_that_does_not_want_it_is_not(node: Node, grow: Grow, state: str) -> None:
    remotes = make_peers(node, 5, settle=2, scripts={HEADER: lambda _: ok(hash="00" * 32, state=state)})
    node.take(*grow(1))
    node.run(1)
    assert [heights(remote) for remote in remotes] == [[]] * 5
    assert [announced(remote) for remote in remotes] == [[1]] * 5


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("answer", [refused(429), refused(503), refused(400), refused(404), FailureKind.TIMEOUT])
def test_a_peer_that_refuses_a_header_is_announced_the_next(node: Node, grow: Grow, answer: Any) -> None:
    remotes = make_peers(node, 3, settle=2, scripts={HEADER: lambda _: answer, BLOCK: lambda _: answer})
    for block in grow(4):
        node.take(block)
        node.run(0.5)
    assert all(node.knows(remote) for remote in remotes)
    assert [announced(remote) for remote in remotes] == [[1, 2, 3, 4]] * 3
    assert [heights(remote) for remote in remotes] == [[]] * 3


@pytest.mark.usefixtures("all_large")
def test_two_larger_blocks_are_sent_at_a_time(node: Node, grow: Grow) -> None:
    remotes = make_peers(node, 8, settle=2)
    waiting: list[Deferred[Any]] = []
    most = 0

    def script(called: Called) -> Any:
        reply: Deferred[Any] = Deferred()
        waiting.append(reply)
        node.clock.callLater(0.5, reply.callback, ok(hash="00" * 32, state="connected"))
        reply.addBoth(lambda answer: (waiting.remove(reply), answer)[1])
        nonlocal most
        most = max(most, len(waiting))
        return reply

    for remote in remotes:
        remote.scripts = {BLOCK: script}
    node.take(*grow(1))
    node.run(10)
    assert most == relay.UPLOADS == 2
    assert [heights(remote) for remote in remotes] == [[1]] * 8


@pytest.mark.usefixtures("all_large")
def test_a_newer_block_takes_the_place_of_one_that_waits_to_be_sent(node: Node, grow: Grow) -> None:
    remotes = make_peers(node, 6, settle=2)
    for remote in remotes:
        node.transport.latency[remote.endpoint] = 0.2
    node.take(*grow(1))
    node.run(0.5)
    node.take(*grow(2)[1:])
    node.run(20)
    assert sum(heights(remote).count(1) for remote in remotes) == relay.UPLOADS
    assert all(heights(remote)[-1:] == [2] for remote in remotes)


@pytest.mark.usefixtures("all_large")
def test_a_larger_block_that_a_peer_shows_while_it_waits_is_not_sent(node: Node, grow: Grow) -> None:
    remotes = make_peers(node, 3, settle=2)
    for remote in remotes:
        node.transport.latency[remote.endpoint] = 0.5
    (block,) = grow(1)
    node.take(block)
    for remote in remotes:
        node.peer(remote).mark_known(sha256(block.wire()).digest())
    node.run(5)
    assert [heights(remote) for remote in remotes] == [[]] * 3


@pytest.mark.usefixtures("all_large")
def test_a_larger_block_that_waits_for_a_banned_peer_is_not_sent(node: Node, grow: Grow) -> None:
    take_all_uploads(node, grow)
    other = node.remote(5)
    node.meet(other)
    node.take(*grow(2)[1:])
    node.run(1)
    assert announced(other) == [2]
    node.ban(other)
    calls = len(node.transport.calls_to(other.endpoint))
    node.run(2 * relay.UPLOAD_SECONDS)
    assert len(node.transport.calls_to(other.endpoint)) == calls


@pytest.mark.parametrize("small", [relay.SMALL_BLOCK, 0])
def test_a_block_is_not_sent_to_a_peer_that_was_dropped_after_its_header(
    make_node: MakeNode, grow: Grow, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(relay, "SMALL_BLOCK", small)
    node = make_node(outbound=1)

    def is_dropped(called: Called) -> Any:
        peer = node.peers.get(called.endpoint)
        assert peer is not None
        node.peers.drop(peer)
        return ok(hash="00" * 32, state="wanted")

    callers = [node.remote(number, scripts={HEADER: is_dropped}) for number in range(relay.OTHERS + 1)]
    node.meet(node.remote(99))
    for start in range(0, len(callers), 3):
        node.meet(*callers[start : start + 3], outbound=False)
    node.take(*grow(1))
    node.run(1)
    told = [remote for remote in callers if remote.got_at(HEADER)]
    assert len(told) == (1 if small else relay.OTHERS + 1)
    assert [heights(remote) for remote in told] == [[]] * len(told)


@pytest.mark.usefixtures("all_large")
def test_a_node_that_others_cannot_call_names_no_place_to_fetch_from(make_node: MakeNode, grow: Grow) -> None:
    node = make_node(endpoint="")
    remotes = make_peers(node, 3, settle=2)
    node.take(*grow(1))
    node.run(1)
    assert [remote.got_at(HEADER)[0]["endpoint"] for remote in remotes] == [""] * 3
    assert [heights(remote) for remote in remotes] == [[1]] * 3


def test_questions_wait_for_neither(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    """Else a peer that is slow would seem to be dead."""
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: silent, BLOCKS: silent}
    submit(node, *[transfer(maker, amount=number) for number in range(1, 11)])
    for block in grow(5, name="other"):
        asked = node.peers.client.blocks_by_hash(remote.endpoint, [block.header])
        node.begin(asked).addErrback(lambda _: None)
    node.run(0.5)
    answered = node.begin(node.peers.client.status(remote.endpoint))
    node.run(3 * LATENCY)
    assert result_of(answered).height == 0


def test_the_queue_of_a_peer_is_bounded(node: Node, maker: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped: a peer that is that slow gets them from others, or asks for what it missed."""
    assert relay.QUEUE == 2_048
    monkeypatch.setattr(relay, "QUEUE", 4)
    (remote,) = make_peers(node, 1, settle=2)
    node.transport.latency[remote.endpoint] = 2.0
    sent = [transfer(maker, amount=number) for number in range(1, 13)]
    submit(node, *sent)
    node.run(20)
    assert txids(node, remote) == [each.txid for each in (*sent[: relay.IN_FLIGHT], *sent[-relay.QUEUE :])]


# Not back to where it came from


def test_a_transfer_is_not_sent_back_to_its_sender(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    sender, other = make_peers(node, 2, settle=2)
    sent, (block,) = transfer(maker), grow(1)
    assert node.post(TRANSACTION, b'{"transaction":' + sent.wire + b"}", sender.host).status == 200
    assert node.post(BLOCK, b'{"block":' + block.wire() + b"}", sender.host).status == 200
    node.run(1)
    assert sender.got_at(TRANSACTION) == sender.got_at(BLOCK) == []
    assert txids(node, other) == [sent.txid]
    assert heights(other) == [1]


def test_a_block_from_an_unknown_sender_goes_to_every_peer(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    remotes = make_peers(node, 2, settle=2)
    assert node.post(TRANSACTION, b'{"transaction":' + transfer(maker).wire + b"}", "198.51.100.7").status == 200
    assert node.post(BLOCK, b'{"block":' + grow(1)[0].wire() + b"}", "198.51.100.7").status == 200
    node.run(1)
    assert [len(remote.got) for remote in remotes] == [3, 3], "a hello, a transfer and a block"


def test_peers_that_share_an_address_are_all_served(make_node: MakeNode, grow: Grow) -> None:
    node = make_node(diverse=False)
    remotes = [node.remote(endpoint=f"http://127.0.0.1:{port}") for port in (8001, 8002)]
    node.meet(*remotes)
    assert node.post(BLOCK, b'{"block":' + grow(1)[0].wire() + b"}", "127.0.0.1").status == 200
    node.run(1)
    assert [heights(remote) for remote in remotes] == [[1], [1]]


@pytest.mark.parametrize("status", [429, 503])
def test_a_peer_that_has_had_enough_for_now_is_offered_the_rest_later(
    node: Node, maker: ChainBuilder, status: int
) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(status)}
    sent = [transfer(maker, amount=number) for number in range(1, 7)]
    submit(node, *sent[:1])
    node.run(1)
    submit(node, *sent[1:5])
    node.run(1)
    assert set(txids(node, remote)) == {sent[0].txid}
    remote.scripts = {}
    remote.got.clear()
    submit(node, sent[5])
    node.run(1)
    assert txids(node, remote) == [each.txid for each in sent]


def test_a_peer_that_has_had_enough_is_tried_with_one(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(429)}
    sent = [transfer(maker, amount=number) for number in range(1, 11)]
    submit(node, *sent[:9])
    node.run(1)
    before = len(remote.got_at(TRANSACTION))
    assert before <= relay.IN_FLIGHT
    submit(node, sent[9])
    node.run(1)
    assert len(remote.got_at(TRANSACTION)) == before + 1
    assert txids(node, remote)[-1] == sent[0].txid, "in the order in which they came"


def test_a_transfer_that_is_on_its_way_is_not_sent_beside(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    submit(node, transfer(maker))
    (entry,) = node.node_context.transaction_pool.mempool.entries()
    for _ in range(2):
        node.network.relay.pool_changed([entry], {})
    node.run(1)
    assert txids(node, remote) == [entry.transfer.txid]


def test_untaken_transfers_give_way_in_a_full_queue(
    node: Node, maker: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the oldest."""
    monkeypatch.setattr(relay, "QUEUE", 4)
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(429)}
    sent = [transfer(maker, amount=number) for number in range(1, relay.QUEUE + relay.IN_FLIGHT + 2)]
    submit(node, *sent[:-1])
    node.run(1)
    remote.scripts = {}
    remote.got.clear()
    submit(node, sent[-1])
    node.run(20)
    assert txids(node, remote) == [each.txid for each in sent[-relay.QUEUE :]]


def test_a_refused_transfer_does_not_stop_the_others(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(400)}
    submit(node, *[transfer(maker, amount=number) for number in range(1, 6)])
    node.run(1)
    assert len(remote.got_at(TRANSACTION)) == 5
    assert node.knows(remote)


def test_nothing_more_is_sent_to_a_peer_that_is_gone(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    submit(node, *[transfer(maker, amount=number) for number in range(1, 11)])
    node.run(0.015)
    node.peers.drop(node.peer(remote))
    node.run(0.5)
    assert len(remote.got_at(TRANSACTION)) == relay.IN_FLIGHT


def test_with_nobody_to_tell_nothing_happens(node: Node, grow: Grow, maker: ChainBuilder) -> None:
    submit(node, transfer(maker))
    node.take(*grow(3))
    node.run(1)
    assert node.transport.calls == []


@pytest.mark.parametrize("answer", [FailureKind.UNREACHABLE, refused(429), refused(400), ok(state="nonsense")])
@pytest.mark.parametrize("taken", ["accepted", "known"])
def test_a_transfer_that_no_peer_has_taken_is_offered_to_each_new_peer(
    node: Node, maker: ChainBuilder, answer: Any, taken: str
) -> None:
    """A wallet's node may be the only one that has a transfer; nobody would ever put it into a block."""
    alone = [transfer(maker, amount=amount) for amount in (5, 6)]
    submit(node, *alone)
    first = node.remote(1, scripts={TRANSACTION: lambda _: answer})
    node.meet(first)
    node.run(5)
    second = node.remote(2, scripts={TRANSACTION: lambda _: ok(txid="00" * 32, state=taken)})
    node.meet(second)
    node.run(5)
    assert txids(node, second) == [each.txid for each in alone], "the first has not taken them"
    third = node.remote(3)
    node.meet(third)
    node.run(5)
    assert txids(node, third) == [], "now others know them, and tell them"


@pytest.mark.parametrize(
    "answer", [FailureKind.UNREACHABLE, FailureKind.TIMEOUT, refused(429), refused(503), refused(400), refused(500)]
)
def test_what_no_peer_has_taken_is_offered_again_within_a_minute_without_another_transfer(
    node: Node, maker: ChainBuilder, answer: Any
) -> None:
    """The line was cut for some seconds, or the peer refused for a reason of the moment."""
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: answer}
    sent = [transfer(maker, amount=number) for number in range(1, 4)]
    submit(node, *sent)
    node.run(8)
    remote.scripts = {}
    remote.got.clear()
    assert node.until(lambda: txids(node, remote) == [each.txid for each in sent], within=46)
    remote.got.clear()
    node.run(130)
    assert txids(node, remote) == [], "the peer has it now"


def test_a_peer_whose_line_was_cut_gets_the_transfer_though_another_one_has_it(node: Node, maker: ChainBuilder) -> None:
    cut, other = make_peers(node, 2, settle=2)
    cut.scripts = {TRANSACTION: lambda _: FailureKind.UNREACHABLE}
    sent = transfer(maker)
    submit(node, sent)
    node.run(8)
    assert txids(node, other) == [sent.txid]
    cut.scripts = {}
    cut.got.clear()
    assert node.until(lambda: txids(node, cut) == [sent.txid], within=46)


def test_what_every_peer_refuses_is_offered_to_each_once_in_45_seconds(node: Node, maker: ChainBuilder) -> None:
    remotes = make_peers(node, 3, settle=2)
    for remote in remotes:
        remote.scripts = {TRANSACTION: lambda _: refused(400)}
    submit(node, transfer(maker))
    node.run(301)
    assert all(len(remote.got_at(TRANSACTION)) == 7 for remote in remotes)


def test_what_has_left_the_mempool_or_was_shown_by_a_peer_is_not_offered_again(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: FailureKind.UNREACHABLE}
    dropped, shown = transfer(maker), transfer(maker, "bob")
    submit(node, dropped, shown)
    node.run(1)
    node.node_context.transaction_pool.drop([dropped.txid])
    node.peer(remote).mark_known(shown.txid)
    remote.scripts = {}
    remote.got.clear()
    node.run(130)
    assert txids(node, remote) == []


def test_more_than_a_queue_takes_have_their_turn(
    node: Node, maker: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "QUEUE", 2)
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(400)}
    sent = [transfer(maker, amount=number) for number in range(1, 7)]
    submit(node, *sent)
    node.run(1)
    remote.got.clear()
    assert node.until(lambda: set(txids(node, remote)) == {each.txid for each in sent}, within=3 * 46)


def test_what_was_in_the_mempool_at_the_start_is_offered_to_the_first_peer(node: Node, maker: ChainBuilder) -> None:
    (remote,) = make_peers(node, 1, settle=2)
    remote.scripts = {TRANSACTION: lambda _: refused(400)}
    sent = transfer(maker)
    submit(node, sent)
    node.run(1)
    remote.got.clear()
    restarted = relay.Relay(node.peers, node.node_context.transaction_pool)
    restarted.peer_added(node.peer(remote))
    node.run(1)
    assert txids(node, remote) == [sent.txid]
    restarted.stop()
