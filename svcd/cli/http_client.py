"""Requests to a node over TCP or its Unix socket: a deadline, a bounded response, a sentence for every failure.

A response is neither a redirect nor compressed. Nothing is taken from the environment: no proxy and no password.
"""

import io
import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, IncompleteRead, RemoteDisconnected
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

from attrs import frozen

from svcd.cli.answers import ResponseObject, parse_object
from svcd.cli.clock import BlockingClock
from svcd.cli.errors import CommandError, ErrorResponse, NoValidResponse

TIMEOUT: Final = 30.0
"""Seconds for a request to the public interface."""
OPERATOR_TIMEOUT: Final = 120.0
"""Seconds for a request to the operator's interface."""
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
"""More than three full blocks."""
MAX_SOCKET_PATH: Final = 107
"""Bytes in the path of a Unix socket (unix(7))."""

_FRAMING_BYTES: Final = 64 * 1024
POLL_SECONDS: Final = 0.5
"""Between two calls of ``poll`` while a request waits for its response."""

_URL: Final = re.compile(r"(https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?)/?")
_SUCCESSES: Final = (200, 201, 202)
_REDIRECTS: Final = range(300, 400)
_TOO_MANY_REQUESTS: Final = 429
_PAUSE: Final = 2.0
"""Seconds until the next attempt after the node has refused a request for its rate; its `Retry-After` is ignored."""
_JSON_HEADERS: Final = {"Content-Type": "application/json"}


@frozen
class NodeEndpoint:
    """One HTTP interface of a node."""

    base_url: str
    """Scheme, host and port."""
    name: str
    """The interface as the user named it: its URL, or the path of its socket."""
    hint: str
    """What to do if the connection fails."""
    timeout: float = TIMEOUT
    """Seconds for each request."""
    socket: str | None = None
    """The path of a Unix socket, which is connected to in the place of the URL's host."""


def _has_host(base_url: str) -> bool:
    """Whether what is in brackets, if anything is, is an IPv6 address."""
    try:
        return bool(urlsplit(base_url).hostname)
    except ValueError:
        return False


def public_endpoint(url: str) -> NodeEndpoint:
    """The public interface at ``url``; raises ValueError."""
    match = _URL.fullmatch(url)
    if match is None or int(match[2] or 1) not in range(1, 65536) or not _has_host(match[1]):
        raise ValueError(
            "a node's URL is http:// or https://, a host and an optional port, such as http://127.0.0.1:8645"
        )
    return NodeEndpoint(match[1], match[1], "is the node running? Give its URL with --url or SVCD_URL")


def is_exposed(url: str) -> bool:
    """Whether requests to the node at ``url`` cross a network unencrypted: http to another host than this computer."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return True
    # What a version of Python says of IPv4-mapped addresses as such differs.
    mapped = getattr(address, "ipv4_mapped", None)
    return not (address if mapped is None else mapped).is_loopback


def operator_endpoint(socket: str, timeout: float = OPERATOR_TIMEOUT) -> NodeEndpoint:
    """The operator's interface at the Unix socket with the path ``socket``; raises CommandError."""
    if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        raise CommandError(f"the path {socket} is too long for a Unix socket; give a relative path with --data-dir")
    hint = "is the node running? Give its data directory with --data-dir or SVCD_DATA_DIR"
    return NodeEndpoint("http://localhost", socket, hint, timeout, socket)


class NodeConnection(Protocol):
    """A connection to a node; every method raises OSError."""

    def send(self, data: bytes, seconds: float, /) -> None:
        """Send all of ``data``; raises TimeoutError if that takes more than ``seconds``."""

    def receive(self, size: int, seconds: float, /) -> bytes:
        """From 1 to ``size`` bytes, or none at the end; raises TimeoutError if none arrive within ``seconds``."""

    def close(self) -> None:
        """Close the connection."""


Connect = Callable[[NodeEndpoint, float], NodeConnection]
"""Connects to an endpoint; raises OSError, which is TimeoutError after so many seconds, or CommandError."""


@frozen
class Fetched:
    """A response of a node."""

    status: int
    headers: HTTPMessage
    """Their names are found in any case."""
    body: bytes


