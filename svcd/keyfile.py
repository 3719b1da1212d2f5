"""The keyfile: one secret seed, encrypted with a password, in a format that browsers can read and write too.

The file is the canonical JSON (RFC 8785) of this object in one line, and a line feed::

    {"address": "svc1q…",                      the address of the seed's key on ``network``
     "cipher": {"ciphertext": 96 hex digits,   AES-256-GCM: the encrypted seed of 32 bytes, then the tag of 16 bytes
                "name": "AES-256-GCM",
                "nonce": 24 hex digits},       12 bytes, random for every file
     "format": "svc-keyfile-v1",
     "kdf": {"iterations": 600000,             a JSON integer, 600,000 to 10,000,000
             "name": "PBKDF2-SHA-256",
             "salt": 32 hex digits},           16 bytes, random for every file
     "network": "mainnet"}                     or "devnet"

Hex is lower case. The encryption key is 32 bytes of PBKDF2 (RFC 8018) with HMAC-SHA-256 over the password, which is
normalised to NFC and encoded as UTF-8. The additional data of the cipher is the UTF-8 of address, format and network,
separated by line feeds (``svc1q…\\nsvc-keyfile-v1\\nmainnet``), so that none of the three can be changed. WebCrypto's
``deriveKey`` and ``decrypt`` use exactly these bytes; docs/command-line.md specifies the format for other programs.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from attrs import field, frozen
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.encoding import canonical, exact_fields, parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.signature import public_key_of

FORMAT: Final = "svc-keyfile-v1"
MIN_ITERATIONS: Final = 600_000
MAX_ITERATIONS: Final = 10_000_000
MAX_FILE_BYTES: Final = 4096
MIN_PASSWORD: Final = 10
"""Characters in a new password, at least."""
_KDF: Final = "PBKDF2-SHA-256"
_CIPHER: Final = "AES-256-GCM"
_SALT_SIZE: Final = 16
_NONCE_SIZE: Final = 12
_SEED_SIZE: Final = 32
_TAG_SIZE: Final = 16
_FIELDS: Final = frozenset(("address", "cipher", "format", "kdf", "network"))


class KeyfileError(Exception):
    """A keyfile cannot be sealed or opened; the text is one sentence that says why, without the password."""


class DamagedKeyfile(KeyfileError):
    """The file is not a keyfile of this format, or its content has been changed."""


class WrongPassword(KeyfileError):
    """The password does not decrypt the keyfile."""


@frozen(kw_only=True)
class Keyfile:
    """An encrypted seed, with its address and network, which are readable without the password."""

    params: NetworkParams
    address: str
    iterations: int
    salt: bytes
    nonce: bytes
    ciphertext: bytes = field(repr=False)


def seal(
    seed: bytes,
    password: str,
    *,
    params: NetworkParams,
    random: Callable[[int], bytes],
    iterations: int = MIN_ITERATIONS,
) -> Keyfile:
    """Encrypt a 32-byte ``seed`` with ``password``, for the network of ``params``.

    ``random`` returns that many secure random bytes. Raises KeyfileError for a password that is not Unicode text.
    """
    address = encode_address(key_hash(public_key_of(seed)), params.address_prefix)
    salt, nonce = random(_SALT_SIZE), random(_NONCE_SIZE)
    cipher = AESGCM(_key(password, salt, iterations))
    ciphertext = cipher.encrypt(nonce, seed, _additional_data(address, params))
    return Keyfile(params=params, address=address, iterations=iterations, salt=salt, nonce=nonce, ciphertext=ciphertext)


def unseal(keyfile: Keyfile, password: str) -> bytes:
    """Decrypt the 32-byte seed; raises WrongPassword, or DamagedKeyfile if the seed is not that of the address."""
    cipher = AESGCM(_key(password, keyfile.salt, keyfile.iterations))
    try:
        seed = cipher.decrypt(keyfile.nonce, keyfile.ciphertext, _additional_data(keyfile.address, keyfile.params))
    except InvalidTag:
        raise WrongPassword(
            "the password does not decrypt the keyfile; if it is right, the file was changed: restore a copy"
        ) from None
    if encode_address(key_hash(public_key_of(seed)), keyfile.params.address_prefix) != keyfile.address:
        raise DamagedKeyfile(
            f"the keyfile is inconsistent: its key is not that of {keyfile.address}; restore another copy"
        )
    return seed


def render(keyfile: Keyfile) -> bytes:
    """The bytes of the file."""
    value = {
        "address": keyfile.address,
        "cipher": {"ciphertext": keyfile.ciphertext.hex(), "name": _CIPHER, "nonce": keyfile.nonce.hex()},
        "format": FORMAT,
        "kdf": {"iterations": keyfile.iterations, "name": _KDF, "salt": keyfile.salt.hex()},
        "network": keyfile.params.name,
    }
    return canonical(value) + b"\n"


def parse(data: bytes) -> Keyfile:
    """Parse the bytes of a file; whitespace between the JSON tokens is allowed. Raises DamagedKeyfile."""
    try:
        return _parse(data)
    except RuleViolation as violation:
        raise DamagedKeyfile(f"not a keyfile, or a damaged one: {violation.detail}; restore a copy of it") from None


def password_problem(password: str) -> str | None:
    """Why a new password is not acceptable, or None."""
    length = len(unicodedata.normalize("NFC", password))
    if length < MIN_PASSWORD:
        return f"the password has {length} characters; choose one of at least {MIN_PASSWORD}"
    return None


def _key(password: str, salt: bytes, iterations: int) -> bytes:
    try:
        secret = unicodedata.normalize("NFC", password).encode("utf-8")
    except UnicodeEncodeError:
        raise KeyfileError(
            "the password is not valid UTF-8 text; check the encoding of your terminal or file"
        ) from None
    return hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)


def _additional_data(address: str, params: NetworkParams) -> bytes:
    return f"{address}\n{FORMAT}\n{params.name}".encode()


def _parse(data: bytes) -> Keyfile:
    fields = exact_fields(parse_json(data), _FIELDS, "the keyfile")
    _constant(fields["format"], FORMAT, "format")
    kdf = exact_fields(fields["kdf"], frozenset(("iterations", "name", "salt")), "kdf")
    cipher = exact_fields(fields["cipher"], frozenset(("ciphertext", "name", "nonce")), "cipher")
    _constant(kdf["name"], _KDF, "kdf.name")
    _constant(cipher["name"], _CIPHER, "cipher.name")
    network = fields["network"]
    if type(network) is not str or network not in NETWORKS:
        raise DamagedKeyfile(f"network must be one of {', '.join(NETWORKS)}, not {json.dumps(network)[:64]}")
    params, address = NETWORKS[network], fields["address"]
    decode_address(address, params.address_prefix)
    return Keyfile(
        params=params,
        address=str(address),
        iterations=_iterations(kdf["iterations"]),
        salt=_hex(kdf["salt"], _SALT_SIZE, "kdf.salt"),
        nonce=_hex(cipher["nonce"], _NONCE_SIZE, "cipher.nonce"),
        ciphertext=_hex(cipher["ciphertext"], _SEED_SIZE + _TAG_SIZE, "cipher.ciphertext"),
    )


def _constant(value: object, constant: str, what: str) -> None:
    if value != constant:
        raise DamagedKeyfile(f"{what} must be {json.dumps(constant)}, not {json.dumps(value)[:64]}")


def _iterations(value: object) -> int:
    # Fewer make guessing cheap; more would let a file keep a program busy forever.
    if type(value) is not int or not MIN_ITERATIONS <= value <= MAX_ITERATIONS:
        raise DamagedKeyfile(
            f"kdf.iterations must be an integer from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {json.dumps(value)[:64]}"
        )
    return value


def _hex(value: object, size: int, what: str) -> bytes:
    if type(value) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
        raise DamagedKeyfile(f"{what} must be {2 * size} lower-case hex digits")
    return bytes.fromhex(value)
