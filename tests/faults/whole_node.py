"""A whole node in memory: what svcd/composition builds from a configuration, on real files, without sockets.

Its pools run each job at once, its reactor's time is moved by the test, and its ports are factories that
`tests/web/wire.py` connects to.
"""

import gc
import json
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, execute, maybeDeferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.python.failure import Failure

from svcd.composition.lifecycle import node_services, open_chain_and_webhooks
from svcd.composition.resources import NodeResources, OpenDatabases, ThreadPools, stop_seconds
from svcd.config.schema import Config
from svcd.node.database_health import DatabaseHealth
from svcd.node.threads import ThreadPoolService
from svcd.process.hangup import HangUp
from svcd.process.logs import json_line
from svcd.process.shutdown import StopDeadline
from svcd.process.systemd import Notifier, StartTimeout
from tests.support import has_result, result_of
from tests.web.wire import Response, Wire

# Twisted's interfaces use camelCase.
# ruff: noqa: N802, N815

P = ParamSpec("P")
T = TypeVar("T")
_IMMEDIATE_TURNS = 100
TURNS = 2_000
"""Turns of the reactor after which an answer will not come any more."""


class Reactor(MemoryReactorClock):
    """Twisted's reactor in memory, whose threads are the caller's."""

    def __init__(self, unix_seconds: float) -> None:
        super().__init__()
        self.rightNow = unix_seconds

    def callFromThread(self, call: Callable[..., object], *args: object, **named: object) -> None:
        """Call at once."""
        call(*args, **named)


class InlinePool(ThreadPoolService):
    """A pool that runs each job at once, in the caller's thread."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.interfaces.Worker`."""
        return execute(function, *args, **kwargs)

    def startService(self) -> None:
        """Start no thread."""
        Service.startService(self)

    def stopService(self) -> Deferred[None]:
        """End at once."""
        Service.stopService(self)
        return succeed(None)


class Receiver(StringTransport):
    """A merchant's end of a connection: takes one event, and answers 200."""

    def __init__(self, heard: list[bytes], reactor: Reactor) -> None:
        super().__init__()
        self._heard, self._reactor = heard, reactor
        self.protocol: Any = None
        self._answered = False

    def write(self, data: bytes) -> None:
        """Answer once the whole request is here."""
        super().write(data)
        self._look()

    def writeSequence(self, data: Any) -> None:
        """See :meth:`write`."""
        self.write(b"".join(data))

    def _look(self) -> None:
        head, found, body = self.value().partition(b"\r\n\r\n")
        if self._answered or not found:
            return
        sizes = [int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-le")]
        if len(body) >= sum(sizes):
            self._answered = True
            self._heard.append(bytes(self.value()))
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            self._reactor.callLater(0, lambda: self.protocol.dataReceived(answer))

    def loseConnection(self) -> None:
        """The node has seen enough."""
        if self.connected:
            self.connected = False
            self._reactor.callLater(0, self.protocol.connectionLost, Failure(ConnectionDone()))

    abortConnection = loseConnection


class WholeNode:
    """An open node; :meth:`stop` it."""

    def __init__(self, config: Config, unix_seconds: float) -> None:
        self.reactor = Reactor(unix_seconds)
        self.damage_told = False
        """Whether the node has told its operator of damage, and stops for that."""
        self.lines: list[dict[str, Any]] = []
        """What it logs while it is started and until it is stopped."""
        self._health = DatabaseHealth(self._stop_for_damage)
        self.heard: list[bytes] = []
        """The requests with which it has delivered events."""
        self._config = config
        self._databases: OpenDatabases | None = None
        self._services: list[Service] = []
        self._calls = 0

    def start(self) -> None:
        """Open everything; raises what a node ends with that cannot start."""
        config, reactor = self._config, self.reactor
        pools = ThreadPools(**{name: InlinePool(reactor, size=1, name=name) for name in ThreadPools.__annotations__})
        globalLogPublisher.addObserver(self._observe)
        opening = open_chain_and_webhooks(config, pools, reactor, self._health)
        databases = self._databases = self._wait(Deferred.fromCoroutine(opening))
        resources = NodeResources(
            config=config,
            databases=databases,
            pools=pools,
            reactor=reactor,
            health=self._health,
            read_config=lambda: config,
            hang_up=HangUp(reactor, lambda: False),
            deadline=StopDeadline(reactor, stop_seconds(config)),
            log=None,
            start_timeout=StartTimeout(Notifier(), reactor),
        )
        for service in node_services(resources):
            self._wait(maybeDeferred(service.startService))
            self._services.append(service)
        self.public: Any = reactor.tcpServers[0][1]
        self.operator: Any = reactor.unixServers[0][1]

    def stop(self) -> None:
        """Stop the services, and close the files."""
        try:
            while self._services:
                self._wait(maybeDeferred(self._services.pop().stopService))
            if self._databases is not None:
                self._wait(Deferred.fromCoroutine(self._databases.close(StopDeadline(self.reactor, 1))))
        finally:
            # Deferreds whose failures nobody has seen tell them now.
            gc.collect()
            globalLogPublisher.removeObserver(self._observe)

    def ask(self, method: str, target: str, body: object = None, *, operator: bool = False, **headers: str) -> Response:
        """The answer to one request."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        wire = Wire(self.operator if operator else self.public)
        wire.send("\r\n".join([*lines, "", ""]).encode() + data)
        for _ in range(TURNS):
            if wire.received or not wire.open:
                break
            self.reactor.advance(0)
        response = wire.response()
        wire.close()
        return response

    def receive(self, *, refusing: Collection[int] = ()) -> None:
        """Take the events that are delivered until there are no more; ports ``refusing`` connections have nobody."""
        for _ in range(TURNS):
            new = self.reactor.tcpClients[self._calls :]
            self._calls += len(new)
            for _host, port, factory, *_ in new:
                if port in refusing:
                    factory.clientConnectionFailed(None, Failure(Refused()))
                    continue
                receiver = Receiver(self.heard, self.reactor)
                receiver.protocol = factory.buildProtocol(None)
                receiver.protocol.makeConnection(receiver)
            self.reactor.advance(0)
            if not new and not any(call.getTime() <= self.reactor.seconds() for call in self.reactor.getDelayedCalls()):
                return

    def _observe(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        # As svcd/process/logs.py leaves out what another line tells.
        if event["log_level"] is not LogLevel.debug and (failure is None or not self._health.has_told(failure.value)):
            self.lines.append(json.loads(json_line(event)))

    def _stop_for_damage(self) -> None:
        self.damage_told = True

    def _wait(self, deferred: Deferred[T]) -> T:
        for turn in range(TURNS):
            if has_result(deferred):
                break
            # What is left then waits for a time to pass, as the stop does for deliveries in flight.
            self.reactor.advance(0 if turn < _IMMEDIATE_TURNS else 0.1)
        return result_of(deferred)
