"""The transfers that wait for a block: policy, not consensus (docs/protocol.md 12).

A pure structure: whoever holds it says what the accounts are and what time it is, and writes to disk what it answers.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import heapify, heappop, heappush
from typing import Final

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.node.common import common
from svcd.node.leavers import Leaver, Leavers
from svcd.node.queues import RATE_SCALE, Entry, Queue

__all__ = ["AHEAD", "Admission", "Entry", "Mempool", "Window"]

AHEAD: Final = 16
"""How many transfers of one sender may wait."""
_BEHIND_GAPS: Final = 10
"""Transfers behind a gap in their sender's nonces may be one in so many: no block can hold them yet."""


@frozen
class Window:
    """The timestamps in milliseconds of transfers that may wait now."""

    oldest: int
    newest: int


@frozen
class Admission:
    """What changed when a transfer came in."""

    entry: Entry
    removed: tuple[Entry, ...]
    accounts: Mapping[bytes, Account]
    """Of the senders of what left, as they were known."""


class Mempool:
    """Waiting transfers, at most ``max_transactions`` and ``max_bytes`` of canonical JSON."""

    def __init__(self, params: NetworkParams, *, max_transactions: int, max_bytes: int) -> None:
        self._params = params
        self._max_transactions = max_transactions
        self._max_bytes = max_bytes
        self._queues: dict[bytes, Queue] = {}
        self._entries: dict[bytes, Entry] = {}
        self._bytes = 0
        self._lines: dict[int, tuple[Entry, ...]] = {}
        """What could go into a block, of each sender by the local number of its first transfer."""
        self._heads: list[int] = []
        """A heap of how these rank (see _rank); those of transfers that are no first ones any more are skipped."""
        self._in_line = 0
        """How many transfers that is."""
        self._leavers = Leavers(self._is_last)
        self._numbers: list[int] = []
        """The local numbers of all that wait, and of some that did, in ascending order."""
        self._txids: list[bytes] = []
        """To each number the txid."""
        self._in_order = True
        """False if both have to be made anew."""

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
        return sorted(self._entries.values(), key=lambda entry: entry.sequence)

    def since(self, sequence: int, limit: int) -> list[Entry]:
        """The first ``limit`` waiting transfers that came after local number ``sequence``, in order of arrival."""
        if not self._is_orderly():
            self._put_in_order(self.entries())
        found: list[Entry] = []
        gone = 0
        for index in range(bisect_left(self._numbers, sequence + 1), len(self._numbers)):
            entry = self._entries.get(self._txids[index])
            if entry is None or entry.sequence != self._numbers[index]:
                gone += 1
                continue
            found.append(entry)
            if len(found) == limit:
                break
        if gone > len(self._entries) // 8 + 64:
            # The next question need not go past them again.
            waiting = (self._entries.get(txid) for txid in self._txids)
            order = zip(self._numbers, waiting, strict=True)
            self._put_in_order([entry for number, entry in order if entry is not None and entry.sequence == number])
        return found

    def _put_in_order(self, entries: Sequence[Entry]) -> None:
        self._numbers = [entry.sequence for entry in entries]
        self._txids = [entry.transfer.txid for entry in entries]
        self._in_order = True

    def pending_nonce(self, sender: bytes, account: Account) -> int:
        """The next nonce that ``sender`` can use, counting what waits without a gap."""
        queue = self._queues.get(sender)
        return account.nonce if queue is None else queue.next_nonce(account.nonce)

    def lines(self) -> Iterator[tuple[Entry, ...]]:
        """For every sender the transfers that could go into a block one after the other, as they are now.

        The line whose first transfer pays most per byte comes first. A thread may go through them: the copies take
        less than a millisecond, and a block takes only what it has room for.
        """
        return _best_first(self._heads.copy(), self._lines.copy())

    def window(self, tip_slot: int, now: int) -> Window:
        """Which timestamps may wait for a block on a tip at ``tip_slot`` at the time ``now`` in milliseconds."""
        params = self._params
        # Blocks on demand go on from the tip and not from the clock: far behind it they may hold what is older.
        block_time = min(now, params.slot_time(tip_slot + params.slots_per_block))
        oldest = block_time - 1000 * params.transaction_past_seconds
        return Window(oldest, now + 1000 * params.transaction_future_seconds)

    def check(self, transfer: Transfer, account: Account, window: Window) -> list[Entry]:
        """What would have to leave for ``transfer``, given the sender's ``account`` and what timestamps may be.

        Raises RuleViolation: TIMESTAMP, NONCE, FEE, BALANCE or POOL.
        """
        if transfer.timestamp < window.oldest:
            raise RuleViolation(Refusal.TIMESTAMP, f"expired: timestamp must be at least {window.oldest} by now")
        if transfer.timestamp > window.newest:
            raise RuleViolation(
                Refusal.TIMESTAMP, f"timestamp lies in the future; it must be at most {window.newest} by now"
            )
        if transfer.nonce < account.nonce:
            raise RuleViolation(
                Refusal.NONCE, f"nonce {transfer.nonce} is already used; the next one is {account.nonce}"
            )
        if transfer.nonce >= account.nonce + AHEAD:
            most = account.nonce + AHEAD - 1
            raise RuleViolation(Refusal.NONCE, f"nonce {transfer.nonce} is too far ahead; at most {most} may wait now")
        queue = self._queues.get(transfer.sender)
        replaced = queue.at(transfer.nonce) if queue else None
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
        if transfer.nonce > self.pending_nonce(transfer.sender, account):
            return self._behind_gap(transfer, replaced, account)
        return self._victims(transfer, replaced)

    def admit(self, transfer: Transfer, account: Account, *, window: Window, sequence: int) -> Admission:
        """Take ``transfer`` in, whose signature has been verified; raises what :meth:`check` raises."""
        return self.enter(transfer, account, leaving=self.check(transfer, account, window), sequence=sequence)

    def enter(self, transfer: Transfer, account: Account, *, leaving: Sequence[Entry], sequence: int) -> Admission:
        """The same for one of which :meth:`check` has just said what is ``leaving``."""
        accounts = {entry.transfer.sender: self._queues[entry.transfer.sender].account for entry in leaving}
        self._remove(leaving)
        entry = Entry(transfer, sequence)
        self._append(entry)
        self._insert(entry, account)
        return Admission(entry, tuple(leaving), accounts)

    def revert(self, admission: Admission) -> None:
        """Undo the newest admission of all that have not been undone."""
        self._remove([admission.entry])
        for entry in admission.removed:
            self._insert(entry, admission.accounts[entry.transfer.sender])

    def _insert(self, entry: Entry, account: Account) -> None:
        transfer = entry.transfer
        queue = self._queues.get(transfer.sender)
        if queue is None:
            queue = self._queues[transfer.sender] = Queue(account)
        queue.account = account
        queue.put(entry)
        self._entries[transfer.txid] = entry
        self._bytes += len(transfer.wire)
        self._align(transfer.sender, queue)

    def settle(self, txids: Collection[bytes], accounts: Mapping[bytes, Account]) -> list[Entry]:
        """Bring the pool up to a new tip: ``txids`` are in blocks now, and ``accounts`` changed; gives what left."""
        left = self._take(txids)
        for sender in common(self._queues, accounts):
            queue = self._queues[sender]
            queue.account = accounts[sender]
            stale = queue.stale()
            self._align(sender, queue)
            self._remove(stale)
            left += stale
        return left

    def expire(self, oldest: int, among: Iterable[Entry] | None = None) -> list[Entry]:
        """Let go of transfers with timestamps before ``oldest``, which no block may hold; gives what left.

        Only ``among`` these, where there are so many transfers that it is better done in steps.
        """
        looked_at = self._entries.values() if among is None else among
        return self._take([entry.transfer.txid for entry in looked_at if entry.transfer.timestamp < oldest])

    def drop(self, txids: Collection[bytes]) -> list[Entry]:
        """Let go of the transfers with ``txids`` that wait; gives what left."""
        return self._take(txids)

    def _take(self, txids: Collection[bytes]) -> list[Entry]:
        left = [self._entries[txid] for txid in common(self._entries, txids)]
        self._remove(left)
        return left

    def _remove(self, entries: Iterable[Entry]) -> None:
        senders: dict[bytes, Queue] = {}
        for entry in entries:
            transfer = entry.transfer
            queue = senders.setdefault(transfer.sender, self._queues[transfer.sender])
            del self._entries[transfer.txid]
            queue.remove(entry)
            self._bytes -= len(transfer.wire)
        for sender, queue in senders.items():
            self._align(sender, queue)

    def _append(self, entry: Entry) -> None:
        if self._is_orderly() and (not self._numbers or entry.sequence > self._numbers[-1]):
            self._numbers.append(entry.sequence)
            self._txids.append(entry.transfer.txid)
        else:
            self._in_order = False
            self._numbers.clear()
            self._txids.clear()

    def _is_orderly(self) -> bool:
        """Whether the order is complete, and not mostly of transfers that wait no longer."""
        return self._in_order and len(self._numbers) <= 2 * len(self._entries) + 64

    def _align(self, sender: bytes, queue: Queue) -> None:
        """Bring all that is worked out from the queue up to date with it."""
        before = queue.line
        queue.align()
        self._in_line += len(queue.line) - len(before)
        if before and (not queue.line or queue.line[0] is not before[0]):
            del self._lines[before[0].sequence]
        if queue.line:
            self._lines[queue.line[0].sequence] = queue.line
            if not before or queue.line[0] is not before[0]:
                self._note_head(queue.line[0])
        if not queue.entries:
            del self._queues[sender]
        elif queue.leaver != (last := queue.last()):
            queue.leaver = last
            self._leavers.note(last, waiting=len(self._entries))

    def _note_head(self, head: Entry) -> None:
        heappush(self._heads, _rank(head))
        if len(self._heads) > 2 * len(self._lines) + 64:
            self._heads = [_rank(line[0]) for line in self._lines.values()]
            heapify(self._heads)

    def _is_last(self, item: Leaver) -> bool:
        entry = self._entries.get(item[-1])
        return entry is not None and self._queues[entry.transfer.sender].leaver == item

    def _behind_gap(self, transfer: Transfer, replaced: Entry | None, account: Account) -> list[Entry]:
        """What a transfer takes the place of that no block can hold yet: it makes nobody else leave."""
        victims = [replaced] if replaced else []
        count, size = self._with(transfer, victims)
        behind = count - self._in_line
        most = max(self._max_transactions // _BEHIND_GAPS, 1)
        if behind > most or count > self._max_transactions or size > self._max_bytes:
            missing = self.pending_nonce(transfer.sender, account)
            raise RuleViolation(
                Refusal.POOL, f"too many transfers wait for an earlier nonce; send the one with nonce {missing} first"
            )
        return victims

    def _with(self, transfer: Transfer, victims: list[Entry]) -> tuple[int, int]:
        """Count and size of the pool with ``transfer`` and without ``victims``."""
        size = self._bytes + len(transfer.wire) - sum(len(entry.transfer.wire) for entry in victims)
        return len(self._entries) + 1 - len(victims), size

    def _victims(self, transfer: Transfer, replaced: Entry | None) -> list[Entry]:
        """What must leave so that ``transfer`` fits: of other senders, with nothing built on it.

        What no block can hold yet goes first, whatever it pays; then what pays less.
        """
        victims = [replaced] if replaced else []
        count, size = self._with(transfer, victims)
        if count <= self._max_transactions and size <= self._max_bytes:
            return victims
        rate = Entry(transfer, 0).rate
        with closing(self._leavers.in_order()) as leavers:
            while count > self._max_transactions or size > self._max_bytes:
                item = next(leavers, None)
                if item is None or (item[0] and item[1] >= rate):
                    raise RuleViolation(Refusal.POOL, _full(transfer, item))
                entry = self._entries[item[-1]]
                if entry.transfer.sender != transfer.sender:
                    victims.append(entry)
                    count, size = count - 1, size - len(entry.transfer.wire)
        return victims


_NUMBER_BITS: Final = 64
_NUMBERS: Final = (1 << _NUMBER_BITS) - 1


def _rank(entry: Entry) -> int:
    """Less for what pays more per byte, or as much and came earlier: one integer takes half as much as a tuple."""
    return (-entry.rate << _NUMBER_BITS) + entry.sequence


def _best_first(heads: list[int], lines: dict[int, tuple[Entry, ...]]) -> Iterator[tuple[Entry, ...]]:
    while heads:
        # A first transfer that was replaced and came back is in the heap twice.
        line = lines.pop(heappop(heads) & _NUMBERS, None)
        if line is not None:
            yield line


def _full(transfer: Transfer, item: Leaver | None) -> str:
    if item is None:
        return "the pool is full of transfers that others build on; send this one again later"
    # The least fee whose rate is the next one above; its rate rounds down, and so must not be taken for exact.
    least = -(-(item[1] + 1) * len(transfer.wire) // RATE_SCALE)
    return f"the pool is full: for this transfer the fee must exceed {least - 1} base units"
