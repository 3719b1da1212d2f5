"""The ledger's door for transfers: checks, the mempool, and the mempool's copy on disk (docs/protocol.md 12)."""

import json
from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import CooperativeTask, Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.node.arrivals import Arrivals
from svcd.node.changes import Change
from svcd.node.common import common
from svcd.node.journal import PoolJournal
from svcd.node.mempool import Entry, Mempool, Window
from svcd.node.parking import Parking, may_come_later
from svcd.node.refusals import Refusals
from svcd.node.underway import Underway
from svcd.node.verifier import Verifier
from svcd.ports import Clock, milliseconds
from svcd.store.chain_store import ChainReader

_AT_ONCE: Final = 256
"""Transfers that are looked at in one step: far less than 10 ms."""


class Reception(StrEnum):
    """What has become of a transfer that was handed in."""

    ACCEPTED = "accepted"
    KNOWN = "known"


class PoolListener(Protocol):
    """Whoever wants to hear of waiting transfers."""

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Called in the reactor's thread, in order; for what came in, after it was committed."""


@frozen
class Waiting:
    """The waiting transfers in memory and on disk."""

    mempool: Mempool
    journal: PoolJournal


class Transfers:
    """Takes transfers in and keeps the mempool true to the chain."""

    log = Logger()

    def __init__(
        self, params: NetworkParams, *, reader: ChainReader, waiting: Waiting, verifier: Verifier, clock: Clock
    ) -> None:
        self.mempool = waiting.mempool
        self.underway = Underway()
        """The submissions that have begun; to be waited for before the file is closed."""
        self.refusals = Refusals()
        """How many submissions broke which rule."""
        self._params = params
        self._reader = reader
        self._journal = waiting.journal
        self._verifier = verifier
        self._clock = clock
        self._listeners: list[PoolListener] = []
        self._sequence = 0
        self._changes = 0
        """How often the chain has changed since the start."""
        tip = reader.tip()
        self._tip_slot = tip.slot if tip else 0
        self._fallen_out: OrderedDict[bytes, Transfer] = OrderedDict()
        """By txid what a reorganisation put out of chain or mempool and may wait again: still to be tried."""
        self._parking = Parking()
        self._arrivals = Arrivals(self.mempool, self._journal, readmit=self._readmit, let_go=self._let_go)
        self._tasks: dict[str, CooperativeTask[Iterator[None]]] = {}
        """Work that is done in steps, so that the reactor breathes, by what it is."""
        self._cooperator = Cooperator(scheduler=lambda call: clock.callLater(0, call))  # type: ignore[arg-type,return-value]

    @property
    def sequence(self) -> int:
        """The local number of the newest transfer. Each run begins at its Unix time in µs: no number comes twice."""
        return self._sequence

    @property
    def parked(self) -> list[Transfer]:
        """Transfers that a reorganisation left without cover: they do not wait, but a later block may cover them."""
        return self._parking.transfers()

    def subscribe(self, listener: PoolListener) -> None:
        """Tell ``listener`` of every later change of the mempool."""
        self._listeners.append(listener)

    async def load(self) -> int:
        """Take up the transfers that waited when the node stopped; gives how many still may."""
        # What fell out of the chain just before the node stopped has no number yet, and comes last.
        stored = sorted(self._reader.pooled(), key=lambda row: not row[0])
        newest = self._sequence = max([milliseconds(self._clock) * 1_000, *(sequence for sequence, _ in stored)])
        transfers = [parse_transfer(json.loads(body), self._params) for _, body in stored]
        verdicts = await self._verifier.check_transfers(transfers)
        entries: list[Entry] = []
        for (sequence, _), transfer in zip(stored, transfers, strict=True):
            self._sequence += not sequence
            entries.append(Entry(transfer, sequence or self._sequence))
        # A replacement came later than what builds on it, which must not seem to be behind a gap.
        for entry, verdict in sorted(zip(entries, verdicts, strict=True), key=lambda pair: pair[0].transfer.nonce):
            self._take_up(entry, verdict)
        numbered = [entry for entry in self.mempool.entries() if entry.sequence > newest]
        gone = [each for each in transfers if each.txid not in self.mempool and each.txid not in self._parking]
        await self._journal.record(numbered, _entries(gone))
        return len(self.mempool)

    def _take_up(self, entry: Entry, verdict: RuleViolation | None) -> None:
        """Let ``entry``, which was on disk, wait again, or park it, or let it go."""
        transfer, account = entry.transfer, self._account(entry.transfer)
        try:
            if verdict is not None:
                raise verdict
            self.mempool.admit(transfer, account, window=self._window(), sequence=entry.sequence)
        except RuleViolation as refusal:
            if not may_come_later(refusal, transfer, account) or not self._parking.put(transfer):
                self._say_let_go(transfer, refusal)

    def submit(self, transfer: Transfer) -> Deferred[Reception]:
        """Take in a transfer whose fields have been checked; committed when the Deferred fires.

        It fails with RuleViolation. Cancelling it does not stop the work.
        """
        return self.underway.keep(self._submit(transfer)).addErrback(self.refusals.note)

    async def _submit(self, transfer: Transfer) -> Reception:
        account, changes = self._account(transfer), self._changes
        known = self._known(transfer, account)
        if known != transfer.wire:
            if known is None:
                # The cheap checks come first, and again after the signature: the chain may have moved meanwhile.
                self.mempool.check(transfer, account, self._window())
            verdict = await self._verifier.check_transfer(transfer)
            if verdict is not None:
                raise verdict
            if self._changes != changes:
                # A commit that we have not heard of yet does no harm: the mempool is settled when we do.
                account = self._account(transfer)
            known = self._known(transfer, account)
        if known is None:
            await self._admit(transfer, account)
            return Reception.ACCEPTED
        await self._arrivals.committed(transfer.txid)
        return Reception.KNOWN

    def _known(self, transfer: Transfer, account: Account) -> bytes | None:
        """Its canonical JSON where it waits or is in the chain, maybe under another signature: the txid covers none."""
        if entry := self.mempool.get(transfer.txid):
            return entry.transfer.wire
        # One in the chain has used its nonce.
        place = self._reader.transaction(transfer.txid) if transfer.nonce < account.nonce else None
        return None if place is None else place.body

    def _window(self) -> Window:
        return self.mempool.window(self._tip_slot, milliseconds(self._clock))

    def _account(self, transfer: Transfer) -> Account:
        return self._reader.account(transfer.sender) or Account()

    async def _admit(self, transfer: Transfer, account: Account) -> None:
        self._sequence += 1
        admission = self.mempool.admit(transfer, account, window=self._window(), sequence=self._sequence)
        self._give_up([transfer.txid])
        removed = await self._arrivals.write(admission)
        # A block may have taken it meanwhile: whoever has been told that it left must not hear after that that it came.
        added = [admission.entry] if self.mempool.get(transfer.txid) is admission.entry else []
        if added or removed:
            self._publish(added, removed)

    def _readmit(self, entry: Entry) -> bool:
        account, window = self._account(entry.transfer), self._window()
        try:
            admission = self.mempool.admit(entry.transfer, account, window=window, sequence=entry.sequence)
        except RuleViolation:
            return False
        self._let_go(admission.removed)
        return True

    def chain_changed(self, change: Change) -> None:
        """Let go of what the new blocks hold or rule out, and take back what undone blocks held."""
        self._changes += 1
        self._tip_slot = change.tip.slot
        self._forget(self._give_up(txids := change.txids))
        left = self.mempool.settle(txids, change.accounts)
        uncovered = _uncovered(left, txids, change) if change.undone else []
        undone = [transfer for block in reversed(change.undone) for transfer in block.transfers]
        for transfer in [*undone, *uncovered, *self._parking.transfers()]:
            if transfer.txid not in txids:
                self._fallen_out.setdefault(transfer.txid, transfer)
        self._let_go(left, kept=uncovered)
        if self._fallen_out:
            self._begin("taking back", self._take_back())

    def _give_up(self, txids: Collection[bytes]) -> list[Transfer]:
        """Those of ``txids`` that are on disk without waiting; nobody tries to take them back any more."""
        fallen = [self._fallen_out.pop(txid) for txid in common(self._fallen_out, txids)]
        return fallen + self._parking.take(txids)

    def _begin(self, what: str, steps: Iterator[None]) -> None:
        if what not in self._tasks:
            task = self._tasks[what] = self._cooperator.cooperate(steps)
            task.whenDone().addErrback(self._say_failed).addBoth(lambda _: self._tasks.pop(what))

    async def settled(self) -> None:
        """Wait until the transfers of undone blocks have been taken back, and the disk holds what waits."""
        for task in list(self._tasks.values()):
            await task.whenDone()
        await self._journal.record([], [])

    def _take_back(self) -> Iterator[None]:
        """One transfer a step."""
        while self._fallen_out:
            _, transfer = self._fallen_out.popitem(last=False)
            if transfer.txid not in self.mempool:
                Deferred.fromCoroutine(self._take_one_back(transfer)).addErrback(self._say_failed)
            yield

    async def _take_one_back(self, transfer: Transfer) -> None:
        account = self._account(transfer)
        try:
            await self._admit(transfer, account)
        except RuleViolation as refusal:
            if not may_come_later(refusal, transfer, account) or not self._park(transfer):
                self._parking.take([transfer.txid])
                self._say_let_go(transfer, refusal)
                self._forget([transfer])
        except Exception:
            # It is still on disk, from the commit that put it out of the chain.
            self._parking.put(transfer)
            raise

    def _park(self, transfer: Transfer) -> bool:
        if transfer.txid not in self._parking and self._parking.put(transfer):
            # Where a block held it just before, its removal may be written after the commit that undid the block.
            self._journal.record([Entry(transfer, 0)], []).addErrback(self._say_failed)
        return transfer.txid in self._parking

    def expire(self) -> None:
        """Begin to let go of what no block may hold any more; to be called now and then."""
        self._begin("expiring", self._expire())

    def _expire(self) -> Iterator[None]:
        oldest = self._window().oldest
        self._forget(self._give_up([parked.txid for parked in self.parked if parked.timestamp < oldest]))
        entries = self.mempool.entries()
        for start in range(0, len(entries), _AT_ONCE):
            yield
            self._let_go(self.mempool.expire(oldest, among=entries[start : start + _AT_ONCE]))

    def drop(self, txids: Sequence[bytes]) -> None:
        """Let go of transfers on the operator's word."""
        self._let_go(self.mempool.drop(txids))
        self._forget(self._give_up(txids))

    def _let_go(self, entries: Sequence[Entry], *, kept: Sequence[Transfer] = ()) -> None:
        """Tell that ``entries`` wait no longer, and remove all but those of ``kept`` from the disk."""
        if entries:
            on_disk = {transfer.txid for transfer in kept}
            self._forget([entry.transfer for entry in entries if entry.transfer.txid not in on_disk])
            self._publish([], entries)

    def _forget(self, transfers: Sequence[Transfer]) -> None:
        if transfers:
            self._journal.record([], _entries(transfers)).addErrback(self._say_failed)

    def _publish(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        for listener in self._listeners:
            with self.log.failuresHandled("telling {listener} of the mempool", listener=listener):
                listener.pool_changed(added, removed)

    def _say_failed(self, failure: Failure) -> None:
        self.log.failure("the mempool could not be written to disk", failure)

    def _say_let_go(self, transfer: Transfer, why: BaseException) -> None:
        self.log.info("waiting transfer {txid} is let go: {why}", txid=transfer.txid.hex(), why=str(why))


def _entries(transfers: Iterable[Transfer]) -> list[Entry]:
    return [Entry(transfer, 0) for transfer in transfers]


def _uncovered(left: Sequence[Entry], txids: Container[bytes], change: Change) -> list[Transfer]:
    """What left the mempool only because the balance does not cover it, by nonce."""
    transfers = [entry.transfer for entry in left if entry.transfer.txid not in txids]
    uncovered = [transfer for transfer in transfers if transfer.nonce >= change.accounts[transfer.sender].nonce]
    return sorted(uncovered, key=lambda transfer: transfer.nonce)
