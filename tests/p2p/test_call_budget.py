"""Which calls are counted together, and how many of them there may be in an hour."""

from bisect import bisect_left
from ipaddress import ip_address

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.p2p import call_budget
from svcd.p2p.call_budget import (
    CALLS_PER_HOUR,
    GROUP_CALLS_PER_HOUR,
    GROUP_REPEATS_PER_HOUR,
    LOST_CALLS_PER_HOUR,
    CallBudget,
    CallReason,
    PlannedCall,
)

HOUR = 3_600.0


def call(address: str = "8.8.4.4", name: str = "a.example", port: int = 8645, **changes: object) -> PlannedCall:
    """A call to an endpoint that others have named, unless ``changes`` say otherwise."""
    planned = PlannedCall(
        endpoint=f"http://{name}:{port}",
        address=ip_address(address),
        port=port,
        answered=False,
        reason=CallReason.HINT,
        client="",
    )
    return evolve(planned, **changes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> CallBudget:
    return CallBudget(clock)


def taken(budget: CallBudget, planned: PlannedCall, tries: int = 1_000) -> int:
    """How many of so many calls may be made."""
    return sum(budget.take(planned) for _ in range(tries))


def test_a_dozen_an_hour(budget: CallBudget, clock: Clock) -> None:
    for _ in range(CALLS_PER_HOUR):
        assert budget.take(call())
        clock.advance(60)
    assert not budget.take(call())
    clock.advance(HOUR - 60 * CALLS_PER_HOUR)
    assert taken(budget, call()) == 1, "the first was an hour ago"
    clock.advance(HOUR)
    assert taken(budget, call()) == CALLS_PER_HOUR


def test_names_and_ports_of_an_address_share_them(budget: CallBudget) -> None:
    assert sum(budget.take(call(name=f"n{number}.example", port=8_000 + number)) for number in range(100)) == 12
    assert budget.take(call("8.8.4.5"))


def test_addresses_of_an_ipv6_network_of_one_host_share_them(budget: CallBudget) -> None:
    assert sum(budget.take(call(f"2a02:898:146:64::{number:x}")) for number in range(100)) == 12
    assert budget.take(call("2a02:898:146:65::1"))


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.7", "fd00::7"])
def test_each_port_of_a_private_address_has_its_own(budget: CallBudget, private: str) -> None:
    """One such address may be many nodes, and of a whole network of them."""
    assert [taken(budget, call(private, port=8_000 + number), 20) for number in range(40)] == [12] * 40
    assert taken(budget, call(private, name="another", port=8_000)) == 0


def test_a_peer_where_it_has_answered_is_called_without_a_limit(budget: CallBudget) -> None:
    peer = call(answered=True, reason=CallReason.PEER)
    assert taken(budget, peer) == 1_000
    assert taken(budget, call(port=80)) == 12, "what else is named there is not covered by that"
    assert taken(budget, peer) == 1_000


def test_a_peer_whose_name_leads_elsewhere_is_like_any_other(budget: CallBudget) -> None:
    assert taken(budget, call(reason=CallReason.PEER)) == 12


def test_a_lost_node_is_called_often_however_many_names_it_had(budget: CallBudget) -> None:
    tries = [call(name=f"n{number % 32}.example", answered=True) for number in range(1_000)]
    assert sum(map(budget.take, tries)) == LOST_CALLS_PER_HOUR


def test_endpoints_of_the_operator_have_a_budget_of_their_own(budget: CallBudget) -> None:
    assert taken(budget, call(name="other.example")) == 12
    assert taken(budget, call(reason=CallReason.OPERATOR)) == 12
    assert taken(budget, call(name="b.example", reason=CallReason.OPERATOR)) == 12


def test_a_command_of_the_operator_is_always_obeyed(budget: CallBudget) -> None:
    assert taken(budget, call(reason=CallReason.COMMAND)) == 1_000
    assert taken(budget, call()) == 12


def test_a_host_that_asks_for_itself_is_called_whatever_others_name_there(budget: CallBudget) -> None:
    assert taken(budget, call(name="other.example", client="9.9.9.9")) == 12
    assert taken(budget, call(client="8.8.4.4")) == 12
    assert taken(budget, call("2a02:898:146:64::1", client="2a02:898:146:64::2")) == 12
    assert taken(budget, call("2a02:898:146:64::1", client="exempt")) == 12


def addresses(count: int, group: str = "8.8") -> list[PlannedCall]:
    return [call(f"{group}.{number // 250}.{number % 250 + 1}") for number in range(count)]


def test_a_network_group_has_a_limit(budget: CallBudget) -> None:
    assert sum(map(budget.take, addresses(1_000))) == GROUP_CALLS_PER_HOUR
    assert sum(map(budget.take, addresses(10, "8.9"))) == 10
    for other in (call(answered=True), call(client="8.8.4.4"), call(reason=CallReason.OPERATOR)):
        assert budget.take(other), "these do not count in it"


def test_addresses_that_were_called_leave_room_in_their_group_for_others(budget: CallBudget, clock: Clock) -> None:
    """A few dead hosts, called again and again, must not stop a provider's whole network from being tried."""
    dead = addresses(16)
    assert sum(budget.take(each) for _ in range(12) for each in dead) == GROUP_REPEATS_PER_HOUR
    fresh = addresses(16 + 64)[16:]
    assert all(map(budget.take, fresh))
    assert not budget.take(call("8.8.200.1"))
    clock.advance(HOUR)
    assert budget.take(call("8.8.200.1"))


def test_the_memory_of_the_call_budget_is_bounded(budget: CallBudget) -> None:
    for number in range(10_000):
        budget.take(call(f"{20 + number // 250}.{number % 250}.1.1"))
    assert len(budget._addresses) == call_budget._ADDRESSES
    assert len(budget._groups) == call_budget._GROUPS


def test_an_address_that_is_still_named_is_not_forgotten(budget: CallBudget) -> None:
    assert taken(budget, call()) == 12
    for number in range(10_000):
        budget.take(call(f"{20 + number // 250}.{number % 250}.1.1"))
        assert number % 1_000 or not budget.take(call())


@given(st.lists(st.tuples(st.floats(0, 600), st.integers(0, 3), st.integers(0, 3)), min_size=50, max_size=400))
def test_no_hour_has_more_than_the_limit(tries: list[tuple[float, int, int]]) -> None:
    clock = Clock()
    budget = CallBudget(clock)
    made: dict[str, list[float]] = {}
    for wait, address, name in tries:
        clock.advance(wait)
        host = f"8.8.4.{address + 1}"
        if budget.take(call(host, name=f"n{name}.example")):
            made.setdefault(host, []).append(clock.seconds())
    for times in made.values():
        # The calls from an hour before each call, exclusively, up to it.
        assert all(place + 1 - bisect_left(times, time - HOUR + 1e-6) <= 12 for place, time in enumerate(times))
