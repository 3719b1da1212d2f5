"""A shop to copy: catalogue, orders, webhooks, held and shipped orders, refunds, and a page for the merchant.

It has no private key: buyers pay to the merchant's address, and the merchant pays refunds from a wallet elsewhere.
README.md says how to run it, docs/payments.md and docs/webhooks.md say why it does what it does.
"""

import os
import secrets
import sqlite3
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import segno
from flask import Blueprint, Flask, Response, abort, current_app, flash, g, redirect, render_template, request, url_for
from svc_pay import (
    Client,
    InvalidAnswer,
    InvalidSignature,
    Order,
    Payment,
    PaymentRequest,
    State,
    SvcPayError,
    WatchEvent,
    Webhook,
    format_amount,
    parse_amount,
)
from werkzeug.wrappers import Response as WerkzeugResponse

HERE: Final = Path(__file__).parent
CATALOGUE: Final = {"tea": ("Tea", "2.5"), "cake": ("Cake", "4"), "teapot": ("Teapot", "25")}
"""Products by name: title, and price in coins."""
EVENTS: Final = (
    "payment.pending payment.confirming payment.confirmed payment.reorged payment.expired payment.mismatched node.alarm"
).split()
pages: Final = Blueprint("pages", __name__)

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the shop must be told; each is an environment variable such as SHOP_NODE_URL."""

    node_url: str
    """The shop's own node."""
    public_node_url: str
    """The URL at which buyers reach the pages of a node of the shop."""
    manage_token: str
    signing_secrets: str
    """The signing secret of the node; while it is being rotated, both, with a space between them."""
    address: str
    """Where buyers pay to."""
    url: str
    """The URL of the shop; the node posts its events to /paid below it."""
    database: str
    password: str
    """Of the merchant's page."""
    confirmations: str = "12"


def from_environment() -> Settings:
    """The settings in the environment variables, without whitespace around them; a missing one is a KeyError."""
    names = [name for name in Settings.__dataclass_fields__ if name != "confirmations"]
    given = {name: os.environ[f"SHOP_{name.upper()}"].strip() for name in names}
    return Settings(**given, confirmations=os.environ.get("SHOP_CONFIRMATIONS", "12").strip())


# The database


def connect(path: str) -> sqlite3.Connection:
    """A connection in which every transaction is begun explicitly."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.row_factory = sqlite3.Row
    return db


def database() -> sqlite3.Connection:
    """The connection of this request."""
    if "db" not in g:
        g.db = connect(current_app.config["SETTINGS"].database)
    db: sqlite3.Connection = g.db
    return db


def terms(row: sqlite3.Row) -> Order:
    """What is to be paid: from the shop's own records, never from a browser."""
    return Order(*(row[name] for name in ("reference", "recipient", "amount", "confirmations", "since_height")))


def order_of(reference: str) -> sqlite3.Row:
    """An order or a refund; 404 if there is none."""
    row = database().execute("SELECT * FROM orders WHERE reference = ?", (reference,)).fetchone()
    if row is None:
        abort(404)
    found: sqlite3.Row = row
    return found


def status(row: sqlite3.Row) -> str:
    """What an order is waiting for, in a word; it follows from what is stored."""
    confirmed = row["state"] == State.CONFIRMED
    if row["refund_of"] is not None:
        return "refunded" if confirmed else "refund due"
    if row["shipped_at"] is not None:
        return "shipped" if confirmed else "shipped, payment undone"
    if confirmed:
        return "ready to ship"
    if row["depth"] >= row["confirmations"]:
        return "paid, to be checked"
    if row["was_paid"]:
        return "held"
    return "expired" if row["expired"] else "waiting for payment"


def unclear(row: sqlite3.Row) -> bool:
    """Whether to ask the node: the watch has ended, or the node was not synced when it told of the confirmation."""
    return row["state"] != State.CONFIRMED and bool(row["expired"] or row["depth"] >= row["confirmations"])


# What an event changes


