"""Decides which event is sent next, so that no receiver delays another (docs/webhook-reference.md "Attempts").

A receiver is the host and port of callbacks of one merchant: callbacks of one merchant that fail at a host say nothing
about those of another, whose host it may be. At most one event of a watch, four of a receiver and 32 of a merchant are
in flight, fewer if there are several merchants, and never more than half of them to one receiver. Merchants take turns,
and so do the receivers of each that have due events: each sends one event and goes to the end of the line. No operation
visits every queue: a dead receiver may have tens of thousands. Times are Unix milliseconds.
"""

from collections import OrderedDict
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.commerce.circuit_breaker import BreakerChange, CircuitBreaker, DeliveryOutcome, OpenBreaker
from svcd.limits import STALLING_RECEIVER, limit
from svcd.store.webhook_events import WatchQueue

MAX_IN_FLIGHT: Final = limit(32, "deliveries at once of one merchant", "deliveries", STALLING_RECEIVER)
MAX_IN_FLIGHT_PER_RECEIVER: Final = limit(4, "deliveries at once to one receiver", "deliveries", STALLING_RECEIVER)

MAX_IN_FLIGHT_IN_ALL: Final = limit(256, "deliveries at once, of up to 128 merchants", "deliveries", STALLING_RECEIVER)
"""All merchants together, unless there are so many that each has only MIN_IN_FLIGHT."""
MIN_IN_FLIGHT: Final = 2
"""A merchant can deliver to one receiver while another one stalls."""
_PREFERRED_SHARE: Final = 2 * MAX_IN_FLIGHT_PER_RECEIVER
_STALE_ALLOWED: Final = 64
"""Stale entries that a collection may hold before it is worth a cleanup."""


