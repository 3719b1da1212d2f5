"""Sites on real sockets: what memory cannot show of refusals, deadlines, caps and closing."""

import gc
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_twisted
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet import endpoints, error, reactor, ssl, task
from twisted.internet.protocol import Factory, Protocol
from twisted.web.resource import Resource

from svcd.process.listener import ListenerService
from svcd.process.sequential import CannotStart
from svcd.web.connections import SiteLimits, UnreadBudget
from svcd.web.rate_limits import Clients
from svcd.web.site import Site
from svcd.web.unsent import PIECE_BYTES
from tests.web.echoing import Echo, Filled, Leaf, Slow
from tests.web.wire import split_responses

pytestmark = pytest.mark.socket


@frozen
class OpenSite:
    """A site on its open port, as the node opens and closes it."""

    service: ListenerService
    site: Site


Open = Callable[..., Awaitable[OpenSite]]

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
HUGE = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10737418240\r\n\r\n"


class Client(Protocol):
    """Collects what comes, and notes when the server closes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed = False
        self.reason: Any = None

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        self.received += data

    def connectionLost(self, reason: Any = None) -> None:  # noqa: N802
        self.closed = True
        self.reason = reason

    async def send(self, data: bytes) -> "Client":
        self.transport.write(data)
        return self


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Poll until ``condition`` holds; a test that waits in vain fails."""
    give_up_at = reactor.seconds() + seconds
    while not condition():
        assert reactor.seconds() < give_up_at, "it did not happen in time"
        await task.deferLater(reactor, 0.005)


def port_of(listening: OpenSite) -> int:
    return int(listening.service.address.port)


async def connect(listening: ListenerService, tls: Any = None) -> Client:
    return await connect_to(port_of(listening), tls)


async def connect_to(port: int, tls: Any = None) -> Client:
    endpoint: Any = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    if tls is not None:
        endpoint = endpoints.wrapClientTLS(tls, endpoint)
    return await endpoint.connect(Factory.forProtocol(Client))


@pytest_twisted.async_yield_fixture
async def opened() -> AsyncIterator[Open]:
    """``await opened(resource, **limits)``: a site on a free port, closed after the test."""
    all_opened: list[OpenSite] = []

    async def open_site(
        root: Resource,
        endpoint: Any = None,
        drain: float = 0.2,
        unread: UnreadBudget | None = None,
        **limits: Any,
    ) -> OpenSite:
        site = Site(
            root,
            limits=SiteLimits(**limits),
            unread=UnreadBudget() if unread is None else unread,
            clients=Clients(),
            clock=reactor,
            new_id=lambda: "id",
            router=root.router() if isinstance(root, Leaf) else None,
        )
        endpoint = endpoint or endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        service = ListenerService(endpoint, site, description="the endpoint", drain=lambda: site.drain(drain))
        await service.startService()
        all_opened.append(OpenSite(service, site))
        return all_opened[-1]

    yield open_site
    for listening in all_opened:
        await listening.service.stopService()
        await until(lambda site=listening.site: not len(site.connections))


async def test_client_that_goes_on_sending_still_gets_the_refusal(opened: Open) -> None:
    listening = await opened(Echo())
    client = await connect(listening)

    await client.send(HUGE + b"x" * 200_000)
    await until(lambda: client.received)

    assert split_responses(bytes(client.received))[0].status == 413
    assert listening.site.bodies.bytes == 0
    await until(lambda: client.closed)


async def test_client_that_only_sends_is_stopped(opened: Open) -> None:
    listening = await opened(Echo(), close_seconds=0.2)
    with socket.create_connection(("127.0.0.1", port_of(listening))) as sock:
        sock.setblocking(False)
        sock.send(HUGE)
        sent = 0

        def is_reset() -> bool:
            nonlocal sent
            try:
                sent += sock.send(b"x" * 65_536)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        await until(is_reset)

    assert sent < 16 * 1024 * 1024, "only what the kernel buffers was taken"


