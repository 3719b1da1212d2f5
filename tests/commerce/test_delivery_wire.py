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
from tests.net.certificates import Signed
from tests.net.conftest import HOST, Answers, authority, caller, make_caller, serve, shop_certificate, trust
from tests.net.servers import Server, answer, saying, silent, until

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
