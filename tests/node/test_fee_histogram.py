"""What the mempool says by fee rate about the next blocks: exact while all fits, never too hopeful otherwise."""

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import HEADER_ROOM
from svcd.node.fee_histogram import RATE_SCALE, FeeHistogram, fee_for_rate
from tests.chains import TEST_PARAMS

SIZE = 500
PARAMS = evolve(TEST_PARAMS, max_block_transactions=4, max_block_bytes=HEADER_ROOM + 6 * (SIZE + 1))
FEES = st.lists(st.integers(1, 2**53), max_size=30)
SIZES = st.integers(300, 600)


def rate(fee: int, size: int = SIZE) -> int:
    return fee * RATE_SCALE // size


def histogram(fees: list[int]) -> FeeHistogram:
    made = FeeHistogram()
    for fee in fees:
        made.add(rate(fee), size=SIZE, fee=fee)
    return made


def test_an_empty_mempool() -> None:
    made = FeeHistogram()
    (block,) = made.expected_blocks(PARAMS, limit=3)
    assert (block.count, block.size, block.fees, block.rate) == (0, 0, 0, 0)
    assert made.blocks_until(0, PARAMS, size=SIZE) == 1
    assert made.rate_within(1, PARAMS, size=SIZE) == 0


@given(FEES)
def test_the_blocks_hold_all_that_waits(fees: list[int]) -> None:
    blocks = histogram(fees).expected_blocks(PARAMS, limit=100)
    assert sum(block.count for block in blocks) == len(fees)
    assert sum(block.size for block in blocks) == len(fees) * (SIZE + 1)
    assert sum(block.fees for block in blocks) == sum(fees)
    assert [block.count for block in blocks[:-1]] == [4] * (len(blocks) - 1)
    assert blocks[-1].rate == 0
    assert histogram(fees).expected_blocks(PARAMS, limit=2) == blocks[:2]


@given(FEES, st.integers(1, 2**53))
def test_the_wait_is_at_least_that_behind_all_higher_fees(fees: list[int], fee: int) -> None:
    ahead = sum(each >= fee for each in fees)
    blocks = histogram(fees).blocks_until(rate(fee), PARAMS, size=SIZE)
    assert ahead // 4 + 1 <= blocks <= sum(each * 17 >= fee * 16 - 17 for each in fees) // 4 + 1


@given(FEES, st.integers(1, 9), SIZES)
def test_the_fee_for_so_many_blocks_is_enough_for_them(fees: list[int], blocks: int, size: int) -> None:
    made = histogram(fees)
    enough = fee_for_rate(made.rate_within(blocks, PARAMS, size=size), size)
    assert made.blocks_until(rate(enough, size), PARAMS, size=size) <= blocks
    assert enough <= max(fees, default=0) * 18 // 16 * size // SIZE + size


@given(FEES, FEES)
def test_removed_transfers_leave_no_trace(fees: list[int], others: list[int]) -> None:
    made = histogram(fees + others)
    for fee in others:
        made.remove(rate(fee), size=SIZE, fee=fee)
    assert made == histogram(fees)


def test_bytes_fill_a_block_too() -> None:
    made = FeeHistogram()
    for fee in (9, 8, 7):
        made.add(rate(fee, 1_400), size=1_400, fee=fee)
    first, second = made.expected_blocks(PARAMS, limit=9)
    assert (first.count, first.size, first.fees) == (2, 2_802, 17)
    assert rate(7, 1_400) < first.rate <= rate(8, 1_400)
    assert (second.count, second.rate) == (1, 0)


@given(FEES, st.integers(1, 40))
def test_bands_have_all_transfers(fees: list[int], most: int) -> None:
    made = histogram(fees)
    bands = made.bands(most)
    assert len(bands) <= most
    assert sum(band.count for band in bands) == len(fees)
    assert [band.rate for band in bands] == sorted({band.rate for band in bands})
    assert not bands or bands[0].count > 0


def test_buckets_are_few_whatever_the_fees_are() -> None:
    histogram, fees = FeeHistogram(), [10_000 + 7 * number for number in range(20_000)]
    for fee in [*fees, *(2**bits + step for bits in range(20, 40) for step in range(100))]:
        histogram.add(fee, size=300, fee=fee)
    doublings = 40 - 13
    assert len(histogram.bands(2**40)) <= 16 * doublings
