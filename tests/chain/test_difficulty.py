"""aserti3-2d on a slot clock with capped gaps (docs/protocol.md 7)."""

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.chain.difficulty import asert, multiplier, next_clock, next_target
from svcd.chain.params import DEVNET, MAINNET, NetworkParams

POW_LIMIT = 0x00FFFF << 8 * (0x1D - 3)
LIVELY = evolve(
    MAINNET, slots_per_block=600, half_life_slots=172_800, max_target=POW_LIMIT, min_target=1, initial_target=POW_LIMIT
)
"""The parameters of the published runs: a slot is a second, a block ten minutes, the half-life two days."""


def target_of(bits: int) -> int:
    """The target that Bitcoin's compact form stands for."""
    size, mantissa = bits >> 24, bits & 0xFFFFFF
    return mantissa << 8 * (size - 3) if size >= 3 else mantissa >> 8 * (3 - size)


def bits_of(target: int) -> int:
    size = (target.bit_length() + 7) // 8
    mantissa = target >> 8 * (size - 3) if size > 3 else target << 8 * (3 - size)
    if mantissa & 0x800000:  # the compact form has a sign bit
        mantissa, size = mantissa >> 8, size + 1
    return size << 24 | mantissa


def test_published_runs(public_vectors: Path) -> None:
    """timeDelta is clock(h−1) and heightDelta is h−3, so that x is timeDelta − spacing·(heightDelta + 1)."""
    runs = json.loads((public_vectors / "aserti3-2d.json").read_text())["runs"]
    rows = 0
    wrong = []
    for run in runs:
        start = int(run.get("anchor_ancestor_time") or run["anchor_parent_time"])
        params = evolve(LIVELY, initial_target=target_of(int(run["anchor_nBits"], 16)))
        for height, time, bits in run["rows"]:
            target = next_target(params, height=height - int(run["anchor_height"]) + 3, clock=time - start)
            rows += 1
            if bits_of(target) != int(bits, 16):
                wrong.append((run["name"], height))
    assert wrong == []
    assert rows == 14_000


def test_block_1_has_the_initial_target_whatever_the_clock() -> None:
    assert next_target(MAINNET, height=1, clock=0) == MAINNET.initial_target
    assert next_target(MAINNET, height=1, clock=10**9) == MAINNET.initial_target


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_target_stays_where_blocks_come_on_time(params: NetworkParams) -> None:
    for height in (2, 3, 1000, 2**53):
        assert next_target(params, height=height, clock=params.slots_per_block * (height - 2)) == params.initial_target


def test_target_doubles_and_halves_with_every_half_life() -> None:
    behind = {lives: next_target(MAINNET, height=2, clock=720 * lives) for lives in (-2, -1, 0, 1, 2, 3)}
    assert behind == {-2: 2**240, -1: 2**241, 0: 2**242, 1: 2**243, 2: 2**244, 3: 2**244}


def test_the_exponent_is_truncated_toward_zero() -> None:
    """-1/65537 of a half-life is no whole 65,536th, and is 0 on either side."""
    assert asert(2**240, -1, 65_537) == asert(2**240, 1, 65_537) == 2**240
    assert asert(2**240, -2, 65_537) == asert(2**240, -1, 65_536) != 2**240


def test_the_factor_of_every_part_of_a_half_life() -> None:
    """docs/protocol.md 7: m = 65536 + ((195766423245049·f + 971821376·f² + 5127·f³ + 2^47) >> 48)."""
    for f in range(65_536):
        m = 65_536 + ((195_766_423_245_049 * f + 971_821_376 * f * f + 5_127 * f * f * f + (1 << 47)) >> 48)
        assert asert(65_536, f, 65_536) == m
        assert abs(m / (65_536 * 2 ** (f / 65_536)) - 1) < 0.00013


def test_a_right_shift_floors() -> None:
    assert asert(3, -1, 1) == 1
    assert asert(1, -1, 1) == 0
    assert asert(1, 15, 1) == 2**15
    assert asert(1, 16, 1) == 2**16
    assert asert(1, 17, 1) == 2**17


@pytest.mark.parametrize("offset", [256, 257, 2**53])
def test_exponents_of_256_and_more_are_never_shifted(offset: int) -> None:
    assert asert(1, offset, 1) is None
    assert asert(1, -offset, 1) is None


