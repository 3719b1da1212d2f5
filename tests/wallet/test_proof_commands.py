"""Checking proofs of payment in files, as `svc verify --proof` does (docs/payment-proof.md)."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET
from svcd.commerce.payment import Terms
from svcd.commerce.proof import evaluations, parse_proof, proof_answer
from svcd.wallet.client import MAX_ANSWER_BYTES
from svcd.wallet.failed import Failed
from svcd.wallet.proof_commands import Claim, verify_proof
from svcd.wallet.session import Outside, Session
from tests.chains import ChainBuilder, address_of
from tests.commerce.proofs import excerpt_of
from tests.wallet.test_chain_commands import rows

CHAIN = ChainBuilder(DEVNET)
BLOCKS = list(
    CHAIN.chain(
        "genesis: b[1..5]\nb1 is by alice\nb2 pays 5000 from alice to bob for order-1\nb2 pays 6 from alice to bob"
    ).values()
)
WHOLE = proof_answer(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 0))
COST = evaluations(parse_proof([WHOLE], [DEVNET]))
TIP = BLOCKS[-1].header.hash
BOB = address_of("bob", "svcd")
TERMS = Terms("order-1", BOB, 5000, 4)


def _nothing(*_: Any) -> Any:
    raise AssertionError("a proof is checked without a node")


def ticking() -> Callable[[], float]:
    """A stopwatch that shows two seconds more whenever it is read."""
    times = count(0, 2)
    return lambda: float(next(times))


@pytest.fixture
def session() -> Session:
    """A session that reaches nothing."""
    outside = Outside(
        run=_nothing, agent=_nothing, operator_agent=_nothing, random=_nothing, environment={}, watched=lambda: False
    )
    return Session(outside)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a good proof."""
    path = tmp_path / "proof.json"
    path.write_bytes(WHOLE)
    return path


def refusal(session: Session, claim: Claim) -> str:
    """The sentence of a proof that is refused."""
    with pytest.raises((Failed, RuleViolation)) as refused:
        verify_proof(session, claim)
    return str(refused.value)


