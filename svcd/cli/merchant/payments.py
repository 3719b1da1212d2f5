"""`svc pay-request`, `svc verify` and `svc confirmations` (docs/payments.md)."""

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import evolve, frozen
from click.core import ParameterSource

from svcd.chain.address import encode_address
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS
from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount, parse_amount
from svcd.chain.work import check_work
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.http_client import MAX_RESPONSE_BYTES, ResponseObject, invalid_response
from svcd.cli.payment_status import payment_status
from svcd.cli.rendering import escape, format_coins, format_time, pluralize, property_table
from svcd.cli.secure_files import read_bounded
from svcd.cli.session import Session
from svcd.commerce.payment_proof import (
    Proof,
    check,
    check_terms,
    check_tip,
    expected_evaluations,
    parse_proof,
)
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    MAX_CONFIRMATIONS,
    PaymentTerms,
    checkout_path,
    parse_label,
    parse_price,
    parse_reference,
    parse_uri,
)
from svcd.light.chain_proof import Unproved

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


_REQUEST: Final = "/rpc/commerce/payment-request"

_confirmations_option = click.option(
    "--confirmations",
    metavar="N",
    default=str(DEFAULT_CONFIRMATIONS),
    show_default=True,
    callback=options.validated(options.integer(1, MAX_CONFIRMATIONS)),
    help="Confirmations that the payment needs to be confirmed.",
)


@click.command(cls=options.NumericCommand)
@click.argument("recipient", callback=options.validated(options.address))
@click.argument("amount", callback=options.validated(parse_amount))
@click.option(
    "--reference", metavar="TEXT", callback=options.validated(parse_reference), help="The reference of the order."
)
@click.option("--label", metavar="TEXT", callback=options.validated(parse_label), help="Text shown to the buyer.")
@_confirmations_option
@options.node_option
@options.json_option
@click.pass_obj
def pay_request(
    session: Session,
    recipient: str,
    amount: int,
    reference: str | None,
    label: str | None,
    confirmations: int,
) -> None:
    """Create a request to pay AMOUNT coins to RECIPIENT, to be given to the payer.

    The node stores nothing. Without --reference it generates one that is unused. After each transfer its recipient must
    have 0.01 coins: the command warns you if RECIPIENT has none yet and AMOUNT is too little for that.

    \b
    Example:
      svc pay-request svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-1042 --label "Tea & cake"
    """
    body: dict[str, object] = {
        "recipient": recipient,
        "amountBaseUnits": str(amount),
        "confirmations": confirmations,
    }
    if reference is not None:
        body["reference"] = reference
    if label is not None:
        body["label"] = label
    payment = session.node().post(_REQUEST, body).object("payment")
    _check_uri(payment, body)
    if "warning" in payment:
        click.echo(f"Warning: {escape(payment.text('warning'))}.", err=True)
    session.print_result(payment.members, _request_text(payment, session.url))


def _check_uri(payment: ResponseObject, body: dict[str, object]) -> None:
    """Raise NoValidResponse unless the payment URI is for the requested payment: the buyer will trust it."""
    try:
        request = parse_uri(payment.text("paymentUri"), payment.network())
    except RuleViolation as violation:
        raise invalid_response(f"its payment URI is invalid: {violation.detail}") from None
    actual = {
        "recipient": request.terms.recipient,
        "amountBaseUnits": str(request.terms.amount),
        "reference": request.terms.reference,
        "label": request.label,
        "confirmations": request.terms.required,
    }
    for name, value in body.items():
        if actual[name] != value:
            raise invalid_response(f"its payment URI has {actual[name]!r} for {name} instead of {value!r}")
    counted = evolve(request, terms=evolve(request.terms, since_height=payment.number("sinceHeight")))
    if payment.text("checkoutPath") != checkout_path(counted):
        raise invalid_response("its checkout is not for the payment of its payment URI")


def _request_text(payment: ResponseObject, url: str) -> str:
    rows = [
        ("recipient", payment.text("recipient")),
        ("amount", format_coins(payment.number("amount"))),
        ("reference", payment.text("reference")),
        ("confirmations", f"{payment.count('requiredConfirmations')} required"),
        ("since height", str(payment.number("sinceHeight"))),
        ("payment URI", payment.text("paymentUri")),
        ("checkout", url + payment.text("checkoutPath")),
        ("wallet page", url + payment.text("walletPath")),
        ("status", url + payment.text("statusPath")),
    ]
    return property_table(rows)


