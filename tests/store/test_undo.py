"""Undo records: what is packed comes out again (svcd/store/undo.py)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.chain.errors import Corrupt
from svcd.store.undo import pack, unpack

NUMBERS = st.integers(0, 2**63 - 1)
KEYS = st.binary(min_size=20, max_size=20)
ACCOUNTS = st.builds(Account, NUMBERS, NUMBERS, st.none() | NUMBERS)
BEFORE = st.dictionaries(KEYS, st.none() | ACCOUNTS, max_size=20)


@given(BEFORE)
def test_what_is_packed_comes_out_again_in_the_same_order(before: dict[bytes, Account | None]) -> None:
    assert list(unpack(pack(before)).items()) == list(before.items())


@given(BEFORE)
def test_an_account_takes_45_bytes(before: dict[bytes, Account | None]) -> None:
    assert len(pack(before)) == 45 * len(before)


def test_no_account_is_not_an_empty_account() -> None:
    key = bytes(20)
    assert unpack(pack({key: None})) == {key: None}
    assert unpack(pack({key: Account()})) == {key: Account()}
    assert unpack(pack({key: Account(held_since=0)})) == {key: Account(held_since=0)}


@pytest.mark.parametrize("length", [1, 44, 46, 91])
def test_a_record_of_a_wrong_length_is_corrupt(length: int) -> None:
    with pytest.raises(Corrupt, match="wrong length"):
        unpack(bytes(length))


def test_an_empty_record() -> None:
    assert unpack(b"") == {}
