"""Ports that are bound before root's rights are given up, and TLS on sockets that systemd hands over."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.endpoints import AdoptedStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread

from svcd.endpoint_description import EndpointDescription
from svcd.process.certificates import ServerCertificate
from svcd.process.endpoints import ServerEndpoints
from tests.process.certificate_files import CertificateFiles
from tests.process_level.running import free_port

EVERY_PORT = range(1, 65536)


class Greeting(Protocol):
    def connectionMade(self) -> None:  # noqa: N802
        self.transport.write(b"hello")  # type: ignore[union-attr]


FACTORY: Any = Factory.forProtocol(Greeting)
FACTORY.noisy = False


def endpoints(*names: str) -> ServerEndpoints:
    return ServerEndpoints(reactor, names, privileged=EVERY_PORT)


def greeting(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), timeout=60) as connection:
        return connection.recv(5)


@pytest.mark.socket
@pytest.mark.parametrize(
    ("described", "host"),
    [
        ("tcp:{port}:interface=127.0.0.1", "127.0.0.1"),
        ("tcp:port={port}", "127.0.0.1"),
        ("tcp6:{port}:interface=\\:\\:1", "::1"),
        ("tcp6:{port}", "::1"),
    ],
)
async def test_a_privileged_port_is_bound_first_and_refuses_until_it_listens(described: str, host: str) -> None:
    port = free_port()
    name = described.format(port=port)
    service = endpoints(name)
    service.privilegedStartService()
    with (
        socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as another,
        pytest.raises(OSError, match="in use"),
    ):
        another.bind((host, port))
    with pytest.raises(ConnectionRefusedError):
        greeting(host, port)
    listening = await service.server(name, None).listen(FACTORY)
    try:
        assert await deferToThread(greeting, host, port) == b"hello"
    finally:
        await listening.stopListening()
    service.stopService()


@pytest.mark.socket
async def test_a_port_that_cannot_be_bound_is_reported_when_the_node_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        name = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        service = endpoints(name)
        service.privilegedStartService()
        with pytest.raises(Exception, match="Address already in use"):
            await service.server(name, None).listen(FACTORY)


@pytest.mark.socket
def test_bound_but_unused_ports_are_closed() -> None:
    port = free_port()
    service = endpoints(f"tcp:{port}:interface=127.0.0.1")
    service.privilegedStartService()
    service.stopService()
    with socket.socket() as another:
        another.bind(("127.0.0.1", port))


def test_other_ports_and_kinds_are_left_to_twisted(tmp_path: Path) -> None:
    names = {
        "tcp:1024": "TCP4ServerEndpoint",
        "tcp:0": "TCP4ServerEndpoint",
        f"unix:{tmp_path}/s": "UNIXServerEndpoint",
    }
    service = ServerEndpoints(reactor, names)
    service.privilegedStartService()
    assert {name: type(service.server(name, None)).__name__ for name in names} == names


@pytest.mark.socket
@pytest.mark.parametrize("kind", ["bound", "systemd"])
async def test_tls_on_a_socket_that_was_opened_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    files = CertificateFiles(tmp_path / "tls")
    inherited = socket.socket()
    inherited.bind(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    if kind == "bound":
        inherited.close()
        name = files.endpoint(port)
    else:
        inherited.listen()
        inherited.setblocking(False)
        name = f"systemd:domain=INET:name=svcd:{files.arguments()}"
        adopted = AdoptedStreamServerEndpoint(reactor, inherited.detach(), socket.AF_INET)  # type: ignore[no-untyped-call]
        monkeypatch.setattr(
            "svcd.process.endpoints.serverFromString",
            lambda _reactor, text: {"systemd:domain=INET:name=svcd": adopted}[text],
        )
    service = endpoints(name)
    service.privilegedStartService()
    certificate = ServerCertificate(name, EndpointDescription.parse(name).arguments)
    assert service.described[name].has_tls
    listening = await service.server(name, certificate).listen(FACTORY)
    context = ssl.create_default_context(cadata=files.authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13

    def greeted() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            return tls.recv(5)

    try:
        assert await deferToThread(greeted) == b"hello"
    finally:
        await listening.stopListening()
