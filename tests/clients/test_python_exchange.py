"""What `svc_pay` takes of a server, below all of its calls: a hostile one on a real socket, for both clients."""

import asyncio
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
import svc_pay
from attrs import define, field
from svc_pay import AsyncClient, Client
from svc_pay.exchange import MAX_ANSWER
from svc_pay.exchange import _trusted as trusted

pytestmark = pytest.mark.socket

ADDRESS = "svcd1qwv5rncn0lmw4h7ny97sugyxaamll6rc3xzlfeq"
SOON = 0.5
DEADLINE = 60.0
"""After so long a test has failed. What is bounded takes a second."""
Serve = Callable[[socket.socket], None]
Ask = Callable[..., object]


@define
class Hostile:
    """A server that does with a connection what a test says, once the head of a request is there."""

    url: str
    serve: Serve
    heads: list[bytes] = field(factory=list)
    sent: int = 0
    """Bytes that somebody took of an endless answer."""

    def flood(self, connection: socket.socket, part: bytes) -> None:
        """Send the same again and again until nobody reads it."""
        with suppress(OSError):
            while True:
                self.sent += connection.send(part)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = Hostile(f"http://127.0.0.1:{listening.getsockname()[1]}", lambda connection: None)
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            head = b""
            while b"\r\n\r\n" not in head and (part := connection.recv(65536)):
                head += part
            server.heads.append(head)
            with suppress(OSError):
                server.serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while not ended.is_set():
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield server
    ended.set()
    listening.close()


def _sync(url: str, **given: float) -> object:
    with Client(url, **given) as client:  # type: ignore[arg-type]
        return client.account(ADDRESS)


def _async(url: str, **given: float) -> object:
    async def asked() -> object:
        async with AsyncClient(url, **given) as client:  # type: ignore[arg-type]
            return await asyncio.wait_for(client.account(ADDRESS), DEADLINE)

    return asyncio.run(asked())


@pytest.fixture(params=[_sync, _async])
def ask(request: pytest.FixtureRequest) -> Ask:
    given: Ask = request.param
    return given


def drip(head: bytes, part: bytes) -> Serve:
    """Sends ``head``, and then ``part`` without end, a piece every 50 ms: no single read takes long."""

    def served(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(part)
            threading.Event().wait(0.05)

    return served


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(lambda connection: threading.Event().wait(DEADLINE), id="nothing"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"), id="an endless header"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"), id="endless headers"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n", b" "), id="a slow body"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"), id="slow chunks"),
        pytest.param(drip(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"), id="endless 100"),
    ],
)
def test_a_call_ends_in_time_however_slowly_the_answer_comes(hostile: Hostile, ask: Ask, served: Serve) -> None:
    hostile.serve = served
    began = monotonic()
    with pytest.raises(svc_pay.NodeUnreachable, match="does not answer"):
        ask(hostile.url, timeout=SOON)
    assert monotonic() - began < DEADLINE / 2
    assert len(hostile.heads) == 1, "a request has one deadline with its repetitions"


def test_repetitions_and_pauses_end_with_the_call(hostile: Hostile, ask: Ask) -> None:
    body = b'{"ok": false, "error": "later"}'
    head = b"HTTP/1.1 503 Unavailable\r\nRetry-After: 600000\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    hostile.serve = lambda connection: connection.sendall(head % len(body) + body)
    with pytest.raises(svc_pay.Unavailable, match="later"):
        ask(hostile.url, timeout=SOON, retry_seconds=1e9)
    assert len(hostile.heads) == 1


@pytest.mark.parametrize("head", [b"Content-Length: 99999999999\r\n", b""])
def test_an_endless_answer_is_not_read_to_its_end(hostile: Hostile, ask: Ask, head: bytes) -> None:
    def served(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        hostile.flood(connection, b" " * 65536)

    hostile.serve = served
    with pytest.raises(svc_pay.InvalidAnswer, match=f"more than {MAX_ANSWER} bytes"):
        ask(hostile.url)
    # What the sockets hold comes on top.
    assert hostile.sent < 4 * MAX_ANSWER


def test_a_compressed_answer_is_refused(hostile: Hostile, ask: Ask) -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    hostile.serve = lambda connection: connection.sendall(head + bomb)
    with pytest.raises(svc_pay.InvalidAnswer, match="is compressed"):
        ask(hostile.url)
    assert b"accept-encoding: identity\r\n" in hostile.heads[0].lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_neither_followed_nor_repeated(hostile: Hostile, ask: Ask, status: int) -> None:
    head = b"HTTP/1.1 %d Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n" % status
    hostile.serve = lambda connection: connection.sendall(head)
    with pytest.raises(svc_pay.InvalidAnswer, match="the answer is a redirect"):
        ask(hostile.url)
    assert len(hostile.heads) == 1


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_is_taken_from_the_environment(
    hostile: Hostile, ask: Ask, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, hostile.url)
    # Nothing listens on the port of the node.
    with pytest.raises(svc_pay.NodeUnreachable):
        ask("http://127.0.0.1:1", timeout=SOON)
    assert hostile.heads == []


def test_no_file_for_keys_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever may read that file reads the management token."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    contexts = []
    monkeypatch.setattr(svc_pay.exchange, "_trusted", lambda: contexts.append(trusted()) or contexts[-1])
    Client("https://node.example").close()
    asyncio.run(AsyncClient("https://node.example").aclose())
    assert [context.keylog_filename for context in contexts] == [None, None]
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("where", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_trusted_certificates_are_those_that_the_environment_names(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    given, default = trusted(), ssl.create_default_context()
    assert (given.verify_mode, given.check_hostname, given.verify_flags, given.minimum_version) == (
        default.verify_mode,
        default.check_hostname,
        default.verify_flags,
        default.minimum_version,
    )
    assert given.get_ca_certs()
    none = tmp_path / "none.pem"
    none.write_text("")
    monkeypatch.setenv(where, str(none if where == "SSL_CERT_FILE" else tmp_path))
    if where == "SSL_CERT_FILE":
        with pytest.raises(ssl.SSLError):
            trusted()
    else:
        assert trusted().get_ca_certs() == []


def test_threads_that_share_a_client_do_not_wait_for_each_other(hostile: Hostile) -> None:
    """A shop answers its buyers in threads; the server answers none before it has all of their questions."""
    together = threading.Barrier(20, timeout=DEADLINE)
    body = b'{"ok": false, "error": "no such account"}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)

    def served(connection: socket.socket) -> None:
        together.wait()
        connection.sendall(head + body)

    hostile.serve = served
    with Client(hostile.url, timeout=DEADLINE) as client, ThreadPoolExecutor(together.parties) as threads:
        asked = [threads.submit(client.account, ADDRESS) for _ in range(together.parties)]
        assert {type(each.exception()) for each in asked} == {svc_pay.NotFound}
