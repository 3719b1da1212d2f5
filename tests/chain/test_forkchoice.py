"""Which of two tips is the chain (docs/protocol.md 10)."""

from hashlib import sha256
from itertools import permutations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.forkchoice import prefers, tie_winner
from svcd.chain.params import DEVNET
from svcd.chain.transition import ChainPoint, genesis_point

HASHES = st.binary(min_size=32, max_size=32)


def tip(name: bytes, work: int) -> ChainPoint:
    return evolve(genesis_point(DEVNET), hash=name, work=work)


def test_the_winner_of_a_tie_has_the_smaller_tagged_hash() -> None:
    for number in range(64):
        a, b = bytes([number]) * 32, bytes([number + 1]) * 32
        of_a, of_b = (sha256(b"svc/tie/v1\0" + a + b + own).digest() for own in (a, b))
        assert tie_winner(a, b) == (a if of_a < of_b else b)


def test_the_lower_hash_does_not_always_win() -> None:
    """The lowest hash would pay for withholding blocks."""
    winners = {min(pair) == tie_winner(*pair) for pair in permutations([bytes([n]) * 32 for n in range(8)], 2)}
    assert winners == {True, False}


@given(HASHES, HASHES)
def test_a_tie_has_the_same_winner_whichever_is_asked_first(a: bytes, b: bytes) -> None:
    assert tie_winner(a, b) == tie_winner(b, a)
    assert tie_winner(a, b) in (a, b)


@pytest.mark.parametrize("names", [(b"\1" * 32, b"\2" * 32), (b"\2" * 32, b"\1" * 32)])
def test_more_work_is_preferred_whatever_the_hashes(names: tuple[bytes, bytes]) -> None:
    heavy, light = tip(names[0], 101), tip(names[1], 100)
    assert prefers(heavy, light)
    assert not prefers(light, heavy)


def test_height_does_not_count() -> None:
    assert not prefers(evolve(tip(b"\1" * 32, 100), height=9), evolve(tip(b"\2" * 32, 101), height=1))


@given(HASHES, HASHES)
def test_of_two_equal_tips_exactly_one_is_preferred(a: bytes, b: bytes) -> None:
    assert (prefers(tip(a, 5), tip(b, 5)), prefers(tip(b, 5), tip(a, 5))) in (
        [(False, False)] if a == b else [(True, False), (False, True)]
    )
    assert prefers(tip(a, 5), tip(b, 5)) is (a != b and tie_winner(a, b) == a)


def test_a_tip_does_not_take_its_own_place() -> None:
    assert not prefers(tip(b"\1" * 32, 5), tip(b"\1" * 32, 5))
