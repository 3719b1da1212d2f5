"""The choice of what is requested of whom, on simulated lines: at their rate, nothing twice, nobody waited for."""

from collections.abc import Sequence
from typing import Final

import pytest
from attrs import define, field
from twisted.internet.task import Clock

from svcd.net.targets import Endpoint
from svcd.p2p.peer import Peer
from svcd.p2p.schedule import FIRST_BYTES, MAX_REQUESTS, Item, ItemsRequest, Schedule, Source

RATES: Final = (0.25, 1.0, 2.0, 8.0, 50.0)
ROUND_TRIPS: Final = (0.0, 0.05, 0.2, 0.3)
SIZE: Final = 100_000
STEP: Final = 0.005
WINDOW: Final = 64 * 1024 * 1024


@define(eq=False)
class Line:
    """A line, which all requests on it share equally."""

    mbits: float
    bytes: float = 0.0
    """Bytes that came down it."""


@define(eq=False)
class Simulation:
    """Peers at the ends of lines, from which items are fetched; the items are taken in their order."""

    items: list[Item]
    window: int = WINDOW
    independent: bool = False
    """Whether each item is of use alone, as chunks are."""
    now: float = 0.0
    schedule: Schedule[Item] = field()
    lines: dict[str, tuple[Line, float]] = field(factory=dict)
    """By endpoint, the line of a peer and its round trip in seconds."""
    come: dict[ItemsRequest[Item], float] = field(factory=dict)
    """The bytes that have come of each request."""
    taken: int = 0
    most: int = 0
    """The most bytes that were in the window."""

    @schedule.default
    def _all_wanted(self) -> Schedule[Item]:
        schedule: Schedule[Item] = Schedule(window=self.window, most_items=512, most_bytes=3 * 1024 * 1024)
        for item in self.items:
            schedule.want(item)
        return schedule

    def add(self, line: Line, round_trip: float) -> Source:
        number = len(self.lines)
        peer = Peer(Clock(), Endpoint(f"http://60.1.0.{number + 1}:8645"), bytes([number]) * 32, f"{number}", True, 0.0)
        source = self.schedule.sources[peer.endpoint] = Source(peer)
        self.lines[peer.endpoint] = line, round_trip
        return source

    def step(self, seconds: float) -> None:
        """Send the requests that are due, and let bytes come for so many seconds."""
        schedule = self.schedule
        urgent = self.items[self.taken]
        for source in sorted(schedule.sources.values(), key=lambda source: source.rank):
            while chosen := schedule.choose(source, self.now, urgent):
                self.come[schedule.begin(source, chosen, self.now)] = 0.0
        self.most = max(self.most, schedule.ahead)
        self.now += seconds
        coming = [request for request in self.come if self.now - request.began > self._of(request)[1]]
        for request in coming:
            line, _ = self._of(request)
            more = line.mbits * 125_000 * seconds / sum(self._of(each)[0] is line for each in coming)
            line.bytes += more
            self.come[request] += more
            request.received = int(self.come[request])
        for request in coming:
            if self.come[request] >= request.size:
                schedule.answered(request, request.items, request.size, self.now)
                self._end(request)
        first = schedule.first()
        for item in [request.first for request in schedule.requests] if self.independent else [first]:
            late = None if item is None else schedule.overdue(item, self.now)
            if late is not None:
                schedule.give_up(late, self.now)
                self._end(late)
        while self.taken < len(self.items) and self.items[self.taken].done:
            schedule.held -= self.items[self.taken].size
            self.taken += 1

    def _of(self, request: ItemsRequest[Item]) -> tuple[Line, float]:
        return self.lines[request.source.name]

    def _end(self, request: ItemsRequest[Item]) -> None:
        del self.come[request]
        self.schedule.end(request)

    def run(self, within: float) -> float:
        """The seconds until all items are here."""
        while self.taken < len(self.items):
            self.step(STEP)
            assert self.now < within, f"{self.taken} of {len(self.items)} have been taken"
        assert not self.schedule.requests
        assert self.schedule.ahead == 0
        return self.now


def items(count: int, size: int = SIZE) -> list[Item]:
    return [Item(order=number, size=size) for number in range(1, count + 1)]


def amount(mbits: float) -> int:
    """Bytes for which a line takes some forty seconds, at most, and two megabytes at least."""
    return min(20_000_000, max(int(40 * mbits * 125_000), 2_000_000))


def at_best(wanted: Sequence[Item], mbits: float) -> float:
    """The seconds that a line needs for the bytes alone."""
    return sum(item.size for item in wanted) / (mbits * 125_000)


