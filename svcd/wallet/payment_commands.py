"""`svc pay-request` and `svc verify`: asking to be paid, and whether one has been (docs/payments.md)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS
from svcd.chain.units import parse_amount
from svcd.commerce.payment import DEFAULT_CONFIRMATIONS, MAX_CONFIRMATIONS, Terms
from svcd.commerce.terms import parse_label, parse_reference, status_path
from svcd.commerce.uri import parse_uri
from svcd.wallet import options
from svcd.wallet.answer import Answer, wrong
from svcd.wallet.proof_commands import Claim, proof_options, verify_proof
from svcd.wallet.session import Reach, Session
from svcd.wallet.show import coins, counted, moment, plain, table
from svcd.wallet.verification import check_answer

_REQUEST: Final = "/rpc/commerce/payment-request"

_depth_option = click.option(
    "--confirmations",
    metavar="N",
    default=str(DEFAULT_CONFIRMATIONS),
    show_default=True,
    callback=options.judged(options.integer(1, MAX_CONFIRMATIONS)),
    help="How deep the payment must lie to be confirmed.",
)


@click.command(cls=options.WithNumbers)
@click.argument("recipient", callback=options.judged(options.address))
@click.argument("amount", callback=options.judged(parse_amount))
@click.option("--reference", metavar="TEXT", callback=options.judged(parse_reference), help="The order's reference.")
@click.option("--label", metavar="TEXT", callback=options.judged(parse_label), help="What the buyer is shown.")
@_depth_option
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
    """Make a request to pay AMOUNT coins to RECIPIENT, to be given to whoever pays.

    The node stores nothing. Without --reference it makes one that nobody has used.

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

    async def work(reach: Reach) -> Answer:
        return (await reach.node.post(_REQUEST, body)).object("payment")

    payment = session.with_node(work)
    _check(payment, body)
    session.show(payment.members, _request_text(payment, session.url))


def _check(payment: Answer, body: dict[str, object]) -> None:
    """Raise Unanswered unless the URI asks for what was asked for: the buyer will trust it."""
    number = payment.count("networkId")
    params = next((params for params in NETWORKS.values() if params.network_id == number), None)
    if params is None:
        raise wrong(f"the request is for the network {number}, which svc does not know")
    try:
        request = parse_uri(payment.text("paymentUri"), params)
    except RuleViolation as violation:
        raise wrong(f"its payment URI cannot be read: {violation.detail}") from None
    said = {
        "recipient": request.terms.recipient,
        "amountBaseUnits": str(request.terms.amount),
        "reference": request.terms.reference,
        "label": request.label,
        "confirmations": request.terms.required,
    }
    for name, value in body.items():
        if said[name] != value:
            raise wrong(f"its payment URI says {said[name]!r} for {name} and not {value!r}")


def _request_text(payment: Answer, url: str) -> str:
    rows = [
        ("recipient", payment.text("recipient")),
        ("amount", coins(payment.number("amount"))),
        ("reference", payment.text("reference")),
        ("confirmations", f"{payment.count('requiredConfirmations')} required"),
        ("since height", str(payment.number("sinceHeight"))),
        ("payment URI", payment.text("paymentUri")),
        ("wallet page", url + payment.text("walletPath")),
        ("status", url + payment.text("statusPath")),
    ]
    return table(rows)


@click.command(cls=options.WithNumbers)
@click.argument("reference", required=False, callback=options.judged(parse_reference))
@click.argument("recipient", required=False, callback=options.judged(options.address))
@click.argument("amount", required=False, callback=options.judged(parse_amount))
@_depth_option
@click.option(
    "--since-height",
    metavar="H",
    callback=options.judged(options.integer(0)),
    help="Payments in blocks below this height do not count.",
)
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
    """Show whether AMOUNT coins have been paid to RECIPIENT under REFERENCE, and how deep that payment lies.

    The exit status is 0 whatever the state; programs read `state` with --json. With --proof no node is asked, the
    exit status is 1 for what the proof does not prove, and the three may be left out to see what it is about.

    \b
    Example:
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5
      svc verify order-1042 svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --confirmations 30 --json
      svc verify --proof proof.json --tip 8b545f7362fd5e49a0c45fd8c51ccefcb631692bdb78c964fbd089cbecae10dd
    """
    terms = None
    if reference is not None and recipient is not None and amount is not None:
        terms = Terms(reference, recipient, amount, confirmations, since_height)
    if proof:
        if terms is None and reference is not None:
            raise click.UsageError("give REFERENCE, RECIPIENT and AMOUNT, or none of them")
        if terms is None and (since_height is not None or _is_given("confirmations")):
            raise click.UsageError("--confirmations and --since-height need REFERENCE, RECIPIENT and AMOUNT")
        verify_proof(session, Claim(proof, terms, tip))
        return
    if terms is None:
        raise click.UsageError("REFERENCE, RECIPIENT and AMOUNT are needed to ask a node")
    if tip is not None:
        raise click.UsageError("--tip is for a proof; give it together with --proof")
    payment = session.ask(status_path(terms), "payment")
    check_answer(payment, terms)
    session.show(payment.members, "\n".join(_payment_lines(payment)))


def _is_given(name: str) -> bool:
    """Whether the option was written, even with its default: what is left out unseen would be taken for checked."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _payment_lines(payment: Answer) -> Iterator[str]:
    depth, required = payment.count("confirmations"), payment.count("requiredConfirmations")
    tip = payment.object("tip")
    rows = [
        ("state", payment.text("state")),
        ("confirmations", f"{depth} of {required}"),
        ("recipient", payment.text("recipient")),
        ("amount", coins(payment.number("amount"))),
        ("reference", payment.text("reference")),
    ]
    if "txid" in payment:
        rows.append(("txid", payment.text("txid")))
    if "blockHash" in payment:
        rows.append(("block", f"{payment.number('blockHeight')}, {payment.text('blockHash')}"))
        rows.append(("block time", moment(payment.number("blockTime"))))
    rows.append(("matches", counted(payment.count("matchCount"), "transfer")))
    if "sinceHeight" in payment:
        rows.append(("since height", str(payment.number("sinceHeight"))))
    rows.append(("tip", f"{tip.number('height')}, {tip.text('hash')}"))
    yield table(rows)
    for mismatch in payment.objects("mismatches"):
        yield ""
        yield plain(f"  another amount: {coins(mismatch.number('amount'))}, no payment of this order")
        yield plain(f"    {mismatch.text('txid')}, {counted(mismatch.count('confirmations'), 'confirmation')}")
