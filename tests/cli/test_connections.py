"""Connections of `svc` over real sockets: TLS, several addresses of a host, names that are not found in time."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from svcd.cli.clock import SystemClock
from svcd.cli.connections import connect, trust
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient, public_endpoint
from tests.net.certificates import Signed, make_authority, sign

pytestmark = pytest.mark.socket

AUTHORITY = make_authority("The authority of these tests")
SECONDS = 60.0
"""Until a connection is given up that should have been there at once."""


class Ok(BaseHTTPRequestHandler):
    """Answers every request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"ok":true,"over":"a socket"}')

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Signed | None], int]]:
    """Starts a server on 127.0.0.1, with a certificate or by plain HTTP, and returns its port."""
    servers: list[tuple[HTTPServer, threading.Thread]] = []

    def start(signed: Signed | None) -> int:
        server = HTTPServer(("127.0.0.1", 0), Ok)
        if signed is not None:
            file = tmp_path / f"{len(servers)}.pem"
            key = signed.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            file.write_bytes(signed.pem + key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return int(server.server_address[1])

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only authority that this computer trusts."""
    (tmp_path / "authority.pem").write_bytes(AUTHORITY.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))


def ask(url: str) -> str:
    """What the server at a URL answers."""
    return NodeClient(connect, public_endpoint(url), clock=SystemClock()).get("/any").text("over")


Serve = Callable[[Signed | None], int]


def test_a_certificate_of_a_trusted_authority_is_accepted(serve: Serve) -> None:
    assert ask(f"https://localhost:{serve(sign('localhost', by=AUTHORITY))}") == "a socket"
    assert ask(f"https://127.0.0.1:{serve(sign('127.0.0.1', by=AUTHORITY))}") == "a socket"


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        (sign("localhost", by=None), "self-signed certificate"),
        (sign("localhost", by=make_authority("Another one")), "unable to get local issuer certificate"),
        (sign("other.example", by=AUTHORITY), "Hostname mismatch, certificate is not valid for 'localhost'."),
        (sign("localhost", by=AUTHORITY, days=(-9, -1)), "certificate has expired"),
    ],
    ids=["self-signed", "untrusted", "another name", "expired"],
)
def test_another_certificate_is_refused_before_anything_is_sent(serve: Serve, signed: Signed, reason: str) -> None:
    url = f"https://localhost:{serve(signed)}"
    with pytest.raises(CommandError) as refused:
        ask(url)
    assert type(refused.value) is CommandError, "the node has not received the request"
    assert str(refused.value).startswith(
        f"cannot connect to {url}: its certificate is not valid: {reason}; is the node"
    )


def test_nothing_of_the_environment_reads_along(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy, nor a file with the keys of the connections, nor a password of another program."""
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / ".netrc").write_text("default login somebody password secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ask(f"https://localhost:{serve(sign('localhost', by=AUTHORITY))}") == "a socket"
    assert ask(f"http://127.0.0.1:{serve(None)}") == "a socket"
    assert trust().keylog_filename is None
    assert not log.exists()


def test_a_server_without_tls_is_reported(serve: Serve) -> None:
    url = f"https://localhost:{serve(None)}"
    with pytest.raises(CommandError, match=f"cannot connect to {url}: TLS failed: "):
        ask(url)


def addresses(*hosts: str, port: int) -> Callable[..., Any]:
    """What the resolver of the system answers."""
    return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


def test_each_address_of_a_host_is_tried(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", addresses("127.0.0.2", "127.0.0.1", port=serve(None)))
    assert ask("http://node.example") == "a socket"
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", addresses("127.0.0.2", "127.0.0.1", port=port))
    with pytest.raises(CommandError, match=r"cannot connect to http://node\.example: connection refused; is the node"):
        ask("http://node.example")


def test_an_address_of_a_family_that_the_system_lacks_is_left_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPv6 on a computer where the kernel has none."""
    found = addresses("127.0.0.1", port=serve(None))()
    unknown = (socket.AF_UNSPEC, socket.SOCK_STREAM, 6, "", ("::1", 80, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, *found])
    assert ask("http://node.example") == "a socket"


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "a..example"])
def test_an_invalid_host_name_is_an_unknown_host(host: str) -> None:
    with pytest.raises(CommandError, match=f"cannot connect to http://{host}: unknown host; is the node running"):
        ask(f"http://{host}")


def test_a_lookup_that_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [hanging.wait(SECONDS)][:0])
    endpoint = evolve(public_endpoint("http://node.example"), timeout=0.01)
    with pytest.raises(CommandError, match=r"cannot connect to http://node\.example: connection timed out"):
        NodeClient(connect, endpoint, clock=SystemClock()).get("/any")
    hanging.set()
