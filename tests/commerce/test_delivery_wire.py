"""Deliveries over real sockets on loopback: what the network does, and what the outbox then records."""

import gzip
import tracemalloc
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
from svcd.node.clock_guard import ClockGuard
from tests.commerce.memory_outbox import MemoryOutbox
from tests.net.certificates import Signed
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
        self.dispatcher = WebhookDispatcher(
            self.outbox, sender, clock=reactor, guard=ClockGuard(reactor), chance=lambda: 0.5
        )

    async def send(
        self, server: Server | int, *, scheme: str = "https", host: str = HOST, path: str = "/hook?key=secret"
    ) -> None:
        """Send one event and wait until its attempt has ended."""
        port = server if isinstance(server, int) else server.port
        url = f"{scheme}://{host}:{port}{path}"
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


async def test_a_stalling_receiver_is_dropped_at_the_deadline(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop
) -> None:
    server = serve(silent, shop_certificate)
    shop = open_shop(Hasty(caller, 0.3))
    await shop.send(server)
    assert shop.outcome == "timeout"
    await until(lambda: not server.open)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
BOMB = gzip.compress(bytes(100_000_000), 1)
BODIES = {
    "a gzip bomb": b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB,
    "a body without end": b"\r\n" + b"x" * 10_000_000,
    "a body that is cut short": b"Content-Length: 10\r\n\r\nhalf",
    "broken chunks": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
    "cookies": b"Set-Cookie: a=b; Domain=shop.example.com\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES)
async def test_a_body_costs_nothing_whatever_it_is(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, open_shop: OpenShop, body: str
) -> None:
    """It is not read, so nothing of it is decoded or kept; the connection is closed after the head."""
    server = serve(saying(HEAD + BODIES[body]), shop_certificate)
    shop = open_shop(caller)
    tracemalloc.start()
    try:
        await shop.send(server)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert shop.outcome == "delivered"
    # The receiver is in this process, and keeps what it says until the connection is closed.
    assert peak < 2_000_000 + 3 * len(BODIES[body])
    await until(lambda: not server.open)
    await shop.send(server)
    assert len(server.requests) == 2
    assert all(not {b"accept-encoding", b"cookie"} & set(request.headers) for request in server.requests)


async def test_a_body_that_never_comes_delays_nothing(serve: Serve, caller: PinnedClient, open_shop: OpenShop) -> None:
    server = serve(dripping(HEAD + b"Content-Length: 9999\r\n\r\n"))
    shop = open_shop(Hasty(caller, 5))
    await shop.send(server, scheme="http")
    assert shop.outcome == "delivered"
    await until(lambda: not server.open)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "too-large"),
        (b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 30_000, "too-large"),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", "protocol"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "status 302"),
    ],
    ids=["headers", "early hints", "half a head", "redirect"],
)
async def test_a_head_that_is_no_success(
    serve: Serve, caller: PinnedClient, open_shop: OpenShop, said: bytes, error: str
) -> None:
    def script(conversation: Any) -> None:
        conversation.say(said)
        conversation.transport.loseConnection()

    server = serve(script)
    shop = open_shop(caller)
    await shop.send(server, scheme="http")
    assert shop.outcome == error
    await until(lambda: not server.open)
    assert server.connections == 1


@pytest.mark.parametrize("path", ["/hook?key=a|b", "/%2f/../x;p?a=b=c&&d", "/'()*!~[x]?[y]=1", "/?a"])
@pytest.mark.parametrize("host", [HOST, "[::1]"])
async def test_a_url_arrives_as_it_was_registered(
    serve: Serve, caller: PinnedClient, open_shop: OpenShop, host: str, path: str
) -> None:
    server = serve(saying(answer()), None, "::1" if host == "[::1]" else "127.0.0.1")
    shop = open_shop(caller)
    await shop.send(server, scheme="http", host=host, path=path)
    assert shop.outcome == "delivered"
    expected = Rules.for_callbacks(allow_http=True, allow_private=True).parse(f"http://{host}:1024{path}").path
    assert server.requests[0].line == b"POST %s HTTP/1.1" % expected.encode()


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
