"""The lease by which one of several nodes leads (docs/scaling.md "Several nodes with one database").

Only the leader follows the chain for merchants and delivers. The first functions decide, without side effects, over
the rows that the nodes share in their database; all times are Unix milliseconds of the database's clock.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, Protocol

from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.interfaces import Clock, Timer, Worker, milliseconds, unix_seconds
from svcd.store.database import DatabaseUnavailable
from svcd.store.lease_store import LeaderLease, LeaseStore, NodeReport

LEASE_MS: Final = 10_000
"""The duration of a lease, unless it is renewed."""
RENEW_SECONDS: Final = 2.0
"""The interval at which the leader renews its lease, and the standbys read it."""
_AHEAD_MS: Final = 60_000
"""By how much the database's clock may go back until a lease counts as given while it was ahead."""
SEEN_MS: Final = 6_000
"""A node that has not reported for so long counts as gone."""
OUTPACED_MS: Final = 10_000
"""How long a ready node must have a greater chain before the leader counts as behind: a block takes some seconds to
every node."""
_TOLERANCE_SECONDS: Final = 60.0
"""By how much the clocks of database and leader may differ until watches do not expire; peers refuse larger ones."""
_MARGIN_SECONDS: Final = 1.0
"""The leader stops so long before its lease ends, in case its clock runs slower than the database's."""


class NotLeader(Exception):
    """``term`` has ended and another node may be the leader: nothing of the transaction is committed."""

    def __init__(self, term: int) -> None:
        super().__init__(f"term {term} has ended")
        self.term = term


@frozen(kw_only=True)
class NodeState:
    """The state of this node when it reads the lease."""

    node: str
    """Different for each run of each node."""
    ready: bool
    work: int
    settings: bytes
    """A digest of what all nodes should have in common in their configuration."""
    outpaced_since: int | None = None
    """Since when a ready node has had a greater chain; None if none has."""


def outpaced(state: NodeState, others: Iterable[NodeReport], now: int) -> NodeState:
    """The state, with ``outpaced_since`` according to the reports of the ``others``."""
    if not any(report.work > state.work for report in _ready_others(state, others, now)):
        return evolve(state, outpaced_since=None)
    return state if state.outpaced_since is not None else evolve(state, outpaced_since=now)


def differing(state: NodeState, reports: Iterable[NodeReport], now: int) -> frozenset[str]:
    """The names of the other nodes whose configuration has other merchants, secrets or settings of webhooks."""
    return frozenset(
        each.node
        for each in reports
        if each.node != state.node and _is_there(each, now) and each.settings != state.settings
    )


def next_lease(lease: LeaderLease, state: NodeState, others: Iterable[NodeReport], now: int) -> LeaderLease | None:
    """The lease that this node must write in place of ``lease``; None if nothing changes.

    A node that is not ready may be the leader only while no other is ready: waiting events must be delivered even then.
    """
    fit = state.ready and (state.outpaced_since is None or now - state.outpaced_since < OUTPACED_MS)
    may_lead = fit or not any(_ready_others(state, others, now))
    if lease.holder == state.node:
        return LeaderLease(lease.term, state.node, now + LEASE_MS) if may_lead else released(lease, now)
    # One that ends later than any is given by a clock that was ahead: its holder, if it lives, renews it in 2 s.
    if not now < lease.expires_at <= now + LEASE_MS + _AHEAD_MS and may_lead:
        return LeaderLease(lease.term + 1, state.node, now + LEASE_MS)
    return None


def released(lease: LeaderLease, now: int) -> LeaderLease:
    """The lease after its holder has given it back: any node may take it at once."""
    return LeaderLease(lease.term, "", now)


def _ready_others(state: NodeState, reports: Iterable[NodeReport], now: int) -> list[NodeReport]:
    return [each for each in reports if each.node != state.node and each.ready and _is_there(each, now)]


def _is_there(report: NodeReport, now: int) -> bool:
    # A report from the future was made while the database's clock was ahead.
    return abs(now - report.seen_at) < SEEN_MS


class Role(StrEnum):
    """The role of a node among those that share a database of webhooks."""

    LEADER = "leader"
    """It evaluates the watches and delivers the events."""
    STANDBY = "standby"
    """It serves requests, and takes over if the leader fails."""


