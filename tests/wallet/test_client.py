"""Asking a node that is away, silent, too talkative, or none at all: each a sentence of its own."""

import gzip

import pytest
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.error import ConnectionRefusedError as Refusal
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from svcd.wallet import client
from tests.wallet.terminal import Fixed, Terminal, site_of

NAME = "http://127.0.0.1:8645"


def ask(terminal: Terminal, resource: Resource) -> str:
    """What `svc status` fails with when this answers."""
    terminal.public.site = site_of(resource, terminal.clock)
    return terminal.failure("status")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Refusal(osError=111), "connection refused"),
        (ConnectError(osError=101), "network is unreachable"),
        (ConnectTimeout(), "no connection came about"),
        (DNSLookupError("no results"), "there is no host of that name"),
    ],
)
def test_a_node_that_is_away(terminal: Terminal, failure: Exception, reason: str) -> None:
    terminal.public.failure = failure
    assert terminal.failure("status") == (
        f"no node answers at {NAME}: {reason}; is the node running? Say with --url or SVCD_URL where it is"
    )


def test_a_socket_that_is_not_there(terminal: Terminal) -> None:
    terminal.operator.failure = ConnectError(osError=2)
    assert terminal.failure("node", "status") == (
        "no node answers at data/operator.sock: no such file or directory; is the node running?"
        " Say with --data-dir or SVCD_DATA_DIR where its data directory is"
    )


def test_a_refusal_is_told_in_the_node_s_words(terminal: Terminal) -> None:
    assert ask(terminal, Fixed((429, b'{"ok":false,"error":"too many requests; try again in 3 s"}'))) == (
        "too many requests; try again in 3 s"
    )


def test_hostile_words_cannot_drive_the_terminal(terminal: Terminal) -> None:
    assert ask(terminal, Fixed((400, b'{"ok":false,"error":"\\u001b[2Jgone\\nError: \\u202e"}'))) == (
        r"\x1b[2Jgone\nError: \u202e"
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"ok":1}'),
        (200, b'{"ok":false}'),
        (200, b'{"ok":false,"error":7}'),
        (200, b"[" * 100_000),
        (200, b'{"ok":' + b"9" * 5000),
        (301, b'{"ok":true}'),
        (502, b"Bad Gateway"),
    ],
)
def test_something_that_is_no_node(terminal: Terminal, status: int, body: bytes) -> None:
    assert ask(terminal, Fixed((status, body))) == f"{NAME} does not answer as an svcd node does (HTTP status {status})"


def test_a_member_that_is_missing(terminal: Terminal) -> None:
    assert ask(terminal, Fixed()) == ("the node does not answer as svcd does: the answer lacks the field status")


def test_silence_ends_at_the_deadline(terminal: Terminal, clock: Clock) -> None:
    began = clock.seconds()
    assert ask(terminal, Fixed((200, None))) == f"{NAME} did not answer within 30 s"
    assert clock.seconds() - began == 30


class Drip(Protocol):
    """Begins an answer and sends a byte a second for ever."""

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


def test_dripping_ends_at_the_deadline_too(terminal: Terminal, clock: Clock) -> None:
    terminal.public.site = Factory.forProtocol(lambda: Drip(clock))
    began = clock.seconds()
    assert terminal.failure("status") == f"{NAME} did not answer within 30 s"
    assert clock.seconds() - began == 30


class Hangup(Protocol):
    """Ends the connection after these bytes."""

    said = b""

    def dataReceived(self, _data: bytes) -> None:  # noqa: N802
        self.transport.write(self.said)
        self.transport.loseConnection()


class HalfAnswer(Hangup):
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"


class Gibberish(Hangup):
    said = b"220 mail.example.org ESMTP\r\n"


@pytest.mark.parametrize("protocol", [Hangup, HalfAnswer, Gibberish])
def test_an_answer_that_is_cut_off(terminal: Terminal, protocol: type[Hangup]) -> None:
    terminal.public.site = Factory.forProtocol(protocol)
    assert terminal.failure("status").startswith(f"{NAME} gave no whole answer: ")


TOO_LONG = f"{NAME} answers with more than 1000 bytes; no svcd node does that"


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1000)


@pytest.mark.usefixtures("_small")
def test_an_answer_is_cut_off_at_its_limit(terminal: Terminal) -> None:
    fitting = b'{"ok":true,"status":"%s"}'
    text = b"x" * (1000 - len(fitting) + 2)
    assert ask(terminal, Fixed((200, fitting % text))).endswith("status must be a JSON object")
    assert ask(terminal, Fixed((200, fitting % (text + b"x")))) == TOO_LONG


class Gzipped(Fixed):
    def render(self, request: object) -> object:
        request.setHeader(b"Content-Encoding", b"gzip")  # type: ignore[attr-defined]
        return gzip.compress(b" " * 1_000_000)


@pytest.mark.usefixtures("_small")
def test_a_packed_answer_counts_unpacked(terminal: Terminal) -> None:
    assert ask(terminal, Gzipped()) == TOO_LONG


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
    assert ask(terminal, resource) == f"{NAME} does not answer as an svcd node does (HTTP status 302)"
    assert resource.seen == 1
