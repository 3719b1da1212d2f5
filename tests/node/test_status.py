"""What the node says about itself and its chain (docs/http.md, docs/protocol.md 7)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.chain.block import Block
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS
from svcd.node.status import (
    DEEP,
    DEEP_BLOCKS,
    NO_PEER_MET,
    OUTAGE_INTERVALS,
    AlarmLog,
    ChainAlarm,
    ChainAlarms,
    NetworkView,
    NoPeers,
    Status,
)
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node

LONG = max(TEST_PARAMS.gap_cap_slots, OUTAGE_INTERVALS * TEST_PARAMS.slots_per_block)
"""The shortest gap that is an outage."""
SPAN = TEST_PARAMS.gap_cap_slots // TEST_PARAMS.slots_per_block * 6 // 5
"""How many blocks it takes to pay back the longest gap that counts."""


NOBODY = NetworkView(0, 0, "")


@define
class Known:
    """Peers that show what the test says."""

    around: NetworkView

    def network_view(self) -> NetworkView:
        return self.around

    def behind(self) -> str:
        return self.around.behind


def status_of(
    node: Node, peers: Known | NoPeers | None = None, endpoint: str = "", trouble: str = "", **reasons: Any
) -> Status:
    return Status(
        node.chain_manager,
        node_id="svcnode_" + "0" * 32,
        endpoint=endpoint,
        peers=peers or Known(NOBODY),
        clock=node.clock,
        trouble=lambda: trouble,
        **reasons,
    )


# Other nodes


def test_a_node_that_lags_behind_its_peers(node: Node, chain: ChainBuilder) -> None:
    node.submit(chain.block())
    status = status_of(node, Known(NetworkView(7, 9, "a peer has more")))
    said = status.node_status()
    assert said["knownPeerCount"] == 7
    assert (said["bestKnownPeerHeight"], said["syncLagBlocks"], said["syncState"]) == ("9", "8", "catching-up")
    assert status.behind == "a peer has more"
    assert not status.synced


def test_a_node_that_is_ahead_of_its_peers(node: Node, chain: ChainBuilder) -> None:
    node.submit(*chain.chain("genesis: b[1..3]").values())
    said = status_of(node, Known(NetworkView(1, 2, ""))).node_status()
    assert (said["bestKnownPeerHeight"], said["syncLagBlocks"], said["syncState"]) == ("2", "0", "synced")


@pytest.mark.parametrize("accepted", [True, False])
def test_a_node_that_is_alone(node: Node, accepted: bool) -> None:
    status = status_of(node, NoPeers(accepted))
    assert status.synced is accepted
    assert status.behind == ("" if accepted else NO_PEER_MET)
    assert status.node_status()["syncState"] == ("synced" if accepted else "catching-up")


# A standstill


def grow(node: Node, chain: ChainBuilder, *gaps: int) -> Block | None:
    """Blocks with these gaps, in slots, on the genesis; gives the last one."""
    block = None
    for gap in gaps:
        block = chain.block(block, slot=chain.point_after(block).slot + gap)
        node.submit(block)
    return block


@pytest.mark.parametrize("gaps", [[], [2], [2, 2], [2] * 30, [LONG - 1] * 5, [LONG + 1], [9 * LONG, 2, 2]])
def test_no_standstill(node: Node, chain: ChainBuilder, gaps: list[int]) -> None:
    """Nor is the time before the first block one."""
    grow(node, chain, *gaps)
    assert status_of(node).outage() == ""


def test_a_standstill(node: Node, chain: ChainBuilder) -> None:
    grow(node, chain, 2, 2, LONG)
    expected = (
        f"the chain stood still for {LONG} slots before block 3: "
        f"ask for more confirmations than usual until block {2 + SPAN}"
    )
    assert status_of(node).outage() == expected


def test_a_standstill_is_remembered_until_it_is_paid_back(node: Node, chain: ChainBuilder) -> None:
    last = grow(node, chain, 2, 3 * LONG, *[2] * (SPAN - 1))
    assert node.chain_manager.tip.height == SPAN + 1
    assert f"before block 2: ask for more confirmations than usual until block {1 + SPAN}" in status_of(node).outage()
    node.submit(chain.block(last))
    assert status_of(node).outage() == ""


def test_of_two_standstills_the_newer_is_told(node: Node, chain: ChainBuilder) -> None:
    grow(node, chain, 2, LONG, 2, LONG + 5, 2)
    status = status_of(node)
    assert f"for {LONG + 5} slots before block 4:" in status.outage()
    assert status.chain_alarms() == [ChainAlarm("outage", "4", status.outage())]


# What keeps it from being ready


def test_the_first_reason_not_to_be_ready_is_the_one_that_is_told(node: Node) -> None:
    assert status_of(node).unready() == ""
    misconfigured = "webhooks answer 503: a secret is missing"
    status = status_of(node, webhooks=misconfigured)
    assert status.unready() == status.alarms()["webhooks"] == misconfigured
    status = status_of(node, database=lambda: "PostgreSQL is away", webhooks=misconfigured)
    assert status.unready() == status.alarms()["database"] == "PostgreSQL is away"
    peers = Known(NOBODY)
    status = status_of(
        node, peers, trouble="the chain's database cannot be written: full", database=lambda: "PostgreSQL is away"
    )
    node.clock.advance(600)
    assert status.unready() == status.alarms()["disk"] == "the chain's database cannot be written: full"
    peers.around = NetworkView(3, 0, "", usual_height=2)
    assert status.unready() == status.standstill() != ""
    peers.around = NetworkView(3, 9, "a peer has more", usual_height=2)
    assert status.unready() == "a peer has more"


# One line of it all


@pytest.mark.parametrize(
    ("around", "trouble", "line"),
    [
        (NOBODY, "", "height 2, 0 peers, ready"),
        (NetworkView(1, 2, ""), "", "height 2, 1 peer, ready"),
        (NetworkView(8, 3, ""), "", "height 2, 8 peers, ready"),
        (NetworkView(8, 250_000, "a peer has more"), "", "height 2 of 250000, 8 peers, not ready: a peer has more"),
        (NetworkView(0, 0, NO_PEER_MET), "", f"height 2, 0 peers, not ready: {NO_PEER_MET}"),
        (NetworkView(8, 2, ""), "the disk is full", "height 2, 8 peers, not ready: the disk is full"),
    ],
)
def test_the_line_for_the_service_manager(
    node: Node, chain: ChainBuilder, around: NetworkView, trouble: str, line: str
) -> None:
    node.submit(*chain.chain("genesis: b[1..2]").values())
    assert status_of(node, Known(around), trouble=trouble).line() == line


def test_the_line_has_the_alarms_of_a_node_that_is_ready(node: Node, chain: ChainBuilder) -> None:
    grow(node, chain, 2, 2, LONG)
    status = status_of(node)
    assert status.line() == f"height 3, 0 peers, ready; alarm: {status.outage()}"


# Peers that move on


@pytest.mark.parametrize(("usual", "seconds", "alarm"), [(2, 599, False), (1, 6_000, False), (2, 600, True)])
def test_a_tip_that_stands_still_while_most_peers_move_on(node: Node, usual: int, seconds: int, alarm: bool) -> None:
    status = status_of(node, Known(NetworkView(3, 0, "", usual_height=usual)))
    node.clock.advance(seconds)
    said = "the chain of this node has been at height 0 for 10 minutes while most peers show height 2 or more"
    assert status.standstill() == (said if alarm else "")
    assert (status.synced, status.current) == (True, not alarm)
    still = status.standstill()
    kinds = "deep-reorganisation outage disk database webhooks unreachable producer-changes untrusted-proxy certificate"
    others = dict.fromkeys(kinds.split(), "")
    assert status.alarms() == {**others, "standstill": still}
    told = [ChainAlarm("standstill", node.chain_manager.tip.hash.hex(), still)]
    assert status.chain_alarms() == (told if alarm else [])
    assert status.synced


def test_an_untrusted_proxy_is_an_alarm_and_the_node_is_ready(node: Node) -> None:
    sentence = "requests from 127.0.0.1 carry X-Forwarded-For"
    status = Status(
        node.chain_manager,
        node_id="svcnode_" + "0" * 32,
        endpoint="",
        peers=Known(NOBODY),
        clock=node.clock,
        trouble=lambda: "",
        untrusted_proxy=lambda: sentence,
    )
    assert status.alarms()["untrusted-proxy"] == sentence
    assert status.unready() == ""
    assert status.line().endswith(f"alarm: {sentence}")


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
        "info: in sync with the network",
        "warn: alarm standstill: the chain here has stood still for 10 minutes",
        "info: the alarm standstill is over",
        "info: the alarm deep-reorganisation is over",
    ]


def test_a_lasting_reason_for_not_being_ready_is_logged_once(lines: list[str]) -> None:
    shown = Shown("no peer")
    log = AlarmLog(lambda: shown.behind, shown.alarms)
    for shown.behind in ("no peer", "no peer yet", "", "a block is on its way", "", "far behind", "far", "still", ""):
        log.check()
    assert lines == [
        "info: not in sync with the network: no peer",
        "info: in sync with the network",
        "info: not in sync with the network: far",
        "info: in sync with the network",
    ]
