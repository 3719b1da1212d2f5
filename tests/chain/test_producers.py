"""Who may make a block on a network with a list of producers, and when the list changes (docs/protocol.md 8a)."""

import pytest
from attrs import evolve

from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.params import NetworkParams
from svcd.chain.transition import check_header
from tests.chain.refusing import refuses
from tests.chains import TEST_PARAMS, ChainBuilder, with_producers

GROWING = with_producers("abc", (4, "abcd"), (7, "abcdexyz"))
SHRINKING = with_producers("abcde", (5, "abcd"), (7, "cd"), (9, "a"))


def chain_of(params: NetworkParams, made: str) -> tuple[ChainBuilder, Block | None]:
    """A chain and its tip, with blocks by the producers ``made``, each of whom may make it."""
    chain = ChainBuilder(params)
    tip: Block | None = None
    for letter in made:
        block = chain.block(tip, producer=letter)
        check_header(params, chain.head_after(tip), block.header)
        tip = block
    return chain, tip


def may_follow(params: NetworkParams, made: str) -> str:
    """Those that may make the block after those by ``made``."""
    chain, tip = chain_of(params, made)
    allowed = ""
    for letter in "abcdexyz":
        verdict = chain.verdict(tip, chain.block(tip, producer=letter))
        assert verdict is None or verdict.rule is Refusal.PRODUCER
        allowed += letter if verdict is None else ""
    return allowed


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        ("", "abc"),
        ("a", "bc"),
        ("ab", "ac"),
        # From height 4 on d may, and two blocks of others lie between those of one producer.
        ("aba", "cd"),
        ("abcd", "ab"),
        ("abcda", "bc"),
        # From height 7 on four, of which three were made under the list before.
        ("abcdab", "exyz"),
        ("abcdabe", "cxyz"),
        ("abcdabexy", "acdz"),
    ],
)
def test_a_list_that_grows(made: str, allowed: str) -> None:
    assert may_follow(GROWING, made) == allowed


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        ("abe", "acd"),
        ("abcd", "ab"),
        ("abcda", "bc"),
        # From height 7 on only c and d may, in turn.
        ("abcdab", "cd"),
        ("abcdac", "d"),
        ("abcdabd", "c"),
        # From height 9 on a alone may make all blocks.
        ("abcdabdc", "a"),
        ("abcdabdca", "a"),
    ],
)
def test_a_list_that_shrinks(made: str, allowed: str) -> None:
    assert may_follow(SHRINKING, made) == allowed


def test_a_refusal_says_which_list_is_in_force() -> None:
    chain, tip = chain_of(GROWING, "ab")
    with refuses(Refusal.PRODUCER, "not one of the 3 that may make the block at height 3"):
        check_header(GROWING, chain.head_after(tip), chain.block(tip, producer="d").header)
    tip = chain.block(tip, producer="c")
    with refuses(Refusal.PRODUCER, "not one of the 4 that may make the block at height 4"):
        check_header(GROWING, chain.head_after(tip), chain.block(tip, producer="x").header)
    with refuses(Refusal.PRODUCER, "made one of the 2 blocks before height 4: another one must"):
        check_header(GROWING, chain.head_after(tip), chain.block(tip, producer="b").header)


def test_a_node_without_a_change_refuses_its_first_block_that_differs() -> None:
    """It stands still rather than follow, and one with the change goes on."""
    outdated = evolve(GROWING, changes=GROWING.changes[:1])
    chain, tip = chain_of(GROWING, "abcdab")
    block = chain.block(tip, producer="x")
    assert chain.verdict(tip, block) is None
    assert may_follow(outdated, "abcdab") == "cd"
    with refuses(Refusal.PRODUCER, "not one of the 4 that may make the block at height 7"):
        check_header(outdated, chain.head_after(tip), block.header)


def test_those_who_may_make_the_next_block_undo_payments() -> None:
    assert [GROWING.undone_by(tip) for tip in (0, 2, 3, 6, 9)] == [(2, 3), (2, 3), (3, 4), (5, 8), (5, 8)]
    assert TEST_PARAMS.undone_by(9) == (0, 0)
