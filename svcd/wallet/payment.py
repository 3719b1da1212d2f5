"""One payment from the command line: look, ask, sign, broadcast; nothing is signed before the question is answered.

What is signed is kept in the outbox from before it is sent until a node has answered: whoever repeats the command after
a lost answer sends the same bytes again.
"""

from collections.abc import Callable
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.address import decode_address, encode_address
from svcd.chain.encoding import parse_wire_object
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.commerce.terms import status_path
from svcd.commerce.uri import PaymentRequest
from svcd.ports import milliseconds
from svcd.wallet import show
from svcd.wallet.client import Node
from svcd.wallet.earlier import Earlier, settle
from svcd.wallet.failed import Failed, Refused, Unanswered
from svcd.wallet.keyfile import Keyfile
from svcd.wallet.outbox import Outbox
from svcd.wallet.sending import View, Wish, check_clock, check_wallet, draft_of, network_of, review, view_of, warnings
from svcd.wallet.session import Reach
from svcd.wallet.terminal import confirm
from svcd.wallet.verification import check_answer

_SERVER_ERROR: Final = 500


@frozen
class Payment:
    """What the user asks to be paid, and from where."""

    keyfile: Keyfile
    wish: Wish
    unseal: Callable[[], bytes]
    """Gives the seed, asking for the password; raises Failed or click.Abort."""
    outbox: Outbox
    asked: bool = True
    """Whether to ask before signing."""
    request: PaymentRequest | None = None
    """The payment URI that asks for it, if one does."""


@frozen
class Sent:
    """A transfer that the node has taken."""

    draft: Draft
    sender: str
    txid: str
    state: str
    """``accepted``, ``known`` if the node had it already, or ``in a block`` if an earlier attempt was paid."""

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
        rows = [("txid", self.txid), ("state", f"{self.state}; see it in a block with: svc tx {self.txid}")]
        return show.table(rows)


async def pay(reach: Reach, payment: Payment) -> Sent:
    """Make, sign and broadcast the transfer; raises Failed, RuleViolation or click.Abort.

    From the first look at the node on nobody else pays from this keyfile, or both would take the same nonce.
    """
    with payment.outbox.alone():
        return await _pay(reach, payment)


async def _pay(reach: Reach, payment: Payment) -> Sent:
    sender = payment.keyfile.address
    view = await look(reach, payment.keyfile)
    key = decode_address(sender, view.params.address_prefix)
    earlier = await settle(reach.node, payment.outbox, key, view)
    before = earlier.attempt_at(payment.wish, view.params)
    for transfer in earlier.paid.values():
        amount, recipient = show.coins(transfer.amount), _draft_again(transfer, view).recipient
        click.echo(f"The earlier transfer {transfer.txid.hex()} of {amount} to {recipient} is in a block.", err=True)
    if before is not None and before.txid in earlier.paid:
        click.echo("It is this payment, which had got no answer: nothing is signed or sent.", err=True)
        return Sent(_draft_again(before, view), sender, before.txid.hex(), "in a block")
    if before is not None:
        transfer = await _again(payment, before, view)
    else:
        transfer = await _anew(reach, payment, view, earlier)
    state = await _broadcast(reach.node, transfer, payment.outbox)
    return Sent(_draft_again(transfer, view), sender, transfer.txid.hex(), state)


async def _again(payment: Payment, transfer: Transfer, view: View) -> Transfer:
    """The transfer of an attempt that got no answer, once the user has agreed."""
    _show(payment, _draft_again(transfer, view), view)
    click.echo(
        f"This very transfer was signed at {show.moment(transfer.timestamp)}, and no node answered. It is sent again as"
        " it is: it can be paid once only.",
        err=True,
    )
    _ask(payment, "Send this transfer again?")
    return transfer


async def _anew(reach: Reach, payment: Payment, view: View, earlier: Earlier) -> Transfer:
    """A newly signed transfer, once the user has agreed."""
    earlier.check_open(payment.wish, view.params)
    draft = draft_of(payment.wish, view, milliseconds(reach.clock))
    _show(payment, draft, view)
    await _warn_if_paid(reach.node, payment, view)
    _ask(payment, "Sign and send this transfer?")
    seed = payment.unseal()
    # The person may have thought for an hour: the transfer carries the time of its signature.
    draft = evolve(draft, timestamp=milliseconds(reach.clock))
    return sign_transfer(draft, seed=seed, params=view.params)


