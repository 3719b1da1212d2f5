"""Networks, addresses, amounts and hashes (docs/protocol.md 1 to 4)."""

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from typing import Final

from svc_pay.chain_rules import DEVNET_RULES, MAINNET_RULES, ChainRules
from svc_pay.errors import InvalidInput

COIN: Final = 10**8
"""Base units of one coin."""
GREATEST: Final = 2**53 - 1
"""The greatest number on the wire."""
MINIMUM_FEE: Final = 10_000
"""The smallest fee of a transfer on mainnet and devnet, in base units."""
MAX_CONFIRMATIONS: Final = 1000
KEY_BITS: Final = 160
"""The bits of the key hash in an address."""

_SYMBOLS: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32M: Final = 0x2BC830A3
_REFERENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_COINS: Final = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]{1,8}))?")


@dataclass(frozen=True, slots=True)
class Network:
    """A network, whose values never change: mainnet, devnet, or what :func:`svc_pay.read_network` has read."""

    name: str = field(compare=False)
    """What this computer calls it."""
    network_id: int
    chain_id: str
    prefix: str
    """The beginning of its addresses."""
    genesis_hash: str
    """64 hex characters."""
    rules: ChainRules = field(compare=False, repr=False)


MAINNET: Final = Network(
    "mainnet",
    1,
    "SVC-MAINNET",
    "svc",
    "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227",
    MAINNET_RULES,
)
DEVNET: Final = Network(
    "devnet",
    2,
    "SVC-DEVNET",
    "svcd",
    "3259c9ccf88c6586b6cae763e14a0f96b6db181f372df00e01776e855de4e444",
    DEVNET_RULES,
)
NETWORKS: Final = (MAINNET, DEVNET)
"""The networks that are built in."""


# Amounts


def parse_amount(coins: str) -> int:
    """The base units of a decimal number of coins such as ``"25"`` or ``"0.5"``; raises InvalidInput."""
    match = _COINS.fullmatch(coins) if len(coins) <= 32 else None
    if match is None:
        raise InvalidInput("an amount of coins is a decimal such as 25 or 0.5, with at most 8 decimal places")
    return check_amount(int(match[1]) * COIN + int((match[2] or "").ljust(8, "0")))


def format_amount(units: int) -> str:
    """The shortest decimal number of coins of base units: ``"25"``, ``"0.5"``."""
    whole, rest = divmod(abs(units), COIN)
    text = f"{whole}.{rest:08d}".rstrip("0").rstrip(".")
    return f"-{text}" if units < 0 else text


def check_amount(units: object) -> int:
    """``units`` if it is a possible amount in base units; raises InvalidInput."""
    return check_number(units, "amount", least=1)


def check_number(value: object, name: str, *, least: int = 0, greatest: int = GREATEST) -> int:
    """``value`` if it is an integer in this range; raises InvalidInput."""
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidInput(f"{name} must be an integer from {least} to {greatest}")
    return value


# References and addresses


def check_reference(reference: str) -> str:
    """``reference`` if an order can have it; raises InvalidInput."""
    if not _REFERENCE.fullmatch(reference) or reference in (".", ".."):
        raise InvalidInput("a reference is 1 to 64 of the characters A-Z a-z 0-9 . _ : -, and not . or ..")
    return reference


def refund_reference(reference: str | None, txid: str) -> str:
    """The reference that `svc wallet refund` gives the refund of a payment."""
    if reference is None:
        return f"refund:{txid[:32]}"
    if len(reference) <= 57:
        return f"refund:{reference}"
    return f"refund:{reference[:40]}.{sha256(reference.encode('ascii')).hexdigest()[:16]}"


def _checksum(prefix: str, symbols: list[int]) -> list[int]:
    """The six last symbols of bech32m (BIP-350)."""
    codes, state = prefix.encode("ascii"), 1
    for value in [*(code >> 5 for code in codes), 0, *(code & 31 for code in codes), *symbols, 0, 0, 0, 0, 0, 0]:
        top, state = state >> 25, (state & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            state ^= generator * (top >> bit & 1)
    return [(state ^ _BECH32M) >> shift & 31 for shift in (25, 20, 15, 10, 5, 0)]


def address_of(public_key: bytes, network: Network) -> str:
    """The address of a 32-byte Ed25519 public key."""
    key_hash = int.from_bytes(tagged_hash("svc/address/v1", public_key)[:20], "big")
    symbols = [key_hash >> shift & 31 for shift in range(KEY_BITS, -1, -5)]
    return f"{network.prefix}1" + "".join(_SYMBOLS[symbol] for symbol in symbols + _checksum(network.prefix, symbols))


def network_of(address: str) -> Network:
    """The network of an address of mainnet or devnet; raises InvalidInput for every other text."""
    for network in NETWORKS:
        if _symbols(address, network.prefix) is not None:
            check_address(address, network)
            return network
    raise InvalidInput(
        "an address begins with svc1q, or svcd1q on devnet, and 38 more lower-case characters follow; of a network of"
        " your own, give the network, too"
    )


def _symbols(address: str, prefix: str) -> list[int] | None:
    """The symbols of an address with this prefix, whose checksum may be wrong; None if it has another form."""
    symbols = [_SYMBOLS.find(character) for character in address.removeprefix(f"{prefix}1")]
    return symbols if address.startswith(f"{prefix}1q") and len(symbols) == 39 and -1 not in symbols else None


def check_address(address: str, network: Network) -> str:
    """``address`` if it is one of ``network``; raises InvalidInput."""
    key_hash_in(address, network.prefix, network.name)
    return address


def key_hash_of(address: str, network: Network) -> int:
    """The key hash in an address of ``network``; raises InvalidInput."""
    return key_hash_in(address, network.prefix, network.name)


def key_hash_in(address: str, prefix: str, name: str) -> int:
    """The key hash in an address with a prefix, that of the network ``name``; raises InvalidInput."""
    symbols = _symbols(address, prefix)
    if symbols is None:
        raise InvalidInput(
            f"{address[:90]!r} is not an address of {name}: those have {prefix}1q and 38 more lower-case characters"
        )
    if _checksum(prefix, symbols[:33]) != symbols[33:]:
        raise InvalidInput(f"{address} is mistyped: its checksum is wrong")
    number = 0
    for symbol in symbols[:33]:
        number = number << 5 | symbol
    return number


# Hashes


def tagged_hash(tag: str, data: bytes) -> bytes:
    """SHA-256 of a tag, a zero byte and ``data``."""
    return sha256(tag.encode("ascii") + b"\0" + data).digest()


def canonical(value: object) -> bytes:
    """The canonical JSON (RFC 8785) of objects with ASCII keys, arrays, strings and integers."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")


def txid_of(transaction: dict[str, object], network: Network) -> bytes:
    """The 32-byte txid of a transfer, signed or not: what its sender signs."""
    unsigned = {name: value for name, value in transaction.items() if name != "signature"}
    return tagged_hash("svc/tx/v2", bytes.fromhex(network.genesis_hash) + canonical(unsigned))


# Hosts


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this computer."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