@frozen(kw_only=True)
class ListLimits:
    """How long a list may be that a node sends in pages."""

    pages: int = 1_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 300.0
    """Until the last page is asked for."""
    attempts: int = 1
    """How often a page is asked for that the node refuses for the rate of requests."""
    advice: str = "ask another node"


INTERACTIVE: Final = ListLimits()
"""Of a list for which a user waits."""


class NodeClient:
    """A client of one HTTP interface.

    Every method raises CommandError: ErrorResponse, NoValidResponse, or itself.
    """

    def __init__(
        self,
        connect: Connect,
        endpoint: NodeEndpoint,
        *,
        clock: BlockingClock,
        token: str | None = None,
        poll: Callable[[float], object] | None = None,
    ) -> None:
        """A bearer ``token`` goes with every request.

        ``poll`` is called with the seconds elapsed, twice a second while nothing of a response arrives.
        """
        self.clock = clock
        self._connect = connect
        self._endpoint = endpoint
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._poll = poll

    def get(self, path: str) -> ResponseObject:
        """The response to GET ``path``."""
        return self.parse(self.fetch("GET", path))

    def post(self, path: str, body: Mapping[str, object]) -> ResponseObject:
        """The response to POST ``path`` with ``body`` as JSON."""
        return self.parse(self.fetch("POST", path, json.dumps(body).encode("ascii"), headers=_JSON_HEADERS))

    def pages(self, path: str, limits: ListLimits = INTERACTIVE) -> Iterator[ResponseObject]:
        """Each page of the list at ``path``, which has a query; raises NoValidResponse for a list without an end.

        No page is asked for twice. One may be empty and not be the last: a node looks at a part of the chain for each.
        """
        name, start = self._endpoint.name, self.clock.monotonic()
        seen: set[str] = set()
        room, query = limits.bytes, ""
        while True:
            fetched = self._patiently(path + query, limits.attempts)
            page = self.parse(fetched)
            room -= len(fetched.body)
            yield page
            after = page.cursor()
            if after is None:
                return
            if after in seen:
                raise NoValidResponse(f"the list of {name} has no end: its page {after} comes again")
            seen.add(after)
            if room < 0 or len(seen) == limits.pages or self.clock.monotonic() - start > limits.seconds:
                raise NoValidResponse(
                    f"the list of {name} has more than {limits.pages} pages or {limits.bytes} bytes, or takes more than"
                    f" {limits.seconds:g} s: {limits.advice}"
                )
            query = f"&after={after}"

    def _patiently(self, path: str, attempts: int) -> Fetched:
        """The response to GET ``path``, asked for again if the node refuses it for the rate of requests."""
        for _ in range(attempts - 1):
            fetched = self.fetch("GET", path)
            if fetched.status != _TOO_MANY_REQUESTS:
                return fetched
            self.clock.sleep(_PAUSE)
        return self.fetch("GET", path)

    def fetch(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
    ) -> Fetched:
        """The response to a request, whatever its status, of at most ``max_bytes`` (default: those of an svcd node)."""
        name = self._endpoint.name
        max_bytes = MAX_RESPONSE_BYTES if max_bytes is None else max_bytes
        start = self.clock.monotonic()
        try:
            connection = self._connect(self._endpoint, self._endpoint.timeout)
        except OSError as error:
            raise CommandError(f"cannot connect to {name}: {_connect_failure(error)}; {self._endpoint.hint}") from None
        with closing(connection):
            exchange = _Exchange(connection, self._endpoint, self.clock, start, self._poll, max_bytes)
            http = HTTPConnection(urlsplit(self._endpoint.base_url).netloc)
            http.sock = exchange
            try:
                http.request(method, path, body, {"Connection": "close", **self._headers, **(headers or {})})
                response = http.getresponse()
                _check_plain(response, name)
                content = response.read(max_bytes + 1)
                if len(content) <= max_bytes and response.length:
                    raise IncompleteRead(content, response.length)
                if response.headers.defects:
                    # What comes after a malformed line is not read, and other clients may read it.
                    raise HTTPException
            except HTTPException as error:
                raise _no_complete_response(name, _protocol_failure(error)) from None
        if len(content) > max_bytes:
            raise _too_large(name, max_bytes)
        return Fetched(response.status, response.headers, content)

    def parse(self, fetched: Fetched) -> ResponseObject:
        """The object in a successful response."""
        status = fetched.status
        foreign = f"{self._endpoint.name} does not answer as an svcd node does (HTTP status {status})"
        try:
            response = parse_object(fetched.body, "the response")
        except NoValidResponse as error:
            raise NoValidResponse(f"{foreign}: {error}") from None
        if status in _SUCCESSES and "ok" in response and response.flag("ok"):
            return response
        if "error" in response:
            raise ErrorResponse(status, response.text("error"))
        raise NoValidResponse(foreign)


