"""Transfers that a reorganisation disconnected and that are to return to the mempool (docs/protocol.md 10, 12)."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from attrs import define

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.limits import MEMPOOL_FLOOD, limit
from svcd.node.mempool import MAX_PER_SENDER, intersection

MAX_DISCONNECTED: Final = limit(
    4_096, "disconnected transfers kept until there is cover or room for them", "transfers", MEMPOOL_FLOOD
)
MAX_DISCONNECTED_BYTES: Final = limit(8 * 1024 * 1024, "size of the disconnected transfers", "bytes", MEMPOOL_FLOOD)

_UNBLOCKED_PER_BLOCK: Final = 256
"""How many unblocked senders are retried with one block; the next block has the next ones."""


def may_become_valid(refusal: RuleViolation, transfer: Transfer, account: Account) -> bool:
    """Whether the mempool may accept ``transfer`` later, given the refusal and its sender's ``account``."""
    if refusal.code is Refusal.NONCE:
        return transfer.nonce > account.nonce
    return refusal.code in (Refusal.BALANCE, Refusal.SENDER_MINIMUM, Refusal.RECIPIENT_MINIMUM, Refusal.POOL)


@define(eq=False)
class DisconnectedTransfer:
    """A transfer that is on disk and not in the mempool."""

    transfer: Transfer
    sequence: int | None
    """Its number in the mempool's journal; None if only the chain's database has it."""


class DisconnectedTransfers:
    """Two sets, which may overlap: the queue for the mempool, and transfers parked since the mempool refused them.

    At most ``max_transfers`` and ``max_bytes`` of canonical JSON are parked, the earliest.
    """

    def __init__(self, *, max_transfers: int = MAX_DISCONNECTED, max_bytes: int = MAX_DISCONNECTED_BYTES) -> None:
        self._max_transfers = max_transfers
        self._max_bytes = max_bytes
        self._queue: OrderedDict[bytes, DisconnectedTransfer] = OrderedDict()
        self._parked: dict[bytes, DisconnectedTransfer] = {}
        self._bytes = 0
        """Of what is parked."""
        self._by_sender: dict[bytes, list[DisconnectedTransfer]] = {}
        """The parked transfers of each sender by nonce, then by arrival."""
        self._unblocked: OrderedDict[bytes, None] = OrderedDict()
        """Senders whose transfers the mempool may accept now although the accounts are the same; oldest first."""

    @property
    def is_queue_empty(self) -> bool:
        """Whether nothing is to be tried."""
        return not self._queue

    def parked(self) -> list[DisconnectedTransfer]:
        """All parked transfers in order of arrival."""
        return list(self._parked.values())

    def items(self) -> list[DisconnectedTransfer]:
        """All that are queued or parked."""
        return list({**self._queue, **self._parked}.values())

    def has_from(self, sender: bytes) -> bool:
        """Whether a transfer of ``sender`` is queued or parked."""
        return sender in self._by_sender or any(item.transfer.sender == sender for item in self._queue.values())

    def get(self, txids: Collection[bytes]) -> list[DisconnectedTransfer]:
        """Those of ``txids`` that are queued or parked."""
        queued = intersection(self._queue, txids)
        parked = [txid for txid in intersection(self._parked, txids) if txid not in self._queue]
        return [self._queue[txid] for txid in queued] + [self._parked[txid] for txid in parked]

    def take(self, txids: Collection[bytes]) -> list[DisconnectedTransfer]:
        """Remove and give those of ``txids`` that are queued or parked."""
        taken = self.get(txids)
        for item in taken:
            transfer = item.transfer
            self._queue.pop(transfer.txid, None)
            if self._parked.pop(transfer.txid, None) is not None:
                self._bytes -= len(transfer.wire)
                others = self._by_sender[transfer.sender]
                del others[others.index(item, bisect_left(others, transfer.nonce, key=_nonce))]
                if not others:
                    del self._by_sender[transfer.sender]
                    self._unblocked.pop(transfer.sender, None)
        return taken

    # The queue

    def queue(self, items: Iterable[DisconnectedTransfer]) -> None:
        """Queue transfers, behind those that are queued already."""
        for item in items:
            txid = item.transfer.txid
            self._queue.setdefault(txid, self._parked.get(txid, item))

    def next(self, limit: int) -> list[DisconnectedTransfer]:
        """The first ``limit`` of the queue, which stay in it until they are dequeued."""
        return list(islice(self._queue.values(), limit))

    def dequeue(self, items: Iterable[DisconnectedTransfer]) -> None:
        """Remove transfers from the queue; the parked ones among them stay parked."""
        for item in items:
            self._queue.pop(item.transfer.txid, None)

    def retry(self, accounts: Mapping[bytes, Account]) -> list[DisconnectedTransfer]:
        """The parked transfers to be queued now that ``accounts`` have changed, and those of some unblocked senders.

        Without those whose nonces are too far ahead: one sender may have thousands.
        """
        retried: list[DisconnectedTransfer] = []
        for sender in intersection(self._by_sender, accounts):
            parked = self._by_sender[sender]
            retried += parked[: bisect_left(parked, accounts[sender].nonce + MAX_PER_SENDER, key=_nonce)]
        # A recipient that has no account, since a reorganisation undid its first payment, may have one again.
        for item in self._parked.values():
            if item.transfer.recipient in accounts and item.transfer.sender not in accounts:
                retried.append(item)
        max_retried = len(retried) + _UNBLOCKED_PER_BLOCK
        while self._unblocked and len(retried) < max_retried:
            sender, _ = self._unblocked.popitem(last=False)
            retried += [] if sender in accounts else self._by_sender[sender][:MAX_PER_SENDER]
        return retried

    # What is parked

    def park(self, item: DisconnectedTransfer, *, pool_full: bool) -> bool:
        """Park a transfer; False if there is no room. ``pool_full``: the mempool's only reason was lack of room."""
        transfer = item.transfer
        if transfer.txid not in self._parked:
            size = self._bytes + len(transfer.wire)
            # The earliest stay: later ones depend on them.
            if len(self._parked) >= self._max_transfers or size > self._max_bytes:
                return False
            self._parked[transfer.txid] = item
            others = self._by_sender.setdefault(transfer.sender, [])
            others.insert(bisect_right(others, transfer.nonce, key=_nonce), item)
            self._bytes = size
        if pool_full:
            self._unblocked.setdefault(transfer.sender)
        return True

    def unblock(self, senders: Collection[bytes]) -> None:
        """Transfers of ``senders`` have left the mempool, which makes room for those that are parked."""
        for sender in intersection(self._by_sender, senders):
            self._unblocked.setdefault(sender)


def _nonce(item: DisconnectedTransfer) -> int:
    return item.transfer.nonce
