"""Which of several nodes leads: only the leader follows the chain for merchants and delivers (docs/operations.md).

Pure functions over what the nodes share in their database. All times are Unix milliseconds of the database's clock.
"""

from collections.abc import Iterable
from typing import Final

from attrs import evolve, frozen

from svcd.store.lease_store import LeaderLease, NodeReport

LEASE_MS: Final = 10_000
"""How long a lease lasts that is not renewed."""
RENEW_SECONDS: Final = 2.0
"""How often the leader renews its lease, and the others look whether it has."""
SEEN_MS: Final = 6_000
"""A node that has not reported for so long counts as gone."""
OUTPACED_MS: Final = 10_000
"""How long a ready node must have a greater chain before the leader counts as behind: a block takes some seconds to
every node."""


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


def outpaced(state: NodeState, others: Iterable[NodeReport], now: int) -> NodeState:
    """The state after a look at the reports of the ``others``."""
    if not any(report.work > state.work for report in _ready_others(state, others, now)):
        return evolve(state, outpaced_since=None)
    return state if state.outpaced_since is not None else evolve(state, outpaced_since=now)


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
