"""The merchant's routes over the real HTTP stack: who may, what is refused and answered (docs/webhook-reference.md)."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.commerce.events import DEFAULT_EVENTS, EventType
from svcd.commerce.sender import CallbackTester, SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys, verify
from svcd.commerce.watch_operations import WatchLimits
from svcd.interfaces import milliseconds
from svcd.net.addresses import AddressPolicy
from svcd.net.calls import Reply
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules, Target
from svcd.net.trust import load_trust
from svcd.rpc.webhook_routes import Merchant, WebhookPolicy, WebhookRoutes
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from tests.commerce.watched import Watched
from tests.net.conftest import Answers
from tests.rpc.conftest import CLIENT, present, published
from tests.rpc.node import COMMON, UNLIMITED, Client, PublicSite

TOKEN = "the management token of the tests"
BOOKS = "the management token of a merchant of books"
PATH = "/rpc/commerce/webhooks"
UNKNOWN = "svcwh_" + 32 * "f"
MERCHANTS = (
    Merchant(name="default", token=TOKEN, keys=SigningKeys("s" * 32)),
    Merchant(name="books", token=BOOKS, keys=SigningKeys("b" * 32)),
)
HTTP_PAGE = Path(__file__).parents[2] / "docs" / "http.md"
OFFER = WebhookPolicy(problem="", merchants=MERCHANTS, default_ttl=86_400, max_ttl=600_000)
Ask = Callable[..., Any]


@pytest.fixture
def clock() -> Clock:
    return present()


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    watched = Watched(tmp_path, clock)
    yield watched
    watched.close()


NETWORKS = "[commerce.webhooks] callbackNetworks"
POLICY = AddressPolicy(setting=NETWORKS)


class Receiver:
    """Answers each callback as the test says, once it says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, str], bytes]] = []
        self.answers: list[Deferred[Reply]] = []

    def call(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, limits: Any
    ) -> "Deferred[Reply]":
        assert method == "POST"
        self.calls.append((target.url, headers, body or b""))
        self.answers.append(Deferred())
        return self.answers[-1]


def routes_of(
    watched: Watched, *answers: Any, offer: WebhookPolicy = OFFER, receiver: Receiver | None = None
) -> WebhookRoutes:
    receiver = receiver or Receiver()
    reactor: Any = watched.clock
    resolver = Answers(*(answers or (["93.184.215.14"],)))
    caller = PinnedClient(reactor, resolver=resolver, policy=POLICY, trust=load_trust())
    webhooks = None if offer.problem else watched.webhooks
    callers = {merchant.name: caller for merchant in offer.merchants}
    rules = Rules.for_callbacks()
    sending = {merchant.name: SendingMerchant(receiver, merchant.keys) for merchant in offer.merchants}
    chain = watched.database.operations.repository.chain
    tester = CallbackTester(WebhookSender(rules, sending), chain, watched.clock, new_id=lambda: "7" * 32)
    return WebhookRoutes(
        watched.node.params,
        offer,
        webhooks=webhooks,
        rules=rules,
        callers=callers,
        tester=tester,
        now=lambda: milliseconds(watched.clock),
    )


def client_of(watched: Watched, *answers: Any, **given: Any) -> Client:
    return client_for(watched, routes_of(watched, *answers, **given))


def client_for(watched: Watched, routes: WebhookRoutes) -> Client:
    public = PublicSite(COMMON, RateLimiter(Clients(), {**UNLIMITED, "webhooks": Rate(0, 1)}, watched.clock))
    site = watched.node.sites.public([routes], public)
    return Client(site, published(site), watched.clock, CLIENT)


@pytest.fixture
def client(watched: Watched) -> Client:
    return client_of(watched)


def body_of(watched: Watched, **differing: Any) -> dict[str, Any]:
    common = {
        "recipient": watched.node.address("bob"),
        "amountBaseUnits": "5000",
        "reference": "order-1",
        "callbackUrl": "https://shop.example.com/paid?shop=7",
    }
    return {name: value for name, value in {**common, **differing}.items() if value is not None}


def register(client: Client, body: dict[str, Any], token: str = TOKEN) -> Any:
    return client.post(PATH, body, Authorization=f"Bearer {token}")


