"""A certificate authority, servers on loopback, a resolver that knows what it is told, and a caller that uses them."""

from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from svcd.net.addresses import Address, AddressPolicy
from svcd.net.calls import CallLimits
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules, Target
from svcd.net.trust import Trust, load_trust
from tests.net.certificates import Signed, make_authority, sign
from tests.net.servers import Script, Server

HOST = "shop.example.com"
LENIENT = Rules.for_callbacks(allow_http=True, allow_private=True)
LIMITS = CallLimits(seconds=60, max_bytes=64 * 1024)


class Answers:
    """A resolver that gives one prepared answer after the other, the last one again and again."""

    def __init__(self, *answers: Sequence[str] | OSError | None) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.cancelled = 0

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        self.asked.append(name)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            return Deferred(self._cancel)
        if isinstance(answer, OSError):
            return fail(answer)
        return succeed([ip_address(text) for text in answer])

    def _cancel(self, _deferred: object) -> None:
        self.cancelled += 1


class SteppedDialler(Clock):
    """Connects as the reactor does; its time is the test's."""

    def connectTCP(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
        return reactor.connectTCP(*args, **kwargs)


@pytest.fixture(scope="session")
def authority() -> Signed:
    return make_authority("The authority of the tests")


@pytest.fixture(scope="session")
def shop_certificate(authority: Signed) -> Signed:
    return sign(HOST, by=authority)


@pytest.fixture(scope="session")
def trust(authority: Signed, tmp_path_factory: pytest.TempPathFactory) -> Trust:
    path: Path = tmp_path_factory.mktemp("trust") / "authority.pem"
    path.write_bytes(authority.pem)
    return load_trust(path)


@pytest_twisted.async_yield_fixture
async def serve() -> AsyncIterator[Callable[..., Server]]:
    """``serve(script, tls=None, interface=..., port=0)``: a server until the test ends."""
    servers: list[Server] = []

    def start(script: Script, tls: Signed | None = None, interface: str = "127.0.0.1", port: int = 0) -> Server:
        server = Server(script)
        server.listen(interface, tls.options() if tls else None, port)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture
def make_caller(trust: Trust) -> Callable[..., PinnedClient]:
    """``make_caller(resolver)``: a caller that may call this machine."""

    def make(resolver: Any = None, *, policy: AddressPolicy | None = None, dialler: Any = reactor) -> PinnedClient:
        return PinnedClient(
            dialler,
            resolver=resolver or Answers(["127.0.0.1"]),
            policy=policy or AddressPolicy(allow_private=True),
            trust=trust,
        )

    return make


@pytest.fixture
def caller(make_caller: Callable[..., PinnedClient]) -> PinnedClient:
    return make_caller()


def target_of(server: Server, *, scheme: str = "http", host: str = HOST, path: str = "/hook?key=secret") -> Target:
    return LENIENT.parse(f"{scheme}://{host}:{server.port}{path}")
