"""What could cost a buyer or an organizer money: clicks and events at once, foreign secrets, refunds of what is not there."""

import hmac
import json
import secrets
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest
from django.db import OperationalError, connection
from django.utils.timezone import now
from django_scopes import scope
from pretix.base.models import Order, OrderPayment, OrderRefund, Team, User
from pretix.base.payment import PaymentException
from pretix.base.services.orders import _cancel_order
from svc_pay import Client, NodeUnreachable, ReceivedTransfer, refund_reference

from pretix_svc_pay import attempts, payment as provider, signals
from pretix_svc_pay.models import Attempt, Note

from .conftest import PASSWORD, later, periodic
from .running import ORGANIZER, wait_until


def unstarted(shop):
    """A payment that no click has begun."""
    attempt = shop.attempt(shop.order())
    pay = attempt.payment
    attempt.delete()
    return pay


def click(shop, pay):
    """What a click on "Pay" does."""
    pay = OrderPayment.objects.get(pk=pay.pk)
    return shop.event.get_payment_providers()["svc_pay"].execute_payment(None, pay)


def test_the_failure_of_one_click_leaves_the_attempt_of_the_other(shop, monkeypatch):
    pay, node = unstarted(shop), provider.node

    @contextmanager
    def unreachable(settings):
        monkeypatch.setattr(provider, "node", node)
        click(shop, pay)
        raise NodeUnreachable("the node does not answer")
        yield

    monkeypatch.setattr(provider, "node", unreachable)
    assert click(shop, pay) is None
    assert shop.states(shop.attempt(pay.order)) == ("n", "created")


def test_two_clicks_at_once_make_one_attempt(shop, monkeypatch):
    pay, new_reference = unstarted(shop), provider.new_reference

    def after_the_other_click(full_id):
        monkeypatch.setattr(provider, "new_reference", new_reference)
        click(shop, pay)
        return new_reference(full_id)

    monkeypatch.setattr(provider, "new_reference", after_the_other_click)
    assert click(shop, pay) is None
    assert Attempt.objects.filter(payment=pay).count() == 1
    assert shop.states(shop.attempt(pay.order)) == ("n", "created")


def test_an_attempt_ends_before_its_order_expires(shop):
    pay = unstarted(shop)
    expires = now() + timedelta(minutes=5)
    Order.objects.filter(pk=pay.order_id).update(expires=expires)
    click(shop, pay)
    assert shop.attempt(pay.order).pay_until == expires


def signed(body, secret):
    """The headers of a callback with this body."""
    identity, moment = json.loads(body)["id"], str(int(time.time()))
    signature = hmac.digest(secret.encode(), f"{identity}.{moment}.".encode() + body, "sha256")
    return {
        "webhook-id": identity, "webhook-timestamp": moment, "webhook-signature": "v1," + b64encode(signature).decode(),
        "content-type": "application/json",
    }


def test_the_secret_of_one_event_changes_no_payment_of_another(make_shop, devnet, callbacks):
    shop, other = make_shop(), make_shop(signing_secret=secrets.token_urlsafe(32))
    paid, open_ = shop.paid(), shop.attempt(shop.order())
    forged = json.loads(callbacks.last_of(paid, "payment.confirmed"))
    forged["payment"] |= {"reference": open_.reference, "recipient": open_.recipient, "amount": str(open_.amount)}
    body = json.dumps(forged).encode()
    secret = other.event.settings.payment_svc_pay_signing_secret
    assert httpx.post(shop.webhook_url, content=body, headers=signed(body, secret)).status_code == 401
    assert httpx.post(other.webhook_url, content=body, headers=signed(body, secret)).status_code == 200
    assert shop.states(open_) == ("n", "created")


def test_many_events_at_once_pay_an_order_once(shop, devnet, callbacks):
    attempt = shop.paid()
    body = callbacks.last_of(attempt, "payment.confirmed")
    right = shop.event.settings.payment_svc_pay_signing_secret
    # As if nothing of it were known yet.
    OrderPayment.objects.filter(pk=attempt.payment_id).update(state="created")
    Order.objects.filter(pk=attempt.order_id).update(status="n")
    Attempt.objects.filter(pk=attempt.pk).update(state="unpaid", look_at=now())
    before = attempt.order.all_logentries().filter(action_type="pretix.event.order.paid").count()

    def post(_):
        return httpx.post(shop.webhook_url, content=body, headers=signed(body, right), timeout=120).status_code

    def look(_):
        try:
            with scope(organizer=shop.event.organizer):
                periodic(shop)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(post, None) for _ in range(4)]
        looks = [threads.submit(look, None) for _ in range(2)]
        # 409 asks the node to send it again, because the database was locked.
        assert {each.result() for each in answers} <= {200, 409}
        for each in looks:
            each.result()
    periodic(shop)
    assert shop.states(attempt) == ("p", "confirmed")
    assert attempt.order.all_logentries().filter(action_type="pretix.event.order.paid").count() == before + 1


