"""A shop to copy: catalogue, orders, held and shipped orders, refunds, and a page for the merchant.

It learns of payments by webhooks, or by reading the feed of its address. See SHOP_MODE in README.md.

It has no private key: buyers pay to the merchant's address, and the merchant pays refunds from a wallet elsewhere.
README.md says how to run it, docs/payments.md and docs/webhooks.md say why it does what it does.
"""

import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple
from hmac import compare_digest
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

import segno
import svc_pay
from flask import Blueprint, Flask, Response, abort, current_app, g, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from svc_pay import Network, Order, Payment, Quote, RateSource, State

HERE: Final = Path(__file__).parent
CURRENCY: Final = "EUR"
CATALOGUE: Final = {"tea": ("Tea", "2.50"), "cake": ("Cake", "4.00"), "teapot": ("Teapot", "25.00")}
"""Products by name: title, and price in this currency."""
RATE_SECONDS: Final = 60
"""How old the rate of a new order may be."""
ORDER_SECONDS: Final = 3600
"""How long an order can be paid."""
REFUND_SECONDS: Final = 7 * 24 * 3600
"""How long a refund is watched at a time: the longest lifetime that a node allows unless its settings say less."""
MAX_OPEN_ORDERS: Final = 1000
"""Anybody can order, and each order is followed, by a watch of the node or here, until it is paid or expires."""
PAUSE: Final = 10
"""Seconds after which the feed is asked again if the node did not answer, and between two looks at open refunds."""
SETTINGS: Final = "NODE_URL PUBLIC_NODE_URL ADDRESS RATE URL DATABASE PASSWORD".split()
"""Required, each as an environment variable such as SHOP_NODE_URL; README.md says what they and the others are."""
SECRETS: Final = "MANAGE_TOKEN SIGNING_SECRETS".split()
"""Required for webhooks."""
POLICY: Final = "default-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
pages: Final = Blueprint("pages", __name__, cli_group=None)


def connect(path: str) -> sqlite3.Connection:
    """A connection in which each statement is a transaction, unless one is begun explicitly."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.row_factory = sqlite3.Row
    return db


def begin() -> None:
    """Give a request a connection of its own, and the client of the node."""
    g.db, g.node = connect(current_app.config["DATABASE"]), current_app.config["NODE"]


def find(db: sqlite3.Connection, reference: str) -> sqlite3.Row | None:
    """An order or a refund."""
    row: sqlite3.Row | None = db.execute("SELECT * FROM orders WHERE reference = ?", (reference,)).fetchone()
    return row


def terms(row: sqlite3.Row, network: Network | None) -> Order:
    """What is to be paid, on the network of the node: from the shop's own records, never from a browser."""
    stored = {name: row[name] for name in ("reference", "recipient", "amount", "confirmations", "since_height")}
    return Order(**stored, network=network or svc_pay.network_of(row["recipient"]))


def status(row: sqlite3.Row) -> str:
    """What an order is waiting for, in a word; it follows from what is stored."""
    confirmed = row["state"] == State.CONFIRMED
    if row["refund_of"] is not None:
        return "refunded" if confirmed else "refund undone" if row["was_paid"] else "refund due"
    if row["shipped"]:
        return "shipped" if confirmed else "shipped, payment undone"
    if confirmed:
        return "ready to ship"
    if row["was_paid"]:
        return "held"
    expired = row["state"] == State.UNPAID and row["expires_at"] < time.time() * 1000
    return "expired" if expired else "waiting for payment"


def utc(milliseconds: int) -> str:
    """A Unix time for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(milliseconds / 1000))


# What is known of a payment: by events, from webhooks or from the feed, and by asking


def take(db: sqlite3.Connection, event: svc_pay.WatchEvent, network: Network | None) -> str:
    """Store what a verified event says, and return what was done: events come more than once, and in any order."""
    if (notice := event.notice(network)) is not None:  # Of another transfer than the order's payment, or of none.
        db.execute("INSERT OR IGNORE INTO notices VALUES (?, ?, ?)", (event.id, event.payment.reference, notice))
        return "noted"
    with db:
        db.execute("BEGIN IMMEDIATE")
        row = find(db, event.payment.reference)
        if row is None or not event.concerns(order := terms(row, network)):
            return "no such order"
        if row["watch"] == event.subscription_id and event.place <= (row["epoch"], row["sequence"]):
            return "nothing new"
        record(db, row, event.payment, event.settles(order), event.subscription_id, *event.place)
        return "recorded"


@pages.post("/paid")
def paid() -> ResponseReturnValue:
    """Take an event of the node; 401 if it is not from the node, 404 if the shop reads the feed."""
    if current_app.config["MODE"] == "feed":
        abort(404)
    try:
        event = current_app.config["WEBHOOK"].verify(request.get_data(), request.headers)
    except (svc_pay.InvalidSignature, svc_pay.InvalidAnswer) as error:
        abort(401, str(error))
    if isinstance(event, svc_pay.WatchEvent):
        row = find(g.db, event.payment.reference)
        if event.name == "payment.expired" and row is not None and row["refund_of"] is not None:
            # Before the event is stored: if the node does not answer now, it sends the event again.
            follow(terms(row, g.node.network), None)
        done = take(g.db, event, g.node.network)
        current_app.logger.info("%s %s: %s", event.name, event.payment.reference, done)
    return Response(status=200)


@pages.cli.command("feed")
def feed() -> None:
    """Take events from the feed of the shop's address, until it is ended: the way without webhooks."""
    read_feed(current_app._get_current_object())  # type: ignore[attr-defined]


