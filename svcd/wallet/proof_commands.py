"""`svc verify --proof`: whether a file proves a payment, found out without any node (docs/payment-proof.md)."""

import os
import re
import sys
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
from svcd.commerce.payment import Terms
from svcd.commerce.proof import Proof, Unproved, check, check_terms, check_tip, evaluations, parse_proof
from svcd.wallet import options, show
from svcd.wallet.client import MAX_ANSWER_BYTES
from svcd.wallet.disk import read_bounded
from svcd.wallet.failed import Failed
from svcd.wallet.session import Session

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60))


@frozen
class Claim:
    """What is to be proved."""

    files: tuple[Path, ...]
    """The answers of a node that hold the proof, in order."""
    terms: Terms | None
    """What the payment must be; None for whatever payment it is."""
    tip: bytes | None
    """The hash of the block in which the proof must end, which the merchant trusts."""


@frozen
class Effort:
    """What it takes to make the headers of a proof."""

    evaluations: int
    """Of Argon2id, on average."""
    memory_kib: int
    """For each of them."""
    per_second: float
    """How many of them this computer has just made in a second."""

    def __str__(self) -> str:
        rate = f"here it makes {self.per_second:,.0f} a second: {_duration(self.evaluations / self.per_second)}"
        return f"{self.evaluations:,} evaluations of Argon2id with {self.memory_kib} KiB on average; {rate}"


def _block_hash(text: str) -> bytes:
    """The hash of a block in either case; raises ValueError."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("the hash of a block is 64 hex digits")
    return bytes.fromhex(text)


def proof_options(command: F) -> F:
    """``--proof`` and ``--tip``, given to the command as ``proof`` and ``tip``."""
    tip = click.option(
        "--tip",
        metavar="HASH",
        callback=options.judged(_block_hash),
        help="The hash of the block in which the proof must end; read it from a node that you trust.",
    )
    proof = click.option(
        "--proof",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Ask no node, and check the proof in FILE; given again for each answer that continues it.",
    )
    return proof(tip(command))


def verify_proof(session: Session, claim: Claim, *, seconds: Callable[[], float] = time.monotonic) -> None:
    """Show what the files prove; raises Failed, or RuleViolation, for what they do not.

    A proof without a tip proves nothing, however well it holds together: what it says is shown, and Failed is raised.
    """
    proof = _held_together(claim)
    began = seconds()
    _check_works(proof, hidden=session.as_json or not session.outside.watched())
    spent = max(seconds() - began, 0.001)
    effort = Effort(evaluations(proof), proof.params.memory_kib, len(proof.headers) / spent)
    anchored = claim.tip is not None
    session.show(_record(proof, effort, anchored=anchored), _text(proof, effort, anchored=anchored))
    if not anchored:
        raise Failed(
            "the proof holds together but is not anchored: whoever spends that work can make one like it. Give --tip"
            f" with the hash of block {proof.last.height}, read from a node that you trust"
        )


def _held_together(claim: Claim) -> Proof:
    """The proof in the files, with everything checked that takes no time; raises Failed."""
    try:
        proof = parse_proof([_read(path) for path in claim.files], NETWORKS.values())
        if claim.terms is not None:
            check_terms(claim.terms, proof)
        if claim.tip is not None:
            check_tip(claim.tip, proof)
        check(proof)
    except Unproved as unproved:
        raise Failed(str(unproved)) from None
    return proof


def _read(path: Path) -> bytes:
    data = read_bounded(path, MAX_ANSWER_BYTES)
    if len(data) > MAX_ANSWER_BYTES:
        raise Failed(f"{path} holds more than {MAX_ANSWER_BYTES} bytes; no answer of a node does")
    return data


def _check_works(proof: Proof, *, hidden: bool) -> None:
    """Check the work of every header on all processors; raises RuleViolation."""
    count = len(proof.headers)
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="work")
    with click.progressbar(length=count, label="Checking the work", file=sys.stderr, hidden=hidden) as bar:
        try:
            for _ in pool.map(partial(check_work, params=proof.params), proof.headers):
                bar.update(1)
        finally:
            # Whoever finds one bad header, or presses Ctrl-C, does not wait for the rest.
            pool.shutdown(cancel_futures=True)


def _record(proof: Proof, effort: Effort, *, anchored: bool) -> dict[str, object]:
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
        "evaluations": str(effort.evaluations),
    }


def _text(proof: Proof, effort: Effort, *, anchored: bool) -> str:
    transfer, block, last = proof.transfer, proof.block, proof.last
    prefix, time_of = proof.params.address_prefix, proof.params.slot_time
    verdict = "proved, if the tip is on the chain" if anchored else "not proved: nothing vouches for the tip"
    return show.table(
        [
            ("payment", verdict),
            ("network", proof.params.chain_id),
            ("txid", transfer.txid.hex()),
            ("recipient", encode_address(transfer.recipient, prefix)),
            ("amount", show.coins(transfer.amount)),
            ("reference", transfer.reference or "none"),
            ("sender", encode_address(transfer.sender, prefix)),
            ("block", f"{block.height}, {block.hash.hex()}"),
            ("block time", show.moment(time_of(block.slot))),
            ("confirmations", str(proof.confirmations)),
            ("tip", f"{last.height}, {last.hash.hex()}"),
            ("tip time", show.moment(time_of(last.slot))),
            ("to forge", str(effort)),
        ]
    )


def _duration(seconds: float) -> str:
    for name, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:,.1f} {name}s"
    return f"{seconds:.1f} seconds"
