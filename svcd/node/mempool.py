"""The transfers that wait for a block: policy, not consensus (docs/protocol.md 12).

A pure structure: whoever holds it says what the accounts are and what time it is, and writes to disk what it answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Final

from attrs import define, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer

AHEAD: Final = 16
"""How many transfers of one sender may wait."""
_RATE_SCALE: Final = 2**20


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
        return self.transfer.fee * _RATE_SCALE // len(self.transfer.wire)


@frozen
class Admission:
    """What changed when a transfer came in."""

    entry: Entry
    removed: tuple[Entry, ...]


@define
class _Queue:
    """The waiting transfers of one sender by nonce, and the sender's account after the tip."""

    account: Account
    entries: dict[int, Entry] = field(factory=dict)
    line: tuple[Entry, ...] = ()
    """Those that could go into a block one after the other."""

    def align(self) -> None:
        """Bring the line up to date with account and entries."""
        nonce, line = self.account.nonce, []
        while nonce in self.entries:
            line.append(self.entries[nonce])
            nonce += 1
        self.line = tuple(line)

    @property
    def last(self) -> Entry:
        return self.entries[max(self.entries)]

    def cost(self) -> int:
        return sum(entry.transfer.amount + entry.transfer.fee for entry in self.entries.values())


class Mempool:
    """Waiting transfers, at most ``max_transactions`` and ``max_bytes`` of canonical JSON."""

    def __init__(self, params: NetworkParams, *, max_transactions: int, max_bytes: int) -> None:
        self._params = params
        self._max_transactions = max_transactions
        self._max_bytes = max_bytes
        self._queues: dict[bytes, _Queue] = {}
        self._entries: dict[bytes, Entry] = {}
        self._bytes = 0
        self._lasts: list[tuple[int, int, bytes]] = []
        """A heap of (rate, −sequence, txid) of each sender's last transfer; stale items are skipped."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._entries

    @property
    def size(self) -> int:
        """Bytes of canonical JSON of all waiting transfers."""
        return self._bytes

    def get(self, txid: bytes) -> Entry | None:
        """A waiting transfer by its id."""
        return self._entries.get(txid)

    def entries(self) -> list[Entry]:
        """All waiting transfers in order of arrival."""
        return list(self._entries.values())

    def since(self, sequence: int, limit: int) -> list[Entry]:
        """The first ``limit`` waiting transfers that came after local number ``sequence``, in order of arrival."""
        later = list(takewhile(lambda entry: entry.sequence > sequence, reversed(self._entries.values())))
        return later[::-1][:limit]

    def pending_nonce(self, sender: bytes, account: Account) -> int:
        """The next nonce that ``sender`` can use, counting what waits without a gap."""
        queue = self._queues.get(sender)
        nonce = account.nonce
        while queue is not None and nonce in queue.entries:
            nonce += 1
        return nonce

    def lines(self) -> list[tuple[Entry, ...]]:
        """For every sender the transfers that could go into a block one after the other; safe to hand to a thread."""
        return [queue.line for queue in self._queues.values() if queue.line]

    def check(self, transfer: Transfer, account: Account, now: int) -> list[Entry]:
        """What would have to leave for ``transfer``, given the sender's ``account`` and the time in milliseconds.

        Raises RuleViolation: TIMESTAMP, NONCE, FEE, BALANCE or POOL.
        """
        self._check_time(transfer, now)
        if transfer.nonce < account.nonce:
            raise RuleViolation(
                Refusal.NONCE, f"nonce {transfer.nonce} is already used; the next one is {account.nonce}"
            )
        if transfer.nonce >= account.nonce + AHEAD:
            most = account.nonce + AHEAD - 1
            raise RuleViolation(Refusal.NONCE, f"nonce {transfer.nonce} is too far ahead; at most {most} may wait now")
        queue = self._queues.get(transfer.sender)
        replaced = queue.entries.get(transfer.nonce) if queue else None
        if replaced is not None and transfer.fee * 10 < replaced.transfer.fee * 11:
            least = -(-replaced.transfer.fee * 11 // 10)
            raise RuleViolation(
                Refusal.FEE,
                f"nonce {transfer.nonce} is taken by a waiting transfer; replacing it needs a fee of {least}",
            )
        cost = transfer.amount + transfer.fee + (queue.cost() if queue else 0)
        if replaced is not None:
            cost -= replaced.transfer.amount + replaced.transfer.fee
        if cost > account.balance:
            raise RuleViolation(
                Refusal.BALANCE,
                f"the balance is {cost - account.balance} base units short of amount, fee and what waits already",
            )
        return self._victims(transfer, replaced)

    def _check_time(self, transfer: Transfer, now: int) -> None:
        oldest = now - 1000 * self._params.transaction_past_seconds
        newest = now + 1000 * self._params.transaction_future_seconds
        if transfer.timestamp < oldest:
            raise RuleViolation(Refusal.TIMESTAMP, f"expired: timestamp must be at least {oldest} by now")
        if transfer.timestamp > newest:
            raise RuleViolation(Refusal.TIMESTAMP, f"timestamp lies in the future; it must be at most {newest} by now")

    def admit(self, transfer: Transfer, account: Account, *, now: int, sequence: int) -> Admission:
        """Take ``transfer`` in, whose signature has been verified; raises what :meth:`check` raises."""
        removed = self.check(transfer, account, now)
        for entry in removed:
            self._remove(entry)
        entry = Entry(transfer, sequence)
        queue = self._queues.setdefault(transfer.sender, _Queue(account))
        queue.account = account
        queue.entries[transfer.nonce] = entry
        self._entries[transfer.txid] = entry
        self._bytes += len(transfer.wire)
        queue.align()
        self._note_last(queue)
        return Admission(entry, tuple(removed))

    def settle(self, txids: Iterable[bytes], accounts: Mapping[bytes, Account]) -> list[Entry]:
        """Bring the pool up to a new tip: ``txids`` are in blocks now, and ``accounts`` changed; gives what left."""
        left = self._take(txids)
        for sender in [sender for sender in accounts if sender in self._queues]:
            queue = self._queues[sender]
            queue.account = account = accounts[sender]
            stale = [entry for nonce, entry in queue.entries.items() if nonce < account.nonce]
            cost = queue.cost() - sum(entry.transfer.amount + entry.transfer.fee for entry in stale)
            for nonce in sorted(queue.entries, reverse=True):
                if cost <= account.balance:
                    break
                stale.append(queue.entries[nonce])
                cost -= stale[-1].transfer.amount + stale[-1].transfer.fee
            queue.align()
            for entry in stale:
                self._remove(entry)
            left += stale
        return left

    def expire(self, now: int) -> list[Entry]:
        """Let go of what no block may hold any more at the time ``now`` in milliseconds; gives what left."""
        oldest = now - 1000 * self._params.transaction_past_seconds
        left = [entry for entry in self._entries.values() if entry.transfer.timestamp < oldest]
        for entry in left:
            self._remove(entry)
        return left

    def drop(self, txids: Iterable[bytes]) -> list[Entry]:
        """Let go of the transfers with ``txids`` that wait; gives what left."""
        return self._take(txids)

    def _take(self, txids: Iterable[bytes]) -> list[Entry]:
        left = [self._entries[txid] for txid in dict.fromkeys(txids) if txid in self._entries]
        for entry in left:
            self._remove(entry)
        return left

    def _remove(self, entry: Entry) -> None:
        transfer = entry.transfer
        queue = self._queues[transfer.sender]
        del self._entries[transfer.txid], queue.entries[transfer.nonce]
        self._bytes -= len(transfer.wire)
        if queue.entries:
            queue.align()
            self._note_last(queue)
        else:
            del self._queues[transfer.sender]

    def _note_last(self, queue: _Queue) -> None:
        entry = queue.last
        heappush(self._lasts, (entry.rate, -entry.sequence, entry.transfer.txid))
        if len(self._lasts) > 2 * len(self._entries) + 64:
            # A set: a sender's last transfer is noted again whenever one before it is replaced.
            self._lasts = list({item for item in self._lasts if self._is_last(item[2])})
            heapify(self._lasts)

    def _is_last(self, txid: bytes) -> bool:
        entry = self._entries.get(txid)
        return entry is not None and self._queues[entry.transfer.sender].last is entry

    def _victims(self, transfer: Transfer, replaced: Entry | None) -> list[Entry]:
        """What must leave so that ``transfer`` fits: cheaper than it, of other senders, with nothing built on it."""
        victims = [replaced] if replaced else []
        seen: list[tuple[int, int, bytes]] = []
        count, size = len(self._entries) + 1 - len(victims), self._bytes + len(transfer.wire)
        size -= sum(len(entry.transfer.wire) for entry in victims)
        rate = Entry(transfer, 0).rate
        try:
            while count > self._max_transactions or size > self._max_bytes:
                item = self._cheapest_last(seen)
                if item is None or item[0] >= rate:
                    raise RuleViolation(Refusal.POOL, self._full(transfer, item))
                seen.append(item)
                entry = self._entries[item[2]]
                if entry.transfer.sender != transfer.sender:
                    victims.append(entry)
                    count, size = count - 1, size - len(entry.transfer.wire)
        finally:
            for item in seen:
                heappush(self._lasts, item)
        return victims

    def _cheapest_last(self, seen: Sequence[tuple[int, int, bytes]]) -> tuple[int, int, bytes] | None:
        while self._lasts:
            item = heappop(self._lasts)
            if self._is_last(item[2]) and item not in seen:
                return item
        return None

    def _full(self, transfer: Transfer, item: tuple[int, int, bytes] | None) -> str:
        if item is None:
            return "the pool is full of transfers that others build on; send this one again later"
        heappush(self._lasts, item)
        # The least fee whose rate is the next one above; its rate rounds down, and so must not be taken for exact.
        least = -(-(item[0] + 1) * len(transfer.wire) // _RATE_SCALE)
        return f"the pool is full: for this transfer the fee must exceed {least - 1} base units"
