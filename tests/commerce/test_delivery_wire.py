"""Deliveries over real sockets on loopback: what the network does, and what the outbox then records."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
import pytest_twisted
from attrs import evolve, frozen
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from svcd.commerce.dispatcher import WebhookDispatcher
from svcd.commerce.sender import SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys, verify
from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallLimits, Reply
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules, Target
from tests.commerce.memory_outbox import MemoryOutbox
from tests.net.certificates import Signed, sign
from tests.net.conftest import HOST, Answers, authority, caller, make_caller, serve, shop_certificate, trust
from tests.net.servers import Server, answer, dripping, saying, silent, until

__all__ = ["authority", "caller", "make_caller", "serve", "shop_certificate", "trust"]
pytestmark = pytest.mark.socket

SECRET = "a-signing-secret-of-thirty-two-characters"
Serve = Callable[..., Server]
MakeCaller = Callable[..., PinnedClient]


@frozen
class Hasty:
    """A caller with less patience than 10 s."""

    caller: PinnedClient
    seconds: float

    def call(
        self, method: str, target: Target, *, headers: Any, body: bytes | None, limits: CallLimits
    ) -> "Deferred[Reply]":
        assert limits.seconds == 10
        limits = evolve(limits, seconds=self.seconds)
        call = self.caller.call(method, target, headers=headers, body=body, limits=limits)
        return Deferred.fromCoroutine(call)


class Shop:
    """Deliveries with their outbox, and one watch whose callback is at a server."""

    def __init__(self, caller: Any) -> None:
        self.outbox = MemoryOutbox()
        rules = Rules.for_callbacks(allow_http=True, allow_private=True)
        sender = WebhookSender(rules, {"default": SendingMerchant(caller, SigningKeys(SECRET))})
        self.dispatcher = WebhookDispatcher(self.outbox, sender, clock=reactor, chance=lambda: 0.5)

    async def send(self, server: Server | int, *, scheme: str = "https", host: str = HOST) -> None:
        """Send one event and wait until its attempt has ended."""
        port = server if isinstance(server, int) else server.port
        url = f"{scheme}://{host}:{port}/hook?key=secret"
        self.dispatcher.enqueue([self.outbox.add("shop/1", url, now=int(reactor.seconds() * 1000))])
        await until(lambda: not self.dispatcher.counts().in_flight)

    @property
    def outcome(self) -> str:
        row = self.outbox.row("shop/1")
        return row.errors[0] if row.errors else row.state


@pytest_twisted.async_yield_fixture
async def open_shop() -> Any:
    """``open_shop(caller)``: deliveries that stop with the test."""
    shops: list[Shop] = []

    def start(caller: Any) -> Shop:
        shops.append(Shop(caller))
        return shops[-1]

    yield start
    for shop in shops:
        await shop.dispatcher.stop()


OpenShop = Callable[[Any], Shop]


async def test_an_event_arrives_over_tls_and_can_be_verified(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop
) -> None:
    server = serve(saying(answer(b"thanks", status=b"202 Accepted")), shop_certificate)
    shop = open_shop(caller)
    await shop.send(server)
    assert shop.outcome == "delivered"
    [request] = server.requests
    assert request.line == b"POST /hook?key=secret HTTP/1.1"
    assert request.body == shop.outbox.row("shop/1").event.body
    assert set(request.headers) == {
        *(b"host", b"connection", b"content-length", b"content-type", b"user-agent"),
        *(b"x-svc-event", b"x-svc-event-id", b"x-svc-timestamp", b"x-svc-signature"),
        *(b"webhook-id", b"webhook-timestamp", b"webhook-signature"),
    }
    stamp, signature = (request.headers[name].decode() for name in (b"x-svc-timestamp", b"x-svc-signature"))
    verify(request.body, timestamp=stamp, signature=signature, secret=SECRET, now=int(reactor.seconds()))


@pytest.mark.parametrize("fault", ["wrong name", "self-signed", "expired"])
async def test_a_bad_certificate_gets_no_event(
    serve: Serve, caller: PinnedClient, authority: Signed, open_shop: OpenShop, fault: str
) -> None:
    certificate = {
        "wrong name": lambda: sign("other.example.com", by=authority),
        "self-signed": lambda: sign(HOST, by=None),
        "expired": lambda: sign(HOST, by=authority, days=(-3, -1)),
    }[fault]()
    server = serve(saying(answer()), certificate)
    shop = open_shop(caller)
    await shop.send(server)
    assert shop.outcome == "tls"
    assert not server.requests


async def test_each_attempt_looks_up_once_and_never_calls_another_address(
    serve: Serve, make_caller: MakeCaller, open_shop: OpenShop
) -> None:
    first = serve(saying(answer(status=b"500 No")))
    second = serve(saying(answer()), None, "127.0.0.2", first.port)
    own = AddressPolicy(allow_private=True, own=frozenset({ip_address("198.41.0.4")}))
    resolver = Answers(["127.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["198.41.0.4"])
    shop = open_shop(make_caller(resolver, policy=own))
    await shop.send(first, scheme="http")
    row = shop.outbox.row("shop/1")
    assert (resolver.asked, row.errors) == ([HOST], ["status 500"])
    for attempts in (2, 3):
        shop.dispatcher.enqueue([evolve(shop.outbox.queue("shop/1"), due=0)])
        await until(lambda attempts=attempts: len(row.errors) == attempts)
        assert resolver.asked == [HOST] * attempts
    assert row.errors == ["status 500", "refused-address", "refused-address"]
    assert (first.connections, second.connections) == (1, 0)


HEADS = {
    "a slow body": b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
    "slow headers": b"HTTP/1.1 200 OK\r\nX: ",
}


@pytest.mark.parametrize("stall", ["handshake", "no answer", *HEADS])
async def test_a_stalling_receiver_is_dropped_at_the_deadline(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop, stall: str
) -> None:
    server = serve(
        dripping(HEADS[stall]) if stall in HEADS else silent, None if stall == "handshake" else shop_certificate
    )
    shop = open_shop(Hasty(caller, 0.3))
    await shop.send(server)
    assert shop.outcome == "timeout"
    await until(lambda: not server.open)


@pytest.mark.parametrize(
    "flood",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
        b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 30_000,
    ],
    ids=["body", "headers", "early hints"],
)
async def test_a_flood_is_no_success(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop, flood: bytes
) -> None:
    server = serve(saying(flood), shop_certificate)
    shop = open_shop(caller)
    await shop.send(server)
    assert shop.outcome == "too-large"
    await until(lambda: not server.open)


async def test_a_redirect_is_not_followed_but_retried(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop
) -> None:
    inner = serve(saying(answer()))
    location = b"Location: http://127.0.0.1:%d/" % inner.port
    server = serve(saying(answer(b"", location, status=b"302 Found")), shop_certificate)
    shop = open_shop(caller)
    await shop.send(server)
    assert (shop.outcome, inner.connections) == ("status 302", 0)


async def test_410_ends_the_watch(serve: Serve, caller: PinnedClient, open_shop: OpenShop) -> None:
    server = serve(saying(answer(b"", status=b"410 Gone")))
    shop = open_shop(caller)
    await shop.send(server, scheme="http")
    assert shop.outcome == "dropped"


async def test_an_absurd_retry_after_is_twice_the_regular_delay(
    serve: Serve, caller: PinnedClient, open_shop: OpenShop
) -> None:
    server = serve(saying(answer(b"", b"Retry-After: " + b"9" * 5_000, status=b"429 Too Many Requests")))
    shop = open_shop(caller)
    await shop.send(server, scheme="http")
    assert shop.outcome == "status 429"
    row = shop.outbox.row("shop/1")
    assert row.event.created_at + 2_000 <= row.due <= int(reactor.seconds() * 1000) + 2_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200",
        b"Thanks!\r\n\r\n",
    ],
)
async def test_an_incomplete_answer_is_no_success(
    serve: Serve, caller: PinnedClient, open_shop: OpenShop, data: bytes
) -> None:
    def script(conversation: Any) -> None:
        conversation.say(data)
        conversation.transport.loseConnection()

    server = serve(script)
    shop = open_shop(caller)
    await shop.send(server, scheme="http")
    assert shop.outcome == "protocol"
    assert len(server.requests) == 1


async def test_a_name_without_an_address_and_a_closed_port_are_retried(
    serve: Serve, make_caller: MakeCaller, open_shop: OpenShop
) -> None:
    lost = open_shop(make_caller(Answers(OSError(-2, "Name or service not known"))))
    await lost.send(443)
    server = serve(saying(answer()))
    closed = open_shop(make_caller(Answers(["127.0.0.2"])))
    await closed.send(server, scheme="http")
    assert (lost.outcome, closed.outcome) == ("dns", "connect")


async def test_stopping_closes_the_connections_of_aborted_deliveries(
    serve: Serve, caller: PinnedClient, open_shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svcd.commerce.dispatcher.STOP_SECONDS", 0.1)
    server = serve(silent)
    shop = open_shop(caller)
    url = f"http://{HOST}:{server.port}/"
    shop.dispatcher.enqueue([shop.outbox.add("shop/1", url)])
    await until(lambda: server.requests)
    await shop.dispatcher.stop()
    await until(lambda: not server.open)
    assert shop.outcome == "waiting"


async def test_an_event_that_is_sent_twice_has_one_id(serve: Serve, caller: PinnedClient, open_shop: OpenShop) -> None:
    """The process died between the answer and its record in the outbox; after the start it is sent again."""
    server = serve(saying(answer()))
    before, after = open_shop(caller), open_shop(caller)
    await before.send(server, scheme="http")
    before.outbox.row("shop/1").state = "waiting"
    after.outbox.rows = before.outbox.rows
    after.dispatcher.enqueue([before.outbox.queue("shop/1")])
    await until(lambda: after.outcome == "delivered")
    first, second = server.requests
    assert first.headers[b"x-svc-event-id"] == second.headers[b"x-svc-event-id"]
    assert first.body == second.body
