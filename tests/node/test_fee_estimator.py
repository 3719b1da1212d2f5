"""Which fee is suggested: the minimum while there is room, and enough to get in when there is none."""

from typing import Any

import pytest
from attrs import evolve

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import NETWORKS
from svcd.chain.transaction import Draft, sign_transfer
from svcd.node.fee_estimator import LARGEST_TRANSFER, RecentFees, mempool_floor, recent_fees, suggested_fee
from tests.chains import TEST_PARAMS, address_of, key_of
from tests.node.test_mempool import Bench, full

FEE = TEST_PARAMS.minimum_fee
NOTHING = recent_fees([])
DEAR = recent_fees([7 * FEE] * 3)


def test_the_fees_of_no_transfer() -> None:
    assert RecentFees(0, None, None, None) == NOTHING


@pytest.mark.parametrize(("fees", "median"), [([5], 5), ([5, 1], 5), ([3, 9, 1], 3), ([4, 1, 3, 2], 3)])
def test_lowest_median_and_highest(fees: list[int], median: int) -> None:
    assert recent_fees(fees) == RecentFees(len(fees), min(fees), median, max(fees))


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


def test_the_minimum_is_suggested_while_there_is_room_whatever_others_have_paid() -> None:
    bench = Bench()
    bench.add("alice", fee=50 * FEE)
    assert suggested_fee(bench.pool, TEST_PARAMS, DEAR) == mempool_floor(bench.pool, TEST_PARAMS) == FEE


def test_a_full_mempool_suggests_more_than_it_asks_for() -> None:
    bench = full(Bench(transactions=3))
    floor = mempool_floor(bench.pool, TEST_PARAMS)
    suggested = suggested_fee(bench.pool, TEST_PARAMS, NOTHING)
    assert floor is not None
    assert FEE < floor < suggested < 2 * FEE
    assert len(bench.add("dave", fee=suggested)) == 1


@pytest.mark.parametrize("limit", [{"max_block_transactions": 3}, {"max_block_bytes": 3 * 480 + LARGEST_TRANSFER}])
def test_once_more_waits_than_fits_into_a_block_the_newest_blocks_say_what_it_takes(limit: dict[str, Any]) -> None:
    params, bench = evolve(TEST_PARAMS, **limit), Bench()
    for sender in ("alice", "bob"):
        bench.add(sender)
    assert suggested_fee(bench.pool, params, DEAR) == FEE
    bench.add("carol")
    bench.add("dave")
    assert suggested_fee(bench.pool, params, DEAR) == 7 * FEE
    assert suggested_fee(bench.pool, params, NOTHING) == FEE


def test_a_mempool_that_lets_nobody_in_has_no_floor() -> None:
    bench = Bench(transactions=3, size=500)
    bench.add("alice")
    assert mempool_floor(bench.pool, TEST_PARAMS) is None
    assert suggested_fee(bench.pool, TEST_PARAMS, DEAR) == FEE
