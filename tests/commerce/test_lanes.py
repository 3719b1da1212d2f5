"""Which lane is sent next: the rules one by one, a model of them all, and what a dead host costs the others."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from svcd.commerce.callback_host import Change, Outcome, Task, Turn
from svcd.commerce.lanes import Lanes
from svcd.commerce.outbox import Lane
from svcd.commerce.schedule import LONGEST
from tests.commerce.naive_lanes import Naive

NOW = 1_000_000_000
SECOND = 1000
HOUR = 3_600_000


def put(lanes: Lanes, *names: str, due: int = NOW, now: int = NOW) -> None:
    """Lanes by names such as "shop/1": the host, and what tells its watches apart."""
    for name in names:
        lanes.put(lane(name, due), now)


def lane(name: str, due: int = NOW) -> Lane:
    return Lane(name, name.partition("/")[0], due)


def drain(lanes: Lanes, now: int = NOW) -> list[Turn]:
    turns = []
    while (turn := lanes.take(now)) is not None:
        turns.append(turn)
    return turns


def names(turns: list[Turn]) -> list[str]:
    return [turn.lane.watch for turn in turns]


def end(lanes: Lanes, turn: Turn, outcome: Outcome, *, due: int | None = None, now: int = NOW) -> Change:
    return lanes.end(turn, outcome, None if due is None else lane(turn.lane.watch, due), now)


def fail(lanes: Lanes, turns: list[Turn], *, due: int = NOW + HOUR, now: int = NOW) -> list[Change]:
    return [end(lanes, turn, Outcome.FAILED, due=due, now=now) for turn in turns]


def break_host(lanes: Lanes, host: str = "shop", *, due: int = NOW + HOUR, now: int = NOW) -> None:
    put(lanes, *(f"{host}/{number}" for number in range(5)), due=now, now=now)
    fail(lanes, drain(lanes, now), due=due, now=now)
    assert fail(lanes, drain(lanes, now), due=due, now=now) == [Change.OPENED]


def test_nothing_waits_at_first() -> None:
    lanes = Lanes()
    assert lanes.take(NOW) is None
    assert lanes.next_at(NOW) is None


def test_one_event_of_a_watch_is_under_way_at_a_time() -> None:
    lanes = Lanes()
    put(lanes, "shop/1")
    [turn] = drain(lanes)
    put(lanes, "shop/1")
    assert drain(lanes) == []
    end(lanes, turn, Outcome.ACCEPTED, due=NOW)
    assert names(drain(lanes)) == ["shop/1"]


def test_what_became_due_meanwhile_is_sent_next() -> None:
    lanes = Lanes()
    put(lanes, "shop/1")
    [turn] = drain(lanes)
    put(lanes, "shop/1", due=NOW + 5)
    end(lanes, turn, Outcome.ACCEPTED)
    assert lanes.next_at(NOW) == NOW + 5


def test_what_the_outbox_says_at_the_end_is_newer_than_what_became_due_meanwhile() -> None:
    lanes = Lanes()
    put(lanes, "shop/1")
    [turn] = drain(lanes)
    put(lanes, "shop/1")
    end(lanes, turn, Outcome.FAILED, due=NOW + 5 * SECOND)
    assert lanes.next_at(NOW) == NOW + 5 * SECOND


def test_a_lane_waits_until_it_is_due() -> None:
    lanes = Lanes()
    put(lanes, "shop/1", due=NOW + 10)
    assert drain(lanes, NOW + 9) == []
    assert lanes.next_at(NOW + 9) == NOW + 10
    assert names(drain(lanes, NOW + 10)) == ["shop/1"]


def test_a_lane_that_is_put_again_is_due_as_was_said_last() -> None:
    lanes = Lanes()
    put(lanes, "shop/1", due=NOW + 10)
    put(lanes, "shop/1", due=NOW + 20)
    assert drain(lanes, NOW + 19) == []
    put(lanes, "shop/1", due=NOW + 5, now=NOW + 19)
    assert names(drain(lanes, NOW + 19)) == ["shop/1"]
    assert lanes.waiting == 0


def test_one_host_has_four_places_and_all_have_thirty_two() -> None:
    lanes = Lanes()
    put(lanes, *(f"host{host}/{number}" for host in range(10) for number in range(10)))
    turns = drain(lanes)
    assert len(turns) == lanes.in_flight == 32
    assert lanes.next_at(NOW) is None
    end(lanes, turns[0], Outcome.ACCEPTED)
    assert len(drain(lanes)) == 1

    alone = Lanes()
    put(alone, *(f"shop/{number}" for number in range(10)))
    first = drain(alone)
    assert names(first) == ["shop/0", "shop/1", "shop/2", "shop/3"]
    end(alone, first[2], Outcome.ACCEPTED)
    assert names(drain(alone)) == ["shop/4"]


def test_lanes_of_one_host_go_in_the_order_in_which_they_are_due() -> None:
    lanes = Lanes()
    put(lanes, "shop/late", due=NOW - 1)
    put(lanes, "shop/later", due=NOW)
    put(lanes, "shop/first", due=NOW - 100)
    assert names(drain(lanes)) == ["shop/first", "shop/late", "shop/later"]


def test_hosts_take_turns() -> None:
    lanes = Lanes()
    put(lanes, *(f"large/{number}" for number in range(100)), due=NOW - HOUR)
    put(lanes, "small/1", "small/2", "other/1")
    assert names(drain(lanes)) == [
        *("large/0", "small/1", "other/1", "large/1", "small/2", "large/2", "large/3"),
    ]


def test_five_failures_in_a_row_break_a_host() -> None:
    lanes = Lanes()
    put(lanes, *(f"shop/{number}" for number in range(20)))
    assert fail(lanes, drain(lanes)) == [Change.NONE] * 4
    turns = drain(lanes)
    assert fail(lanes, turns) == [Change.OPENED, *[Change.NONE] * 3]
    assert lanes.broken == 1
    assert drain(lanes, NOW + 4_999) == []
    assert lanes.next_at(NOW) == NOW + 5_000
    [probe] = drain(lanes, NOW + 5_000)
    assert (probe.lane.watch, probe.task) == ("shop/8", Task.PROBE)


def test_a_success_between_them_counts() -> None:
    lanes = Lanes()
    put(lanes, *(f"shop/{number}" for number in range(9)))
    fail(lanes, drain(lanes))
    turns = drain(lanes)
    end(lanes, turns[0], Outcome.ACCEPTED)
    assert fail(lanes, turns[1:]) == [Change.NONE] * 3
    assert lanes.broken == 0


def test_probes_become_rarer() -> None:
    lanes = Lanes()
    put(lanes, *(f"shop/{number}" for number in range(100)))
    fail(lanes, drain(lanes), due=NOW + 90 * HOUR)
    fail(lanes, drain(lanes), due=NOW + 90 * HOUR)
    now, pauses = NOW, []
    for _ in range(8):
        at = lanes.next_at(now)
        assert at is not None
        pauses.append((at - now) // SECOND)
        now = at
        [probe] = drain(lanes, now)
        fail(lanes, [probe], due=now + 90 * HOUR, now=now)
    assert pauses == [5, 30, 120, 600, 1800, 1800, 1800, 1800]


def test_a_probe_needs_a_lane_that_is_due() -> None:
    lanes = Lanes()
    break_host(lanes)
    assert lanes.next_at(NOW) == NOW + HOUR


def test_a_probe_that_was_not_sent_decides_nothing() -> None:
    lanes = Lanes()
    break_host(lanes, due=NOW + SECOND)
    [probe] = drain(lanes, NOW + 5 * SECOND)
    assert end(lanes, probe, Outcome.UNTRIED, now=NOW + 5 * SECOND) is Change.NONE
    [probe] = drain(lanes, NOW + 5 * SECOND)
    assert probe.task is Task.PROBE


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REFUSED])
def test_any_answer_mends_a_host(outcome: Outcome) -> None:
    lanes = Lanes()
    break_host(lanes, due=NOW + HOUR)
    put(lanes, "shop/new")
    [probe] = drain(lanes, NOW + 5 * SECOND)
    assert end(lanes, probe, outcome, now=NOW + 5 * SECOND) is Change.CLOSED
    assert lanes.broken == 0
    assert len(drain(lanes, NOW + 5 * SECOND)) == 4


def test_a_success_wakes_those_who_wait_in_the_order_in_which_they_are_due() -> None:
    lanes = Lanes()
    put(lanes, "shop/a", "shop/b", "shop/c")
    for hours, turn in zip((3, 1, 2), drain(lanes), strict=True):
        end(lanes, turn, Outcome.FAILED, due=NOW + hours * HOUR)
    put(lanes, "shop/new", "other/x")
    new, other = drain(lanes)
    end(lanes, other, Outcome.ACCEPTED)
    assert drain(lanes) == []
    end(lanes, new, Outcome.ACCEPTED)
    woken = drain(lanes)
    assert names(woken) == ["shop/b", "shop/c", "shop/a"]
    assert all(turn.early for turn in woken)


def test_who_is_woken_in_vain_then_waits_for_the_time() -> None:
    """Where one path of a host works and another does not, successes here must not use up the attempts there."""
    lanes = Lanes()
    put(lanes, "shop/bad")
    fail(lanes, drain(lanes), due=NOW + HOUR)
    for expected in (["shop/bad"], [], []):
        put(lanes, "shop/good")
        [good] = drain(lanes)
        end(lanes, good, Outcome.ACCEPTED)
        woken = drain(lanes)
        assert names(woken) == expected
        fail(lanes, woken, due=NOW + 2 * HOUR)
    assert names(drain(lanes, NOW + 2 * HOUR)) == ["shop/bad"]


def test_who_was_refused_is_not_woken() -> None:
    lanes = Lanes()
    put(lanes, "shop/refused", "shop/good")
    refused, good = drain(lanes)
    end(lanes, refused, Outcome.REFUSED, due=NOW + HOUR)
    end(lanes, good, Outcome.ACCEPTED)
    assert drain(lanes) == []


def test_the_end_of_an_outage_wakes_all() -> None:
    lanes = Lanes()
    put(lanes, "shop/refused")
    [refused] = drain(lanes)
    end(lanes, refused, Outcome.REFUSED, due=NOW + 2 * HOUR)
    break_host(lanes, due=NOW + HOUR)
    put(lanes, "shop/new")
    [probe] = drain(lanes, NOW + 5 * SECOND)
    end(lanes, probe, Outcome.ACCEPTED, now=NOW + 5 * SECOND)
    seen: list[str] = []
    while turns := drain(lanes, NOW + 5 * SECOND):
        seen += names(turns)
        for turn in turns:
            end(lanes, turn, Outcome.ACCEPTED, now=NOW + 5 * SECOND)
    assert seen == ["shop/0", "shop/1", "shop/2", "shop/3", "shop/4", "shop/refused"]


def test_a_cancelled_watch_gets_no_turn() -> None:
    lanes = Lanes()
    put(lanes, "shop/1", "shop/2")
    lanes.cancel("shop/1", NOW)
    lanes.cancel("shop/unknown", NOW)
    [turn] = drain(lanes)
    assert turn.lane.watch == "shop/2"
    put(lanes, "shop/2")
    lanes.cancel("shop/2", NOW)
    put(lanes, "shop/2")
    end(lanes, turn, Outcome.FAILED, due=NOW)
    assert drain(lanes) == []
    assert lanes.hosts == 0


def test_after_so_long_a_time_a_broken_hosts_lanes_are_given_up() -> None:
    lanes = Lanes()
    break_host(lanes, due=NOW + 1000 * HOUR)
    put(lanes, *(f"shop/late{number}" for number in range(200)))
    now = NOW
    while now < NOW + LONGEST - HOUR:
        now = lanes.next_at(now) or pytest.fail("nothing is due any more")
        [probe] = drain(lanes, now)
        assert probe.task is Task.PROBE
        fail(lanes, [probe], due=NOW + 1000 * HOUR, now=now)
    put(lanes, "shop/new", due=now, now=now)
    given_up = []
    while now < NOW + LONGEST + HOUR:
        now = lanes.next_at(now) or pytest.fail("nothing is due any more")
        for turn in drain(lanes, now):
            if turn.task is Task.GIVE_UP:
                given_up.append(turn.lane.watch)
                end(lanes, turn, Outcome.UNTRIED, now=now)
            else:
                fail(lanes, [turn], due=NOW + 1000 * HOUR, now=now)
    assert len(given_up) > 10
    assert "shop/new" not in given_up


def test_a_lane_that_is_old_only_because_the_node_was_off_is_tried() -> None:
    lanes = Lanes()
    put(lanes, *(f"shop/{number}" for number in range(50)), due=NOW - 2 * LONGEST)
    fail(lanes, drain(lanes))
    fail(lanes, drain(lanes))
    assert drain(lanes, NOW + 4 * SECOND) == []
    [probe] = drain(lanes, NOW + 5 * SECOND)
    assert probe.task is Task.PROBE


def test_hosts_without_lanes_are_forgotten() -> None:
    lanes = Lanes()
    for number in range(10_000):
        put(lanes, f"host{number}/1", due=NOW + number % 2)
        lanes.cancel(f"host{number}/1", NOW)
    assert size_of(lanes) < 1_000
    break_host(lanes)
    for number in range(5):
        lanes.cancel(f"shop/{number}", NOW)
    assert (lanes.hosts, lanes.waiting, lanes.in_flight, lanes.broken) == (0, 0, 0, 0)
    assert size_of(lanes) < 1_000


def test_a_lane_that_is_put_again_and_again_takes_no_room() -> None:
    lanes = Lanes()
    for number in range(10_000):
        put(lanes, "shop/1", due=NOW + 10_000 - number)
    assert size_of(lanes) < 1_000
    assert lanes.next_at(NOW) == NOW + 1


def test_lanes_keep_their_order_when_others_are_cleared_away() -> None:
    lanes = Lanes()
    dues = [(number * 7919) % 1_009 for number in range(400)]
    for number, due in enumerate(dues):
        put(lanes, f"shop/{number}", due=NOW - 2_000 + due)
    for number in range(400):
        if number % 4:
            lanes.cancel(f"shop/{number}", NOW)
    seen = []
    while (turn := lanes.take(NOW)) is not None:
        seen.append(turn.lane.due - NOW + 2_000)
        end(lanes, turn, Outcome.UNTRIED)
    assert seen == sorted(dues[::4])


def test_a_host_that_is_put_again_does_not_forget_that_it_is_broken() -> None:
    lanes = Lanes()
    put(lanes, "shop/1")
    for _ in range(5):
        fail(lanes, drain(lanes), due=NOW)
    assert lanes.broken == 1
    put(lanes, "shop/1", due=NOW + 1)
    assert lanes.broken == 1
    assert lanes.next_at(NOW) == NOW + 5 * SECOND


def size_of(lanes: Lanes) -> int:
    """Everything that is kept, counted."""
    hosts = list(lanes._hosts.values())
    return (
        len(lanes._timers)
        + len(lanes._queue)
        + len(lanes._waiting)
        + sum(len(host._called) + len(host._waiting) + len(host._patient) for host in hosts)
    )


class Counted(int):
    """A due time that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_dead_host_with_twenty_five_thousand_lanes_costs_the_others_nothing() -> None:
    lanes = Lanes()
    for number in range(25_000):
        put(lanes, f"dead/{number}", due=Counted(NOW - number % 1000))
    fail(lanes, drain(lanes))
    fail(lanes, drain(lanes))
    assert lanes.broken == 1
    Counted.comparisons = 0
    now = NOW
    for number in range(1_000):
        now += SECOND
        put(lanes, f"shop{number % 50}/{number}", due=now, now=now)
        for turn in drain(lanes, now):
            if turn.lane.host == "dead":
                fail(lanes, [turn], due=Counted(now + HOUR), now=now)
            else:
                assert turn.lane.watch == f"shop{number % 50}/{number}"
                end(lanes, turn, Outcome.ACCEPTED, now=now)
    # In 1,000 s the dead host has five probes, each a few comparisons deep into its heap.
    assert 0 < Counted.comparisons < 1_000


