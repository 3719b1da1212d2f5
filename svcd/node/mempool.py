"""The mempool: transfers that wait for a block. Policy, not consensus (docs/protocol.md 12).

A pure data structure: :class:`svcd.node.transaction_pool.TransactionPool` passes accounts and time in, and has written
each entry to disk before.

Why and where a transfer leaves the mempool: :class:`RemovalReason`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Set
from contextlib import closing
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from attrs import define, frozen

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import check_minimums
from svcd.limits import MEMPOOL_FLOOD, limit
from svcd.node.fee_rates import RATE_SCALE, fee_for_rate

MAX_PER_SENDER: Final = limit(16, "nonces ahead of the account's", "nonces", MEMPOOL_FLOOD)
"""How many transfers of one sender may wait."""

_BEHIND_GAPS: Final = 10
"""One in so many transfers may wait behind a gap in its sender's nonces, where no block can include it yet."""


def arrival_of(sequence: int) -> int:
    """When the transfer with a number came into the mempool, by the local clock: Unix milliseconds.

    See TransactionPool.sequence.
    """
    return sequence // 1_000


@frozen(eq=False, weakref_slot=False)
class MempoolEntry:
    """A waiting transfer."""

    transfer: Transfer
    sequence: int
    """Its number in the local order of arrival."""
    returned: bool = False
    """Whether a reorganisation has brought it back."""

    @property
    def arrival(self) -> int:
        """See :func:`arrival_of`."""
        return arrival_of(self.sequence)

    @property
    def rate(self) -> int:
        """The fee per byte in 2^-20 base units, by which transfers are chosen for a block."""
        return self.transfer.fee * RATE_SCALE // len(self.transfer.wire)


class RemovalReason(StrEnum):
    """Why a transfer has left the mempool; the listeners of the transaction pool get it with the transfer.

    Three cases are no removals, because no listener heard of the transfer: it is only tried whether it can enter
    (:meth:`Mempool.revert`), a stored transfer is refused at the start of the node (``TransactionPool.load``), or the
    transfer of an undone block is parked or dropped (``TransactionPool._readmit``).
    """

    BLOCK = "block"
    """A block includes it (:meth:`Mempool.follow_chain`)."""
    CONFLICT = "conflict"
    """A block includes other transfers of the sender, which use its nonce or leave too little balance.

    Removed by :meth:`Mempool.follow_chain`.
    """
    REORG = "reorg"
    """After a reorganisation the balance is too small; the transfer is parked and may return.

    Removed by :meth:`Mempool.follow_chain`.
    """
    EXPIRY = "expiry"
    """Its timestamp is too old for any block (:meth:`Mempool.expire`)."""
    SIZE_LIMIT = "size limit"
    """The mempool is full, and a transfer with a higher fee rate has arrived.

    Chosen by :meth:`Mempool.check`, removed by :meth:`Mempool.enter`.
    """
    REPLACED = "replaced"
    """A transfer with the same nonce and a higher fee replaces it; chosen and removed in the same way."""
    DROPPED = "dropped"
    """Devnet's reorganisation drops it on request (:meth:`Mempool.drop`)."""


Removals = Mapping[MempoolEntry, RemovalReason]
"""Entries that have left the mempool, or are to leave it, and why."""

EvictionKey = tuple[bool, int, int, bytes]
"""Whether a block could include the transfer, its fee rate, minus its sequence number, its txid; least goes first."""


