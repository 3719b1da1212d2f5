"""Many calls to one place: the connections that are kept, and the address they stay at."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallFailed, CallKind, CallLimits
from svcd.net.http_client import MAX_CALLS, PinnedClient, PinnedConnections
from svcd.net.targets import Rules
from tests.net.certificates import Signed
from tests.net.conftest import HOST, LIMITS, Answers
from tests.net.servers import Conversation, Server, answer, saying, silent, until

pytestmark = pytest.mark.socket

CALLS_TO_ASK = MAX_CALLS[CallKind.ASK]
SHORT = CallLimits(seconds=1, max_bytes=1024)
SHORTER = CallLimits(seconds=LIMITS.seconds / 3, max_bytes=1024)
"""Than a call has that is not answered."""
Serve = Callable[..., Server]
MakeCaller = Callable[..., PinnedClient]


async def pin(caller: PinnedClient, server: Server, scheme: str = "http") -> PinnedConnections:
    endpoint = Rules.for_peers().parse(f"{scheme}://{HOST}:{server.port}")
    return await caller.pin(endpoint, seconds=60)


def start(peer: PinnedConnections, limits: CallLimits = LIMITS, kind: CallKind = CallKind.ASK) -> "Deferred[Any]":
    return Deferred.fromCoroutine(peer.call("GET", "/p2p/status", limits=limits, kind=kind))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_two_calls_share_one_connection(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed, scheme: str
) -> None:
    server = serve(saying(answer()), shop_certificate if scheme == "https" else None)
    peer = await pin(caller, server, scheme)
    for path in ("/p2p/status", "/p2p/blocks?from=1"):
        assert (await peer.call("GET", path, limits=LIMITS)).body == b"ok"
    assert (await peer.call("POST", "/p2p/hello", body=b"{}", limits=LIMITS)).body == b"ok"
    assert server.connections == 1
    assert [request.line.split()[1] for request in server.requests] == [
        b"/p2p/status",
        b"/p2p/blocks?from=1",
        b"/p2p/hello",
    ]
    assert len(server.open) == 1
    await peer.close()
    await until(lambda: not server.open)


async def test_a_lost_connection_is_made_anew_to_the_same_address(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    other = serve(saying(answer(b"other")), None, "127.0.0.2", server.port)
    resolver = Answers(["127.0.0.1"], ["127.0.0.2"])
    peer = await pin(make_caller(resolver), server)
    for _ in range(3):
        assert (await peer.call("GET", "/p2p/status", limits=LIMITS)).body == b"ok"
        for conversation in tuple(server.open):
            conversation.transport.loseConnection()
        await until(lambda: not server.open)
    assert server.connections == 3
    assert other.connections == 0
    assert resolver.asked == [HOST]
    await peer.close()


async def test_it_stays_at_the_address_that_answered(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(saying(answer()))
    peer = await pin(make_caller(Answers(["127.0.0.2", "127.0.0.1"])), server)
    assert peer.address == ip_address("127.0.0.2")
    await peer.call("GET", "/p2p/status", limits=LIMITS)
    assert peer.address == ip_address("127.0.0.1")
    other = serve(saying(answer(b"other")), None, "127.0.0.2", server.port)
    next(iter(server.open)).transport.loseConnection()
    await until(lambda: not server.open)
    assert (await peer.call("GET", "/p2p/status", limits=LIMITS)).body == b"ok"
    assert other.connections == 0
    await peer.close()


async def test_more_calls_than_connections_wait_their_turn(serve: Serve, caller: PinnedClient) -> None:
    waiting: list[Conversation] = []
    server = serve(waiting.append)
    peer = await pin(caller, server)
    calls = [start(peer) for _ in range(5)]
    answered = 0
    while answered < len(calls):
        await until(lambda: waiting)
        assert server.most_open <= CALLS_TO_ASK
        waiting.pop().say(answer())
        answered += 1
    assert [(await call).body for call in calls] == [b"ok"] * 5
    assert server.connections == CALLS_TO_ASK
    await peer.close()


async def test_the_wait_for_a_connection_counts(serve: Serve, caller: PinnedClient) -> None:
    server = serve(silent)
    peer = await pin(caller, server)
    stalled = [start(peer) for _ in range(CALLS_TO_ASK)]
    await until(lambda: len(server.requests) == CALLS_TO_ASK)
    with pytest.raises(CallFailed) as failed:
        await start(peer, SHORT)
    assert failed.value.category == "timeout"
    assert len(server.requests) == CALLS_TO_ASK
    await peer.close()
    for call in stalled:
        with pytest.raises(CallFailed, match="closed"):
            await call


@pytest.mark.parametrize("kind", CallKind)
async def test_a_call_waits_for_none_of_another_lane(serve: Serve, caller: PinnedClient, kind: CallKind) -> None:
    """However many of the other lanes are waiting for an answer or for a place."""
    server = serve(silent)
    peer = await pin(caller, server)
    others = [other for other in CallKind if other is not kind]
    stalled = [start(peer, kind=other) for other in others for _ in range(MAX_CALLS[other] + 3)]
    await until(lambda: len(server.requests) == sum(MAX_CALLS[other] for other in others))
    server.script = saying(answer())
    assert [(await start(peer, SHORTER, kind)).body for _ in range(3)] == [b"ok"] * 3
    assert server.most_open == sum(MAX_CALLS[other] for other in others) + 1
    await peer.close()
    for call in stalled:
        with pytest.raises(CallFailed, match="closed"):
            await call


async def test_the_connections_of_all_lanes_are_kept(serve: Serve, caller: PinnedClient) -> None:
    waiting: list[Conversation] = []
    server = serve(waiting.append)
    peer = await pin(caller, server)
    for _ in range(2):
        calls = [start(peer, kind=kind) for kind in CallKind for _ in range(MAX_CALLS[kind])]
        await until(lambda: len(waiting) == sum(MAX_CALLS.values()))
        while waiting:
            waiting.pop().say(answer())
        assert [(await call).body for call in calls] == [b"ok"] * len(calls)
    assert server.connections == sum(MAX_CALLS.values()) == 11
    await peer.close()


async def test_a_connection_with_a_late_answer_is_not_used_again(serve: Serve, caller: PinnedClient) -> None:
    late: list[Conversation] = []
    server = serve(late.append)
    peer = await pin(caller, server)
    with pytest.raises(CallFailed) as failed:
        await start(peer, SHORT)
    assert failed.value.category == "timeout"
    late[0].say(answer(b"for the first call"))
    server.script = saying(answer(b"for the second call"))
    assert (await start(peer)).body == b"for the second call"
    assert server.connections == 2
    await peer.close()


async def test_a_flood_costs_its_connection_and_no_more(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer(b"x" * 100_000)))
    peer = await pin(caller, server)
    with pytest.raises(CallFailed) as failed:
        await start(peer)
    assert failed.value.category == "too-large"
    server.script = saying(answer())
    assert (await start(peer)).body == b"ok"
    assert server.connections == 2
    await peer.close()


async def test_every_call_has_its_own_cap(serve: Serve, caller: PinnedClient) -> None:
    whole = answer(b"x" * 50_000)
    server = serve(saying(whole))
    peer = await pin(caller, server)
    exact = CallLimits(seconds=60, max_bytes=len(whole))
    for _ in range(3):
        assert len((await start(peer, exact)).body) == 50_000
    assert server.connections == 1
    await peer.close()


async def test_an_unrequested_response_closes_the_connection(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer()))
    peer = await pin(caller, server)
    await start(peer)
    next(iter(server.open)).say(answer(b"by the way"))
    await until(lambda: not server.open)
    assert (await start(peer)).body == b"ok"
    assert server.connections == 2
    await peer.close()


async def test_after_closing_nothing_is_called(serve: Serve, caller: PinnedClient) -> None:
    server = serve(saying(answer()))
    peer = await pin(caller, server)
    await peer.close()
    with pytest.raises(CallFailed) as failed:
        await start(peer)
    assert failed.value.category == "connect"
    assert server.connections == 0
    await peer.close()


async def test_a_cancelled_call_leaves_the_others_alone(serve: Serve, caller: PinnedClient) -> None:
    waiting: list[Conversation] = []
    server = serve(waiting.append)
    peer = await pin(caller, server)
    first, second = start(peer), start(peer)
    await until(lambda: len(waiting) == 2)
    first.cancel()
    with pytest.raises(CancelledError):
        await first
    await until(lambda: len(server.open) == 1)
    next(iter(server.open)).say(answer())
    assert (await second).body == b"ok"
    await peer.close()


async def test_closing_does_not_wait_for_a_farewell(
    serve: Serve, caller: PinnedClient, shop_certificate: Signed
) -> None:
    """A TLS connection that is closed politely is open until the other side says so too."""
    server = serve(saying(answer()), shop_certificate)
    peer = await pin(caller, server, "https")
    await start(peer)
    next(iter(server.open)).transport.pauseProducing()
    await peer.close()


async def test_an_address_that_may_not_be_called_is_not_pinned(serve: Serve, make_caller: MakeCaller) -> None:
    server = serve(silent)
    for answers, policy in (
        (["127.0.0.1"], AddressPolicy()),
        (["127.0.0.1", "169.254.169.254"], AddressPolicy(allow_private=True)),
    ):
        with pytest.raises(CallFailed) as failed:
            await pin(make_caller(Answers(answers), policy=policy), server)
        assert failed.value.category == "refused-address"


async def test_a_resolver_that_never_answers_pins_nothing(serve: Serve, make_caller: MakeCaller) -> None:
    resolver = Answers(None)
    with pytest.raises(CallFailed) as failed:
        await make_caller(resolver).pin(Rules.for_peers().parse("http://node.example.com:8645"), seconds=0.1)
    assert failed.value.category == "timeout"
    assert resolver.cancelled == 1


async def test_an_invalid_path_is_not_sent(serve: Serve, caller: PinnedClient) -> None:
    server = serve(silent)
    peer = await pin(caller, server)
    with pytest.raises(ValueError, match="a path begins with /"):
        await peer.call("GET", "/\r\nHost: evil", limits=LIMITS)
    await peer.close()
