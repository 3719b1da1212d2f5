"""What is measured of webhooks."""

from twisted.internet.defer import Deferred

from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.subscriptions import WatchRequest
from tests.chains import address_of
from tests.metrics.conftest import Measured
from tests.support import result_of


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
    result_of(Deferred.fromCoroutine(webhooks.stopService()))
