"""The mempool's policy in the plainest words, to compare the real one with (docs/protocol.md 12).

One list, searched from end to end for every question; nothing is kept that can be worked out again.
"""

from collections.abc import Iterable, Mapping

from attrs import define, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal
from svcd.chain.transaction import Transfer
from svcd.node.mempool import TimestampWindow


@frozen(eq=False)
class Waiting:
    transfer: Transfer
    sequence: int

    @property
    def rate(self) -> int:
        return self.transfer.fee * 2**20 // len(self.transfer.wire)

    @property
    def cost(self) -> int:
        return self.transfer.amount + self.transfer.fee


class Refused(Exception):
    """The policy says no."""

    def __init__(self, code: Refusal) -> None:
        super().__init__(code)
        self.code = code


@define
class NaivePool:
    max_transactions: int
    max_bytes: int
    account_minimum: int
    accounts: Mapping[bytes, Account]
    """All accounts after the tip."""
    waiting: list[Waiting] = field(factory=list)
    """In order of arrival."""

    def of(self, sender: bytes) -> list[Waiting]:
        """What waits of one sender, by nonce."""
        own = [entry for entry in self.waiting if entry.transfer.sender == sender]
        return sorted(own, key=lambda entry: entry.transfer.nonce)

    def line(self, sender: bytes, account: Account) -> list[Waiting]:
        """What could go into a block one after the other."""
        own = self.of(sender)
        return [entry for index, entry in enumerate(own) if entry.transfer.nonce == account.nonce + index]

    @property
    def size(self) -> int:
        return sum(len(entry.transfer.wire) for entry in self.waiting)

    def admit(self, transfer: Transfer, *, window: TimestampWindow, sequence: int) -> list[bytes]:
        """The txids that leave for ``transfer``; raises Refused."""
        account = self.accounts[transfer.sender]
        if not window.oldest <= transfer.timestamp <= window.newest:
            raise Refused(Refusal.TIMESTAMP)
        if not account.nonce <= transfer.nonce < account.nonce + 16:
            raise Refused(Refusal.NONCE)
        own = self.of(transfer.sender)
        replaced = [entry for entry in own if entry.transfer.nonce == transfer.nonce]
        if any(10 * transfer.fee < 11 * entry.transfer.fee for entry in replaced):
            raise Refused(Refusal.FEE)
        kept = sum(entry.cost for entry in own if entry not in replaced)
        entry = Waiting(transfer, sequence)
        if kept + entry.cost > account.balance:
            raise Refused(Refusal.BALANCE)
        if kept + entry.cost + self.account_minimum > account.balance:
            raise Refused(Refusal.SENDER_MINIMUM)
        if self.accounts[transfer.recipient].balance + transfer.amount < self.account_minimum:
            raise Refused(Refusal.RECIPIENT_MINIMUM)
        behind = 0 if self._in_line(entry) else 1 + sum(other not in replaced for other in self._behind_gaps())
        if behind > max(self.max_transactions // 10, 1):
            raise Refused(Refusal.POOL)
        leaving = replaced + self._victims(entry, replaced)
        self.waiting = [other for other in self.waiting if other not in leaving] + [entry]
        return [other.transfer.txid for other in leaving]

    def _in_line(self, entry: Waiting) -> bool:
        """Whether nothing is missing before it."""
        own = {other.transfer.nonce for other in self.of(entry.transfer.sender)}
        return own.issuperset(range(self.accounts[entry.transfer.sender].nonce, entry.transfer.nonce))

    def _behind_gaps(self) -> list[Waiting]:
        return [entry for entry in self.waiting if not self._in_line(entry)]

    def _victims(self, entry: Waiting, replaced: list[Waiting]) -> list[Waiting]:
        others = {other.transfer.sender for other in self.waiting} - {entry.transfer.sender}
        lasts = [self.of(sender)[-1] for sender in others]
        lasts.sort(key=lambda last: (self._in_line(last), last.rate, -last.sequence))
        cheaper = [last for last in lasts if last.rate < entry.rate or not self._in_line(last)]
        if not self._in_line(entry):
            cheaper = []
        for number in range(len(cheaper) + 1):
            rest = [other for other in self.waiting if other not in replaced and other not in cheaper[:number]]
            size = sum(len(other.transfer.wire) for other in [*rest, entry])
            if len(rest) < self.max_transactions and size <= self.max_bytes:
                return cheaper[:number]
        raise Refused(Refusal.POOL)

    def settle(self, txids: Iterable[bytes], accounts: Mapping[bytes, Account]) -> set[bytes]:
        """The txids that leave when ``txids`` are in blocks and ``accounts`` have changed."""
        before = {entry.transfer.txid for entry in self.waiting}
        self.drop(txids)
        for sender, account in accounts.items():
            own = self.of(sender)
            while own and own[0].transfer.nonce < account.nonce:
                own.pop(0)
            while own and sum(entry.cost for entry in own) + self.account_minimum > account.balance:
                own.pop()
            self.waiting = [entry for entry in self.waiting if entry.transfer.sender != sender or entry in own]
        return before - {entry.transfer.txid for entry in self.waiting}

    def expire(self, oldest: int) -> set[bytes]:
        """The txids that leave because no block may hold them any more."""
        return self.drop([entry.transfer.txid for entry in self.waiting if entry.transfer.timestamp < oldest])

    def drop(self, txids: Iterable[bytes]) -> set[bytes]:
        """Those of ``txids`` that waited."""
        gone = [entry for entry in self.waiting if entry.transfer.txid in set(txids)]
        self.waiting = [entry for entry in self.waiting if entry not in gone]
        return {entry.transfer.txid for entry in gone}
