"""`svc` at a terminal without sockets: its nodes run in the same process, behind their real HTTP stack."""

# Twisted's interfaces use camelCase.
# ruff: noqa: N802, N815

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field, frozen
from click.testing import CliRunner, Result
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.test import iosim
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from svcd.cli.http_client import NodeEndpoint
from svcd.cli.main import svc
from svcd.cli.session import Runtime

T = TypeVar("T")

HERE = IPv4Address("TCP", "127.0.0.1", 8645)
TURNS = 2000

# The seed, the password and the address of the keyfile in `KEYFILE`, which WebCrypto makes too (tests/vectors).
SEED = bytes.fromhex("0b986d6af996cfaa9e7eea624b6a25de212cb6f0ef52ab420390e85fe72c2050")
PASSWORD = "Schlüssel für svc"
ADDRESS = "svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt"
KEYFILE = (
    b'{"address":"svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt","cipher":{"ciphertext":"b0b1b0f06a192517e6cefd'
    b'2c1807270f7b126cc9e663b9d2b22cc289fd0d77c760d7e273113b5a57e7b026507d6ee3b6","name":"AES-256-GCM","nonce"'
    b':"101112131415161718191a1b"},"format":"svc-keyfile-v2","kdf":{"iterations":1000000,"name":"PBKDF2-SHA-25'
    b'6","salt":"000102030405060708090a0b0c0d0e0f"},"network":"devnet","publicKey":"5a8cf6c530cc54a52f4f55d69e'
    b'4b1bca1be021e5f1d52562e26cfa6d90402795"}\n'
)
OTHER = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


@define
class Network:
    """Connects every request to one site, or fails with the given failure; time passes only while a command waits."""

    clock: Clock
    site: Any = None
    failure: OSError | None = None
    pumps: list[Any] = field(factory=list)

    def connect(self) -> "Wire":
        if self.failure is not None:
            raise self.failure
        wire, server = Wire(self), self.site.buildProtocol(HERE)
        ends = [
            iosim.FakeTransport(protocol, isServer=is_server, hostAddress=HERE, peerAddress=HERE)
            for protocol, is_server in ((server, True), (wire, False))
        ]
        self.pumps.append(iosim.connect(server, ends[0], wire, ends[1]))
        return wire

    def flush(self) -> bool:
        """Deliver written bytes; returns whether there were any."""
        carried = [pump.pump() for pump in self.pumps]
        return any(carried)

    def wait(self, end: float, until: Callable[[], bool]) -> bool:
        """Let time pass, from timer to timer, and say whether something has happened before its ``end``."""
        while not until():
            if not self.flush():
                due = [call.getTime() for call in self.clock.getDelayedCalls()]
                now = self.clock.seconds()
                if now >= end:
                    return False
                self.clock.advance(max(min([*due, end]) - now, 0))
        return True


