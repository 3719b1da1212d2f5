"""Transfers that a reorganisation left without cover, kept until they can wait again (docs/protocol.md 10, 12)."""

from collections.abc import Collection
from itertools import islice
from typing import Final

from attrs import define

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node.common import common

MAX_ASIDE: Final = 4_096
MAX_ASIDE_BYTES: Final = 8 * 1024 * 1024
_CROWDED_AT_ONCE: Final = 256
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


class Aside:
    """At most ``max_transfers`` and ``max_bytes`` of canonical JSON; first come, first kept."""

    def __init__(self, *, max_transfers: int = MAX_ASIDE, max_bytes: int = MAX_ASIDE_BYTES) -> None:
        self._max_transfers = max_transfers
        self._max_bytes = max_bytes
        self._kept: dict[bytes, Kept] = {}
        self._by_sender: dict[bytes, dict[bytes, Kept]] = {}
        self._crowded: dict[bytes, Kept] = {}
        """What is worth a try although its sender's account has not changed; the longest untried first."""
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
            self._by_sender.setdefault(transfer.sender, {})[transfer.txid] = kept
            self._bytes = size
        self._crowded.pop(transfer.txid, None)
        if crowded:
            self._crowded[transfer.txid] = kept
        return True

    def take(self, txids: Collection[bytes]) -> list[Kept]:
        """Those of ``txids`` that are here; they are not any more."""
        taken = [self._kept.pop(txid) for txid in common(self._kept, txids)]
        for kept in taken:
            transfer = kept.transfer
            others = self._by_sender[transfer.sender]
            del others[transfer.txid]
            if not others:
                del self._by_sender[transfer.sender]
            self._crowded.pop(transfer.txid, None)
            self._bytes -= len(transfer.wire)
        return taken

    def ease(self, senders: Collection[bytes]) -> None:
        """Something of ``senders`` waits no longer, so that what is here may be covered now."""
        for sender in common(self._by_sender, senders):
            self._crowded.update(self._by_sender[sender])

    def to_be_tried(self, senders: Collection[bytes]) -> list[Kept]:
        """Those of ``senders``, whose means have changed, and some of those that lacked room; they stay here."""
        of_senders = [kept for sender in common(self._by_sender, senders) for kept in self._by_sender[sender].values()]
        return [*of_senders, *islice(self._crowded.values(), _CROWDED_AT_ONCE)]
