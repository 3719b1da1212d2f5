"""`svc pay-request`, `svc verify` and `svc confirmations` (docs/payments.md)."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import define, evolve, frozen
from click.core import ParameterSource

from svcd.chain.address import encode_address
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import new_reference
from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount, format_coins, parse_amount
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.errors import CommandError, ErrorResponse
from svcd.cli.http_client import MAX_RESPONSE_BYTES, NodeClient
from svcd.cli.payment_status import awaited_payment, is_settled, payment_status
from svcd.cli.rendering import confirmations_of, format_time, property_table
from svcd.cli.secure_files import read_bounded
from svcd.cli.session import Session
from svcd.cli.trustless import Claim, Questions, format_work, network_of
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    MAX_CONFIRMATIONS,
    PaymentTerms,
    checkout_path,
    parse_label,
    parse_price,
    parse_reference,
    parse_uri,
    status_path,
    wallet_path,
)
from svcd.light.chain_proof import ProvenChain, Unproved
from svcd.light.payment_proof import (
    Proof,
    ProvenPayment,
    check,
    check_depth,
    check_payment,
    parse_proof,
    proof_in,
)
from svcd.quantities import counted
from svcd.visible_text import BadText, decoded

_MAX_WAIT: Final = 604_800
"""A week."""

F = TypeVar("F", bound=Callable[..., Any])


@frozen
class ProofClaim:
    """The payment to be proved, and the file with its proof."""

    file: Path
    """A node's response that contains the proof."""
    terms: PaymentTerms | None
    """The terms that the payment must meet; None for any payment."""
    tip: bytes | None = None
    """The hash of a trusted block, in which the proof must end; None for any."""
    minimum_work: int = 0
    """The work, in hashes, that the chain of the proof must have."""


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
        help="The hash of the block in which the proof must end, from a node that you trust.",
    )
    proof = click.option(
        "--proof",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Check the proof in FILE instead of asking a node.",
    )
    return proof(tip(command))


def read_saved_response(path: Path) -> bytes:
    """The JSON of a response in a file, as a program or an editor has saved it; raises CommandError."""
    try:
        return decoded(read_bounded(path, MAX_RESPONSE_BYTES)).encode("utf-8")
    except BadText as error:
        raise CommandError(f"{path} {error}") from None


def verify_proof(session: Session, claim: ProofClaim) -> None:
    """Check the proof and print its payment; raises CommandError or RuleViolation if it is not proved."""
    try:
        proof = proof_in(read_saved_response(claim.file), session.meant, "the file")
        if claim.terms is not None:
            check_payment(claim.terms, proof)
        proven = check(proof, minimum_work=claim.minimum_work)
        if claim.terms is not None:
            check_depth(claim.terms.required, proven.confirmations)
        tip = proven.chain.tip
        if claim.tip is not None and tip.hash != claim.tip:
            raise Unproved(
                f"the proof ends in block {tip.hash.hex()} at height {tip.height}, not in {claim.tip.hex()};"
                " ask a node that you trust for the block at that height, or fetch the proof again"
            )
        Questions(session, proof.params).check_time_and_work(proven.chain)
    except Unproved as unproved:
        raise CommandError(str(unproved)) from None
    height, tip_hash = str(tip.height), tip.hash.hex()
    not_shown = _proof_not_shown(proof.params, tip.height, anchored=claim.tip is not None)
    members = {
        **_payment_members(proof, proven),
        "tip": {"height": height, "hash": tip_hash},
        "work": str(tip.work),
        "notShown": not_shown,
    }
    rows = [
        ("payment", "proved on a chain from the genesis"),
        *_payment_rows(proof, proven),
        ("tip", f"{height}, {tip_hash}"),
        ("tip time", format_time(proof.params.slot_time(tip.slot))),
        ("work", format_work(tip.work)),
        ("not shown", not_shown),
    ]
    session.print_result(members, property_table(rows))


