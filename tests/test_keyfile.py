"""Keyfiles: published bytes, round trips, and an error sentence for every kind of damage."""

import hashlib
import json
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id as OtherArgon2id
from hypothesis import assume, given
from hypothesis import strategies as st

from svcd import keyfile as keyfiles
from svcd.chain.encoding import canonical
from svcd.chain.params import DEVNET, MAINNET, NETWORKS
from svcd.keyfile import (
    ARGON2ID,
    Argon2id,
    Kdf,
    Keyfile,
    Pbkdf2,
    calibrated_pbkdf2,
    parse,
    render,
    seal,
    unseal,
)
from svcd.keyfile_errors import DamagedKeyfile, KeyfileError, UnknownNetwork, WrongPassword
from tests.cli.terminal import ADDRESS, KEYFILE, PASSWORD, SEED

FEW = Pbkdf2(iterations=1)
"""The cost where it is not what is tried."""
VECTORS = json.loads((Path(__file__).parent / "vectors" / "wallet.json").read_text("utf-8"))

seeds = st.binary(min_size=32, max_size=32)
passwords = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
networks = st.sampled_from(sorted(NETWORKS.values(), key=lambda params: params.name))


def sealed(password: str = PASSWORD) -> Keyfile:
    return seal(SEED, password, params=DEVNET, random=os.urandom, kdf=FEW)


def kdf_of(vector: dict[str, Any]) -> Kdf:
    """The cost in a test vector."""
    costs = {name: cost for name, cost in vector["kdf"].items() if name not in ("name", "salt")}
    return Argon2id(**costs) if vector["kdf"]["name"] == "Argon2id" else Pbkdf2(**costs)


@pytest.mark.parametrize("vector", VECTORS["keyfiles"], ids=lambda vector: f"{vector['network']} {vector['kdf']}")
def test_the_bytes_of_a_keyfile(vector: dict[str, Any]) -> None:
    fixed = iter([bytes.fromhex(vector["kdf"]["salt"]), bytes.fromhex(vector["nonce"])])
    seed, params, file = bytes.fromhex(vector["seed"]), NETWORKS[vector["network"]], vector["file"].encode()
    sealed = seal(seed, vector["password"], params=params, random=lambda _: next(fixed), kdf=kdf_of(vector))
    assert render(sealed) == file
    opened = parse(file)
    assert opened == sealed
    assert (opened.address, opened.public_key.hex()) == (vector["address"], vector["publicKey"])
    assert unseal(opened, vector["password"]) == seed


@pytest.mark.parametrize("vector", VECTORS["keyfiles"], ids=lambda vector: f"{vector['network']} {vector['kdf']}")
def test_other_libraries_open_it_as_the_documentation_says(vector: dict[str, Any]) -> None:
    file = json.loads(vector["file"])
    cipher, kdf = file.pop("cipher"), file["kdf"]
    password, salt = unicodedata.normalize("NFC", vector["password"]).encode(), bytes.fromhex(kdf["salt"])
    if kdf["name"] == "Argon2id":
        memory, lanes = kdf["memory"], kdf["parallelism"]
        other = OtherArgon2id(salt=salt, length=32, iterations=kdf["iterations"], lanes=lanes, memory_cost=memory)
        key = other.derive(password)
    else:
        key = hashlib.pbkdf2_hmac("sha256", password, salt, kdf["iterations"])
    data = json.dumps(file, separators=(",", ":"), sort_keys=True).encode()
    assert (key.hex(), data.decode()) == (vector["key"], vector["additionalData"])
    seed = AESGCM(key).decrypt(bytes.fromhex(cipher["nonce"]), bytes.fromhex(cipher["ciphertext"]), data)
    assert seed.hex() == vector["seed"]


