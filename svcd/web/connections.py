"""Which connections are open, whose they are, and which one gives way when there are too many."""

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.defer import Deferred


class Connection(Protocol):
    """One open connection."""

    group: str | None
    """The client group it counts for; None if it counts for nobody."""

    def abort(self) -> None:
        """Close at once, whatever is unsent."""

    def drain(self) -> None:
        """Close at once if nothing is asked, else after the answer."""


class Connections:
    """The open connections of one site; ``total`` and ``per_client`` bound them, 0 sets no bound.

    A connection *waits* while it is the client's turn (nothing asked, or half a request sent, or we are closing) and is
    *served* from a request's last byte until its answer is given.
    """

    def __init__(self, total: int, per_client: int) -> None:
        self._total = total
        self._per_client = per_client
        self._open: set[Connection] = set()
        self._of_group: dict[str, int] = {}
        # A dict for its order: the one that has waited longest stands first.
        self._waiting: dict[Connection, None] = {}
        self._empty: list[Deferred[None]] = []
        self.refused = 0
        """How many were not let in."""
        self.gave_way = 0
        """How many were closed to let another one in."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def clients(self) -> int:
        """How many client groups have a connection."""
        return len(self._of_group)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def admit(self, group: str | None) -> bool:
        """Whether one more connection of ``group`` may be opened; the one that waits longest is closed to make room."""
        if group is not None and self._per_client and self._of_group.get(group, 0) >= self._per_client:
            self.refused += 1
            return False
        if not self._total or len(self._open) < self._total:
            return True
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            self.refused += 1
            return False
        self.gave_way += 1
        self.remove(oldest)
        oldest.abort()
        return True

    def add(self, connection: Connection) -> None:
        """Count a connection, which waits."""
        self._open.add(connection)
        self._waiting[connection] = None
        if connection.group is not None:
            self._of_group[connection.group] = self._of_group.get(connection.group, 0) + 1

    def remove(self, connection: Connection) -> None:
        """Count a connection no more; nothing happens if it is not counted."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._waiting.pop(connection, None)
        group = connection.group
        if group is not None:
            self._of_group[group] -= 1
            if not self._of_group[group]:
                del self._of_group[group]
        if not self._open:
            waiters, self._empty = self._empty, []
            for waiter in waiters:
                waiter.callback(None)

    def waits(self, connection: Connection) -> None:
        """It is the client's turn from now on."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def is_served(self, connection: Connection) -> None:
        """It is our turn: the connection does not give way."""
        self._waiting.pop(connection, None)

    def emptied(self) -> "Deferred[None]":
        """Fires when no connection is open."""
        deferred: Deferred[None] = Deferred()
        if self._open:
            self._empty.append(deferred)
        else:
            deferred.callback(None)
        return deferred
