"""The connections of a site: how many are open, whose turn it is, and what gives way when they hold too much."""

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.ports import Clock
from svcd.web.errors import HttpError, crowded_out
from svcd.web.limits import SiteLimits

C = TypeVar("C")

AT_ONCE: Final = 8
"""Requests that are answered between two looks at the sockets: a millisecond or two."""
AHEAD_BYTES: Final = 16 * 1024
"""How much is read of the further requests of a connection while others have their turn."""
LOG_SECONDS: Final = 60.0
"""Between two lines of the log about bodies that gave way."""
RETRY_SECONDS: Final = 5
"""After how many seconds a client whose body gave way may try again."""
MODEST_BODIES: Final = 2
"""How many of the largest bodies a client may hold until it counts as greedy: a peer sends two blocks at once."""
OF_ONE_CLIENT: Final = "the bodies of one client's requests may have {most} bytes at once; try again later"
OF_ALL_CLIENTS: Final = "too many large requests are under way; try again later"


@define
class _Share:
    client: str | None
    holder: object
    """The client, or the connection where it has none."""
    size: int = 0


class Budget(Generic[C]):
    """The shares of one resource, in the order in which they began.

    A share belongs to a client group, or to its connection alone where the client is None.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """All shares together."""
        self._shares: dict[C, _Share] = {}
        self._kept: dict[C, _Share] = {}
        self._of_holder: dict[object, int] = {}

    def __bool__(self) -> bool:
        """Whether a share may give way."""
        return bool(self._shares)

    def __iter__(self) -> Iterator[C]:
        """The connections whose share may give way, the oldest share first."""
        return iter(self._shares)

    def add(self, connection: C, client: str | None, size: int) -> None:
        """Let ``connection`` hold ``size`` bytes more for ``client``."""
        share = self._shares.get(connection)
        if share is None:
            share = self._shares[connection] = _Share(client, client or connection)
        share.size += size
        self._count(share.holder, size)

    def keep(self, connection: C) -> None:
        """Let the share of ``connection``, if it has one, count on but give way no more."""
        share = self._shares.pop(connection, None)
        if share is not None:
            self._kept[connection] = share

    def release(self, connection: C) -> str | None:
        """Count the share of ``connection`` no more and return its client; nothing happens if it has no share."""
        share = self._shares.pop(connection, None) or self._kept.pop(connection, None)
        if share is None:
            return None
        self._count(share.holder, -share.size)
        return share.client

    def of_client(self, client: str) -> int:
        """The bytes that all connections of ``client`` hold."""
        return self._of_holder.get(client, 0)

    def oldest_of(self, client: str) -> C:
        """The connection whose share began first among those of ``client`` that may give way; there must be one."""
        return next(connection for connection, share in self._shares.items() if share.client == client)

    def oldest_of_greediest(self, modest: int = 0) -> C:
        """The connection whose share began first among those of the client that holds most; one must give way.

        Clients that hold no more than ``modest`` bytes count as one: of them the oldest share of all comes first.
        """

        def greed(connection: C) -> int:
            return max(self._of_holder.get(self._shares[connection].holder, 0), modest)

        # max() returns the first of several that are equal, which is the oldest.
        return max(self._shares, key=greed)

    def _count(self, holder: object, change: int) -> None:
        self.bytes += change
        held = self._of_holder.get(holder, 0) + change
        if held:
            self._of_holder[holder] = held
        else:
            self._of_holder.pop(holder, None)


class Waiting(Protocol):
    """A connection on which the next request is here already."""

    def go_on(self) -> None:
        """Begin the next request."""


class Turns:
    """Lets connections go on one after the other, each with one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A dict for its order: the one that has waited longest stands first.
        self._waiting: dict[Waiting, None] = {}
        self._is_due = False

    def wait(self, connection: Waiting) -> None:
        """Let a connection go on when all that wait have had a turn, and whoever asks one thing at a time as well."""
        self._waiting[connection] = None
        self._come_again()

    def forget(self, connection: Waiting) -> None:
        """Let a connection not go on; nothing happens if it does not wait."""
        self._waiting.pop(connection, None)

    def _come_again(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._clock.callLater(0, self._take)

    def _take(self) -> None:
        self._is_due = False
        taken = list(self._waiting)[:AT_ONCE]
        try:
            for connection in taken:
                # The turn of another may have ended it.
                if connection in self._waiting:
                    del self._waiting[connection]
                    connection.go_on()
        finally:
            self._come_again()


class Receiver(Protocol):
    """A connection on which the body of a request arrives."""

    def refuse(self, error: HttpError) -> None:
        """Answer the request with ``error``, let go of its body and close the connection."""


class Bodies:
    """The bodies of all requests to one site, from their first byte until the request is answered.

    ``limits`` say how many bytes are held at most, in all and for one client group. An incomplete body gives way to
    further bytes; a complete one counts, but is never given up.
    """

    _log = Logger()

    def __init__(self, limits: SiteLimits, clock: Clock) -> None:
        self._total = limits.bodies_bytes
        self._per_client = limits.bodies_bytes_per_client
        self._modest = MODEST_BODIES * limits.body_caps.largest
        self._clock = clock
        self._budget: Budget[Receiver] = Budget()
        self.gave_way = 0
        """How many incomplete bodies were given up to make room for others."""
        self._reported = 0
        self._report_at = -inf

    @property
    def bytes(self) -> int:
        """How many bytes are held."""
        return self._budget.bytes

    def arrives(self, receiver: Receiver, client: str | None, size: int) -> bool:
        """Whether ``size`` more bytes of the body of ``receiver`` may be stored; if not, its request has been refused.

        To make room the oldest incomplete body of the client that holds most gives way, or the oldest one of
        ``client`` (None for one under no limit of its own) if that client would hold more than its share. Where no
        client holds more than a few bodies need, the oldest one of all gives way: one address in each of many networks
        holds as little as anybody likes, but those who send what they have begun are done before it is their turn.
        """
        budget = self._budget
        budget.add(receiver, client, 0)
        while client is not None and budget.of_client(client) + size > self._per_client:
            sentence = OF_ONE_CLIENT.format(most=self._per_client)
            if self._give_way(budget.oldest_of(client), sentence) is receiver:
                return False
        while budget.bytes + size > self._total:
            if self._give_way(budget.oldest_of_greediest(self._modest), OF_ALL_CLIENTS) is receiver:
                return False
        budget.add(receiver, client, size)
        return True

    def has_room(self, client: str | None, size: int) -> bool:
        """Whether ``size`` bytes more of ``client`` can be held without another body's giving way."""
        budget = self._budget
        fits = client is None or budget.of_client(client) + size <= self._per_client
        return fits and budget.bytes + size <= self._total

    def is_complete(self, receiver: Receiver) -> None:
        """The whole body has arrived: it does not give way."""
        self._budget.keep(receiver)

    def forget(self, receiver: Receiver) -> None:
        """The body is needed no more; nothing happens if there is none."""
        self._budget.release(receiver)

    def _give_way(self, receiver: Receiver, sentence: str) -> Receiver:
        client = self._budget.release(receiver)
        self.gave_way += 1
        receiver.refuse(crowded_out(sentence, RETRY_SECONDS))
        now = self._clock.seconds()
        if now >= self._report_at:
            # A client that has its bodies cut off all day must not fill the log.
            self._log.warn(
                "{count} incomplete request bodies gave way to others, the last one of {client}: {why}",
                count=self.gave_way - self._reported,
                client=client or "a client under no limit",
                why=sentence,
            )
            self._reported, self._report_at = self.gave_way, now + LOG_SECONDS
        return receiver


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