@pytest.mark.parametrize(
    ("kdf", "expected"),
    [
        (ARGON2ID, False),
        (Argon2id(iterations=1, memory=262_144, parallelism=1), False),
        (Argon2id(iterations=2, memory=65_536, parallelism=4), True),
        (Pbkdf2(iterations=1_000_000), False),
        (Pbkdf2(iterations=999_999), True),
    ],
)
def test_a_cost_below_that_of_new_files_is_outdated(kdf: Kdf, expected: bool) -> None:
    assert kdf.outdated is expected


def test_the_command_line_seals_with_argon2id_as_rfc_9106_recommends() -> None:
    keyfile = seal(SEED, PASSWORD, params=DEVNET, random=os.urandom)
    assert json.loads(render(keyfile))["kdf"] == {
        "name": "Argon2id",
        "iterations": 3,
        "memory": 65_536,
        "parallelism": 4,
        "salt": keyfile.salt.hex(),
    }
    assert unseal(keyfile, PASSWORD) == SEED


@pytest.mark.parametrize(
    ("seconds", "iterations"), [(0.1, 2_000_000), (0.13, 1_500_000), (1.0, 1_000_000), (0.0, 10_000_000)]
)
def test_rounds_for_browsers_take_a_second(seconds: float, iterations: int) -> None:
    times = iter([0.0, seconds])
    assert calibrated_pbkdf2(lambda: next(times)) == Pbkdf2(iterations=iterations)


def test_too_little_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise keyfiles.HashingError("Memory allocation error")

    monkeypatch.setattr(keyfiles, "hash_secret_raw", fail)
    with pytest.raises(KeyfileError, match="takes 64 MiB of memory: Memory allocation error"):
        seal(SEED, PASSWORD, params=DEVNET, random=os.urandom)


def test_a_keyfile_from_a_browser_can_be_decrypted() -> None:
    keyfile = parse(KEYFILE)
    assert (keyfile.address, keyfile.params) == (ADDRESS, DEVNET)
    assert unseal(keyfile, PASSWORD) == SEED


def test_a_keyfile_of_another_network_has_its_genesis_hash() -> None:
    own = evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    data = render(seal(SEED, PASSWORD, params=own, random=os.urandom, kdf=Pbkdf2(iterations=600_000)))
    assert json.loads(data)["network"] == own.genesis_hash.hex()
    assert unseal(parse(data, (MAINNET, own)), PASSWORD) == SEED
    renamed = parse(data, (evolve(own, name="fete"),))
    assert unseal(renamed, PASSWORD) == SEED
    for known in ((), (MAINNET,), (evolve(own, network_id=4712),)):
        with pytest.raises(UnknownNetwork, match=f"another network, whose genesis hash is {own.genesis_hash.hex()}"):
            parse(data, known)
    with pytest.raises(DamagedKeyfile, match="must be an address of this network"):
        parse(data.replace(b"fest1q", b"tent1q"), (own,))


def test_passwords_are_normalised() -> None:
    decomposed = unicodedata.normalize("NFD", PASSWORD)
    assert decomposed != PASSWORD
    assert unseal(sealed(), decomposed) == SEED


@given(seeds, passwords, networks)
def test_a_sealed_seed_can_be_unsealed(seed: bytes, password: str, params: Any) -> None:
    keyfile = seal(seed, password, params=params, random=os.urandom, kdf=FEW)
    assert keyfile.address.startswith(f"{params.address_prefix}1q")
    assert unseal(keyfile, password) == seed


costs = st.builds(Pbkdf2, iterations=st.integers(600_000, 10_000_000)) | st.builds(
    Argon2id, iterations=st.integers(2, 32), memory=st.integers(19_456, 262_144), parallelism=st.integers(1, 16)
)


@given(networks, costs, st.binary(min_size=48, max_size=48))
def test_a_rendered_keyfile_can_be_parsed(params: Any, kdf: Kdf, ciphertext: bytes) -> None:
    made = seal(SEED, PASSWORD, params=params, random=os.urandom, kdf=FEW)
    keyfile = evolve(made, kdf=kdf, ciphertext=ciphertext)
    assert parse(render(keyfile)) == keyfile