def test_registration_gives_the_subscription(watched: Watched, client: Client) -> None:
    response = register(client, body_of(watched))

    assert response.status == 201
    answer = response.json
    assert answer["ok"] is True
    subscription = answer["subscription"]
    assert subscription["id"].startswith("svcwh_")
    assert subscription["active"] is True
    assert (subscription["lastState"], subscription["requiredConfirmations"]) == ("unpaid", 12)
    assert (subscription["amount"], subscription["reference"]) == ("5000", "order-1")
    assert subscription["callbackUrl"] == "https://shop.example.com/paid?shop=7"
    assert int(subscription["expiresAt"]) - int(subscription["createdAt"]) == 86_400_000
    assert subscription["payment"]["state"] == "unpaid"


def test_a_decimal_amount_and_all_that_may_be_said(watched: Watched, client: Client) -> None:
    body = body_of(watched, amountBaseUnits=None, amount="0.5", confirmations=1, ttlSeconds=60, sinceHeight="7")

    subscription = register(client, body).json["subscription"]

    assert (subscription["amount"], subscription["requiredConfirmations"]) == ("50000000", 1)
    assert subscription["sinceHeight"] == "7"
    assert int(subscription["expiresAt"]) - int(subscription["createdAt"]) == 60_000


def test_a_deadline_for_the_buyer(watched: Watched, client: Client) -> None:
    """Then the watch lives for as long as this node allows, unless the registration says how long."""
    body = body_of(watched, payWithinSeconds=600)
    subscription = register(client, body).json["subscription"]
    created = int(subscription["createdAt"])
    assert int(subscription["payUntil"]) - created == 600_000
    assert int(subscription["expiresAt"]) - created == 600_000_000
    assert "warning" not in subscription
    assert register(client, body).json["subscription"]["existing"] is True
    other = register(client, body | {"payWithinSeconds": 660, "ttlSeconds": 660}).json["subscription"]
    assert other["id"] != subscription["id"]
    assert other["expiresAt"] == other["payUntil"]


@pytest.mark.parametrize(("missing", "warned"), [(1, True), (0, False)])
def test_a_lifetime_in_which_a_payment_is_hardly_confirmed_is_warned_of(
    watched: Watched, client: Client, missing: int, warned: bool
) -> None:
    params = watched.node.params
    expected = 1_000 * params.slots_per_block * params.slot_seconds
    seconds = 2 * expected - missing
    answer = register(client, body_of(watched, confirmations=1_000, ttlSeconds=seconds))
    sentence = (
        f"1000 confirmations take about {expected} s, and this watch ends after {seconds} s even if a payment is on its"
        " way: give the buyer's deadline as payWithinSeconds instead of ttlSeconds"
    )
    assert answer.json["subscription"].get("warning") == (sentence if warned else None)


@pytest.mark.parametrize(
    ("missing", "ttl", "remedy"),
    [
        (1, 50_000, "a larger ttlSeconds, at most 600000 on this node, or a shorter payWithinSeconds"),
        (1, 600_000, "a shorter payWithinSeconds"),
        (0, 600_000, None),
    ],
)
def test_a_lifetime_that_ends_soon_after_the_deadline_is_warned_of(
    watched: Watched, client: Client, missing: int, ttl: int, remedy: str | None
) -> None:
    """A payment of the last minute would be abandoned, as without a deadline."""
    params = watched.node.params
    expected = 1_000 * params.slots_per_block * params.slot_seconds
    left = 2 * expected - missing
    limits = {"payWithinSeconds": ttl - left, "ttlSeconds": ttl}
    answer = register(client, body_of(watched, confirmations=1_000, **limits))
    sentence = (
        f"1000 confirmations take about {expected} s, and this watch ends {left} s after the buyer's deadline even if a"
        f" payment is on its way: give {remedy}"
    )
    assert answer.json["subscription"].get("warning") == (sentence if remedy else None)