def _proof_not_shown(params: NetworkParams, height: int, *, anchored: bool) -> str:
    if anchored:
        return "whether the tip is still on the chain with the most work"
    together, listed = params.undone_by(height)
    if together:
        return (
            f"whether another chain has more work: {together} of the {listed} producers together can make one. Compare"
            " the tip with what a node shows"
        )
    return (
        "whether another chain has more work: anyone can make a chain by spending the work above. Compare it with what"
        " a node shows of the same tip, or give --minimum-work"
    )


def _payment_members(proof: Proof, proven: ProvenPayment) -> dict[str, object]:
    """What --json prints of a proved payment."""
    params, transfer, block = proof.params, proof.transfer, proven.chain.headers[proof.height]
    reference = {} if transfer.reference is None else {"reference": transfer.reference}
    return {
        "chainId": params.chain_id,
        "txid": transfer.txid.hex(),
        "recipient": encode_address(transfer.recipient, params.address_prefix),
        "amount": str(transfer.amount),
        "amountSvc": format_amount(transfer.amount),
        **reference,
        "blockHash": block.hash.hex(),
        "blockHeight": str(block.height),
        "blockTime": str(params.slot_time(block.slot)),
        "confirmations": proven.confirmations,
    }


def _payment_rows(proof: Proof, proven: ProvenPayment) -> list[tuple[str, str]]:
    """The rows of the table of a proved payment."""
    params, transfer, block = proof.params, proof.transfer, proven.chain.headers[proof.height]
    return [
        ("network", params.chain_id),
        ("txid", transfer.txid.hex()),
        ("recipient", encode_address(transfer.recipient, params.address_prefix)),
        ("amount", format_coins(transfer.amount, params.unit)),
        ("reference", transfer.reference or "none"),
        ("sender", encode_address(transfer.sender, params.address_prefix)),
        ("block", f"{block.height}, {block.hash.hex()}"),
        ("block time", format_time(params.slot_time(block.slot))),
        ("confirmations", str(proven.confirmations)),
    ]


# svc verify --trustless

_ANSWER_WITH_NEXT: Final = frozenset(("ok", "proof", "next"))
_PAYMENT_NOT_SHOWN: Final = (
    "whether a heavier chain is hidden by all these nodes; that an order is unpaid cannot be proved, only that it is"
    " paid"
)
_ABSENT: Final = (404, 410)


def verify_trustless(session: Session, terms: PaymentTerms, minimum_work: int) -> None:
    """Print the payment of ``terms`` that is proved on the chain with the most work; raises CommandError.

    A chain with less than ``minimum_work``, in hashes, is refused.
    """
    params = network_of(terms.recipient, session.meant)
    questions = Questions(session, params, minimum_work)
    verified = questions.most_work(
        lambda node: _claim_payment(questions, node, terms), partial(_on_chain, terms), "the payment"
    )
    proof, proven = verified.result
    state = "confirmed" if proven.confirmations >= terms.required else "confirming"
    members = _payment_members(proof, proven)
    members |= {"state": state, "requiredConfirmations": terms.required, **verified.members(_PAYMENT_NOT_SHOWN)}
    rows = dict(_payment_rows(proof, proven))
    rows["confirmations"] = confirmations_of(proven.confirmations, terms.required)
    table = [("state", f"{state}, proved"), *rows.items(), *verified.rows(_PAYMENT_NOT_SHOWN)]
    session.print_result(members, property_table(table))


Shown = tuple[Proof, ProvenPayment]


def _claim_payment(questions: Questions, node: NodeClient, terms: PaymentTerms) -> Claim[Shown]:
    """The payment that a node shows with its chain, or its chain alone; raises CommandError or Unproved."""
    since = "" if terms.since_height is None else f"&sinceHeight={terms.since_height}"
    path = f"/rpc/commerce/payment/{terms.reference}/proof?recipient={terms.recipient}&amountBaseUnits={terms.amount}"
    try:
        shown = questions.proof(node, f"{path}&chain=1{since}", members=_ANSWER_WITH_NEXT)
    except ErrorResponse as error:
        if error.status not in _ABSENT:
            raise
        return Claim(questions.chain(node), None, str(error))
    proof = parse_proof(shown, questions.params)
    proven = check(proof, minimum_work=questions.minimum_work)
    return Claim(proven.chain, (proof, proven))


