"""One request and its answer over HTTP: the limits of both clients and of rates, below all of their calls.

A server, or a proxy in front of it, chooses every byte of an answer. So an exchange has a deadline, and an answer has a
maximum size and is not compressed; no redirect is followed, and neither a proxy nor a password is taken from the
environment, nor ``SSLKEYLOGFILE``, which would write the keys of connections to a file. Trusted certificates are found
as in other programs: ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` may name them.
"""

import asyncio
import os
import ssl
import sys
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, Final

import certifi
import httpcore
import httpx

from svc_pay.calls import Answer
from svc_pay.errors import InvalidAnswer

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


class _Stream(httpcore.NetworkStream):
    """A connection on which every step ends with the exchange; httpx bounds only single steps."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, left(_until.get(), timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, left(_until.get(), timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left(_until.get(), timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Connects as httpx does, until the exchange ends."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, left(_until.get(), timeout), *given, **named))


def _trusted() -> ssl.SSLContext:
    """What :func:`ssl.create_default_context` returns, without a file for the keys of connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    # As httpx does.
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or not folder:
        context.load_verify_locations(cafile=file or certifi.where())
    else:
        context.load_verify_locations(capath=folder)
    return context


class _Transport(httpx.HTTPTransport):
    def __init__(self) -> None:
        trusted = _trusted()
        super().__init__(verify=trusted, trust_env=False)
        # httpx has no other way to hand in what connects. The numbers are its own; those of httpcore are lower.
        self._pool = httpcore.ConnectionPool(
            ssl_context=trusted,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(),
        )


def connections(transport: httpx.BaseTransport | None) -> httpx.Client:
    """The connections of a synchronous client, by a transport of the program's own if there is one."""
    return httpx.Client(transport=transport or _Transport(), trust_env=False, follow_redirects=False)


def async_connections(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """The connections of an asynchronous client."""
    if transport is None:
        transport = httpx.AsyncHTTPTransport(verify=_trusted(), trust_env=False)
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


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
