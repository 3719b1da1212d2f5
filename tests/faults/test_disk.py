"""A disk that is full or read-only: nothing is half done, the node waits, and every event arrives in the end."""

import pytest

from tests.faults.conftest import Disk, confirm, loud
from tests.process_level.running import RunningNode, wait_until
from tests.process_level.test_webhook_story import Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

REFUSED = "the node cannot write to its disk at present; nothing has changed, so try again later"
LINE = (
    "the database cannot be written: {why}. The change was not made; free space on the disk or repair it, and "
    "the node then continues without a restart"
)
PAID = "pending: pending 0"


def nothing_is_written(shop: Shop, order: dict[str, dict[str, str]]) -> None:
    """Whoever wants to change something is told to wait, and whoever reads is told what is on the disk."""
    before = shop.node.status()
    for _ in range(3):
        answer = shop.node.operator("/operator/mine", {"blocks": 1})
        assert (answer.status, answer.error) == (503, REFUSED)
    after = shop.node.status()
    assert (after["height"], after["hash"]) == (before["height"], before["hash"])
    assert shop.state(order["request"]) == "pending 0 of 3"


def told(node: RunningNode) -> list[str]:
    """The errors in the log that are about the chain, of which there is one at least."""
    node.logged("the database ")
    return [line for line in loud(node) if line.startswith("the database ")]


@pytest.mark.parametrize("killed", [False, True], ids=["it-goes-on", "it-is-killed"])
def test_a_disk_that_is_full(disk: Disk, shop: Shop, killed: bool) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    disk.fill()
    nothing_is_written(shop, order)
    assert told(shop.node) == [LINE.format(why="database or disk is full")]
    ready = shop.node.operator("/ready")
    assert (ready.status, ready.error) == (
        503,
        "not ready: the chain's database cannot be written: database or disk is full",
    )
    if killed:
        shop.node.kill()
    disk.free()
    if killed:
        shop.start()
    wait_until(lambda: shop.node.operator("/ready").status == 200, "a disk that takes something")
    confirm(shop, PAID)


@pytest.mark.parametrize("killed", [False, True], ids=["it-is-stopped", "it-is-killed"])
def test_a_disk_that_becomes_read_only(disk: Disk, shop: Shop, killed: bool) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    disk.fail()
    nothing_is_written(shop, order)
    assert told(shop.node) == [LINE.format(why="disk I/O error")]
    if killed:
        shop.node.kill()
    else:
        shop.node.terminate()
        assert shop.node.wait_ended() == 0
    disk.replace()
    shop.start()
    confirm(shop, PAID)
    shop.nodes.stop()
