"""The outbox: events on disk that wait for delivery (docs/webhook-reference.md). Times are Unix milliseconds.

This module reads and updates events. :class:`WatchRepository` stores new ones, together with their watches' new states.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from attrs import Factory, field, frozen
from twisted.internet.defer import Deferred

from svcd.commerce.batches import Batches
from svcd.commerce.circuit_breaker import OpenBreaker
from svcd.commerce.leadership import NotLeader
from svcd.commerce.watch import EndReason
from svcd.commerce.watch_repository import WatchRepository
from svcd.interfaces import Worker
from svcd.store.webhook_events import BreakerRow, Delivered, EventStore, QueueHead, WatchQueue

_Taken = tuple[int, Delivered]
"""A delivery, and the term in which its event was read."""


@frozen
class OutboundEvent:
    """The head of a watch's queue: its undelivered event of the lowest sequence."""

    watch: str
    """The watch's id, ``svcwh_…``."""
    host: str
    sequence: int
    event_id: str
    """``svcevt_…``."""
    type: str
    """Such as ``payment.confirmed``."""
    url: str = field(repr=False)
    """The callback, whose path and query may contain a secret of the merchant's."""
    body: bytes = field(repr=False)
    """Exactly the bytes that are signed and sent."""
    attempts: int
    """Attempts made so far."""
    refusals: int
    """How many of them the receiver answered with a refusal."""
    waiting_since: int
    """When it was made, or when the merchant last requested its redelivery."""
    merchant: str
    """The name of the merchant whose event it is."""
    asked_at: int | None = None
    """When the merchant last requested its redelivery."""
    term: int = 0
    """The term in which it was read; see svcd.commerce.leadership."""


@frozen
class WebhookOutbox:
    """Reads and updates undelivered events; a Deferred fails if the disk does.

    Events whose reads or deliveries arrive while the database is busy are read or committed together: each transaction
    takes several round trips to PostgreSQL. Where several nodes share the database, an update fails with NotLeader if
    another one has led since the event was read.
    """

    _repository: WatchRepository
    _worker: Worker
    _heads: Batches[str, QueueHead | None] = field(
        default=Factory(lambda outbox: Batches(outbox._read_heads), takes_self=True), init=False
    )
    _taken: Batches[_Taken, WatchQueue | None] = field(
        default=Factory(lambda outbox: Batches(outbox._commit_taken), takes_self=True), init=False
    )

    def head(self, watch: str, term: int = 0) -> Deferred[OutboundEvent | None]:
        """The next event of a watch; None if there is none, or no such watch."""
        return self._heads.add(watch).addCallback(_outbound, watch, term)

    def delivered(self, event: OutboundEvent, now: int, status: int | None = None) -> Deferred[WatchQueue | None]:
        """Note that the receiver has accepted ``event`` with ``status``; the result is the queue if it has more."""
        return self._taken.add((event.term, Delivered(event.watch, event.sequence, now, status)))

    def failed(
        self,
        event: OutboundEvent,
        *,
        error: str,
        due: int | None,
        now: int,
        counts: bool = True,
        status: int | None = None,
    ) -> Deferred[WatchQueue | None]:
        """Note that an attempt has failed; the result is the queue if it has events.

        Args:
            event: that was not delivered.
            error: a category such as "timeout" or "status 500", never a receiver's words.
            due: the time of the next attempt; None abandons the event.
            now: the time of the failure.
            counts: whether this was one of the attempts that an event has.
            status: of the receiver's answer, if there was one.
        """
        return self._update(
            event,
            lambda events: events.failed(
                event.watch,
                event.sequence,
                error=error,
                due=due,
                now=now,
                counts=counts,
                status=status,
                asked_at=event.asked_at,
            ),
        )

    def refused(
        self,
        event: OutboundEvent,
        *,
        error: str,
        due: int | None,
        due_if_followed: int,
        now: int,
        status: int | None = None,
    ) -> Deferred[WatchQueue | None]:
        """Note that the receiver refuses ``event``; the result is the queue if it has events.

        Args:
            event: that was not accepted.
            error: the status, such as "status 400".
            due: the time of the next attempt; None sends the event no more.
            due_if_followed: the same if another event of the watch waits.
            now: the time of the refusal.
            status: of the receiver's answer.
        """
        return self._update(
            event,
            lambda events: events.refused(
                event.watch,
                event.sequence,
                error=error,
                due=due,
                due_if_followed=due_if_followed,
                now=now,
                status=status,
                asked_at=event.asked_at,
            ),
        )

    def keep_breaker(self, merchant: str, receiver: str, breaker: OpenBreaker | None, term: int) -> Deferred[None]:
        """Store a circuit breaker for the next leader or run, and for the merchant; None for a closed one."""
        return self._worker.run(self._keep_breaker, merchant, receiver, breaker, term)

    def gone(self, event: OutboundEvent, now: int) -> Deferred[None]:
        """End the watch because its receiver answered 410, and drop its undelivered events."""
        return self._worker.run(self._end, event, now)

    def _read_heads(self, watches: Sequence[str]) -> "Deferred[list[QueueHead | Exception | None]]":
        return self._worker.run(lambda: [*self._repository.events.heads(watches)])

    def _commit_taken(self, taken: Sequence[_Taken]) -> "Deferred[list[WatchQueue | Exception | None]]":
        return self._worker.run(self._all_delivered, taken)

    def _all_delivered(self, taken: Sequence[_Taken]) -> list[WatchQueue | Exception | None]:
        results: list[WatchQueue | Exception | None] = []
        # All have the same term, except just after the leader has changed.
        for term, of_term in groupby(taken, key=lambda each: each[0]):
            events = [each for _, each in of_term]
            try:
                with self._repository.leading(term):
                    queues = self._repository.events.delivered(events)
            except NotLeader as error:
                results += [error] * len(events)
            else:
                results += queues
        return results

    def _keep_breaker(self, merchant: str, receiver: str, breaker: OpenBreaker | None, term: int) -> None:
        with self._repository.leading(term):
            if breaker is None:
                self._repository.events.forget_breaker(merchant, receiver)
            else:
                row = BreakerRow(merchant, receiver, breaker.opened_at, breaker.probe_at, breaker.probes)
                self._repository.events.keep_breaker(row)

    def _end(self, event: OutboundEvent, now: int) -> None:
        with self._repository.leading(event.term):
            self._repository.events.failed(
                event.watch, event.sequence, error="status 410", due=None, now=now, status=410, asked_at=event.asked_at
            )
            self._repository.end(event.watch, EndReason.GONE, now)

    def _update(
        self, event: OutboundEvent, change: Callable[[EventStore], WatchQueue | None]
    ) -> Deferred[WatchQueue | None]:
        """Change ``event`` in a transaction of the leader that has read it."""

        def update() -> WatchQueue | None:
            with self._repository.leading(event.term):
                return change(self._repository.events)

        return self._worker.run(update)


def _outbound(head: QueueHead | None, watch: str, term: int) -> OutboundEvent | None:
    if head is None:
        return None
    row = head.event
    return OutboundEvent(
        watch=watch,
        host=head.host,
        sequence=row.sequence,
        event_id=row.id,
        type=row.name,
        url=head.callback_url,
        body=row.body,
        attempts=row.attempts,
        refusals=row.refusals,
        waiting_since=row.asked_at or row.created_at,
        merchant=head.merchant,
        asked_at=row.asked_at,
        term=term,
    )