def read_feed(app: Flask) -> None:
    """Take the events of all orders from the feed, and look at the refunds that are due, for ever."""
    if app.config["MODE"] != "feed":
        raise RuntimeError("the shop is told of payments by webhooks; set SHOP_MODE=feed to read the feed")
    Thread(target=look_at_refunds, args=(app,), daemon=True).start()
    while True:
        with trying(app) as db:
            for event in app.config["ORDERS"].changes():
                done = take(db, event, app.config["NODE"].network)
                app.logger.info("%s %s: %s", event.name, event.payment.reference, done)
        time.sleep(PAUSE)


def look_at_refunds(app: Flask) -> None:
    """Ask about refunds until they are deep in the chain: they are paid to buyers, so the shop's feed does not tell."""
    due = "SELECT * FROM orders WHERE refund_of IS NOT NULL AND NOT"
    due += " (state = 'confirmed' AND depth >= confirmations + max(30, 2 * confirmations))"
    while True:
        with trying(app) as db:
            for row in db.execute(due).fetchall():
                with trying(app):  # What is wrong with one must not keep the others from being asked about.
                    verify(db, app.config["NODE"], row)
        time.sleep(PAUSE)


@contextmanager
def trying(app: Flask) -> Iterator[sqlite3.Connection]:
    """A connection for work that is done again later if the node or the database cannot be asked now."""
    try:
        with closing(connect(app.config["DATABASE"])) as db:
            yield db
    except (svc_pay.SvcPayError, sqlite3.Error) as error:
        app.logger.error("%s: %s", type(error).__name__, error)


def ask(reference: str) -> sqlite3.Row:
    """An order, after its payment was verified at this moment, whatever events have told."""
    verify(g.db, g.node, find(g.db, reference) or abort(404))
    return find(g.db, reference) or abort(404)


def verify(db: sqlite3.Connection, node: svc_pay.Client, row: sqlite3.Row) -> None:
    """Ask the node about the payment of an order or a refund, and store the answer."""
    payment = node.payment(terms(row, node.network))
    if row["refund_of"] is not None and not payment.synced:
        return  # The chain of the network may have the refund, which nobody must pay again.
    record(db, row, payment, payment.settled)


def record(db: sqlite3.Connection, row: sqlite3.Row, payment: Payment, settled: bool, *newest: str | int) -> None:
    """Store a payment, unless an event has changed the order since ``row`` was read; ``newest`` names the last event.

    It counts as confirmed only if it is settled: on a synced node, by the order's own number of confirmations.
    """
    known = (row["watch"], row["epoch"], row["sequence"])
    state = State.CONFIRMING if payment.state is State.CONFIRMED and not settled else payment.state
    depth = payment.confirmations if payment.canonical else 0
    db.execute(
        "UPDATE orders SET state = ?, depth = ?, txid = ?, was_paid = was_paid OR ?, watch = ?, epoch = ?, sequence = ?"
        " WHERE reference = ? AND (watch, epoch, sequence) IS (?, ?, ?)",
        (state, depth, payment.txid, settled, *(newest or known), row["reference"], *known),
    )


def open_order(
    made: svc_pay.PaymentRequest, what: str, *, quote: Quote | None = None, refund_of: str | None = None
) -> None:
    """Store an order, then follow its payment, because an event can come before the answer to the registration."""
    config, order = current_app.config, made.order
    page = f"{config['URL']}/orders/{order.reference}"
    return_url = page if page.startswith("https://") else None
    expires_at = None if refund_of is not None else int(time.time() + ORDER_SECONDS) * 1000
    checkout = made.checkout_url(config["PUBLIC_NODE_URL"], return_url=return_url, until=expires_at)
    *asked, _network = astuple(order)
    _, *quoted = (None,) * 5 if quote is None else astuple(quote)
    g.db.execute(
        "INSERT INTO orders (reference, recipient, amount, confirmations, since_height, refund_of, what, payment_uri,"
        " checkout_url, expires_at, price, currency, rate, rate_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*asked, refund_of, what, made.payment_uri, checkout, expires_at, *quoted),
    )
    try:
        follow(order, expires_at)
    except (
        svc_pay.SvcPayError
    ):  # Nobody has seen it, and unless it is followed nobody may pay it. A click asks for it again.
        g.db.execute("DELETE FROM orders WHERE reference = ?", (order.reference,))
        raise


