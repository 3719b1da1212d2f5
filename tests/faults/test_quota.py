"""A quota that is used up: like a full disk, but anybody may try it, and only one file stands at it."""

import resource

import pytest

from tests.faults.conftest import confirm, loud
from tests.faults.test_disk import LINE, REFUSED, nothing_is_written, told
from tests.process_level.running import wait_until
from tests.process_level.test_webhook_story import Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(120)]

PAID = "pending: pending 0"


def let_files_grow_to(shop: Shop, size: int) -> None:
    """From now on, whatever the node writes beyond that in any file is refused."""
    resource.prlimit(shop.node.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_quota_that_is_used_up(shop: Shop) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    let_files_grow_to(shop, (shop.node.data_dir / "chain.sqlite-wal").stat().st_size)
    nothing_is_written(shop, order)
    assert told(shop.node) == [LINE.format(why="disk I/O error")]
    let_files_grow_to(shop, resource.RLIM_INFINITY)
    confirm(shop, PAID)


def log_of(shop: Shop, database: str) -> int:
    """How large a database's write-ahead log is."""
    return (shop.node.data_dir / f"{database}.sqlite-wal").stat().st_size


def test_a_quota_that_stops_the_webhooks_only(shop: Shop) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    for number in range(100):
        if log_of(shop, "webhooks") > log_of(shop, "chain") + 2**19:
            break
        # A host may have few watches that wait for their payment.
        another = shop.order(f"another-{number}")["watch"]
        assert shop.ask("POST", f"/rpc/commerce/webhooks/{another}/cancel", {}).status == 200
    let_files_grow_to(shop, log_of(shop, "webhooks"))
    shop.pay("customer", order["request"])
    wait_until(lambda: shop.node.operator("/ready").status == 503, "a node that is not ready")
    sentence = "the webhooks' database cannot be written: disk I/O error"
    assert shop.node.operator("/ready").error == f"not ready: {sentence}"
    assert shop.node.ok(shop.node.operator("/operator/status"))["status"]["alarms"] == {"disk": sentence}
    assert shop.node.logged(f"alarm disk: {sentence}")
    line = f"{sentence}. Events follow once it can"
    assert shop.node.logged(line)
    assert loud(shop.node) == [line]
    shop.node.mine(1)
    assert shop.state(order["request"]) == "confirming 1 of 3", "the chain goes on"
    assert shop.ask("POST", f"/rpc/commerce/webhooks/{order['watch']}/cancel", {}).error == REFUSED
    assert shop.receiver.names == []
    let_files_grow_to(shop, resource.RLIM_INFINITY)
    wait_until(lambda: shop.node.operator("/ready").status == 200, "a disk that takes something")
    shop.hears("confirming: confirming 1")
    shop.node.mine(1)
    shop.hears("confirming: confirming 1", "confirming: confirming 2")
