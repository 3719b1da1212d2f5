"""Gives each merchant a scheduler of its own, so that no merchant delays the events of another.

Also the circuit breakers are per merchant: callbacks of one that fail at a receiver say nothing about the callbacks of
another, whose receiver it may be. Times are Unix milliseconds.
"""

from typing import Final

from attrs import define, field

from svcd.commerce.circuit_breaker import BreakerChange, DeliveryOutcome, OpenBreaker
from svcd.commerce.delivery_scheduler import MAX_IN_FLIGHT, MAX_IN_FLIGHT_PER_RECEIVER, Delivery, DeliveryScheduler
from svcd.limits import STALLING_RECEIVER, Limit
from svcd.store.webhook_events import WatchQueue

MAX_IN_FLIGHT_IN_ALL: Final = 256
"""All merchants together, unless there are so many that each has only LEAST_IN_FLIGHT."""
LEAST_IN_FLIGHT: Final = 2
"""A merchant can deliver to one receiver while another one stalls."""

LIMITS: Final = (
    Limit("deliveries at once, of up to 128 merchants", MAX_IN_FLIGHT_IN_ALL, "things", STALLING_RECEIVER),
)

_PREFERRED_SHARE: Final = 2 * MAX_IN_FLIGHT_PER_RECEIVER


def in_flight_share(merchants: int) -> int:
    """The number of deliveries that each of ``merchants`` merchants may always have in flight."""
    merchants = max(merchants, 1)
    share = max(MAX_IN_FLIGHT // merchants, _PREFERRED_SHARE)
    return max(min(share, MAX_IN_FLIGHT_IN_ALL // merchants), LEAST_IN_FLIGHT)


def most_in_flight(merchants: int) -> int:
    """The number of deliveries that ``merchants`` merchants may have in flight together."""
    return merchants * in_flight_share(merchants)


@define
class FairScheduler:
    """A DeliveryScheduler for each merchant, with at most ``share`` deliveries in flight."""

    _share: int
    _schedulers: dict[str, DeliveryScheduler] = field(init=False, factory=dict)
    """By merchant; the least recently served one comes first."""

    def resize(self, share: int, now: int) -> None:
        """Give each merchant so many deliveries in flight from now on."""
        self._share = share
        for scheduler in self._schedulers.values():
            scheduler.resize(share, now)

    @property
    def waiting(self) -> int:
        """Queues that wait."""
        return sum(scheduler.waiting for scheduler in self._schedulers.values())

    @property
    def in_flight(self) -> int:
        """Deliveries that have begun and not ended."""
        return sum(scheduler.in_flight for scheduler in self._schedulers.values())

    @property
    def open_breakers(self) -> int:
        """Circuit breakers that are open."""
        return sum(scheduler.open_breakers for scheduler in self._schedulers.values())

    def schedule(self, queue: WatchQueue, now: int) -> None:
        """Add a queue, or change its due time."""
        self._scheduler_of(queue.merchant).schedule(queue, now)

    def restore(self, merchant: str, receiver: str, breaker: OpenBreaker) -> None:
        """Restore an open breaker, stored before, as soon as a queue of the receiver is scheduled."""
        self._scheduler_of(merchant).restore(receiver, breaker)

    def breaker(self, merchant: str, receiver: str) -> OpenBreaker | None:
        """The breaker of a merchant's receiver if it is open."""
        return self._scheduler_of(merchant).breaker(receiver)

    def hurry(self, merchant: str, receiver: str, now: int) -> None:
        """Bring the next probe of a merchant's receiver forward."""
        self._scheduler_of(merchant).hurry(receiver, now)

    def cancel(self, watch: str, now: int) -> None:
        """Remove the queue of a watch that has ended."""
        for scheduler in self._schedulers.values():
            scheduler.cancel(watch, now)

    def begin(self, now: int) -> Delivery | None:
        """The next delivery of any merchant, to be given to ``end`` in the end; None if there is none at present."""
        deliveries = (scheduler.begin(now) for scheduler in self._schedulers.values())
        delivery = next((delivery for delivery in deliveries if delivery is not None), None)
        if delivery is not None:
            self._schedulers[delivery.queue.merchant] = self._schedulers.pop(delivery.queue.merchant)
        return delivery

    def end(self, delivery: Delivery, outcome: DeliveryOutcome, again: WatchQueue | None, now: int) -> BreakerChange:
        """End a delivery; ``again`` is the queue if it has more events, with its next due time."""
        return self._scheduler_of(delivery.queue.merchant).end(delivery, outcome, again, now)

    def next_at(self, now: int) -> int | None:
        """When ``begin`` may succeed again; None if not before a delivery ends or a queue is scheduled."""
        times = (scheduler.next_at(now) for scheduler in self._schedulers.values())
        return min((time for time in times if time is not None), default=None)

    def _scheduler_of(self, merchant: str) -> DeliveryScheduler:
        scheduler = self._schedulers.get(merchant)
        if scheduler is None:
            scheduler = self._schedulers[merchant] = DeliveryScheduler(self._share)
        return scheduler