def follow(order: Order, expires_at: int | None) -> None:
    """Follow a payment: an order's until it is paid or expires, a refund's until the watch ends, and then anew."""
    is_refund = expires_at is None
    if current_app.config["MODE"] == "feed":
        if not is_refund:
            current_app.config["ORDERS"].add(order, expires_at)
        return
    limit = {"ttl_seconds": REFUND_SECONDS} if is_refund else {"pay_within_seconds": ORDER_SECONDS}
    g.node.register(order, f"{current_app.config['URL']}/paid", events=svc_pay.EVENT_NAMES, **limit)


# Pages of the buyer


@pages.get("/")
def catalogue() -> ResponseReturnValue:
    """All products."""
    return render_template("catalogue.html", products=CATALOGUE, currency=CURRENCY)


@pages.post("/orders")
def buy() -> ResponseReturnValue:
    """A new order for a product; its price is the shop's, whatever the form says."""
    title, price = CATALOGUE.get(request.form.get("product", "")) or abort(400)
    waiting = "SELECT count(*) FROM orders WHERE state = 'unpaid' AND expires_at > ?"
    if g.db.execute(waiting, (time.time() * 1000,)).fetchone()[0] >= MAX_OPEN_ORDERS:
        abort(503, "Too many orders wait for their payments. Try again later.")
    config, reference = current_app.config, f"order-{secrets.token_hex(8)}"
    try:
        quote = svc_pay.order_amount(price, CURRENCY, config["RATES"].rate())
    except (svc_pay.RateRefused, svc_pay.InvalidInput) as error:  # The latter if no payment can be that large.
        current_app.logger.error("nothing is sold: %s", error)
        abort(503, f"The shop sells nothing at present, because it has no current rate of {CURRENCY}; try again later.")
    label, confirmations = f"Tea & Cake: {title}", int(config["CONFIRMATIONS"])
    made = g.node.payment_request(
        config["ADDRESS"], quote.amount, reference=reference, label=label, confirmations=confirmations
    )
    open_order(made, title, quote=quote)
    return redirect(url_for("pages.order_page", reference=reference), 303)


@pages.get("/orders/<reference>")
def order_page(reference: str) -> ResponseReturnValue:
    """The page of one order or refund: how to pay it, and how far it is."""
    row = find(g.db, reference) or abort(404)
    return render_template("order.html", order=row, qr_code=segno.make_qr)


# Pages of the merchant


@pages.get("/merchant")
def merchant() -> ResponseReturnValue:
    """All orders, and what needs attention."""
    orders = g.db.execute(
        "SELECT orders.*, refund.reference AS refund FROM orders LEFT JOIN orders AS refund"
        " ON refund.refund_of = orders.reference ORDER BY orders.rowid DESC LIMIT 200"
    )
    notices = g.db.execute("SELECT * FROM notices ORDER BY rowid DESC LIMIT 100")
    return render_template("merchant.html", orders=orders.fetchall(), notices=notices.fetchall())


@pages.post("/merchant/<reference>/ask")
def check(reference: str) -> ResponseReturnValue:
    """Ask the node about a payment of which no further event may come."""
    ask(reference)
    return redirect(url_for("pages.merchant"), 303)


@pages.post("/merchant/<reference>/ship")
def ship(reference: str) -> ResponseReturnValue:
    """Ship an order once, if its payment is settled at this moment."""
    row = ask(reference)
    shipped = g.db.execute(
        "UPDATE orders SET shipped = 1 WHERE reference = ? AND state = 'confirmed' AND shipped = 0"
        " AND refund_of IS NULL AND reference NOT IN (SELECT refund_of FROM orders WHERE refund_of IS NOT NULL)",
        (reference,),
    )
    if not shipped.rowcount:
        abort(409, f"{row['what']} cannot be shipped: it is {status(row)!r}, or has a refund.")
    return redirect(url_for("pages.merchant"), 303)


