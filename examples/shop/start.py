"""Starts a devnet and the shop together, for trying it out: `make shop`. A real shop copies shop.py without this."""

import argparse
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from socket import socket
from threading import Thread
from typing import Any

import httpx
import shop
from flask import Blueprint, Flask, abort, current_app, g, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from svc_pay import DEVNET, Client, Key, SvcPayError
from werkzeug.serving import make_server

BLOCKS = 3
GIFT = "100"
"""Coins for whoever asks, enough for every product."""
RATE = "0.5"
"""What a coin costs in the currency of the shop, unless the environment says something else."""
FAUCET = Key(sha256(b"svc devnet faucet").digest())
"""The buyer: every devnet has this key, and it is public."""
MERCHANT = Key(sha256(b"the merchant of examples/shop").digest())
"""Who pays the refunds. The key of a real merchant is in a wallet, far from the shop."""
WHAT_TO_CLICK = """
The shop is open, on a devnet whose coins are worth nothing. Ctrl-C ends both.

  1. {url}/           Buy something; the page of the order opens.
  2. {url}/devnet     Pay it, or get coins and pay at the checkout; then mine 3 blocks: the order is ready to ship.
  3. {url}/devnet     Reorganise 3 blocks: the order is held. Mine 3 blocks: it is ready again.
  4. {url}/merchant   Ship it. Any user name, password: {password}
  5. {url}/merchant   Refund it; pay the refund and mine at {url}/devnet.

The node is at {node_url}/ (its log: {log}).
"""


def start_node(data_dir: Path, port: int) -> "subprocess.Popen[bytes]":
    """`svc devnet`, once it answers. Ends the program if another one listens at the port."""
    with socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"another program listens on 127.0.0.1:{port}; if it is `make devnet`, end it with Ctrl-C first")
    data_dir.mkdir(mode=0o700, exist_ok=True)
    svc = Path(sys.executable).with_name("svc")
    with (data_dir / "node.log").open("ab") as log:
        node = subprocess.Popen([svc, "devnet", data_dir, "--port", str(port)], stdout=log, stderr=log)
    while node.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/rpc/status").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return node
    sys.exit(f"the node has ended; {data_dir / 'node.log'} says why")


def operate(data_dir: Path, what: str, **body: Any) -> str:
    """Let the operator of the node make blocks, give coins or reorganise the chain; "", or the sentence of an error."""
    transport = httpx.HTTPTransport(uds=str(data_dir / "operator.sock"))
    with httpx.Client(transport=transport, base_url="http://localhost/operator", timeout=60) as operator:
        answer = operator.post(f"/{what}", json=body).json()
    return "" if answer["ok"] else str(answer["error"])


# What a person clicks on a devnet

panel_pages = Blueprint("devnet", __name__)


@panel_pages.get("/devnet")
def panel() -> ResponseReturnValue:
    """What can be paid, and how many blocks there are."""
    orders = g.db.execute("SELECT * FROM orders WHERE state = 'unpaid' ORDER BY rowid").fetchall()
    height = httpx.get(f"{current_app.config['NODE_URL']}/rpc/status").json()["status"]["height"]
    return render_template("devnet.html", orders=orders, height=height, gift=GIFT)


@panel_pages.post("/devnet/<any(mine, reorganise):what>")
def change(what: str) -> ResponseReturnValue:
    """Make blocks, or replace the newest by others, in which the payments are missing."""
    sizes = {"blocks": BLOCKS} if what == "mine" else {"depth": BLOCKS}
    if error := operate(current_app.config["DEVNET"], what, **sizes):
        abort(409, error)
    return redirect(url_for("devnet.panel"), 303)


@panel_pages.post("/devnet/faucet")
def give() -> ResponseReturnValue:
    """Give coins to a wallet, in a block of their own."""
    folder, recipient = current_app.config["DEVNET"], request.form["recipient"].strip()
    error = operate(folder, "faucet", recipient=recipient, amount=GIFT) or operate(folder, "mine", blocks=1)
    if error:
        abort(409, error)
    return redirect(url_for("devnet.panel"), 303)


@panel_pages.post("/devnet/pay/<reference>")
def pay(reference: str) -> ResponseReturnValue:
    """Pay an order as the buyer, or a refund as the merchant."""
    row = shop.find(g.db, reference) or abort(404)
    key, order = FAUCET if row["refund_of"] is None else MERCHANT, shop.terms(row, DEVNET)
    g.node.broadcast(g.node.sign(key, DEVNET, recipient=order.recipient, amount=order.amount, reference=reference))
    return redirect(url_for("devnet.panel"), 303)


def application(data_dir: Path, *, url: str, node_url: str) -> Flask:
    """The shop with the panel of a devnet, and with the secrets that `svc devnet` has made."""
    app = shop.create_app(
        {
            "NODE_URL": node_url,
            "PUBLIC_NODE_URL": node_url,
            "MANAGE_TOKEN": (data_dir / "manage-token").read_text().strip(),
            "SIGNING_SECRETS": (data_dir / "signing-secret").read_text(),
            "ADDRESS": MERCHANT.address(DEVNET),
            "RATE": os.environ.get("SHOP_RATE", RATE).strip(),
            "URL": url,
            "DATABASE": str(data_dir / "shop.sqlite"),
            "PASSWORD": token_urlsafe(),
            "CONFIRMATIONS": str(BLOCKS),
        }
    )
    app.config["DEVNET"] = data_dir
    app.register_blueprint(panel_pages)
    return app


def main() -> None:
    """Start the node and the shop, and serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("devnet"))
    parser.add_argument("--node-port", type=int, default=18645)
    parser.add_argument("--port", type=int, default=5000)
    given = parser.parse_args()
    url, node_url = (f"http://127.0.0.1:{port}" for port in (given.port, given.node_port))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    node = start_node(given.data_dir, given.node_port)
    try:
        with Client(node_url) as client:
            if client.account(MERCHANT.address(DEVNET)).balance == 0:  # A refund needs a fee, too.
                operate(given.data_dir, "faucet", recipient=MERCHANT.address(DEVNET), amount="1")
                operate(given.data_dir, "mine", blocks=1)
        app = application(given.data_dir, url=url, node_url=node_url)
        if app.config["MODE"] == "feed":
            Thread(target=shop.read_feed, args=(app,), daemon=True).start()
        server = make_server("127.0.0.1", given.port, app, threaded=True)
        told = {
            "url": url,
            "node_url": node_url,
            "password": app.config["PASSWORD"],
            "log": given.data_dir / "node.log",
        }
        print(WHAT_TO_CLICK.format(**told), flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    except (OSError, SvcPayError) as error:
        sys.exit(f"the shop cannot start: {error}")
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait()


if __name__ == "__main__":
    main()
