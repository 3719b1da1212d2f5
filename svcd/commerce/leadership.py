"""The lease by which one of several nodes leads (docs/operations.md "Several nodes").

Only the leader follows the chain for merchants and delivers. The first functions decide, without side effects, over
the rows that the nodes share in their database; all times are Unix milliseconds of the database's clock.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, Protocol

from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.interfaces import Clock, Timer, Worker, unix_seconds
from svcd.store.database import DatabaseUnavailable
from svcd.store.lease_store import LeaderLease, LeaseStore, NodeReport

LEASE_MS: Final = 10_000
"""How long a lease lasts that is not renewed."""
RENEW_SECONDS: Final = 2.0
"""How often the leader renews its lease, and the others look whether it has."""
SEEN_MS: Final = 6_000
"""A node that has not reported for so long counts as gone."""
OUTPACED_MS: Final = 10_000
"""How long a ready node must have a greater chain before the leader counts as behind: a block takes some seconds to
every node."""
_MARGIN_SECONDS: Final = 1.0
"""The leader stops so long before its lease ends, in case its clock runs slower than the database's."""


class Deposed(Exception):
    """Another node leads since ``term`` has ended: nothing of the transaction is committed."""

    def __init__(self, term: int) -> None:
        super().__init__(f"term {term} has ended")
        self.term = term


@frozen(kw_only=True)
class NodeState:
    """A node as it knows itself when it looks at the lease."""

    node: str
    """Different for each run of each node."""
    ready: bool
    work: int
    outpaced_since: int | None = None
    """Since when a ready node has had a greater chain; None if none has."""
    settings: bytes | None = None
    """A digest of what all nodes should have in common in their configuration."""


def outpaced(state: NodeState, others: Iterable[NodeReport], now: int) -> NodeState:
    """The state after a look at the reports of the ``others``."""
    if not any(report.work > state.work for report in _ready_others(state, others, now)):
        return evolve(state, outpaced_since=None)
    return state if state.outpaced_since is not None else evolve(state, outpaced_since=now)


def differing(state: NodeState, reports: Iterable[NodeReport], now: int) -> frozenset[str]:
    """The names of the other nodes whose configuration has other merchants, secrets or settings of webhooks."""
    return frozenset(
        each.node
        for each in reports
        if each.node != state.node
        and now - each.seen_at < SEEN_MS
        and None not in (each.settings, state.settings)
        and each.settings != state.settings
    )


def next_lease(lease: LeaderLease, state: NodeState, others: Iterable[NodeReport], now: int) -> LeaderLease | None:
    """What a node must replace ``lease`` by; None if there is nothing to change.

    A node that is not ready leads only as long as no other is: events that wait must be delivered even then.
    """
    fit = state.ready and (state.outpaced_since is None or now - state.outpaced_since < OUTPACED_MS)
    may_lead = fit or not any(_ready_others(state, others, now))
    if lease.holder == state.node:
        return LeaderLease(lease.term, state.node, now + LEASE_MS) if may_lead else released(lease, now)
    if lease.expires_at <= now and may_lead:
        return LeaderLease(lease.term + 1, state.node, now + LEASE_MS)
    return None


def released(lease: LeaderLease, now: int) -> LeaderLease:
    """The lease after its holder has given it back: any node may take it at once."""
    return LeaderLease(lease.term, "", now)


def _ready_others(state: NodeState, reports: Iterable[NodeReport], now: int) -> list[NodeReport]:
    return [each for each in reports if each.node != state.node and each.ready and now - each.seen_at < SEEN_MS]


class Role(StrEnum):
    """What a node does for merchants, as operators read it."""

    LEADER = "leader"
    """It follows the chain, tells and delivers."""
    STANDBY = "standby"
    """It serves requests, and takes over when the leader is gone."""


class Leadership(Protocol):
    """Whether this node leads those that share the database of webhooks."""

    @property
    def term(self) -> int | None:
        """The term in which this node leads; None while it does not."""

    @property
    def leader(self) -> str:
        """The name of the node that leads, as far as this one knows; "" if none does."""

    @property
    def lease_age(self) -> float:
        """How many seconds ago the leader renewed its lease."""

    def deposed(self, term: int) -> None:
        """Take note that the database has refused a transaction of ``term``."""


class Alone:
    """The leadership of a node whose database no other node uses."""

    term: int | None = 0
    leader = ""
    lease_age = 0.0

    def deposed(self, term: int) -> None:
        """Never called: nobody else takes over."""
        raise RuntimeError(f"nobody can depose the only node, in term {term}")


