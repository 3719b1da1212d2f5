"""An outbox in memory that does what the real one must do, at once or when it is told to."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, execute

from svcd.commerce.circuit_breaker import OpenBreaker
from svcd.commerce.outbox import OutboundEvent
from svcd.store.webhook_events import BreakerRow, WatchQueue

T = TypeVar("T")


@define
class Row:
    """One event."""

    event: OutboundEvent
    due: int
    state: str = "waiting"
    errors: list[str] = field(factory=list)


@define
class MemoryOutbox:
    """Events by watch. While ``faults`` is above zero, calls fail, each taking one away."""

    rows: dict[str, list[Row]] = field(factory=dict)
    ended: set[str] = field(factory=set)
    breakers: dict[tuple[str, str], BreakerRow] = field(factory=dict)
    """The open circuit breakers, as they were kept."""
    faults: int = 0
    asked: list[str] = field(factory=list)
    """Every call: its name and the watch."""

    def add(
        self,
        watch: str,
        url: str = "",
        *,
        event_type: str = "payment.pending",
        now: int = 0,
        merchant: str = "default",
    ) -> WatchQueue:
        """Queue an event; ``watch`` is such as "shop/1", and its callback is at that host."""
        host = watch.partition("/")[0]
        rows = self.rows.setdefault(watch, [])
        sequence = len(rows) + 1
        event_id = "svcevt_" + hashlib.sha256(f"{watch} {sequence}".encode()).hexdigest()[:32]
        body = f'{{"id":"{event_id}","event":"{event_type}"}}'.encode()
        url = url or f"https://{host}.example.com/hook?key=secret"
        event = OutboundEvent(watch, host, sequence, event_id, event_type, url, body, 0, 0, now, merchant)
        rows.append(Row(event, now))
        queue = self.queue(watch)
        assert queue is not None
        return queue

    def queue(self, watch: str) -> WatchQueue | None:
        row = self._waiting(watch)
        return None if row is None else WatchQueue(watch, row.event.host, row.due, row.event.merchant)

    def row(self, watch: str, sequence: int = 1) -> Row:
        return self.rows[watch][sequence - 1]

    def states(self, watch: str) -> list[str]:
        return [row.state for row in self.rows[watch]]

    def cancel(self, watch: str) -> None:
        """The watch ends, and its undelivered events are dropped."""
        self.ended.add(watch)
        for row in self.rows[watch]:
            row.state = "dropped" if row.state == "waiting" else row.state

    # As WebhookOutbox does

    def head(self, watch: str, _term: int = 0) -> "Deferred[OutboundEvent | None]":
        return self._do("head", watch, lambda: row.event if (row := self._waiting(watch)) else None)

    def delivered(self, event: OutboundEvent, now: int, status: int | None = None) -> "Deferred[WatchQueue | None]":
        return self._do("delivered", event.watch, lambda: self._delivered(event))

    def failed(
        self,
        event: OutboundEvent,
        *,
        error: str,
        due: int | None,
        now: int,
        counts: bool = True,
        status: int | None = None,
    ) -> "Deferred[WatchQueue | None]":
        return self._do("failed", event.watch, lambda: self._failed(event, error, due, counts))

    def refused(
        self,
        event: OutboundEvent,
        *,
        error: str,
        due: int | None,
        due_if_followed: int,
        now: int,
        status: int | None = None,
    ) -> "Deferred[WatchQueue | None]":
        return self._do("refused", event.watch, lambda: self._refused(event, error, due, due_if_followed))

    def keep_breaker(self, merchant: str, receiver: str, breaker: OpenBreaker | None, term: int) -> "Deferred[None]":
        return self._do("keep_breaker", receiver, lambda: self._keep_breaker(merchant, receiver, breaker))

    def gone(self, event: OutboundEvent, now: int) -> "Deferred[None]":
        return self._do("gone", event.watch, lambda: self.cancel(event.watch))

    def _do(self, name: str, watch: str, work: Callable[[], T]) -> "Deferred[T]":
        self.asked.append(f"{name} {watch}")
        return execute(self._try, work)

    def _try(self, work: Callable[[], T]) -> T:
        if self.faults:
            self.faults -= 1
            raise OSError(28, "No space left on device")
        return work()

    def _waiting(self, watch: str) -> Row | None:
        return next((row for row in self.rows.get(watch, []) if row.state == "waiting"), None)

    def _keep_breaker(self, merchant: str, receiver: str, breaker: OpenBreaker | None) -> None:
        self.breakers.pop((merchant, receiver), None)
        if breaker is not None:
            row = BreakerRow(merchant, receiver, breaker.opened_at, breaker.probe_at, breaker.probes)
            self.breakers[merchant, receiver] = row

    def _delivered(self, event: OutboundEvent) -> WatchQueue | None:
        self._row_of(event).state = "delivered"
        return self.queue(event.watch)

    def _failed(self, event: OutboundEvent, error: str, due: int | None, counts: bool) -> WatchQueue | None:
        row = self._row_of(event)
        if row.state == "waiting":
            row.errors.append(error)
            row.event = evolve(row.event, attempts=row.event.attempts + counts)
            row.due, row.state = (row.due, "abandoned") if due is None else (due, "waiting")
        return self.queue(event.watch)

    def _refused(self, event: OutboundEvent, error: str, due: int | None, due_if_followed: int) -> WatchQueue | None:
        row = self._row_of(event)
        followed = sum(each.state == "waiting" for each in self.rows[event.watch]) > 1
        row.errors.append(error)
        row.event = evolve(row.event, attempts=row.event.attempts + 1, refusals=row.event.refusals + 1)
        if due is None:
            row.state = "refused"
        else:
            row.due = due_if_followed if followed else due
        return self.queue(event.watch)

    def _row_of(self, event: OutboundEvent) -> Any:
        return self.row(event.watch, event.sequence)
