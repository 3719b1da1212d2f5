"""Blocks ahead of the clock are kept until they are due, within bounds (docs/protocol.md 10)."""

import pytest
from twisted.internet.task import Clock

from svcd.chain.errors import NotYet, Refusal, Wait
from svcd.node.early import MAX_HELD, MAX_SLOTS_AHEAD, EarlyBlocks
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import LATE, Node, late_clock
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED, KNOWN, SIDE

DRIFT = TEST_PARAMS.drift_slots


class Bench:
    """Early blocks with a clock at the beginning of slot 50,000, and what was handed in again."""

    def __init__(self) -> None:
        self.clock: Clock = late_clock()
        self.due: list[bytes] = []
        self.early = EarlyBlocks(self.clock, TEST_PARAMS, self.due.append)

    def check(self, name: bytes, ahead: int) -> str | None:
        """What is said to a block so many slots beyond the present one; None if it is not early."""
        try:
            self.early.hold_if_early(name * 32, slot=LATE + ahead, data=lambda: name)
        except NotYet as reason:
            return reason.detail if reason.code is Wait.EARLY else f"not early, but {reason.code}"
        return None


@pytest.fixture
def bench() -> Bench:
    return Bench()


KEPT = "the block is kept until it is due"
DROPPED = "send the block again when it is due"


@pytest.mark.parametrize("ahead", [-LATE, 0, DRIFT])
def test_a_block_within_the_drift_is_not_early(bench: Bench, ahead: int) -> None:
    assert bench.check(b"a", ahead) is None
    assert len(bench.early) == 0


@pytest.mark.parametrize("ahead", [1, 2, MAX_SLOTS_AHEAD])
def test_a_block_within_sixty_slots_is_kept_until_it_is_due(bench: Bench, ahead: int) -> None:
    reason = bench.check(b"a", DRIFT + ahead)
    assert reason == f"slot {LATE + DRIFT + ahead} lies in the future; {KEPT}"
    bench.clock.advance(ahead - 0.001)
    assert bench.due == []
    bench.clock.advance(0.001)
    assert bench.due == [b"a"]
    assert len(bench.early) == 0
    assert bench.clock.getDelayedCalls() == []


def test_a_block_beyond_sixty_slots_is_dropped(bench: Bench) -> None:
    reason = bench.check(b"a", DRIFT + MAX_SLOTS_AHEAD + 1)
    assert reason == f"slot {LATE + DRIFT + MAX_SLOTS_AHEAD + 1} lies too far in the future; {DROPPED}"
    assert bench.clock.getDelayedCalls() == []


def test_sixty_four_are_kept_and_no_more(bench: Bench) -> None:
    names = [bytes([number]) for number in range(MAX_HELD)]
    assert all((bench.check(name, DRIFT + 1) or "").endswith(KEPT) for name in names)
    assert len(bench.early) == MAX_HELD
    assert (bench.check(b"\xff", DRIFT + 1) or "").endswith(DROPPED)
    assert (bench.check(names[7], DRIFT + 1) or "").endswith(KEPT), "it is there already"
    assert len(bench.early) == MAX_HELD
    bench.clock.advance(1)
    assert bench.due == names
    assert (bench.check(b"\xff", DRIFT + 2) or "").endswith(KEPT)


def test_a_block_is_kept_once(bench: Bench) -> None:
    bench.check(b"a", DRIFT + 3)
    bench.clock.advance(1)
    bench.check(b"a", DRIFT + 3)
    assert len(bench.early) == 1
    bench.clock.advance(10)
    assert bench.due == [b"a"]


def test_blocks_come_in_the_order_of_their_slots(bench: Bench) -> None:
    for name, ahead in {b"c": 9, b"a": 1, b"b": 5}.items():
        bench.check(name, DRIFT + ahead)
    for _ in range(10):
        bench.clock.advance(1)
    assert bench.due == [b"a", b"b", b"c"]


