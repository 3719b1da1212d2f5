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
from hypothesis import assume, given
from hypothesis import strategies as st

from svcd.chain.params import DEVNET, MAINNET, NETWORKS
from svcd.keyfile import (
    DamagedKeyfile,
    Keyfile,
    KeyfileError,
    WrongPassword,
    parse,
    password_problem,
    render,
    seal,
    unseal,
)
from tests.cli.terminal import ADDRESS, KEYFILE, OTHER, PASSWORD, SEED

FEW = 1
"""Iterations where their number is not what is tried."""

seeds = st.binary(min_size=32, max_size=32)
passwords = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
networks = st.sampled_from(sorted(NETWORKS.values(), key=lambda params: params.name))


def sealed(password: str = PASSWORD) -> Keyfile:
    return seal(SEED, password, params=DEVNET, random=os.urandom, iterations=FEW)


def test_webcrypto_encrypts_to_the_same_bytes() -> None:
    given = iter([bytes(range(16)), bytes(range(16, 28))])
    keyfile = seal(SEED, PASSWORD, params=DEVNET, random=lambda size: next(given))
    assert render(keyfile) == KEYFILE
    assert keyfile.address == ADDRESS


def test_a_keyfile_from_a_browser_can_be_decrypted() -> None:
    keyfile = parse(KEYFILE)
    assert (keyfile.address, keyfile.params) == (ADDRESS, DEVNET)
    assert unseal(keyfile, PASSWORD) == SEED


def test_passwords_are_normalised() -> None:
    decomposed = unicodedata.normalize("NFD", PASSWORD)
    assert decomposed != PASSWORD
    assert unseal(sealed(), decomposed) == SEED


@given(seeds, passwords, networks)
def test_a_sealed_seed_can_be_unsealed(seed: bytes, password: str, params: Any) -> None:
    keyfile = seal(seed, password, params=params, random=os.urandom, iterations=FEW)
    assert keyfile.address.startswith(f"{params.address_prefix}1q")
    assert unseal(keyfile, password) == seed


@given(networks, st.integers(600_000, 10_000_000), st.binary(min_size=48, max_size=48))
def test_a_rendered_keyfile_can_be_parsed(params: Any, iterations: int, ciphertext: bytes) -> None:
    made = seal(SEED, PASSWORD, params=params, random=os.urandom, iterations=FEW)
    keyfile = evolve(made, iterations=iterations, ciphertext=ciphertext)
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
    "change", [{"params": MAINNET}, {"salt": bytes(16)}, {"nonce": bytes(12)}, {"iterations": 2}, {"address": "svcd1q"}]
)
def test_nothing_in_the_file_can_be_exchanged(change: dict[str, Any]) -> None:
    with pytest.raises(WrongPassword):
        unseal(evolve(sealed(), **change), PASSWORD)


def test_a_key_of_another_address_is_rejected() -> None:
    key = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), bytes(16), FEW)
    ciphertext = AESGCM(key).encrypt(bytes(12), SEED, f"{OTHER}\nsvc-keyfile-v1\ndevnet".encode())
    invalid_response = Keyfile(
        params=DEVNET, address=OTHER, iterations=FEW, salt=bytes(16), nonce=bytes(12), ciphertext=ciphertext
    )
    with pytest.raises(DamagedKeyfile, match=f"not that of {OTHER}"):
        unseal(invalid_response, PASSWORD)


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


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[]", "the keyfile must be a JSON object"),
        (KEYFILE[:-20], "not JSON"),
        (KEYFILE.replace(b'"network"', b'"format"'), "stands twice"),
        (changed("comment", "mine"), 'unknown field "comment"'),
        (changed("kdf.extra", 1), 'kdf has an unknown field "extra"'),
        (changed("cipher.nonce", ...), "cipher lacks the field nonce"),
        (changed("kdf", "none"), "kdf must be a JSON object"),
        (changed("format", "svc-keyfile-v2"), 'format must be "svc-keyfile-v1", not "svc-keyfile-v2"'),
        (changed("kdf.name", "scrypt"), 'kdf.name must be "PBKDF2-SHA-256", not "scrypt"'),
        (changed("cipher.name", "AES-128-GCM"), 'cipher.name must be "AES-256-GCM"'),
        (changed("network", "testnet"), 'network must be one of mainnet, devnet, not "testnet"'),
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


def test_new_passwords_have_ten_characters() -> None:
    assert password_problem("123456789é") is None
    assert password_problem(unicodedata.normalize("NFD", "12345678é")) == (
        "the password has 9 characters; choose one of at least 10"
    )


def test_the_documented_example_is_this_keyfile() -> None:
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text("utf-8")
    [example] = re.findall("```json\n(.*?)```", page, re.DOTALL)
    assert example.encode() == KEYFILE
    assert f"`{SEED.hex()}`" in page
    assert f"`{PASSWORD}`" in page