class Leadership(Protocol):
    """Whether this node is the leader of those that share the database of webhooks."""

    @property
    def term(self) -> int | None:
        """The term in which this node is the leader; None while it is not."""

    @property
    def leader(self) -> str:
        """The name of the leader as this node last read it; "" if there is none."""

    @property
    def lease_age(self) -> float:
        """How many seconds ago the leader renewed its lease."""

    def lost(self, term: int) -> None:
        """Note that the database has refused a transaction of ``term``."""


class SoleLeader:
    """The leadership of a node whose database no other node uses."""

    term: int | None = 0
    leader = ""
    lease_age = 0.0

    def lost(self, term: int) -> None:
        """Never called: no other node can take over."""
        raise RuntimeError(f"the only node cannot lose the lease of term {term}")


class DatabaseClock:
    """A clock with the Unix time of the database, after :meth:`set_unix_time`; before, with that of the computer.

    Nodes whose clocks differ agree on when a watch expires, when an attempt is due and what time an event has.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lead: float | None = None
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self.getDelayedCalls = clock.getDelayedCalls

    def set_unix_time(self, unix_ms: int, at: float) -> None:
        """Note that the database's time was ``unix_ms`` at ``at``, in seconds of :meth:`seconds`."""
        self._lead = unix_ms / 1000 - at

    def ahead_of(self, trusted: int) -> int:
        """By how many milliseconds the database's time is ahead of a trusted one; 0 while it is not known."""
        return 0 if self._lead is None else milliseconds(self) - trusted

    def doubt(self) -> str:
        """Why watches do not expire by the database's time; "" if it agrees with the computer's, or is not used."""
        ahead = self.unix_seconds() - unix_seconds(self._clock)
        if abs(ahead) < _TOLERANCE_SECONDS:
            return ""
        return (
            f"the clock of PostgreSQL differs by {ahead:+.0f} s from this computer's: no watch expires until both show "
            "the same time"
        )

    def unix_seconds(self) -> float:
        """The Unix time in seconds."""
        return unix_seconds(self._clock) if self._lead is None else self._clock.seconds() + self._lead


@frozen
class _Renewal:
    """The rows of the shared database after one renewal."""

    now: int
    lease: LeaderLease
    """After the change by this node, if there was one."""
    outpaced_since: int | None
    differing: frozenset[str]
    """The other nodes with another configuration."""


def renew_lease(store: LeaseStore, state: NodeState) -> _Renewal:
    """Report the state of this node; take, renew or give back the lease if :func:`next_lease` says so."""
    # The lease before the time: if its holder renews it in between, it does not seem to be from a clock that was ahead.
    lease, now, reports = store.lease(), store.now(), store.reports()
    state = outpaced(state, reports, now)
    wanted = next_lease(lease, state, reports, now)
    # Nothing is locked in between: a node that is suspended here replaces the lease only if it is unchanged.
    if wanted is not None and store.replace(lease, wanted):
        lease = wanted
    store.report(NodeReport(state.node, now, state.ready, state.work, state.settings))
    return _Renewal(now, lease, state.outpaced_since, differing(state, reports, now))


def give_back(store: LeaseStore, state: NodeState) -> None:
    """Give the lease back, so that another node can take it at once, and report this node as not ready."""
    now, lease = store.now(), store.lease()
    if lease.holder == state.node:
        store.replace(lease, released(lease, now))
    store.report(NodeReport(state.node, now, False, state.work, state.settings))


@frozen(kw_only=True)
class Candidate:
    """This node as a candidate for the lease."""

    name: str
    """Different for each run of each node."""
    ready: Callable[[], bool]
    """Whether its chain is the network's, and not behind the cursor of the webhooks."""
    work: Callable[[], int]
    """The cumulative work of its chain."""
    settings: bytes
    """A digest of what all nodes should have in common in their configuration."""