async def test_client_that_never_reads_is_cut_off(opened: Open) -> None:
    listening = await opened(Filled(20_000_000), answer_seconds=0.3)
    client = await connect(listening)
    client.transport.pauseProducing()

    await client.send(GET)

    await until(lambda: len(listening.site.connections) == 1)
    await until(lambda: len(listening.site.connections) == 0)
    client.transport.abortConnection()


async def test_client_that_ends_its_half_gets_all_it_asked_for(opened: Open) -> None:
    listening = await opened(Filled(20_000))
    client = await connect(listening)

    await client.send(GET * 200)
    client.transport.loseWriteConnection()
    await until(lambda: client.closed)

    assert len(split_responses(bytes(client.received))) == 200
    assert client.reason.check(error.ConnectionDone)
    assert len(listening.site.connections) == 0


async def test_client_that_ends_its_half_gets_an_answer_that_takes_its_time(opened: Open) -> None:
    slow = Slow()
    listening = await opened(slow)
    client = await connect(listening)

    await client.send(GET * 2)
    client.transport.loseWriteConnection()
    for _ in range(2):
        await until(lambda: slow.waiting)
        # A turn of the reactor in which the end of the client's half is seen.
        await task.deferLater(reactor, 0)
        slow.answer()
    await until(lambda: client.closed)

    assert [answer.body for answer in split_responses(bytes(client.received))] == [b"ok", b"ok"]


async def test_client_that_is_gone_is_found_out_with_the_next_answer(opened: Open) -> None:
    slow = Slow()
    listening = await opened(slow)
    client = await connect(listening)
    await client.send(GET * 100)
    await until(lambda: slow.waiting)

    client.transport.abortConnection()

    await until(lambda: len(listening.site.connections) == 0)
    assert len(slow.gone) == 1


async def test_stopping_waits_for_the_request_and_lets_nobody_in(opened: Open) -> None:
    slow = Slow()
    listening = await opened(slow, drain=10)
    port = port_of(listening)
    idle, busy = await connect(listening), await connect(listening)
    await busy.send(GET)
    await until(lambda: slow.waiting)

    stopped = listening.service.stopService()
    await until(lambda: idle.closed)
    with pytest.raises(error.ConnectionRefusedError):
        await connect_to(port)
    assert not stopped.called
    slow.answer()
    await stopped

    await until(lambda: busy.closed)
    assert split_responses(bytes(busy.received))[0].body == b"ok"


async def test_port_that_is_taken(opened: Open) -> None:
    taken = await opened(Echo())
    endpoint = endpoints.TCP4ServerEndpoint(reactor, port_of(taken), interface="127.0.0.1")

    with pytest.raises(CannotStart, match=r"^cannot listen on the endpoint: address already in use$"):
        await opened(Echo(), endpoint)


async def test_unix_socket(opened: Open, tmp_path: Any) -> None:
    path = str(tmp_path / "operator.sock")
    await opened(Echo(), endpoints.UNIXServerEndpoint(reactor, path), connections_per_client=1)
    clients = [await endpoints.UNIXClientEndpoint(reactor, path).connect(Factory.forProtocol(Client)) for _ in range(3)]

    for client in clients:
        await client.send(GET.replace(b"1.1", b"1.0"))

    await until(lambda: all(client.closed for client in clients))
    assert all(split_responses(bytes(client.received))[0].body == b"GET / " for client in clients)


# TLS


@pytest.fixture(scope="module")
def pem() -> tuple[bytes, bytes]:
    """A certificate of our own for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    private = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(form), private


@pytest.fixture
def tls(pem: tuple[bytes, bytes]) -> Any:
    """A server endpoint with that certificate."""
    options = ssl.PrivateCertificate.loadPEM(b"".join(pem)).options()
    return endpoints.SSL4ServerEndpoint(reactor, 0, options, interface="127.0.0.1")


@pytest.fixture
def trusting(pem: tuple[bytes, bytes]) -> Any:
    """A client's options that trust it."""
    return ssl.optionsForClientTLS("localhost", ssl.Certificate.loadPEM(pem[0]))