class Wire(Protocol):
    """The client's end of a connection."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._received = bytearray()
        self._ended = False

    def dataReceived(self, data: bytes) -> None:
        self._received += data

    def connectionLost(self, *_reason: object) -> None:
        self._ended = True

    def send(self, data: bytes, _seconds: float) -> None:
        self.transport.write(data)

    def receive(self, size: int, seconds: float) -> bytes:
        end = self._network.clock.seconds() + seconds
        if not self._network.wait(end, lambda: bool(self._received) or self._ended):
            raise TimeoutError
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def close(self) -> None:
        self.transport.loseConnection()
        self._network.flush()


@frozen
class Time:
    """The clock of a command, at which other things happen meanwhile."""

    network: Network

    def milliseconds(self) -> int:
        return int(self.network.clock.seconds() * 1000)

    def monotonic(self) -> float:
        return self.network.clock.seconds()

    def sleep(self, seconds: float, /) -> None:
        self.network.wait(self.monotonic() + seconds, lambda: False)


@frozen
class Told:
    """The output of a command."""

    out: str
    err: str


@define
class Terminal:
    """Runs commands; `public` and `operator` are the networks behind --url and --data-dir."""

    folder: Path
    clock: Clock
    public: Network = field(init=False)
    operator: Network = field(init=False)
    others: dict[str, Network] = field(factory=dict)
    """The networks behind other values of --url."""
    random: Callable[[int], bytes] = lambda size: bytes(range(size))
    hash_rate: float = 300.0
    """Attempts a second of this computer, whatever their memory."""
    stderr_is_terminal: bool = False
    interactive: bool = False
    width: int | None = None
    sockets: list[str] = field(factory=list)
    """The paths of the operator's sockets that were asked for."""
    core_dumps_forbidden: int = 0
    """How often."""
    twistd_calls: list[Sequence[str]] = field(factory=list)
    """The arguments of each run of twistd."""

    @public.default
    @operator.default
    def _nothing(self) -> Network:
        return Network(self.clock)

    @property
    def state(self) -> Path:
        """The folder of what svc remembers from one command to the next."""
        return self.folder.with_name(f"{self.folder.name}-state").absolute()

    def run(self, work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        """Run a coroutine of a listener like a reactor, advancing the clock to the next timer whenever it waits."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(work(self.clock)).addBoth(outcome.append)
        for _ in range(TURNS):
            if outcome:
                break
            due = [call.getTime() for call in self.clock.getDelayedCalls()]
            self.clock.advance(max(min(due) - self.clock.seconds(), 0) if due else 0)
        assert outcome, "the command does not end"
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        return outcome[0]  # type: ignore[no-any-return]

    def invoke(self, *words: object, typed: str = "", env: dict[str, str] | None = None) -> Result:
        """Run `svc` with these arguments and `typed` as standard input; unexpected exceptions are raised."""
        arguments = [str(word) for word in words]
        runner = CliRunner(env=env)
        runtime = self.runtime(env)
        return runner.invoke(svc, arguments, input=typed, obj=runtime, prog_name="svc", catch_exceptions=False)

    def runtime(self, env: dict[str, str] | None = None) -> Runtime:
        """The runtime of a command at this terminal."""
        return Runtime(
            connect=self._connect,
            clock=Time(self.public),
            run=self.run,
            run_twistd=self.twistd_calls.append,
            random=self.random,
            hash_rate=lambda memory_kib: self.hash_rate,
            environ={"XDG_STATE_HOME": str(self.state), **(env or {})},
            stderr_is_terminal=lambda: self.stderr_is_terminal,
            interactive=lambda: self.interactive,
            terminal_width=lambda: self.width,
            forbid_core_dumps=self._forbid_core_dumps,
        )

    def _forbid_core_dumps(self) -> None:
        self.core_dumps_forbidden += 1

    def _connect(self, endpoint: NodeEndpoint, _seconds: float) -> Wire:
        if endpoint.socket is None:
            return self.others.get(endpoint.base_url, self.public).connect()
        self.sockets.append(endpoint.socket)
        return self.operator.connect()

    def ok(self, *words: object, typed: str = "", env: dict[str, str] | None = None) -> Told:
        """The output of a command that succeeds."""
        result = self.invoke(*words, typed=typed, env=env)
        assert result.exit_code == 0, result.output
        return Told(result.stdout, result.stderr)

    def failure(self, *words: object, typed: str = "", env: dict[str, str] | None = None) -> str:
        """The error sentence of a command that fails."""
        result = self.invoke(*words, typed=typed, env=env)
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        return result.stderr.splitlines()[-1].partition("Error: ")[2]

    def misuse(self, *words: object, env: dict[str, str] | None = None) -> str:
        """The error sentence of an incorrect call."""
        result = self.invoke(*words, env=env)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        return result.stderr.splitlines()[-1].removeprefix("Error: ")


class Fixed(Resource):
    """Returns a fixed response, optionally by path; None never responds."""

    isLeaf = True

    def __init__(self, *answers: tuple[int, bytes | None], **by_path: tuple[int, bytes | None]) -> None:
        super().__init__()
        self.answer = answers[0] if answers else (200, b'{"ok":true}')
        self.by_path = by_path
        self.seen: list[tuple[bytes, bytes]] = []
        """Path and body of every request."""

    def render(self, request: Any) -> Any:
        self.seen.append((request.path, request.content.read()))
        status, body = self.by_path.get(request.path.decode().rpartition("/")[2], self.answer)
        if body is None:
            return NOT_DONE_YET
        request.setResponseCode(status)
        return body


def site_of(resource: Resource, clock: Clock) -> Any:
    """Twisted's own web server with `resource`."""
    return Site(resource, reactor=clock)
