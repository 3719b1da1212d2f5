"""Evaluates watches as chain and mempool change, and stores the events: one step is one transaction.

The follower runs in a thread of its own, with its own reader of the chain. A step compares the cursor, the newest block
that the watches have followed, with the tip. So the result depends neither on how often steps run nor on the changes
between two of them.

A step evaluates a share of the watches that the changes may affect, and the next steps the others, so that no merchant
waits for the watches of another. Meanwhile the cursor notes the height up to which all watches have been evaluated, and
each watch the one at which it was: a step after a restart continues from there. After a reorganisation, one step
evaluates all.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from attrs import define, evolve, field, frozen

from svcd.bounded_dict import BoundedDict
from svcd.chain.address import encode_address
from svcd.chain.forkchoice import tie_winner
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint
from svcd.commerce.evaluation_plan import NEWEST, EvaluationPlan, Heights
from svcd.commerce.events import UNKNOWN_DROP, Drop, DropReason, EventType, MismatchedTransfer, NodeAlarm, WebhookEvent
from svcd.commerce.payment import ChainTip, Observation, PaymentState
from svcd.commerce.payment_lookup import MempoolPaymentIndex, PaymentLookup
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import (
    MAX_REPORTED_MISMATCHES,
    EvaluationContext,
    NextEvaluation,
    Watch,
    choose_mismatches,
    emit_alarm,
    emit_mismatches,
    evaluate,
    mismatch_kind,
    next_evaluation,
    remember_mismatches,
)
from svcd.commerce.watch_repository import NEVER_EVALUATED, EvaluatedWatch, WatchRepository, watch_of
from svcd.node.chain_alarms import DEEP, DEEP_BLOCKS, DEEP_SECONDS, ChainAlarm, what_was_undone
from svcd.node.mempool import MempoolEntry, RemovalReason, Removals
from svcd.store.chain_store import ChainReader
from svcd.store.webhook_events import WatchQueue
from svcd.store.webhook_store import PAGE, AlarmRow, FollowedBlock, WatchName, WatchRow, WebhookStore

CURSOR_BLOCKS: Final = 4_096
"""Block hashes that the cursor keeps to find a fork: more than the largest number of confirmations."""
_AT_ONCE: Final = 200
"""Payments whose watches are read together, and watches that one step evaluates; some milliseconds' work."""
_MAX_BLOCKS_READ: Final = 256
"""After more new blocks than this, a step evaluates every watch instead of reading the blocks' transfers."""
_REMEMBERED_DROPS: Final = 4_096
"""Payments that left the mempool lately."""

_REMEMBERED_ARRIVALS: Final = 16_384
"""More than the transfers of four full blocks, which may come before the watches are evaluated."""

_PaymentKey = tuple[str, str, int]
"""Reference, recipient's address and amount in base units."""


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
    unfinished: int | None = None
    """The height up to which all watches have been evaluated, if it is not the cursor's."""
    prune_height: int = 0
    """The lowest height from which on this node has blocks."""

    @property
    def moved(self) -> bool:
        """Whether the tip is another block than the cursor's."""
        return not self.fork == self.before == self.tip.height

    @property
    def new_heights(self) -> range:
        """The heights of the blocks above the fork."""
        return range(self.fork + 1, self.tip.height + 1)

    @property
    def evaluated(self) -> int:
        """The height up to which all watches have been evaluated."""
        return self.before if self.unfinished is None else self.unfinished

    @property
    def unevaluated_heights(self) -> range:
        """The heights of the blocks of the chain at which not all watches have been evaluated."""
        return range(min(self.evaluated, self.fork) + 1, self.tip.height + 1)

    @property
    def extends(self) -> bool:
        """Whether no block was undone, and the new ones are so few that they are read one by one."""
        return self.fork == self.before and not self.skips_blocks

    @property
    def skips_blocks(self) -> bool:
        """Whether the transfers of new blocks are not read: there are too many, or the first ones are not here."""
        heights = self.unevaluated_heights
        return len(heights) > _MAX_BLOCKS_READ or (bool(heights) and heights.start < self.prune_height)


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
    return ChainDelta(tip, newest.height, min(fork, tip.height), greater, newest.evaluated, reader.prune_height())


