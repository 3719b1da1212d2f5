"""The simulated network: what a line lets through, how calls share it, and the limits that end a call early."""

from random import Random
from typing import Any

import pytest
from attrs import define, evolve
from twisted.internet.defer import CancelledError, Deferred

from svcd.net.calls import CallKind
from svcd.net.http_client import MAX_CALLS
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest
from tests.simulation.clock import HeapClock, Lifetime
from tests.simulation.hostile import Answer
from tests.simulation.lines import Channel, Flow, Line, Sharing, max_min
from tests.simulation.network import HEAD_BYTES, Conditions, Link, Network, Trace, written
from tests.support import has_result, result_of

LATENCY = 0.1
A, B, C = "http://20.1.0.1:8645", "http://20.2.0.1:8645", "http://20.3.0.1:8645"
ASK = PeerRequest(path="/p2p/status", max_bytes=10_000_000, seconds=60.0, kind=CallKind.FETCH)
TAKES_ITS_TIME = evolve(ASK, seconds=10.0, min_bytes=16_384)


@define
class Server:
    """Answers every request with the same."""

    reply: Answer

    def answer(self, request: PeerRequest) -> Answer:
        return self.reply


class Bench:
    """A network without chance, in which A calls others."""

    def __init__(self) -> None:
        self.clock = HeapClock(1_000.0)
        conditions = Conditions(latency=(LATENCY, LATENCY))
        self.network = Network("bench", self.clock, Random(1), Trace(self.clock), conditions)
        self.life = Lifetime(self.clock)
        self.link = Link(self.network, A, "20.1.0.1", self.life)

    def serve(self, endpoint: str, answer: Answer) -> None:
        hostile: Any = Server(answer)
        self.network.turn(endpoint, hostile)

    def call(self, endpoint: str, request: PeerRequest = ASK) -> "Deferred[PeerReply]":
        return self.link.call(endpoint, request)

    def arrives_after(self, answer: "Deferred[PeerReply]", within: float = 100.0) -> float:
        """The seconds until a call ends, to the hundredth."""
        began = self.clock.seconds()
        while not has_result(answer):
            assert self.clock.seconds() - began < within
            self.clock.run(0.01)
        return self.clock.seconds() - began

    def trouble_of(self, answer: "Deferred[PeerReply]") -> FailureKind:
        with pytest.raises(PeerCallFailed) as failed:
            result_of(answer)
        return failed.value.kind


@pytest.fixture
def bench() -> Bench:
    return Bench()


def body(size: int) -> PeerReply:
    """A reply that is ``size`` bytes long on the line."""
    return PeerReply(200, bytes(size - HEAD_BYTES))


def soon(seconds: float) -> Any:
    """So many seconds and what a request, its head and the steps of a test's clock add."""
    return pytest.approx(seconds, abs=0.03)


# A line


def test_a_line_without_a_limit_takes_no_time_and_counts(bench: Bench) -> None:
    bench.serve(B, body(1_000_000))
    assert bench.arrives_after(bench.call(B)) == soon(2 * LATENCY)
    ours, theirs = bench.network.line(A), bench.network.line(B)
    assert (ours.down.bytes, theirs.up.bytes) == (1_000_000, 1_000_000)
    assert (ours.up.bytes, theirs.down.bytes) == (len(written(ASK)), len(written(ASK)))


@pytest.mark.parametrize("limited", ["down", "up"])
def test_a_reply_takes_its_size_by_the_rate_of_the_slower_end(bench: Bench, limited: str) -> None:
    if limited == "down":
        bench.network.line(A).down.limit(8e6)
        bench.network.line(B).up.limit(50e6)
    else:
        bench.network.line(A).down.limit(50e6)
        bench.network.line(B).up.limit(8e6)
    bench.serve(B, body(2_000_000))
    assert bench.arrives_after(bench.call(B)) == soon(2 + 2 * LATENCY)


def test_a_body_takes_its_time_on_the_way_there(bench: Bench) -> None:
    bench.network.line(A).up.limit(8e6)
    bench.serve(B, body(1_000))
    request = evolve(ASK, body=bytes(1_000_000))
    assert bench.arrives_after(bench.call(B, request)) == soon(1 + 2 * LATENCY)
    assert bench.network.line(A).up.bytes == len(written(request))


