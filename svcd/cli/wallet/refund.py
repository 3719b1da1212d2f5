"""`svc wallet refund`: send a payment back to its sender (docs/command-line.md "A wallet")."""

from functools import partial
from pathlib import Path
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.units import format_amount, format_coins, parse_amount
from svcd.cli import options
from svcd.cli.answers import ResponseObject
from svcd.cli.chain_commands import transaction, transfer_of
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import format_time, property_table
from svcd.cli.session import Session
from svcd.cli.wallet.pending import PendingFile
from svcd.cli.wallet.preflight import AccountView, SendRequest, fetch_account_view
from svcd.cli.wallet.send import OutgoingPayment, send_payment, signing_options
from svcd.cli.wallet.unlocking import load_keyfile
from svcd.commerce.payment_request import refund_reference
from svcd.keyfile import Keyfile

_WALKS: Final = 5
"""How often the pages of a list are read until no block comes in between."""


@frozen
class ReceivedPayment:
    """A payment to the wallet, as its sender signed it, and its place on the chain."""

    transfer: Transfer
    sender: str
    recipient: str
    confirmations: int
    block_time: int
    """Unix milliseconds."""

    @property
    def refund_reference(self) -> str:
        """The reference under which the payment is refunded."""
        return refund_reference(self.transfer.reference, self.transfer.txid)


def _parse_already(value: str) -> int:
    return 0 if value == "0" else parse_amount(value)


