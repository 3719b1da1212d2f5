"""Ed25519 as libsodium judges it (docs/protocol.md 3, RFC 8032)."""

from typing import Final

from attrs import frozen
from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from .errors import Corrupt

PUBLIC_KEY_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64


def is_valid(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether libsodium accepts ``signature`` (64 bytes) of ``message`` under ``public_key`` (32 bytes)."""
    # The binding checks no sizes: it splits signature and message at 64 bytes, and reads 32 bytes from any key.
    if len(public_key) != PUBLIC_KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def sign(seed: bytes, message: bytes) -> bytes:
    """The 64-byte signature of ``message`` by the key of a 32-byte ``seed``."""
    _, secret = crypto_sign_seed_keypair(seed)
    return crypto_sign(message, secret)[:SIGNATURE_SIZE]


def public_key_of(seed: bytes) -> bytes:
    """The 32-byte public key of a 32-byte ``seed``."""
    return crypto_sign_seed_keypair(seed)[0]


@frozen
class EdgeCase:
    """A signature on which Ed25519 libraries disagree, and whether it must be accepted."""

    name: str
    accepted: bool
    public_key: str
    message: str
    signature: str


EDGE_CASES: Final = (
    EdgeCase(
        "a key of mixed order whose equation holds without the cofactor",
        True,
        "36540f9ba247cf6f9b845564d4ab3c0757de7e5570f0ea4700666b634a5c5e46",
        "b2fa6fa692394a015873374ecac204678b916e214b30ad00c988ff22fcd9a058",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "8ce0a6b70c41b4f5ac6a5a7ad70288607b4f490d38b7ec30ccfaadd888f7d904",
    ),
    EdgeCase(
        "a key of mixed order whose equation holds only with the cofactor",
        False,
        "36540f9ba247cf6f9b845564d4ab3c0757de7e5570f0ea4700666b634a5c5e46",
        "2106f840cf940ade40c66e166ff7ef7988c81abf0285249026eab3003415f7a4",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "20fe5f6ed9206a46d8d2222d7d9fc2ed363e49a5cfd807e8af08d3a62af0da0c",
    ),
    EdgeCase(
        "an ordinary signature",
        True,
        "cb72896c871c3f678f509259915e9178b196b201633de96b7bebbf34afcb436e",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "fd0f37b582d91eec82cbf3f0d1087db54c0306507fb2d2be4241c7709307e103",
    ),
    EdgeCase(
        "S not below the group order",
        False,
        "cb72896c871c3f678f509259915e9178b196b201633de96b7bebbf34afcb436e",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "eae32c129d3c31445968eb93b0025cca4c0306507fb2d2be4241c7709307e113",
    ),
    EdgeCase(
        "an R of mixed order",
        False,
        "cb72896c871c3f678f509259915e9178b196b201633de96b7bebbf34afcb436e",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "607055ca3d4aa8af26961afb12b1e60a75fac88f9c260ff25806631dbb269159"
        "b6ce263c6dbdac58aac5548d6a32f630e71b3b9e7f7b23e042b54fe3cabec00d",
    ),
    EdgeCase(
        "a key of small order",
        False,
        "0100000000000000000000000000000000000000000000000000000000000000",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "2e77a7db3b2f65a47efd3cf9bbe5f05486e88756c8cc06c7691f6d5679727502",
    ),
    EdgeCase(
        "an R of small order",
        False,
        "cb72896c871c3f678f509259915e9178b196b201633de96b7bebbf34afcb436e",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "0100000000000000000000000000000000000000000000000000000000000000"
        "5afcf63969f4b0450b1876fe857954ec6f4fbf8ab371e36fd7f9dd886005f502",
    ),
    EdgeCase(
        "a key that is not canonically encoded",
        False,
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475",
        "3e54c441927f9f0ee5e13e34f0b0404c5043651a8f4b7ef087a1c42262a85d0a"
        "2e77a7db3b2f65a47efd3cf9bbe5f05486e88756c8cc06c7691f6d5679727502",
    ),
)
"""Made for this file, from the seed SHA-256("svcd edge cases") and points of order eight."""


def check_library() -> None:
    """Raise Corrupt if this machine's libsodium judges an edge case differently from the network.

    The node calls it at start: if a later libsodium, or another library under PyNaCl, accepted more signatures, the
    network would split.
    """
    for case in EDGE_CASES:
        key, message, signature = (bytes.fromhex(text) for text in (case.public_key, case.message, case.signature))
        if is_valid(key, message, signature) != case.accepted:
            verb = "refuses" if case.accepted else "accepts"
            raise Corrupt(f"libsodium {verb} {case.name}, unlike the network: install the PyNaCl wheel from PyPI")
