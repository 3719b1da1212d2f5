"""`svc wallet send` and `svc wallet pay`: check with the node, ask the user, sign, broadcast.

A signed transfer is stored in the pending file before it is sent, and stays there whatever the node answers: repeating
the command sends the same bytes again (svcd/cli/wallet/repeat.py).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import evolve, frozen

from svcd.chain.address import decode_address, encode_address
from svcd.chain.encoding import parse_wire_object
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Draft, Transfer, check_reference, sign_transfer
from svcd.chain.units import format_coins, parse_amount
from svcd.cli import options
from svcd.cli.errors import CommandError, ErrorResponse
from svcd.cli.http_client import NodeClient
from svcd.cli.payment_status import payment_status
from svcd.cli.prompts import PasswordSource, confirm
from svcd.cli.rendering import format_time, property_table
from svcd.cli.session import Session
from svcd.cli.wallet.payment_link import PaymentLink, parse_link
from svcd.cli.wallet.pending import NodeAnswer, PendingFile, PendingTransfer, Reconciliation, depths, reconcile
from svcd.cli.wallet.preflight import (
    AccountView,
    SendRequest,
    build_draft,
    check_present,
    fetch_account_view,
    recipient_balance,
    review,
    suggested_fee,
    warnings,
)
from svcd.cli.wallet.repeat import InBlock, Repetition, Resend, SignAgain, same_terms
from svcd.cli.wallet.unlocking import load_keyfile, unlock
from svcd.keyfile import Keyfile
from svcd.quantities import counted

F = TypeVar("F", bound=Callable[..., Any])

_INVALID: Final = 400
_BLOCKS_DELETED: Final = 410
_IN_A_BLOCK: Final = "in a block"


def signing_options(command: F) -> F:
    """The options of every command that signs a transfer."""
    decorators: list[Callable[[F], F]] = [
        click.option(
            "--fee",
            metavar="COINS",
            callback=options.validated(parse_amount),
            help="The fee for the block's producer.  [default: the node's suggestion, which is the"
            " network's minimum unless many transfers wait]",
        ),
        click.option(
            "--nonce",
            metavar="N",
            callback=options.validated(options.integer(0)),
            help="The nonce of the transfer.  [default: the account's next one, from the node]",
        ),
        click.option(
            "--again",
            is_flag=True,
            help="Pay a second time what this wallet has paid already: recipient, amount and reference are the same.",
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


@click.command(cls=options.NumericCommand)
@click.argument("recipient", callback=options.address)
@click.argument("amount", callback=options.validated(parse_amount))
@click.option(
    "--reference", metavar="TEXT", callback=options.validated(check_reference), help="The reference of the order."
)
@signing_options
@click.pass_obj
def send(
    session: Session,
    recipient: str,
    amount: int,
    reference: str | None,
    fee: int | None,
    nonce: int | None,
    again: bool,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Send AMOUNT coins to RECIPIENT.

    The transfer is shown, and signed only after you confirm it. The key never leaves this computer: the node receives
    the signed transfer. Repeating the command pays nothing twice: the same signed transfer is sent again, or, with a
    --fee that is at least 10 % higher, replaced by one with the same nonce. --again makes a second payment. Sender and
    recipient must each have 0.01 coins after the transfer: the most that you can send is the balance, less the fee and
    0.01 coins.

    \b
    Example:
      svc wallet send svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-17
    """
    request = SendRequest(recipient=recipient, amount=amount, reference=reference, fee=fee, nonce=nonce, again=again)
    _send(session, load_keyfile(session, keyfile), request, (keyfile, password_file), assume_yes=yes)


