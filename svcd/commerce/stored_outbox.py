"""The outbox on disk: what svcd.commerce.delivery sends, out of the thread that the watches live in."""

from twisted.internet.defer import Deferred

from svcd.commerce.outbox import Lane, Parcel
from svcd.commerce.register import lane_of
from svcd.commerce.subscriptions import Subscriptions
from svcd.node.threads import Worker
from svcd.store.webhook_events import EventStore, Queued
from svcd.store.webhook_store import WebhookStore


class StoredOutbox:
    """See :class:`svcd.commerce.outbox.Outbox`."""

    def __init__(self, subscriptions: Subscriptions, worker: Worker) -> None:
        self._subscriptions = subscriptions
        self._worker = worker

    def head(self, watch: str) -> Deferred[Parcel | None]:
        """See Outbox."""
        return self._worker.run(self._head, watch)

    def delivered(self, parcel: Parcel, now: int) -> Deferred[Lane | None]:
        """See Outbox."""
        return self._worker.run(self._delivered, parcel, now)

    def failed(
        self, parcel: Parcel, *, error: str, due: int | None, now: int, counts: bool = True
    ) -> Deferred[Lane | None]:
        """See Outbox."""
        return self._worker.run(self._failed, parcel, error, due, now, counts)

    def gone(self, parcel: Parcel, now: int) -> Deferred[None]:
        """See Outbox."""
        return self._worker.run(self._subscriptions.refused, parcel.watch, parcel.sequence, now)

    @property
    def _watches(self) -> WebhookStore:
        return self._subscriptions.follower.register.watches

    @property
    def _events(self) -> EventStore:
        return self._subscriptions.follower.register.events

    def _head(self, watch: str) -> Parcel | None:
        head = self._events.head(watch)
        if head is None:
            return None
        event = head.event
        return Parcel(
            watch,
            head.host,
            event.sequence,
            event.id,
            event.name,
            head.callback_url,
            event.body,
            event.attempts,
            event.created_at,
        )

    def _delivered(self, parcel: Parcel, now: int) -> Lane | None:
        with self._watches.commit():
            return _lane(self._events.delivered(parcel.watch, parcel.sequence, now))

    def _failed(self, parcel: Parcel, error: str, due: int | None, now: int, counts: bool) -> Lane | None:
        with self._watches.commit():
            failed = self._events.failed
            return _lane(failed(parcel.watch, parcel.sequence, error=error, due=due, now=now, counts=counts))


def _lane(queued: Queued | None) -> Lane | None:
    return None if queued is None else lane_of(queued)
