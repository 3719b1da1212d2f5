"""Connections to a node over TCP, TLS, or the operator's Unix socket."""

import os
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeEndpoint

_PORTS: Final = {"http": 80, "https": 443}

_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


@frozen
class SocketConnection:
    """A connected socket; every method raises OSError."""

    socket: socket.socket

    def send(self, data: bytes, seconds: float) -> None:
        """Send all of ``data``; raises TimeoutError if that takes more than ``seconds``."""
        self.socket.settimeout(seconds)
        self.socket.sendall(data)

    def receive(self, size: int, seconds: float) -> bytes:
        """From 1 to ``size`` bytes, or none at the end; raises TimeoutError if none arrive within ``seconds``."""
        self.socket.settimeout(seconds)
        return self.socket.recv(size)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def connect(endpoint: NodeEndpoint, seconds: float) -> SocketConnection:
    """A connection to ``endpoint``; raises OSError, which is TimeoutError after ``seconds``.

    For https the certificate must be valid for the host and issued by an authority that this computer trusts, or that
    ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` names. No proxy is used. Run as root, a socket of the operator must be one of
    root or of the directory's owner, and not a link, else CommandError is raised: the owner could otherwise redirect
    root's orders to another program.
    """
    if endpoint.socket is not None:
        return SocketConnection(_unix_socket(Path(endpoint.socket), seconds))
    deadline = time.monotonic() + seconds
    url = urlsplit(endpoint.base_url)
    host = url.hostname or ""
    connected = _tcp_socket(host, url.port or _PORTS[url.scheme], deadline)
    if url.scheme == "http":
        return SocketConnection(connected)
    try:
        connected.settimeout(_left(deadline))
        return SocketConnection(trust().wrap_socket(connected, server_hostname=host))
    except OSError:
        connected.close()
        raise


def trust() -> ssl.SSLContext:
    """TLS with the authorities that this computer trusts, as ssl.create_default_context has it, but for the key log.

    Where SSLKEYLOGFILE is set, that function writes the keys of all connections, and so the tokens in them, to a file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    context.load_default_certs()
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _tcp_socket(host: str, port: int, deadline: float) -> socket.socket:
    """A socket that is connected to the first address of ``host`` that takes the connection."""
    failure: OSError = socket.gaierror(socket.EAI_NONAME, "the host has no address")
    addresses = _addresses(host, port, deadline)
    for tried, found in enumerate(addresses):
        try:
            # An address that does not answer leaves the others a share of the time.
            return _connected_socket(found, _left(deadline) / (len(addresses) - tried))
        except OSError as error:
            failure = error
    raise failure


def _connected_socket(found: _Address, seconds: float) -> socket.socket:
    family, address = found
    # The kernel may have no IPv6: that is an error too.
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.settimeout(seconds)
        connecting.connect(address)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connecting.close()
        raise
    return connecting


def _addresses(host: str, port: int, deadline: float) -> list[_Address]:
    """The addresses of ``host``.

    Neither a deadline nor Ctrl-C ends a lookup in the system's library: a thread waits for it, and is left behind.
    """
    found: list[_Address] = []
    failures: list[OSError] = []

    def look_up() -> None:
        try:
            results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend((family, address) for family, _, _, _, address in results)
        except UnicodeError:
            # A part of the name is empty or longer than 63 characters.
            failures.append(socket.gaierror(socket.EAI_NONAME, "not a name"))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if thread.is_alive():
        raise TimeoutError
    for failure in failures:
        raise failure
    return found


def _unix_socket(path: Path, seconds: float) -> socket.socket:
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.settimeout(seconds)
        if os.geteuid() == 0:
            with _checked_socket(path) as checked:
                connecting.connect(checked)
        else:
            connecting.connect(str(path))
    except (OSError, CommandError):
        connecting.close()
        raise
    return connecting


@contextmanager
def _checked_socket(path: Path) -> Iterator[str]:
    """A path to the very socket that was checked, even if another file takes its name in the meantime."""
    with (
        _path_descriptor(path.parent, os.O_DIRECTORY) as directory,
        _path_descriptor(path.name, os.O_NOFOLLOW, directory) as found,
    ):
        status, owner = os.fstat(found), os.fstat(directory).st_uid
        if not stat.S_ISSOCK(status.st_mode) or status.st_nlink != 1 or status.st_uid not in (0, owner):
            raise CommandError(
                f"root does not connect to {path}: it must be a socket of the directory's owner, and no link; "
                "run the command as that user, or find out who created it"
            )
        yield f"/proc/self/fd/{found}"


@contextmanager
def _path_descriptor(path: str | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """A descriptor that identifies a file but can neither read nor write it (O_PATH in open(2))."""
    descriptor = os.open(path, flags | os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
