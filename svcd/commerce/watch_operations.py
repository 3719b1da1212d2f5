"""The merchants' operations on watches: register, list, show, cancel, redeliver (docs/webhook-reference.md)."""

import json
from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve, field, frozen

from svcd.commerce.chain_follower import ChainFollower, StepContext
from svcd.commerce.events import DEFAULT_EVENTS, EventType
from svcd.commerce.payment import Observation, payment_record, payment_state
from svcd.commerce.payment_list import GIVE_SINCE_HEIGHT
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.retry_policy import MAX_RETRY_DELAY, attempts_left
from svcd.commerce.watch import EndReason, Watch
from svcd.commerce.watch_repository import WatchRepository, watch_of
from svcd.limits import MANY_WATCHES, limit
from svcd.store.pruned import Pruned
from svcd.store.webhook_events import BreakerRow, EventRow, WatchQueue, receiver_of
from svcd.store.webhook_store import WatchRow

PAGE_SCAN: Final = 2_000
"""Watches that are read for one page: a state that few of a million watches have must not delay other requests."""
MAX_WATCHES_OF_PAYMENT: Final = limit(32, "active watches of a merchant over one payment", "watches", MANY_WATCHES)
"""A step evaluates all watches of a payment at once, so a merchant has few of each."""
ENDED_KEPT_MS: Final = 30 * 86_400_000
"""How long an ended watch can be shown, and reports mismatched transfers."""
MAX_CONFIRMED_FACTOR: Final = 4
"""Confirmed watches count towards this multiple of the limit on unconfirmed ones."""
_CLEANUP_BATCH: Final = 1_000
"""Watches, events or bodies that one transaction of the cleanup settles or deletes."""
_SHOWN_FATES: Final = {"superseded", "abandoned", "refused", "dropped"}


class TooManyWatches(Exception):
    """A limit on watches is reached; the text is for the merchant."""


class UnknownWatch(Exception):
    """The merchant has no watch of the given id."""


class NotRedeliverable(Exception):
    """An event cannot be sent again; the text is for the merchant."""


@frozen(kw_only=True)
class Selection:
    """The filter and the position of a page of watches."""

    state: str | None
    """Their `lastState`."""
    host: str | None
    """Of their callbacks."""
    after: str | None
    """The id of the last watch of the page before."""
    limit: int
    reference: str | None = None
    """Of the order."""


@frozen
class WatchPage:
    """A page of watches in the API's form."""

    records: list[dict[str, object]]
    next: str | None
    """The id of the last watch of this page; None if no page follows."""


@frozen
class Redelivery:
    """The result of a request to send an event again."""

    record: dict[str, object]
    """The API's form of the event."""
    queues: list[WatchQueue]


@frozen(kw_only=True)
class WatchRequest:
    """A merchant's request for a watch."""

    merchant: str
    """The merchant's name."""
    terms: PaymentTerms
    callback_url: str = field(repr=False)
    """Normalised; its path and query may contain a secret of the merchant's."""
    host: str
    """Of the callback."""
    ttl_ms: int
    """The lifetime of the watch in milliseconds."""
    pay_within_ms: int | None = None
    """How long the payment has time to be seen, in milliseconds; None for as long as the watch lives."""
    events: frozenset[EventType] = DEFAULT_EVENTS
    """The events that are sent."""


@frozen
class WatchLimits:
    """How many watches whose payment is not confirmed each merchant may have."""

    total: int
    per_host: int


@frozen
class Backlog:
    """How much work the webhooks have."""

    watches: int
    """Active watches."""
    oldest_undelivered: int | None
    """The creation time of the oldest undelivered event, Unix milliseconds."""


@frozen
class CleanupResult:
    """The result of one batch of the cleanup."""

    abandoned: int
    """Events."""
    done: bool
    """Whether nothing is left to clean up."""