def take(db: sqlite3.Connection, event: WatchEvent) -> str:
    """Process one verified event and say what it did, in one transaction: a crash leaves nothing half done."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("INSERT OR IGNORE INTO events VALUES (?)", (event.id,)).rowcount == 0:
            return "seen before"
        note = None if event.alarm is None else event.alarm.sentence
        if event.mismatch is not None:
            wrong = event.mismatch
            note = (
                f"{wrong.kind}: {format_amount(wrong.amount)} coins from {wrong.sender}; svc wallet refund {wrong.txid}"
            )
            if wrong.more:
                order = event.payment
                note += (
                    "; there may be more, which are not told: the node lists all at /rpc/commerce/payments"
                    f"?recipient={order.recipient}&reference={order.reference}&amountBaseUnits={order.amount}"
                )
        if note is not None:
            # Of another transfer than the order's payment, or of none: it is not the newest event of the payment.
            db.execute("INSERT INTO notes VALUES (?, ?, ?)", (event.id, event.payment.reference, note))
            return "noted"
        last = db.execute("SELECT epoch, sequence FROM watches WHERE id = ?", (event.subscription_id,)).fetchone()
        if last is not None and event.place < tuple(last):
            return "older than what is known"
        db.execute("INSERT OR REPLACE INTO watches VALUES (?, ?, ?)", (event.subscription_id, *event.place))
        row = db.execute("SELECT * FROM orders WHERE reference = ?", (event.payment.reference,)).fetchone()
        if row is None or not pays(event, terms(row)):
            return "no such order"
        record(db, terms(row), event.payment, synced=event.synced, expired=event.name == "payment.expired")
        return "recorded"


def pays(event: WatchEvent, order: Order) -> bool:
    """Whether an event is about exactly this order, on the chain of its address."""
    payment = event.payment
    told = (payment.reference, payment.recipient, payment.amount, event.genesis_hash)
    return told == (order.reference, order.recipient, order.amount, order.network.genesis_hash)


def record(db: sqlite3.Connection, order: Order, payment: Payment, *, synced: bool, expired: bool) -> None:
    """Store the state of a payment; it counts as confirmed only on a synced node, and by the order's own number."""
    state, depth = payment.state, payment.confirmations if payment.canonical else 0
    if state is State.CONFIRMED and not (synced and depth >= order.confirmations):
        state = State.CONFIRMING
    paid = state is State.CONFIRMED
    db.execute(
        "UPDATE orders SET state = ?, depth = ?, txid = ?, was_paid = was_paid OR ?, expired = ? WHERE reference = ?",
        (state.value, depth, payment.txid, paid, expired, order.reference),
    )


# Asking the node


def node() -> Client:
    """The client of the shop's node."""
    client: Client = current_app.config["NODE"]
    return client


def store(made: PaymentRequest, what: str, refund_of: str | None = None) -> str:
    """Store a new order, then watch its payment: the first event can come before the answer to the registration."""
    settings, order = current_app.config["SETTINGS"], made.order
    page = f"{settings.url}/orders/{order.reference}"
    checkout = made.checkout_url(settings.public_node_url, return_url=page if page.startswith("https://") else None)
    database().execute(
        "INSERT INTO orders (reference, refund_of, what, recipient, amount, confirmations, since_height, payment_uri,"
        " checkout_url, created_at) VALUES (:reference, :refund_of, :what, :recipient, :amount, :confirmations,"
        " :since_height, :payment_uri, :checkout_url, :created_at)",
        asdict(order)
        | {"refund_of": refund_of, "what": what, "payment_uri": made.payment_uri, "checkout_url": checkout}
        | {"created_at": int(time.time())},
    )
    watch(order)
    return order.reference


def watch(order: Order) -> None:
    """Register for the events of an order. If it fails, the page of the order tries again: it changes nothing twice."""
    callback = f"{current_app.config['SETTINGS'].url}/paid"
    try:
        registered = node().register(order, callback, events=EVENTS)
    except SvcPayError as error:
        current_app.logger.error("%s has no watch yet: %s: %s", order.reference, type(error).__name__, error)
        return
    database().execute(
        # The order expires with its watch, and the checkout shows when.
        "UPDATE orders SET watch = ?, checkout_url = checkout_url || ? WHERE reference = ? AND watch IS NULL",
        (registered.id, f"&until={registered.expires_at}", order.reference),
    )