@click.command(cls=options.NumericCommand)
@click.argument("txid", callback=options.validated(options.txid))
@click.option(
    "--amount",
    metavar="COINS",
    callback=options.validated(parse_amount),
    help="Refund a part of the payment.  [default: all of it]",
)
@click.option(
    "--already",
    metavar="COINS",
    callback=options.validated(_parse_already),
    help="What was refunded before, as the row 'refunded so far' shows it: with --yes required for a further refund.",
)
@options.confirmations_option(
    "Confirmations that the payment needs before it is refunded: those that the order asked for."
)
@signing_options
@click.pass_obj
def refund(
    session: Session,
    txid: str,
    amount: int | None,
    already: int | None,
    confirmations: int,
    fee: int | None,
    nonce: int | None,
    again: bool,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Send the payment TXID back to its sender.

    The payment and the refund are shown, and the refund is signed only after you confirm it. Its reference is
    `refund:` followed by the reference of the payment. The command warns you if anything has been refunded to the
    sender under that reference already, or if the payment has too few confirmations; with --yes it then refuses, unless
    --already states what was refunded. The fee is paid by this wallet. Ask the buyer first if the coins may have come
    from an exchange, which will not credit them.

    \b
    Example:
      svc wallet refund 1a0f5a3b1b6f4c850f9e3fbb4b8f7b1a0f5a3b1b6f4c850f9e3fbb4b8f7b1a0f --amount 0.5
    """
    opened = load_keyfile(session, keyfile)
    node = session.node()
    fetch_account_view(node, opened)  # Checks network and clock first.
    payment = _received(node, opened, txid)
    files = keyfile, password_file
    request = evolve(_refund_of(payment, amount, session.unit), fee=fee, nonce=nonce, again=again)
    outgoing = OutgoingPayment.of(session, opened, request, files, assume_yes=yes)
    refunded = _refunded(node, payment, outgoing.pending)
    click.echo(f"{property_table(_rows(payment, refunded, session.unit))}\n\nThe refund:", err=True)

    def objections(node: NodeClient, view: AccountView, nonce: int) -> list[str]:
        # Asked anew, because the keyfile is locked only now.
        refunded = _refunded(node, payment, outgoing.pending, besides=nonce)
        paid = _paid(node, payment)
        return [
            *_objections_to_refund(view, payment, confirmations),
            *objections_to_refunded(refunded, paid, request.amount, session.unit, already=already, assume_yes=yes),
        ]

    result = send_payment(node, evolve(outgoing, objections=objections))
    session.print_result(result.as_json(), result.as_text())


def _received(node: NodeClient, keyfile: Keyfile, txid: str) -> ReceivedPayment:
    """The payment to the wallet with ``txid``; raises CommandError.

    The txid proves who signed the payment: a node cannot name another sender.
    """
    payment = _parse(transaction(node, txid), txid, keyfile.params)
    if payment.recipient != keyfile.address:
        raise CommandError(f"{txid} is a payment to {payment.recipient}, not to this wallet, {keyfile.address}")
    if payment.sender == keyfile.address:
        raise CommandError(f"{txid} is a transfer from this wallet to itself; there is nothing to refund")
    return payment


def _parse(record: ResponseObject, txid: str, params: NetworkParams) -> ReceivedPayment:
    transfer = transfer_of(record, txid, params)
    return ReceivedPayment(
        transfer,
        encode_address(transfer.sender, params.address_prefix),
        encode_address(transfer.recipient, params.address_prefix),
        record.count("confirmations"),
        record.number("blockTime"),
    )


def _refund_of(payment: ReceivedPayment, amount: int | None, unit: str) -> SendRequest:
    """The transfer that refunds ``amount``, or all of the payment; raises CommandError."""
    paid = payment.transfer.amount
    if amount is not None and amount > paid:
        raise CommandError(
            f"a refund cannot exceed the payment of {format_coins(paid, unit)}; give --amount {format_amount(paid)} or"
            " less"
        )
    return SendRequest(
        recipient=payment.sender, amount=paid if amount is None else amount, reference=payment.refund_reference
    )


def _rows(payment: ReceivedPayment, refunded: int, unit: str) -> list[tuple[str, str]]:
    return [
        ("payment", payment.transfer.txid.hex()),
        ("from", payment.sender),
        ("amount", format_coins(payment.transfer.amount, unit)),
        ("reference", payment.transfer.reference or "none"),
        ("time", format_time(payment.block_time)),
        ("confirmations", str(payment.confirmations)),
        ("refunded so far", format_coins(refunded, unit)),
    ]


def _objections_to_refund(view: AccountView, payment: ReceivedPayment, confirmations: int) -> list[str]:
    """Reasons not to refund ``payment`` at present, one sentence each."""
    found = []
    if view.catching_up:
        found.append("the node is still catching up and may not know that this payment has been refunded")
    if payment.confirmations < confirmations:
        found.append(
            f"the payment has {payment.confirmations} of {confirmations} confirmations: a reorganisation could"
            " undo it, and not the refund"
        )
    return found


def objections_to_refunded(
    refunded: int, paid: int, amount: int, unit: str, *, already: int | None, assume_yes: bool
) -> list[str]:
    """Reasons against a further refund of ``amount`` after earlier ones of ``refunded``, one sentence each.

    ``paid`` is what the sender has paid under the reference, ``already`` what the user knows to have been refunded.
    The sums alone cannot tell a repeated command from an intended further refund: only the user knows that.
    """
    coins = partial(format_coins, unit=unit)
    found = []
    if already is not None and already != refunded:
        found.append(f"--already says {coins(already)}, and {coins(refunded)} have been refunded so far")
    elif refunded and (already is None or refunded + amount > paid):
        hint = f": a further refund needs --already {format_amount(refunded)}" if assume_yes and already is None else ""
        found.append(
            f"{coins(refunded)} of the {coins(paid)} that this sender has paid under the reference have"
            f" been refunded already{hint}"
        )
    return found


def _paid(node: NodeClient, payment: ReceivedPayment) -> int:
    """The sum that the sender has paid under the payment's reference, in blocks."""
    reference = payment.transfer.reference
    if reference is None:
        return payment.transfer.amount
    listed = sent_under_reference(node, payment.recipient, reference, payment.sender)
    return sum(each.number("amount") for each in listed.values() if each.flag("canonical"))


def _refunded(node: NodeClient, payment: ReceivedPayment, file: PendingFile, besides: int | None = None) -> int:
    """The sum that this wallet has refunded under the payment's refund reference, in blocks or waiting for one.

    A refund in ``file`` counts as well, with its own amount, whatever the node says of it, unless its nonce is
    ``besides``, that of the refund to come: of several with one nonce a block includes one.
    """
    reference = payment.refund_reference
    listed = sent_under_reference(node, payment.sender, reference, payment.recipient)
    signed = [each.transfer for each in file.load() if each.transfer.sender == payment.transfer.recipient]
    own = {transfer.txid.hex(): transfer for transfer in signed}
    known = {own[txid].nonce for txid in listed if txid in own}
    unknown: dict[int, int] = {}
    for transfer in signed:
        is_refund = (transfer.recipient, transfer.reference) == (payment.transfer.sender, reference)
        if is_refund and transfer.nonce not in known | {besides}:
            unknown[transfer.nonce] = max(transfer.amount, unknown.get(transfer.nonce, 0))
    amounts = (own[txid].amount if txid in own else each.number("amount") for txid, each in listed.items())
    return sum(amounts) + sum(unknown.values())


def sent_under_reference(node: NodeClient, recipient: str, reference: str, sender: str) -> dict[str, ResponseObject]:
    """The transfers from ``sender`` to ``recipient`` under ``reference``, by txid, at one tip; raises CommandError."""
    for _ in range(_WALKS):
        tips, listed = _walk(node, recipient, reference, sender)
        if len(tips) == 1:
            return listed
    raise CommandError("the node's chain changed again and again while its payments were read; repeat the command")


def _walk(node: NodeClient, recipient: str, reference: str, sender: str) -> tuple[set[str], dict[str, ResponseObject]]:
    """The hashes of the tips at which the pages were read, and the transfers on all of them, by txid."""
    tips: set[str] = set()
    listed: dict[str, ResponseObject] = {}
    for page in node.pages(f"/rpc/commerce/payments?recipient={recipient}&reference={reference}&limit=100"):
        tips.add(page.object("tip").hash("hash"))
        for each in page.objects("payments"):
            each.check(reference=reference)
            if each.text("sender") == sender:
                listed[each.hash("txid")] = each
    return tips, listed