class DatabaseClock:
    """A clock whose Unix time is that of the database, once :meth:`told` was called; until then the computer's.

    Nodes whose clocks differ agree on when a watch expires, when an attempt is due and what time an event has.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lead: float | None = None
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self.getDelayedCalls = clock.getDelayedCalls

    def told(self, unix_ms: int, at: float) -> None:
        """Take note that the database's time was ``unix_ms`` at ``at``, in seconds of :meth:`seconds`."""
        self._lead = unix_ms / 1000 - at

    def unix_seconds(self) -> float:
        """The Unix time in seconds."""
        return unix_seconds(self._clock) if self._lead is None else self._clock.seconds() + self._lead


@frozen
class _Look:
    """What one look at the lease has shown."""

    now: int
    lease: LeaderLease
    """As this node has left it."""
    outpaced_since: int | None
    differing: frozenset[str]
    """The other nodes with another configuration."""


def look(store: LeaseStore, state: NodeState) -> _Look:
    """Report this node, and take, renew or give back the lease where that is this node's part."""
    now, lease, reports = store.now(), store.lease(), store.reports()
    state = outpaced(state, reports, now)
    wanted = next_lease(lease, state, reports, now)
    # Nothing is locked in between: a node that is stopped here replaces the lease only if nobody else has.
    if wanted is not None and store.replace(lease, wanted):
        lease = wanted
    store.report(NodeReport(state.node, now, state.ready, state.work, state.settings))
    return _Look(now, lease, state.outpaced_since, differing(state, reports, now))


def give_back(store: LeaseStore, state: NodeState) -> None:
    """Let another node lead at once, and count as not ready."""
    now, lease = store.now(), store.lease()
    if lease.holder == state.node:
        store.replace(lease, released(lease, now))
    store.report(NodeReport(state.node, now, False, state.work, state.settings))


@frozen(kw_only=True)
class Candidate:
    """This node, as the lease asks for it."""

    name: str
    """Different for each run of each node."""
    ready: Callable[[], bool]
    """Whether its chain is the network's, and not behind what merchants were told."""
    work: Callable[[], int]
    """The cumulative work of its chain."""
    settings: bytes | None = None
    """A digest of what all nodes should have in common in their configuration."""


class LeaseService(Service):
    """Looks at the lease again and again, and knows until when this node leads.

    That is measured by a clock that runs evenly, from before the lease was asked for: no longer than the database's own
    time of expiry. A node that was stopped meanwhile knows at once that it leads no longer.
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
        told: Callable[[int, float], object],
    ) -> None:
        """Make the service, which leads nothing yet.

        Args:
            store: for ``worker``, which must have one thread.
            worker: where the store is used.
            clock: runs evenly.
            candidate: this node.
            told: called with the database's time in Unix milliseconds, and when that was in seconds of ``clock``.
        """
        self._store = store
        self._worker = worker
        self._clock = clock
        self._candidate = candidate
        self._listeners: list[Callable[[], object]] = []
        self._told = told
        self._outpaced_since: int | None = None
        self._term: int | None = None
        self._until = 0.0
        self._renewed = clock.seconds()
        self._leader = ""
        self._timer: Timer | None = None
        self._failing = False
        self._differing = frozenset[str]()

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Call ``changed`` after this node has begun to lead, and after it has ceased to."""
        self._listeners.append(changed)

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

    def deposed(self, term: int) -> None:
        """See :class:`Leadership`."""
        if self._term == term:
            self._lead(None, 0.0)

    async def startService(self) -> None:
        """Look for the first time, so that the database's time is known before merchants are served."""
        super().startService()  # type: ignore[no-untyped-call]
        await self.renew()

    async def stopService(self) -> None:
        """Give the lease back; to be called when nothing more is to be told and delivered."""
        super().stopService()  # type: ignore[no-untyped-call]
        try:
            await self._worker.run(give_back, self._store, self._state())
        except DatabaseUnavailable as error:
            self.log.info("the lease was not given back, and ends by itself: {why}", why=str(error))
        self._lead(None, 0.0)

    async def renew(self) -> None:
        """Look at the lease once; to be called every RENEW_SECONDS."""
        if not self.running:
            return
        began = self._clock.seconds()
        try:
            seen = await self._worker.run(look, self._store, self._state())
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
        self._told(seen.now, (began + ended) / 2)
        self._outpaced_since, self._leader = seen.outpaced_since, seen.lease.holder
        left = (seen.lease.expires_at - seen.now) / 1000
        self._renewed = began + left - LEASE_MS / 1000
        if seen.lease.holder == self._candidate.name and self.running:
            self._lead(seen.lease.term, began + left - _MARGIN_SECONDS)
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
                "{nodes} has another [commerce] in its configuration than this node: which merchants are told, and by "
                "which secrets, depends on who leads",
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
            self.log.info("this node leads, in term {term}: it tells and delivers events", term=term)
        elif before is not None:
            self.log.info("this node leads no longer: it leaves telling and delivering events to another one")
        for listener in self._listeners:
            listener()

    def _ran_out(self, term: int) -> None:
        self._timer = None
        self.deposed(term)
