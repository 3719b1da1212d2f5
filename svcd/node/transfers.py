"""The one door for transfers: what comes in one turn of the reactor is checked, committed and then told.

Checks, mempool and commit are one step in the reactor's thread, so that nobody ever sees a transfer which is not on
disk (docs/protocol.md 12). What undone blocks held comes back by the same step.
"""

import json
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final, Protocol

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import CooperativeTask, Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.node.aside import Aside, Kept, may_come_later
from svcd.node.changes import Change
from svcd.node.common import common
from svcd.node.guard import Guard
from svcd.node.ledger import Chain
from svcd.node.mempool import Admission, Entry, Mempool, Window
from svcd.node.refusals import Refusals
from svcd.node.threads import Worker
from svcd.node.verifier import Verifier
from svcd.ports import Clock, milliseconds
from svcd.store.database import MEMPOOL, telling_damage
from svcd.store.mempool_store import MempoolStore

_IN_TURN: Final = 8
"""Transfers that are checked, written and answered in one turn: 3 ms. A question that comes waits for two turns."""
_BACK_IN_TURN: Final = 32
"""Transfers of undone blocks that are taken back in one turn: more, for their signatures need no check."""
_FLOOD: Final = 64
"""Where more than that wait, the verifier's threads check their signatures first."""
_TO_THREADS: Final = 128
"""So many at once."""
_AT_ONCE: Final = 256
"""Transfers that are looked at, or removed from the disk, in one turn: far less than 10 ms."""


_INTAKE: Final = "taking in transfers"
_RETURN: Final = "taking back what undone blocks held"
_EXPIRY: Final = "expiring transfers"
_REMOVAL: Final = "removing transfers from the disk"


class Reception(StrEnum):
    """What has become of a transfer that was handed in."""

    ACCEPTED = "accepted"
    KNOWN = "known"


class PoolListener(Protocol):
    """Whoever wants to hear of waiting transfers."""

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Called in the reactor's thread, in order; for what came in, after it was committed."""


@frozen
class Pool:
    """The waiting transfers in memory and on disk."""

    mempool: Mempool
    store: MempoolStore
    guard: Guard
    """Of the file."""
    worker: Worker
    """Where its log is emptied."""


@define(eq=False)
class _Arrival:
    """A transfer that somebody has handed in and waits to hear of."""

    transfer: Transfer
    answer: Deferred[Reception] = field(factory=Deferred)