def test_a_proof_up_to_a_trusted_tip(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_proof(session, Claim((file,), TERMS, TIP), seconds=ticking())
    told = rows(capsys.readouterr().out)
    assert told == {
        "payment": "proved, if the tip is on the chain",
        "network": "SVC-DEVNET",
        "txid": BLOCKS[1].transfers[0].txid.hex(),
        "recipient": BOB,
        "amount": "0.00005 coins",
        "reference": "order-1",
        "sender": address_of("alice", "svcd"),
        "block": f"2, {BLOCKS[1].header.hash.hex()}",
        "block time": "2026-11-01 00:00:04 UTC",
        "confirmations": "4",
        "tip": f"5, {TIP.hex()}",
        "tip time": "2026-11-01 00:00:10 UTC",
        "to forge": (
            f"{COST} evaluations of Argon2id with 1024 KiB on average; here it makes 2 a second: {COST / 2:.1f} seconds"
        ),
    }


def test_as_json(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session.as_json = True
    verify_proof(session, Claim((file,), TERMS, TIP))
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "anchored": True,
        "chainId": "SVC-DEVNET",
        "txid": BLOCKS[1].transfers[0].txid.hex(),
        "recipient": BOB,
        "amount": "5000",
        "amountSvc": "0.00005",
        "reference": "order-1",
        "blockHash": BLOCKS[1].header.hash.hex(),
        "blockHeight": "2",
        "blockTime": str(DEVNET.slot_time(4)),
        "confirmations": 4,
        "tip": {"height": "5", "hash": TIP.hex()},
        "evaluations": str(COST),
    }


def test_without_a_tip_nothing_is_proved(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it says is shown, and what it would cost to forge; but whoever asks for the exit status alone hears no."""
    refused = refusal(session, Claim((file,), TERMS, None))
    assert refused.startswith("the proof holds together but is not anchored: ")
    assert "the hash of block 5" in refused
    told = rows(capsys.readouterr().out)
    assert told["payment"] == "not proved: nothing vouches for the tip"
    assert told["confirmations"] == "4"


def test_without_terms_it_says_what_is_paid(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(proof_answer(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 1)))
    verify_proof(session, Claim((path,), None, TIP))
    told = rows(capsys.readouterr().out)
    assert (told["amount"], told["reference"], told["recipient"]) == ("0.00000006 coins", "none", BOB)
    session.as_json = True
    verify_proof(session, Claim((path,), None, TIP))
    assert "reference" not in json.loads(capsys.readouterr().out)


def test_answers_that_continue_one_another(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(proof_answer(DEVNET, excerpt_of(CHAIN, BLOCKS, 2, 0, on_top=1)))
    rest = json.loads(WHOLE)
    rest["proof"]["headers"] = rest["proof"]["headers"][1:]
    second.write_text(json.dumps(rest))
    verify_proof(session, Claim((first, second), TERMS, TIP))
    assert rows(capsys.readouterr().out)["confirmations"] == "4"
    assert refusal(session, Claim((first,), TERMS, TIP)).startswith("the proof shows 2 confirmations")
    assert "does not build on the one before it" in refusal(session, Claim((second,), None, TIP))


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (Terms("order-1", BOB, 5001), "the transfer in the proof pays 5000 base units, not 5001"),
        (Terms("order-2", BOB, 5000), "the transfer in the proof carries the reference order-1, not order-2"),
        (Terms("order-1", address_of("bob", "svc"), 5000), "the transfer in the proof pays svcd1"),
        (Terms("order-1", BOB, 5000), "the proof shows 4 confirmations and 12 are required"),
        (Terms("order-1", BOB, 5000, 1, 3), "the payment stands in block 2; only block 3 and later ones count"),
    ],
)
def test_what_was_not_asked_for_is_refused(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], terms: Terms, sentence: str
) -> None:
    assert refusal(session, Claim((file,), terms, TIP)).startswith(sentence)
    assert capsys.readouterr().out == ""


def test_a_header_without_work_is_refused(session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = ChainBuilder(DEVNET)
    blocks = list(
        chain.chain(
            "genesis: b[1..4]\nb1 is by alice\nb2 pays 5 from alice to bob for x\nb4 has an invalid work"
        ).values()
    )
    path = tmp_path / "proof.json"
    path.write_bytes(proof_answer(DEVNET, excerpt_of(chain, blocks, 2, 0)))
    tip = blocks[-1].header.hash
    assert refusal(session, Claim((path,), None, tip)) == f"the work of block {tip.hex()} does not reach its target"
    assert capsys.readouterr().out == ""


def test_work_is_looked_at_last(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be refused at once does not cost seconds."""
    monkeypatch.setattr("svcd.wallet.proof_commands.check_work", _nothing)
    assert refusal(session, Claim((file,), TERMS, bytes(32))).startswith("the proof ends in block ")


def test_a_tip_that_is_not_the_last(session: Session, file: Path) -> None:
    assert "but is not its last block" in refusal(session, Claim((file,), TERMS, BLOCKS[3].header.hash))


def test_files_that_hold_no_proof(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    assert refusal(session, Claim((path,), None, TIP)) == f"{path} cannot be read: no such file or directory"
    path.write_bytes(b'{"ok":false}')
    assert refusal(session, Claim((path,), None, TIP)).startswith("this is no proof: ")
    path.write_bytes(b" " * MAX_ANSWER_BYTES + b" ")
    assert refusal(session, Claim((path,), None, TIP)).startswith(f"{path} holds more than {MAX_ANSWER_BYTES} bytes")


def test_the_work_is_counted_for_whoever_watches(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = Outside(
        run=_nothing, agent=_nothing, operator_agent=_nothing, random=_nothing, environment={}, watched=lambda: True
    )
    verify_proof(Session(outside), Claim((file,), TERMS, TIP))
    assert "Checking the work" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [(0.5, "seconds"), (2.0, "seconds"), (60.0, "minutes"), (3600.0, "hours"), (1e6, "days"), (1e8, "years")],
)
def test_the_cost_in_time_has_a_fitting_unit(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], elapsed: float, words: str
) -> None:
    times = iter((0.0, elapsed))
    verify_proof(session, Claim((file,), TERMS, TIP), seconds=lambda: next(times))
    assert rows(capsys.readouterr().out)["to forge"].endswith(f" {words}")