def ask_devnet(
    operator: NodeClient,
    path: str,
    body: Mapping[str, object],
    *,
    on_others: str = "the node does not support this command: only a devnet node does",
) -> ResponseObject:
    """The response to a request that only a devnet node takes; raises CommandError, ``on_others`` on other networks."""
    try:
        return operator.post(path, body)
    except ErrorResponse as error:
        if error.status == 404:
            raise CommandError(on_others) from None
        raise


class _Exchange(io.RawIOBase):
    """The socket of one request and its response, as http.client uses it, with one deadline for both."""

    def __init__(
        self,
        connection: NodeConnection,
        endpoint: NodeEndpoint,
        clock: BlockingClock,
        start: float,
        poll: Callable[[float], object] | None,
        max_bytes: int,
    ) -> None:
        """``max_bytes`` is for the content; headers and the lengths of chunks may have as much, and _FRAMING_BYTES."""
        self._connection = connection
        self._endpoint = endpoint
        self._clock = clock
        self._start = start
        self._poll = poll
        self._max_bytes = max_bytes
        self._room = 2 * max_bytes + _FRAMING_BYTES

    def sendall(self, data: bytes) -> None:
        """Send ``data``; raises NoValidResponse."""
        try:
            self._connection.send(data, self._left())
        except TimeoutError:
            raise self._late() from None
        except OSError as error:
            raise _no_complete_response(self._endpoint.name, _reason(error)) from None

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What is received, which raises NoValidResponse, or what ``poll`` raises."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Do nothing: http.client closes a socket before it reads the response, and NodeClient the connection."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Receive into ``buffer``; returns how many bytes, 0 at the end."""
        while True:
            left = self._left()
            try:
                data = self._connection.receive(len(buffer), left if self._poll is None else min(left, POLL_SECONDS))
            except TimeoutError:
                if self._poll is not None:
                    self._poll(self._clock.monotonic() - self._start)
                continue
            except OSError as error:
                raise _no_complete_response(self._endpoint.name, _reason(error)) from None
            # http.client takes whatever a length of -1, endless chunks or endless trailers announce.
            self._room -= len(data)
            if self._room < 0:
                raise _too_large(self._endpoint.name, self._max_bytes)
            buffer[: len(data)] = data
            return len(data)

    def _left(self) -> float:
        left = self._start + self._endpoint.timeout - self._clock.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> NoValidResponse:
        return NoValidResponse(f"{self._endpoint.name} did not answer within {self._endpoint.timeout:g} s")


def _check_plain(response: HTTPResponse, name: str) -> None:
    """Raise NoValidResponse for a redirect, and for a response that is compressed: it may be large without an end."""
    if response.status in _REDIRECTS:
        raise NoValidResponse(f"the response from {name} is a redirect, which svc does not follow: correct the URL")
    if any(coding.strip().lower() != "identity" for coding in response.headers.get_all("Content-Encoding", [])):
        raise NoValidResponse(f"the response from {name} is compressed, and plain was asked for; it may be a proxy's")


def _too_large(name: str, max_bytes: int) -> NoValidResponse:
    return NoValidResponse(f"the response from {name} has more than {max_bytes} bytes; no svcd node sends that much")


def _no_complete_response(name: str, reason: str) -> NoValidResponse:
    return NoValidResponse(f"no complete response from {name}: {reason}")


def _connect_failure(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "connection timed out"
    return _reason(error)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    return "connection failed" if error.errno is None else os.strerror(error.errno).lower()


def _protocol_failure(error: HTTPException) -> str:
    ended = isinstance(error, IncompleteRead | RemoteDisconnected)
    return "the connection was closed too early" if ended else "what it sent is not HTTP"
