"""Lists what an address has received, and what is wrong with it (docs/payments.md "payments")."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.limits import LONG_LISTS, Limit
from svcd.node.mempool import MempoolEntry
from svcd.store.chain_store import LOOKED_AT, ChainReader, StoredTransfer

Cursor = tuple[int, int]
"""Height and position of a transfer; of a waiting one MAX_INTEGER and its number in the order of arrival."""
BEGINNING: Final[Cursor] = (-1, 0)
MEMPOOL_BEGINNING: Final[Cursor] = (MAX_INTEGER, 0)

LIMITS: Final = (Limit("transfers that a page of payments looks at", LOOKED_AT, "things", LONG_LISTS),)


class AmountMismatch(StrEnum):
    """What is wrong with a transfer to an order's recipient under its reference."""

    TOO_LITTLE = "too-little"
    TOO_MUCH = "too-much"
    DUPLICATE = "duplicate"
    """The right amount, after another transfer has paid the order."""


@frozen(kw_only=True)
class PaymentQuery:
    """Which transfers to list: to the key hash ``key``, under ``reference`` unless it is None, after a cursor."""

    key: bytes
    reference: str | None
    after: Cursor
    limit: int


@frozen
class ReceivedTransfer:
    """A transfer to the recipient; ``point`` is its block, None while it waits."""

    transfer: Transfer
    point: ChainPoint | None
    cursor: Cursor


@frozen
class ReceivedPage:
    """Transfers in the order of the chain, then of arrival; ``next`` begins the next page, None at the end."""

    tip: ChainPoint
    received: tuple[ReceivedTransfer, ...]
    next: Cursor | None


def read_page(reader: ChainReader, params: NetworkParams, query: PaymentQuery) -> ReceivedPage:
    """A page of transfers on the chain; inside a snapshot, in a thread: it may parse LOOKED_AT transfers.

    It may have fewer than ``query.limit`` before the end, where most transfers of the address are others.
    """
    tip = reader.tip()
    if tip is None:
        raise Corrupt("the database has no chain in it")
    if query.after >= MEMPOOL_BEGINNING:
        return ReceivedPage(tip, (), None)
    if query.reference is not None and reader.has_received_few((query.reference, query.key)):
        payee = query.reference, query.key
        places, most = reader.received(payee, query.after, limit=query.limit + 1), query.limit
    else:
        places, most = reader.address_transactions_after(query.key, query.after, limit=LOOKED_AT + 1), LOOKED_AT
    looked_at = [_on_chain(place, params) for place in places[:most]]
    found = [each for each in looked_at if _is_listed(each.transfer, query)]
    if len(found) > query.limit:
        return ReceivedPage(tip, tuple(found[: query.limit]), found[query.limit - 1].cursor)
    return ReceivedPage(tip, tuple(found), looked_at[-1].cursor if len(places) > most else None)


def with_waiting(page: ReceivedPage, entries: Sequence[MempoolEntry], query: PaymentQuery) -> ReceivedPage:
    """The last ``page`` on the chain, continued with waiting transfers to the recipient.

    ``entries`` are the oldest LOOKED_AT + 1 after ``query.after``, as they were before the page was read.
    """
    if page.next is not None:
        return page
    on_chain = {each.transfer.txid for each in page.received}
    waiting = [
        ReceivedTransfer(entry.transfer, None, (MAX_INTEGER, entry.sequence))
        for entry in entries[:LOOKED_AT]
        if _is_listed(entry.transfer, query) and entry.transfer.txid not in on_chain
    ]
    room = query.limit - len(page.received)
    shown = waiting[:room]
    following = None
    if len(waiting) > room:
        following = shown[-1].cursor if shown else max(query.after, MEMPOOL_BEGINNING)
    elif len(entries) > LOOKED_AT:
        following = MAX_INTEGER, entries[LOOKED_AT - 1].sequence
    return ReceivedPage(page.tip, (*page.received, *shown), following)


def mismatch_of(transfer: Transfer, amount: int, paid_by: bytes | None) -> AmountMismatch | None:
    """What is wrong with a transfer for an order of ``amount``, which the transfer with the txid ``paid_by`` pays."""
    if transfer.amount != amount:
        return AmountMismatch.TOO_LITTLE if transfer.amount < amount else AmountMismatch.TOO_MUCH
    return AmountMismatch.DUPLICATE if paid_by not in (None, transfer.txid) else None


def received_record(
    received: ReceivedTransfer, params: NetworkParams, tip: ChainPoint, order: tuple[int, bytes | None] | None
) -> dict[str, object]:
    """The API's form of a transfer; ``order`` has the amount to compare, and the txid that pays the order."""
    transfer, point = received.transfer, received.point
    record: dict[str, object] = {
        "txid": transfer.txid.hex(),
        "sender": encode_address(transfer.sender, params.address_prefix),
        "reference": transfer.reference,
        "amount": str(transfer.amount),
        "amountSvc": format_amount(transfer.amount),
        "canonical": point is not None,
        "confirmations": 0 if point is None else tip.height - point.height + 1,
    }
    if point is not None:
        record["blockHash"] = point.hash.hex()
        record["blockHeight"] = str(point.height)
        record["blockTime"] = str(params.slot_time(point.slot))
    if order is not None:
        record["mismatch"] = mismatch_of(transfer, *order)
    return record


def _on_chain(place: StoredTransfer, params: NetworkParams) -> ReceivedTransfer:
    transfer = parse_transfer(json.loads(place.body), params)
    return ReceivedTransfer(transfer, place.point, (place.point.height, place.position))


def _is_listed(transfer: Transfer, query: PaymentQuery) -> bool:
    return transfer.recipient == query.key and query.reference in (None, transfer.reference)