@define(eq=False, weakref_slot=False)
class SenderQueue:
    """The waiting transfers of one sender, and the sender's account after the tip."""

    account: Account
    entries: tuple[MempoolEntry, ...] = ()
    """By nonce; MAX_PER_SENDER at most, and nearly always one."""
    line: tuple[MempoolEntry, ...] = ()
    """The executable ones: nonces without a gap from the account's on."""
    eviction_key: EvictionKey | None = None
    """The key of the last entry in the eviction queue."""

    def at(self, nonce: int) -> MempoolEntry | None:
        """The entry with ``nonce``."""
        for entry in self.entries:
            if entry.transfer.nonce == nonce:
                return entry
        return None

    def put(self, entry: MempoolEntry) -> None:
        """Add an entry whose nonce is free."""
        self.entries = tuple(sorted((*self.entries, entry), key=_nonce))

    def remove(self, entry: MempoolEntry) -> None:
        """Remove an entry."""
        self.entries = tuple([other for other in self.entries if other is not entry])

    def next_nonce(self, nonce: int) -> int:
        """The first free nonce from ``nonce`` on."""
        for entry in self.entries:
            if entry.transfer.nonce == nonce:
                nonce += 1
        return nonce

    def update_line(self) -> None:
        """Compute the line from account and entries."""
        first = self.account.nonce
        end = self.next_nonce(first)
        line = tuple([entry for entry in self.entries if first <= entry.transfer.nonce < end])
        # Nearly always the same; one tuple then serves for both.
        self.line = self.entries if len(line) == len(self.entries) else line

    def last_key(self) -> EvictionKey:
        """The key of the entry with the highest nonce, on which no other depends."""
        entry = self.entries[-1]
        in_line = bool(self.line) and self.line[-1] is entry
        return in_line, entry.rate, -entry.sequence, entry.transfer.txid

    def cost(self) -> int:
        """Base units that all entries together spend."""
        return sum([entry.transfer.amount + entry.transfer.fee for entry in self.entries])

    def stale(self, uncovered: RemovalReason, *, minimum: int) -> dict[MempoolEntry, RemovalReason]:
        """The entries that the account rules out: those with used nonces, and from the end those it cannot pay.

        ``uncovered`` is the reason of the latter; ``minimum`` are the base units that the account must keep.
        """
        used = [entry for entry in self.entries if entry.transfer.nonce < self.account.nonce]
        stale = dict.fromkeys(used, RemovalReason.CONFLICT)
        cost = self.cost() - sum(entry.transfer.amount + entry.transfer.fee for entry in used)
        for entry in reversed(self.entries):
            if cost + minimum <= self.account.balance or entry.transfer.nonce < self.account.nonce:
                break
            stale[entry] = uncovered
            cost -= entry.transfer.amount + entry.transfer.fee
        return stale


class EvictionQueue:
    """A heap with the last transfer of each sender; keys for which ``is_current`` is false are skipped."""

    def __init__(self, is_current: Callable[[EvictionKey], bool]) -> None:
        self._is_current = is_current
        self._heap: list[EvictionKey] = []

    def add(self, key: EvictionKey, *, waiting: int) -> None:
        """Add ``key``; stale keys are removed once there are more than twice as many keys as ``waiting`` transfers."""
        heappush(self._heap, key)
        if len(self._heap) > 2 * waiting + 64:
            # Use a set: a key may be in the heap twice, if its transfer became its sender's last one again.
            self._heap = list({key for key in self._heap if self._is_current(key)})
            heapify(self._heap)

    def in_order(self) -> Generator[EvictionKey, None, None]:
        """The keys in the order of eviction; closing the generator puts them all back."""
        seen: set[EvictionKey] = set()
        try:
            while self._heap:
                key = heappop(self._heap)
                if key not in seen and self._is_current(key):
                    seen.add(key)
                    yield key
        finally:
            for key in seen:
                heappush(self._heap, key)


@frozen
class TimestampWindow:
    """The timestamps in milliseconds that transfers may have now."""

    oldest: int
    newest: int


@frozen
class Admission:
    """A transfer's entry into the mempool, as it can be reverted."""

    entry: MempoolEntry
    removed: Removals
    accounts: Mapping[bytes, Account]
    """The accounts of the senders of ``removed``, as the mempool knew them."""


