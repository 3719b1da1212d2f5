"""Connections in memory, with a clock that the test moves: whose turn it is, and what is counted."""

from ipaddress import ip_address
from typing import Any

import pytest
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import TimeoutError as TooLate
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from svcd.net.connections import MAX_HEAD_BYTES, CheckedEndpoint, Meter
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from tests.support import has_result, result_of

TARGET = Rules.for_peers().parse("http://node.example.com:8645")


class Transport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:  # noqa: N802
        self.aborted = True


class Listener(Protocol):
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        self.heard.append(data)


def endpoint(reactor: MemoryReactorClock, *addresses: str) -> CheckedEndpoint:
    checked = [ip_address(address) for address in addresses]
    return CheckedEndpoint(reactor, TARGET, checked, trust=load_trust(), seconds=8)


def dialled(reactor: MemoryReactorClock) -> list[tuple[str, int, float]]:
    return [(host, port, timeout) for host, port, _, timeout, _ in reactor.tcpClients]


def fail(reactor: MemoryReactorClock, attempt: int, error: Exception) -> None:
    reactor.tcpClients[attempt][2].clientConnectionFailed(None, Failure(error))


def connect(reactor: MemoryReactorClock, attempt: int) -> Any:
    protocol = reactor.tcpClients[attempt][2].buildProtocol(None)
    protocol.makeConnection(Transport())
    return protocol


def test_every_address_has_its_share_of_the_time() -> None:
    reactor = MemoryReactorClock()
    place = endpoint(reactor, "198.41.0.4", "2606:4700::1", "198.41.0.5", "198.41.0.6")
    connecting = place.connect(Factory.forProtocol(Protocol))
    fail(reactor, 0, TooLate())
    fail(reactor, 1, Refused())
    assert dialled(reactor) == [("198.41.0.4", 8645, 2), ("2606:4700::1", 8645, 2), ("198.41.0.5", 8645, 2)]
    assert not has_result(connecting)
    connect(reactor, 2)
    assert isinstance(result_of(connecting), Protocol)
    assert place.addresses == (ip_address("198.41.0.5"),)
    place.connect(Factory.forProtocol(Protocol))
    assert dialled(reactor)[3:] == [("198.41.0.5", 8645, 8)]


def test_the_last_failure_is_the_one_that_is_told() -> None:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, "198.41.0.4", "198.41.0.5").connect(Factory.forProtocol(Protocol))
    fail(reactor, 0, TooLate())
    fail(reactor, 1, Refused())
    with pytest.raises(Refused):
        result_of(connecting)
    assert len(reactor.tcpClients) == 2


def test_an_attempt_that_is_cancelled_is_the_last() -> None:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, "198.41.0.4", "198.41.0.5").connect(Factory.forProtocol(Protocol))
    connecting.cancel()
    with pytest.raises(ConnectingCancelledError):
        result_of(connecting)
    assert len(reactor.tcpClients) == 1
    assert reactor.connectors[0].stoppedConnecting


def metered() -> tuple[Meter, Listener, Transport]:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, "198.41.0.4").connect(Factory.forProtocol(Listener))
    connect(reactor, 0)
    listener = result_of(connecting)
    meter = listener.transport
    return meter, listener, meter.transport


def test_what_is_not_expected_closes_the_connection() -> None:
    meter, listener, transport = metered()
    meter.dataReceived(b"x")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([], True, True)


def test_what_is_expected_is_handed_on_and_no_more() -> None:
    meter, listener, transport = metered()
    meter.expect_answer(3)
    meter.dataReceived(b"ab")
    meter.dataReceived(b"c")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([b"ab", b"c"], False, False)
    meter.dataReceived(b"d")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([b"ab", b"c"], True, True)
    meter.dataReceived(b"e")
    assert listener.heard == [b"ab", b"c"]


def test_the_head_is_bounded_apart_from_the_rest() -> None:
    meter, listener, transport = metered()
    meter.expect_answer(10 * MAX_HEAD_BYTES)
    meter.dataReceived(bytes(MAX_HEAD_BYTES))
    assert not transport.aborted
    meter.expect_body()
    meter.dataReceived(bytes(9 * MAX_HEAD_BYTES))
    assert not transport.aborted
    assert sum(map(len, listener.heard)) == 10 * MAX_HEAD_BYTES
    meter.dataReceived(b"x")
    assert transport.aborted


def test_a_head_without_an_end_closes_the_connection() -> None:
    meter, _, transport = metered()
    meter.expect_answer(10 * MAX_HEAD_BYTES)
    meter.dataReceived(bytes(MAX_HEAD_BYTES + 1))
    assert (transport.aborted, meter.exceeded) == (True, True)


def test_every_request_has_an_allowance_of_its_own() -> None:
    meter, _, transport = metered()
    for _ in range(3):
        meter.expect_answer(2)
        meter.dataReceived(b"ab")
    assert not transport.aborted


def test_what_comes_after_closing_is_not_heard() -> None:
    meter, listener, transport = metered()
    meter.expect_answer(10)
    meter.loseConnection()
    meter.dataReceived(b"x")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([], True, False)
