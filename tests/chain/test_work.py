"""Participation work (docs/protocol.md 6, RFC 9106)."""

import json
from pathlib import Path
from typing import Any

import pytest
from argon2.low_level import Type, core, ffi, hash_secret_raw
from attrs import evolve

from svcd.chain import work
from svcd.chain.errors import Refusal
from svcd.chain.work import block_work, check_work, effective_target, work_value
from tests.chain.refusing import refuses
from tests.chains import TEST_PARAMS, ChainBuilder

LARGEST = 2**256 - 1


def load(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


# The library


def test_rfc_9106(vectors: Path) -> None:
    """Section 5.3 has a secret and associated data, which only the C interface takes."""
    vector = load(vectors, "rfc9106_argon2id.json")["rfc9106"]
    inputs = {name: bytes.fromhex(vector[name]) for name in ("password", "salt", "secret", "ad")}
    buffers = {name: ffi.new("uint8_t[]", data) for name, data in inputs.items()}
    tag = ffi.new("uint8_t[]", vector["taglen"])
    sized = [part for name in inputs for part in (buffers[name], len(inputs[name]))]
    numbers = [vector["t"], vector["m_kib"], vector["p"], vector["p"], int(vector["version"], 16)]
    context = ffi.new("argon2_context *", [tag, len(tag), *sized, *numbers, ffi.NULL, ffi.NULL, 0])
    assert core(context, Type.ID.value) == 0
    assert bytes(ffi.buffer(tag)).hex() == vector["tag"]


def test_argon2id_of_the_reference_code(vectors: Path) -> None:
    for case in load(vectors, "rfc9106_argon2id.json")["simple"]:
        tag = hash_secret_raw(
            case["password"].encode(),
            case["salt"].encode(),
            time_cost=case["t"],
            memory_cost=case["m_kib"],
            parallelism=case["p"],
            hash_len=32,
            type=Type.ID,
        )
        assert tag.hex() == case["tag"]


def test_argon2id_of_libsodium(vectors: Path) -> None:
    for case in load(vectors, "argon2id_pynacl_raw.json")["tests"]:
        tag = hash_secret_raw(
            case["passwd"].encode(),
            case["salt"].encode(),
            time_cost=case["iters"],
            memory_cost=case["maxmem"],
            parallelism=1,
            hash_len=case["dgst_len"],
            type=Type.ID,
        )
        assert tag.hex() == case["pwhash"]


# The work of this chain


def test_work_value_is_one_pass_in_one_lane(vectors: Path) -> None:
    for case in load(vectors, "rfc9106_argon2id.json")["local_t1_p1"]:
        password, salt = bytes.fromhex(case["password_hex"]), bytes.fromhex(case["salt_hex"])
        assert (case["t"], case["p"], salt) == (1, 1, work.SALT)
        assert work_value(password[:32], password[32:], case["m_kib"]) == int(case["tag"], 16)


def test_constants_of_the_work() -> None:
    constants = (work.SALT, work.TIME_COST, work.PARALLELISM, work.HASH_LENGTH, work.VERSION)
    assert constants == (b"svc/work/v4/salt", 1, 1, 32, 19)


def test_the_multiplier_eases_the_target() -> None:
    assert effective_target(1000, 10_000) == 1000
    assert effective_target(1000, 10_500) == 1050
    assert effective_target(1001, 15_000) == 1501
    assert effective_target(2**254, 15_000) == 2**254 * 3 // 2


def test_no_target_is_above_256_bits() -> None:
    assert effective_target(LARGEST, 10_000) == LARGEST
    assert effective_target(2**255, 20_000) == LARGEST
    assert effective_target(2**255, 19_999) < LARGEST
    assert effective_target(LARGEST, 15_000) == LARGEST


def test_block_work_is_the_expected_number_of_tries() -> None:
    assert block_work(2**255) == 2
    assert block_work(2**242) == 2**14
    assert block_work(2**160) == 2**96
    assert block_work(2**254 + 1) == 3
    assert block_work(LARGEST) == 1


HEADER = ChainBuilder().block().header


def test_work_of_a_block() -> None:
    check_work(HEADER, TEST_PARAMS)
    unlucky = ChainBuilder().block(break_=Refusal.WORK).header
    with refuses(Refusal.WORK, f"the work of block {unlucky.hash.hex()} does not reach its target"):
        check_work(unlucky, TEST_PARAMS)


@pytest.mark.parametrize("multiplier", [10_000, 15_000])
def test_value_must_be_below_the_effective_target(multiplier: int, monkeypatch: pytest.MonkeyPatch) -> None:
    header = evolve(HEADER, multiplier=multiplier)
    target = header.base_target * multiplier // 10_000
    monkeypatch.setattr(work, "work_value", lambda *given: target - 1)
    check_work(header, TEST_PARAMS)
    monkeypatch.setattr(work, "work_value", lambda *given: target)
    with refuses(Refusal.WORK):
        check_work(header, TEST_PARAMS)


def test_work_is_done_on_core_hash_and_nonce_with_the_memory_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {(HEADER.core_hash, HEADER.work_nonce, 64): 0}
    monkeypatch.setattr(work, "work_value", lambda *given: value[given])
    check_work(HEADER, TEST_PARAMS)
