"""Verifications that wait for a change, on the real HTTP stack in memory."""

import json
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from twisted.internet.task import Clock

from svcd.chain.errors import NotYet, Wait
from svcd.commerce import payment_waiters
from svcd.commerce.payment import Observation
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.payment_waiters import MAX_WAITING_OF_CLIENT, TURN_SECONDS
from svcd.web.rate_limits import Rate
from tests.chains import address_of
from tests.rpc.conftest import clock, node, open_node, public_client
from tests.rpc.node import UNLIMITED, Node
from tests.submitting import submitted
from tests.web.wire import Response, Wire

__all__ = ["clock", "node", "open_node"]

BOB = address_of("bob", "svcd")


def target(state: str, reference: object = "order-1", **query: object) -> str:
    """The path of a verification of 5000 base units for bob that waits for 30 seconds."""
    values = {"recipient": BOB, "amountBaseUnits": 5000, "confirmations": 2, "wait": 30, "state": state, **query}
    pairs = {name: value for name, value in values.items() if value is not None}
    return f"/rpc/commerce/payment/{reference}?{urlencode(pairs)}"


def ask(node: Node, state: str, peer: str = "203.0.113.9", **query: object) -> Wire:
    """A client that asks and waits."""
    line = f"GET {target(state, **query)} HTTP/1.1\r\nHost: h\r\n\r\n"
    return Wire(node.public, peer).send(line.encode())


def pay(node: Node, amount: int = 5000, reference: str = "order-1") -> None:
    """A transfer from alice to bob arrives."""
    transfer = node.builder.transfer("alice", "bob", amount, reference=reference)
    submitted(node.node_context.transaction_pool, transfer, node.clock)
    node.clock.advance(0)


def state(wire: Wire) -> str:
    """The state in the only answer."""
    return str(wire.response().json["payment"]["state"])


def settle(clock: Clock) -> None:
    """Let everything that is due be done."""
    for _ in range(100):
        clock.advance(0)


def mine(node: Node, text: str) -> None:
    """The blocks of a text arrive."""
    node.grow(text)
    settle(node.clock)


def a_block(node: Node) -> None:
    mine(node, "genesis: b1")


def the_stop(node: Node) -> None:
    node.waiters.stop_accepting()
    settle(node.clock)


@pytest.mark.parametrize("header", ["", "Connection: close\r\n"], ids=["fast path", "slow path"])
def test_it_answers_as_soon_as_the_state_changes(node: Node, header: str) -> None:
    def wait(known: str) -> Wire:
        return Wire(node.public).send(f"GET {target(known)} HTTP/1.1\r\nHost: h\r\n{header}\r\n".encode())

    waiting = wait("unpaid")
    node.clock.advance(29)
    assert not waiting.received
    pay(node)
    assert state(waiting) == "pending"
    waiting = wait("pending")
    assert not waiting.received
    transfer = node.node_context.transaction_pool.mempool.entries()[0].transfer
    first = node.builder.block(transfers=[transfer])
    node.take(first)
    settle(node.clock)
    assert state(waiting) == "confirming"
    waiting = wait("confirming")
    node.take(node.builder.block(first))
    settle(node.clock)
    assert state(waiting) == "confirmed"
    assert len(node.waiters) == 0


def test_it_answers_at_once_when_the_state_is_another_than_the_client_knows(node: Node) -> None:
    pay(node)
    assert state(ask(node, "unpaid")) == "pending"
    assert state(ask(node, "confirmed")) == "pending"


def test_it_answers_after_the_time_with_the_same_state(node: Node) -> None:
    waiting = ask(node, "unpaid", wait=3)
    node.clock.advance(2.9)
    assert not waiting.received
    node.clock.advance(0.1)
    assert state(waiting) == "unpaid"


def test_it_answers_when_anything_but_the_tip_changes(node: Node) -> None:
    waiting = ask(node, "unpaid")
    other = ask(node, "unpaid", reference="order-2")
    mine(node, "genesis: b1\nb1 is by carol")
    assert not waiting.received, "a block without the payment"
    pay(node, 4999)
    assert [each["amount"] for each in waiting.response().json["payment"]["mismatches"]] == ["4999"]
    assert not other.received
    other.close()


def test_more_confirmations_than_asked_for_are_no_change(node: Node) -> None:
    blocks = node.grow("genesis: b1 b2\nb1 pays 5000 from alice to bob for order-1")
    confirming = ask(node, "confirming", confirmations=9)
    confirmed = ask(node, "confirmed")
    node.take(node.builder.block(blocks["b2"]))
    settle(node.clock)
    assert confirming.response().json["payment"]["confirmations"] == 3
    assert not confirmed.received
    confirmed.close()


def test_a_reorganisation_is_a_change(node: Node) -> None:
    mine(node, "genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    waiting = ask(node, "confirming")
    mine(node, "genesis: c1 c2\nc1 is by carol\nc2 is by carol")
    assert state(waiting) in ("pending", "unpaid")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"state": None}, "state is missing: with wait, give the state of the last answer, such as state=unpaid"),
        ({"state": "paid"}, "state: must be one of unpaid, pending, confirming, confirmed"),
        ({"wait": 31}, "wait: must be a whole number from 1 to 30"),
        ({"wait": 0}, "wait: must be a whole number from 1 to 30"),
        ({"recipient": BOB.upper()}, "recipient must be in lower case: it begins with svcd1q"),
    ],
)
def test_an_invalid_wait_query_is_refused(node: Node, query: dict[str, object], sentence: str) -> None:
    assert public_client(node).refusal(target(**{"state": "unpaid", **query})) == sentence  # type: ignore[arg-type]