def test_an_answer_that_is_older_than_what_is_stored_does_not_count(shop, devnet):
    attempt = shop.attempt(shop.order())
    with Client(devnet.url) as client:
        unpaid = client.payment(attempt.terms(None))
        shop.set(signing_secret="x" * 40)  # No event is taken from here on.
        shop.pay(attempt)
        devnet.mine()
        older = Attempt.objects.get(pk=attempt.pk)
        assert attempts.look(client, Attempt.objects.get(pk=attempt.pk)) == "recorded"
    assert attempts.record(older, unpaid) == "overtaken"
    assert shop.states(attempt) == ("p", "confirmed")


def test_a_depth_that_the_database_has_no_room_for_is_the_greatest(shop, devnet):
    attempt = shop.paid()
    with Client(devnet.url) as client:
        deep = replace(client.payment(attempt.terms(None)), confirmations=2**53 - 1)
    while attempts.record(Attempt.objects.get(pk=attempt.pk), deep) == "overtaken":
        pass
    assert Attempt.objects.get(pk=attempt.pk).depth == 2**31 - 1


def test_a_locked_database_holds_up_no_other_payment(shop, devnet, monkeypatch):
    shop.set(signing_secret="x" * 40)
    first, second = (shop.attempt(shop.order()) for _ in range(2))
    for each in (first, second):
        shop.pay(each)
    devnet.mine()
    look = signals.look

    def locked_once(client, attempt):
        if attempt.pk == first.pk:
            raise OperationalError("database is locked")
        return look(client, attempt)

    monkeypatch.setattr(signals, "look", locked_once)
    periodic(shop)
    assert shop.states(second) == ("p", "confirmed")
    monkeypatch.setattr(signals, "look", look)
    periodic(shop)
    assert shop.states(first) == ("p", "confirmed")


def refund_of(attempt, amount):
    """A refund as pretix creates it before it is executed."""
    return OrderRefund.objects.create(
        order=attempt.order, payment=attempt.payment, provider="svc_pay", amount=amount,
        source=OrderRefund.REFUND_SOURCE_ADMIN, state=OrderRefund.REFUND_STATE_CREATED,
    )


def test_a_part_of_the_price_is_the_same_part_of_the_coins(shop):
    attempt = shop.paid()
    refund = refund_of(attempt, Decimal("4.17"))
    attempts.execute_refund(refund)
    assert (refund.state, refund.svc_pay_attempt.amount) == ("transit", 2_604_166_667 * 417 // 1250)
    attempts.execute_refund(refund)
    assert Attempt.objects.filter(refund=refund).count() == 1


def test_refunds_together_are_never_more_than_was_paid(shop):
    attempt = shop.paid()
    first, second = (refund_of(attempt, Decimal("8.00")) for _ in range(2))

    def execute(refund):
        try:
            with scope(organizer=shop.event.organizer):
                attempts.execute_refund(OrderRefund.objects.get(pk=refund.pk))
        except PaymentException as error:
            return str(error)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(execute, (first, second)))
    assert sorted(done, key=bool) == [None, "Together with its other refunds, more would be refunded than was paid."]
    assert Attempt.objects.filter(refund__in=(first, second)).count() == 1
    attempts.execute_refund(refund_of(attempt, Decimal("4.50")))


def test_a_payment_that_is_undone_is_not_refunded(shop, devnet):
    attempt = shop.paid()
    due = refund_of(attempt, Decimal("5.00"))
    attempts.execute_refund(due)
    page = f"/control/event{shop.base}orders/{attempt.order.code}/"
    uri = due.svc_pay_attempt.payment_uri.replace("&", "&amp;")
    assert uri in shop.staff().get(page).content.decode()
    devnet.reorganise()
    wait_until(lambda: Attempt.objects.get(pk=attempt.pk).undone, "the end of the payment")
    shown = shop.staff().get(page).content.decode()
    assert "Do not pay this refund now" in shown
    assert uri not in shown
    devnet.mine(1)  # It is in a block again, and has too few confirmations.
    with pytest.raises(PaymentException, match="nothing to refund"):
        attempts.execute_refund(refund_of(attempt, Decimal("1.00")))
    devnet.mine()
    wait_until(lambda: not Attempt.objects.get(pk=attempt.pk).undone, "the payment")
    assert uri in shop.staff().get(page).content.decode()


