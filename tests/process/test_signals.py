"""One signal stops the process; another one during the stop is no error."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from attrs import define, field
from twisted.logger import LogEvent, globalLogPublisher

from svcd.process.signals import STOPPING, FirstSignal


@define
class Stage:
    """A reactor whose turn comes when the test says so, and what Twisted heard."""

    heard: list[int] = field(factory=list)
    running: list[Callable[[], object]] = field(factory=list)
    triggers: list[tuple[str, str, Callable[[], object]]] = field(factory=list)

    def callWhenRunning(self, call: Callable[[], object], /) -> None:  # noqa: N802
        self.running.append(call)

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[[], object], /) -> None:  # noqa: N802
        self.triggers.append((phase, event, call))

    def callFromThread(self, call: Callable[[], object], /) -> None:  # noqa: N802
        call()

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(number)


@pytest.fixture
def set_up() -> Iterator[Callable[[], Stage]]:
    """``set_up()``, called in the test, whose reactor has its own by then: Twisted hears, the node stands in front."""
    before: dict[signal.Signals, Any] = {}

    def stage() -> Stage:
        before.update({number: signal.getsignal(number) for number in STOPPING})
        stage = Stage()
        for number in STOPPING:
            signal.signal(number, stage.hear)
        FirstSignal(stage).install()
        assert signal.getsignal(signal.SIGTERM) == stage.hear
        for call in stage.running:
            call()
        return stage

    yield stage
    for number, old in before.items():
        signal.signal(number, old)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The messages of the log."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(str(event["log_format"]))

    observer: Any = observe
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


@pytest.mark.parametrize("second", STOPPING)
@pytest.mark.parametrize("first", STOPPING)
def test_twisted_hears_the_first_one(set_up: Callable[[], Stage], said: list[str], first: int, second: int) -> None:
    stage = set_up()
    signal.raise_signal(first)
    assert (stage.heard, said) == ([first], [])
    signal.raise_signal(second)
    assert stage.heard == [first]
    assert said == ["stopping already; SIGKILL ends the process at once, and what was committed stays"]


def test_a_node_that_stops_by_itself_hears_none(set_up: Callable[[], Stage], said: list[str]) -> None:
    stage = set_up()
    ((phase, event, stops),) = stage.triggers
    assert (phase, event) == ("before", "shutdown")
    stops()
    signal.raise_signal(signal.SIGTERM)
    assert (stage.heard, len(said)) == ([], 1)


def test_a_signal_that_is_ignored_stays_so(set_up: Callable[[], Stage]) -> None:
    stage = set_up()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for call in stage.running:
        call()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
