"""`svc wallet send` and `svc wallet pay`: transfers signed with the key of the keyfile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.transaction import check_reference
from svcd.chain.units import parse_amount
from svcd.commerce.uri import PaymentRequest
from svcd.wallet import options
from svcd.wallet.failed import Failed
from svcd.wallet.keyfile import Keyfile, unseal
from svcd.wallet.links import parse_link
from svcd.wallet.outbox import Outbox
from svcd.wallet.passwords import PasswordSource
from svcd.wallet.payment import Payment, pay
from svcd.wallet.sending import Wish
from svcd.wallet.session import Session
from svcd.wallet.wallet_commands import load_keyfile

F = TypeVar("F", bound=Callable[..., Any])


def _signing_options(command: F) -> F:
    """What every command takes that signs a transfer."""
    decorators: list[Callable[[F], F]] = [
        click.option(
            "--fee",
            metavar="COINS",
            callback=options.judged(parse_amount),
            help="What to pay the block's producer.  [default: the network's minimum]",
        ),
        click.option(
            "--nonce",
            metavar="N",
            callback=options.judged(options.integer(0)),
            help="The transfer's number.  [default: the next one, from the node]",
        ),
        click.option("--yes", is_flag=True, help="Do not ask before signing."),
        options.keyfile_option,
        options.password_option,
        options.node_option,
        options.json_option,
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command(cls=options.WithNumbers)
@click.argument("recipient", callback=options.judged(options.address))
@click.argument("amount", callback=options.judged(parse_amount))
@click.option("--reference", metavar="TEXT", callback=options.judged(check_reference), help="The order's reference.")
@_signing_options
@click.pass_obj
def send(
    session: Session,
    recipient: str,
    amount: int,
    reference: str | None,
    fee: int | None,
    nonce: int | None,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Send AMOUNT coins to RECIPIENT.

    The transfer is shown and signed only after your yes. The key never leaves this computer: the node gets the signed
    transfer. If no node answers, repeat the command: the same signed transfer is sent again. A transfer with the same
    --nonce as one that waits takes its place if its fee is 10 % higher.

    \b
    Example:
      svc wallet send svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-17
    """
    wish = Wish(recipient=recipient, amount=amount, reference=reference, fee=fee, nonce=nonce)
    opened = load_keyfile(keyfile)
    _pay(session, _payment(session, opened, wish, (keyfile, password_file), asked=not yes))


@click.command("pay")
@click.argument("uri")
@_signing_options
@click.pass_obj
def pay_uri(
    session: Session,
    uri: str,
    fee: int | None,
    nonce: int | None,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Pay what a payment URI or the link to a checkout asks for.

    URI is what a shop shows, svc:…?amount=…&ref=…, or the address of its checkout or wallet page,
    https://…/pay/?reference=… or https://…/wallet/?pay=…; put it in single quotes, for & means something to the shell.
    The recipient, the amount and the reference are signed exactly as they stand there, and nobody but your node is
    asked. The label is whatever the author of the link wrote. You are warned if the order is paid already; with --yes
    it is then not paid.

    \b
    Example:
      svc wallet pay 'svc:svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc?amount=2.5&ref=order-1042'
    """
    opened = load_keyfile(keyfile)
    request = _request(uri, opened.params)
    terms = request.terms
    wish = Wish(recipient=terms.recipient, amount=terms.amount, reference=terms.reference, fee=fee, nonce=nonce)
    _pay(session, _payment(session, opened, wish, (keyfile, password_file), asked=not yes, request=request))


def _request(uri: str, params: NetworkParams) -> PaymentRequest:
    """What the URI asks a wallet of ``params`` for; raises RuleViolation, or Failed if it is for another network."""
    try:
        return parse_link(uri, params)
    except RuleViolation as violation:
        for other in NETWORKS.values():
            if other is not params and _is_for(uri, other):
                raise Failed(
                    f"the payment URI is for {other.name} and the wallet is of {params.name}; choose another wallet"
                    " with --keyfile"
                ) from None
        raise violation from None


def _is_for(uri: str, params: NetworkParams) -> bool:
    try:
        parse_link(uri, params)
    except RuleViolation:
        return False
    return True


def _payment(
    session: Session,
    keyfile: Keyfile,
    wish: Wish,
    files: tuple[Path, Path | None],
    *,
    asked: bool,
    request: PaymentRequest | None = None,
) -> Payment:
    """The payment out of ``keyfile``; ``files`` are where that lies and, perhaps, the password."""
    path, password_file = files
    source = PasswordSource(password_file, session.outside.environment)
    outbox = Outbox(path, keyfile.params)
    return Payment(keyfile, wish, lambda: unseal(keyfile, source.existing()), outbox, asked, request)


def _pay(session: Session, payment: Payment) -> None:
    sent = session.with_node(lambda reach: pay(reach, payment))
    session.show(sent.as_json(), sent.as_text())
