"""The waiting transfers of one sender (docs/protocol.md 12)."""

from typing import Final

from attrs import define, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.transaction import Transfer
from svcd.node.leavers import Leaver

RATE_SCALE: Final = 2**20
"""What fees per byte are multiplied by, so that they are integers."""


@frozen(eq=False)
class Entry:
    """A waiting transfer."""

    transfer: Transfer
    sequence: int
    """Local order of arrival."""
    rate: int = field(init=False)
    """The fee per byte in 2^-20 base units, which is what orders a block."""

    @rate.default
    def _fee_per_byte(self) -> int:
        return self.transfer.fee * RATE_SCALE // len(self.transfer.wire)


@define(eq=False)
class Queue:
    """The waiting transfers of one sender by nonce, and the sender's account after the tip."""

    account: Account
    entries: dict[int, Entry] = field(factory=dict)
    line: tuple[Entry, ...] = ()
    """Those that could go into a block one after the other."""
    leaver: Leaver | None = None
    """The last one, as it was noted among those that may have to leave."""

    def align(self) -> None:
        """Bring the line up to date with account and entries."""
        nonce, line = self.account.nonce, []
        while nonce in self.entries:
            line.append(self.entries[nonce])
            nonce += 1
        self.line = tuple(line)

    def last(self) -> Leaver:
        """The transfer with the highest nonce, on which nothing builds."""
        entry = self.entries[max(self.entries)]
        in_line = bool(self.line) and self.line[-1] is entry
        return in_line, entry.rate, -entry.sequence, entry.transfer.txid

    def cost(self) -> int:
        """Base units that all of them spend."""
        return sum(entry.transfer.amount + entry.transfer.fee for entry in self.entries.values())

    def stale(self) -> list[Entry]:
        """What the account has no place for any more: used nonces, and from the end what it cannot pay."""
        stale = [entry for nonce, entry in self.entries.items() if nonce < self.account.nonce]
        cost = self.cost() - sum(entry.transfer.amount + entry.transfer.fee for entry in stale)
        for nonce in sorted(self.entries, reverse=True):
            if cost <= self.account.balance or nonce < self.account.nonce:
                break
            stale.append(self.entries[nonce])
            cost -= stale[-1].transfer.amount + stale[-1].transfer.fee
        return stale
