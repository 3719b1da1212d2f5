"""Ed25519 as libsodium judges it (docs/protocol.md 3, RFC 8032)."""

from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

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