@pages.post("/merchant/<reference>/refund")
def refund(reference: str) -> ResponseReturnValue:
    """Ask the merchant to send the payment back to its sender; once for each order, so that none is refunded twice."""
    row = ask(reference)
    order = terms(row, g.node.network)
    sent = g.node.payments(order.recipient, reference=reference)
    senders = [each.sender for each in sent if each.txid == row["txid"]]
    if row["state"] != State.CONFIRMED or row["refund_of"] is not None or not senders:
        abort(409, "There is no settled payment to refund.")
    # Not the reference of `svc wallet refund`, with which the merchant may refund a second payment.
    what, of_refund = f"Refund of {row['what']}", f"refund.{reference}"
    made = g.node.payment_request(
        senders[0], order.amount, reference=of_refund, label=what, confirmations=order.confirmations
    )
    with suppress(sqlite3.IntegrityError):  # After a double click the other request has stored it.
        open_order(made, what, refund_of=reference)
    return redirect(url_for("pages.order_page", reference=of_refund), 303)


# The application


def only_from_our_pages() -> ResponseReturnValue | None:
    """Refuse forms of other sites, and the merchant's pages without the password."""
    given, password = request.authorization, current_app.config["PASSWORD"]
    shop = urlsplit(current_app.config["URL"])
    # Browsers name the site of a form; the node and other programs do not.
    if request.method == "POST" and request.headers.get("Origin") not in (None, f"{shop.scheme}://{shop.netloc}"):
        abort(403, f"This shop takes forms only from {shop.geturl()}.")
    right = given is not None and compare_digest((given.password or "").encode(), password.encode())
    if request.path.startswith("/merchant") and not right:
        return Response("The merchant's password is needed.\n", 401, {"WWW-Authenticate": 'Basic realm="merchant"'})
    return None


def node_failed(error: svc_pay.SvcPayError) -> ResponseReturnValue:
    """A fixed sentence: what went wrong with the node is for the log of the shop, not for buyers."""
    current_app.logger.error("%s %s: %s: %s", request.method, request.path, type(error).__name__, error)
    return Response("The shop cannot ask its node at present. Try again.\n", 503, mimetype="text/plain")


def secured(response: Response) -> Response:
    """Allow nothing on a page but the shop's own style and forms."""
    response.headers.update({"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})
    response.headers["Cache-Control"] = "no-store"
    return response


def rate_source(setting: str) -> RateSource:
    """The rate of a coin: a fixed one such as "0.5", or a URL and, after a space, a path into the JSON there."""
    url, _, path = setting.partition(" ")
    if not path:
        return RateSource.fixed(CURRENCY, setting)
    return RateSource.url(CURRENCY, url, path.strip(), max_age=RATE_SECONDS)


def create_app(settings: dict[str, str] | None = None) -> Flask:
    """The shop as a WSGI application, by default with the settings in the environment: `flask --app shop run`."""
    app = Flask(__name__, root_path=str(HERE))
    app.config.from_mapping(MODE="webhooks", CONFIRMATIONS="12", NETWORK="", MAX_CONTENT_LENGTH=16 * 1024)
    app.config.from_prefixed_env("SHOP", loads=str.strip)
    app.config.update(settings or {})
    mode = app.config["MODE"]
    if mode not in ("webhooks", "feed"):
        raise RuntimeError(f"SHOP_MODE must be webhooks or feed, and not {mode!r}")
    needed = SETTINGS if mode == "feed" else SETTINGS + SECRETS
    if missing := [name for name in needed if not app.config.get(name)]:
        raise RuntimeError(f"the shop needs the environment variables {', '.join(f'SHOP_{name}' for name in missing)}")
    network = svc_pay.read_network(app.config["NETWORK"]) if app.config["NETWORK"] else None
    node = svc_pay.Client(app.config["NODE_URL"], token=app.config.get("MANAGE_TOKEN"), network=network)
    app.config.update(NODE=node, RATES=rate_source(app.config["RATE"]))
    if mode == "feed":
        store = svc_pay.SqliteOrders(app.config["DATABASE"])  # Its tables have other names than those of the shop.
        app.config["ORDERS"] = svc_pay.Orders(node, app.config["ADDRESS"], store)
    else:
        app.config["WEBHOOK"] = svc_pay.Webhook(app.config["SIGNING_SECRETS"].split())
    app.register_blueprint(pages)
    app.before_request(begin)
    app.before_request(only_from_our_pages)
    app.after_request(secured)
    app.teardown_appcontext(lambda _: g.pop("db").close() if "db" in g else None)
    app.register_error_handler(svc_pay.SvcPayError, node_failed)
    unit = (network or svc_pay.MAINNET).unit
    app.jinja_env.globals.update(status=status, coins=lambda units: svc_pay.format_coins(units, unit), utc=utc)
    with closing(connect(app.config["DATABASE"])) as db:
        db.executescript((HERE / "schema.sql").read_text(encoding="utf-8"))
    return app