def in_flight_share(merchants: int) -> int:
    """The number of deliveries that each of ``merchants`` merchants may always have in flight."""
    merchants = max(merchants, 1)
    share = max(MAX_IN_FLIGHT // merchants, _PREFERRED_SHARE)
    return max(min(share, MAX_IN_FLIGHT_IN_ALL // merchants), MIN_IN_FLIGHT)


def max_deliveries_in_flight(merchants: int) -> int:
    """The number of deliveries that ``merchants`` merchants may have in flight together."""
    return merchants * in_flight_share(merchants)


class DeliveryKind(Enum):
    """What to do with the head of a queue."""

    ATTEMPT = "attempt"
    PROBE = "probe"
    """An attempt that decides whether the receiver's breaker closes."""
    GIVE_UP = "give up"
    """The receiver has failed for a whole retry period: abandon the event without an attempt."""


@frozen
class Delivery:
    """The delivery of the head of one queue, from :meth:`DeliveryScheduler.begin` to :meth:`DeliveryScheduler.end`."""

    queue: WatchQueue
    kind: DeliveryKind
    early: bool
    """Whether a success of the receiver has woken the queue before it was due."""
    last_chance: bool
    """Whether the receiver has failed for a whole retry period, so that another failure abandons an old event."""


@define(eq=False)
class QueueEntry:
    """A queue that waits for its delivery."""

    queue: WatchQueue
    stale: bool = False
    """Whether its delivery has begun, or it was replaced or cancelled: only its removal from a heap is left."""


_Heap = list[tuple[int, int, QueueEntry]]
"""By due time, then by arrival."""


@define(eq=False)
class Receiver:
    """The waiting queues of one receiver, and its circuit breaker."""

    merchant: str
    name: str
    max_in_flight: int
    breaker: CircuitBreaker
    timer: int = field(init=False, default=0)
    """The serial number of the scheduler's valid timer for this receiver; 0 for none."""
    in_flight: int = field(init=False, default=0)
    waiting: int = field(init=False, default=0)
    """Entries that are not stale."""
    _woken: _Heap = field(init=False, factory=list)
    """Woken by a success of the receiver: sent even before they are due."""
    _scheduled: _Heap = field(init=False, factory=list)
    _not_woken: _Heap = field(init=False, factory=list)
    """Woken only when the breaker closes: an early attempt was in vain, or the receiver rejects the event itself."""
    _urgent: _Heap = field(init=False, factory=list)
    """Entries that a probe prefers."""
    _stale: int = field(init=False, default=0)
    _serial: "count[int]" = field(init=False, factory=count)

    def add(self, entry: QueueEntry, *, wakeable: bool) -> None:
        """Add an entry; unless it is ``wakeable``, a success of the receiver does not make it due."""
        item = (entry.queue.due, next(self._serial), entry)
        heappush(self._scheduled if wakeable else self._not_woken, item)
        if entry.queue.urgent:
            if len(self._urgent) > 2 * self.waiting + _STALE_ALLOWED:
                self._urgent = [item for item in self._urgent if not item[2].stale]
                heapify(self._urgent)
            heappush(self._urgent, item)
        self.waiting += 1

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry that waits."""
        entry.stale = True
        self.waiting -= 1
        self._stale += 1
        if self._stale > self.waiting + _STALE_ALLOWED:
            for heap in (self._woken, self._scheduled, self._not_woken):
                heap[:] = [item for item in heap if not item[2].stale]
                heapify(heap)
            self._stale = 0

    def begin(self, now: int) -> Delivery | None:
        """Take out the queue whose delivery may begin now; None if there is none."""
        if self._is_full():
            return None
        if self.breaker.is_open and now < self.breaker.probe_at:
            heap = _earliest(self._woken, self._scheduled, self._not_woken)
            kind = DeliveryKind.GIVE_UP
            if heap is None or self.breaker.gives_up_at(heap[0][0]) > now:
                return None
        else:
            timed = (self._scheduled, self._not_woken)
            heap = _earliest(self._woken, *[heap for heap in timed if (due := _due(heap)) is not None and due <= now])
            kind = DeliveryKind.PROBE if self.breaker.is_open else DeliveryKind.ATTEMPT
            if heap is None:
                return None
        urgent = _due(self._urgent) if kind is DeliveryKind.PROBE else None
        if urgent is not None and urgent <= now:
            entry = heappop(self._urgent)[2]
            self.remove(entry)
        else:
            entry = heappop(heap)[2]
            entry.stale = True
            self.waiting -= 1
        self.in_flight += 1
        last_chance = self.breaker.has_outlasted_retries(now)
        return Delivery(entry.queue, kind, early=entry.queue.due > now, last_chance=last_chance)

    def ready_at(self) -> int | None:
        """The earliest time at which :meth:`begin` returns a delivery; None if that needs another call before."""
        heap = _earliest(self._woken, self._scheduled, self._not_woken)
        if heap is None or self._is_full():
            return None
        ready = 0 if _due(self._woken) is not None else heap[0][0]
        if not self.breaker.is_open:
            return ready
        return min(max(ready, self.breaker.probe_at), self.breaker.gives_up_at(heap[0][0]))

    def record(self, delivery: Delivery, outcome: DeliveryOutcome, now: int) -> BreakerChange:
        """Note the outcome of a delivery.

        An answer that depends on the event alone wakes the entries that wait; one that closes the breaker wakes all.
        """
        self.in_flight -= 1
        change = self.breaker.record(outcome, now, probe=delivery.kind is DeliveryKind.PROBE)
        if outcome in (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED) or change is BreakerChange.CLOSED:
            self._woken, self._scheduled = _merged(self._woken, self._scheduled), []
        if change is BreakerChange.CLOSED:
            self._woken, self._not_woken = _merged(self._woken, self._not_woken), []
        return change

    def _is_full(self) -> bool:
        return self.in_flight >= (1 if self.breaker.is_open else self.max_in_flight)


def _earliest(*heaps: _Heap) -> _Heap | None:
    """The heap whose first entry is due first."""
    return min((heap for heap in heaps if _due(heap) is not None), key=lambda heap: heap[0][:2], default=None)


def _due(heap: _Heap) -> int | None:
    while heap and heap[0][2].stale:
        heappop(heap)
    return heap[0][0] if heap else None


def _merged(one: _Heap, other: _Heap) -> _Heap:
    small, large = sorted((one, other), key=len)
    for item in small:
        heappush(large, item)
    return large


def _as_urgent(queue: WatchQueue, *others: WatchQueue | None) -> WatchQueue:
    """``queue``, urgent if it or one of the others is."""
    return evolve(queue, urgent=queue.urgent or any(other is not None and other.urgent for other in others))


@define(eq=False)
class _ActiveDelivery:
    receiver: Receiver
    rescheduled: WatchQueue | None = None
    """The queue, if it was scheduled again during the delivery."""
    cancelled: bool = False


@define(eq=False)
class _Merchant:
    """The turns of one merchant's receivers."""

    line: OrderedDict[Receiver, None] = field(factory=OrderedDict)
    """Receivers whose delivery may begin, the next one first."""
    in_flight: int = 0


class DeliveryScheduler:
    """All queues that wait or are being delivered. Call ``begin`` until it returns None, and again at ``next_at``."""

    def __init__(self, share: int = MAX_IN_FLIGHT) -> None:
        """``share`` is the number of deliveries that each merchant may have in flight."""
        self._share = share
        self._kept: dict[tuple[str, str], OpenBreaker] = {}
        self._receivers: dict[tuple[str, str], Receiver] = {}
        """By merchant and name."""
        self._merchants: dict[str, _Merchant] = {}
        """The least recently served one comes first."""
        self._waiting: dict[str, QueueEntry] = {}
        self._deliveries: dict[str, _ActiveDelivery] = {}
        self._timers: list[tuple[int, int, Receiver]] = []
        self._serial = count(1)
        self._open_breakers = 0

    def resize(self, share: int, now: int) -> None:
        """Give each merchant so many deliveries in flight from now on; those that have begun go on."""
        self._share = share
        for receiver in self._receivers.values():
            receiver.max_in_flight = self._max_per_receiver
            self._reschedule(receiver, now)

    @property
    def _max_per_receiver(self) -> int:
        return min(MAX_IN_FLIGHT_PER_RECEIVER, self._share // 2)

    @property
    def waiting(self) -> int:
        """Queues that wait."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Deliveries that have begun and not ended."""
        return len(self._deliveries)

    @property
    def open_breakers(self) -> int:
        """Receivers whose circuit breaker is open."""
        return self._open_breakers

    @property
    def receivers(self) -> int:
        """Receivers in memory: those with a queue that waits or is being delivered."""
        return len(self._receivers)

    def restore(self, merchant: str, receiver: str, breaker: OpenBreaker) -> None:
        """Restore an open breaker, stored before, as soon as a queue of the receiver is scheduled.

        A receiver in memory has a breaker already, which is newer.
        """
        if (merchant, receiver) not in self._receivers:
            self._kept[merchant, receiver] = breaker

    def breaker(self, merchant: str, receiver: str) -> OpenBreaker | None:
        """The breaker of a receiver if it is open."""
        found = self._receivers.get((merchant, receiver))
        return None if found is None else found.breaker.kept()

    def schedule(self, queue: WatchQueue, now: int) -> None:
        """Add a queue, or change its due time; an urgent one stays urgent until its delivery."""
        active = self._deliveries.get(queue.watch)
        if active is not None:
            active.rescheduled = None if active.cancelled else _as_urgent(queue, active.rescheduled)
            return
        entry = self._waiting.get(queue.watch)
        if entry is not None:
            queue = _as_urgent(queue, entry.queue)
            if entry.queue == queue and entry.queue.urgent == queue.urgent:
                self._hurry(queue, now)
                return
            # Remove the entry alone: the receiver and its breaker must stay.
            self._receiver_of(entry.queue).remove(entry)
        self._add(queue, now, wakeable=True)
        self._hurry(queue, now)

    def hurry(self, merchant: str, receiver: str, now: int) -> None:
        """Bring the next probe of a receiver forward."""
        found = self._receivers.get((merchant, receiver))
        if found is not None:
            found.breaker.hurry(now)
            self._reschedule(found, now)

    def _hurry(self, queue: WatchQueue, now: int) -> None:
        if queue.urgent and queue.due <= now:
            self.hurry(queue.merchant, queue.receiver, now)

    def cancel(self, watch: str, now: int) -> None:
        """Remove the queue of a watch that has ended; a delivery in flight goes on but is not followed by another."""
        active = self._deliveries.get(watch)
        if active is not None:
            active.rescheduled, active.cancelled = None, True
        entry = self._waiting.pop(watch, None)
        if entry is not None:
            receiver = self._receiver_of(entry.queue)
            receiver.remove(entry)
            self._reschedule(receiver, now)

    def begin(self, now: int) -> Delivery | None:
        """The next delivery of any merchant, to be given to ``end`` in the end; None if there is none at present."""
        while self._timers and self._timers[0][0] <= now:
            _, serial, receiver = heappop(self._timers)
            if serial == receiver.timer:
                receiver.timer = 0
                self._reschedule(receiver, now)
        for name, merchant in self._merchants.items():
            delivery = self._begin_of(merchant, now)
            if delivery is not None:
                self._merchants[name] = self._merchants.pop(name)
                return delivery
        return None

    def _begin_of(self, merchant: _Merchant, now: int) -> Delivery | None:
        while merchant.line and merchant.in_flight < self._share:
            receiver, _ = merchant.line.popitem(last=False)
            delivery = receiver.begin(now)
            if delivery is not None:
                del self._waiting[delivery.queue.watch]
                self._deliveries[delivery.queue.watch] = _ActiveDelivery(receiver)
                merchant.in_flight += 1
            self._reschedule(receiver, now)
            if delivery is not None:
                return delivery
        return None

    def end(self, delivery: Delivery, outcome: DeliveryOutcome, again: WatchQueue | None, now: int) -> BreakerChange:
        """End a delivery; ``again`` is the queue if it has more events, with its next due time."""
        active = self._deliveries.pop(delivery.queue.watch)
        receiver = active.receiver
        self._merchants[receiver.merchant].in_flight -= 1
        change = receiver.record(delivery, outcome, now)
        self._open_breakers += (change is BreakerChange.OPENED) - (change is BreakerChange.CLOSED)
        accepted, renewed = outcome is DeliveryOutcome.ACCEPTED, active.rescheduled
        following, wakeable = renewed, True
        if again is not None and not active.cancelled:
            following = _as_urgent(again, renewed, None if accepted else delivery.queue)
            early_in_vain = delivery.early and not accepted
            wakeable = outcome is not DeliveryOutcome.REJECTED and not early_in_vain
        if following is not None:
            self._add(following, now, wakeable=wakeable)
            if renewed is not None and renewed.urgent:
                self._hurry(following, now)
        self._reschedule(receiver, now)
        return change

    def next_at(self, now: int) -> int | None:
        """When ``begin`` may succeed again; None if not before a delivery ends or a queue is scheduled."""
        free = [merchant for merchant in self._merchants.values() if merchant.in_flight < self._share]
        if any(merchant.line for merchant in free):
            return now
        while self._timers and self._timers[0][1] != self._timers[0][2].timer:
            heappop(self._timers)
        return self._timers[0][0] if free and self._timers else None

    def _receiver_of(self, queue: WatchQueue) -> Receiver:
        return self._receivers[queue.merchant, queue.receiver]

    def _add(self, queue: WatchQueue, now: int, *, wakeable: bool) -> None:
        key = queue.merchant, queue.receiver
        receiver = self._receivers.get(key)
        if receiver is None:
            breaker = CircuitBreaker.restored(self._kept.pop(key, None))
            receiver = self._receivers[key] = Receiver(*key, self._max_per_receiver, breaker)
            self._merchants.setdefault(queue.merchant, _Merchant())
            self._open_breakers += breaker.is_open
        entry = self._waiting[queue.watch] = QueueEntry(queue)
        receiver.add(entry, wakeable=wakeable)
        self._reschedule(receiver, now)

    def _reschedule(self, receiver: Receiver, now: int) -> None:
        """Put a receiver into the line, set a timer for it, or forget it, as its state requires."""
        line = self._merchants[receiver.merchant].line
        if not receiver.waiting and not receiver.in_flight:
            del self._receivers[receiver.merchant, receiver.name]
            self._open_breakers -= receiver.breaker.is_open
            line.pop(receiver, None)
            receiver.timer = 0
        elif receiver not in line:
            ready_at = receiver.ready_at()
            receiver.timer = 0
            if ready_at is not None and ready_at <= now:
                line[receiver] = None
            elif ready_at is not None:
                receiver.timer = next(self._serial)
                heappush(self._timers, (ready_at, receiver.timer, receiver))
        if len(self._timers) > 2 * len(self._receivers) + _STALE_ALLOWED:
            self._timers = [timer for timer in self._timers if timer[1] == timer[2].timer]
            heapify(self._timers)
