"""Other nodes over real sockets: what is called, what is not, and how much of an answer is taken."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from svcd.net.addresses import Address, AddressPolicy
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.p2p import transport
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest, PinnedTransport, open_transport
from tests.net.conftest import Answers
from tests.net.servers import Conversation, Script, Server, answer, dripping, saying, silent, until
from tests.rpc.node import Inline

pytestmark = pytest.mark.socket

NAME = "node.example.com"
STATUS = PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=60.0)
QUICK = PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=0.3)
BAD_ANSWERS = [
    ["127.0.0.1"],
    ["198.51.100.1"],
    ["169.254.169.254"],
    ["8.8.8.8", "127.0.0.1"],
    ["127.0.0.1", "8.8.8.8"],
]
METADATA = ("169.254.169.254", "100.100.100.200", "168.63.129.16")

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
        networks.append(PinnedTransport(caller, Rules.for_peers(allow_private=allow_private)))
        return networks[-1]

    yield make
    for network in networks:
        network.forget_all()


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
async def test_when_to_ask_again(serve: Serve, make_network: MakeNetwork, said: bytes, seconds: float) -> None:
    server = serve(saying(answer(b"{}", b"Retry-After: " + said, status=b"429 Too Many Requests")))
    assert await make_network().call(at(server), STATUS) == PeerReply(429, b"{}", seconds)


async def test_calls_share_connections(serve: Serve, make_network: MakeNetwork) -> None:
    server, network = serve(saying(answer())), make_network()
    for _ in range(5):
        await network.call(at(server), STATUS)
    assert server.connections == 1


async def test_where_a_name_leads_is_known_while_it_is_pinned(serve: Serve, make_network: MakeNetwork) -> None:
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


async def test_what_is_found_twice_is_pinned_once(serve: Serve, make_network: MakeNetwork) -> None:
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


async def test_only_so_many_places_are_kept_connected(
    serve: Serve, make_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_PINS", 2)
    network, servers = make_network(), [serve(saying(answer())) for _ in range(3)]
    for server in servers:
        await network.call(at(server), STATUS)
    await until(lambda: not servers[0].open)
    assert [len(server.open) for server in servers] == [0, 1, 1]


async def test_a_redirect_is_an_answer_and_not_followed(serve: Serve, make_network: MakeNetwork) -> None:
    other = serve(saying(answer()))
    server = serve(saying(answer(b"", f"Location: {at(other)}/p2p/status".encode(), status=b"302 Found")))
    assert (await make_network().call(at(server), STATUS)).status == 302
    assert other.connections == 0


# What is not called


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost", "node.localhost", "10.0.0.1"])
async def test_this_machine_and_its_network(make_network: MakeNetwork, serve: Serve, host: str) -> None:
    """A hint must not make a node call its own operator's interface, or a neighbour's printer."""
    server = serve(saying(answer()))
    assert await trouble(make_network(allow_private=False), at(server, host)) is FailureKind.UNREACHABLE
    assert server.connections == 0


async def test_with_private_addresses_allowed_this_machine_may_be_called(
    make_network: MakeNetwork, serve: Serve
) -> None:
    server = serve(saying(answer()))
    assert (await make_network(allow_private=True).call(at(server), STATUS)).status == 200


@pytest.mark.parametrize("allow_private", [True, False])
@pytest.mark.parametrize("host", METADATA)
async def test_where_clouds_keep_secrets(make_network: MakeNetwork, host: str, allow_private: bool) -> None:
    assert await trouble(make_network(allow_private=allow_private), f"http://{host}") is FailureKind.UNREACHABLE


@pytest.mark.parametrize("addresses", BAD_ANSWERS, ids=" and ".join)
async def test_a_name_for_an_address_that_may_not_be_called(
    make_network: MakeNetwork, serve: Serve, addresses: Sequence[str]
) -> None:
    """One bad address is enough: whoever owns the name could choose which of them we come to."""
    server = serve(saying(answer()))
    network = make_network(allow_private=False, resolver=Answers(addresses))
    assert await trouble(network, at(server, NAME)) is FailureKind.UNREACHABLE
    assert server.connections == 0


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


@pytest.mark.parametrize("endpoint", ["http://node.example.com:25", "http://1.2.3", "http://0x7f000001", "http://x..y"])
async def test_what_is_odd_is_not_called(make_network: MakeNetwork, endpoint: str) -> None:
    resolver = Answers(["127.0.0.1"])
    assert await trouble(make_network(resolver=resolver), endpoint) is FailureKind.UNREACHABLE
    assert resolver.asked == []


async def test_a_name_without_an_address(make_network: MakeNetwork) -> None:
    network = make_network(resolver=Answers(socket.gaierror("no such name")))
    assert await trouble(network, f"http://{NAME}") is FailureKind.UNREACHABLE


async def test_the_network_of_a_real_node_is_as_strict(serve: Serve) -> None:
    server = serve(saying(answer()))
    strict, private = (open_transport(reactor, Inline(), allow_private=allow) for allow in (False, True))
    assert await trouble(strict, at(server)) is FailureKind.UNREACHABLE
    assert server.connections == 0
    assert (await private.call(at(server), STATUS)).status == 200
    private.forget_all()


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


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["line", "head", "body", "body until the end"],
)
async def test_a_drip_is_cut(make_network: MakeNetwork, serve: Serve, head: bytes) -> None:
    """The time is for the whole answer, however alive it looks."""
    server = serve(dripping(head))
    assert await trouble(make_network(), at(server), QUICK) is FailureKind.TIMEOUT
    await until(lambda: not server.open)


class Flood:
    """Says a GiB, as fast as it is read."""

    size = 1 << 30
    piece = b"x" * 65_536

    def __init__(self, conversation: Conversation, head: bytes) -> None:
        self.sent = 0
        self._transport: Any = conversation.transport
        conversation.say(head)
        self._transport.registerProducer(self, False)

    def resumeProducing(self) -> None:  # noqa: N802
        if self.sent < self.size:
            self.sent += len(self.piece)
            self._transport.write(self.piece)
        else:
            self._transport.unregisterProducer()

    def stopProducing(self) -> None:  # noqa: N802
        """The connection is lost."""


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n",
        b"HTTP/1.1 200 OK\r\nX-Endless: ",
    ],
    ids=["length", "until the end", "one chunk", "header"],
)
async def test_a_reply_of_a_gib_is_cut(make_network: MakeNetwork, serve: Serve, head: bytes) -> None:
    floods: list[Flood] = []
    server = serve(lambda conversation: floods.append(Flood(conversation, head)))
    network = make_network()
    assert await trouble(network, at(server)) is FailureKind.TOO_LARGE
    await until(lambda: not server.open)
    # What is beyond the cap has only filled the buffers of two sockets.
    assert floods[0].sent < 16 << 20
    server.script = saying(answer())
    assert (await network.call(at(server), STATUS)).body == b"ok"


async def test_a_reply_may_be_as_large_as_was_said(make_network: MakeNetwork, serve: Serve) -> None:
    request = PeerRequest(path="/p2p/blocks", max_bytes=4 << 20, seconds=60.0)
    server, network = serve(saying(answer(b"x" * (4 << 20)))), make_network()
    assert len((await network.call(at(server), request)).body) == 4 << 20


@pytest.mark.parametrize(
    "said",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"SSH-2.0-x\r\n"],
    ids=["nonsense", "length", "another protocol"],
)
async def test_what_is_no_http(make_network: MakeNetwork, serve: Serve, said: bytes) -> None:
    def script(conversation: Conversation) -> None:
        conversation.say(said)
        conversation.transport.loseConnection()

    server = serve(script)
    assert await trouble(make_network(), at(server)) is FailureKind.MALFORMED
