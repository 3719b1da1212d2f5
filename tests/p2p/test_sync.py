"""Catching up: several sources, stalls, liars, chains that change, and that no honest peer pays for another."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.forkchoice import tie_winner
from svcd.p2p import pull, sync
from svcd.p2p.pull import BATCH_BLOCKS, MAX_REQUESTS
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import Node, place
from tests.p2p.strangers import Script, Stranger, blocks_reply, refused, silent
from tests.p2p.town import Called
from tests.support import has_result, result_of

Grow = Callable[..., list[Block]]
MakeNode = Callable[..., Node]
MakeStranger = Callable[..., Stranger]

BLOCKS = "/p2p/blocks"
DAY = 86_400.0


def followed(node: Node, blocks: Sequence[Block], within: float = 10.0) -> bool:
    """Whether the node comes to the end of a chain in so many seconds."""
    return node.until(lambda: node.tip.hash == blocks[-1].header.hash, within=within)


def ranges(node: Node, stranger: Stranger) -> list[tuple[int, int]]:
    """What a stranger was asked for beside single blocks, as first height and count."""
    calls = node.town.calls_to(stranger.endpoint, BLOCKS)
    asked = [(called.query["from"], called.query["limit"]) for called in calls]
    return [(first, limit) for first, limit in asked if limit > 1]


def is_clean(node: Node, *strangers: Stranger) -> bool:
    """Whether peers are neither banned, doubted nor left."""
    return all(
        node.knows(stranger) and not node.peer(stranger).doubts and not node.peers.is_banned(stranger.key.public)
        for stranger in strangers
    )


def meet(node: Node, *strangers: Stranger) -> None:
    """Meet others and hear of all their chains before any of them is followed; how slow they are shows later."""
    latency, node.town.latency = node.town.latency, {}
    node.peers.on_claim = lambda: None
    for stranger in strangers:
        node.begin(node.peers.greet(stranger.endpoint, outbound=True))
    assert node.until(lambda: all(node.knows(each) and node.peer(each).status for each in strangers), within=0.9)
    node.town.latency = latency
    node.peers.on_claim = node.network.synchroniser.consider
    node.network.synchroniser.consider()


def later(node: Node, seconds: float, stranger: Stranger) -> Script:
    """An honest answer that takes its time."""

    def answer(called: Called) -> Any:
        reply: Deferred[Any] = Deferred()
        node.clock.callLater(seconds, reply.callback, stranger.honest(called))
        return reply

    return answer


# One peer


@pytest.mark.parametrize(("ours", "theirs"), [(0, 1), (0, 16), (0, 17), (0, 100), (10, 100), (99, 100)])
def test_a_longer_chain_is_followed(
    node: Node, grow: Grow, make_stranger: MakeStranger, ours: int, theirs: int
) -> None:
    node.take(*grow(ours))
    stranger = make_stranger(blocks=grow(theirs))
    meet(node, stranger)
    assert followed(node, grow(theirs), within=3)
    node.run(0.1)
    assert not node.network.synchroniser.running
    assert is_clean(node, stranger)


def test_blocks_are_asked_for_once_each(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(100))
    meet(node, stranger)
    assert followed(node, grow(100))
    asked = [height for first, limit in ranges(node, stranger) for height in range(first, first + limit)]
    assert sorted(asked) == list(range(1, 101))


def test_a_heavier_fork_is_followed(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(40, on=grow(20), name="o"))
    theirs = grow(45, on=grow(20), name="t")
    meet(node, make_stranger(blocks=theirs))
    assert followed(node, theirs)


def test_a_chain_of_less_work_is_not_asked_for(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(30))
    stranger = make_stranger(blocks=grow(29, name="t"))
    meet(node, stranger)
    node.run(30)
    assert node.town.calls_to(stranger.endpoint, BLOCKS) == []


@pytest.mark.parametrize("name", ["t", "u", "v", "w"])
def test_a_chain_of_the_same_work_is_fetched_once_and_the_rule_for_ties_chooses(
    node: Node, grow: Grow, make_stranger: MakeStranger, name: str
) -> None:
    """Two halves of a network must agree, without waiting for a block that breaks the tie."""
    ours, theirs = grow(20, on=grow(10), name="o"), grow(20, on=grow(10), name=name)
    node.take(*ours)
    stranger = make_stranger(blocks=theirs)
    meet(node, stranger)
    winner = tie_winner(ours[-1].header.hash, theirs[-1].header.hash)
    assert node.until(lambda: node.tip.hash == winner and not node.network.synchroniser.running, within=3)
    node.run(60)
    assert [height for first, limit in ranges(node, stranger) for height in range(first, first + limit)] == list(
        range(11, 31)
    )
    assert is_clean(node, stranger)


def test_whoever_only_claims_to_have_a_rival_chain_is_doubted(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    node.take(*grow(30))
    liar = make_stranger(blocks=grow(30, name="t"), scripts={BLOCKS: lambda _: blocks_reply([])})
    meet(node, liar)
    assert node.peers.neighbourhood().behind == "", "that much nobody has to wait for"
    node.run(10)
    assert node.peer(liar).doubts == 1
    assert not node.network.synchroniser.running


def test_several_blocks_share_a_commit(
    node: Node, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    submit = node.living.ledger.submit_blocks
    monkeypatch.setattr(
        node.living.ledger, "submit_blocks", lambda batch, *rest: (sizes.append(len(batch)), submit(batch, *rest))[1]
    )
    slow = make_stranger(1, blocks=grow(160))
    node.town.latency[slow.endpoint] = 0.5
    meet(node, slow, make_stranger(2, blocks=grow(160)))
    assert followed(node, grow(160))
    assert sum(sizes) == 160
    assert 16 < max(sizes) <= BATCH_BLOCKS


def test_how_far_it_has_come_is_known(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(160))
    node.town.latency[stranger.endpoint] = 0.4
    meet(node, stranger)
    assert node.until(lambda: 64 <= node.tip.height < 160, within=20)
    progress: Any = node.network.record()["catchingUp"]
    assert progress["target"] == "160"
    assert progress["height"] == str(node.tip.height)
    assert progress["blocksPerSecond"] > 0
    assert progress["slowestStage"] == "fetch"
    assert progress["secondsLeft"] > 0
    assert progress["peersUsed"] == 1
    assert followed(node, grow(160))
    node.run(0.1)
    assert node.network.record()["catchingUp"] is None


# Several peers


def test_several_peers_share_the_work(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    strangers = [make_stranger(number, blocks=grow(200)) for number in range(4)]
    for stranger in strangers:
        node.town.latency[stranger.endpoint] = 0.2
    meet(node, *strangers)
    assert followed(node, grow(200))
    shares = [len(ranges(node, stranger)) for stranger in strangers]
    assert sum(shares) == 13
    assert min(shares) >= 2
    assert is_clean(node, *strangers)


def test_two_requests_to_one_peer_at_a_time(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """Whoever claims more than all others is asked for what they do not have, and not for everything at once."""
    short = make_stranger(1, blocks=grow(60))
    tall = make_stranger(2, blocks=grow(200))
    for stranger in (short, tall):
        node.town.latency[stranger.endpoint] = 0.2
    meet(node, short, tall)
    assert followed(node, grow(200))
    assert max(node.town.most_at_once.values()) == MAX_REQUESTS == 2
    assert ranges(node, short)


def test_those_who_have_no_more_than_we_are_not_asked(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """They may have blocks of these heights, but of the chain that is to be left."""
    node.take(*grow(40, name="o"))
    same = make_stranger(1, blocks=grow(40, name="o"))
    ahead = make_stranger(2, blocks=grow(60, name="t"))
    meet(node, same, ahead)
    assert followed(node, grow(60, name="t"))
    assert ranges(node, same) == []


def test_a_slow_peer_gets_less_to_do(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    slow, quick = make_stranger(1, blocks=grow(200)), make_stranger(2, blocks=grow(200))
    node.town.latency[slow.endpoint] = 0.5
    meet(node, slow, quick)
    assert followed(node, grow(200))
    assert len(ranges(node, slow)) < len(ranges(node, quick))
    assert is_clean(node, slow, quick)


def test_the_window_is_bounded_while_its_base_is_missing(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """Whoever holds back the first range must not make us hold everything behind it."""

    def script(called: Called) -> Any:
        first = called.query["from"]
        return None if first == 1 else blocks_reply([b"{}"] * called.query["limit"])

    tall = [make_stranger(number, work=10**9, height=10**6, scripts={BLOCKS: script}) for number in range(3)]
    meet(node, *tall)
    node.run(1.8)
    asked = {first for stranger in tall for first, _ in ranges(node, stranger)}
    assert len(asked) == 64
    assert max(asked) == 1 + 1_008


# Short replies and stalls


def test_short_replies(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """Full blocks do not fit into one reply by the sixteen."""

    def script(called: Called) -> Any:
        first = called.query["from"]
        return blocks_reply(grow(100)[first - 1 :][: min(1 + first % 3, called.query["limit"])], 100)

    stranger = make_stranger(blocks=grow(100), scripts={BLOCKS: script})
    meet(node, stranger)
    assert followed(node, grow(100))
    assert is_clean(node, stranger)


def test_a_stalled_range_is_asked_for_elsewhere(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    strangers = [make_stranger(number, blocks=grow(100)) for number in range(2)]
    silent_once: list[float] = []

    def script(stranger: Stranger) -> Any:
        def answer(called: Called) -> Any:
            if called.query["from"] == 1 and called.query["limit"] > 1 and not silent_once:
                silent_once.append(called.at)
                return None
            return stranger.honest(called)

        return answer

    for stranger in strangers:
        stranger.scripts = {BLOCKS: script(stranger)}
    meet(node, *strangers)
    began = node.home.now()
    assert followed(node, grow(100))
    assert 1.9 < node.home.now() - began < 3
    assert [[first for first, _ in ranges(node, each)].count(1) for each in strangers] == [1, 1], "somebody else"


def test_the_wait_doubles_from_two_seconds_to_sixty_four(
    make_node: MakeNode, grow: Grow, make_stranger: MakeStranger
) -> None:
    node = make_node(outbound=16)
    strangers = [make_stranger(number, blocks=grow(16), scripts={BLOCKS: silent}) for number in range(8)]
    meet(node, *strangers)
    node.run(29)
    times = sorted(called.at for called in node.town.calls if called.path == BLOCKS and called.query["limit"] == 16)
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [2, 4, 8]


def test_a_peer_that_stalls_is_not_asked_for_more_until_it_answers(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    stalling = make_stranger(1, blocks=grow(200), scripts={BLOCKS: silent})
    quick = make_stranger(2, blocks=grow(200))
    meet(node, stalling, quick)
    assert followed(node, grow(200))
    assert len(ranges(node, stalling)) <= MAX_REQUESTS
    assert is_clean(node, quick)


def test_where_there_is_nobody_else_a_slow_answer_is_waited_for(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    stranger = make_stranger(blocks=grow(60))
    stranger.scripts = {BLOCKS: later(node, 20.0, stranger)}
    meet(node, stranger)
    assert followed(node, grow(60), within=45)
    assert len(ranges(node, stranger)) == 4
    assert is_clean(node, stranger)


def test_one_who_never_answers_is_given_up(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(40), scripts={BLOCKS: silent})
    meet(node, stranger)
    node.run(120)
    assert not node.network.synchroniser.running or not node.knows(stranger)
    assert node.peers.neighbourhood().behind == ""
    assert not node.peers.is_banned(stranger.key.public), "slowness is no crime"


def test_replies_that_fail_are_asked_for_elsewhere(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    broken = make_stranger(1, blocks=grow(100), scripts={BLOCKS: lambda _: refused(500)})
    good = make_stranger(2, blocks=grow(100))
    meet(node, broken, good)
    assert followed(node, grow(100), within=3)
    assert is_clean(node, good)


# Liars


def boaster(make_stranger: MakeStranger, number: int, script: Any) -> Stranger:
    return make_stranger(number, work=2**255, height=2**53 - 1, scripts={BLOCKS: script})


@pytest.mark.parametrize(
    "script",
    [
        silent,
        lambda _: blocks_reply([]),
        lambda _: blocks_reply([b"{}"]),
        lambda _: blocks_reply([b'{"height":"5"}'] * 16),
        lambda _: refused(500),
        lambda _: refused(404),
    ],
    ids=["silence", "nothing", "no block", "no blocks", "500", "404"],
)
def test_a_boaster_keeps_us_from_nothing(node: Node, grow: Grow, make_stranger: MakeStranger, script: Any) -> None:
    """Somebody claims the greatest chain there can be; an honest peer has one that is greater than ours."""
    node.take(*grow(10))
    liar, honest = boaster(make_stranger, 1, script), make_stranger(2, blocks=grow(60))
    meet(node, liar, honest)
    assert followed(node, grow(60), within=75)
    assert is_clean(node, honest)
    node.run(75)
    assert node.peers.neighbourhood().behind == ""
    honest.blocks = grow(70)
    assert followed(node, grow(70), within=75)
    assert is_clean(node, honest)


def test_known_blocks_are_no_progress(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """A boaster sends what we have, again and again: nothing breaks a rule, and nothing is gained."""
    node.take(*grow(40))
    tip = grow(40)[-1]

    def script(called: Called) -> Any:
        return blocks_reply([tip] * called.query["limit"])

    liar = boaster(make_stranger, 1, script)
    node.town.latency[liar.endpoint] = 0.9
    meet(node, liar)
    node.run(65)
    assert not node.network.synchroniser.running
    honest = make_stranger(2, blocks=grow(50, name="t"))
    meet(node, honest)
    assert followed(node, grow(50, name="t"), within=5)
    for _ in range(20):
        node.run(60)
        assert node.peers.neighbourhood().behind == ""
    assert is_clean(node, honest)


def drip(node: Node, chain: list[Block], seconds: float) -> Script:
    """One block at a time, each after so many seconds: never silent for long, and never done."""

    def answer(called: Called) -> Any:
        found = chain[called.query["from"] - 1 :][:1]
        reply: Deferred[Any] = Deferred()
        if found and called.query["limit"] == 1:
            return blocks_reply(found)
        if found:
            node.clock.callLater(seconds, reply.callback, blocks_reply(found))
        return reply

    return answer


def test_a_branch_that_is_made_while_we_watch(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """Blocks of little work are cheap: a new one now and then must not hold us to a branch that never overtakes."""
    node.take(*grow(100))
    branch = grow(300, name="cheap", step=8)
    liar = boaster(make_stranger, 1, drip(node, branch, 25.0))
    honest = make_stranger(2, blocks=grow(100))
    meet(node, liar, honest)
    node.run(65)
    assert node.peers.neighbourhood().behind == ""
    honest.blocks = grow(5, on=grow(98), name="other")
    assert followed(node, honest.blocks, within=10)
    for minute in range(30):
        node.run(60)
        assert node.peers.neighbourhood().behind == "", minute
    honest.blocks = grow(10, on=grow(98), name="another")
    assert followed(node, honest.blocks, within=75)
    assert is_clean(node, honest)


def test_a_branch_that_does_not_overtake_is_left_in_the_end(
    node: Node, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quickly its blocks come: they are cheaper than ours."""
    assert pull.BRANCH_SECONDS == 300
    monkeypatch.setattr(pull, "BRANCH_SECONDS", 100.0)
    monkeypatch.setattr(pull, "PACE", 1)
    ours = grow(80, name="hard", step=1)
    node.take(*ours)
    liar = boaster(make_stranger, 1, drip(node, grow(300, name="cheap", step=8), 0.4))
    meet(node, liar)
    node.run(90)
    assert node.network.synchroniser.running
    node.run(25)
    assert not node.network.synchroniser.running
    assert node.peer(liar).doubts == 1
    assert node.tip.hash == ours[-1].header.hash


