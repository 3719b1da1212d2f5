"""How requests leave the process: over TCP, or through the Unix socket of a node on this computer."""

# Twisted's web client is not annotated, and its interfaces have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.wallet.failed import Failed


def public_agent(reactor: Any) -> Any:
    """An IAgent that connects over TCP, with TLS for https."""
    return Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))


def operator_agent(reactor: Any, socket: str) -> Any:
    """An IAgent that connects to the Unix socket at the path ``socket``, whatever the URL.

    Root's requests raise Failed if that is a link, or a socket that belongs to neither root nor the directory's owner:
    the owner could otherwise have root give orders to another program.
    """
    pool = HTTPConnectionPool(reactor, persistent=False)
    return Agent.usingEndpointFactory(reactor, _OneSocket(reactor, socket), pool)


@implementer(IBodyProducer)
class WholeBody:
    """A request's body that is written at once: it is small, and treq's own producer needs the global reactor."""

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> "Deferred[None]":
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to pause."""

    def resumeProducing(self) -> None:
        """Nothing is left to resume."""

    def stopProducing(self) -> None:
        """Nothing is left to stop."""


@implementer(IAgentEndpointFactory)
@frozen
class _OneSocket:
    reactor: Any
    path: str

    def endpointForURI(self, _uri: URI) -> Any:
        if os.geteuid() == 0:
            return _CheckedSocket(self.reactor, Path(self.path))
        return UNIXClientEndpoint(self.reactor, self.path)


@implementer(IStreamClientEndpoint)
@frozen
class _CheckedSocket:
    """Connects to the very socket that was checked, even if another file takes its name meanwhile."""

    reactor: Any
    path: Path

    def connect(self, factory: Any) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: Any) -> Any:
        try:
            with (
                _opened(self.path.parent, os.O_DIRECTORY) as directory,
                _opened(self.path.name, os.O_NOFOLLOW, directory) as socket,
            ):
                self._check(os.fstat(socket), os.fstat(directory))
                return await UNIXClientEndpoint(self.reactor, f"/proc/self/fd/{socket}").connect(factory)
        except OSError as error:
            raise ConnectError(error.errno, error.strerror) from error

    def _check(self, found: os.stat_result, directory: os.stat_result) -> None:
        if not stat.S_ISSOCK(found.st_mode) or found.st_nlink != 1 or found.st_uid not in (0, directory.st_uid):
            raise Failed(
                f"root does not connect to {self.path}: it must be a socket of the directory's owner, and no link; "
                "run the command as that user, or see who put it there"
            )


@contextmanager
def _opened(path: str | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """A descriptor that stands for a file without being able to read or write it (O_PATH in open(2))."""
    descriptor = os.open(path, flags | os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
