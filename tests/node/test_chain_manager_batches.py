"""The door for blocks while other blocks are on their way through it: order, waiting, failures, listeners."""

from collections.abc import Callable

import apsw
import pytest
from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, Wait
from svcd.node import pending_change
from svcd.node.changes import BlockOutcome, BlockStage, BlockStatus, ChainChange
from svcd.node.threads import InlineWorker
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Node, Stepped, code_of
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED, KNOWN, SIDE
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]


@define
class Bench:
    """A node whose threads do one piece of work at a time, when the test says so."""

    node: Node
    checker: Stepped
    writer: Stepped

    def submit(self, *blocks: Block) -> Deferred[list[BlockOutcome]]:
        return self.node.chain_manager.submit_blocks([block.wire() for block in blocks])

    def to_the_work(self, *blocks: Block) -> Deferred[list[BlockOutcome]]:
        """Hand blocks in as one batch, and stop where their work is about to be checked."""
        outcomes = self.submit(*blocks)
        self.checker.step(len(self.checker) - 1)
        return outcomes

    def finish(self) -> None:
        """Do all work, and what comes of it."""
        while len(self.checker) or len(self.writer):
            self.checker.finish()
            self.writer.finish()


def codes(outcomes: Deferred[list[BlockOutcome]]) -> list[BlockStatus | Refusal | Wait]:
    return [code_of(outcome) for outcome in result_of(outcomes)]


@pytest.fixture
def bench(make_node: MakeNode) -> Bench:
    checker, writer = Stepped(), Stepped()
    return Bench(make_node(checker=checker, writer=writer, threads=2, capacity=3), checker, writer)