def _show(payment: Payment, draft: Draft, view: View) -> None:
    rows = list(review(draft, view, payment.keyfile.address))
    if payment.request is not None and payment.request.label is not None:
        rows.insert(5, ("label", f"{payment.request.label} (unverified, from the link)"))
    click.echo(show.table(rows), err=True)
    for sentence in warnings(draft, view, payment.keyfile.address):
        click.echo(f"Warning: {sentence}.", err=True)


def _ask(payment: Payment, question: str) -> None:
    if payment.asked and not confirm(question):
        raise Failed("nothing was signed and nothing was sent, as you wish")


async def _warn_if_paid(node: Node, payment: Payment, view: View) -> None:
    """Tell that the order is paid already; raises Failed where nobody would read that, or that it may be."""
    if payment.request is None:
        return
    if view.catching_up and not payment.asked:
        raise Failed("the node is still catching up and may not know that this order is paid; wait, or leave --yes out")
    terms = payment.request.terms
    found = (await node.get(status_path(terms))).object("payment")
    check_answer(found, terms)
    state = found.text("state")
    if state == "unpaid":
        return
    txid = show.plain(found.text("txid"))
    if not payment.asked:
        raise Failed(f"this order is paid already ({show.plain(state)}, {txid}); leave --yes out to pay it once more")
    click.echo(f"Warning: this order is paid already ({show.plain(state)}, {txid}).", err=True)


async def look(reach: Reach, keyfile: Keyfile) -> View:
    """What the node says of its network and of the wallet's account; raises Failed if either is not as it should."""
    status = (await reach.node.get("/rpc/status")).object("status")
    check_clock(milliseconds(reach.clock), status.number("time"))
    consensus = (await reach.node.get("/rpc/consensus")).object("consensus")
    check_wallet(keyfile, network_of(status, consensus))
    account = (await reach.node.get(f"/rpc/balance/{keyfile.address}")).object("account")
    return view_of(status, consensus, account)


async def _broadcast(node: Node, transfer: Transfer, outbox: Outbox) -> str:
    """What the node makes of the transfer: ``accepted`` or ``known``; raises Failed."""
    # What was sent before may be with a node, whatever this attempt meets: forgotten, it would be signed anew and paid
    # twice.
    first = all(kept.transfer.txid != transfer.txid for kept in outbox.load())
    outbox.keep(transfer, answered=False)
    try:
        answer = await node.post("/rpc/broadcast", {"transaction": parse_wire_object(transfer.wire)})
        if answer.text("txid") != transfer.txid.hex():
            raise Unanswered(f"the node gives another txid, {answer.text('txid')}")
        state = answer.text("state")
    except Unanswered as failed:
        raise _perhaps_sent(transfer, failed) from None
    except Refused as refused:
        if refused.status >= _SERVER_ERROR:
            raise _perhaps_sent(transfer, refused) from None
        raise _not_taken(transfer, refused, outbox, first=first) from None
    except Failed as failed:
        raise _not_taken(transfer, failed, outbox, first=first) from None
    outbox.keep(transfer, answered=True)
    return state


def _not_taken(transfer: Transfer, failed: Failed, outbox: Outbox, *, first: bool) -> Failed:
    """What to tell of a transfer that the node has not taken now; the first attempt at it leaves nothing behind."""
    if not first:
        return _perhaps_sent(transfer, failed)
    outbox.forget([transfer.txid])
    return failed


def _perhaps_sent(transfer: Transfer, failed: Failed) -> Failed:
    return Failed(
        f"{failed}. The transfer {transfer.txid.hex()} may have been sent all the same: repeat the command, and the"
        " same signed transfer is sent again, which can be paid once only"
    )


def _draft_again(transfer: Transfer, view: View) -> Draft:
    return Draft(
        recipient=encode_address(transfer.recipient, view.params.address_prefix),
        amount=transfer.amount,
        fee=transfer.fee,
        nonce=transfer.nonce,
        timestamp=transfer.timestamp,
        reference=transfer.reference,
    )