@frozen
class WatchOperations:
    """The merchants' operations, for the follower's thread; ``new_id`` returns a random id for a watch."""

    follower: ChainFollower
    new_id: Callable[[], str]
    limits: WatchLimits

    @property
    def repository(self) -> WatchRepository:
        """Where the watches are stored."""
        return self.follower.repository

    def register(
        self, requests: Sequence[WatchRequest], context: StepContext
    ) -> list[dict[str, object] | TooManyWatches | Pruned]:
        """Store the watches of requests together, for the leader to evaluate in its next step.

        Gives for each request the API's form of the watch before its first event, or, if the same request has begun a
        watch that is active, that of this one.
        """
        # Each change of the mempool is passed only once, so note it even if no watch begins.
        self.follower.take_mempool_changes(context.mempool_changes)
        stored: list[tuple[Watch, bool] | TooManyWatches | Pruned] = []
        with self.repository.watches.commit():
            for request in requests:
                try:
                    stored.append(self._store(request, context.now))
                except (TooManyWatches, Pruned) as refused:
                    stored.append(refused)
        return [self._registered(*each) if isinstance(each, tuple) else each for each in stored]

    def _store(self, request: WatchRequest, now: int) -> tuple[Watch, bool]:
        """The watch of a request, and whether there was one before."""
        # In the transaction: the same request may be under way on another node.
        of_payment = self._of_payment(request)
        existing = next((watch for watch in of_payment if _is_same(watch, request)), None)
        if existing is not None:
            return existing, True
        self._check_limits(request, len(of_payment))
        self._check_kept(request)
        watch = Watch(
            id=self.new_id(),
            merchant=request.merchant,
            terms=request.terms,
            callback_url=request.callback_url,
            host=request.host,
            created_at=now,
            expires_at=now + request.ttl_ms,
            pay_until=None if request.pay_within_ms is None else now + request.pay_within_ms,
            events=request.events,
            reported_mismatches=() if EventType.MISMATCHED in request.events else None,
        )
        self.repository.add(watch)
        return watch, False

    def _registered(self, watch: Watch, existing: bool) -> dict[str, object]:
        record = self._record(watch)
        return {**record, "existing": True} if existing else record

    def refuse_below(self, height: int) -> None:
        """Take the blocks below ``height`` for gone, which they are about to be; 0 for none."""
        self.follower.first_height = height

    def _check_kept(self, request: WatchRequest) -> None:
        """Raise Pruned if the request names a height below the blocks that are here.

        Without a height a watch is for a payment to come; the response then says from which height the node has blocks.
        """
        if (since := request.terms.since_height) is not None:
            asked = f"payments from block {since} on"
            if since < self.follower.first_height:
                raise Pruned(self.follower.first_height, asked, GIVE_SINCE_HEIGHT)
            self.follower.reader.check_kept(since, asked, GIVE_SINCE_HEIGHT)

    def _record(self, watch: Watch) -> dict[str, object]:
        observation = self.follower.lookup.find_watched(watch.terms, watch.location)
        record, prune_height = _record(watch, observation), self.follower.reader.prune_height()
        if (watch.terms.since_height or 0) < prune_height:
            record["pruneHeight"] = str(prune_height)
        return record

    def show(self, merchant: str, identifier: str) -> dict[str, object] | None:
        """A watch and its newest events; None if the merchant has no such watch."""
        row = self.repository.watches.watch(identifier)
        if row is None or row.merchant != merchant:
            return None
        return self._shown(row)

    def page(self, merchant: str, selection: Selection) -> WatchPage:
        """A page of a merchant's watches, newest first. Raises UnknownWatch for an unknown ``after``."""
        try:
            rows, following = self.repository.watches.page(
                merchant,
                after=selection.after,
                state=selection.state,
                host=selection.host,
                scan=PAGE_SCAN,
                limit=selection.limit,
                reference=selection.reference,
            )
        except KeyError as error:
            raise UnknownWatch from error
        return WatchPage([self._shown(row) for row in rows], following)

    def redeliver(self, merchant: str, identifier: str, event_id: str, now: int) -> Redelivery | None:
        """Queue an event for redelivery, with its bytes and its id; None if the merchant has no such event.

        Raises NotRedeliverable.
        """
        with self.repository.watches.commit():
            row = self.repository.watches.watch(identifier)
            event = self.repository.events.event(identifier, event_id)
            if row is None or row.merchant != merchant or event is None:
                return None
            if row.ending == EndReason.CANCELLED.value:
                raise NotRedeliverable("the watch was cancelled: register the order again to get its events")
            if not event.body:
                raise NotRedeliverable("the body of this event is no longer stored, so it cannot be sent again")
            queue = self.repository.events.redeliver(identifier, event_id, now)
            if self.repository.shared:
                self.repository.events.ask_again(identifier)
        # The request brings the receiver's next probe forward.
        shown = self._events(identifier, probe_at=0)
        return Redelivery(next(each for each in shown if each["id"] == event_id), [] if queue is None else [queue])

    def cancel(self, merchant: str, identifier: str, now: int) -> dict[str, object] | None:
        """End a watch at its merchant's request; returns the same as :meth:`show`."""
        row = self.repository.watches.watch(identifier)
        if row is not None and row.merchant == merchant:
            with self.repository.watches.commit():
                self.repository.end(identifier, EndReason.CANCELLED, now)
        return self.show(merchant, identifier)

    def queues(self, now: int) -> list[WatchQueue]:
        """The queues of all watches with undelivered events, none due later than the longest retry delay.

        A later due time was set while the computer's clock was far ahead.
        """
        queued = self.repository.events.queued()
        return [evolve(queue, due=min(queue.due, now + MAX_RETRY_DELAY)) for queue in queued]

    def breakers(self, queues: Sequence[WatchQueue]) -> list[BreakerRow]:
        """The stored open circuit breakers of the receivers of ``queues``."""
        return self.repository.events.open_breakers(queues)

    def backlog(self) -> Backlog:
        """The present backlog."""
        return Backlog(self.repository.watches.count_active(), self.repository.events.waiting_since())

    def clean_up(self, created_before: int, ended_before: int, kept_since: int, term: int = 0) -> CleanupResult:
        """Abandon undelivered events, delete ended watches and bodies from before the given times. Raises NotLeader.

        At most a thousand of each at once, because other operations need the thread too.
        """
        with self.repository.leading(term):
            abandoned = self.repository.events.abandon_older(created_before, _CLEANUP_BATCH)
            forgotten = self.repository.watches.forget_ended(ended_before, _CLEANUP_BATCH)
            emptied = self.repository.events.forget_bodies(kept_since, _CLEANUP_BATCH)
        return CleanupResult(abandoned, max(abandoned, forgotten, emptied) < _CLEANUP_BATCH)

    def _shown(self, row: WatchRow) -> dict[str, object]:
        watch = watch_of(row)
        breaker = self.repository.events.open_breaker(row.merchant, receiver_of(row.callback_url))
        record = self._record(watch)
        if row.ended_at is not None:
            record["endedAt"] = str(row.ended_at)
            if row.reported_mismatches is not None:
                record["mismatchesUntil"] = str(row.ended_at + ENDED_KEPT_MS)
        if breaker is not None:
            record["breaker"] = {"openedAt": str(breaker.opened_at), "nextProbeAt": str(breaker.probe_at)}
        record["events"] = self._events(watch.id, probe_at=0 if breaker is None else breaker.probe_at)
        return record

    def _events(self, identifier: str, *, probe_at: int) -> list[dict[str, object]]:
        """The API's form of the newest events, of which none is sent before ``probe_at``."""
        head = self.repository.events.head(identifier)
        next_attempt = None if head is None else (head.event.sequence, max(head.due, probe_at))
        return [_event_record(event, next_attempt) for event in self.repository.events.events(identifier)]

    def _of_payment(self, request: WatchRequest) -> list[Watch]:
        terms, watches = request.terms, self.repository.watches
        rows = watches.of_payment(terms.reference, terms.recipient, terms.amount, request.merchant)
        return list(map(watch_of, rows))

    def _count_of_mismatches(self, request: WatchRequest) -> int:
        """The merchant's active watches with `payment.mismatched` under the reference, of any amount."""
        rows = self.repository.watches.with_mismatches(request.terms.reference, request.terms.recipient)
        return sum(row.merchant == request.merchant and row.ending is None for row in rows)

    def _check_limits(self, request: WatchRequest, of_payment: int) -> None:
        """Raise TooManyWatches if a limit is reached; each merchant has limits of its own."""
        watches, limits, host = self.repository.watches, self.limits, request.host
        advice = "cancel some, wait, or let the operator raise"
        if of_payment >= MAX_WATCHES_OF_PAYMENT:
            raise TooManyWatches(
                f"this payment has {MAX_WATCHES_OF_PAYMENT} active watches, the most; cancel some, or use one of them"
            )
        if EventType.MISMATCHED in request.events and self._count_of_mismatches(request) >= MAX_WATCHES_OF_PAYMENT:
            raise TooManyWatches(
                f"this reference has {MAX_WATCHES_OF_PAYMENT} active watches with the event payment.mismatched, the "
                "most; cancel some, or leave the event out"
            )
        active = MAX_CONFIRMED_FACTOR * limits.total
        if watches.count_active(request.merchant) >= active:
            raise TooManyWatches(f"this merchant has {active} active watches, the most; {advice} maxWatches")
        if watches.count_unconfirmed(request.merchant) >= limits.total:
            raise TooManyWatches(f"this merchant has {limits.total} unconfirmed watches, the most; {advice} maxWatches")
        if watches.count_unconfirmed(request.merchant, host) >= limits.per_host:
            raise TooManyWatches(
                f"{host} has {limits.per_host} unconfirmed watches, the most; {advice} maxWatchesPerHost"
            )


