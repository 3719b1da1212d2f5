"""Connections in memory, with a clock that the test moves: whose turn it is, and what is counted."""

from ipaddress import ip_address
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import TimeoutError as TooLate
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from svcd.net.addresses import Address
from svcd.net.calls import CallPostponed
from svcd.net.happy_eyeballs import CheckedEndpoint
from svcd.net.meter import MAX_HEAD_BYTES, Meter
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


DEAD = ("2606:4700::1", "2606:4700::2", "198.41.0.4")


def choose(*addresses: str) -> tuple[MemoryReactorClock, CheckedEndpoint, Any]:
    reactor = MemoryReactorClock()
    place = endpoint(reactor, *addresses)
    return reactor, place, place.connect(Factory.forProtocol(Protocol))


def test_the_families_take_turns_and_a_new_address_is_tried_every_quarter_of_a_second() -> None:
    reactor, _, _ = choose("2606:4700::1", "2606:4700::2", "2606:4700::3", "198.41.0.4", "198.41.0.5")
    begun = []
    for _ in range(10):
        begun.append([host for host, *_ in dialled(reactor)])
        reactor.advance(0.125)
    order = ["2606:4700::1", "198.41.0.4", "2606:4700::2", "198.41.0.5", "2606:4700::3"]
    assert begun == [order[:count] for count in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)]


def test_the_family_that_the_system_puts_first_begins() -> None:
    reactor, place, _ = choose("198.41.0.4", "198.41.0.5", "2606:4700::1")
    assert place.addresses == tuple(map(ip_address, ("198.41.0.4", "2606:4700::1", "198.41.0.5")))
    assert [host for host, *_ in dialled(reactor)] == ["198.41.0.4"]


def test_two_dead_addresses_cost_half_a_second() -> None:
    """And the attempts that lose are cancelled; from then on there is only the address that has won."""
    reactor, place, connecting = choose(*DEAD)
    reactor.pump([0.25, 0.25])
    assert [host for host, *_ in dialled(reactor)] == ["2606:4700::1", "198.41.0.4", "2606:4700::2"]
    connect(reactor, 2)
    assert isinstance(result_of(connecting), Protocol)
    assert [connector.stoppedConnecting for connector in reactor.connectors] == [True, True, False]
    assert place.addresses == (ip_address("2606:4700::2"),)
    reactor.advance(60)
    place.connect(Factory.forProtocol(Protocol))
    assert dialled(reactor)[3:] == [("2606:4700::2", 8645, 6)]


def test_an_earlier_attempt_may_still_win() -> None:
    reactor, place, connecting = choose(*DEAD)
    reactor.advance(0.25)
    connect(reactor, 0)
    assert isinstance(result_of(connecting), Protocol)
    assert reactor.connectors[1].stoppedConnecting
    assert place.addresses == (ip_address("2606:4700::1"),)
    reactor.advance(60)
    assert len(dialled(reactor)) == 2


def test_after_a_refusal_the_next_address_is_tried_at_once() -> None:
    reactor, _, connecting = choose(*DEAD)
    fail(reactor, 0, Refused())
    assert len(dialled(reactor)) == 2
    reactor.advance(0.2)
    assert len(dialled(reactor)) == 2
    reactor.advance(0.05)
    assert len(dialled(reactor)) == 3
    assert not has_result(connecting)


def test_the_last_failure_is_the_one_that_is_told() -> None:
    reactor, place, connecting = choose("198.41.0.4", "198.41.0.5")
    reactor.advance(0.25)
    fail(reactor, 1, TooLate())
    assert not has_result(connecting)
    fail(reactor, 0, Refused())
    with pytest.raises(Refused):
        result_of(connecting)
    assert len(dialled(reactor)) == 2
    assert len(place.addresses) == 2
    assert reactor.getDelayedCalls() == []


def test_an_attempt_that_is_cancelled_is_the_last() -> None:
    reactor, _, connecting = choose(*DEAD)
    reactor.advance(0.25)
    connecting.cancel()
    with pytest.raises(CancelledError):
        result_of(connecting)
    assert [connector.stoppedConnecting for connector in reactor.connectors] == [True, True]
    reactor.advance(60)
    assert len(dialled(reactor)) == 2


def test_only_one_connection_chooses_the_address() -> None:
    reactor, place, first = choose(*DEAD)
    second = place.connect(Factory.forProtocol(Protocol))
    assert len(dialled(reactor)) == 1
    reactor.advance(0.25)
    connect(reactor, 1)
    assert isinstance(result_of(first), Protocol)
    assert [host for host, *_ in dialled(reactor)] == ["2606:4700::1", "198.41.0.4", "198.41.0.4"]
    connect(reactor, 2)
    assert isinstance(result_of(second), Protocol)


def test_the_next_connection_chooses_if_the_first_is_cancelled() -> None:
    reactor, place, first = choose(*DEAD)
    second = place.connect(Factory.forProtocol(Protocol))
    first.cancel()
    with pytest.raises(CancelledError):
        result_of(first)
    connect(reactor, 1)
    assert isinstance(result_of(second), Protocol)


def metered() -> tuple[Meter, Listener, Transport]:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, "198.41.0.4").connect(Factory.forProtocol(Listener))
    connect(reactor, 0)
    listener = result_of(connecting)
    meter = listener.transport
    return meter, listener, meter.transport


def test_unexpected_bytes_close_the_connection() -> None:
    meter, listener, transport = metered()
    meter.dataReceived(b"x")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([], True, True)


def test_only_expected_bytes_are_passed_on() -> None:
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


def test_bytes_after_closing_are_ignored() -> None:
    meter, listener, transport = metered()
    meter.expect_answer(10)
    meter.loseConnection()
    meter.dataReceived(b"x")
    assert (listener.heard, transport.aborted, meter.exceeded) == ([], True, False)


def test_only_addresses_that_are_admitted_are_dialled_and_each_is_asked_for_when_its_turn_comes() -> None:
    reactor, asked = MemoryReactorClock(), list[str]()

    def admit(address: Address) -> bool:
        asked.append(str(address))
        return str(address) != "2606:4700::1"

    connecting = endpoint(reactor, *DEAD).connect(Factory.forProtocol(Protocol), admit)
    assert [host for host, *_ in dialled(reactor)] == ["198.41.0.4"]
    assert asked == ["2606:4700::1", "198.41.0.4"]
    fail(reactor, 0, Refused())
    assert [host for host, *_ in dialled(reactor)] == ["198.41.0.4", "2606:4700::2"]
    connect(reactor, 1)
    assert isinstance(result_of(connecting), Protocol)
    assert asked == ["2606:4700::1", "198.41.0.4", "2606:4700::2"]


def test_without_an_admitted_address_the_call_is_postponed() -> None:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, *DEAD).connect(Factory.forProtocol(Protocol), lambda _: False)
    with pytest.raises(CallPostponed, match="as often as it may be"):
        result_of(connecting)
    assert not dialled(reactor)
    assert not reactor.getDelayedCalls()


def test_a_failed_attempt_is_told_where_no_other_address_is_admitted() -> None:
    reactor = MemoryReactorClock()
    connecting = endpoint(reactor, *DEAD).connect(Factory.forProtocol(Protocol), lambda each: str(each) == DEAD[0])
    reactor.advance(1)
    assert not has_result(connecting)
    fail(reactor, 0, Refused())
    with pytest.raises(Refused):
        result_of(connecting)
