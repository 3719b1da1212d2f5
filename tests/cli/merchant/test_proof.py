"""Checking proofs of payment in files, as `svc verify --proof` does (docs/payment-proof.md)."""

import json
from collections.abc import Callable
from itertools import count
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
from svcd.commerce.payment_proof import expected_evaluations, parse_proof, render_proof
from svcd.commerce.payment_request import PaymentTerms
from tests.chains import ChainBuilder, address_of
from tests.cli.test_chain_commands import rows
from tests.commerce.proofs import excerpt_of

CHAIN = ChainBuilder(DEVNET)
BLOCKS = list(
    CHAIN.chain(
        "genesis: b[1..5]\nb1 is by alice\nb2 pays 5000000 from alice to bob for order-1\nb2 pays 6 from alice to bob"
    ).values()
)
WHOLE = render_proof(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 0))
COST = expected_evaluations(parse_proof([WHOLE], [DEVNET]))
TIP = BLOCKS[-1].header.hash
BOB = address_of("bob", "svcd")
TERMS = PaymentTerms("order-1", BOB, 5_000_000, 4)


def _nothing(*_: Any) -> Any:
    raise AssertionError("a proof is checked without a node")


def ticking() -> Callable[[], float]:
    """A clock that advances two seconds with every reading."""
    times = count(0, 2)
    return lambda: float(next(times))


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


def test_a_proof_with_a_trusted_tip(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_proof(session, ProofClaim((file,), TERMS, TIP), seconds=ticking())
    told = rows(capsys.readouterr().out)
    assert told == {
        "payment": "proved, if the tip is on the chain",
        "network": "SVC-DEVNET",
        "txid": BLOCKS[1].transfers[0].txid.hex(),
        "recipient": BOB,
        "amount": "0.05 coins",
        "reference": "order-1",
        "sender": address_of("alice", "svcd"),
        "block": f"2, {BLOCKS[1].header.hash.hex()}",
        "block time": "2026-11-01 00:00:04 UTC",
        "confirmations": "4",
        "tip": f"5, {TIP.hex()}",
        "tip time": "2026-11-01 00:00:10 UTC",
        "to forge": (
            f"{COST} evaluations of Argon2id with 1024 KiB on average; "
            f"at 2 per second on this computer: {COST / 2:.1f} seconds"
        ),
    }


def test_as_json(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session.as_json = True
    verify_proof(session, ProofClaim((file,), TERMS, TIP))
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "anchored": True,
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
        "evaluations": str(COST),
    }


def test_without_a_tip_nothing_is_proved(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Payment and forgery cost are shown, but the exit status says that nothing is proved."""
    refused = refusal(session, ProofClaim((file,), TERMS, None))
    assert refused.startswith("the proof is consistent but not anchored: ")
    assert "the hash of block 5" in refused
    told = rows(capsys.readouterr().out)
    assert told["payment"] == "not proved: the tip is not a trusted one"
    assert told["confirmations"] == "4"


def test_without_terms_the_payment_is_shown(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(render_proof(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 1)))
    verify_proof(session, ProofClaim((path,), None, TIP))
    told = rows(capsys.readouterr().out)
    assert (told["amount"], told["reference"], told["recipient"]) == ("0.00000006 coins", "none", BOB)
    session.as_json = True
    verify_proof(session, ProofClaim((path,), None, TIP))
    assert "reference" not in json.loads(capsys.readouterr().out)


def test_a_proof_in_several_responses(session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(render_proof(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 0, on_top=1)))
    rest = json.loads(WHOLE)
    rest["proof"]["headers"] = rest["proof"]["headers"][1:]
    second.write_text(json.dumps(rest))
    verify_proof(session, ProofClaim((first, second), TERMS, TIP))
    assert rows(capsys.readouterr().out)["confirmations"] == "4"
    assert refusal(session, ProofClaim((first,), TERMS, TIP)).startswith("the proof shows 2 confirmations")
    assert "does not build on the one before it" in refusal(session, ProofClaim((second,), None, TIP))


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (PaymentTerms("order-1", BOB, 5_000_001), "the transfer in the proof pays 5000000 base units, not 5000001"),
        (
            PaymentTerms("order-2", BOB, 5_000_000),
            "the transfer in the proof has the reference the reference order-1, not order-2",
        ),
        (PaymentTerms("order-1", address_of("bob", "svc"), 5_000_000), "the transfer in the proof pays svcd1"),
        (PaymentTerms("order-1", BOB, 5_000_000), "the proof shows 4 confirmations and 12 are required"),
        (PaymentTerms("order-1", BOB, 5_000_000, 1, 3), "the payment is in block 2; only block 3 and later ones count"),
    ],
)
def test_a_proof_of_other_terms_is_rejected(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], terms: PaymentTerms, sentence: str
) -> None:
    assert refusal(session, ProofClaim((file,), terms, TIP)).startswith(sentence)
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
    path.write_bytes(render_proof(DEVNET, excerpt_of(chain, blocks, 2, 0)))
    tip = blocks[-1].header.hash
    assert (
        refusal(session, ProofClaim((path,), None, tip)) == f"the work of block {tip.hex()} does not reach its target"
    )
    assert capsys.readouterr().out == ""


def test_work_is_checked_last(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cheap checks come before the expensive one."""
    monkeypatch.setattr("svcd.cli.trustless.check_work", _nothing)
    assert refusal(session, ProofClaim((file,), TERMS, bytes(32))).startswith("the proof ends in block ")


def test_the_tip_must_be_the_last_block(session: Session, file: Path) -> None:
    assert "but is not its last block" in refusal(session, ProofClaim((file,), TERMS, BLOCKS[3].header.hash))


def test_a_proof_without_the_genesis_has_no_work_to_compare(session: Session, file: Path) -> None:
    assert "fetch the proof with chain=1" in refusal(session, ProofClaim((file,), TERMS, TIP, minimum_work=1))


def test_files_without_a_proof_are_rejected(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    assert refusal(session, ProofClaim((path,), None, TIP)) == f"{path} cannot be read: no such file or directory"
    path.write_bytes(b'{"ok":false}')
    assert refusal(session, ProofClaim((path,), None, TIP)).startswith("this is not a proof: ")
    path.write_bytes(b" " * MAX_RESPONSE_BYTES + b" ")
    assert refusal(session, ProofClaim((path,), None, TIP)).startswith(f"{path} has more than")


def test_progress_is_shown_at_a_terminal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_proof(offline(at_terminal=True), ProofClaim((file,), TERMS, TIP))
    assert "Checking the work" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [(0.5, "seconds"), (2.0, "seconds"), (60.0, "minutes"), (3600.0, "hours"), (1e6, "days"), (1e8, "years")],
)
def test_the_forgery_time_has_a_suitable_unit(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], elapsed: float, words: str
) -> None:
    times = iter((0.0, elapsed))
    verify_proof(session, ProofClaim((file,), TERMS, TIP), seconds=lambda: next(times))
    assert rows(capsys.readouterr().out)["to forge"].endswith(f" {words}")
