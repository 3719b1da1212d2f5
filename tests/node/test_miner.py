"""Participation: what is worked on, when it is begun anew, and how it ends (docs/protocol.md 6, docs/operations.md)."""

from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest
from attrs import define, evolve, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, capturedLogs

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transition import genesis_point
from svcd.node.block_template import EXPIRY_MARGIN_SECONDS
from svcd.node.changes import THIS_NODE
from svcd.node.miner import Miner, MinerSettings, next_slot
from svcd.node.work_rate import expected_attempts
from svcd.node.work_search import WorkSearch
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of, with_producers
from tests.node.bench import Node, Stepped, late_clock
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]

MINUTES = evolve(TEST_PARAMS, slot_seconds=60)
"""Slots long enough to watch what happens within one."""
DRIFT = MINUTES.drift_slots


class Hands(Stepped):
    """Threads that search when the test says so, and not at the lowest priority: they are the test's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.searches: list[WorkSearch] = []
        self.shares: list[tuple[int, int]] = []

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        search = function.__self__
        assert (function, kwargs) == (search.run, {"at_low_priority": True})
        self.searches.append(search)
        self.shares.append(args)
        return super().run(search.run, *args)


@define
class Bench:
    """A producer with its hands, and a slot of a minute."""

    node: Node
    hands: Hands
    chain: ChainBuilder
    producer: Miner
    may: bool = True
    randoms: list[int] = field(factory=list)

    @property
    def clock(self) -> Clock:
        return self.node.clock

    def search(self) -> WorkSearch:
        """What is being worked on."""
        assert len(self.hands), "nothing is being worked on"
        return self.hands.searches[-1]

    def pay(self, nonce: int, sender: str = "alice") -> bytes:
        """Send a transfer; gives its txid."""
        transfer = self.chain.transfer(sender, "bob", 5, nonce=nonce, timestamp=int(self.clock.seconds() * 1000))
        assert self.node.send(transfer) == "accepted"
        return transfer.txid

    def stop(self) -> Deferred[None]:
        return self.producer.stopService()

    def works(self) -> bool:
        """Whether blocks are being made."""
        return self.producer._loop is not None


def going_on(search: WorkSearch) -> bool:
    """Whether a search that ends later in a test has not ended yet."""
    return not search.ended.is_set()


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(make_node: MakeNode) -> Iterator[MakeBench]:
    benches: list[Bench] = []

    def make(*, params: NetworkParams = MINUTES, workers: int = 1, enabled: bool = True, **setting: Any) -> Bench:
        node = make_node(params=params, clock=late_clock(params), **setting)
        hands = Hands()
        made: list[Bench] = []

        def random(size: int) -> bytes:
            made[0].randoms.append(size)
            return bytes(size - 1) + bytes([len(made[0].randoms)])

        settings = MinerSettings(
            seed=key_of("p").seed,
            threads=hands,
            workers=workers,
            random=random,
            may_produce=lambda: made[0].may,
            enabled=enabled,
        )
        producer = Miner(node, settings)
        made.append(Bench(node, hands, ChainBuilder(params), producer))
        benches.append(made[0])
        return made[0]

    yield make
    for bench in benches:
        stopped = bench.stop()
        bench.hands.finish()
        assert has_result(stopped)
        # The disk is rid of what the last block took.
        bench.clock.advance(0)
        assert bench.clock.getDelayedCalls() == []


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


# Making blocks


def test_it_works_on_the_tip_at_the_present_slot(bench: Bench) -> None:
    bench.producer.startService()
    assert bench.works()
    header = bench.search().header
    assert (header.height, header.slot) == (1, 50_000)
    assert header.parent_hash == MINUTES.genesis_hash
    assert header.producer_key == key_of("p").public
    assert bench.randoms == [8], "where it begins is random"


def test_a_found_block_becomes_the_tip(bench: Bench) -> None:
    txid = bench.pay(0)
    bench.producer.startService()
    bench.hands.step()
    (change,) = bench.node.witness.changes
    assert change.tip.height == 1
    assert change.applied[0].txids == (txid,)
    assert len(bench.node.mempool) == 0
    bench.node.check()


def test_after_a_block_it_works_on_the_next_slot_at_once(bench: Bench) -> None:
    bench.producer.startService()
    for ahead in range(DRIFT + 1):
        assert (bench.search().header.height, bench.search().header.slot) == (ahead + 1, 50_000 + ahead)
        bench.hands.step()
    assert bench.node.chain_manager.tip.slot == 50_000 + DRIFT


def test_it_makes_no_block_that_other_nodes_would_hold(bench: Bench) -> None:
    bench.node.submit(bench.chain.block(slot=50_000 + DRIFT))
    bench.producer.startService()
    bench.clock.advance(59.9)
    assert len(bench.hands) == 0
    bench.clock.advance(0.1)
    assert bench.search().header.slot == 50_000 + DRIFT + 1
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 2


def test_it_works_soon_after_the_clock_was_set_right(bench: Bench) -> None:
    """A computer without a clock of its own starts with an old time, and learns the right one a little later."""
    bench.node.submit(bench.chain.block(slot=50_000))
    right = bench.clock.seconds
    setattr(bench.clock, "unix_seconds", lambda: right() - 3_600)  # noqa: B010
    bench.producer.startService()
    bench.clock.advance(10)
    assert len(bench.hands) == 0
    setattr(bench.clock, "unix_seconds", right)  # noqa: B010
    bench.clock.advance(5)
    assert bench.search().header.slot == 50_001


@pytest.mark.parametrize(
    ("present", "tip", "slot"),
    [(9, 3, 9), (9, 8, 9), (9, 9, 10), (9, 13, 14), (9, 14, None), (9, 99, None), (-6, 0, None), (-4, 0, 1)],
)
def test_next_slot(present: int, tip: int, slot: int | None) -> None:
    point = evolve(genesis_point(MINUTES), slot=tip)
    for moment in (MINUTES.slot_time(present), MINUTES.slot_time(present + 1) - 1):
        assert next_slot(MINUTES, point, moment) == slot


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_its_threads_share_the_nonces(make_bench: MakeBench, workers: int) -> None:
    bench = make_bench(workers=workers)
    bench.producer.startService()
    assert bench.hands.shares == [(first, workers) for first in range(workers)]
    assert len({id(search) for search in bench.hands.searches}) == 1
    assert bench.randoms == [8]
    for _ in range(workers):
        bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1


def test_it_counts_its_attempts_and_says_how_fast_they_are(bench: Bench) -> None:
    miner = bench.producer
    assert miner.work_rate is None
    miner.startService()
    rate = miner.work_rate
    assert rate is not None
    assert (rate.height, rate.attempts_per_second) == (1, 0.0)
    assert rate.attempts_expected == expected_attempts(bench.search().header)
    miner.count_attempts()
    bench.hands.step()
    assert (found := miner.attempts) == bench.hands.searches[0].attempts > 0
    bench.clock.advance(4)
    miner.count_attempts()
    rate = miner.work_rate
    assert rate is not None
    assert (rate.height, rate.attempts_per_second) == (2, found / 4)
    bench.stop()
    bench.hands.finish()
    assert miner.work_rate is None


def test_it_has_no_rate_while_no_block_may_be_made(bench: Bench) -> None:
    bench.producer.startService()
    bench.may = False
    bench.hands.step()
    assert bench.producer.work_rate is None
    bench.producer.count_attempts()


def test_the_source_of_its_blocks_is_this_node(bench: Bench) -> None:
    bench.producer.startService()
    bench.hands.step()
    assert [change.source for change in bench.node.witness.changes] == [THIS_NODE]


# On a network with a list of producers


def listed(producers: str, *changes: tuple[int, str]) -> NetworkParams:
    return evolve(with_producers(producers, *changes), slot_seconds=60)


def test_after_its_own_block_it_waits_for_one_of_another_producer(make_bench: MakeBench) -> None:
    bench = make_bench(params=listed("pqr"))
    bench.producer.startService()
    assert bench.producer.waits_for == ""
    own = bench.chain.block(slot=49_000, producer="p")
    assert bench.node.submit(own) == [CONNECTED]
    bench.hands.finish()
    assert bench.producer.waits_for == (
        f"the producer {bench.chain.address('p')} made the block before height 2: another one must make the block there"
    )
    bench.clock.advance(30)
    assert len(bench.hands) == 0
    # The block of another one ends the wait at once.
    assert bench.node.submit(bench.chain.block(own, producer="q")) == [CONNECTED]
    assert bench.search().header.height == 3
    assert bench.producer.waits_for == ""


def test_a_producer_that_is_switched_off_waits_for_nobody(make_bench: MakeBench) -> None:
    bench = make_bench(params=listed("qr"))
    bench.producer.startService()
    assert "is not one of the 2 that may make the block at height 1" in bench.producer.waits_for
    assert has_result(bench.producer.switch(False))
    assert bench.producer.waits_for == ""


def test_it_makes_no_block_while_its_address_is_not_on_the_list(make_bench: MakeBench) -> None:
    bench = make_bench(params=listed("qr", (3, "pq"), (4, "qr"), (6, "pqr")))
    own = bench.chain.address("p")
    parent: Block | None = None
    with capturedLogs() as logged:
        bench.producer.startService()
        for height, producer in enumerate("rqprqr", 1):
            if height in (3, 6):
                assert bench.producer.waits_for == ""
                assert bench.search().header.height == height
            else:
                assert len(bench.hands) == 0
                assert bench.producer.waits_for == (
                    f"the producer {own} is not one of the 2 that may make the block at height {height}; "
                    f"it may again from height {3 if height < 3 else 6} on"
                )
            parent = bench.chain.block(parent, producer=producer)
            working = len(bench.hands)
            assert bench.node.submit(parent) == [CONNECTED]
            for _ in range(working):
                bench.hands.step()
    said = [event["log_format"] for event in logged if event["log_level"] >= LogLevel.info]
    begins, ends = "no blocks are made: {why}", "blocks are made again: the list of producers has this node's address"
    assert [line for line in said if line in (begins, ends)] == [begins, ends, begins, ends]


# Beginning anew


def test_a_new_tip_ends_the_search(bench: Bench) -> None:
    bench.producer.startService()
    old = bench.search()
    block = bench.chain.block(slot=49_000)
    assert bench.node.submit(block) == [CONNECTED]
    assert old.ended.is_set()
    bench.hands.step()
    assert bench.search().header.parent_hash == block.header.hash
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 2


def test_a_side_branch_does_not_end_the_search(bench: Bench) -> None:
    bench.node.submit(*bench.chain.chain("genesis: b[1..3]").values())
    bench.producer.startService()
    bench.node.submit(bench.chain.block(producer="q"))
    assert not bench.search().ended.is_set()


def test_a_new_slot_ends_the_search(bench: Bench) -> None:
    bench.producer.startService()
    old = bench.search()
    bench.clock.advance(59.9)
    assert going_on(old)
    bench.clock.advance(0.2)
    assert old.ended.is_set()
    bench.hands.step()
    assert (bench.search().header.height, bench.search().header.slot) == (1, 50_001)


def test_a_slot_ahead_is_kept_until_it_is_over(bench: Bench) -> None:
    bench.producer.startService()
    bench.hands.step()
    search = bench.search()
    assert search.header.slot == 50_001
    bench.clock.advance(60)
    bench.clock.advance(59.9)
    assert going_on(search)
    bench.clock.advance(0.2)
    assert search.ended.is_set()
    bench.hands.step()
    assert (bench.search().header.height, bench.search().header.slot) == (2, 50_002)


def test_new_transfers_do_not_change_a_slot_ahead(bench: Bench) -> None:
    bench.producer.startService()
    bench.hands.step()
    bench.pay(0)
    bench.clock.advance(5)
    bench.hands.step()
    assert (bench.search().header.slot, bench.search().header.transaction_count) == (50_001, 1)


def test_without_new_transfers_the_search_goes_on(bench: Bench) -> None:
    bench.pay(0)
    bench.producer.startService()
    for _ in range(590):
        bench.clock.advance(0.1)
    assert not bench.search().ended.is_set()


def test_new_transfers_are_taken_up_after_five_seconds(bench: Bench) -> None:
    bench.producer.startService()
    old = bench.search()
    bench.clock.advance(1)
    bench.pay(0)
    bench.clock.advance(3.9)
    assert going_on(old)
    bench.clock.advance(0.2)
    assert old.ended.is_set()
    bench.hands.step()
    assert bench.search().header.transaction_count == 1
    assert bench.search().header.slot == old.header.slot


def test_transfers_are_taken_up_at_most_every_five_seconds(bench: Bench) -> None:
    bench.producer.startService()
    for nonce in range(12):
        bench.clock.advance(1)
        bench.pay(nonce)
        if bench.search().ended.is_set():
            bench.hands.step()
    assert len(bench.hands.searches) == 3
    assert bench.search().header.transaction_count == 9, "the tenth came when the template had just been renewed"


def test_the_threads_search_on_while_the_next_template_is_assembled(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    writer.step()
    search = bench.search()
    bench.pay(0)
    bench.clock.advance(5)
    bench.clock.advance(20)
    assert len(writer) == 1
    assert not search.ended.is_set()
    writer.step()
    assert search.ended.is_set()
    bench.hands.step()
    assert bench.search().header.transaction_count == 1
    assert len(writer) == 0


def test_a_block_that_is_found_while_the_next_template_is_assembled(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    writer.step()
    bench.pay(0)
    bench.clock.advance(5)
    bench.hands.step()
    writer.finish()
    assert bench.node.chain_manager.tip.height == 1
    header = bench.search().header
    assert (header.height, header.slot, header.transaction_count) == (2, 50_001, 1)


def test_a_tip_that_comes_while_the_next_template_is_assembled(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    writer.step()
    bench.pay(0)
    bench.clock.advance(5)
    block = bench.chain.block()
    bench.node.chain_manager.submit_blocks([block.wire()])
    writer.finish()
    bench.hands.step()
    writer.finish()
    assert bench.search().header.parent_hash == block.header.hash


def test_a_renewal_that_fails_is_no_reason_to_give_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, expected_errors: ExpectedErrors
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError

    bench.producer.startService()
    bench.pay(0)
    monkeypatch.setattr(bench.node.chainstate, "view", fail)
    bench.clock.advance(5)
    bench.hands.step()
    assert len(expected_errors(MemoryError)) == 1
    monkeypatch.undo()
    bench.clock.advance(5)
    assert bench.search().header.transaction_count == 1


@pytest.mark.parametrize("fails", [False, True])
def test_stopping_while_the_next_template_is_assembled(
    make_bench: MakeBench, expected_errors: ExpectedErrors, fails: bool
) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    writer.step()
    bench.pay(0)
    bench.clock.advance(5)
    stopped = bench.stop()
    bench.hands.finish()
    assert not has_result(stopped)
    if fails:
        writer.fail(MemoryError())
        assert len(expected_errors(MemoryError)) == 1
    else:
        writer.step()
    assert has_result(stopped)
    assert bench.clock.getDelayedCalls() == []


def test_a_transfer_that_comes_during_the_assembly_has_to_wait_as_well(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    bench.producer.pool_changed([], [])
    writer.step()
    search = bench.search()
    assert going_on(search)
    bench.clock.advance(4.9)
    assert (going_on(search), len(writer)) == (True, 0)
    bench.clock.advance(0.1)
    writer.step()
    assert search.ended.is_set()
    bench.hands.step()


def test_a_transfer_that_comes_late_is_taken_up_soon(bench: Bench) -> None:
    bench.producer.startService()
    for _ in range(20):
        bench.clock.advance(1)
    assert not bench.search().ended.is_set()
    bench.pay(0)
    bench.clock.advance(1)
    assert bench.search().ended.is_set()


def test_a_payment_that_is_about_to_expire_is_only_worked_on_if_a_block_had_it(bench: Bench) -> None:
    """An undone block must not make payments void that merchants have seen in the chain."""
    last = MINUTES.slot_time(50_000) - 1000 * MINUTES.transaction_past_seconds + 1000 * EXPIRY_MARGIN_SECONDS
    paid, late = (bench.chain.transfer(name, "carol", COIN, timestamp=last) for name in ("alice", "bob"))
    bench.node.send(late)
    bench.producer.startService()
    assert bench.search().header.transaction_count == 1
    bench.node.submit(bench.chain.block(slot=50_000, transfers=[paid]))
    bench.clock.advance(120)
    bench.hands.step()
    assert bench.search().header.transaction_count == 0
    empty = bench.chain.block(slot=49_999)
    bench.node.submit(empty, bench.chain.block(empty, slot=50_001))
    bench.node.settle()
    bench.hands.step()
    assert bench.search().header.height == 3
    assert bench.search().header.transaction_count == 1
    bench.hands.step()
    assert bench.node.store.transaction(paid.txid, bench.node.chain.params) is not None
    assert bench.node.mempool.get(late.txid) is not None


# Permission


def test_it_makes_no_blocks_until_it_may(bench: Bench) -> None:
    bench.may = False
    bench.producer.startService()
    for _ in range(3):
        bench.clock.advance(4.9)
        assert len(bench.hands) == 0
    bench.may = True
    bench.clock.advance(5)
    assert bench.search().header.height == 1


def test_it_asks_again_for_every_block(bench: Bench) -> None:
    bench.producer.startService()
    bench.may = False
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1
    bench.clock.advance(120)
    assert len(bench.hands) == 0


# Stopping


def test_stopping_waits_until_the_threads_have_put_down_their_work(make_bench: MakeBench) -> None:
    bench = make_bench(workers=2)
    bench.producer.startService()
    stopped = bench.stop()
    assert bench.search().ended.is_set()
    bench.hands.step()
    assert not has_result(stopped)
    bench.hands.step()
    assert has_result(stopped)
    assert not bench.works()
    assert bench.node.chain_manager.tip.height == 0
    assert bench.clock.getDelayedCalls() == []


def test_stopping_while_it_waits_for_a_slot(bench: Bench) -> None:
    bench.node.submit(bench.chain.block(slot=50_000 + DRIFT))
    bench.producer.startService()
    assert len(bench.clock.getDelayedCalls()) == 1
    assert has_result(bench.stop())
    assert bench.clock.getDelayedCalls() == []


def test_stopping_while_a_block_is_being_assembled(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    stopped = bench.stop()
    assert not has_result(stopped)
    writer.step()
    assert has_result(stopped)
    assert bench.hands.searches == []


def test_a_block_that_is_found_is_handed_in_before_it_stops(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    writer.step()
    bench.hands.step()
    stopped = bench.stop()
    assert not has_result(stopped)
    writer.finish()
    assert has_result(stopped)
    assert bench.node.chain_manager.tip.height == 1


def test_a_stop_that_is_cut_off_is_no_failure(make_bench: MakeBench) -> None:
    """The writer's thread may be busy beyond the deadline of the stop; no block is tried again then."""
    bench = make_bench(writer=Stepped())
    bench.producer.startService()
    stopped = bench.stop()
    stopped.cancel()
    with pytest.raises(CancelledError):
        result_of(stopped)
    assert not bench.works()
    assert bench.clock.getDelayedCalls() == []


