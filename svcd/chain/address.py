"""Keys and bech32m addresses (docs/protocol.md 3, BIP-350)."""

from functools import reduce
from operator import getitem, xor
from typing import Final, NamedTuple

from .encoding import tagged_hash
from .errors import Corrupt, Refusal, RuleViolation

_CHARSET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUE_OF: Final = {character: value for value, character in enumerate(_CHARSET)}
_BECH32M: Final = 0x2BC830A3
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_KEY_SYMBOLS: Final = 32
_CHECKSUM_SYMBOLS: Final = 6
_CHECKSUM_WIDTH: Final = 5 * _CHECKSUM_SYMBOLS
_CHECKSUM_BITS: Final = (1 << _CHECKSUM_WIDTH) - 1


def _carry(top: int) -> int:
    total = 0
    for bit, generator in enumerate(_GENERATOR):
        if top >> bit & 1:
            total ^= generator
    return total


_CARRY: Final = tuple(_carry(top) for top in range(32))


def _polymod(symbols: list[int], checksum: int = 1) -> int:
    for symbol in symbols:
        checksum = (checksum & 0x1FFFFFF) << 5 ^ symbol ^ _CARRY[checksum >> 25]
    return checksum


def _share(bit: int) -> int:
    """The effect of each bit of the key hash on the checksum; effects are combined by exclusive or."""
    symbols = [0] * (_KEY_SYMBOLS + _CHECKSUM_SYMBOLS)
    symbols[_KEY_SYMBOLS - 1 - bit // 5] = 1 << bit % 5
    return _polymod(symbols, 0)


def _shares(first: int) -> tuple[int, ...]:
    """The same for each value of the byte whose lowest bit is ``first``."""
    shares = [0]
    for effect in map(_share, range(first, first + 8)):
        shares += [share ^ effect for share in shares]
    return tuple(shares)


# A full block has four thousand addresses: they are made of two symbols, ten bits, at a time, and checked by the byte.
_PAIRS: Final = tuple(first + second for first in _CHARSET for second in _CHARSET)
_SHARES: Final = tuple(_shares(first) for first in range(152, -8, -8))
_TO_BASE_32: Final = bytes(
    b"0123456789abcdefghijklmnopqrstuv"[_VALUE_OF[chr(code)]] if chr(code) in _VALUE_OF else ord("!")
    for code in range(256)
)
"""Translates the characters of addresses to digits, and every other character to one that is no digit."""


def _expanded(prefix: str) -> list[int]:
    return [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix]


class _Form(NamedTuple):
    """What all addresses of a network have in common."""

    begin: str
    length: int
    """In characters."""
    checksum: int
    """The checksum of an address of zeros."""


_forms: dict[str, _Form] = {}


def _form_of(prefix: str) -> _Form:
    form = _forms.get(prefix)
    if form is None:
        # A pure function of the prefix, kept because a full block asks for it four thousand times.
        begin, zeros = f"{prefix}1q", [0] * (1 + _KEY_SYMBOLS + _CHECKSUM_SYMBOLS)
        checksum = _polymod([*_expanded(prefix), *zeros]) ^ _BECH32M
        form = _forms[prefix] = _Form(begin, len(begin) + _KEY_SYMBOLS + _CHECKSUM_SYMBOLS, checksum)
    return form


def _checksum(key20: bytes, start: int) -> int:
    """The six symbols at the end of an address as one number; ``start`` is the checksum of an address of zeros."""
    return reduce(xor, map(getitem, _SHARES, key20), start)


def encode_address(key20: bytes, prefix: str) -> str:
    """The address of a 20-byte key hash under a network's ``prefix``."""
    number = int.from_bytes(key20, "big")
    pairs = [number >> shift & 1023 for shift in range(150, -10, -10)]
    begin, _, checksum = _form_of(prefix)
    rest = _checksum(key20, checksum)
    pairs += [rest >> 20, rest >> 10 & 1023, rest & 1023]
    return f"{begin}{''.join([_PAIRS[pair] for pair in pairs])}"


def decode_address(value: object, prefix: str, what: str = "address") -> bytes:
    """The 20-byte key hash of an address of the network with ``prefix``; raises RuleViolation(ADDRESS).

    Only the one lower-case form is an address, so each text has one key hash, and each key hash one text.
    """
    start, length, checksum = _form_of(prefix)
    if type(value) is not str or not value.startswith(start) or len(value) != length:
        _refuse_capitals(value, start, what)
        raise RuleViolation(
            Refusal.ADDRESS, f"{what} must be an address of this network: {length} characters that begin with {start}"
        )
    text = value[len(start) :]
    try:
        number = int(text.encode("ascii", "replace").translate(_TO_BASE_32), 32)
    except ValueError:
        _refuse_capitals(value, start, what)
        odd = next(character for character in text if character not in _CHARSET)
        raise RuleViolation(Refusal.ADDRESS, f"{what} holds {odd!r}, which no address has") from None
    key20 = (number >> _CHECKSUM_WIDTH).to_bytes(20, "big")
    if number & _CHECKSUM_BITS != _checksum(key20, checksum):
        raise RuleViolation(Refusal.ADDRESS, f"{what} has a wrong checksum; copy the address again")
    return key20


def key_hash_of(address: bytes) -> bytes:
    """The 20-byte key hash in an address that was checked before, in ASCII, of any network; raises Corrupt."""
    symbols = address[-_KEY_SYMBOLS - _CHECKSUM_SYMBOLS : -_CHECKSUM_SYMBOLS]
    try:
        return int(symbols.translate(_TO_BASE_32), 32).to_bytes(20, "big")
    except ValueError:
        raise Corrupt("a stored address has characters that no address has") from None


def _refuse_capitals(value: object, start: str, what: str) -> None:
    """Raise RuleViolation(ADDRESS) if lower case would make ``value`` begin like an address."""
    if type(value) is str and value != value.lower() and value.lower().startswith(start):
        raise RuleViolation(Refusal.ADDRESS, f"{what} must be in lower case: it begins with {start}")


def key_hash(public_key: bytes) -> bytes:
    """The first 20 bytes of the tagged hash of a 32-byte public key."""
    return tagged_hash("svc/address/v1", public_key)[:20]


NODE_ID_PATTERN: Final = "svcnode_[0-9a-f]{32}"
"""The pattern of a whole node id."""


def node_id(public_key: bytes) -> str:
    """The node id that belongs to a node's 32-byte public key."""
    return f"svcnode_{tagged_hash('svc/node/v1', public_key)[:16].hex()}"
