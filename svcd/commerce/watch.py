"""A watch over one payment, and the events that it emits as the chain moves (docs/webhook-reference.md).

Pure functions: svcd.commerce.chain_follower calls :func:`evaluate` and stores the result.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from attrs import evolve, field, frozen

from svcd.chain.transaction import Transfer
from svcd.commerce.events import (
    DEFAULT_EVENTS,
    LATE,
    UNKNOWN_DROP,
    Drop,
    EventType,
    MismatchedTransfer,
    NodeAlarm,
    WebhookEvent,
)
from svcd.commerce.payment import Observation, PaymentLocation, PaymentState, told_state
from svcd.commerce.payment_list import mismatch_of
from svcd.commerce.payment_request import PaymentTerms
from svcd.limits import WRONG_PAYMENTS, limit

_MIN_BLOCKS_AFTER_CONFIRMATION: Final = 30
"""The blocks for which a confirmed payment is watched at least."""

BLOCK_ON_ITS_WAY_MS: Final = 60_000
"""For how long after a deadline a block of an earlier time is waited for: an expired watch takes no payment any more.

A slot of mainnet lasts ten seconds, and the clocks of two nodes may differ by a minute.
"""

MAX_REPORTED_MISMATCHES: Final = limit(16, "mismatched transfers that a watch reports", "transfers", WRONG_PAYMENTS)
"""`payment.mismatched` events of a watch at most, so that no sender can make a shop's node send without end."""
MAX_REPORTED_BEFORE_SMALL: Final = limit(
    8, "mismatched transfers after which a watch reports no small ones", "transfers", WRONG_PAYMENTS
)
"""After so many, small ones are ignored: transfers that cost little must not hide a customer's mistake."""
SMALL_PART: Final = 10
"""A transfer of less than the order's amount divided by this number is small."""


class EndReason(StrEnum):
    """Why a watch has ended."""

    EXPIRED = "expired"
    """The payment was not seen in time, or not confirmed in the lifetime of the watch."""
    CLOSED = "closed"
    """The payment was confirmed, and stayed so for long enough."""
    CANCELLED = "cancelled"
    """The merchant cancelled it."""
    GONE = "gone"
    """The receiver answered 410."""


@frozen(kw_only=True)
class Watch:
    """One watch; times are Unix milliseconds."""

    id: str
    """``svcwh_`` and 32 hex characters."""
    merchant: str
    """The name of the merchant whose watch it is."""
    terms: PaymentTerms
    callback_url: str = field(repr=False)
    """Normalised; its path and query may contain a secret of the merchant's."""
    host: str
    """The callback's host name or address, to which the limit on watches applies."""
    created_at: int
    expires_at: int
    """The end of its lifetime, unless the payment is confirmed by then."""
    pay_until: int | None = None
    """Until when the payment must have been seen, in the mempool or in a block; None for :attr:`expires_at`."""
    events: frozenset[EventType] = DEFAULT_EVENTS
    """The types of events that are sent; the others are only counted in ``sequence``."""
    state: PaymentState = PaymentState.UNPAID
    """The state according to the events so far."""
    location: PaymentLocation | None = None
    """Of the payment on the chain, at the last evaluation."""
    epoch: int = 0
    """How often the payment has been reorganised."""
    sequence: int = 0
    """Of the newest event; 0 before the first."""
    close_height: int | None = None
    """Set on confirmation: the height at which the watch may close."""
    ending: EndReason | None = None
    reported_mismatches: tuple[bytes, ...] | None = None
    """The txids that have had a `payment.mismatched`; None if no such event is wanted, or none any more."""

    @property
    def active(self) -> bool:
        """Whether the watch has not ended."""
        return self.ending is None

    @property
    def last_state(self) -> str:
        """The specification's ``lastState``."""
        return "expired" if self.ending is EndReason.EXPIRED else self.state.value

    @property
    def closes_from(self) -> int:
        """When the watch ends if there is no payment, or one that was confirmed long enough ago (Unix milliseconds)."""
        if self.pay_until is None:
            return self.expires_at
        return min(self.pay_until + BLOCK_ON_ITS_WAY_MS, self.expires_at)

    @property
    def has_seen_payment(self) -> bool:
        """Whether the payment has been there at an evaluation."""
        return self.state is not PaymentState.UNPAID or self.location is not None or self.epoch > 0

    def is_late(self, observation: Observation, context: "EvaluationContext") -> bool:
        """Whether a payment that this watch has not seen before came after :attr:`pay_until`.

        It came when it entered the mempool, or at the time of its block, whichever is earlier: the node may evaluate it
        long after both.
        """
        if self.pay_until is None or self.has_seen_payment:
            return False
        arrival, location = observation.arrival, observation.location
        moments = [] if arrival is None else [arrival]
        if location is not None:
            moments.append(location.block_time)
        elif arrival is None or context.may_end:
            # It is here now: a later arrival is that of a clock which was ahead.
            moments.append(context.now)
        return min(moments) >= self.pay_until

    def tells_depths(self, context: "EvaluationContext") -> bool:
        """Whether each further confirmation of an unconfirmed payment is an event of this watch."""
        return context.every_depth and EventType.CONFIRMING in self.events


