"""`svc verify --proof`: checking a payment proof from files, without a node (docs/payment-proof.md)."""

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NETWORKS
from svcd.chain.units import format_amount
from svcd.chain.work import check_work
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.http_client import MAX_RESPONSE_BYTES
from svcd.cli.rendering import format_coins, format_time, property_table
from svcd.cli.secure_files import read_bounded
from svcd.cli.session import Session
from svcd.commerce.payment_proof import (
    Proof,
    Unproved,
    check,
    check_terms,
    check_tip,
    expected_evaluations,
    parse_proof,
)
from svcd.commerce.payment_request import PaymentTerms

F = TypeVar("F", bound=Callable[..., Any])

_DURATIONS: Final = (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60))


@frozen
class ProofClaim:
    """The payment to be proved, and the files of its proof."""

    files: tuple[Path, ...]
    """A node's responses that contain the proof, in order."""
    terms: PaymentTerms | None
    """The terms that the payment must meet; None for any payment."""
    tip: bytes | None
    """The hash of a trusted block, in which the proof must end."""


@frozen
class ForgeryCost:
    """The work needed to forge the headers of a proof."""

    evaluations: int
    """Expected evaluations of Argon2id."""
    memory_kib: int
    """Memory of each evaluation."""
    per_second: float
    """Evaluations per second on this computer, as just measured."""

    def __str__(self) -> str:
        rate = f"at {self.per_second:,.0f} per second on this computer: {_duration(self.evaluations / self.per_second)}"
        return f"{self.evaluations:,} evaluations of Argon2id with {self.memory_kib} KiB on average; {rate}"


def _block_hash(text: str) -> bytes:
    """The hash of a block in either case; raises ValueError."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("a block hash is 64 hex digits")
    return bytes.fromhex(text)


def proof_options(command: F) -> F:
    """``--proof`` and ``--tip``, the parameters ``proof`` and ``tip``."""
    tip = click.option(
        "--tip",
        metavar="HASH",
        callback=options.validated(_block_hash),
        help="The hash of the last block of the proof, taken from a node that you trust.",
    )
    proof = click.option(
        "--proof",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Check the proof in FILE instead of asking a node; repeat it for each response that continues the proof.",
    )
    return proof(tip(command))


def verify_proof(session: Session, claim: ProofClaim, *, seconds: Callable[[], float] = time.monotonic) -> None:
    """Check the proof and print its payment; raises CommandError or RuleViolation if it is not proved.

    A consistent proof without a trusted tip proves nothing: its payment is printed, and CommandError is raised.
    """
    proof = _load_and_check(claim)
    start = seconds()
    _check_work(session, proof)
    elapsed = max(seconds() - start, 0.001)
    cost = ForgeryCost(expected_evaluations(proof), proof.params.memory_kib, len(proof.headers) / elapsed)
    anchored = claim.tip is not None
    session.print_result(_as_json(proof, cost, anchored=anchored), _as_text(proof, cost, anchored=anchored))
    if not anchored:
        raise CommandError(
            "the proof is consistent but not anchored: anyone who spends that work can forge one. Give --tip with the"
            f" hash of block {proof.last.height}, taken from a node that you trust"
        )


def _load_and_check(claim: ProofClaim) -> Proof:
    """The proof in the files, checked except for its work; raises CommandError."""
    try:
        proof = parse_proof([read_bounded(path, MAX_RESPONSE_BYTES) for path in claim.files], NETWORKS.values())
        if claim.terms is not None:
            check_terms(claim.terms, proof)
        if claim.tip is not None:
            check_tip(claim.tip, proof)
        check(proof)
    except Unproved as unproved:
        raise CommandError(str(unproved)) from None
    return proof


def _check_work(session: Session, proof: Proof) -> None:
    """Check the work of every header on all processors; raises RuleViolation."""
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="work")
    with session.progress_bar(len(proof.headers), "Checking the work") as bar:
        try:
            for _ in pool.map(partial(check_work, params=proof.params), proof.headers):
                bar.update(1)
        finally:
            # After a bad header or Ctrl-C, do not wait for the rest.
            pool.shutdown(cancel_futures=True)


def _as_json(proof: Proof, cost: ForgeryCost, *, anchored: bool) -> dict[str, object]:
    transfer, block, last = proof.transfer, proof.block, proof.last
    reference = {} if transfer.reference is None else {"reference": transfer.reference}
    return {
        "anchored": anchored,
        "chainId": proof.params.chain_id,
        "txid": transfer.txid.hex(),
        "recipient": encode_address(transfer.recipient, proof.params.address_prefix),
        "amount": str(transfer.amount),
        "amountSvc": format_amount(transfer.amount),
        **reference,
        "blockHash": block.hash.hex(),
        "blockHeight": str(block.height),
        "blockTime": str(proof.params.slot_time(block.slot)),
        "confirmations": proof.confirmations,
        "tip": {"height": str(last.height), "hash": last.hash.hex()},
        "evaluations": str(cost.evaluations),
    }


def _as_text(proof: Proof, cost: ForgeryCost, *, anchored: bool) -> str:
    transfer, block, last = proof.transfer, proof.block, proof.last
    prefix, time_of = proof.params.address_prefix, proof.params.slot_time
    verdict = "proved, if the tip is on the chain" if anchored else "not proved: the tip is not a trusted one"
    return property_table(
        [
            ("payment", verdict),
            ("network", proof.params.chain_id),
            ("txid", transfer.txid.hex()),
            ("recipient", encode_address(transfer.recipient, prefix)),
            ("amount", format_coins(transfer.amount)),
            ("reference", transfer.reference or "none"),
            ("sender", encode_address(transfer.sender, prefix)),
            ("block", f"{block.height}, {block.hash.hex()}"),
            ("block time", format_time(time_of(block.slot))),
            ("confirmations", str(proof.confirmations)),
            ("tip", f"{last.height}, {last.hash.hex()}"),
            ("tip time", format_time(time_of(last.slot))),
            ("to forge", str(cost)),
        ]
    )


def _duration(seconds: float) -> str:
    for name, size in _DURATIONS:
        if seconds >= size:
            return f"{seconds / size:,.1f} {name}s"
    return f"{seconds:.1f} seconds"
