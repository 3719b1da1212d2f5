"""Transfers that a reorganisation left without cover, kept until they can wait again (docs/protocol.md 10, 12)."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Final

from attrs import define

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node.common import common
from svcd.node.mempool import AHEAD

MAX_ASIDE: Final = 4_096
MAX_ASIDE_BYTES: Final = 8 * 1024 * 1024
_EASED_AT_ONCE: Final = 256
"""How many of those are tried with a block whose senders are not in it; with the next it is the turn of others."""


def may_come_later(refusal: RuleViolation, transfer: Transfer, account: Account) -> bool:
    """Whether a later block may mend what the mempool refused ``transfer`` for, given its sender's ``account``."""
    if refusal.code is Refusal.NONCE:
        return transfer.nonce > account.nonce
    return refusal.code in (Refusal.BALANCE, Refusal.POOL)


@define(eq=False)
class Kept:
    """A transfer that is on disk and does not wait."""

    transfer: Transfer
    row: int
    """Its number in the mempool's file; 0 while only the chain's file has it."""

    @property
    def nonce(self) -> int:
        """The transfer's."""
        return self.transfer.nonce


class Aside:
    """At most ``max_transfers`` and ``max_bytes`` of canonical JSON; first come, first kept."""

    def __init__(self, *, max_transfers: int = MAX_ASIDE, max_bytes: int = MAX_ASIDE_BYTES) -> None:
        self._max_transfers = max_transfers
        self._max_bytes = max_bytes
        self._kept: dict[bytes, Kept] = {}
        self._by_sender: dict[bytes, list[Kept]] = {}
        """Those of each sender by nonce, and of one nonce in the order in which they came."""
        self._eased: OrderedDict[bytes, None] = OrderedDict()
        """Senders of whom something may wait by now although the account is the same; the longest untried first."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._kept

    def all(self) -> list[Kept]:
        """All of them, in the order in which they came."""
        return list(self._kept.values())

    def get(self, txids: Collection[bytes]) -> list[Kept]:
        """Those of ``txids`` that are here."""
        return [self._kept[txid] for txid in common(self._kept, txids)]

    def put(self, kept: Kept, *, crowded: bool) -> bool:
        """Keep a transfer, or go on keeping it; ``crowded`` if it lacked room only. False if there is no room here."""
        transfer = kept.transfer
        if transfer.txid not in self._kept:
            size = self._bytes + len(transfer.wire)
            # What came first is what others build on: it stays.
            if len(self._kept) >= self._max_transfers or size > self._max_bytes:
                return False
            self._kept[transfer.txid] = kept
            others = self._by_sender.setdefault(transfer.sender, [])
            others.insert(bisect_right(others, kept.nonce, key=_nonce), kept)
            self._bytes = size
        if crowded:
            self._eased.setdefault(transfer.sender)
        return True

    def take(self, txids: Collection[bytes]) -> list[Kept]:
        """Those of ``txids`` that are here; they are not any more."""
        taken = [self._kept.pop(txid) for txid in common(self._kept, txids)]
        for kept in taken:
            transfer = kept.transfer
            others = self._by_sender[transfer.sender]
            del others[others.index(kept, bisect_left(others, kept.nonce, key=_nonce))]
            if not others:
                del self._by_sender[transfer.sender]
                self._eased.pop(transfer.sender, None)
            self._bytes -= len(transfer.wire)
        return taken

    def ease(self, senders: Collection[bytes]) -> None:
        """Something of ``senders`` waits no longer, so that what is here may be covered now."""
        for sender in common(self._by_sender, senders):
            self._eased.setdefault(sender)

    def to_be_tried(self, accounts: Mapping[bytes, Account]) -> list[Kept]:
        """What may wait, or never will, now that ``accounts`` have changed, and some of those eased; they stay here.

        What lies too many nonces ahead is left out: one sender may have thousands here, and they get in by and by.
        """
        tried: list[Kept] = []
        for sender in common(self._by_sender, accounts):
            kept = self._by_sender[sender]
            tried += kept[: bisect_left(kept, accounts[sender].nonce + AHEAD, key=_nonce)]
        most = len(tried) + _EASED_AT_ONCE
        while self._eased and len(tried) < most:
            sender, _ = self._eased.popitem(last=False)
            tried += [] if sender in accounts else self._by_sender[sender][:AHEAD]
        return tried


def _nonce(kept: Kept) -> int:
    return kept.nonce
