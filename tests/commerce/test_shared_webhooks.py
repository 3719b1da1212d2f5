"""Two nodes that share the webhooks' database: the leader tells, the other takes requests and takes over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.commerce.circuit_breaker import OpenBreaker
from svcd.commerce.leadership import NotLeader, Role
from svcd.interfaces import milliseconds
from svcd.store.webhook_events import BreakerRow
from tests.commerce.watched import Given, Watched
from tests.postgresql import Server
from tests.rpc.conftest import present
from tests.support import result_of


class Pair:
    """Two nodes, of which the first leads at first."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.clock: Clock = present()
        self.given = Given(0), Given()
        nodes = []
        for name, given in zip("ab", self.given, strict=True):
            (folder / name).mkdir()
            nodes.append(Watched(folder / name, self.clock, postgresql=uri, leadership=given))
        self.leader, self.standby = nodes
        self.standby.numbers = iter(range(1_000, 2_000))  # type: ignore[assignment]

    def take_over(self) -> None:
        """Let the second node lead; the first one does not know."""
        store = self.standby.database.lease
        assert store is not None
        lease = store.lease()
        assert store.replace(lease, evolve(lease, term=lease.term + 1))
        self.given[1].term = lease.term + 1
        self.standby.webhooks.leadership_changed()

    def connect(self, *blocks: Block) -> None:
        """Let both nodes have blocks."""
        for node in (self.leader, self.standby):
            node.node.take(*blocks)
        self.turn()

    def turn(self) -> None:
        """A second passes."""
        for node in (self.leader, self.standby):
            node.poll()
        for _ in range(20):
            self.clock.advance(0)

    def redeliver(self, node: Watched, watch: str, event: str) -> Any:
        return result_of(Deferred.fromCoroutine(node.webhooks.redeliver("default", watch, event)))


@pytest.fixture
def pair(postgresql_server: Server, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, postgresql_server.new_schema())
    yield pair
    pair.leader.close()
    pair.standby.close()


FORK = """
genesis: b[1..8]
b2: c[3..5]
b3 pays 5000 from alice to bob for order-1
c5 pays 5000 from alice to bob for order-1
"""


def blocks(pair: Pair, *names: str) -> list[Block]:
    chain = pair.leader.node.builder.chain(FORK)
    return [chain[name] for name in names]


def test_the_leader_tells_of_what_was_begun_at_the_other_node(pair: Pair) -> None:
    pair.connect(*blocks(pair, "b1", "b2", "b3"))
    shown = pair.standby.register()
    assert (shown["lastState"], shown["payment"]["state"]) == ("unpaid", "confirming")
    assert pair.leader.show(shown["id"])["lastState"] == "unpaid"
    assert pair.leader.register() == {**shown, "existing": True}
    pair.turn()
    assert pair.standby.events() == []
    (event,) = pair.leader.events()
    assert (event["event"], event["initial"], event["sequence"]) == ("payment.confirming", True, 1)
    assert pair.standby.show(shown["id"])["lastState"] == "confirming"
    pair.connect(*blocks(pair, "b4", "b5"))
    assert [event["initial"] for event in pair.leader.events()] == [False]


def test_a_node_that_stands_by_knows_what_the_leader_has_evaluated(pair: Pair) -> None:
    pair.standby.register()
    pair.connect(*blocks(pair, "b1", "b2", "b3"))
    pair.turn()
    for node in (pair.leader, pair.standby):
        node.poll()
        assert node.webhooks.evaluated_height == 3
    # The leader has not this block yet, and the node that stands by may be asked to take over.
    (later,) = blocks(pair, "b4")
    pair.standby.node.take(later)
    pair.standby.poll()
    assert pair.standby.webhooks.evaluated_height == 3


def test_a_watch_that_was_begun_at_another_node_holds_the_height_until_the_leader_has_evaluated_it(pair: Pair) -> None:
    """A node that may become the leader keeps the blocks that the watch needs."""
    pair.standby.register("order-2")
    pair.connect(*blocks(pair, "b1", "b2", "b3", "b4"))
    pair.turn()
    assert pair.standby.webhooks.evaluated_height == 4
    pair.leader.busy = True
    pair.leader.register(since=2)
    for node in (pair.leader, pair.standby):
        node.poll()
        assert node.webhooks.evaluated_height == 1
    pair.leader.busy = False
    pair.clock.advance(0.05)
    pair.turn()
    pair.turn()
    assert [node.webhooks.evaluated_height for node in (pair.leader, pair.standby)] == [4, 4]


def test_a_watch_ends_and_an_event_is_sent_again_at_either_node(pair: Pair) -> None:
    watch = pair.standby.register()["id"]
    pair.connect(*blocks(pair, "b1", "b2", "b3"))
    (event,) = pair.leader.events()
    assert pair.redeliver(pair.standby, watch, event["id"])["id"] == event["id"]
    assert pair.leader.events() == pair.standby.events() == []
    pair.turn()
    assert pair.leader.events() == [event]
    pair.turn()
    assert pair.leader.events() == []
    assert pair.standby.cancel(watch)["active"] is False
    pair.connect(*blocks(pair, "b4"))
    assert pair.leader.events() == []


