"""Chain proofs of a network with a list of producers: what is shown must keep the list (docs/protocol.md 8a, 13)."""

import pytest
from attrs import evolve

from svcd.chain.block import Block
from svcd.chain.params import NetworkParams
from svcd.light.chain_proof import Unproved, check_chain, parse_chain_proof
from svcd.light.prover import network_fields, render_chain_section
from tests.chains import ChainBuilder, with_producers
from tests.light.built_chain import BuiltChain

FOUR = with_producers("abcd")
CHANGED = with_producers("abcd", (9, "abx"))


def fault(params: NetworkParams, letters: str, *shown: int, checked: NetworkParams | None = None) -> str:
    """Why a proof of a chain by these producers, which shows the tip and some more heights, is refused; "" if not."""
    builder = ChainBuilder(params)
    blocks: list[Block] = []
    for letter in letters:
        blocks.append(builder.block(blocks[-1] if blocks else None, producer=letter))
    tip = builder.point_after(blocks[-1])
    section = render_chain_section(BuiltChain(builder, blocks), tip, including=shown, recent=1, samples=0)
    with_checked = checked or params
    proof = parse_chain_proof({**network_fields(params), **section}, with_checked)
    try:
        chain = check_chain(proof, with_checked, recent=1, samples=0)
    except Unproved as refusal:
        return str(refusal)
    assert sorted(chain.headers) == sorted({*shown, len(letters)})
    return ""


def test_producers_in_turn_are_proven_whatever_is_shown() -> None:
    assert fault(FOUR, "abcdabcda", *range(1, 9)) == ""
    assert fault(FOUR, "abcdabcdabcd", 3, 4, 9) == ""


def test_a_producer_that_is_not_on_the_list_proves_nothing_where_it_is_shown() -> None:
    assert "is not one of the 4 that may make the block at height 5" in fault(FOUR, "abcdxabcd", 5)
    assert "is not one of the 4 that may make the block at height 9" in fault(FOUR, "abcdabcdx")
    assert fault(FOUR, "abcdxabcd", 4, 6) == "", "the proof does not show it"


@pytest.mark.parametrize("shown", [(5, 6, 7), (5, 7)])
def test_a_producer_that_comes_too_soon_proves_nothing_where_both_blocks_are_shown(shown: tuple[int, ...]) -> None:
    assert "made one of the 2 blocks before height 7" in fault(FOUR, "abcdabacd", *shown)
    assert fault(FOUR, "abcdabacd", 6, 7) == ""
    assert fault(FOUR, "abcdabcda", *shown) == ""


def test_changes_are_applied_at_their_heights() -> None:
    assert fault(CHANGED, "abcdabcdxaxb", *range(4, 12)) == ""
    assert "is not one of the 3 that may make the block at height 10" in fault(CHANGED, "abcdabcdxcab", 10)
    old = evolve(CHANGED, changes=())
    assert "is not one of the 4 that may make the block at height 9" in fault(CHANGED, "abcdabcdxaxb", 9, checked=old)
    late = with_producers("abcd", (10, "abx"))
    assert "is not one of the 4 that may make the block at height 9" in fault(CHANGED, "abcdabcdxaxb", 9, checked=late)
