"""What undoing a payment costs, on a real chain and by calculation."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.params import MAINNET
from svcd.chain.work import block_work
from svcd.commerce.payment import ChainTip, PaymentState, payment_record
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_request import PaymentTerms, parse_price
from svcd.commerce.reorg_cost import ReorgCosts, advised_confirmations, expected_hashes
from tests.chains import address_of
from tests.rpc.conftest import present
from tests.rpc.node import PARAMS, Node, Settings

TERMS = PaymentTerms("order-1", address_of("bob", "svcd"), 5000, required=2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node on a new chain."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    yield node
    node.close()


def test_the_work_of_a_payment_is_that_of_its_block_and_those_on_top(node: Node) -> None:
    manager, pool = node.node_context.chain_manager, node.node_context.transaction_pool
    payments = PaymentLookup.subscribed(manager, pool)
    assert payments.find(TERMS).work is None
    first = node.builder.block(None)
    second = node.builder.block(first, transfers=[node.builder.transfer("alice", "bob", 5000, reference="order-1")])
    third = node.builder.block(second)
    node.take(first, second, third)

    found = payments.find(TERMS)
    works = [block_work(block.header.base_target) for block in (first, second, third)]
    hashes = (works[1] + works[2]) * 10_000 // max(points for _, points in PARAMS.multiplier_schedule)
    assert found.work is not None
    assert found.work.hashes == hashes
    median = sorted(works)[1]
    assert found.work.hashes_per_block == expected_hashes(PARAMS, median)
    told = payment_record(TERMS, found, PaymentState.CONFIRMED)["work"]
    hours, confirmations = hashes * 10_000 // (138 * 3600), hashes * 100 // expected_hashes(PARAMS, median)
    assert told == {
        "hashesToUndo": str(hashes),
        "coreHoursToUndo": f"{hours // 10_000}.{hours % 10_000:04}",
        "workConfirmations": f"{confirmations // 100}.{confirmations % 100:02}",
    }
    recent = payments.costs.recent(ChainTip(manager.tip.height, manager.tip.hash))
    assert recent.blocks == 3


def test_a_chain_without_blocks_has_the_figures_of_the_first_target(node: Node) -> None:
    manager = node.node_context.chain_manager
    recent = ReorgCosts(PARAMS, manager.reader).recent(ChainTip(0, manager.tip.hash))
    assert recent.blocks == 0
    assert recent.hashes_per_block == expected_hashes(PARAMS, block_work(PARAMS.initial_target))


def test_blocks_that_the_node_has_dropped_give_no_figure(node: Node) -> None:
    manager = node.node_context.chain_manager
    costs = ReorgCosts(PARAMS, manager.reader)
    assert costs.of(bytes(32), ChainTip(0, manager.tip.hash)) is None


@given(
    amount=st.integers(1, 2**53 - 1),
    coin=st.integers(1, 10**12),
    price=st.integers(1, 10**12),
    block=st.integers(1, 2**80),
)
def test_the_advice_is_the_least_number_that_costs_more_than_the_payment(
    amount: int, coin: int, price: int, block: int
) -> None:
    advice = advised_confirmations(amount, coin, price, block)
    value = Fraction(amount * coin, 10**16)
    per_block = Fraction(block, 138 * 3600) * Fraction(price, 10**8)
    assert 12 <= advice.confirmations <= 1000
    assert advice.capped == (1000 * per_block <= value)
    if not advice.capped:
        assert advice.confirmations * per_block > value
        assert advice.confirmations == 12 or (advice.confirmations - 1) * per_block <= value
    assert advice.cost == advice.confirmations * per_block * 10**8 // 1


def test_an_attacker_with_the_highest_multiplier_needs_a_tenth_less() -> None:
    assert expected_hashes(MAINNET, 110_000) == 100_000


@pytest.mark.parametrize("text", ["0", "", "-1", "1,5", "1e3", "0.000000001", "nan", 1.5])
def test_an_invalid_price_is_refused_with_one_sentence(text: object) -> None:
    with pytest.raises(ValueError, match="must be a decimal such as"):
        parse_price(text)