# What Twisted itself passes to pyOpenSSL.
over_tls = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")


@over_tls
async def test_refusals_over_tls(opened: Open, tls: Any, trusting: Any) -> None:
    client = await connect(await opened(Echo(), tls), trusting)

    await client.send(HUGE)
    await until(lambda: client.closed)

    assert split_responses(bytes(client.received))[0].status == 413
    assert client.reason.check(error.ConnectionDone), "TLS was not ended in order"


def numbers(size: int) -> bytes:
    """So many bytes, a multiple of 8, no part of which may be exchanged."""
    return b"".join([b"%8d" % number for number in range(size // 8)])


class Numbers(Leaf):
    """Answers a POST with as many bytes of numbers as its body says."""

    def render(self, request: Any) -> bytes:
        return numbers(int(request.content.read()))


@over_tls
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "over-tls"])
async def test_answers_come_in_the_order_of_the_requests(opened: Open, tls: Any, trusting: Any, secured: bool) -> None:
    listening = await opened(Numbers(), tls if secured else None)
    client = await connect(listening, trusting if secured else None)
    # The fast path knows /a only; the system takes the large answers in several parts.
    sizes = [8, 16, 3_000_000, 24, 2_000_000, 32, 4_500_000, 800_000, 40]
    for path, size in zip(b"acaacacaa", sizes, strict=True):
        body = b"%d" % size
        await client.send(b"POST /%c HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body))
    await until(lambda: client.received.endswith(b"\r\n\r\n" + numbers(sizes[-1])))
    assert [answer.body for answer in split_responses(bytes(client.received))] == [numbers(size) for size in sizes]


@over_tls
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "over-tls"])
async def test_answers_that_nobody_takes_have_a_bound(opened: Open, tls: Any, trusting: Any, secured: bool) -> None:
    listening = await opened(
        Filled(20_000_000),
        tls if secured else None,
        connections_per_client=0,
        # The system takes some megabytes of each answer.
        unread=UnreadBudget(30_000_000, 30_000_000),
    )
    idlers = [await connect(listening, trusting if secured else None) for _ in range(4)]
    for client in idlers:
        await client.send(GET)
        # Not before the handshake of TLS.
        await until(lambda client=client: client.received)
        client.transport.pauseProducing()
    await until(lambda: listening.site.connections.evicted >= 1)

    reader = await connect(listening, trusting if secured else None)
    await reader.send(GET.replace(b"Host", b"Connection: close\r\nHost"))
    await until(lambda: reader.closed)

    assert len(split_responses(bytes(reader.received))[0].body) == 20_000_000
    assert listening.site.unread.bytes <= 30_000_000
    for client in idlers:
        client.transport.abortConnection()


@pytest.fixture
def without_collector() -> Iterator[None]:
    """No garbage collection: what is freed has no references left."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("path", [b"/a", b"/%61"], ids=["fast-path", "slow-path"])
async def test_memory_of_an_aborted_connection_is_freed_at_once(opened: Open, path: bytes) -> None:
    """The transport keeps the bytes that it was given, and the collector rarely comes."""
    listening = await opened(Filled(10_000_000))
    client = await connect(listening)
    await client.send(GET.replace(b"/ ", path + b" "))
    await until(lambda: client.received)
    client.transport.pauseProducing()
    (channel,) = listening.site.connections
    transport = weakref.ref(channel.transport)
    assert len(channel.transport.dataBuffer) <= 2 * PIECE_BYTES

    channel.abort()
    del channel
    await until(lambda: not len(listening.site.connections))

    assert transport() is None
    client.transport.abortConnection()


@over_tls
async def test_connection_over_the_cap_over_tls(opened: Open, tls: Any, trusting: Any) -> None:
    listening = await opened(Echo(), tls, connections_per_client=1)
    first, second = await connect(listening, trusting), await connect(listening, trusting)

    await until(lambda: second.closed)
    mute = await connect(listening)
    await until(lambda: mute.closed)

    await first.send(GET)
    await until(lambda: first.received)
