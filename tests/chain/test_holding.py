"""The holding multiplier (docs/protocol.md 8)."""

import pytest
from attrs import evolve

from svcd.chain.accounts import Account
from svcd.chain.holding import multiplier
from svcd.chain.params import DEVNET, MAINNET, NetworkParams


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
    assert multiplier(params, account, 2**53) == 15_000


def test_holding_since_slot_0_counts() -> None:
    assert multiplier(DEVNET, Account(10**9, 0, 0), 60) == 10_500


def test_the_balance_itself_does_not_count() -> None:
    poor, rich = Account(10**9, 0, 5), Account(10**15, 7, 5)
    assert multiplier(DEVNET, poor, 500) == multiplier(DEVNET, rich, 500) == 13_000


def test_a_network_may_have_no_schedule() -> None:
    assert multiplier(evolve(DEVNET, multiplier_schedule=()), Account(10**9, 0, 0), 10**6) == 10_000