@frozen(kw_only=True)
class EvaluationContext:
    """The inputs of an evaluation apart from the watch and its payment."""

    now: int
    """Unix milliseconds."""
    tip_before: int
    """The height at the previous evaluation of the watches."""
    may_end: bool
    """Whether watches may end: the node is in sync with the network, so it has the newest blocks, and its clock is
    trusted."""
    every_depth: bool = True
    """Whether each further confirmation of an unconfirmed payment is an event."""
    drop: Drop = UNKNOWN_DROP
    """How the payment has left the mempool, if it has."""


@frozen
class NextEvaluation:
    """When a watch must be evaluated even if its payment does not change."""

    height: int | None
    at: int | None
    """Unix milliseconds."""


@frozen
class _Evaluation:
    """A watch, and the events that this evaluation has emitted so far."""

    watch: Watch
    observation: Observation
    initial: bool
    events: tuple[WebhookEvent, ...] = field(default=())

    def emit(self, event_type: EventType, state: PaymentState, *, drop: Drop | None = None) -> "_Evaluation":
        watch = self.watch
        epoch = watch.epoch + (event_type is EventType.REORGED)
        close_height = watch.close_height
        if event_type is EventType.CONFIRMED:
            further = max(_MIN_BLOCKS_AFTER_CONFIRMATION, 2 * watch.terms.required)
            close_height = self.observation.tip.height + further
        event = WebhookEvent(
            type=event_type,
            epoch=epoch,
            sequence=watch.sequence + 1,
            state=told_state(watch.terms, self.observation),
            previous_state=watch.state,
            initial=self.initial,
            observation=self.observation,
            drop=drop,
        )
        watch = evolve(watch, state=state, epoch=epoch, sequence=event.sequence, close_height=close_height)
        return evolve(self, watch=watch, events=(*self.events, event))


def evaluate(
    watch: Watch, observation: Observation, context: EvaluationContext, *, initial: bool = False
) -> tuple[Watch, tuple[WebhookEvent, ...]]:
    """The watch after ``observation``, and the events that it emits, in order; an ended watch emits none."""
    if not watch.active:
        return watch, ()
    if watch.is_late(observation, context):
        observation = observation._replace(location=None, pending=None)
    evaluation = _evaluate_payment(_Evaluation(watch, observation, initial), context)
    evaluation = evolve(evaluation, watch=evolve(evaluation.watch, location=observation.location))
    evaluation = _evaluate_expiry(evaluation, context)
    return evaluation.watch, evaluation.events


def _evaluate_payment(evaluation: _Evaluation, context: EvaluationContext) -> _Evaluation:
    watch, observation = evaluation.watch, evaluation.observation
    state = told_state(watch.terms, observation)
    if watch.location is None:
        if observation.location is not None:
            confirmed = state is PaymentState.CONFIRMED
            return evaluation.emit(EventType.CONFIRMED if confirmed else EventType.CONFIRMING, state)
        if state is PaymentState.PENDING and watch.state is PaymentState.UNPAID:
            return evaluation.emit(EventType.PENDING, state)
        # A payment that has left the mempool was never on the chain: no reorganisation to report.
        if watch.state is PaymentState.PENDING and state is PaymentState.UNPAID and EventType.DROPPED in watch.events:
            return evaluation.emit(EventType.DROPPED, state, drop=context.drop)
        return evolve(evaluation, watch=evolve(watch, state=state))
    depth_before = context.tip_before - watch.location.height + 1
    if _moved(watch.location, observation.location) or observation.confirmations < depth_before:
        # A payment that is confirmed again gets a second event, because shops hand out goods on `confirmed`.
        confirmed = state is PaymentState.CONFIRMED
        evaluation = evaluation.emit(EventType.REORGED, PaymentState.CONFIRMING if confirmed else state)
        return evaluation.emit(EventType.CONFIRMED, state) if confirmed else evaluation
    if watch.state is PaymentState.CONFIRMING:
        if state is PaymentState.CONFIRMED:
            return evaluation.emit(EventType.CONFIRMED, state)
        if watch.tells_depths(context) and depth_before < observation.confirmations < watch.terms.required:
            return evaluation.emit(EventType.CONFIRMING, state)
    return evaluation


def _moved(before: PaymentLocation, after: PaymentLocation | None) -> bool:
    return after is None or (after.txid, after.block_hash) != (before.txid, before.block_hash)