def test_exponents_just_below_256_are_shifted() -> None:
    assert asert(1, 255, 1) == 2**255
    assert asert(2**300, -255, 1) == 2**45
    assert asert(2**300, 256 * 65_536 - 1, 65_536) is not None
    assert asert(2**300, 1 - 256 * 65_536, 65_536) is not None


@pytest.mark.parametrize("clock", [10**6, 10**9, 2**60])
def test_far_behind_is_the_easiest_and_far_ahead_the_hardest(clock: int) -> None:
    assert next_target(MAINNET, height=2, clock=clock) == MAINNET.max_target
    assert next_target(MAINNET, height=2 + clock, clock=0) == MAINNET.min_target


OFFSETS = st.integers(-(2**54), 2**54) | st.integers(-200_000, 200_000)


@given(OFFSETS, OFFSETS)
def test_target_rises_with_the_offset_and_stays_in_its_bounds(first: int, second: int) -> None:
    early, late = sorted((first, second))
    height = 2**60
    even = MAINNET.slots_per_block * (height - 2)
    easier = next_target(MAINNET, height=height, clock=even + late)
    harder = next_target(MAINNET, height=height, clock=even + early)
    assert MAINNET.min_target <= harder <= easier <= MAINNET.max_target


def test_clock_starts_with_block_1() -> None:
    assert next_clock(MAINNET, parent_height=0, parent_clock=0, gap=1) == 0
    assert next_clock(MAINNET, parent_height=0, parent_clock=0, gap=10**9) == 0
    assert next_clock(MAINNET, parent_height=1, parent_clock=0, gap=1) == 1


@pytest.mark.parametrize(("gap", "counted"), [(1, 1), (119, 119), (120, 120), (121, 120), (10**15, 120)])
def test_clock_counts_a_gap_up_to_the_cap(gap: int, counted: int) -> None:
    assert next_clock(MAINNET, parent_height=5, parent_clock=1000, gap=gap) == 1000 + counted


def work_of_blocks(gaps: Iterable[int]) -> list[Fraction]:
    """The work of blocks in ordinary ones, for the gaps after them, where the hash rate is four times the first."""
    height, clock, work = 1000, MAINNET.slots_per_block * 998 - 2 * MAINNET.half_life_slots, []
    ordinary = MAINNET.initial_target // 4
    for gap in gaps:
        work.append(Fraction(ordinary, next_target(MAINNET, height=height, clock=clock)))
        clock = next_clock(MAINNET, parent_height=height - 1, parent_clock=clock, gap=gap)
        height += 1
    return work


def test_a_day_without_blocks_saves_the_work_of_one_block() -> None:
    """One gap of 24 hours, then a block in every slot: 24 blocks for the work of 23 before the target is normal."""
    work = work_of_blocks([24 * 360] + [1] * 30)
    blocks = next(number for number in range(1, 31) if work[number] >= 1)
    assert (blocks, round(sum(work[:blocks]))) == (24, 23)


@pytest.mark.parametrize(("blocks", "cost"), [(12, 7.0), (24, 8.9)])
def test_the_work_of_blocks_backdated_into_an_outage(blocks: int, cost: float) -> None:
    """A producer with a day of slots to choose from makes each block a full cap after the one before."""
    assert round(float(sum(work_of_blocks([120] * blocks))), 1) == cost


@pytest.mark.parametrize("slot", [0, 10**9])
def test_without_an_account_or_a_holding_there_is_none(slot: int) -> None:
    assert multiplier(MAINNET, None, slot) == 10_000
    assert multiplier(MAINNET, Account(balance=10**15, nonce=3, held_since=None), slot) == 10_000


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_each_step_begins_at_its_exact_slot(params: NetworkParams) -> None:
    account = Account(balance=10**11, nonce=0, held_since=1000)
    before = 10_000
    for held, points in params.multiplier_schedule:
        assert multiplier(params, account, 1000 + held) == points
        if held:
            assert multiplier(params, account, 1000 + held - 1) == before
        before = points
    assert multiplier(params, account, 2**53) == 11_000


def test_holding_since_slot_0_counts() -> None:
    assert multiplier(DEVNET, Account(10**9, 0, 0), 60) == 10_200


def test_the_balance_itself_does_not_count() -> None:
    poor, rich = Account(10**9, 0, 5), Account(10**15, 7, 5)
    assert multiplier(DEVNET, poor, 500) == multiplier(DEVNET, rich, 500) == 10_700


def test_a_network_may_have_no_schedule() -> None:
    assert multiplier(evolve(DEVNET, multiplier_schedule=()), Account(10**9, 0, 0), 10**6) == 10_000
