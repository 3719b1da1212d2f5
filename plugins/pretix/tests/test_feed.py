"""What is found without webhooks, by the feed of the address that buyers pay to, and what that costs the node."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import svc_pay.client
from django.db import connection
from django.utils.timezone import now
from pretix.base.models import OrderRefund
from svc_pay import (
    DEVNET, MINIMUM_FEE, ApiError, Client, order_book, sign_transfer,
)

from pretix_svc_pay import attempts
from pretix_svc_pay.models import Attempt, Feed

from .conftest import later, periodic
from .running import BUYER, ORGANIZER, Devnet, fresh_key


@pytest.fixture
def deaf(make_shop):
    """A shop that takes no event of its node."""
    return make_shop(signing_secret="x" * 40)


@contextmanager
def requests(monkeypatch):
    """The paths that are asked for meanwhile."""
    paths, exchange = [], svc_pay.client.exchange

    def counted(http, request, until):
        paths.append(request.url.path)
        return exchange(http, request, until)

    with monkeypatch.context() as patch:
        patch.setattr(svc_pay.client, "exchange", counted)
        yield paths


def copies(attempt, number):
    """So many more open orders, which nobody has paid."""
    fields = [field.attname for field in Attempt._meta.concrete_fields if field.attname not in ("id", "payment_id", "reference")]
    shared = {name: getattr(attempt, name) for name in fields}
    for count in range(number):
        payment = attempt.order.payments.create(state="created", amount=attempt.payment.amount, provider="svc_pay")
        Attempt.objects.create(**shared, payment=payment, reference=f"{attempt.reference}.{count}")


def test_a_payment_is_found_and_undone_and_found_again(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    deaf.pay(attempt)
    periodic(deaf)
    assert deaf.states(attempt) == ("n", "pending")
    devnet.mine(1)
    periodic(deaf)
    assert Attempt.objects.get(pk=attempt.pk).depth == 1
    devnet.mine(1)
    periodic(deaf)
    assert Attempt.objects.get(pk=attempt.pk).depth == 2
    devnet.mine(1)
    periodic(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")
    devnet.reorganise()
    periodic(deaf)
    refund = OrderRefund.objects.get(payment=attempt.payment)
    assert (refund.state, deaf.states(attempt)) == ("external", ("p", "confirmed"))
    devnet.mine()
    periodic(deaf)
    refund.refresh_from_db()
    assert refund.state == "canceled"


def test_a_reorganisation_between_two_runs_that_has_the_payment_again_changes_nothing(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    deaf.pay(attempt)
    devnet.mine()
    periodic(deaf)
    before = Attempt.objects.get(pk=attempt.pk).height
    devnet.reorganise()
    devnet.mine()
    periodic(deaf)
    assert Attempt.objects.get(pk=attempt.pk).height > before
    assert deaf.states(attempt) == ("p", "confirmed")
    assert not OrderRefund.objects.filter(order=attempt.order).exists()


def test_a_payment_that_is_undone_long_after_it_was_confirmed_is_noticed(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    deaf.pay(attempt)
    devnet.mine(40)
    periodic(deaf)
    later(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")
    devnet.reorganise(40)
    periodic(deaf)
    assert OrderRefund.objects.get(payment=attempt.payment).state == "external"
    devnet.mine(1)


def test_a_wrong_amount_is_noted_and_withdrawn(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    deaf.pay(attempt, attempt.amount - 1)
    devnet.mine(1)
    periodic(deaf)
    assert deaf.notes(attempt) == ["too-little"]
    devnet.reorganise(1)
    periodic(deaf)
    assert attempt.notes.get().state == "withdrawn"
    devnet.mine(1)
    periodic(deaf)
    assert attempt.notes.get().state == "open"


def test_a_transfer_that_leaves_the_mempool_is_no_payment_any_more(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    nonce = devnet.client.account(BUYER.address(DEVNET)).pending_nonce
    deaf.pay(attempt)
    periodic(deaf)
    assert deaf.states(attempt) == ("n", "pending")
    other = sign_transfer(
        BUYER, DEVNET, recipient=ORGANIZER.address(DEVNET), amount=attempt.amount, nonce=nonce, fee=20 * MINIMUM_FEE,
        reference="another",
    )
    devnet.client.broadcast(other)
    periodic(deaf)
    assert deaf.states(attempt) == ("n", "created")
    devnet.mine(1)


def test_the_time_is_over_without_an_event(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    for ago, state in ((50, "created"), (60, "failed")):  # A block of a time before the deadline may be on its way.
        over = now() - timedelta(seconds=ago)
        Attempt.objects.filter(pk=attempt.pk).update(pay_until=over, look_at=now())
        periodic(deaf)
        assert deaf.states(attempt) == ("n", state)
    deaf.pay(attempt)
    periodic(deaf)
    assert deaf.notes(attempt) == ["late"]
    devnet.mine()
    periodic(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")
    assert deaf.notes(attempt) == ["late-taken"]


def test_orders_that_nobody_has_paid_cost_no_request(deaf, devnet, monkeypatch):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    counts = []
    for more in (0, 30):
        copies(attempt, more)
        with requests(monkeypatch) as paths:
            periodic(deaf)
        counts.append(len(paths))
        devnet.mine(1)
        with requests(monkeypatch) as paths:
            periodic(deaf)
        counts.append(len(paths))
    # The second one after a block makes sure that nothing more is to be told.
    assert counts == [1, 2, 1, 2]


def test_what_an_event_has_told_before_costs_no_request_either(shop, devnet, monkeypatch):
    attempt = shop.attempt(shop.order())
    periodic(shop)
    shop.pay(attempt)
    devnet.mine()
    shop.becomes(attempt, "p", "confirmed")
    with requests(monkeypatch) as paths:
        periodic(shop)
    assert {path.split("/")[3] for path in paths} == {"feed"}


def test_a_changed_address_is_read_as_long_as_orders_are_open(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    other = fresh_key()
    devnet.fund(other)
    deaf.set(recipient=other.address(DEVNET))
    second = deaf.attempt(deaf.order())
    assert second.recipient == other.address(DEVNET)
    periodic(deaf)
    for each in (attempt, second):
        deaf.pay(each)
    devnet.mine()
    periodic(deaf)
    assert [deaf.states(each) for each in (attempt, second)] == [("p", "confirmed")] * 2


KILLED = """
import os, signal, sys
import django
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
django.setup()
from django_scopes import scopes_disabled
from pretix_svc_pay import signals
from pretix_svc_pay.models import Attempt, Feed
def killed(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
place = {"the place moves": (Feed, "save"), "the payments are looked at": (signals, "look_at_one")}[sys.argv[3]]
setattr(*place, killed)
with scopes_disabled():
    signals.look_at_due(Attempt.objects.filter(order__event=sys.argv[2]))
"""


@pytest.mark.parametrize("before", ["the place moves", "the payments are looked at"])
def test_a_process_that_is_killed_skips_nothing(deaf, devnet, before):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    deaf.pay(attempt)
    devnet.mine()
    place = Feed.objects.get(event=deaf.event).place
    arguments = [str(connection.settings_dict["NAME"]), str(deaf.event.pk), before]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, *arguments], cwd=Path(__file__).parent.parent,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}, timeout=300,
    )
    assert done.returncode == -signal.SIGKILL
    is_moved = Feed.objects.get(event=deaf.event).place != place
    assert is_moved == (before == "the payments are looked at")
    assert deaf.states(attempt) == ("n", "created")
    periodic(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")


def test_a_place_that_another_process_has_moved_stays(deaf, devnet, monkeypatch):
    deaf.attempt(deaf.order())
    periodic(deaf)
    devnet.mine(1)
    feed = Client.feed

    def overtaken(client, place):
        answer = feed(client, place)
        monkeypatch.setattr(Client, "feed", feed)
        periodic(deaf)
        monkeypatch.setattr(Client, "feed", overtaken)
        return answer

    moved = []
    monkeypatch.setattr(Client, "feed", overtaken)
    monkeypatch.setattr(Feed, "save", lambda row: (moved.append(row.place), super(Feed, row).save()))
    periodic(deaf)
    # Only the other one has moved it, by two answers.
    assert len(moved) == 2
    assert Feed.objects.get(event=deaf.event).place == moved[-1]


def refused_as_no_cursor(feed, monkeypatch):
    place = order_book.Place.of(feed.place)
    Feed.objects.filter(pk=feed.pk).update(place=replace(place, after=place.after[:-4]).text)


def refused_as_pruned(feed, monkeypatch):
    ask, refused = Client.feed, []

    def pruned(client, place):
        if place.after is not None and not refused:
            refused.append(place)
            raise ApiError(410, "this node has pruned the blocks below 1000")
        return ask(client, place)

    monkeypatch.setattr(Client, "feed", pruned)


def of_another_network(feed, monkeypatch):
    place = order_book.Place.of(feed.place)
    Feed.objects.filter(pk=feed.pk).update(place=replace(place, genesis="0" * 64).text)


def of_another_version(feed, monkeypatch):
    Feed.objects.filter(pk=feed.pk).update(place='{"cursor": 1}')


@pytest.mark.parametrize("spoil", [refused_as_no_cursor, refused_as_pruned, of_another_network, of_another_version])
def test_without_a_place_each_attempt_is_asked_about_once(deaf, devnet, monkeypatch, spoil):
    paid, open_ = (deaf.attempt(deaf.order()) for _ in range(2))
    periodic(deaf)
    deaf.pay(paid)
    devnet.mine()
    periodic(deaf)
    # Meanwhile one is undone, and the other is paid.
    devnet.reorganise()
    deaf.pay(open_)
    spoil(Feed.objects.get(event=deaf.event), monkeypatch)
    periodic(deaf)
    assert OrderRefund.objects.get(payment=paid.payment).state == "external"
    assert deaf.states(open_) == ("n", "pending")
    devnet.mine()
    with requests(monkeypatch) as paths:
        periodic(deaf)
    assert OrderRefund.objects.get(payment=paid.payment).state == "canceled"
    assert deaf.states(open_) == ("p", "confirmed")
    assert "feed" in paths[0]


def test_a_node_that_refuses_every_place_is_asked_again_in_the_next_run(deaf, devnet, monkeypatch):
    attempt = deaf.attempt(deaf.order())
    ask, asked = Client.feed, []

    def refusing(client, place):
        asked.append(place)
        if place.after is not None:
            raise ApiError(410, "this node has pruned the blocks below 1000")
        return ask(client, place)

    monkeypatch.setattr(Client, "feed", refusing)
    deaf.pay(attempt)
    devnet.mine()
    periodic(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")
    assert len(asked) == 2


def test_another_node_of_the_network_goes_on(deaf, devnet, tmp_path):
    attempt = deaf.attempt(deaf.order())
    devnet.stop()
    shutil.copytree(devnet.folder / "devnet", tmp_path / "devnet")
    devnet.start()
    deaf.pay(attempt)
    devnet.mine(6)
    periodic(deaf)
    assert deaf.states(attempt) == ("p", "confirmed")
    other = Devnet(tmp_path)
    try:
        deaf.set(node_url=other.url)
        # Its chain is shorter: what it says is not what the network says.
        periodic(deaf)
        later(deaf)
        assert not OrderRefund.objects.filter(order=attempt.order).exists()
        other.mine(6)
        periodic(deaf)
        refund = OrderRefund.objects.get(payment=attempt.payment)
        assert refund.state == "external"
        other.pay(attempt.recipient, attempt.amount, attempt.reference)
        other.mine()
        periodic(deaf)
        refund.refresh_from_db()
        assert refund.state == "canceled"
    finally:
        other.stop()


def test_a_node_that_is_behind_what_the_feed_has_told_is_asked_again(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    with Client(devnet.url) as client:
        behind = client.payment(attempt.terms(None))
        deaf.pay(attempt)
        devnet.mine()
        periodic(deaf)
        marked = Attempt.objects.get(pk=attempt.pk)
        assert attempts.record(marked, behind) == "recorded"
        assert deaf.states(attempt) == ("p", "confirmed")
        assert Attempt.objects.get(pk=attempt.pk).look_at > now()
        later(deaf)
    assert Attempt.objects.get(pk=attempt.pk).state == "confirmed"
    assert not OrderRefund.objects.filter(order=attempt.order).exists()


def test_a_node_that_is_behind_what_an_event_has_told_undoes_nothing(deaf, devnet):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    with Client(devnet.url) as client:
        behind = client.payment(attempt.terms(None))
        deaf.pay(attempt)
        devnet.mine()
        attempts.look(client, attempt)
    assert deaf.states(attempt) == ("p", "confirmed")
    # The feed tells what is known, so that it gives no reason to ask.
    periodic(deaf)
    assert attempts.record(Attempt.objects.get(pk=attempt.pk), behind) == "recorded"
    assert not OrderRefund.objects.filter(order=attempt.order).exists()
    later(deaf)
    assert Attempt.objects.get(pk=attempt.pk).state == "confirmed"


def test_a_feed_without_news_for_long_is_not_read(deaf, monkeypatch):
    attempt = deaf.attempt(deaf.order())
    periodic(deaf)
    Attempt.objects.filter(pk=attempt.pk).update(follow_until=now() - timedelta(seconds=1), look_at=None)
    with requests(monkeypatch) as paths:
        periodic(deaf)
    assert paths == []
