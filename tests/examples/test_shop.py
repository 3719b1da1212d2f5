"""What the shop in examples/shop makes of events, forms and passwords; tests/browser clicks through all of it."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import socket
from threading import Thread
from typing import Any, TypeVar

import pytest
import shop
import start
import svc_pay
from flask.cli import ScriptInfo
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from svc_pay import (
    DEVNET,
    MAINNET,
    NodeUnreachable,
    Order,
    Payment,
    PaymentRequest,
    RateSource,
    ReceivedTransfer,
    Watch,
    WatchEvent,
)
from svc_pay.members import Members
from svc_pay.webhooks import parse_event

from svcd.commerce.signing import SigningKeys, signed_headers
from tests.examples.conftest import ADDRESS, OLD, SECRET
from tests.process_level.running import DEADLINE

OTHER = "svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt"
TIP = {"height": "9", "hash": "ab" * 32}
Send = Callable[..., int]
T = TypeVar("T")


@pytest.fixture
def client(settings: dict[str, str]) -> FlaskClient:
    """A browser of the shop."""
    return shop.create_app(settings).test_client()


@pytest.fixture
def db(client: FlaskClient, settings: dict[str, str]) -> Iterator[sqlite3.Connection]:
    """The database of the shop, with an order of 25 coins that needs three confirmations."""
    db = shop.connect(settings["DATABASE"])
    add_order(db)
    yield db
    db.close()


def meanwhile(request: Callable[[], T]) -> T:
    """The result of a request that comes while another one is answered: Flask expects it in another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(request).result()


def add_order(db: sqlite3.Connection) -> None:
    """Store the order."""
    db.execute(
        "INSERT INTO orders (reference, recipient, amount, confirmations, since_height, what, payment_uri,"
        " checkout_url, expires_at) VALUES ('order-1', ?, 2500000000, 3, 0, 'Teapot', 'svc:', 'http://', ?)",
        (ADDRESS, (time.time() + 60) * 1000),
    )


def expire(db: sqlite3.Connection) -> None:
    """Let the time of the order be over."""
    db.execute("UPDATE orders SET expires_at = 1")


def event_of(name: str, state: str, depth: int, place: tuple[int, int], **changes: Any) -> dict[str, Any]:
    """An event of the order's watch, as JSON has it."""
    payment = {"state": state, "confirmations": depth, "canonical": depth > 0, "requiredConfirmations": 3}
    payment |= {"reference": "order-1", "recipient": ADDRESS, "amount": "2500000000"}
    payment |= {"matchCount": 1, "mismatches": [], "txid": "cd" * 32}
    event = {"id": f"svcevt_{place}", "event": name, "createdAt": "1", "epoch": place[0], "sequence": place[1]}
    event |= {"networkId": 2, "chainId": DEVNET.chain_id, "genesisHash": DEVNET.genesis_hash, "initial": False}
    event |= {"subscriptionId": "svcwh_1", "previousState": "unpaid", "tip": TIP, "node": {**TIP, "synced": True}}
    payment |= changes.pop("payment", {})
    return event | {"payment": payment, **changes}


@pytest.fixture
def send(client: FlaskClient) -> Send:
    """Posts an event of the order's watch as the node does; the status of the answer."""

    def send(*given: Any, secret: str = SECRET, **changes: Any) -> int:
        event = event_of(*given, **changes)
        body, now = json.dumps(event).encode(), int(time.time())
        keys = SigningKeys(secret)
        headers = signed_headers(keys, event_id=event["id"], event=event["event"], body=body, timestamp=now)
        return client.post("/paid", data=body, headers=headers).status_code

    return send


def status(db: sqlite3.Connection) -> str:
    return shop.status(db.execute("SELECT * FROM orders WHERE reference = 'order-1'").fetchone())


CONFIRMED = ("payment.confirmed", "confirmed", 3, (0, 3))