def test_a_long_row_of_batches_ends_together(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Longer than the stack is deep: each waits for the one before it, and the first is invalid."""
    writer = Stepped()
    node = make_node(writer=writer, capacity=1_024)
    blocks = [chain.block(None, break_=Refusal.STATE_ROOT)]
    while len(blocks) < 400:
        blocks.append(chain.block(blocks[-1]))
    outcomes = [node.chain_manager.submit_blocks([block.wire()]) for block in blocks]
    writer.finish()
    assert codes(outcomes[0]) == [Refusal.STATE_ROOT]
    assert {code for each in outcomes[1:] for code in codes(each)} == {Refusal.ANCESTOR}
    assert not node.chain_manager.busy
    result_of(node.chain_manager.stop())


# How far a batch is


def test_the_submitter_of_a_batch_hears_of_its_stages(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    stages: list[tuple[str, BlockStage]] = []
    chain_manager = bench.node.chain_manager
    chain_manager.submit_blocks([first.wire()], lambda stage: stages.append(("first", stage)))
    chain_manager.submit_blocks([second.wire()], lambda stage: stages.append(("second", stage)))
    assert stages == [("first", BlockStage.PARSE), ("second", BlockStage.PARSE)]
    bench.checker.step()
    assert stages[2:] == [("first", BlockStage.VERIFY)]
    bench.checker.finish()
    assert stages[3:] == [("second", BlockStage.VERIFY), ("first", BlockStage.CONNECT), ("second", BlockStage.CONNECT)]
    bench.finish()
    assert bench.node.tip == second.header.hash
    assert len(stages) == 6


# Parents on their way


def test_a_child_may_be_checked_while_its_parent_is(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    one, two = bench.to_the_work(first), bench.to_the_work(second)
    assert bench.node.verifier.waiting == 2
    bench.checker.step(1)
    assert len(bench.writer) == 0, "the child waits for its parent to land"
    bench.checker.step(0)
    bench.writer.step()
    assert codes(one) == [CONNECTED]
    bench.writer.step()
    assert codes(two) == [CONNECTED]
    assert bench.node.tip == second.header.hash


def test_a_long_line_of_blocks_on_their_way(bench: Bench, chain: ChainBuilder) -> None:
    b1, b2, b3 = chain.chain("genesis: b[1..3]").values()
    outcomes = [bench.to_the_work(block) for block in (b1, b2, b3)]
    for number in (2, 1, 0):
        bench.checker.step(number)
    bench.finish()
    assert [codes(outcome) for outcome in outcomes] == [[CONNECTED]] * 3
    assert [change.tip.height for change in bench.node.witness.changes] == [1, 2, 3]


def test_a_child_in_another_batch_than_its_parent(bench: Bench, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b[1..2]\ngenesis: c1")
    one, two = bench.to_the_work(b["b1"]), bench.to_the_work(b["c1"], b["b2"])
    bench.checker.step(1)
    bench.finish()
    assert codes(one) == [CONNECTED]
    assert codes(two) in ([CONNECTED, CONNECTED], [SIDE, CONNECTED])
    assert bench.node.tip == b["b2"].header.hash


@pytest.mark.parametrize("rule", [Refusal.WORK, Refusal.TRANSACTION_SIGNATURE, Refusal.STATE_ROOT])
def test_a_child_whose_parent_turns_out_invalid(bench: Bench, chain: ChainBuilder, rule: Refusal) -> None:
    b1, b2, b3 = chain.chain(f"genesis: b[1..3]\nb1 has an invalid {rule.replace('-', ' ')}").values()
    outcomes = [bench.to_the_work(block) for block in (b1, b2, b3)]
    for number in (2, 1, 0):
        bench.checker.step(number)
    bench.finish()
    assert [codes(outcome) for outcome in outcomes] == [[rule], [Refusal.ANCESTOR], [Refusal.ANCESTOR]]
    again = [bench.submit(block) for block in (b1, b2, b3)]
    bench.finish()
    assert [codes(outcome) for outcome in again] == [[Refusal.KNOWN_INVALID]] * 3


def test_a_block_that_is_on_its_way_is_known_once_it_has_arrived(
    bench: Bench, chain: ChainBuilder, argon: list[bytes]
) -> None:
    block = chain.block()
    argon.clear()
    one, two = bench.to_the_work(block), bench.to_the_work(block)
    assert not has_result(two)
    bench.finish()
    assert codes(one) == [CONNECTED]
    assert codes(two) == [KNOWN]
    assert len(argon) == 1


def test_a_block_that_was_on_its_way_and_turned_out_invalid(bench: Bench, chain: ChainBuilder) -> None:
    block = chain.block(break_=Refusal.WORK)
    one, two = bench.to_the_work(block), bench.to_the_work(block)
    bench.finish()
    assert codes(one) == [Refusal.WORK]
    assert codes(two) == [Refusal.KNOWN_INVALID]


def test_a_block_that_was_on_its_way_and_could_not_be_written(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk, checker = FullDisk(), Stepped()
    bench = Bench(make_node(writer=disk, checker=checker, threads=1), checker, Stepped())
    block = chain.block()
    one, two = bench.to_the_work(block), bench.to_the_work(block)
    disk.full = True
    bench.finish()
    with pytest.raises(apsw.FullError, match="full"):
        result_of(one)
    assert codes(two) == [Wait.BUSY]
    disk.full = False
    again = bench.submit(block)
    bench.finish()
    assert codes(again) == [CONNECTED]


def test_a_child_whose_parent_is_on_its_way_in_another_batch_too(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    one, two = bench.to_the_work(first), bench.to_the_work(first, second)
    bench.checker.step(1)
    assert len(bench.writer) == 0, "the child waits for its parent to land"
    bench.finish()
    assert (codes(one), codes(two)) == ([CONNECTED], [KNOWN, CONNECTED])


def test_the_same_block_twice_in_a_batch(bench: Bench, chain: ChainBuilder) -> None:
    block = chain.block()
    outcomes = bench.submit(block, block)
    bench.finish()
    assert codes(outcomes) == [CONNECTED, KNOWN]


@pytest.mark.parametrize("rule", [Refusal.WORK, Refusal.STATE_ROOT])
def test_an_invalid_block_twice_in_a_batch(bench: Bench, chain: ChainBuilder, rule: Refusal) -> None:
    block = chain.block(break_=rule)
    outcomes = bench.submit(block, block)
    bench.finish()
    assert codes(outcomes) == [rule, Refusal.KNOWN_INVALID]


def test_a_block_that_is_sent_away_is_not_known_to_its_twin(bench: Bench, chain: ChainBuilder) -> None:
    others = [bench.to_the_work(chain.block(producer=f"p{number}")) for number in range(3)]
    busy = chain.block(producer="late")
    assert codes(bench.to_the_work(busy, busy)) == [Wait.BUSY] * 2
    bench.finish()
    assert all(has_result(outcome) for outcome in others)


@pytest.mark.parametrize("together", [True, False])
def test_a_copy_of_a_block_that_is_held_for_its_slot_is_early(
    bench: Bench, chain: ChainBuilder, together: bool
) -> None:
    early = chain.block(slot=LATE + bench.node.chain.params.drift_slots + 1)
    batches = [bench.submit(early, early)] if together else [bench.to_the_work(early), bench.to_the_work(early)]
    bench.finish()
    found = [outcome for batch in batches for outcome in result_of(batch)]
    assert [str(outcome) for outcome in found] == [
        f"slot {early.header.slot} lies in the future; the block is kept until it is due"
    ] * 2


def test_batches_never_wait_for_each_other(bench: Bench, chain: ChainBuilder) -> None:
    """A batch waits for what was on its way when it came, and not for who takes the same up later."""
    first, second, third = chain.chain("genesis: b[1..3]").values()
    one, two = bench.to_the_work(first), bench.to_the_work(second)
    bench.checker.step(0)
    bench.writer.fail(apsw.IOError("disk I/O error"))
    with pytest.raises(apsw.Error):
        result_of(one)
    three = bench.to_the_work(first, second, third)
    bench.finish()
    assert (codes(two), codes(three)) == ([Wait.ORPHAN], [CONNECTED, Wait.BUSY, Wait.ORPHAN])
    again = bench.submit(first, second, third)
    bench.finish()
    assert codes(again) == [KNOWN, CONNECTED, CONNECTED]


def test_batches_are_placed_in_the_order_in_which_they_came(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    one, two = bench.submit(first), bench.submit(second)
    bench.checker.step(len(bench.checker) - 1)
    bench.finish()
    assert (codes(one), codes(two)) == ([CONNECTED], [CONNECTED])


def test_a_failure_at_the_entrance_does_not_close_it(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = FullDisk()
    node = make_node(checker=disk)
    disk.full = True
    with pytest.raises(apsw.FullError, match="full"):
        node.submit(chain.block())
    disk.full = False
    assert node.submit(chain.block()) == [CONNECTED]


def test_a_block_waits_for_the_checks_of_no_block_but_its_parents(bench: Bench, chain: ChainBuilder) -> None:
    """Its header was checked before, as those of downloaded blocks are; others may come without work."""
    block = chain.block()
    checking = bench.node.chain_manager.check_headers(bench.node.chainstate.head, [block.header])
    checked = Deferred.fromCoroutine(checking)
    bench.checker.finish()
    assert result_of(checked).failure is None
    others = [bench.to_the_work(chain.block(producer=f"w{number}", break_=Refusal.WORK)) for number in range(2)]
    outcomes = bench.submit(block)
    bench.checker.step(len(bench.checker) - 1)
    bench.writer.finish()
    assert codes(outcomes) == [CONNECTED]
    assert not any(has_result(outcome) for outcome in others)
    bench.finish()
    assert [codes(outcome) for outcome in others] == [[Refusal.WORK]] * 2


# A full queue


def test_a_full_queue_sends_blocks_away_and_remembers_nothing(
    bench: Bench, chain: ChainBuilder, argon: list[bytes]
) -> None:
    blocks = [chain.block(producer=f"p{number}") for number in range(5)]
    waiting = [bench.to_the_work(block) for block in blocks[:3]]
    assert bench.node.verifier.waiting == 3
    argon.clear()
    assert codes(bench.to_the_work(blocks[3])) == [Wait.BUSY]
    assert codes(bench.to_the_work(blocks[4])) == [Wait.BUSY]
    assert argon == []
    bench.finish()
    assert all(codes(outcome)[0] in (CONNECTED, SIDE) for outcome in waiting)
    assert bench.node.verifier.waiting == 0
    again = bench.submit(blocks[3], blocks[4])
    bench.finish()
    assert set(codes(again)) <= {CONNECTED, SIDE}


def test_a_batch_that_does_not_fit_is_sent_away_whole(bench: Bench, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..4]").values())
    outcomes = bench.submit(*blocks)
    bench.finish()
    assert codes(outcomes) == [Wait.BUSY] * 4
    assert bench.node.verifier.waiting == 0
    outcomes = bench.submit(*blocks[:3])
    bench.finish()
    assert codes(outcomes) == [CONNECTED] * 3


def test_a_child_of_a_block_that_was_sent_away(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    others = [bench.to_the_work(chain.block(producer=f"p{number}")) for number in range(3)]
    assert codes(bench.to_the_work(first)) == [Wait.BUSY]
    assert codes(bench.to_the_work(second)) == [Wait.ORPHAN]
    bench.finish()
    assert all(has_result(outcome) for outcome in others)


def test_known_blocks_take_no_room_in_the_queue(bench: Bench, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..6]").values())
    for start in (0, 3):
        bench.submit(*blocks[start : start + 3])
        bench.finish()
    outcomes = bench.submit(*blocks)
    bench.finish()
    assert codes(outcomes) == [KNOWN] * 6


# Stopping


def test_a_stopped_chain_manager_finishes_its_tasks_and_refuses_others(bench: Bench, chain: ChainBuilder) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    begun = bench.to_the_work(first)
    bench.checker.finish()
    stopped = bench.node.chain_manager.stop()
    assert codes(bench.submit(second, first)) == [Wait.BUSY] * 2
    assert (len(bench.checker), len(bench.writer)) == (0, 1)
    assert not has_result(stopped)
    bench.writer.step()
    assert codes(begun) == [CONNECTED]
    assert has_result(stopped)
    assert bench.node.tip == first.header.hash


def test_a_stopped_chain_manager_waits_for_a_sender_that_went_away(bench: Bench, chain: ChainBuilder) -> None:
    block = chain.block()
    begun = bench.to_the_work(block)
    bench.checker.finish()
    begun.cancel()
    with pytest.raises(CancelledError):
        result_of(begun)
    stopped = bench.node.chain_manager.stop()
    assert not has_result(stopped)
    bench.finish()
    assert has_result(stopped)
    assert bench.node.tip == block.header.hash


def test_a_stopped_chain_manager_keeps_no_block_that_turns_out_early(bench: Bench, chain: ChainBuilder) -> None:
    early = chain.block(slot=LATE + bench.node.chain.params.drift_slots + 1)
    begun = bench.to_the_work(early)
    stopped = bench.node.chain_manager.stop()
    bench.finish()
    assert codes(begun) == [Wait.BUSY]
    assert has_result(stopped)
    assert bench.node.clock.getDelayedCalls() == []


# One commit, told in order


@define
class Onlooker:
    """A listener that looks at the disk when it is told."""

    look: Callable[[ChainChange], None]

    def chain_changed(self, change: ChainChange) -> None:
        self.look(change)


def test_a_batch_is_one_commit_and_one_change(bench: Bench, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..3]").values())
    outcomes = bench.submit(*blocks)
    bench.checker.finish()
    assert len(bench.writer) == 1
    bench.finish()
    assert codes(outcomes) == [CONNECTED] * 3
    (change,) = bench.node.witness.changes
    assert [applied.point.hash for applied in change.applied] == [block.header.hash for block in blocks]


def test_listeners_are_told_after_the_commit(node: Node, chain: ChainBuilder) -> None:
    seen = []
    node.chain_manager.subscribe(
        Onlooker(lambda change: seen.append((node.chain_manager.reader.tip(), node.chain_manager.tip, change.tip)))
    )
    for block in chain.chain("genesis: b[1..3]").values():
        node.submit(block)
        assert seen.pop() == (chain.point_after(block),) * 3
    assert seen == []


def test_listeners_are_told_before_the_sender(node: Node, chain: ChainBuilder) -> None:
    told: list[str] = []
    node.chain_manager.subscribe(Onlooker(lambda change: told.append("listener")))
    node.chain_manager.submit_blocks([chain.block().wire()]).addCallback(lambda outcomes: told.append("sender"))
    assert told == ["listener", "sender"]


def test_listeners_are_told_in_the_order_of_their_subscription(node: Node, chain: ChainBuilder) -> None:
    told: list[int] = []
    for number in range(5):
        node.chain_manager.subscribe(Onlooker(lambda change, number=number: told.append(number)))  # type: ignore[misc]
    node.submit(chain.block())
    assert told == [0, 1, 2, 3, 4]


def test_no_batch_is_written_before_the_listeners_have_heard_of_the_one_before(
    bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old blocks are deleted up to the evaluated height, which until then may be that of undone blocks."""
    monkeypatch.setattr(pending_change, "MAX_LISTED", 0)
    transfer = chain.transfer("alice", "bob", 5)
    bench.node.send(transfer)
    bench.finish()
    own = chain.block(transfers=[transfer])
    b = chain.chain("genesis: c[1..2]")
    one, two = bench.to_the_work(own), bench.to_the_work(b["c1"], b["c2"])
    bench.checker.finish()
    bench.writer.step()
    assert (len(bench.writer), bench.node.witness.changes) == (1, []), "the transfers of the mempool are looked up"
    assert not has_result(one)
    bench.writer.step()
    assert (codes(one), bench.node.chainstate.tip.height) == ([CONNECTED], 1)
    assert len(bench.writer) == 1
    bench.writer.finish()
    assert [change.tip.height for change in bench.node.witness.changes] == [1, 2]
    assert codes(two)[-1] == CONNECTED


def test_a_change_is_published_even_if_the_disk_cannot_complete_it(
    bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch, expected_errors: ExpectedErrors
) -> None:
    monkeypatch.setattr(pending_change, "MAX_LISTED", 0)
    outcomes = bench.to_the_work(block := chain.block(transfers=[chain.transfer("alice", "bob", 5)]))
    bench.checker.finish()
    bench.writer.step()
    bench.writer.fail(apsw.IOError("disk I/O error"))
    assert codes(outcomes) == [CONNECTED]
    assert bench.node.witness.changes[-1].tip == chain.point_after(block) == bench.node.chain_manager.tip
    assert len(expected_errors(apsw.Error)) == 1


def test_a_failing_listener_does_not_silence_the_next(
    node: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    told: list[ChainChange] = []

    def fail(change: ChainChange) -> None:
        raise ZeroDivisionError("a bug in a listener")

    node.chain_manager.subscribe(Onlooker(fail))
    node.chain_manager.subscribe(Onlooker(told.append))
    first, second = chain.chain("genesis: b[1..2]").values()
    assert node.submit(first) == [CONNECTED]
    assert node.submit(second) == [CONNECTED]
    assert [change.tip.height for change in told] == [1, 2]
    assert len(expected_errors(ZeroDivisionError)) == 2


def test_side_branches_are_no_news(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b[1..3]\ngenesis: c1\nc1 is at slot 1\nc1: c2")
    node.submit(b["b1"], b["b2"], b["b3"])
    told = len(node.witness.changes)
    assert node.submit(b["c1"], b["c2"]) == [SIDE, SIDE]
    assert len(node.witness.changes) == told


def test_nothing_at_all_may_be_handed_in(node: Node) -> None:
    assert node.submit() == []


# Senders that go away, disks that fail


def test_a_sender_that_goes_away_does_not_stop_the_work(bench: Bench, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..2]").values())
    for pieces, block in enumerate(blocks):
        outcomes = bench.submit(block)
        for _ in range(2 * pieces):
            bench.checker.step()
        outcomes.cancel()
        with pytest.raises(CancelledError):
            result_of(outcomes)
        bench.finish()
        assert bench.node.tip == block.header.hash
    assert [change.tip.height for change in bench.node.witness.changes] == [1, 2]


def test_a_sender_that_goes_away_from_one_block_does_not_stop_the_work(bench: Bench, chain: ChainBuilder) -> None:
    block = chain.block()
    standing = Deferred.fromCoroutine(bench.node.chain_manager.submit_block(block.wire()))
    standing.cancel()
    with pytest.raises(CancelledError):
        result_of(standing)
    bench.finish()
    assert bench.node.tip == block.header.hash


class FullDisk(InlineWorker):
    """A writer's thread whose disk is full until there is room again."""

    def __init__(self) -> None:
        self.full = False

    def run(self, function, *args, **kwargs):  # type: ignore[no-untyped-def]
        def fail() -> None:
            raise apsw.FullError("database or disk is full")

        return super().run(*((fail,) if self.full else (function, *args)), **kwargs)


def test_an_error_of_ours_makes_no_block_invalid(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = FullDisk()
    node = make_node(writer=disk)
    blocks = list(chain.chain("genesis: b[1..3]").values())
    disk.full = True
    for _ in range(2):
        with pytest.raises(apsw.FullError, match="full"):
            node.submit(*blocks)
    assert node.chain_manager.tip.height == 0
    assert node.witness.changes == []
    disk.full = False
    assert node.submit(*blocks) == [CONNECTED] * 3


def test_a_child_of_a_block_that_could_not_be_written(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk, checker = FullDisk(), Stepped()
    bench = Bench(make_node(writer=disk, checker=checker, threads=1), checker, Stepped())
    first, second = chain.chain("genesis: b[1..2]").values()
    one, two = bench.to_the_work(first), bench.to_the_work(second)
    disk.full = True
    bench.checker.step(0)
    with pytest.raises(apsw.FullError, match="full"):
        result_of(one)
    disk.full = False
    bench.finish()
    assert codes(two) == [Wait.ORPHAN]
    outcomes = bench.submit(first, second)
    bench.finish()
    assert codes(outcomes) == [CONNECTED, CONNECTED]


def test_an_error_after_the_sender_went_away_is_logged(
    make_node: MakeNode, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    disk, checker = FullDisk(), Stepped()
    node = make_node(writer=disk, checker=checker)
    outcomes = node.chain_manager.submit_blocks([chain.block().wire()])
    outcomes.cancel()
    with pytest.raises(CancelledError):
        result_of(outcomes)
    disk.full = True
    checker.finish()
    assert len(expected_errors(apsw.Error)) == 1


def test_a_held_block_that_cannot_be_written_is_logged(
    make_node: MakeNode, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    disk = FullDisk()
    node = make_node(writer=disk)
    block = chain.block(slot=LATE + node.chain.params.drift_slots + 1)
    assert node.submit(block) == [Wait.EARLY]
    disk.full = True
    node.clock.advance(1)
    assert len(expected_errors(apsw.Error)) == 1
    disk.full = False
    assert node.submit(block) == [CONNECTED]
