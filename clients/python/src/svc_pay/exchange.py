"""One request and its answer over HTTP: the limits of both clients and of rates, below all of their calls.

A server, or a proxy in front of it, chooses every byte of an answer. So an exchange has a deadline, and an answer has a
maximum size and is not compressed; no redirect is followed, and neither a proxy nor a password is taken from the
environment, nor ``SSLKEYLOGFILE``, which would write the keys of connections to a file. Trusted certificates are found
as in other programs: ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` may name them.

The deadline of a synchronous exchange is kept by :class:`BoundedTransport`. Any other transport that a program hands in
has only the timeouts of httpx, which are for single steps: with httpx.HTTPTransport a server that sends its header byte
by byte is waited for without end.
"""

import asyncio
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from math import inf
from time import monotonic
from typing import Any, Final

import certifi
import httpcore
import httpx

from svc_pay.calls import Answer
from svc_pay.errors import InvalidAnswer, InvalidInput

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer, at most."""
PLAIN: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""The headers of every request: the answer is JSON, and not compressed."""

_until: ContextVar[float] = ContextVar("_until", default=inf)


def left(until: float, most: float | None = None) -> float:
    """The seconds until ``until`` by the monotonic clock, at most ``most``; raises httpx.ReadTimeout if it is past."""
    seconds = until - monotonic()
    if seconds <= 0:
        raise httpx.ReadTimeout("the answer has taken too long")
    return seconds if most is None else min(seconds, most)


def _step(timeout: float | None) -> float | None:
    """The seconds of a step: at most ``timeout``, and none after the end of the exchange; None if both are without."""
    seconds = left(_until.get(), timeout)
    return None if seconds == inf else seconds


class _Stream(httpcore.NetworkStream):
    """A connection on which every step ends with the exchange; httpx bounds only single steps."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _step(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _step(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _step(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Connects to the first address of a host that takes the connection, until the exchange ends."""

    def __init__(self, addresses: "Addresses") -> None:
        self._addresses = addresses

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.NetworkStream:
        end = monotonic() + left(_until.get(), timeout)
        failure: httpcore.ConnectError | httpcore.ConnectTimeout = httpcore.ConnectError(f"{host} has no address")
        addresses = _looked_up(self._addresses, host, None if end == inf else left(end))
        for tried, address in enumerate(addresses):
            # An address that does not answer leaves the others a share of the time.
            share = None if end == inf else left(end) / (len(addresses) - tried)
            try:
                return _Stream(super().connect_tcp(address, port, share, *given, **named))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


Addresses = Callable[[str], Sequence[str]]
"""The addresses of a host that may be called; raises OSError, UnicodeError or httpx.ConnectError."""


def _addresses_of(host: str) -> Sequence[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


def _looked_up(addresses: Addresses, host: str, seconds: float | None) -> Sequence[str]:
    """``addresses`` of ``host``. No deadline ends a look-up of the system: a thread waits for it and is left behind."""
    found: Future[Sequence[str]] = Future()

    def look_up() -> None:
        try:
            found.set_result(addresses(host))
        except BaseException as error:
            # It is raised in the other thread.
            found.set_exception(error)

    threading.Thread(target=look_up, daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise httpcore.ConnectTimeout("the look-up of the host has taken too long") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from None


def _trusted() -> ssl.SSLContext:
    """What :func:`ssl.create_default_context` returns, without a file for the keys of connections.

    Raises InvalidInput if the environment names a file that has no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    # As httpx does.
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if folder and not file:
        context.load_verify_locations(capath=folder)
        return context
    try:
        context.load_verify_locations(cafile=file or certifi.where())
    except OSError as error:
        if not file:
            raise
        raise InvalidInput(f"no certificate can be read from {file}, the file in SSL_CERT_FILE: {error}") from None
    return context


class BoundedTransport(httpx.HTTPTransport):
    """The transport of the synchronous client, with which an exchange ends in time for any answer of a server.

    It takes neither a proxy nor ``SSLKEYLOGFILE`` from the environment. ``proxy`` is the URL of a proxy. ``addresses``
    returns the addresses of a host that may be called, or raises httpx.ConnectError; no other ones are called, and the
    certificate is still checked against the name. A proxy looks names up on its own: then ``addresses`` is asked only
    for that of the proxy. Raises InvalidInput for a proxy that cannot be used.
    """

    def __init__(self, *, proxy: str | None = None, addresses: Addresses | None = None) -> None:
        trusted = _trusted()
        try:
            # The context of httpcore for a proxy would take SSLKEYLOGFILE.
            secure = proxy is not None and httpx.URL(proxy).scheme == "https"
            through = None if proxy is None else httpx.Proxy(proxy, ssl_context=trusted if secure else None)
            super().__init__(verify=trusted, trust_env=False, proxy=through)
        except (ValueError, ImportError, httpx.InvalidURL) as error:
            raise InvalidInput(f"the proxy cannot be used: {error}") from None
        # httpx has no way to hand in what connects.
        pool: Any = self._pool
        pool._network_backend = _Backend(addresses or _addresses_of)


def connections(transport: httpx.BaseTransport | None) -> httpx.Client:
    """The connections of a synchronous client, by a transport of the program's own if there is one."""
    return httpx.Client(
        transport=transport or BoundedTransport(), cookies=_no_cookies(), trust_env=False, follow_redirects=False
    )


def async_connections(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """The connections of an asynchronous client."""
    if transport is None:
        transport = httpx.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
    return httpx.AsyncClient(transport=transport, cookies=_no_cookies(), trust_env=False, follow_redirects=False)


def _no_cookies() -> CookieJar:
    """A jar that takes none: a server could let every further request grow until nothing accepts it."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def exchange(http: httpx.Client, request: httpx.Request, until: float, *, most: int = MAX_ANSWER) -> Answer:
    """The answer to a request, with its body, before ``until`` of the monotonic clock.

    Raises httpx.HTTPError if none came in time, and InvalidAnswer for one that is compressed, or a redirect, or has
    more than ``most`` bytes.
    """
    token = _until.set(until)
    try:
        response = http.send(request, stream=True)
        try:
            _check(response)
            body = _Body(most)
            # A program's own transport may have read it.
            for part in [response.content] if response.is_stream_consumed else response.iter_raw():
                body.add(part)
                left(until)
        finally:
            response.close()
    finally:
        _until.reset(token)
    return body.of(response)


async def async_exchange(http: httpx.AsyncClient, request: httpx.Request, until: float) -> Answer:
    """The same for an asynchronous client."""
    try:
        async with asyncio.timeout(left(until)):
            response = await http.send(request, stream=True)
            try:
                _check(response)
                body = _Body(MAX_ANSWER)
                if response.is_stream_consumed:
                    body.add(response.content)
                else:
                    async for part in response.aiter_raw():
                        body.add(part)
            finally:
                await response.aclose()
    except TimeoutError:
        raise httpx.ReadTimeout("the answer has taken too long") from None
    return body.of(response)


def _check(response: httpx.Response) -> None:
    if 300 <= response.status_code < 400:
        raise InvalidAnswer("the answer is a redirect, which no call follows: correct the URL")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise InvalidAnswer("the answer is compressed, and plain was asked for; it may be of a proxy")


class _Body:
    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            raise InvalidAnswer(f"the answer has more than {self._most} bytes")
        self._parts.append(part)

    def of(self, response: httpx.Response) -> Answer:
        return Answer(response.status_code, response.headers.get("retry-after"), b"".join(self._parts))