class Mempool:
    """Waiting transfers: at most ``max_transactions``, and ``max_bytes`` of canonical JSON."""

    def __init__(self, params: NetworkParams, *, max_transactions: int, max_bytes: int) -> None:
        self._params = params
        self.max_transactions = max_transactions
        self.max_bytes = max_bytes
        self._queues: dict[bytes, SenderQueue] = {}
        self._entries: dict[bytes, MempoolEntry] = {}
        self.size = 0
        """Bytes of canonical JSON of all entries."""
        self._lines: dict[int, tuple[MempoolEntry, ...]] = {}
        """The lines of all senders, by the sequence number of their first entries."""
        self._heads: list[int] = []
        """A heap of the ranks of these first entries (see _rank), and of some that are first no more."""
        self._in_line = 0
        """How many entries the lines have."""
        self._evictions = EvictionQueue(self._is_last)
        self.returned: set[bytes] = set()
        """The txids of the entries that a reorganisation has brought back; for reading only."""
        self._arrivals: list[MempoolEntry] | None = []
        """All entries in order of arrival, and some that have left; None if it must be built anew."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._entries

    def get(self, txid: bytes) -> MempoolEntry | None:
        """The entry of a transfer by its id."""
        return self._entries.get(txid)

    def transfer(self, txid: bytes) -> Transfer | None:
        """A waiting transfer by its id; for any thread."""
        entry = self._entries.get(txid)
        return None if entry is None else entry.transfer

    def entries(self) -> list[MempoolEntry]:
        """All entries in order of arrival."""
        return sorted(self._entries.values(), key=_sequence)

    def snapshot(self) -> list[MempoolEntry]:
        """All entries in any order; takes less than a millisecond."""
        return list(self._entries.values())

    def since(self, sequence: int, limit: int) -> list[MempoolEntry]:
        """The first ``limit`` entries after the local number ``sequence``, in order of arrival."""
        arrivals = self._in_order()
        return self._present(range(bisect_right(arrivals, sequence, key=_sequence), len(arrivals)), limit)

    def newest(self, limit: int, *, before: int) -> list[MempoolEntry]:
        """The last ``limit`` entries before the local number ``before``, newest first."""
        return self._present(range(bisect_left(self._in_order(), before, key=_sequence) - 1, -1, -1), limit)

    def _in_order(self) -> list[MempoolEntry]:
        if self._arrivals is None:
            self._arrivals = self.entries()
        return self._arrivals

    def _present(self, positions: range, limit: int) -> list[MempoolEntry]:
        """The first ``limit`` entries at these places among the arrivals that have not left."""
        arrivals, entries = self._in_order(), self._entries
        waiting = (each for each in (arrivals[at] for at in positions) if entries.get(each.transfer.txid) is each)
        return list(islice(waiting, limit))

    def pending_nonce(self, sender: bytes, account: Account) -> int:
        """The next nonce that ``sender`` can use after the waiting transfers without a gap."""
        queue = self._queues.get(sender)
        return account.nonce if queue is None else queue.next_nonce(account.nonce)

    def pending_balance(self, sender: bytes, account: Account) -> int:
        """What the waiting transfers of ``sender`` leave of its balance, in base units; not what others send to it."""
        waiting = [entry.transfer for entry in self.sent_by(sender)]
        spent = [
            each.fee + (0 if each.recipient == sender else each.amount)
            for each in waiting
            # The mempool hears of a block only after its commit.
            if each.nonce >= account.nonce
        ]
        return max(account.balance - sum(spent), 0)

    def sent_by(self, sender: bytes) -> tuple[MempoolEntry, ...]:
        """The entries of ``sender`` by nonce, MAX_PER_SENDER at most."""
        queue = self._queues.get(sender)
        return () if queue is None else queue.entries

    def is_in_line(self, entry: MempoolEntry) -> bool:
        """Whether a block could include ``entry`` with its sender's transfers before it; not behind a missing nonce."""
        return entry in self._queues[entry.transfer.sender].line

    def floor(self, size: int) -> int | None:
        """The least fee with which a transfer of ``size`` bytes is let in: 0 while there is room.

        None while the mempool is full of transfers that cannot be evicted. The network's minimum fee is not
        nothing.
        """
        count, total, rate = len(self._entries) + 1, self.size + size, -1
        with closing(self._evictions.in_order()) as keys:
            while self._is_too_much(count, total):
                key = next(keys, None)
                if key is None:
                    return None
                rate = max(rate, key[1] if key[0] else -1)
                count, total = count - 1, total - len(self._entries[key[-1]].transfer.wire)
        return fee_for_rate(rate + 1, size)

    def lines(self) -> Iterator[tuple[MempoolEntry, ...]]:
        """A snapshot of every sender's executable entries, the line whose first entry has the highest fee rate first.

        For any thread: the two copies take less than a millisecond, and a block template takes what it has room for.
        """
        return _best_first(self._heads.copy(), self._lines.copy())

    def window(self, tip_slot: int, now: int) -> TimestampWindow:
        """The timestamps that transfers for a block on a tip at ``tip_slot`` may have at ``now``, in milliseconds."""
        params = self._params
        # Devnet's blocks continue from the tip and not from the clock: far behind it they may include older ones.
        block_time = min(now, params.slot_time(tip_slot + params.slots_per_block))
        oldest = block_time - 1000 * params.transaction_past_seconds
        return TimestampWindow(oldest, now + 1000 * params.transaction_future_seconds)

    def check(self, transfer: Transfer, accounts: Mapping[bytes, Account], window: TimestampWindow) -> Removals:
        """What must leave the mempool for ``transfer``, given the ``accounts`` of its sender and its recipient.

        Raises RuleViolation: TIMESTAMP, NONCE, FEE, BALANCE, SENDER_MINIMUM, RECIPIENT_MINIMUM or POOL.
        """
        account = accounts[transfer.sender]
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
        if transfer.nonce >= account.nonce + MAX_PER_SENDER:
            last = account.nonce + MAX_PER_SENDER - 1
            raise RuleViolation(
                Refusal.NONCE, f"nonce {transfer.nonce} is too far ahead; the highest nonce accepted now is {last}"
            )
        queue = self._queues.get(transfer.sender)
        replaced = queue.at(transfer.nonce) if queue else None
        if replaced is not None and transfer.fee * 10 < replaced.transfer.fee * 11:
            nonce, min_fee = transfer.nonce, -(-replaced.transfer.fee * 11 // 10)
            raise RuleViolation(
                Refusal.FEE,
                f"nonce {nonce} is taken by a waiting transfer; replacing it needs a fee of {min_fee} base units",
            )
        cost = transfer.amount + transfer.fee + (queue.cost() if queue else 0)
        if replaced is not None:
            cost -= replaced.transfer.amount + replaced.transfer.fee
        minimum = self._params.account_minimum
        if cost > account.balance:
            raise RuleViolation(
                Refusal.BALANCE,
                f"the balance is {cost + minimum - account.balance} base units short of amount, fee, the pending"
                f" transfers and the {minimum} base units that the sender must keep",
            )
        # What waits for either account is not counted: it may never get into a block.
        check_minimums(
            self._params,
            transfer,
            sender=account.balance - cost,
            recipient=accounts[transfer.recipient].balance + transfer.amount,
        )
        leaving = {replaced: RemovalReason.REPLACED} if replaced else {}
        count = len(self._entries) + 1 - len(leaving)
        size = self.size + len(transfer.wire) - (len(replaced.transfer.wire) if replaced else 0)
        missing = self.pending_nonce(transfer.sender, account)
        if transfer.nonce <= missing:
            return leaving | self._victims(transfer, count, size)
        # Behind a gap in the nonces: it evicts nothing, and only few may wait.
        behind, max_behind = count - self._in_line, max(self.max_transactions // _BEHIND_GAPS, 1)
        if behind > max_behind or self._is_too_much(count, size):
            raise RuleViolation(
                Refusal.POOL, f"too many transfers wait for an earlier nonce; send the one with nonce {missing} first"
            )
        return leaving

    def admit(
        self, transfer: Transfer, accounts: Mapping[bytes, Account], *, window: TimestampWindow, sequence: int
    ) -> Admission:
        """Add ``transfer``, whose signature has been verified; arguments and errors are those of :meth:`check`."""
        leaving = self.check(transfer, accounts, window)
        return self.enter(transfer, accounts[transfer.sender], leaving=leaving, sequence=sequence)

    def enter(
        self, transfer: Transfer, account: Account, *, leaving: Removals, sequence: int, returned: bool = False
    ) -> Admission:
        """Add ``transfer`` in the place of ``leaving``, the result of :meth:`check`.

        ``returned``: a reorganisation has brought it back.
        """
        accounts = {entry.transfer.sender: self._queues[entry.transfer.sender].account for entry in leaving}
        self._remove(leaving)
        entry = MempoolEntry(transfer, sequence, returned)
        if self._arrivals and self._arrivals[-1].sequence >= sequence:
            self._arrivals = None
        if self._arrivals is not None:
            self._arrivals.append(entry)
        self._insert(entry, account)
        return Admission(entry, leaving, accounts)

    def revert(self, admission: Admission) -> None:
        """Undo the newest admission; several in reverse order."""
        if self._arrivals and self._arrivals[-1] is admission.entry:
            self._arrivals.pop()
        else:
            self._arrivals = None
        self._remove([admission.entry])
        for entry in admission.removed:
            self._insert(entry, admission.accounts[entry.transfer.sender])

    def _insert(self, entry: MempoolEntry, account: Account) -> None:
        transfer = entry.transfer
        queue = self._queues.get(transfer.sender)
        if queue is None:
            queue = self._queues[transfer.sender] = SenderQueue(account)
        queue.account = account
        queue.put(entry)
        self._entries[transfer.txid] = entry
        if entry.returned:
            self.returned.add(transfer.txid)
        self.size += len(transfer.wire)
        self._align(transfer.sender, queue)

    def follow_chain(
        self, txids: Collection[bytes], accounts: Mapping[bytes, Account], *, reorganised: bool = False
    ) -> Removals:
        """Follow the chain: ``txids`` are in blocks now, and ``accounts`` have changed; gives what has left.

        ``reorganised``: blocks have been undone too.
        """
        removed = self._take(txids, RemovalReason.BLOCK)
        uncovered = RemovalReason.REORG if reorganised else RemovalReason.CONFLICT
        for sender in intersection(self._queues, accounts):
            queue = self._queues[sender]
            queue.account = accounts[sender]
            stale = queue.stale(uncovered, minimum=self._params.account_minimum)
            self._align(sender, queue)
            self._remove(stale)
            removed |= stale
        return removed

    def expire(self, oldest: int, among: Iterable[MempoolEntry]) -> Removals:
        """Remove and give the entries ``among`` these with timestamps before ``oldest``, which no block may include."""
        expired = [entry.transfer.txid for entry in among if entry.transfer.timestamp < oldest]
        return self._take(expired, RemovalReason.EXPIRY)

    def drop(self, txids: Collection[bytes]) -> Removals:
        """Remove and give the entries with ``txids``."""
        return self._take(txids, RemovalReason.DROPPED)

    def _take(self, txids: Collection[bytes], reason: RemovalReason) -> dict[MempoolEntry, RemovalReason]:
        removed = [self._entries[txid] for txid in intersection(self._entries, txids)]
        self._remove(removed)
        return dict.fromkeys(removed, reason)

    def _remove(self, entries: Iterable[MempoolEntry]) -> None:
        senders: dict[bytes, SenderQueue] = {}
        for entry in entries:
            transfer = entry.transfer
            queue = senders[transfer.sender] = self._queues[transfer.sender]
            del self._entries[transfer.txid]
            self.returned.discard(transfer.txid)
            queue.remove(entry)
            self.size -= len(transfer.wire)
        for sender, queue in senders.items():
            self._align(sender, queue)
        # Those that have left would stay in memory, and every query would pass them.
        if self._arrivals is not None and len(self._arrivals) > len(self._entries) * 9 // 8 + 64:
            self._arrivals = None

    def _align(self, sender: bytes, queue: SenderQueue) -> None:
        """Update everything derived from ``queue``."""
        before = queue.line
        if not queue.entries:
            # Nearly always, when a block takes transfers: 2,000 in one turn of the reactor.
            del self._queues[sender]
            self._in_line -= len(before)
            if before:
                del self._lines[before[0].sequence]
            return
        queue.update_line()
        self._in_line += len(queue.line) - len(before)
        if before and (not queue.line or queue.line[0] is not before[0]):
            del self._lines[before[0].sequence]
        if queue.line:
            self._lines[queue.line[0].sequence] = queue.line
            if not before or queue.line[0] is not before[0]:
                self._push_head(queue.line[0])
        if queue.eviction_key != (key := queue.last_key()):
            queue.eviction_key = key
            self._evictions.add(key, waiting=len(self._entries))

    def _push_head(self, head: MempoolEntry) -> None:
        heappush(self._heads, _rank(head))
        if len(self._heads) > 2 * len(self._lines) + 64:
            self._heads = [_rank(line[0]) for line in self._lines.values()]
            heapify(self._heads)

    def _is_last(self, key: EvictionKey) -> bool:
        entry = self._entries.get(key[-1])
        return entry is not None and self._queues[entry.transfer.sender].eviction_key == key

    def _is_too_much(self, count: int, size: int) -> bool:
        return count > self.max_transactions or size > self.max_bytes

    def _victims(self, transfer: Transfer, count: int, size: int) -> dict[MempoolEntry, RemovalReason]:
        """The entries to be evicted so that ``transfer`` fits: the last ones of other senders.

        ``count`` and ``size`` are those of the mempool with it. Entries that no block can include yet go first,
        regardless of their fee, then those with a lower fee rate.
        """
        victims: dict[MempoolEntry, RemovalReason] = {}
        if not self._is_too_much(count, size):
            return victims
        rate = MempoolEntry(transfer, 0).rate
        with closing(self._evictions.in_order()) as keys:
            while self._is_too_much(count, size):
                key = next(keys, None)
                if key is None or (key[0] and key[1] >= rate):
                    raise RuleViolation(Refusal.POOL, _full(transfer, key))
                entry = self._entries[key[-1]]
                if entry.transfer.sender != transfer.sender:
                    victims[entry] = RemovalReason.SIZE_LIMIT
                    count, size = count - 1, size - len(entry.transfer.wire)
        return victims


_NUMBER_BITS: Final = 64
_NUMBERS: Final = (1 << _NUMBER_BITS) - 1


def _rank(entry: MempoolEntry) -> int:
    """Lower for a higher fee rate, then for an earlier arrival; one integer takes half the memory of a tuple."""
    return (-entry.rate << _NUMBER_BITS) + entry.sequence


def _best_first(heads: list[int], lines: dict[int, tuple[MempoolEntry, ...]]) -> Iterator[tuple[MempoolEntry, ...]]:
    while heads:
        # A head that was replaced and restored is in the heap twice; skip the second.
        line = lines.pop(heappop(heads) & _NUMBERS, None)
        if line is not None:
            yield line


def _full(transfer: Transfer, key: EvictionKey | None) -> str:
    if key is None:
        return "the pool is full of transfers that others build on; send this one again later"
    min_fee = fee_for_rate(key[1] + 1, len(transfer.wire))
    return f"the pool is full: for this transfer the fee must exceed {min_fee - 1} base units"


def _nonce(entry: MempoolEntry) -> int:
    return entry.transfer.nonce


def _sequence(entry: MempoolEntry) -> int:
    return entry.sequence


def intersection(held: Mapping[bytes, object], keys: Collection[bytes]) -> list[bytes]:
    """The ``keys`` that ``held`` has, each once, in the time that the smaller collection takes.

    A change of hundreds of full blocks has 400,000 keys. The order is the same in every process: that of ``held`` or
    of ``keys``, or ascending if ``keys`` is a set.
    """
    if not held:
        return []
    if isinstance(keys, Set | Mapping) and len(keys) > len(held):
        return [key for key in held if key in keys]
    if isinstance(keys, Set):
        return sorted([key for key in keys if key in held])
    return [key for key in dict.fromkeys(keys) if key in held]
