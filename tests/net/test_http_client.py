"""Calls over real sockets on loopback: where they go, and where they do not."""

import gzip
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.web.error import SchemeNotSupported

from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallFailed, CallLimits, Reply
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Target
from tests.net.certificates import Signed, sign
from tests.net.conftest import HOST, LENIENT, LIMITS, Answers, SteppedDialler, target_of
from tests.net.servers import Server, answer, dripping, pause, saying, silent, until

pytestmark = pytest.mark.socket

SHORT = CallLimits(seconds=1, max_bytes=64 * 1024)
Serve = Callable[..., Server]
MakeCaller = Callable[..., PinnedClient]


async def read_whole(
    caller: PinnedClient, method: str, target: Target, *, limits: CallLimits, body: bytes | None = None
) -> Reply:
    """The reply with its body, as a peer is asked for it."""
    peer = await caller.pin(target, seconds=limits.seconds)
    try:
        return await peer.call(method, target.path, body=body, limits=limits)
    finally:
        await peer.close()


async def failure_of(
    caller: PinnedClient, target: Target, *, limits: CallLimits = LIMITS, method: str = "POST"
) -> CallFailed:
    with pytest.raises(CallFailed) as failed:
        await read_whole(caller, method, target, body=b"{}", limits=limits)
    assert "secret" not in str(failed.value)
    assert target.host in str(failed.value)
    return failed.value


async def test_a_call_arrives_as_it_was_meant(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer(b"thanks", b"Content-Type: text/plain", status=b"202 Accepted")))
    headers = {"Content-Type": "application/json", "X-Svc-Event": "payment.pending"}
    reply = await caller.call("POST", target_of(server), headers=headers, body=b'{"a":1}', limits=LIMITS)
    assert reply == Reply(status=202, headers={"content-type": "text/plain"}, body=b"")
    [request] = server.requests
    assert request.line == b"POST /hook?key=secret HTTP/1.1"
    assert request.body == b'{"a":1}'
    assert request.headers == {
        b"host": b"shop.example.com:%d" % server.port,
        b"content-length": b"7",
        b"content-type": b"application/json",
        b"x-svc-event": b"payment.pending",
        b"connection": b"close",
    }


@pytest.mark.parametrize("path", ["//", "//paid", "///paid//?a=//", "/;a;b?;?", "/.//../%2F"])
async def test_a_path_is_sent_as_the_merchant_wrote_it(serve: Serve, caller: PinnedClient, path: str) -> None:
    server = serve(saying(answer()))
    target = evolve(target_of(server), path=path)
    await caller.call("POST", target, body=b"{}", limits=LIMITS)
    await read_whole(caller, "GET", target, limits=LIMITS)
    assert [request.line.split()[1] for request in server.requests] == [path.encode("ascii")] * 2


async def test_a_call_over_tls_is_for_the_name(serve: Serve, caller: PinnedClient, shop_certificate: Signed) -> None:
    seen: list[Any] = []

    def script(conversation: Any) -> None:
        seen.append((conversation.transport.getHandle().get_servername(), conversation.transport.negotiatedProtocol))
        conversation.say(answer())

    server = serve(script, shop_certificate)
    reply = await caller.call("GET", target_of(server, scheme="https"), limits=LIMITS)
    assert reply.status == 200
    assert seen == [(HOST.encode(), None)]


async def test_a_certificate_for_another_name_is_refused(serve: Serve, caller: PinnedClient, authority: Signed) -> None:
    server = serve(saying(answer()), sign("other.example.com", "127.0.0.1", by=authority))
    failed = await failure_of(caller, target_of(server, scheme="https"))
    assert failed.category == "tls"
    assert "not for its name" in str(failed)
    assert not server.requests


@pytest.mark.parametrize("fault", ["self-signed", "expired", "not yet valid"])
async def test_a_bad_certificate_is_refused(serve: Serve, caller: PinnedClient, authority: Signed, fault: str) -> None:
    certificate = {
        "self-signed": lambda: sign(HOST, by=None),
        "expired": lambda: sign(HOST, by=authority, days=(-3, -1)),
        "not yet valid": lambda: sign(HOST, by=authority, days=(1, 3)),
    }[fault]()
    server = serve(saying(answer()), certificate)
    failed = await failure_of(caller, target_of(server, scheme="https"))
    assert failed.category == "tls"
    assert "certificate verify failed" in str(failed)
    assert not server.requests