# Pages of the buyer


@pages.get("/")
def catalogue() -> str:
    """All products."""
    return render_template("catalogue.html", products=CATALOGUE)


@pages.post("/orders")
def buy() -> WerkzeugResponse:
    """A new order for a product; its price is the shop's, whatever the form says."""
    title, price = CATALOGUE.get(request.form.get("product", ""), (None, ""))
    if title is None:
        abort(400)
    settings: Settings = current_app.config["SETTINGS"]
    reference = f"order-{secrets.token_hex(8)}"
    made = node().payment_request(
        settings.address,
        parse_amount(price),
        reference=reference,
        label=f"{title} ({reference})",
        confirmations=int(settings.confirmations),
    )
    return redirect(url_for("pages.order_page", reference=store(made, title)), 303)


@pages.get("/orders/<reference>")
def order_page(reference: str) -> str:
    """The page of one order or refund: how to pay it, and how far it is."""
    row = order_of(reference)
    if row["watch"] is None:
        watch(terms(row))
        row = order_of(reference)
    code = segno.make(row["payment_uri"], error="m").svg_inline(scale=4, border=4, light="#fff")
    return render_template("order.html", order=row, code=code)


# Events of the node


@pages.post("/paid")
def paid() -> Response:
    """Take an event of the node; 401 if it is not from the node."""
    try:
        event = current_app.config["WEBHOOK"].verify(request.get_data(), request.headers)
    except InvalidSignature as error:
        return Response(f"{error}\n", 401, mimetype="text/plain")
    except InvalidAnswer as error:
        return Response(f"{error}\n", 400, mimetype="text/plain")
    if isinstance(event, WatchEvent):
        current_app.logger.info("%s %s: %s", event.name, event.payment.reference, take(database(), event))
    return Response(status=200)


# Pages of the merchant


@pages.get("/merchant")
def merchant() -> str:
    """All orders, and what needs attention."""
    orders = database().execute("SELECT * FROM orders ORDER BY created_at DESC, rowid DESC LIMIT 200").fetchall()
    refunds = {row["refund_of"]: row["reference"] for row in orders if row["refund_of"]}
    notes = database().execute("SELECT * FROM notes ORDER BY rowid DESC LIMIT 100").fetchall()
    return render_template("merchant.html", orders=orders, refunds=refunds, notes=notes)


@pages.post("/merchant/<reference>/ship")
def ship(reference: str) -> WerkzeugResponse:
    """Ship an order once, if its payment is settled at this moment, whatever events have told."""
    row = order_of(reference)
    payment = node().payment(terms(row))
    statement = (
        "UPDATE orders SET shipped_at = ?, state = 'confirmed', depth = ?, txid = ?, was_paid = 1"
        # Not if an event has come since the node was asked, nor if the order was shipped or is to be refunded.
        " WHERE reference = ? AND (state, depth) = (?, ?) AND shipped_at IS NULL AND refund_of IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM orders AS refund WHERE refund.refund_of = orders.reference)"
    )
    known = (reference, row["state"], row["depth"])
    values = (int(time.time()), payment.confirmations, payment.txid, *known)
    shipped = payment.settled and database().execute(statement, values).rowcount
    held = (
        "it was shipped before, is refunded, or has just changed" if payment.settled else "its payment is not settled"
    )
    flash(f"{row['what']} is shipped." if shipped else f"{row['what']} is not shipped: {held}.")
    return redirect(url_for("pages.merchant"), 303)


@pages.post("/merchant/<reference>/ask")
def ask(reference: str) -> WerkzeugResponse:
    """Store what the node says now about a payment of which no further event may come."""
    row, db = order_of(reference), database()
    payment = node().payment(terms(row))
    with db:
        db.execute("BEGIN IMMEDIATE")
        known = order_of(reference)
        # An event that has come since the node was asked may be newer than the answer.
        if (known["state"], known["depth"]) == (row["state"], row["depth"]):
            record(db, terms(row), payment, synced=payment.synced is True, expired=bool(known["expired"]))
    flash(f"{row['what']}: {status(order_of(reference))}.")
    return redirect(url_for("pages.merchant"), 303)


