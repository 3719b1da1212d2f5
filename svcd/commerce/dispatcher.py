"""Delivers the events of the outbox (docs/webhook-reference.md "Delivery").

Delivery is at least once: an event counts as delivered when the outbox has recorded it. If the process dies between the
receiver's answer and that record, the event is sent again with the same id.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar, cast

from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.commerce.circuit_breaker import BreakerChange, DeliveryOutcome, OpenBreaker
from svcd.commerce.delivery_scheduler import Delivery, DeliveryKind, DeliveryScheduler, in_flight_share
from svcd.commerce.leadership import Leadership, NotLeader, SoleLeader
from svcd.commerce.outbox import OutboundEvent, WebhookOutbox
from svcd.commerce.retry_policy import MAX_PROBE_DELAY, RETRY_PERIOD, next_attempt, next_attempt_after_refusal
from svcd.commerce.sender import DeliveryResult, WebhookSender
from svcd.deferreds import shielded
from svcd.interfaces import Clock, Timer, milliseconds, unix_seconds
from svcd.node.clock_guard import ClockGuard
from svcd.node.news import News, Topic
from svcd.store.database import DatabaseUnavailable
from svcd.store.webhook_events import BreakerRow, WatchQueue

OUTBOX_RETRY_SECONDS: Final = 10
"""Delay before an outbox operation that has failed is tried again."""
HOLD_SECONDS: Final = 5
"""How long no delivery begins after such a failure; shorter, so that one unrecordable event does not block others."""
ENQUEUE_BATCH: Final = 1_000
"""Queues that are passed to the scheduler in one turn of the reactor."""
STOP_SECONDS: Final = 5
"""How long deliveries in flight may take when the node stops."""
HOST_BROKEN: Final = "host-broken"
"""The error of an event that was abandoned because of its host, without an attempt."""

T = TypeVar("T")


@define
class ForwardClock:
    """Unix milliseconds that follow a clock when it is set forward, but never go back, and run evenly while in doubt.

    Otherwise, setting the clock back by an hour would delay every scheduled attempt by an hour, and setting it forward
    for a second would make all events old for good. Until the clock is trusted for the first time, they follow it.
    """

    _clock: Clock
    _guard: ClockGuard
    _offset: float | None = field(default=None, init=False)
    """None until the clock is trusted."""

    def now(self) -> int:
        """The time in milliseconds."""
        offset = self._current_offset()
        if self._guard.is_trusted():
            self._offset = offset if self._offset is None else max(self._offset, offset)
        return int((self._clock.seconds() + (offset if self._offset is None else self._offset)) * 1000)

    def _current_offset(self) -> float:
        return unix_seconds(self._clock) - self._clock.seconds()


@frozen(kw_only=True)
class DeliveryCounts:
    """The present state of deliveries, and totals since the start."""

    in_flight: int
    waiting: int
    """Watches with undelivered events."""
    broken_hosts: int
    delivered: int
    """Events, in total."""
    failed: int
    """Attempts, in total."""
    abandoned: int
    """Events, in total."""
    refused: int
    """Events, in total."""


class WebhookDispatcher:
    """Delivers each event of an outbox until its receiver accepts it or all attempts have failed."""

    log = Logger()

    def __init__(
        self,
        outbox: WebhookOutbox,
        sender: WebhookSender,
        *,
        clock: Clock,
        guard: ClockGuard,
        chance: Callable[[], float],
        leadership: Leadership | None = None,
        news: News | None = None,
    ) -> None:
        """Sends nothing before :meth:`enqueue`, and nothing while another node leads.

        While ``guard`` does not trust the clock, no event becomes too old. ``chance`` returns random numbers from 0 to
        1.
        """
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._leadership: Leadership = leadership or SoleLeader()
        self._guard = guard
        self._news = news or News(clock)
        self._forward_clock = ForwardClock(clock, guard)
        self._chance = chance
        self._scheduler = DeliveryScheduler(in_flight_share(len(sender.merchants)))
        self._running: set[Deferred[None]] = set()
        self._timer: Timer | None = None
        self._incoming: deque[WatchQueue] = deque()
        self._absent_merchants: set[str] = set()
        """Merchants with waiting events that are not in the configuration."""
        self._incoming_call: Timer | None = None
        self._starting = False
        self._stopping = False
        self._aborted = False
        self._held_until: int | None = None
        self._delivered = self._failed = self._abandoned = self._refused = 0

    def enqueue(self, queues: Iterable[WatchQueue]) -> None:
        """Deliver the events of these queues: all queues after the start, later the queues with new events."""
        self._incoming.extend(queues)
        if self._incoming_call is None:
            self._take_incoming()

    def restore(self, breakers: Iterable[BreakerRow]) -> None:
        """Restore the circuit breakers that the last leader or run has stored; call before the first queues come."""
        # Before this node was the leader, the clock may have been the computer's, which may be ahead of the database's.
        self._forward_clock = ForwardClock(self._clock, self._guard)
        self._restore(breakers)

    def merchants_changed(self) -> None:
        """Share the deliveries anew among the sender's merchants, of which some are new and others are gone."""
        self._absent_merchants -= self._sender.merchants.keys()
        self._scheduler.resize(in_flight_share(len(self._sender.merchants)), self._now())
        self._start_deliveries()

    def resume(self, queues: Iterable[WatchQueue], breakers: Iterable[BreakerRow]) -> None:
        """Deliver the events of merchants that are new, or configured again."""
        self._restore(breakers)
        self.enqueue(queues)

    def _restore(self, breakers: Iterable[BreakerRow]) -> None:
        now = self._now()
        for row in breakers:
            # A later time was stored while the computer's clock was far ahead.
            breaker = OpenBreaker(min(row.opened_at, now), min(row.probe_at, now + MAX_PROBE_DELAY), row.probes)
            self._scheduler.restore(row.merchant, row.receiver, breaker)

    def hurry(self, merchant: str, receiver: str) -> None:
        """Bring the next probe of a receiver forward, because it has just accepted a test."""
        self._scheduler.hurry(merchant, receiver, self._now())
        self._start_deliveries()

    def cancel(self, watch: str) -> None:
        """Make no further attempt for a watch that has ended; one in flight may still arrive."""
        self._scheduler.cancel(watch, self._now())
        self._start_deliveries()

    def forget(self) -> None:
        """Forget all queues and abort the deliveries in flight, because another node delivers now."""
        self._scheduler = DeliveryScheduler(in_flight_share(len(self._sender.merchants)))
        self._incoming.clear()
        self._held_until = None
        for running in tuple(self._running):
            running.cancel()
        self._start_deliveries()

    def stop(self) -> Deferred[None]:
        """Begin no more deliveries; fires when those in flight have ended, after 5 s at most.

        Those that take longer are aborted; their events stay undelivered and are sent after the next start.
        """
        self._stopping = True
        if self._incoming_call is not None:
            self._incoming_call.cancel()
        self._start_deliveries()
        return Deferred.fromCoroutine(self._finish())

    def counts(self) -> DeliveryCounts:
        """The present counts."""
        return DeliveryCounts(
            in_flight=self._scheduler.in_flight,
            waiting=self._scheduler.waiting,
            broken_hosts=self._scheduler.open_breakers,
            delivered=self._delivered,
            failed=self._failed,
            abandoned=self._abandoned,
            refused=self._refused,
        )

    def _now(self) -> int:
        """For the scheduler and due times."""
        return self._forward_clock.now()

    def _unix(self) -> int:
        """For records and signatures."""
        return milliseconds(self._clock)

    def _by_own_time(self, queue: WatchQueue) -> WatchQueue:
        """The queue, due now if it is due by the clock for records, which may be ahead while it is in doubt."""
        now = self._now()
        return evolve(queue, due=now) if now < queue.due <= self._unix() else queue

    # Starting deliveries

    def _take_incoming(self) -> None:
        self._incoming_call = None
        now = self._now()
        for _ in range(min(ENQUEUE_BATCH, len(self._incoming))):
            queue = self._by_own_time(self._incoming.popleft())
            if queue.merchant in self._sender.merchants:
                self._scheduler.schedule(queue, now)
            else:
                self._hold(queue.merchant)
        if self._incoming and not self._stopping:
            self._incoming_call = self._clock.callLater(0, self._take_incoming)
        self._start_deliveries()

    def _hold(self, merchant: str) -> None:
        """Leave the events of a merchant in the outbox until a configuration has it again, and log it once."""
        if merchant not in self._absent_merchants:
            self._absent_merchants.add(merchant)
            self.log.warn(
                "the configuration has no merchant {merchant}, whose watches continue: their events are kept for a "
                "week, and sent if it is configured again",
                merchant=merchant,
            )

    def _start_deliveries(self) -> None:
        """Start all deliveries that may start now, and set the timer for the next."""
        if self._starting:
            # A delivery that ends at once calls this from inside the loop below.
            return
        self._starting = True
        try:
            while not self._is_held() and (delivery := self._scheduler.begin(self._now())) is not None:
                self._start(delivery)
        finally:
            self._starting = False
        self._set_timer()

    def _is_held(self) -> bool:
        return self._stopping or (self._held_until is not None and self._now() < self._held_until)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = None if self._stopping else self._scheduler.next_at(self._now())
        if at is not None:
            at = max(at, self._held_until or 0)
            self._timer = self._clock.callLater(max(0, at - self._now()) / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._start_deliveries()

    def _start(self, delivery: Delivery) -> None:
        running = Deferred.fromCoroutine(self._run(delivery))
        self._running.add(running)
        running.addBoth(self._ended, running).addErrback(self._log_failure)

    def _ended(self, result: Failure | None, running: Deferred[None]) -> None:
        self._running.discard(running)
        if isinstance(result, Failure):
            self.log.failure(
                "a delivery ended in an error; its watch may get its next events only after a restart", result
            )
        self._start_deliveries()

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("starting deliveries failed", failure)

    # One delivery

    async def _run(self, delivery: Delivery) -> None:
        scheduler = self._scheduler
        retry = evolve(delivery.queue, due=self._now() + OUTBOX_RETRY_SECONDS * 1000)
        try:
            outcome, again = await self._deliver(delivery)
        except CancelledError:
            # The node is stopping or has lost the leadership, and the outbox still has the event.
            outcome, again = DeliveryOutcome.NOT_COUNTED, retry
        except NotLeader:
            # Another node is the leader now, and will deliver the event.
            outcome, again = DeliveryOutcome.NOT_COUNTED, None
        except Exception:
            self.log.failure("delivering for {watch} failed; it will be retried", watch=delivery.queue.watch)
            outcome, again = DeliveryOutcome.NOT_COUNTED, retry
        change = scheduler.end(delivery, outcome, again, self._now())
        if change is BreakerChange.OPENED:
            self.log.info(
                "callbacks to {receiver} keep failing: until one succeeds, only one at a time is tried",
                receiver=delivery.queue.receiver,
            )
        elif change is BreakerChange.CLOSED:
            self.log.info("callbacks to {receiver} succeed again", receiver=delivery.queue.receiver)
        changed = change is not BreakerChange.NONE or delivery.kind is not DeliveryKind.ATTEMPT
        if changed and not self._aborted:
            await self._keep_breaker(scheduler, delivery.queue)

    async def _keep_breaker(self, scheduler: DeliveryScheduler, queue: WatchQueue) -> None:
        term = self._leadership.term
        if term is None:
            return
        breaker = scheduler.breaker(queue.merchant, queue.receiver)
        # Otherwise the new leader stores its own.
        with suppress(CancelledError, NotLeader):
            await self._retried(lambda: self._outbox.keep_breaker(queue.merchant, queue.receiver, breaker, term))

    async def _deliver(self, delivery: Delivery) -> tuple[DeliveryOutcome, WatchQueue | None]:
        """The outcome of a delivery, and the queue if it has more events."""
        term = self._leadership.term
        event = None if term is None else await self._retried(lambda: self._outbox.head(delivery.queue.watch, term))
        # A node that was suspended here must not send an event that another one has sent since.
        if event is None or self._leadership.term != term:
            return DeliveryOutcome.NOT_COUNTED, None
        if event.merchant not in self._sender.merchants:
            # Removed since the queue was scheduled; nothing waits here before the queue is forgotten, so that a
            # merchant that is configured again meanwhile has its queues from the outbox.
            self._hold(event.merchant)
            return DeliveryOutcome.NOT_COUNTED, None
        if delivery.kind is DeliveryKind.GIVE_UP:
            return DeliveryOutcome.NOT_COUNTED, await self._give_up(delivery, event)
        result = await self._sender.send(event, self._unix())
        return result.outcome, await self._record(delivery, event, result)

    async def _give_up(self, delivery: Delivery, event: OutboundEvent) -> WatchQueue | None:
        if not self._guard.is_trusted():
            # It may only seem old: due now, it is kept for another retry period, and sent as the next probe.
            return evolve(delivery.queue, due=self._now())
        if not _has_outlived_retries(event, self._now()):
            # A newer event has superseded the event to be abandoned.
            return evolve(delivery.queue, due=event.waiting_since)
        return await self._record_failure(event, HOST_BROKEN, due=None)

    async def _record(self, delivery: Delivery, event: OutboundEvent, result: DeliveryResult) -> WatchQueue | None:
        now = self._now()
        if result.gone:
            await self._retried(lambda: self._outbox.gone(event, self._unix()))
            self._news.info(
                "{watch} ends, because {host} answers 410 to event {event_id}",
                Topic.GIVEN_UP,
                watch=event.watch,
                host=event.host,
                event_id=event.event_id,
            )
            return None
        if result.outcome is DeliveryOutcome.ACCEPTED:
            again = await self._retried(lambda: self._outbox.delivered(event, self._unix(), result.status))
            self._delivered += 1
            self._news.info(
                "event {event_id} of {watch} for {host} is delivered: {type}",
                Topic.DELIVERED,
                event_id=event.event_id,
                watch=event.watch,
                host=event.host,
                type=event.type,
                attempts=event.attempts + 1,
            )
            return again and self._by_own_time(again)
        self._failed += 1
        if result.refused:
            return await self._record_refusal(event, result)
        if delivery.last_chance and self._guard.is_trusted() and _has_outlived_retries(event, now):
            return await self._record_failure(event, result.error, due=None, status=result.status)
        if delivery.early:
            # The successes of other events may wake this one many times, which must not use up its attempts.
            due = delivery.queue.due
            return await self._record_failure(event, result.error, due=due, counts=False, status=result.status)
        next_due = next_attempt(
            event.attempts + 1, now, chance=self._chance(), retry_after=result.retry_after, barred=result.barred
        )
        return await self._record_failure(event, result.error, due=next_due, status=result.status)

    async def _record_failure(
        self, event: OutboundEvent, error: str, *, due: int | None, counts: bool = True, status: int | None = None
    ) -> WatchQueue | None:
        now = self._unix()
        again = await self._retried(
            lambda: self._outbox.failed(event, error=error, due=due, now=now, counts=counts, status=status)
        )
        if due is None:
            self._abandoned += 1
            self._log_end(event, "abandoned", error)
            return again and self._by_own_time(again)
        return again

    async def _record_refusal(self, event: OutboundEvent, result: DeliveryResult) -> WatchQueue | None:
        now, chance = self._now(), self._chance()
        due, due_if_followed = (
            next_attempt_after_refusal(event.refusals + 1, now, chance=chance, followed=followed)
            for followed in (False, True)
        )
        again = await self._retried(
            lambda: self._outbox.refused(
                event,
                error=result.error,
                due=due,
                due_if_followed=due_if_followed or now,
                now=self._unix(),
                status=result.status,
            )
        )
        if due is None:
            self._refused += 1
            self._log_end(event, "refused", result.error)
            return again and self._by_own_time(again)
        return again

    def _log_end(self, event: OutboundEvent, end: str, error: str) -> None:
        self._news.warn(
            "event {event_id} of {watch} for {host} is {end}: {error}",
            Topic.GIVEN_UP,
            event_id=event.event_id,
            watch=event.watch,
            host=event.host,
            end=end,
            error=error,
        )

    async def _retried(self, operation: Callable[[], Deferred[T]]) -> T:
        """The result of an outbox operation, retried until it succeeds; meanwhile no delivery begins.

        If a full disk cannot record deliveries, every event sent would be sent again.
        """
        while True:
            try:
                result = await operation()
            except CancelledError:
                raise
            except NotLeader as error:
                self._leadership.lost(error.term)
                raise
            except Exception as error:
                if self._held_until is None and isinstance(error, DatabaseUnavailable):
                    self.log.warn("nothing is sent until the webhooks' database answers: {why}", why=str(error))
                elif self._held_until is None:
                    self.log.failure("the webhook outbox fails; nothing is sent until it works again")
                self._held_until = self._now() + HOLD_SECONDS * 1000
                await deferLater(cast(IReactorTime, self._clock), OUTBOX_RETRY_SECONDS, _nothing)
            else:
                self._held_until = None
                return result

    # Stopping

    async def _finish(self) -> None:
        if not self._running:
            return
        timer = self._clock.callLater(STOP_SECONDS, self._abort)
        try:
            await shielded(DeferredList(tuple(self._running)), self._log_failure)
        except CancelledError:
            # The deadline of the whole stop has come first.
            self._abort()
            raise
        finally:
            if timer.active():
                timer.cancel()

    def _abort(self) -> None:
        self._aborted = True
        for running in tuple(self._running):
            running.cancel()


def _has_outlived_retries(event: OutboundEvent, now: int) -> bool:
    """Whether all attempts would have been made by now if the breaker had not prevented them."""
    return event.waiting_since + RETRY_PERIOD <= now


def _nothing() -> None:
    """Do nothing after a delay."""