def _is_greater(tip: ChainPoint, followed: FollowedBlock) -> bool:
    if tip.work != followed.work:
        return tip.work > followed.work
    return tie_winner(tip.hash, followed.hash) == tip.hash


def advance_cursor(
    watches: WebhookStore, reader: ChainReader, delta: ChainDelta, unfinished: int | None = None
) -> None:
    """Move the cursor to the tip; some watches are evaluated only up to the height ``unfinished`` if it is given."""
    if watches.newest_step() is None:
        watches.follow(delta.fork, _steps(reader, range(delta.tip.height, delta.tip.height + 1)), keep=CURSOR_BLOCKS)
    elif delta.moved:
        newest = delta.new_heights[-CURSOR_BLOCKS:]
        watches.follow(delta.fork, _steps(reader, newest), keep=CURSOR_BLOCKS)
    if unfinished != delta.unfinished or (unfinished is not None and delta.moved):
        watches.set_evaluated(unfinished)


def _steps(reader: ChainReader, heights: range) -> list[FollowedBlock]:
    points = [stored.point for height in heights if (stored := reader.canonical(height)) is not None]
    return [FollowedBlock(point.height, point.hash, point.work) for point in points]


# The steps


class SeenPayment(NamedTuple):
    """A payment that a watch has seen for the first time."""

    watch: str
    merchant: str
    amount: int
    """Base units."""
    state: PaymentState
    txid: bytes


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
    removed: Removals

    def drops(self) -> Iterator[tuple[Transfer, Drop]]:
        """The transfers that left without a block, and how."""
        for entry, reason in self.removed.items():
            if reason is not RemovalReason.BLOCK:
                transfer = entry.transfer
                yield transfer, Drop(_DROP_REASONS[reason], transfer.txid, self._in_place_of(transfer))

    def _in_place_of(self, transfer: Transfer) -> bytes | None:
        """The txid of the transfer that has the nonce of one that left."""
        key = transfer.sender, transfer.nonce
        found = (each.transfer.txid for each in self.added if (each.transfer.sender, each.transfer.nonce) == key)
        return next(found, None)


_DROP_REASONS: Final[Mapping[RemovalReason, DropReason]] = {
    RemovalReason.CONFLICT: DropReason.REPLACED,
    RemovalReason.REPLACED: DropReason.REPLACED,
    RemovalReason.EXPIRY: DropReason.EXPIRED,
    RemovalReason.REORG: DropReason.EVICTED,
    RemovalReason.SIZE_LIMIT: DropReason.EVICTED,
    RemovalReason.DROPPED: DropReason.EVICTED,
}


def _no_pause() -> None:
    """Go on at once."""


@frozen(kw_only=True)
class StepContext:
    """What the reactor's thread knows when a step begins."""

    now: int
    """Unix milliseconds."""
    synced: bool
    """Whether the node's chain is the network's."""
    clock_trusted: bool
    """Whether what is over at ``now`` may end for good."""
    arrivals_behind: int
    """By how many milliseconds the clock of ``now`` is ahead of the one by which transfers arrive."""
    term: int | None
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

    @property
    def awaited(self) -> int:
        """Unix milliseconds up to which watches are due; 0, so that none is, while the clock is not trusted."""
        return self.now if self.clock_trusted else 0


