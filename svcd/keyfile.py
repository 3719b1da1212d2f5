"""The keyfile: one secret seed, encrypted with a password (docs/keyfile.md specifies the format).

The file is the canonical JSON (RFC 8785) of this object in one line, and a line feed::

    {"address": "svc1q…",                      the address of ``publicKey`` on ``network``
     "cipher": {"ciphertext": 96 hex digits,   AES-256-GCM: the encrypted seed of 32 bytes, then the tag of 16 bytes
                "name": "AES-256-GCM",
                "nonce": 24 hex digits},       12 bytes, random for every file
     "format": "svc-keyfile-v2",
     "kdf": {"iterations": 3,                  how the key of the cipher is derived from the password: by Argon2id
             "memory": 65536,                  (RFC 9106; memory in KiB), or by PBKDF2 with HMAC-SHA-256 (RFC 8018),
             "name": "Argon2id",               which has "iterations", "name" and "salt" only
             "parallelism": 4,
             "salt": 32 hex digits},           16 bytes, random for every file
     "network": "mainnet",                     or "devnet", or the genesis hash of any other network, 64 hex digits
     "publicKey": 64 hex digits}               the Ed25519 public key of the seed

Hex is lower case. The password is normalised to NFC and encoded as UTF-8. The additional authenticated data of the
cipher is the canonical JSON of the object without ``cipher``: once the password has opened a file, nothing in it was
changed. Until then anybody may have written all that can be read in it.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from argon2.exceptions import HashingError
from argon2.low_level import Type, hash_secret_raw
from attrs import evolve, field, frozen
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.encoding import canonical, exact_fields, parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.keyfile_errors import DamagedKeyfile, KeyfileError, UnknownNetwork, WrongPassword
from svcd.visible_text import BadText, text_of

FORMAT: Final = "svc-keyfile-v2"
MAX_FILE_BYTES: Final = 4096
_PROBE: Final = 200_000
"""Iterations of PBKDF2 by which the speed of the computer is measured."""
_CIPHER: Final = "AES-256-GCM"
_SALT_SIZE: Final = 16
_NONCE_SIZE: Final = 12
_SEED_SIZE: Final = 32
_TAG_SIZE: Final = 16
_FIELDS: Final = frozenset(("address", "cipher", "format", "kdf", "network", "publicKey"))

Bounds = Mapping[str, tuple[int, int]]
"""The least and the largest value of each member of a KDF's cost."""


@frozen(kw_only=True)
class Pbkdf2:
    """The cost of PBKDF2 with HMAC-SHA-256 (RFC 8018), which browsers can compute."""

    iterations: int
    name: ClassVar[str] = "PBKDF2-SHA-256"
    bounds: ClassVar[Bounds] = {"iterations": (600_000, 10_000_000)}
    """What a file may say: fewer make guessing cheap, more would let a file keep a program busy for minutes."""

    def key(self, secret: bytes, salt: bytes) -> bytes:
        """The 32-byte key of the cipher."""
        return hashlib.pbkdf2_hmac("sha256", secret, salt, self.iterations)

    @property
    def outdated(self) -> bool:
        """Whether new files cost more."""
        return self.iterations < MIN_PBKDF2_ITERATIONS


@frozen(kw_only=True)
class Argon2id:
    """The cost of Argon2id (RFC 9106); ``memory`` is in KiB."""

    iterations: int
    memory: int
    parallelism: int
    name: ClassVar[str] = "Argon2id"
    bounds: ClassVar[Bounds] = {"iterations": (2, 32), "memory": (19_456, 262_144), "parallelism": (1, 16)}
    """What a file may say: at least what OWASP recommends, and no more than every computer with a wallet has."""

    def key(self, secret: bytes, salt: bytes) -> bytes:
        """The 32-byte key of the cipher; raises KeyfileError if the computer has not enough memory."""
        try:
            return hash_secret_raw(secret, salt, self.iterations, self.memory, self.parallelism, _SEED_SIZE, Type.ID)
        except HashingError as error:
            raise KeyfileError(
                f"the key cannot be derived from the password, which takes {self.memory // 1024} MiB of memory: {error}"
            ) from None

    @property
    def outdated(self) -> bool:
        """Whether new files cost more."""
        return self.memory * self.iterations < ARGON2ID.memory * ARGON2ID.iterations