def _is_same(watch: Watch, request: WatchRequest) -> bool:
    """Whether the request has the same terms as the one that began the watch."""
    pay_within = None if watch.pay_until is None else watch.pay_until - watch.created_at
    begun = watch.terms, watch.callback_url, watch.expires_at - watch.created_at, pay_within, watch.events
    return begun == (request.terms, request.callback_url, request.ttl_ms, request.pay_within_ms, request.events)


def _record(watch: Watch, observation: Observation) -> dict[str, object]:
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
        "wantedEvents": [event.value for event in EventType if event in watch.events],
        "createdAt": str(watch.created_at),
        "expiresAt": str(watch.expires_at),
        "payment": payment_record(terms, observation, payment_state(terms, observation)),
    }
    if terms.since_height is not None:
        record["sinceHeight"] = str(terms.since_height)
    if watch.pay_until is not None:
        record["payUntil"] = str(watch.pay_until)
    if watch.active and watch.close_height is not None:
        record["closesAtHeight"] = str(watch.close_height)
    if watch.active and EventType.MISMATCHED in watch.events and watch.reported_mismatches is None:
        record["moreMismatches"] = True
    if watch.ending is not None:
        record["ending"] = watch.ending.value
    return record


def _event_record(event: EventRow, next_attempt: tuple[int, int] | None) -> dict[str, object]:
    """The API's form of an event; ``next_attempt`` is the sequence of the queue's head and the time of its attempt."""
    due = next_attempt[1] if next_attempt is not None and next_attempt[0] == event.sequence else None
    record: dict[str, object] = {
        "id": event.id,
        "event": event.name,
        "epoch": event.epoch,
        "sequence": event.sequence,
        "createdAt": str(event.created_at),
        "attempts": event.earlier_attempts + event.attempts,
        "lastAttemptAt": _time(event.attempted_at),
        "lastStatus": event.last_status,
        "deliveredAt": _time(event.delivered_at),
        "nextAttemptAt": _time(due),
        "lastError": event.last_error,
        "content": json.loads(event.summary),
    }
    if event.fate == "waiting":
        record["attemptsLeft"] = attempts_left(event.attempts, event.refusals)
    if event.fate in _SHOWN_FATES:
        record[event.fate] = True
    return record


def _time(at: int | None) -> str | None:
    return None if at is None else str(at)
