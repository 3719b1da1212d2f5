"""Deep reorganisations and a tip that does not move (docs/operations.md "Alarms")."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.chain.block import Block
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS
from svcd.node.alarms import DEEP, DEEP_BLOCKS, AlarmLog, ChainAlarms
from tests.chains import ChainBuilder
from tests.node.bench import Node

Fork = Callable[[int], tuple[list[Block], list[Block]]]


@pytest.fixture
def alarms(node: Node) -> ChainAlarms:
    """What is remembered of the chain of a node."""
    return ChainAlarms(node.chain_manager, node.clock)


@pytest.fixture
def fork(chain: ChainBuilder) -> Fork:
    """``fork(depth)``: as many blocks, and one more that take their place."""

    def make(depth: int) -> tuple[list[Block], list[Block]]:
        text = f"genesis: b[1..{depth}]\ngenesis: c[1..{depth + 1}]"
        blocks = chain.chain(text)
        names = [f"b{height}" for height in range(1, depth + 1)], [f"c{height}" for height in range(1, depth + 2)]
        return [blocks[name] for name in names[0]], [blocks[name] for name in names[1]]

    return make


@pytest.fixture
def warnings() -> Iterator[list[LogEvent]]:
    """The warnings of the test."""
    events: list[Any] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"].name == "warn":
            events.append(event)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


def test_deep_is_what_undoes_payments_with_the_usual_confirmations() -> None:
    assert DEEP_BLOCKS == DEFAULT_CONFIRMATIONS


def test_a_deep_reorganisation(node: Node, alarms: ChainAlarms, fork: Fork, warnings: list[LogEvent]) -> None:
    old, new = fork(12)
    node.submit(*old)
    assert alarms.deep_reorganisation() == ""
    node.submit(*new)
    said = "a reorganisation undid 12 blocks, from height 1 to 12: look at payments that were settled in them"
    assert (alarms.deep_reorganisation(), alarms.deep_reorganisations) == (said, 1)
    (warning,) = warnings
    assert (warning["left"], warning["tip"], warning["height"]) == (
        old[-1].header.hash.hex(),
        new[-1].header.hash.hex(),
        13,
    )
    node.clock.advance(86_399)
    assert alarms.deep_reorganisation() == said
    node.clock.advance(1)
    assert (alarms.deep_reorganisation(), alarms.deep_reorganisations) == ("", 1)


def test_a_shallower_one_is_none(node: Node, alarms: ChainAlarms, fork: Fork, warnings: list[LogEvent]) -> None:
    old, new = fork(11)
    node.submit(*old)
    node.submit(*new)
    assert node.chain_manager.tip.hash == new[-1].header.hash
    assert (alarms.deep_reorganisation(), alarms.deep_reorganisations, warnings) == ("", 0, [])


def test_how_long_the_tip_has_been_the_same(node: Node, alarms: ChainAlarms, fork: Fork) -> None:
    node.clock.advance(70)
    assert alarms.still_seconds == 70
    node.submit(*fork(1)[0])
    assert alarms.still_seconds == 0
    node.clock.advance(5)
    assert alarms.still_seconds == 5


@define
class Shown:
    """What a node shows of itself."""

    behind: str = ""
    standstill: str = ""
    deep: str = ""

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
    log = AlarmLog(lambda: shown.behind, shown.alarms)
    log.check()
    shown.standstill, shown.deep = "the chain here has stood still for 10 minutes", "undone"
    log.check()
    shown.standstill = "the chain here has stood still for 11 minutes"
    log.check()
    shown.standstill = shown.deep = ""
    log.check()
    assert lines == [
        "info: in step with the network",
        "warn: alarm standstill: the chain here has stood still for 10 minutes",
        "info: the alarm standstill is over",
        "info: the alarm deep-reorganisation is over",
    ]


def test_why_a_node_is_not_ready_is_said_once_unless_it_was_for_a_moment(lines: list[str]) -> None:
    shown = Shown("no peer")
    log = AlarmLog(lambda: shown.behind, shown.alarms)
    for shown.behind in ("no peer", "no peer yet", "", "a block is on its way", "", "far behind", "far", "still", ""):
        log.check()
    assert lines == [
        "info: not in step with the network: no peer",
        "info: in step with the network",
        "info: not in step with the network: far",
        "info: in step with the network",
    ]
