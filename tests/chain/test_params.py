"""The two networks (docs/protocol.md 1), and what their hashes commit to (5)."""

from hashlib import sha256
from typing import Any

import pytest
from attrs import asdict, evolve

from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import DEVNET, FAUCET, FAUCET_SEED, MAINNET, NETWORKS
from svcd.chain.signature import public_key_of
from tests.chains import address_of, key_of, with_producers


def test_the_faucet_is_public() -> None:
    assert sha256(b"svc devnet faucet").digest() == FAUCET_SEED
    assert encode_address(key_hash(public_key_of(FAUCET_SEED)), "svcd") == FAUCET


def test_parameters_that_are_local_to_a_node() -> None:
    """All other numbers are rules, which test_protocol_vectors compares."""
    assert {name: (params.name, params.drift_slots) for name, params in NETWORKS.items()} == {
        "mainnet": ("mainnet", 2),
        "devnet": ("devnet", 5),
    }


def test_genesis_hashes_are_frozen() -> None:
    """If this fails, a rule of the running networks was changed: that needs a new version and an activation height."""
    assert MAINNET.genesis_hash.hex() == "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227"
    assert DEVNET.genesis_hash.hex() == "3259c9ccf88c6586b6cae763e14a0f96b6db181f372df00e01776e855de4e444"
    assert MAINNET.rules_hash.hex() == "c0ab3a203897968413099c4fa07afaf3054e5b98dd622765be52d4d7cb7f51ba"
    assert DEVNET.rules_hash.hex() == "6daf3cce2ccf26b409502e7ae6397add69b9828d4c2c8cfcc5495e9ea639c599"


CHANGES: dict[str, Any] = {
    "chain_id": "SVC-OTHER",
    "address_prefix": "svx",
    "multiplier_schedule": ((0, 10000), (61, 10200)),
    "producers": (FAUCET,),
    "allocations": ((FAUCET, 1),),
}
LOCAL = {"name", "unit", "drift_slots"}


@pytest.mark.parametrize("name", asdict(DEVNET, recurse=False).keys() - {"changes"})
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


def test_supply_is_limited() -> None:
    assert MAINNET.supply_limit == 8399999972700000 <= MAX_INTEGER
    assert DEVNET.supply_limit <= MAX_INTEGER
    small = evolve(DEVNET, halving_blocks=3)
    issued = small.allocations[0][1] + sum(small.reward(height) for height in range(1, 3 * 32))
    assert small.supply_limit == issued


def test_the_supply_is_the_allocations_and_the_rewards_so_far() -> None:
    small = evolve(DEVNET, halving_blocks=3, initial_reward=9)
    issued = small.allocations[0][1]
    assert small.issued_after(0) == issued
    for height in range(1, 20):
        issued += small.reward(height)
        assert small.issued_after(height) == issued
    assert small.issued_after(MAX_INTEGER) == issued == small.supply_limit


@pytest.mark.parametrize(
    ("allocated", "reward", "last"),
    [
        (MAX_INTEGER - 30, 10, 3),
        (MAX_INTEGER - 29, 10, 2),
        (MAX_INTEGER - 9, 10, 0),
        (MAX_INTEGER, 10, 0),
        (0, 10, MAX_INTEGER // 10),
        (0, 0, 0),
    ],
)
def test_a_reward_that_never_halves_ends_before_the_supply_passes_its_bound(
    allocated: int, reward: int, last: int
) -> None:
    endless = evolve(DEVNET, halving_blocks=0, initial_reward=reward, allocations=((FAUCET, allocated),))
    heights = [height for height in (1, 2, last - 1, last) if 1 <= height <= last]
    assert [endless.reward(height) for height in heights] == [reward] * len(heights)
    assert [endless.reward(height) for height in (last + 1, last + 2, MAX_INTEGER)] == [0, 0, 0]
    assert [endless.issued_after(height) for height in heights] == [allocated + height * reward for height in heights]
    assert endless.issued_after(last + 1) == endless.issued_after(MAX_INTEGER) == allocated + last * reward
    assert endless.supply_limit == allocated + last * reward <= MAX_INTEGER


# Changes of the producers (8a)


def test_a_change_is_in_force_from_its_height_to_the_next() -> None:
    params = with_producers("abc", (5, "abcde"), (6, "a"), (100, "bd"))
    letters = {address_of(letter, "svct"): letter for letter in "abcde"}
    for height, expected in [(1, "abc"), (4, "abc"), (5, "abcde"), (6, "a"), (99, "a"), (100, "bd"), (10**9, "bd")]:
        assert "".join(letters[address] for address in params.producers_at(height)) == expected
        assert params.producer_keys_at(height) == {key_of(letter).hash for letter in expected}
        assert params.blocks_between_at(height) == len(expected) // 2
    assert params.most_blocks_between == 2


def test_a_network_without_changes_has_the_producers_of_its_rules_at_every_height() -> None:
    for params, producers in [(MAINNET, ()), (with_producers("abc"), with_producers("abc").producers)]:
        for height in (1, 2, MAX_INTEGER):
            assert params.producers_at(height) == producers
            assert params.blocks_between_at(height) == params.most_blocks_between == len(producers) // 2


def test_a_change_may_begin_with_the_first_block() -> None:
    assert with_producers("abc", (1, "xyz")).producers_at(1) == with_producers("xyz").producers


@pytest.mark.parametrize(
    ("first", "changes", "reason"),
    [
        ("", [(5, "a")], "everybody may make blocks on this network, so no change can name who may"),
        ("ab", [(0, "a")], "the height of the next change must be 1 or more, not 0"),
        ("ab", [(5, "a"), (5, "b")], "the height of the next change must be 6 or more, not 5"),
        ("ab", [(5, "a"), (4, "b")], "the height of the next change must be 6 or more, not 4"),
        ("ab", [(5, "")], "the change at height 5 must name at least one producer"),
        ("ab", [(5, "aba")], "the change at height 5 must name each producer once"),
    ],
)
def test_changes_that_a_network_cannot_have(first: str, changes: list[tuple[int, str]], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        with_producers(first, *changes)


def test_changes_are_no_rules_but_have_a_hash() -> None:
    """H("svc/changes/v1", J(changes)), the addresses of each list ascending."""
    params = with_producers("abc", (7, "ba"), (12, "c"))
    assert params.rules_hash == with_producers("abc").rules_hash
    assert params.genesis_hash == with_producers("abc").genesis_hash
    a, b, c = (address_of(letter, "svct") for letter in "abc")
    low, high = sorted([a, b])
    form = f'[{{"height":"7","producers":["{low}","{high}"]}},{{"height":"12","producers":["{c}"]}}]'
    assert params.changes_hash == sha256(b"svc/changes/v1\0" + form.encode()).digest()
    assert params.changes_hash == with_producers("abc", (7, "ab"), (12, "c")).changes_hash
    assert MAINNET.changes_hash == with_producers("abc").changes_hash == sha256(b"svc/changes/v1\0[]").digest()
    others = [
        with_producers("abc", (8, "ab"), (12, "c")),
        with_producers("abc", (7, "ab")),
        with_producers("abc", (7, "ab"), (12, "b")),
    ]
    assert len({each.changes_hash for each in [params, with_producers("abc"), *others]}) == 5
