"""The SQL of webhook events and their queues (docs/storage.md).

Times are Unix milliseconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve, field, fields, frozen

from svcd.store.sql_connection import SqlConnection, Values

_KEPT_EVENTS: Final = 32
"""Settled events of a watch that are kept."""


@frozen(kw_only=True)
class EventRow:
    """The row of an event."""

    sequence: int
    epoch: int
    id: str
    name: str
    body: bytes
    summary: str
    """What the event says, as JSON, which outlives the body."""
    created_at: int
    fate: str = "waiting"
    attempts: int = 0
    refusals: int = 0
    delivered_at: int | None = None
    last_error: str | None = None
    last_status: int | None = None
    """Of the receiver's last answer."""
    attempted_at: int | None = None
    """The end of the last attempt."""
    redelivery_at: int | None = None
    """When the merchant requested its redelivery after it had been settled."""
    asked_at: int | None = None
    """When the merchant last requested its redelivery, even while it waited."""
    earlier_attempts: int = 0
    """Attempts before that."""
    due: int | None = None
    """When the next attempt is due after one that failed; None if at once."""


@frozen
class BreakerRow:
    """An open circuit breaker (svcd.commerce.circuit_breaker)."""

    merchant: str
    receiver: str
    """As :func:`receiver_of` returns it."""
    opened_at: int
    probe_at: int
    probes: int


@frozen
class WatchQueue:
    """A watch with a waiting event."""

    watch: str
    receiver: str
    """As :func:`receiver_of` returns it."""
    due: int
    merchant: str = "default"
    urgent: bool = field(default=False, eq=False)
    """Whether the event is one that shops act on, or a requested redelivery: worth a probe of the receiver."""


@frozen
class WatchPlace:
    """The columns of a watch that its queue needs."""

    number: int
    callback_url: str = field(repr=False)
    due: int | None
    """None if no event waits."""
    merchant: str


@frozen
class NewEvent:
    """An event to be appended to the queue of a watch."""

    watch: str
    """Its id."""
    event: EventRow


@frozen
class EventRule:
    """How the events of one name relate to the others of their watch; svcd.commerce.events has the table."""

    supersedes: Collection[str] = ()
    """The names of earlier events that it makes obsolete, as long as they wait."""
    urgent: bool = False
    """Whether shops act on it: worth a probe of the receiver."""
    aside: bool = False
    """Whether it must not delay those of the payment itself if the receiver fails on it."""


EventRules = Mapping[str, EventRule]
"""By the name of the event."""


@frozen
class QueueHead:
    """The next event of a watch and its callback."""

    merchant: str
    host: str
    callback_url: str = field(repr=False)
    due: int
    event: EventRow


@frozen
class Delivered:
    """A delivery that the receiver has accepted."""

    watch: str
    sequence: int
    at: int
    """The time of the response."""
    status: int | None = None
    """The status of the response."""


EVENT_COLUMNS: Final = tuple(each.name for each in fields(EventRow))
_EVENT_OF_E: Final = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
_SHOWN_COLUMNS: Final = tuple(name for name in EVENT_COLUMNS if name != "body")
_SHOWN_OF_E: Final = ", ".join(f"e.{name}" for name in _SHOWN_COLUMNS)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_EMPTIED: Final = "body = ?"
_EMPTY: Final = b""
"""The body of an event that will not be sent again: the bodies of a busy shop would fill the disk."""
_WAITS: Final = "fate = 'waiting'"
_NEXT: Final = "SELECT min(sequence) FROM event WHERE watch = w.number AND fate = 'waiting'"


def receiver_of(callback_url: str) -> str:
    """The host and port of a normalised callback URL, such as ``shop.example.com:443``."""
    scheme, _, rest = callback_url.partition("://")
    authority = rest.partition("/")[0]
    return authority if authority.rpartition(":")[2].isdigit() else f"{authority}:{_DEFAULT_PORTS[scheme]}"


def _queue_of(watch: str, callback_url: str, due: int, merchant: str) -> WatchQueue:
    return WatchQueue(watch, receiver_of(callback_url), due, merchant)


def _listed(names: Iterable[str]) -> str:
    """Names of events, which are this program's own, for ``IN (…)``."""
    return ", ".join(f"'{name}'" for name in names)


def _event(row: Sequence[object]) -> EventRow:
    return EventRow(**dict(zip(EVENT_COLUMNS, row, strict=True)))  # type: ignore[arg-type]


