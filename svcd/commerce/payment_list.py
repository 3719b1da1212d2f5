"""Lists the transfers that an address has received, and their mismatches (docs/payments.md "payments")."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.node.mempool import MempoolEntry
from svcd.store.chain_store import MAX_SCANNED, ChainReader, PlacedTransfer
from svcd.store.packed_transfer import txid_of_stored

Position = tuple[int, int]
"""Height of a block and position of a transfer in it."""
BEGINNING: Final[Position] = (-1, 0)
GIVE_SINCE_HEIGHT: Final = "give that or more as sinceHeight"
"""The advice to who asks about payments in blocks that are not here."""


def end_of(height: int) -> Position:
    """After every transfer of the block at ``height``."""
    return height, MAX_INTEGER


@frozen
class Cursor:
    """The end of a page: everything up to it has been listed, on the chain and in the mempool.

    It has both because a block may include waiting transfers between two pages: the next page begins with that block.
    """

    on_chain: Position
    arrival: int
    """The number of a waiting transfer in the order of arrival; 0 for none."""

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """The cursor in ``text``; raises ValueError."""
        height, position, arrival = map(int, text.split("-"))
        return cls((height, position), arrival)

    def __str__(self) -> str:
        """The API's form."""
        return f"{self.on_chain[0]}-{self.on_chain[1]}-{self.arrival}"


class AmountMismatch(StrEnum):
    """Why a transfer to an order's recipient under its reference does not pay the order."""

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
    """A transfer to the recipient, as the chain has it, or the mempool."""

    txid: bytes
    transfer: PlacedTransfer | Transfer


@frozen
class ReceivedPage:
    """Transfers in the order of the chain, then of arrival; ``next`` begins the next page, None at the end."""

    tip: ChainPoint
    received: tuple[ReceivedTransfer, ...]
    next: Cursor | None


def read_page(reader: ChainReader, params: NetworkParams, query: PaymentQuery) -> ReceivedPage:
    """A page of transfers on the chain; inside a snapshot, in a thread: it may parse MAX_SCANNED transfers.

    It may have fewer than ``query.limit`` before the end, where most transfers of the address, or under the reference,
    are others. Raises Pruned if it would begin below the blocks that are here.
    """
    tip = reader.existing_tip()
    after = query.after.on_chain
    first = max(after[0] + (after[1] == MAX_INTEGER), 0)
    reader.check_kept(first, f"payments from block {first} on", GIVE_SINCE_HEIGHT)
    if query.reference is None:
        transfers = reader.of_address(query.key, after=after)
    else:
        transfers = reader.of_reference(query.reference, after=after)
    found, last = take_received(transfers, query.key, query.reference, after=after, limit=query.limit, rows=MAX_SCANNED)
    listed = [ReceivedTransfer(txid_of_stored(each.stored, params), each) for each in found]
    return ReceivedPage(tip, tuple(listed), None if last is None else Cursor(last, query.after.arrival))


def take_received(
    transfers: Iterable[PlacedTransfer],
    key: bytes,
    reference: str | None = None,
    *,
    after: Position,
    limit: int,
    rows: int,
) -> tuple[list[PlacedTransfer], Position | None]:
    """The first ``limit`` of ``transfers``, which come ``after`` a place, that are to ``key`` and under ``reference``.

    Looks at ``rows`` at most. If there are more of them, also gives the last place that need not be looked at again.
    """
    found: list[PlacedTransfer] = []
    for looked_at, transfer in enumerate(transfers):
        listed = _is_listed(transfer, key, reference)
        if looked_at == rows or (listed and len(found) == limit):
            return found, after
        if listed:
            found.append(transfer)
        after = transfer.place
    return found, None


def with_waiting(page: ReceivedPage, entries: Sequence[MempoolEntry], query: PaymentQuery) -> ReceivedPage:
    """The last ``page`` on the chain, continued with waiting transfers to the recipient.

    ``entries`` are the oldest MAX_SCANNED + 1 after ``query.after.arrival``, as they were before the page was read.
    """
    if page.next is not None:
        return page
    on_chain = {each.txid for each in page.received}
    found, arrival = list(page.received), query.after.arrival
    for entry in entries[:MAX_SCANNED]:
        transfer = entry.transfer
        if _is_listed(transfer, query.key, query.reference) and transfer.txid not in on_chain:
            if len(found) == query.limit:
                break
            found.append(ReceivedTransfer(transfer.txid, transfer))
        arrival = entry.sequence
    is_last = not entries or arrival == entries[-1].sequence
    return ReceivedPage(page.tip, tuple(found), None if is_last else Cursor(end_of(page.tip.height), arrival))


def _is_listed(transfer: PlacedTransfer | Transfer, key: bytes, reference: str | None) -> bool:
    return transfer.recipient == key and reference in (None, transfer.reference)


def mismatch_of(txid: bytes, given: int, amount: int, paid_by: bytes | None) -> AmountMismatch | None:
    """The mismatch of a transfer of ``given`` for an order of ``amount``, which the transfer ``paid_by`` pays."""
    if given != amount:
        return AmountMismatch.TOO_LITTLE if given < amount else AmountMismatch.TOO_MUCH
    return AmountMismatch.DUPLICATE if paid_by not in (None, txid) else None


def received_record(
    received: ReceivedTransfer, params: NetworkParams, tip: ChainPoint, order: tuple[int, bytes | None] | None
) -> dict[str, object]:
    """The API's form of a transfer; ``order`` has the amount to compare, and the txid that pays the order."""
    transfer = received.transfer
    placed = transfer if isinstance(transfer, PlacedTransfer) else None
    record: dict[str, object] = {
        "txid": received.txid.hex(),
        "sender": encode_address(transfer.sender, params.address_prefix),
        "reference": transfer.reference,
        "amount": str(transfer.amount),
        "amountSvc": format_amount(transfer.amount),
        "canonical": placed is not None,
        "confirmations": 0 if placed is None else tip.height - placed.height + 1,
    }
    if placed is not None:
        record["blockHash"] = placed.block_hash.hex()
        record["blockHeight"] = str(placed.height)
        record["blockTime"] = str(params.slot_time(placed.slot))
    if order is not None:
        record["mismatch"] = mismatch_of(received.txid, transfer.amount, *order)
    return record
