"""Starts a devnet and the shop together, for trying it out: `make shop`. A real shop copies shop.py without this."""

import argparse
import secrets
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import shop
from flask import Blueprint, Flask, current_app, flash, redirect, render_template, url_for
from svc_pay import DEVNET, Client, Key, SvcPayError
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

BIN = Path(sys.executable).parent
BLOCKS = 3
FAUCET = Key(sha256(b"svc devnet faucet").digest())
"""The buyer: every devnet has this key, and it is public."""


def secret(path: Path) -> str:
    """A secret in a file that only its owner can read, made if it is not there."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_urlsafe(32)}\n")
    return path.read_text().strip()


def merchant_key(data_dir: Path) -> Key:
    """The key of the merchant's wallet, whose words `svc wallet new` has put into a file."""
    words = data_dir / "shop-words.txt"
    if not words.exists():
        keyfile = data_dir / "shop.json"
        done = subprocess.run(
            [BIN / "svc", "wallet", "new", "--network=devnet", "--keyfile", keyfile, "--words-to", words],
            env={"SVC_WALLET_PASSWORD": "good enough for a devnet"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stderr)
    return Key.from_words(words.read_text())


def start_node(data_dir: Path, port: int) -> "subprocess.Popen[bytes]":
    """`svc devnet`, once it answers."""
    data_dir.mkdir(mode=0o700, exist_ok=True)
    with (data_dir / "node.log").open("ab") as log:
        node = subprocess.Popen([BIN / "svc", "devnet", data_dir, "--port", str(port)], stdout=log, stderr=log)
    while node.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/rpc/status").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return node
    sys.exit(f"the node has ended; {data_dir / 'node.log'} says why")


class Operator:
    """The operator's interface of the node: makes blocks, gives coins, and reorganises the chain."""

    def __init__(self, data_dir: Path) -> None:
        transport = httpx.HTTPTransport(uds=str(data_dir / "operator.sock"))
        self._http = httpx.Client(transport=transport, base_url="http://localhost/operator", timeout=60)

    def do(self, what: str, **body: Any) -> str:
        """Empty, or the sentence of an error."""
        answer = self._http.post(f"/{what}", json=body).json()
        return "" if answer["ok"] else str(answer["error"])


# What a person clicks on a devnet

panel_pages = Blueprint("devnet", __name__)


@panel_pages.get("/devnet")
def panel() -> str:
    """What can be paid, and how many blocks there are."""
    settings: shop.Settings = current_app.config["SETTINGS"]
    orders = shop.database().execute("SELECT * FROM orders WHERE state = 'unpaid' ORDER BY rowid").fetchall()
    height = httpx.get(f"{settings.node_url}/rpc/status").json()["status"]["height"]
    return render_template("devnet.html", orders=orders, height=height, node_url=settings.public_node_url)


def back(sentence: str) -> Response:
    """The panel again, with a sentence."""
    flash(sentence)
    return redirect(url_for("devnet.panel"), 303)


@panel_pages.post("/devnet/mine")
def mine() -> Response:
    """Make blocks."""
    return back(current_app.config["DEVNET"].do("mine", blocks=BLOCKS) or f"{BLOCKS} blocks are made.")


@panel_pages.post("/devnet/reorganise")
def reorganise() -> Response:
    """Replace the newest blocks by others, in which the payments are missing."""
    done = current_app.config["DEVNET"].do("reorganise", depth=BLOCKS)
    return back(done or f"{BLOCKS} blocks are replaced by {BLOCKS + 1} others.")


@panel_pages.post("/devnet/pay/<reference>")
def pay(reference: str) -> Response:
    """Pay an order as the buyer, or a refund as the merchant."""
    row = shop.order_of(reference)
    key = FAUCET if row["refund_of"] is None else current_app.config["MERCHANT_KEY"]
    terms = shop.terms(row)
    transfer = shop.node().sign(key, DEVNET, recipient=terms.recipient, amount=terms.amount, reference=terms.reference)
    shop.node().broadcast(transfer)
    return back("The payment is sent.")


def application(settings: shop.Settings, operator: Operator, key: Key) -> Flask:
    """The shop with the panel of a devnet."""
    app = shop.create_app(settings)
    app.config.update(DEVNET=operator, MERCHANT_KEY=key)
    app.register_blueprint(panel_pages)
    return app


WHAT_TO_CLICK = """
The shop is open, on a devnet whose coins are worth nothing. Ctrl-C ends both.

  1. {url}/           Buy something; the page of the order opens.
  2. {url}/devnet     Pay it, then mine 3 blocks: the order is ready to ship.
  3. {url}/devnet     Reorganise 3 blocks: the order is held. Mine 3 blocks: it is ready again.
  4. {url}/merchant   Ship it. Any user name, password: {password}
  5. {url}/merchant   Refund it; pay the refund and mine at {url}/devnet.

The node is at {node}/ (its log: {log}). The merchant's words are in {words}.
"""


def settings_of(data_dir: Path, *, url: str, node_url: str, address: str) -> shop.Settings:
    """The settings of the shop, with the secrets that `svc devnet` has made."""
    return shop.Settings(
        node_url=node_url,
        public_node_url=node_url,
        manage_token=secret(data_dir / "manage-token"),
        signing_secrets=secret(data_dir / "signing-secret"),
        address=address,
        url=url,
        database=str(data_dir / "shop.sqlite"),
        password=secret(data_dir / "shop-password"),
        confirmations=str(BLOCKS),
    )


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
        key, operator = merchant_key(given.data_dir), Operator(given.data_dir)
        settings = settings_of(given.data_dir, url=url, node_url=node_url, address=key.address(DEVNET))
        with Client(node_url) as client:
            if client.account(settings.address).balance == 0:  # a refund needs a fee, too
                operator.do("faucet", recipient=settings.address, amount="1")
                operator.do("mine", blocks=1)
        server = make_server("127.0.0.1", given.port, application(settings, operator, key), threaded=True)
        log, words = given.data_dir / "node.log", given.data_dir / "shop-words.txt"
        print(
            WHAT_TO_CLICK.format(url=url, node=node_url, password=settings.password, log=log, words=words), flush=True
        )
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
