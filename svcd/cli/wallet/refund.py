"""`svc wallet refund`: send a payment back to its sender (docs/command-line.md "A wallet")."""

from pathlib import Path
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.units import parse_amount
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient, ResponseObject, invalid_response
from svcd.cli.rendering import format_coins, format_time, property_table
from svcd.cli.session import Session
from svcd.cli.wallet.keyfile import Keyfile
from svcd.cli.wallet.keys import load_keyfile
from svcd.cli.wallet.preflight import AccountView, SendRequest, fetch_account_view
from svcd.cli.wallet.send import OutgoingPayment, SendResult, send_payment, signing_options
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS, refund_reference

_SIGNED: Final = "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()


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


@click.command(cls=options.NumericCommand)
@click.argument("txid", callback=options.validated(options.txid))
@click.option(
    "--amount",
    metavar="COINS",
    callback=options.validated(parse_amount),
    help="Refund a part of the payment.  [default: all of it]",
)
@signing_options
@click.pass_obj
def refund(
    session: Session,
    txid: str,
    amount: int | None,
    fee: int | None,
    nonce: int | None,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Send the payment TXID back to its sender.

    The payment and the refund are shown, and the refund is signed only after you confirm it. Its reference is refund:
    and the reference of the payment. The command warns you if the payment has been refunded already or has few
    confirmations; with --yes it then refuses. The fee is paid by this wallet. Ask the buyer first if the coins may have
    come from an exchange, which will not credit them.

    \b
    Example:
      svc wallet refund 1a0f5a3b1b6f4c850f9e3fbb4b8f7b1a0f5a3b1b6f4c850f9e3fbb4b8f7b1a0f --amount 0.5
    """
    opened = load_keyfile(keyfile)

    async def work(node: NodeClient) -> SendResult:
        await fetch_account_view(node, opened)
        payment = await _received(node, opened, txid)
        request = _refund_of(payment, amount)
        click.echo(f"{property_table(_rows(payment))}\n\nThe refund:", err=True)

        async def objections(node: NodeClient, view: AccountView) -> list[str]:
            return await _objections(node, view, payment, request.amount)

        files = keyfile, password_file
        outgoing = OutgoingPayment.of(session, opened, evolve(request, fee=fee, nonce=nonce), files, assume_yes=yes)
        return await send_payment(node, evolve(outgoing, objections=objections))

    result = session.with_node(work)
    session.print_result(result.as_json(), result.as_text())


async def _received(node: NodeClient, keyfile: Keyfile, txid: str) -> ReceivedPayment:
    """The payment to the wallet with ``txid``; raises CommandError.

    The txid proves who signed the payment: a node cannot name another sender.
    """
    record = (await node.get(f"/rpc/transaction/{txid}")).object("transaction")
    payment = _parse(record, keyfile.params)
    if payment.transfer.txid.hex() != txid:
        raise invalid_response(f"it returns the transfer {payment.transfer.txid.hex()} for {txid}")
    if payment.recipient != keyfile.address:
        raise CommandError(f"{txid} is a payment to {payment.recipient}, not to this wallet, {keyfile.address}")
    if payment.sender == keyfile.address:
        raise CommandError(f"{txid} is a transfer from this wallet to itself; there is nothing to refund")
    return payment


def _parse(record: ResponseObject, params: NetworkParams) -> ReceivedPayment:
    transfer = parse_transfer({name: record.value(name) for name in _SIGNED}, params)
    return ReceivedPayment(
        transfer,
        encode_address(transfer.sender, params.address_prefix),
        encode_address(transfer.recipient, params.address_prefix),
        record.count("confirmations"),
        record.number("blockTime"),
    )


def _refund_of(payment: ReceivedPayment, amount: int | None) -> SendRequest:
    """The transfer that refunds ``amount``, or all of the payment; raises CommandError."""
    paid = payment.transfer.amount
    if amount is not None and amount > paid:
        raise CommandError(
            f"the payment was {format_coins(paid)}, and a refund of it cannot be {format_coins(amount)}; give --amount"
            " up to that"
        )
    return SendRequest(
        recipient=payment.sender, amount=paid if amount is None else amount, reference=payment.refund_reference
    )


def _rows(payment: ReceivedPayment) -> list[tuple[str, str]]:
    return [
        ("payment", payment.transfer.txid.hex()),
        ("from", payment.sender),
        ("amount", format_coins(payment.transfer.amount)),
        ("reference", payment.transfer.reference or "none"),
        ("time", format_time(payment.block_time)),
        ("confirmations", str(payment.confirmations)),
    ]


async def _objections(node: NodeClient, view: AccountView, payment: ReceivedPayment, amount: int) -> list[str]:
    """What speaks against refunding ``amount`` now, a sentence each; raises CommandError."""
    found = []
    if view.catching_up:
        found.append("the node is still catching up and may not know that this payment has been refunded")
    if payment.confirmations < DEFAULT_CONFIRMATIONS:
        found.append(
            f"the payment has {payment.confirmations} of {DEFAULT_CONFIRMATIONS} confirmations: a reorganisation could"
            " undo it, and not the refund"
        )
    reference = payment.transfer.reference
    paid = payment.transfer.amount
    if reference is not None:
        paid = await _total(node, payment.recipient, reference, payment.sender, canonical=True)
    refunded = await _total(node, payment.sender, payment.refund_reference, payment.recipient)
    if refunded and refunded + amount > paid:
        found.append(
            f"{format_coins(refunded)} of the {format_coins(paid)} that this sender has paid under the reference have"
            " been refunded already"
        )
    return found


async def _total(node: NodeClient, recipient: str, reference: str, sender: str, *, canonical: bool = False) -> int:
    """How many base units ``sender`` has sent to ``recipient`` under ``reference``, if ``canonical`` only in blocks."""
    total, after = 0, ""
    while True:
        page = await node.get(f"/rpc/commerce/payments?recipient={recipient}&reference={reference}&limit=100{after}")
        total += sum(
            each.number("amount")
            for each in page.objects("payments")
            if each.text("sender") == sender and (each.value("canonical") is True or not canonical)
        )
        if "next" not in page:
            return total
        after = f"&after={page.text('next')}"
