"""`svc pay-request` and `svc verify`: requesting a payment, and checking whether it was made (docs/payments.md)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from attrs import evolve
from click.core import ParameterSource

from svcd.chain.errors import RuleViolation
from svcd.chain.units import parse_amount
from svcd.cli import options
from svcd.cli.http_client import NodeClient, ResponseObject, invalid_response, payment_status
from svcd.cli.merchant.proof import ProofClaim, proof_options, verify_proof
from svcd.cli.rendering import escape, format_coins, format_time, pluralize, property_table
from svcd.cli.session import Session
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    MAX_CONFIRMATIONS,
    PaymentTerms,
    checkout_path,
    parse_label,
    parse_reference,
    parse_uri,
)

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

    The node stores nothing. Without --reference it generates one that is unused.

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

    async def work(node: NodeClient) -> ResponseObject:
        return (await node.post(_REQUEST, body)).object("payment")

    payment = session.with_node(work)
    _check_uri(payment, body)
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
    payment = session.with_node(lambda node: payment_status(node, terms))
    session.print_result(payment.members, "\n".join(_payment_lines(payment)))


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
    rows.append(("tip", f"{tip.number('height')}, {tip.text('hash')}"))
    if "node" in payment and payment.object("node").value("synced") is False:
        rows.append(("node", "catches up or stands still: do not rely on this, ask again later"))
    yield property_table(rows)
    for mismatch in payment.objects("mismatches"):
        yield ""
        yield escape(f"  another amount: {format_coins(mismatch.number('amount'))}, which does not pay this order")
        yield escape(f"    {mismatch.text('txid')}, {pluralize(mismatch.count('confirmations'), 'confirmation')}")