class EventStore:
    """The events of all watches; for one thread, inside the transactions of WebhookStore."""

    def __init__(self, connection: SqlConnection, rules: EventRules) -> None:
        self._db = connection
        self._rules = rules
        yields = f"(e.name IN ({_listed(name for name, rule in rules.items() if rule.aside)}) AND e.attempts > 0)"
        self._in_front = f"redelivery_at IS NULL AND NOT {yields}"
        # New events come before redeliveries, which the receiver has accepted or refused before.
        self._in_turn = (
            f"ORDER BY e.redelivery_at IS NOT NULL, e.redelivery_at, {yields}, "
            f"CASE WHEN {yields} THEN coalesce(e.due, 0) ELSE 0 END, e.sequence"
        )
        supersedes = " OR ".join(
            f"(l.name = '{name}' AND event.name IN ({_listed(rule.supersedes)}))"
            for name, rule in rules.items()
            if rule.supersedes
        )
        self._is_obsolete = (
            f"{_WAITS} AND redelivery_at IS NULL AND EXISTS (SELECT * FROM event l WHERE l.watch = event.watch "
            f"AND l.sequence > event.sequence AND l.{_WAITS} AND l.redelivery_at IS NULL AND ({supersedes}))"
        )

    def append(
        self, new: Sequence[NewEvent], now: int, places: Mapping[str, WatchPlace] | None = None
    ) -> list[WatchQueue]:
        """Append events, in order, and return the queue of each watch; ``places`` are those of known watches.

        If events wait already, the new ones supersede those that they make obsolete, and each other. Otherwise all are
        sent, until the receiver fails: then the one that has failed is superseded, too (see :meth:`failed`). The queue
        is due at ``now`` if no other event is in front, or if the receiver refuses that one; otherwise it keeps its
        back-off.
        """
        known = self._places(list(dict.fromkeys(each.watch for each in new)), places or {})
        rows = [(known[each.watch].number, each.event) for each in new]
        first = {number: event.sequence for number, event in reversed(rows)}
        self._db.executemany(
            "INSERT INTO event (watch, sequence, epoch, id, name, body, summary, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, event.sequence, event.epoch, event.id, event.name, event.body, event.summary, event.created_at)
                for number, event in rows
            ],
        )
        # A watch that is not due has no other waiting event.
        waiting = [place.number for place in known.values() if place.due is not None]
        self._db.executemany(
            f"UPDATE event SET fate = 'superseded', {_EMPTIED} WHERE watch = ? AND {self._is_obsolete}",
            [(_EMPTY, number) for number in waiting],
        )
        fronts = self._db.select_each(
            f"SELECT sequence, refusals FROM event e WHERE watch = ? AND {_WAITS} AND {self._in_front} "
            "ORDER BY sequence LIMIT 1",
            [(number,) for number in waiting],
        )
        held_back = {
            number
            for number, ((sequence, refusals),) in zip(waiting, fronts, strict=True)
            if sequence < first[number] and not refusals
        }
        self._db.executemany(
            f"DELETE FROM event WHERE watch = ? AND sequence <= ? AND NOT {_WAITS}",
            [(number, event.sequence - _KEPT_EVENTS) for number, event in rows if event.sequence > _KEPT_EVENTS],
        )
        at_once = [(now, number) for number in first if number not in held_back]
        self._db.executemany("UPDATE watch SET due = ? WHERE number = ?", at_once)
        urgent = {each.watch for each in new if self._rules[each.event.name].urgent}
        return [
            WatchQueue(
                watch,
                receiver_of(place.callback_url),
                place.due if place.due is not None and place.number in held_back else now,
                place.merchant,
                watch in urgent,
            )
            for watch, place in known.items()
        ]

    def _places(self, watches: Sequence[str], known: Mapping[str, WatchPlace]) -> dict[str, WatchPlace]:
        unknown = [watch for watch in watches if watch not in known]
        found = self._db.select_each(
            "SELECT number, callback_url, due, merchant FROM watch WHERE id = ?", [(watch,) for watch in unknown]
        )
        places = {watch: WatchPlace(*row) for watch, (row,) in zip(unknown, found, strict=True)}
        return {watch: known.get(watch) or places[watch] for watch in watches}

    def supersede(self, watches: Collection[str], by: str) -> None:
        """Supersede the waiting events that an event of the name ``by`` makes obsolete, without a new event."""
        found = self._db.select_each("SELECT number FROM watch WHERE id = ?", [(watch,) for watch in watches])
        numbers = [number for ((number,),) in found]
        self._db.executemany(
            f"UPDATE event SET fate = 'superseded', {_EMPTIED} WHERE watch = ? AND {_WAITS} "
            f"AND redelivery_at IS NULL AND name IN ({_listed(self._rules[by].supersedes)})",
            [(_EMPTY, number) for number in numbers],
        )
        self._db.executemany(
            f"UPDATE watch AS w SET due = NULL WHERE number = ? AND ({_NEXT}) IS NULL",
            [(number,) for number in numbers],
        )

    def events(self, watch: str) -> list[EventRow]:
        """The newest events of a watch, newest first, without their bodies, which the API does not show."""
        rows = self._db.execute(
            f"SELECT {_SHOWN_OF_E} FROM watch w JOIN event e ON e.watch = w.number WHERE w.id = ? "
            "ORDER BY e.sequence DESC LIMIT ?",
            (watch, _KEPT_EVENTS),
        )
        return [EventRow(body=_EMPTY, **dict(zip(_SHOWN_COLUMNS, row, strict=True))) for row in rows]

    def queued(self) -> list[WatchQueue]:
        """The queues of all watches with waiting events."""
        rows = self._db.execute("SELECT id, callback_url, due, merchant FROM watch WHERE due IS NOT NULL ORDER BY due")
        return [_queue_of(*row) for row in rows]

    def head(self, watch: str) -> QueueHead | None:
        """The next event of a watch."""
        return self.heads([watch])[0]

    def heads(self, watches: Sequence[str]) -> list[QueueHead | None]:
        """The next event of each of these watches."""
        found = self._db.select_each(
            f"SELECT w.merchant, w.host, w.callback_url, w.due, {_EVENT_OF_E} "
            "FROM watch w JOIN event e ON e.watch = w.number AND e.fate = 'waiting' "
            f"WHERE w.id = ? {self._in_turn} LIMIT 1",
            [(watch,) for watch in watches],
        )
        return [
            QueueHead(merchant, host, url, due, _event(event)) if due is not None else None
            for merchant, host, url, due, *event in (rows[0] if rows else (None,) * 4 for rows in found)
        ]

    def redeliver(self, watch: str, event_id: str, now: int) -> WatchQueue | None:
        """Let an event that is known to have a body be sent again, or at once if it waits; returns the queue.

        An event that was settled waits behind the new ones. The queue is due at ``now``, unless another, new one is
        next.
        """
        (number,) = self._db.execute("SELECT number FROM watch WHERE id = ?", (watch,)).fetchone()
        self._db.execute(
            "UPDATE event SET redelivery_at = CASE WHEN fate = 'waiting' THEN redelivery_at ELSE ? END, "
            "fate = 'waiting', asked_at = ?, due = NULL, earlier_attempts = earlier_attempts + attempts, "
            "attempts = 0, refusals = 0 WHERE watch = ? AND id = ?",
            (now, now, number, event_id),
        )
        head, is_new = self._db.execute(
            f"SELECT id, redelivery_at IS NULL FROM event e WHERE watch = ? AND {_WAITS} {self._in_turn} LIMIT 1",
            (number,),
        ).fetchone()
        if head == event_id or not is_new:
            self._db.execute("UPDATE watch SET due = ? WHERE number = ?", (now, number))
        queue = self._queue(watch)
        return None if queue is None else evolve(queue, urgent=True)

    def open_breakers(self, queues: Iterable[WatchQueue]) -> list[BreakerRow]:
        """The open circuit breakers of the receivers of ``queues``, as the last leader or the last run stored them."""
        rows = self._db.execute("SELECT merchant, receiver, opened_at, probe_at, probes FROM open_breaker")
        receivers = {(queue.merchant, queue.receiver) for queue in queues}
        return [breaker for row in rows if ((breaker := BreakerRow(*row)).merchant, breaker.receiver) in receivers]

    def open_breaker(self, merchant: str, receiver: str) -> BreakerRow | None:
        """The stored circuit breaker of a receiver; None if it is closed."""
        row = self._db.execute(
            "SELECT opened_at, probe_at, probes FROM open_breaker WHERE merchant = ? AND receiver = ?",
            (merchant, receiver),
        ).fetchone()
        return None if row is None else BreakerRow(merchant, receiver, *row)

    def keep_breaker(self, breaker: BreakerRow) -> None:
        """Store that a circuit breaker is open, or its newest probe."""
        self._db.execute(
            "INSERT INTO open_breaker (merchant, receiver, opened_at, probe_at, probes) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (merchant, receiver) DO UPDATE SET opened_at = excluded.opened_at, "
            "probe_at = excluded.probe_at, probes = excluded.probes",
            (breaker.merchant, breaker.receiver, breaker.opened_at, breaker.probe_at, breaker.probes),
        )

    def forget_breaker(self, merchant: str, receiver: str) -> None:
        """Store that a circuit breaker is closed."""
        self._db.execute("DELETE FROM open_breaker WHERE merchant = ? AND receiver = ?", (merchant, receiver))

    def ask_again(self, watch: str) -> None:
        """Note for the leader that the redelivery of an event of a watch was requested."""
        self._db.execute(
            "INSERT INTO asked_again (watch) SELECT number FROM watch WHERE id = ? ON CONFLICT DO NOTHING", (watch,)
        )

    def take_redelivery_requests(self) -> list[WatchQueue]:
        """The queues of the noted watches; deletes the notes."""
        rows = self._db.execute(
            "SELECT id, callback_url, due, merchant FROM watch WHERE due IS NOT NULL "
            "AND number IN (SELECT watch FROM asked_again)"
        ).fetchall()
        self._db.execute("DELETE FROM asked_again")
        return [evolve(_queue_of(*row), urgent=True) for row in rows]

    def event(self, watch: str, event_id: str) -> EventRow | None:
        """One event of a watch."""
        row = self._db.execute(
            f"SELECT {_EVENT_OF_E} FROM watch w JOIN event e ON e.watch = w.number WHERE w.id = ? AND e.id = ?",
            (watch, event_id),
        ).fetchone()
        return None if row is None else _event(row)

    def delivered(self, events: Sequence[Delivered]) -> list[WatchQueue | None]:
        """Note that the receivers have accepted ``events``; gives the queue of each watch, None for an empty one."""
        self._db.executemany(
            "UPDATE event SET fate = 'delivered', delivered_at = ?, attempts = attempts + 1, attempted_at = ?, "
            "last_status = ? WHERE watch = (SELECT number FROM watch WHERE id = ?) AND sequence = ?",
            [(each.at, each.at, each.status, each.watch, each.sequence) for each in events],
        )
        return self._all_next([(each.watch, each.at) for each in events])

    def failed(
        self,
        watch: str,
        sequence: int,
        *,
        error: str,
        due: int | None,
        now: int,
        counts: bool = True,
        status: int | None = None,
        asked_at: int | None = None,
    ) -> WatchQueue | None:
        """An attempt failed; the next is ``due``, or the event is given up. Returns the queue unless it is empty.

        ``status`` is the receiver's answer; ``counts`` says whether this was one of the attempts that an event has.
        If the merchant has asked for the event since it had ``asked_at``, the event is due at once.
        """
        assignments = "last_error = ?, attempts = attempts + ?, attempted_at = ?, last_status = ?, due = ?"
        self._update(watch, sequence, assignments, (error, int(counts), now, status, due))
        if self._asked_since(watch, sequence, asked_at):
            return self._next(watch, now)
        self._give_way(watch, sequence)
        if due is None:
            self._update(watch, sequence, "fate = 'abandoned'", (), only_if=_WAITS)
        return self._next(watch, now)

    def refused(
        self,
        watch: str,
        sequence: int,
        *,
        error: str,
        due: int | None,
        due_if_followed: int,
        now: int,
        status: int | None = None,
        asked_at: int | None = None,
    ) -> WatchQueue | None:
        """The receiver refuses an event; it is tried again at ``due``, or ``due_if_followed`` if another event waits.

        With ``due`` None it is not sent any more. Returns the queue unless it is empty. If the merchant has asked for
        the event since it had ``asked_at``, the event is due at once.
        """
        assignments = (
            "last_error = ?, attempts = attempts + 1, refusals = refusals + 1, attempted_at = ?, last_status = ?, "
            "due = ?"
        )
        self._update(watch, sequence, assignments, (error, now, status, due))
        if self._asked_since(watch, sequence, asked_at):
            return self._next(watch, now)
        self._give_way(watch, sequence)
        if due is None:
            self._update(watch, sequence, "fate = 'refused'", (), only_if=_WAITS)
        first = self._first_waiting(watch, 2)
        if due is not None and first[:1] == [sequence] and len(first) > 1:
            self._update(watch, sequence, "due = ?", (due_if_followed,))
        return self._next(watch, now)

    def drop_waiting(self, watch: str) -> None:
        """Mark all waiting events of a watch as dropped."""
        self._db.execute(
            f"UPDATE event SET fate = 'dropped', {_EMPTIED} WHERE fate = 'waiting' "
            "AND watch = (SELECT number FROM watch WHERE id = ?)",
            (_EMPTY, watch),
        )
        self._db.execute("UPDATE watch SET due = NULL WHERE id = ?", (watch,))

    def abandon_older(self, before: int, limit: int) -> int:
        """Give up at most ``limit`` events that have waited since before ``before``; gives how many."""
        late = self._db.execute(
            "SELECT w.id, e.sequence FROM watch w JOIN event e ON e.watch = w.number AND e.fate = 'waiting' "
            "WHERE w.due IS NOT NULL AND e.created_at < ? AND coalesce(e.asked_at, 0) < ? LIMIT ?",
            (before, before, limit),
        ).fetchall()
        for watch, sequence in late:
            self._update(watch, sequence, "fate = 'abandoned'", ())
        for watch in dict.fromkeys(watch for watch, _ in late):
            self._db.execute(
                f"UPDATE watch AS w SET due = NULL WHERE id = ? AND ({_NEXT}) IS NULL",
                (watch,),
            )
        return len(late)

    def forget_bodies(self, before: int, limit: int) -> int:
        """Delete the bodies of at most ``limit`` events that do not wait; gives how many.

        These are events that were delivered, or were created and never delivered, before ``before``.
        """
        return self._db.change(
            f"UPDATE event SET {_EMPTIED} WHERE number IN "
            "(SELECT number FROM event WHERE fate <> 'waiting' AND length(body) > 0 "
            "AND coalesce(delivered_at, created_at) < ? LIMIT ?)",
            (_EMPTY, before, limit),
        )

    def waiting_since(self) -> int | None:
        """When the oldest event that waits to be sent for the first time was made."""
        (oldest,) = self._db.execute(
            "SELECT min(created_at) FROM event WHERE fate = 'waiting' AND redelivery_at IS NULL"
        ).fetchone()
        return None if oldest is None else int(oldest)

    def _give_way(self, watch: str, sequence: int) -> None:
        """Supersede a failed event if one that was stored with it makes it obsolete, which must not wait."""
        assignments = f"fate = 'superseded', {_EMPTIED}"
        self._update(watch, sequence, assignments, (_EMPTY,), only_if=self._is_obsolete)

    def _update(
        self,
        watch: str,
        sequence: int,
        assignments: str,
        values: Values,
        *,
        only_if: str = "TRUE",
        condition: Values = (),
    ) -> int:
        """Update an event ``only_if`` that is true, with the values of ``condition``; gives how many were updated."""
        return self._db.change(
            f"UPDATE event SET {assignments} WHERE watch = (SELECT number FROM watch WHERE id = ?) "
            f"AND sequence = ? AND {only_if}",
            (*values, watch, sequence, *condition),
        )

    def _asked_since(self, watch: str, sequence: int, asked_at: int | None) -> bool:
        """Whether the merchant asked for an event during its attempt, which is none of those it has from then on.

        To be called after the event was updated: from then on no other transaction changes its row.
        """
        again = "coalesce(asked_at, 0) <> ? AND fate = 'waiting'"
        assignments = "due = NULL, earlier_attempts = earlier_attempts + attempts, attempts = 0, refusals = 0"
        return self._update(watch, sequence, assignments, (), only_if=again, condition=(asked_at or 0,)) > 0

    def _first_waiting(self, watch: str, limit: int) -> list[int]:
        rows = self._db.execute(
            "SELECT sequence FROM event e WHERE watch = (SELECT number FROM watch WHERE id = ?) AND fate = 'waiting' "
            f"{self._in_turn} LIMIT ?",
            (watch, limit),
        )
        return [sequence for (sequence,) in rows]

    def _next(self, watch: str, now: int) -> WatchQueue | None:
        """The queue, due when the event is whose turn it is; at ``now`` if that event has not failed."""
        return self._all_next([(watch, now)])[0]

    def _all_next(self, watches: Sequence[tuple[str, int]]) -> list[WatchQueue | None]:
        """The same for several watches, each with its time."""
        heads = self._db.select_each(
            "SELECT e.due FROM event e WHERE watch = (SELECT number FROM watch WHERE id = ?) AND fate = 'waiting' "
            f"{self._in_turn} LIMIT 1",
            [(watch,) for watch, _ in watches],
        )
        dues = [max(head[0][0] or 0, now) if head else None for head, (_, now) in zip(heads, watches, strict=True)]
        queues = self._db.select_each(
            "UPDATE watch SET due = ? WHERE id = ? RETURNING id, callback_url, due, merchant",
            [(due, watch) for due, (watch, _) in zip(dues, watches, strict=True)],
        )
        return [_queue_of(*rows[0]) if rows and rows[0][2] is not None else None for rows in queues]

    def _queue(self, watch: str) -> WatchQueue | None:
        row = self._db.execute(
            "SELECT id, callback_url, due, merchant FROM watch WHERE id = ? AND due IS NOT NULL", (watch,)
        ).fetchone()
        return None if row is None else _queue_of(*row)