@click.command("pay")
@click.argument("uri")
@signing_options
@click.pass_obj
def pay_uri(
    session: Session,
    uri: str,
    fee: int | None,
    nonce: int | None,
    again: bool,
    yes: bool,
    keyfile: Path,
    password_file: Path | None,
) -> None:
    """Pay a payment URI or the link to a checkout.

    URI is svc:…?amount=…&ref=…, or the URL of a checkout or wallet page, https://…/pay/?reference=… or
    https://…/wallet/#pay=…. Put it in single quotes, because & is special in the shell. Recipient, amount and reference
    are signed exactly as they are in the URI, and only your node is contacted. The label is text by the author of the
    link. If the order is already paid, the command warns you; with --yes it then refuses to pay. An order whose link
    has expired is not paid.

    \b
    Example:
      svc wallet pay 'svc:svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc?amount=2.5&ref=order-1042'
    """
    opened = load_keyfile(session, keyfile)
    link = _parse_order(uri, opened.params, session.networks)
    terms = link.order.terms
    request = SendRequest(
        recipient=terms.recipient,
        amount=terms.amount,
        reference=terms.reference,
        fee=fee,
        nonce=nonce,
        again=again,
    )
    _send(session, opened, request, (keyfile, password_file), assume_yes=yes, link=link)


def _parse_order(uri: str, params: NetworkParams, networks: Iterable[NetworkParams]) -> PaymentLink:
    """The order in ``uri``; raises RuleViolation, or CommandError if it is for another network than ``params``."""
    try:
        return parse_link(uri, params)
    except RuleViolation as violation:
        for other in networks:
            if other is not params and _is_for(uri, other):
                raise CommandError(
                    f"the payment URI is for {other.name} and the wallet is for {params.name}; choose another wallet"
                    " with --keyfile"
                ) from None
        raise violation from None


def _is_for(uri: str, params: NetworkParams) -> bool:
    try:
        parse_link(uri, params)
    except RuleViolation:
        return False
    return True


def _send(
    session: Session,
    keyfile: Keyfile,
    request: SendRequest,
    files: tuple[Path, Path | None],
    *,
    assume_yes: bool,
    link: PaymentLink | None = None,
) -> None:
    """Send a transfer and print the result; ``files`` are the keyfile and, if given, the password file."""
    payment = OutgoingPayment.of(session, keyfile, request, files, assume_yes=assume_yes)
    payment = evolve(payment, link=link)
    result = send_payment(session.node(), payment)
    session.print_result(result.as_json(), result.as_text())


@frozen
class OutgoingPayment:
    """The transfer that the user asks for, and the keyfile that it is paid from."""

    keyfile: Keyfile
    request: SendRequest
    unseal: Callable[[], bytes]
    """Asks for the password and returns the seed; raises CommandError or click.Abort."""
    pending: PendingFile
    assume_yes: bool = False
    """Whether to sign without asking."""
    link: PaymentLink | None = None
    """The link that is paid, if there is one."""
    objections: Callable[[NodeClient, AccountView, int], list[str]] | None = None
    """Asks the node for reasons against a new transfer with a nonce, one sentence each: warnings, errors with --yes."""

    @classmethod
    def of(
        cls,
        session: Session,
        keyfile: Keyfile,
        request: SendRequest,
        files: tuple[Path, Path | None],
        *,
        assume_yes: bool,
    ) -> "OutgoingPayment":
        """The payment for the options of a command; ``files`` are the keyfile and, if given, the password file."""
        path, password_file = files
        source = PasswordSource(password_file, session.runtime.environ)
        pending = PendingFile(path, keyfile.params)
        return cls(
            keyfile, request, lambda: unlock(session.runtime, path, keyfile, source.existing()), pending, assume_yes
        )


@frozen
class SendResult:
    """A transfer that the node has accepted."""

    draft: Draft
    sender: str
    txid: str
    state: str
    """``accepted``; ``known`` if the node already had it; ``in a block`` if an earlier attempt is confirmed."""

    def as_json(self) -> dict[str, object]:
        """For programs; money in base units."""
        reference = {} if self.draft.reference is None else {"reference": self.draft.reference}
        return {
            "txid": self.txid,
            "state": self.state,
            "sender": self.sender,
            "recipient": self.draft.recipient,
            "amount": str(self.draft.amount),
            "fee": str(self.draft.fee),
            "nonce": str(self.draft.nonce),
            **reference,
        }

    def as_text(self) -> str:
        """For people."""
        when = "see" if self.state == _IN_A_BLOCK else "once it is in a block, see"
        state = f"{self.state}; {when}: svc tx {self.txid}"
        return property_table([("txid", self.txid), ("state", state)])


