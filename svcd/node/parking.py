"""Transfers that a reorganisation left without cover, kept until they can wait again (docs/protocol.md 10, 12)."""

from collections.abc import Collection
from typing import Final

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node.common import common

MAX_PARKED: Final = 4_096
MAX_PARKED_BYTES: Final = 8 * 1024 * 1024


def may_come_later(refusal: RuleViolation, transfer: Transfer, account: Account) -> bool:
    """Whether a later block may mend what the mempool refused ``transfer`` for, given its sender's ``account``."""
    if refusal.code is Refusal.NONCE:
        return transfer.nonce > account.nonce
    return refusal.code in (Refusal.BALANCE, Refusal.POOL)


class Parking:
    """Transfers by txid, at most ``max_transfers`` and ``max_bytes`` of canonical JSON; first come, first kept."""

    def __init__(self, *, max_transfers: int = MAX_PARKED, max_bytes: int = MAX_PARKED_BYTES) -> None:
        self._max_transfers = max_transfers
        self._max_bytes = max_bytes
        self._transfers: dict[bytes, Transfer] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._transfers)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._transfers

    def transfers(self) -> list[Transfer]:
        """All of them, in the order in which they came."""
        return list(self._transfers.values())

    def put(self, transfer: Transfer) -> bool:
        """Keep ``transfer``; False if there is no room for it."""
        if transfer.txid in self._transfers:
            return True
        size = self._bytes + len(transfer.wire)
        # What came first is what others build on: it stays.
        if len(self._transfers) >= self._max_transfers or size > self._max_bytes:
            return False
        self._transfers[transfer.txid] = transfer
        self._bytes = size
        return True

    def take(self, txids: Collection[bytes]) -> list[Transfer]:
        """Those of ``txids`` that are here; they are not any more."""
        taken = [self._transfers.pop(txid) for txid in common(self._transfers, txids)]
        self._bytes -= sum(len(transfer.wire) for transfer in taken)
        return taken