@pages.post("/merchant/<reference>/refund")
def refund(reference: str) -> WerkzeugResponse:
    """Ask the merchant to send the payment back to its sender; once for each order, so that none is refunded twice."""
    row = order_of(reference)
    if refund_of(reference) is None:
        what, payment = f"Refund of {row['what']}", node().payment(terms(row))
        sent = node().payments(
            row["recipient"], reference=reference, amount=row["amount"], since_height=row["since_height"]
        )
        senders = [each.sender for each in sent if each.txid == payment.txid]
        if row["refund_of"] is not None or not (payment.settled and senders):
            flash("There is no settled payment to refund.")
            return redirect(url_for("pages.merchant"), 303)
        made = node().payment_request(
            senders[0],
            row["amount"],
            # Not the reference of `svc wallet refund`, with which the merchant may refund a second payment.
            reference=f"refund:{reference}.{str(payment.txid)[:16]}",
            label=what,
            confirmations=row["confirmations"],
        )
        # After a double click the other request may have stored the refund first.
        with suppress(sqlite3.IntegrityError):
            store(made, what, reference)
    return redirect(url_for("pages.order_page", reference=refund_of(reference)), 303)


def refund_of(reference: str) -> str | None:
    """The reference of the refund of an order; None if there is none."""
    found = database().execute("SELECT reference FROM orders WHERE refund_of = ?", (reference,)).fetchone()
    return None if found is None else str(found["reference"])


# The application


def from_another_site(shop_url: str) -> bool:
    """Whether a page of another site sends this form. The node and other programs send neither of these headers."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site != "same-origin"
    # Browsers omit it without TLS, and old ones always.
    shop = urlsplit(shop_url)
    return request.headers.get("Origin") not in (None, f"{shop.scheme}://{shop.netloc}")


def only_from_our_pages() -> Response | None:
    """Refuse forms of other sites, and the merchant's pages without the password."""
    settings: Settings = current_app.config["SETTINGS"]
    if request.method == "POST" and from_another_site(settings.url):
        abort(403)
    given = request.authorization
    right = given is not None and compare_digest((given.password or "").encode(), settings.password.encode())
    if request.path.startswith("/merchant") and not right:
        return Response("The merchant's password is needed.\n", 401, {"WWW-Authenticate": 'Basic realm="merchant"'})
    return None


def node_failed(error: SvcPayError) -> Response:
    """A fixed sentence: what went wrong with the node is for the log of the shop, not for buyers."""
    current_app.logger.error("%s %s: %s: %s", request.method, request.path, type(error).__name__, error)
    return Response("The shop cannot ask its node at present. Try again.\n", 503, mimetype="text/plain")


def secured(response: Response) -> Response:
    """Allow nothing on a page but the shop's own style and forms."""
    response.headers.update({"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})
    response.headers["Cache-Control"] = "no-store"
    return response


def create_app(settings: Settings | None = None) -> Flask:
    """The shop as a WSGI application, by default with the settings in the environment: `flask --app shop run`."""
    settings = settings or from_environment()
    app = Flask(__name__, root_path=str(HERE))
    app.config.update(
        SETTINGS=settings,
        NODE=Client(settings.node_url, token=settings.manage_token),
        WEBHOOK=Webhook(settings.signing_secrets.split()),
        SECRET_KEY=secrets.token_bytes(32),
        MAX_CONTENT_LENGTH=16 * 1024,
    )
    app.register_blueprint(pages)
    app.before_request(only_from_our_pages)
    app.after_request(secured)
    app.teardown_appcontext(lambda _: g.pop("db").close() if "db" in g else None)
    app.register_error_handler(SvcPayError, node_failed)
    app.jinja_env.globals.update(status=status, unclear=unclear, coins=format_amount)
    with connect(settings.database) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript((HERE / "schema.sql").read_text(encoding="utf-8"))
    db.close()
    return app
