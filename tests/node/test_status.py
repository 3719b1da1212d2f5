"""What the node says about itself and its chain (docs/http.md, docs/protocol.md 7)."""

from typing import Any

import pytest
from attrs import define

from svcd.chain.block import Block
from svcd.interfaces import Clock
from svcd.node.chain_alarms import ChainAlarm
from svcd.node.clock_guard import ClockGuard
from svcd.node.network_view import ALONE, NO_PEER_MET, NetworkView, NoPeers
from svcd.node.status import OUTAGE_INTERVALS, Status
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node
from tests.support import SettableClock

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

    why_no_block = behind


def status_of(
    node: Node,
    peers: Known | NoPeers | None = None,
    endpoint: str = "",
    trouble: str = "",
    clock: Clock | None = None,
    **reasons: Any,
) -> Status:
    return Status(
        node.chain_manager,
        node_id="svcnode_" + "0" * 32,
        endpoint=endpoint,
        peers=peers or Known(NOBODY),
        guard=ClockGuard(clock or node.clock),
        trouble=lambda: trouble,
        **reasons,
    )


# Other nodes


def test_no_block_is_made_by_a_clock_that_was_just_set(node: Node) -> None:
    clock = SettableClock()
    status = status_of(node, clock=clock)
    assert status.why_no_block == ""
    clock.ahead = 7200
    assert "was set forward by 7200 s: the node makes no blocks" in status.why_no_block
    assert status.behind == "", "the chain is the network's all the same"
    clock.ahead = 0
    assert status.why_no_block == ""


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
    told = status.node_status()
    assert (told["syncState"], told["alone"]) == (("synced", True) if accepted else ("catching-up", False))
    assert status.line() == f"height 0, 0 peers, {ALONE if accepted else f'not ready: {NO_PEER_MET}'}"
    assert status.alone is accepted


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


# A tip in the future


def test_a_node_is_not_ready_while_its_tip_is_in_the_future(node: Node, chain: ChainBuilder) -> None:
    """As after an hour in which the clock was ahead; it recovers when the time has come."""
    params, clock = TEST_PARAMS, SettableClock()
    block = grow(node, chain, 2)
    assert block is not None
    clock.advance(params.slot_time(block.header.slot - params.drift_slots) / 1000 - 1)
    status = status_of(node, clock=clock)
    ahead = params.drift_slots * params.slot_seconds + 1
    said = (
        f"the newest block, at height 1, is {ahead} s ahead of this computer's clock: the clock is wrong, or was when "
        "the block was made"
    )
    assert (status.unready(), status.alarms()["clock"], status.synced, status.current) == (said, said, True, False)
    clock.advance(1)
    assert (status.unready(), status.alarms()["clock"], status.current) == ("", "", True)


def test_a_clock_that_was_set_is_an_alarm_and_the_node_is_ready(node: Node) -> None:
    clock = SettableClock()
    clock.advance(node.clock.seconds())
    status = status_of(node, clock=clock)
    clock.ahead = 3600.0
    assert status.alarms()["clock"].startswith("the computer's clock was set forward by 3600 s")
    assert (status.unready(), status.current) == ("", True)


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
    kinds = "deep-reorganisation outage clock disk database webhooks unreachable producer-changes proxy certificate"
    others = dict.fromkeys(kinds.split(), "")
    assert status.alarms() == {**others, "standstill": still}
    told = [ChainAlarm("standstill", node.chain_manager.tip.hash.hex(), still)]
    assert status.chain_alarms() == (told if alarm else [])
    assert status.synced


def test_a_proxy_is_an_alarm_and_the_node_is_ready(node: Node) -> None:
    sentence = "requests from 127.0.0.1 carry X-Forwarded-For"
    status = Status(
        node.chain_manager,
        node_id="svcnode_" + "0" * 32,
        endpoint="",
        peers=Known(NOBODY),
        guard=ClockGuard(node.clock),
        trouble=lambda: "",
        proxy=lambda: sentence,
    )
    assert status.alarms()["proxy"] == sentence
    assert status.unready() == ""
    assert status.line().endswith(f"alarm: {sentence}")
