"""Requests to a node over TCP or its Unix socket: a deadline, a bounded response, a sentence for every failure."""

# Twisted's web client is not annotated, and its interfaces use camelCase.
# mypy: allow-untyped-calls
# ruff: noqa: N802

import json
import os
import re
import stat
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from treq import collect
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.chain.encoding import decimal_u53, integer
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.cli.errors import CommandError, ErrorResponse, NoValidResponse
from svcd.commerce.payment_request import PaymentTerms, status_path
from svcd.interfaces import Clock
from svcd.request_body import WholeBody

MAX_DEPTH: Final = 32
"""Nesting levels of a response, so that no recursive function exhausts the stack."""


@frozen
class ResponseObject:
    """One JSON object in a node's response; ``name`` locates it in errors. Every method raises NoValidResponse."""

    name: str
    members: Mapping[str, object]

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def value(self, name: str) -> object:
        """The field ``name``, of any type."""
        if name not in self.members:
            raise invalid_response(f"{self.name} lacks the field {name}")
        return self.members[name]

    def object(self, name: str) -> "ResponseObject":
        """The object in the field ``name``."""
        return _as_object(self.value(name), name)

    def objects(self, name: str) -> "list[ResponseObject]":
        """The array of objects in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, list):
            raise invalid_response(f"{self.name}.{name} must be an array")
        return [_as_object(item, f"{name}[{position}]") for position, item in enumerate(value)]

    def text(self, name: str) -> str:
        """The string in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, str):
            raise invalid_response(f"{self.name}.{name} must be a string")
        return value

    def texts(self, name: str) -> list[str]:
        """The array of strings in the field ``name``."""
        value = self.value(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid_response(f"{self.name}.{name} must be an array of strings")
        return value

    def number(self, name: str) -> int:
        """The decimal string in the field ``name``, as heights, amounts and times are encoded."""
        try:
            return decimal_u53(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def count(self, name: str) -> int:
        """The JSON integer in the field ``name``, as counts and confirmations are encoded."""
        try:
            return integer(self.value(name), f"{self.name}.{name}")
        except RuleViolation as violation:
            raise invalid_response(violation.detail) from None

    def network(self) -> NetworkParams:
        """The network whose id is in the field ``networkId``."""
        number = self.count("networkId")
        for params in NETWORKS.values():
            if params.network_id == number:
                return params
        raise invalid_response(f"{self.name} is on network {number}, which svc does not know")


def invalid_response(detail: str) -> NoValidResponse:
    """The error for a response that breaks the API in the way that ``detail`` says."""
    return NoValidResponse(f"the node does not answer as svcd does: {detail}")


def parse_object(data: bytes, name: str) -> ResponseObject | None:
    """The JSON object in ``data``; None for anything else, and for one nested deeper than ``MAX_DEPTH``."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return ResponseObject(name, value) if isinstance(value, dict) and _is_shallow(value, MAX_DEPTH) else None


def _as_object(value: object, name: str) -> ResponseObject:
    if not isinstance(value, dict):
        raise invalid_response(f"{name} must be a JSON object")
    return ResponseObject(name, value)


def _is_shallow(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in inner)


TIMEOUT: Final = 30.0
"""Seconds for a request to the public interface."""
OPERATOR_TIMEOUT: Final = 120.0
"""Seconds for a request to the operator's interface."""
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
"""More than three full blocks."""
MAX_SOCKET_PATH: Final = 107
"""Bytes in the path of a Unix socket (unix(7))."""

_URL: Final = re.compile(r"(https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?)/?")
_SUCCESSES: Final = (200, 201, 202)
_JSON_HEADERS: Final[dict[bytes | str, bytes | str]] = {"Content-Type": "application/json"}


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


def public_endpoint(url: str) -> NodeEndpoint:
    """The public interface at ``url``; raises ValueError."""
    match = _URL.fullmatch(url)
    if match is None or int(match[2] or 1) not in range(1, 65536):
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
    return NodeEndpoint("http://localhost", socket, hint, timeout)


class NodeClient:
    """A client of one HTTP interface.

    Every method raises CommandError: ErrorResponse, NoValidResponse, or itself; and CancelledError once cancelled.
    """

    def __init__(self, agent: Any, endpoint: NodeEndpoint, *, clock: Clock, token: str | None = None) -> None:
        """``agent`` is an IAgent that connects to ``endpoint``; a bearer ``token`` goes with every request."""
        self.clock = clock
        self._endpoint = endpoint
        # Any: mypy does not see that a class provides a zope interface.
        producer: Any = WholeBody
        self._client = HTTPClient(agent, data_to_body_producer=producer)
        self._headers: Mapping[bytes | str, bytes | str] = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def get(self, path: str) -> ResponseObject:
        """The response to GET ``path``."""
        return await self._with_timeout(self._request("GET", path, None))

    async def post(self, path: str, body: Mapping[str, object]) -> ResponseObject:
        """The response to POST ``path`` with ``body`` as JSON."""
        return await self._with_timeout(self._request("POST", path, json.dumps(body).encode("ascii")))

    async def _with_timeout(self, request: Coroutine[Any, Any, ResponseObject]) -> ResponseObject:
        def timed_out(result: ResponseObject | Failure, seconds: float) -> ResponseObject | Failure:
            if isinstance(result, Failure):
                return Failure(NoValidResponse(f"{self._endpoint.name} did not answer within {seconds:g} s"))
            return result

        clock: Any = self.clock
        return await Deferred.fromCoroutine(request).addTimeout(self._endpoint.timeout, clock, timed_out)

    async def _request(self, method: str, path: str, body: bytes | None) -> ResponseObject:
        received = bytearray()

        def receive(chunk: bytes) -> None:
            received.extend(chunk)
            if len(received) > MAX_RESPONSE_BYTES:
                raise NoValidResponse(
                    f"the response from {self._endpoint.name} has more than {MAX_RESPONSE_BYTES} bytes;"
                    " no svcd node sends that much"
                )

        clock: Any = self.clock
        try:
            response = await self._client.request(
                method,
                self._endpoint.base_url + path,
                data=body,
                headers={**self._headers, **({} if body is None else _JSON_HEADERS)},
                allow_redirects=False,
                unbuffered=True,
                reactor=clock,
            )
            await collect(response, receive)
        except (ConnectError, DNSLookupError) as error:
            raise CommandError(
                f"cannot connect to {self._endpoint.name}: {_connect_failure(error)}; {self._endpoint.hint}"
            ) from None
        except (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived, ConnectionClosed) as error:
            if any(failure.check(CancelledError) for failure in getattr(error, "reasons", [])):
                raise CancelledError from None
            raise NoValidResponse(f"no complete response from {self._endpoint.name}: {_causes(error)}") from None
        return self._parse(response.code, bytes(received))

    def _parse(self, status: int, body: bytes) -> ResponseObject:
        response = parse_object(body, "the response")
        if response is not None and status in _SUCCESSES and response.members.get("ok") is True:
            return response
        if response is not None and isinstance(response.members.get("error"), str):
            raise ErrorResponse(status, response.text("error"))
        raise NoValidResponse(f"{self._endpoint.name} does not answer as an svcd node does (HTTP status {status})")


def _connect_failure(error: ConnectError | DNSLookupError) -> str:
    if isinstance(error, DNSLookupError):
        return "unknown host"
    number = getattr(error, "osError", None)
    return os.strerror(number).lower() if isinstance(number, int) else "connection failed"


def _causes(error: Exception) -> str:
    failures = getattr(error, "reasons", [])
    causes = [str(failure.value) for failure in failures] or [str(error)]
    return "; ".join(causes).rstrip(".")


def tcp_agent(reactor: Any) -> Any:
    """An IAgent that connects over TCP, with TLS for https."""
    return Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))


