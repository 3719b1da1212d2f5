"""The two networks, number by number (docs/protocol.md 1), and what their hashes commit to (5)."""

from hashlib import sha256
from typing import Any

import pytest
from attrs import asdict, evolve

from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import MAX_INTEGER, canonical
from svcd.chain.params import BASIS_POINTS, DEVNET, FAUCET_SEED, MAINNET, NETWORKS, NetworkParams
from svcd.chain.signature import public_key_of

FAUCET = "svcd1qkkdc74lsmkrzphngq8gkl3pygr82umndcxleht"


def test_mainnet() -> None:
    assert asdict(MAINNET, recurse=False) == {
        "name": "mainnet",
        "network_id": 1,
        "chain_id": "SVC-MAINNET",
        "address_prefix": "svc",
        "genesis_time": 1793491200000,
        "slot_seconds": 10,
        "slots_per_block": 6,
        "half_life_slots": 720,
        "gap_cap_slots": 720,
        "drift_slots": 2,
        "memory_kib": 8192,
        "initial_target": 2**242,
        "max_target": 2**244,
        "min_target": 2**160,
        "initial_reward": 2000000000,
        "halving_blocks": 2100000,
        "minimum_fee": 10000,
        "holding_minimum": 1000 * 10**8,
        "multiplier_schedule": ((0, 10000), (8640, 10500), (60480, 11500), (259200, 13000), (777600, 15000)),
        "max_block_transactions": 2000,
        "max_block_bytes": 1310720,
        "transaction_past_seconds": 86400,
        "transaction_future_seconds": 600,
        "allocations": (),
    }


def test_devnet() -> None:
    assert asdict(DEVNET, recurse=False) == {
        "name": "devnet",
        "network_id": 2,
        "chain_id": "SVC-DEVNET",
        "address_prefix": "svcd",
        "genesis_time": 1793491200000,
        "slot_seconds": 1,
        "slots_per_block": 2,
        "half_life_slots": 60,
        "gap_cap_slots": 60,
        "drift_slots": 5,
        "memory_kib": 1024,
        "initial_target": 2**252,
        "max_target": 2**254,
        "min_target": 2**160,
        "initial_reward": 2000000000,
        "halving_blocks": 10000,
        "minimum_fee": 10000,
        "holding_minimum": 10 * 10**8,
        "multiplier_schedule": ((0, 10000), (60, 10500), (120, 11500), (300, 13000), (600, 15000)),
        "max_block_transactions": 2000,
        "max_block_bytes": 1310720,
        "transaction_past_seconds": 86400,
        "transaction_future_seconds": 315360000,
        "allocations": ((FAUCET, 1_000_000 * 10**8),),
    }


def test_the_faucet_is_public() -> None:
    assert sha256(b"svc devnet faucet").digest() == FAUCET_SEED
    assert encode_address(key_hash(public_key_of(FAUCET_SEED)), "svcd") == FAUCET


def test_networks_have_names() -> None:
    assert NETWORKS == {"mainnet": MAINNET, "devnet": DEVNET}
    assert BASIS_POINTS == 10000


def test_genesis_hashes_are_frozen() -> None:
    """If this fails, a rule of the running networks was changed: that needs a new version and an activation height."""
    assert MAINNET.genesis_hash.hex() == "e1e08a2c9d781368620b02c7fafa07de42623acce46e1b40e1a54f2afb95b111"
    assert DEVNET.genesis_hash.hex() == "63557dd86972b5fc8a46efb5e2acd90affcfc23ff9189ea9939fde06848b414a"
    assert MAINNET.rules_hash.hex() == "bdfe4fdef0675a6c9c79778ac23f481be3b9ae1dcb777ac5ce4cd57f64805f74"
    assert DEVNET.rules_hash.hex() == "c124e1e953e77c0ebf0a831275c8128fa4a707805060c2f545d8a7403298bc47"


def test_hashes_are_tagged() -> None:
    rules = sha256(b"svc/rules/v1\0" + canonical(MAINNET.rules)).digest()
    assert rules == MAINNET.rules_hash
    core = sha256(b"svc/genesis/v1\0" + rules).digest()
    assert sha256(b"svc/block-id/v4\0" + core + bytes(8)).digest() == MAINNET.genesis_hash


CHANGES: dict[str, Any] = {
    "chain_id": "SVC-OTHER",
    "address_prefix": "svx",
    "multiplier_schedule": ((0, 10000), (61, 10500)),
    "allocations": ((FAUCET, 1),),
}
LOCAL = {"name", "drift_slots"}


@pytest.mark.parametrize("name", asdict(DEVNET, recurse=False))
def test_every_rule_but_no_local_setting_is_in_the_rules_hash(name: str) -> None:
    value = getattr(DEVNET, name)
    change: dict[str, Any] = {name: CHANGES.get(name) or (value + 1 if isinstance(value, int) else value + "x")}
    other = evolve(DEVNET, **change)
    assert (other.rules_hash == DEVNET.rules_hash) is (name in LOCAL)
    assert (other.genesis_hash == DEVNET.genesis_hash) is (name in LOCAL)


def test_slots_are_times_of_genesis_and_after() -> None:
    assert MAINNET.slot_time(0) == 1793491200000
    assert MAINNET.slot_time(7) == 1793491270000
    assert MAINNET.slot_at(1793491200000 - 1) == -1
    assert MAINNET.slot_at(1793491200000) == 0
    assert MAINNET.slot_at(1793491269999) == 6
    assert MAINNET.slot_at(1793491270000) == 7
    assert DEVNET.slot_at(DEVNET.slot_time(2**50)) == 2**50


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_reward_halves(params: NetworkParams) -> None:
    interval = params.halving_blocks
    assert params.reward(1) == params.reward(interval) == 2000000000
    assert params.reward(interval + 1) == params.reward(2 * interval) == 1000000000
    assert params.reward(2 * interval + 1) == 500000000
    assert params.reward(30 * interval + 1) == params.reward(31 * interval) == 1
    assert params.reward(31 * interval + 1) == params.reward(1000 * interval) == 0


def test_supply_is_limited() -> None:
    assert MAINNET.supply_limit == 8399999972700000 <= MAX_INTEGER
    assert DEVNET.supply_limit <= MAX_INTEGER
    small = evolve(DEVNET, halving_blocks=3)
    issued = small.allocations[0][1] + sum(small.reward(height) for height in range(1, 3 * 32))
    assert small.supply_limit == issued


def test_what_exists_after_a_block_is_the_allocations_and_the_rewards_so_far() -> None:
    small = evolve(DEVNET, halving_blocks=3, initial_reward=9)
    issued = small.allocations[0][1]
    assert small.issued_after(0) == issued
    for height in range(1, 20):
        issued += small.reward(height)
        assert small.issued_after(height) == issued
    assert small.issued_after(MAX_INTEGER) == issued == small.supply_limit
