"""Work that fails in its thread, and a thread that dies: the node goes on or ends, and no event is lost."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.conftest import ROOT, confirm, loud
from tests.process_level import running
from tests.process_level.running import wait_until
from tests.process_level.test_webhook_story import Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

PAID = "pending: pending 0"
DEAD = (
    "a thread of the pool {pool} has died, so its jobs cannot finish. The node exits now; committed data is on disk. "
    "Start the node again"
)


@pytest.fixture
def order_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead_of_twistd: Callable[[str], None]
) -> Callable[[str], None]:
    """`order_fault("kill writer")`: see `tests.faults.faulty`."""
    path = tmp_path / "fault"
    monkeypatch.setitem(running.ENVIRONMENT, "SVCFAULT", str(path))
    instead_of_twistd(f'PYTHONPATH={ROOT} exec "$(dirname $TWISTD)"/python -m tests.faults.faulty "$@"')

    def order(words: str) -> None:
        path.with_name("new").write_text(words)
        path.with_name("new").replace(path)
        wait_until(lambda: not path.exists(), "the fault")

    return order


@pytest.mark.parametrize("pool", ["writer", "verifier", "webhooks"])
def test_a_thread_that_dies(order_fault: Callable[[str], None], shop: Shop, pool: str) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    order_fault(f"kill {pool}")
    # A thread that waits for work meets the exception with the next job, which is lost with it. There are other jobs
    # now and then, and the node may be gone before it is paid.
    try:
        shop.pay("customer", order["request"])
        answered = True
    except OSError:
        answered = False
    if pool != "webhooks":
        # A payment gives the others no job, a block does.
        with suppress(OSError):
            shop.node.operator("/operator/mine", {"blocks": 1})
    assert shop.node.wait_ended() == 1
    assert [line for line in loud(shop.node) if "died" in line] == [DEAD.format(pool=pool)]
    shop.start()
    if shop.state(order["request"]).startswith("unpaid"):
        assert not answered, "what was answered is on disk"
        shop.pay("customer", order["request"])
    shop.hears(PAID)
    confirm(shop, PAID)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("svcd.node.chainstate:Chainstate.connect", "MemoryError"),
        ("svcd.node.chainstate:Chainstate.connect", "SystemExit"),
        ("svcd.store.webhook_store:WebhookStore.newest_step", "SystemExit"),
        ("svcd.store.webhook_events:EventStore.delivered", "SystemExit"),
    ],
)
def test_work_that_fails_in_its_thread(order_fault: Callable[[str], None], shop: Shop, place: str, error: str) -> None:
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    order_fault(f"raise {place} {error}")
    shop.node.operator("/operator/mine", {"blocks": 1})
    shop.node.mine(1)
    wait_until(lambda: loud(shop.node) != [], "a line")
    shop.node.mine(2)
    wait_until(lambda: shop.receiver.names[-1] == "confirmed: confirmed 3", "the confirmation")
    shop.receiver.check()
