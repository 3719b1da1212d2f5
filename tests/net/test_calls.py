"""Deadlines for progress: what a call may take as long as its bytes move, and when it is given up."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallFailed, CallKind, CallLimits, Progress, Reply
from svcd.net.http_client import MAX_CALLS, PinnedClient, PinnedConnections
from svcd.net.meter import Meter, Metering
from svcd.net.targets import Rules
from svcd.net.trust import Trust
from tests.net.certificates import Signed
from tests.net.conftest import HOST, Answers, SteppedDialler
from tests.net.servers import Conversation, Server, answer, pause, saying, silent, until
from tests.support import has_result, result_of

KIB = 1024
PERIOD = 10
LEAST = CallLimits(seconds=PERIOD, max_bytes=8 << 20, min_bytes=16 * KIB)
STALLED = f"took and sent less than 16 KiB in {PERIOD} s"
CALLS_TO_ASK = MAX_CALLS[CallKind.ASK]
Serve = Callable[..., Server]


# The rule, on a clock


class Moving:
    """A call that moves as many bytes as the test says."""

    def __init__(self, limits: CallLimits = LEAST) -> None:
        self.clock = Clock()
        self.moved = 0
        self.progress = Progress(limits, self.clock)
        self.answer: Deferred[str] = Deferred()
        self.outcome = self.progress.watch(self._work(), "http://node.example.com")

    async def _work(self) -> str:
        self.progress.begin_stage(lambda: self.moved)
        return await self.answer

    def go_on(self, seconds: float, moved: int = 0) -> None:
        """Let time pass in tenths of a second, and bytes move evenly."""
        for _ in range(round(seconds * 10)):
            self.moved += moved / seconds / 10
            self.clock.advance(0.1)


def failure_of(deferred: "Deferred[Any]") -> CallFailed:
    with pytest.raises(CallFailed) as failed:
        result_of(deferred)
    return failed.value


def test_a_call_that_moves_may_take_any_time() -> None:
    call = Moving()
    call.go_on(3600, 3600 * 2 * KIB)
    assert not has_result(call.outcome)
    call.answer.callback("done")
    assert result_of(call.outcome) == "done"
    assert call.clock.getDelayedCalls() == []


def test_a_call_that_moves_too_little_is_given_up() -> None:
    call = Moving()
    call.go_on(60, 60 * 1500)
    failed = failure_of(call.outcome)
    assert (failed.category, str(failed)) == ("timeout", f"http://node.example.com {STALLED}")
    assert call.clock.getDelayedCalls() == []


@pytest.mark.parametrize("before", [0, 3.3, 12, 600])
def test_a_stall_is_noticed_after_one_period_and_a_quarter(before: float) -> None:
    call = Moving()
    if before:
        call.go_on(before, int(before * 100 * KIB))
    call.go_on(PERIOD - 0.2)
    assert not has_result(call.outcome)
    call.go_on(PERIOD / 4 + 0.4)
    assert failure_of(call.outcome).category == "timeout"


def test_a_stage_begins_a_period() -> None:
    call = Moving()
    for _ in range(5):
        call.go_on(PERIOD - 1)
        call.progress.begin_stage(lambda: call.moved)
    assert not has_result(call.outcome)


def test_without_least_bytes_the_whole_call_has_a_limit() -> None:
    call = Moving(CallLimits(seconds=PERIOD, max_bytes=1))
    call.go_on(PERIOD + 0.2, 100 * KIB * PERIOD)
    failed = failure_of(call.outcome)
    assert str(failed) == f"http://node.example.com did not answer within {PERIOD} s"


def test_a_call_that_is_over_at_once_leaves_no_timer() -> None:
    clock = Clock()

    async def work() -> str:
        return "done"

    assert result_of(Progress(LEAST, clock).watch(work(), "x")) == "done"
    assert clock.getDelayedCalls() == []


def test_a_cancelled_call_is_no_stall() -> None:
    call = Moving()
    call.outcome.cancel()
    with pytest.raises(CancelledError):
        result_of(call.outcome)
    assert call.clock.getDelayedCalls() == []


# Writing in pieces


class Slow(StringTransport):
    """A transport that has room for one write at a time."""

    full = False

    def write(self, data: bytes) -> None:
        assert not self.full
        super().write(data)
        if self.producer is not None:
            self.full = True
            self.producer.pauseProducing()

    def send(self) -> int:
        sent = len(self.value())
        self.clear()
        self.full = False
        if self.producer is not None:
            self.producer.resumeProducing()
        return sent


def metered(transport: StringTransport) -> Meter:
    meter = Metering(Factory.forProtocol(Protocol)).buildProtocol(None)
    meter.makeConnection(transport)
    meter.expect_answer(1)
    return meter


def test_a_long_body_is_written_as_there_is_room() -> None:
    transport = Slow()
    meter = metered(transport)
    meter.writeSequence([b"POST / HTTP/1.1\r\n", b"\r\n"])
    assert (transport.send(), meter.sending) == (19, False)
    meter.write(bytes(100 * KIB))
    pieces = []
    while meter.sending:
        assert meter.moved == 19 + sum(pieces) + len(transport.value())
        pieces.append(transport.send())
    pieces.append(transport.send())
    assert pieces == [16 * KIB] * 6 + [4 * KIB]
    assert transport.producer is None
    assert meter.moved == 19 + 100 * KIB


def test_later_writes_are_in_order() -> None:
    transport = Slow()
    meter = metered(transport)
    meter.write(b"a" * 20 * KIB)
    meter.write(b"b")
    sent = b""
    while transport.value():
        sent += transport.value()
        transport.send()
    assert sent == b"a" * 20 * KIB + b"b"


def test_a_lost_connection_drops_what_waits() -> None:
    transport = Slow()
    meter = metered(transport)
    meter.write(bytes(100 * KIB))
    cast(Any, transport.producer).stopProducing()
    assert not meter.sending


# Calls over real sockets, with a clock that the test moves


@pytest.fixture
def clock() -> SteppedDialler:
    return SteppedDialler()


async def pin(clock: SteppedDialler, port: int, trust: Trust, scheme: str = "http") -> PinnedConnections:
    policy = AddressPolicy(allow_private=True)
    caller = PinnedClient(clock, resolver=Answers(["127.0.0.1"]), policy=policy, trust=trust)
    return await caller.pin(Rules.for_peers().parse(f"{scheme}://{HOST}:{port}"), seconds=60)


def start(peer: PinnedConnections, body: bytes | None = None, **options: Any) -> "Deferred[Reply]":
    method = "GET" if body is None else "POST"
    return Deferred.fromCoroutine(peer.call(method, "/p2p/block", body=body, **{"limits": LEAST, **options}))


def step(clock: SteppedDialler, seconds: float) -> None:
    clock.pump([0.5] * round(seconds * 2))


@pytest.mark.socket
async def test_an_answer_may_take_longer_than_the_period(serve: Serve, clock: SteppedDialler, trust: Trust) -> None:
    server = serve(saying(answer(bytes(400 * KIB))[: -400 * KIB]))
    peer = await pin(clock, server.port, trust)
    arrived: list[int] = []
    call = start(peer, on_bytes=arrived.append)
    await until(lambda: server.requests)
    for piece in range(1, 21):
        step(clock, PERIOD * 0.7)
        next(iter(server.open)).say(bytes(20 * KIB))
        await until(lambda piece=piece: sum(arrived) == piece * 20 * KIB)
    assert len((await call).body) == 400 * KIB
    await peer.close()


@pytest.mark.socket
async def test_an_answer_that_stops_is_given_up(serve: Serve, clock: SteppedDialler, trust: Trust) -> None:
    server = serve(saying(answer(bytes(400 * KIB))[: -200 * KIB]))
    peer = await pin(clock, server.port, trust)
    arrived: list[int] = []
    call = start(peer, on_bytes=arrived.append)
    await until(lambda: sum(arrived) == 200 * KIB)
    step(clock, PERIOD * 2.5)
    with pytest.raises(CallFailed, match=STALLED) as failed:
        await call
    assert failed.value.category == "timeout"
    await until(lambda: not server.open)
    await peer.close()


@pytest.mark.socket
async def test_the_wait_for_a_connection_is_one_stage(serve: Serve, clock: SteppedDialler, trust: Trust) -> None:
    server = serve(silent)
    peer = await pin(clock, server.port, trust)
    endless = CallLimits(seconds=3600, max_bytes=KIB)
    busy = [start(peer, limits=endless) for _ in range(CALLS_TO_ASK)]
    await until(lambda: len(server.requests) == CALLS_TO_ASK)
    early, late = start(peer), start(peer)
    step(clock, PERIOD * 0.9)
    next(iter(server.open)).say(answer())
    await until(lambda: len(server.requests) == CALLS_TO_ASK + 1)
    step(clock, PERIOD * 0.9)
    with pytest.raises(CallFailed, match=STALLED):
        await late
    for conversation in server.open:
        conversation.say(answer())
    assert (await early).body == b"ok"
    for call in busy:
        assert (await call).body == b"ok"
    await peer.close()


class SlowReader:
    """A server that takes from its one connection as much as a test reads; the kernel's buffer is small."""

    def __init__(self) -> None:
        self.listening = socket.socket()
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()
        self.listening.setblocking(False)
        self.connection: socket.socket | None = None
        self.data = bytearray()

    @property
    def port(self) -> int:
        port: int = self.listening.getsockname()[1]
        return port

    async def read(self, at_least: int) -> None:
        wanted = len(self.data) + at_least
        await until(lambda: self._read() >= wanted)

    def _read(self) -> int:
        try:
            if self.connection is None:
                self.connection, _ = self.listening.accept()
                self.connection.setblocking(False)
            self.data += self.connection.recv(8 * KIB)
        except BlockingIOError:
            pass
        return len(self.data)

    def is_reset(self) -> bool:
        """Whether the other side has closed the connection, after what it has sent."""
        assert self.connection is not None
        try:
            return self.connection.recv(64 * KIB) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.listening.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def slow_reader() -> Iterator[SlowReader]:
    server = SlowReader()
    yield server
    server.close()


