"""Which fee is suggested: the minimum while the next block has room, and enough to get into it when it has none."""

from typing import Any

import pytest
from attrs import define, evolve

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.transaction import Draft, sign_transfer
from svcd.node.block_template import by_fee_rate
from svcd.node.fee_rates import LARGEST_TRANSFER
from svcd.node.fees import Fees
from tests.chains import TEST_PARAMS, address_of, key_of
from tests.node.test_mempool import Bench, full

FEE = TEST_PARAMS.minimum_fee


@define
class Tip:
    hash: bytes = bytes(32)


@define
class Chain:
    params: NetworkParams
    tip: Tip


def fees_of(bench: Bench, **changes: Any) -> Fees:
    chain: Any = Chain(evolve(TEST_PARAMS, **changes), Tip())
    return Fees(chain, bench.pool)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_no_transfer_is_longer_than_the_largest(name: str) -> None:
    params, most = NETWORKS[name], MAX_INTEGER
    draft = Draft(
        recipient=address_of("bob", params.address_prefix),
        amount=most,
        fee=most,
        nonce=most,
        timestamp=most,
        reference="r" * 64,
    )
    size = len(sign_transfer(draft, seed=key_of("alice").seed, params=params).wire)
    assert LARGEST_TRANSFER - 10 < size <= LARGEST_TRANSFER


def test_the_minimum_is_suggested_while_there_is_room_whatever_others_pay() -> None:
    bench = Bench()
    bench.add("alice", fee=50 * FEE)
    fees = fees_of(bench)
    assert fees.suggested() == fees.floor() == FEE


def test_the_suggested_fee_of_a_full_mempool_gets_in() -> None:
    bench = full(Bench(transactions=3))
    fees = fees_of(bench)
    floor, suggested = fees.floor(), fees.suggested()
    assert floor is not None
    assert FEE < floor <= suggested < 2 * FEE
    assert len(bench.add("dave", fee=suggested)) == 1


@pytest.mark.parametrize("limit", [{"max_block_transactions": 3}, {"max_block_bytes": 1_280 + 4 * 500}])
def test_once_the_next_block_is_full_the_suggested_fee_displaces_the_cheapest_in_it(limit: dict[str, Any]) -> None:
    bench = Bench()
    fees = fees_of(bench, **limit)
    for count, sender in enumerate(("alice", "bob")):
        bench.add(sender, fee=(9 - count) * FEE)
    assert (fees.suggested(), fees.has_room()) == (FEE, True)
    for count, sender in enumerate(("carol", "dave", "erin"), 2):
        bench.add(sender, fee=(9 - count) * FEE)
    assert not fees.has_room()
    suggested = fees.suggested()
    assert FEE < suggested < 12 * FEE
    bench.add("frank", fee=suggested)
    first = [transfer.sender for transfer in by_fee_rate(bench.pool.lines())][:3]
    assert key_of("frank").hash in first


def test_a_dear_transfer_behind_a_cheap_one_of_its_sender_counts_as_the_cheap_one() -> None:
    bench = Bench()
    for nonce, fee in enumerate((2 * FEE, 9 * FEE, 9 * FEE)):
        bench.add("alice", nonce, fee=fee)
    suggested = fees_of(bench, max_block_transactions=3).suggested()
    assert 2 * FEE < suggested < 3 * FEE


def test_transfers_that_no_block_can_take_yet_leave_the_room_to_others() -> None:
    bench = Bench()
    for sender in ("alice", "bob", "carol"):
        bench.add(sender, fee=9 * FEE)
    bench.add("dave", 2, fee=9 * FEE)
    assert fees_of(bench, max_block_transactions=4).suggested() == FEE


def test_the_next_block_is_chosen_again_at_a_new_tip_and_after_a_twentieth_of_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, asked = Bench(), list[int]()
    for number in range(40):
        bench.add(f"sender {number}")
    lines = bench.pool.lines
    monkeypatch.setattr(bench.pool, "lines", lambda: asked.append(len(bench.pool)) or lines())
    fees = fees_of(bench, max_block_transactions=40)
    suggested = fees.suggested()
    assert fees.suggested() == suggested > FEE
    assert asked == [40]
    bench.add("one more")
    assert fees.suggested() == suggested
    bench.add("and another")
    assert fees.suggested() == suggested
    assert asked == [40, 42]
    chain: Any = fees._chain_manager
    chain.tip = Tip(b"1" * 32)
    assert fees.suggested() == suggested
    assert asked == [40, 42, 42]


def test_a_mempool_that_lets_nobody_in_has_no_floor() -> None:
    bench = Bench(transactions=3, size=500)
    bench.add("alice")
    fees = fees_of(bench)
    assert fees.floor() is None
    assert fees.suggested() == FEE