def test_an_order_is_held_while_its_payment_is_undone(db: sqlite3.Connection, send: Send) -> None:
    seen = []
    for event in STORY:
        taken(db, event)
        seen.append(status(db))
    assert seen == ["waiting for payment"] * 2 + ["ready to ship"] + ["held"] * 2 + ["ready to ship"]
    db.execute("UPDATE orders SET shipped = 1")
    assert status(db) == "shipped"
    send("payment.reorged", "unpaid", 0, (2, 7))
    assert status(db) == "shipped, payment undone"


def test_events_that_come_twice_or_late_change_nothing(db: sqlite3.Connection, send: Send) -> None:
    assert send(*CONFIRMED) == 200
    assert send("payment.reorged", "pending", 0, (1, 4)) == 200
    assert send(*CONFIRMED) == 200
    assert send("payment.confirmed", "confirmed", 3, (0, 9)) == 200
    assert status(db) == "held"


STORY = [
    event_of("payment.pending", "pending", 0, (0, 1)),
    event_of("payment.confirming", "confirming", 1, (0, 2)),
    event_of("payment.confirmed", "confirmed", 3, (0, 3)),
    event_of("payment.reorged", "pending", 0, (1, 4)),
    event_of("payment.confirming", "confirming", 1, (1, 5)),
    event_of("payment.confirmed", "confirmed", 3, (1, 6)),
]


def taken(db: sqlite3.Connection, event: dict[str, Any]) -> str:
    """What the shop says of an event that has been verified."""
    verified = parse_event(json.dumps(event).encode())
    assert isinstance(verified, WatchEvent)
    return shop.take(db, verified, None)


@given(st.lists(st.sampled_from(STORY), max_size=20))
def test_in_any_order_and_however_often_the_newest_event_decides(arriving: list[dict[str, Any]]) -> None:
    db = shop.connect(":memory:")
    db.executescript((shop.HERE / "schema.sql").read_text(encoding="utf-8"))
    add_order(db)
    said = [taken(db, event) for event in arriving]
    newest = max(arriving, key=lambda event: (event["epoch"], event["sequence"]), default=None)
    ((state, was_paid),) = db.execute("SELECT state, was_paid FROM orders").fetchall()
    assert state == ("unpaid" if newest is None else newest["payment"]["state"])
    recorded = [event for event, told in zip(arriving, said, strict=True) if told == "recorded"]
    assert was_paid == any(event["payment"]["state"] == "confirmed" for event in recorded)
    assert len({event["id"] for event in recorded}) == len(recorded)
    db.close()


def test_a_callback_that_fails_half_way_is_rolled_back(db: sqlite3.Connection) -> None:
    event = parse_event(json.dumps(event_of(*CONFIRMED)).encode())
    assert isinstance(event, WatchEvent)
    with pytest.raises(OverflowError):
        shop.take(db, replace(event, payment=replace(event.payment, confirmations=2**70)), None)
    assert status(db) == "waiting for payment"
    assert taken(db, event_of(*CONFIRMED)) == "recorded"
    assert status(db) == "ready to ship"


def test_a_shop_that_is_started_again_remembers(db: sqlite3.Connection, settings: dict[str, str]) -> None:
    assert taken(db, event_of(*CONFIRMED)) == "recorded"
    shop.create_app(settings)
    assert taken(db, event_of(*CONFIRMED)) == "nothing new"
    assert status(db) == "ready to ship"


@pytest.mark.parametrize(
    "changes",
    [
        {"payment": {"amount": "2500000001"}},
        {"payment": {"recipient": OTHER}},
        {"payment": {"reference": "order-2"}},
        {"genesisHash": MAINNET.genesis_hash},
    ],
)
def test_only_a_valid_payment_makes_the_order_ready(
    db: sqlite3.Connection, send: Send, changes: dict[str, Any]
) -> None:
    assert send(*CONFIRMED, **changes) == 200
    assert status(db) == "waiting for payment"


