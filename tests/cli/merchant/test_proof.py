"""Checking the file of a proof of payment, as `svc verify --proof` does (docs/payment-proof.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET
from svcd.cli.clock import SystemClock
from svcd.cli.errors import CommandError
from svcd.cli.http_client import MAX_RESPONSE_BYTES
from svcd.cli.merchant.payments import ProofClaim, verify_proof
from svcd.cli.session import Runtime, Session
from svcd.commerce.payment_request import PaymentTerms
from tests.chains import ChainBuilder, address_of
from tests.cli.test_chain_commands import rows
from tests.light.proofs import rendered

CHAIN = ChainBuilder(DEVNET)
BLOCKS = list(
    CHAIN.chain(
        "genesis: b[1..5]\nb1 is by alice\nb2 pays 5000000 from alice to bob for order-1\nb2 pays 6 from alice to bob"
    ).values()
)
WHOLE = rendered(CHAIN, BLOCKS, 2, 0)
WORK = CHAIN.point_after(BLOCKS[-1]).work
TIP = BLOCKS[-1].header.hash
BOB = address_of("bob", "svcd")
TERMS = PaymentTerms("order-1", BOB, 5_000_000, 4)


def _nothing(*_: Any) -> Any:
    raise AssertionError("a proof is checked without a node")


def offline(*, at_terminal: bool) -> Session:
    """A session without a network."""
    runtime = Runtime(
        connect=_nothing,
        clock=SystemClock(),
        run=_nothing,
        run_twistd=_nothing,
        random=_nothing,
        hash_rate=_nothing,
        environ={},
        stderr_is_terminal=lambda: at_terminal,
    )
    return Session(runtime)


@pytest.fixture
def session() -> Session:
    return offline(at_terminal=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a valid proof."""
    path = tmp_path / "proof.json"
    path.write_bytes(WHOLE)
    return path


def refusal(session: Session, claim: ProofClaim) -> str:
    """The error sentence for an invalid proof."""
    with pytest.raises((CommandError, RuleViolation)) as refused:
        verify_proof(session, claim)
    return str(refused.value)


def test_a_proof_needs_no_tip(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_proof(session, ProofClaim(file, TERMS))
    told = rows(capsys.readouterr().out)
    assert told.pop("not shown").startswith("whether another chain has more work: ")
    assert told == {
        "payment": "proved on a chain from the genesis",
        "network": "SVC-DEVNET",
        "txid": BLOCKS[1].transfers[0].txid.hex(),
        "recipient": BOB,
        "amount": "0.05 SVC",
        "reference": "order-1",
        "sender": address_of("alice", "svcd"),
        "block": f"2, {BLOCKS[1].header.hash.hex()}",
        "block time": "2026-11-01 00:00:04 UTC",
        "confirmations": "4",
        "tip": f"5, {TIP.hex()}",
        "tip time": "2026-11-01 00:00:10 UTC",
        "work": f"{WORK} hashes",
    }


def test_as_json(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session.as_json = True
    verify_proof(session, ProofClaim(file, TERMS, TIP))
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "chainId": "SVC-DEVNET",
        "txid": BLOCKS[1].transfers[0].txid.hex(),
        "recipient": BOB,
        "amount": "5000000",
        "amountSvc": "0.05",
        "reference": "order-1",
        "blockHash": BLOCKS[1].header.hash.hex(),
        "blockHeight": "2",
        "blockTime": str(DEVNET.slot_time(4)),
        "confirmations": 4,
        "tip": {"height": "5", "hash": TIP.hex()},
        "work": str(WORK),
        "notShown": "whether the tip is still on the chain with the most work",
    }


def test_without_terms_the_payment_is_shown(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(rendered(CHAIN, BLOCKS, 2, 1))
    verify_proof(session, ProofClaim(path, None))
    told = rows(capsys.readouterr().out)
    assert (told["amount"], told["reference"], told["recipient"]) == ("0.00000006 SVC", "none", BOB)
    session.as_json = True
    verify_proof(session, ProofClaim(path, None))
    assert "reference" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (PaymentTerms("order-1", BOB, 5_000_001), "the transfer in the proof pays 5000000 base units, not 5000001"),
        (PaymentTerms("order-2", BOB, 5_000_000), "the transfer in the proof has the reference order-1, not order-2"),
        (PaymentTerms("order-1", address_of("bob", "svc"), 5_000_000), "the transfer in the proof pays svcd1"),
        (PaymentTerms("order-1", BOB, 5_000_000), "the proof shows 4 confirmations and 12 are required"),
        (PaymentTerms("order-1", BOB, 5_000_000, 1, 3), "the payment is in block 2; only block 3 and later ones count"),
    ],
)
def test_a_proof_of_other_terms_is_rejected(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], terms: PaymentTerms, sentence: str
) -> None:
    assert refusal(session, ProofClaim(file, terms)).startswith(sentence)
    assert capsys.readouterr().out == ""


def test_a_header_without_work_is_rejected(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = ChainBuilder(DEVNET)
    blocks = list(
        chain.chain(
            "genesis: b[1..4]\nb1 is by alice\nb2 pays 5000000 from alice to bob for x\nb4 has an invalid work"
        ).values()
    )
    path = tmp_path / "proof.json"
    path.write_bytes(rendered(chain, blocks, 2, 0))
    tip = blocks[-1].header.hash
    for trusted in (None, tip):
        refused = refusal(session, ProofClaim(path, None, trusted))
        assert refused == f"the work of block {tip.hex()} does not reach its target"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("tip", [bytes(32), BLOCKS[3].header.hash])
def test_a_proof_that_ends_in_another_block_is_rejected_before_its_work_is_checked(
    session: Session, file: Path, monkeypatch: pytest.MonkeyPatch, tip: bytes
) -> None:
    monkeypatch.setattr("svcd.cli.trustless.check_work", _nothing)
    refused = refusal(session, ProofClaim(file, TERMS, tip))
    assert refused.startswith(f"the proof ends in block {TIP.hex()} at height 5, not in {tip.hex()}; ask a node")


def test_files_without_a_proof_are_rejected(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    assert refusal(session, ProofClaim(path, None)) == f"{path} cannot be read: no such file or directory"
    path.write_bytes(b'{"ok":false}')
    assert refusal(session, ProofClaim(path, None)).startswith("this is not a proof: ")
    path.write_bytes(b" " * MAX_RESPONSE_BYTES + b" ")
    assert refusal(session, ProofClaim(path, None)).startswith(f"{path} has more than")


def test_progress_is_shown_at_a_terminal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_proof(offline(at_terminal=True), ProofClaim(file, TERMS))
    assert "Checking the work" in capsys.readouterr().err