def test_waking_twenty_five_thousand_lanes_looks_at_none_of_them() -> None:
    lanes = Lanes()
    for number in range(25_000):
        put(lanes, f"shop/{number}", due=Counted(NOW + HOUR + number))
    put(lanes, "shop/new")
    [new] = drain(lanes)
    Counted.comparisons = 0
    end(lanes, new, Outcome.ACCEPTED)
    for _ in range(5):
        turns = drain(lanes)
        assert len(turns) == 4
        for turn in turns:
            end(lanes, turn, Outcome.ACCEPTED)
    assert Counted.comparisons < 5_000


HOSTS = [f"host{number}" for number in range(12)]


class LanesModel(RuleBasedStateMachine):
    """Lanes beside the naive ones, with the same things done to both."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.naive = Naive()
        self.now = NOW
        self.turns: dict[str, Turn] = {}
        self.passed_over: dict[str, set[str]] = {}

    @rule(host=st.sampled_from(HOSTS[:4]), number=st.integers(0, 9), wait=st.integers(-2, 20))
    def put(self, host: str, number: int, wait: int) -> None:
        self._put(Lane(f"{host}/{number}", host, self.now + wait * SECOND))

    @rule(hosts=st.integers(1, 12), wait=st.integers(-2, 3))
    def put_many(self, hosts: int, wait: int) -> None:
        for host in HOSTS[:hosts]:
            for number in range(5):
                self._put(Lane(f"{host}/{number}", host, self.now + wait * SECOND))

    def _put(self, lane: Lane) -> None:
        self.lanes.put(lane, self.now)
        self.naive.put(lane)

    @rule(host=st.sampled_from(HOSTS[:4]), number=st.integers(0, 9))
    def cancel(self, host: str, number: int) -> None:
        self.lanes.cancel(f"{host}/{number}", self.now)
        self.naive.cancel(f"{host}/{number}")

    @rule()
    def take(self) -> None:
        self._take()

    @rule()
    def take_all(self) -> None:
        while self._take():
            pass

    def _take(self) -> bool:
        possible = self.naive.turns(self.now)
        turn = self.lanes.take(self.now)
        # Nobody has two turns while another host waits for its own.
        self.passed_over = {host: self.passed_over.get(host, set()) for host in possible}
        if turn is None:
            assert not possible
            return False
        host = turn.lane.host
        assert possible[host] == (turn.lane, turn.task, turn.early)
        assert all(host not in seen for other, seen in self.passed_over.items() if other != host)
        for seen in self.passed_over.values():
            seen.add(host)
        del self.passed_over[host]
        self.naive.take(turn.lane.watch, possible[host])
        self.turns[turn.lane.watch] = turn
        return True

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), wait=st.one_of(st.none(), st.integers(0, 40)))
    def end(self, data: Any, outcome: Outcome, wait: int | None) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.turns))), outcome, wait)

    @precondition(lambda self: self.turns)
    @rule(outcome=st.sampled_from([Outcome.FAILED, Outcome.FAILED, Outcome.ACCEPTED]), wait=st.integers(0, 40))
    def end_all(self, outcome: Outcome, wait: int) -> None:
        for watch in sorted(self.turns):
            self._end(watch, outcome, wait)

    def _end(self, watch: str, outcome: Outcome, wait: int | None) -> None:
        turn = self.turns.pop(watch)
        again = None if wait is None else Lane(watch, turn.lane.host, self.now + wait * SECOND)
        before = self.naive.breakers.get(turn.lane.host)
        was_broken = before is not None and before.broken_since is not None
        failures = before.failures if before is not None else 0
        change = self.lanes.end(turn, outcome, again, self.now)
        opens = outcome is Outcome.FAILED and not was_broken and failures == 4
        closes = outcome in (Outcome.ACCEPTED, Outcome.REFUSED) and was_broken
        assert change is (Change.OPENED if opens else Change.CLOSED if closes else Change.NONE)
        self.naive.end(watch, outcome, again, self.now)

    @rule(seconds=st.one_of(st.integers(0, 40), st.sampled_from([600, 1800, LONGEST // SECOND])))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        if seconds:
            self._look()

    @rule()
    def wait_for_the_next(self) -> None:
        at = self.lanes.next_at(self.now)
        if at is not None and at > self.now:
            assert not self.naive.turns(at - 1)
            self.now = at
            self._look()

    def _look(self) -> None:
        """Hosts that have become ready stand behind those that were, as of now."""
        possible = self.naive.turns(self.now)
        self.passed_over = {host: self.passed_over.get(host, set()) for host in possible}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert self.lanes.waiting == len(self.naive.waiting)
        assert self.lanes.in_flight == len(self.naive.flying) <= 32
        assert self.lanes.hosts == len(self.naive.hosts())
        assert self.lanes.broken == self.naive.broken()
        if self.naive.turns(self.now):
            at = self.lanes.next_at(self.now)
            assert at is not None
            assert at <= self.now


TestModel = LanesModel.TestCase
TestModel.settings = settings(settings.default, stateful_step_count=60)