@pytest.mark.parametrize("changes", [{"confirmations": 2}, {"canonical": False}])
def test_a_confirmed_payment_that_is_not_deep_enough_is_no_event(
    db: sqlite3.Connection, send: Send, changes: dict[str, Any]
) -> None:
    assert send(*CONFIRMED, payment=changes) == 401
    assert status(db) == "waiting for payment"


class Node:
    """A node that says of every payment what it is told to say, and watches nothing while ``away``."""

    network = None

    def __init__(self) -> None:
        self.depth = 3
        self.synced = True
        self.away = False
        self.watched: list[dict[str, int]] = []
        self.before_request: Callable[[], object] = lambda: None

    def payment(self, order: Order) -> Payment:
        place = {"tip": TIP, "node": {**TIP, "synced": self.synced}}
        told = event_of("", "confirmed" if self.depth else "unpaid", self.depth, (0, 0), payment=place)["payment"]
        return Payment.parse(Members.of(json.dumps(told).encode(), "payment"))

    def payments(self, *_: object, **__: object) -> list[ReceivedTransfer]:
        transfer = ("order-1", 2500000000, True, 3, 1)
        duplicate = ReceivedTransfer("ef" * 32, ADDRESS, *transfer, "duplicate")
        return [duplicate, ReceivedTransfer("cd" * 32, OTHER, *transfer, None)]

    def payment_request(
        self, recipient: str, amount: int, *, reference: str, label: str, confirmations: int
    ) -> PaymentRequest:
        before, self.before_request = self.before_request, lambda: None
        before()
        order = Order(reference, recipient, amount, confirmations, 0)
        return PaymentRequest(order, "svc:", "/pay/?reference=x", "/wallet/", label)

    def register(self, order: Order, callback_url: str, *, events: list[str], **limit: int) -> Watch:
        if self.away:
            raise NodeUnreachable("the node does not answer: it is away")
        self.watched.append(limit)
        told = {"id": "svcwh_2", "active": True, "lastState": "unpaid", "callbackUrl": callback_url, "wantedEvents": []}
        told |= {"reference": order.reference, "recipient": order.recipient, "amount": str(order.amount)}
        told |= {"requiredConfirmations": order.confirmations, "createdAt": "1", "expiresAt": "99"}
        return Watch.parse(Members(told, "subscription"))


@pytest.fixture
def node(client: FlaskClient) -> Node:
    """The node of the shop."""
    node = client.application.config["NODE"] = Node()
    return node


MERCHANT = ("merchant", "open sesame")


def test_a_node_that_is_asked_while_it_catches_up_settles_nothing(
    db: sqlite3.Connection, client: FlaskClient, node: Node
) -> None:
    assert "Ask the node" in client.get("/merchant", auth=MERCHANT).text
    node.synced = False
    client.post("/merchant/order-1/ask", auth=MERCHANT)
    assert status(db) == "waiting for payment"
    node.synced = True
    client.post("/merchant/order-1/ask", auth=MERCHANT)
    assert status(db) == "ready to ship"
    assert "Ask the node" not in client.get("/merchant", auth=MERCHANT).text


def test_the_way_that_works_everywhere_comes_first_and_the_code_for_apps_is_folded(
    db: sqlite3.Connection, client: FlaskClient
) -> None:
    for checkout, codes in (("http://127.0.0.1:18645/pay/", 1), ("https://shop.example/pay/", 2)):
        db.execute("UPDATE orders SET checkout_url = ?", (checkout,))
        first, folded = client.get("/orders/order-1").text.split("<details>")
        assert f'class="button" href="{checkout}"' in first
        assert first.count("<svg") + folded.count("<svg") == codes
        assert "svc:" not in first
        assert "svc:" in folded
        assert folded.count("<svg") == 1


