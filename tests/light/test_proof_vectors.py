"""The proofs of tests/vectors/svc_protocol.json, which another implementation of docs/protocol.md 13 made."""

import json
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.accounts import Account
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, NETWORKS
from svcd.chain.work import check_work
from svcd.light.account_proof import check_account, parse_account_proof
from svcd.light.chain_proof import ProvenChain, Unproved, check_chain, parse_chain_proof
from svcd.light.payment_proof import check, parse_proof

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "svc_protocol.json").read_text())


def parametrize(part: str) -> pytest.MarkDecorator:
    """A test for each case of a part of the file."""
    return pytest.mark.parametrize("vector", VECTORS[part], ids=lambda vector: vector["why"])


def check_all_work(chain: ProvenChain) -> None:
    """What a client does last: check the work of every header, the tip first."""
    heights = list(chain.headers)
    assert heights == sorted(heights, reverse=True)
    for header in chain.headers.values():
        check_work(header, DEVNET)


def proven(vector: dict[str, Any]) -> ProvenChain:
    """The chain that a case proves; raises Unproved or RuleViolation."""
    constants = {"recent": vector["recent"], "samples": vector["samples"]}
    proof = parse_chain_proof(vector["proof"], DEVNET)
    chain = check_chain(proof, DEVNET, minimum_work=int(vector["minimumWork"], 16), **constants)
    check_all_work(chain)
    return chain


@parametrize("chainProofs")
def test_chain_proof(vector: dict[str, Any]) -> None:
    if "rule" in vector:
        with pytest.raises((Unproved, RuleViolation)):
            proven(vector)
        return
    tip, proves = proven(vector).tip, vector["proves"]
    assert (tip.height, tip.slot, tip.work) == (
        int(proves["height"]),
        int(proves["slot"]),
        int(proves["cumulativeWork"], 16),
    )
    assert tip.hash.hex() == vector["proof"]["tip"]


REASONS = {
    "a sample left out": "the draw",
    "only the last headers": "the draw",
    "a recent header left out": "the newest 4 must be there",
    "too light by one": "less than the required",
    "multiplier outside the schedule": "is not in the schedule",
    "stateRoot of a sample changed": "does not build on the block before it",
    "hash of a node changed": "does not build on the block before it",
    "workNonce of the tip changed": "and not its tip",
    "another tip": "and not its tip",
    "work of a node below what its clock allows": "cannot have slot, clock and work of their node",
    "a block whose clock runs ahead of its slot, everything after it consistent": "cannot have slot, clock and work",
    "difficulty raised by 240 light blocks that nobody made": "cannot have slot, clock and work",
    "a node left out": "are missing",
    "a node too many": "1 nodes of the proof belong to no gap",
    "the tip twice": "must ascend",
    "genesis of mainnet": "its genesis differs",
    "unknown member": 'unknown field "note"',
    "unknown member of a header": "headers[0] has an unknown field",
    "work with a leading zero": "without a leading 0",
    "height as a number": "height of headers[0] must be a decimal string",
    "nine headers more than asked for": "9 headers of the proof are ones that nothing asks for",
    "a sampled block without work, everything after it consistent": "does not reach its target",
}


@pytest.mark.parametrize("why", REASONS)
def test_refusal_names_what_is_wrong(why: str) -> None:
    [vector] = [vector for vector in VECTORS["chainProofs"] if vector["why"] == why]
    with pytest.raises((Unproved, RuleViolation)) as refused:
        proven(vector)
    assert REASONS[why] in str(refused.value)


@parametrize("accountProofs")
def test_account_proof(vector: dict[str, Any]) -> None:
    block = vector["block"]
    block_hash, root, height = bytes.fromhex(block["hash"]), bytes.fromhex(block["stateRoot"]), int(block["height"])
    params = NETWORKS[vector["network"]]

    def found(proof: dict[str, Any]) -> Account | None:
        parsed = parse_account_proof(proof, params)
        return check_account(parsed, block=block_hash, height=height, state_root=root)

    if "rule" in vector:
        with pytest.raises(Unproved):
            found(vector["proof"])
        return
    with pytest.raises(Unproved, match=f"at height {height + 1}; it is at {height}"):
        found({**vector["proof"], "height": str(height + 1)})
    account = found(vector["proof"])
    if vector["account"] is None:
        assert account is None
    else:
        held = vector["account"]["heldSince"]
        assert account == Account(
            int(vector["account"]["balance"]), int(vector["account"]["nonce"]), None if held is None else int(held)
        )


@parametrize("paymentProofs")
def test_payment_from_the_genesis(vector: dict[str, Any]) -> None:
    constants = {"recent": vector["recent"], "samples": vector["samples"]}
    if "rule" in vector:
        with pytest.raises(Unproved):
            check(parse_proof(vector["proof"], DEVNET), **constants)
        return
    payment = check(parse_proof(vector["proof"], DEVNET), **constants)
    check_all_work(payment.chain)
    assert payment.confirmations == vector["confirmations"]


def test_every_part_has_as_many_cases_as_it_should() -> None:
    counts = {part: len(VECTORS[part]) for part in ("chainProofs", "accountProofs", "paymentProofs")}
    assert counts == {"chainProofs": 38, "accountProofs": 18, "paymentProofs": 7}