def test_in_the_middle_of_a_slot(bench: Bench) -> None:
    bench.clock.advance(0.4)
    bench.check(b"a", DRIFT + 1)
    bench.clock.advance(0.599)
    assert bench.due == []
    bench.clock.advance(0.002)
    assert bench.due == [b"a"]


def test_letting_go(bench: Bench) -> None:
    bench.check(b"a", DRIFT + 1)
    bench.early.clear()
    assert len(bench.early) == 0
    assert bench.clock.getDelayedCalls() == []


# Through the ledger


def test_an_early_block_is_connected_when_it_is_due(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    block = chain.block(slot=LATE + DRIFT + 3)
    argon.clear()
    assert node.submit(block) == [Wait.EARLY]
    assert len(argon) == 1
    assert not node.holds(block)
    node.clock.advance(2)
    assert not node.holds(block)
    node.clock.advance(1)
    assert node.tip == block.header.hash
    assert node.submit(block) == [KNOWN]


def test_an_early_block_is_never_invalid(node: Node, chain: ChainBuilder) -> None:
    kept, dropped = chain.block(slot=LATE + DRIFT + 60), chain.block(slot=LATE + DRIFT + 61, producer="q")
    for _ in range(3):
        assert node.submit(kept, dropped) == [Wait.EARLY, Wait.EARLY]
    node.clock.advance(61)
    assert node.tip == kept.header.hash
    assert node.submit(dropped)[0] in (CONNECTED, SIDE)


def test_a_place_costs_the_work_of_a_block(node: Node, chain: ChainBuilder) -> None:
    """Else sixty-four blocks that cost nothing would take all the places, and honest ones be sent away."""
    for number in range(MAX_HELD):
        block = chain.block(slot=LATE + DRIFT + 60, producer=f"p{number}", break_=Refusal.WORK)
        assert node.submit(block) == [Refusal.WORK]
    honest = chain.block(slot=LATE + DRIFT + 1)
    assert node.submit(honest) == [Wait.EARLY]
    node.clock.advance(1)
    assert node.tip == honest.header.hash


def test_what_else_is_wrong_with_an_early_block_is_found_when_it_is_due(node: Node, chain: ChainBuilder) -> None:
    block = chain.block(slot=LATE + DRIFT + 1, break_=Refusal.STATE_ROOT)
    assert node.submit(block) == [Wait.EARLY]
    node.clock.advance(1)
    assert node.submit(block) == [Refusal.KNOWN_INVALID]


def test_an_early_block_has_to_fit_behind_its_parent(node: Node, chain: ChainBuilder) -> None:
    block = chain.block(slot=LATE + DRIFT + 1, break_=Refusal.BASE_TARGET)
    assert node.submit(block) == [Refusal.BASE_TARGET]
    assert node.clock.getDelayedCalls() == []


def test_children_of_an_early_block_wait_with_it(node: Node, chain: ChainBuilder) -> None:
    early = chain.block(slot=LATE + DRIFT + 1)
    child = chain.block(early, slot=LATE + DRIFT + 2)
    assert node.submit(early, child) == [Wait.EARLY, Wait.EARLY]
    assert node.submit(chain.block(child, slot=LATE + DRIFT + 3)) == [Wait.ORPHAN], "alone it has no parent yet"
    node.clock.advance(2)
    assert node.tip == child.header.hash


def test_a_stopped_ledger_keeps_nothing(node: Node, chain: ChainBuilder) -> None:
    node.submit(chain.block(slot=LATE + DRIFT + 1))
    node.ledger.stop()
    assert node.clock.getDelayedCalls() == []


def test_a_clock_before_the_genesis(make_node: MakeNode, chain: ChainBuilder) -> None:
    clock = Clock()
    clock.advance(TEST_PARAMS.genesis_time / 1000 - 30)
    node = make_node(clock=clock)
    block = chain.block(slot=DRIFT + 1)
    assert node.submit(block) == [Wait.EARLY]
    clock.advance(31)
    assert node.tip == block.header.hash