def test_an_expired_order_is_not_to_be_paid_but_a_late_payment_can_be_shipped(
    db: sqlite3.Connection, send: Send, client: FlaskClient, node: Node
) -> None:
    assert "Pay at the checkout" in client.get("/orders/order-1").text
    expire(db)
    send("payment.expired", "unpaid", 0, (0, 1))
    page = client.get("/orders/order-1").text
    assert "has expired: do not pay" in page
    assert all(way not in page for way in ("Pay at the checkout", "<svg", "svc:"))
    node.depth = 0
    client.post("/merchant/order-1/ask", auth=MERCHANT)
    assert status(db) == "expired"
    node.depth = 3
    client.post("/merchant/order-1/ask", auth=MERCHANT)
    assert status(db) == "ready to ship"
    client.post("/merchant/order-1/ship", auth=MERCHANT)
    assert status(db) == "shipped"


def test_an_order_can_be_paid_until_it_expires(
    settings: dict[str, str], client: FlaskClient, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    shown = client.get(client.post("/orders", data={"product": "tea"}).headers["Location"]).text
    assert f'href="{settings["PUBLIC_NODE_URL"]}/pay/?reference=x&amp;until=4600000"' in shown
    assert node.watched == [{"pay_within_seconds": 3600}]


def test_an_order_without_a_watch_is_not_shown_to_the_buyer(
    db: sqlite3.Connection, client: FlaskClient, node: Node
) -> None:
    node.away = True
    assert client.post("/orders", data={"product": "tea"}).status_code == 503
    assert [row["what"] for row in db.execute("SELECT what FROM orders")] == ["Teapot"]


def test_a_refund_without_a_watch_is_asked_for_again(
    db: sqlite3.Connection, send: Send, client: FlaskClient, node: Node
) -> None:
    """Otherwise nothing would follow it: the page of the merchant offers no second refund of an order."""
    send(*CONFIRMED)
    node.away = True
    assert client.post("/merchant/order-1/refund", auth=MERCHANT).status_code == 503
    node.away = False
    assert 'action="/merchant/order-1/refund"' in client.get("/merchant", auth=MERCHANT).text
    assert client.post("/merchant/order-1/refund", auth=MERCHANT).status_code == 303
    assert node.watched == [{"ttl_seconds": 604_800}]


def test_an_order_keeps_how_its_amount_was_calculated(
    db: sqlite3.Connection, client: FlaskClient, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "2.50 EUR" in client.get("/").text
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    client.application.config["RATES"] = RateSource.fixed("EUR", "0.48")
    location = client.post("/orders", data={"product": "tea", "price": "0.01", "rate": "9"}).headers["Location"]
    [row] = db.execute("SELECT * FROM orders WHERE what = 'Tea'").fetchall()
    kept = {name: row[name] for name in ("amount", "price", "currency", "rate", "rate_at")}
    assert kept == {"amount": 520_833_334, "price": "2.50", "currency": "EUR", "rate": "0.48", "rate_at": 1_000_500}
    shown = client.get(location).text
    assert "5.20833334 SVC" in shown
    assert "2.50 EUR, at 0.48 EUR for a coin on 1970-01-01 00:16 UTC" in shown
    assert "2.50 EUR, at 0.48 on 1970-01-01 00:16 UTC" in client.get("/merchant", auth=MERCHANT).text


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("0", "'0' is not a rate"),
        ("-0.5", "'-0.5' is not a rate"),
        (None, "'None' is not a rate"),
        (("0.5", 1_000_000_000), "the rate of EUR is 61 seconds old, and may be used for 60"),
        ("0.00000001", "2.50 EUR is more than 90071992.54740991 coins"),
    ],
)
def test_without_a_rate_that_may_be_used_nothing_is_sold(
    db: sqlite3.Connection,
    client: FlaskClient,
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refused: Any,
    reason: str,
) -> None:
    now, told = 1_000_000.0, ["0.5", refused, "0.4"]
    monkeypatch.setattr(time, "time", lambda: now)
    client.application.config["RATES"] = RateSource.function("EUR", lambda: told.pop(0), max_age=60)

    def buy() -> tuple[int, int]:
        """The status, and how many orders there are."""
        answer = client.post("/orders", data={"product": "tea"})
        if answer.status_code == 503:
            assert "The shop sells nothing at present, because it has no current rate of EUR;" in answer.text
            assert reason not in answer.text
            assert reason in caplog.messages[-1]
        return answer.status_code, db.execute("SELECT count(*) FROM orders").fetchone()[0]

    assert buy() == (303, 2)
    now += 61
    assert buy() == (503, 2)
    assert len(node.watched) == 1
    now += 61
    assert buy() == (303, 3)
    assert [rate for (rate,) in db.execute("SELECT rate FROM orders ORDER BY rowid")] == [None, "0.5", "0.4"]