def test_a_registration_may_name_the_events_it_wants(watched: Watched, client: Client) -> None:
    every = register(client, body_of(watched)).json["subscription"]
    body = body_of(watched, events=["payment.reorged", "payment.confirmed"])
    some = register(client, body).json["subscription"]

    assert every["wantedEvents"] == [event.value for event in EventType if event in DEFAULT_EVENTS]
    assert some["wantedEvents"] == ["payment.confirmed", "payment.reorged"]
    assert some["id"] != every["id"]
    assert register(client, body | {"events": body["events"][::-1]}).json["subscription"]["existing"] is True
    watched.pay("5000 from alice to bob for order-1")
    shown = client.get(f"{PATH}/{some['id']}", Authorization=f"Bearer {TOKEN}").json["subscription"]
    assert shown["events"] == []


def test_a_second_registration_gives_the_first(watched: Watched, client: Client) -> None:
    first, second = (register(client, body_of(watched)) for _ in range(2))

    assert second.status == 201
    assert second.json["subscription"] == {**first.json["subscription"], "existing": True}
    # The specification has one status of success for this route, and docs/http.md names it.
    assert (first.status, second.status) == (201, 201)
    assert "\n| 201 | a watch was registered, or exists already" in HTTP_PAGE.read_text("utf-8")


def test_showing_and_cancelling(watched: Watched, client: Client) -> None:
    identifier = register(client, body_of(watched)).json["subscription"]["id"]
    watched.pay("5000 from alice to bob for order-1")

    shown = client.get(f"{PATH}/{identifier}", Authorization=f"Bearer {TOKEN}").json["subscription"]
    assert (shown["lastState"], shown["payment"]["state"]) == ("pending", "pending")
    (event,) = shown["events"]
    assert (event["event"], event["attempts"], event["deliveredAt"]) == ("payment.pending", 0, None)
    assert event["nextAttemptAt"] == event["createdAt"]

    cancelled = client.post(f"{PATH}/{identifier}/cancel", Authorization=f"Bearer {TOKEN}")
    again = client.post(f"{PATH}/{identifier}/cancel", {}, Authorization=f"Bearer {TOKEN}")
    assert (cancelled.status, again.status) == (200, 200)
    assert cancelled.json == again.json
    assert cancelled.json["subscription"]["active"] is False
    assert cancelled.json["subscription"]["ending"] == "cancelled"
    assert cancelled.json["subscription"]["events"][0]["dropped"] is True


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN.upper()])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", PATH), ("GET", f"{PATH}/{UNKNOWN}"), ("POST", f"{PATH}/{UNKNOWN}/cancel")]
)
def test_a_wrong_token_is_refused(client: Client, method: str, path: str, token: str) -> None:
    response = client.send(method, path, headers={"Authorization": f"Bearer {token}"})

    assert response.status == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_the_token_tells_whose_watch_it_is(watched: Watched, client: Client) -> None:
    own = register(client, body_of(watched)).json["subscription"]["id"]
    other = register(client, body_of(watched), token=BOOKS).json["subscription"]["id"]
    assert own != other

    for token, mine, theirs in ((TOKEN, own, other), (BOOKS, other, own)):
        authorization = {"Authorization": f"Bearer {token}"}
        assert client.get(f"{PATH}/{mine}", **authorization).json["subscription"]["id"] == mine
        for method, end in (("GET", ""), ("POST", "/cancel")):
            refused = client.send(method, f"{PATH}/{theirs}{end}", headers=authorization)
            unknown = client.send(method, f"{PATH}/{UNKNOWN}{end}", headers=authorization)
            assert (refused.status, refused.json) == (unknown.status, unknown.json) == (404, refused.json)
    assert watched.show(own)["active"]
    assert watched.show(other, "books")["active"]


def test_a_merchant_watches_only_the_recipients_that_it_may(watched: Watched) -> None:
    bob, alice = (watched.node.address(name) for name in ("bob", "alice"))
    books = evolve(MERCHANTS[1], recipients=frozenset({bob}))
    client = client_of(watched, offer=evolve(OFFER, merchants=(MERCHANTS[0], books)))

    assert register(client, body_of(watched, recipient=bob), token=BOOKS).status == 201
    refused = register(client, body_of(watched, recipient=alice), token=BOOKS)
    assert (refused.status, refused.error) == (
        400,
        "recipient: payments to this address may not be watched with this token",
    )
    assert register(client, body_of(watched, recipient=alice)).status == 201


