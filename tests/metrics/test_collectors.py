"""Metrics of the chain and of the mempool, on a real one."""

from collections.abc import Callable
from math import isnan
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import RuleViolation
from svcd.chain.transaction import Transfer
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch_operations import WatchRequest
from svcd.metrics.collectors import REASONS, WebMetrics, WorkMetrics
from svcd.node.changes import BlockStage
from svcd.node.miner import Miner
from svcd.node.work_rate import WorkRate
from svcd.p2p import schedule
from svcd.p2p.bans import INVALID_BAN_SECONDS
from svcd.p2p.progress import SyncStage
from svcd.web.connections import SiteLimits
from tests.chains import ChainBuilder, address_of
from tests.metrics.conftest import Measured
from tests.p2p.bench import place
from tests.p2p.conftest import MakeNode
from tests.p2p.following import followed, meet
from tests.support import result_of
from tests.web.wire import Wire

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


def test_whether_the_tip_is_the_network_s(measured: Measured) -> None:
    assert measured.value("svcd_chain_synced") == 0
    measured.node.meet(measured.node.remote())  # type: ignore[arg-type]
    assert measured.value("svcd_chain_synced") == 1
    assert measured.value("svcd_chain_alone") == 0


def test_a_node_that_is_alone_is_not_in_sync(make_node: MakeNode, measure: Callable[..., Measured]) -> None:
    measured = measure(make_node(alone=True))
    assert (measured.value("svcd_chain_synced"), measured.value("svcd_chain_alone")) == (0, 1)


def test_blocks_and_transfers_are_counted_as_they_connect(measured: Measured) -> None:
    node, builder = measured.node, ChainBuilder()
    first = builder.block(transfers=[builder.transfer("alice", "bob", 5), builder.transfer("bob", "alice", 7)])
    node.take(first)
    node.take(builder.block(first))
    assert measured.value("svcd_chain_blocks_connected_total") == 2
    assert measured.value("svcd_chain_transfers_connected_total") == 2
    assert measured.value("svcd_chain_reorganisations_total") == 0


def test_whose_turn_it_is(node: Any, measure: Callable[..., Measured]) -> None:
    why = ["another one must make the block"]
    measured = measure(node, others_turn=lambda: why[0])
    assert measured.value("svcd_chain_others_turn") == 1
    why[0] = ""
    assert measured.value("svcd_chain_others_turn") == 0


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


def test_metrics_of_the_mempool(measured: Measured) -> None:
    builder = ChainBuilder()
    transfers = [builder.transfer(name, "carol", 5) for name in ("alice", "bob")]
    for transfer in transfers:
        result_of(submitted(measured, transfer))
    assert measured.value("svcd_mempool_transactions") == 2
    assert measured.value("svcd_mempool_bytes") == sum(len(transfer.wire) for transfer in transfers)
    assert measured.value("svcd_mempool_capacity_transactions") == 50_000
    assert measured.value("svcd_mempool_capacity_bytes") == 1 << 26
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


def test_watches_and_what_they_wait_for(measured: Measured) -> None:
    webhooks = measured.webhooks
    measured.clock.advance(1)
    webhooks.startService()
    shop = address_of("bob", measured.node.setting.params.address_prefix)
    request = WatchRequest(
        merchant="default",
        terms=PaymentTerms("order-1", shop, 5000),
        callback_url="https://shop.example.com/",
        host="shop.example.com",
        ttl_ms=60_000,
    )
    result_of(Deferred.fromCoroutine(webhooks.register(request)))
    result_of(webhooks.refresh_backlog())
    assert measured.value("svcd_webhooks_watches") == 1
    assert measured.value("svcd_webhooks_oldest_seconds") == 0

    # Nobody pays, and nobody is there to be told.
    measured.clock.advance(60)
    webhooks.poll()
    measured.clock.advance(1)
    result_of(webhooks.refresh_backlog())

    assert measured.value("svcd_webhooks_watches") == 0
    assert measured.value("svcd_webhooks_waiting_watches") == 1
    assert measured.value("svcd_webhooks_oldest_seconds") == 1
    # The first attempt, and after 1 s the second.
    assert measured.value("svcd_webhooks_failed_total") == 2
    assert measured.value("svcd_webhooks_delivered_total") == 0
    result_of(webhooks.stopService())


