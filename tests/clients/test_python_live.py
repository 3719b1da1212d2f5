"""The Python client against a devnet in a process of its own: the examples of its README, and watches."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import svc_pay
from svc_pay import AsyncClient, Client, Key, Orders, SqliteOrders, State, Webhook, light, sign_transfer

from tests.browser.between import between
from tests.browser.chain import COIN, FAUCET, SHOP, Chain, fresh
from tests.clients.conftest import in_forms
from tests.clients.forged_proofs import forge
from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import DEADLINE, RunningNode, wait_until
from tests.process_level.terminal import Terminal
from tests.process_level.test_readme import commands_of, prepared
from tests.programs import needs

pytestmark = [pytest.mark.socket, pytest.mark.slow]

README = "clients/python/README.md"
SOURCES = str(ROOT / "clients" / "python" / "src")


@pytest.mark.story
@needs("bash", "date")
def test_the_examples_of_the_readme_print_what_it_shows(shop_node: RunningNode) -> None:
    """They do so twice on one devnet, on which the shop of README.md has been paid before."""
    blocks = blocks_of(README, "python", "text")
    assert [block.language for block in blocks] == ["python", "text"] * (len(blocks) // 2)
    assert len(blocks) >= 14
    program = "".join(block.text for block in blocks[::2]).replace("http://127.0.0.1:18645", shop_node.url)
    folder = prepared(shop_node)
    with Terminal(folder) as terminal:
        for commands in commands_of("README.md", shop_node):
            assert terminal.paste(commands)[1] == 0
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error::DeprecationWarning", "-c", program],
            capture_output=True,
            text=True,
            cwd=folder,
            env={"PYTHONPATH": SOURCES, "no_proxy": "*", "SVCD_URL": shop_node.url},
            timeout=DEADLINE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert in_forms(done.stdout) == in_forms("".join(block.text for block in blocks[1::2]))


@contextmanager
def receiver(taken: list[svc_pay.Event], secret: str) -> Iterator[str]:
    """A callback URL at which events are verified by the client, and kept."""
    webhook = Webhook(secret)

    class Callback(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(webhook.verify(body, self.headers))  # type: ignore[arg-type]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Callback)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/paid"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_open_orders_with_one_feed(shop_node: RunningNode, tmp_path: Path) -> None:
    """A shop without webhooks, which is restarted; a reorganisation undoes what it has been told."""
    with Client(shop_node.url) as client:

        def begun() -> Iterator[svc_pay.WatchEvent]:
            return Orders(client, SHOP, SqliteOrders(tmp_path / "orders.sqlite")).changes()

        order = client.payment_request(SHOP, 6 * COIN, confirmations=2).order
        Orders(client, SHOP, SqliteOrders(tmp_path / "orders.sqlite")).add(order)
        key = Key(FAUCET.seed)
        changes, told = begun(), list[svc_pay.WatchEvent]()

        def take(names: str) -> None:
            events = [next(changes) for _ in names.split()]
            told.extend(events)
            assert [event.name.removeprefix("payment.") for event in events] == names.split()

        paid = client.sign(key, svc_pay.DEVNET, recipient=SHOP, amount=order.amount, reference=order.reference)
        client.broadcast(paid)
        take("pending")
        shop_node.mine(1)
        take("confirming")
        shop_node.mine(1)
        take("confirmed")
        assert told[-1].settles(order)
        assert client.payment(order).settled

        changes = begun()
        assert next(changes) == told[-1]
        shop_node.ok(shop_node.operator("/operator/reorganise", {"depth": 2}))
        take("reorged")
        assert (told[-1].payment.state, told[-1].payment.txid) == (State.PENDING, paid.txid)
        again = client.sign(key, svc_pay.DEVNET, recipient=SHOP, amount=order.amount, reference=order.reference)
        client.broadcast(again)
        shop_node.mine(2)
        take("confirmed mismatched")
        wrong = told[-1].mismatch
        assert wrong is not None
        assert (wrong.kind, wrong.txid, told[-1].payment.txid) == ("duplicate", again.txid, paid.txid)
        assert client.payment(order).match_count == told[-1].payment.match_count == 2


def secret_of(node: RunningNode, name: str) -> str:
    return Path(node.data_dir / name).read_text().strip()


def test_an_order_with_a_watch(shop_node: RunningNode) -> None:
    taken: list[svc_pay.Event] = []
    token, secret = (secret_of(shop_node, name) for name in ("manage-token", "signing-secret"))
    with receiver(taken, secret) as url, Client(shop_node.url, token=token) as client:
        tested = client.test_callback(url)
        assert (tested.status, tested.error, taken[0].name) == (200, None, "webhook.test")
        order = client.payment_request(SHOP, 5 * COIN, confirmations=2).order
        watch = client.register(order, url, events=["payment.confirmed", "payment.reorged"], ttl_seconds=600)
        assert client.register(order, url, events=["payment.confirmed", "payment.reorged"], ttl_seconds=600).existing

        paid = client.sign(
            Key(FAUCET.seed), svc_pay.DEVNET, recipient=SHOP, amount=order.amount, reference=order.reference
        )
        assert [client.broadcast(paid), client.broadcast(paid)] == ["accepted", "known"]

        async def waited() -> svc_pay.Payment:
            async with AsyncClient(shop_node.url) as other:
                waiting = asyncio.create_task(other.wait_for(order, timeout=60))
                await asyncio.to_thread(shop_node.mine, 2)
                return await waiting

        payment = asyncio.run(waited())
        assert (payment.settled, payment.txid, payment.confirmations) == (True, paid.txid, 2)
        assert payment.work is not None
        assert payment.work.hashes_to_undo > 0 < payment.work.work_confirmations
        (received,) = client.payments(SHOP, reference=order.reference, amount=order.amount)
        assert (received.txid, received.sender, received.mismatch) == (paid.txid, FAUCET.address, None)
        wait_until(lambda: len(taken) == 2, "payment.confirmed")
        shop_node.ok(shop_node.operator("/operator/reorganise", {"depth": 2}))
        wait_until(lambda: len(taken) == 3, "payment.reorged")
        events = [event for event in taken if isinstance(event, svc_pay.WatchEvent)]
        assert [(event.name, event.subscription_id) for event in events] == [
            ("payment.confirmed", watch.id),
            ("payment.reorged", watch.id),
        ]
        assert events[0].place < events[1].place
        assert client.payment(order).state is State.PENDING

        wait_until(lambda: all(each.delivered_at for each in client.watch(watch.id).events), "the word of the delivery")
        again = client.redeliver(watch.id, events[0].id)
        wait_until(lambda: len(taken) == 4, "the event again")
        assert taken[3].id == again.id == events[0].id
        assert client.cancel(watch.id).ending == "cancelled"
        other = client.register(order, url)
        first = client.watches(host="127.0.0.1", limit=1)
        second = client.watches(after=first.next, limit=1)
        assert [each.id for each in (*first.watches, *second.watches)] == [other.id, watch.id]
        assert client.watches(reference="another").watches == ()
        ended = client.watches(reference=order.reference, after=first.next).watches[0]
        assert (ended.ended_at is not None, ended.mismatches_until, ended.breaker) == (True, None, None)
        confirmed = ended.events[1].content
        assert confirmed is not None
        assert (confirmed.state, confirmed.confirmations, confirmed.txid) == ("confirmed", 2, paid.txid)
        assert confirmed.tip.height == (confirmed.block_height or 0) + 1
        assert (second.watches[0].ending, second.watches[0].events[0].event) == ("cancelled", "payment.reorged")
        assert client.watches(state="expired").watches == ()
        with pytest.raises(svc_pay.NotFound):
            client.watch("svcwh_" + "0" * 32)
    with Client(shop_node.url, token="x" * 40) as stranger, pytest.raises(svc_pay.Unauthorized):
        stranger.watch(watch.id)


def test_the_amounts_that_the_client_names_are_those_that_the_node_takes(shop_node: RunningNode) -> None:
    """With one base unit more or less the node refuses what the client refuses."""
    sender, receiver = Key(b"a sender of its own".ljust(32)), Key(b"a new receiver".ljust(32))
    start, target = sender.address(svc_pay.DEVNET), receiver.address(svc_pay.DEVNET)
    with Client(shop_node.url) as client:
        client.broadcast(client.sign(Key(FAUCET.seed), svc_pay.DEVNET, recipient=start, amount=COIN))
        shop_node.mine(1)

        def possible(amount: int, recipient: str) -> int:
            with pytest.raises(svc_pay.ImpossibleAmount) as refused:
                client.sign(sender, svc_pay.DEVNET, recipient=recipient, amount=amount)
            assert refused.value.possible is not None
            return refused.value.possible

        def send(amount: int, recipient: str) -> None:
            nonce = client.account(start).pending_nonce
            client.broadcast(sign_transfer(sender, svc_pay.DEVNET, recipient=recipient, amount=amount, nonce=nonce))

        least = possible(1, target)
        with pytest.raises(svc_pay.BadRequest, match=f"the amount must be at least {least} base units$"):
            send(least - 1, target)
        send(least, target)
        most = possible(COIN, SHOP)
        with pytest.raises(svc_pay.BadRequest, match=f"the amount can be at most {most} base units$"):
            send(most + 1, SHOP)
        send(most, SHOP)
        shop_node.mine(1)
        assert client.account(start).balance == client.account(target).balance == 1_000_000


def test_the_light_client_believes_no_node(shop_node: RunningNode) -> None:
    order = svc_pay.Order(fresh("light"), SHOP, 250_000_000, 2)
    Chain(shop_node).pay(FAUCET, SHOP, order.amount, order.reference)
    shop_node.mine(3)
    with between(shop_node) as lying, Client(shop_node.url) as honest, Client(lying.url) as liar:
        lying.lie = forge
        questions: list[Callable[[Client | list[Client]], Any]] = [
            lambda nodes: light.verify_chain(nodes, svc_pay.DEVNET).tip.hash,
            lambda nodes: light.proven_balance(nodes, SHOP).balance,
            lambda nodes: light.proven_payment(nodes, order).confirmations,
        ]
        told = [question([liar, honest]) for question in questions]
        tip = honest.payment(order).tip
        assert tip is not None
        assert told == [tip.hash, honest.account(SHOP).balance, 3]
        for question in questions:
            with pytest.raises(svc_pay.InvalidProof):
                question(liar)
