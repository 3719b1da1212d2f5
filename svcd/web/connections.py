"""Which connections are open, whose they are, and which one gives way when there are too many."""

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from twisted.internet.defer import Deferred

from svcd.web.budget import Budget


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

    A connection *waits* while it is the client's turn (nothing asked, or half a request sent, or we are closing) or
    has another request to be looked at, is *served* from a request's last byte until its answer is given, and *takes*
    the answer until the client has it; all that is being taken comes to ``untaken`` bytes at most.
    """

    def __init__(self, total: int, per_client: int, untaken: int) -> None:
        self._total = total
        self._per_client = per_client
        self._untaken = untaken
        self._open: set[Connection] = set()
        self._of_group: dict[str, int] = {}
        # A dict for its order: the one that has waited longest stands first.
        self._waiting: dict[Connection, None] = {}
        self._taking: Budget[Connection] = Budget()
        self._empty: list[Deferred[None]] = []
        self.refused = 0
        """How many were not let in."""
        self.gave_way = 0
        """How many were closed to let another one in, or another answer."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def untaken_bytes(self) -> int:
        """How many bytes clients have asked for and not taken."""
        return self._taking.bytes

    @property
    def clients(self) -> int:
        """How many client groups have a connection."""
        return len(self._of_group)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def admit(self, group: str | None) -> bool:
        """Whether one more connection of ``group`` may be opened.

        To make room the one that waits longest is closed; where none waits, the one that takes longest.
        """
        if group is not None and self._per_client and self._of_group.get(group, 0) >= self._per_client:
            self.refused += 1
            return False
        if not self._total or len(self._open) < self._total:
            return True
        oldest = next(chain(self._waiting, self._taking), None)
        if oldest is None:
            self.refused += 1
            return False
        self._give_way(oldest)
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
        self._forget(connection)
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
        """It is the client's turn from now on, or its next request has come already."""
        if connection in self._open:
            self._forget(connection)
            self._waiting[connection] = None

    def is_served(self, connection: Connection) -> None:
        """It is our turn: the connection does not give way."""
        self._forget(connection)

    def takes(self, connection: Connection, size: int) -> None:
        """The client takes an answer of ``size`` bytes; if it is too much with all others, one gives way."""
        if connection not in self._open:
            return
        self._forget(connection)
        self._taking.add(connection, connection.group, size)
        while self._taking and self.untaken_bytes > self._untaken:
            self._give_way(self._taking.oldest_of_greediest())

    def _give_way(self, connection: Connection) -> None:
        self.gave_way += 1
        self.remove(connection)
        connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._taking.release(connection)

    def emptied(self) -> "Deferred[None]":
        """Fires when no connection is open."""
        deferred: Deferred[None] = Deferred()
        if self._open:
            self._empty.append(deferred)
        else:
            deferred.callback(None)
        return deferred
