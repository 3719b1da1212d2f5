"""An outbox in memory that does what the real one must do, at once or when it is told to."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, execute

from svcd.commerce.outbox import Lane, Parcel

T = TypeVar("T")


@define
class Row:
    """One event."""

    parcel: Parcel
    due: int
    state: str = "waiting"
    errors: list[str] = field(factory=list)


@define
class MemoryOutbox:
    """Events by watch. While ``faults`` is above zero, calls fail, each taking one away."""

    rows: dict[str, list[Row]] = field(factory=dict)
    ended: set[str] = field(factory=set)
    faults: int = 0
    asked: list[str] = field(factory=list)
    """Every call: its name and the watch."""

    def add(self, watch: str, url: str = "", *, event: str = "payment.pending", now: int = 0) -> Lane:
        """Queue an event; ``watch`` is such as "shop/1", and its callback is at that host."""
        host = watch.partition("/")[0]
        rows = self.rows.setdefault(watch, [])
        sequence = len(rows) + 1
        event_id = "svcevt_" + hashlib.sha256(f"{watch} {sequence}".encode()).hexdigest()[:32]
        body = f'{{"id":"{event_id}","event":"{event}"}}'.encode()
        url = url or f"https://{host}.example.com/hook?key=secret"
        rows.append(Row(Parcel(watch, host, sequence, event_id, event, url, body, 0, now), now))
        lane = self.lane(watch)
        assert lane is not None
        return lane

    def lane(self, watch: str) -> Lane | None:
        row = self._waiting(watch)
        return None if row is None else Lane(watch, row.parcel.host, row.due)

    def row(self, watch: str, sequence: int = 1) -> Row:
        return self.rows[watch][sequence - 1]

    def states(self, watch: str) -> list[str]:
        return [row.state for row in self.rows[watch]]

    def cancel(self, watch: str) -> None:
        """The watch ends, and its undelivered events are dropped."""
        self.ended.add(watch)
        for row in self.rows[watch]:
            row.state = "dropped" if row.state == "waiting" else row.state

    # What Outbox asks for

    def head(self, watch: str) -> "Deferred[Parcel | None]":
        return self._do("head", watch, lambda: row.parcel if (row := self._waiting(watch)) else None)

    def delivered(self, parcel: Parcel, now: int) -> "Deferred[Lane | None]":
        return self._do("delivered", parcel.watch, lambda: self._delivered(parcel))

    def failed(
        self, parcel: Parcel, *, error: str, due: int | None, now: int, counts: bool = True
    ) -> "Deferred[Lane | None]":
        return self._do("failed", parcel.watch, lambda: self._failed(parcel, error, due, counts))

    def gone(self, parcel: Parcel, now: int) -> "Deferred[None]":
        return self._do("gone", parcel.watch, lambda: self.cancel(parcel.watch))

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

    def _delivered(self, parcel: Parcel) -> Lane | None:
        self._row_of(parcel).state = "delivered"
        return self.lane(parcel.watch)

    def _failed(self, parcel: Parcel, error: str, due: int | None, counts: bool) -> Lane | None:
        row = self._row_of(parcel)
        if row.state == "waiting":
            row.errors.append(error)
            row.parcel = evolve(row.parcel, attempts=row.parcel.attempts + counts)
            row.due, row.state = (row.due, "abandoned") if due is None else (due, "waiting")
        return self.lane(parcel.watch)

    def _row_of(self, parcel: Parcel) -> Any:
        return self.row(parcel.watch, parcel.sequence)
