"""TLS on ports, and on sockets that systemd hands over."""

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
from svcd.process.endpoints import server_endpoint
from tests.process.certificate_files import CertificateFiles


class Greeting(Protocol):
    def connectionMade(self) -> None:  # noqa: N802
        self.transport.write(b"hello")  # type: ignore[union-attr]


FACTORY: Any = Factory.forProtocol(Greeting)
FACTORY.noisy = False


def test_an_endpoint_without_tls_is_twisted_s(tmp_path: Path) -> None:
    names = {
        "tcp:1024": "TCP4ServerEndpoint",
        "tcp6:1024": "TCP6ServerEndpoint",
        f"unix:{tmp_path}/s": "UNIXServerEndpoint",
    }
    assert {name: type(server_endpoint(reactor, name, None)).__name__ for name in names} == names


@pytest.mark.socket
@pytest.mark.parametrize("kind", ["ssl", "systemd"])
async def test_tls_on_a_port_and_on_a_socket_of_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    files = CertificateFiles(tmp_path / "tls")
    inherited = socket.socket()
    inherited.bind(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    if kind == "ssl":
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
    certificate = ServerCertificate(name, EndpointDescription.parse(name).arguments)
    listening = await server_endpoint(reactor, name, certificate).listen(FACTORY)
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
