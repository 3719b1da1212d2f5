"""The log of alarms, and of whether the node is in sync."""

from collections.abc import Iterator

import pytest
from attrs import define
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.node.alarm_log import AlarmLog
from svcd.node.chain_alarms import DEEP


@define
class Shown:
    """What a node shows of itself."""

    behind: str = ""
    standstill: str = ""
    deep: str = ""
    alone: bool = False

    def alarms(self) -> dict[str, str]:
        return {"standstill": self.standstill, DEEP: self.deep}


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged in the test: level and text."""
    said: list[str] = []

    def observe(event: LogEvent) -> None:
        said.append(f"{event['log_level'].name}: {formatEvent(event)}")

    globalLogPublisher.addObserver(observe)
    yield said
    globalLogPublisher.removeObserver(observe)


def test_an_alarm_is_said_when_it_begins_and_when_it_is_over(lines: list[str]) -> None:
    shown = Shown()
    log = AlarmLog(lambda: shown.behind, lambda: shown.alone, shown.alarms)
    log.check()
    shown.standstill, shown.deep = "the chain here has stood still for 10 minutes", "undone"
    log.check()
    shown.standstill = "the chain here has stood still for 11 minutes"
    log.check()
    shown.standstill = shown.deep = ""
    log.check()
    assert lines == [
        "info: in sync with the network",
        "warn: alarm standstill: the chain here has stood still for 10 minutes",
        "info: the alarm standstill is over",
        "info: the alarm deep-reorganisation is over",
    ]


def test_a_lasting_reason_for_not_being_ready_is_logged_once(lines: list[str]) -> None:
    shown = Shown("no peer")
    log = AlarmLog(lambda: shown.behind, lambda: shown.alone, shown.alarms)
    for shown.behind in ("no peer", "no peer yet", "", "a block is on its way", "", "far behind", "far", "still", ""):
        log.check()
    assert lines == [
        "info: not in sync with the network: no peer",
        "info: in sync with the network",
        "info: not in sync with the network: far",
        "info: in sync with the network",
    ]


def test_a_node_that_is_alone_does_not_say_that_it_is_in_sync(lines: list[str]) -> None:
    shown = Shown(alone=True)
    log = AlarmLog(lambda: shown.behind, lambda: shown.alone, shown.alarms)
    for shown.alone, shown.behind in ((True, ""), (True, ""), (False, ""), (False, "far"), (False, "far"), (True, "")):
        log.check()
    assert lines == [
        "info: alone: makes its own chain; nothing compares it",
        "info: in sync with the network",
        "info: not in sync with the network: far",
        "info: alone: makes its own chain; nothing compares it",
    ]