@pytest.mark.socket
def test_the_setting_names_the_url_of_the_rate_and_the_path_in_its_json(settings: dict[str, str], node: Node) -> None:

    class Rates(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/rates" else 404)
            self.end_headers()
            self.wfile.write(b'{"the coin": {"EUR": 0.25}}')

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Rates) as server:
        server.timeout = DEADLINE
        url = f"http://127.0.0.1:{server.server_port}/rates"
        client = shop.create_app({**settings, "RATE": f"{url}  the coin.EUR"}).test_client()
        client.application.config["NODE"] = node
        thread = Thread(target=server.handle_request)
        thread.start()
        order = client.get(client.post("/orders", data={"product": "tea"}).headers["Location"]).text
        thread.join()
    assert "10 SVC" in order
    assert "2.50 EUR, at 0.25 EUR for a coin" in order


@pytest.mark.parametrize("setting", ["0", "-1", "0,5", "1e-3", "http://rates.example/ EUR", "0.5 EUR"])
def test_a_rate_that_cannot_be_used_is_refused_at_the_start(settings: dict[str, str], setting: str) -> None:
    with pytest.raises(svc_pay.SvcPayError, match=r"is not a rate|the URL of the rate"):
        shop.create_app({**settings, "RATE": setting})


def test_orders_that_nobody_pays_do_not_use_up_the_watches_of_the_node(
    db: sqlite3.Connection, client: FlaskClient, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop, "MAX_OPEN_ORDERS", 3)
    bought = [client.post("/orders", data={"product": "tea"}).status_code for _ in range(3)]
    assert (bought, len(node.watched)) == ([303, 303, 503], 2)
    db.execute("UPDATE orders SET state = 'pending' WHERE reference = 'order-1'")
    assert client.post("/orders", data={"product": "tea"}).status_code == 303
    assert client.post("/orders", data={"product": "tea"}).status_code == 503
    expire(db)
    assert client.post("/orders", data={"product": "tea"}).status_code == 303