@pytest.mark.parametrize("height", [7, True, None, "07", "7 ", ""])
def test_a_height_that_is_no_string_of_digits_is_refused_with_a_sentence_that_says_so(
    watched: Watched, client: Client, height: object
) -> None:
    response = register(client, body_of(watched) | {"sinceHeight": height})
    assert (response.status, response.error) == (
        400,
        'sinceHeight must be a decimal string without leading zeros, from "0" to "9007199254740991"',
    )


def test_no_token_is_refused_before_anything_is_read(client: Client) -> None:
    assert client.send("POST", PATH, b"this is not JSON").status == 401


def test_the_token_is_in_no_repr() -> None:
    assert TOKEN not in repr(OFFER)
    assert BOOKS not in repr(OFFER)


def test_webhooks_that_are_off_come_before_everything(watched: Watched) -> None:
    client = client_of(watched, offer=evolve(OFFER, problem="webhooks are not enabled on this node"))

    for method, path in (("POST", PATH), ("GET", f"{PATH}/nonsense"), ("POST", f"{PATH}/{UNKNOWN}/cancel")):
        response = client.send(method, path, b"junk" if method == "POST" else None)
        assert (response.status, response.error) == (503, "webhooks are not enabled on this node")


ALLOWED = f"the operator can allow it in {NETWORKS}"


@pytest.mark.parametrize(
    ("differing", "says"),
    [
        ({"reference": None}, "reference"),
        ({"reference": "no blanks"}, "reference must be 1 to 64"),
        ({"reference": ".."}, "reference must not be"),
        ({"recipient": "svc1nonsense"}, "recipient"),
        ({"amount": "1"}, "give exactly one of amount and amountBaseUnits"),
        ({"amountBaseUnits": None}, "give exactly one of amount and amountBaseUnits"),
        ({"amountBaseUnits": "0"}, "more than 0"),
        ({"confirmations": 0}, "from 1 to 1000"),
        ({"confirmations": "3"}, "from 1 to 1000"),
        ({"confirmation": 3}, "confirmation"),
        ({"ttlSeconds": 59}, "from 60 to 604800"),
        ({"ttlSeconds": 604_801}, "from 60 to 604800"),
        ({"ttlSeconds": 600_001}, "at most 600000 on this node"),
        ({"payWithinSeconds": 59}, "from 60 to 604800"),
        ({"payWithinSeconds": 600_001}, "payWithinSeconds must be at most 600000 on this node"),
        ({"payWithinSeconds": 601, "ttlSeconds": 600}, "payWithinSeconds must be at most ttlSeconds, which is 600"),
        ({"events": []}, "events: must be a list of one or more of payment.pending, payment.confirming"),
        ({"events": ["payment.paid"]}, "each at most once"),
        ({"events": ["payment.confirmed", "payment.confirmed"]}, "each at most once"),
        ({"events": "payment.confirmed"}, "events: must be a list"),
        ({"callbackUrl": None}, "callbackUrl"),
        ({"callbackUrl": 7}, "callbackUrl"),
        ({"callbackUrl": "http://shop.example.com/paid"}, "callbackUrl must begin with https://"),
        ({"callbackUrl": "https://localhost/paid"}, f"public host name, such as shop.example.com; {ALLOWED}"),
        ({"callbackUrl": "https://127.0.0.1/paid"}, f"may not be called (loopback); {ALLOWED}"),
        ({"callbackUrl": "https://100.64.0.1/paid"}, f"may not be called (reserved); {ALLOWED}"),
        ({"callbackUrl": "https://2130706433/paid"}, "IPv4"),
        ({"callbackUrl": "https://user:pw@shop.example.com/"}, "user or a password"),
        ({"callbackUrl": "https://shop.example.com:25/"}, "another port"),
    ],
)
def test_refused_registrations(watched: Watched, client: Client, differing: dict[str, Any], says: str) -> None:
    response = register(client, body_of(watched, **differing))

    assert response.status == 400
    assert says in response.error


AGAIN = "try again, or give a name that the DNS knows"
BAD = "shop.example.com has an address that may not be called"


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (["10.0.0.1"], 400, f"{BAD} (private); {ALLOWED}"),
        (["93.184.215.14", "169.254.169.254"], 400, f"{BAD} (metadata)"),
        (OSError(8, "no such name"), 503, f"shop.example.com cannot be looked up: no such name; {AGAIN}"),
        ([], 503, f"shop.example.com has no address; {AGAIN}"),
    ],
)
def test_the_host_of_a_callback_is_resolved_at_registration(
    watched: Watched, answer: Any, status: int, says: str
) -> None:
    response = register(client_of(watched, answer), body_of(watched))

    assert (response.status, response.error) == (status, f"callbackUrl: {says}")
    assert response.headers.get("retry-after") == ("30" if status == 503 else None)


