"""Ed25519 as libsodium judges it, on the published edge cases (docs/protocol.md 3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.signature import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, is_valid, public_key_of, sign

SEED = bytes(range(32))
MESSAGE = b"a message"


def load(folder: Path, name: str, key: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((folder / name).read_text())[key]
    return cases


def accepts(key: str, message: str, signature: str) -> bool:
    return is_valid(bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature))


@pytest.mark.parametrize(("file", "number"), [("rfc8032_ed25519.json", 5), ("ed25519_djb_subset.json", 80)])
def test_rfc_8032(vectors: Path, file: str, number: int) -> None:
    cases = load(vectors, file, "tests")
    assert len(cases) == number
    for case in cases:
        seed, message = bytes.fromhex(case["seed"]), bytes.fromhex(case["message"])
        assert public_key_of(seed).hex() == case["public"]
        assert sign(seed, message).hex() == case["signature"]
        assert accepts(case["public"], case["message"], case["signature"])
        assert not is_valid(public_key_of(seed), message + b"\0", bytes.fromhex(case["signature"]))


def test_speccheck_accepts_case_3_only(public_vectors: Path) -> None:
    """Case 3 has a key and an R of mixed order and holds without the cofactor; what was published for libsodium."""
    cases = load(public_vectors, "ed25519_speccheck.json", "cases")
    assert len(cases) == 12
    accepted = [case["index"] for case in cases if accepts(case["pub_key"], case["message"], case["signature"])]
    assert accepted == [3]
    assert accepted == [case["index"] for case in cases if case["readme_libsodium"]]


def test_wycheproof(public_vectors: Path) -> None:
    cases = load(public_vectors, "ed25519_wycheproof.json", "tests")
    assert len(cases) == 151
    wrong = [
        (case["tcId"], case["comment"])
        for case in cases
        if accepts(case["pk"], case["msg"], case["sig"]) != (case["result"] == "valid")
    ]
    assert wrong == []


def test_small_order_keys_are_refused(vectors: Path) -> None:
    """ZIP-215 accepts all 196 pairs of small-order encodings; this chain accepts none."""
    cases = load(vectors, "ed25519_zip215_196.json", "cases")
    assert len(cases) == 196
    assert [case for case in cases if accepts(case["pk"], case["msg"], case["sig"])] == []


def test_an_s_that_is_not_below_the_group_order_is_refused(vectors: Path) -> None:
    cases = load(vectors, "ed25519_s_malleability.json", "cases")
    assert len(cases) == 45
    assert [case for case in cases if accepts(case["pk"], case["msg"], case["sig"])] == []


def test_signature_is_of_this_message_and_this_key() -> None:
    key, signature = public_key_of(SEED), sign(SEED, MESSAGE)
    assert is_valid(key, MESSAGE, signature)
    assert not is_valid(key, b"another message", signature)
    assert not is_valid(public_key_of(bytes(32)), MESSAGE, signature)


@pytest.mark.parametrize("bit", range(0, 512, 7))
def test_any_other_bit_is_refused(bit: int) -> None:
    signature = int.from_bytes(sign(SEED, MESSAGE), "big") ^ 1 << bit
    assert not is_valid(public_key_of(SEED), MESSAGE, signature.to_bytes(64, "big"))


def test_bytes_do_not_move_between_signature_and_message() -> None:
    key, signature = public_key_of(SEED), sign(SEED, MESSAGE)
    assert (PUBLIC_KEY_SIZE, SIGNATURE_SIZE) == (len(key), len(signature)) == (32, 64)
    assert not is_valid(key, signature[63:] + MESSAGE, signature[:63])
    assert not is_valid(key, MESSAGE[1:], signature + MESSAGE[:1])
    assert not is_valid(key, b"", signature + MESSAGE)


@pytest.mark.parametrize("key", [b"", public_key_of(SEED)[:31], public_key_of(SEED) + b"\0"])
def test_key_of_another_size_is_refused(key: bytes) -> None:
    assert not is_valid(key, MESSAGE, sign(SEED, MESSAGE))