def test_a_new_order_does_not_read_all_that_have_expired_unpaid(
    db: sqlite3.Connection, client: FlaskClient, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps_of_an_order() -> int:
        """Instructions of SQLite, in hundreds."""
        hundreds = [0]

        def count() -> None:
            hundreds[0] += 1

        def connect(path: str) -> sqlite3.Connection:
            connection = real_connect(path)
            connection.set_progress_handler(count, 100)
            return connection

        monkeypatch.setattr(shop, "connect", connect)
        assert client.post("/orders", data={"product": "tea"}).status_code == 303
        return hundreds[0]

    real_connect = shop.connect
    few = steps_of_an_order()
    db.execute("BEGIN")
    for number in range(2_000):
        db.execute("UPDATE orders SET reference = ? WHERE reference = 'order-1'", (f"expired-{number}",))
        add_order(db)
    expire(db)
    db.execute("COMMIT")
    assert steps_of_an_order() <= few + 10


def test_the_payment_is_refunded_once_to_its_sender_and_only_on_the_word_of_a_synced_node(
    db: sqlite3.Connection, send: Send, client: FlaskClient, node: Node
) -> None:
    def refund() -> tuple[int, str | None]:
        answer = client.post("/merchant/order-1/refund", auth=MERCHANT)
        return answer.status_code, answer.headers.get("Location")

    send(*CONFIRMED)
    node.synced = False
    assert refund() == (409, None)
    node.synced = True
    clicked: list[tuple[int, str | None]] = []
    node.before_request = lambda: clicked.append(meanwhile(refund))
    assert [refund(), *clicked] == [(303, "/orders/refund.order-1")] * 2
    assert node.watched == [{"ttl_seconds": 604_800}]
    [made] = db.execute("SELECT * FROM orders WHERE refund_of = 'order-1'").fetchall()
    assert (made["recipient"], made["amount"]) == (OTHER, 2500000000)
    assert [made[name] for name in ("price", "currency", "rate", "rate_at")] == [None] * 4
    # The buyer paid twice, and the merchant refunds the second payment with `svc wallet refund`.
    second = {"reference": svc_pay.refund_reference("order-1", "ef" * 32), "recipient": OTHER}
    of_refund = {"subscriptionId": "svcwh_2"}
    assert (
        taken(db, event_of("payment.confirmed", "confirmed", 3, (0, 7), payment=second, **of_refund)) == "no such order"
    )
    [made] = db.execute("SELECT * FROM orders WHERE refund_of = 'order-1'").fetchall()
    assert shop.status(made) == "refund due"
    first = {"reference": made["reference"], "recipient": OTHER}
    assert taken(db, event_of("payment.confirmed", "confirmed", 3, (0, 8), payment=first, **of_refund)) == "recorded"


def test_a_refund_is_followed_until_it_is_paid(
    db: sqlite3.Connection, send: Send, client: FlaskClient, node: Node
) -> None:
    send(*CONFIRMED)
    client.post("/merchant/order-1/refund", auth=MERCHANT)
    node.watched.clear()
    payment = {"reference": "refund.order-1", "recipient": OTHER}
    end = ("payment.expired", "unpaid", 0)

    node.away = True
    assert send(*end, (0, 1), payment=payment, subscriptionId="svcwh_2") == 503, "the node sends the event again"
    node.away = False
    for place, watch in (((0, 1), "svcwh_2"), ((0, 5), "svcwh_3")):
        assert send(*end, place, payment=payment, subscriptionId=watch) == 200
    assert node.watched == [{"ttl_seconds": 604_800}] * 2
    assert send("payment.expired", "unpaid", 0, (9, 9)) == 200, "of an order"
    assert send("payment.confirmed", "confirmed", 3, (0, 9), payment=payment, subscriptionId="svcwh_4") == 200
    assert len(node.watched) == 2
    [made] = db.execute("SELECT * FROM orders WHERE refund_of = 'order-1'").fetchall()
    assert shop.status(made) == "refunded"


def test_an_order_expires_and_a_late_payment_still_counts(db: sqlite3.Connection, send: Send) -> None:
    expire(db)
    assert status(db) == "expired"
    send("payment.expired", "pending", 0, (0, 1))
    assert status(db) == "waiting for payment"
    send(*CONFIRMED)
    assert status(db) == "ready to ship"


def test_events_that_need_a_person_are_noted(db: sqlite3.Connection, send: Send, client: FlaskClient) -> None:
    wrong = {"kind": "duplicate", "txid": "ef" * 32, "sender": OTHER, "amount": "5", "amountSvc": "0.00000005"}
    send(*CONFIRMED)
    send("payment.mismatched", "unpaid", 0, (9, 9), mismatch=wrong)
    send("node.alarm", "unpaid", 0, (9, 10), alarm={"kind": "outage", "sentence": "The <chain> stood still."})
    assert status(db) == "ready to ship"
    page = client.get("/merchant", auth=("m", "open sesame")).text
    assert f"duplicate: 0.00000005 SVC from {OTHER}; svc wallet refund {'ef' * 32}" in page
    assert "The &lt;chain&gt; stood still." in page
    assert "list the payments" not in page
    send("payment.mismatched", "unpaid", 0, (9, 11), mismatch={**wrong, "more": True})
    assert "list the payments, for further ones are not reported" in (
        client.get("/merchant", auth=("m", "open sesame")).text
    )
    assert send("payment.reorged", "pending", 0, (1, 4)) == 200
    assert status(db) == "held"


def test_only_the_node_is_believed(db: sqlite3.Connection, send: Send, client: FlaskClient) -> None:
    assert send(*CONFIRMED, secret="another-secret-of-thirty-two-characters") == 401
    assert client.post("/paid", data=b"{}").status_code == 401
    assert client.post("/paid", data=bytes(16385)).status_code == 413
    assert status(db) == "waiting for payment"
    assert send(*CONFIRMED, secret=OLD) == 200
    assert status(db) == "ready to ship"


def test_the_pages_of_the_merchant_need_the_password(db: sqlite3.Connection, client: FlaskClient) -> None:
    for method, path in [
        ("GET", "/merchant"),
        ("POST", "/merchant/order-1/ship"),
        ("POST", "/merchant/order-1/refund"),
    ]:
        for auth in (None, ("merchant", ""), ("merchant", "open sesamé")):
            assert client.open(path, method=method, auth=auth).status_code == 401
    answer = client.get("/merchant", auth=("merchant", "open sesame"))
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://shop.example", True),
        *((other, False) for other in ("http://evil.example", "https://shop.example", "http://a.shop.example")),
        *((nothing, False) for nothing in ("null", "")),
    ],
)
def test_a_form_of_another_site_does_nothing(
    db: sqlite3.Connection, client: FlaskClient, send: Send, node: Node, origin: str, allowed: bool
) -> None:
    send(*CONFIRMED)
    for path in ("/merchant/order-1/ship", "/orders"):
        answer = client.post(path, headers={"Origin": origin}, data={"product": "tea"}, auth=MERCHANT)
        assert answer.status_code == (303 if allowed else 403)
    assert (status(db) == "shipped") is allowed


