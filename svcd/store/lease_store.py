"""The SQL of the lease, by which one of the nodes that share a PostgreSQL database leads (docs/scaling.md).

Times are Unix milliseconds of the database's clock.
"""

from typing import Final

from attrs import frozen

from svcd.store.sql_connection import SqlConnection

_REPORTS_KEPT_MS: Final = 86_400_000
_LOST_TERMS: Final = 1_000
"""More than may have begun in the transactions that a promoted standby lacks."""
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@frozen
class LeaderLease:
    """The right to lead."""

    term: int
    """Grows with each change of the leader: a transaction of an earlier term fails."""
    holder: str
    """The leader; "" if the lease was given back."""
    expires_at: int


@frozen
class NodeReport:
    """The state of a node, as it has reported it to the others."""

    node: str
    seen_at: int
    ready: bool
    """Whether its chain is the network's, as far as the node knows."""
    work: int
    """The cumulative work of its chain."""
    settings: bytes
    """A digest of what all nodes should have in common in their configuration."""


@frozen
class LeaseStore:
    """The lease, and the reports of the nodes; for one thread. Raises DatabaseUnavailable."""

    connection: SqlConnection

    def now(self) -> int:
        """The database's time."""
        return int(self.connection.execute(_NOW).fetchone()[0])

    def lease(self) -> LeaderLease:
        """The current lease."""
        return LeaderLease(*self.connection.execute("SELECT term, holder, expires_at FROM lease").fetchone())

    def replace(self, before: LeaderLease, after: LeaderLease) -> bool:
        """Replace the lease if it is still ``before``; returns whether it was replaced."""
        changed = self.connection.change(
            "UPDATE lease SET term = ?, holder = ?, expires_at = ? WHERE term = ? AND holder = ? AND expires_at = ?",
            (after.term, after.holder, after.expires_at, before.term, before.holder, before.expires_at),
        )
        return changed == 1

    def end_terms(self) -> None:
        """End all terms, even those that nodes have begun in transactions that the database has lost."""
        self.connection.execute("UPDATE lease SET term = term + ?, holder = '', expires_at = 0", (_LOST_TERMS,))

    def check(self, term: int) -> bool:
        """Whether no newer term has begun, and none begins before the end of the transaction."""
        row = self.connection.execute("SELECT term FROM lease WHERE term = ? FOR SHARE", (term,)).fetchone()
        return row is not None

    def report(self, report: NodeReport) -> None:
        """Write the report of a node, and delete reports that are older than a day."""
        self.connection.execute(
            "INSERT INTO node_report (node, seen_at, ready, work, settings) VALUES (?, ?, ?, ?, ?) ON CONFLICT (node) "
            "DO UPDATE SET seen_at = excluded.seen_at, ready = excluded.ready, work = excluded.work, "
            "settings = excluded.settings",
            (report.node, report.seen_at, int(report.ready), report.work.to_bytes(32, "big"), report.settings),
        )
        self.connection.execute("DELETE FROM node_report WHERE seen_at < ?", (report.seen_at - _REPORTS_KEPT_MS,))

    def reports(self) -> list[NodeReport]:
        """The reports of all nodes."""
        rows = self.connection.execute("SELECT node, seen_at, ready, work, settings FROM node_report ORDER BY node")
        return [
            NodeReport(node, seen_at, bool(ready), int.from_bytes(work, "big"), settings)
            for node, seen_at, ready, work, settings in rows
        ]
