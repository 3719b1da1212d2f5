"""Claims, their proof by headers, and which chain is followed: no claim holds a node, and no honest peer pays."""

from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import apsw
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from svcd.chain import work as work_module
from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.forkchoice import tie_winner
from svcd.chain.transition import ChainPoint
from svcd.node.status import STILL_SECONDS
from svcd.p2p import chain_sync, headers
from svcd.p2p.chain_sync import MAX_CLAIMS
from svcd.p2p.client import MAX_HEADERS, MAX_LOCATOR
from svcd.p2p.headers import MAX_SEARCHES, closer_heights
from svcd.store.chain_store import locator_heights
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import Node
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.following import BLOCKS, HEADERS, asked_for, boaster, body, followed, is_clean, later, meet, questions
from tests.p2p.memory_transport import LATENCY, Called
from tests.p2p.remote_node import RemoteNode, blocks_reply, headers_reply, refused, silent
from tests.support import has_result, result_of

# One peer


@pytest.mark.parametrize("pays", [0, 1])
@pytest.mark.parametrize(("ours", "theirs"), [(0, 1), (0, 16), (0, 17), (0, 140), (10, 100), (99, 100)])
def test_a_longer_chain_is_followed(node: Node, grow: Grow, ours: int, theirs: int, pays: int) -> None:
    node.take(*grow(ours, pays=pays))
    remote = node.remote(blocks=grow(theirs, pays=pays))
    meet(node, remote)
    assert followed(node, grow(theirs, pays=pays), within=3)
    node.run(0.1)
    assert not node.network.sync.running
    assert is_clean(node, remote)


@pytest.mark.parametrize("peers", [1, 8])
def test_the_first_block_is_asked_for_with_the_first_beat(node: Node, grow: Grow, peers: int) -> None:
    """A hello, the status and the headers come before it, and no pause: each is asked for when the last has come."""
    remotes = [node.remote(number, blocks=grow(160, pays=1)) for number in range(peers)]
    node.hint(*remotes)
    began = node.clock.seconds()
    node.network.tick()
    assert node.until(lambda: node.transport.calls[-1].path == BLOCKS)
    assert node.transport.calls[-1].at - began <= 8 * LATENCY + 0.01


def test_a_chain_of_less_work_is_not_asked_for(node: Node, grow: Grow) -> None:
    node.take(*grow(30))
    remote = node.remote(blocks=grow(29, name="t"))
    meet(node, remote)
    node.run(30)
    assert questions(node, remote) == []


def test_nothing_is_followed_without_a_claim(node: Node) -> None:
    node.network.sync.check_claims()
    assert not node.network.sync.running
    remote = node.remote(5)
    meet(node, remote)
    assert not node.network.sync.running
    assert questions(node, remote) == []


@pytest.mark.parametrize("name", ["t", "u", "v", "w"])
def test_the_rule_for_ties_chooses_between_chains_of_the_same_work(node: Node, grow: Grow, name: str) -> None:
    """Two halves of a network must agree without a further block, and a chain that loses is asked for once."""
    ours, theirs = grow(20, on=grow(10), name="o", pays=1), grow(20, on=grow(10), name=name, pays=1)
    node.take(*ours)
    remote = node.remote(blocks=theirs)
    meet(node, remote)
    winner = tie_winner(ours[-1].header.hash, theirs[-1].header.hash)
    assert node.until(lambda: node.tip.hash == winner and not node.network.sync.running, within=3)
    node.run(60)
    assert len(questions(node, remote)) == 1
    assert len(asked_for(node, remote)) == (winner == theirs[-1].header.hash)
    assert is_clean(node, remote)


def test_the_progress_of_a_synchronisation_is_reported(node: Node, grow: Grow) -> None:
    chain = grow(160, pays=8)
    remote = node.remote(blocks=chain)
    node.transport.latency[remote.endpoint] = 0.4
    meet(node, remote)
    assert node.until(lambda: 40 <= node.tip.height < 160, within=20)
    progress: Any = node.network.record()["catchingUp"]
    assert progress["target"] == "160"
    assert progress["height"] == str(node.tip.height)
    assert progress["blocksPerSecond"] > 0
    assert progress["slowestStage"] == "fetch"
    assert progress["secondsLeft"] > 0
    assert progress["peersUsed"] == 1
    assert followed(node, chain)
    node.run(0.1)
    assert node.network.record()["catchingUp"] is None


def test_the_target_is_raised_as_headers_come(node: Node, grow: Grow) -> None:
    """The first headers prove the chain, and no other peer claims as many blocks."""
    remote, shorter = node.remote(1, blocks=grow(400, pays=1)), node.remote(2, blocks=grow(20, pays=1))
    node.transport.latency[remote.endpoint] = 0.4
    meet(node, remote, shorter)
    assert node.until(lambda: 128 < node.tip.height < 400, within=20)
    progress: Any = node.network.record()["catchingUp"]
    assert progress["target"] == "400"
    assert progress["secondsLeft"] > 0


# The last common block


@pytest.mark.parametrize(
    ("ours", "shared", "theirs"),
    [(0, 0, 5), (5, 5, 20), (5, 0, 7), (20, 19, 21), (20, 12, 40), (40, 12, 45), (60, 1, 62), (400, 150, 410)],
)
def test_the_last_common_block_is_found_in_two_questions(
    node: Node, grow: Grow, ours: int, shared: int, theirs: int
) -> None:
    trunk = grow(shared)
    node.take(*grow(ours - shared, on=trunk, name="o"))
    remote = node.remote(blocks=grow(theirs - shared, on=trunk, name="t"))
    meet(node, remote)
    assert followed(node, remote.blocks)
    assert len(questions(node, remote)) <= 2 if ours - shared < 128 else 4
    assert is_clean(node, remote)