def send_payment(node: NodeClient, payment: OutgoingPayment) -> SendResult:
    """Build, sign and broadcast the transfer; raises CommandError, RuleViolation or click.Abort.

    The keyfile is locked meanwhile: two processes would otherwise sign two transfers with one nonce.
    """
    with payment.pending.lock():
        return _send_locked(node, payment)


def _send_locked(node: NodeClient, payment: OutgoingPayment) -> SendResult:
    sender, request = payment.keyfile.address, payment.request
    view = fetch_account_view(node, payment.keyfile)
    now = node.clock.milliseconds()
    check_present(now, view)
    earlier = reconcile(payment.pending, decode_address(sender, view.params.address_prefix), view, now)
    same = [each.transfer for each in same_terms(request, earlier.stored, view.params)]
    repetition = Repetition(request=request, stored=earlier.stored, view=view, depths=depths(node, same), now=now)
    step = repetition.step(judged=payment.objections is not None)
    if isinstance(step, InBlock):
        return _tell_in_block(payment, step, view, now)
    if isinstance(step, Resend):
        transfer = _confirm_resend(payment, step.stored, view)
    else:
        replaced = step.replaced if isinstance(step, SignAgain) else None
        transfer = _sign_new(node, payment, view, earlier, same if replaced else [])
    state = _broadcast(node, payment, transfer)
    return SendResult(_draft_of(transfer, view), sender, transfer.txid.hex(), state)


def _tell_in_block(payment: OutgoingPayment, step: InBlock, view: AccountView, now: int) -> SendResult:
    """The result of a command that repeats a payment which is in a block."""
    transfer = step.transfer
    depth = counted(step.confirmations, "confirmation")
    click.echo(
        f"This payment was signed at {format_time(transfer.timestamp)} and is in a block, with {depth}: nothing is"
        " signed or sent. Add --again to pay it a second time.",
        err=True,
    )
    _store_answer(payment, transfer, NodeAnswer.ACCEPTED, now)
    return SendResult(_draft_of(transfer, view), payment.keyfile.address, transfer.txid.hex(), _IN_A_BLOCK)


_ANSWERS: Final = {
    NodeAnswer.ACCEPTED: "and a node has accepted it",
    NodeAnswer.NONE: "and no node responded",
    NodeAnswer.REFUSED: "and the node refused it, but may have relayed it anyway",
}


def _confirm_resend(payment: OutgoingPayment, stored: PendingTransfer, view: AccountView) -> Transfer:
    """The transfer of an earlier attempt, once the user has confirmed that it is sent again."""
    transfer = stored.transfer
    view = evolve(view, replaced=transfer)
    _show(payment, _draft_of(transfer, view), view, resent=True)
    click.echo(
        f"This transfer was signed at {format_time(transfer.timestamp)}, {_ANSWERS[stored.answer]}. It is sent again"
        " unchanged, so it can be paid only once.",
        err=True,
    )
    _confirm(payment, "Send this transfer again?")
    return transfer