STAGES = tuple(stage.value for stage in SyncStage)


def test_metrics_of_known_peers(measured: Measured) -> None:
    node = measured.node
    node.meet(measured.node.remote(1), measured.node.remote(2))
    node.meet(measured.node.remote(3), outbound=False)
    node.peers.hint(place(4), source="x")
    shown = {name: measured.value(f"svcd_peers_{name}") for name in ("verified", "outbound", "inbound", "known")}
    assert shown == {"verified": 3, "outbound": 2, "inbound": 1, "known": 4}


def test_bans_and_the_alarm(measured: Measured) -> None:
    node = measured.node
    remotes = [measured.node.remote(number) for number in range(1, 4)]
    node.meet(*remotes)
    assert measured.value("svcd_peers_bans") == measured.value("svcd_peers_alarm") == 0
    for remote in remotes:
        node.peers.ban(node.peer(remote), "it lied")
    bans = measured.value("svcd_peers_bans")
    assert bans == len(node.peers.bans.listed(node.clock.seconds())) > 0
    assert measured.value("svcd_peers_alarm") == 1
    node.clock.rightNow += INVALID_BAN_SECONDS + 1
    assert measured.value("svcd_peers_bans") == 0


def test_a_node_that_has_caught_up_is_where_it_wants_to_be(measured: Measured, grow: Grow) -> None:
    measured.node.take(*grow(5))
    assert measured.value("svcd_sync_catching_up") == 0
    assert measured.value("svcd_sync_height") == measured.value("svcd_sync_target_height") == 5
    assert measured.value("svcd_sync_left_seconds") == 0
    assert {measured.value("svcd_sync_slowest_stage", stage=stage) for stage in STAGES} == {0}