@given(low=st.integers(0, 500), span=st.integers(1, 10**6))
def test_no_locator_is_too_long(low: int, span: int) -> None:
    """A peer refuses longer ones, and would be doubted for that."""
    for heights, last in ((closer_heights(low, low + span), low), (locator_heights(low + span), 0)):
        assert len(heights) <= MAX_LOCATOR
        assert (heights[0], heights[-1]) == (low + span, last)
        assert heights == sorted(heights, reverse=True)


def test_a_branch_that_is_stored_in_part_is_taken_up_where_it_ends(node: Node, grow: Grow) -> None:
    """The node was stopped in the middle of a long reorganisation."""
    node.take(*grow(640, name="o"))
    theirs = grow(660, name="t")
    node.take(*theirs[:600])
    remote = node.remote(blocks=theirs)
    meet(node, remote)
    assert followed(node, theirs, within=30)
    assert is_clean(node, remote)


def test_a_chain_with_more_headers_than_the_window_takes(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its proof reaches to its end; the headers that found no room are fetched again."""
    monkeypatch.setattr(headers, "WINDOW_HEADERS", 200)
    monkeypatch.setattr(headers, "MAX_HEADERS", 64)
    monkeypatch.setattr(headers, "PROOF_HEADERS", 100)
    node.take(*grow(640, name="o"))
    theirs = grow(660, name="t", pays=1)
    remote = node.remote(blocks=theirs)
    meet(node, remote)
    assert followed(node, theirs, within=30)
    asked = [name for names in asked_for(node, remote) for name in names]
    assert len(asked) == len(set(asked)) == 660
    assert is_clean(node, remote)


# Claims that are not made good


def first_wanted(called: Called, blocks: list[Block]) -> int:
    """The height of the first header that an honest peer with these blocks answers with."""
    heights = {block.header.hash.hex(): block.header.height for block in blocks}
    return next((heights[name] for name in body(called)["locator"] if name in heights), 0) + 1


def one_at_a_time(called: Called, blocks: list[Block]) -> Any:
    """The next header alone, as if it were the last."""
    first = first_wanted(called, blocks)
    return headers_reply(blocks[first - 1 : first], first, first)


LIES = {
    "silence": silent,
    "nothing": lambda _: headers_reply([], 1, 10**9),
    "no header": lambda _: refused(200),
    "500": lambda _: refused(500),
    "404": lambda _: refused(404),
    "429": lambda _: refused(429),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_boaster_keeps_us_from_nothing(node: Node, grow: Grow, lie: str) -> None:
    """It claims the greatest chain there can be; an honest peer has one that is greater than ours."""
    node.take(*grow(10))
    liar, honest = boaster(node, 1, LIES[lie]), node.remote(2, blocks=grow(60))
    meet(node, liar, honest)
    assert node.network.network_view().behind.startswith("the first peers since the start")
    assert followed(node, grow(60), within=12)
    assert is_clean(node, honest)
    node.run(1)
    assert node.network.network_view().behind == ""
    honest.blocks = grow(70)
    assert followed(node, grow(70), within=30)
    assert is_clean(node, honest)
    assert not node.peers.is_banned(liar.key.node_id)


@pytest.mark.parametrize("status", [404, 405])
def test_a_peer_that_serves_no_headers_is_not_followed(node: Node, grow: Grow, status: int) -> None:
    remote = node.remote(blocks=grow(20), scripts={HEADERS: lambda _: refused(status)})
    meet(node, remote)
    node.run(60)
    assert node.tip.height == 0
    assert asked_for(node, remote) == []
    assert 1 < len(questions(node, remote)) < 10, "its claim is checked again, ever later"
    assert node.knows(remote)
    assert not node.peers.is_banned(remote.key.node_id)
    assert node.status.synced


def test_a_node_that_starts_is_not_synced_before_it_has_the_blocks_of_its_first_peer(node: Node, grow: Grow) -> None:
    """However few they are: to merchants its tip is the network's as soon as it says so."""
    node.begin(node.peers.connect(node.remote(blocks=grow(3, pays=1)).endpoint, outbound=True))
    assert node.until(lambda: node.status.synced, within=5)
    assert node.tip.height == 3


def test_blocks_that_are_withheld_do_not_keep_a_node_that_starts_for_long(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(3, pays=1), scripts={"/p2p/blocks": silent})
    node.begin(node.peers.connect(remote.endpoint, outbound=True))
    assert not node.until(lambda: node.status.synced, within=9)
    assert node.until(lambda: node.status.synced, within=2)


def test_unproven_claims_are_bounded_together(make_node: MakeNode) -> None:
    node = make_node(outbound=32)
    liars = [boaster(node, number, silent) for number in range(20)]
    # A claim of the same tip as another's is not looked into beside it.
    for number, liar in enumerate(liars):
        name = b"%064x" % number
        liar.scripts["/p2p/status"] = lambda called, liar=liar, name=name: evolve(
            liar.honest(called), body=liar.honest(called).body.replace(liar.tip.hash.hex().encode(), name)
        )
    meet(node, *liars)
    for _ in range(60):
        node.run(1)
        waiting = [len(node.network.sync._checks)]
        assert max(waiting) <= MAX_CLAIMS
    assert all(node.transport.calls_to(liar.endpoint, BLOCKS) == [] for liar in liars)


def test_a_claim_is_not_kept_open_by_one_header_at_a_time(node: Node, grow: Grow) -> None:
    """Headers of a cheap branch, made while the node watches."""
    node.take(*grow(100, step=1))
    cheap = grow(300, name="cheap", step=8)

    def one(called: Called) -> Any:
        first = first_wanted(called, cheap)
        return headers_reply(cheap[first - 1 : first], first, 2**53 - 1)

    liar = boaster(node, 1, one)
    meet(node, liar)
    node.run(3)
    assert node.peer(liar).unproven_claims == 1
    assert not node.network.sync.running


def test_our_own_headers_one_height_more_at_a_time_keep_no_claim_open(node: Node, grow: Grow) -> None:
    """Each answer repeats one block of this node's chain, just before the question would fail."""
    node.take(*grow(200))

    def repeat() -> Callable[[Called], Any]:
        heights = count(1)
        return lambda called: headers_reply([grow(200)[next(heights) - 1]] * body(called)["limit"], 1, 10**9)

    liars = [boaster(node, number, repeat()) for number in (1, 2)]
    for liar in liars:
        node.transport.latency[liar.endpoint] = 4.9
    meet(node, *liars)
    node.run(3)
    honest = node.remote(20, blocks=grow(260))
    meet(node, honest)
    assert followed(node, honest.blocks, within=30)
    assert node.until(
        lambda: not any(node.knows(liar) and not node.peer(liar).unproven_claims for liar in liars), within=30
    )


def test_the_search_for_the_last_common_block_ends(node: Node, grow: Grow) -> None:
    """Each answer is part of this node's chain, whatever the locator says."""
    node.take(*grow(140))
    liar = boaster(node, 1, lambda called: headers_reply(grow(140)[: body(called)["limit"]], 1, 10**9))
    meet(node, liar)
    node.run(30)
    assert node.peer(liar).unproven_claims == 1
    assert len(questions(node, liar)) <= MAX_SEARCHES + 1


def test_claims_that_take_long_leave_room_for_others(node: Node, grow: Grow) -> None:
    """Six branches of little work come one header in ten seconds; the claims with the most work behind them stay."""
    node.take(*grow(30))
    slow = []
    for number in range(1, 7):
        branch = grow(40, name=f"slow{number}", step=200)
        slow.append(remote := node.remote(number, blocks=branch, work=2**200))
        remote.scripts[HEADERS] = lambda called, branch=branch: one_at_a_time(called, branch)
        node.transport.latency[remote.endpoint] = 4.9
    meet(node, *slow)
    honest = node.remote(20, blocks=grow(60))
    meet(node, honest)
    assert followed(node, honest.blocks, within=60)
    assert is_clean(node, honest)


def test_a_look_ends_with_its_peer(node: Node, grow: Grow) -> None:
    liars = [node.remote(number, work=2**200, scripts={HEADERS: silent}) for number in (1, 2)]
    meet(node, *liars)
    node.run(3)
    for liar in liars:
        node.peers.drop(node.peer(liar))
    honest = node.remote(20, blocks=grow(20))
    meet(node, honest)
    assert followed(node, honest.blocks, within=4)


@pytest.mark.parametrize("full", [True, False], ids=["full-answers", "one-header-at-a-time"])
def test_a_source_whose_headers_drip_is_left(node: Node, grow: Grow, full: bool) -> None:
    """After a quick start each answer takes nine seconds; blocks are connected as soon as their headers are here."""
    chain = grow(3_000)
    liar = node.remote(1, blocks=chain)

    def drip(called: Called) -> Any:
        first = first_wanted(called, chain)
        if first == 1:
            return headers_reply(chain[:128], 1, len(chain))
        reply: Deferred[Any] = Deferred()
        shown = body(called)["limit"] if full else 1
        node.clock.callLater(9.0, reply.callback, headers_reply(chain[first - 1 :][:shown], first, len(chain)))
        return reply

    liar.scripts[HEADERS] = drip
    meet(node, liar)
    node.run(2)
    honest = node.remote(2, blocks=chain)
    meet(node, honest)
    assert followed(node, chain, within=120)
    assert is_clean(node, honest)


@pytest.mark.parametrize(("pays", "latency"), [(0, 0.05), (1, 0.5)])
def test_a_node_that_catches_up_is_not_synced_before_it_has(node: Node, grow: Grow, pays: int, latency: float) -> None:
    chain = grow(1_500 if not pays else 400, pays=pays)
    remote = node.remote(blocks=chain)
    node.transport.latency[remote.endpoint] = latency
    meet(node, remote)
    while node.tip.height < len(chain):
        assert not node.status.synced, node.tip.height
        node.run(0.05)
    node.run(2.0)
    assert node.status.synced


def test_a_node_that_has_caught_up_is_not_synced_before_it_has_the_blocks_since(node: Node, grow: Grow) -> None:
    """The network makes blocks while a long chain is fetched: a payment in one of them must not expire here."""
    node.meet(node.remote(1))
    node.run(2)
    assert node.status.synced
    remote = node.remote(2, blocks=grow(60, pays=1))
    node.transport.latency[remote.endpoint] = 1.0
    meet(node, remote)
    assert node.until(lambda: node.network.sync.running)
    node.run(1.5)
    assert node.tip.height == 0
    remote.blocks = grow(72, pays=1)
    while node.tip.height < 72:
        assert not node.status.synced, node.tip.height
        node.run(0.05)
    assert node.until(lambda: node.status.synced, within=5)


def test_a_claim_is_no_reason_to_stop_a_node_that_made_many_blocks_itself(node: Node, grow: Grow) -> None:
    """One hello and one status, without a header, stopped a maker of blocks for a minute."""
    node.meet(node.remote(2))
    node.run(2)
    assert node.status.synced
    liar = boaster(node, 1, silent)
    meet(node, liar)
    for number in range(70):
        node.take(*grow(2 * number + 2)[2 * number :])
        node.run(1)
        assert node.status.unready() == ""
        assert node.status.current
    assert node.peer(liar).unproven_claims


@pytest.mark.parametrize("lie", ["silence", "nothing"])
def test_a_claim_stops_no_node_that_has_just_caught_up(node: Node, grow: Grow, lie: str) -> None:
    """After a catching-up only the claims of peers that delivered are waited for."""
    honest = node.remote(2, blocks=grow(40))
    meet(node, honest)
    assert followed(node, honest.blocks)
    liar = boaster(node, 1, LIES[lie])
    meet(node, liar)
    honest.blocks = grow(60)
    assert followed(node, honest.blocks, within=30)
    node.run(0.2)
    for _ in range(30):
        assert node.status.unready() == ""
        node.run(1)


def test_blocks_that_could_not_be_had_hold_the_node_once(node: Node, grow: Grow) -> None:
    """Two endpoints take turns to show headers with work, and deliver no block."""
    base = grow(20)
    node.take(*base)
    node.meet(node.remote(40, blocks=base))
    node.run(15)
    withheld = grow(8, on=base, name="m", pays=1)
    liars = [node.remote(number, blocks=withheld, scripts={BLOCKS: lambda _: blocks_reply([])}) for number in (1, 2)]
    behind = 0
    for turn in range(10):
        here, away = liars[turn % 2], liars[(turn + 1) % 2]
        for _ in range(66):
            if node.knows(away):
                node.peers.drop(node.peer(away))
            if not node.knows(here):
                node.begin(node.peers.connect(here.endpoint, outbound=False))
            node.run(1)
            behind += bool(node.network.network_view().behind)
    assert 0 < behind <= chain_sync.HOLD_SECONDS


@pytest.mark.parametrize("lie", LIES)
def test_one_peer_that_proves_nothing_shows_no_standstill(node: Node, grow: Grow, lie: str) -> None:
    """However long no block comes: expiry of payments and readiness must not depend on its word."""
    node.take(*grow(30))
    node.meet(boaster(node, 1, LIES[lie]))
    node.run(STILL_SECONDS + 60)
    assert node.status.current
    assert node.status.unready() == ""


def test_a_height_with_less_work_is_believed_of_no_peer_alone(node: Node, grow: Grow) -> None:
    """It need not be proven: it is no reason to follow anybody."""
    node.take(*grow(30))
    node.meet(node.remote(1, blocks=grow(30), height=99))
    node.run(STILL_SECONDS + 60)
    assert node.status.unready() == ""
    node.meet(node.remote(2, blocks=grow(30), height=99))
    node.run(10)
    assert "while most peers show height 99 or more" in node.status.unready()


def test_a_chain_that_is_proven_and_not_delivered_shows_a_standstill(node: Node, grow: Grow) -> None:
    node.take(*grow(30))
    node.meet(node.remote(1, blocks=grow(60, pays=1), scripts={BLOCKS: lambda _: blocks_reply([])}))
    node.run(STILL_SECONDS + 60)
    assert "while most peers show height 60 or more" in node.status.standstill()


def test_the_best_known_height_is_not_one_peer_s_word(node: Node, grow: Grow) -> None:
    chain = grow(300, pays=1)
    liar = node.remote(1, blocks=chain, scripts={BLOCKS: silent})
    liar.scripts[HEADERS] = lambda called: headers_reply(chain[:128], 1, 2**53 - 1)
    meet(node, node.remote(2, blocks=grow(30, pays=1)), liar)
    node.run(3)
    assert node.network.network_view().best_height <= 300


def test_a_rival_tip_without_headers_costs_one_question(node: Node, grow: Grow) -> None:
    node.take(*grow(30))
    liar = node.remote(blocks=grow(30, name="t"), scripts={HEADERS: lambda _: headers_reply([], 31, 31)})
    node.meet(node.remote(2, blocks=grow(30)))
    node.run(2)
    meet(node, liar)
    assert node.network.network_view().behind == ""
    node.run(60)
    assert len(questions(node, liar)) == 1
    assert not node.network.sync.running


@pytest.mark.parametrize("rule", [Refusal.WORK, Refusal.BLOCK_SIGNATURE, Refusal.CONSENSUS_ROOT, Refusal.BASE_TARGET])
def test_a_header_that_breaks_a_rule_costs_a_day_and_nobody_downloads_a_block(
    node: Node, grow: Grow, builder: ChainBuilder, rule: Refusal
) -> None:
    node.take(*grow(45))
    bad = builder.block(grow(39)[-1], break_=rule, producer="criminal")
    criminal = node.remote(1, blocks=[*grow(39), bad, *grow(12, on=[bad], name="after")[1:]])
    criminal.work = 10**6
    honest = node.remote(2, blocks=grow(30))
    meet(node, criminal, honest)
    node.run(5)
    assert node.peers.is_banned(criminal.key.node_id)
    assert not node.knows(criminal)
    assert asked_for(node, criminal) == []
    assert is_clean(node, honest)
    assert node.tip.height == 45


def test_the_part_of_a_chain_before_a_bad_header_is_followed_first(
    node: Node, grow: Grow, builder: ChainBuilder
) -> None:
    bad = builder.block(grow(39)[-1], break_=Refusal.WORK, producer="criminal")
    criminal = node.remote(1, blocks=[*grow(39), bad], work=10**6)
    meet(node, criminal)
    assert followed(node, grow(39), within=3)
    node.run(1)
    assert node.peers.is_banned(criminal.key.node_id)


def test_an_early_header_is_nobody_s_crime(node: Node, grow: Grow, builder: ChainBuilder) -> None:
    """A chain that runs ahead of our clock: it may be our clock."""
    early = builder.block(grow(20)[-1], slot=LATE + 1_000, producer="early")
    remote = node.remote(blocks=[*grow(20), early])
    meet(node, remote)
    node.run(5)
    assert node.tip.height == 20
    assert is_clean(node, remote)
    assert node.peers.bans.listed(node.local.now()) == []


def test_most_peers_send_invalid_chains(node: Node, grow: Grow, builder: ChainBuilder) -> None:
    """Then it may be we who are wrong: an alarm, no more bans, no blocks of our own, and no question without end."""
    bad = builder.block(grow(19)[-1], break_=Refusal.STATE_ROOT, producer="criminal")
    chain = [*grow(19), bad, *grow(12, on=[bad], name="after")[1:]]
    remotes = [node.remote(number, blocks=chain, work=10**6 - number) for number in range(6)]
    meet(node, *remotes)
    node.run(200)
    banned = [remote for remote in remotes if node.peers.is_banned(remote.key.node_id)]
    assert len(banned) <= 3
    assert node.peers.alarm
    assert node.tip.height == 19
    assert max(len(questions(node, remote)) for remote in remotes) < 20


# Chains that change


def changing(remote: RemoteNode, at: int, chain: list[Block]) -> Any:
    """The remote's chain becomes another one at a question for headers."""
    seen = Counter[str]()

    def script(called: Called) -> Any:
        seen["headers"] += 1
        if seen["headers"] == at:
            remote.blocks = chain
        return remote.honest(called)

    return script


def test_a_peer_that_reorganises_to_fewer_blocks_with_more_work(node: Node, grow: Grow, builder: ChainBuilder) -> None:
    node.take(*grow(8))
    old, new = grow(300, step=8), grow(145, name="quick", step=1)
    assert builder.point_after(new[-1]).work > builder.point_after(old[-1]).work
    remote = node.remote(blocks=old)
    remote.scripts = {HEADERS: changing(remote, 2, new)}
    meet(node, remote)
    assert followed(node, new, within=12)
    assert is_clean(node, remote)


def test_a_peer_that_shows_another_chain_at_every_question_is_doubted_in_the_end(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "FIRST_HEADERS", 10)
    monkeypatch.setattr(headers, "PROOF_HEADERS", 10)
    node.take(*grow(80, name="o"))
    chains = [grow(90, name=name) for name in ("x", "y")]
    remote = node.remote(blocks=chains[0])
    turns = Counter[str]()

    def script(called: Called) -> Any:
        turns["all"] += 1
        remote.blocks = chains[turns["all"] % 2]
        return remote.honest(called)

    remote.scripts = {HEADERS: script}
    meet(node, remote)
    node.run(10)
    assert node.peer(remote).unproven_claims == 1
    assert not node.peers.is_banned(remote.key.node_id)
    assert turns["all"] <= 2 * headers.MAX_RESTARTS + 2


def test_a_peer_that_grows_while_it_is_followed(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(100, pays=1))
    node.transport.latency[remote.endpoint] = 0.2
    meet(node, remote)
    node.run(0.5)
    remote.blocks = grow(140, pays=1)
    assert followed(node, remote.blocks, within=15)
    assert is_clean(node, remote)


def test_blocks_that_come_by_relay_meanwhile_end_the_download(node: Node, grow: Grow) -> None:
    chain = grow(100, pays=1)
    remote = node.remote(blocks=chain, scripts={BLOCKS: silent})
    meet(node, remote)
    node.run(0.5)
    assert node.network.sync.running
    node.node_context.chain_manager.submit_blocks([block.wire() for block in chain])
    node.run(1.1)
    assert node.tip.height == 100
    assert not node.network.sync.running
    assert is_clean(node, remote)


def test_our_own_tip_moves_while_a_chain_is_proven(node: Node, grow: Grow) -> None:
    node.take(*grow(20))
    remote = node.remote(blocks=grow(9, on=grow(15), name="t"))
    node.transport.latency[remote.endpoint] = 1.0
    meet(node, remote)
    node.run(0.5)
    node.take(*grow(30)[20:])
    node.run(5)
    assert node.tip.hash == grow(30)[-1].header.hash
    assert not node.network.sync.running
    assert is_clean(node, remote)


def test_a_chain_that_is_committed_while_its_claim_is_looked_into(node: Node, grow: Grow) -> None:
    """The database shows the block a moment before the chain manager tells of it."""
    remote = node.remote(blocks=grow(20))
    meet(node, remote)
    tip = node.tip
    node.take(*grow(20))
    node.node_context.chain_manager.tip = tip
    node.run(1)
    assert is_clean(node, remote)


# Rests


@pytest.mark.parametrize(
    ("status", "said", "waited", "at"),
    [(429, 0.0, 1.0, 1), (429, 5.0, 5.0, 2), (503, 0.0, 1.0, 2), (503, 5.0, 5.0, 1), (429, 1e6, 30.0, 2)],
)
def test_a_peer_that_has_had_enough_is_asked_again_later(
    node: Node,
    grow: Grow,
    status: int,
    said: float,
    waited: float,
    at: int,
) -> None:
    """For its first headers, and for those of a chain that is followed: it is neither left nor doubted."""
    remote, asked = node.remote(blocks=grow(300)), []

    def script(called: Called) -> Any:
        asked.append(called.at)
        return evolve(refused(status), retry_after=said) if len(asked) == at else remote.honest(called)

    remote.scripts = {HEADERS: script}
    meet(node, remote)
    assert followed(node, grow(300), within=40)
    pauses = [after - before for before, after in pairwise(asked) if after - before > 0.5]
    assert len(pauses) == 1
    assert waited <= pauses[0] <= waited + 1.1
    assert is_clean(node, remote)


def test_a_lost_answer_is_asked_for_again(node: Node, grow: Grow) -> None:
    remote, turns = node.remote(blocks=grow(300)), Counter[str]()

    def script(called: Called) -> Any:
        turns["all"] += 1
        return None if turns["all"] == 2 else remote.honest(called)

    remote.scripts = {HEADERS: script}
    meet(node, remote)
    assert followed(node, grow(300), within=20)
    assert is_clean(node, remote)


def test_a_source_whose_headers_do_not_come_is_left_for_another(node: Node, grow: Grow) -> None:
    """It proves its claim, and then has the blocks wait for further headers as long as it can."""
    chain = grow(600)
    slow, honest = node.remote(1, blocks=chain), node.remote(2, blocks=chain)
    asked = Counter[str]()

    def script(called: Called) -> Any:
        asked["all"] += 1
        return slow.honest(called) if asked["all"] % 3 == 1 else silent(called)

    slow.scripts = {HEADERS: script}
    meet(node, slow)
    node.run(1)
    meet(node, honest)
    assert followed(node, chain, within=chain_sync.FEED_SECONDS + 10)
    assert is_clean(node, honest)


def test_a_source_that_leaves_does_not_end_the_download(node: Node, grow: Grow) -> None:
    chain = grow(600, pays=1)
    first, other = node.remote(1, blocks=chain), node.remote(2, blocks=chain)
    first.work = first.tip.work + 1
    meet(node, first)
    node.run(0.05)
    node.peers.drop(node.peer(first))
    first.scripts[""] = silent
    meet(node, other)
    assert followed(node, chain, within=40)
    assert is_clean(node, other)


def test_headers_are_asked_for_in_smaller_answers_where_they_come_slowly(node: Node, grow: Grow) -> None:
    chain = grow(2_000)
    remote = node.remote(blocks=chain)

    def script(called: Called) -> Any:
        return later(node, body(called)["limit"] / 64, remote)(called)

    remote.scripts = {HEADERS: script}
    meet(node, remote)
    assert followed(node, chain, within=60)
    limits = [body(called)["limit"] for called in questions(node, remote)]
    assert limits[1:4] == [500, 250, 250] or min(limits[1:]) <= 250
    assert max(limits) <= MAX_HEADERS
    assert is_clean(node, remote)


# Chains whose blocks cannot be had


def test_a_miner_that_withholds_its_newest_block_stops_nobody(node: Node, grow: Grow) -> None:
    """Its header has work, and holds nothing up: the node makes blocks, and follows the others' longer chain."""
    node.take(*grow(30))
    honest = node.remote(2, blocks=grow(30))
    meet(node, honest)
    node.run(2)
    withheld = grow(3, on=grow(30), name="m", pays=1)
    miner = node.remote(1, blocks=withheld, scripts={BLOCKS: lambda _: blocks_reply([])})
    meet(node, miner)
    for _ in range(30):
        node.run(1)
        assert node.network.network_view().behind == ""
    assert node.network.sync.running
    honest.blocks = grow(35)
    assert followed(node, grow(35), within=12)
    assert is_clean(node, honest)


def test_a_long_chain_without_blocks_is_left_and_its_rest_doubles(node: Node, grow: Grow) -> None:
    chain = grow(60, pays=1)
    miner = node.remote(1, blocks=chain, scripts={BLOCKS: lambda _: blocks_reply([])})
    meet(node, miner)
    node.run(5)
    assert "proven by its headers up to height 60" in node.network.network_view().behind
    node.run(58)
    assert not node.network.sync.running
    assert node.network.network_view().behind == ""
    assert not node.peers.is_banned(miner.key.node_id)
    assert node.until(lambda: node.network.sync.running, within=65)
    node.run(65)
    assert not node.network.sync.running
    assert not node.until(lambda: node.network.sync.running, within=100)


def test_a_peer_that_comes_later_with_the_blocks_is_followed_at_once(node: Node, grow: Grow) -> None:
    chain = grow(60, pays=1)
    meet(node, node.remote(1, blocks=chain, scripts={BLOCKS: lambda _: blocks_reply([])}))
    node.run(65)
    assert not node.network.sync.running
    honest = node.remote(2, blocks=chain)
    meet(node, honest)
    assert followed(node, chain, within=5)
    assert is_clean(node, honest)


def test_a_greater_chain_replaces_the_one_that_is_followed(node: Node, grow: Grow) -> None:
    """Blocks are withheld of the first; it is not held against it that the second was preferred."""
    withheld = grow(60, name="m", pays=1)
    miner = node.remote(1, blocks=withheld, scripts={BLOCKS: lambda _: blocks_reply([])})
    meet(node, miner)
    node.run(1)
    assert node.network.sync.running
    honest = node.remote(2, blocks=grow(80, pays=1))
    meet(node, honest)
    assert followed(node, honest.blocks, within=15)
    assert is_clean(node, honest, miner)


def test_a_chain_that_grows_is_not_fetched_anew(node: Node, grow: Grow) -> None:
    """A second peer claims more than the chain that is followed has, because it is a block ahead on the same one."""
    chain = grow(400, pays=4)
    slow, ahead = node.remote(1, blocks=chain[:390]), node.remote(2, blocks=chain)
    for remote in (slow, ahead):
        node.transport.latency[remote.endpoint] = 0.5
    meet(node, slow)
    node.run(3)
    meet(node, ahead)
    assert followed(node, chain, within=60)
    asked = Counter(name for remote in (slow, ahead) for names in asked_for(node, remote) for name in names)
    assert set(asked.values()) == {1}
    assert is_clean(node, slow, ahead)


@pytest.mark.parametrize("rule", [Refusal.STATE_ROOT, Refusal.MULTIPLIER])
def test_a_chain_whose_state_is_invalid_is_remembered(
    node: Node, grow: Grow, builder: ChainBuilder, rule: Refusal
) -> None:
    """Its headers are good; once a block has been executed, its work counts no more, whoever shows it."""
    bad = builder.block(grow(39)[-1], break_=rule, producer="criminal")
    chain = [*grow(39), bad, *grow(12, on=[bad], name="after")[1:]]
    criminal, honest = node.remote(1, blocks=chain, work=10**6), node.remote(2, blocks=grow(36))
    meet(node, criminal, honest)
    node.run(5)
    assert node.peers.is_banned(criminal.key.node_id)
    assert is_clean(node, honest)
    assert node.tip.height in (36, 39)
    assert node.network.network_view().behind == ""
    another = node.remote(3, blocks=chain, work=10**6)
    meet(node, another)
    node.run(5)
    assert node.peers.alarm, "a second ban within the hour would leave too few"
    assert node.peer(another).unproven_claims == 1
    assert asked_for(node, another) == []
    honest.blocks = grow(60)
    assert followed(node, grow(60), within=10)


@pytest.mark.parametrize("path", [HEADERS, BLOCKS])
def test_a_peer_that_is_overloaded_is_asked_nothing_until_its_retry_after(node: Node, grow: Grow, path: str) -> None:
    """Its bucket is empty for every request, whichever found that out."""
    remote = node.remote(blocks=grow(60, pays=1), scripts={path: lambda _: evolve(refused(429), retry_after=20.0)})
    meet(node, remote)
    assert node.until(lambda: node.transport.calls_to(remote.endpoint, path), within=10)
    node.run(1)
    before = len(node.transport.calls_to(remote.endpoint))
    node.run(18)
    assert len(node.transport.calls_to(remote.endpoint)) == before
    remote.scripts = {}
    assert followed(node, grow(60, pays=1))
    assert is_clean(node, remote)


# Our own troubles


def test_a_full_queue_of_ours_is_nobody_s_fault(node: Node, grow: Grow) -> None:
    remote = node.remote(blocks=grow(60))
    capacity, node.node_context.verifier.capacity = node.node_context.verifier.capacity, 0
    meet(node, remote)
    node.run(20)
    assert node.tip.height == 0
    assert is_clean(node, remote)
    node.node_context.verifier.capacity = capacity
    assert followed(node, grow(60), within=3)


def test_a_look_that_fails_here_is_not_repeated_at_once(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    remote = node.remote(blocks=grow(60))
    tries: list[None] = []

    def fail(_: object) -> None:
        tries.append(None)
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(headers, "locator_heights", fail)
        meet(node, remote)
        node.run(20)
    assert len(tries) == 3
    expected_errors(OSError)
    assert followed(node, grow(60), within=16)
    assert is_clean(node, remote)


def test_a_disk_that_fails_is_nobody_s_fault(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    remote = node.remote(blocks=grow(60))

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(node.node_context.chain.chainstate, "connect", fail)
        meet(node, remote)
        node.run(5)
        assert node.tip.height == 0
    assert is_clean(node, remote)
    assert followed(node, grow(60), within=5)
    expected_errors(OSError)


def fail_reads_while_fetching(node: Node, patch: pytest.MonkeyPatch) -> None:
    """Let the disk fail at blocks that are not here yet, from the moment in which a chain is followed."""
    reader, point = node.node_context.chain_manager.reader, node.node_context.chain_manager.reader.point

    def read(block_hash: bytes) -> ChainPoint | None:
        if node.network.sync.running:
            raise apsw.IOError("disk I/O error")
        return point(block_hash)

    patch.setattr(reader, "point", read)


def fail_writes(node: Node, patch: pytest.MonkeyPatch) -> None:
    def connect(_: object) -> None:
        raise apsw.FullError("database or disk is full")

    patch.setattr(node.node_context.chain.chainstate, "connect", connect)


def fail_reads_of_rival_tips(node: Node, patch: pytest.MonkeyPatch) -> None:
    def read(_: bytes) -> None:
        raise apsw.IOError("disk I/O error")

    patch.setattr(node.node_context.chain_manager.reader, "point", read)


@pytest.mark.parametrize("peers", [1, 8])
@pytest.mark.parametrize("fail", [fail_reads_while_fetching, fail_writes, fail_reads_of_rival_tips])
def test_an_error_of_ours_is_not_repeated_at_once_with_any_peer(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any, peers: int, fail: Any
) -> None:
    ours = fail is fail_reads_of_rival_tips
    node.take(*grow(5, name="rival")[: 5 * ours])
    blocks = grow(5 if ours else 60, pays=1)
    remotes = [node.remote(number, blocks=blocks) for number in range(peers)]
    with monkeypatch.context() as patch:
        fail(node, patch)
        meet(node, *remotes)
        asked = sum(len(node.transport.calls_to(remote.endpoint, HEADERS)) for remote in remotes)
        node.run(14)
        again = sum(len(node.transport.calls_to(remote.endpoint, HEADERS)) for remote in remotes) - asked
    assert len(expected_errors(apsw.Error)) == 2, "at once, and after 5 seconds"
    assert again <= 2
    assert is_clean(node, *remotes)
    remotes[0].blocks = grow(60, pays=1)
    assert followed(node, grow(60, pays=1), within=20)


def test_an_error_of_ours_with_headers_ahead_of_the_blocks(
    node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    """The blocks whose headers are there are fetched, and the rest follows after a pause."""
    chain = grow(150, pays=1)
    remote = node.remote(blocks=chain)
    monkeypatch.setattr(headers, "_next_limit", lambda asked, _, most: 1 / 0 if most == MAX_HEADERS else asked)
    meet(node, remote)
    node.run(4)
    assert 0 < node.tip.height < 150
    assert len(expected_errors(ZeroDivisionError)) == 1
    assert followed(node, chain, within=20)
    assert is_clean(node, remote)


def test_headers_are_worked_on_once(node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2 runs once for each block: for its header, and not again for the block."""
    done: list[bytes] = []
    real = work_module.work_value

    def counted(core: bytes, *rest: Any) -> int:
        done.append(core)
        return real(core, *rest)

    chain = grow(150, pays=1)
    monkeypatch.setattr(work_module, "work_value", counted)
    meet(node, node.remote(blocks=chain))
    assert followed(node, chain)
    assert sorted(done) == sorted(block.header.core_hash for block in chain)


# Stopping


def test_it_stops_when_the_ledger_has_finished(make_node: MakeNode, grow: Grow) -> None:
    """At every step of a look and of a download: nothing is left waiting, and nothing is logged as an error."""
    for steps in range(12):
        checker = Stepped()
        node = make_node(folder=f"node{steps}", checker=checker)
        meet(node, node.remote(blocks=grow(40, pays=1)))
        for _ in range(steps):
            node.run(0.2)
            if len(checker):
                checker.step()
        stopped = node.begin(node.network.sync.stop())
        while len(checker):
            checker.step()
            node.run(0.01)
        assert has_result(stopped), steps
        node.network.sync.check_claims()
        assert not node.network.sync.running


@pytest.mark.parametrize("path", [HEADERS, BLOCKS])
@pytest.mark.parametrize("ours", [0, 10])
def test_it_does_not_wait_for_a_peer_when_it_stops(node: Node, grow: Grow, ours: int, path: str) -> None:
    node.take(*grow(ours, pays=1))
    meet(node, node.remote(blocks=grow(400, pays=1), scripts={path: silent}))
    node.run(0.5)
    assert node.network.sync.running or path == HEADERS
    stopped = node.begin(node.network.sync.stop())
    assert has_result(stopped)
    result_of(stopped)
    beat = [node._beat]
    assert [call for call in node.clock.getDelayedCalls() if call not in beat and call.getTime() > LATE * 10**9] == []


# The law


@settings(max_examples=min(30, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_node_ends_on_the_heaviest_valid_chain_that_an_honest_peer_serves(
    make_node: MakeNode, grow: Grow, data: st.DataObject
) -> None:
    """Whatever peers lie, drop or delay: no honest peer is banned, and none sends a block twice."""
    number = next(_NUMBERS)
    node = make_node(folder=f"law{number}", name=f"law{number}", outbound=16)
    node.take(*grow(data.draw(st.integers(0, 20), label="ours"), pays=1))
    chains = {
        "long": grow(60, pays=1),
        "rival": grow(50, on=grow(10, pays=1), name="rival", pays=1),
        "short": grow(25, pays=1),
    }
    honest = []
    for index, name in enumerate(data.draw(st.lists(st.sampled_from(sorted(chains)), min_size=1, max_size=3))):
        remote = node.remote(10 * number + index, blocks=chains[name])
        node.transport.latency[remote.endpoint] = data.draw(st.sampled_from([0.01, 0.3, 2.0]))
        honest.append(remote)
    liars = []
    for index, lie in enumerate(data.draw(st.lists(st.sampled_from(sorted(_DEEDS)), max_size=3))):
        liar = node.remote(10 * number + 5 + index, blocks=chains[data.draw(st.sampled_from(sorted(chains)))])
        liar.scripts = _DEEDS[lie](liar, grow)
        liar.work = data.draw(st.sampled_from([None, 2**200]))
        liars.append(liar)
    everyone = [*honest, *liars]
    meet(node, *(everyone[index] for index in data.draw(st.permutations(range(len(everyone))))))
    best = max(honest, key=lambda remote: remote.tip.work)
    assert node.until(lambda: node.tip.work >= best.tip.work, within=400), (node.tip.height, best.tip.height)
    assert not any(node.peers.is_banned(remote.key.node_id) for remote in honest)
    for remote in honest:
        has = {block.header.hash.hex() for block in remote.blocks}
        sent = Counter(name for names in asked_for(node, remote) for name in names if name in has)
        # A download that liars bring down begins anew.
        assert max(sent.values(), default=0) <= 1 + len(liars)
    for remote in (*honest, *liars):
        if node.knows(remote):
            node.peers.drop(node.peer(remote))


_NUMBERS = iter(range(1, 10**6))


def _sends_nothing(liar: RemoteNode, _: Grow) -> dict[str, Any]:
    return {BLOCKS: lambda called: blocks_reply([])}


def _sends_others(liar: RemoteNode, grow: Grow) -> dict[str, Any]:
    return {BLOCKS: lambda called: blocks_reply(grow(3, name="other"))}


def _sends_every_tenth(liar: RemoteNode, _: Grow) -> dict[str, Any]:
    def script(called: Called) -> Any:
        names = set(body(called)["hashes"][::10])
        return blocks_reply([block for block in liar.blocks if block.header.hash.hex() in names])

    return {BLOCKS: script}


def _reverses(liar: RemoteNode, _: Grow) -> dict[str, Any]:
    def script(called: Called) -> Any:
        names = set(body(called)["hashes"])
        return blocks_reply([block for block in reversed(liar.blocks) if block.header.hash.hex() in names])

    return {BLOCKS: script}


_DEEDS: dict[str, Callable[[RemoteNode, Grow], dict[str, Any]]] = {
    "no blocks": _sends_nothing,
    "other blocks": _sends_others,
    "every tenth block": _sends_every_tenth,
    "reversed": _reverses,
    "silent about blocks": lambda liar, grow: {BLOCKS: silent},
    "silent about headers": lambda liar, grow: {HEADERS: silent},
    "no such routes": lambda liar, grow: {HEADERS: lambda _: refused(404), BLOCKS: lambda _: refused(404)},
    "errors": lambda liar, grow: {HEADERS: lambda _: refused(500)},
    "no headers": lambda liar, grow: {HEADERS: lambda _: headers_reply([], 1, 10**6)},
    "one header at a time": lambda liar, grow: {HEADERS: lambda called: one_at_a_time(called, liar.blocks)},
    "the first headers again": lambda liar, grow: {HEADERS: lambda _: headers_reply(liar.blocks[:10], 1, 10**6)},
}
