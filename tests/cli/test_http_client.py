"""Requests to nodes that are unreachable, silent, too verbose, or no svcd node: each fails with its own sentence."""

import json
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from svcd.cli import http_client
from svcd.cli.answers import ResponseObject, dumps, parse_object
from svcd.cli.errors import CommandError, NoValidResponse
from svcd.cli.http_client import is_exposed, operator_endpoint, public_endpoint
from svcd.cli.operator import backup
from svcd.cli.operator import node as operator_node
from svcd.cli.session import Session
from svcd.commerce import payment_waiters
from svcd.visible_text import visible
from tests.cli.terminal import Fixed, Terminal, site_of
from tests.operating.test_log_secrecy import ROUTES

NAME = "http://127.0.0.1:8645"


def ask(terminal: Terminal, resource: Resource) -> str:
    """The failure of `svc status` with this resource as the node."""
    terminal.public.site = site_of(resource, terminal.clock)
    return terminal.failure("status")


@pytest.mark.parametrize(
    ("url", "exposed"),
    [
        ("http://127.0.0.1:8645", False),
        ("http://127.8.0.1", False),
        ("http://[::1]:8645", False),
        ("http://[::ffff:127.0.0.1]", False),
        ("http://localhost:8645", False),
        ("http://LOCALHOST", False),
        ("http://node.localhost", False),
        ("https://node.example.org", False),
        ("http://node.example.org", True),
        ("http://10.0.0.5:8645", True),
        ("http://[fd00::1]", True),
        ("http://[::ffff:10.0.0.5]", True),
        ("http://127.1", True),
        ("http://127.0.0.1.example.org", True),
        ("http://localhost.example.org", True),
    ],
)
def test_http_is_exposed_beyond_this_computer(url: str, exposed: bool) -> None:
    assert is_exposed(url) is exposed


WARNING = (
    "Warning: http://node.example.org is not encrypted: others on the way can read and change requests and answers. Use"
    " https://, or a tunnel to this computer.\n"
)


def test_http_to_another_host_is_warned_of_once(terminal: Terminal) -> None:
    session = Session(terminal.runtime(), url="http://node.example.org")
    terminal.public.site = site_of(Fixed((200, b'{"ok":true,"one":{}}')), terminal.clock)
    with CliRunner().isolation() as (_, err, *_):
        for _ in range(2):
            session.node().get("/rpc/status")
        assert err.getvalue().decode() == WARNING
    told = terminal.invoke("status", "--url", "http://node.example.org", "--json")
    assert told.stderr.startswith(WARNING)
    assert "Warning" not in terminal.invoke("status", "--url", "https://node.example.org").output


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ConnectionRefusedError(111, "any"), "connection refused"),
        (OSError(101, "any"), "network is unreachable"),
        (TimeoutError(), "connection timed out"),
        (socket.gaierror(socket.EAI_AGAIN, "any"), "unknown host"),
    ],
)
def test_connection_failures_are_reported(terminal: Terminal, failure: OSError, reason: str) -> None:
    terminal.public.failure = failure
    assert terminal.failure("status") == (
        f"cannot connect to {NAME}: {reason}; is the node running? Give its URL with --url or SVCD_URL"
    )


def test_a_missing_socket_is_reported(terminal: Terminal) -> None:
    terminal.operator.failure = OSError(2, "any")
    assert terminal.failure("node", "status") == (
        "cannot connect to data/operator.sock: no such file or directory; is the node running?"
        " Give its data directory with --data-dir or SVCD_DATA_DIR"
    )


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (b"too many requests; try again in 3 s", "too many requests; try again in 3 s"),
        (rb"\u001b[2Jgone\nError: \u202e", r"\u{1b}[2Jgone\u{a}Error: \u{202e}"),
    ],
)
def test_error_responses_are_printed_with_control_characters_escaped(
    terminal: Terminal, error: bytes, printed: str
) -> None:
    assert ask(terminal, Fixed((429, b'{"ok":false,"error":"%b"}' % error))) == printed


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"ok":false}'),
        (502, b"Bad Gateway"),
    ],
)
def test_responses_of_other_servers_are_rejected(terminal: Terminal, status: int, body: bytes) -> None:
    foreign = f"{NAME} does not answer as an svcd node does (HTTP status {status})"
    assert ask(terminal, Fixed((status, body))).startswith(foreign)


