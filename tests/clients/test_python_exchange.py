"""What `svc_pay` takes of its environment, and threads that share a client; test_hostile_node.py has what it takes of a
node."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket
from time import monotonic

import httpcore
import pytest
import svc_pay
from svc_pay import AsyncClient, BoundedTransport, Client
from svc_pay.exchange import _trusted as trusted

from tests.clients.hostile_node import LATE, Answer, HostileNode, hostile_node, instead, plain

pytestmark = pytest.mark.socket

ADDRESS = "svcd1qwv5rncn0lmw4h7ny97sugyxaamll6rc3xzlfeq"
SOON = 0.5
DEADLINE = 60.0
"""After so long a test has failed."""
Ask = Callable[..., object]


@pytest.fixture
def hostile() -> Iterator[HostileNode]:
    with hostile_node() as given:
        yield given


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


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_is_taken_from_the_environment(
    hostile: HostileNode, ask: Ask, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, hostile.url)
    # Nothing listens on the port of the node.
    with pytest.raises(svc_pay.NodeUnreachable):
        ask("http://127.0.0.1:1", timeout=SOON)
    assert hostile.heads == []


@pytest.mark.parametrize("kind", [_sync, _async])
def test_no_cookie_is_kept(hostile: HostileNode, kind: object) -> None:
    hostile.begin(instead(plain(b'{"ok": false, "error": "no such account"}', 404, "Set-Cookie: a=b; Path=/\r\n")))

    async def twice() -> None:
        async with AsyncClient(hostile.url) as client:
            for _ in range(2):
                with pytest.raises(svc_pay.NotFound):
                    await asyncio.wait_for(client.account(ADDRESS), DEADLINE)

    if kind is _async:
        asyncio.run(twice())
    else:
        with Client(hostile.url) as client:
            for _ in range(2):
                with pytest.raises(svc_pay.NotFound):
                    client.account(ADDRESS)
    assert ["cookie" in head.decode() for head in hostile.heads] == [False, False]


def test_no_file_for_keys_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With that file the management token could be decrypted."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    contexts = []
    monkeypatch.setattr(svc_pay.exchange, "_trusted", lambda: contexts.append(trusted()) or contexts[-1])
    Client("https://node.example").close()
    asyncio.run(AsyncClient("https://node.example").aclose())
    BoundedTransport(proxy="https://proxy.example").close()
    assert [context.keylog_filename for context in contexts] == [None] * 3
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
        with pytest.raises(svc_pay.InvalidInput, match=r"no certificate can be read from .*none\.pem"):
            trusted()
        none.unlink()
        with pytest.raises(svc_pay.InvalidInput, match=r"none\.pem, the file in SSL_CERT_FILE: .*No such file"):
            Client("https://node.example")
    else:
        assert trusted().get_ca_certs() == []


@pytest.mark.parametrize("case", ["an endless header", "endless headers", "endless informational answers"])
def test_a_transport_of_a_program_keeps_the_deadline(hostile: HostileNode, case: str) -> None:
    """httpx bounds single steps, of which such an answer has any number."""
    hostile.begin(LATE[case])
    with Client(hostile.url, timeout=SOON, transport=BoundedTransport(addresses=lambda _: ["127.0.0.1"])) as client:
        began = monotonic()
        with pytest.raises(svc_pay.NodeUnreachable):
            client.account(ADDRESS)
    assert monotonic() - began < DEADLINE / 4


def test_only_the_given_addresses_are_called(hostile: HostileNode) -> None:
    asked: list[str] = []

    def addresses(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if host == "node.example" else []

    hostile.begin(instead(plain(b'{"ok": false, "error": "no such account"}', 404)))
    port = hostile.url.rpartition(":")[2]
    for name, error in (("node", "no such account"), ("other", r"other\.example has no address")):
        transport = BoundedTransport(addresses=addresses)
        with (
            Client(f"http://{name}.example:{port}", transport=transport) as client,
            pytest.raises(svc_pay.SvcPayError, match=error),
        ):
            client.account(ADDRESS)
    assert {*asked} == {"node.example", "other.example"}
    assert f"host: node.example:{port}".encode() in hostile.heads[0]


def test_a_transport_may_use_a_proxy(hostile: HostileNode) -> None:
    hostile.begin(instead(plain(b'{"ok": false, "error": "no such account"}', 404)))
    transport = BoundedTransport(proxy=hostile.url)
    with Client("http://node.invalid", transport=transport) as client, pytest.raises(svc_pay.NotFound):
        client.account(ADDRESS)
    assert hostile.heads[0].startswith(b"get http://node.invalid/rpc/balance/")
    for proxy in ("ftp://proxy.example", "http://[::1", "proxy.example"):
        with pytest.raises(svc_pay.InvalidInput, match="the proxy cannot be used"):
            BoundedTransport(proxy=proxy)


def test_the_addresses_of_a_name_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a name could otherwise multiply the deadline by the number of its addresses."""
    shares: list[float] = []

    def silent(address: tuple[str, int], timeout: float, **_: object) -> socket:
        shares.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(httpcore._backends.sync.socket, "create_connection", silent)
    transport = BoundedTransport(addresses=lambda _: [f"192.0.2.{number}" for number in range(4)])
    client = Client("http://node.example", timeout=DEADLINE, retry_seconds=0, transport=transport)
    with client, pytest.raises(svc_pay.NodeUnreachable):
        client.account(ADDRESS)
    # None of the four took any of its time here, so that the shares of the others grew.
    assert [round(DEADLINE / share) for share in shares] == [4, 3, 2, 1]


def test_a_name_server_that_does_not_answer_ends_with_the_request() -> None:
    answered = threading.Event()

    def addresses(_: str) -> list[str]:
        answered.wait(DEADLINE)
        return []

    with Client("http://node.example", timeout=SOON, transport=BoundedTransport(addresses=addresses)) as client:
        began = monotonic()
        with pytest.raises(svc_pay.NodeUnreachable, match="taken too long"):
            client.account(ADDRESS)
    assert monotonic() - began < DEADLINE / 4
    answered.set()


def test_threads_that_share_a_client_do_not_wait_for_each_other(hostile: HostileNode) -> None:
    """A shop answers its buyers in threads; the server answers none before it has all of their questions."""
    together = threading.Barrier(20, timeout=DEADLINE)

    def serve(_: HostileNode, connection: socket, __: Answer) -> None:
        together.wait()
        connection.sendall(plain(b'{"ok": false, "error": "no such account"}', 404))

    hostile.begin(serve)
    with Client(hostile.url, timeout=DEADLINE) as client, ThreadPoolExecutor(together.parties) as threads:
        asked = [threads.submit(client.account, ADDRESS) for _ in range(together.parties)]
        assert {type(each.exception()) for each in asked} == {svc_pay.NotFound}
