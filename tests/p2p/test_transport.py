"""Other nodes over real sockets: what is called, what is not, and how much of an answer is taken."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from svcd.net.addresses import Address, AddressPolicy
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.node.threads import InlineWorker
from svcd.p2p import transport
from svcd.p2p.call_budget import CallBudget
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest, PinnedTransport, open_transport
from tests.net.conftest import Answers
from tests.net.servers import Conversation, Script, Server, answer, saying, silent, until

pytestmark = pytest.mark.socket

NAME = "node.example.com"
STATUS = PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=60.0)
QUICK = PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=0.3)
Serve = Callable[..., Server]
MakeNetwork = Callable[..., PinnedTransport]


@pytest_twisted.async_yield_fixture
async def serve() -> AsyncIterator[Serve]:
    """``serve(script, interface=…, port=0)``: a server until the test ends."""
    servers: list[Server] = []

    def start(script: Script, interface: str = "127.0.0.1", port: int = 0) -> Server:
        server = Server(script)
        server.listen(interface, None, port)
        servers.append(server)
        return server

    yield start
    for server in servers:
        if server.listening.connected:
            await server.stop()


@pytest_twisted.async_yield_fixture
async def make_network() -> AsyncIterator[MakeNetwork]:
    """``make_network(allow_private=…, resolver=…, policy=…)``: a way to other nodes, closed when the test ends."""
    networks: list[PinnedTransport] = []

    def make(
        *, allow_private: bool = True, resolver: Answers | None = None, policy: AddressPolicy | None = None
    ) -> PinnedTransport:
        caller = PinnedClient(
            reactor,
            resolver=resolver or Answers(["127.0.0.1"]),
            policy=policy or AddressPolicy(allow_private=allow_private),
            trust=load_trust(),
        )
        rules = Rules.for_peers(allow_private=allow_private)
        networks.append(PinnedTransport(caller, rules, CallBudget(reactor)))
        return networks[-1]

    yield make
    for network in networks:
        for endpoint in tuple(network._pins):
            network.forget(endpoint)


def at(server: Server, host: str = "127.0.0.1") -> str:
    """The endpoint of a server."""
    return f"http://{host}:{server.port}"


async def trouble(network: PinnedTransport, endpoint: str, request: PeerRequest = STATUS) -> FailureKind:
    with pytest.raises(PeerCallFailed) as failed:
        await network.call(endpoint, request)
    assert failed.value.detail
    return failed.value.kind


# Calls


async def test_a_reply(serve: Serve, make_network: MakeNetwork) -> None:
    server = serve(saying(answer(b'{"ok":true}')))
    assert await make_network().call(at(server), STATUS) == PeerReply(200, b'{"ok":true}')
    (request,) = server.requests
    assert request.line == b"GET /p2p/status HTTP/1.1"
    assert request.headers[b"host"] == f"127.0.0.1:{server.port}".encode()


async def test_a_post(serve: Serve, make_network: MakeNetwork) -> None:
    server = serve(saying(answer(b"{}", status=b"400 Bad Request")))
    request = PeerRequest(path="/p2p/hello", body=b'{"hello":{}}', max_bytes=4_096, seconds=60.0)
    assert await make_network().call(at(server), request) == PeerReply(400, b"{}")
    assert (server.requests[0].line, server.requests[0].body) == (b"POST /p2p/hello HTTP/1.1", b'{"hello":{}}')


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(b"7", 7.0), (b"0", 0.0), (b"-7", 0.0), (b"9" * 400, 0.0), (b"Fri, 20 Nov 2026 14:00:00 GMT", 0.0)],
)
async def test_retry_after_is_read_in_seconds(
    serve: Serve, make_network: MakeNetwork, said: bytes, seconds: float
) -> None:
    server = serve(saying(answer(b"{}", b"Retry-After: " + said, status=b"429 Too Many Requests")))
    assert await make_network().call(at(server), STATUS) == PeerReply(429, b"{}", seconds)


async def test_calls_share_connections(serve: Serve, make_network: MakeNetwork) -> None:
    server, network = serve(saying(answer())), make_network()
    for _ in range(5):
        await network.call(at(server), STATUS)
    assert server.connections == 1


async def test_the_address_of_a_name_is_known_while_it_is_pinned(serve: Serve, make_network: MakeNetwork) -> None:
    server, network = serve(saying(answer())), make_network()
    endpoint = at(server, NAME)
    assert network.address_of(endpoint) == ""
    await network.call(endpoint, STATUS)
    assert network.address_of(endpoint) == "127.0.0.1"
    network.forget(endpoint)
    assert network.address_of(endpoint) == ""


async def test_first_calls_at_once_end_up_at_one_pin(serve: Serve, make_network: MakeNetwork) -> None:
    server, resolver = serve(saying(answer())), Answers(["127.0.0.1"])
    network = make_network(resolver=resolver)
    calls = [network.call(at(server, NAME), STATUS) for _ in range(6)]
    assert [(await call).body for call in calls] == [b"ok"] * 6
    assert server.most_open <= 2
    await network.call(at(server, NAME), STATUS)
    assert len(resolver.asked) <= 6


class Slow(Answers):
    """A resolver that finds nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__(None)
        self.waiting: list[Deferred[Sequence[Address]]] = []

    def resolve(self, name: str) -> "Deferred[Sequence[Address]]":
        self.waiting.append(super().resolve(name))
        return self.waiting[-1]