@click.command(cls=options.NumericCommand)
@click.argument("amount", callback=options.validated(parse_amount))
@click.option(
    "--coin-price",
    metavar="PRICE",
    default="1",
    show_default=True,
    callback=options.validated(parse_price),
    help="What a coin costs, in any currency.",
)
@click.option(
    "--hash-price",
    metavar="PRICE",
    default="0.01",
    show_default=True,
    callback=options.validated(parse_price),
    help="What an hour of one core costs to rent, in the same currency.",
)
@options.node_option
@options.json_option
@click.pass_obj
def confirmations(session: Session, amount: int, coin_price: int, hash_price: int) -> None:
    """Show how many confirmations make undoing a payment of AMOUNT coins dearer than the payment.

    The cost is that of renting the hashes for the payment's block and those on top of it, at the work that blocks have
    today. It is never less than 12 confirmations, and at most 1000: if these do not suffice, wait for a larger network,
    or take the payment only from somebody you trust.

    \b
    Example:
      svc confirmations 250 --coin-price 0.5
      svc confirmations 250 --coin-price 0.5 --hash-price 0.02 --json
    """
    query = f"amountBaseUnits={amount}&coinPrice={format_amount(coin_price)}&hashPrice={format_amount(hash_price)}"
    advice = session.node().get(f"/rpc/commerce/confirmations?{query}").object("confirmations")
    count = advice.count("confirmations")
    few = " (the most; they cost less to undo than the payment is worth)" if advice.value("capped") is True else ""
    rows = [
        ("confirmations", f"{count}{few}"),
        ("amount", f"{format_coins(amount)}, worth {format_amount(amount * coin_price // BASE_UNITS_PER_COIN)}"),
        ("cost to undo", f"{advice.text('costToUndo')} at {advice.text('hashPrice')} for an hour of one core"),
        ("block", f"{advice.number('hashesPerBlock'):,} hashes, the median of {advice.count('blocks')} blocks"),
        ("network", f"{advice.number('hashesPerSecond'):,} hashes a second"),
        ("core", f"{advice.count('hashesPerCoreSecond')} hashes a second"),
    ]
    session.print_result(advice.members, property_table(rows))


@click.command(cls=options.NumericCommand)
@click.argument("reference", required=False, callback=options.validated(parse_reference))
@click.argument("recipient", required=False, callback=options.validated(options.address))
@click.argument("amount", required=False, callback=options.validated(parse_amount))
@_confirmations_option
@options.since_height_option
@proof_options
@options.node_option
@options.json_option
@click.pass_obj
def verify(
    session: Session,
    reference: str | None,
    recipient: str | None,
    amount: int | None,
    confirmations: int,
    since_height: int | None,
    proof: tuple[Path, ...],
    tip: bytes | None,
) -> None:
    """Show whether AMOUNT coins were paid to RECIPIENT under REFERENCE, and the confirmations of that payment.

    The exit status is 0 in every state; programs read `state` with --json. With --proof no node is asked, the exit
    status is 1 if the proof does not hold, and the three arguments may be omitted to see which payment it is for.

    \b
    Example:
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --confirmations 30 --json
      svc verify --proof proof.json --tip 8b545f7362fd5e49a0c45fd8c51ccefcb631692bdb78c964fbd089cbecae10dd
    """
    terms = None
    if reference is not None and recipient is not None and amount is not None:
        terms = PaymentTerms(reference, recipient, amount, confirmations, since_height)
    if proof:
        if terms is None and reference is not None:
            raise click.UsageError("give REFERENCE, RECIPIENT and AMOUNT, or none of them")
        if terms is None and (since_height is not None or _is_given("confirmations")):
            raise click.UsageError("--confirmations and --since-height need REFERENCE, RECIPIENT and AMOUNT")
        verify_proof(session, ProofClaim(proof, terms, tip))
        return
    if terms is None:
        raise click.UsageError("REFERENCE, RECIPIENT and AMOUNT are needed to ask a node")
    if tip is not None:
        raise click.UsageError("--tip is for a proof; give it together with --proof")
    payment = payment_status(session.node(), terms)
    session.print_result(payment.members, "\n".join(_payment_lines(payment)))


def _undoing(work: ResponseObject) -> str:
    hashes, hours = work.number("hashesToUndo"), work.text("coreHoursToUndo")
    return escape(f"{hashes:,} hashes, {hours} hours of one core, {work.text('workConfirmations')} blocks of today")


def _is_given(name: str) -> bool:
    """Whether the option is on the command line, even with its default: the user must not think it was checked."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _payment_lines(payment: ResponseObject) -> Iterator[str]:
    confirmations, required = payment.count("confirmations"), payment.count("requiredConfirmations")
    tip = payment.object("tip")
    rows = [
        ("state", payment.text("state")),
        ("confirmations", f"{confirmations} of {required}"),
        ("recipient", payment.text("recipient")),
        ("amount", format_coins(payment.number("amount"))),
        ("reference", payment.text("reference")),
    ]
    if "txid" in payment:
        rows.append(("txid", payment.text("txid")))
    if "blockHash" in payment:
        rows.append(("block", f"{payment.number('blockHeight')}, {payment.text('blockHash')}"))
        rows.append(("block time", format_time(payment.number("blockTime"))))
    rows.append(("matches", pluralize(payment.count("matchCount"), "transfer")))
    if "sinceHeight" in payment:
        rows.append(("since height", str(payment.number("sinceHeight"))))
    if "work" in payment:
        rows.append(("to undo", _undoing(payment.object("work"))))
    rows.append(("tip", f"{tip.number('height')}, {tip.text('hash')}"))
    if "node" in payment and payment.object("node").value("synced") is False:
        rows.append(("node", "fetches blocks, or has had no new block for long: do not rely on this, ask again later"))
    yield property_table(rows)
    for mismatch in payment.objects("mismatches"):
        yield ""
        yield escape(f"  another amount: {format_coins(mismatch.number('amount'))}, which does not pay this order")
        yield escape(f"    {mismatch.text('txid')}, {pluralize(mismatch.count('confirmations'), 'confirmation')}")
