"""A quota that is used up: like a full disk, but anybody may try it, and only the chain's file stands at it."""

import resource

import pytest

from tests.faults.conftest import confirm
from tests.faults.test_disk import LINE, nothing_is_written, told
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
