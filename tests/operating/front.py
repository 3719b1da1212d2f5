"""Debian's nginx with a configuration of `conf/`, in front of running nodes."""

import json
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any

from attrs import frozen
from cryptography.hazmat.primitives import serialization

from tests.net.certificates import make_authority, sign
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, Answer, free_port, wait_until
from tests.programs import program

CONF = ROOT / "conf" / "nginx.conf"
CLUSTER = ROOT / "conf" / "nginx-cluster.conf"
HAPROXY = ROOT / "conf" / "haproxy-cluster.cfg"
NAME = "node.example.org"

_MAIN = """\
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    # As Debian's nginx.conf: what a server does not switch off is written, the requests whole.
    access_log {folder}/access.log;
    # Lets a test come from any address.
    set_real_ip_from 127.0.0.0/8;
    real_ip_header X-Test-Address;
    include {folder}/svcd.conf;
}}
"""


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each replaced that must be in it."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


@frozen
class Front:
    """nginx as it runs."""

    folder: Path
    port: int
    plain_port: int
    context: ssl.SSLContext

    @property
    def logs(self) -> str:
        """All that it has written."""
        return "".join((self.folder / name).read_text() for name in ("access.log", "error.log", "nginx.log"))

    def tls(self, source: str) -> ssl.SSLSocket:
        """A connection from an address in 127/8."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE, source_address=(source, 0))
        return self.context.wrap_socket(plain, server_hostname=NAME)

    def ask(self, source: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        """The answer to GET, or to POST with a body, for a client at an address in 127/8."""
        connection = HTTPSConnection(NAME, self.port, timeout=DEADLINE, context=self.context)
        connection.sock = self.tls(source)
        return answer_on(connection, target, body, headers)

    def plainly(self, target: str) -> tuple[int, str | None]:
        """Status and Location without TLS."""
        connection = HTTPConnection("127.0.0.1", self.plain_port, timeout=DEADLINE)
        connection.request("GET", target, headers={"Host": NAME})
        response = connection.getresponse()
        connection.close()
        return response.status, response.headers["Location"]


def answer_on(connection: HTTPConnection, target: str, body: bytes | None, headers: dict[str, str]) -> Answer:
    """The answer to one request; a server may answer before it has read a body that is too large."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            connection.request("GET" if body is None else "POST", target, body, {"Host": NAME, **named})
        response = connection.getresponse()
        found: Any = json.loads(response.read())
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, found)
    finally:
        connection.close()


def _certificate(folder: Path) -> ssl.SSLContext:
    """Write key and certificate, and give a context that trusts their authority and nobody else."""
    authority = make_authority("The authority of the tests")
    signed = sign(NAME, by=authority)
    (folder / "fullchain.pem").write_bytes(signed.pem + authority.pem)
    key = signed.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "privkey.pem").write_bytes(key)
    return ssl.create_default_context(cadata=authority.pem.decode())


def configuration(text: str, folder: Path, ports: tuple[int, int]) -> str:
    """A configuration of the project with this machine's places, and patience for tests."""
    tls, plain = ports
    text = replaced(
        text,
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl http2;", f"listen 127.0.0.1:{tls} ssl http2;"),
        ("/etc/letsencrypt/live/node.example.org/", f"{folder}/"),
        ("error_log /var/log/nginx/error.log", f"error_log {folder}/error.log"),
        ("client_header_timeout 10s;", "client_header_timeout 3s;"),
    )
    return re.sub(r"\n *listen \[::\][^\n]*", "", text)


@contextmanager
def front_of(folder: Path, node_port: int) -> Iterator[Front]:
    """Run nginx in front of a node; it must say nothing that a warning would be."""
    text = replaced(
        CONF.read_text(encoding="utf-8"),
        ("server 127.0.0.1:8645;", f"server 127.0.0.1:{node_port};"),
        ("limit_conn svcd_client 64;", "limit_conn svcd_client 8;"),
    )
    with _nginx(folder, text) as front:
        yield front


@contextmanager
def front_of_several(folder: Path, node_ports: Sequence[int]) -> Iterator[Front]:
    """The same in front of up to three nodes."""
    text = CLUSTER.read_text(encoding="utf-8")
    for number in range(3):
        old = f"    server 10.0.0.{11 + number}:8645 "
        if number < len(node_ports):
            text = replaced(text, (old, f"    server 127.0.0.1:{node_ports[number]} "))
        else:
            text = re.sub(f"{re.escape(old)}.*\n", "", text)
    with _nginx(folder, text) as front:
        yield front


@contextmanager
def haproxy_of(folder: Path, node_ports: Sequence[tuple[int, int]]) -> Iterator[Front]:
    """Run HAProxy in front of three nodes, each with its port and the one of its health checks."""
    context, ports = _certificate(folder), (free_port(), free_port())
    (folder / "both.pem").write_bytes((folder / "fullchain.pem").read_bytes() + (folder / "privkey.pem").read_bytes())
    text = replaced(
        HAPROXY.read_text(encoding="utf-8"),
        ("    user haproxy\n    group haproxy\n", ""),
        ("bind :80\n", f"bind 127.0.0.1:{ports[1]}\n"),
        ("bind :443 ", f"bind 127.0.0.1:{ports[0]} "),
        (f"/etc/haproxy/{NAME}.pem", str(folder / "both.pem")),
        (" check port 8647 ", " check "),
        *(
            (f"10.0.0.{11 + number}:8645\n", f"127.0.0.1:{port} port {health}\n")
            for number, (port, health) in enumerate(node_ports)
        ),
    )
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program("haproxy"), "-db", "-f", folder / "haproxy.cfg"], stdout=log, stderr=log)
    try:
        front = Front(folder, *ports, context)
        wait_until(lambda: _listens(front), "haproxy")
        yield front
    finally:
        process.terminate()
        process.wait(DEADLINE)
    alerts = [line for line in (folder / "haproxy.log").read_text().splitlines() if "[ALERT]" in line]
    assert all("has no server available" in line for line in alerts), alerts


@contextmanager
def _nginx(folder: Path, text: str) -> Iterator[Front]:
    context = _certificate(folder)
    ports = free_port(), free_port()
    (folder / "svcd.conf").write_text(configuration(text, folder, ports))
    user = "user root;" if subprocess.run(["id", "-u"], capture_output=True, check=True).stdout == b"0\n" else ""
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=user))
    command = [program("nginx"), "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert (tested.returncode, "warn" in tested.stderr) == (0, False), tested.stderr
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        front = Front(folder, *ports, context)
        wait_until(lambda: _listens(front), "nginx")
        yield front
    finally:
        process.terminate()
        process.wait(DEADLINE)


def _listens(front: Front) -> bool:
    try:
        return front.plainly("/")[0] == 308
    except (ConnectionRefusedError, RemoteDisconnected):
        return False