def test_a_refund_without_a_payment_is_refused(shop):
    refund_of(shop.paid(), Decimal("5.00"))
    attempt = shop.paid()
    refund = refund_of(attempt, Decimal("5.00"))
    refund.payment = None
    refund.save()
    with pytest.raises(PaymentException, match="No transfer is known"):
        attempts.execute_refund(refund)


def test_a_refund_for_an_event_without_the_plugin_waits(shop):
    refund = refund_of(shop.paid(), Decimal("5.00"))
    OrderRefund.objects.filter(pk=refund.pk).update(created=now() - timedelta(minutes=2))
    shop.event.plugins = ""
    shop.event.save()
    signals.look_at_attempts(None)
    refund.refresh_from_db()
    assert refund.state == "created"
    shop.event.plugins = "pretix_svc_pay"
    shop.event.save()
    signals.look_at_attempts(None)
    refund.refresh_from_db()
    assert refund.state == "transit"


def test_a_note_ends_when_the_coins_are_sent_back(shop, devnet):
    attempt = shop.paid()
    txid = shop.pay(attempt)
    devnet.mine()
    wait_until(lambda: shop.notes(attempt) == ["duplicate"], "a note")
    page = f"/control/event{shop.base}orders/{attempt.order.code}/"
    assert f"svc wallet refund {txid} --confirmations 3" in shop.staff().get(page).content.decode()
    sender = attempt.notes.get().sender
    back = devnet.pay(sender, attempt.amount, refund_reference(attempt.reference, txid), key=ORGANIZER)
    later(shop)
    shown = shop.staff().get(page).content.decode()
    assert "do not pay twice" in shown
    assert f"svc wallet refund {txid}" not in shown
    devnet.mine()
    later(shop)
    note = attempt.notes.get()
    assert (note.state, note.back_txid) == ("done", back)
    assert f"the transfer {back} in block {note.back_height}" in shop.staff().get(page).content.decode()


def test_a_note_is_withdrawn_when_its_transfer_has_gone(shop, devnet):
    attempt = shop.attempt(shop.order())
    txid = shop.pay(attempt, attempt.amount + 1)
    devnet.mine()
    wait_until(lambda: shop.notes(attempt) == ["too-much"], "a note")
    devnet.reorganise()
    periodic(shop)
    page = f"/control/event{shop.base}orders/{attempt.order.code}/"
    shown = shop.staff().get(page).content.decode()
    assert "there is nothing to do" in shown
    assert f"svc wallet refund {txid}" not in shown
    devnet.mine()
    wait_until(lambda: (periodic(shop), attempt.notes.get().state)[1] == "open", "the note again")


def test_the_note_about_an_undone_refund_ends_when_it_is_confirmed_again(shop, devnet):
    refund = refund_of(shop.paid(), Decimal("5.00"))
    attempts.execute_refund(refund)
    due = refund.svc_pay_attempt
    devnet.pay(due.recipient, due.amount, due.reference, key=ORGANIZER)
    devnet.mine()
    wait_until(lambda: OrderRefund.objects.get(pk=refund.pk).state == "done", "the end of the refund")
    devnet.reorganise()
    wait_until(lambda: shop.notes(due) == ["refund-undone"], "a note")
    page = f"/control/event{shop.base}orders/{refund.order.code}/"
    assert "do not pay twice" in shop.staff().get(page).content.decode()
    devnet.mine()
    wait_until(lambda: due.notes.get().state == "withdrawn", "the end of the note")


def test_a_wrong_amount_for_a_refund_proposes_no_refund(shop, devnet):
    refund = refund_of(shop.paid(), Decimal("5.00"))
    attempts.execute_refund(refund)
    due = refund.svc_pay_attempt
    txid = devnet.pay(due.recipient, due.amount + 1, due.reference, key=ORGANIZER)
    devnet.mine()
    wait_until(lambda: shop.notes(due) == ["too-much"], "a note")
    page = shop.staff().get(f"/control/event{shop.base}orders/{refund.order.code}/").content.decode()
    assert "Too many coins were sent" in page
    assert f"svc wallet refund {txid}" not in page