def test_catching_up_shows_while_it_lasts(measured: Measured, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_BYTES", 40_000)
    node = measured.node
    remotes = [measured.node.remote(number, blocks=grow(300, pays=1)) for number in (1, 2)]
    for remote in remotes:
        node.transport.latency[remote.endpoint] = 0.4
    meet(node, *remotes)
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


def test_transfers_that_are_caught_up_with_are_counted(measured: Measured) -> None:
    node, builder = measured.node, measured.node.builder
    first = builder.block(transfers=[builder.transfer("alice", "bob", 5, nonce=0)])
    meet(node, measured.node.remote(blocks=[first, builder.block(first)]))
    assert node.until(lambda: node.tip.height == 2)
    assert measured.value("svcd_sync_transactions_total") == 1


def test_the_time_of_each_stage_counts_on(measured: Measured) -> None:
    progress, clock = measured.node.network.progress, measured.clock
    progress.begin(0, lambda: 10)
    progress.enters(1, BlockStage.VERIFY)
    clock.rightNow += 2
    assert measured.value("svcd_sync_stage_seconds_total", stage="verify") == 2
    assert measured.value("svcd_sync_slowest_stage", stage="verify") == 1
    clock.rightNow += 3
    assert measured.value("svcd_sync_stage_seconds_total", stage="verify") == 5
    progress.leaves(1)
    progress.end()


Measure = Callable[..., Measured]


def ask(measured: Measured, target: str, method: str = "GET") -> None:
    Wire(measured.node.site).send(f"{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).close()


def requests(measured: Measured, route: str, status: int, method: str = "GET") -> float:
    return measured.value("svcd_http_requests_total", route=route, method=method, status=str(status))


def test_requests_are_counted_by_route_method_and_status(measured: Measured) -> None:
    for target in ("/rpc/status", "/rpc/block/0", "/rpc/block/0", "/rpc/block/7", "/rpc/block/x"):
        ask(measured, target)
    ask(measured, "/rpc/status", "HEAD")
    assert requests(measured, "/rpc/status", 200) == requests(measured, "/rpc/status", 200, "HEAD") == 1
    assert requests(measured, "/rpc/block/{height}", 200) == 2
    assert requests(measured, "/rpc/block/{height}", 404) == requests(measured, "/rpc/block/{height}", 400) == 1
    assert measured.value("svcd_http_request_seconds_count", route="/rpc/block/{height}") == 4


def test_unknown_routes_share_one_label(measured: Measured) -> None:
    for number in range(50):
        ask(measured, f"/{number}")
        ask(measured, f"/rpc/{number}", f"X{number}")
    Wire(measured.node.site).send(b"NONSENSE\r\n")
    assert requests(measured, "other", 404) == 50
    text = {
        (sample.labels["route"], sample.labels["method"])
        for metric in measured.metrics.registry.collect()
        if metric.name == "svcd_http_requests"
        for sample in metric.samples
    }
    assert text == {("other", "GET"), ("other", "other")}


@given(st.lists(st.binary(max_size=8)))
def test_methods_that_clients_make_up_are_one_label(methods: list[bytes]) -> None:
    metrics = WebMetrics()
    for method in methods:
        metrics.answered("", method, 405, 0.0)
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
    labels = {
        sample.labels["method"]
        for metric in metrics.collect()
        for sample in metric.samples
        if "method" in sample.labels
    }
    assert labels <= known | {"other"}


def test_open_and_refused_connections(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(connections_per_client=2)))
    wires = [Wire(measured.node.site) for _ in range(5)]
    assert measured.value("svcd_http_connections", site="public") == 2
    assert measured.value("svcd_http_connections_refused_total", site="public") == 3
    assert measured.value("svcd_http_connections", site="operator") == 0
    wires[0].close()
    assert measured.value("svcd_http_connections", site="public") == 1


def test_connections_that_evicted(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(connections=2)))
    for _ in range(5):
        Wire(measured.node.site)
    assert measured.value("svcd_http_connections", site="public") == 2
    assert measured.value("svcd_http_connections_evicted_total", site="public") == 3
    assert measured.value("svcd_http_connections_evicted_total", site="operator") == 0


def test_bodies_that_evicted(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(bodies_bytes_per_client=100)))
    for _ in range(3):
        head = b"POST /rpc/broadcast HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
        Wire(measured.node.site).send(head + b"x" * 99)
    assert measured.value("svcd_http_bodies_evicted_total", site="public") == 2
    assert measured.value("svcd_http_bodies_evicted_total", site="operator") == 0


def test_requests_over_a_rate_are_counted(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(rates={"read": 0.1, "broadcast": 0, "p2p": 0}))
    for _ in range(3):
        ask(measured, "/rpc/status")
    assert measured.value("svcd_http_throttled_total", bucket="read") == 2
    assert requests(measured, "/rpc/status", 429) == 2


def test_ignored_headers_of_proxies_are_counted(measured: Measured) -> None:
    for client in ("198.51.100.7", "198.51.100.8"):
        head = f"GET /rpc/status HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {client}\r\n\r\n"
        Wire(measured.node.site).send(head.encode()).close()
    ask(measured, "/rpc/status")
    assert measured.value("svcd_http_forwarded_ignored_total") == 2
    assert measured.value("svcd_chain_alarm", alarm="proxy") == 1


def test_the_search_for_a_block_is_measured() -> None:
    miner = SimpleNamespace(attempts=480, work_rate=WorkRate(13, 4.0, 240))
    assert values_of(WorkMetrics(cast(Miner, miner))) == [480, 240, 60.0]
    miner.work_rate = WorkRate(13, 0.0, 240)
    assert str(values_of(WorkMetrics(cast(Miner, miner)))) == "[480, 240.0, nan]"
    assert str(values_of(WorkMetrics(None))) == "[0, nan, nan]"


def values_of(metrics: WorkMetrics) -> list[float]:
    return [sample.value for metric in metrics.collect() for sample in metric.samples]
