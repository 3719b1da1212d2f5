"""One payment from the command line: look, ask, sign, broadcast; nothing is signed before the question is answered."""

from collections.abc import Callable
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.encoding import parse_wire_object
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.ports import milliseconds
from svcd.wallet import show
from svcd.wallet.client import Node
from svcd.wallet.failed import Failed, Refused, Unanswered
from svcd.wallet.keyfile import Keyfile
from svcd.wallet.sending import View, Wish, check_clock, check_wallet, draft_of, network_of, review, view_of, warnings
from svcd.wallet.session import Reach
from svcd.wallet.terminal import confirm

_SERVER_ERROR: Final = 500


@frozen
class Payment:
    """What the user asks to be paid, and from where."""

    keyfile: Keyfile
    wish: Wish
    unseal: Callable[[], bytes]
    """Gives the seed, asking for the password; raises Failed or click.Abort."""
    asked: bool = True
    """Whether to ask before signing."""


@frozen
class Sent:
    """A transfer that the node has taken."""

    draft: Draft
    sender: str
    txid: str
    state: str
    """``accepted``, or ``known`` if the node had it already."""

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
    """Make, sign and broadcast the transfer; raises Failed, RuleViolation or click.Abort."""
    sender = payment.keyfile.address
    view = await _look(reach, payment.keyfile)
    draft = draft_of(payment.wish, view, milliseconds(reach.clock))
    click.echo(show.table(review(draft, view, sender)), err=True)
    for sentence in warnings(draft, view, sender):
        click.echo(f"Warning: {sentence}.", err=True)
    if payment.asked and not confirm("Sign and send this transfer?"):
        raise Failed("nothing was signed and nothing was sent, as you wish")
    seed = payment.unseal()
    # The person may have thought for an hour: the transfer carries the time of its signature.
    draft = evolve(draft, timestamp=milliseconds(reach.clock))
    transfer = sign_transfer(draft, seed=seed, params=view.params)
    state = await _broadcast(reach.node, transfer)
    return Sent(draft, sender, transfer.txid.hex(), state)


async def _look(reach: Reach, keyfile: Keyfile) -> View:
    status = (await reach.node.get("/rpc/status")).object("status")
    check_clock(milliseconds(reach.clock), status.number("time"))
    consensus = (await reach.node.get("/rpc/consensus")).object("consensus")
    check_wallet(keyfile, network_of(status, consensus))
    account = (await reach.node.get(f"/rpc/balance/{keyfile.address}")).object("account")
    return view_of(status, consensus, account)


async def _broadcast(node: Node, transfer: Transfer) -> str:
    """What the node makes of the transfer: ``accepted`` or ``known``; raises Failed."""
    try:
        answer = await node.post("/rpc/broadcast", {"transaction": parse_wire_object(transfer.wire)})
        if answer.text("txid") != transfer.txid.hex():
            raise Unanswered(f"the node gives another txid, {answer.text('txid')}")
        return answer.text("state")
    except Unanswered as failed:
        raise _perhaps_sent(transfer, failed) from None
    except Refused as refused:
        if refused.status >= _SERVER_ERROR:
            raise _perhaps_sent(transfer, refused) from None
        raise


def _perhaps_sent(transfer: Transfer, failed: Failed) -> Failed:
    return Failed(
        f"{failed}. The transfer {transfer.txid.hex()} may have been sent all the same: look for it with svc tx,"
        f" or send it again with --nonce {transfer.nonce}: only one transfer with that nonce can ever be paid"
    )