@define
class ChainFollower:
    """Evaluates the watches as chain and mempool change; for one thread.

    :attr:`unfinished` and :attr:`evaluated_height` may be read in any thread between two steps.
    """

    repository: WatchRepository
    params: NetworkParams
    reader: ChainReader
    every_depth: bool
    """Whether each further confirmation of an unconfirmed payment is an event."""
    mempool: MempoolPaymentIndex = field(factory=MempoolPaymentIndex, init=False)
    """Up to the last change that was passed to this thread."""
    lookup: PaymentLookup = field(init=False)
    _changed_in_mempool: dict[_PaymentKey, None] = field(factory=dict, init=False)
    """Payments of the mempool changes whose watches are not in the plan yet."""
    _drops: BoundedDict[_PaymentKey, tuple[Transfer, Drop]] = field(
        factory=partial(BoundedDict, _REMEMBERED_DROPS), init=False
    )
    """The payments that left the mempool lately, and how."""
    _arrivals: BoundedDict[bytes, int] = field(factory=partial(BoundedDict, _REMEMBERED_ARRIVALS), init=False)
    """When the transfers with references that blocks have included lately came into the mempool, by txid."""
    _plan: EvaluationPlan | None = field(default=None, init=False)
    """The watches that the next steps evaluate; None after a failed step, which leaves them to be found again."""
    unfinished: bool = field(default=False, init=False)
    """Whether another step is to follow at once, because the newest has left watches to be evaluated."""
    _synced: bool = field(default=False, init=False)
    """As of the newest step."""
    _stepped_in: int | None = field(default=None, init=False)
    """The term in which all affected watches were last evaluated; None before, and while another node is the leader."""
    lag: FollowerLag | None = field(default=None, init=False)
    """How far the watches are behind the tip, as of the newest step."""
    seen: list[SeenPayment] = field(factory=list, init=False)
    """The payments that the newest step has found."""

    @lookup.default
    def _lookup_with_mempool(self) -> PaymentLookup:
        return PaymentLookup(self.params, self.reader, self.mempool, synced=lambda: self._synced)

    evaluated_height: int | None = field(default=None, init=False)
    """The height up to which the payments of all watches have been looked at, as of the newest step; None if unknown.

    A watch that was never evaluated has been looked at below the height from which on it looks for its payment. Without
    such a height it is for a payment to come, above the height at which the other watches are.
    """

    first_height: int = field(default=0, init=False)
    """While a snapshot becomes the chain, the height of the first block that is here then."""

    def step(self, context: StepContext) -> list[WatchQueue]:
        """Evaluate a share of the watches that changes may affect; returns the queues with new events.

        Evaluates nothing while the chain is behind the cursor, the mempool behind a reorganisation, or another node is
        the leader. Raises NotLeader.
        """
        self.evaluated_height, self.seen = None, []
        self.take_mempool_changes(context.mempool_changes)
        self._synced = context.synced
        if context.term is None:
            self._stand_by()
            return []
        if self.repository.shared and context.term != self._stepped_in and self._plan is None:
            # The leader before may not have had all transfers of this mempool.
            self._changed_in_mempool |= dict.fromkeys(self.mempool.payments(self.params))
        with self._keeping_plan(), self.reader.snapshot(), self.repository.leading(context.term):
            delta = self._read_delta(context)
            if delta is not None and self._is_mempool_behind(delta, context):
                # The reorganisation has not been announced yet; its announcement requests the next step.
                delta = None
            queues = [] if delta is None else self._follow(delta, context)
            queues += self.repository.redeliveries_requested()
            evaluated = (
                None if delta is None else self._evaluated_up_to(delta.evaluated if self._plan else delta.tip.height)
            )
        if delta is not None:
            self._committed(context.term)
            self.evaluated_height = evaluated
        return queues

    def _evaluated_up_to(self, height: int) -> int:
        """The height up to which all watches have been looked at if the evaluated ones have been up to ``height``."""
        since = self.repository.watches.least_since_height(NEVER_EVALUATED)
        return height if since is None else min(height, since - 1)

    @contextmanager
    def _keeping_plan(self) -> Iterator[None]:
        """Forget the plan if the step fails: the watches that were taken from it are still to be evaluated."""
        try:
            yield
        except BaseException:
            self._forget_plan()
            raise

    def _forget_plan(self) -> None:
        if self._plan is not None:
            self._changed_in_mempool |= self._plan.payments
        self._plan, self.unfinished = None, False

    def _stand_by(self) -> None:
        """Note the cursor of the leader; the mempool is evaluated when this node becomes the leader."""
        self._forget_plan()
        self._changed_in_mempool.clear()
        self._stepped_in = None
        with self.reader.snapshot():
            delta = read_delta(self.repository.watches, self.reader)
        self._set_lag(delta)
        if delta is not None:
            # This node may become the leader, and evaluates the watches from there.
            self.evaluated_height = self._evaluated_up_to(min(delta.evaluated, delta.fork))

    def _read_delta(self, context: StepContext) -> ChainDelta | None:
        """The difference between the cursor and the tip; None while the chain is behind the cursor.

        Also None if several nodes share the cursor and this node's chain is a branch that may not be the network's:
        merchants must get the events of one reorganisation, not those of each node.
        """
        delta = read_delta(self.repository.watches, self.reader)
        self._set_lag(delta)
        if delta is not None and self.repository.shared and delta.fork < delta.before:
            return delta if context.synced and delta.greater else None
        return delta

    def _is_mempool_behind(self, delta: ChainDelta, context: StepContext) -> bool:
        """Whether blocks were undone after ``context`` was made: their payments seem gone in its mempool."""
        if context.tip is None or delta.fork == delta.before:
            return False
        stored = self.reader.canonical(context.tip.height)
        return stored is None or stored.point.hash != context.tip.hash

    def _set_lag(self, delta: ChainDelta | None) -> None:
        if delta is None:
            self.lag = FollowerLag(0, behind=True)
        else:
            self.lag = FollowerLag(max(delta.tip.height - delta.before, 0), behind=not delta.greater)

    def take_mempool_changes(self, changes: Iterable[MempoolChange]) -> None:
        """Update the index and remember the payments for the next step; pass each change once, even if a step fails."""
        for change in changes:
            self.mempool.pool_changed(change.added, change.removed)
            for entry in (*change.added, *change.removed):
                if (key := self._payment_key(entry.transfer)) is not None:
                    self._changed_in_mempool[key] = None
                    self._drops.pop(key, None)
            for transfer, drop in change.drops():
                if (key := self._payment_key(transfer)) is not None:
                    self._drops[key] = transfer, drop
            for entry, reason in change.removed.items():
                if reason is RemovalReason.BLOCK and entry.transfer.reference is not None:
                    self._arrivals[entry.transfer.txid] = entry.arrival

    def _payment_key(self, transfer: Transfer) -> _PaymentKey | None:
        if transfer.reference is None:
            return None
        return transfer.reference, encode_address(transfer.recipient, self.params.address_prefix), transfer.amount

    def _committed(self, term: int | None) -> None:
        plan, self._plan = self._plan, self._plan or None
        if not plan:
            self._changed_in_mempool.clear()
            self._stepped_in = term
        self.unfinished = plan is not None and (bool(plan) or plan.more_expire)
        self.lag = FollowerLag(0, behind=False)

    def _evaluation_context(
        self, terms: PaymentTerms, tip_before: int, context: StepContext, *, at_tip: bool = True
    ) -> EvaluationContext:
        return EvaluationContext(
            now=context.now,
            tip_before=tip_before,
            # Only at the tip: a payment in a later new block comes first.
            may_end=context.synced and context.clock_trusted and at_tip,
            every_depth=self.every_depth,
            drop=self._drop_of(terms),
        )

    def _drop_of(self, terms: PaymentTerms) -> Drop:
        """How the payment has left the mempool, if it has; inside a snapshot of the chain."""
        transfer, drop = self._drops.get((terms.reference, terms.recipient, terms.amount)) or (None, UNKNOWN_DROP)
        if transfer is None or drop.reason is not DropReason.REPLACED or drop.replaced_by is not None:
            return drop
        account = self.reader.account(transfer.sender)
        if account is None or account.nonce <= transfer.nonce:
            # A block has spent the balance under an earlier nonce.
            return evolve(drop, reason=DropReason.EVICTED)
        # The transfer in its place came with a block: so does a double spend that its sender has mined.
        return evolve(drop, replaced_by=self.lookup.spent_by(transfer))

    def _follow(self, delta: ChainDelta, context: StepContext) -> list[WatchQueue]:
        """Evaluate a share of the watches and advance the cursor; emit alarms when no watch is left."""
        alarms = self._alarms(delta, context)
        # The remaining alarms are not new: a watch that is evaluated for the first time gets them as initial events.
        self.repository.watches.end_alarms({alarm.id for alarm in alarms}, context.now)
        queues = self._advance(delta, context)
        if not self._plan:
            queues += self._emit_alarms(alarms, delta.tip, context)
        return queues

    def _advance(self, delta: ChainDelta, context: StepContext) -> list[WatchQueue]:
        """Evaluate a share of the watches, or all after a reorganisation, and advance the cursor."""
        queues: list[WatchQueue] = []
        unfinished = None
        if self.repository.watches.is_idle():
            self._forget_plan()
        elif delta.extends:
            self._plan = plan = self._plan_of(context.term) or self._new_plan(delta, context)
            self._extend(plan, delta, context)
            queues = self._evaluate_share(plan.take(_AT_ONCE), delta, context)
            unfinished = delta.evaluated if plan else None
        else:
            self._forget_plan()
            queues = self._evaluate_all(delta, context)
        advance_cursor(self.repository.watches, self.reader, delta, unfinished)
        return queues

    def _plan_of(self, term: int | None) -> EvaluationPlan | None:
        """The plan of the steps before, if they were in the same term."""
        if self._plan is not None and self._plan.term != term:
            self._forget_plan()
        return self._plan

    def _new_plan(self, delta: ChainDelta, context: StepContext) -> EvaluationPlan:
        """A plan with the watches that may have an event although no block and no transfer in the mempool is new."""
        watches = self.repository.watches
        plan = EvaluationPlan(delta.evaluated, context.term)
        plan.add(watches.waking_at_height(delta.evaluated))
        if context.synced:
            expiring = watches.waking_at(context.awaited)
            plan.add(expiring, NEWEST)
            plan.more_expire = len(expiring) == PAGE
        if self._stepped_in != context.term:
            # No listener saw the transfers that left the mempool while the node was down or another one was the leader.
            plan.add(watches.pending(), NEWEST)
        return plan

    def _extend(self, plan: EvaluationPlan, delta: ChainDelta, context: StepContext) -> None:
        """Add the watches that may have an event by new blocks and changes of the mempool."""
        watches, newest = self.repository.watches, delta.tip.height
        # Without a new block, only new watches are woken by height.
        plan.add(watches.waking_at_height(newest if plan.height < newest else NEVER_EVALUATED))
        for height in range(plan.height + 1, newest + 1):
            plan.add(self._paid_at([height], context), height)
        plan.height = newest
        plan.add(watches.of_payments(list(self._changed_in_mempool)), NEWEST)
        plan.payments |= self._changed_in_mempool
        self._changed_in_mempool.clear()

    def _evaluate_share(
        self, share: Mapping[str, Heights], delta: ChainDelta, context: StepContext
    ) -> list[WatchQueue]:
        """Evaluate watches at each height at which a block may affect them, in the order of the chain."""
        queues: list[WatchQueue] = []
        newest = delta.tip.height
        reached: dict[str, int] = {}
        turns: dict[int, list[WatchRow]] = {}

        def schedule(rows: Iterable[WatchRow]) -> None:
            for row in rows:
                height = _next_height(row, share[row.id], reached.get(row.id, _evaluated(row, delta)), newest)
                if height is not None:
                    turns.setdefault(height, []).append(row)

        schedule(self.repository.watches.followed(list(share)))
        while turns:
            height = min(turns)
            rows = turns.pop(height)
            tip = delta.tip if height == newest else self._tip_at(height)
            queues += self._evaluate(rows, tip, delta, context, reached)
            if height < newest:
                names = [row.id for row in rows]
                reached |= dict.fromkeys(names, height)
                schedule(self.repository.watches.followed(names))
        return queues

    def _evaluate_all(self, delta: ChainDelta, context: StepContext) -> list[WatchQueue]:
        """Evaluate all affected watches at the tip only, after a reorganisation or very many new blocks."""
        watches = self.repository.watches
        # A heavier chain may be shorter: every payment on it has lost confirmations.
        if delta.skips_blocks or delta.tip.height < delta.before:
            return self._evaluate(watches.all_followed(), delta.tip, delta, context)
        affected = watches.waking_at_height(delta.tip.height)
        affected += watches.above(min(delta.fork, delta.evaluated))
        if context.synced:
            affected += watches.waking_at(context.awaited)
        affected += watches.of_payments(list(self._changed_in_mempool))
        if self._stepped_in != context.term:
            affected += watches.pending()
        affected += self._paid_at(delta.unevaluated_heights, context)
        names = list(dict.fromkeys(watch.id for watch in affected))
        parts = (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE))
        rows = (row for part in parts for row in watches.followed(part))
        return self._evaluate(rows, delta.tip, delta, context)

    def _alarms(self, delta: ChainDelta, context: StepContext) -> list[AlarmRow]:
        """The alarms of the node, and a deep reorganisation if the step passes one."""
        alarms = [AlarmRow(f"{each.kind}:{each.about}", each.kind, each.sentence) for each in context.alarms]
        old_tip = self.repository.watches.newest_step()
        if old_tip is not None and delta.before - delta.fork >= DEEP_BLOCKS:
            sentence = what_was_undone(delta.fork + 1, delta.before)
            ends_at = context.now + round(1000 * DEEP_SECONDS)
            alarms.append(AlarmRow(f"{DEEP}:{old_tip.hash.hex()}", DEEP, sentence, ends_at))
        return alarms

    def _emit_alarms(self, alarms: Sequence[AlarmRow], tip: ChainTip, context: StepContext) -> list[WatchQueue]:
        """Emit each alarm once, when it begins, for one watch of each callback that wants alarms."""
        watches, queues = self.repository.watches, list[WatchQueue]()
        for alarm in watches.begin_alarms(alarms):
            evaluated = []
            for row in watches.wanting_alarms():
                watch = watch_of(row)
                observation = self.lookup.find_at(watch.terms, tip, watch.location)
                told, event = emit_alarm(watch, observation, NodeAlarm(alarm.kind, alarm.sentence))
                due = NextEvaluation(row.wake_height, row.wake_at)
                evaluated.append(EvaluatedWatch(row, told, [event], due, row.evaluated_height))
            queues += self.repository.save(evaluated, context.now)
        return queues

    def _emit_active_alarms(self, watch: Watch, observation: Observation) -> tuple[Watch, tuple[WebhookEvent, ...]]:
        """Emit for a new watch the newest alarm of each kind that began before the watch."""
        if not watch.active or EventType.ALARM not in watch.events:
            return watch, ()
        events = []
        for alarm in {each.kind: each for each in self.repository.watches.alarms()}.values():
            watch, event = emit_alarm(watch, observation, NodeAlarm(alarm.kind, alarm.sentence), initial=True)
            events.append(event)
        return watch, tuple(events)

    def _evaluate(
        self,
        rows: Iterable[WatchRow],
        tip: ChainTip,
        delta: ChainDelta,
        context: StepContext,
        reached: Mapping[str, int] = MappingProxyType({}),
    ) -> list[WatchQueue]:
        """Evaluate watches at ``tip``, a block up to the delta's; ``reached`` has heights of earlier evaluations."""
        queues: list[WatchQueue] = []
        changed: list[EvaluatedWatch] = []
        at_tip = tip.height == delta.tip.height

        def save() -> None:
            queues.extend(self.repository.save(changed, context.now))
            changed.clear()

        for row in rows:
            context.pause()
            watch = watch_of(row)
            if len(changed) == _AT_ONCE:
                save()
            tip_before = reached.get(row.id, _evaluated(row, delta))
            evaluation = self._evaluation_context(watch.terms, tip_before, context, at_tip=at_tip)
            observation = self._observe(watch, tip, context)
            initial = row.wake_height == NEVER_EVALUATED
            evaluated, events = evaluate(watch, observation, evaluation, initial=initial)
            if not evaluated.active and changed:
                # The mismatches of an ended watch depend on the other watches of its order, which may just have ended.
                save()
            if not watch.has_seen_payment and evaluated.has_seen_payment and (txid := observation.txid) is not None:
                terms = watch.terms
                self.seen.append(SeenPayment(watch.id, watch.merchant, terms.amount, evaluated.state, txid))
            evaluated, mismatched = self._emit_mismatches(evaluated, observation, initial=initial)
            events += mismatched
            if initial:
                evaluated, alarms = self._emit_active_alarms(evaluated, observation)
                events += alarms
            following = next_evaluation(evaluated, tip.height, evaluation)
            is_same = evaluated == watch and (following.height, following.at) == (row.wake_height, row.wake_at)
            # On a heavier but shorter chain, the height of an evaluation is not to be greater than the tip's.
            if not is_same or (row.evaluated_height or 0) > tip.height:
                changed.append(EvaluatedWatch(row, evaluated, events, following, tip.height))
        save()
        return queues

    def _observe(self, watch: Watch, tip: ChainTip, context: StepContext) -> Observation:
        observation = self.lookup.find_at(watch.terms, tip, watch.location)
        if watch.pay_until is None or watch.has_seen_payment or observation.txid is None:
            return observation
        arrival = self.mempool.arrival(watch.terms, observation.txid) or self._arrivals.get(observation.txid)
        return observation if arrival is None else observation._replace(arrival=arrival + context.arrivals_behind)

    def _emit_mismatches(
        self, watch: Watch, observation: Observation, *, initial: bool
    ) -> tuple[Watch, tuple[WebhookEvent, ...]]:
        """Emit an event for each transfer on the chain that is not the payment, once."""
        told = watch.reported_mismatches
        if told is None:
            return watch, ()
        paid_by = None if observation.location is None else observation.location.txid
        found = []
        # They include the payment, and transfers that have had their event.
        for transfer in self.lookup.received_at(watch.terms, observation.tip, MAX_REPORTED_MISMATCHES + 1):
            kind = mismatch_kind(watch, transfer, paid_by)
            if kind is not None and transfer.txid not in told:
                sender = encode_address(transfer.sender, self.params.address_prefix)
                found.append(MismatchedTransfer(txid=transfer.txid, sender=sender, amount=transfer.amount, kind=kind))
        found = choose_mismatches(watch, found)
        if found and not watch.active and self._is_followed_by(watch):
            return remember_mismatches(watch, [transfer.txid for transfer in found]), ()
        return emit_mismatches(watch, observation, found, initial=initial) if found else (watch, ())

    def _is_followed_by(self, watch: Watch) -> bool:
        """Whether the merchant has another active watch of the same payment, which takes over the order."""
        terms = watch.terms
        active = self.repository.watches.of_payment(terms.reference, terms.recipient, terms.amount, watch.merchant)
        return any(row.id != watch.id for row in active)

    def _tip_at(self, height: int) -> ChainTip:
        return ChainTip(height, self.reader.existing(height).point.hash)

    def _paid_at(self, heights: Iterable[int], context: StepContext) -> list[WatchName]:
        """The watches over payments, and over transfers of other amounts, in the canonical blocks at ``heights``."""
        affected: list[WatchName] = []
        payments = iter(dict.fromkeys(self._payments_at(heights)))
        while some := list(islice(payments, _AT_ONCE)):
            context.pause()
            affected += self.repository.watches.of_transfers(some)
        return affected

    def _payments_at(self, heights: Iterable[int]) -> Iterator[_PaymentKey]:
        for height in heights:
            stored = self.reader.canonical(height)
            for body in [] if stored is None else self.reader.bodies(stored):
                if b'"paymentReference"' in body:
                    payload = json.loads(body)["payload"]
                    yield payload["paymentReference"], payload["recipient"], int(payload["amount"])


def _evaluated(row: WatchRow, delta: ChainDelta) -> int:
    """The height of the tip as of which a watch has its state."""
    return max(delta.evaluated, row.evaluated_height or 0)


def _next_height(row: WatchRow, heights: Heights, reached: int, newest: int) -> int | None:
    """The height at which a watch that was evaluated at ``reached`` is to be evaluated next; None if at none."""
    if row.wake_height == NEVER_EVALUATED:
        # Its first events are initial, without history.
        return newest
    wanted = [height for height in heights if reached < height <= newest]
    if row.ending is None and row.wake_height is not None and row.wake_height <= newest:
        wanted.append(min(max(row.wake_height, reached + 1), newest))
    if NEWEST in heights:
        wanted.append(newest)
    return min(wanted, default=None)
