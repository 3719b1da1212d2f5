"""The keyfile: one secret seed, sealed by a password, in a form that a browser can read and write as well.

The file is the canonical JSON (RFC 8785) of this object, one line, and a line feed::

    {"address": "svc1q…",                      the address of the seed's key on ``network``
     "cipher": {"ciphertext": 96 hex digits,   AES-256-GCM: the 32 bytes of the seed sealed, then the tag of 16 bytes
                "name": "AES-256-GCM",
                "nonce": 24 hex digits},       12 bytes, fresh for every file
     "format": "svc-keyfile-v1",
     "kdf": {"iterations": 600000,             a JSON integer, 600,000 to 10,000,000
             "name": "PBKDF2-SHA-256",
             "salt": 32 hex digits},           16 bytes, fresh for every file
     "network": "mainnet"}                     or "devnet"

Hex is lower case. The key is PBKDF2 (RFC 8018) with HMAC-SHA-256 over the password, 32 bytes long; the password is in
Unicode's form NFC and in UTF-8. The additional data of the cipher is the UTF-8 of address, format and network with a
line feed between them (``svc1q…\\nsvc-keyfile-v1\\nmainnet``), so that none of the three can be exchanged. WebCrypto's
``deriveKey`` and ``decrypt`` take and give exactly these bytes; docs/command-line.md says the same for others.
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
from svcd.wallet.failed import DamagedKeyfile, Failed, WrongPassword

FORMAT: Final = "svc-keyfile-v1"
MIN_ITERATIONS: Final = 600_000
MAX_ITERATIONS: Final = 10_000_000
MAX_FILE_BYTES: Final = 4096
MIN_PASSWORD: Final = 10
"""The least characters of a new password."""
_KDF: Final = "PBKDF2-SHA-256"
_CIPHER: Final = "AES-256-GCM"
_SALT_SIZE: Final = 16
_NONCE_SIZE: Final = 12
_SEED_SIZE: Final = 32
_TAG_SIZE: Final = 16
_FIELDS: Final = frozenset(("address", "cipher", "format", "kdf", "network"))


@frozen(kw_only=True)
class Keyfile:
    """A sealed seed and what is known of it without the password."""

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
    """The keyfile that holds a 32-byte ``seed`` under ``password``, for the network of ``params``.

    ``random`` gives that many bytes which nobody can guess. Raises Failed for a password that is not Unicode text.
    """
    address = encode_address(key_hash(public_key_of(seed)), params.address_prefix)
    salt, nonce = random(_SALT_SIZE), random(_NONCE_SIZE)
    cipher = AESGCM(_key(password, salt, iterations))
    ciphertext = cipher.encrypt(nonce, seed, _additional_data(address, params))
    return Keyfile(params=params, address=address, iterations=iterations, salt=salt, nonce=nonce, ciphertext=ciphertext)


def unseal(keyfile: Keyfile, password: str) -> bytes:
    """The 32-byte seed in ``keyfile``; raises WrongPassword, or DamagedKeyfile if it is not the address's seed."""
    cipher = AESGCM(_key(password, keyfile.salt, keyfile.iterations))
    try:
        seed = cipher.decrypt(keyfile.nonce, keyfile.ciphertext, _additional_data(keyfile.address, keyfile.params))
    except InvalidTag:
        raise WrongPassword(
            "the password does not open the keyfile; if you are sure of it, the file was changed: restore a copy"
        ) from None
    if encode_address(key_hash(public_key_of(seed)), keyfile.params.address_prefix) != keyfile.address:
        raise DamagedKeyfile(
            f"the keyfile was made wrongly: the key in it is not that of {keyfile.address}; restore another copy"
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
    """The keyfile in the bytes of a file; blanks between its members are allowed. Raises DamagedKeyfile."""
    try:
        return _parse(data)
    except RuleViolation as violation:
        raise DamagedKeyfile(f"not a keyfile, or a damaged one: {violation.detail}; restore a copy of it") from None


def password_problem(password: str) -> str | None:
    """What is wrong with a new password, or None."""
    length = len(unicodedata.normalize("NFC", password))
    if length < MIN_PASSWORD:
        return f"the password has {length} characters; choose one of at least {MIN_PASSWORD}"
    return None


def _key(password: str, salt: bytes, iterations: int) -> bytes:
    try:
        secret = unicodedata.normalize("NFC", password).encode("utf-8")
    except UnicodeEncodeError:
        raise Failed("the password is not valid UTF-8 text; check the encoding of your terminal or file") from None
    return hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)


def _additional_data(address: str, params: NetworkParams) -> bytes:
    return f"{address}\n{FORMAT}\n{params.name}".encode()


def _parse(data: bytes) -> Keyfile:
    if len(data) > MAX_FILE_BYTES:
        raise DamagedKeyfile(f"not a keyfile: it holds more than {MAX_FILE_BYTES} bytes")
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
    # Fewer make guessing cheap; more would let a file keep a program busy for ever.
    if type(value) is not int or not MIN_ITERATIONS <= value <= MAX_ITERATIONS:
        raise DamagedKeyfile(
            f"kdf.iterations must be a whole number from {MIN_ITERATIONS} to {MAX_ITERATIONS}, "
            f"not {json.dumps(value)[:64]}"
        )
    return value


def _hex(value: object, size: int, what: str) -> bytes:
    if type(value) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
        raise DamagedKeyfile(f"{what} must be {2 * size} lower-case hex digits")
    return bytes.fromhex(value)
