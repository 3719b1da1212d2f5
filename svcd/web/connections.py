"""The connections of a site: how many are open, the order of pipelined requests, and evictions to make room."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf
from typing import Final, Protocol

from attrs import define, field, fields, frozen
from attrs.validators import ge, gt
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.interfaces import Clock
from svcd.limits import LARGE_BODY, UNREAD_ANSWERS, limit
from svcd.web.responses import HttpError, service_unavailable

_PIPELINING: Final = "Thousands of pipelined requests, to hold up the reactor"
DEFAULT_BODY_CAP: Final = limit(16 * 1024, "a request's body", "bytes", LARGE_BODY)


@frozen
class BodyCaps:
    """The size limit of a request's body in bytes: ``of`` its (method, path), or ``default``."""

    of: Mapping[tuple[bytes, bytes], int] = field(factory=dict)
    default: int = DEFAULT_BODY_CAP

    def __call__(self, method: bytes, path: bytes) -> int:
        return self.of.get((method, path), self.default)

    @property
    def largest(self) -> int:
        """The largest of these limits."""
        return max([self.default, *self.of.values()])


@frozen(kw_only=True)
class SiteLimits:
    """The limits of one site. Times are in seconds; 0 connections means no limit."""

    header_seconds: float = field(default=10.0, validator=gt(0))
    """From the connection, or a request's first byte, to the end of the headers: drip-feeding is bounded."""
    request_seconds: float = field(default=30.0, validator=gt(0))
    """From a request's first byte to the last byte of its body: drip-feeding is bounded."""
    answer_seconds: float = field(default=60.0, validator=gt(0))
    """From the start of a response until the client has read it: clients that never read cannot occupy connections.

    It is also the time to answer a request whose route states no time of its own.
    """
    idle_seconds: float = field(default=60.0, validator=gt(0))
    """Between two requests on one connection."""
    close_seconds: float = field(
        default=limit(
            5.0,
            "time for the responses to a client that has closed its half",
            "seconds",
            _PIPELINING,
        ),
        validator=gt(0),
    )
    """For a client to read the last bytes of a connection that this side closes, or of which it has closed its half."""
    connections: int = field(default=1_000, validator=ge(0))
    """Open at once: the sockets of a process are finite."""
    connections_per_client: int = field(default=64, validator=ge(0))
    """Open at once by one client group: one client cannot take all of them."""
    body_caps: BodyCaps = field(factory=BodyCaps)
    """Bytes in the body of one request: larger bodies are never stored in memory, and none on disk."""
    bodies_bytes: int = field(
        default=limit(
            64 * 1024 * 1024,
            "bodies of all requests at once",
            "bytes",
            "Bodies just below the cap, or never completed, so that other clients' are refused",
        ),
        validator=ge(1),
    )
    """Bytes in the bodies of all requests at once: a thousand connections cannot fill memory."""
    bodies_bytes_per_client: int = field(
        default=limit(
            8 * 1024 * 1024,
            "bodies of one client's requests at once",
            "bytes",
            "Bodies just below the cap, or never completed, so that other clients' are refused",
        ),
        validator=ge(1),
    )
    """Bytes in the bodies of one client group at once: no client can use up ``bodies_bytes``."""

    @classmethod
    def picked_from(cls, settings: object, body_caps: BodyCaps) -> "SiteLimits":
        """``body_caps``, and the limits that ``settings`` has as attributes; the others have their defaults."""
        names = [field.name for field in fields(cls) if hasattr(settings, field.name)]
        return cls(body_caps=body_caps, **{name: getattr(settings, name) for name in names})


UNREAD_BYTES: Final = limit(64 * 1024 * 1024, "responses that clients have not read", "bytes", UNREAD_ANSWERS)
"""Bytes in all responses that clients have not read yet: clients that never read cannot fill memory."""
UNREAD_BYTES_PER_CLIENT: Final = limit(
    16 * 1024 * 1024, "responses that one client has not read", "bytes", UNREAD_ANSWERS
)
"""Bytes in such responses to one client group: two nodes behind one address may fetch blocks and headers at once."""
AT_ONCE: Final = limit(8, "pipelined requests answered in an iteration of the reactor", "requests", _PIPELINING)
"""Pipelined requests answered in one iteration of the reactor: a millisecond or two."""
AHEAD_BYTES: Final = limit(16 * 1024, "pipelined requests that are read ahead of their turn", "bytes", _PIPELINING)
"""How many bytes of pipelined requests a connection may read before their turn."""

