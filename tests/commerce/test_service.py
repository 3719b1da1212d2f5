"""What the operator is told of the webhooks."""

from twisted.internet.defer import Deferred

from svcd.commerce.payment import Terms
from svcd.commerce.subscriptions import Order
from svcd.ports import milliseconds
from tests.chains import address_of
from tests.metrics.conftest import Measured, builder, make_node, make_stranger, measure, measured, node, town
from tests.support import result_of

__all__ = ["builder", "make_node", "make_stranger", "measure", "measured", "node", "town"]

NOBODY = {"watches": 0, "waiting": 0, "inFlight": 0, "oldestWaitingSince": None, "brokenHosts": 0, "abandoned": 0}


def test_the_operator_sees_watches_and_since_when_an_event_waits(measured: Measured) -> None:
    """The receiver of these events is never there."""
    merchants, clock = measured.merchants, measured.clock
    webhooks = merchants.webhooks
    clock.advance(1)
    webhooks.startService()
    assert merchants.record() == NOBODY

    shop = address_of("bob", measured.node.setting.params.address_prefix)
    terms = Terms("order-1", shop, 5000)
    order = Order(terms=terms, callback_url="https://shop.example.com/", host="shop.example.com", ttl_ms=60_000)
    result_of(Deferred.fromCoroutine(webhooks.register(order)))
    result_of(webhooks.count())
    assert merchants.record() == NOBODY | {"watches": 1}

    clock.advance(60)
    expired = milliseconds(clock)
    webhooks.look()
    clock.advance(1)
    result_of(webhooks.count())
    assert merchants.record() == NOBODY | {"waiting": 1, "oldestWaitingSince": str(expired)}
    result_of(Deferred.fromCoroutine(webhooks.stopService()))