def test_a_missing_field_is_reported(terminal: Terminal) -> None:
    assert ask(terminal, Fixed()) == ("the node does not answer as svcd does: the response lacks the field status")


def test_a_silent_node_times_out(terminal: Terminal, clock: Clock) -> None:
    began = clock.seconds()
    assert ask(terminal, Fixed((200, None))) == f"{NAME} did not answer within 30 s"
    assert clock.seconds() - began == 30


class Drip(Protocol):
    """Begins a response and sends one byte per second forever."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def dataReceived(self, _data: bytes) -> None:  # noqa: N802
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        self._drip()

    def _drip(self) -> None:
        if self.connected:
            self.transport.write(b" ")
            self._timer = self._clock.callLater(1, self._drip)

    def connectionLost(self, *_reason: object) -> None:  # noqa: N802
        self._timer.cancel()


def test_a_slow_response_times_out(terminal: Terminal, clock: Clock) -> None:
    terminal.public.site = Factory.forProtocol(lambda: Drip(clock))
    began = clock.seconds()
    assert terminal.failure("status") == f"{NAME} did not answer within 30 s"
    assert clock.seconds() - began == 30


class Hangup(Protocol):
    """Closes the connection after these bytes."""

    said = b""

    def dataReceived(self, _data: bytes) -> None:  # noqa: N802
        self.transport.write(self.said)
        self.transport.loseConnection()


class HalfAnswer(Hangup):
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"


class Gibberish(Hangup):
    said = b"220 mail.example.org ESMTP\r\n"


@pytest.mark.parametrize("protocol", [Hangup, HalfAnswer, Gibberish])
def test_a_truncated_response_is_reported(terminal: Terminal, protocol: type[Hangup]) -> None:
    terminal.public.site = Factory.forProtocol(protocol)
    assert terminal.failure("status").startswith(f"no complete response from {NAME}: ")


TOO_LONG = f"the response from {NAME} has more than 1000 bytes; no svcd node sends that much"


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_RESPONSE_BYTES", 1000)


@pytest.mark.usefixtures("_small")
def test_a_response_may_have_the_maximum_size_and_no_more(terminal: Terminal) -> None:
    fitting = b'{"ok":true,"status":"%s"}'
    text = b"x" * (1000 - len(fitting) + 2)
    assert ask(terminal, Fixed((200, fitting % text))).endswith("status must be a JSON object")
    assert ask(terminal, Fixed((200, fitting % (text + b"x")))) == TOO_LONG


class Endless(Hangup):
    """What a client of HTTP reads before it reads the content, or in the place of its length, without an end."""

    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    def dataReceived(self, _data: bytes) -> None:  # noqa: N802
        self.transport.write(self.head + self.said + b"x" * 70_000)


class NegativeLength(Endless):
    said = b"-1\r\n"


class Trailers(Endless):
    said = b"0\r\n" + b"a: b\r\n" * 10


class Interim(Endless):
    head = b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("protocol", [NegativeLength, Trailers, Interim])
def test_no_more_is_read_than_a_response_can_have(terminal: Terminal, protocol: type[Endless]) -> None:
    terminal.public.site = Factory.forProtocol(protocol)
    failure = terminal.failure("status")
    assert failure == TOO_LONG or failure == f"no complete response from {NAME}: what it sent is not HTTP"


class Compressed(Resource):
    """Answers which encodings of a response the client takes."""

    isLeaf = True  # noqa: N815

    def render(self, request: Any) -> bytes:
        return b'{"ok":true,"status":"%s"}' % request.getHeader("Accept-Encoding").encode()


def test_no_compressed_response_is_asked_for(terminal: Terminal) -> None:
    """A small one could be very large once it is decompressed."""
    terminal.public.site = site_of(Compressed(), terminal.clock)
    assert Session(terminal.runtime()).node().get("/rpc/status").text("status") == "identity"


class Malformed(Hangup):
    said = b"HTTP/1.1 200 OK\r\nno header\r\nRefresh: 0; url=https://other.example\r\nContent-Length: 2\r\n\r\n{}"


def test_a_malformed_header_hides_no_other(terminal: Terminal) -> None:
    terminal.public.site = Factory.forProtocol(Malformed)
    assert terminal.failure("status") == f"no complete response from {NAME}: what it sent is not HTTP"


class Redirect(Resource):
    isLeaf = True  # noqa: N815

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def render(self, request: object) -> bytes:
        self.seen += 1
        request.redirect(b"http://127.0.0.1:8645/rpc/other")  # type: ignore[attr-defined]
        return b""


def test_redirects_are_not_followed(terminal: Terminal) -> None:
    resource = Redirect()
    assert ask(terminal, resource) == (
        f"the response from {NAME} is a redirect, which svc does not follow: correct the URL"
    )
    assert resource.seen == 1


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8645", "http://127.0.0.1:8645"),
        ("https://node.example.org/", "https://node.example.org"),
        ("http://[::1]:8645", "http://[::1]:8645"),
        ("http://localhost:65535", "http://localhost:65535"),
    ],
)
def test_a_url_names_scheme_host_and_port(url: str, base: str) -> None:
    place = public_endpoint(url)
    assert (place.base_url, place.name) == (base, base)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8645",
        "ftp://localhost",
        "http://",
        "http://user@host",
        "http://host:0",
        "http://host:65536",
        "http://host/rpc",
        "http://host?x",
        "http://host#x",
        "http://ho st",
        "http://::1",
        "http://[1.2]",
        "http://[1:2]",
        "http://h\u00f6st",
        "http://host\n",
    ],
)
def test_invalid_urls_are_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="a node's URL is http:// or https://, a host and an optional port"):
        public_endpoint(url)


def test_the_socket_path_is_limited_by_the_kernel() -> None:
    assert operator_endpoint("d" * 107).name == "d" * 107
    for path in ("d" * 108, "ü" * 54):
        with pytest.raises(CommandError, match="is too long for a Unix socket; give a relative path with --data-dir"):
            operator_endpoint(path)


def test_the_operator_s_timeout_is_longer() -> None:
    assert operator_endpoint("s").timeout > public_endpoint("http://h").timeout


def test_every_timeout_is_longer_than_the_node_s_own_deadline() -> None:
    patience = {"/operator/backup": backup.TIMEOUT} | dict.fromkeys(
        ("/operator/mine", "/operator/reorganise"), operator_node.DEVNET_TIMEOUT
    )
    for route in ROUTES:
        place = operator_endpoint("s") if route.bucket == "operator" else public_endpoint("http://h")
        if not route.path.startswith("/p2p/"):
            # svc never asks a route to wait for a change.
            waits = payment_waiters.MAX_SECONDS if any(field.name == "wait" for field in route.query_fields) else 0
            assert patience.get(route.path, place.timeout) > route.seconds - waits, route.path


ANSWER = ResponseObject(
    "account",
    {"text": "a", "number": "7", "count": 7, "object": {"x": "y"}, "list": [{}], "none": None, "texts": ["a"]},
)


def test_fields_of_every_type() -> None:
    assert ANSWER.text("text") == "a"
    assert ANSWER.number("number") == 7
    assert ANSWER.count("count") == 7
    assert ANSWER.object("object") == ResponseObject("object", {"x": "y"})
    assert ANSWER.objects("list") == [ResponseObject("list[0]", {})]
    assert ANSWER.texts("texts") == ["a"]


def test_a_null_field_counts_as_absent() -> None:
    assert "text" in ANSWER
    assert "none" not in ANSWER
    assert "other" not in ANSWER


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: ANSWER.text("gone"), "account lacks the field gone"),
        (lambda: ANSWER.text("count"), r"account\.count must be a string"),
        (lambda: ANSWER.number("count"), r"account\.count must be a decimal string"),
        (lambda: ANSWER.number("text"), r"account\.text must be a decimal string"),
        (lambda: ANSWER.count("number"), r"account\.number must be a whole JSON number"),
        (lambda: ANSWER.object("list"), "list must be a JSON object"),
        (lambda: ANSWER.object("object").object("x"), "x must be a JSON object"),
        (lambda: ANSWER.objects("object"), r"account\.object must be an array"),
        (lambda: ANSWER.objects("texts"), r"texts\[0\] must be a JSON object"),
        (lambda: ANSWER.texts("text"), r"account\.text must be an array of strings"),
        (lambda: ANSWER.texts("list"), r"account\.list must be an array of strings"),
        (lambda: ANSWER.flag("count"), r"account\.count must be true or false"),
        (lambda: ANSWER.quantity("number"), r"account\.number must be a number"),
        (lambda: ANSWER.hash("text"), r"account\.text must be 64 lower-case hex digits"),
        (lambda: ANSWER.check(text="b"), r"account\.text is not 'b', which was requested"),
        (lambda: ANSWER.check(count=True), r"account\.count is not True, which was requested"),
        (lambda: ANSWER.check(text=None), r"account\.text is there, and was not requested"),
    ],
)
def test_mistyped_fields_are_reported(read: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        read()


def test_an_answer_may_have_fractions_and_sixteen_levels() -> None:
    assert parse_object(b'{"a":1.5}', "answer") == ResponseObject("answer", {"a": 1.5})
    assert "a" in parse_object(b'{"a":' + b"[" * 15 + b"]" * 15 + b"}", "answer")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON: expecting value at character 0"),
        (b"[7]", "answer must be a JSON object"),
        (b"\xff", "byte 0 is not UTF-8; JSON must be UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON: expecting value at character 0"),
        (b'{"a":1,"a":1}', 'the key "a" occurs twice in one object; a key may occur once'),
        (b'{"a":NaN}', "NaN is not JSON; numbers must be whole"),
        (b'{"a":1e999}', "1e999 is too large for a number"),
        (b'{"a":' + b"[" * 16 + b"]" * 16 + b"}", "the JSON is nested more than 16 levels deep"),
        (b"[" * 100_000, "the JSON is nested more than 16 levels deep"),
    ],
)
def test_only_objects_of_strict_json_are_responses(data: bytes, sentence: str) -> None:
    with pytest.raises(NoValidResponse) as refused:
        parse_object(data, "answer")
    assert str(refused.value) == sentence


@given(st.text())
def test_a_text_of_a_node_is_shown_visibly_and_a_program_gets_it_unchanged(text: str) -> None:
    answer = ResponseObject("answer", {"a": text, "b": [text]})
    assert answer.text("a") == visible(text)
    assert answer.texts("b") == answer.shown()["b"] == [visible(text)]
    for printed in (dumps(answer), dumps({"a": answer.verbatim("a"), "b": answer.verbatim("b")}, indent=2)):
        assert printed.isascii()
        assert not re.search("[^ -~\n]", printed)
        assert json.loads(printed) == {"a": text, "b": [text]}


def test_a_text_of_a_node_has_a_bound() -> None:
    for read in (lambda each: each.text("a"), lambda each: each.shown()):
        assert read(ResponseObject("answer", {"a": "x" * 4_096}))
        with pytest.raises(NoValidResponse, match="has 4097 characters, more than 4096"):
            read(ResponseObject("answer", {"a": "x" * 4_097}))