Kdf = Pbkdf2 | Argon2id
MIN_PBKDF2_ITERATIONS: Final = 1_000_000
"""Of a new file, at least."""
ARGON2ID: Final = Argon2id(iterations=3, memory=65_536, parallelism=4)
"""The second recommendation of RFC 9106 section 4, for computers without 2 GiB to spare."""
_KDFS: Final[tuple[type[Pbkdf2] | type[Argon2id], ...]] = (Argon2id, Pbkdf2)


@frozen(kw_only=True)
class Keyfile:
    """An encrypted seed, with its address, network and public key, which are readable without the password."""

    params: NetworkParams
    address: str
    public_key: bytes
    kdf: Kdf
    salt: bytes
    nonce: bytes
    ciphertext: bytes = field(repr=False)


def seal(
    seed: bytes, password: str, *, params: NetworkParams, random: Callable[[int], bytes], kdf: Kdf = ARGON2ID
) -> Keyfile:
    """Encrypt a 32-byte ``seed`` with ``password``, for the network of ``params``.

    ``random`` returns that many secure random bytes. Raises KeyfileError for a password that is not Unicode text, or if
    the memory for ``kdf`` is missing.
    """
    public_key = public_key_of(seed)
    address = encode_address(key_hash(public_key), params.address_prefix)
    keyfile = Keyfile(
        params=params,
        address=address,
        public_key=public_key,
        kdf=kdf,
        salt=random(_SALT_SIZE),
        nonce=random(_NONCE_SIZE),
        ciphertext=b"",
    )
    encrypted = _cipher(keyfile, password).encrypt(keyfile.nonce, seed, _additional_data(keyfile))
    return evolve(keyfile, ciphertext=encrypted)


def unseal(keyfile: Keyfile, password: str) -> bytes:
    """Decrypt the 32-byte seed; raises WrongPassword, or DamagedKeyfile if the seed is not that of the address."""
    try:
        seed = _cipher(keyfile, password).decrypt(keyfile.nonce, keyfile.ciphertext, _additional_data(keyfile))
    except InvalidTag:
        raise WrongPassword(
            "the password does not decrypt the keyfile; if it is right, the file was changed: restore a copy"
        ) from None
    public_key = public_key_of(seed)
    own_address = encode_address(key_hash(public_key), keyfile.params.address_prefix)
    if own_address != keyfile.address or keyfile.public_key != public_key:
        raise DamagedKeyfile(
            f"the keyfile is inconsistent: its key is not that of {keyfile.address}; restore another copy"
        )
    return seed


def calibrated_pbkdf2(clock: Callable[[], float]) -> Pbkdf2:
    """The cost of PBKDF2 that takes this computer about a second, and at least that of new files.

    ``clock`` returns seconds.
    """
    start = clock()
    Pbkdf2(iterations=_PROBE).key(b"", bytes(_SALT_SIZE))
    rounds = round(_PROBE / max(clock() - start, 0.001), -5)
    return Pbkdf2(iterations=int(min(max(rounds, MIN_PBKDF2_ITERATIONS), Pbkdf2.bounds["iterations"][1])))


def render(keyfile: Keyfile) -> bytes:
    """The bytes of the file."""
    cipher = {"ciphertext": keyfile.ciphertext.hex(), "name": _CIPHER, "nonce": keyfile.nonce.hex()}
    return canonical({**_readable(keyfile), "cipher": cipher}) + b"\n"


def parse(data: bytes, networks: Iterable[NetworkParams] = tuple(NETWORKS.values())) -> Keyfile:
    """Parse the bytes of a file; whitespace between the JSON tokens is allowed.

    Raises DamagedKeyfile, or UnknownNetwork if the keyfile is of none of ``networks``.
    """
    try:
        return _parse(text_of(data).encode(), {_network_member(params): params for params in networks})
    except RuleViolation as violation:
        raise DamagedKeyfile(f"not a keyfile, or a damaged one: {violation.detail}; restore a copy of it") from None
    except BadText as error:
        raise DamagedKeyfile(f"not a keyfile, or a damaged one: it {error}") from None


