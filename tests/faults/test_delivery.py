"""A disk that is full just when a receiver answers: the answer is noted later, or the event comes once more."""

from threading import Event
from typing import Any

import pytest

from tests.faults.conftest import Disk, confirm
from tests.process_level.receiver import Receiver
from tests.process_level.running import wait_until
from tests.process_level.test_webhook_story import SECRET, Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

UNNOTED = "the webhook outbox fails; nothing is sent until it works again"
PAID = "pending: pending 0"


class Thoughtful(Receiver):
    """Takes an event in, and answers as soon as it may: at once, unless a test says otherwise."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret)
        self.may_answer = Event()
        self.may_answer.set()

    def take(self, headers: Any, body: bytes) -> None:
        super().take(headers, body)
        # The node hangs up after 10 s.
        assert self.may_answer.wait(9)


@pytest.fixture
def receiver() -> Thoughtful:
    return Thoughtful(SECRET)


@pytest.mark.parametrize("killed", [False, True], ids=["it-goes-on", "it-is-killed"])
def test_an_event_whose_delivery_cannot_be_noted(disk: Disk, shop: Shop, receiver: Thoughtful, killed: bool) -> None:
    """What came of it is kept in memory until the disk takes it, and the event comes again only if that is lost."""
    shop.fund("customer")
    order = shop.order("order-1")
    receiver.may_answer.clear()
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    disk.fill()
    receiver.may_answer.set()
    assert shop.node.logged(UNNOTED)
    (event,) = shop.watch(order["watch"])["events"]
    assert event["deliveredAt"] is None
    if killed:
        shop.node.kill()
    disk.free()
    if killed:
        shop.start()
    wait_until(lambda: shop.watch(order["watch"])["events"][0]["deliveredAt"] is not None, "a note")
    assert len(receiver.events) == (2 if killed else 1)
    confirm(shop, PAID)
