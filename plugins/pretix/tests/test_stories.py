"""The stories of payments, on a real pretix and a real node."""

import re
import time

import httpx
import pytest
from pretix.base.models import OrderRefund
from pretix.base.services.orders import mark_order_expired
from svc_pay import Client, WatchEvent, format_amount, refund_reference

from pretix_svc_pay.models import Attempt

from .conftest import periodic
from .running import ORGANIZER, wait_until


def test_paid(shop, devnet):
    order = shop.order()
    attempt = shop.attempt(order)
    assert (attempt.amount, attempt.price, attempt.rate, attempt.currency) == (2_604_166_667, "12.50", "0.48", "EUR")
    assert attempt.reference.startswith(f"{order.code}-P-1.")
    assert shop.states(attempt) == ("n", "created")
    for shown in ("26.04166667 SVC", "<svg", attempt.reference, attempt.recipient, "at 0.48 EUR for a coin"):
        assert shown in shop.page
    assert "not seen yet" in shop.page
    shop.pay(attempt)
    shop.becomes(attempt, "n", "pending")
    devnet.mine()
    shop.becomes(attempt, "p", "confirmed")
    assert Attempt.objects.get(pk=attempt.pk).order.status == "p"


def test_confirmed_undone_and_confirmed_again(shop, devnet):
    attempt = shop.paid()
    devnet.reorganise()
    refunds = OrderRefund.objects.filter(payment=attempt.payment)
    wait_until(refunds.exists, "an external refund")
    refund = refunds.get()
    assert (refund.state, refund.amount) == ("external", attempt.payment.amount)
    assert shop.states(attempt) == ("p", "confirmed")
    devnet.mine()
    wait_until(lambda: refunds.get().state == "canceled", "the end of the external refund")
    assert shop.states(attempt) == ("p", "confirmed")


@pytest.mark.parametrize(("kind", "change"), [("too-little", -1), ("too-much", 1)])
def test_another_amount(shop, devnet, kind, change):
    attempt = shop.attempt(shop.order())
    txid = shop.pay(attempt, attempt.amount + change)
    devnet.mine()
    wait_until(lambda: shop.notes(attempt) == [kind], "a note")
    assert shop.states(attempt) == ("n", "created")
    order = attempt.order
    order.refresh_from_db()
    assert order.custom_followup_at is not None
    page = shop.staff().get(f"/control/event{shop.base}orders/{order.code}/").content.decode()
    assert f"svc wallet refund {txid}" in page
    # Long words break, so that the table fits into its page.
    assert 'class="svc-pay"' in page
    assert "pretix_svc_pay/pending.css" in page
    assert refund_reference(attempt.reference, txid) in page
    browser = shop.browser()
    shown = browser.get(f"{shop.base}order/{order.code}/{order.secret}/").content.decode()
    assert f"{format_amount(attempt.amount + change)} SVC arrived; the order costs 26.04166667 SVC." in shown
    assert "not seen yet" not in shown
    periodic(shop)
    assert shop.notes(attempt) == [kind]


def test_twice(shop, devnet):
    attempt = shop.paid()
    shop.pay(attempt)
    devnet.mine(1)
    wait_until(lambda: shop.notes(attempt) == ["duplicate"], "a note")
    assert shop.states(attempt) == ("p", "confirmed")


def test_refund(shop, devnet):
    attempt = shop.paid()
    order = attempt.order
    answer = shop.staff().post(f"/control/event{shop.base}orders/{order.code}/refund", {
        "start-action": "do_nothing", "start-mode": "full", "perform": "on",
        f"refund-{attempt.payment.pk}": "12.50", "refund-manual": "0.00",
    }, follow=True)
    assert answer.status_code == 200
    refund = OrderRefund.objects.get(order=order)
    assert refund.state == "transit"
    due = refund.svc_pay_attempt
    page = answer.content.decode()
    assert due.payment_uri.replace("&", "&amp;") in page
    shop.devnet.pay(due.recipient, due.amount, due.reference, key=ORGANIZER)
    devnet.mine()
    wait_until(lambda: OrderRefund.objects.get(order=order).state == "done", "the end of the refund")
    assert shop.states(attempt)[1] == "refunded"


def test_the_node_is_away(shop, make_shop, devnet):
    attempt = shop.attempt(shop.order())
    shop.pay(attempt)
    shop.set(signing_secret="x" * 40)  # No event is taken from here on.
    devnet.mine()
    devnet.stop()
    try:
        other = make_shop()
        order = other.order()
        assert (order.status, order.payments.get().state) == ("n", "failed")
        assert not Attempt.objects.filter(order=order).exists()
        assert "cannot be prepared" in other.page
        periodic(shop)
    finally:
        devnet.start()
    assert shop.states(attempt) in (("n", "created"), ("n", "pending"))
    periodic(shop)
    assert shop.states(attempt) == ("p", "confirmed")


def test_a_forged_event_changes_nothing(shop, devnet, callbacks):
    paid = shop.paid()
    callbacks.last_of(paid, "payment.confirmed")
    event, body, headers = next(each for each in callbacks.taken if each[0].name == "payment.confirmed")
    attempt = shop.attempt(shop.order())
    forged = body.replace(event.payment.reference.encode(), attempt.reference.encode())
    sent = {name: value for name, value in headers.items() if name.lower().startswith(("webhook-", "x-svc-"))}
    assert httpx.post(shop.webhook_url, content=forged, headers=sent).status_code == 401
    assert httpx.post(shop.webhook_url, content=forged).status_code == 401
    assert httpx.post(shop.webhook_url, content=bytes(16385)).status_code == 413
    assert shop.states(attempt) == ("n", "created")
    assert shop.states(paid) == ("p", "confirmed")


