"""What is remembered of the changes of the chain for alarms."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from svcd.chain.block import Block
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS
from svcd.node.chain_alarms import DEEP_BLOCKS, ChainAlarms
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
    assert (warning["old_tip"], warning["tip"], warning["height"]) == (
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


def test_still_seconds_counts_from_the_last_change_of_the_tip(node: Node, alarms: ChainAlarms, fork: Fork) -> None:
    node.clock.advance(70)
    assert alarms.still_seconds == 70
    node.submit(*fork(1)[0])
    assert alarms.still_seconds == 0
    node.clock.advance(5)
    assert alarms.still_seconds == 5
