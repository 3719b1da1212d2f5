"""Evaluates watches as chain and mempool change, and stores the events: one step is one transaction.

The follower runs in a thread of its own, with its own reader of the chain. A step compares the cursor, the block up to
which the watches have been evaluated, with the tip. So the result depends neither on how often steps run nor on the
changes between two of them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.address import encode_address
from svcd.chain.forkchoice import tie_winner
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.commerce.events import EventType, MismatchedTransfer, NodeAlarm, WebhookEvent
from svcd.commerce.payment import ChainTip, Observation
from svcd.commerce.payment_lookup import MempoolPaymentIndex, PaymentLookup
from svcd.commerce.watch import (
    MAX_TOLD_MISMATCHES,
    EvaluationContext,
    NextEvaluation,
    Watch,
    choose_mismatches,
    emit_alarm,
    emit_mismatches,
    evaluate,
    mismatch_kind,
    next_evaluation,
    note_mismatches,
)
from svcd.commerce.watch_repository import NOT_EVALUATED, EvaluatedWatch, WatchRepository, watch_of
from svcd.node.mempool import MempoolEntry
from svcd.node.status import DEEP, DEEP_BLOCKS, DEEP_SECONDS, ChainAlarm, what_was_undone
from svcd.store.chain_store import ChainReader
from svcd.store.webhook_events import WatchQueue
from svcd.store.webhook_store import AlarmRow, FollowedBlock, WatchRow, WebhookStore

CURSOR_BLOCKS: Final = 4_096
"""Block hashes that the cursor keeps to find a fork: more than the largest number of confirmations."""
_AT_ONCE: Final = 200
"""Payments whose watches are read together, and watches that are saved together; some milliseconds' work."""
_MAX_BLOCKS_READ: Final = 256
"""After more new blocks than this, a step evaluates every watch instead of reading the blocks' transfers."""

_PaymentKey = tuple[str, str, int]
"""Reference, recipient's address and amount in base units."""
_Rows = dict[str, WatchRow]
"""Watches by id."""


class ChainBehind(Exception):
    """The node has lost blocks below the cursor and downloads them again; nothing can be evaluated meanwhile."""


class MempoolBehind(ChainBehind):
    """The chain has just been reorganised, and the undone transfers are not back in the mempool yet."""


# The cursor


@frozen
class ChainDelta:
    """The change of the chain since the last evaluation of the watches."""

    tip: ChainTip
    before: int
    """The cursor's height."""
    fork: int
    """The height of the newest common block; blocks above it up to ``before`` have been undone."""
    greater: bool = True
    """Whether fork choice prefers the chain to the one that the cursor is on (docs/protocol.md 10)."""

    @property
    def moved(self) -> bool:
        """Whether the tip is another block than the cursor's."""
        return not self.fork == self.before == self.tip.height

    @property
    def new_heights(self) -> range:
        """The heights of the blocks above the fork."""
        return range(self.fork + 1, self.tip.height + 1)


def read_delta(watches: WebhookStore, reader: ChainReader) -> ChainDelta | None:
    """The difference between the cursor and the tip, inside a snapshot of ``reader``.

    None while the chain is shorter than the cursor without a fork, as after a power loss: the node downloads the lost
    blocks again, so no payment in them has been undone.
    """
    point = reader.tip()
    if point is None:
        return None
    tip = ChainTip(point.height, point.hash)
    newest = watches.newest_step()
    if newest is None:
        return ChainDelta(tip, tip.height, tip.height)
    fork = -1
    for step in watches.steps_down():
        fork = step.height - 1
        stored = reader.canonical(step.height) if step.height <= tip.height else None
        if stored is not None and stored.point.hash == step.hash:
            fork = step.height
            break
    if tip.height < newest.height and fork >= tip.height:
        return None
    greater = fork == newest.height or _is_greater(point, newest)
    return ChainDelta(tip, newest.height, min(fork, tip.height), greater)


def _is_greater(tip: ChainPoint, followed: FollowedBlock) -> bool:
    if tip.work != followed.work:
        return tip.work > followed.work
    return tie_winner(tip.hash, followed.hash) == tip.hash