def test_whoever_hands_on_what_everybody_has_does_not_keep_a_claim_by_it(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    """A boaster is the first to show us every new block of the honest chain, and claims that there is much more."""
    length = 20
    node.take(*grow(20))

    def script(called: Called) -> Any:
        first = called.query["from"]
        return blocks_reply(grow(length)[first - 1 : first - 1 + called.query["limit"]]) if first <= length else None

    liar = boaster(make_stranger, 1, script)
    meet(node, liar)
    node.run(65)
    pressing = 0
    for _ in range(60):
        length += 1
        node.run(10)
        pressing += node.peers.neighbourhood().behind != ""
    assert node.tip.height > 70
    assert pressing <= 6


def test_blocks_of_another_chain(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    """One of three sources is on another branch: it is left out, and nobody is blamed."""
    strangers = [make_stranger(number, blocks=grow(150)) for number in range(3)]
    strangers[0].work = strangers[1].tip.work + 1
    odd = strangers[2]
    odd.blocks = grow(120, on=grow(30), name="odd")
    odd.work = strangers[1].tip.work
    for stranger in strangers:
        node.town.latency[stranger.endpoint] = 0.1
    meet(node, *strangers)
    assert node.until(lambda: node.tip.height >= 150, within=20)
    assert node.tip.hash == grow(150)[-1].header.hash
    assert ranges(node, odd)
    assert is_clean(node, strangers[1], odd)


def test_known_blocks_in_place_of_those_that_were_asked_for(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    """They would make the honest sender of the next range look like the stranger."""
    node.take(*grow(20))
    honest = [make_stranger(number, blocks=grow(150)) for number in range(2)]
    liar = make_stranger(2, blocks=grow(150))
    liar.scripts = {BLOCKS: lambda called: blocks_reply(grow(20)[-called.query["limit"] :])}
    for stranger in (*honest, liar):
        node.town.latency[stranger.endpoint] = 0.1
    meet(node, *honest, liar)
    assert followed(node, grow(150), within=20)
    assert ranges(node, liar)
    assert is_clean(node, *honest)


def test_many_liars_with_wrong_ranges(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    node.take(*grow(20))
    honest = make_stranger(0, blocks=grow(150))
    honest.work = honest.tip.work + 1
    liars = [make_stranger(number, blocks=grow(150)) for number in range(1, 8)]
    for number, liar in enumerate(liars):
        liar.scripts = {BLOCKS: lambda called, n=number: blocks_reply(grow(20)[-1 - n :][: called.query["limit"]])}
    for stranger in (honest, *liars):
        node.town.latency[stranger.endpoint] = 0.1
    meet(node, honest, *liars)
    honest.work = None
    assert node.until(lambda: node.tip.height == 150, within=90)


# Invalid blocks


def with_a_crime(grow: Grow, builder: ChainBuilder, at: int, rule: Refusal) -> list[Block]:
    """A chain whose block at a height breaks a rule, and on which more blocks build."""
    chain = grow(at - 1)
    bad = builder.block(chain[-1], break_=rule, producer="criminal")
    return [*chain, bad, *grow(12, on=[bad], name=f"after {rule}")[1:]]


@pytest.mark.parametrize("rule", [Refusal.STATE_ROOT, Refusal.WORK, Refusal.BLOCK_SIGNATURE])
def test_an_invalid_chain_costs_its_owner_a_day(
    node: Node, grow: Grow, builder: ChainBuilder, make_stranger: MakeStranger, rule: Refusal
) -> None:
    criminal = make_stranger(1, blocks=with_a_crime(grow, builder, 40, rule))
    criminal.work = 10**6
    honest = make_stranger(2, blocks=grow(30))
    meet(node, criminal, honest)
    node.run(5)
    assert node.peers.is_banned(criminal.key.public)
    assert not node.knows(criminal)
    assert is_clean(node, honest)
    assert node.tip.height in (30, 39)
    honest.blocks = grow(60)
    assert followed(node, grow(60))


def test_an_invalid_block_among_the_ranges_of_others(
    node: Node, grow: Grow, builder: ChainBuilder, make_stranger: MakeStranger
) -> None:
    """One of several sources slips in a block that breaks a rule: it is banned, the others go on at once."""
    honest = [make_stranger(number, blocks=grow(150)) for number in range(3)]
    criminal = make_stranger(3, blocks=grow(150))

    def script(called: Called) -> Any:
        first, limit = called.query["from"], called.query["limit"]
        good = grow(150)[first - 1 : first - 1 + limit]
        parent = grow(150)[first + 3] if len(good) > 5 else None
        bad = [builder.block(parent, break_=Refusal.STATE_ROOT, producer="criminal")] if parent else []
        return blocks_reply([*good[:5], *bad, *good[6:]])

    criminal.scripts = {BLOCKS: script}
    for stranger in (*honest, criminal):
        node.town.latency[stranger.endpoint] = 0.1
    meet(node, *honest, criminal)
    assert followed(node, grow(150), within=10)
    assert node.peers.is_banned(criminal.key.public)
    assert is_clean(node, *honest)


def test_most_peers_send_invalid_blocks(
    node: Node, grow: Grow, builder: ChainBuilder, make_stranger: MakeStranger
) -> None:
    """Then it may be we who are wrong: an alarm, no more bans, no blocks of our own."""
    chain = with_a_crime(grow, builder, 20, Refusal.STATE_ROOT)
    strangers = [make_stranger(number, blocks=chain, work=10**6 - number) for number in range(6)]
    meet(node, *strangers)
    node.run(200)
    banned = [stranger for stranger in strangers if node.peers.is_banned(stranger.key.public)]
    assert len(banned) <= 3
    assert node.peers.alarm
    assert node.tip.height == 19


# Chains that change


def test_a_peer_that_reorganises_between_two_requests(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    old, new = grow(100), grow(90, on=grow(60), name="new")
    stranger = make_stranger(blocks=old)
    seen = Counter[str]()

    def script(called: Called) -> Any:
        seen["blocks"] += 1
        if seen["blocks"] == 6:
            stranger.blocks = new
        return stranger.honest(called)

    stranger.scripts = {BLOCKS: script}
    meet(node, stranger)
    assert followed(node, new, within=5)
    assert is_clean(node, stranger)


def test_a_peer_that_reorganises_to_fewer_blocks_with_more_work(
    node: Node, grow: Grow, builder: ChainBuilder, make_stranger: MakeStranger
) -> None:
    node.take(*grow(8))
    old, new = grow(60, step=8), grow(45, name="quick", step=1)
    assert builder.point_after(new[-1]).work > builder.point_after(old[-1]).work
    stranger = make_stranger(blocks=old)
    seen = Counter[str]()

    def script(called: Called) -> Any:
        seen["blocks"] += 1
        if seen["blocks"] == 7:
            stranger.blocks = new
        return stranger.honest(called)

    stranger.scripts = {BLOCKS: script}
    meet(node, stranger)
    assert followed(node, new, within=5)
    assert is_clean(node, stranger)


def test_a_peer_that_reorganises_all_the_time_is_doubted_in_the_end(
    node: Node, grow: Grow, make_stranger: MakeStranger
) -> None:
    chains = [grow(90, name=name) for name in ("x", "y")]
    stranger = make_stranger(blocks=chains[0])
    seen = Counter[str]()

    def script(called: Called) -> Any:
        seen["blocks"] += 1
        stranger.blocks = chains[seen["blocks"] % 2]
        return stranger.honest(called)

    stranger.scripts = {BLOCKS: script}
    meet(node, stranger)
    node.run(10)
    assert node.peer(stranger).doubts == 1
    assert not node.peers.is_banned(stranger.key.public)
    starts = [first for first, _ in ranges(node, stranger)].count(1)
    assert 1 <= starts <= sync.MAX_RESTARTS


def test_a_peer_that_grows_while_it_is_followed(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(100))
    node.town.latency[stranger.endpoint] = 0.2
    meet(node, stranger)
    node.run(0.5)
    stranger.blocks = grow(140)
    assert followed(node, grow(140), within=15)


def test_blocks_that_come_by_themselves_meanwhile(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(100))
    node.town.latency[stranger.endpoint] = 0.3
    meet(node, stranger)
    node.run(0.7)
    node.living.ledger.submit_blocks([block.wire() for block in grow(100)])
    node.run(3)
    assert node.tip.height == 100
    assert not node.network.synchroniser.running
    assert is_clean(node, stranger)


def test_an_early_block_is_nobody_s_crime(
    node: Node, grow: Grow, builder: ChainBuilder, make_stranger: MakeStranger
) -> None:
    """A chain that runs ahead of our clock: it may be our clock."""
    early = builder.block(grow(20)[-1], slot=LATE + 1_000, producer="early")
    stranger = make_stranger(blocks=[*grow(20), early])
    meet(node, stranger)
    node.run(5)
    assert node.tip.height in (0, 20)
    assert node.knows(stranger)
    assert node.peers.bans.listed(node.home.now()) == []


# Our own troubles


def test_a_full_queue_of_ours_is_nobody_s_fault(node: Node, grow: Grow, make_stranger: MakeStranger) -> None:
    stranger = make_stranger(blocks=grow(60))
    capacity, node.living.verifier._capacity = node.living.verifier._capacity, 0
    meet(node, stranger)
    node.run(20)
    assert node.tip.height == 0
    assert is_clean(node, stranger)
    node.living.verifier._capacity = capacity
    assert followed(node, grow(60), within=3)


def test_a_disk_that_fails_is_nobody_s_fault(
    node: Node, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch, expected_errors: Any
) -> None:
    stranger = make_stranger(blocks=grow(60))

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(node.living.chain.connector, "connect", fail)
        meet(node, stranger)
        node.run(5)
        assert node.tip.height == 0
    assert is_clean(node, stranger)
    assert followed(node, grow(60), within=5)
    expected_errors(OSError)


# Stopping


def test_it_stops_when_the_ledger_has_finished(make_node: MakeNode, grow: Grow, make_stranger: MakeStranger) -> None:
    checker = Stepped()
    node = make_node(checker=checker)
    stranger = make_stranger(blocks=grow(40))
    meet(node, stranger)
    node.run(0.5)
    assert len(checker)
    stopped = node.begin(node.network.synchroniser.stop())
    assert not has_result(stopped)
    while len(checker):
        checker.step()
        node.run(0.01)
    assert has_result(stopped)
    node.network.synchroniser.consider()
    assert not node.network.synchroniser.running


@pytest.mark.parametrize("ours", [0, 10])
def test_it_does_not_wait_for_a_peer_when_it_stops(
    node: Node, grow: Grow, make_stranger: MakeStranger, ours: int
) -> None:
    """Neither while it looks for the last shared block, nor while it waits for a range."""
    node.take(*grow(ours))
    meet(node, make_stranger(blocks=grow(40), scripts={BLOCKS: silent}))
    node.run(0.5)
    assert node.network.synchroniser.running
    stopped = node.begin(node.network.synchroniser.stop())
    assert has_result(stopped)
    result_of(stopped)


def test_nothing_is_followed_without_a_claim(node: Node, make_stranger: MakeStranger) -> None:
    node.network.synchroniser.consider()
    assert not node.network.synchroniser.running
    meet(node, make_stranger(5))
    assert not node.network.synchroniser.running
    assert node.town.calls_to(place(5), BLOCKS) == []