def test_a_replayed_event_changes_nothing(shop, devnet, callbacks):
    attempt = shop.paid()
    callbacks.last_of(attempt, "payment.confirmed")
    devnet.reorganise()
    refunds = OrderRefund.objects.filter(payment=attempt.payment)
    wait_until(refunds.exists, "an external refund")
    of_watches = [each for each in callbacks.taken if isinstance(each[0], WatchEvent)]
    of_it = [each for each in of_watches if each[0].payment.reference == attempt.reference]
    assert "payment.confirmed" in [event.name for event, _, _ in of_it]
    for _ in range(2):
        for _, body, headers in of_it:
            sent = {name: value for name, value in headers.items() if name.lower().startswith("webhook-")}
            assert httpx.post(shop.webhook_url, content=body, headers=sent).status_code == 200
    assert refunds.get().state == "external"
    with Client(devnet.url, token=devnet.secret("manage-token")) as client:
        watch = client.watches(reference=attempt.reference).watches[0]
        confirmed = next(event for event in watch.events if event.event == "payment.confirmed")
        before = len(callbacks.taken)
        client.redeliver(watch.id, confirmed.id)
    wait_until(lambda: len(callbacks.taken) > before, "the event again")
    assert refunds.get().state == "external"
    devnet.mine()
    wait_until(lambda: refunds.get().state == "canceled", "the end of the external refund")


def test_a_wrong_secret(make_shop, devnet):
    shop = make_shop(signing_secret="another secret of at least thirty-two characters".replace(" ", "-"))
    attempt = shop.attempt(shop.order())
    shop.pay(attempt)
    devnet.mine()
    with Client(devnet.url, token=devnet.secret("manage-token")) as client:
        def refused():
            events = client.watches(reference=attempt.reference).watches[0].events
            return any(event.last_status == 401 for event in events)

        wait_until(refused, "a refusal")
    assert shop.states(attempt) == ("n", "created")
    periodic(shop)
    assert shop.states(attempt) == ("p", "confirmed")


def wait_for(moment):
    """The deadline of a buyer is by the clock of node and pretix."""
    time.sleep(max(0, moment.timestamp() - time.time()))


def test_paid_in_the_last_minute(hurried, other_devnet):
    """The transfer was seen in time, and its first block comes when the time is over."""
    shop, attempt = hurried["last-minute"]
    shop.becomes(attempt, "n", "pending")
    wait_for(attempt.pay_until)
    periodic(shop)
    assert shop.states(attempt) == ("n", "pending")
    other_devnet.mine()
    shop.becomes(attempt, "p", "confirmed")


def test_expiry_fails_the_attempt_and_not_the_order(hurried, other_devnet):
    shop, attempt = hurried["unpaid"]
    shop.becomes(attempt, "n", "failed")
    order = attempt.order
    browser = shop.browser()
    page = browser.get(f"{shop.base}order/{order.code}/{order.secret}/").content.decode()
    assert "do not pay this amount any more" in page
    assert "<svg" not in re.sub("<svg class.*?</svg>", "", page)
    answer = browser.post(
        f"{shop.base}order/{order.code}/{order.secret}/pay/change", {"payment": "svc_pay"}, follow=True
    )
    answer = browser.post(answer.redirect_chain[-1][0], {}, follow=True)
    second = shop.attempt(order)
    assert (second.pk != attempt.pk, second.reference != attempt.reference) == (True, True)
    shop.pay(second)
    other_devnet.mine()
    shop.becomes(second, "p", "confirmed")


def test_late_and_there_are_places(hurried, other_devnet):
    shop, attempt = hurried["late"]
    shop.becomes(attempt, "n", "failed")
    mark_order_expired(attempt.order)
    shop.pay(attempt)
    other_devnet.mine()
    shop.becomes(attempt, "p", "confirmed")
    assert shop.notes(attempt) == ["late-taken"]
    page = shop.staff().get(f"/control/event{shop.base}orders/{attempt.order.code}/").content.decode()
    assert "The payment was accepted" in page
    assert "svc wallet refund" not in page


def test_late_and_there_is_no_place(hurried, other_devnet):
    shop, attempt = hurried["late-full"]
    shop.becomes(attempt, "n", "failed")
    mark_order_expired(attempt.order)
    shop.quota.size = 0
    shop.quota.save()
    shop.pay(attempt)
    other_devnet.mine()
    refunds = OrderRefund.objects.filter(payment=attempt.payment)
    wait_until(lambda: refunds.exists() and refunds.get().state == "transit", "a refund")
    assert shop.notes(attempt) == ["no-places"]
    assert shop.states(attempt) == ("e", "confirmed")
    due = refunds.get().svc_pay_attempt
    shop.devnet.pay(due.recipient, due.amount, due.reference, key=ORGANIZER)
    other_devnet.mine()
    wait_until(lambda: refunds.get().state == "done", "the end of the refund")
    assert shop.states(attempt) == ("e", "refunded")
    assert attempt.notes.get().state == "done"


def test_german_pages(shop):
    shop.event.settings.locales = ["de", "en"]
    shop.event.settings.locale = "de"
    browser = shop.browser()
    order = shop.order(browser)
    page = browser.get(
        f"{shop.base}order/{order.code}/{order.secret}/", headers={"accept-language": "de"}
    ).content.decode()
    assert "26.04166667 SVC" in page
    assert "Senden Sie genau diesen Betrag" in page
