"""The shop of examples/shop on a network of somebody's own: what it takes, and a payment on a real node."""

import html
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import shop
from attrs import evolve
from svc_pay import Client, InvalidInput, Key, WatchEvent, parse_amount, read_network
from svc_pay.webhooks import parse_event

from svcd.chain.params import NetworkParams
from svcd.config.network_file import render_network_file
from svcd.seed_file import SeedKind, render_seed
from tests.chains import COIN, key_of
from tests.clients.own_network import FESTIVAL, OPEN, address
from tests.examples.test_shop import CONFIRMED, event_of
from tests.process_level.conftest import Nodes
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, ENVIRONMENT, RunningNode, free_port, wait_until
from tests.process_level.test_webhooks_page import WEBHOOKS

PASSWORD = "open sesame"


def written(params: NetworkParams, folder: Path) -> Path:
    """The file of a network."""
    file = folder / f"{params.name}.toml"
    file.write_text(render_network_file(params), encoding="utf-8")
    return file


def test_the_events_of_an_order_are_those_of_its_network(tmp_path: Path) -> None:
    network = read_network(written(FESTIVAL, tmp_path))
    db = shop.connect(str(tmp_path / "shop.sqlite"))
    db.executescript((shop.HERE / "schema.sql").read_text(encoding="utf-8"))
    db.execute(
        "INSERT INTO orders (reference, recipient, amount, confirmations, since_height, what, payment_uri,"
        " checkout_url) VALUES ('order-1', ?, 2500000000, 3, 0, 'Teapot', 'svc:', 'http://')",
        (address("shop"),),
    )
    for genesis_hash, done in ((OPEN.genesis_hash, "no such order"), (FESTIVAL.genesis_hash, "recorded")):
        told = {"genesisHash": genesis_hash.hex(), "payment": {"recipient": address("shop")}}
        verified = parse_event(json.dumps(event_of(*CONFIRMED, **told)).encode())
        assert isinstance(verified, WatchEvent)
        assert shop.take(db, verified, network) == done
    [row] = db.execute("SELECT * FROM orders").fetchall()
    assert shop.status(row) == "ready to ship"
    db.close()


def test_the_setting_is_the_file_of_the_network(settings: dict[str, str], tmp_path: Path) -> None:
    file = written(FESTIVAL, tmp_path)
    app = shop.create_app(settings | {"NETWORK": str(file)})
    assert app.config["NODE"].network == read_network(file)
    assert shop.create_app(settings).config["NODE"].network is None
    file.write_text(file.read_text().replace("slotSeconds = 5", "slotSeconds = 6"))
    with pytest.raises(InvalidInput, match=r"festival\.toml: the file says that the genesis hash is"):
        shop.create_app(settings | {"NETWORK": str(file)})


@contextmanager
def running(folder: Path, file: Path) -> Iterator[RunningNode]:
    """The node of a producer, with webhooks, on the network of a file."""
    for name, content in (
        ("operator.key", render_seed(key_of("a").seed, SeedKind.BLOCK).decode().rstrip()),
        ("manage-token", "t" * 32),
        ("signing-secret", "s" * 32),
    ):
        path = folder / "node" / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(content + "\n")
    makes = [f"--set=participation.{name}=true" for name in ("enabled", "alone")]
    nodes = Nodes(folder)
    try:
        yield nodes.start(f"--network={file}", *makes, *WEBHOOKS, '--set=limits.exempt=["127.0.0.0/8"]', name="node")
    finally:
        nodes.stop()


@contextmanager
def opened(node: RunningNode, file: Path, log: Path, mode: str) -> Iterator[httpx.Client]:
    """A browser of the shop, which runs as README.md says; its log has no traceback."""
    port = free_port()
    settings = {
        "MODE": mode,
        "NODE_URL": node.url,
        "PUBLIC_NODE_URL": node.url,
        **({} if mode == "feed" else {"MANAGE_TOKEN": "t" * 32, "SIGNING_SECRETS": "s" * 32}),
        "ADDRESS": address("shop"),
        "RATE": "0.5",
        "URL": f"http://127.0.0.1:{port}",
        "DATABASE": str(log.with_suffix(".sqlite")),
        "PASSWORD": PASSWORD,
        "CONFIRMATIONS": "2",
        "NETWORK": str(file),
    }
    environment = ENVIRONMENT | {f"SHOP_{name}": value for name, value in settings.items()}
    environment["PYTHONPATH"] = str(ROOT / "clients" / "python" / "src")
    flask = [sys.executable, "-m", "flask", "--app", "shop"]
    commands = [["run", "--port", str(port)], *([["feed"]] if mode == "feed" else [])]
    with log.open("wb") as written_to:
        given: dict[str, Any] = {"cwd": shop.HERE, "env": environment, "stdout": written_to, "stderr": written_to}
        process, *others = [subprocess.Popen([*flask, *command], **given) for command in commands]
    try:
        with httpx.Client(base_url=settings["URL"], auth=("merchant", PASSWORD), timeout=DEADLINE) as browser:

            def answers() -> bool:
                assert all(each.poll() is None for each in (process, *others)), log.read_text()
                try:
                    return browser.get("/").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(answers, "the shop")
            yield browser
    finally:
        for each in (process, *others):
            each.terminate()
            each.wait(DEADLINE)
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["webhooks", "feed"])
def test_an_order_is_paid_and_shipped(tmp_path: Path, mode: str) -> None:
    params = evolve(
        OPEN,
        name="fair",
        genesis_time=int(time.time() - 600) * 1000,
        slot_seconds=1,
        producers=(address("a"),),
        allocations=((address("alice"), 100 * COIN),),
    )
    file, other, log = written(params, tmp_path), written(OPEN, tmp_path), tmp_path / "shop.log"
    network = read_network(file)
    with running(tmp_path, file) as node, opened(node, file, log, mode) as browser:
        bought = browser.post("/orders", data={"product": "tea"}, follow_redirects=True)
        assert bought.status_code == 200, log.read_text()
        [uri] = set(re.findall(r"svc:fest1q[^\s\"'<]+", html.unescape(bought.text)))
        recipient, terms = urlsplit(uri).path, parse_qs(urlsplit(uri).query)
        assert (recipient, terms["confirmations"]) == (address("shop"), ["2"])
        [amount], [reference] = terms["amount"], terms["ref"]
        with Client(node.url, network=network) as buyer:
            paid = {"recipient": recipient, "amount": parse_amount(amount), "reference": reference}
            buyer.broadcast(buyer.sign(Key(key_of("alice").seed), network, **paid))
        # Nobody clicks "Ask the node", so this comes with an event.
        wait_until(lambda: "ready to ship" in browser.get("/merchant").text, "the event of the confirmed payment")
        assert browser.post(f"/merchant/{reference}/ship").status_code == 303, log.read_text()
        assert node.account(address("shop"))["balanceSvc"] == amount
        refused_log = tmp_path / "refused.log"
        with opened(node, other, refused_log, mode) as elsewhere:
            assert elsewhere.post("/orders", data={"product": "tea"}).status_code == 503
        sentence = f"the node is not on open: its genesis hash is '{params.genesis_hash.hex()}'"
        assert sentence in refused_log.read_text()
