"""The waiting transfers of one sender (docs/protocol.md 12)."""

from typing import Final

from attrs import define, frozen

from svcd.chain.accounts import Account
from svcd.chain.transaction import Transfer
from svcd.node.leavers import Leaver

RATE_SCALE: Final = 2**20
"""What fees per byte are multiplied by, so that they are integers."""


@frozen(eq=False, weakref_slot=False)
class Entry:
    """A waiting transfer."""

    transfer: Transfer
    sequence: int
    """Local order of arrival."""

    @property
    def rate(self) -> int:
        """The fee per byte in 2^-20 base units, which is what orders a block."""
        return self.transfer.fee * RATE_SCALE // len(self.transfer.wire)


@define(eq=False, weakref_slot=False)
class Queue:
    """The waiting transfers of one sender, and the sender's account after the tip."""

    account: Account
    entries: tuple[Entry, ...] = ()
    """By nonce; nearly always one, and never so many that going through them takes long."""
    line: tuple[Entry, ...] = ()
    """Those that could go into a block one after the other."""
    leaver: Leaver | None = None
    """The last one, as it was noted among those that may have to leave."""

    def at(self, nonce: int) -> Entry | None:
        """The one with a nonce."""
        for entry in self.entries:
            if entry.transfer.nonce == nonce:
                return entry
        return None

    def put(self, entry: Entry) -> None:
        """Take in one, of a nonce that none has."""
        self.entries = tuple(sorted((*self.entries, entry), key=_nonce))

    def remove(self, entry: Entry) -> None:
        """Let go of one."""
        self.entries = tuple([other for other in self.entries if other is not entry])

    def next_nonce(self, nonce: int) -> int:
        """The first nonce from ``nonce`` on that none has."""
        for entry in self.entries:
            if entry.transfer.nonce == nonce:
                nonce += 1
        return nonce

    def align(self) -> None:
        """Bring the line up to date with account and entries."""
        first = self.account.nonce
        end = self.next_nonce(first)
        line = tuple([entry for entry in self.entries if first <= entry.transfer.nonce < end])
        # Mostly the same, which is then kept once.
        self.line = self.entries if len(line) == len(self.entries) else line

    def last(self) -> Leaver:
        """The transfer with the highest nonce, on which nothing builds."""
        entry = self.entries[-1]
        in_line = bool(self.line) and self.line[-1] is entry
        return in_line, entry.rate, -entry.sequence, entry.transfer.txid

    def cost(self) -> int:
        """Base units that all of them spend."""
        return sum([entry.transfer.amount + entry.transfer.fee for entry in self.entries])

    def stale(self) -> list[Entry]:
        """What the account has no place for any more: used nonces, and from the end what it cannot pay."""
        stale = [entry for entry in self.entries if entry.transfer.nonce < self.account.nonce]
        cost = self.cost() - sum(entry.transfer.amount + entry.transfer.fee for entry in stale)
        for entry in reversed(self.entries):
            if cost <= self.account.balance or entry.transfer.nonce < self.account.nonce:
                break
            stale.append(entry)
            cost -= entry.transfer.amount + entry.transfer.fee
        return stale


def _nonce(entry: Entry) -> int:
    return entry.transfer.nonce
