"""How far catching up has come: reckoned while it runs, and said once a second at most."""

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

from svcd.p2p.progress import Progress, Snapshot


@pytest.fixture
def said() -> Iterator[list[LogEvent]]:
    """What it writes to the log."""
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event["log_namespace"] == "svcd.p2p.progress.Progress":
            events.append(event)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


def test_nothing_is_known_before_and_after() -> None:
    progress = Progress(Clock())
    assert progress.snapshot() is None
    progress.begin(10, 110)
    assert progress.snapshot() is not None
    progress.end()
    assert progress.snapshot() is None


def test_rate_and_time_left() -> None:
    clock = Clock()
    progress = Progress(clock)
    clock.advance(100)
    progress.begin(10, 110)
    assert progress.snapshot() == Snapshot(10, 110, 0.0, 0.0)
    clock.advance(4)
    progress.connected(20, 30)
    assert progress.snapshot() == Snapshot(30, 110, 5.0, 16.0)
    clock.advance(4)
    progress.connected(60, 90)
    assert progress.snapshot() == Snapshot(90, 110, 10.0, 2.0)


def test_every_time_it_begins_anew() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.begin(0, 100)
    clock.advance(10)
    progress.connected(100, 100)
    progress.end()
    clock.advance(10)
    progress.begin(100, 200)
    clock.advance(10)
    progress.connected(10, 110)
    assert progress.snapshot() == Snapshot(110, 200, 1.0, 90.0)


def test_it_says_so_once_a_second_at_most(said: list[LogEvent]) -> None:
    clock = Clock()
    progress = Progress(clock)
    clock.advance(100)
    progress.begin(0, 1_000)
    for height in range(1, 31):
        clock.advance(0.1)
        progress.connected(1, height)
    assert 3 <= len(said) <= 4
    assert said[-1]["target"] == 1_000
    assert said[-1]["rate"] == 10.0


def test_it_says_nothing_of_blocks_that_come_by_themselves(said: list[LogEvent]) -> None:
    Progress(Clock()).connected(1, 1)
    assert said == []
