"""The lease: who may take it, and that no two nodes ever lead, wherever a node is stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from attrs import define, evolve, frozen
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from svcd.commerce.leadership import (
    LEASE_MS,
    OUTPACED_MS,
    RENEW_SECONDS,
    SEEN_MS,
    Candidate,
    DatabaseClock,
    LeaseService,
    NodeState,
    next_lease,
    outpaced,
    released,
)
from svcd.interfaces import milliseconds
from svcd.node.threads import InlineWorker
from svcd.store.database import WEBHOOKS, DatabaseConnection, DatabaseUnavailable, migrations
from svcd.store.lease_store import LeaderLease, LeaseStore, NodeReport
from svcd.store.sql_connection import SqliteConnection
from tests.support import result_of

NOW = 1_000_000
DAY = 86_400_000
MINE = LeaderLease(7, "me", NOW + 3_000)
THEIRS = LeaderLease(7, "them", NOW + 3_000)
FREE = LeaderLease(7, "them", NOW)
RENEWED = LeaderLease(7, "me", NOW + LEASE_MS)
TAKEN = LeaderLease(8, "me", NOW + LEASE_MS)
GIVEN_BACK = LeaderLease(7, "", NOW)
ME = NodeState(node="me", ready=True, work=100, settings=b"")
UNREADY = evolve(ME, ready=False)
THEM = NodeReport("them", NOW - SEEN_MS + 1, True, 100, b"")


@pytest.mark.parametrize(
    ("lease", "state", "others", "expected"),
    [
        pytest.param(MINE, ME, [], RENEWED, id="the leader renews"),
        pytest.param(THEIRS, ME, [], None, id="nobody takes a lease that runs"),
        pytest.param(FREE, ME, [THEM], TAKEN, id="one that has run out begins a new term"),
        pytest.param(released(THEIRS, NOW), ME, [], TAKEN, id="one given back as well"),
        pytest.param(FREE, UNREADY, [THEM], None, id="who is not ready leaves it to who is"),
        pytest.param(MINE, UNREADY, [THEM], GIVEN_BACK, id="and gives it back"),
        pytest.param(FREE, UNREADY, [], TAKEN, id="but leads if nobody is ready"),
        pytest.param(MINE, UNREADY, [evolve(THEM, ready=False)], RENEWED, id="and goes on"),
        pytest.param(FREE, UNREADY, [evolve(THEM, seen_at=NOW - SEEN_MS)], TAKEN, id="gone"),
        pytest.param(FREE, UNREADY, [evolve(THEM, seen_at=NOW + DAY)], TAKEN, id="by a clock that was ahead"),
        pytest.param(evolve(THEIRS, expires_at=NOW + LEASE_MS), ME, [], None, id="renewed just now"),
        pytest.param(evolve(THEIRS, expires_at=NOW + LEASE_MS + 60_000), ME, [], None, id="set a bit back"),
        pytest.param(evolve(THEIRS, expires_at=NOW + DAY), ME, [], TAKEN, id="from a clock that was ahead"),
        pytest.param(MINE, UNREADY, [evolve(THEM, node="me")], RENEWED, id="no other node"),
        pytest.param(
            MINE,
            evolve(ME, outpaced_since=NOW - OUTPACED_MS),
            [THEM],
            GIVEN_BACK,
            id="outpaced for too long",
        ),
        pytest.param(
            MINE,
            evolve(ME, outpaced_since=NOW - OUTPACED_MS + 1),
            [THEM],
            RENEWED,
            id="a block",
        ),
    ],
)
def test_the_role_of_a_node_by_its_lease(
    lease: LeaderLease, state: NodeState, others: list[NodeReport], expected: LeaderLease | None
) -> None:
    assert next_lease(lease, state, others, NOW) == expected


def test_a_node_is_outpaced_as_long_as_a_ready_node_has_a_greater_chain() -> None:
    here = evolve(THEM, seen_at=NOW)
    greater = evolve(here, work=101)
    assert outpaced(ME, [here], NOW).outpaced_since is None
    assert outpaced(ME, [evolve(greater, ready=False)], NOW).outpaced_since is None
    since = outpaced(ME, [here, greater], NOW)
    assert since.outpaced_since == NOW
    assert outpaced(since, [greater], NOW + 1).outpaced_since == NOW
    assert outpaced(since, [here], NOW + 1).outpaced_since is None


# The law, over the real statements


@define
class Line:
    """Between a node and the database."""

    reachable: bool = True
    between: Callable[[], object] = lambda: None
    """Called while the node has read the lease and has not replaced it."""
    timed: Callable[[], object] = lambda: None
    """Called when the database has told its time, and the answer is on its way."""


@frozen
class SqliteLeases(LeaseStore):
    """The lease in a database of SQLite's, whose clock is the test's."""

    clock: Clock
    line: Line

    def now(self) -> int:
        if not self.line.reachable:
            raise DatabaseUnavailable("cut off")
        now = milliseconds(self.clock) + 3_600_000
        self.line.timed()
        return now

    def replace(self, before: LeaderLease, after: LeaderLease) -> bool:
        self.line.between()
        return super().replace(before, after)

    def check(self, term: int) -> bool:
        return self.lease().term == term


@define(eq=False)
class Member:
    """One of the nodes."""

    service: LeaseService
    store: SqliteLeases
    line: Line
    stopped: bool = False
    ready: bool = True
    work: int = 1


class Members:
    """Nodes that share a lease."""

    def __init__(self, number: int) -> None:
        self.clock = Clock()
        self.database = DatabaseConnection(":memory:")
        for migration in migrations(WEBHOOKS):
            self.database.execute(migration.script)
        self.all = [self._member(str(each)) for each in range(number)]
        for member in self.all:
            result_of(member.service.startService())

    def _member(self, name: str) -> Member:
        line = Line()
        store = SqliteLeases(SqliteConnection(self.database), self.clock, line)
        candidate = Candidate(name=name, ready=lambda: member.ready, work=lambda: member.work, settings=b"new")
        time = DatabaseClock(self.clock)
        service = LeaseService(
            store, InlineWorker(), clock=self.clock, candidate=candidate, set_time=time.set_unix_time
        )
        member = Member(service, store, line)
        return member

    @property
    def leaders(self) -> list[Member]:
        return [member for member in self.all if member.service.term is not None]

    def wait(self, seconds: float, *, without: Member | None = None) -> None:
        """Let time pass; nodes look at the lease, but for those that are stopped."""
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.clock.advance(RENEW_SECONDS / 2)
            for at, member in enumerate(self.all):
                if not member.stopped and member is not without and int(self.clock.seconds()) % 2 == at % 2:
                    result_of(Deferred.fromCoroutine(member.service.renew()))
            assert len(self.leaders) <= 1

    def close(self) -> None:
        for member in self.all:
            member.line.reachable = True
            result_of(member.service.stopService())
        self.database.close()


@contextmanager
def members(number: int) -> Iterator[Members]:
    together = Members(number)
    yield together
    together.close()


def test_a_leader_that_stops_is_followed_within_twelve_seconds_and_one_that_ends_at_once() -> None:
    with members(3) as together:
        together.wait(2)
        (leader,) = together.leaders
        leader.stopped = True
        together.wait(LEASE_MS / 1000 + RENEW_SECONDS)
        (second,) = together.leaders
        assert second is not leader
        assert second.service.term == 2
        second.stopped = True
        result_of(second.service.stopService())
        together.wait(RENEW_SECONDS)
        (third,) = together.leaders
        assert third.service.term == 3
        assert third.service.leader == third.service._candidate.name


def test_a_leader_that_falls_behind_gives_way_and_without_a_database_nobody_leads() -> None:
    with members(2) as together:
        together.wait(4)
        (leader,) = together.leaders
        other = next(member for member in together.all if member is not leader)
        other.work = 2
        together.wait(8)
        assert together.leaders == [leader]
        together.wait(6)
        assert together.leaders == [other]
        other.ready = False
        together.wait(4)
        assert together.leaders == [leader]
        for member in together.all:
            member.line.reachable = False
        together.wait(10)
        assert together.leaders == []
        assert 9 < leader.service.lease_age < 13
        for member in together.all:
            member.line.reachable = True
        together.wait(4)
        assert len(together.leaders) == 1
        assert leader.service.lease_age < 2.5


def test_a_standby_that_is_suspended_while_it_reads_takes_no_lease_that_was_renewed_meanwhile() -> None:
    with members(2) as together:
        together.wait(4)
        (leader,) = together.leaders
        standby = next(member for member in together.all if member is not leader)
        term = leader.service.term

        def suspend() -> None:
            standby.line.timed = lambda: None
            together.wait(120, without=standby)

        standby.line.timed = suspend
        result_of(Deferred.fromCoroutine(standby.service.renew()))
        assert standby.store.lease().holder == leader.service.leader
        assert (together.leaders, leader.service.term) == ([leader], term)


def test_a_node_says_once_that_it_cannot_look_at_the_lease() -> None:
    """The connection for webhooks may work meanwhile, so nothing else says it."""
    with members(2) as together, capturedLogs() as logged:
        together.all[0].line.reachable = False
        together.wait(10)
        together.all[0].line.reachable = True
        together.wait(4)
    said = [(event["log_level"].name, event["log_format"]) for event in logged if "look at" in event["log_format"]]
    assert said == [
        ("warn", "this node cannot look at the lease, and cannot lead without it: {why}"),
        ("info", "this node can look at the lease again"),
    ]


def test_a_node_says_that_another_one_has_other_settings() -> None:
    with members(3) as together:
        other = together.all[1].service
        other.settings_changed(b"old")
        with capturedLogs() as logged:
            together.wait(8)
            other.settings_changed(b"new")
            together.wait(8)
    said = [event for event in logged if "[commerce]" in event["log_format"]]
    assert [event["log_level"].name for event in said] == ["warn"] * 3 + ["info"] * 3
    assert sorted(event["nodes"] for event in said if "nodes" in event) == ["0 and 2", "1", "1"]


class Leases(RuleBasedStateMachine):
    """Nodes that are stopped anywhere, cut off from the database, and behind others."""

    def __init__(self) -> None:
        super().__init__()
        self.members = Members(3)
        self.committed = 0
        """The greatest term of a transaction."""

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.members.wait(seconds)

    @rule(at=st.integers(0, 2), flags=st.tuples(st.booleans(), st.booleans(), st.booleans()), work=st.integers(1, 3))
    def change(self, at: int, flags: tuple[bool, bool, bool], work: int) -> None:
        member = self.members.all[at]
        member.stopped, member.line.reachable, member.ready = flags
        member.work = work

    @rule(at=st.integers(0, 2), seconds=st.integers(1, 40))
    def is_stopped_while_it_looks(self, at: int, seconds: int) -> None:
        member = self.members.all[at]
        member.line.between = lambda: self.members.wait(seconds, without=member)
        result_of(Deferred.fromCoroutine(member.service.renew()))
        member.line.between = lambda: None

    @precondition(lambda self: self.members.leaders)
    @rule(seconds=st.sampled_from([0, 0, 5, 12, 40]))
    def commits(self, seconds: int) -> None:
        """A transaction of the leader, which is stopped in the midst of it."""
        (leader,) = self.members.leaders
        term = leader.service.term
        assert term is not None
        self.members.wait(seconds, without=leader)
        if leader.store.check(term):
            assert term >= self.committed
            self.committed = term
        else:
            leader.service.lost(term)
            assert leader.service.term is None

    @rule()
    def all_is_well_again(self) -> None:
        for member in self.members.all:
            member.stopped, member.line.reachable, member.ready, member.work = False, True, True, 1
        self.members.wait(LEASE_MS / 1000 + 2 * RENEW_SECONDS)
        assert len(self.members.leaders) == 1

    @invariant()
    def at_most_one_leads(self) -> None:
        assert len(self.members.leaders) <= 1

    def teardown(self) -> None:
        self.members.close()


TestLeases = Leases.TestCase
TestLeases.settings = settings(stateful_step_count=25)


def test_the_databases_time_is_told_by_a_clock_that_is_an_hour_off() -> None:
    clock = Clock()
    clock.advance(1_000)
    time = DatabaseClock(clock)
    assert milliseconds(time) == 1_000_000
    assert time.doubt() == ""
    time.set_unix_time(4_600_000, 1_000.0)
    assert milliseconds(time) == 4_600_000
    clock.advance(2)
    assert milliseconds(time) == 4_602_000
    assert time.seconds() == 1_002.0
    assert time.doubt() == (
        "the clock of PostgreSQL differs by +3600 s from this computer's: no watch expires until both show the same "
        "time"
    )
    time.set_unix_time(1_061_000, 1_002.0)
    assert time.doubt() == ""
