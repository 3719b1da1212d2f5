"""The SQL of webhooks, behind methods named by intention (docs/storage.md).

Times are Unix milliseconds. The meaning of a watch is in svcd.commerce; here it is a row.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Final

from attrs import field, fields, frozen

from svcd.store.sql_connection import SqlConnection, Values
from svcd.store.webhook_events import WatchPlace


@frozen(kw_only=True)
class WatchRow:
    """The row of a watch; the columns in order."""

    id: str
    merchant: str
    reference: str
    recipient: str
    amount: int
    required: int
    since_height: int | None
    callback_url: str = field(repr=False)
    host: str
    created_at: int
    expires_at: int
    events: str
    state: str
    epoch: int
    sequence: int
    close_height: int | None
    ending: str | None
    txid: bytes | None
    block_hash: bytes | None
    height: int | None
    position: int | None
    block_time: int | None
    wake_height: int | None
    wake_at: int | None
    ended_at: int | None
    reported_mismatches: bytes | None
    evaluated_height: int | None = None
    """Of the tip at the last evaluation that changed the watch."""
    pay_until: int | None = None


@frozen
class WatchName:
    """A watch and whose it is."""

    id: str
    merchant: str


@frozen
class AlarmRow:
    """An active alarm."""

    id: str
    """The kind and what the alarm is about: two alarms of one kind differ in it."""
    kind: str
    sentence: str
    ends_at: int | None = None
    """None if the node reports its end."""


@frozen
class FollowedBlock:
    """A block of the cursor."""

    height: int
    hash: bytes
    work: int
    """The cumulative work of the chain up to it."""
    evaluated: int | None = None
    """The height up to which all watches have been evaluated; None if it is this block's, or it is not the newest."""


PAGE: Final = 1_000
"""Watches that are read at a time, where there may be very many."""
_STEPS_READ: Final = 16
"""Followed blocks that are read at a time: the first is nearly always the wanted one."""
WATCH_COLUMNS: Final = tuple(each.name for each in fields(WatchRow))
_COLUMNS: Final = ", ".join(WATCH_COLUMNS)
_CHANGING: Final = WATCH_COLUMNS[WATCH_COLUMNS.index("state") :]
_VALUES: Final = attrgetter(*WATCH_COLUMNS)
_CHANGED_VALUES: Final = attrgetter(*_CHANGING, "id")
_MAX_NUMBER: Final = 2**63 - 1
_NAMES: Final = "SELECT id, merchant FROM watch WHERE ending IS NULL"
_WITH_MISMATCHES: Final = "FROM watch WHERE reported_mismatches IS NOT NULL"
_IS_OF_PAYMENT: Final = "reference = ? AND recipient = ? AND amount = ?"
_WITH_MISMATCHES_OF_ORDER: Final = f"{_WITH_MISMATCHES} AND reference = ? AND recipient = ? ORDER BY number"
_FOLLOWED: Final = "(ending IS NULL OR reported_mismatches IS NOT NULL)"
"""Active, or ended with `payment.mismatched` events still possible."""


def _is_active(watch: WatchRow | None) -> bool:
    return watch is not None and watch.ending is None


def _is_unconfirmed(watch: WatchRow | None) -> bool:
    return watch is not None and watch.ending is None and watch.state != "confirmed"


def _watch(row: Sequence[object]) -> WatchRow:
    return WatchRow(**dict(zip(WATCH_COLUMNS, row, strict=True)))  # type: ignore[arg-type]


@frozen
class WatchChange:
    """A watch that changes."""

    before: WatchRow
    """As it is stored."""
    after: WatchRow


