"""A merchant's story through real processes: an order, its payment, and every event of it over real HTTPS."""

import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import pytest
import shop as examples_shop
from flask import Flask
from werkzeug.serving import make_server

from svcd.chain.block import Block
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from svcd.node.status import OUTAGE_INTERVALS
from tests.chains import ChainBuilder, address_of, key_of
from tests.net.certificates import Signed, make_authority, sign
from tests.process_level.conftest import DEVNET as DEVNET_OPTIONS
from tests.process_level.conftest import Nodes
from tests.process_level.receiver import Behaviour, Receiver
from tests.process_level.running import (
    BIN,
    DEADLINE,
    ENVIRONMENT,
    Answer,
    HTTPConnection,
    RunningNode,
    exchange,
    free_port,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

TOKEN = "the management token of this test, long"
SECRET = "the signing secret of this test, longer"
BOOKS_TOKEN, BOOKS_SECRET = "t-books" * 8, "s-books" * 8
SHOP = address_of("shop", "svcd")
REQUIRED = 3
MOST_UNCONFIRMED = 6
SOON = 20.0
"""Seconds for a busy machine: less than the 30 s of retries that an event would otherwise have to wait for."""


@pytest.fixture(scope="module")
def authority() -> Signed:
    return make_authority("The merchant's own authority")


@pytest.fixture
def certificate(authority: Signed) -> Signed:
    return sign("localhost", by=authority)


def hand_in(node: RunningNode, *blocks: Block) -> None:
    """Post blocks that another node has made."""
    for block in blocks:
        answer = node.post("/p2p/block", b'{"block":' + block.wire() + b"}")
        assert node.ok(answer)["state"] == "connected"


class Shop:
    """A merchant with a node of their own, a customer, and a receiver."""

    def __init__(self, nodes: Nodes, receiver: Receiver, authority: Signed) -> None:
        self.nodes = nodes
        self.receiver = receiver
        (nodes.folder / "authority.pem").write_bytes(authority.pem)
        self.options = (
            *DEVNET_OPTIONS,
            "--set=participation.alone=true",
            "--set=commerce.webhooks.enabled=true",
            f"--set=commerce.webhooks.manageToken={TOKEN}".replace(" ", "-"),
            f"--set=commerce.webhooks.signingSecret={SECRET}",
            '--set=commerce.webhooks.callbackNetworks=["127.0.0.1/32", "::1/128"]',
            f"--set=commerce.webhooks.extraCaFile={nodes.folder / 'authority.pem'}",
            f"--set=commerce.webhooks.maxWatchesPerHost={MOST_UNCONFIRMED}",
            self.books(BOOKS_SECRET),
        )
        self.port = free_port()
        self.commands: list[subprocess.Popen[str]] = []
        self.node = self.start()

    def books(self, *secrets: str) -> str:
        """The option for a second merchant with this signing secret, and perhaps the previous one."""
        keys = []
        names = ("tokenFile", "signingSecretFile", "previousSigningSecretFile")
        for key, content in zip(names, (BOOKS_TOKEN, *secrets), strict=False):
            path = self.nodes.folder / f"{key}-{content[0]}"
            path.touch(mode=0o600)
            path.write_text(content)
            keys.append(f'{key}="{path}"')
        return f'--set=commerce.merchants=[{{name="books", recipients=["{SHOP}"], {", ".join(keys)}}}]'

    def start(self) -> RunningNode:
        self.node = self.nodes.start(*self.options, name="shop", port=self.port)
        return self.node

    def ask(self, method: str, target: str, body: object = None, *, token: str = TOKEN) -> Answer:
        """A request with the management token."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        return exchange(connection, method, target, body, Authorization="Bearer " + token.replace(" ", "-"))

    def order(self, reference: str, amount: str = "25", **more: Any) -> dict[str, Any]:
        """A payment request, and a watch for it."""
        return {
            "request": self.request(reference, amount),
            "watch": self.register(self.receiver, reference, amount, **more),
        }

    def request(self, reference: str, amount: str) -> dict[str, Any]:
        asked = {"recipient": SHOP, "amount": amount, "reference": reference, "confirmations": REQUIRED}
        request: dict[str, Any] = self.node.ok(self.node.post("/rpc/commerce/payment-request", asked))["payment"]
        return request

    def register(
        self, receiver: Receiver, reference: str, amount: str = "25", *, token: str = TOKEN, **more: Any
    ) -> str:
        """The id of a new watch for an order."""
        terms = {"recipient": SHOP, "amount": amount, "reference": reference, "confirmations": REQUIRED}
        url = f"https://localhost:{receiver.port}/paid?for={quote(reference)}"
        answer = self.ask("POST", "/rpc/commerce/webhooks", {**terms, **more, "callbackUrl": url}, token=token)
        assert answer.status == 201, answer
        return str(answer.json["subscription"]["id"])

    def watch(self, identifier: str, *, token: str = TOKEN) -> dict[str, Any]:
        shown: dict[str, Any] = self.ask("GET", f"/rpc/commerce/webhooks/{identifier}", token=token).json[
            "subscription"
        ]
        return shown

    def first_failure(self, identifier: str) -> str:
        """Why the first attempt to deliver anything failed."""
        wait_until(lambda: any(event["attempts"] for event in self.watch(identifier)["events"]), "an attempt")
        return str(self.watch(identifier)["events"][0]["lastError"])

    def state(self, request: dict[str, Any]) -> str:
        """What verification says at the path that the request names."""
        payment = self.node.ok(self.node.get(request["statusPath"]))["payment"]
        return f"{payment['state']} {payment['confirmations']} of {payment['requiredConfirmations']}"

    def fund(self, name: str) -> None:
        address = address_of(name, "svcd")
        self.node.ok(self.node.operator("/operator/faucet", {"recipient": address, "amount": "1000"}))
        self.node.mine(1)

    def pay(self, name: str, request: dict[str, Any]) -> str:
        """Sign what the request's URI asks for, and broadcast it."""
        from svcd.commerce.payment_request import parse_uri

        wanted = parse_uri(request["paymentUri"], DEVNET).terms
        account = self.node.account(address_of(name, "svcd"))
        draft = Draft(
            recipient=wanted.recipient,
            amount=wanted.amount,
            fee=DEVNET.minimum_fee,
            nonce=int(account["pendingNonce"]),
            timestamp=int(self.node.status()["time"]),
            reference=wanted.reference,
        )
        signed = sign_transfer(draft, seed=key_of(name).seed, params=DEVNET)
        answer = self.node.post("/rpc/broadcast", b'{"transaction":' + signed.wire + b"}")
        return str(self.node.ok(answer)["txid"])

    def alarms(self) -> list[tuple[str, str]]:
        """The watches that told an alarm, and its kind."""
        events = [event for event in list(self.receiver.events) if event["event"] == "node.alarm"]
        return [(event["subscriptionId"], event["alarm"]["kind"]) for event in events]

    def svc(self, *words: str) -> "subprocess.Popen[str]":
        """A command of `svc webhook` at this node."""
        process = subprocess.Popen(
            [BIN / "svc", "webhook", *words, "--url", f"http://127.0.0.1:{self.port}"],
            env={**ENVIRONMENT, "SVC_MANAGE_TOKEN": TOKEN.replace(" ", "-")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.commands.append(process)
        return process

    def hears(self, *names: str) -> None:
        """Wait until these events, and no others, have come."""
        wait_until(lambda: len(self.receiver.names) >= len(names), f"{names}; there came {self.receiver.names}")
        assert self.receiver.names == list(names)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver(SECRET)


@pytest.fixture
def shop(nodes: Nodes, receiver: Receiver, authority: Signed, certificate: Signed, tmp_path: Path) -> Iterator[Shop]:
    with receiver.serving(certificate, tmp_path):
        shop = Shop(nodes, receiver, authority)
        yield shop
        for process in shop.commands:
            process.kill()
            process.communicate()
        nodes.stop()


@pytest.mark.story
def test_an_order_from_its_request_to_its_payment_and_back(shop: Shop) -> None:
    shop.fund("customer")
    order = shop.order("order-1042")
    assert shop.state(order["request"]) == "unpaid 0 of 3"

    txid = shop.pay("customer", order["request"])
    shop.hears("pending: pending 0")
    assert shop.state(order["request"]) == "pending 0 of 3"
    told = ["pending: pending 0"]
    for depth, name in (
        (1, "confirming: confirming 1"),
        (2, "confirming: confirming 2"),
        (3, "confirmed: confirmed 3"),
    ):
        shop.node.mine(1)
        told.append(name)
        shop.hears(*told)
        assert shop.state(order["request"]) == f"{name.split()[1]} {depth} of 3"
    assert {event["payment"]["txid"] for event in shop.receiver.events} == {txid}

    # A reorganisation that drops the payment for good, until the customer pays once more.
    shop.node.ok(shop.node.operator("/operator/reorganise", {"depth": 3, "dropTransactions": True}))
    told.append("reorged: unpaid 0")
    shop.hears(*told)
    assert shop.state(order["request"]) == "unpaid 0 of 3"
    shop.pay("customer", order["request"])
    told.append("pending: pending 0")
    shop.hears(*told)
    for name in ("confirming: confirming 1", "confirming: confirming 2", "confirmed: confirmed 3"):
        shop.node.mine(1)
        told.append(name)
        shop.hears(*told)

    shop.receiver.check()
    assert [event["epoch"] for event in shop.receiver.events] == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert len({event["id"] for event in shop.receiver.events}) == len(shop.receiver.events)
    shown = shop.watch(order["watch"])
    assert (shown["lastState"], shown["payment"]["confirmations"]) == ("confirmed", 3)
    # The receiver has an event before the node has its answer.
    wait_until(lambda: all(each["deliveredAt"] is not None for each in shop.watch(order["watch"])["events"]), "notes")
    assert {event["node"]["synced"] for event in shop.receiver.events} == {True}

    # Without a peer the node may not know the newest blocks, and says so beside the confirmation.
    shop.node.stop()
    shop.options = (*shop.options, "--set=participation.alone=false")
    shop.start()
    payment = shop.node.ok(shop.node.get(order["request"]["statusPath"]))["payment"]
    assert (payment["state"], payment["node"]) == ("confirmed", {**payment["tip"], "synced": False})


def test_alarms_and_a_wrong_amount(shop: Shop) -> None:
    # The chain stands still so long that the blocks after that need less work; only who asks for alarms is told.
    gap = max(DEVNET.gap_cap_slots, OUTAGE_INTERVALS * DEVNET.slots_per_block)
    chain = ChainBuilder(DEVNET).chain(f"genesis: b[1..2]\nb2 is at slot {2 + gap}")
    hand_in(shop.node, chain["b1"])
    warned = shop.order("order-2", events=["node.alarm"])
    hand_in(shop.node, chain["b2"])
    wait_until(lambda: len(shop.alarms()) > 0, "the alarm")
    assert shop.alarms() == [(warned["watch"], "outage")]

    # A wrong amount, reported to the watch that asks for it.
    shop.fund("customer")
    asking = shop.order("order-3", events=["payment.mismatched"])
    shop.pay("customer", shop.order("order-3", "24", events=["payment.expired"])["request"])
    shop.node.mine(1)
    wait_until(lambda: any("mismatch" in event for event in list(shop.receiver.events)), "the mismatch")
    (told,) = [event for event in shop.receiver.events if "mismatch" in event]
    assert (told["event"], told["subscriptionId"]) == ("payment.mismatched", asking["watch"])
    assert (told["mismatch"]["kind"], told["mismatch"]["amountSvc"]) == ("too-little", "24")

    # Deep enough to warn of it.
    shop.node.mine(12)
    # A registration evaluates the watches up to the tip: blocks that no watch was evaluated on are not warned of.
    shop.order("order-4", events=["payment.expired"])
    shop.node.ok(shop.node.operator("/operator/reorganise", {"depth": 12}))
    wait_until(lambda: (warned["watch"], "deep-reorganisation") in shop.alarms(), "the alarm")
    # The devnet's blocks are of today, long after the two that were handed in.
    assert {kind for _, kind in shop.alarms()} == {"outage", "deep-reorganisation"}
    shop.receiver.check()


@pytest.mark.story
@pytest.mark.parametrize("refusal", [400, 500])
def test_a_shop_that_takes_confirmations_only_hears_them_at_once(shop: Shop, refusal: int) -> None:
    """It refuses everything else, also the reorganisation in front of each further confirmation."""
    shop.receiver.refusal = refusal
    shop.receiver.taken = frozenset({"payment.confirmed"})
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    wait_until(lambda: bool(shop.receiver.refused), "the first refusal")
    seconds: list[float] = []
    # A busy machine may be slow now and then, but not each time.
    while len(seconds) < 3 or (min(seconds) > 2 and len(seconds) < 10):
        epoch = len(seconds)
        if epoch:
            shop.node.ok(shop.node.operator("/operator/reorganise", {"depth": REQUIRED}))
            wait_until(lambda: len(shop.receiver.refused) > refused, "the refusal of the reorganisation")  # noqa: B023
        for _ in range(REQUIRED):
            shop.node.mine(1)
        began = time.monotonic()
        wait_until(lambda: len(shop.receiver.events) > epoch, f"the confirmation of epoch {epoch}")  # noqa: B023
        seconds.append(time.monotonic() - began)
        refused = len(shop.receiver.refused)
    assert [event["epoch"] for event in shop.receiver.events] == list(range(len(seconds)))
    assert set(shop.receiver.names) == {"confirmed: confirmed 3"}
    assert min(seconds) <= 2, seconds
    assert max(seconds) <= SOON, seconds

    wait_until(lambda: all(map(_is_settled, shop.watch(order["watch"])["events"])), "the end of all events")
    events = shop.watch(order["watch"])["events"]
    # The others were superseded, or refused for the last time before that.
    assert {event["event"] for event in events if event["deliveredAt"] is not None} == {"payment.confirmed"}
    assert any("superseded" in event for event in events)
    shop.receiver.check()


def test_only_the_networks_that_the_operator_names_are_called(shop: Shop) -> None:
    """Those of the Shop's options are loopback, so every story here is one of a shop on the node's own machine."""
    body = {"recipient": SHOP, "amount": "25", "reference": "order-1"}
    for host, category in (("127.0.0.2", "loopback"), ("100.64.0.1", "reserved"), ("10.0.0.1", "private")):
        refused = shop.ask("POST", "/rpc/commerce/webhooks", {**body, "callbackUrl": f"https://{host}/paid"})
        assert (refused.status, refused.json["error"]) == (
            400,
            f"callbackUrl: {host} has an address that may not be called ({category}); the operator can allow it in "
            "[commerce.webhooks] callbackNetworks",
        )
    never = shop.ask("POST", "/rpc/commerce/webhooks", {**body, "callbackUrl": "https://169.254.169.254/"})
    assert never.json["error"] == "callbackUrl: 169.254.169.254 has an address that may not be called (metadata)"
    unknown = shop.ask("POST", "/rpc/commerce/webhooks", {**body, "callbackUrl": "https://shop.invalid/"})
    assert (unknown.status, unknown.headers["retry-after"]) == (503, "30")


def test_only_orders_that_wait_for_their_payment_count_against_the_limit(shop: Shop) -> None:
    shop.fund("customer")
    orders = [shop.order(f"order-{number}", "1") for number in range(MOST_UNCONFIRMED)]
    url = f"https://localhost:{shop.receiver.port}/paid"
    one_more = {"recipient": SHOP, "amount": "1", "reference": "order-x", "callbackUrl": url}
    full = shop.ask("POST", "/rpc/commerce/webhooks", one_more)
    assert (full.status, full.headers["retry-after"]) == (429, "60")
    assert "localhost has 6 unconfirmed watches, the most; " in full.json["error"]
    assert "let the operator raise maxWatchesPerHost" in full.json["error"]

    shop.pay("customer", orders[0]["request"])
    shop.node.mine(REQUIRED)
    wait_until(lambda: shop.watch(orders[0]["watch"])["lastState"] == "confirmed", "the confirmation")
    assert shop.ask("POST", "/rpc/commerce/webhooks", one_more).status == 201
    assert shop.ask("POST", "/rpc/commerce/webhooks", {**one_more, "reference": "order-y"}).status == 429
    assert shop.ask("POST", f"/rpc/commerce/webhooks/{orders[1]['watch']}/cancel").status == 200
    assert shop.ask("POST", "/rpc/commerce/webhooks", {**one_more, "reference": "order-y"}).status == 201


@pytest.mark.story
def test_two_merchants_of_one_node(shop: Shop, certificate: Signed, tmp_path: Path) -> None:
    """Both watch the same order, each is told under its own secret, and a kill mixes nothing up."""
    token, new_secret = BOOKS_TOKEN, "n-books" * 8
    books = Receiver(BOOKS_SECRET)
    shop.fund("customer")
    with books.serving(certificate, tmp_path):
        order = shop.order("order-1")
        shop.register(books, "order-1", token=token)
        other = {"recipient": address_of("customer", "svcd"), "amount": "25", "reference": "order-1"}
        url = f"https://localhost:{books.port}/books"
        assert shop.ask("POST", "/rpc/commerce/webhooks", {**other, "callbackUrl": url}, token=token).status == 400
        theirs = f"/rpc/commerce/webhooks/{order['watch']}"
        for method, path in (("GET", theirs), ("POST", f"{theirs}/cancel")):
            assert shop.ask(method, path, token=token).status == 404
            assert shop.ask(method, path, token=token + "x").status == 401

        shop.pay("customer", order["request"])
        wait_until(lambda: books.names == shop.receiver.names == ["pending: pending 0"], "the payment")
        shop.node.mine(1)
        shop.node.kill()
        # Without its merchant, the other watch goes on unheard.
        shop.options = shop.options[:-1]
        shop.start()
        shop.node.mine(1)
        wait_until(lambda: shop.receiver.names[-1] == "confirming: confirming 2", "the second block")
        unheard = len(books.events)
        assert len(shop.node.logged("the configuration has no merchant books")) == 1
        shop.node.stop()
        assert len(books.events) == unheard
        shop.options = (*shop.options, shop.books(new_secret, BOOKS_SECRET))
        books.secret = new_secret
        shop.start()
        wait_until(lambda: books.names[-1] == "confirming: confirming 2", "what was kept")
        shop.node.mine(1)
        for receiver in (books, shop.receiver):
            wait_until(lambda receiver=receiver: receiver.names[-1] == "confirmed: confirmed 3", "the confirmation")  # type: ignore[misc]
            assert len({event["subscriptionId"] for event in receiver.events}) == 1
            # One that was sent at the moment of the kill came under the old secret, and came again under the new one.
            receiver.check()


@pytest.mark.story
def test_a_delivery_is_seen_and_repeated(shop: Shop, certificate: Signed, tmp_path: Path) -> None:
    """A shop that has lost an event asks for it again; a kill between the request and the delivery loses nothing."""
    shop.fund("customer")
    order = shop.order("order-1")
    follower = shop.svc("watch", "order-1")
    assert follower.stderr is not None
    assert follower.stderr.readline() == "order-1  unpaid 0 of 3\n"
    shop.pay("customer", order["request"])
    for _ in range(REQUIRED):
        shop.node.mine(1)
    wait_until(lambda: _last(shop.receiver, order["watch"]) == "payment.confirmed", "the confirmation")
    wait_until(lambda: all(map(_is_settled, shop.watch(order["watch"])["events"])), "the last line in the book")
    story, _ = shop.svc("show", "order-1").communicate(timeout=DEADLINE)
    assert "  payment.confirmed: confirmed, 3 of 3 confirmations\n    block " in story
    assert "\nnext: the watch closes at " in story
    (listed,) = shop.ask("GET", "/rpc/commerce/webhooks?state=confirmed&host=localhost").json["subscriptions"]
    confirmed = listed["events"][0]
    assert (confirmed["event"], confirmed["attempts"], confirmed["lastStatus"]) == ("payment.confirmed", 1, 200)
    assert confirmed["lastAttemptAt"] == confirmed["deliveredAt"]

    # Nobody takes the first attempt.
    shop.receiver.behaviour = Behaviour("hang up")
    path = f"/rpc/commerce/webhooks/{order['watch']}/events/{confirmed['id']}/redeliver"
    asked = shop.ask("POST", path)
    assert (asked.status, asked.json["event"]["id"]) == (202, confirmed["id"])
    shop.node.kill()
    before = len(shop.receiver.events)
    shop.receiver.behaviour = Behaviour()
    assert follower.stderr.readline().startswith("no answer, asking again until there is one: ")
    shop.start()
    wait_until(lambda: len(shop.receiver.events) > before, "the event again")
    assert follower.stderr.readline() == "the node answers again\n"
    assert {event["id"] for event in shop.receiver.events[before:]} == {confirmed["id"]}
    # The receiver also holds the bodies under one id against each other.
    shop.receiver.check()
    wait_until(lambda: shop.watch(order["watch"])["events"][0]["nextAttemptAt"] is None, "the note of the delivery")

    shop.ask("POST", f"/rpc/commerce/webhooks/{order['watch']}/cancel")
    told, _ = follower.communicate(timeout=DEADLINE)
    lines = [line.split("  ", 1)[1] for line in told.splitlines()]
    assert (follower.returncode, lines[-1]) == (0, "order-1  ended: cancelled")
    assert lines.count("order-1  payment.confirmed  confirmed 3 of 3") == 1
    again = shop.watch(order["watch"])["events"][0]
    assert int(again["deliveredAt"]) > int(confirmed["deliveredAt"])
    assert again["attempts"] >= 2

    url = f"https://localhost:{shop.receiver.port}/paid"
    test = shop.ask("POST", "/rpc/commerce/webhooks/test", {"callbackUrl": url}).json["test"]
    assert (test["event"], test["status"], test["error"]) == ("webhook.test", 200, None)
    assert shop.receiver.events[-1]["id"] == test["id"]
    shop.receiver.behaviour = Behaviour("redirect")
    test = shop.ask("POST", "/rpc/commerce/webhooks/test", {"callbackUrl": url}).json["test"]
    assert (test["status"], test["error"]) == (302, "status 302")
    refused = shop.ask("POST", "/rpc/commerce/webhooks/test", {"callbackUrl": "https://169.254.169.254/"})
    assert refused.status == 400


@pytest.mark.story
def test_a_killed_node_loses_no_event(shop: Shop, certificate: Signed, tmp_path: Path, torture: bool) -> None:
    """`kill -9` at any instant of the story: every event arrives, in order, and repeated only as it was.

    One merchant asks for an event again, another refuses all but confirmations and wrong payments.
    """
    chance = Random(20261120)
    rounds = 100 if torture else 5
    books = Receiver(BOOKS_SECRET)
    books.taken = frozenset({"payment.confirmed", "payment.mismatched"})
    asked = {"events": ["payment.pending", "payment.confirming", "payment.confirmed", "payment.mismatched"]}
    again = "/rpc/commerce/webhooks/none"
    shop.fund("customer")
    with books.serving(certificate, tmp_path):
        for number in range(rounds):
            order, wrong = shop.order(f"order-{number}", "0.1", **asked), shop.request(f"order-{number}", "0.09")
            theirs = shop.register(books, f"order-{number}", "0.1", token=BOOKS_TOKEN)
            killed = Event()
            killer = Thread(target=_kill_after, args=(shop.node, chance.uniform(0.0, 0.6), killed))
            killer.start()
            for what in (
                lambda order=order: shop.pay("customer", order["request"]),
                lambda wrong=wrong: shop.pay("customer", wrong),
                lambda again=again: shop.ask("POST", again),
                *[lambda: shop.node.mine(1)] * REQUIRED,
            ):
                _attempt(what)
            killer.join()
            assert killed.is_set()
            shop.start()
            for request in (order["request"], wrong):
                if shop.state(request).startswith("unpaid"):
                    # The broadcast was never answered, so the customer sends it again.
                    shop.pay("customer", request)
            for _ in range(REQUIRED + 1):
                shop.node.mine(1)
            wanted = {"payment.confirmed", "payment.mismatched"}
            for receiver, watch, token, told in (
                (shop.receiver, order["watch"], TOKEN, wanted),
                (books, theirs, BOOKS_TOKEN, books.taken),
            ):
                wait_until(lambda: told <= _heard(receiver, watch), f"{told} of round {number}")  # noqa: B023
                receiver.check()
                _agree(shop, receiver, watch, token)
            confirmed = shop.watch(order["watch"])["events"]
            (event,) = [each["id"] for each in confirmed if each["event"] == "payment.confirmed"]
            again = f"/rpc/commerce/webhooks/{order['watch']}/events/{event}/redeliver"
        for event in (*shop.receiver.events, *books.events):
            assert event["epoch"] == 0, event


def _agree(shop: Shop, receiver: Receiver, watch: str, token: str) -> None:
    """What the node has written down is what has come: none is missing, and none came under an id that it forgot."""
    shown = lambda: shop.watch(watch, token=token)["events"]  # noqa: E731
    wait_until(lambda: all(map(_is_settled, shown())), "the last line in the node's book")
    written = {event["id"]: event for event in shown()}
    come = {event["id"] for event in list(receiver.events) if event["subscriptionId"] == watch}
    assert come <= set(written)
    given_up = {identifier for identifier, event in written.items() if event.keys() & {"superseded", "refused"}}
    assert set(written) <= come | given_up


def _heard(receiver: Receiver, watch: str) -> set[str]:
    return {event["event"] for event in list(receiver.events) if event["subscriptionId"] == watch}


def _is_settled(event: dict[str, Any]) -> bool:
    return event["deliveredAt"] is not None or "superseded" in event or "refused" in event


def _last(receiver: Receiver, watch: str) -> str:
    names = [event["event"] for event in list(receiver.events) if event["subscriptionId"] == watch]
    return names[-1] if names else ""


def _kill_after(node: RunningNode, seconds: float, killed: Event) -> None:
    killed.wait(seconds)
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()
    killed.set()


def _attempt(what: Callable[[], object]) -> None:
    """Do something that the node's death may cut off."""
    try:
        what()
    except (OSError, HTTPException, AssertionError, ValueError):
        return


@contextmanager
def sample_shop(node: Shop, folder: Path) -> Iterator[Flask]:
    """The shop of examples/shop, which listens to the events of the node."""
    port = free_port()
    url = f"http://127.0.0.1:{node.port}"
    app = examples_shop.create_app(
        {
            "NODE_URL": url,
            "PUBLIC_NODE_URL": url,
            "MANAGE_TOKEN": TOKEN.replace(" ", "-"),
            "SIGNING_SECRETS": SECRET.replace(" ", "_"),
            "ADDRESS": SHOP,
            "RATE": "1",
            "URL": f"http://127.0.0.1:{port}",
            "DATABASE": str(folder / "shop.sqlite"),
            "PASSWORD": "open sesame",
            "CONFIRMATIONS": str(REQUIRED),
        }
    )
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        app.config["NODE"].close()


def test_an_order_that_is_paid_in_the_last_minute_is_released_after_a_restart_without_a_click(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is down while the payment is confirmed and the buyer's deadline passes; nobody has to ask afterwards."""
    monkeypatch.setattr(examples_shop, "ORDER_SECONDS", 60)
    port = free_port()
    others = (f"--set=http.publicUrl=http://127.0.0.1:{port}", f'--set=p2p.seeds=["http://127.0.0.1:{shop.port}"]')
    network = shop.nodes.start(*DEVNET_OPTIONS, "--set=participation.alone=true", *others, name="network", port=port)
    shop.node.stop()
    shop.options += (
        f"--set=http.publicUrl=http://127.0.0.1:{shop.port}",
        f'--set=p2p.seeds=["http://127.0.0.1:{port}"]',
        f"--set=commerce.webhooks.signingSecret={SECRET.replace(' ', '_')}",
        "--set=commerce.webhooks.allowHttpCallbacks=true",
    )
    shop.start()
    shop.fund("customer")
    with sample_shop(shop, tmp_path) as app:
        reference = app.test_client().post("/orders", data={"product": "teapot"}).location.rpartition("/")[2]
        db = examples_shop.connect(app.config["DATABASE"])

        def order() -> sqlite3.Row:
            row = examples_shop.find(db, reference)
            assert row is not None
            return row

        shop.pay("customer", {"paymentUri": order()["payment_uri"]})
        wait_until(lambda: order()["state"] == "pending", "the transfer in the shop")
        customer = address_of("customer", "svcd")
        wait_until(lambda: network.account(customer)["pendingNonce"] == "1", "the transfer at the other node")
        shop.node.kill()
        network.mine(REQUIRED)
        wait_until(lambda: time.time() * 1000 > order()["expires_at"], "the deadline")

        shop.start()
        wait_until(lambda: examples_shop.status(order()) == "ready to ship", "the confirmation in the shop")
        assert db.execute("SELECT * FROM notices").fetchall() == []
        db.close()
