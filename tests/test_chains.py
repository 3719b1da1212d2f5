"""The blocks and the language that other tests are written in."""

from itertools import pairwise

import pytest

from svcd.chain.errors import Refusal
from tests.chains import BREAKABLE, COIN, TEST_PARAMS, ChainBuilder
from tests.validity import Verdict

TEXT = """
genesis: b[1..5]
b3: c[4..6] d7
b2 pays 5000 from alice to bob for order-1
b2 pays 7 from alice to carol
c4 pays 1 from alice to alice
b4 is at slot 17
b5 is by carol
"""


def test_every_block_of_a_chain_is_valid() -> None:
    chain = ChainBuilder()
    blocks = chain.chain(TEXT)
    by_hash = {block.header.hash: block for block in blocks.values()}
    for block in blocks.values():
        assert chain.verdict(by_hash.get(block.header.parent_hash), block) is None


def test_text_says_what_stands_where() -> None:
    chain = ChainBuilder()
    blocks = chain.chain(TEXT)
    parents = {name: block.header.parent_hash for name, block in blocks.items()}
    expected = "b1 b2:b1 b3:b2 b4:b3 b5:b4 c4:b3 c5:c4 c6:c5 d7:c6".split()
    assert list(blocks) == [pair.partition(":")[0] for pair in expected]
    assert parents.pop("b1") == TEST_PARAMS.genesis_hash
    assert parents == {
        name: blocks[parent].header.hash for name, _, parent in (pair.partition(":") for pair in expected[1:])
    }
    assert blocks["b4"].header.slot == 17
    assert [transfer.reference for transfer in blocks["b2"].transfers] == ["order-1", None]
    assert chain.account_after(blocks["c4"], "alice").nonce == 3
    assert chain.account_after(blocks["b4"], "alice").balance == 1000 * COIN - 5007 - 2 * TEST_PARAMS.minimum_fee
    assert chain.account_after(blocks["b5"], "carol").balance == 1020 * COIN + 7


def test_same_text_gives_the_same_blocks() -> None:
    first, second = (ChainBuilder().chain(TEXT) for _ in range(2))
    assert [block.wire() for block in first.values()] == [block.wire() for block in second.values()]


STAGES = {
    Refusal.BLOCK_SIGNATURE: "signature",
    Refusal.TRANSACTION_COUNT: "body",
    Refusal.TRANSACTIONS_ROOT: "body",
    Refusal.HEIGHT: "place",
    Refusal.SLOT: "place",
    Refusal.BASE_TARGET: "place",
    Refusal.WORK: "work",
    Refusal.TRANSACTION_SIGNATURE: "transactions",
    Refusal.TIMESTAMP: "state",
    Refusal.NONCE: "state",
    Refusal.BALANCE: "state",
    Refusal.MULTIPLIER: "state",
    Refusal.STATE_ROOT: "state",
    Refusal.CONSENSUS_ROOT: "place",
}


def test_rules_that_can_be_broken() -> None:
    assert STAGES.keys() == BREAKABLE


@pytest.mark.parametrize("rule", STAGES)
def test_an_invalid_block_breaks_the_one_rule_that_the_text_names(rule: Refusal) -> None:
    chain = ChainBuilder()
    blocks = chain.chain(f"genesis b[1..4]\nb2 pays 5 from alice to bob\nb2 has an invalid {rule.replace('-', ' ')}")
    verdicts = [chain.verdict(parent, block) for parent, block in pairwise([None, *blocks.values()]) if block]
    assert verdicts == [None, Verdict(STAGES[rule], rule), None, None]


def test_wallet_counts_its_nonces() -> None:
    chain = ChainBuilder()
    nonces = [chain.transfer("alice", "bob", 1).nonce, chain.transfer("alice", "bob", 1).nonce]
    nonces += [chain.transfer("alice", "bob", 1, nonce=7).nonce, chain.transfer("alice", "bob", 1).nonce]
    assert nonces == [0, 1, 7, 8]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("b3: c4", "no block 'b3' has been named before"),
        ("genesis: b1\ngenesis: b1", "block 'b1' has two parents"),
        ("genesis: b1\nb2 is by alice", "no block 'b2' has been named before"),
        ("genesis: b1\nb1 is nice", "not a sentence about a chain: 'b1 is nice'"),
        ("genesis: b1\nb1 has an invalid haircut", "'haircut' is not a valid Refusal"),
        ("genesis: b1\nb1 has an invalid encoding", "a block cannot break <Refusal.ENCODING"),
    ],
)
def test_mistakes_in_a_text_are_named(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ChainBuilder().chain(text)
