import secrets
from datetime import timedelta
from decimal import Decimal
from threading import Lock

import pytest
from django.conf import settings
from django.test import Client as Browser
from django.test.testcases import LiveServerThread, _StaticFilesHandler
from django.test.utils import setup_databases, teardown_databases
from django.utils.timezone import now
from django_scopes import scopes_disabled
from pretix.base.models import Event, Item, Order, Organizer, Quota, Team, User
from svc_pay import DEVNET, WatchEvent

from pretix_svc_pay import signals
from pretix_svc_pay.models import Attempt

from .running import CONFIRMATIONS, ORGANIZER, Devnet, wait_until

PASSWORD = "a password for tests"


@pytest.fixture(scope="session")
def database(django_test_environment, django_db_blocker):
    """pretix's database, which all tests share: each has an event of its own, as in a real pretix."""
    with django_db_blocker.unblock(), scopes_disabled():
        made = setup_databases(verbosity=0, interactive=False)
        yield
        teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session")
def pretix_url(database):
    """pretix as a server, to which the node posts."""
    server = LiveServerThread("127.0.0.1", _StaticFilesHandler)
    server.daemon = True
    server.start()
    server.is_ready.wait()
    if server.error:
        raise server.error
    url = f"http://127.0.0.1:{server.port}"
    settings.SITE_URL = url
    settings.ALLOWED_HOSTS = ["*"]
    yield url
    server.terminate()


@pytest.fixture(scope="session")
def devnet(tmp_path_factory):
    node = Devnet(tmp_path_factory.mktemp("node"))
    yield node
    node.stop()


@pytest.fixture(scope="session")
def other_devnet(tmp_path_factory):
    """A devnet that makes blocks only for the stories in which a minute passes."""
    node = Devnet(tmp_path_factory.mktemp("other-node"))
    yield node
    node.stop()


@pytest.fixture(scope="session")
def organizer(database):
    organizer = Organizer.objects.create(name="Theatre", slug="theatre")
    user = User.objects.create_user("staff@example.org", PASSWORD)
    team = Team.objects.create(
        organizer=organizer, all_events=True, all_event_permissions=True, all_organizer_permissions=True
    )
    team.members.add(user)
    return organizer


class Shop:
    """An event that sells one kind of ticket for coins, its buyers and its staff."""

    def __init__(self, organizer, devnet, url, **changes):
        self.devnet, self.url = devnet, url
        self.event = Event.objects.create(
            organizer=organizer, name="Hamlet", slug=f"hamlet-{secrets.token_hex(4)}", currency="EUR", live=True,
            date_from=now() + timedelta(days=30), plugins="pretix_svc_pay",
        )
        self.event.settings.timezone = "Europe/Berlin"
        self.event.settings.attendee_names_asked = False
        self.ticket = Item.objects.create(event=self.event, name="Ticket", default_price=Decimal("12.50"))
        self.quota = Quota.objects.create(event=self.event, name="Seats", size=100)
        self.quota.items.add(self.ticket)
        self.set(**{
            "_enabled": True, "node_url": devnet.url, "public_node_url": devnet.url,
            "token": devnet.secret("manage-token"), "signing_secret": devnet.secret("signing-secret"),
            "recipient": ORGANIZER.address(DEVNET), "confirmations": CONFIRMATIONS, "minutes": 60, "rate": "0.48",
            **changes,
        })

    def set(self, **values):
        """Change settings of the payment provider."""
        for name, value in values.items():
            self.event.settings.set(f"payment_svc_pay_{name}", value)

    @property
    def base(self):
        return f"/{self.event.organizer.slug}/{self.event.slug}/"

    @property
    def webhook_url(self):
        return f"{self.url}{self.base}svc_pay/webhook/"

    def browser(self):
        """A browser of a buyer."""
        return Browser(headers={"host": self.url.removeprefix("http://")})

    def staff(self):
        """A browser of somebody of the organizer."""
        browser = self.browser()
        assert browser.login(email="staff@example.org", password=PASSWORD)
        return browser

    def order(self, browser=None):
        """Buy a ticket through the pages of the shop, and choose to pay in coins; the order."""
        browser = browser or self.browser()
        before = set(Order.objects.filter(event=self.event).values_list("pk", flat=True))
        for path, form in (
            ("cart/add", {f"item_{self.ticket.pk}": "1"}),
            ("checkout/questions/", {"email": "buyer@example.org", "email_repeat": "buyer@example.org"}),
            ("checkout/payment/", {"payment": "svc_pay"}),
            ("checkout/confirm/", {}),
        ):
            answer = browser.post(f"{self.base}{path}", form, follow=True)
            assert answer.status_code == 200, (path, answer.content)
        self.page = answer.content.decode()
        return Order.objects.exclude(pk__in=before).get(event=self.event)

    def attempt(self, order):
        """The newest attempt to pay an order."""
        return Attempt.objects.filter(order=order, payment__isnull=False).last()

    def pay(self, attempt, amount=None, key=None):
        """Send what an attempt asks for, or another amount."""
        given = {} if key is None else {"key": key}
        return self.devnet.pay(attempt.recipient, amount or attempt.amount, attempt.reference, **given)

    def states(self, attempt):
        """Of the order and of the payment, as they are stored now."""
        attempt = Attempt.objects.get(pk=attempt.pk)
        return attempt.order.status, attempt.payment.state

    def becomes(self, attempt, order, payment):
        """Wait until order and payment are in these states."""
        wait_until(lambda: self.states(attempt) == (order, payment), f"{order} {payment}")

    def paid(self):
        """An order that is paid and confirmed; its attempt."""
        attempt = self.attempt(self.order())
        self.pay(attempt)
        self.devnet.mine()
        self.becomes(attempt, "p", "confirmed")
        return attempt

    def notes(self, attempt):
        return [note.kind for note in attempt.notes.all()]


