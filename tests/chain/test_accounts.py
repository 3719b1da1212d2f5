"""The commitment to all accounts, by its definition (docs/protocol.md 9)."""

from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import KEY_BITS, Account, pack_held_since, unpack_held_since
from svcd.chain.state_root import leaf_hash, state_root


def bit(key: bytes, depth: int) -> str:
    return f"{int.from_bytes(key, 'big'):0160b}"[depth]


def defined_root(leaves: dict[bytes, bytes], depth: int = 0) -> bytes:
    """R of docs/protocol.md 9, word for word."""
    if not leaves:
        return bytes(32)
    if len(leaves) == 1:
        return next(iter(leaves.values()))
    zeros, ones = ({key: leaf for key, leaf in leaves.items() if bit(key, depth) == side} for side in "01")
    return sha256(b"\1" + defined_root(zeros, depth + 1) + defined_root(ones, depth + 1)).digest()


def test_an_account_begins_with_nothing() -> None:
    assert Account() == Account(balance=0, nonce=0, held_since=None)


def test_a_leaf_is_key_balance_nonce_and_slot() -> None:
    key = bytes(range(20))
    numbers = b"".join(number.to_bytes(8, "big") for number in (5, 6, 7))
    assert leaf_hash(key, 5, 6, 7) == sha256(b"\0" + key + numbers).digest()
    assert leaf_hash(key, 0, 0, None) == sha256(b"\0" + key + bytes(16) + b"\xff" * 8).digest()
    assert (pack_held_since(None), unpack_held_since(2**64 - 1), KEY_BITS) == (2**64 - 1, None, 160)


def test_holding_since_slot_0_is_not_holding_never() -> None:
    assert leaf_hash(bytes(20), 1, 0, 0) != leaf_hash(bytes(20), 1, 0, None)


def test_no_account_is_all_zeros_and_one_account_is_its_leaf() -> None:
    key, account = b"\x80" + bytes(19), Account(5, 6, 7)
    assert state_root([]) == bytes(32)
    assert state_root([(key, account)]) == leaf_hash(key, 5, 6, 7)


def test_two_accounts_part_at_their_first_different_bit() -> None:
    left, right = bytes(20), bytes(19) + b"\x01"
    pair = leaf_hash(left, 1, 0, None) + leaf_hash(right, 2, 0, None)
    root = sha256(b"\1" + pair).digest()
    for _ in range(159):
        root = sha256(b"\1" + root + bytes(32)).digest()
    assert state_root([(left, Account(1)), (right, Account(2))]) == root


@given(
    st.dictionaries(
        st.integers(0, 2**160 - 1) | st.integers(0, 40), st.tuples(*[st.integers(0, 2**53)] * 3), max_size=40
    )
)
def test_root_is_that_of_the_definition_in_any_order(numbers: dict[int, tuple[int, int, int]]) -> None:
    accounts = [(key.to_bytes(20, "big"), Account(*values)) for key, values in numbers.items()]
    leaves = {key: leaf_hash(key, one.balance, one.nonce, one.held_since) for key, one in accounts}
    root = defined_root(leaves)
    assert state_root(accounts) == root
    Random(len(accounts)).shuffle(accounts)
    assert state_root(accounts) == root


@pytest.mark.parametrize("change", [Account(11, 20, 30), Account(10, 21, 30), Account(10, 20, 31), Account(10, 20)])
def test_any_change_of_an_account_changes_the_root(change: Account) -> None:
    others = [(bytes([number]) * 20, Account(number)) for number in range(1, 9)]
    key = b"\x55" * 20
    assert state_root([*others, (key, change)]) != state_root([*others, (key, Account(10, 20, 30))])
