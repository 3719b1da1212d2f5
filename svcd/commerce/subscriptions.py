"""What a merchant may ask of the webhooks: begin a watch, look at one, end one (docs/webhooks.md)."""

from collections.abc import Callable
from typing import Final

from attrs import evolve, field, frozen

from svcd.commerce.follower import Follower, Present
from svcd.commerce.outbox import Lane
from svcd.commerce.payment import Sighting, Terms, payment_record
from svcd.commerce.register import lane_of, watch_of
from svcd.commerce.schedule import LONGEST_PAUSE
from svcd.commerce.watch import Ending, Watch
from svcd.store.webhook_events import EventRow
from svcd.store.webhook_store import WebhookStore

MAX_WATCHES: Final = 50_000
MAX_AT_HOST: Final = 2_000
_AT_ONCE: Final = 1_000
"""Watches that are forgotten in one transaction."""
_FATES: Final = {"superseded", "abandoned", "dropped"}


class TooManyWatches(Exception):
    """There is no room for another watch; the text is for who asked."""


@frozen(kw_only=True)
class Order:
    """What is to be watched, and who is to be told."""

    terms: Terms
    callback_url: str = field(repr=False)
    """In its canonical spelling; its path and query may hold a secret of the merchant's."""
    host: str
    ttl_ms: int
    """How long, in milliseconds."""


@frozen
class Registered:
    """What has become of an order."""

    record: dict[str, object]
    """The subscription as clients read it."""
    lanes: list[Lane]
    """Watches that have something new to send."""


@frozen
class Standing:
    """How much the webhooks have to do."""

    watches: int
    """Active ones."""
    waiting_since: int | None
    """When the oldest event that has not been delivered was made, Unix milliseconds."""


@frozen
class Tidied:
    """What one round of tidying up has done."""

    lost: int
    """Events that have been given up."""
    done: bool
    """Whether there is nothing left to tidy."""


@frozen
class Subscriptions:
    """Answers merchants; for the thread of the follower. ``new_id`` makes the id of a watch, at random."""

    follower: Follower
    new_id: Callable[[], str]

    def begin(self, order: Order, present: Present) -> Registered:
        """Watch ``order`` from now on, or give the watch that already does.

        Raises TooManyWatches, or svcd.commerce.follower.Behind.
        """
        # Nobody else will be told of it, even if there is nothing to begin.
        self.follower.hear(present.news)
        twin = self._twin(order)
        if twin is not None:
            record = _record(twin, self.follower.sighting(twin.terms))
            return Registered({**record, "existing": True}, [])
        self._check_room(order.host)
        watch = Watch(
            id=self.new_id(),
            terms=order.terms,
            callback_url=order.callback_url,
            host=order.host,
            created_at=present.now,
            expires_at=present.now + order.ttl_ms,
        )
        lanes, sighting = self.follower.admit(watch, present)
        # As it was when it began: the first event has not been told yet.
        return Registered(_record(watch, sighting), lanes)

    def show(self, identifier: str) -> dict[str, object] | None:
        """A watch and its newest events; None if there is no such watch."""
        row = self._watches.watch(identifier)
        if row is None:
            return None
        watch = watch_of(row)
        queue = self.follower.register.events.head(identifier)
        due = None if queue is None else (queue.event.sequence, queue.due)
        events = [_event_record(event, due) for event in self.follower.register.events.events(identifier)]
        return {**_record(watch, self.follower.sighting(watch.terms)), "events": events}

    def cancel(self, identifier: str, now: int) -> dict[str, object] | None:
        """End a watch on the merchant's word; gives what :meth:`show` gives then."""
        with self._watches.commit():
            self._end(identifier, Ending.CANCELLED, now)
        return self.show(identifier)

    def refused(self, identifier: str, sequence: int, now: int) -> None:
        """End a watch whose receiver wants no more (410)."""
        with self._watches.commit():
            self.follower.register.events.failed(identifier, sequence, error="status 410", due=None, now=now)
            self._end(identifier, Ending.GONE, now)

    def lanes(self, now: int) -> list[Lane]:
        """Every watch that has something to send, at the latest after the longest pause there is from ``now`` on.

        What is due later was put off while the computer's clock was far ahead.
        """
        lanes = map(lane_of, self.follower.register.events.queued())
        return [evolve(lane, due=min(lane.due, now + LONGEST_PAUSE)) for lane in lanes]

    def standing(self) -> Standing:
        """How much there is to do."""
        return Standing(self._watches.count_active(), self.follower.register.events.waiting_since())

    def tidy(self, waited_since: int, ended_before: int) -> Tidied:
        """Give up events from before ``waited_since`` and forget watches that ended before ``ended_before``.

        No more than a thousand watches in one round: others want the thread, too.
        """
        with self._watches.commit():
            lost = self.follower.register.events.abandon_older(waited_since)
            forgotten = self._watches.forget_ended(ended_before, _AT_ONCE)
        return Tidied(lost, forgotten < _AT_ONCE)

    def _end(self, identifier: str, ending: Ending, now: int) -> None:
        row = self._watches.watch(identifier)
        if row is None:
            return
        if row.ending is None:
            self.follower.register.end(evolve(watch_of(row), ending=ending), now)
        else:
            self.follower.register.events.drop_waiting(identifier)

    @property
    def _watches(self) -> WebhookStore:
        return self.follower.register.watches

    def _twin(self, order: Order) -> Watch | None:
        terms = order.terms
        for row in self._watches.of_payment(terms.reference, terms.recipient, terms.amount):
            watch = watch_of(row)
            lasts = watch.expires_at - watch.created_at
            if (watch.terms, watch.callback_url, lasts) == (terms, order.callback_url, order.ttl_ms):
                return watch
        return None

    def _check_room(self, host: str) -> None:
        if self._watches.count_active() >= MAX_WATCHES:
            raise TooManyWatches(f"this node keeps at most {MAX_WATCHES} watches; cancel some or wait until they end")
        if self._watches.count_at_host(host) >= MAX_AT_HOST:
            raise TooManyWatches(f"{host} has {MAX_AT_HOST} watches, which is the most; cancel some or wait")


def _record(watch: Watch, sighting: Sighting) -> dict[str, object]:
    terms = watch.terms
    record: dict[str, object] = {
        "id": watch.id,
        "active": watch.active,
        "reference": terms.reference,
        "recipient": terms.recipient,
        "amount": str(terms.amount),
        "requiredConfirmations": terms.required,
        "lastState": watch.last_state,
        "callbackUrl": watch.callback_url,
        "createdAt": str(watch.created_at),
        "expiresAt": str(watch.expires_at),
        "payment": payment_record(terms, sighting),
    }
    if terms.since_height is not None:
        record["sinceHeight"] = str(terms.since_height)
    if watch.ending is not None:
        record["ending"] = watch.ending.value
    return record


def _event_record(event: EventRow, due: tuple[int, int] | None) -> dict[str, object]:
    record: dict[str, object] = {
        "id": event.id,
        "event": event.name,
        "createdAt": str(event.created_at),
        "attempts": event.attempts,
        "deliveredAt": None if event.delivered_at is None else str(event.delivered_at),
        "nextAttemptAt": str(due[1]) if due is not None and due[0] == event.sequence else None,
        "lastError": event.last_error,
    }
    if event.fate in _FATES:
        record[event.fate] = True
    return record