def test_an_order_is_shipped_once_and_not_while_its_payment_is_undone(
    db: sqlite3.Connection, client: FlaskClient, send: Send, node: Node
) -> None:
    send(*CONFIRMED)
    node.depth = 0
    assert client.post("/merchant/order-1/ship", auth=MERCHANT).status_code == 409
    assert status(db) == "held"
    node.depth = 3
    answers = [client.post("/merchant/order-1/ship", auth=MERCHANT).status_code for _ in range(2)]
    assert (answers, status(db)) == ([303, 409], "shipped")


def test_an_answer_of_the_node_does_not_undo_a_newer_event(
    db: sqlite3.Connection, client: FlaskClient, send: Send, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(*CONFIRMED)
    answer = node.payment

    def late(order: Order) -> Payment:
        meanwhile(lambda: send("payment.reorged", "pending", 0, (1, 4)))
        return answer(order)

    monkeypatch.setattr(node, "payment", late)
    assert client.post("/merchant/order-1/ship", auth=MERCHANT).status_code == 409
    assert status(db) == "held"


def test_while_the_node_is_away_nothing_is_sold_or_shipped(
    db: sqlite3.Connection,
    client: FlaskClient,
    send: Send,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    send(*CONFIRMED)
    for path, form in [("/orders", {"product": "tea"}), ("/merchant/order-1/ship", {})]:
        answer = client.post(path, data=form, auth=("merchant", "open sesame"))
        assert (answer.status_code, answer.mimetype) == (503, "text/plain")
        assert answer.text == "The shop cannot ask its node at present. Try again.\n"
        assert "does not answer" in caplog.messages[-1]
    assert status(db) == "ready to ship"
    assert client.post("/orders", data={"product": "gold"}).status_code == 400
    assert client.get("/orders/order-2").status_code == 404


def test_the_shop_is_short_enough_to_be_read() -> None:
    assert len((shop.HERE / "shop.py").read_text(encoding="utf-8").splitlines()) <= 395


def test_flask_finds_the_shop_and_its_settings(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (shop.HERE / "README.md").read_text(encoding="utf-8")
    for name in settings:
        monkeypatch.setenv(f"SHOP_{name}", settings[name] + "\n")
        assert f"`SHOP_{name}`" in readme
    assert sorted(settings) == sorted(shop.SETTINGS + shop.SECRETS)
    assert all(f"`SHOP_{name}`" in readme for name in ("MODE", "CONFIRMATIONS", "NETWORK"))
    assert "flask --app shop run" in readme
    app = ScriptInfo(app_import_path="shop").load_app()
    assert settings.items() <= app.config.items()
    assert app.test_client().get("/").status_code == 200
    for empty in (lambda: monkeypatch.setenv("SHOP_PASSWORD", "\n"), lambda: monkeypatch.delenv("SHOP_PASSWORD")):
        empty()
        with pytest.raises(RuntimeError, match=r"the environment variables SHOP_PASSWORD$"):
            shop.create_app()


def test_a_shop_that_reads_the_feed_takes_no_webhooks_and_needs_no_secrets(settings: dict[str, str]) -> None:
    without = {name: value for name, value in settings.items() if name not in shop.SECRETS}
    with pytest.raises(RuntimeError, match=r"the environment variables SHOP_MANAGE_TOKEN, SHOP_SIGNING_SECRETS$"):
        shop.create_app(without)
    app = shop.create_app(without | {"MODE": "feed"})
    assert app.test_client().post("/paid", data=b"{}").status_code == 404
    with pytest.raises(RuntimeError, match=r"^SHOP_MODE must be webhooks or feed, and not 'fed'$"):
        shop.create_app(settings | {"MODE": "fed"})
    told = shop.create_app(settings).test_cli_runner().invoke(args=["feed"])
    assert str(told.exception) == "the shop is told of payments by webhooks; set SHOP_MODE=feed to read the feed"


def test_without_webhooks_each_refund_is_followed_until_it_is_deep(
    db: sqlite3.Connection, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Enough(Exception):
        pass

    def end(_seconds: float) -> None:
        raise Enough

    class Refusing(Node):
        def payment(self, order: Order) -> Payment:
            if order.reference == "refund.order-0":
                raise svc_pay.ApiError(410, "this node has pruned the blocks below 1000")
            return super().payment(order)

    app = shop.create_app(settings | {"MODE": "feed"})
    app.config["NODE"] = node = Refusing()
    monkeypatch.setattr(shop.time, "sleep", end)
    for number in "01":
        db.execute(
            "INSERT INTO orders (reference, recipient, amount, confirmations, since_height, refund_of, what,"
            " payment_uri, checkout_url) VALUES (?, ?, 1, 3, 0, ?, '', '', '')",
            (f"refund.order-{number}", OTHER, f"order-{number}"),
        )
    for depth, synced, told in (
        (0, True, "refund due"),
        (3, True, "refunded"),
        (0, False, "refunded"),
        (0, True, "refund undone"),
        (33, True, "refunded"),
        (0, True, "refunded"),
    ):
        node.depth, node.synced = depth, synced
        with pytest.raises(Enough):
            shop.look_at_refunds(app)
        assert shop.status(db.execute("SELECT * FROM orders WHERE refund_of = 'order-1'").fetchone()) == told
    shown = db.execute("SELECT * FROM orders WHERE reference = 'refund.order-0'").fetchone()
    assert shop.status(shown) == "refund due"


def test_a_trial_does_not_use_the_node_of_another_program(tmp_path: Path) -> None:
    """The shop would have the secrets of the devnet that it could not start."""
    with socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SystemExit, match=f"^another program listens on 127.0.0.1:{port}; if it is `make devnet`"):
            start.start_node(tmp_path / "devnet", port)
    assert not (tmp_path / "devnet").exists()