async def test_a_server_without_tls_is_refused(serve: Serve, caller: PinnedClient) -> None:
    def rude(conversation: Any) -> None:
        raise AssertionError("a TLS greeting is no request")

    server = serve(rude)
    call = Deferred.fromCoroutine(failure_of(caller, target_of(server, scheme="https")))
    await until(lambda: server.open)
    next(iter(server.open)).say(answer())
    failed = await call
    assert failed.category == "tls"


async def test_a_name_that_no_certificate_can_be_for_is_refused(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer()))
    failed = await failure_of(caller, target_of(server, scheme="https", host="ab--c.example.com"))
    assert failed.category == "tls"
    assert server.connections == 0


# Where a call goes


async def test_a_name_is_looked_up_once_however_it_changes(serve: Serve, make_caller: MakeCaller) -> None:
    first = serve(saying(answer(b"first")))
    second = serve(saying(answer(b"second")), None, "127.0.0.2", first.port)
    resolver = Answers(["127.0.0.1"], ["127.0.0.2"], ["169.254.169.254"])
    reply = await make_caller(resolver).call("GET", target_of(first), limits=LIMITS)
    assert (reply.status, len(first.requests)) == (200, 1)
    assert resolver.asked == [HOST]
    assert second.connections == 0


@pytest.mark.parametrize("bad", ["169.254.169.254", "0.0.0.1", "::ffff:7f00:1", "100.100.100.200", "2001:db8::1"])
@pytest.mark.parametrize("position", [0, 1, 7])
async def test_one_bad_answer_spoils_all(serve: Serve, make_caller: MakeCaller, bad: str, position: int) -> None:
    server = serve(saying(answer()))
    addresses = [f"127.0.0.{last}" for last in range(1, 8)]
    addresses.insert(position, bad)
    failed = await failure_of(make_caller(Answers(addresses)), target_of(server))
    assert failed.category == "refused-address"
    assert server.connections == 0


async def test_a_private_address_is_refused_unless_the_operator_admits_it(
    serve: Serve, make_caller: MakeCaller
) -> None:
    server = serve(saying(answer()))
    strict = make_caller(policy=AddressPolicy())
    assert (await failure_of(strict, target_of(server))).category == "refused-address"
    assert (await failure_of(strict, target_of(server, host="127.0.0.1"))).category == "refused-address"
    assert server.connections == 0


@pytest.mark.parametrize(
    "host",
    (
        "169.254.169.254 100.100.100.200 168.63.129.16 [fd00:ec2::254] 0.0.0.1 255.255.255.255 [::] [::ffff:7f00:1] "
        "[::7f00:1] [64:ff9b::7f00:1] [2002:7f00:1::] [2606:4700::5efe:7f00:1] [ff02::1]"
    ).split(),
)
async def test_a_literal_is_checked_like_an_answer(make_caller: MakeCaller, host: str) -> None:
    """Also with private addresses admitted: where clouds keep secrets, and what hides an IPv4 address."""
    resolver = Answers(["127.0.0.1"])
    failed = await failure_of(make_caller(resolver), LENIENT.parse(f"http://{host}/?key=secret"), limits=SHORT)
    assert failed.category == "refused-address"
    assert resolver.asked == []


async def test_an_answer_with_a_scope_id_is_refused(make_caller: MakeCaller) -> None:
    failed = await failure_of(make_caller(Answers(["fe80::1%lo"])), LENIENT.parse("http://shop.example.com/"))
    assert failed.category == "refused-address"