def _sign_new(
    node: NodeClient, payment: OutgoingPayment, view: AccountView, earlier: Reconciliation, same: list[Transfer]
) -> Transfer:
    """A newly signed transfer, once the user has confirmed.

    ``same`` are earlier transfers of this payment: the new one has their nonce, so that one of them is paid at most.
    """
    request = payment.request
    if same:
        request = evolve(request, nonce=same[-1].nonce)
    earlier.check_nonce_is_free(request, view.params)
    if request.nonce is None:
        for sentence in _objections_to_unsettled(node, request, view, earlier):
            _object(payment, sentence)
        request = evolve(request, nonce=earlier.next_nonce(view))
    _check_not_expired(payment, node)
    if request.fee is None:
        request = evolve(request, fee=suggested_fee(node, view.params))
    received = recipient_balance(node, request, view.params)
    view = evolve(view, replaced=earlier.acknowledged(request.nonce))
    draft = build_draft(request, view, node.clock.milliseconds(), received=received)
    _show(payment, draft, view)
    _warn_of_earlier(draft, earlier, same)
    if payment.request.fee is None and draft.fee > view.params.minimum_fee:
        minimum = format_coins(view.params.minimum_fee, view.params.unit)
        click.echo(f"Warning: the node suggests this fee, which is above the minimum of {minimum}.", err=True)
    _warn_if_paid(node, payment, view, same)
    for sentence in [] if payment.objections is None else payment.objections(node, view, draft.nonce):
        _object(payment, sentence)
    _confirm(payment, "Sign and send this transfer?")
    seed = payment.unseal()
    _check_not_expired(payment, node)
    # The user may have taken an hour to answer: the timestamp is that of the signature.
    draft = evolve(draft, timestamp=node.clock.milliseconds())
    return sign_transfer(draft, seed=seed, params=view.params)


def _object(payment: OutgoingPayment, sentence: str) -> None:
    """Warn of a reason against the payment; raise CommandError if nobody is asked."""
    if payment.assume_yes:
        raise CommandError(f"{sentence}; omit --yes to decide yourself")
    click.echo(f"Warning: {sentence}.", err=True)


def _objections_to_unsettled(
    node: NodeClient, request: SendRequest, view: AccountView, earlier: Reconciliation
) -> list[str]:
    """Why other payments may be paid besides this one although no node has accepted them, one sentence each."""
    asked_for = {each.transfer.txid for each in same_terms(request, earlier.stored, view.params)}
    used = [each for each in earlier.unsettled if each.nonce < view.nonce and each.txid not in asked_for]
    in_block = depths(node, used)
    found = []
    for each in used:
        if each.txid not in in_block:
            found.append(
                f"the node says that another transfer has used the nonce {each.nonce} of {each.txid.hex()}, which no"
                " node has accepted: if that is not so, that transfer is paid besides this one"
            )
        elif each.txid in earlier.refused_txids:
            found.append(f"the transfer {each.txid.hex()} is in a block, although the node refused it: it is paid")
    return found


def _warn_of_earlier(draft: Draft, earlier: Reconciliation, same: list[Transfer]) -> None:
    """Name the transfers of which only one can be paid, because ``draft`` has their nonce."""
    if same:
        click.echo(
            f"This payment was signed at {format_time(same[-1].timestamp)} as {same[-1].txid.hex()}. The new transfer"
            " has the same nonce, so only one of the two can be paid.",
            err=True,
        )
        return
    refused = earlier.refused(draft.nonce)
    if refused is not None:
        click.echo(
            f"Warning: the node refused the transfer {refused.txid.hex()} with this nonce. If it has relayed it"
            " anyway, only one of the two can be paid.",
            err=True,
        )


def _show(payment: OutgoingPayment, draft: Draft, view: AccountView, *, resent: bool = False) -> None:
    rows = list(review(draft, view, payment.keyfile.address))
    link = payment.link
    if link is not None and link.order.label is not None:
        rows.insert(5, ("label", f"{link.order.label} (unverified, from the link)"))
    if link is not None and link.until is not None:
        rows.insert(5, ("pay before", format_time(link.until)))
    click.echo(property_table(rows), err=True)
    for sentence in warnings(draft, view, payment.keyfile.address, resent=resent):
        click.echo(f"Warning: {sentence}.", err=True)


def _confirm(payment: OutgoingPayment, question: str) -> None:
    if not payment.assume_yes and not confirm(question):
        raise CommandError("cancelled: nothing was signed and nothing was sent")


