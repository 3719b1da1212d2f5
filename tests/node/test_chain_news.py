"""A line for each new tip and each reorganisation."""

from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.chain.block import Block
from svcd.node.chain_alarms import DEEP_BLOCKS
from svcd.node.chain_news import ChainNews
from svcd.node.news import News
from tests.chains import ChainBuilder
from tests.node.bench import Node
from tests.support import result_of


@pytest.fixture
def said() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events


@pytest.fixture
def news(node: Node) -> ChainNews:
    news = ChainNews(News(node.clock), node.clock)
    node.chain_manager.subscribe(news)
    return news


def lines(said: list[LogEvent]) -> list[str]:
    return [formatEvent(event) for event in said if event["log_namespace"].startswith("svcd.node.news")]


def brief(block: Block) -> str:
    return f"{block.header.hash.hex()[:12]}..."


def test_a_new_tip(node: Node, chain: ChainBuilder, news: ChainNews, said: list[LogEvent]) -> None:
    first = chain.block(transfers=[chain.transfer("alice", "bob", 5)])
    second = chain.block(first)
    result_of(node.chain_manager.submit_blocks([first.wire()], source="http://peer:8645"))
    node.clock.advance(42.5)
    node.submit(second)
    assert lines(said) == [
        f"block 1 {brief(first)} with 1 transfer, from http://peer:8645",
        f"block 2 {brief(second)} with 0 transfers, 42.5 s after the tip before",
    ]
    assert said[-1]["hash"] == second.header.hash.hex()


def test_blocks_of_one_commit_are_one_line(
    node: Node, chain: ChainBuilder, news: ChainNews, said: list[LogEvent]
) -> None:
    blocks = [*chain.chain("genesis: b[1..3]").values()]
    node.submit(*blocks)
    assert lines(said) == [f"blocks 1 to 3 {brief(blocks[-1])} with 0 transfers"]


def test_a_reorganisation(node: Node, chain: ChainBuilder, news: ChainNews, said: list[LogEvent]) -> None:
    lost = chain.block(transfers=[chain.transfer("alice", "bob", 5)])
    third, fourth = chain.chain("genesis: c1 c2").values()
    node.submit(lost)
    said.clear()
    node.submit(third, fourth)
    assert lines(said) == [
        f"reorganisation: 1 block undone; the tip was {brief(lost)} at height 1 and is {brief(fourth)} at height 2; "
        "transfers that wait for a block again: 1"
    ]


def test_a_deep_reorganisation_is_left_to_its_alarm(
    node: Node, chain: ChainBuilder, news: ChainNews, said: list[LogEvent]
) -> None:
    blocks = chain.chain(f"genesis: b[1..{DEEP_BLOCKS}]\ngenesis: c[1..{DEEP_BLOCKS + 1}]")
    node.submit(*[block for name, block in blocks.items() if name.startswith("b")])
    said.clear()
    node.submit(*[block for name, block in blocks.items() if name.startswith("c")])
    assert node.chain_manager.tip.height == DEEP_BLOCKS + 1
    assert lines(said) == []


def test_while_catching_up_only_the_last_tip_is_told(
    node: Node, chain: ChainBuilder, news: ChainNews, said: list[LogEvent]
) -> None:
    news.target = lambda: 3
    for block in chain.chain("genesis: b[1..3]").values():
        node.submit(block)
    (line,) = lines(said)
    assert line.startswith("block 3 ")