async def test_the_nodes_own_address_is_refused(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    own = AddressPolicy(allow_private=True, own=frozenset({ip_address("127.0.0.1")}))
    assert (await failure_of(make_caller(policy=own), target_of(server))).category == "refused-address"
    assert server.connections == 0


async def test_a_literal_is_not_looked_up(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    resolver = Answers(["127.0.0.2"])
    await make_caller(resolver).call("GET", target_of(server, host="127.0.0.1"), limits=LIMITS)
    assert resolver.asked == []
    assert server.requests[0].headers[b"host"] == b"127.0.0.1:%d" % server.port


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_ipv6_literal_is_called(serve: Serve, caller: PinnedClient, authority: Signed, scheme: str) -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    server = serve(saying(answer()), sign("::1", by=authority) if scheme == "https" else None, "::1")
    reply = await caller.call("GET", target_of(server, scheme=scheme, host="[::1]"), limits=LIMITS)
    assert reply.status == 200
    assert server.requests[0].headers[b"host"] == b"[::1]:%d" % server.port


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_the_next_address_is_tried_when_one_refuses(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    reply = await make_caller(Answers(["127.0.0.3", "127.0.0.2", "127.0.0.1"])).call(
        "GET", target_of(server), limits=LIMITS
    )
    assert reply.status == 200


@pytest.fixture
def swallow() -> Iterator[Callable[[str, int], None]]:
    """``swallow(address, port)``: nothing that is sent there is answered until the test ends."""
    sockets: list[socket.socket] = []

    def start(address: str, port: int) -> None:
        listening = socket.socket()
        sockets.append(listening)
        listening.bind((address, port))
        listening.listen(0)
        # Linux drops connections to a server that has as many as it wants waiting to be accepted.
        for _ in range(3):
            waiting = socket.socket()
            sockets.append(waiting)
            waiting.setblocking(False)
            waiting.connect_ex((address, port))

    yield start
    for one in sockets:
        one.close()


async def test_addresses_that_swallow_everything_cost_a_quarter_of_a_second_each(
    serve: Serve, make_caller: MakeCaller, swallow: Callable[[str, int], None]
) -> None:
    server = serve(saying(answer()))
    swallow("127.0.0.2", server.port)
    swallow("127.0.0.3", server.port)
    dialler = SteppedDialler()
    caller = make_caller(Answers(["127.0.0.3", "127.0.0.2", "127.0.0.1"]), dialler=dialler)
    call = Deferred.fromCoroutine(caller.call("GET", target_of(server), limits=LIMITS))
    dialler.advance(0.25)
    await pause(0.1)
    assert not server.connections
    dialler.advance(0.25)
    assert (await call).status == 200
    assert dialler.seconds() == 0.5


async def test_nobody_listening_is_told(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    failed = await failure_of(make_caller(Answers(["127.0.0.2", "127.0.0.3"])), target_of(server))
    assert failed.category == "connect"
    assert "connection refused" in str(failed)


async def test_a_redirect_is_an_answer_and_not_followed(serve: Serve, caller: PinnedClient) -> None:
    inner = serve(saying(answer()))
    location = b"Location: http://127.0.0.1:%d/" % inner.port
    server = serve(saying(answer(b"", location, status=b"302 Found")))
    reply = await caller.call("GET", target_of(server), limits=LIMITS)
    assert reply.status == 302
    assert inner.connections == 0


@pytest.mark.parametrize("answers", [[], OSError(-2, "Name or service not known")])
async def test_a_name_without_an_address_is_told(make_caller: MakeCaller, answers: Any) -> None:
    failed = await failure_of(make_caller(Answers(answers)), LENIENT.parse("http://shop.example.com/?key=secret"))
    assert failed.category == "dns"


# How long it takes


async def test_a_resolver_that_never_answers_meets_the_deadline(make_caller: MakeCaller) -> None:
    resolver = Answers(None)
    failed = await failure_of(make_caller(resolver), LENIENT.parse("http://shop.example.com/?key=secret"), limits=SHORT)
    assert failed.category == "timeout"
    assert str(failed) == "shop.example.com was not found within 1 s"
    assert resolver.cancelled == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_says_nothing_meets_the_deadline(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, scheme: str
) -> None:
    server = serve(silent, shop_certificate if scheme == "https" else None)
    assert (await failure_of(caller, target_of(server, scheme=scheme), limits=SHORT)).category == "timeout"
    assert len(server.requests) == 1
    await until(lambda: not server.open)


async def test_a_stalled_handshake_meets_the_deadline(serve: Serve, caller: PinnedClient) -> None:
    server = serve(silent)
    assert (await failure_of(caller, target_of(server, scheme="https"), limits=SHORT)).category == "timeout"
    assert server.connections == 1
    await until(lambda: not server.open)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"]
)
async def test_a_slow_answer_meets_the_deadline(serve: Serve, caller: PinnedClient, head: bytes) -> None:
    server = serve(dripping(head))
    assert (await failure_of(caller, target_of(server), limits=SHORT)).category == "timeout"
    await until(lambda: not server.open)


async def test_a_cancelled_call_closes_its_connection(serve: Serve, caller: PinnedClient) -> None:
    server = serve(silent)
    call = Deferred.fromCoroutine(caller.call("GET", target_of(server), limits=LIMITS))
    await until(lambda: server.requests)
    call.cancel()
    with pytest.raises(CancelledError):
        await call
    await until(lambda: not server.open)


async def test_a_call_that_is_cancelled_while_it_connects_is_over(make_caller: MakeCaller) -> None:
    resolver = Answers(None)
    call = Deferred.fromCoroutine(
        make_caller(resolver).call("GET", LENIENT.parse("http://shop.example.com/"), limits=LIMITS)
    )
    call.cancel()
    with pytest.raises(CancelledError):
        await call


# What comes back

FLOODS = {
    "body": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2_000_000,
    "declared body": b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 300_000,
    "headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300_000,
    "one header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000,
    "continues": b"HTTP/1.1 100 Continue\r\n\r\n" * 80_000,
    "early hints": b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 60_000,
    "status line": b"HTTP/1.1 200 " + b"x" * 2_000_000,
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_flood_is_cut_off(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, flood: str, scheme: str
) -> None:
    server = serve(saying(FLOODS[flood]), shop_certificate if scheme == "https" else None)
    failed = await failure_of(caller, target_of(server, scheme=scheme))
    assert failed.category == "too-large"
    await until(lambda: not server.open)


@pytest.mark.parametrize("size", [100, 16 * 1024, 16 * 1024 + 1, 64 * 1024, 200_000])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_cap_is_exact(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, size: int, scheme: str
) -> None:
    whole = answer(b"x" * size)
    server = serve(saying(whole), shop_certificate if scheme == "https" else None)
    target = target_of(server, scheme=scheme)
    reply = await read_whole(caller, "GET", target, limits=CallLimits(seconds=60, max_bytes=len(whole)))
    assert len(reply.body) == size
    failed = await failure_of(caller, target, limits=CallLimits(seconds=60, max_bytes=len(whole) - 1))
    assert failed.category == "too-large"


async def test_a_long_head_is_cut_off_however_large_the_answer_may_be(serve: Serve, caller: PinnedClient) -> None:
    fields = [b"X: " + b"y" * 1000] * 20
    server = serve(saying(answer(b"ok", *fields)))
    failed = await failure_of(caller, target_of(server), limits=CallLimits(seconds=60, max_bytes=4 << 20))
    assert failed.category == "too-large"


async def test_nothing_is_decoded(serve: Serve, caller: PinnedClient) -> None:
    bomb = gzip.compress(bytes(1_000_000))
    server = serve(saying(answer(bomb, b"Content-Encoding: gzip")))
    reply = await read_whole(caller, "GET", target_of(server), limits=LIMITS)
    assert reply.body == bomb
    assert b"accept-encoding" not in server.requests[0].headers


async def test_chunks_are_put_together(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"))
    assert (await read_whole(caller, "GET", target_of(server), limits=LIMITS)).body == b"abcde"


async def test_an_early_1xx_is_passed_over(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + answer()))
    assert (await read_whole(caller, "GET", target_of(server), limits=LIMITS)).body == b"ok"


async def test_the_retry_after_header_is_returned_to_the_caller(serve: Serve, caller: PinnedClient) -> None:
    fields = (b"Retry-After: 99999999999999999999", b"Set-Cookie: a=b")
    server = serve(saying(answer(b"", *fields, status=b"429 Too Many Requests")))
    reply = await caller.call("POST", target_of(server), limits=LIMITS)
    assert (reply.status, reply.headers) == (429, {"retry-after": "99999999999999999999"})
    await caller.call("POST", target_of(server), limits=LIMITS)
    assert b"cookie" not in server.requests[1].headers


async def test_a_header_may_hold_any_bytes(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer(b"", b"Retry-After: \xff\xfe")))
    assert (await caller.call("GET", target_of(server), limits=LIMITS)).headers == {"retry-after": "\xff\xfe"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na",
        b"HTTP/1.1 9999 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 -1 OK\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.example.com ESMTP\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
async def test_half_an_answer_is_none(serve: Serve, caller: PinnedClient, data: bytes) -> None:
    def script(conversation: Any) -> None:
        conversation.say(data)
        conversation.transport.loseConnection()

    server = serve(script)
    assert (await failure_of(caller, target_of(server))).category == "protocol"
    assert len(server.requests) == 1


async def test_every_call_has_a_connection_of_its_own_and_closes_it(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer()))
    for _ in range(2):
        await caller.call("GET", target_of(server), limits=LIMITS)
    assert server.connections == 2
    await until(lambda: not server.open)


async def test_a_url_that_twisted_reads_otherwise_is_not_called(serve: Serve, caller: PinnedClient) -> None:
    """No such target comes out of Rules.parse; this one is made by hand."""
    server = serve(saying(answer()))
    for target in (
        Target("http", f"127.0.0.1/{server.port}", 80),
        Target("http", "Shop.example.com?", server.port),
    ):
        with pytest.raises(SchemeNotSupported, match="parsed in two ways"):
            await caller.call("GET", target, limits=LIMITS)
    assert server.connections == 0
