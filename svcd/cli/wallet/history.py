"""`svc wallet balance` and `svc wallet history`: what the wallet has, and its transfers (docs/command-line.md)."""

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
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.chain_commands import show_balance, transfer_of
from svcd.cli.rendering import TableColumn, format_time, table
from svcd.cli.session import Session
from svcd.cli.wallet.pending import NodeAnswer, PendingFile, PendingTransfer, reconcile
from svcd.cli.wallet.preflight import fetch_account_view
from svcd.cli.wallet.unlocking import load_keyfile
from svcd.keyfile import Keyfile
from svcd.quantities import counted

MAX_LIMIT: Final = 100
_CURSOR: Final = re.compile("[0-9]{1,16}-[0-9]{1,16}")
_FURTHER_COLUMNS: Final = (
    TableColumn("from or to", min_width=13),
    TableColumn("reference", min_width=9),
    TableColumn("fee", align_right=True),
    TableColumn("depth", align_right=True),
    TableColumn("txid", min_width=11),
)

_ANSWERS: Final = {
    NodeAnswer.ACCEPTED: ("pending", "waiting"),
    NodeAnswer.NONE: ("no response", "unanswered"),
    NodeAnswer.REFUSED: ("refused", "refused"),
}
"""For people, and for programs."""


def _cursor(text: str) -> str:
    """The position of a transfer in the history; raises ValueError."""
    if not _CURSOR.fullmatch(text):
        raise ValueError("must be the position at the end of the previous page, such as 120-3")
    return text


@frozen
class _HistoryPage:
    """One page of the chain's transfers of an address, with its pending ones on the first page."""

    address: str
    params: NetworkParams
    records: list[ResponseObject]
    next: str | None
    pending: tuple[PendingTransfer, ...]
    other_pending: int
    """How many transfers of the address in the node's mempool were not sent with this keyfile on this computer."""
    prune_height: int
    """The first height from which the node has blocks."""

    def as_json(self) -> dict[str, object]:
        return {
            "address": self.address,
            "transactions": self.records,
            "next": self.next,
            "waiting": [_pending_json(pending, self.params) for pending in self.pending],
            "otherWaiting": self.other_pending,
            "pruneHeight": str(self.prune_height),
        }


@click.command()
@options.keyfile_option
@options.nodes_option
@options.json_option
@click.pass_obj
def balance(session: Session, keyfile: Path, *, trustless: bool, minimum_work: int | None) -> None:
    """Show the balance of the wallet and how many transfers it has sent, as `svc balance` does for any address.

    No password is needed.

    \b
    Example:
      svc wallet balance
      svc wallet balance --trustless
    """
    opened = load_keyfile(session, keyfile)
    show_balance(session, opened.address, trustless=trustless, minimum_work=minimum_work)


@click.command()
@click.option(
    "--limit",
    metavar="N",
    default="20",
    show_default=True,
    callback=options.validated(options.integer(1, MAX_LIMIT)),
    help=f"How many transfers of the chain to show, 1 to {MAX_LIMIT}.",
)
@click.option(
    "--before", metavar="POSITION", callback=options.validated(_cursor), help="Continue where the previous page ended."
)
@options.keyfile_option
@options.node_option
@options.json_option
@click.pass_obj
def history(session: Session, limit: int, before: str | None, keyfile: Path) -> None:
    """Show what the wallet sent and received, newest first, and its pending transfers.

    Outgoing amounts have a minus sign. Pending transfers are listed if they were sent with this keyfile on this
    computer; of others, only the number is known. No password is needed.

    \b
    Example:
      svc wallet history
      svc wallet history --limit 100 --before 120-3
      svc wallet history --json
    """
    opened = load_keyfile(session, keyfile)
    node = session.node()
    view = fetch_account_view(node, opened)
    key = decode_address(opened.address, opened.params.address_prefix)
    own = reconcile(PendingFile(keyfile, opened.params), key, view, node.clock.milliseconds()).pending
    cursor = "" if before is None else f"&before={before}"
    response = node.get(f"/rpc/address/{opened.address}/transactions?limit={limit}{cursor}")
    response.check(address=opened.address)
    in_mempool = sum(pending.transfer.nonce < view.pending_nonce for pending in own)
    others = max(view.pending_nonce - view.nonce - in_mempool, 0)
    shown = own if before is None else ()
    first = response.number("pruneHeight") if "pruneHeight" in response else 0
    records = response.objects("transactions")
    for record in records:
        _check(record, opened)
    page = _HistoryPage(opened.address, opened.params, records, response.cursor(), shown, others, first)
    session.print_result(page.as_json(), "\n".join(_lines(page, session.runtime.terminal_width())))


def _check(record: ResponseObject, keyfile: Keyfile) -> None:
    """Raise NoValidResponse unless the record is of a transfer of the wallet, and says of it what its txid proves."""
    transfer = transfer_of(record, record.hash("txid"), keyfile.params)
    if decode_address(keyfile.address, keyfile.params.address_prefix) not in (transfer.sender, transfer.recipient):
        raise invalid_response(f"{record.name} is neither from nor to {keyfile.address}, which was requested")


def _lines(page: _HistoryPage, width: int | None) -> Iterator[str]:
    rows = [_pending_row(pending, page) for pending in reversed(page.pending)]
    rows += [_row(record, page.address) for record in page.records]
    if rows:
        first = TableColumn("time (UTC)"), TableColumn(page.params.unit, align_right=True)
        yield table((*first, *_FURTHER_COLUMNS), rows, width)
    elif page.prune_height:
        yield f"no transfer from or to {page.address} in the blocks that this node has"
    else:
        yield f"no transfer from or to {page.address} yet"
    if page.other_pending:
        yield f"\n{counted(page.other_pending, 'pending transfer')} of this address sent from elsewhere"
    if any(pending.answer is NodeAnswer.NONE for pending in page.pending):
        yield "\nno response: repeat the command that sent it to send the same transfer again"
    if any(pending.answer is NodeAnswer.REFUSED for pending in page.pending):
        yield "\nrefused: the node may have relayed it anyway; repeat the command to send the same transfer again"
    if page.prune_height and page.next is None:
        yield f"\nthis node has only blocks from height {page.prune_height} on; ask another one for earlier transfers"
    if page.next is not None:
        yield f"\nolder transfers: svc wallet history --before {page.next}"


def _row(record: ResponseObject, address: str) -> list[str]:
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


def _pending_row(pending: PendingTransfer, page: _HistoryPage) -> list[str]:
    transfer = pending.transfer
    recipient = _recipient(transfer, page.params)
    to_itself = recipient == page.address
    return [
        _minute(transfer.timestamp),
        "0" if to_itself else f"-{format_amount(transfer.amount)}",
        "itself" if to_itself else recipient,
        transfer.reference or "",
        format_amount(transfer.fee),
        _ANSWERS[pending.answer][0],
        transfer.txid.hex(),
    ]


def _pending_json(pending: PendingTransfer, params: NetworkParams) -> dict[str, object]:
    transfer = pending.transfer
    reference = {} if transfer.reference is None else {"reference": transfer.reference}
    return {
        "txid": transfer.txid.hex(),
        "state": _ANSWERS[pending.answer][1],
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
    return format_time(milliseconds).removesuffix(" UTC")[:16]