def _cipher(keyfile: Keyfile, password: str) -> AESGCM:
    try:
        secret = unicodedata.normalize("NFC", password).encode("utf-8")
    except UnicodeEncodeError:
        raise KeyfileError(
            "the password is not valid UTF-8 text; check the encoding of your terminal or file"
        ) from None
    return AESGCM(keyfile.kdf.key(secret, keyfile.salt))


def _readable(keyfile: Keyfile) -> dict[str, Any]:
    """What the file says without the password."""
    kdf = keyfile.kdf
    costs = {name: getattr(kdf, name) for name in kdf.bounds}
    return {
        "address": keyfile.address,
        "kdf": {**costs, "name": kdf.name, "salt": keyfile.salt.hex()},
        "format": FORMAT,
        "network": _network_member(keyfile.params),
        "publicKey": keyfile.public_key.hex(),
    }


def _network_member(params: NetworkParams) -> str:
    """What a keyfile calls a network: names other than the built-in ones are local, and say nothing elsewhere."""
    return params.name if params in NETWORKS.values() else params.genesis_hash.hex()


def _additional_data(keyfile: Keyfile) -> bytes:
    return canonical(_readable(keyfile))


def _parse(data: bytes, networks: Mapping[str, NetworkParams]) -> Keyfile:
    value = parse_json(data)
    if isinstance(value, dict) and "format" in value:
        # First: a file of another format has other fields.
        _constant(value["format"], FORMAT, "format")
    fields = exact_fields(value, _FIELDS, "the keyfile")
    cipher = exact_fields(fields["cipher"], frozenset(("ciphertext", "name", "nonce")), "cipher")
    _constant(cipher["name"], _CIPHER, "cipher.name")
    network = fields["network"]
    if type(network) is str and network not in networks and re.fullmatch("[0-9a-f]{64}", network):
        raise UnknownNetwork(f"the key is for another network, whose genesis hash is {network}")
    if type(network) is not str or network not in networks:
        names = ", ".join(NETWORKS)
        raise DamagedKeyfile(f"network must be one of {names}, or a genesis hash, not {json.dumps(network)[:64]}")
    params, address = networks[network], fields["address"]
    hashed = decode_address(address, params.address_prefix)
    kdf, salt = _parse_kdf(fields["kdf"])
    public_key = _hex(fields["publicKey"], _SEED_SIZE, "publicKey")
    if key_hash(public_key) != hashed:
        raise DamagedKeyfile("the keyfile is inconsistent: its address is not that of its publicKey; restore a copy")
    return Keyfile(
        params=params,
        address=str(address),
        public_key=public_key,
        kdf=kdf,
        salt=salt,
        nonce=_hex(cipher["nonce"], _NONCE_SIZE, "cipher.nonce"),
        ciphertext=_hex(cipher["ciphertext"], _SEED_SIZE + _TAG_SIZE, "cipher.ciphertext"),
    )


def _parse_kdf(value: object) -> tuple[Kdf, bytes]:
    """The key derivation and its salt."""
    kinds = {kind.name: kind for kind in _KDFS}
    name = value.get("name") if isinstance(value, dict) else None
    if isinstance(value, dict) and (type(name) is not str or name not in kinds):
        raise DamagedKeyfile(f"kdf.name must be one of {', '.join(kinds)}, not {json.dumps(name)[:64]}")
    kind = kinds.get(str(name), Pbkdf2)
    fields = exact_fields(value, frozenset((*kind.bounds, "name", "salt")), "kdf")
    costs = {cost: _integer(fields[cost], *bounds, f"kdf.{cost}") for cost, bounds in kind.bounds.items()}
    return kind(**costs), _hex(fields["salt"], _SALT_SIZE, "kdf.salt")


def _constant(value: object, constant: str, what: str) -> None:
    if value != constant:
        raise DamagedKeyfile(f"{what} must be {json.dumps(constant)}, not {json.dumps(value)[:64]}")


def _integer(value: object, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise DamagedKeyfile(f"{what} must be an integer from {low} to {high}, not {json.dumps(value)[:64]}")
    return value


def _hex(value: object, size: int, what: str) -> bytes:
    if type(value) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
        raise DamagedKeyfile(f"{what} must be {2 * size} lower-case hex digits")
    return bytes.fromhex(value)
