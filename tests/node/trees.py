"""Any set of blocks, valid and invalid, for Hypothesis to draw."""

from attrs import frozen
from hypothesis import strategies as st

from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.transaction import Transfer
from tests.chains import BREAKABLE, TEST_PARAMS, ChainBuilder

PEOPLE = "alice bob carol dave erin".split()
FEE, MINIMUM = TEST_PARAMS.minimum_fee, TEST_PARAMS.holding_minimum


@frozen
class Payment:
    """A payment that is left out where its sender cannot afford it."""

    sender: str
    recipient: str
    amount: int | None
    """None for all but the fee and the account minimum."""
    reference: str | None


@frozen
class Sprout:
    """A block of a tree."""

    parent: int
    """How many blocks before this one its parent stands; the genesis if there are not so many."""
    gap: int
    producer: str
    payments: list[Payment]
    break_: Refusal | None = None


AMOUNTS = st.sampled_from([1, MINIMUM - 1, MINIMUM, MINIMUM + 1, 990 * MINIMUM, None])
PAYMENTS = st.builds(
    Payment,
    st.sampled_from(PEOPLE),
    st.sampled_from([*PEOPLE, "frank", "p"]),
    AMOUNTS,
    st.sampled_from([None, "order-1", "order-2"]),
)


def sprouts(*, parents: st.SearchStrategy[int], broken: bool) -> st.SearchStrategy[Sprout]:
    """Blocks that stand on what ``parents`` says; some break a rule if ``broken``."""
    faults = st.sampled_from([None] * 2 * len(BREAKABLE) + sorted(BREAKABLE)) if broken else st.none()
    producers = st.sampled_from(["p", "q", "alice"])
    return st.builds(Sprout, parents, st.integers(1, 60), producers, st.lists(PAYMENTS, max_size=4), faults)


CHAINS = st.lists(sprouts(parents=st.just(1), broken=False), min_size=2, max_size=8)
"""Valid blocks, each on the one before."""

TREES = st.lists(sprouts(parents=st.sampled_from([1, 1, 1, 2, 3, 5, 8]), broken=True), min_size=3, max_size=14)


def grow(chain: ChainBuilder, tree: list[Sprout]) -> list[Block]:
    """The blocks of a tree, parents before children."""
    blocks: list[Block] = []
    for sprout in tree:
        parent = blocks[-sprout.parent] if sprout.parent <= len(blocks) else None
        slot = chain.point_after(parent).slot + sprout.gap
        transfers = _affordable(chain, parent, sprout.payments)
        blocks.append(
            chain.block(parent, slot=slot, producer=sprout.producer, transfers=transfers, break_=sprout.break_)
        )
    return blocks


def _affordable(chain: ChainBuilder, parent: Block | None, payments: list[Payment]) -> list[Transfer]:
    accounts = {name: chain.account_after(parent, name) for name in [*PEOPLE, "frank", "p"]}
    balances = {name: account.balance for name, account in accounts.items()}
    nonces = {name: account.nonce for name, account in accounts.items()}
    transfers = []
    for payment in payments:
        most = balances[payment.sender] - FEE - TEST_PARAMS.account_minimum
        amount = most if payment.amount is None else payment.amount
        if 0 < amount <= most:
            balances[payment.sender] -= amount + FEE
            balances[payment.recipient] += amount
            nonce = nonces[payment.sender]
            nonces[payment.sender] += 1
            transfers.append(
                chain.transfer(payment.sender, payment.recipient, amount, nonce=nonce, reference=payment.reference)
            )
    return transfers
