"""Servers on loopback that answer as a test says, well or badly, and tell what reached them."""

# ruff: noqa: N802

from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.internet import reactor, task
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions

POLL_SECONDS = 0.01
GIVE_UP_SECONDS = 60.0


@frozen
class Received:
    """One request as it came."""

    line: bytes
    headers: dict[bytes, bytes]
    body: bytes


class Conversation(Protocol):
    """One connection; every request on it goes to the server's script."""

    factory: "Server"
    data = b""

    def connectionMade(self) -> None:
        self.factory.connections += 1
        self.factory.open.add(self)
        self.factory.most_open = max(self.factory.most_open, len(self.factory.open))

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        head, separator, rest = self.data.partition(b"\r\n\r\n")
        if not separator:
            return
        line, *fields = head.split(b"\r\n")
        headers = dict(field.lower().split(b": ", 1) for field in fields)
        length = int(headers.get(b"content-length", b"0"))
        if len(rest) >= length:
            self.data = rest[length:]
            self.factory.requests.append(Received(line, headers, rest[:length]))
            self.factory.script(self)

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.open.discard(self)

    def say(self, data: bytes) -> None:
        self.transport.write(data)


Script = Callable[[Conversation], object]


class Server(Factory):
    """Counts connections and keeps requests; ``port`` is where it listens."""

    protocol = Conversation
    noisy = False

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.most_open = 0
        self.open: set[Conversation] = set()
        self.requests: list[Received] = []
        self.listening: Any = None

    def listen(self, interface: str, tls: CertificateOptions | None, port: int = 0) -> None:
        if tls is None:
            self.listening = reactor.listenTCP(port, self, interface=interface)
        else:
            self.listening = reactor.listenSSL(port, self, tls, interface=interface)

    @property
    def port(self) -> int:
        return self.listening.getHost().port

    async def stop(self) -> None:
        await self.listening.stopListening()
        for conversation in tuple(self.open):
            conversation.transport.abortConnection()
        await until(lambda: not self.open)


def answer(body: bytes = b"ok", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole HTTP answer."""
    fields = [*headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([b"HTTP/1.1 " + status, *fields, b"", body])


def saying(data: bytes) -> Script:
    """A script that says one thing to every request."""
    return lambda conversation: conversation.say(data)


def silent(_conversation: Conversation) -> None:
    """A script that never answers."""


def dripping(head: bytes) -> Script:
    """A script that says ``head`` and then one letter after the other, for ever."""

    def drip(conversation: Conversation) -> None:
        conversation.say(head)
        loop = task.LoopingCall(conversation.say, b"x")
        loop.start(0.02, now=False)
        lost = conversation.connectionLost

        def connection_lost(reason: Any) -> None:
            loop.stop()
            lost(reason)

        conversation.connectionLost = connection_lost  # type: ignore[method-assign]

    return drip


async def until(condition: Callable[[], object]) -> None:
    """Wait for something to come true; an AssertionError if it does not."""
    give_up_at = reactor.seconds() + GIVE_UP_SECONDS
    while not condition():
        assert reactor.seconds() < give_up_at, "it did not come true"
        await pause(POLL_SECONDS)
    # The other end of a connection that was closed here hears of it in the next turn of the reactor.
    await pause(0)


def pause(seconds: float) -> "Deferred[None]":
    return task.deferLater(reactor, seconds)