BLOCK = bytes(range(256)) * 5200
"""1.3 MiB: the buffers of a socket hold all of it."""


@pytest.mark.socket
async def test_a_body_may_take_longer_than_the_period(
    slow_reader: SlowReader, clock: SteppedDialler, trust: Trust
) -> None:
    peer = await pin(clock, slow_reader.port, trust)
    call = start(peer, BLOCK)
    while len(slow_reader.data) < len(BLOCK):
        await slow_reader.read(min(64 * KIB, len(BLOCK) - len(slow_reader.data)))
        step(clock, PERIOD * 0.7)
        assert not has_result(call)
    await until(lambda: slow_reader._read() and slow_reader.data.endswith(BLOCK))
    assert slow_reader.connection is not None
    slow_reader.connection.send(answer())
    assert (await call).body == b"ok"
    await peer.close()


@pytest.mark.socket
async def test_a_body_that_is_no_longer_taken_is_given_up(
    slow_reader: SlowReader, clock: SteppedDialler, trust: Trust
) -> None:
    """Although all of it has left for the buffers of the kernel."""
    peer = await pin(clock, slow_reader.port, trust)
    call = start(peer, BLOCK)
    await slow_reader.read(200 * KIB)
    await pause(0.1)
    step(clock, PERIOD * 2.5)
    with pytest.raises(CallFailed, match=STALLED):
        await call
    await until(slow_reader.is_reset)
    await peer.close()