def test_every_keyfile_has_its_own_salt_and_nonce() -> None:
    first, second = sealed(), sealed()
    assert first.salt != second.salt
    assert first.nonce != second.nonce


@given(passwords.filter(lambda text: unicodedata.normalize("NFC", text) != PASSWORD))
def test_another_password_does_not_open_it(password: str) -> None:
    with pytest.raises(WrongPassword, match="the password does not decrypt the keyfile"):
        unseal(sealed(), password)


def test_a_password_must_be_valid_unicode() -> None:
    with pytest.raises(KeyfileError, match="not valid UTF-8"):
        unseal(sealed(), "\udcff" * 10)


@given(st.integers(0, 47), st.integers(1, 255))
def test_a_changed_ciphertext_cannot_be_decrypted(position: int, change: int) -> None:
    keyfile = sealed()
    ciphertext = bytearray(keyfile.ciphertext)
    ciphertext[position] ^= change
    with pytest.raises(WrongPassword, match="the file was changed"):
        unseal(evolve(keyfile, ciphertext=bytes(ciphertext)), PASSWORD)


@pytest.mark.parametrize(
    "change",
    [
        {"params": MAINNET},
        {"salt": bytes(16)},
        {"nonce": bytes(12)},
        {"kdf": Pbkdf2(iterations=2)},
        {"address": "svcd1q"},
        {"public_key": bytes(32)},
    ],
)
def test_nothing_in_the_file_can_be_exchanged(change: dict[str, Any]) -> None:
    with pytest.raises(WrongPassword):
        unseal(evolve(sealed(), **change), PASSWORD)


def test_address_and_public_key_of_another_do_not_open() -> None:
    other = seal(bytes(32), PASSWORD, params=DEVNET, random=os.urandom, kdf=FEW)
    forged = evolve(sealed(), address=other.address, public_key=other.public_key)
    with pytest.raises(WrongPassword):
        unseal(forged, PASSWORD)


def test_a_key_of_another_address_is_rejected() -> None:
    other = seal(bytes(32), PASSWORD, params=DEVNET, random=lambda size: bytes(size), kdf=FEW)
    readable = {name: value for name, value in json.loads(render(other)).items() if name != "cipher"}
    key = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), bytes(16), 1)
    invalid = evolve(other, ciphertext=AESGCM(key).encrypt(bytes(12), SEED, canonical(readable)))
    with pytest.raises(DamagedKeyfile, match=f"not that of {other.address}"):
        unseal(invalid, PASSWORD)


def test_whitespace_between_json_tokens_is_allowed() -> None:
    assert parse(json.dumps(json.loads(KEYFILE), indent=4).encode()) == parse(KEYFILE)


def changed(path: str, value: object) -> bytes:
    """The keyfile with another value at a path such as `kdf.salt`; `...` removes the member."""
    whole = json.loads(KEYFILE)
    *groups, name = path.split(".")
    inner = whole
    for group in groups:
        inner = inner[group]
    if value is ...:
        del inner[name]
    else:
        inner[name] = value
    return json.dumps(whole).encode()


