"""Words and the keys derived from them: published vectors, our own, and invalid words."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import NETWORKS
from svcd.chain.signature import public_key_of
from svcd.cli.errors import CommandError
from svcd.cli.wallet.mnemonic import (
    ROUNDS,
    derive_child,
    generate_mnemonic,
    master_key,
    parse_mnemonic,
    seed_from_mnemonic,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "wallet.json").read_text())
WORDS: list[str] = VECTORS["wallets"][1]["words"].split()


@pytest.mark.parametrize("vector", VECTORS["bip39"], ids=lambda vector: vector["words"][:12])
def test_the_bip39_vectors(vector: dict[str, str]) -> None:
    words = generate_mnemonic(lambda size: bytes.fromhex(vector["entropy"])[:size])
    assert " ".join(words) == vector["words"]
    assert parse_mnemonic(vector["words"]) == words
    salt = f"mnemonic{vector['passphrase']}".encode()
    assert hashlib.pbkdf2_hmac("sha512", vector["words"].encode(), salt, ROUNDS).hex() == vector["seed"]


@pytest.mark.parametrize("vector", VECTORS["slip0010"], ids=lambda vector: f"{vector['seed'][:8]} {vector['path']}")
def test_the_slip_0010_vectors(vector: dict[str, str]) -> None:
    branch = master_key(bytes.fromhex(vector["seed"]))
    if vector["path"] == "m/0'":
        branch = derive_child(branch, 0)
    assert branch.key.hex() == vector["privateKey"]
    assert branch.chain_code.hex() == vector["chainCode"]
    assert public_key_of(branch.key).hex() == vector["publicKey"]


@pytest.mark.parametrize("vector", VECTORS["wallets"], ids=lambda vector: vector["words"][:12])
def test_words_determine_the_address_on_each_network(vector: dict[str, Any]) -> None:
    seed = seed_from_mnemonic(parse_mnemonic(vector["words"]))
    public = public_key_of(seed)
    assert (seed.hex(), public.hex()) == (vector["seed"], vector["publicKey"])
    for network, address in vector["address"].items():
        assert encode_address(key_hash(public), NETWORKS[network].address_prefix) == address


@pytest.mark.parametrize("vector", VECTORS["sameWords"], ids=lambda vector: vector["name"])
def test_case_and_whitespace_of_words_are_normalised(vector: dict[str, str]) -> None:
    assert parse_mnemonic(vector["typed"]) == WORDS


@pytest.mark.parametrize("vector", VECTORS["invalidWords"], ids=lambda vector: vector["name"])
def test_wrong_words_are_rejected_and_not_repeated(vector: dict[str, str]) -> None:
    with pytest.raises(CommandError) as refused:
        parse_mnemonic(vector["words"])
    assert not {"bitcoin", "abandon", "hamster"} & set(str(refused.value).split())


def test_a_wrong_word_is_named_by_its_position() -> None:
    with pytest.raises(CommandError, match=r"^not in the English list of BIP-39: word 3, 24; compare"):
        parse_mnemonic(" ".join([*WORDS[:2], "svc", *WORDS[3:23], "blockchain"]))


@given(st.binary(min_size=32, max_size=32))
def test_new_words_are_always_valid(entropy: bytes) -> None:
    words = generate_mnemonic(lambda _: entropy)
    assert parse_mnemonic(" ".join(words)) == words