@pytest.fixture
def make_shop(organizer, devnet, pretix_url):
    """``make_shop(setting=value…)``"""
    return lambda **changes: Shop(organizer, devnet, pretix_url, **changes)


@pytest.fixture
def shop(make_shop):
    return make_shop()


@pytest.fixture(scope="session", autouse=True)
def hurried(organizer, other_devnet, pretix_url):
    """Orders with one minute to pay, whose minute passes while the other tests run."""
    shops = {}
    for name in ("last-minute", "unpaid", "late", "late-full"):
        shop = Shop(organizer, other_devnet, pretix_url, minutes=1)
        shops[name] = shop, shop.attempt(shop.order())
        if name == "last-minute":
            shop.pay(shops[name][1])
    return shops


class Callbacks:
    """The callbacks that have come, as they came."""

    def __init__(self):
        self.lock, self.taken = Lock(), []

    def last_of(self, attempt, name):
        """The body of the last event with this name: it may still come when pretix knows from an earlier one."""

        def of_it():
            with self.lock:
                taken = [(event, body) for event, body, _ in self.taken if isinstance(event, WatchEvent)]
            return [
                body for event, body in taken if event.name == name and event.payment.reference == attempt.reference
            ]

        wait_until(of_it, name)
        return of_it()[-1]


@pytest.fixture(scope="session", autouse=True)
def callbacks(database):
    """Keep what the node posts, to send it again."""
    from pretix_svc_pay import views

    kept, verifier = Callbacks(), views.verifier

    def keeping(settings):
        hook = verifier(settings)
        verify = hook.verify

        def kept_and_verified(body, headers):
            event = verify(body, headers)
            with kept.lock:
                kept.taken.append((event, body, dict(headers)))
            return event

        hook.verify = kept_and_verified
        return hook

    views.verifier = keeping
    yield kept
    views.verifier = verifier


def periodic(shop):
    """What pretix's cron job does for the attempts of a shop."""
    signals.look_at_due(Attempt.objects.filter(order__event=shop.event))


def later(shop):
    """The same when the time has come to look at each of them that has one."""
    Attempt.objects.filter(order__event=shop.event, look_at__isnull=False).update(look_at=now())
    periodic(shop)
