"""Keys and bech32m addresses (docs/protocol.md 3, BIP-350)."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import decode_address, encode_address, key_hash, node_id
from svcd.chain.errors import Refusal, RuleViolation
from tests.chain.refusing import refuses

CHARSET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
KEY = bytes(range(20))
ADDRESS = encode_address(KEY, "svc")


def test_key_hash_and_node_id_are_tagged() -> None:
    public = bytes(range(32))
    assert key_hash(public) == sha256(b"svc/address/v1\0" + public).digest()[:20]
    assert node_id(public) == "svcnode_" + sha256(b"svc/node/v1\0" + public).hexdigest()[:32]


# bech32m: the plain way of the standard, by one symbol at a time, says what the fast way of addresses must give


def bech32m_encode(prefix: str, symbols: list[int]) -> str:
    """The bech32m string of five-bit ``symbols`` under ``prefix``, as BIP-350 and BIP-173 compute it."""

    def polymod(values: list[int]) -> int:
        checksum = 1
        for value in values:
            top, checksum = checksum >> 25, (checksum & 0x1FFFFFF) << 5 ^ value
            for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
                checksum ^= generator if top >> bit & 1 else 0
        return checksum

    expanded = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix]
    rest = polymod([*expanded, *symbols, 0, 0, 0, 0, 0, 0]) ^ 0x2BC830A3
    checksum = [rest >> shift & 31 for shift in (25, 20, 15, 10, 5, 0)]
    return f"{prefix}1{''.join(CHARSET[symbol] for symbol in symbols + checksum)}"


def test_bip_350_strings(public_vectors: Path) -> None:
    vectors = json.loads((public_vectors / "bip350_bech32m.json").read_text())
    segwit = [case["address"] for case in vectors["valid_segwit"] if int(case["scriptPubKey"][:2], 16)]
    assert (len(vectors["valid_bech32m"]), len(segwit)) == (7, 5)
    for text in [*vectors["valid_bech32m"], *segwit]:
        prefix, _, data = text.lower().rpartition("1")
        assert bech32m_encode(prefix, [CHARSET.index(character) for character in data[:-6]]) == text.lower()


# Addresses


@given(st.binary(min_size=20, max_size=20), st.sampled_from(["svc", "svcd", "svct"]))
def test_the_address_of_any_key_is_what_the_standard_makes_of_it(key: bytes, prefix: str) -> None:
    number = int.from_bytes(key, "big")
    symbols = [0, *(number >> 5 * (31 - at) & 31 for at in range(32))]
    address = bech32m_encode(prefix, symbols)
    assert encode_address(key, prefix) == address
    assert decode_address(address, prefix) == key


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
    return bech32m_encode("svc", [version, *(CHARSET.index(character) for character in ADDRESS[5:-6])])


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