def test_a_name_that_is_never_found_takes_five_seconds(watched: Watched) -> None:
    waiting = client_of(watched, None)
    watched.clock.callLater(0, watched.clock.advance, 5)

    response = register(waiting, body_of(watched))
    assert (response.status, response.headers["retry-after"]) == (503, "30")
    assert "not found within 5 s" in response.error


@pytest.mark.parametrize("identifier", ["svcwh_", UNKNOWN.upper(), UNKNOWN + "0", "svcevt_" + 32 * "0"])
def test_an_id_that_is_none(client: Client, identifier: str) -> None:
    response = client.get(f"{PATH}/{identifier}", Authorization=f"Bearer {TOKEN}")

    assert (response.status, "svcwh_ and 32 lower-case hex characters" in response.error) == (400, True)


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("POST", "/cancel")])
def test_an_id_that_nobody_has(client: Client, method: str, end: str) -> None:
    response = client.send(method, f"{PATH}/{UNKNOWN}{end}", headers={"Authorization": f"Bearer {TOKEN}"})

    assert (response.status, response.error) == (404, "this node has no watch with that id")


def test_deleting_a_watch_is_told_of_cancel(client: Client) -> None:
    response = client.send("DELETE", f"{PATH}/{UNKNOWN}", headers={"Authorization": f"Bearer {TOKEN}"})

    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert response.error == (
        "this path answers GET, HEAD, OPTIONS only; to end this watch, POST to its path followed by /cancel"
    )


# What has been delivered


def listed(client: Client, query: str = "", token: str = TOKEN) -> Any:
    return client.get(f"{PATH}{query}", Authorization=f"Bearer {token}")


def test_a_merchant_lists_its_watches(watched: Watched, client: Client) -> None:
    orders = [body_of(watched, reference=f"order-{number}") for number in "123"]
    ids = [register(client, order).json["subscription"]["id"] for order in orders]
    other = register(client, body_of(watched), token=BOOKS).json["subscription"]["id"]
    watched.pay("5000 from alice to bob for order-2")

    page = listed(client, "?limit=2").json
    assert [each["id"] for each in page["subscriptions"]] == ids[:0:-1]
    assert page["next"] == ids[1]
    shown = page["subscriptions"][1]
    assert shown == client.get(f"{PATH}/{ids[1]}", Authorization=f"Bearer {TOKEN}").json["subscription"]
    last = listed(client, f"?limit=2&after={page['next']}").json
    assert ([each["id"] for each in last["subscriptions"]], last["next"]) == (ids[:1], None)
    assert [each["id"] for each in listed(client, "?state=pending").json["subscriptions"]] == [ids[1]]
    assert len(listed(client, "?host=shop.example.com").json["subscriptions"]) == 3
    assert listed(client, "?host=other.example.com").json["subscriptions"] == []
    assert [each["id"] for each in listed(client, token=BOOKS).json["subscriptions"]] == [other]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?limit=0", "limit: must be a whole number from 1 to 50"),
        ("?limit=51", "limit: must be a whole number from 1 to 50"),
        ("?state=paid", "state: must be one of unpaid, pending, confirming, confirmed, expired"),
        ("?after=7", "after: must be the id of a watch"),
        (f"?after={UNKNOWN}", "after: must be the `next` of a page"),
    ],
)
def test_a_list_that_cannot_be(client: Client, query: str, says: str) -> None:
    response = listed(client, query)
    assert (response.status, response.error[: len(says)]) == (400, says)


def test_the_after_of_another_merchant_is_unknown(watched: Watched, client: Client) -> None:
    other = register(client, body_of(watched), token=BOOKS).json["subscription"]["id"]
    assert listed(client, f"?after={other}").json == listed(client, f"?after={UNKNOWN}").json