def _check_not_expired(payment: OutgoingPayment, node: NodeClient) -> None:
    """Raise CommandError if the link has expired by this computer's clock, as the checkout stops offering to pay."""
    until = None if payment.link is None else payment.link.until
    if until is not None and node.clock.milliseconds() >= until:
        raise CommandError(
            f"this order expired at {format_time(until)}, so nothing was signed; ask the shop for a new link"
        )


def _warn_if_paid(node: NodeClient, payment: OutgoingPayment, view: AccountView, same: list[Transfer]) -> None:
    """Warn that the order is already paid; with --yes, raise CommandError if it is, or if that cannot be known.

    The transfers ``same`` do not count: the new one replaces them.
    """
    if payment.link is None:
        return
    if view.catching_up and payment.assume_yes:
        raise CommandError(
            "the node is still catching up and may not know that this order is paid; wait, or omit --yes"
        )
    try:
        status = payment_status(node, payment.link.order.terms)
    except ErrorResponse as error:
        if error.status != _BLOCKS_DELETED:
            raise
        unknown = f"this order may be paid in a block that the node does not have any more ({error})"
        if payment.assume_yes and not payment.request.again:
            raise CommandError(f"{unknown}; ask a node that has all blocks, or omit --yes") from None
        click.echo(f"Warning: {unknown}.", err=True)
        return
    state = status.text("state")
    if state == "unpaid" or (txid := status.hash("txid")) in {transfer.txid.hex() for transfer in same}:
        return
    paid = f"this order is already paid ({state}, {txid})"
    if payment.assume_yes and not payment.request.again:
        raise CommandError(f"{paid}; omit --yes to pay it again")
    click.echo(f"Warning: {paid}.", err=True)


def _broadcast(node: NodeClient, payment: OutgoingPayment, transfer: Transfer) -> str:
    """Send the transfer and return its state, ``accepted`` or ``known``; raises CommandError.

    It stays in the file whatever happens: even a node that refuses it may have sent it on.
    """
    pending = payment.pending
    before = {each.transfer.txid: each.answer for each in pending.load()}.get(transfer.txid)
    pending.save(transfer, NodeAnswer.NONE, now=node.clock.milliseconds())
    try:
        response = node.post("/rpc/broadcast", {"transaction": parse_wire_object(transfer.wire)})
        response.check(txid=transfer.txid.hex())
        state = response.text("state")
    except CommandError as error:
        repeat = "repeat the command without --again" if payment.request.again else "repeat the command"
        refused = isinstance(error, ErrorResponse) and error.status == _INVALID
        if refused and before in (None, NodeAnswer.REFUSED):
            _store_answer(payment, transfer, NodeAnswer.REFUSED, node.clock.milliseconds())
            raise CommandError(
                f"{error}. The transfer {transfer.txid.hex()} is kept, because the node may have relayed it"
                f" anyway: {repeat} to send it again; another payment gets its nonce, so only one of them can be paid"
            ) from None
        raise CommandError(
            f"{error}. The transfer {transfer.txid.hex()} may still have been sent: {repeat} to send the"
            " same signed transfer again, which can be paid only once"
        ) from None
    _store_answer(payment, transfer, NodeAnswer.ACCEPTED, node.clock.milliseconds())
    return state


def _store_answer(payment: OutgoingPayment, transfer: Transfer, answer: NodeAnswer, now: int) -> None:
    """Store the answer to a transfer that is stored already; a full disk changes nothing about what was sent."""
    try:
        payment.pending.save(transfer, answer, now=now)
    except CommandError as error:
        click.echo(
            f"Warning: {error}. The transfer {transfer.txid.hex()} is stored there already, only what the node answered"
            " is not: make room, and repeat the command before you make another payment.",
            err=True,
        )


def _draft_of(transfer: Transfer, view: AccountView) -> Draft:
    return Draft(
        recipient=encode_address(transfer.recipient, view.params.address_prefix),
        amount=transfer.amount,
        fee=transfer.fee,
        nonce=transfer.nonce,
        timestamp=transfer.timestamp,
        reference=transfer.reference,
    )
