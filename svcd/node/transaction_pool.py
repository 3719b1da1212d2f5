"""The one entrance for transfers: they are checked, committed to disk and published here, in one turn of the reactor.

Mempool and disk change in the same turn, so no client ever sees a transfer that is not on disk (docs/protocol.md 12).
The transfers of undone blocks return in the same way.
"""

import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final, Protocol

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import CooperativeTask, Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.interfaces import Clock, Worker, milliseconds
from svcd.node.chainstate import OpenChain
from svcd.node.changes import ChainChange
from svcd.node.database_health import DatabaseHealth
from svcd.node.disconnected_transfers import DisconnectedTransfer, DisconnectedTransfers, may_become_valid
from svcd.node.mempool import Admission, Mempool, MempoolEntry, RemovalReason, Removals, TimestampWindow
from svcd.node.verifier import Verifier
from svcd.store.database import MEMPOOL, explaining_errors
from svcd.store.mempool_store import MempoolStore

_ADMIT_PER_TURN: Final = 8
"""Transfers checked, written and answered in one turn of the reactor, which takes 3 ms; a query waits 6 ms at most."""
_READMIT_PER_TURN: Final = 32
"""Transfers of undone blocks readmitted in one turn; more, since their signatures are not checked again."""
_FLOOD: Final = 64
"""If more transfers than these are queued, the verifier's threads check their signatures first."""
_VERIFY_AT_ONCE: Final = 128
"""How many signatures the threads are given at once."""
_SCAN_PER_TURN: Final = 256
"""Entries scanned, or rows deleted, in one turn; takes far less than 10 ms."""

_ADMISSION: Final = "admission"
_READMISSION: Final = "readmission"
_EXPIRY: Final = "expiry"
_DELETION: Final = "deletion"


class SubmitResult(StrEnum):
    """The result of submitting a transfer that broke no rule."""

    ACCEPTED = "accepted"
    KNOWN = "known"


class MempoolListener(Protocol):
    """A listener to changes of the mempool."""

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Called in the reactor's thread, in order, after the commit of ``added``; ``removed`` has the reasons."""


@define(eq=False)
class _Submission:
    """A transfer that has been submitted, and the Deferred for its result."""

    transfer: Transfer
    on_lookup: Callable[[], None] | None
    result: Deferred[SubmitResult] = field(factory=Deferred)
    forged: RuleViolation | None = None
    """The violation that a thread has found in its signature."""