def argon2id(**costs: int) -> bytes:
    """The keyfile with Argon2id at these costs."""
    kdf = {"name": "Argon2id", "iterations": 3, "memory": 65_536, "parallelism": 4, "salt": "00" * 16}
    return changed("kdf", {**kdf, **costs})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON"),
        (b"\xff", "it must be UTF-8 text; the byte at offset 0 is not"),
        (b"[]", "the keyfile must be a JSON object"),
        (KEYFILE[:-20], "not JSON"),
        (KEYFILE.replace(b'"network"', b'"format"'), "occurs twice"),
        (changed("comment", "mine"), 'unknown field "comment"'),
        (changed("kdf.extra", 1), 'kdf has an unknown field "extra"'),
        (changed("cipher.nonce", ...), "cipher lacks the field nonce"),
        (changed("kdf", "none"), "kdf must be a JSON object"),
        (changed("format", "svc-keyfile-v3"), 'format must be "svc-keyfile-v2", not "svc-keyfile-v3"'),
        (changed("format", ...), "the keyfile lacks the field format"),
        (changed("kdf.name", "scrypt"), 'kdf.name must be one of Argon2id, PBKDF2-SHA-256, not "scrypt"'),
        (changed("kdf.name", ["Argon2id"]), "kdf.name must be one of Argon2id, PBKDF2-SHA-256"),
        (changed("kdf.name", ...), "kdf.name must be one of Argon2id, PBKDF2-SHA-256, not null"),
        (changed("kdf.name", "Argon2id"), "kdf lacks the field memory"),
        (argon2id(iterations=33), "kdf.iterations must be an integer from 2 to 32, not 33"),
        (argon2id(iterations=1), "kdf.iterations must be an integer from 2 to 32, not 1"),
        (argon2id(memory=262_145), "kdf.memory must be an integer from 19456 to 262144, not 262145"),
        (argon2id(memory=4_294_967_295), "kdf.memory must be an integer from 19456 to 262144"),
        (argon2id(memory=19_455), "kdf.memory must be an integer from 19456 to 262144, not 19455"),
        (argon2id(parallelism=0), "kdf.parallelism must be an integer from 1 to 16, not 0"),
        (argon2id(parallelism=17), "kdf.parallelism must be an integer from 1 to 16, not 17"),
        (changed("publicKey", "00" * 32), "its address is not that of its publicKey"),
        (changed("publicKey", "00" * 31), "publicKey must be 64 lower-case hex digits"),
        (changed("publicKey", ...), "the keyfile lacks the field publicKey"),
        (changed("cipher.name", "AES-128-GCM"), 'cipher.name must be "AES-256-GCM"'),
        (changed("network", "testnet"), 'network must be one of mainnet, devnet, or a genesis hash, not "testnet"'),
        (changed("network", ["devnet"]), "network must be one of"),
        (changed("network", "mainnet"), "43 characters that begin with svc1q"),
        (changed("address", ADDRESS[:-1] + "q"), "address has a wrong checksum"),
        (changed("address", None), "address must be an address"),
        (changed("kdf.iterations", 599_999), "from 600000 to 10000000, not 599999"),
        (changed("kdf.iterations", 10_000_001), "not 10000001"),
        (changed("kdf.iterations", True), "kdf.iterations must be an integer"),
        (changed("kdf.iterations", "600000"), "kdf.iterations must be an integer"),
        (changed("kdf.iterations", 6e5), "numbers must be whole"),
        (changed("kdf.salt", "00" * 15), "kdf.salt must be 32 lower-case hex digits"),
        (changed("kdf.salt", "AB" * 16), "kdf.salt must be 32 lower-case hex digits"),
        (changed("cipher.nonce", "00" * 16), "cipher.nonce must be 24 lower-case hex digits"),
        (changed("cipher.ciphertext", "00" * 32), "cipher.ciphertext must be 96 lower-case hex digits"),
        (changed("cipher.ciphertext", 7), "cipher.ciphertext must be 96 lower-case hex digits"),
    ],
)
def test_damaged_keyfiles_are_reported(data: bytes, sentence: str) -> None:
    with pytest.raises(DamagedKeyfile) as refused:
        parse(data)
    assert sentence in str(refused.value)


@given(
    st.binary(max_size=500) | st.integers(0, len(KEYFILE) - 1).map(lambda at: KEYFILE[:at] + b"x" + KEYFILE[at + 1 :])
)
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    assume(data != KEYFILE)
    try:
        assert parse(data) != parse(KEYFILE)
    except DamagedKeyfile:
        return


def test_the_documented_example_is_this_keyfile() -> None:
    page = (Path(__file__).parents[1] / "docs" / "keyfile.md").read_text("utf-8")
    [example] = re.findall("```json\n(.*?)```", page, re.DOTALL)
    assert example.encode() == KEYFILE
    assert f"`{SEED.hex()}`" in page
    assert f"`{PASSWORD}`" in page
