"""The one entrance for transfers: they are checked, committed to disk, entered into the mempool and published here.

A transfer is in the journal before it is in the mempool, so no client ever sees one that is not on disk
(docs/protocol.md 12). What happened while it was written counts: it is checked once more when it enters. The transfers
of undone blocks return in the same way.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import chain, islice
from typing import Final, Protocol

import apsw
from attrs import define, evolve, field
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.task import CooperativeTask, Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.interfaces import Worker, milliseconds
from svcd.node.changes import ChainChange
from svcd.node.clock_guard import ClockGuard
from svcd.node.database_health import DatabaseHealth, ReportingWorker
from svcd.node.disconnected_transfers import DisconnectedTransfer, DisconnectedTransfers, may_become_valid
from svcd.node.mempool import Admission, Mempool, MempoolEntry, RemovalReason, Removals, TimestampWindow
from svcd.node.open_chain import OpenChain
from svcd.node.verifier import Verifier
from svcd.store.database import DatabaseError, DiskError
from svcd.store.mempool_journal import JournalContents, MempoolJournal

_CHECK_AT_ONCE: Final = 8
"""Signatures checked in one turn of the reactor."""
_ADMIT_AT_ONCE: Final = 32
"""Transfers that enter in one turn and are written together: each write is a round trip to a thread."""
_READMIT_AT_ONCE: Final = 32
"""Transfers of undone blocks readmitted together; more, since their signatures are not checked again."""
_FLOOD: Final = 64
"""If more transfers than these are queued, the verifier's threads check their signatures first."""
_VERIFY_AT_ONCE: Final = 128
"""How many signatures the threads are given at once."""
_SCAN_PER_TURN: Final = 256
"""Entries scanned in one turn; takes far less than 10 ms."""

_ADMISSION: Final = "admission"
_READMISSION: Final = "readmission"
_EXPIRY: Final = "expiry"


class SubmitResult(StrEnum):
    """The result of submitting a transfer that broke no rule."""

    ACCEPTED = "accepted"
    KNOWN = "known"


class MempoolListener(Protocol):
    """A listener to changes of the mempool."""

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Called in the reactor's thread, in order, after the commit of ``added``; ``removed`` has the reasons."""


@define(eq=False)
class _Candidate:
    """A transfer with a verified signature that is to enter the mempool."""

    transfer: Transfer
    on_lookup: Callable[[], None] | None = None
    sequence: int = field(default=0, init=False)
    """The number under which it is in the journal."""
    result: SubmitResult | Exception = field(default=SubmitResult.KNOWN, init=False)

    def fail(self, error: Exception) -> None:
        """Let ``error`` be its result."""
        self.result = error


@define(eq=False)
class _Submission(_Candidate):
    """A transfer that has been submitted, and the Deferred for its result."""

    answer: Deferred[SubmitResult] = field(factory=Deferred, init=False)
    forged: RuleViolation | None = field(default=None, init=False)
    """The violation that a thread has found in its signature."""