def test_calls_share_a_line_and_the_rest_is_for_those_that_remain(bench: Bench) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.serve(B, body(1_000_000))
    bench.serve(C, body(3_000_000))
    short, long = bench.call(B), bench.call(C)
    assert bench.arrives_after(short) == soon(2 + 2 * LATENCY)
    assert bench.arrives_after(long) == soon(2)


def test_unused_bandwidth_of_one_end_is_for_others(bench: Bench) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.network.line(B).up.limit(2e6)
    bench.serve(B, body(1_000_000))
    bench.serve(C, body(3_000_000))
    slow, quick = bench.call(B), bench.call(C)
    assert bench.arrives_after(quick) == soon(4 + 2 * LATENCY)
    assert bench.arrives_after(slow) == soon(0)


def test_flows_of_other_lines_are_left_alone() -> None:
    clock = HeapClock(0.0)
    sharing, lines = Sharing(clock), [Line(), Line()]
    rates: list[int] = []
    for number, line in enumerate(lines):
        line.up.limit(8e6)
        on_rate = lambda number=number: rates.append(number)  # noqa: E731
        sharing.begin(Flow(line.up, Channel(), 1_000, lambda: None, on_rate))
    assert rates == [0, 1]


def test_shares_are_max_min_fair() -> None:
    """Three flows of a common line of 12; one of them can have no more than 2 elsewhere, and one shares 5 there."""
    common, narrow, shared = Channel(12.0), Channel(2.0), Channel(5.0)
    paths = [(common, Channel()), (common, narrow), (common, shared), (Channel(), shared)]
    flows = [Flow(up, down, 100, lambda: None, lambda: None) for up, down in paths]
    for flow in flows:
        for channel in flow.limited():
            channel.flows[flow] = None
    assert max_min([common, narrow, shared]) == dict(zip(flows, [7.5, 2.0, 2.5, 2.5], strict=True))


# Ends before the end


def test_a_call_that_is_cancelled_frees_its_share_and_counts_what_came(bench: Bench) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.serve(B, body(3_000_000))
    bench.serve(C, body(3_000_000))
    given_up, kept = bench.call(B), bench.call(C)
    bench.clock.run(1 + 2 * LATENCY)
    given_up.cancel()
    with pytest.raises(CancelledError):
        result_of(given_up)
    assert bench.network.line(B).up.bytes == pytest.approx(500_000, abs=500)
    assert bench.arrives_after(kept) == soon(2.5)


def test_a_call_that_is_late_frees_its_share(bench: Bench) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.serve(B, body(9_000_000))
    bench.serve(C, body(3_000_000))
    late, kept = bench.call(B, evolve(ASK, seconds=1 + 2 * LATENCY)), bench.call(C)
    assert bench.arrives_after(kept) == soon(3.5 + 2 * LATENCY)
    assert bench.trouble_of(late) is FailureKind.TIMEOUT
    assert bench.network.line(A).down.bytes == pytest.approx(3_500_000, abs=500)


def test_a_reply_that_is_too_long_is_broken_off(bench: Bench) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.serve(B, body(9_000_000))
    call = bench.call(B, evolve(ASK, max_bytes=1_000_000))
    assert bench.arrives_after(call) == soon(1 + 2 * LATENCY)
    assert bench.trouble_of(call) is FailureKind.TOO_LARGE
    assert bench.network.line(A).down.bytes == 1_000_000 + HEAD_BYTES


@pytest.mark.parametrize("how", ["the node ends", "the network falls apart"])
def test_data_in_flight_is_lost_without_a_route(bench: Bench, how: str) -> None:
    bench.network.line(A).down.limit(8e6)
    bench.serve(B, body(9_000_000))
    call = bench.call(B)
    bench.clock.run(1)
    if how == "the node ends":
        bench.network.detach(B)
    else:
        bench.network.part([[A], [B]])
    assert bench.trouble_of(call) is FailureKind.UNREACHABLE
    assert not bench.network.line(A).down.flows


def test_a_node_that_ends_frees_the_lines_of_others_and_hears_nothing(bench: Bench) -> None:
    bench.network.line(B).up.limit(8e6)
    bench.serve(B, body(9_000_000))
    call = bench.call(B)
    bench.clock.run(1)
    bench.life.over = True
    bench.network.detach(A)
    assert not bench.network.line(B).up.flows
    bench.clock.run(100)
    assert not has_result(call)