class WebhookStore:
    """Watches, and the blocks that have been followed; for one thread."""

    def __init__(self, connection: SqlConnection) -> None:
        self._db = connection

    def commit(self) -> AbstractContextManager[None]:
        """One database transaction: all inside is committed together or not at all."""
        return self._db.transaction()

    def begin_epochs(self, least: int) -> None:
        """Begin a new epoch of all watches that may have events, at least ``least``."""
        self._db.execute(
            f"UPDATE watch SET epoch = CASE WHEN epoch < ? THEN ? ELSE epoch + 1 END WHERE {_FOLLOWED}", (least, least)
        )

    # Followed blocks

    def newest_step(self) -> FollowedBlock | None:
        """The newest followed block; None if there is none."""
        return next(self.steps_down(1), None)

    def steps_down(self, at_once: int = _STEPS_READ) -> Iterator[FollowedBlock]:
        """The followed blocks, newest first; reads ``at_once``, then more each time."""
        below = _MAX_NUMBER
        query = "SELECT height, hash, work, evaluated FROM followed_block WHERE height < ? ORDER BY height DESC LIMIT ?"
        while rows := self._db.execute(query, (below, at_once)).fetchall():
            for height, block_hash, work, evaluated in rows:
                yield FollowedBlock(height, block_hash, int.from_bytes(work, "big"), evaluated)
            below, at_once = rows[-1][0], min(4 * at_once, PAGE)

    def follow(self, fork: int, steps: Sequence[FollowedBlock], *, keep: int) -> None:
        """Replace the followed blocks above height ``fork`` by ``steps``, and keep the newest ``keep``."""
        self._db.execute("DELETE FROM followed_block WHERE height > ?", (fork,))
        self._db.executemany(
            "INSERT INTO followed_block (height, hash, work) VALUES (?, ?, ?)",
            [(step.height, step.hash, step.work.to_bytes(32, "big")) for step in steps],
        )
        if steps:
            self._db.execute("DELETE FROM followed_block WHERE height <= ?", (steps[-1].height - keep,))

    def set_evaluated(self, height: int | None) -> None:
        """Store the height up to which all watches are evaluated; None if it is that of the newest followed block.

        No other followed block has such a note.
        """
        self._db.execute("UPDATE followed_block SET evaluated = NULL WHERE evaluated IS NOT NULL")
        self._db.execute(
            "UPDATE followed_block SET evaluated = ? WHERE height = (SELECT max(height) FROM followed_block)", (height,)
        )

    # Watches

    def add(self, watch: WatchRow) -> None:
        """Add a watch; only inside a transaction."""
        marks = ", ".join("?" * len(WATCH_COLUMNS))
        self._db.execute(f"INSERT INTO watch ({_COLUMNS}) VALUES ({marks})", _VALUES(watch))
        self._count([(None, watch)])

    def save(self, changes: Collection[WatchChange]) -> dict[str, WatchPlace]:
        """Update what changes of watches, none of them twice, and return their places; only inside a transaction.

        A watch that has ended keeps the time of its end.
        """
        values = {"ended_at": "coalesce(ended_at, ?)"}
        assignments = ", ".join(f"{name} = {values.get(name, '?')}" for name in _CHANGING)
        updated = self._db.select_each(
            f"UPDATE watch SET {assignments} WHERE id = ? RETURNING id, number, callback_url, due, merchant",
            [_CHANGED_VALUES(change.after) for change in changes],
        )
        self._count((change.before, change.after) for change in changes)
        return {identifier: WatchPlace(*place) for ((identifier, *place),) in updated}

    def _count(self, changes: Iterable[tuple[WatchRow | None, WatchRow]]) -> None:
        """Update the counts of watches in the table watch_count."""
        active, unconfirmed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for before, after in changes:
            more_active = _is_active(after) - _is_active(before)
            more_unconfirmed = _is_unconfirmed(after) - _is_unconfirmed(before)
            if more_active or more_unconfirmed:
                for counted in (("", ""), (after.merchant, ""), (after.merchant, after.host)):
                    active[counted] += more_active
                    unconfirmed[counted] += more_unconfirmed
        if not active:
            return
        self._db.executemany(
            "INSERT INTO watch_count (merchant, host, active, unconfirmed) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (merchant, host) DO UPDATE SET active = watch_count.active + excluded.active, "
            "unconfirmed = watch_count.unconfirmed + excluded.unconfirmed",
            [(*counted, active[counted], unconfirmed[counted]) for counted in active],
        )
        fewer = [counted for counted, more in active.items() if more < 0 and counted[1]]
        self._db.executemany("DELETE FROM watch_count WHERE merchant = ? AND host = ? AND active = 0", fewer)

    def watch(self, identifier: str) -> WatchRow | None:
        """One watch, active or not."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM watch WHERE id = ?", (identifier,)).fetchone()
        return None if row is None else _watch(row)

    def is_idle(self) -> bool:
        """Whether no watch can have an event."""
        return self.count_active() == 0 and not self._db.execute(f"SELECT id {_WITH_MISMATCHES} LIMIT 1").fetchall()

    def count_active(self, merchant: str = "") -> int:
        """The number of active watches; of ``merchant``, if it is given."""
        row = self._db.execute(
            "SELECT active FROM watch_count WHERE (merchant, host) = (?, '')", (merchant,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def has_active_since(self, height: int, time: int) -> bool:
        """Whether an active watch looks for its payment from ``height`` on or from below.

        One that names no height looks for it from its registration on, and counts if that was before ``time``.
        """
        return bool(
            self._db.execute(
                "SELECT id FROM watch WHERE ending IS NULL "
                "AND (since_height <= ? OR (since_height IS NULL AND created_at < ?)) LIMIT 1",
                (height, time),
            ).fetchall()
        )

    def count_unconfirmed(self, merchant: str, host: str = "") -> int:
        """The number of a merchant's active watches whose payment is not confirmed; at ``host``, if it is given."""
        row = self._db.execute(
            "SELECT unconfirmed FROM watch_count WHERE (merchant, host) = (?, ?)", (merchant, host)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def page(
        self,
        merchant: str,
        *,
        after: str | None,
        state: str | None,
        host: str | None,
        scan: int,
        limit: int,
        reference: str | None = None,
    ) -> tuple[list[WatchRow], str | None]:
        """The newest ``limit`` watches of a merchant, and the id after which the next page begins.

        ``state`` is a value of `lastState`; ``reference`` is that of the order, None for all. At most ``scan`` watches
        are looked at, so a page may have fewer than ``limit`` although others follow. Raises KeyError if the merchant
        has no watch ``after``.
        """
        below = _MAX_NUMBER
        if after is not None:
            row = self._db.execute(
                "SELECT number FROM watch WHERE id = ? AND merchant = ?", (after, merchant)
            ).fetchone()
            if row is None:
                raise KeyError(after)
            (below,) = row
        scanned = "SELECT * FROM watch WHERE merchant = ? AND number < ? ORDER BY number DESC LIMIT ?"
        of: Values = (merchant, below, scan)
        if reference is not None:
            scanned = scanned.replace("merchant = ?", "merchant = ? AND reference = ?")
            of = (merchant, reference, below, scan)
        told = "CASE WHEN ending = 'expired' THEN ending ELSE state END"
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM ({scanned}) AS scanned "
            f"WHERE coalesce(?, host) = host AND coalesce(?, {told}) = {told} ORDER BY number DESC LIMIT ?",
            (*of, host, state, limit),
        ).fetchall()
        watches = list(map(_watch, rows))
        if len(watches) == limit:
            return watches, watches[-1].id
        last = self._db.execute(
            f"SELECT id, count(*) OVER () FROM ({scanned}) AS scanned ORDER BY number LIMIT 1", of
        ).fetchone()
        return watches, last[0] if last is not None and last[1] == scan else None

    def followed(self, identifiers: Sequence[str]) -> list[WatchRow]:
        """Those of these watches that can have an event, in this order."""
        found = self._db.select_each(
            f"SELECT {_COLUMNS} FROM watch WHERE id = ? AND {_FOLLOWED}", [(each,) for each in identifiers]
        )
        return [_watch(row) for rows in found for row in rows]

    def of_payment(self, reference: str, recipient: str, amount: int, merchant: str) -> list[WatchRow]:
        """A merchant's active watches of one payment, oldest first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM watch WHERE ending IS NULL AND {_IS_OF_PAYMENT} AND merchant = ? ORDER BY number",
            (reference, recipient, amount, merchant),
        )
        return list(map(_watch, rows))

    def of_payments(self, payments: Sequence[tuple[str, str, int]]) -> list[WatchName]:
        """The active watches of payments with these references, recipients and amounts, payment by payment."""
        found = self._db.select_each(f"{_NAMES} AND {_IS_OF_PAYMENT} ORDER BY number", payments)
        return [WatchName(*row) for rows in found for row in rows]

    def of_transfers(self, transfers: Sequence[tuple[str, str, int]]) -> list[WatchName]:
        """The watches of transfers with these references, recipients and amounts.

        The active ones of the payments, then those with `payment.mismatched` events; a watch may be in both.
        """
        watches = self.of_payments(transfers)
        # Most shops do not ask for it.
        if self._db.execute(f"SELECT id {_WITH_MISMATCHES} LIMIT 1").fetchone() is not None:
            orders = dict.fromkeys(transfer[:2] for transfer in transfers)
            found = self._db.select_each(f"SELECT id, merchant {_WITH_MISMATCHES_OF_ORDER}", orders)
            watches += [WatchName(*row) for rows in found for row in rows]
        return watches

    def with_mismatches(self, reference: str, recipient: str) -> list[WatchRow]:
        """The watches, ended or not, with `payment.mismatched` events, oldest first."""
        return list(
            map(_watch, self._db.execute(f"SELECT {_COLUMNS} {_WITH_MISMATCHES_OF_ORDER}", (reference, recipient)))
        )

    def stop_mismatches_of_ended(self, merchant: str, reference: str, recipient: str) -> None:
        """Stop the `payment.mismatched` events of a merchant's ended watches under a reference."""
        self._db.execute(
            "UPDATE watch SET reported_mismatches = NULL WHERE reported_mismatches IS NOT NULL AND ending IS NOT NULL "
            "AND reference = ? AND recipient = ? AND merchant = ?",
            (reference, recipient, merchant),
        )

    def pending(self) -> list[WatchName]:
        """The active watches whose payment was in the mempool."""
        return self._names("state = 'pending'")

    def above(self, height: int) -> list[WatchName]:
        """The active watches whose payment was in a block above ``height``."""
        return self._names("height > ?", height)

    def waking_at_height(self, height: int) -> list[WatchName]:
        """The active watches that are to be woken at ``height`` or before."""
        return self._names("wake_height <= ?", height)

    def least_since_height(self, wake_height: int) -> int | None:
        """The lowest height from which on an active watch that is to be woken at ``wake_height`` looks for its payment.

        None if no such watch names a height.
        """
        ((height,),) = self._db.execute(
            "SELECT min(since_height) FROM watch WHERE ending IS NULL AND wake_height = ?", (wake_height,)
        ).fetchall()
        return None if height is None else int(height)

    def waking_at(self, now: int) -> list[WatchName]:
        """The active watches that are to be woken at ``now`` or before, the earliest first; at most PAGE."""
        return self._names("wake_at <= ? ORDER BY wake_at LIMIT ?", now, PAGE)

    def _names(self, condition: str, *values: int) -> list[WatchName]:
        return [WatchName(*row) for row in self._db.execute(f"{_NAMES} AND {condition}", values)]

    def all_followed(self) -> Iterator[WatchRow]:
        """All watches that can have an event, for changes so large that a selection is not worth its cost.

        Reads PAGE at a time.
        """
        query = f"SELECT number, {_COLUMNS} FROM watch WHERE {_FOLLOWED} AND number > ? ORDER BY number LIMIT ?"
        last = 0
        while rows := self._db.execute(query, (last, PAGE)).fetchall():
            last = rows[-1][0]
            for row in rows:
                yield _watch(row[1:])

    def wanting_alarms(self) -> list[WatchRow]:
        """The newest active watch of each callback that wants alarms."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM watch WHERE number IN (SELECT max(number) FROM watch "
            "WHERE ending IS NULL AND events LIKE '%node.alarm%' GROUP BY merchant, callback_url) ORDER BY number"
        )
        return list(map(_watch, rows))

    def alarms(self) -> list[AlarmRow]:
        """The alarms that are on, of each kind the newest last."""
        rows = self._db.execute("SELECT id, kind, sentence, ends_at FROM alarm ORDER BY kind, ends_at")
        return [AlarmRow(*row) for row in rows]

    def end_alarms(self, on: Collection[str], now: int) -> None:
        """Delete the alarms that end at ``now`` or before, and those without an end except the ids in ``on``."""
        over = [row.id for row in self.alarms() if (row.id not in on if row.ends_at is None else row.ends_at <= now)]
        self._db.executemany("DELETE FROM alarm WHERE id = ?", [(each,) for each in over])

    def begin_alarms(self, alarms: Sequence[AlarmRow]) -> list[AlarmRow]:
        """Store these alarms as active; returns those that were not active."""
        known = {row.id for row in self.alarms()}
        new = [alarm for alarm in alarms if alarm.id not in known]
        self._db.executemany(
            "INSERT INTO alarm (id, kind, sentence, ends_at) VALUES (?, ?, ?, ?)",
            [(alarm.id, alarm.kind, alarm.sentence, alarm.ends_at) for alarm in new],
        )
        return new

    def forget_ended(self, before: int, limit: int) -> int:
        """Delete at most ``limit`` watches that ended before ``before`` and have no unsent events; gives how many."""
        numbers = self._db.execute(
            "SELECT number FROM watch WHERE ended_at < ? AND due IS NULL LIMIT ?", (before, limit)
        ).fetchall()
        self._db.executemany("DELETE FROM event WHERE watch = ?", numbers)
        self._db.executemany("DELETE FROM watch WHERE number = ?", numbers)
        return len(numbers)