def unix_socket_agent(reactor: Any, socket: str) -> Any:
    """An IAgent that connects to the Unix socket with the path ``socket``, for any URL.

    Run as root, requests raise CommandError unless the path is a socket of root or of the directory's owner, and not a
    link: the owner could otherwise redirect root's orders to another program.
    """
    pool = HTTPConnectionPool(reactor, persistent=False)
    return Agent.usingEndpointFactory(reactor, _SocketEndpointFactory(reactor, socket), pool)


@implementer(IAgentEndpointFactory)
@frozen
class _SocketEndpointFactory:
    reactor: Any
    path: str

    def endpointForURI(self, _uri: URI) -> Any:
        if os.geteuid() == 0:
            return _CheckedSocketEndpoint(self.reactor, Path(self.path))
        return UNIXClientEndpoint(self.reactor, self.path)


@implementer(IStreamClientEndpoint)
@frozen
class _CheckedSocketEndpoint:
    """Connects to the very socket that was checked, even if another file takes its name in the meantime."""

    reactor: Any
    path: Path

    def connect(self, factory: Any) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: Any) -> Any:
        try:
            with (
                _path_descriptor(self.path.parent, os.O_DIRECTORY) as directory,
                _path_descriptor(self.path.name, os.O_NOFOLLOW, directory) as socket,
            ):
                self._check(os.fstat(socket), os.fstat(directory))
                return await UNIXClientEndpoint(self.reactor, f"/proc/self/fd/{socket}").connect(factory)
        except OSError as error:
            raise ConnectError(error.errno, error.strerror) from error

    def _check(self, found: os.stat_result, directory: os.stat_result) -> None:
        if not stat.S_ISSOCK(found.st_mode) or found.st_nlink != 1 or found.st_uid not in (0, directory.st_uid):
            raise CommandError(
                f"root does not connect to {self.path}: it must be a socket of the directory's owner, and no link; "
                "run the command as that user, or find out who created it"
            )


@contextmanager
def _path_descriptor(path: str | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """A descriptor that identifies a file but can neither read nor write it (O_PATH in open(2))."""
    descriptor = os.open(path, flags | os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def payment_status(node: NodeClient, terms: PaymentTerms) -> ResponseObject:
    """The node's payment object for ``terms``; raises CommandError, also if it is for other terms."""
    payment = (await node.get(status_path(terms))).object("payment")
    expected = {"reference": terms.reference, "recipient": terms.recipient, "amount": str(terms.amount)}
    if terms.since_height is not None:
        expected["sinceHeight"] = str(terms.since_height)
    for name, value in expected.items():
        if payment.text(name) != value:
            raise invalid_response(f"payment.{name} is {payment.text(name)!r}, but {value!r} was requested")
    if payment.count("requiredConfirmations") != terms.required:
        raise invalid_response(f"payment.requiredConfirmations is not {terms.required}, which was requested")
    return payment