def test_transfers_of_a_stranger_fill_no_order_with_notes(shop):
    attempt = shop.attempt(shop.order())
    sent = [
        ReceivedTransfer(
            txid=f"{number:064x}", sender="somebody", reference=attempt.reference, amount=1, canonical=True,
            confirmations=1, block_height=1, mismatch="too-little",
        )
        for number in range(attempts.MOST_NOTES + 1)
    ]
    attempts.note_transfers(attempt, sent, {})
    assert attempt.notes.count() == attempts.MOST_NOTES
    assert attempt.order.all_logentries().filter(action_type=attempts.LOG_NOTE).count() == attempts.MOST_NOTES


def test_an_old_event_undoes_no_paid_order(shop, callbacks):
    attempt = shop.paid()
    body = json.loads(callbacks.last_of(attempt, "payment.confirmed"))
    secret = shop.event.settings.payment_svc_pay_signing_secret
    for watch in (body["subscriptionId"], secrets.token_hex(16)):
        old = {**body, "id": secrets.token_hex(16), "event": "payment.expired", "subscriptionId": watch}
        old["payment"] = {
            **body["payment"], "state": "unpaid", "confirmations": 0, "canonical": False, "matchCount": 0, "txid": None,
            "blockHash": None, "blockHeight": None, "blockTime": None,
        }
        old["sequence"] = body["sequence"] + 10
        old = json.dumps(old).encode()
        assert httpx.post(shop.webhook_url, content=old, headers=signed(old, secret)).status_code == 200
    assert shop.states(attempt) == ("p", "confirmed")
    assert not OrderRefund.objects.filter(order=attempt.order).exists()


def test_an_event_waits_for_the_node(shop, devnet, callbacks, monkeypatch):
    attempt = shop.paid()
    body = callbacks.last_of(attempt, "payment.confirmed")

    @contextmanager
    def unreachable(settings):
        raise NodeUnreachable("the node does not answer")
        yield

    monkeypatch.setattr(attempts, "node", unreachable)
    secret = shop.event.settings.payment_svc_pay_signing_secret
    assert httpx.post(shop.webhook_url, content=body, headers=signed(body, secret)).status_code == 409


def test_a_payment_of_a_canceled_order_is_noted(shop, devnet):
    attempt = shop.attempt(shop.order())
    shop.pay(attempt)
    shop.becomes(attempt, "n", "pending")
    _cancel_order(attempt.order.pk)
    devnet.mine()
    shop.becomes(attempt, "c", "confirmed")
    assert shop.notes(attempt) == ["surplus"]


def test_shredded_payments_and_refunds_name_nobody(shop, devnet, callbacks):
    attempt = shop.paid()
    shop.pay(attempt)
    devnet.mine(1)
    wait_until(lambda: shop.notes(attempt) == ["duplicate"], "a note")
    refund = refund_of(attempt, Decimal("12.50"))
    attempts.execute_refund(refund)
    due = refund.svc_pay_attempt
    devnet.pay(due.recipient, due.amount, due.reference, key=ORGANIZER)
    devnet.mine()
    wait_until(lambda: OrderRefund.objects.get(pk=refund.pk).state == "done", "the end of the refund")
    body = callbacks.last_of(due, "payment.confirmed")
    svc_pay = shop.event.get_payment_providers()["svc_pay"]
    asked = Attempt.objects.get(pk=due.pk)
    svc_pay.shred_payment_info(attempt.payment)
    svc_pay.shred_payment_info(OrderRefund.objects.get(pk=refund.pk))
    due = Attempt.objects.get(pk=due.pk)
    assert (due.recipient, due.payment_uri, due.look_at) == ("", "", None)
    # An answer that was asked for before comes too late to have it asked about again.
    client = devnet.client
    assert attempts.record(asked, client.payment(asked.terms(client.network))) == "overtaken"
    assert attempts.look(client, asked) == attempts.SHREDDED
    assert not Note.objects.filter(attempt=attempt).exclude(sender=None).exists()
    secret = shop.event.settings.payment_svc_pay_signing_secret
    assert httpx.post(shop.webhook_url, content=body, headers=signed(body, secret)).status_code == 200


def test_only_who_may_change_payment_settings_tests_them(shop):
    url = f"/control/event{shop.base}svc_pay/test/"
    assert "/control/login" in shop.browser().post(url)["Location"]
    user = User.objects.create_user(f"{secrets.token_hex(4)}@example.org", PASSWORD)
    team = Team.objects.create(organizer=shop.event.organizer, all_events=True, limit_event_permissions={"event.orders:read": True})
    team.members.add(user)
    browser = shop.browser()
    assert browser.login(email=user.email, password=PASSWORD)
    assert browser.post(url).status_code in (403, 404)
    staff = shop.staff()
    staff.handler.enforce_csrf_checks = True
    assert staff.post(url).status_code == 403