def test_the_next_leader_tells_what_is_left_and_the_one_before_can_commit_nothing(pair: Pair) -> None:
    pair.leader.register()
    pair.connect(*blocks(pair, "b1", "b2", "b3"))
    (first,) = pair.leader.queues.pending.values()
    event = result_of(pair.leader.outbox.head(first.watch, 0))
    assert event is not None
    pair.take_over()
    assert pair.standby.told() == ["confirming: confirming 1"]
    # The first node still believes that it leads.
    with pytest.raises(NotLeader):
        result_of(pair.leader.outbox.delivered(event, 0))
    pair.leader.node.take(*blocks(pair, "b4"))
    pair.turn()
    assert pair.given[0].losses == 1
    assert pair.leader.events() == []
    pair.standby.node.take(*blocks(pair, "b4", "b5"))
    pair.turn()
    assert pair.standby.told() == ["confirmed: confirmed 3"]


def test_the_next_leader_tells_a_new_watch_what_is_there_in_one_event(pair: Pair) -> None:
    pair.connect(*blocks(pair, "b1", "b2"))
    pair.standby.node.take(*blocks(pair, "b3", "b4", "b5"))
    pair.standby.register()
    pair.take_over()
    told = [(event["event"], event["initial"]) for event in pair.standby.events()]
    assert told == [("payment.confirmed", True)]


def test_the_next_leader_tells_of_payments_in_the_mempool(pair: Pair) -> None:
    pair.leader.register()
    pair.standby.pay("5000 from alice to bob for order-1")
    pair.turn()
    assert pair.leader.events() == pair.standby.events() == []
    pair.take_over()
    assert pair.standby.told() == ["pending: pending 0"]


def test_a_leader_that_is_behind_waits(pair: Pair) -> None:
    pair.leader.register()
    pair.leader.node.take(*blocks(pair, "b1", "b2", "b3", "b4"))
    pair.turn()
    assert pair.leader.told() == ["confirming: confirming 2"]
    pair.standby.node.take(*blocks(pair, "b1", "b2"))
    pair.turn()
    assert pair.leader.webhooks.ready
    assert not pair.standby.webhooks.ready
    pair.take_over()
    late = pair.standby.register("order-2")["id"]
    assert pair.standby.told() == []
    assert pair.standby.show(late)["active"] is True
    pair.standby.node.take(*blocks(pair, "b3", "b4", "b5"))
    pair.turn()
    assert pair.standby.told() == ["confirmed: confirmed 3"]
    assert pair.standby.webhooks.ready


@pytest.mark.parametrize("synced", [True, False])
def test_a_leader_on_another_branch_tells_of_it_when_it_has_more_work(pair: Pair, synced: bool) -> None:
    pair.leader.register()
    pair.leader.node.take(*blocks(pair, "b1", "b2", "b3", "b4"))
    pair.turn()
    assert pair.leader.told() == ["confirming: confirming 2"]
    pair.standby.node.take(*blocks(pair, "b1", "b2", "c3"))
    pair.turn()
    assert not pair.standby.webhooks.ready
    pair.standby.synced = synced
    pair.take_over()
    assert pair.standby.told() == []
    pair.standby.node.take(*blocks(pair, "c4", "c5"))
    pair.turn()
    if not synced:
        assert pair.standby.told() == []
        pair.standby.synced = True
        pair.turn()
    assert pair.standby.told() == ["reorged: confirming 1"]
    assert pair.standby.webhooks.lag == 0


def test_a_standby_sees_how_far_the_leader_is_behind(pair: Pair) -> None:
    pair.connect(*blocks(pair, "b1"))
    pair.standby.node.take(*blocks(pair, "b2", "b3"))
    pair.turn()
    assert (pair.leader.webhooks.lag, pair.standby.webhooks.lag) == (0, 2)
    assert (pair.leader.webhooks.role, pair.standby.webhooks.role) == (Role.LEADER, Role.STANDBY)


def test_the_next_leader_begins_with_the_circuit_breakers_of_receivers_that_still_wait(pair: Pair) -> None:
    identifier = pair.leader.register()["id"]
    pair.connect(*blocks(pair, "b1", "b2", "b3"))
    breaker = OpenBreaker(opened_at=1, probe_at=2, probes=3)
    receiver, probe_at = "shop.example.com:443", milliseconds(pair.clock) + 300_000
    for each in (receiver, "gone.example.com:443"):
        result_of(pair.leader.outbox.keep_breaker("default", each, evolve(breaker, probes=1), 0))
        result_of(pair.leader.outbox.keep_breaker("default", each, evolve(breaker, probe_at=probe_at), 0))
    result_of(pair.leader.outbox.keep_breaker("other", receiver, breaker, 0))
    result_of(pair.leader.outbox.keep_breaker("other", receiver, None, 0))
    # Also a node that does not deliver knows the time of the next probe.
    assert pair.standby.show(identifier)["events"][0]["nextAttemptAt"] == str(probe_at)
    pair.take_over()
    assert pair.standby.queues.breakers == [BreakerRow("default", receiver, 1, probe_at, 3)]
    with pytest.raises(NotLeader):
        result_of(pair.leader.outbox.keep_breaker("default", receiver, None, 0))