def test_a_state_without_a_wait_changes_nothing(node: Node) -> None:
    assert state(ask(node, "unpaid", wait=None)) == "unpaid"


def test_only_so_many_wait(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [ask(node, "unpaid") for _ in range(MAX_WAITING_OF_CLIENT)]
    refused = ask(node, "unpaid").response()
    assert (refused.status, refused.headers["retry-after"]) == (429, "2")
    assert refused.error == "32 requests of this client wait already; try again later, or without wait"
    assert state(ask(node, "unpaid", wait=None)) == "unpaid", "it may still ask without waiting"
    assert state(ask(node, "pending")) == "unpaid", "an answer that is there takes no place"
    monkeypatch.setattr(node.waiters, "_max_waiting", MAX_WAITING_OF_CLIENT + 1)
    waiting.append(ask(node, "unpaid", "198.51.100.8"))
    assert not waiting[-1].received, "another client has places of its own"
    refused = ask(node, "unpaid", "198.51.100.9").response()
    assert (refused.status, refused.error) == (429, "33 requests wait already; try again later, or without wait")
    for each in waiting:
        each.close()
    assert len(node.waiters) == 0


def test_half_of_few_connections_may_wait(node: Node) -> None:
    few = payment_waiters.PaymentWaiters(node.waiters._payments, node.clock, connections=6)
    assert few._max_waiting == 3


def test_clients_without_limits_take_places_only_in_all(open_node: Callable[..., Node]) -> None:
    node = open_node(exempt=("203.0.113.9/32",))
    waiting = [ask(node, "unpaid") for _ in range(MAX_WAITING_OF_CLIENT + 1)]
    assert not any(each.received for each in waiting)
    assert len(node.waiters) == MAX_WAITING_OF_CLIENT + 1
    for each in waiting:
        each.close()


@pytest.mark.parametrize("ended", ["lost", "half closed"])
def test_a_client_that_goes_away_frees_its_place(node: Node, ended: str) -> None:
    waiting = ask(node, "unpaid")
    if ended == "lost":
        waiting.close()
    else:
        waiting.end()
        node.clock.advance(6)
    assert len(node.waiters) == 0
    pay(node)
    assert not waiting.received


def test_a_wait_costs_one_request(open_node: Callable[..., Node]) -> None:
    node = open_node(rates={**UNLIMITED, "read": Rate(0.001, 2)})
    waiting = ask(node, "unpaid", wait=5)
    node.clock.advance(5)
    assert waiting.response().status == 200
    assert ask(node, "unpaid", wait=None).response().status == 200
    assert ask(node, "unpaid", wait=None).response().status == 429


@pytest.mark.parametrize("event", [a_block, the_stop])
@pytest.mark.parametrize(("cost", "of_a_turn"), [(0.3 * TURN_SECONDS, 4), (20 * TURN_SECONDS, 1)])
def test_a_turn_of_the_reactor_looks_at_waiters_for_a_limited_time(
    node: Node, monkeypatch: pytest.MonkeyPatch, cost: float, of_a_turn: int, event: Callable[[Node], None]
) -> None:
    waiting = [ask(node, "unpaid", reference=f"order-{number}") for number in range(9)]
    turns: list[int] = []
    look, find = node.waiters._look, node.waiters._payments.find

    def take_time(terms: PaymentTerms) -> Observation:
        node.clock.rightNow += cost
        turns[-1] += 1
        return find(terms)

    def turn() -> None:
        turns.append(0)
        look()

    monkeypatch.setattr(node.waiters._payments, "find", take_time)
    monkeypatch.setattr(node.waiters, "_look", turn)
    event(node)
    assert sum(turns) == len(waiting)
    assert max(turns) == of_a_turn
    for each in waiting:
        each.close()


def test_of_many_each_is_looked_at_and_answered(open_node: Callable[..., Node]) -> None:
    node = open_node(exempt=("203.0.113.9/32",))
    count = 48
    waiting = [ask(node, "unpaid", reference=f"order-{number}") for number in range(count)]
    waiting += [ask(node, "unpaid") for _ in range(2)]
    mine(node, "genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    assert [number for number, each in enumerate(waiting) if each.received] == [1, count, count + 1]
    for each in waiting:
        each.close()


def test_the_end_of_the_node_answers_those_who_wait_and_lets_none_wait(node: Node) -> None:
    waiting = [ask(node, "unpaid", reference=f"order-{number}") for number in range(2)]
    the_stop(node)
    assert [state(each) for each in waiting] == ["unpaid", "unpaid"]
    assert state(ask(node, "unpaid")) == "unpaid"


def test_an_error_while_waiting_is_raised(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = ask(node, "unpaid")

    def fail(_: object) -> Response:
        raise NotYet(Wait.BUSY, "the disk is away")

    monkeypatch.setattr(node.waiters._payments, "find", fail)
    node.clock.advance(30)
    response = waiting.response()
    assert (response.status, json.loads(response.body)["error"]) == (503, "the disk is away")
    assert len(node.waiters) == 0