class TransactionPool:
    """Admits transfers to the mempool, and keeps the mempool in step with chain and disk."""

    log = Logger()

    def __init__(
        self,
        chain: OpenChain,
        mempool: Mempool,
        *,
        store: MempoolStore,
        health: DatabaseHealth,
        worker: Worker,
        verifier: Verifier,
        clock: Clock,
    ) -> None:
        """``worker`` runs the checkpoints of ``store``; ``health`` gets each of its errors."""
        self.mempool, self.store, self.health = mempool, store, health
        self.refusals: Counter[Refusal] = Counter()
        """How many submissions broke which rule."""
        self._chain, self._reader = chain, chain.reader
        self._worker, self._verifier, self._clock = worker, verifier, clock
        self._listeners: list[MempoolListener] = []
        self._submissions: deque[_Submission] = deque()
        self.sequence = 0
        """The number of the newest transfer: its arrival in Unix µs, or one more than the number before, if greater.

        So no number is used again after a restart.
        """
        self._tip_slot = chain.reader.existing_tip().slot
        self._disconnected = DisconnectedTransfers()
        self._last_disconnected = 0
        """The last row of undone transfers that the chain's database keeps until they are in the mempool's."""
        self._stale_rows: list[int] = []
        """Rows to be deleted; after a crash the next start deletes them."""
        self._tasks: dict[str, CooperativeTask[Iterator[Deferred[None] | None]]] = {}
        """Running tasks by name; they make one step in each turn of the reactor."""
        self._cooperator = Cooperator(
            terminationPredicateFactory=lambda: lambda: True,
            scheduler=lambda call: clock.callLater(0, call),  # type: ignore[arg-type,return-value]
        )

    @property
    def parked(self) -> list[Transfer]:
        """Disconnected transfers that the mempool has refused for now, for lack of cover above all."""
        return [item.transfer for item in self._disconnected.parked()]

    def waiting(self) -> list[Transfer]:
        """All transfers that a block may include or rule out: in the mempool, on their way back to it, and parked."""
        return [entry.transfer for entry in self.mempool.entries()] + self._disconnected.transfers()

    @property
    def returned(self) -> frozenset[bytes]:
        """The txids of the transfers that a reorganisation has brought back to the mempool, or parked."""
        return frozenset(self.mempool.returned).union([transfer.txid for transfer in self.parked])

    def has_from(self, sender: bytes) -> bool:
        """Whether a transfer of ``sender`` waits: in the mempool, parked, or on its way into the mempool."""
        return (
            bool(self.mempool.sent_by(sender))
            or self._disconnected.has_from(sender)
            or any(submission.transfer.sender == sender for submission in self._submissions)
        )

    def subscribe(self, listener: MempoolListener) -> None:
        """Notify ``listener`` of every later change of the mempool."""
        self._listeners.append(listener)

    # Start

    async def load(self) -> int:
        """Load the transfers on disk; gives how many are in the mempool.

        The databases of chain and mempool are committed one after the other. A transfer that got into a block meanwhile
        has a used nonce and is dropped; one of an undone block stays in the chain's database until it is in the
        mempool's.
        """
        disconnected = self._reader.disconnected()
        intact, found = await self._read_disk(disconnected)
        # No upper limit on timestamps here: these transfers passed it when they arrived, so one in the future means
        # that this computer's clock is not set yet.
        window = evolve(self._window(), newest=MAX_INTEGER)
        while found:
            # In chunks, whose memory can be used again for the entries made of them.
            some = [found.popleft() for _ in range(min(_SCAN_PER_TURN, len(found)))]
            accounts = self._accounts([transfer for _, transfer in some])
            for row, transfer in some:
                try:
                    self.mempool.admit(transfer, accounts, window=window, sequence=row)
                except RuleViolation as refusal:
                    self._park(DisconnectedTransfer(transfer, row), accounts[transfer.sender], refusal)
        rows = {entry.sequence: entry.transfer for entry in self.mempool.entries()}
        rows |= {item.row: item.transfer for item in self._disconnected.parked() if item.row is not None}
        with explaining_errors(self.store.path, MEMPOOL):
            self.store.write(
                [(row, transfer) for row, transfer in rows.items() if not intact.get(row)],
                [row for row in intact if row not in rows],
            )
            if disconnected:
                self.store.empty_log()
        if disconnected:
            self._last_disconnected = max(row for row, _ in disconnected)
            await self._release_disconnected()
        return len(self.mempool)

    async def _read_disk(
        self, disconnected: Sequence[tuple[int, bytes]]
    ) -> tuple[dict[int, bool], deque[tuple[int, Transfer]]]:
        """For each row of the mempool's database whether it is intact; and all stored transfers, each with its row.

        The transfers, of that database and in ``disconnected``, are sorted by nonce: a replacement has a later row than
        the transfers that depend on it, but must precede them.
        """
        intact: dict[int, bool] = {}
        found: list[tuple[int, Transfer]] = []
        unread: list[tuple[int | None, bytes]] = []
        for row in self.store.rows():
            intact[row.sequence] = row.transfer is not None
            if row.transfer is None:
                unread.append((row.sequence, row.body))
            else:
                found.append((row.sequence, row.transfer))
        self.sequence = max(milliseconds(self._clock) * 1_000, max(intact, default=0))
        self._verifier.trust([transfer for _, transfer in found])
        again = await self._read_again([*unread, *((None, body) for _, body in disconnected)])
        known = {transfer.txid for _, transfer in found} if again else set()
        for number, transfer in again:
            if transfer.txid not in known:
                known.add(transfer.txid)
                found.append((number or self._next_sequence(), transfer))
        return intact, deque(sorted(found, key=lambda each: each[1].nonce))

    async def _read_again(self, stored: Sequence[tuple[int | None, bytes]]) -> list[tuple[int | None, Transfer]]:
        """Parse and verify rows of ours that are not as they were written, and transfers that have no row here."""
        parsed: list[tuple[int | None, Transfer]] = []
        for number, body in stored:
            try:
                parsed.append((number, parse_canonical_transfer(body, self._chain.params)))
            except RuleViolation as error:
                self.log.info("a stored transfer is dropped: {why}", why=str(error))
        verdicts = await self._verifier.check_transfers([transfer for _, transfer in parsed])
        for (_, transfer), verdict in zip(parsed, verdicts, strict=True):
            if verdict is not None:
                self._log_dropped(transfer, verdict)
        return [each for each, verdict in zip(parsed, verdicts, strict=True) if verdict is None]

    def _next_sequence(self) -> int:
        self.sequence = max(self.sequence + 1, milliseconds(self._clock) * 1_000)
        return self.sequence

    # Admission

    def submit(self, transfer: Transfer, *, on_lookup: Callable[[], None] | None = None) -> Deferred[SubmitResult]:
        """Admit a transfer whose fields have been checked; the Deferred fires after the commit.

        It fails with RuleViolation, or with an error of the disk. Cancelling it does not stop the work.

        Only a look-up in the index on disk, which may be far larger than memory, shows whether a transfer with a used
        nonce is the one in the chain. ``on_lookup`` is called before each, to charge the client for it; without
        ``on_lookup`` nobody pays, so every transfer with a used nonce is refused.
        """
        entry = self.mempool.get(transfer.txid)
        if entry is not None and entry.transfer.wire == transfer.wire:
            # Nearly every peer hands in every transfer. This one has been committed in the turn that admitted it.
            return succeed(SubmitResult.KNOWN)
        submission = _Submission(transfer, on_lookup)
        self._submissions.append(submission)
        self._begin(_ADMISSION, self._admit_all())
        return submission.result

    def _admit_all(self) -> Iterator[Deferred[None] | None]:
        while self._submissions:
            count = len(self._submissions)
            if count > _FLOOD:
                count = min(count, _VERIFY_AT_ONCE)
                yield Deferred.fromCoroutine(self._verify_in_threads(count)).addErrback(self._log_failure)
            for start in range(0, count, _ADMIT_PER_TURN):
                self._admit_some([self._submissions.popleft() for _ in range(min(_ADMIT_PER_TURN, count - start))])
                yield self._checkpoint()

    async def _verify_in_threads(self, count: int) -> None:
        """Verify the signatures of the first submissions; the verifier remembers the good ones."""
        submissions = list(islice(self._submissions, count))
        verdicts = await self._verifier.check_transfers([submission.transfer for submission in submissions])
        for submission, verdict in zip(submissions, verdicts, strict=True):
            submission.forged = verdict

    def _admit_some(self, submissions: Sequence[_Submission]) -> None:
        """Check, write, publish and answer, all in this turn."""
        try:
            results = self._results_of(submissions)
        except Exception as error:
            # Fail every submission of this turn: the write was rolled back, and a refusal may have depended on a
            # transfer that was rolled back with it.
            for submission in submissions:
                submission.result.errback(error)
            return
        for submission, result in zip(submissions, results, strict=True):
            if isinstance(result, SubmitResult):
                submission.result.callback(result)
                continue
            if isinstance(result, RuleViolation):
                self.refusals[result.code] += 1
            submission.result.errback(result)

    def _results_of(self, submissions: Sequence[_Submission]) -> list[SubmitResult | Exception]:
        """The result of each submission, committed and published; raises sqlite3.Error."""
        # Signatures come first: nothing is read from the disk for a transfer that cost its sender nothing to make.
        forged = [each.forged or self._verifier.check_in_this_thread(each.transfer) for each in submissions]
        signed = [each.transfer for each, verdict in zip(submissions, forged, strict=True) if verdict is None]
        accounts, window = self._accounts(signed), self._window()
        results: list[SubmitResult | Exception] = []
        admissions: list[Admission] = []
        for submission, verdict in zip(submissions, forged, strict=True):
            if verdict is not None:
                results.append(verdict)
                continue
            try:
                admission = self._admit(submission, accounts, window)
            except Exception as error:
                # For its sender; it does not concern the others.
                results.append(error)
            else:
                admissions += [admission] if admission else []
                results.append(SubmitResult.ACCEPTED if admission else SubmitResult.KNOWN)
        self._commit(admissions)
        return results

    def _admit(
        self, submission: _Submission, accounts: Mapping[bytes, Account], window: TimestampWindow
    ) -> Admission | None:
        """Admit a signed transfer to the mempool, not yet to the disk; None if it is known. Raises RuleViolation."""
        transfer = submission.transfer
        account = accounts[transfer.sender]
        # Maybe with another signature: the txid covers none.
        if transfer.txid in self.mempool or self._is_in_chain(submission, account):
            return None
        return self._enter(transfer, account, self.mempool.check(transfer, accounts, window))

    def _enter(self, transfer: Transfer, account: Account, leaving: Removals) -> Admission:
        sequence, returned = self._next_sequence(), bool(self._disconnected.get([transfer.txid]))
        return self.mempool.enter(transfer, account, leaving=leaving, sequence=sequence, returned=returned)

    def _is_in_chain(self, submission: _Submission, account: Account) -> bool:
        transfer = submission.transfer
        # A transfer in the chain has a used nonce.
        if transfer.nonce >= account.nonce or submission.on_lookup is None:
            return False
        submission.on_lookup()
        return self._reader.has_transaction(transfer.txid, self._chain.params)

    def _window(self) -> TimestampWindow:
        return self.mempool.window(self._tip_slot, milliseconds(self._clock))

    def _accounts(self, transfers: Iterable[Transfer]) -> dict[bytes, Account]:
        """The accounts of all senders and recipients."""
        # A commit of the chain that has not been published here yet does no harm: the mempool settles when it is.
        keys = [key for transfer in transfers for key in (transfer.sender, transfer.recipient)]
        unknown = dict.fromkeys(keys, Account())
        return {**unknown, **self._reader.accounts(unknown)}

    def _commit(self, admissions: Sequence[Admission], parked: Sequence[DisconnectedTransfer] = ()) -> None:
        """Write the admitted transfers, and newly ``parked`` ones, then publish the change.

        Raises sqlite3.Error: then the admissions have been reverted.
        """
        if not admissions and not parked:
            return
        own = {admission.entry for admission in admissions}
        came = [entry for entry in own if self.mempool.get(entry.transfer.txid) is entry]
        came.sort(key=lambda entry: entry.sequence)
        removed = {
            entry: why for admission in admissions for entry, why in admission.removed.items() if entry not in own
        }
        txids = [entry.transfer.txid for entry in own]
        rows = [entry.sequence for entry in removed]
        rows += [item.row for item in self._disconnected.get(txids) if item.row is not None]
        added = [(entry.sequence, entry.transfer) for entry in came]
        added += [(item.row, item.transfer) for item in parked if item.row is not None]
        try:
            self.store.write(added, rows)
        except Exception as error:
            for admission in reversed(admissions):
                self.mempool.revert(admission)
            self.health.report(error)
            raise
        self._disconnected.take(txids)
        self._disconnected.unblock({entry.transfer.sender for entry in removed})
        if came or removed:
            self._publish(came, removed)

    def _checkpoint(self) -> Deferred[None] | None:
        """A Deferred for which a task must wait while a long write-ahead log is brought into the file, or None.

        A log to which transfers are added meanwhile could not be reset, and would grow without limit.
        """
        if not self.store.is_log_long():
            return None
        return self._worker.run(self.store.empty_log).addErrback(self._log_failure)

    # Changes of the chain

    def chain_changed(self, change: ChainChange) -> None:
        """Remove the transfers that the new blocks include or rule out, and queue those of undone blocks."""
        self._tip_slot = change.tip.slot
        accounts, txids = change.accounts or {}, change.txids or frozenset()
        self._delete(self._disconnected.take(txids))
        removed = self.mempool.follow_chain(txids, accounts, reorganised=bool(change.undone))
        uncovered = sorted((entry for entry, why in removed.items() if why is RemovalReason.REORG), key=_nonce)
        undone = [transfer for block in reversed(change.undone) for transfer in block.disconnected]
        self._disconnected.queue(DisconnectedTransfer(each, None) for each in undone)
        self._disconnected.queue(DisconnectedTransfer(entry.transfer, entry.sequence) for entry in uncovered)
        self._disconnected.queue(self._disconnected.retry(accounts))
        self._last_disconnected = change.last_disconnected or self._last_disconnected
        self._remove(removed, keep_rows=uncovered)
        self._begin_readmission()

    def _begin_readmission(self) -> None:
        if self._last_disconnected or not self._disconnected.is_queue_empty:
            self._begin(_READMISSION, self._readmit_all())

    def _readmit_all(self) -> Iterator[Deferred[None] | None]:
        while self._last_disconnected or not self._disconnected.is_queue_empty:
            if some := self._disconnected.next(_READMIT_PER_TURN):
                self._readmit(some)
                yield self._checkpoint()
            else:
                yield Deferred.fromCoroutine(self._release_disconnected())

    def _readmit(self, some: Sequence[DisconnectedTransfer]) -> None:
        """Return disconnected transfers to the mempool, or park or drop them; their signatures have been verified."""
        admissions: list[Admission] = []
        parked: list[DisconnectedTransfer] = []
        accounts, window = self._accounts([item.transfer for item in some]), self._window()
        for item in some:
            transfer, account = item.transfer, accounts[item.transfer.sender]
            try:
                leaving = self.mempool.check(transfer, accounts, window)
            except RuleViolation as refusal:
                if not self._park(item, account, refusal):
                    self._disconnected.take([transfer.txid])
                    self._delete([item])
                elif item.row is None:
                    item.row = self._next_sequence()
                    parked.append(item)
            else:
                admissions.append(self._enter(transfer, account, leaving))
        try:
            self._commit(admissions, parked)
        except Exception:
            # They are still queued and in the chain's database: the next block or the next minute tries again.
            for item in parked:
                item.row = None
            raise
        self._disconnected.dequeue(some)

    def _park(self, item: DisconnectedTransfer, account: Account, refusal: RuleViolation) -> bool:
        """Park a transfer that the mempool has refused and may accept later, or log that it is dropped."""
        pool_full = refusal.code is Refusal.POOL
        if may_become_valid(refusal, item.transfer, account) and self._disconnected.park(item, pool_full=pool_full):
            return True
        self._log_dropped(item.transfer, refusal)
        return False

    async def _release_disconnected(self) -> None:
        """Delete from the chain's database the undone transfers that are in ours."""
        last, self._last_disconnected = self._last_disconnected, 0
        try:
            await self._chain.writer.run(self._chain.chainstate.store.forget_disconnected, last)
        except Exception:
            self._last_disconnected = self._last_disconnected or last
            raise

    # Removal

    def expire(self) -> None:
        """Begin to remove expired transfers, and to repeat writes that the disk has refused; called now and then."""
        self._begin(_EXPIRY, self._expire())
        self._begin_readmission()
        self._delete(())

    def _expire(self) -> Iterator[None]:
        oldest = self._window().oldest
        self._delete(self._disconnected.take([old.txid for old in self.parked if old.timestamp < oldest]))
        seen = 0
        while entries := self.mempool.since(seen, _SCAN_PER_TURN):
            seen = entries[-1].sequence
            self._remove(self.mempool.expire(oldest, among=entries))
            yield

    def drop(self, txids: Sequence[bytes]) -> None:
        """Remove transfers unconditionally; for devnet's reorganisations."""
        self._remove(self.mempool.drop(txids))
        self._delete(self._disconnected.take(txids))

    def _remove(self, removed: Removals, *, keep_rows: Sequence[MempoolEntry] = ()) -> None:
        """Publish that ``removed`` have left the mempool, and delete their rows but those of ``keep_rows``.

        Why each has left: :class:`svcd.node.mempool.RemovalReason`.
        """
        if removed:
            self._disconnected.unblock({entry.transfer.sender for entry in removed})
            kept = set(keep_rows)
            self._delete_rows(entry.sequence for entry in removed if entry not in kept)
            self._publish([], removed)

    def _delete(self, items: Iterable[DisconnectedTransfer]) -> None:
        self._delete_rows(item.row for item in items if item.row is not None)

    def _delete_rows(self, rows: Iterable[int]) -> None:
        """Delete rows from the disk, without haste: the next start would delete them too."""
        self._stale_rows += rows
        if self._stale_rows:
            self._begin(_DELETION, self._delete_stale_rows())

    def _delete_stale_rows(self) -> Iterator[Deferred[None] | None]:
        while self._stale_rows:
            rows = self._stale_rows[:_SCAN_PER_TURN]
            try:
                self.store.write((), rows)
            except Exception as error:
                self.health.report(error)
                raise
            del self._stale_rows[: len(rows)]
            yield self._checkpoint()

    # Tasks

    async def readmission_done(self) -> None:
        """Wait until the disconnected transfers are where they belong, in memory and on disk.

        Does not wait for submissions, of which there may be no end, nor for writes that the disk has refused.
        """
        for name in (_READMISSION, _DELETION):
            await self._end_of(name)

    async def finished(self) -> None:
        """Wait until all tasks are done; nothing may be submitted any more."""
        while self._tasks:
            await self._end_of(next(iter(self._tasks)))

    async def _end_of(self, name: str) -> None:
        if name in self._tasks:
            # Each whenDone() is a Deferred of its own: the one in _begin logs the failure.
            await self._tasks[name].whenDone().addErrback(lambda _: None)

    def _begin(self, name: str, steps: Iterator[Deferred[None] | None]) -> None:
        if name not in self._tasks:
            task = self._tasks[name] = self._cooperator.cooperate(steps)
            task.whenDone().addErrback(self._log_failure).addBoth(lambda _: self._tasks.pop(name))

    def _publish(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        for listener in self._listeners:
            with self.log.failuresHandled("notifying {listener} of a change of the mempool failed", listener=listener):
                listener.pool_changed(added, removed)

    def _log_failure(self, failure: Failure) -> None:
        # Errors of the disk have been reported to `health`.
        if not isinstance(failure.value, sqlite3.Error):
            self.log.failure("work on the mempool failed", failure)

    def _log_dropped(self, transfer: Transfer, why: BaseException) -> None:
        self.log.info("transfer {txid} is dropped: {why}", txid=transfer.txid.hex(), why=str(why))


def _nonce(entry: MempoolEntry) -> int:
    return entry.transfer.nonce