class TransactionPool:
    """Admits transfers to the mempool, and keeps the mempool in step with chain and disk."""

    log = Logger()

    def __init__(
        self,
        chain: OpenChain,
        mempool: Mempool,
        *,
        journal: MempoolJournal,
        health: DatabaseHealth,
        worker: Worker,
        verifier: Verifier,
        guard: ClockGuard,
    ) -> None:
        """``worker`` reads and writes ``journal``; ``health`` gets the errors of writes."""
        clock = guard.clock
        self.mempool, self.journal, self.health = mempool, journal, health
        self.refusals: Counter[Refusal] = Counter()
        """How many submissions broke which rule."""
        self._chain, self._reader = chain, chain.reader
        self._loader, self._worker = worker, ReportingWorker(worker, health)
        self._verifier, self._guard, self._clock = verifier, guard, clock
        self._listeners: list[MempoolListener] = []
        self._submissions: deque[_Submission] = deque()
        self.sequence = 0
        """The number of the newest transfer: its arrival in Unix µs, or one more than the number before, if greater.

        So no number is used again after a restart. A clock that is wrong for a moment has no part in it: the numbers
        after that would all be as late.
        """
        self._tip_slot = chain.reader.existing_tip().slot
        self._disconnected = DisconnectedTransfers()
        self._last_disconnected = 0
        """The last row of undone transfers that the chain's database keeps until they are in the journal."""
        self._left: list[int] = []
        """The numbers of transfers that have left, for the next write; if a kill comes first, a start finds them."""
        self._writing = DeferredLock()
        """Held from the check of some transfers until they are in the mempool: numbers enter in ascending order."""
        self._changes = 0
        """How many changes of the chain have been published here."""
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
        return [entry.transfer for entry in self.mempool.entries()] + [
            item.transfer for item in self._disconnected.items()
        ]

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
        """Load the transfers on disk; gives how many are in the mempool. Raises DatabaseError.

        Chain and journal are written one after the other. A transfer that got into a block meanwhile has a used nonce
        and is dropped; one of an undone block stays in the chain's database until it is in the journal.
        """
        disconnected = self._reader.disconnected()
        try:
            contents = await self._loader.run(self.journal.load)
            self._report(contents)
            written = set(contents.transfers)
            self._enter_stored(await self._stored(contents, [body for _, body in disconnected]))
            on_disk = list(self._on_disk())
            if not contents.is_clean or {number for number, _ in on_disk} != written:
                await self._loader.run(self.journal.rewrite, on_disk)
        except DiskError as error:
            raise DatabaseError(
                f"{self.journal.path} cannot be used: {error}; the disk must work and have room, and the file and its "
                "folder must belong to the user that runs the node"
            ) from error
        if disconnected:
            self._last_disconnected = max(row for row, _ in disconnected)
            await self._release_disconnected()
        return len(self.mempool)

    def _report(self, contents: JournalContents) -> None:
        path = str(self.journal.path)
        if contents.damaged:
            self.log.warn(
                "{path} {damage}: the transfers there are lost, unless wallets and peers send them again",
                path=path,
                damage=contents.damage,
            )
        if contents.torn_bytes:
            self.log.info(
                "the last {bytes} bytes of {path} are cut off: the node was ended while it wrote them, before it "
                "accepted the transfers in them",
                path=path,
                bytes=contents.torn_bytes,
            )

    async def _stored(self, contents: JournalContents, disconnected: Sequence[bytes]) -> deque[tuple[int, Transfer]]:
        """All transfers of the journal, and those of ``disconnected`` that it lacks, with their numbers.

        Sorted by nonce: a replacement has a later number than the transfers that depend on it, but must precede them.
        """
        found = list(contents.transfers.items())
        contents.transfers.clear()
        self.sequence = max(self._guard.trusted_milliseconds() * 1_000, max([number for number, _ in found], default=0))
        self._verifier.trust([transfer for _, transfer in found])
        if disconnected:
            known = {transfer.txid for _, transfer in found}
            for transfer in await self._verified(disconnected):
                if transfer.txid not in known:
                    known.add(transfer.txid)
                    found.append((self._next_sequence(), transfer))
        return deque(sorted(found, key=lambda each: each[1].nonce))

    async def _verified(self, bodies: Sequence[bytes]) -> list[Transfer]:
        parsed: list[Transfer] = []
        for body in bodies:
            try:
                parsed.append(parse_canonical_transfer(body, self._chain.params))
            except RuleViolation as error:
                self.log.info("a stored transfer is dropped: {why}", why=str(error))
        verdicts = await self._verifier.check_transfers(parsed)
        for transfer, verdict in zip(parsed, verdicts, strict=True):
            if verdict is not None:
                self._log_dropped(transfer, verdict)
        return [transfer for transfer, verdict in zip(parsed, verdicts, strict=True) if verdict is None]

    def _enter_stored(self, stored: deque[tuple[int, Transfer]]) -> None:
        # No upper limit on timestamps here: these transfers passed it when they arrived, so one in the future means
        # that this computer's clock is not set yet.
        window = evolve(self._window(), newest=MAX_INTEGER)
        while stored:
            # In chunks, whose memory can be used again for the entries made of them.
            some = [stored.popleft() for _ in range(min(_SCAN_PER_TURN, len(stored)))]
            accounts = self._accounts([transfer for _, transfer in some])
            for number, transfer in some:
                try:
                    self.mempool.admit(transfer, accounts, window=window, sequence=number)
                except RuleViolation as refusal:
                    self._park(DisconnectedTransfer(transfer, number), accounts[transfer.sender], refusal)

    def _on_disk(self) -> Iterator[tuple[int, Transfer]]:
        """What a journal without waste has: the transfers in the mempool, and those set aside that are on disk.

        As they are now; to be iterated over in any thread.
        """
        aside = [(item.sequence, item.transfer) for item in self._disconnected.items() if item.sequence is not None]
        return chain(((entry.sequence, entry.transfer) for entry in self.mempool.snapshot()), aside)

    def _next_sequence(self) -> int:
        self.sequence = max(self.sequence + 1, self._guard.trusted_milliseconds() * 1_000)
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
        return submission.answer

    def _admit_all(self) -> Iterator[Deferred[None] | None]:
        while self._submissions:
            count = len(self._submissions)
            if count > _FLOOD:
                count = min(count, _VERIFY_AT_ONCE)
                yield Deferred.fromCoroutine(self._verify_in_threads(count)).addErrback(self._log_failure)
            for start in range(0, count, _ADMIT_AT_ONCE):
                some = min(_ADMIT_AT_ONCE, count - start)
                for first in range(_CHECK_AT_ONCE, some, _CHECK_AT_ONCE):
                    self._check_signatures(first - _CHECK_AT_ONCE, first)
                    yield None
                yield Deferred.fromCoroutine(self._admit_some(some))

    async def _verify_in_threads(self, count: int) -> None:
        """Verify the signatures of the first submissions; the verifier remembers the good ones."""
        submissions = list(islice(self._submissions, count))
        verdicts = await self._verifier.check_transfers([submission.transfer for submission in submissions])
        for submission, verdict in zip(submissions, verdicts, strict=True):
            submission.forged = verdict

    def _check_signatures(self, first: int, last: int) -> None:
        """Check those of the submissions from ``first`` to ``last`` - 1.

        An exception recurs in :meth:`_admit_some`, which reports it.
        """
        with suppress(Exception):
            for each in islice(self._submissions, first, last):
                each.forged = each.forged or self._verifier.check_in_this_thread(each.transfer)

    async def _admit_some(self, count: int) -> None:
        """Check, write, publish and answer the first ``count`` submissions, which stay queued meanwhile."""
        async with self._writing:
            submissions = list(islice(self._submissions, count))
            try:
                # Signatures come first: nothing is read from the disk for a transfer that cost its sender nothing.
                for each in submissions:
                    each.forged = each.forged or self._verifier.check_in_this_thread(each.transfer)
                    each.result = each.forged or each.result
                await self._enter_all([each for each in submissions if each.forged is None])
            except Exception as error:
                # Fail all of them: none has entered, and a refusal may have depended on another one of them.
                for each in submissions:
                    each.fail(error)
        for each in submissions:
            self._submissions.popleft()
            if isinstance(each.result, SubmitResult):
                each.answer.callback(each.result)
                continue
            if isinstance(each.result, RuleViolation):
                self.refusals[each.result.code] += 1
            each.answer.errback(each.result)

    async def _enter_all(self, candidates: Sequence[_Candidate]) -> None:
        """Commit the candidates that the mempool accepts, then enter and publish them; each gets its result.

        To be called by the owner of ``_writing``. Raises DiskError: then the mempool is as before.
        """
        changes, accounts = self._changes, self._accounts([each.transfer for each in candidates])
        # In order, as one may build on another, and only to see which are to be written: nothing shows them yet.
        for admission in reversed(self._try_to_enter(candidates, accounts)):
            self.mempool.revert(admission)
        accepted = [each for each in candidates if each.result is SubmitResult.ACCEPTED]
        if not accepted:
            return
        await self._write([(each.sequence, each.transfer) for each in accepted])
        # Meanwhile a block may have included one, or taken its cover, and others may have expired.
        if self._changes != changes:
            accounts = self._accounts([each.transfer for each in accepted])
        admissions = self._try_to_enter(accepted, accounts)
        self._left += [each.sequence for each in accepted if each.result is not SubmitResult.ACCEPTED]
        self._publish_admissions(admissions)

    def _try_to_enter(self, candidates: Sequence[_Candidate], accounts: Mapping[bytes, Account]) -> list[Admission]:
        """Enter the candidates that the mempool accepts; each gets its result."""
        window = self._window()
        admissions: list[Admission] = []
        for each in candidates:
            try:
                admission = self._admit(each, accounts, window)
            except Exception as error:
                # For its sender; it does not concern the others.
                each.fail(error)
            else:
                admissions += [admission] if admission else []
                each.result = SubmitResult.ACCEPTED if admission else SubmitResult.KNOWN
        return admissions

    def _admit(
        self, candidate: _Candidate, accounts: Mapping[bytes, Account], window: TimestampWindow
    ) -> Admission | None:
        """Enter a signed transfer into the mempool; None if it is known. Raises RuleViolation."""
        transfer = candidate.transfer
        account = accounts[transfer.sender]
        # Maybe with another signature: the txid covers none.
        if transfer.txid in self.mempool or self._is_in_chain(candidate, account):
            return None
        leaving = self.mempool.check(transfer, accounts, window)
        candidate.sequence = candidate.sequence or self._next_sequence()
        returned = bool(self._disconnected.get([transfer.txid]))
        return self.mempool.enter(transfer, account, leaving=leaving, sequence=candidate.sequence, returned=returned)

    def _is_in_chain(self, candidate: _Candidate, account: Account) -> bool:
        transfer = candidate.transfer
        # A transfer in the chain has a used nonce.
        if transfer.nonce >= account.nonce or candidate.on_lookup is None:
            return False
        candidate.on_lookup()
        return self._reader.has_transaction(transfer.txid, self._chain.params)

    def _window(self) -> TimestampWindow:
        return self.mempool.window(self._tip_slot, milliseconds(self._clock))

    def _accounts(self, transfers: Iterable[Transfer]) -> dict[bytes, Account]:
        """The accounts of all senders and recipients."""
        # A commit of the chain that has not been published here yet does no harm: the mempool settles when it is.
        keys = [key for transfer in transfers for key in (transfer.sender, transfer.recipient)]
        unknown = dict.fromkeys(keys, Account())
        return {**unknown, **self._reader.accounts(unknown)}

    def _publish_admissions(self, admissions: Sequence[Admission]) -> None:
        own = {admission.entry: None for admission in admissions}
        removed = {entry: why for admission in admissions for entry, why in admission.removed.items()}
        self._left += [entry.sequence for entry in removed]
        self._forget(self._disconnected.take([entry.transfer.txid for entry in own]))
        self._disconnected.unblock({entry.transfer.sender for entry in removed})
        # Nobody hears of what came and went at once.
        came = [entry for entry in own if entry not in removed]
        others = {entry: why for entry, why in removed.items() if entry not in own}
        if came or others:
            self._publish(came, others)

    async def _write(self, added: Sequence[tuple[int, Transfer]]) -> None:
        """Append to the journal; to be called by the owner of ``_writing``. Raises DiskError.

        Cancelling a Deferred of a client does not stop it.
        """
        if self.journal.is_long:
            await self._rewrite()
        left, self._left = self._left, []
        try:
            await self._worker.run(self.journal.write, added, left)
        except Exception:
            self._left = left + self._left
            raise

    async def _rewrite(self) -> None:
        left, self._left = self._left, []
        try:
            await self._worker.run(self.journal.rewrite, self._on_disk())
        except DiskError:
            # It has been reported, and the journal is as before. The next attempt is made when it is twice as long.
            self._left = left + self._left

    async def _write_removals(self) -> None:
        async with self._writing:
            if self._left:
                await self._write([])

    # Changes of the chain

    def chain_changed(self, change: ChainChange) -> None:
        """Remove the transfers that the new blocks include or rule out, and queue those of undone blocks."""
        self._tip_slot = change.tip.slot
        self._changes += 1
        accounts, txids = change.accounts or {}, change.txids or frozenset()
        self._forget(self._disconnected.take(txids))
        removed = self.mempool.follow_chain(txids, accounts, reorganised=bool(change.undone))
        uncovered = sorted((entry for entry, why in removed.items() if why is RemovalReason.REORG), key=_nonce)
        undone = [transfer for block in reversed(change.undone) for transfer in block.disconnected]
        self._disconnected.queue(DisconnectedTransfer(each, None) for each in undone)
        self._disconnected.queue(DisconnectedTransfer(entry.transfer, entry.sequence) for entry in uncovered)
        self._disconnected.queue(self._disconnected.retry(accounts))
        self._last_disconnected = change.last_disconnected or self._last_disconnected
        self._remove(removed, on_disk=uncovered)
        self._begin_readmission()

    def _begin_readmission(self) -> None:
        if self._last_disconnected or not self._disconnected.is_queue_empty:
            self._begin(_READMISSION, self._readmit_all())

    def _readmit_all(self) -> Iterator[Deferred[None] | None]:
        while self._last_disconnected or not self._disconnected.is_queue_empty:
            if some := self._disconnected.next(_READMIT_AT_ONCE):
                yield Deferred.fromCoroutine(self._readmit(some))
            else:
                yield Deferred.fromCoroutine(self._release_disconnected())

    async def _readmit(self, some: Sequence[DisconnectedTransfer]) -> None:
        """Return disconnected transfers to the mempool, or park or drop them; their signatures have been verified.

        Raises DiskError: they are still queued and in the chain's database, and the next block or minute tries again.
        """
        async with self._writing:
            changes, candidates = self._changes, [_Candidate(item.transfer) for item in some]
            await self._enter_all(candidates)
            if self._changes == changes:
                refused = {
                    item: each.result
                    for item, each in zip(some, candidates, strict=True)
                    if each.result is not SubmitResult.ACCEPTED
                }
                await self._write_parked(self._park_or_drop(refused))
            # If a block has come meanwhile, those that it has not included are tried once more.
            if self._changes == changes:
                self._disconnected.dequeue(some)

    def _park_or_drop(
        self, refused: Mapping[DisconnectedTransfer, SubmitResult | Exception]
    ) -> list[DisconnectedTransfer]:
        """Gives those that are parked now and not in the journal."""
        accounts = self._accounts([item.transfer for item in refused])
        parked: list[DisconnectedTransfer] = []
        for item, result in refused.items():
            transfer = item.transfer
            if isinstance(result, RuleViolation) and self._park(item, accounts[transfer.sender], result):
                parked += [item] if item.sequence is None else []
            else:
                self._forget(self._disconnected.take([transfer.txid]))
        return parked

    async def _write_parked(self, parked: Sequence[DisconnectedTransfer]) -> None:
        if not parked:
            return
        numbered = [(self._next_sequence(), item.transfer) for item in parked]
        await self._write(numbered)
        for (number, transfer), item in zip(numbered, parked, strict=True):
            item.sequence = number
            if not self._disconnected.get([transfer.txid]):
                self._left.append(number)

    def _park(self, item: DisconnectedTransfer, account: Account, refusal: RuleViolation) -> bool:
        """Park a transfer that the mempool has refused and may accept later, or log that it is dropped."""
        pool_full = refusal.code is Refusal.POOL
        if may_become_valid(refusal, item.transfer, account) and self._disconnected.park(item, pool_full=pool_full):
            return True
        self._log_dropped(item.transfer, refusal)
        return False

    async def _release_disconnected(self) -> None:
        """Delete from the chain's database the undone transfers that are in the journal, and so on the disk."""
        last, self._last_disconnected = self._last_disconnected, 0
        try:
            await self._worker.run(self.journal.sync)
            await self._chain.writer.run(self._chain.chainstate.store.forget_disconnected, last)
        except Exception:
            self._last_disconnected = self._last_disconnected or last
            raise

    # Removal

    def expire(self) -> None:
        """Begin to remove expired transfers, and to repeat writes that the disk has refused; called now and then."""
        self._begin(_EXPIRY, self._expire())
        self._begin_readmission()

    def _expire(self) -> Iterator[Deferred[None] | None]:
        oldest = self._window().oldest
        self._forget(self._disconnected.take([old.txid for old in self.parked if old.timestamp < oldest]))
        seen = 0
        while entries := self.mempool.since(seen, _SCAN_PER_TURN):
            seen = entries[-1].sequence
            self._remove(self.mempool.expire(oldest, among=entries))
            yield None
        yield Deferred.fromCoroutine(self._write_removals())

    def drop(self, txids: Sequence[bytes]) -> None:
        """Remove transfers unconditionally; for devnet's reorganisations."""
        self._remove(self.mempool.drop(txids))
        self._forget(self._disconnected.take(txids))

    def _remove(self, removed: Removals, *, on_disk: Sequence[MempoolEntry] = ()) -> None:
        """Publish that ``removed`` have left the mempool; those of ``on_disk`` are not to leave the journal.

        Why each has left: :class:`svcd.node.mempool.RemovalReason`.
        """
        if removed:
            self._disconnected.unblock({entry.transfer.sender for entry in removed})
            kept = set(on_disk)
            self._left += [entry.sequence for entry in removed if entry not in kept]
            self._publish([], removed)

    def _forget(self, items: Iterable[DisconnectedTransfer]) -> None:
        self._left += [item.sequence for item in items if item.sequence is not None]

    # Tasks

    async def readmission_done(self) -> None:
        """Wait until the disconnected transfers are where they belong, in memory and on disk.

        Does not wait for submissions, of which there may be no end, nor for writes that the disk has refused.
        """
        await self._end_of(_READMISSION)

    async def finished(self) -> None:
        """Wait until all tasks are done and what has left is written; nothing may be submitted any more."""
        while self._tasks:
            await self._end_of(next(iter(self._tasks)))
        with suppress(DiskError):
            await self._write_removals()

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
        # Errors of the disk have been reported to the health of their file.
        if not isinstance(failure.value, apsw.Error | DiskError):
            self.log.failure("work on the mempool failed", failure)

    def _log_dropped(self, transfer: Transfer, why: BaseException) -> None:
        self.log.info("transfer {txid} is dropped: {why}", txid=transfer.txid.hex(), why=str(why))


def _nonce(entry: MempoolEntry) -> int:
    return entry.transfer.nonce