# No progress


def test_a_long_answer_may_take_its_time_while_it_comes(bench: Bench) -> None:
    bench.network.line(A).down.limit(17_000 * 8 / 10)
    bench.serve(B, body(170_000))
    assert bench.arrives_after(bench.call(B, TAKES_ITS_TIME), within=200) == soon(100 + 2 * LATENCY)


def test_an_answer_that_comes_too_slowly_fails_after_the_period(bench: Bench) -> None:
    bench.network.line(A).down.limit(16_000 * 8 / 10)
    bench.serve(B, body(164_000))
    call = bench.call(B, TAKES_ITS_TIME)
    assert bench.arrives_after(call) == soon(10)
    assert bench.trouble_of(call) is FailureKind.TIMEOUT
    assert bench.network.line(A).down.bytes == pytest.approx(1_600 * (10 - 2 * LATENCY), abs=20)


def test_an_answer_that_becomes_too_slow_fails_when_too_little_came_in_any_period(bench: Bench) -> None:
    """Four seconds alone at 2,000 bytes a second, then beside another call at 1,000: a period holds 16,384 bytes and
    no less while 6.384 of its ten seconds are of the time alone.
    """
    bench.network.line(A).down.limit(2_000 * 8)
    for endpoint in (B, C):
        bench.serve(endpoint, body(1_000_000))
    call = bench.call(B, TAKES_ITS_TIME)
    bench.clock.run(8.5)
    bench.call(C, evolve(ASK, seconds=1_000.0)).addErrback(lambda _: None)
    # Alone from 0.2 on, together from 8.7 on: the period from 2.316 to 12.316 holds 6.384 · 2,000 + 3.616 · 1,000.
    assert bench.arrives_after(call) == soon(12.316 - 8.5)
    assert bench.trouble_of(call) is FailureKind.TIMEOUT


def test_silence_fails_after_the_period(bench: Bench) -> None:
    bench.serve(B, None)
    call = bench.call(B, TAKES_ITS_TIME)
    assert bench.arrives_after(call) == soon(10)
    assert bench.trouble_of(call) is FailureKind.TIMEOUT


def test_the_bytes_of_a_request_are_progress_too(bench: Bench) -> None:
    bench.network.line(A).up.limit(20_000 * 8 / 10)
    bench.serve(B, body(1_000))
    call = bench.call(B, evolve(TAKES_ITS_TIME, body=bytes(100_000)))
    assert bench.arrives_after(call) == soon(50.04 + 2 * LATENCY)


@pytest.mark.parametrize("rate", [None, 8e6])
def test_a_caller_hears_of_every_byte_of_the_body_as_it_comes(bench: Bench, rate: float | None) -> None:
    bench.network.line(A).down.limit(rate)
    bench.serve(B, body(1_000_000))
    heard: list[int] = []
    call = bench.call(B, evolve(ASK, on_bytes=heard.append))
    bench.clock.run(0.5 + 2 * LATENCY)
    if rate is not None:
        assert 350_000 < sum(heard) < 550_000
    bench.clock.run(1)
    assert sum(heard) == len(result_of(call).body)


# Connections


def test_an_endpoint_is_called_over_so_many_connections_at_a_time(bench: Bench) -> None:
    bench.serve(B, body(1_000))
    places = MAX_CALLS[ASK.kind]
    calls = [bench.call(B) for _ in range(2 * places)]
    other = bench.call(B, evolve(ASK, kind=CallKind.ASK))
    bench.clock.run(2 * LATENCY + 0.01)
    assert [has_result(call) for call in calls] == [True] * places + [False] * places
    assert has_result(other)
    bench.clock.run(2 * LATENCY + 0.01)
    assert all(has_result(call) for call in calls)


def test_a_call_that_is_given_up_while_it_waits_is_not_sent(bench: Bench) -> None:
    bench.serve(B, body(1_000))
    calls = [bench.call(B) for _ in range(MAX_CALLS[ASK.kind] + 2)]
    calls[-2].cancel()
    with pytest.raises(CancelledError):
        result_of(calls[-2])
    bench.clock.run(4 * LATENCY + 0.02)
    assert has_result(calls[-1])
    assert bench.network.line(A).up.bytes == len(written(ASK)) * (len(calls) - 1)