LOG_SECONDS: Final = 60.0
"""Between two log lines about evicted bodies."""
RETRY_SECONDS: Final = 5
"""The ``Retry-After`` of a client whose body was evicted."""
MODEST_BODIES: Final = 2
"""How many bodies of the largest size a client may hold before it counts as greedy: a peer sends two blocks at once."""
OF_ONE_CLIENT: Final = "the bodies of one client's requests may have {most} bytes at once; try again later"
OF_ALL_CLIENTS: Final = "too many large requests are under way; try again later"


class Connection(Protocol):
    """A connection as its site sees it."""

    group: str | None
    """The client group whose limit it counts towards; None if it counts towards none."""

    def resume(self) -> None:
        """Begin the next, pipelined request."""

    def refuse(self, error: HttpError) -> None:
        """Answer the incomplete request with ``error`` and close the connection."""

    def drain(self) -> None:
        """Close as soon as no request awaits a response."""

    def evict(self) -> None:
        """Close at once to make room for others."""

    def abort(self) -> None:
        """Close at once."""


@define
class _Share:
    client: str | None
    holder: object
    """The client, or the connection where it has none."""
    size: int = 0


class Budget:
    """The shares of one resource, the oldest first.

    A share belongs to a client group, or to its connection alone if the client is None.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """The sum of all shares."""
        self._shares: dict[Connection, _Share] = {}
        self._kept: dict[Connection, _Share] = {}
        self._of_holder: dict[object, int] = {}

    def __bool__(self) -> bool:
        """Whether any share can be evicted."""
        return bool(self._shares)

    def __iter__(self) -> Iterator[Connection]:
        """The connections whose shares can be evicted, the oldest share first."""
        return iter(self._shares)

    def add(self, connection: Connection, client: str | None, size: int) -> None:
        """Add ``size`` bytes to the share of ``connection``, which belongs to ``client``."""
        share = self._shares.get(connection)
        if share is None:
            share = self._shares[connection] = _Share(client, client or connection)
        share.size += size
        self._count(share.holder, size)

    def keep(self, connection: Connection) -> None:
        """Protect the share of ``connection``, if any, from eviction; it still counts."""
        share = self._shares.pop(connection, None)
        if share is not None:
            self._kept[connection] = share

    def release(self, connection: Connection) -> str | None:
        """Remove the share of ``connection`` and return its client; None if there is no share."""
        share = self._shares.pop(connection, None) or self._kept.pop(connection, None)
        if share is None:
            return None
        self._count(share.holder, -share.size)
        return share.client

    def of_client(self, client: str) -> int:
        """The bytes that all connections of ``client`` hold."""
        return self._of_holder.get(client, 0)

    def oldest_of(self, client: str) -> Connection:
        """The connection of the oldest share of ``client`` that can be evicted; there must be one."""
        return next(connection for connection, share in self._shares.items() if share.client == client)

    def oldest_of_largest_holder(self, modest: int = 0) -> Connection:
        """The connection of the oldest share of the largest holder; at least one share must be evictable.

        Holders of ``modest`` bytes or less rank equal: if there is no larger one, the oldest share of all is chosen.
        """

        def held(connection: Connection) -> int:
            return max(self._of_holder.get(self._shares[connection].holder, 0), modest)

        # max() returns the first of several equal ones, which is the oldest.
        return max(self._shares, key=held)

    def _count(self, holder: object, change: int) -> None:
        self.bytes += change
        held = self._of_holder.get(holder, 0) + change
        if held:
            self._of_holder[holder] = held
        else:
            self._of_holder.pop(holder, None)


class PipelineQueue:
    """Takes turns among connections with pipelined requests: one request each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A dict for its order: the connection that has waited longest comes first.
        self._waiting: dict[Connection, None] = {}
        self._is_due = False

    def wait(self, connection: Connection) -> None:
        """Queue a connection; other queued connections and clients without pipelining are served first."""
        self._waiting[connection] = None
        self._schedule()

    def forget(self, connection: Connection) -> None:
        """Remove a connection from the queue; does nothing if it is not queued."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._clock.callLater(0, self._take)

    def _take(self) -> None:
        self._is_due = False
        taken = list(self._waiting)[:AT_ONCE]
        try:
            for connection in taken:
                # Another connection's request may have closed it.
                if connection in self._waiting:
                    del self._waiting[connection]
                    connection.resume()
        finally:
            self._schedule()


class BodyBudget(Budget):
    """Bounds the bodies of all requests to one site, each from its first byte until its request is answered.

    ``limits`` set the largest number of bytes, in total and for one client group. Incomplete bodies are evicted to make
    room for further bytes; complete ones are kept.
    """

    _log = Logger()

    def __init__(self, limits: SiteLimits, clock: Clock) -> None:
        super().__init__()
        self._total = limits.bodies_bytes
        self._per_client = limits.bodies_bytes_per_client
        self._modest = MODEST_BODIES * limits.body_caps.largest
        self._clock = clock
        self.evicted = 0
        """How many incomplete bodies were evicted to make room for others."""
        self._reported = 0
        self._report_at = -inf

    def reserve(self, connection: Connection, client: str | None, size: int) -> bool:
        """Reserve ``size`` more bytes for the body of ``connection``; False if its request was refused to make room.

        ``client`` is None for one without a limit of its own. Incomplete bodies are evicted in this order: the oldest
        of ``client`` while it exceeds its share, then the oldest of the largest holder, or the oldest of all if no
        holder has more than MODEST_BODIES of the largest size. An attacker with many addresses exceeds no share,
        but its incomplete bodies become the oldest before honest clients' do.
        """
        self.add(connection, client, 0)
        while client is not None and self.of_client(client) + size > self._per_client:
            sentence = OF_ONE_CLIENT.format(most=self._per_client)
            exceeded = f"one client's bodies may have {self._per_client} bytes at once"
            if self._evict(self.oldest_of(client), sentence, exceeded) is connection:
                return False
        while self.bytes + size > self._total:
            exceeded = f"all bodies may have {self._total} bytes at once"
            if self._evict(self.oldest_of_largest_holder(self._modest), OF_ALL_CLIENTS, exceeded) is connection:
                return False
        self.add(connection, client, size)
        return True

    def has_room(self, client: str | None, size: int) -> bool:
        """Whether ``size`` more bytes of ``client`` fit without an eviction."""
        fits = client is None or self.of_client(client) + size <= self._per_client
        return fits and self.bytes + size <= self._total

    def _evict(self, connection: Connection, sentence: str, exceeded: str) -> Connection:
        """Evict a body, with a ``sentence`` for its client; the log names the ``exceeded`` limit."""
        client = self.release(connection)
        self.evicted += 1
        connection.refuse(service_unavailable(sentence, RETRY_SECONDS))
        now = self._clock.seconds()
        if now >= self._report_at:
            # A client whose bodies are evicted all day must not fill the log.
            self._log.warn(
                "{count} incomplete request bodies were dropped to make room, the last one of {client}: {limit}",
                count=self.evicted - self._reported,
                client=client or "a client under no limit",
                limit=exceeded,
            )
            self._reported, self._report_at = self.evicted, now + LOG_SECONDS
        return connection


class UnreadBudget(Budget):
    """Bounds what clients have not read of their responses, on all sites that share the budget.

    At most ``total`` bytes, and ``per_client`` bytes of one client group. The connection to which nothing could be sent
    for longest is closed to make room for a response. Refusing the response instead would serve those who read nothing.
    """

    def __init__(self, total: int = UNREAD_BYTES, per_client: int = UNREAD_BYTES_PER_CLIENT) -> None:
        super().__init__()
        self._total = total
        self._per_client = per_client

    def hold(self, connection: Connection, client: str | None, size: int) -> None:
        """``connection``, to which a part of a response was just sent, has ``size`` unread bytes from now on.

        ``client`` is None for one without a limit of its own. Connections are closed in this order: of ``client`` while
        it exceeds its share, then of the largest holder, where holders of half a share or less rank equal. Among them
        the one that has been sent nothing for longest is closed, so a client that reads slowly but steadily keeps its
        connection.
        """
        self.release(connection)
        self.add(connection, client, size)
        while client is not None and self.of_client(client) > self._per_client:
            self._close(self.oldest_of(client))
        while self.bytes > self._total:
            self._close(self.oldest_of_largest_holder(self._per_client // 2))

    def _close(self, connection: Connection) -> None:
        self.release(connection)
        connection.evict()


class Connections:
    """The open connections of one site; ``total`` and ``per_client`` limit their number, 0 means no limit.

    A connection *waits* while it is idle, receives a request, closes, or has a pipelined request in the queue; it *is
    served* from a request's last byte until the response is written; its response is *unread* until the client has read
    it; ``unread`` bounds the bytes of such responses, of this site and others.
    """

    def __init__(self, total: int, per_client: int, unread: UnreadBudget) -> None:
        self._total = total
        self._per_client = per_client
        self._open: set[Connection] = set()
        self._of_group: Counter[str] = Counter()
        # A dict for its order: the connection that has waited longest comes first.
        self._waiting: dict[Connection, None] = {}
        self._unread = unread
        self._empty: list[Deferred[None]] = []
        self.refused = 0
        """How many connections were refused."""
        self.evicted = 0
        """How many connections were closed to make room for another connection or response."""

    def set_limits(self, total: int, per_client: int) -> None:
        """Change the limits for connections that are opened from now on."""
        self._total, self._per_client = total, per_client

    def __len__(self) -> int:
        return len(self._open)

    @property
    def clients(self) -> int:
        """How many client groups have a connection."""
        return len(self._of_group)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def admit(self, group: str | None) -> bool:
        """Whether one more connection of ``group`` may be opened.

        To make room, the connection that has waited longest is closed; if none waits, the one with an unread response
        to which nothing could be sent for longest.
        """
        if group is not None and self._per_client and self._of_group[group] >= self._per_client:
            self.refused += 1
            return False
        if not self._total or len(self._open) < self._total:
            return True
        unread = (connection for connection in self._unread if connection in self._open)
        oldest = next(chain(self._waiting, unread), None)
        if oldest is None:
            self.refused += 1
            return False
        self.evict(oldest)
        return True

    def add(self, connection: Connection) -> None:
        """Add a connection, which waits at first."""
        self._open.add(connection)
        self._waiting[connection] = None
        if connection.group is not None:
            self._of_group[connection.group] += 1

    def remove(self, connection: Connection) -> None:
        """Remove a connection; does nothing if it was not added."""
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

    def mark_waiting(self, connection: Connection) -> None:
        """The connection waits from now on, and can be closed to make room."""
        if connection in self._open:
            self._forget(connection)
            self._waiting[connection] = None

    def mark_served(self, connection: Connection) -> None:
        """The connection is served from now on, and is not closed to make room."""
        self._forget(connection)

    def mark_unread(self, connection: Connection, client: str | None, size: int) -> None:
        """``size`` bytes of a response to ``client`` are unread, after a part of it has just been sent.

        Connections are closed, perhaps this one, while there are too many such bytes.
        """
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._unread.hold(connection, client, size)

    def evict(self, connection: Connection) -> None:
        """Close a connection at once to make room."""
        self.evicted += 1
        self.remove(connection)
        connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._unread.release(connection)

    def emptied(self) -> "Deferred[None]":
        """Fires when no connection is open."""
        deferred: Deferred[None] = Deferred()
        if self._open:
            self._empty.append(deferred)
        else:
            deferred.callback(None)
        return deferred
