"""Metrics of the other nodes, and of catching up with them, on a real pull from strangers."""

from collections.abc import Callable
from math import isnan
from typing import Any

import pytest

from svcd.chain.block import Block
from svcd.node.changes import BlockStage
from svcd.p2p import block_download
from svcd.p2p.bans import INVALID_SECONDS
from svcd.p2p.progress import SyncStage
from tests.metrics.conftest import Measured
from tests.p2p.bench import place
from tests.p2p.following import followed, meet

Grow = Callable[..., list[Block]]
MakeStranger = Callable[..., Any]
STAGES = tuple(stage.value for stage in SyncStage)


def test_who_is_known(measured: Measured, make_stranger: MakeStranger) -> None:
    node = measured.node
    node.meet(make_stranger(1), make_stranger(2))
    node.meet(make_stranger(3), outbound=False)
    node.peers.hint(place(4), source="x")
    shown = {name: measured.value(f"svcd_peers_{name}") for name in ("verified", "outbound", "inbound", "known")}
    assert shown == {"verified": 3, "outbound": 2, "inbound": 1, "known": 4}


def test_bans_and_the_alarm(measured: Measured, make_stranger: MakeStranger) -> None:
    node = measured.node
    strangers = [make_stranger(number) for number in range(1, 4)]
    node.meet(*strangers)
    assert measured.value("svcd_peers_bans") == measured.value("svcd_peers_alarm") == 0
    for stranger in strangers:
        node.peers.ban(node.peer(stranger), "it lied")
    bans = measured.value("svcd_peers_bans")
    assert bans == len(node.peers.bans.listed(node.clock.seconds())) > 0
    assert measured.value("svcd_peers_alarm") == 1
    node.clock.rightNow += INVALID_SECONDS + 1
    assert measured.value("svcd_peers_bans") == 0


def test_a_node_that_has_caught_up_is_where_it_wants_to_be(measured: Measured, grow: Grow) -> None:
    measured.node.take(*grow(5))
    assert measured.value("svcd_sync_catching_up") == 0
    assert measured.value("svcd_sync_height") == measured.value("svcd_sync_target_height") == 5
    assert measured.value("svcd_sync_left_seconds") == 0
    assert {measured.value("svcd_sync_slowest_stage", stage=stage) for stage in STAGES} == {0}


def test_catching_up_shows_while_it_lasts(
    measured: Measured, grow: Grow, make_stranger: MakeStranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_download, "FIRST_BYTES", 40_000)
    node = measured.node
    strangers = [make_stranger(number, blocks=grow(300, pays=1)) for number in (1, 2)]
    for stranger in strangers:
        node.town.latency[stranger.endpoint] = 0.4
    meet(node, *strangers)
    assert node.until(lambda: node.network.progress.snapshot() is not None, within=5)
    assert measured.value("svcd_sync_catching_up") == 1
    assert isnan(measured.value("svcd_sync_left_seconds"))
    assert node.until(lambda: 64 <= node.tip.height < 300, within=20)
    assert measured.value("svcd_sync_peers_used") == 2
    assert measured.value("svcd_sync_height") == node.tip.height
    assert measured.value("svcd_sync_target_height") == 300
    assert measured.value("svcd_sync_blocks_per_second") > 0
    assert measured.value("svcd_sync_left_seconds") > 0
    assert [stage for stage in STAGES if measured.value("svcd_sync_slowest_stage", stage=stage)] == ["fetch"]
    assert measured.value("svcd_sync_stage_seconds_total", stage="fetch") > 0.5
    assert followed(node, grow(300, pays=1), within=20)
    node.run(0.1)
    assert measured.value("svcd_sync_catching_up") == 0
    assert measured.value("svcd_sync_blocks_total") == 300
    assert measured.value("svcd_sync_transactions_total") == 300


def test_transfers_that_are_caught_up_with_are_counted(measured: Measured, make_stranger: MakeStranger) -> None:
    node, builder = measured.node, measured.node.builder
    first = builder.block(transfers=[builder.transfer("alice", "bob", 5, nonce=0)])
    meet(node, make_stranger(blocks=[first, builder.block(first)]))
    assert node.until(lambda: node.tip.height == 2)
    assert measured.value("svcd_sync_transactions_total") == 1


def test_the_time_of_each_stage_counts_on(measured: Measured) -> None:
    progress, clock = measured.node.network.progress, measured.clock
    progress.begin(0, 10)
    progress.enters(1, BlockStage.VERIFY)
    clock.rightNow += 2
    assert measured.value("svcd_sync_stage_seconds_total", stage="verify") == 2
    assert measured.value("svcd_sync_slowest_stage", stage="verify") == 1
    clock.rightNow += 3
    assert measured.value("svcd_sync_stage_seconds_total", stage="verify") == 5
    progress.leaves(1)
    progress.end()