async def test_an_address_that_is_found_twice_is_pinned_once(serve: Serve, make_network: MakeNetwork) -> None:
    server, resolver = serve(saying(answer())), Slow()
    network, endpoint = make_network(resolver=resolver), at(server, NAME)
    calls = [network.call(endpoint, STATUS) for _ in range(3)]
    for found in resolver.waiting:
        found.callback([ip_address("127.0.0.1")])
    assert ([(await call).body for call in calls], len(resolver.waiting)) == ([b"ok"] * 3, 3)
    network.forget(endpoint)
    assert network.address_of(endpoint) == ""
    await until(lambda: not server.open)


async def test_forgetting_closes(serve: Serve, make_network: MakeNetwork) -> None:
    server, network = serve(saying(answer())), make_network()
    await network.call(at(server), STATUS)
    assert server.open
    network.forget(at(server))
    await until(lambda: not server.open)
    network.forget(at(server))
    await network.call(at(server), STATUS)
    assert server.connections == 2


async def test_the_oldest_connection_is_closed_once_there_are_more_than_the_peers_need(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_PINS", 1)
    network = open_transport(reactor, InlineWorker(), allow_private=True, peers=2)
    servers = [serve(saying(answer())) for _ in range(4)]
    for server in servers:
        await network.call(at(server), STATUS)
    await until(lambda: not servers[0].open)
    assert [len(server.open) for server in servers] == [0, 1, 1, 1]
    for server in servers:
        network.forget(at(server))
    await until(lambda: not any(server.open for server in servers))


# What is not called


async def test_with_private_addresses_allowed_this_machine_may_be_called(
    make_network: MakeNetwork, serve: Serve
) -> None:
    server = serve(saying(answer()))
    assert (await make_network(allow_private=True).call(at(server), STATUS)).status == 200


async def test_a_name_that_is_pointed_elsewhere_later(make_network: MakeNetwork, serve: Serve) -> None:
    """It is looked up once; when its connection fails, it is looked up and checked again."""
    server = serve(saying(answer()))
    other = serve(saying(answer(b"other")), "127.0.0.2", server.port)
    resolver = Answers(["127.0.0.1"], ["127.0.0.2"])
    policy = AddressPolicy(allow_private=True, own=frozenset({ip_address("127.0.0.2")}))
    network = make_network(resolver=resolver, policy=policy)
    for _ in range(3):
        assert (await network.call(at(server, NAME), STATUS)).body == b"ok"
        for conversation in tuple(server.open):
            conversation.transport.loseConnection()
        await until(lambda: not server.open)
    assert resolver.asked == [NAME]
    endpoint = at(server, NAME)
    await server.listening.stopListening()
    assert await trouble(network, endpoint) is FailureKind.UNREACHABLE
    assert resolver.asked == [NAME]
    assert await trouble(network, endpoint) is FailureKind.UNREACHABLE
    assert resolver.asked == [NAME] * 2
    assert other.connections == 0


async def test_a_name_without_an_address(make_network: MakeNetwork) -> None:
    network = make_network(resolver=Answers(socket.gaierror("no such name")))
    assert await trouble(network, f"http://{NAME}") is FailureKind.UNREACHABLE


async def test_the_network_of_a_real_node_is_as_strict(serve: Serve) -> None:
    server = serve(saying(answer()))
    strict, private = (open_transport(reactor, InlineWorker(), allow_private=allow) for allow in (False, True))
    assert await trouble(strict, at(server)) is FailureKind.UNREACHABLE
    assert server.connections == 0
    assert (await private.call(at(server), STATUS)).status == 200
    private.forget(at(server))


# Answers that are none


async def test_nobody_listens(make_network: MakeNetwork, serve: Serve) -> None:
    server = serve(silent)
    endpoint = at(server)
    await server.listening.stopListening()
    assert await trouble(make_network(), endpoint) is FailureKind.UNREACHABLE


async def test_silence_is_cut(make_network: MakeNetwork, serve: Serve) -> None:
    server = serve(silent)
    assert await trouble(make_network(), at(server), QUICK) is FailureKind.TIMEOUT
    await until(lambda: not server.open)


async def test_a_reply_may_be_as_large_as_was_said(make_network: MakeNetwork, serve: Serve) -> None:
    request = PeerRequest(path="/p2p/blocks", max_bytes=4 << 20, seconds=60.0)
    server, network = serve(saying(answer(b"x" * (4 << 20)))), make_network()
    assert len((await network.call(at(server), request)).body) == 4 << 20


@pytest.mark.parametrize(
    "said",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"SSH-2.0-x\r\n"],
    ids=["nonsense", "length", "another protocol"],
)
async def test_responses_that_are_not_http(make_network: MakeNetwork, serve: Serve, said: bytes) -> None:
    def script(conversation: Conversation) -> None:
        conversation.say(said)
        conversation.transport.loseConnection()

    server = serve(script)
    assert await trouble(make_network(), at(server)) is FailureKind.MALFORMED