@pytest.mark.parametrize("mbits", RATES)
@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
@pytest.mark.parametrize("size", [10_000, SIZE, 1_000_000])
def test_one_peer_delivers_at_the_rate_of_its_line(mbits: float, round_trip: float, size: int) -> None:
    wanted = items(amount(mbits) // size, size)
    simulation = Simulation(wanted)
    line = Line(mbits)
    simulation.add(line, round_trip)
    simulation.run(1.25 * at_best(wanted, mbits) + 8 * round_trip)
    assert line.bytes <= 1.02 * sum(item.size for item in wanted)


@pytest.mark.parametrize("mbits", RATES)
@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
@pytest.mark.parametrize("size", [SIZE, 720_000])
def test_eight_peers_behind_one_line_are_no_slower_than_one(mbits: float, round_trip: float, size: int) -> None:
    wanted = items(amount(mbits) // size, size)
    simulation = Simulation(wanted)
    line = Line(mbits)
    for _ in range(8):
        simulation.add(line, round_trip)
    simulation.run(1.25 * at_best(wanted, mbits) + 8 * round_trip)
    assert line.bytes <= 1.02 * sum(item.size for item in wanted), "something came twice"


@pytest.mark.parametrize("mbits", [0.1, 0.23, 2.0])
def test_idle_peers_behind_one_slow_line_take_little_over(mbits: float) -> None:
    """Two chunks are under way; each of the idle peers may be tried once, and is found to be no faster."""
    wanted = items(8, 720_000)
    simulation = Simulation(wanted, window=2 * 720_000, independent=True)
    line = Line(mbits)
    for _ in range(8):
        simulation.add(line, 0.2)
    simulation.run(1.5 * at_best(wanted, mbits))
    assert line.bytes <= 1.5 * 8 * 720_000


@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
def test_a_slow_peer_holds_nobody_up(round_trip: float) -> None:
    """What all others wait for is requested again of a fast peer, and the slow one gets little after that."""
    wanted = items(600)
    simulation = Simulation(wanted)
    slow, fast = Line(0.25), Line(8.0)
    simulation.add(slow, round_trip)
    simulation.add(fast, round_trip)
    simulation.run(1.3 * at_best(wanted, 8.0) + 8 * round_trip)
    assert fast.bytes <= 1.02 * sum(item.size for item in wanted)


def test_a_peer_that_stops_in_the_middle_is_not_waited_for() -> None:
    wanted = items(100)
    simulation = Simulation(wanted)
    stops, goes_on = Line(8.0), Line(8.0)
    first, _ = simulation.add(stops, 0.05), simulation.add(goes_on, 0.05)
    for _ in range(50):
        simulation.step(0.01)
    stops.mbits = 1e-9
    before = simulation.now
    assert simulation.run(before + at_best(wanted, 8.0) + 12.0) < before + at_best(wanted, 8.0) + 12.0
    assert first.rests_until >= simulation.now, "it rests"


def test_the_window_is_kept_but_for_the_item_that_all_wait_for() -> None:
    wanted = items(400)
    simulation = Simulation(wanted, window=10 * SIZE)
    slow = simulation.add(Line(0.25), 0.3)
    for _ in range(3):
        simulation.add(Line(50.0), 0.0)
    simulation.run(400.0)
    assert simulation.most <= 11 * SIZE
    assert slow.requests == 0


def test_a_peer_has_no_more_requests_than_it_may() -> None:
    simulation = Simulation(items(1_000))
    source = simulation.add(Line(50.0), 0.3)
    source.rate = 1e9
    simulation.step(0.01)
    assert source.requests == MAX_REQUESTS


def test_what_a_peer_lacks_is_requested_of_others() -> None:
    wanted = items(3)
    simulation = Simulation(wanted)
    one, other = simulation.add(Line(8.0), 0.0), simulation.add(Line(8.0), 0.0)
    schedule = simulation.schedule
    request = schedule.begin(one, schedule.choose(one, 0.0), 0.0)
    assert list(request.items) == wanted[: FIRST_BYTES // SIZE]
    schedule.answered(request, [wanted[1]], SIZE, 1.0)
    schedule.end(request)
    assert schedule.choose(one, 1.0) == [wanted[2]]
    assert schedule.choose(other, 1.0) == [wanted[0], wanted[2]]
    schedule.came(wanted[0])
    assert schedule.choose(other, 1.0) == [wanted[2]]


def test_nothing_is_requested_of_a_peer_that_rests_or_has_only_later_items() -> None:
    simulation = Simulation(items(3))
    source = simulation.add(Line(8.0), 0.0)
    schedule = simulation.schedule
    source.least = 3
    assert [item.order for item in schedule.choose(source, 0.0)] == [3]
    request = schedule.begin(source, schedule.choose(source, 0.0), 0.0)
    source.fail(5.0)
    schedule.end(request)
    assert schedule.choose(source, 5.0) == []
    source.paused, source.least = True, 0
    assert schedule.choose(source, 1e6) == []
    source.paused = False
    assert [item.order for item in schedule.choose(source, 1e6)] == [1], "it is slow, and gets one at a time"
