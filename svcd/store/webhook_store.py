"""Every SQL statement of the webhooks, behind methods named by intention (docs/operations.md "Storage").

Times are Unix milliseconds. What a watch means is for svcd.commerce to say; here it is a row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from operator import attrgetter
from pathlib import Path
from typing import Final

from attrs import field, fields, frozen

from svcd.store import database


@frozen(kw_only=True)
class WatchRow:
    """A watch as it lies on disk; the columns of the table, in order."""

    id: str
    reference: str
    recipient: str
    amount: int
    required: int
    since_height: int | None
    callback_url: str = field(repr=False)
    host: str
    created_at: int
    expires_at: int
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


_PAGES_OF_AN_ORDER: Final = 16
_COPY: Final = 0x73766362
"""In the place that SQLite has for a number of the application's: what stands here is as it was at another time."""
_NAMES: Final = [each.name for each in fields(WatchRow)]
_COLUMNS: Final = ", ".join(_NAMES)
_CHANGING: Final = _NAMES[10:]
_VALUES: Final = attrgetter(*_NAMES)
_CHANGED_VALUES: Final = attrgetter(*_CHANGING, "id")
_ACTIVE: Final = f"SELECT {_COLUMNS} FROM watch WHERE ending IS NULL"


def _watch(row: Sequence[object]) -> WatchRow:
    return WatchRow(**dict(zip(_NAMES, row, strict=True)))  # type: ignore[arg-type]


def mark_as_copy(path: Path) -> None:
    """Note in a copy at ``path`` that the node it was made of goes on; see :meth:`WebhookStore.is_copy`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute(f"PRAGMA application_id = {_COPY}")


class WebhookStore:
    """Watches, their events, and the trail of blocks that has been followed; for one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def commit(self) -> AbstractContextManager[None]:
        """One database transaction: all inside is committed together or not at all."""
        return database.transaction(self._db)

    def probe(self) -> None:
        """See whether the disk takes as much as an order and its events; raises sqlite3.Error."""
        database.probe(self._db, _PAGES_OF_AN_ORDER)

    def is_copy(self) -> bool:
        """Whether these are the watches of a backup, and no node has begun with them yet."""
        (number,) = self._db.execute("PRAGMA application_id").fetchone()
        return bool(number == _COPY)

    def begin_epochs(self, least: int) -> None:
        """Let what active watches tell from now on be of an epoch from ``least`` on, and of none that has been."""
        self._db.execute("UPDATE watch SET epoch = max(epoch + 1, ?) WHERE ending IS NULL", (least,))
        self._db.execute("PRAGMA application_id = 0")

    # The trail

    def newest_step(self) -> tuple[int, bytes] | None:
        """Height and hash of the block at which the watches stand; None if they have never seen one."""
        row: tuple[int, bytes] | None = self._db.execute(
            "SELECT height, hash FROM trail ORDER BY height DESC LIMIT 1"
        ).fetchone()
        return row

    def steps_down(self) -> Iterator[tuple[int, bytes]]:
        """The blocks that have been followed, newest first."""
        return iter(self._db.execute("SELECT height, hash FROM trail ORDER BY height DESC"))

    def follow(self, fork: int, steps: Sequence[tuple[int, bytes]], *, keep: int) -> None:
        """Replace the trail above height ``fork`` by ``steps``, and forget what is not among the newest ``keep``."""
        self._db.execute("DELETE FROM trail WHERE height > ?", (fork,))
        self._db.executemany("INSERT INTO trail VALUES (?, ?)", steps)
        if steps:
            self._db.execute("DELETE FROM trail WHERE height <= ?", (steps[-1][0] - keep,))

    # Watches

    def add(self, watch: WatchRow) -> None:
        """A new watch."""
        marks = ", ".join("?" * len(_NAMES))
        self._db.execute(f"INSERT INTO watch ({_COLUMNS}) VALUES ({marks})", _VALUES(watch))

    def save(self, watch: WatchRow) -> None:
        """The parts of a watch that change."""
        assignments = ", ".join(f"{name} = ?" for name in _CHANGING)
        self._db.execute(f"UPDATE watch SET {assignments} WHERE id = ?", _CHANGED_VALUES(watch))

    def watch(self, identifier: str) -> WatchRow | None:
        """One watch, active or not."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM watch WHERE id = ?", (identifier,)).fetchone()
        return None if row is None else _watch(row)

    def is_idle(self) -> bool:
        """Whether nobody watches anything."""
        return self._db.execute("SELECT 1 FROM watch WHERE ending IS NULL LIMIT 1").fetchone() is None

    def count_active(self) -> int:
        """How many watches there are."""
        (count,) = self._db.execute("SELECT count(*) FROM watch WHERE ending IS NULL").fetchone()
        return int(count)

    def count_at_host(self, host: str) -> int:
        """How many active watches have their callback at ``host``."""
        (count,) = self._db.execute("SELECT count(*) FROM watch WHERE ending IS NULL AND host = ?", (host,)).fetchone()
        return int(count)

    def of_payment(self, reference: str, recipient: str, amount: int) -> list[WatchRow]:
        """The active watches over one payment, oldest first."""
        rows = self._db.execute(
            f"{_ACTIVE} AND reference = ? AND recipient = ? AND amount = ? ORDER BY number",
            (reference, recipient, amount),
        )
        return list(map(_watch, rows))

    def in_state(self, state: str) -> list[WatchRow]:
        """The active watches that have told ``state``; a walk, for the start only."""
        return list(map(_watch, self._db.execute(f"{_ACTIVE} AND state = ?", (state,))))

    def above(self, height: int) -> list[WatchRow]:
        """The active watches whose payment stood on the chain above ``height``."""
        return list(map(_watch, self._db.execute(f"{_ACTIVE} AND height > ?", (height,))))

    def waking_at_height(self, height: int) -> list[WatchRow]:
        """The active watches that have something to say at ``height`` or said they would before."""
        return list(map(_watch, self._db.execute(f"{_ACTIVE} AND wake_height <= ?", (height,))))

    def waking_at(self, now: int) -> list[WatchRow]:
        """The active watches whose time has come."""
        return list(map(_watch, self._db.execute(f"{_ACTIVE} AND wake_at <= ?", (now,))))

    def all_active(self) -> list[WatchRow]:
        """Every active watch; for when so much has happened that looking for the right ones is not worth it."""
        return list(map(_watch, self._db.execute(f"{_ACTIVE} ORDER BY number")))

    def forget_ended(self, before: int, limit: int) -> int:
        """Delete at most ``limit`` watches that ended before ``before`` and have nothing to send; gives how many."""
        numbers = self._db.execute(
            "SELECT number FROM watch WHERE ended_at < ? AND due IS NULL LIMIT ?", (before, limit)
        ).fetchall()
        self._db.executemany("DELETE FROM event WHERE watch = ?", numbers)
        self._db.executemany("DELETE FROM watch WHERE number = ?", numbers)
        return len(numbers)
