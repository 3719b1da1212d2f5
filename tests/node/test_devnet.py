"""Devnet at the operator's word: blocks at once, reorganisations, coins (docs/operator-api.md)."""

from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.address import encode_address, key_hash
from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.signature import public_key_of
from svcd.node.devnet import Devnet
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.node.bench import Node, Stepped, late_clock
from tests.node.conftest import MakeNode
from tests.support import has_result, result_of

T = TypeVar("T")

FAUCET = encode_address(key_hash(public_key_of(FAUCET_SEED)), "svct")
PARAMS = evolve(
    TEST_PARAMS,
    allocations=((FAUCET, 1000 * COIN), *TEST_PARAMS.allocations),
    transaction_future_seconds=DEVNET.transaction_future_seconds,
)
"""Blocks on demand lie far behind the clock, and so behind the transfers that they hold."""

SEED = key_of("p").seed


def now(node: Node, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that waits for no time to pass."""
    done = Deferred.fromCoroutine(work)
    node.clock.advance(0)
    return result_of(done)


def refusal(node: Node, work: Coroutine[Any, Any, object]) -> RuleViolation:
    with pytest.raises(RuleViolation) as refused:
        now(node, work)
    return refused.value


class Bench:
    """A node far behind the clock, and the operator's word."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.chain = ChainBuilder(PARAMS)
        numbers = count(1)
        self.demand = Devnet(node, lambda size: (997 * next(numbers)).to_bytes(size, "big"))

    def mine(self, number: int) -> list[bytes]:
        return now(self.node, self.demand.mine(number, SEED))

    def reorganise(self, depth: int, *, drop: bool = False) -> list[bytes]:
        """The new blocks; what comes back has come back."""
        work = Deferred.fromCoroutine(self.demand.reorganise(depth, SEED, drop_transactions=drop))
        while not has_result(work):
            self.node.clock.advance(0)
        self.node.settle()
        return result_of(work)

    def hashes(self) -> list[bytes]:
        """The canonical chain without the genesis."""
        blocks = [self.node.store.canonical(height) for height in range(1, self.node.chain_manager.tip.height + 1)]
        return [block.point.hash for block in blocks if block]

    def slots(self) -> list[int]:
        blocks = [self.node.store.canonical(height) for height in range(1, self.node.chain_manager.tip.height + 1)]
        return [block.point.slot for block in blocks if block]

    def pay(self, name: str = "dave", amount: int = 5) -> bytes:
        return now(self.node, self.demand.faucet(address_of(name, "svct"), amount))


@pytest.fixture
def bench(make_node: MakeNode) -> Bench:
    return Bench(make_node(params=PARAMS))


# Blocks


@pytest.mark.parametrize("number", [1, 2, 16, 17, 40])
def test_blocks_come_at_once(bench: Bench, number: int) -> None:
    hashes = bench.mine(number)
    assert len(hashes) == number
    assert bench.hashes() == hashes
    first = bench.slots()[0]
    assert bench.slots() == [first + 2 * more for more in range(number)], "the average distance"
    bench.node.check()


def test_blocks_stand_on_the_tip(bench: Bench) -> None:
    first, second = bench.mine(3), bench.mine(2)
    assert bench.hashes() == first + second


def test_blocks_go_through_the_front_door(bench: Bench) -> None:
    bench.mine(20)
    assert [len(change.applied) for change in bench.node.witness.changes] == [16, 4]
    assert all(change.undone == () for change in bench.node.witness.changes)


def test_blocks_are_signed_and_paid_by_the_key_that_is_named(bench: Bench) -> None:
    now(bench.node, bench.demand.mine(2, key_of("dave").seed))
    account = bench.node.store.account(key_of("dave").hash)
    assert account is not None
    assert account.balance == 2 * PARAMS.initial_reward


def test_blocks_hold_what_waits(bench: Bench) -> None:
    txids = [bench.pay(amount=amount) for amount in (1, 2, 3)]
    (block_hash,) = bench.mine(1)
    stored = bench.node.store.stored(block_hash)
    assert stored is not None
    held = bench.node.store.block(stored, PARAMS).transfers
    assert [transfer.txid for transfer in held] == txids
    assert len(bench.node.mempool) == 0


@pytest.mark.parametrize("left", [599, 600])
def test_blocks_hold_what_lasts_ten_minutes_on_their_own_clock(bench: Bench, left: int) -> None:
    """That is hours behind the node's, by which the transfer has expired long ago."""
    first = PARAMS.transaction_past_seconds - left
    transfer = bench.chain.transfer("alice", "bob", COIN, timestamp=PARAMS.genesis_time)
    bench.node.clock.advance(78_000)
    bench.node.submit(bench.chain.block(slot=first - PARAMS.slots_per_block))
    assert bench.node.send(transfer) == "accepted"
    bench.mine(1)
    assert bench.slots()[-1] == first
    assert (bench.node.store.transaction(transfer.txid, bench.node.chain.params) is not None) == (left == 600)


def test_faucet_transfers_beyond_one_block_go_into_the_next(make_node: MakeNode) -> None:
    params = evolve(PARAMS, max_block_transactions=2)
    bench = Bench(make_node(params=params))
    bench.chain = ChainBuilder(params)
    txids = [bench.pay(amount=amount) for amount in range(1, 6)]
    bench.mine(4)
    places = [bench.node.store.transaction(txid, bench.node.chain.params) for txid in txids]
    assert [place.height for place in places if place] == [1, 1, 2, 2, 3]


def at(slot: int) -> Clock:
    clock = Clock()
    clock.advance(PARAMS.slot_time(slot) / 1000)
    return clock


def test_blocks_are_of_today(make_node: MakeNode) -> None:
    """The genesis of the built-in devnet is as old as its frozen rules."""
    now, lag = 30 * 86_400, 5_400
    bench = Bench(make_node(params=PARAMS, clock=at(now)))
    bench.mine(40)
    assert bench.slots() == [now - lag - 2 * left for left in range(39, -1, -1)]
    bench.node.clock.advance(600)
    bench.mine(3)
    assert bench.slots()[-3:] == [now - lag + 2, now - lag + 4, now - lag + 6], "no gap, which would be an outage"
    bench.node.clock.advance(86_400)
    bench.mine(1)
    assert bench.slots()[-1] == now + 600 + 86_400 - lag
    bench.node.check()


def test_blocks_leave_room_for_those_that_the_next_requests_ask_for(make_node: MakeNode) -> None:
    present = 30 * 86_400
    bench = Bench(make_node(params=PARAMS, clock=at(present)))
    for following in (80, 40, 0):
        now(bench.node, bench.demand.mine(40, SEED, following))
    assert bench.slots() == [present - 5_400 - 2 * left for left in range(119, -1, -1)]


def test_more_blocks_than_fit_before_the_present_begin_at_the_genesis(make_node: MakeNode) -> None:
    bench = Bench(make_node(params=PARAMS, clock=at(50_000)))
    now(bench.node, bench.demand.mine(2, SEED, 1_000_000))
    assert bench.slots() == [2, 4]


def test_blocks_are_never_later_than_the_clock(make_node: MakeNode) -> None:
    bench = Bench(make_node(params=PARAMS, clock=at(9)))
    bench.mine(5)
    assert bench.slots() == [2, 4, 6, 8, 9]
    refused = refusal(bench.node, bench.demand.mine(1, SEED))
    assert refused.code is Refusal.SLOT
    assert refused.detail == "the chain has caught up with the clock: try again in 1 s"
    bench.node.clock.advance(1)
    bench.mine(1)
    assert bench.slots()[-1] == 10


def test_blocks_that_come_by_themselves_are_dated_back(make_node: MakeNode) -> None:
    """So there is room for blocks that are asked for, and the dates keep their distance from the clock."""
    present, lag = 30 * 86_400, 5_400
    bench = Bench(make_node(params=PARAMS, clock=at(present)))
    for seconds in (0, 10, 10):
        bench.node.clock.advance(seconds)
        assert len(now(bench.node, bench.demand.mine_now(SEED))) == 1
    begun = present - lag
    assert bench.slots() == [begun, begun + 10, begun + 20]
    bench.mine(2)
    assert len(now(bench.node, bench.demand.mine_now(SEED))) == 1
    assert bench.slots()[-3:] == [begun + 22, begun + 24, begun + 26]
    bench.node.clock.advance(60)
    assert len(now(bench.node, bench.demand.mine_now(SEED))) == 1
    assert bench.slots()[-1] == begun + 80
    bench.node.check()


def test_a_block_that_comes_by_itself_waits_for_the_clock(make_node: MakeNode) -> None:
    bench = Bench(make_node(params=PARAMS, clock=at(9)))
    bench.mine(5)
    assert now(bench.node, bench.demand.mine_now(SEED)) == []


def test_on_a_chain_ahead_of_the_clock_the_wait_is_told(make_node: MakeNode) -> None:
    """As a miner leaves it that works ahead, or another node."""
    bench = Bench(make_node(params=PARAMS, clock=at(9)))
    bench.node.submit(bench.chain.block(slot=9 + PARAMS.drift_slots))
    refused = refusal(bench.node, bench.demand.mine(1, SEED))
    assert refused.detail == "the chain has caught up with the clock: try again in 6 s"
    bench.node.clock.advance(6)
    bench.mine(1)


def test_more_blocks_than_there_are_slots(make_node: MakeNode) -> None:
    bench = Bench(make_node(params=PARAMS, clock=at(9)))
    assert refusal(bench.node, bench.demand.mine(6, SEED)).code is Refusal.SLOT
    bench.node.check()
    bench.mine(1)


# Blocks of others


@pytest.fixture
def stepped(make_node: MakeNode) -> tuple[Bench, Stepped]:
    """A node whose writer's thread works when the test says so."""
    writer = Stepped()
    return Bench(make_node(params=PARAMS, writer=writer)), writer


def overtake(bench: Bench, writer: Stepped, blocks: list[Block], *, made: int) -> None:
    """Let ``blocks`` be connected between the making of so many blocks and their turn."""
    for _ in range(made):
        writer.step()
    bench.node.chain_manager.submit_blocks([block.wire() for block in blocks])
    # What was in the queue before, and the blocks.
    writer.step()
    writer.step()
    assert bench.node.tip == blocks[-1].header.hash
    writer.step()


@pytest.mark.parametrize("made", [0, 1, 2])
def test_blocks_that_others_overtook_are_made_again(stepped: tuple[Bench, Stepped], made: int) -> None:
    """While they are made, or before they are connected."""
    bench, writer = stepped
    others = list(bench.chain.chain("genesis: f[1..3]").values())
    work = Deferred.fromCoroutine(bench.demand.mine(2, SEED))
    overtake(bench, writer, others, made=made)
    writer.finish()
    assert bench.hashes() == [block.header.hash for block in others] + result_of(work)


def test_only_transfers_of_the_replaced_blocks_are_dropped(stepped: tuple[Bench, Stepped]) -> None:
    """Others' blocks took the tip meanwhile: the newest of them is replaced, and its transfers are let go."""
    bench, writer = stepped
    others = list(bench.chain.chain("genesis: f[1..5]\nf5 pays 5 from alice to bob").values())
    bench.node.chain_manager.submit_blocks([block.wire() for block in others[:3]])
    writer.finish()
    work = Deferred.fromCoroutine(bench.demand.reorganise(1, SEED, drop_transactions=True))
    overtake(bench, writer, others[3:], made=2)
    while not has_result(work):
        writer.finish()
        bench.node.clock.advance(0)
    writer.finish()
    assert bench.hashes() == [block.header.hash for block in others[:4]] + result_of(work)
    bench.node.settle()
    assert len(bench.node.mempool) == len(bench.node.written()) == 0


def test_others_that_are_always_faster(stepped: tuple[Bench, Stepped]) -> None:
    bench, writer = stepped
    others = list(bench.chain.chain("genesis: f[1..9]").values())
    work = Deferred.fromCoroutine(bench.demand.mine(1, SEED))
    for first in (0, 3, 6):
        overtake(bench, writer, others[first : first + 3], made=1)
    with pytest.raises(NotYet) as busy:
        result_of(work)
    assert (busy.value.code, busy.value.detail) == (Wait.BUSY, "blocks of others came first 3 times; try again")
    assert bench.hashes() == [block.header.hash for block in others]


# Reorganisations


@pytest.mark.parametrize("depth", [1, 3, 20])
def test_a_reorganisation_replaces_the_newest_blocks(bench: Bench, depth: int) -> None:
    before = bench.mine(25)
    after = bench.reorganise(depth)
    assert len(after) == depth + 1
    assert bench.hashes() == before[: 25 - depth] + after
    assert bench.node.chain_manager.tip.height == 26
    change = bench.node.witness.changes[-1]
    assert len(change.undone) == depth
    bench.node.check()


def test_down_to_the_genesis(bench: Bench) -> None:
    bench.mine(5)
    after = bench.reorganise(5)
    assert bench.hashes() == after


def test_a_reorganisation_of_depth_0_adds_one_empty_block(bench: Bench) -> None:
    before = bench.mine(2)
    bench.pay()
    after = bench.reorganise(0)
    assert len(after) == 1
    assert bench.hashes() == before + after
    assert len(bench.node.mempool) == 1


def test_a_reorganisation_deeper_than_the_chain_is_refused(bench: Bench) -> None:
    bench.mine(5)
    refused = refusal(bench.node, bench.demand.reorganise(6, SEED, drop_transactions=False))
    assert (refused.code, refused.detail) == (Refusal.HEIGHT, "depth must be at most 5, the height of the chain")
    bench.node.check()


def test_transfers_wait_again(bench: Bench) -> None:
    txids = [bench.pay(amount=1)]
    bench.mine(1)
    txids += [bench.pay(amount=2), bench.pay(amount=3)]
    bench.mine(1)
    bench.reorganise(2)
    assert [bench.node.store.transaction(txid, bench.node.chain.params) for txid in txids] == [None] * 3
    assert [entry.transfer.txid for entry in bench.node.mempool.entries()] == txids
    bench.mine(1)
    assert all(bench.node.store.transaction(txid, bench.node.chain.params) for txid in txids)
    assert len(bench.node.mempool) == 0


def test_a_chain_of_payments_comes_back_whole(bench: Bench) -> None:
    txids = [bench.pay(amount=COIN)]
    bench.mine(1)
    second = bench.chain.transfer("dave", "erin", 5)
    assert bench.node.send(second) == "accepted"
    bench.mine(1)
    bench.reorganise(2)
    txids.append(second.txid)
    assert [bench.node.store.transaction(txid, bench.node.chain.params) for txid in txids] == [None] * 2
    bench.mine(5)
    assert all(bench.node.store.transaction(txid, bench.node.chain.params) for txid in txids)


def test_transfers_may_be_dropped(bench: Bench) -> None:
    kept = bench.pay(amount=1)
    bench.mine(1)
    dropped = [bench.pay(amount=2), bench.pay(amount=3)]
    bench.mine(2)
    waiting = bench.pay(amount=4)
    bench.reorganise(2, drop=True)
    assert bench.node.store.transaction(kept, bench.node.chain.params)
    assert [entry.transfer.txid for entry in bench.node.mempool.entries()] == [waiting]
    assert not any(bench.node.store.transaction(txid, bench.node.chain.params) for txid in dropped)


def test_repeated_reorganisations_never_make_the_same_block(bench: Bench) -> None:
    bench.pay()
    bench.mine(10)
    seen = set(bench.hashes())
    for depth in (3, 3, 1, 7, 2):
        new = set(bench.reorganise(depth))
        assert not new & seen
        seen |= new
    bench.node.check()


def test_a_chain_that_has_caught_up_with_the_clock_can_be_reorganised(make_node: MakeNode) -> None:
    """One slot later is enough, however deep."""
    bench = Bench(make_node(params=PARAMS, clock=at(20)))
    before = bench.mine(10)
    assert refusal(bench.node, bench.demand.reorganise(4, SEED, drop_transactions=False)).code is Refusal.SLOT
    bench.node.clock.advance(1)
    after = bench.reorganise(4)
    assert bench.hashes() == before[:6] + after


@pytest.mark.parametrize("wait", [0, 1000])
def test_blocks_that_came_fast_can_be_reorganised(make_node: MakeNode, wait: int) -> None:
    """Blocks at the average distance would have less work, and there are not slots enough for them."""
    bench = Bench(make_node(params=PARAMS, clock=at(1)))
    before = []
    for _ in range(40):
        before += bench.mine(1)
        bench.node.clock.advance(1)
    assert bench.slots() == list(range(1, 41))
    bench.node.clock.advance(wait)
    after = bench.reorganise(39)
    assert bench.hashes() == before[:1] + after


# The faucet


def test_the_faucet_pays(bench: Bench) -> None:
    txids = [bench.pay("dave", 5 * COIN), bench.pay("erin", COIN)]
    assert [entry.transfer.txid for entry in bench.node.mempool.entries()] == txids
    bench.mine(1)
    account = bench.node.store.account(key_of("dave").hash)
    assert account is not None
    assert account.balance == 5 * COIN
    place = bench.node.store.transaction(txids[1], bench.node.chain.params)
    assert place is not None
    assert place.position == 1


@pytest.mark.parametrize(
    ("recipient", "amount", "code"),
    [
        ("nonsense", 5, Refusal.ADDRESS),
        (address_of("dave", "svc"), 5, Refusal.ADDRESS),
        (address_of("dave", "svct"), 0, Refusal.AMOUNT),
        (address_of("dave", "svct"), -1, Refusal.FORMAT),
        (address_of("dave", "svct"), 2**53, Refusal.FORMAT),
        (address_of("dave", "svct"), 1000 * COIN, Refusal.BALANCE),
    ],
)
def test_amounts_that_the_faucet_refuses(bench: Bench, recipient: str, amount: int, code: Refusal) -> None:
    assert refusal(bench.node, bench.demand.faucet(recipient, amount)).code is code
    assert len(bench.node.mempool) == 0


def test_the_faucet_pays_sixteen_times_a_block(bench: Bench) -> None:
    for amount in range(1, 17):
        bench.pay(amount=amount)
    assert refusal(bench.node, bench.demand.faucet(address_of("dave", "svct"), 17)).code is Refusal.NONCE
    bench.mine(1)
    bench.pay(amount=17)


def test_a_network_without_a_faucet(node: Node) -> None:
    bench = Bench(node)
    refused = refusal(bench.node, bench.demand.faucet(address_of("dave", "svct"), 5))
    assert (refused.code, refused.detail) == (
        Refusal.BALANCE,
        f"the faucet {FAUCET} has nothing on this network",
    )


# Turns


def test_one_request_comes_after_the_other(bench: Bench) -> None:
    works = [Deferred.fromCoroutine(bench.demand.mine(3, SEED)) for _ in range(3)]
    works.append(Deferred.fromCoroutine(bench.demand.reorganise(2, SEED, drop_transactions=False)))
    results = [result_of(work) for work in works]
    assert bench.hashes() == results[0] + results[1] + results[2][:1] + results[3]


def test_a_request_that_fails_lets_the_next_one_have_its_turn(bench: Bench) -> None:
    assert refusal(bench.node, bench.demand.reorganise(1, SEED, drop_transactions=False)).code is Refusal.HEIGHT
    assert len(bench.mine(1)) == 1


def test_on_devnet_itself(make_node: MakeNode) -> None:
    bench = Bench(make_node(params=DEVNET, clock=late_clock(DEVNET)))
    txid = now(bench.node, bench.demand.faucet(address_of("dave", "svcd"), 5 * COIN))
    bench.mine(3)
    bench.reorganise(3)
    bench.mine(1)
    assert bench.node.store.transaction(txid, bench.node.chain.params)
    bench.node.check()