def test_stopping_what_never_started(bench: Bench) -> None:
    assert not bench.works()
    assert has_result(bench.stop())


def test_stopping_twice_at_once(bench: Bench) -> None:
    bench.producer.startService()
    both = [bench.stop(), bench.stop()]
    bench.hands.finish()
    assert [result_of(stopped) for stopped in both] == [None, None]


def test_starting_twice_is_starting_once(bench: Bench) -> None:
    bench.producer.startService()
    bench.producer.startService()
    assert len(bench.hands) == 1


def test_a_restarted_miner_makes_blocks(bench: Bench) -> None:
    bench.producer.startService()
    stopped = bench.stop()
    bench.hands.finish()
    assert has_result(stopped)
    bench.producer.startService()
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1


def test_switched_off_and_on_while_it_runs(make_bench: MakeBench) -> None:
    bench = make_bench(enabled=False)
    service = bench.producer
    service.startService()
    assert not bench.works()
    assert has_result(service.switch(True))
    assert (service.enabled, bench.works(), len(bench.hands)) == (True, True, 1)
    off = service.switch(False)
    assert (service.enabled, has_result(off)) == (False, False)
    bench.hands.finish()
    assert has_result(off)
    assert not bench.works()
    assert has_result(service.stopService())


def test_switched_off_and_at_once_on_again_it_goes_on(bench: Bench) -> None:
    service = bench.producer
    service.startService()
    off, on = service.switch(False), service.switch(True)
    assert not has_result(on)
    bench.hands.finish()
    assert has_result(off)
    assert has_result(on)
    assert bench.works()
    stopped = service.stopService()
    bench.hands.finish()
    assert has_result(stopped)