def advance_cursor(watches: WebhookStore, reader: ChainReader, delta: ChainDelta) -> None:
    """Move the cursor to the tip."""
    if watches.newest_step() is None:
        watches.follow(delta.fork, _steps(reader, range(delta.tip.height, delta.tip.height + 1)), keep=CURSOR_BLOCKS)
    elif delta.moved:
        newest = delta.new_heights[-CURSOR_BLOCKS:]
        watches.follow(delta.fork, _steps(reader, newest), keep=CURSOR_BLOCKS)


def _steps(reader: ChainReader, heights: range) -> list[FollowedBlock]:
    points = [stored.point for height in heights if (stored := reader.canonical(height)) is not None]
    return [FollowedBlock(point.height, point.hash, point.work) for point in points]


# The steps


@frozen
class FollowerLag:
    """How far the cursor is from the tip of this node's chain."""

    blocks: int
    """By how many blocks the cursor is behind the tip."""
    behind: bool
    """Whether the cursor is on a chain that is to be preferred to this node's."""


@frozen
class MempoolChange:
    """Transfers that entered and left the mempool in one change."""

    added: tuple[MempoolEntry, ...]
    removed: tuple[MempoolEntry, ...]


def _no_pause() -> None:
    """Go on at once."""


@frozen(kw_only=True)
class StepContext:
    """What the reactor's thread knows when a step begins."""

    now: int
    """Unix milliseconds."""
    synced: bool
    """Whether the node's chain is the network's."""
    term: int | None = 0
    """The term in which this node is the leader of those that share the database; None while another node is."""
    mempool_changes: Sequence[MempoolChange] = ()
    """Since the previous step."""
    tip: ChainPoint | None = None
    """The tip up to which the mempool has followed the chain, with the transfers of undone blocks back in it.

    None if the mempool never has to be waited for.
    """
    alarms: Sequence[ChainAlarm] = ()
    """Alarms for merchants, except deep reorganisations, which the cursor shows."""
    pause: Callable[[], None] = _no_pause
    """Called before each watch and each few payments; may block while the chain needs the processor."""


