"""Transfers in the table of blocks: what is packed is given back, and damage is found or does no harm."""

from contextlib import closing, suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address
from svcd.chain.errors import Corrupt
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, Transfer, sign_transfer, txid_of
from svcd.store.database import DatabaseConnection
from svcd.store.packed_transfer import (
    FEE,
    pack_transfer,
    payment_of,
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
def test_a_stored_transfer_tells_what_it_is_found_by(transfer: Transfer) -> None:
    stored = pack_transfer(transfer.wire)
    assert txid_of_stored(stored, DEVNET) == transfer.txid
    assert payment_of(stored) == (transfer.recipient, transfer.sender, transfer.reference, transfer.amount)


@given(transfers(), st.integers(0, 400), st.binary(max_size=2), st.integers(0, 2))
def test_of_damage_all_tell_the_same_or_that_it_is_damage(transfer: Transfer, at: int, put: bytes, over: int) -> None:
    packed = pack_transfer(transfer.wire)
    damaged = packed[:at] + put + packed[at + over :]
    with suppress(Corrupt):
        wire = unpack_transfer(damaged)
        assert txid_of_stored(damaged, DEVNET) == txid_of(wire, DEVNET)
        assert (wire == transfer.wire) is (damaged == packed)
        with suppress(Corrupt):
            payment = payment_of(damaged)
            assert 0 <= payment.amount < 10**16
            assert len(payment.recipient) == len(payment.sender) == 20


@given(transfers())
def test_sqlite_reads_the_fee(transfer: Transfer) -> None:
    with closing(DatabaseConnection(":memory:")) as connection:
        (fee,) = connection.execute(f"SELECT {FEE.format(body='?1')}", (pack_transfer(transfer.wire),)).fetchone()
    assert fee == transfer.fee


@given(st.binary(max_size=400))
def test_damage_is_no_transfer(stored: bytes) -> None:
    for read in (unpack_transfer, payment_of, partial(txid_of_stored, params=DEVNET)):
        with suppress(Corrupt):
            read(stored)


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"fee":"1"}'])
def test_what_is_no_transfer_is_not_packed(text: bytes) -> None:
    with pytest.raises(Corrupt):
        pack_transfer(text)