def _evaluate_expiry(evaluation: _Evaluation, context: EvaluationContext) -> _Evaluation:
    watch = evaluation.watch
    if not context.may_end:
        return evaluation
    if watch.close_height is not None and evaluation.observation.tip.height < watch.close_height:
        return evaluation
    if watch.close_height is not None and watch.state is PaymentState.CONFIRMED:
        is_over = context.now >= watch.closes_from
        return evolve(evaluation, watch=evolve(watch, ending=EndReason.CLOSED)) if is_over else evaluation
    unpaid = watch.state is PaymentState.UNPAID
    if context.now < (watch.closes_from if unpaid else watch.expires_at):
        return evaluation
    evaluation = evaluation.emit(EventType.EXPIRED, watch.state)
    return evolve(evaluation, watch=evolve(evaluation.watch, ending=EndReason.EXPIRED))


def emit_alarm(
    watch: Watch, observation: Observation, alarm: NodeAlarm, *, initial: bool = False
) -> tuple[Watch, WebhookEvent]:
    """The watch after the event for ``alarm``, and the event; the payment's state does not change."""
    event = evolve(_unchanged(watch, EventType.ALARM, observation, initial=initial), alarm=alarm)
    return evolve(watch, sequence=event.sequence), event


def emit_mismatches(
    watch: Watch, observation: Observation, transfers: Sequence[MismatchedTransfer], *, initial: bool
) -> tuple[Watch, tuple[WebhookEvent, ...]]:
    """The watch after the events for ``transfers``, and the events; the payment's state does not change."""
    events: list[WebhookEvent] = []
    remaining = MAX_REPORTED_MISMATCHES - len(watch.reported_mismatches or ())
    for number, transfer in enumerate(transfers, 1):
        event = _unchanged(watch, EventType.MISMATCHED, observation, initial=initial)
        watch = evolve(watch, sequence=event.sequence)
        events.append(evolve(event, mismatch=evolve(transfer, more=number == remaining)))
    return remember_mismatches(watch, [transfer.txid for transfer in transfers]), tuple(events)


def _unchanged(watch: Watch, kind: EventType, observation: Observation, *, initial: bool) -> WebhookEvent:
    """The next event of ``watch``, which does not change the payment's state."""
    return WebhookEvent(
        type=kind,
        epoch=watch.epoch,
        sequence=watch.sequence + 1,
        state=watch.state,
        previous_state=watch.state,
        initial=initial,
        observation=observation,
    )


def mismatch_kind(watch: Watch, transfer: Transfer, paid_by: bytes | None) -> str | None:
    """The mismatch of a canonical transfer under the watch's reference; ``paid_by`` is the payment's txid."""
    mismatch = mismatch_of(transfer.txid, transfer.amount, watch.terms.amount, paid_by)
    if mismatch is not None or watch.active:
        return mismatch
    # The payment of a closed watch was in time. An expired one has reported that there was none.
    was_there = watch.location is not None and watch.location.txid == transfer.txid
    return None if was_there and watch.ending is EndReason.CLOSED else LATE


def choose_mismatches(watch: Watch, found: Sequence[MismatchedTransfer]) -> list[MismatchedTransfer]:
    """The transfers of ``found``, in their order, for which the watch may still emit events."""
    chosen: list[MismatchedTransfer] = []
    reported = len(watch.reported_mismatches or ())
    for transfer in found:
        number = reported + len(chosen)
        small = transfer.amount * SMALL_PART < watch.terms.amount
        if number < (MAX_REPORTED_BEFORE_SMALL if small else MAX_REPORTED_MISMATCHES):
            chosen.append(transfer)
    return chosen


def remember_mismatches(watch: Watch, txids: Sequence[bytes]) -> Watch:
    """The watch with ``txids`` noted; after MAX_REPORTED_MISMATCHES it emits no more `payment.mismatched`."""
    reported = (*(watch.reported_mismatches or ()), *txids)
    return evolve(watch, reported_mismatches=reported if len(reported) < MAX_REPORTED_MISMATCHES else None)


def next_evaluation(watch: Watch, tip_height: int, context: EvaluationContext) -> NextEvaluation:
    """When ``watch``, the result of an evaluation in ``context``, must be evaluated next."""
    if not watch.active:
        return NextEvaluation(None, None)
    heights = []
    times = [at for at in (watch.closes_from, watch.expires_at) if context.now < at or not context.may_end]
    if watch.state is PaymentState.CONFIRMING and watch.location is not None:
        confirmed = watch.location.height + watch.terms.required - 1
        if confirmed <= tip_height:
            # The node was catching up. Times are awaited only once it is in step, so this one is long past.
            times.append(0)
        else:
            heights.append(min(tip_height + 1, confirmed) if watch.tells_depths(context) else confirmed)
    if watch.close_height is not None and watch.closes_from not in times:
        heights.append(watch.close_height)
    return NextEvaluation(min(heights, default=None), min(times, default=None))