def test_an_event_is_sent_again_under_its_id(watched: Watched, client: Client) -> None:
    identifier = register(client, body_of(watched)).json["subscription"]["id"]
    watched.pay("5000 from alice to bob for order-1")
    (body,) = watched.events()
    path = f"{PATH}/{identifier}/events/{body['id']}/redeliver"
    refused = client.send("POST", path, headers={"Authorization": f"Bearer {BOOKS}"})
    assert (refused.status, watched.queues.pending) == (404, {})

    response = client.send("POST", path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status == 202
    event = response.json["event"]
    assert (event["id"], event["attempts"]) == (body["id"], 1)
    assert event["nextAttemptAt"] is not None
    assert event["deliveredAt"] is not None
    # A restart between the answer and the delivery loses nothing.
    watched.again()
    assert watched.events() == [body]
    shown = watched.show(identifier)["events"][0]
    assert (shown["attempts"], shown["nextAttemptAt"]) == (2, None)


def test_events_that_cannot_be_sent_again(watched: Watched, client: Client) -> None:
    identifier = register(client, body_of(watched)).json["subscription"]["id"]
    watched.pay("5000 from alice to bob for order-1")
    (body,) = watched.events()
    authorization = {"Authorization": f"Bearer {TOKEN}"}

    def redeliver(watch: str, event: str) -> Any:
        return client.send("POST", f"{PATH}/{watch}/events/{event}/redeliver", headers=authorization)

    unknown = "svcevt_" + 32 * "f"
    assert [redeliver(*names).status for names in ((identifier, unknown), (UNKNOWN, body["id"]))] == [404, 404]
    assert redeliver(identifier, "svcevt_1").status == 400
    watched.clock.advance(8 * 86_400)
    watched.clean_up()
    late = redeliver(identifier, body["id"])
    assert (late.status, late.error) == (409, "the body of this event is no longer stored, so it cannot be sent again")
    watched.cancel(identifier)
    cancelled = redeliver(identifier, body["id"])
    assert (cancelled.status, cancelled.error) == (
        409,
        "the watch was cancelled: register the order again to get its events",
    )


@pytest.mark.parametrize(("status", "error"), [(404, "status 404"), (500, "status 500"), (204, None)])
def test_a_callback_is_tested(watched: Watched, status: int, error: str | None) -> None:
    receiver = Receiver()
    client = client_of(watched, receiver=receiver)
    watched.clock.callLater(
        0.25, lambda: receiver.answers[0].callback(Reply(status=status, headers={}, body=b"secret"))
    )
    watched.clock.callLater(0, watched.clock.advance, 0.25)

    response = client.post(
        f"{PATH}/test", {"callbackUrl": "https://shop.example.com/paid"}, Authorization=f"Bearer {BOOKS}"
    )
    assert response.status == 200
    test = {"id": "svcevt_" + 32 * "7", "event": "webhook.test"}
    assert response.json["test"] == {**test, "status": status, "error": error, "milliseconds": 250}
    assert watched.queues.hurried == ([] if error else [("books", "shop.example.com:443")])
    ((url, headers, body),) = receiver.calls
    assert url == "https://shop.example.com/paid"
    now = int(headers["X-Svc-Timestamp"])
    signed = {"timestamp": str(now), "signature": headers["X-Svc-Signature"]}
    verify(body, **signed, secret=MERCHANTS[1].keys.current, now=now)
    assert (headers["X-Svc-Event"], headers["webhook-id"]) == ("webhook.test", test["id"])
    assert {**json.loads(body), **test} == json.loads(body)


def test_a_test_is_under_the_rules_of_a_registration(watched: Watched) -> None:
    receiver = Receiver()
    for answers, url, status in (
        (["93.184.215.14"], "http://shop.example.com/", 400),
        (["10.0.0.1"], "https://shop.example.com/", 400),
        (OSError(8, "no such name"), "https://shop.example.com/", 503),
    ):
        client = client_of(watched, answers, receiver=receiver)
        assert client.post(f"{PATH}/test", {"callbackUrl": url}, Authorization=f"Bearer {TOKEN}").status == status
    assert receiver.calls == []


def test_too_many_watches_at_one_host(watched: Watched) -> None:
    watched.limits = WatchLimits(total=2, per_host=1)
    watched.again()
    client = client_of(watched)
    register(client, body_of(watched))

    response = register(client, body_of(watched, reference="order-2"))

    assert response.status == 429
    assert "shop.example.com has 1 unconfirmed watches" in response.error


def test_a_watch_begun_while_the_chain_lacks_blocks_reports_their_payment_once_they_are_back(
    watched: Watched, tmp_path: Path
) -> None:
    """As after a power loss."""
    blocks = watched.node.builder.chain("genesis: b[1..3]\nb2 pays 5000 from alice to bob for order-1")
    watched.node.take(blocks["b1"])
    watched.register("another")
    watched.close()
    shutil.copy(tmp_path / "chain.sqlite", tmp_path / "before.sqlite")
    watched.open()
    watched.node.take(blocks["b2"], blocks["b3"])
    for _ in range(20):
        watched.clock.advance(0)
    watched.close()
    shutil.copy(tmp_path / "before.sqlite", tmp_path / "chain.sqlite")
    watched.open()

    begun = register(client_of(watched), body_of(watched))
    assert (begun.status, begun.json["subscription"]["payment"]["state"]) == (201, "unpaid")
    assert watched.events() == []

    watched.node.take(blocks["b2"], blocks["b3"])
    for _ in range(20):
        watched.clock.advance(0)
    assert [(event["event"], event["initial"]) for event in watched.events()] == [("payment.confirming", True)]


# Tokens

PREVIOUS = "the previous management token of the tests"
READ_ONLY = "the read-only token of the tests"


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def with_more_tokens(watched: Watched, *, seconds: int = 60) -> Client:
    until = milliseconds(watched.clock) + 1000 * seconds
    first = evolve(MERCHANTS[0], previous_token=PREVIOUS, previous_until=until, read_only_token=READ_ONLY)
    return client_of(watched, offer=evolve(OFFER, merchants=(first, MERCHANTS[1])))


def test_the_previous_token_is_valid_until_its_end(watched: Watched) -> None:
    client = with_more_tokens(watched)
    assert register(client, body_of(watched), PREVIOUS).status == 201
    watched.clock.advance(59.999)
    assert client.get(PATH, **bearing(PREVIOUS)).status == 200
    watched.clock.advance(0.001)
    assert client.get(PATH, **bearing(PREVIOUS)).status == 401
    assert register(client, body_of(watched, reference="order-2"), PREVIOUS).status == 401
    assert client.get(PATH, **bearing(TOKEN)).status == 200


def test_a_read_only_token_lists_and_shows_its_merchants_webhooks(watched: Watched) -> None:
    client = with_more_tokens(watched)
    identifier = register(client, body_of(watched)).json["subscription"]["id"]
    others = register(client, body_of(watched), BOOKS).json["subscription"]["id"]
    page = client.get(PATH, **bearing(READ_ONLY)).json["subscriptions"]
    assert [each["id"] for each in page] == [identifier]
    assert client.get(f"{PATH}/{identifier}", **bearing(READ_ONLY)).json["subscription"]["id"] == identifier
    assert client.get(f"{PATH}/{others}", **bearing(READ_ONLY)).status == 404


@pytest.mark.parametrize("path", ["", "/test", "/{id}/cancel", "/{id}/events/{event}/redeliver"])
def test_a_read_only_token_changes_and_sends_nothing(watched: Watched, path: str) -> None:
    client = with_more_tokens(watched)
    identifier = register(client, body_of(watched)).json["subscription"]["id"]
    response = client.post(
        PATH + path.format(id=identifier, event="svcevt_" + 32 * "0"), body_of(watched), **bearing(READ_ONLY)
    )
    assert response.status == 403
    assert response.json["error"] == "this token is read-only: it lists and shows webhooks; use the management token"
    assert client.get(f"{PATH}/{identifier}", **bearing(TOKEN)).json["subscription"]["active"] is True


def test_the_merchants_are_those_of_the_last_reload(watched: Watched) -> None:
    routes = routes_of(watched)
    client = client_for(watched, routes)
    assert client.get(PATH, **bearing(TOKEN)).status == 200
    routes.set_merchants((MERCHANTS[1],))
    assert client.get(PATH, **bearing(TOKEN)).status == 401
    assert client.get(PATH, **bearing(BOOKS)).status == 200
