"""Transfers in the table of blocks: what is packed is given back, and what is not packed is left as it is."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address
from svcd.chain.errors import Corrupt
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, Transfer, parties_of, payee_of, sign_transfer, txid_of
from svcd.store.packed_transfer import (
    FEE,
    pack_transfer,
    parties_of_stored,
    payees_of_stored,
    txid_of_stored,
    unpack_transfer,
)

U53 = st.integers(0, 2**53 - 1)
REFERENCES = st.none() | st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True)


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    recipient = encode_address(draw(st.binary(min_size=20, max_size=20)), DEVNET.address_prefix)
    draft = Draft(
        recipient=recipient,
        amount=draw(st.integers(1, 2**53 - 1)),
        fee=draw(st.integers(DEVNET.minimum_fee, 2**53 - 1)),
        nonce=draw(U53),
        timestamp=draw(U53),
        reference=draw(REFERENCES),
    )
    return sign_transfer(draft, seed=draw(st.binary(min_size=32, max_size=32)), params=DEVNET)


@given(transfers())
def test_a_transfer_is_given_back_and_takes_less_than_half(transfer: Transfer) -> None:
    packed = pack_transfer(transfer.wire)
    assert unpack_transfer(packed) == transfer.wire
    assert len(packed) <= len(transfer.wire) - 250


@given(transfers())
def test_json_of_an_older_program_is_given_as_it_is(transfer: Transfer) -> None:
    assert unpack_transfer(transfer.wire) == transfer.wire


@given(transfers())
def test_both_forms_tell_id_parties_and_payee(transfer: Transfer) -> None:
    payees = () if transfer.reference is None else ((transfer.reference, transfer.recipient),)
    for stored in (transfer.wire, pack_transfer(transfer.wire)):
        assert txid_of_stored(stored, DEVNET) == transfer.txid
        assert parties_of_stored(stored) == (transfer.recipient, transfer.sender)
        assert payees_of_stored(stored) == payees


def either(read: Callable[[bytes], Any], stored: bytes) -> Any:
    try:
        return read(stored)
    except Corrupt:
        return Corrupt


@given(transfers(), st.integers(0, 400), st.binary(max_size=2), st.integers(0, 2))
def test_of_damage_both_forms_tell_the_same(transfer: Transfer, at: int, put: bytes, over: int) -> None:
    packed = pack_transfer(transfer.wire)
    damaged = packed[:at] + put + packed[at + over :]
    wire = unpack_transfer(damaged)
    assert txid_of_stored(damaged, DEVNET) == txid_of(wire, DEVNET)
    assert either(parties_of_stored, damaged) == either(parties_of, wire)
    payee, payees = either(payee_of, wire), either(payees_of_stored, damaged)
    if payee is Corrupt:
        # Without a reference only the JSON is looked through.
        assert payees in (Corrupt, ())
    else:
        assert payees == (() if payee is None else (payee,))


@given(transfers())
def test_sqlite_reads_the_fee_of_both_forms(transfer: Transfer) -> None:
    connection = sqlite3.connect(":memory:")
    for stored in (transfer.wire, pack_transfer(transfer.wire)):
        (fee,) = connection.execute(f"SELECT {FEE.format(body='?1')}", (stored,)).fetchone()
        assert fee == transfer.fee
    connection.close()


@given(st.binary(max_size=400))
def test_damage_is_no_transfer(stored: bytes) -> None:
    found = unpack_transfer(stored)
    assert found == stored or found.startswith(b"{")


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"fee":"1"}'])
def test_what_is_no_transfer_is_not_packed(text: bytes) -> None:
    with pytest.raises(Corrupt):
        pack_transfer(text)
