"""`svc wallet history`: what came in and went out, and what waits (docs/command-line.md "A wallet")."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from svcd.chain.address import decode_address, encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.units import format_amount
from svcd.wallet import options
from svcd.wallet.answer import Answer
from svcd.wallet.earlier import settle
from svcd.wallet.grid import Column, grid
from svcd.wallet.outbox import Kept, Outbox
from svcd.wallet.payment import look
from svcd.wallet.session import Reach, Session
from svcd.wallet.show import counted, moment
from svcd.wallet.wallet_commands import load_keyfile

MAX_LIMIT: Final = 100
_CURSOR: Final = re.compile("[0-9]{1,16}-[0-9]{1,16}")
_COLUMNS: Final = (
    Column("time (UTC)"),
    Column("coins", right=True),
    Column("from or to", least=13),
    Column("reference", least=9),
    Column("fee", right=True),
    Column("depth", right=True),
    Column("txid", least=11),
)


def _cursor(text: str) -> str:
    """The place of a transfer; raises ValueError."""
    if not _CURSOR.fullmatch(text):
        raise ValueError("must be what the page before names, such as 120-3")
    return text


@frozen
class _Page:
    """What a node and the outbox tell of an address."""

    address: str
    params: NetworkParams
    records: list[Answer]
    next: str | None
    waiting: tuple[Kept, ...]
    strange: int
    """Transfers of the address that wait at the node and were not sent with this keyfile here."""

    def as_json(self) -> dict[str, object]:
        return {
            "address": self.address,
            "transactions": [record.members for record in self.records],
            "next": self.next,
            "waiting": [_waiting_record(kept, self.params) for kept in self.waiting],
            "otherWaiting": self.strange,
        }


@click.command()
@click.option(
    "--limit",
    metavar="N",
    default="20",
    show_default=True,
    callback=options.judged(options.integer(1, MAX_LIMIT)),
    help=f"How many transfers of the chain to show, 1 to {MAX_LIMIT}.",
)
@click.option("--before", metavar="PLACE", callback=options.judged(_cursor), help="Go on where the page before ended.")
@options.keyfile_option
@options.node_option
@options.json_option
@click.pass_obj
def history(session: Session, limit: int, before: str | None, keyfile: Path) -> None:
    """Show what the wallet sent and received, newest first, and what waits for a block.

    Coins that went out have a minus. What waits is known of transfers that were sent with this keyfile on this
    computer; of others, how many there are. It needs no password.

    \b
    Example:
      svc wallet history
      svc wallet history --limit 100 --before 120-3
      svc wallet history --json
    """
    opened = load_keyfile(keyfile)

    async def work(reach: Reach) -> _Page:
        view = await look(reach, opened)
        key = decode_address(opened.address, opened.params.address_prefix)
        earlier = await settle(reach.node, Outbox(keyfile, opened.params), key, view, forget=False)
        after = "" if before is None else f"&before={before}"
        answer = await reach.node.get(f"/rpc/address/{opened.address}/transactions?limit={limit}{after}")
        following = answer.text("next") if "next" in answer else None
        known = sum(kept.transfer.nonce < view.pending_nonce for kept in earlier.waiting)
        strange = max(view.pending_nonce - view.nonce - known, 0)
        waiting = earlier.waiting if before is None else ()
        return _Page(opened.address, opened.params, answer.objects("transactions"), following, waiting, strange)

    page = session.with_node(work)
    session.show(page.as_json(), "\n".join(_lines(page, session.outside.columns())))


def _lines(page: _Page, width: int | None) -> Iterator[str]:
    rows = [_waiting_row(kept, page) for kept in reversed(page.waiting)]
    rows += [_row(record, page.address) for record in page.records]
    yield grid(_COLUMNS, rows, width) if rows else f"no transfer from or to {page.address} yet"
    if page.strange:
        yield f"\n{counted(page.strange, 'transfer')} of this address, sent from elsewhere, in no block yet"
    if any(not kept.answered for kept in page.waiting):
        yield "\nno answer: repeat the command that sent it, and the same transfer is sent again"
    if page.next is not None:
        yield f"\nolder ones: svc wallet history --before {page.next}"


def _row(record: Answer, address: str) -> list[str]:
    payload = record.object("payload")
    sender, recipient = record.text("senderAddress"), payload.text("recipient")
    amount = format_amount(payload.number("amount"))
    outgoing = sender == address
    return [
        _minute(record.number("blockTime")),
        "0" if sender == recipient else f"-{amount}" if outgoing else amount,
        "itself" if sender == recipient else recipient if outgoing else sender,
        payload.text("paymentReference") if "paymentReference" in payload else "",
        format_amount(record.number("fee")) if outgoing else "",
        str(record.count("confirmations")),
        record.text("txid"),
    ]


def _waiting_row(kept: Kept, page: _Page) -> list[str]:
    transfer = kept.transfer
    recipient = _recipient(transfer, page.params)
    to_itself = recipient == page.address
    return [
        _minute(transfer.timestamp),
        "0" if to_itself else f"-{format_amount(transfer.amount)}",
        "itself" if to_itself else recipient,
        transfer.reference or "",
        format_amount(transfer.fee),
        "waits" if kept.answered else "no answer",
        transfer.txid.hex(),
    ]


def _waiting_record(kept: Kept, params: NetworkParams) -> dict[str, object]:
    transfer = kept.transfer
    reference = {} if transfer.reference is None else {"reference": transfer.reference}
    return {
        "txid": transfer.txid.hex(),
        "state": "waiting" if kept.answered else "unanswered",
        "recipient": _recipient(transfer, params),
        "amount": str(transfer.amount),
        "fee": str(transfer.fee),
        "nonce": str(transfer.nonce),
        "timestamp": str(transfer.timestamp),
        **reference,
    }


def _recipient(transfer: Transfer, params: NetworkParams) -> str:
    return encode_address(transfer.recipient, params.address_prefix)


def _minute(milliseconds: int) -> str:
    return moment(milliseconds).removesuffix(" UTC")[:16]