def test_switched_on_before_it_runs_or_after_it_makes_nothing(make_bench: MakeBench) -> None:
    bench = make_bench(enabled=False)
    service = bench.producer
    assert has_result(service.switch(True))
    assert not bench.works()
    service.startService()
    stopped = service.stopService()
    bench.hands.finish()
    assert has_result(stopped)
    assert has_result(service.switch(True))
    assert not bench.works()


# What goes wrong


def test_a_refusal_is_no_reason_to_give_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(data: Block, *, source: str) -> None:
        raise RuleViolation(Refusal.NONCE, "a bug in the assembly")

    bench.producer.startService()
    monkeypatch.setattr(bench.node.chain_manager, "submit_block", refuse)
    bench.hands.step()
    monkeypatch.undo()
    assert len(bench.hands) == 0
    bench.clock.advance(4.9)
    assert len(bench.hands) == 0
    bench.clock.advance(0.1)
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1


def test_a_full_disk_is_no_reason_to_give_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, expected_errors: ExpectedErrors
) -> None:
    def full(*args: object) -> None:
        raise apsw.FullError("database or disk is full")

    bench.producer.startService()
    monkeypatch.setattr(bench.node.chainstate, "connect", full)
    bench.hands.step()
    monkeypatch.undo()
    assert len(expected_errors(apsw.Error)) == 1
    bench.clock.advance(5)
    bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1


def test_a_thread_that_fails_ends_the_search_of_the_others(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, expected_errors: ExpectedErrors
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError

    bench = make_bench(workers=2)
    bench.producer.startService()
    old = bench.search()
    monkeypatch.setattr("svcd.node.work_search.work_value", fail)
    bench.hands.step()
    monkeypatch.undo()
    assert len(expected_errors()) == 1
    assert old.ended.is_set()
    bench.hands.step()
    bench.clock.advance(5)
    for _ in range(2):
        bench.hands.step()
    assert bench.node.chain_manager.tip.height == 1


def test_a_block_that_comes_during_the_assembly_ends_the_search(make_bench: MakeBench) -> None:
    writer = Stepped()
    bench = make_bench(writer=writer)
    bench.producer.startService()
    block = bench.chain.block()
    bench.node.chain_manager.submit_blocks([block.wire()])
    writer.finish()
    assert [search.ended.is_set() for search in bench.hands.searches] == [True]
    bench.hands.step()
    writer.finish()
    assert bench.search().header.parent_hash == block.header.hash