class Transfers:
    """Takes transfers in and keeps the mempool true to the chain."""

    log = Logger()

    def __init__(self, chain: Chain, pool: Pool, *, verifier: Verifier, clock: Clock) -> None:
        self.mempool = pool.mempool
        self.refusals = Refusals()
        """How many submissions broke which rule."""
        self._chain, self._reader = chain, chain.reader
        self._pool, self._store = pool, pool.store
        self._verifier = verifier
        self._clock = clock
        self._listeners: list[PoolListener] = []
        self._arrivals: deque[_Arrival] = deque()
        self._sequence = 0
        tip = chain.reader.tip()
        self._tip_slot = tip.slot if tip else 0
        self._returning: OrderedDict[bytes, Kept] = OrderedDict()
        """By txid what undone blocks held, or what was kept aside and is to be tried: it has still to be admitted."""
        self._aside = Aside()
        self._returned = 0
        """Up to which row the chain's file keeps for us what undone blocks held."""
        self._gone: list[int] = []
        """Rows of transfers that wait no longer, still on disk: the next start would see that and let go of them."""
        self._tasks: dict[str, CooperativeTask[Iterator[Deferred[None] | None]]] = {}
        """Work that is done a step in each turn, so that the reactor breathes, by what it is."""
        self._cooperator = Cooperator(
            terminationPredicateFactory=lambda: lambda: True,
            scheduler=lambda call: clock.callLater(0, call),  # type: ignore[arg-type,return-value]
        )

    @property
    def sequence(self) -> int:
        """The local number of the newest transfer. Each run begins at its Unix time in µs: no number comes twice."""
        return self._sequence

    @property
    def aside(self) -> list[Transfer]:
        """Transfers that a reorganisation left without cover: they do not wait, but a later block may cover them."""
        return [kept.transfer for kept in self._aside.all()]

    def subscribe(self, listener: PoolListener) -> None:
        """Tell ``listener`` of every later change of the mempool."""
        self._listeners.append(listener)

    # What waited when the node stopped

    async def load(self) -> int:
        """Take up the transfers that waited when the node stopped; gives how many still may.

        The two files are committed one after the other. What the chain has taken since has a used nonce; what it has
        given back is kept in its own file until it is in ours.
        """
        rows: dict[int, bool] = {}
        returned = self._reader.returned()
        stored = await self._stored(rows, returned)
        added: list[tuple[int, Transfer]] = []
        # They were not of the future when they came: now it may be the clock that is wrong, until it is set.
        window = evolve(self._window(), newest=MAX_INTEGER)
        while stored:
            # Some at a time, so that what is made of them takes the place of what they were read into.
            some = [stored.popleft() for _ in range(min(_AT_ONCE, len(stored)))]
            accounts = self._accounts([kept.transfer for kept in some])
            for kept in some:
                row = self._take_up(kept, accounts[kept.transfer.sender], window)
                if row and not rows.get(row):
                    added.append((row, kept.transfer))
        for row in (*(entry.sequence for entry in self.mempool.entries()), *(kept.row for kept in self._aside.all())):
            rows.pop(row, None)
        with telling_damage(self._store.path, MEMPOOL):
            self._store.write(added, rows)
            if returned:
                self._store.empty_log()
        if returned:
            self._returned = max(row for row, _, _ in returned)
            await self._forget_returned()
        return len(self.mempool)

    async def _stored(self, rows: dict[int, bool], returned: Sequence[tuple[int, int, bytes]]) -> deque[Kept]:
        """What our file has and what the chain has ``returned``, with their numbers.

        ``rows`` learns of each row of our file whether it is what was written. The order is by nonce: a replacement
        came later than what builds on it, which must not seem to be behind a gap.
        """
        found: list[Kept] = []
        unread: list[tuple[int, bytes]] = []
        for row in self._store.rows():
            rows[row.sequence] = row.transfer is not None
            if row.transfer is None:
                unread.append((row.sequence, row.body))
            else:
                found.append(Kept(row.transfer, row.sequence))
        self._sequence = max(
            milliseconds(self._clock) * 1_000,
            max(map(abs, rows), default=0),
            max((number for _, number, _ in returned), default=0),
        )
        self._verifier.trust([kept.transfer for kept in found])
        found.sort(key=_arrival)
        again = await self._read_again([*unread, *((number, body) for _, number, body in returned)])
        known = {kept.transfer.txid for kept in found} if again else set()
        for kept in again:
            if kept.transfer.txid not in known:
                known.add(kept.transfer.txid)
                found.append(kept)
        return deque(sorted(self._numbered(found), key=lambda kept: kept.nonce))

    async def _read_again(self, stored: Sequence[tuple[int, bytes]]) -> list[Kept]:
        """What is no row of ours, or not any more, as far as it holds a transfer that its sender signed."""
        found: list[Kept] = []
        for row, body in stored:
            try:
                found.append(Kept(parse_transfer(json.loads(body), self._chain.params), row))
            except (ValueError, RuleViolation) as error:
                self.log.info("a waiting transfer on disk is let go: {why}", why=str(error))
        verdicts = await self._verifier.check_transfers([kept.transfer for kept in found])
        for kept, verdict in zip(found, verdicts, strict=True):
            if verdict is not None:
                self._say_let_go(kept.transfer, verdict)
        return [kept for kept, verdict in zip(found, verdicts, strict=True) if verdict is None]

    def _numbered(self, stored: list[Kept]) -> list[Kept]:
        """The same, where what has no number of its own, since it fell out of the chain, has one."""
        for kept in stored:
            if not kept.row:
                self._sequence += 1
                kept.row = -self._sequence
        return stored

    def _take_up(self, kept: Kept, account: Account, window: Window) -> int:
        """Let what was on disk wait again, or keep it aside, or let it go; gives its row from now on, or 0."""
        transfer = kept.transfer
        try:
            self.mempool.admit(transfer, account, window=window, sequence=abs(kept.row))
        except RuleViolation as refusal:
            if may_come_later(refusal, transfer, account) and self._aside.put(kept, crowded=_lacks_room(refusal)):
                return kept.row
            self._say_let_go(transfer, refusal)
            return 0
        return abs(kept.row)

    # What comes in

    def submit(self, transfer: Transfer) -> Deferred[Reception]:
        """Take in a transfer whose fields have been checked; committed when the Deferred fires.

        It fails with RuleViolation, or with what the disk says. Cancelling it does not stop the work.
        """
        arrival = _Arrival(transfer)
        self._arrivals.append(arrival)
        self._begin(_INTAKE, self._take_in())
        return arrival.answer.addErrback(self.refusals.note)

    def _take_in(self) -> Iterator[Deferred[None] | None]:
        while self._arrivals:
            many = len(self._arrivals)
            if many > _FLOOD:
                many = min(many, _TO_THREADS)
                yield Deferred.fromCoroutine(self._check_in_threads(many)).addErrback(self._say_failed)
            for start in range(0, many, _IN_TURN):
                self._take_in_some([self._arrivals.popleft() for _ in range(min(_IN_TURN, many - start))])
                yield self._log_emptied()

    async def _check_in_threads(self, many: int) -> None:
        """Check the signatures of the first arrivals, as far as the mempool would take them as things stand.

        The verifier remembers what is good.
        """
        transfers = [arrival.transfer for arrival in islice(self._arrivals, many)]
        accounts, window = self._accounts(transfers), self._window()
        worthy = [each for each in transfers if self._is_worthy(each, accounts[each.sender], window)]
        await self._verifier.check_transfers(worthy)

    def _is_worthy(self, transfer: Transfer, account: Account, window: Window) -> bool:
        try:
            self.mempool.check(transfer, account, window)
        except RuleViolation:
            return False
        return True

    def _take_in_some(self, arrivals: Sequence[_Arrival]) -> None:
        """Check, write, tell and answer, all in this turn."""
        try:
            outcomes = self._taken_in([arrival.transfer for arrival in arrivals])
        except Exception as error:
            # A refusal, or that one is known, may rest on another of this turn, which has not come in now.
            for arrival in arrivals:
                arrival.answer.errback(error)
            return
        for arrival, outcome in zip(arrivals, outcomes, strict=True):
            if isinstance(outcome, Reception):
                arrival.answer.callback(outcome)
            else:
                arrival.answer.errback(outcome)

    def _taken_in(self, transfers: Sequence[Transfer]) -> list[Reception | Exception]:
        """What has become of each, committed and told; raises what the disk says."""
        accounts, window = self._accounts(transfers), self._window()
        outcomes: list[Reception | Exception] = []
        admissions: list[Admission] = []
        for transfer in transfers:
            try:
                admission = self._admit(transfer, accounts[transfer.sender], window)
            except Exception as error:
                # It is for the one who waits for it; the others have nothing to do with it.
                outcomes.append(error)
            else:
                admissions += [admission] if admission else []
                outcomes.append(Reception.ACCEPTED if admission else Reception.KNOWN)
        self._commit(admissions)
        return outcomes

    def _admit(self, transfer: Transfer, account: Account, window: Window) -> Admission | None:
        """Let a transfer into the mempool, not yet to the disk; None if it is known. Raises RuleViolation."""
        known = self._known(transfer, account)
        if known == transfer.wire:
            return None
        # The cheap checks come first.
        leaving = self.mempool.check(transfer, account, window) if known is None else []
        verdict = self._verifier.check_here(transfer)
        if verdict is not None:
            raise verdict
        return None if known is not None else self._enter(transfer, account, leaving)

    def _enter(self, transfer: Transfer, account: Account, leaving: Sequence[Entry]) -> Admission:
        self._sequence += 1
        return self.mempool.enter(transfer, account, leaving=leaving, sequence=self._sequence)

    def _known(self, transfer: Transfer, account: Account) -> bytes | None:
        """Its canonical JSON where it waits or is in the chain, maybe under another signature: the txid covers none."""
        if entry := self.mempool.get(transfer.txid):
            return entry.transfer.wire
        # One in the chain has used its nonce.
        place = self._reader.transaction(transfer.txid) if transfer.nonce < account.nonce else None
        return None if place is None else place.body

    def _window(self) -> Window:
        return self.mempool.window(self._tip_slot, milliseconds(self._clock))

    def _accounts(self, transfers: Iterable[Transfer]) -> dict[bytes, Account]:
        """Those of all senders."""
        # A commit that we have not heard of yet does no harm: the mempool is settled when we do.
        unknown = dict.fromkeys([transfer.sender for transfer in transfers], Account())
        return {**unknown, **self._reader.accounts(unknown)}

    def _commit(self, admissions: Sequence[Admission], aside: Sequence[Kept] = ()) -> None:
        """Write down what has entered the mempool, and what is kept aside from now on, and only then tell of it.

        Raises what the disk says: then nothing has happened, in the mempool neither.
        """
        if not admissions and not aside:
            return
        own = {admission.entry for admission in admissions}
        came = [entry for entry in own if self.mempool.get(entry.transfer.txid) is entry]
        came.sort(key=lambda entry: entry.sequence)
        left = [entry for admission in admissions for entry in admission.removed if entry not in own]
        txids = [entry.transfer.txid for entry in own]
        rows = [entry.sequence for entry in left] + [kept.row for kept in self._kept(txids) if kept.row]
        added = [(entry.sequence, entry.transfer) for entry in came] + [(kept.row, kept.transfer) for kept in aside]
        try:
            self._store.write(added, rows)
        except Exception as error:
            for admission in reversed(admissions):
                self.mempool.revert(admission)
            self._pool.guard.look(error)
            raise
        self._take_kept(txids)
        self._aside.ease({entry.transfer.sender for entry in left})
        if came or left:
            self._publish(came, left)

    def _log_emptied(self) -> Deferred[None] | None:
        """What the next step of a task waits for: that a long log is in the file, so that it begins anew, or nothing.

        A log to which transfers are added meanwhile would not begin anew, and grow without end.
        """
        if not self._store.is_log_long():
            return None
        return self._pool.worker.run(self._store.empty_log).addErrback(self._say_failed)

    # What the chain takes and gives back

    def chain_changed(self, change: Change) -> None:
        """Let go of what the new blocks hold or rule out, and take back what undone blocks held."""
        self._tip_slot = change.tip.slot
        txids = change.txids
        self._forget(self._take_kept(txids))
        left = self.mempool.settle(txids, change.accounts)
        uncovered = _uncovered(left, txids, change) if change.undone else []
        returning = [Kept(transfer, 0) for block in reversed(change.undone) for transfer in block.transfers]
        returning += [Kept(entry.transfer, entry.sequence) for entry in uncovered]
        for kept in [*returning, *self._aside.to_be_tried(change.accounts)]:
            if kept.transfer.txid not in txids:
                self._returning.setdefault(kept.transfer.txid, kept)
        self._returned = change.returned or self._returned
        self._let_go(left, but=uncovered)
        if self._returning or self._returned:
            self._begin(_RETURN, self._take_back())

    def _take_back(self) -> Iterator[Deferred[None] | None]:
        while self._returning or self._returned:
            if self._returning:
                self._take_back_some(list(islice(self._returning.values(), _BACK_IN_TURN)))
                yield self._log_emptied()
            else:
                yield Deferred.fromCoroutine(self._forget_returned())

    def _take_back_some(self, some: Sequence[Kept]) -> None:
        """Their signatures have been checked: they have waited before, or a block held them."""
        admissions: list[Admission] = []
        unwritten: list[Kept] = []
        accounts, window = self._accounts([kept.transfer for kept in some]), self._window()
        for kept in some:
            transfer, account = kept.transfer, accounts[kept.transfer.sender]
            try:
                leaving = self.mempool.check(transfer, account, window)
            except RuleViolation as refusal:
                if may_come_later(refusal, transfer, account) and self._aside.put(kept, crowded=_lacks_room(refusal)):
                    unwritten += [] if kept.row else [kept]
                else:
                    self._say_let_go(transfer, refusal)
                    self._forget([kept, *self._aside.take([transfer.txid])])
            else:
                admissions.append(self._enter(transfer, account, leaving))
        for kept in unwritten:
            self._sequence += 1
            kept.row = -self._sequence
        try:
            self._commit(admissions, unwritten)
        except Exception:
            # The chain's file has them still: the next block is another chance.
            for kept in unwritten:
                kept.row = 0
            raise
        for kept in some:
            self._returning.pop(kept.transfer.txid, None)

    async def _forget_returned(self) -> None:
        """Our own file has all that the chain's file keeps for us."""
        last, self._returned = self._returned, 0
        try:
            await self._chain.writer.run(self._chain.connector.store.forget_returned, last)
        except Exception:
            self._returned = self._returned or last
            raise

    def _kept(self, txids: Collection[bytes]) -> list[Kept]:
        """Those of ``txids`` that are on disk without waiting."""
        return [self._returning[txid] for txid in common(self._returning, txids)] + self._aside.get(txids)

    def _take_kept(self, txids: Collection[bytes]) -> list[Kept]:
        """The same; nobody tries to take them back any more."""
        return [self._returning.pop(txid) for txid in common(self._returning, txids)] + self._aside.take(txids)

    # What leaves otherwise

    def expire(self) -> None:
        """Begin to let go of what no block may hold any more, and to write what the disk has refused; now and then."""
        self._begin(_EXPIRY, self._expire())
        if self._returning or self._returned:
            self._begin(_RETURN, self._take_back())
        self._forget(())

    def _expire(self) -> Iterator[None]:
        oldest = self._window().oldest
        self._forget(self._take_kept([old.txid for old in self.aside if old.timestamp < oldest]))
        seen = 0
        while entries := self.mempool.since(seen, _AT_ONCE):
            seen = entries[-1].sequence
            self._let_go(self.mempool.expire(oldest, among=entries))
            yield

    def drop(self, txids: Sequence[bytes]) -> None:
        """Let go of transfers on the operator's word."""
        self._let_go(self.mempool.drop(txids))
        self._forget(self._take_kept(txids))

    def _let_go(self, left: Sequence[Entry], *, but: Sequence[Entry] = ()) -> None:
        """Tell that ``left`` wait no longer, and remove all from the disk ``but`` some."""
        if left:
            self._aside.ease({entry.transfer.sender for entry in left})
            kept = set(but)
            self._forget([Kept(entry.transfer, entry.sequence) for entry in left if entry not in kept])
            self._publish([], left)

    def _forget(self, gone: Sequence[Kept]) -> None:
        """Remove from the disk what neither waits nor is kept aside: no hurry, the next start would see that too."""
        self._gone += [kept.row for kept in gone if kept.row]
        if self._gone:
            self._begin(_REMOVAL, self._clear())

    def _clear(self) -> Iterator[Deferred[None] | None]:
        while self._gone:
            rows = self._gone[:_AT_ONCE]
            try:
                self._store.write((), rows)
            except Exception as error:
                self._pool.guard.look(error)
                raise
            del self._gone[: len(rows)]
            yield self._log_emptied()

    async def settled(self) -> None:
        """Wait until what has fallen out of the chain is where it belongs, in memory and on disk.

        Neither for what comes in, for that may go on without end, nor for what the disk has refused.
        """
        for what in (_RETURN, _REMOVAL):
            await self._ended(what)

    async def finished(self) -> None:
        """Wait until all that has begun is done; nothing may be handed in any more."""
        while self._tasks:
            await self._ended(next(iter(self._tasks)))

    async def _ended(self, what: str) -> None:
        if what in self._tasks:
            await self._tasks[what].whenDone().addErrback(lambda _: None)

    def _begin(self, what: str, steps: Iterator[Deferred[None] | None]) -> None:
        if what not in self._tasks:
            task = self._tasks[what] = self._cooperator.cooperate(steps)
            task.whenDone().addErrback(self._say_failed).addBoth(lambda _: self._tasks.pop(what))

    def _publish(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        for listener in self._listeners:
            with self.log.failuresHandled("telling {listener} of the mempool", listener=listener):
                listener.pool_changed(added, removed)

    def _say_failed(self, failure: Failure) -> None:
        # Of its disk the guard has told.
        if not isinstance(failure.value, sqlite3.Error):
            self.log.failure("work on the mempool failed", failure)

    def _say_let_go(self, transfer: Transfer, why: BaseException) -> None:
        self.log.info("waiting transfer {txid} is let go: {why}", txid=transfer.txid.hex(), why=str(why))


def _arrival(kept: Kept) -> int:
    return abs(kept.row)


def _lacks_room(refusal: RuleViolation) -> bool:
    return refusal.code is Refusal.POOL


def _uncovered(left: Sequence[Entry], txids: Container[bytes], change: Change) -> list[Entry]:
    """What left the mempool only because the balance does not cover it, by nonce."""
    entries = [entry for entry in left if entry.transfer.txid not in txids]
    uncovered = [each for each in entries if each.transfer.nonce >= change.accounts[each.transfer.sender].nonce]
    return sorted(uncovered, key=lambda entry: entry.transfer.nonce)