def _on_chain(terms: PaymentTerms, shown: Shown, chain: ProvenChain) -> Shown:
    """The payment with its depth below the tip of ``chain``, which has its block; raises Unproved."""
    proof, proven = shown
    check_payment(terms, proof)
    return proof, evolve(proven, confirmations=chain.tip.height - proof.height + 1)


_REQUEST: Final = "/rpc/commerce/payment-request"

_confirmations_option = options.confirmations_option("Confirmations that the payment needs to be confirmed.")


@click.command(cls=options.NumericCommand)
@click.argument("recipient", callback=options.address)
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

    The node stores nothing. Without --reference a random one is used. After each transfer its recipient must
    have 0.01 coins: the command warns you if RECIPIENT has none yet and AMOUNT is too little for that.

    \b
    Example:
      svc pay-request svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-1042 --label "Tea & cake"
    """
    body: dict[str, object] = {
        # A node that chose it could choose that of an order which is paid.
        "reference": new_reference(session.runtime.random) if reference is None else reference,
        "recipient": recipient,
        "amountBaseUnits": str(amount),
        "confirmations": confirmations,
    }
    if label is not None:
        body["label"] = label
    payment = session.node().post(_REQUEST, body).object("payment")
    _check_request(session, payment, body)
    if "warning" in payment:
        click.echo(f"Warning: {payment.text('warning')}.", err=True)
    session.print_result(payment, _request_text(payment, session))


def _check_request(session: Session, payment: ResponseObject, body: dict[str, object]) -> None:
    """Raise NoValidResponse unless all of the record is about the requested payment: the buyer will trust it."""
    try:
        request = parse_uri(payment.text("paymentUri"), payment.network(session.meant))
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
    payment.check(
        recipient=request.terms.recipient,
        amount=str(request.terms.amount),
        reference=request.terms.reference,
        requiredConfirmations=request.terms.required,
        label=request.label,
        checkoutPath=checkout_path(counted),
        walletPath=wallet_path(request),
        statusPath=status_path(counted.terms),
    )


def _request_text(payment: ResponseObject, session: Session) -> str:
    rows = [
        ("recipient", payment.text("recipient")),
        ("amount", format_coins(payment.number("amount"), session.unit)),
        ("reference", payment.text("reference")),
        ("confirmations", f"{payment.count('requiredConfirmations')} required"),
        ("since height", str(payment.number("sinceHeight"))),
        ("payment URI", payment.text("paymentUri")),
        ("checkout", session.url + payment.text("checkoutPath")),
        ("wallet page", session.url + payment.text("walletPath")),
        ("status", session.url + payment.text("statusPath")),
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
    """Show how many confirmations make undoing a payment of AMOUNT coins cost more than it is worth.

    The cost is that of renting the hashes for the payment's block and those on top of it, at the work that blocks have
    today. The answer is never less than 12 confirmations, and at most 1000: if these do not suffice, wait for a larger
    network, or take the payment only from somebody you trust.

    \b
    Example:
      svc confirmations 250 --coin-price 0.5
      svc confirmations 250 --coin-price 0.5 --hash-price 0.02 --json
    """
    node = session.node()
    if session.network is not None and session.network.producers:
        height = node.get("/rpc/status").object("status").number("height")
        raise CommandError(_by_producers(session.network, height))
    query = f"amountBaseUnits={amount}&coinPrice={format_amount(coin_price)}&hashPrice={format_amount(hash_price)}"
    advice = node.get(f"/rpc/commerce/confirmations?{query}").object("confirmations")
    advice.check(amount=str(amount), coinPrice=format_amount(coin_price), hashPrice=format_amount(hash_price))
    count = advice.count("confirmations")
    if not DEFAULT_CONFIRMATIONS <= count <= MAX_CONFIRMATIONS:
        raise invalid_response(
            f"confirmations.confirmations is {count}, not from {DEFAULT_CONFIRMATIONS} to {MAX_CONFIRMATIONS}"
        )
    worth = format_amount(amount * coin_price // BASE_UNITS_PER_COIN)
    few = " (the most; they cost less to undo than the payment is worth)" if advice.flag("capped") else ""
    rows = [
        ("confirmations", f"{count}{few}"),
        ("amount", f"{format_coins(amount, session.unit)}, worth {worth}"),
        ("cost to undo", f"{advice.text('costToUndo')} at {advice.text('hashPrice')} for an hour of one core"),
        (
            "block",
            f"{advice.number('hashesPerBlock'):,} hashes, the median of {counted(advice.count('blocks'), 'block')}",
        ),
        ("network", f"{advice.number('hashesPerSecond'):,} hashes a second"),
        ("core", f"{advice.count('hashesPerCoreSecond')} hashes a second"),
    ]
    session.print_result(advice, property_table(rows))


def _by_producers(params: NetworkParams, height: int) -> str:
    """Why no price of computing says what undoing a payment takes on a network with a list of producers."""
    together, listed = params.undone_by(height)
    return (
        f"on {params.name} computing undoes no payment: {together} of the {listed}"
        " producers together undo any, however deep; `svc help own-network` says how many confirmations are enough"
    )


@click.command(cls=options.NumericCommand)
@click.argument("reference", required=False, callback=options.validated(parse_reference))
@click.argument("recipient", required=False, callback=options.address)
@click.argument("amount", required=False, callback=options.validated(parse_amount))
@_confirmations_option
@options.since_height_option
@click.option("--wait", is_flag=True, help="Wait until the payment is confirmed, or the time of --seconds is over.")
@click.option(
    "--seconds",
    metavar="N",
    default="3600",
    show_default=True,
    callback=options.validated(options.integer(1, _MAX_WAIT)),
    help="How long to wait at most.",
)
@proof_options
@options.nodes_option
@options.json_option
@click.pass_obj
def verify(
    session: Session,
    reference: str | None,
    recipient: str | None,
    amount: int | None,
    confirmations: int,
    since_height: int | None,
    seconds: int,
    proof: Path | None,
    tip: bytes | None,
    *,
    wait: bool,
    trustless: bool,
    minimum_work: int | None,
) -> None:
    """Show whether AMOUNT coins were paid to RECIPIENT under REFERENCE, and the confirmations of that payment.

    The exit status is 0 in every state; programs read `state` with --json. With --wait the command ends when the
    payment is confirmed, on a node that is in sync, and with exit status 1 if it is not within --seconds; standard
    error says what happens meanwhile. With --proof no node is asked, the exit status is 1 if the proof does not hold,
    and the three arguments may be omitted to see which payment it is for. With --trustless no node is trusted: the
    payment is checked against the chain with the most work that the nodes given by --url can prove, and the exit status
    is 1 if it is not proved.

    \b
    Example:
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --confirmations 30 --json
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --wait --seconds 900
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --trustless
      svc verify --proof proof.json
    """
    options.check_one_node(session, trustless=trustless)
    if wait and (trustless or proof is not None):
        raise click.UsageError("--wait asks a node that is trusted; leave out --trustless and --proof")
    if _is_given("seconds") and not wait:
        raise click.UsageError("--seconds is for --wait; give both")
    terms = None
    if reference is not None and recipient is not None and amount is not None:
        terms = PaymentTerms(reference, recipient, amount, confirmations, since_height)
    if proof is not None:
        if trustless:
            raise click.UsageError("--trustless asks nodes, and --proof asks none; give one of them")
        if terms is None and reference is not None:
            raise click.UsageError("give REFERENCE, RECIPIENT and AMOUNT, or none of them")
        if terms is None and (since_height is not None or _is_given("confirmations")):
            raise click.UsageError("--confirmations and --since-height need REFERENCE, RECIPIENT and AMOUNT")
        verify_proof(session, ProofClaim(proof, terms, tip, minimum_work or 0))
        return
    if terms is None:
        raise click.UsageError("REFERENCE, RECIPIENT and AMOUNT are needed to ask a node")
    if tip is not None:
        raise click.UsageError("--tip is for a proof; give it together with --proof")
    if trustless:
        verify_trustless(session, terms, minimum_work or 0)
        return
    if minimum_work is not None:
        raise click.UsageError("--minimum-work needs --trustless or --proof")
    if not wait:
        payment = payment_status(session.node(), terms)
        session.print_result(payment, "\n".join(_payment_lines(payment, session.meant[0])))
        return
    progress = _Progress(session)
    payment = awaited_payment(session.node(), terms, seconds, progress.tell)
    session.print_result(payment, "\n".join(_payment_lines(payment, session.meant[0])))
    if not is_settled(payment):
        state = payment.text("state")
        why = "the node is not in sync" if state == "confirmed" else f"it is {state}"
        raise CommandError(f"the payment is not confirmed after {seconds} s: {why}")


@define
class _Progress:
    """Says on standard error how a payment changes, one line for each change."""

    session: Session
    last: str = ""

    def tell(self, payment: ResponseObject) -> None:
        """Print state and confirmations if they are others than before."""
        done = confirmations_of(payment.count("confirmations"), payment.count("requiredConfirmations"))
        line = f"{payment.text('state')}, confirmations {done}"
        if line != self.last:
            click.echo(f"{format_time(self.session.runtime.clock.milliseconds())}  {line}", err=True)
        self.last = line


def _undoing(work: ResponseObject) -> str:
    hashes, hours = work.number("hashesToUndo"), work.text("coreHoursToUndo")
    return f"{hashes:,} hashes, {hours} hours of one core, {work.text('workConfirmations')} blocks of today"


def _is_given(name: str) -> bool:
    """Whether the option is on the command line, even with its default: the user must not think it was checked."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _payment_lines(payment: ResponseObject, params: NetworkParams) -> Iterator[str]:
    tip = payment.object("tip")
    rows = [
        ("state", payment.text("state")),
        (
            "confirmations",
            confirmations_of(payment.count("confirmations"), payment.count("requiredConfirmations")),
        ),
        ("recipient", payment.text("recipient")),
        ("amount", format_coins(payment.number("amount"), params.unit)),
        ("reference", payment.text("reference")),
    ]
    if "txid" in payment:
        rows.append(("txid", payment.text("txid")))
    if "blockHash" in payment:
        rows.append(("block", f"{payment.number('blockHeight')}, {payment.text('blockHash')}"))
        rows.append(("block time", format_time(payment.number("blockTime"))))
    rows.append(("matches", counted(payment.count("matchCount"), "transfer")))
    if "sinceHeight" in payment:
        rows.append(("since height", str(payment.number("sinceHeight"))))
    together, listed = params.undone_by(tip.number("height"))
    if together:
        rows.append(("to undo", f"{together} of the {listed} producers together"))
    elif "work" in payment:
        rows.append(("to undo", _undoing(payment.object("work"))))
    rows.append(("tip", f"{tip.number('height')}, {tip.text('hash')}"))
    if "node" in payment and not payment.object("node").flag("synced"):
        rows.append(("node", "fetches blocks, or has had no new block for long: do not rely on this, ask again later"))
    yield property_table(rows)
    for mismatch in payment.objects("mismatches"):
        yield ""
        yield f"  another amount: {format_coins(mismatch.number('amount'), params.unit)}, which does not pay this order"
        yield f"    {mismatch.text('txid')}, {counted(mismatch.count('confirmations'), 'confirmation')}"
