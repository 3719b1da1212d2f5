"""Metrics of the chain and of the mempool, on a real one."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import RuleViolation
from svcd.chain.transaction import Transfer
from svcd.metrics.chain import REASONS
from tests.chains import ChainBuilder
from tests.metrics.conftest import POOL, Measured
from tests.support import result_of

Grow = Callable[..., list[Block]]


def test_the_tip(measured: Measured, grow: Grow) -> None:
    node = measured.node
    assert measured.value("svcd_chain_height") == 0
    node.take(*grow(3))
    assert measured.value("svcd_chain_height") == 3
    assert measured.value("svcd_chain_work") == node.tip.work
    before = measured.value("svcd_chain_tip_age_seconds")
    assert before == node.clock.seconds() - node.node_context.chain_manager.params.slot_time(node.tip.slot) / 1000
    node.clock.rightNow += 7.5
    assert measured.value("svcd_chain_tip_age_seconds") == before + 7.5
    assert measured.value("svcd_chain_unchanged_seconds") == 7.5
    assert measured.value("svcd_chain_on_demand") == 0


def test_whether_the_tip_is_the_network_s(measured: Measured, make_stranger: Callable[..., object]) -> None:
    assert measured.value("svcd_chain_synced") == 0
    measured.node.meet(make_stranger())  # type: ignore[arg-type]
    assert measured.value("svcd_chain_synced") == 1


def test_blocks_and_transfers_are_counted_as_they_connect(measured: Measured) -> None:
    node, builder = measured.node, ChainBuilder()
    first = builder.block(transfers=[builder.transfer("alice", "bob", 5), builder.transfer("bob", "alice", 7)])
    node.take(first)
    node.take(builder.block(first))
    assert measured.value("svcd_chain_blocks_connected_total") == 2
    assert measured.value("svcd_chain_transfers_connected_total") == 2
    assert measured.value("svcd_chain_reorganisations_total") == 0


def test_alarms_of_the_chain(measured: Measured, grow: Grow) -> None:
    kinds = ("deep-reorganisation", "outage", "standstill")
    assert [measured.value("svcd_chain_alarm", alarm=kind) for kind in kinds] == [0, 0, 0]
    assert measured.value("svcd_chain_deep_reorganisations_total") == 0
    measured.node.take(*grow(12))
    measured.node.take(*grow(13, name="r"))
    assert [measured.value("svcd_chain_alarm", alarm=kind) for kind in kinds] == [1, 0, 0]
    assert measured.value("svcd_chain_deep_reorganisations_total") == 1


def test_reorganisations_are_counted_with_their_depth(measured: Measured, grow: Grow) -> None:
    node = measured.node
    node.take(*grow(10))
    for number, depth in enumerate((1, 4), 1):
        left = 10 + number - 1 - depth
        here = grow(10) if number == 1 else grow(2, on=grow(9), name="r1")
        for block in grow(depth + 1, on=here[:left], name=f"r{number}")[left:]:
            node.take(block)
    assert measured.value("svcd_chain_reorganisations_total") == 2
    name = "svcd_chain_reorganisation_depth_blocks"
    assert measured.value(f"{name}_count") == 2
    assert measured.value(f"{name}_sum") == 5
    assert [measured.value(f"{name}_bucket", le=le) for le in ("1.0", "3.0", "6.0")] == [1, 1, 2]


# The mempool


def submitted(measured: Measured, transfer: Transfer) -> Deferred[object]:
    submission: Deferred[object] = measured.node.node_context.transaction_pool.submit(transfer)  # type: ignore[assignment]
    measured.node.clock.advance(0)
    return submission


def test_what_waits(measured: Measured) -> None:
    builder = ChainBuilder()
    transfers = [builder.transfer(name, "carol", 5) for name in ("alice", "bob")]
    for transfer in transfers:
        result_of(submitted(measured, transfer))
    assert measured.value("svcd_mempool_transactions") == 2
    assert measured.value("svcd_mempool_bytes") == sum(len(transfer.wire) for transfer in transfers)
    assert measured.value("svcd_mempool_capacity_transactions") == POOL.max_transactions
    assert measured.value("svcd_mempool_capacity_bytes") == POOL.max_bytes
    assert measured.value("svcd_mempool_admitted_total") == 2
    measured.node.take(builder.block(transfers=transfers))
    assert measured.value("svcd_mempool_transactions") == 0
    assert measured.value("svcd_mempool_admitted_total") == 2


def test_refusals_are_counted_by_reason(measured: Measured) -> None:
    builder = ChainBuilder()
    assert {measured.value("svcd_mempool_refused_total", reason=reason) for reason in REASONS} == {0}
    refused = [
        builder.transfer("alice", "bob", 1, nonce=99),
        builder.transfer("alice", "bob", 2, nonce=99),
        builder.transfer("alice", "bob", 10**15, nonce=0),
    ]
    for transfer in refused:
        with pytest.raises(RuleViolation):
            result_of(submitted(measured, transfer))
    assert measured.value("svcd_mempool_refused_total", reason="nonce") == 2
    assert measured.value("svcd_mempool_refused_total", reason="balance") == 1
    assert measured.value("svcd_mempool_admitted_total") == 0