@define
class ChainFollower:
    """Evaluates the watches as chain and mempool change; for one thread."""

    repository: WatchRepository
    params: NetworkParams
    reader: ChainReader
    every_depth: bool
    """Whether each further confirmation of an unconfirmed payment is an event."""
    mempool: MempoolPaymentIndex = field(factory=MempoolPaymentIndex, init=False)
    """Up to the last change that was passed to this thread."""
    lookup: PaymentLookup = field(init=False)
    _changed_in_mempool: dict[_PaymentKey, None] = field(factory=dict, init=False)
    """Payments of the mempool changes that no committed step has covered yet."""
    _synced: bool = field(default=False, init=False)
    """As of the newest step."""
    _stepped_in: int | None = field(default=None, init=False)
    """The term of the newest committed step; None before the first step, and while another node is the leader."""
    lag: FollowerLag | None = field(default=None, init=False)
    """How far the watches are behind the tip, as of the newest step."""

    @lookup.default
    def _lookup_with_mempool(self) -> PaymentLookup:
        return PaymentLookup(self.params, self.reader, self.mempool, synced=lambda: self._synced)

    def step(self, context: StepContext) -> list[WatchQueue]:
        """Evaluate the watches that changes may affect; returns the queues with new events.

        Evaluates nothing while the chain is behind the cursor, the mempool behind a reorganisation, or another node is
        the leader. Raises NotLeader.
        """
        self.note_mempool_changes(context.mempool_changes)
        self._synced = context.synced
        if context.term is None:
            self._stand_by()
            return []
        if self.repository.shared and context.term != self._stepped_in:
            # The leader before may not have had all transfers of this mempool.
            self._changed_in_mempool |= dict.fromkeys(self.mempool.payments(self.params))
        with self.reader.snapshot(), self.repository.leading(context.term):
            delta = self._read_delta(context)
            if delta is not None and self._is_mempool_behind(delta, context):
                # The reorganisation has not been announced yet; its announcement requests the next step.
                delta = None
            queues = [] if delta is None else self._follow(delta, context)
            queues += self.repository.redeliveries_requested()
        if delta is not None:
            self._committed(context.term)
        return queues

    def _stand_by(self) -> None:
        """Note the cursor of the leader; the mempool is evaluated when this node becomes the leader."""
        self._changed_in_mempool.clear()
        self._stepped_in = None
        with self.reader.snapshot():
            self._note_lag(read_delta(self.repository.watches, self.reader))

    def _read_delta(self, context: StepContext) -> ChainDelta | None:
        """The difference between the cursor and the tip; None while the chain is behind the cursor.

        Also None if several nodes share the cursor and this node's chain is a branch that may not be the network's:
        merchants must get the events of one reorganisation, not those of each node.
        """
        delta = read_delta(self.repository.watches, self.reader)
        self._note_lag(delta)
        if delta is not None and self.repository.shared and delta.fork < delta.before:
            return delta if context.synced and delta.greater else None
        return delta

    def _is_mempool_behind(self, delta: ChainDelta, context: StepContext) -> bool:
        """Whether blocks were undone after ``context`` was made: their payments seem gone in its mempool."""
        if context.tip is None or delta.fork == delta.before:
            return False
        stored = self.reader.canonical(context.tip.height)
        return stored is None or stored.point.hash != context.tip.hash

    def _note_lag(self, delta: ChainDelta | None) -> None:
        if delta is None:
            self.lag = FollowerLag(0, behind=True)
        else:
            self.lag = FollowerLag(max(delta.tip.height - delta.before, 0), behind=not delta.greater)

    def add_watch(self, watch: Watch, context: StepContext) -> tuple[list[WatchQueue], Observation]:
        """Store a new watch and evaluate it, after a step for all others; returns all queues with new events.

        The mempool changes of ``context`` must have been noted before. Raises ChainBehind or MempoolBehind.
        """
        self._synced = context.synced
        with self.reader.snapshot(), self.repository.watches.commit():
            delta = self._read_delta(context)
            if delta is None:
                raise ChainBehind
            if self._is_mempool_behind(delta, context):
                raise MempoolBehind
            queues = self._follow(delta, context)
            evaluation = self._evaluation_context(delta.tip.height, context)
            observation = self.lookup.find_at(watch.terms, delta.tip)
            begun, events = evaluate(watch, observation, evaluation, initial=True)
            begun, mismatched = self._emit_mismatches(begun, observation, initial=True)
            events += mismatched
            begun, alarms = self._emit_standing_alarms(begun, observation)
            events += alarms
            following = next_evaluation(begun, delta.tip.height, evaluation)
            queues += self.repository.add(begun, events, following, context.now)
        self._committed(context.term)
        return queues, observation

    def note_mempool_changes(self, changes: Iterable[MempoolChange]) -> None:
        """Update the index and remember the payments for the next step; pass each change once, even if a step fails."""
        for change in changes:
            self.mempool.pool_changed(change.added, change.removed)
            for entry in (*change.added, *change.removed):
                transfer = entry.transfer
                if transfer.reference is not None:
                    recipient = encode_address(transfer.recipient, self.params.address_prefix)
                    self._changed_in_mempool[transfer.reference, recipient, transfer.amount] = None

    def _committed(self, term: int | None) -> None:
        self._changed_in_mempool.clear()
        self._stepped_in = term
        self.lag = FollowerLag(0, behind=False)

    def _evaluation_context(self, tip_before: int, context: StepContext, *, at_tip: bool = True) -> EvaluationContext:
        # Only at the tip may a watch expire: a payment in a later new block comes first.
        synced = context.synced and at_tip
        return EvaluationContext(now=context.now, tip_before=tip_before, synced=synced, every_depth=self.every_depth)

    def _follow(self, delta: ChainDelta, context: StepContext) -> list[WatchQueue]:
        """Evaluate watches and emit alarms for the blocks from the cursor to the tip, and advance the cursor."""
        alarms = self._alarms(delta, context)
        # The remaining alarms are not new: a watch that is evaluated for the first time gets them as initial events.
        self.repository.watches.end_alarms({alarm.id for alarm in alarms}, context.now)
        return [*self._advance(delta, context), *self._emit_alarms(alarms, delta.tip, context)]

    def _advance(self, delta: ChainDelta, context: StepContext) -> list[WatchQueue]:
        """Evaluate watches for each new block in turn, or for a reorganisation as a whole, and advance the cursor."""
        queues: list[WatchQueue] = []
        watches = self.repository.watches
        if not watches.is_idle():
            block_by_block = delta.fork == delta.before and len(delta.new_heights) <= _MAX_BLOCKS_READ
            before = delta.before
            for height in delta.new_heights[:-1] if block_by_block else ():
                affected = self._paid_at([height], context) | _by_id(watches.waking_at_height(height))
                evaluation = self._evaluation_context(before, context, at_tip=False)
                # A new watch is evaluated at the newest block only: its first events are initial, without history.
                begun = [row for row in affected.values() if row.wake_height != NOT_EVALUATED.height]
                queues += self._evaluate(begun, self._tip_at(height), evaluation, context)
                before = height
            last = evolve(delta, before=before, fork=before) if block_by_block else delta
            # A heavier chain may be shorter: every payment on it has lost confirmations.
            everything = len(last.new_heights) > _MAX_BLOCKS_READ or last.tip.height < last.before
            rows = watches.all_followed() if everything else self._affected_at_tip(last, context).values()
            queues += self._evaluate(rows, delta.tip, self._evaluation_context(before, context), context)
        advance_cursor(watches, self.reader, delta)
        return queues

    def _alarms(self, delta: ChainDelta, context: StepContext) -> list[AlarmRow]:
        """The alarms of the node, and a deep reorganisation if the step passes one."""
        alarms = [AlarmRow(f"{each.kind}:{each.about}", each.kind, each.sentence) for each in context.alarms]
        left = self.repository.watches.newest_step()
        if left is not None and delta.before - delta.fork >= DEEP_BLOCKS:
            sentence = what_was_undone(delta.fork + 1, delta.before)
            ends_at = context.now + round(1000 * DEEP_SECONDS)
            alarms.append(AlarmRow(f"{DEEP}:{left.hash.hex()}", DEEP, sentence, ends_at))
        return alarms

    def _emit_alarms(self, alarms: Sequence[AlarmRow], tip: ChainTip, context: StepContext) -> list[WatchQueue]:
        """Emit each alarm once, when it begins, for one watch of each callback that wants alarms."""
        watches, queues = self.repository.watches, list[WatchQueue]()
        for alarm in watches.begin_alarms(alarms):
            evaluated = []
            for row in watches.wanting_alarms():
                watch = watch_of(row)
                observation = self.lookup.find_at(watch.terms, tip)
                told, event = emit_alarm(watch, observation, NodeAlarm(alarm.kind, alarm.sentence))
                due = NextEvaluation(row.wake_height, row.wake_at)
                evaluated.append(EvaluatedWatch(row, told, [event], due))
            queues += self.repository.save(evaluated, context.now)
        return queues

    def _emit_standing_alarms(self, watch: Watch, observation: Observation) -> tuple[Watch, tuple[WebhookEvent, ...]]:
        """Emit for a new watch the newest alarm of each kind that began before the watch."""
        if not watch.active or EventType.ALARM not in watch.events:
            return watch, ()
        events = []
        for alarm in {each.kind: each for each in self.repository.watches.alarms()}.values():
            watch, event = emit_alarm(watch, observation, NodeAlarm(alarm.kind, alarm.sentence), initial=True)
            events.append(event)
        return watch, tuple(events)

    def _evaluate(
        self, rows: Iterable[WatchRow], tip: ChainTip, evaluation: EvaluationContext, context: StepContext
    ) -> list[WatchQueue]:
        queues: list[WatchQueue] = []
        changed: list[EvaluatedWatch] = []

        def save() -> None:
            queues.extend(self.repository.save(changed, evaluation.now))
            changed.clear()

        for row in rows:
            context.pause()
            watch = watch_of(row)
            if len(changed) == _AT_ONCE or (not watch.active and changed):
                # The events of an ended watch depend on other watches of its order, which may have changed.
                save()
            observation = self.lookup.find_at(watch.terms, tip)
            initial = row.wake_height == NOT_EVALUATED.height
            evaluated, events = evaluate(watch, observation, evaluation, initial=initial)
            evaluated, mismatched = self._emit_mismatches(evaluated, observation, initial=initial)
            events += mismatched
            if initial:
                evaluated, alarms = self._emit_standing_alarms(evaluated, observation)
                events += alarms
            following = next_evaluation(evaluated, tip.height, evaluation)
            if evaluated != watch or (following.height, following.at) != (row.wake_height, row.wake_at):
                changed.append(EvaluatedWatch(row, evaluated, events, following))
        save()
        return queues

    def _emit_mismatches(
        self, watch: Watch, observation: Observation, *, initial: bool = False
    ) -> tuple[Watch, tuple[WebhookEvent, ...]]:
        """Emit an event for each transfer on the chain that is not the payment, once."""
        told = watch.told_mismatches
        if told is None:
            return watch, ()
        paid_by = None if observation.location is None else observation.location.txid
        found = []
        # They include the payment, and transfers that have had their event.
        for transfer in self.lookup.received_at(watch.terms, observation.tip, MAX_TOLD_MISMATCHES + 1):
            kind = mismatch_kind(watch, transfer, paid_by)
            if kind is not None and transfer.txid not in told:
                sender = encode_address(transfer.sender, self.params.address_prefix)
                found.append(MismatchedTransfer(txid=transfer.txid, sender=sender, amount=transfer.amount, kind=kind))
        found = choose_mismatches(watch, found)
        if found and not watch.active and self._is_followed_by(watch):
            return note_mismatches(watch, [transfer.txid for transfer in found]), ()
        return emit_mismatches(watch, observation, found, initial=initial) if found else (watch, ())

    def _is_followed_by(self, watch: Watch) -> bool:
        """Whether the merchant has an active watch of the same payment, which takes over the order."""
        terms = watch.terms
        active = self.repository.watches.of_payment
        return bool(active(terms.reference, terms.recipient, terms.amount, merchant=watch.merchant))

    def _tip_at(self, height: int) -> ChainTip:
        return ChainTip(height, self.reader.existing(height).point.hash)

    def _affected_at_tip(self, delta: ChainDelta, context: StepContext) -> _Rows:
        """The watches that may have an event at the tip."""
        watches = self.repository.watches
        affected = _by_id(watches.waking_at_height(delta.tip.height))
        if delta.fork < delta.before:
            affected |= _by_id(watches.above(delta.fork))
        if context.synced:
            affected |= _by_id(watches.waking_at(context.now))
        for payment in self._changed_in_mempool:
            affected |= _by_id(watches.of_payment(*payment))
        if self._stepped_in != context.term:
            # No listener saw the transfers that left the mempool while the node was down or another one was the leader.
            affected |= _by_id(watches.pending())
        return affected | self._paid_at(delta.new_heights, context)

    def _paid_at(self, heights: Iterable[int], context: StepContext) -> _Rows:
        """The watches over payments, and over transfers of other amounts, in the canonical blocks at ``heights``."""
        affected: _Rows = {}
        watches = self.repository.watches
        payments = iter(dict.fromkeys(self._payments_at(heights)))
        while some := list(islice(payments, _AT_ONCE)):
            context.pause()
            affected |= _by_id(watches.of_transfers(some))
        return affected

    def _payments_at(self, heights: Iterable[int]) -> Iterator[_PaymentKey]:
        for height in heights:
            stored = self.reader.canonical(height)
            for body in [] if stored is None else self.reader.bodies(stored):
                if b'"paymentReference"' in body:
                    payload = json.loads(body)["payload"]
                    yield payload["paymentReference"], payload["recipient"], int(payload["amount"])


def _by_id(rows: Collection[WatchRow]) -> _Rows:
    return {row.id: row for row in rows}