class LeaseService(Service):
    """Reads and renews the lease periodically, and knows until when this node is the leader.

    That time is measured with a monotonic clock, from before the request to the database, so it never ends after the
    database's own time of expiry. A node that was suspended knows at once that its lease has expired.
    """

    name = "lease"
    log = Logger()

    def __init__(
        self,
        store: LeaseStore,
        worker: Worker,
        *,
        clock: Clock,
        candidate: Candidate,
        set_time: Callable[[int, float], object],
    ) -> None:
        """Make the service of a node that is not the leader yet.

        Args:
            store: for ``worker``, which must have one thread.
            worker: where the store is used.
            clock: runs evenly.
            candidate: this node.
            set_time: called with the database's time in Unix milliseconds, and when that was in seconds of ``clock``.
        """
        self._store = store
        self._worker = worker
        self._clock = clock
        self._candidate = candidate
        self._listeners: list[Callable[[], object]] = []
        self._set_time = set_time
        self._outpaced_since: int | None = None
        self._term: int | None = None
        self._until = 0.0
        self._renewed = clock.seconds()
        self._leader = ""
        self._timer: Timer | None = None
        self._failing = False
        self._differing = frozenset[str]()

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Call ``changed`` after this node has become the leader, and after it has ceased to be."""
        self._listeners.append(changed)

    def settings_changed(self, settings: bytes) -> None:
        """Compare another digest with those of the other nodes from the next renewal on."""
        self._candidate = evolve(self._candidate, settings=settings)

    @property
    def term(self) -> int | None:
        """See :class:`Leadership`."""
        return self._term if self._clock.seconds() < self._until else None

    @property
    def leader(self) -> str:
        """See :class:`Leadership`."""
        return self._leader

    @property
    def lease_age(self) -> float:
        """See :class:`Leadership`."""
        return max(self._clock.seconds() - self._renewed, 0.0)

    def lost(self, term: int) -> None:
        """See :class:`Leadership`."""
        if self._term == term:
            self._lead(None, 0.0)

    def startService(self) -> Deferred[None]:
        """Renew for the first time, so that the database's time is known before merchants are served."""
        super().startService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self.renew())

    def stopService(self) -> Deferred[None]:
        """Give the lease back; to be called when no more events are written and delivered."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._give_back())

    async def _give_back(self) -> None:
        try:
            await self._worker.run(give_back, self._store, self._state())
        except DatabaseUnavailable as error:
            self.log.info("the lease was not released, and expires: {why}", why=str(error))
        self._lead(None, 0.0)

    async def renew(self) -> None:
        """Read the lease and renew it if it is this node's; to be called every RENEW_SECONDS."""
        if not self.running:
            return
        began = self._clock.seconds()
        try:
            seen = await self._worker.run(renew_lease, self._store, self._state())
        except DatabaseUnavailable as error:
            # The lease runs out by itself.
            if not self._failing:
                self._failing = True
                self.log.warn("this node cannot look at the lease, and cannot lead without it: {why}", why=str(error))
            return
        ended = self._clock.seconds()
        if self._failing:
            self._failing = False
            self.log.info("this node can look at the lease again")
        self._compare(seen.differing)
        self._set_time(seen.now, (began + ended) / 2)
        self._outpaced_since, self._leader = seen.outpaced_since, seen.lease.holder
        remaining = (seen.lease.expires_at - seen.now) / 1000
        self._renewed = began + remaining - LEASE_MS / 1000
        if seen.lease.holder == self._candidate.name and self.running:
            self._lead(seen.lease.term, began + remaining - _MARGIN_SECONDS)
        else:
            self._lead(None, 0.0)

    def _state(self) -> NodeState:
        return NodeState(
            node=self._candidate.name,
            ready=self._candidate.ready(),
            work=self._candidate.work(),
            outpaced_since=self._outpaced_since,
            settings=self._candidate.settings,
        )

    def _compare(self, differing: frozenset[str]) -> None:
        if differing - self._differing:
            self.log.warn(
                "the [commerce] configuration of {nodes} differs from that of this node: which merchants are notified, "
                "and by which secrets, depends on who leads",
                nodes=" and ".join(sorted(differing)),
            )
        elif self._differing and not differing:
            self.log.info("all nodes of the database have the same [commerce] in their configuration")
        self._differing = differing

    def _lead(self, term: int | None, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        before, self._term, self._until = self._term, term, until
        if term is not None:
            self._timer = self._clock.callLater(max(until - self._clock.seconds(), 0), self._ran_out, term)
        if term == before:
            return
        if term is not None:
            self.log.info("this node is the leader in term {term}: it writes and delivers events", term=term)
        elif before is not None:
            self.log.info("this node is no longer the leader: another node writes and delivers events")
        for listener in self._listeners:
            listener()

    def _ran_out(self, term: int) -> None:
        self._timer = None
        self.lost(term)
