"""Keys and bech32m addresses (docs/protocol.md 3, BIP-350)."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import bech32m_decode, bech32m_encode, decode_address, encode_address, key_hash, node_id
from svcd.chain.errors import Refusal, RuleViolation
from tests.chain.refusing import refuses

CHARSET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
KEY = bytes(range(20))
ADDRESS = encode_address(KEY, "svc")


def test_key_hash_and_node_id_are_tagged() -> None:
    public = bytes(range(32))
    assert key_hash(public) == sha256(b"svc/address/v1\0" + public).digest()[:20]
    assert node_id(public) == "svcnode_" + sha256(b"svc/node/v1\0" + public).hexdigest()[:32]


# bech32m


def bip(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_bip_350_valid_strings(public_vectors: Path) -> None:
    strings = bip(public_vectors, "bip350_bech32m.json")["valid_bech32m"]
    assert len(strings) == 7
    for text in strings:
        assert bech32m_encode(*bech32m_decode(text)) == text.lower()


def test_bip_350_invalid_strings(public_vectors: Path) -> None:
    cases = bip(public_vectors, "bip350_bech32m.json")["invalid_bech32m"]
    assert len(cases) == 14
    for case in cases:
        with refuses(Refusal.ADDRESS):
            bech32m_decode(case["string"])


def test_bip_350_segwit_addresses_of_version_1_and_up_are_bech32m(public_vectors: Path) -> None:
    for case in bip(public_vectors, "bip350_bech32m.json")["valid_segwit"]:
        version = int(case["scriptPubKey"][:2], 16)
        if version == 0:
            with refuses(Refusal.ADDRESS, "checksum"):
                bech32m_decode(case["address"])
        else:
            _, symbols = bech32m_decode(case["address"])
            assert symbols[0] == version - 0x50
            bits = "".join(f"{symbol:05b}" for symbol in symbols[1:])
            program = case["scriptPubKey"][4:]
            assert int(bits[: 4 * len(program)], 2) == int(program, 16)


def test_bip_173_strings_are_no_bech32m(public_vectors: Path) -> None:
    strings = bip(public_vectors, "bip173_bech32_must_reject.json")["strings"]
    assert len(strings) == 7
    for text in strings:
        with refuses(Refusal.ADDRESS):
            bech32m_decode(text)


@given(st.text("abcdefgh1_!~", min_size=1, max_size=20), st.lists(st.integers(0, 31), max_size=60))
def test_bech32m_is_decoded_to_what_was_encoded(prefix: str, symbols: list[int]) -> None:
    text = bech32m_encode(prefix, symbols)
    assert bech32m_decode(text) == (prefix, symbols)
    assert bech32m_decode(text.upper()) == (prefix, symbols)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a1lqfn3", "8 to 90 characters"),
        ("a" * 84 + "1lqfn3a", "8 to 90 characters"),
        ("A1lqfn3a", "of one case"),
        ("a1lqfn 3a", "not a bech32m string"),
        ("a1lqfn3a\n", "not a bech32m string"),
        ("ä1lqfn3aa", "not a bech32m string"),
        ("aalqfn3a", "the digit 1"),
        ("1alqfn3a", "prefix"),
        ("aaa1qfn3a", "checksum"),
        ("a1lqfn3b", "'b' is no bech32m character"),
        ("a1lqfn3q", "checksum"),
    ],
)
def test_no_bech32m(text: str, reason: str) -> None:
    with refuses(Refusal.ADDRESS, reason):
        bech32m_decode(text)


# Addresses


def test_an_address_is_bech32m_of_version_0_and_the_key_hash() -> None:
    number = int.from_bytes(KEY, "big")
    symbols = [0, *(number >> 5 * (31 - at) & 31 for at in range(32))]
    assert bech32m_encode("svc", symbols) == ADDRESS
    assert len(ADDRESS) == 43
    assert ADDRESS.startswith("svc1q")


@given(st.binary(min_size=20, max_size=20), st.sampled_from(["svc", "svcd", "svct"]))
def test_address_is_decoded_to_what_was_encoded(key: bytes, prefix: str) -> None:
    assert decode_address(encode_address(key, prefix), prefix) == key


@given(st.binary(min_size=20, max_size=20), st.sampled_from(["svc", "svcd"]))
def test_the_address_of_any_key_is_what_the_standard_makes_of_it(key: bytes, prefix: str) -> None:
    """Addresses are made and read by two symbols at a time; the plain way by one symbol says what is right."""
    number = int.from_bytes(key, "big")
    symbols = [0, *(number >> 5 * (31 - at) & 31 for at in range(32))]
    address = bech32m_encode(prefix, symbols)
    assert encode_address(key, prefix) == address
    assert decode_address(address, prefix) == key
    assert bech32m_decode(encode_address(key, prefix)) == (prefix, symbols)


def test_any_other_character_anywhere_is_refused() -> None:
    accepted = {
        text
        for at, right in enumerate(ADDRESS)
        for wrong in [*CHARSET, *CHARSET.upper(), *"1bio BIO\n\x00é１"]
        if wrong != right and _is_address(text := ADDRESS[:at] + wrong + ADDRESS[at + 1 :])
    }
    assert accepted == set()


@given(st.binary(min_size=20, max_size=20), st.integers(5, 42), st.sampled_from(CHARSET))
def test_any_substitution_is_refused(key: bytes, at: int, wrong: str) -> None:
    right = encode_address(key, "svc")
    text = right[:at] + wrong + right[at + 1 :]
    assert _is_address(text) is (text == right)


@given(st.binary(min_size=20, max_size=20), st.integers(5, 41))
def test_two_neighbours_exchanged_are_refused(key: bytes, at: int) -> None:
    right = encode_address(key, "svc")
    text = right[:at] + right[at + 1] + right[at] + right[at + 2 :]
    assert _is_address(text) is (text == right)


def _is_address(text: str) -> bool:
    try:
        decode_address(text, "svc")
    except RuleViolation:
        return False
    return True


def _versioned(version: int) -> str:
    return bech32m_encode("svc", [version, *bech32m_decode(ADDRESS)[1][1:]])


SHAPE = "recipient must be an address of this network: 43 characters that begin with svc1q"
LOWER = "recipient must be in lower case: it begins with svc1q"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ADDRESS.upper(), LOWER),
        (ADDRESS[:5] + ADDRESS[5:].upper(), LOWER),
        (ADDRESS.replace("svc", "SVC"), LOWER),
        (encode_address(KEY, "svcd").upper(), SHAPE),
        (ADDRESS[:-1], SHAPE),
        (ADDRESS + "q", SHAPE),
        (ADDRESS + "\n", SHAPE),
        (" " + ADDRESS, SHAPE),
        (encode_address(KEY, "svcd"), SHAPE),
        (encode_address(KEY, "svd"), SHAPE),
        (_versioned(1), SHAPE),
        (_versioned(31), SHAPE),
        (ADDRESS[:-1] + ("q" if ADDRESS[-1] != "q" else "p"), "recipient has a wrong checksum; copy the address again"),
        (ADDRESS[:-1] + "b", "recipient holds 'b', which no address has"),
        (ADDRESS[:-1] + "\ud800", r"recipient holds '\ud800', which no address has"),
        ("", SHAPE),
        (None, SHAPE),
        (True, SHAPE),
        ([ADDRESS], SHAPE),
        (ADDRESS.encode(), SHAPE),
    ],
)
def test_no_address(value: object, reason: str) -> None:
    with refuses(Refusal.ADDRESS, reason):
        decode_address(value, "svc", "recipient")


def test_an_address_without_another_name_is_called_address() -> None:
    with refuses(Refusal.ADDRESS, "address must be an address of this network"):
        decode_address("bob", "svc")


def test_bech32_checksum_is_refused() -> None:
    """The older checksum differs from the right one by a constant; it lets characters be inserted before a final p."""
    symbols = [CHARSET.index(character) for character in ADDRESS[-6:]]
    difference = 0x2BC830A3 ^ 1
    older = [symbol ^ difference >> shift & 31 for symbol, shift in zip(symbols, (25, 20, 15, 10, 5, 0), strict=True)]
    with refuses(Refusal.ADDRESS, "checksum"):
        decode_address(ADDRESS[:-6] + "".join(CHARSET[symbol] for symbol in older), "svc")