@pytest.mark.socket
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_long_body_arrives_whole(
    serve: Serve, make_caller: Callable[..., PinnedClient], shop_certificate: Signed, scheme: str
) -> None:
    server = serve(saying(answer()), shop_certificate if scheme == "https" else None)
    peer = await make_caller().pin(Rules.for_peers().parse(f"{scheme}://{HOST}:{server.port}"), seconds=60)
    for _ in range(2):
        assert (await start(peer, BLOCK * 3)).body == b"ok"
    assert [request.body == BLOCK * 3 for request in server.requests] == [True, True]
    assert server.connections == 1
    await peer.close()


@pytest.mark.socket
async def test_an_early_answer_is_heard_and_its_connection_closed(
    slow_reader: SlowReader, clock: SteppedDialler, trust: Trust
) -> None:
    """A server that refuses a body has not read it; what is left of it must not stand before the next request."""
    peer = await pin(clock, slow_reader.port, trust)
    call = start(peer, BLOCK * 8)
    await slow_reader.read(1)
    assert slow_reader.connection is not None
    slow_reader.connection.send(answer(b"too large", status=b"413 Content Too Large"))
    assert (await call).status == 413
    await until(slow_reader.is_reset)
    await peer.close()


async def _connecting(_server: Server) -> None:
    """Cancelled in the turn of the reactor in which it began."""


async def _waiting_for_an_answer(server: Server) -> None:
    await until(lambda: server.requests)


async def _sending(server: Server) -> None:
    await until(lambda: server.open)
    next(iter(server.open)).transport.pauseProducing()


async def _receiving(server: Server) -> None:
    await until(lambda: server.requests)
    next(iter(server.open)).say(answer(bytes(KIB))[:-1])
    await pause(0.05)


@pytest.mark.socket
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("stage", [_connecting, _sending, _waiting_for_an_answer, _receiving])
async def test_a_cancelled_call_closes_its_connection_and_frees_its_place(
    serve: Serve,
    make_caller: Callable[..., PinnedClient],
    shop_certificate: Signed,
    stage: Callable[[Server], Awaitable[None]],
    scheme: str,
) -> None:
    server = serve(silent, shop_certificate if scheme == "https" else None)
    peer = await make_caller().pin(Rules.for_peers().parse(f"{scheme}://{HOST}:{server.port}"), seconds=60)
    for _ in range(CALLS_TO_ASK + 1):
        call = start(peer, BLOCK * 8 if stage is _sending else b"{}")
        await stage(server)
        call.cancel()
        with pytest.raises(CancelledError):
            await call
        await until(lambda: not _alive(server))
        server.requests.clear()
    server.script = saying(answer())
    assert (await start(peer)).body == b"ok"
    await peer.close()


def _alive(server: Server) -> bool:
    """Whether a connection is open; one that reads nothing does not hear of its end."""
    for conversation in tuple(server.open):
        cast(Conversation, conversation).transport.resumeProducing()
    return bool(server.open)
