"""The webhook service: a disk that cannot be written, stops, pauses for the chain, and the operator's figures."""

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.commerce.dispatcher import WebhookDispatcher
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.sender import SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.watch_operations import WatchOperations, WatchRequest
from svcd.commerce.webhook_service import (
    MAX_PAUSES_SECONDS,
    PAUSE_SECONDS,
    Kept,
    PauseBudget,
    WebhookContext,
    WebhookService,
)
from svcd.interfaces import milliseconds
from svcd.net.calls import CallFailed
from svcd.net.targets import Rules
from svcd.node.clock_guard import ClockGuard
from svcd.node.devnet import Devnet
from svcd.store.database import DatabaseConnection, DatabaseUnavailable
from tests.chains import address_of
from tests.commerce.test_dispatcher import Network
from tests.commerce.watched import Queues, Watched
from tests.metrics.conftest import Measured, builder, make_node, measure, measured, node, transport
from tests.rpc.conftest import local_client, present
from tests.rpc.node import PARAMS
from tests.support import has_result, result_of


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path, present())
    yield watched
    watched.close()


class Disk:
    """The disk under the webhooks' database, as SQLite shows it."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._connection: DatabaseConnection = watched.database.operations.repository.watches._db
        self.blocks = iter(watched.node.builder.chain("genesis: b[1..10]").values())

    def let(self, writable: bool) -> None:
        """Accept or refuse writes from now on."""
        self._connection.execute(f"PRAGMA query_only = {not writable}")

    def written(self, writable: bool) -> list[str]:
        """The log levels of lines about the database while two blocks are connected on such a disk."""
        self.let(writable)
        logged: list[LogEvent]
        with capturedLogs() as logged:
            for _ in range(2):
                self._watched.node.take(next(self.blocks))
                for _ in range(20):
                    self._watched.clock.advance(0)
        return [event["log_level"].name for event in logged if "database" in event["log_format"]]


def test_each_outage_of_the_disk_and_its_end_are_logged_once(watched: Watched) -> None:
    watched.register()
    disk = Disk(watched)
    assert disk.written(True) == []
    for _ in range(2):
        assert disk.written(False) == ["error"]
        assert disk.written(True) == ["info"]


def try_disks(watched: Watched) -> None:
    result_of(Deferred.fromCoroutine(watched.node.databases.try_disks()))


def test_the_operator_sees_an_alarm_until_the_disk_can_be_written_again(watched: Watched) -> None:
    """Also after a refused registration: the merchant sees a 503, and the operator must know why."""
    operator, disk = local_client(watched.node), Disk(watched)
    assert disk.written(True) == []
    assert operator.ok("/ready") == {"alarms": [], "alone": True}
    disk.let(False)
    with pytest.raises(apsw.Error):
        watched.register()
    sentence = "the webhooks' database cannot be written: attempt to write a readonly database"
    for _ in range(2):
        assert operator.refusal("/ready", status=503) == f"not ready: {sentence}"
        assert operator.ok("/operator/status")["status"]["alarms"] == {"disk": sentence}
        try_disks(watched)
    watched.node.take(next(disk.blocks))
    assert watched.node_context.chain_manager.tip.height == 3, "the chain goes on"
    disk.let(True)
    try_disks(watched)
    assert operator.ok("/ready") == {"alarms": [], "alone": True}
    watched.register()


def test_of_two_databases_that_cannot_be_written_the_chain_s_is_reported(watched: Watched) -> None:
    """Usually it is one disk; the webhooks are reported only once the chain can be written again."""
    disk, chain = Disk(watched), watched.node_context.chain.chainstate.store._db
    disk.let(False)
    with pytest.raises(apsw.Error):
        watched.register()
    chain.execute("PRAGMA query_only = 1")
    mining = Deferred.fromCoroutine(Devnet(watched.node_context, bytes).mine(1, bytes(32)))
    with pytest.raises(apsw.Error):
        result_of(mining)
    readonly = "attempt to write a readonly database"
    assert watched.node.databases.trouble == f"the chain's database cannot be written: {readonly}"
    chain.execute("PRAGMA query_only = 0")
    try_disks(watched)
    assert watched.node.databases.trouble == f"the webhooks' database cannot be written: {readonly}"
    disk.let(True)
    try_disks(watched)
    assert watched.node.databases.trouble == ""


def test_events_scheduled_while_the_clock_was_years_ahead_are_sent_within_days_of_the_next_start(
    watched: Watched,
) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    event = result_of(watched.outbox.head(identifier))
    assert event is not None
    now = milliseconds(watched.clock)
    for put_off, due in ((3_600_000, 3_600_000), (10 * 365 * 86_400_000, 2 * 86_400_000)):
        result_of(watched.outbox.failed(event, error="timeout", due=now + put_off, now=now))
        watched.again()
        assert watched.queues.pending[identifier].due == now + due


@pytest.mark.parametrize("unit", ["SVC", "Token"])
def test_a_payment_is_told_when_a_watch_first_sees_it(tmp_path: Path, unit: str) -> None:
    watched = Watched(tmp_path, present(), params=evolve(PARAMS, unit=unit))
    identifier = watched.register()["id"]
    logged: list[LogEvent]
    with capturedLogs() as logged:
        watched.pay("5000 from alice to bob for order-1")
        (entry,) = watched.node_context.transaction_pool.mempool.entries()
        watched.node.take(watched.node.builder.block(transfers=[entry.transfer]))
        watched.poll()
    told = [formatEvent(event) for event in logged if "payment" in str(event.get("log_format"))]
    txid = entry.transfer.txid.hex()
    assert told == [f"{identifier} of default sees its payment of 0.00005 {unit}, pending, in transfer {txid}"]
    watched.close()


def test_a_receiver_that_answers_410_ends_its_watch(watched: Watched) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    event = result_of(watched.outbox.head(identifier))
    assert event is not None
    now = milliseconds(watched.clock)
    result_of(watched.outbox.gone(event, now))
    shown = watched.show(identifier)
    assert (shown["active"], shown["ending"]) == (False, "gone")
    (record,) = shown["events"]
    assert (record["deliveredAt"], record["lastError"], record["abandoned"]) == (None, "status 410", True)
    assert result_of(watched.outbox.head(identifier)) is None
    assert result_of(watched.outbox.failed(event, error="late", due=now, now=now)) is None


HOUR = """
genesis: b[1..6]
b2: c[3..12]
b3 pays 5000 from alice to bob for undone-and-confirmed
b3 pays 6000 from carol to bob for undone
c5 pays 5000 from alice to bob for undone-and-confirmed
c8 pays 7000 from alice to bob for confirmed
c12 pays 8000 from alice to bob for confirming
"""
NEWEST = {
    "undone-and-confirmed": ("payment.confirmed", 1),
    "undone": ("payment.reorged", 1),
    "confirmed": ("payment.confirmed", 0),
    "confirming": ("payment.confirming", 0),
    "expired": ("payment.expired", 0),
}


@frozen
class Delivering:
    """The deliveries of a watched node."""

    watched: Watched
    network: Network
    dispatcher: WebhookDispatcher

    @classmethod
    def to_dead_shop(cls, watched: Watched) -> "Delivering":
        """Nobody listens at the port 443 of the shop."""
        network = Network(watched.clock, {"shop": CallFailed("connect", "nobody listens")})
        sender = WebhookSender(Rules.for_callbacks(), {"default": SendingMerchant(network, SigningKeys("s" * 32))})
        dispatcher = WebhookDispatcher(
            watched.outbox, sender, clock=watched.clock, guard=ClockGuard(watched.clock), chance=lambda: 0.5
        )
        return cls(watched, network, dispatcher)

    def wait(self, seconds: int) -> None:
        until = self.watched.clock.seconds() + seconds
        while self.watched.clock.seconds() < until:
            self.dispatcher.enqueue(self.watched.queues.pending.values())
            self.watched.queues.pending.clear()
            self.watched.clock.advance(5)
            self.watched.poll()


def test_a_dead_receiver_delays_no_other_port_of_its_host_and_is_shown_with_its_next_probe(watched: Watched) -> None:
    delivering = Delivering.to_dead_shop(watched)
    for number in range(6):
        watched.register(ttl=3600 + number)
    ports = [watched.register("order-9", 5000, port=port)["id"] for port in (443, 8443)]
    watched.node.take(*watched.node.builder.chain("genesis: b1\nb1 pays 5000 from alice to bob for order-1").values())
    delivering.wait(900)
    assert (delivering.dispatcher.counts().broken_hosts, delivering.dispatcher.counts().delivered) == (1, 0)
    attempts = len(delivering.network.sent)
    watched.pay("5000 from alice to bob for order-9")
    delivering.wait(5)
    dead, alive = (watched.show(identifier)["events"][0] for identifier in ports)
    assert (alive["attempts"], alive["lastStatus"]) == (1, 200)
    assert (dead["attempts"], len(delivering.network.sent)) == (0, attempts + 1)
    at = int(dead["nextAttemptAt"])
    assert milliseconds(watched.clock) < at <= milliseconds(watched.clock) + 300_000
    # Not even a restart lets it be called before.
    result_of(delivering.dispatcher.stop())
    watched.again()
    assert [(row.receiver, row.probe_at) for row in watched.queues.breakers] == [("shop.example.com:443", at)]
    assert watched.show(ports[0])["events"][0]["nextAttemptAt"] == str(at)
    delivering = Delivering.to_dead_shop(watched)
    delivering.dispatcher.restore(watched.queues.breakers)
    delivering.wait((at - milliseconds(watched.clock)) // 1000 - 5)
    assert delivering.network.sent == []
    delivering.network.answers.clear()
    delivering.wait(10)
    assert delivering.dispatcher.counts().broken_hosts == 0
    assert watched.show(ports[0])["events"][0]["nextAttemptAt"] is None
    watched.again()
    assert watched.queues.breakers == []
    result_of(delivering.dispatcher.stop())


def test_a_shop_that_was_down_for_an_hour_hears_the_newest_state_of_each_order_first(watched: Watched) -> None:
    """It hears nothing else, in fact, whatever happened to its orders meanwhile."""
    delivering = Delivering.to_dead_shop(watched)
    network, dispatcher = delivering.network, delivering.dispatcher
    amounts = (5000, 6000, 7000, 8000, 9000)
    for reference, amount in zip(NEWEST, amounts, strict=True):
        watched.register(reference, amount, ttl=1_800 if reference == "expired" else 86_400)
    blocks = list(watched.node.builder.chain(HOUR).values())
    for block in blocks:
        watched.node.take(block)
        delivering.wait(3_600 // len(blocks))
    assert dispatcher.counts().delivered == 0

    failures = len(network.sent)
    network.answers.clear()
    delivering.wait(1_800)
    heard = [json.loads(sent.body) for sent in network.sent[failures:]]
    assert {body["payment"]["reference"]: (body["event"], body["epoch"]) for body in heard} == NEWEST
    assert len(heard) == len(NEWEST)
    result_of(dispatcher.stop())


class Sending(Queues):
    """A dispatcher with a delivery in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Deferred[None]] = []

    def stop(self) -> "Deferred[None]":
        """See svcd.commerce.webhook_service.Dispatcher."""
        self.ended.append(Deferred())
        return self.ended[-1]


def test_a_stop_waits_for_deliveries_in_flight(watched: Watched) -> None:
    dispatcher = Sending()
    context = WebhookContext(
        unit=watched.node_context.chain_manager.params.unit,
        clock=watched.clock,
        guard=watched.node_context.guard,
        synced=lambda: True,
        busy=lambda: False,
        readmission_done=watched.node_context.transaction_pool.readmission_done,
        deletions_done=watched.node_context.deletions_done,
        sleep=watched.pauses.append,
    )
    webhooks = WebhookService(
        watched.database.operations, watched.database.worker, dispatcher=dispatcher, context=context
    )
    webhooks.startService()

    stopped = webhooks.stopService()
    (ended,) = dispatcher.ended
    assert not has_result(stopped)
    ended.callback(None)
    assert has_result(stopped)


def test_a_step_goes_on_as_soon_as_no_block_is_connected() -> None:
    answers, pauses = [False, True, True, False, True, False], list[float]()
    budget = PauseBudget(lambda: answers.pop(0), pauses.append)
    budget.pause()
    assert not pauses
    budget.pause()
    assert pauses == [PAUSE_SECONDS] * 2
    budget.pause()
    assert pauses == [PAUSE_SECONDS] * 3
    assert not answers


def test_one_step_pauses_for_two_seconds_in_total() -> None:
    pauses: list[float] = []
    budget = PauseBudget(lambda: True, pauses.append)
    for _ in range(3):
        budget.pause()
        assert abs(sum(pauses) - MAX_PAUSES_SECONDS) < PAUSE_SECONDS


__all__ = ["builder", "make_node", "measure", "measured", "node", "transport"]

NOTHING: dict[str, object] = {
    **dict.fromkeys(("watches", "waiting", "inFlight", "brokenHosts", "abandoned", "refused"), 0),
    "oldestWaitingSince": None,
}


def test_the_operator_sees_watches_and_the_age_of_the_oldest_event(measured: Measured) -> None:
    """The receiver of these events cannot be reached."""
    webhooks, clock = measured.webhooks, measured.clock
    clock.advance(1)
    webhooks.startService()
    assert webhooks.record() == NOTHING

    shop = address_of("bob", measured.node.setting.params.address_prefix)
    terms = PaymentTerms("order-1", shop, 5000)
    request = WatchRequest(
        merchant="default",
        terms=terms,
        callback_url="https://shop.example.com/",
        host="shop.example.com",
        ttl_ms=60_000,
    )
    result_of(Deferred.fromCoroutine(webhooks.register(request)))
    result_of(webhooks.refresh_backlog())
    assert webhooks.record() == NOTHING | {"watches": 1}

    clock.advance(60)
    expired = milliseconds(clock)
    webhooks.poll()
    clock.advance(1)
    result_of(webhooks.refresh_backlog())
    assert webhooks.record() == NOTHING | {"waiting": 1, "oldestWaitingSince": str(expired)}
    result_of(webhooks.stopService())


# Merchants that come and go


def test_watches_of_a_removed_merchant_are_counted_and_return_with_it(watched: Watched) -> None:
    paid, other = watched.register(merchant="books")["id"], watched.register(reference="order-2", merchant="books")
    watched.pay("5000 from alice to bob for order-1")
    changes: list[str] = []

    def change(**names: tuple[str, ...]) -> dict[str, Kept]:
        changing = watched.webhooks.change_merchants(lambda: changes.append("applied"), **names)
        return result_of(Deferred.fromCoroutine(changing))

    assert other["active"] is True
    assert change(removed=("books", "maps")) == {"books": Kept(2, 1), "maps": Kept(0, 0)}
    assert watched.queues.pending == {}
    assert change(added=("maps",)) == {}
    assert watched.queues.pending == {}
    assert change(added=("books",)) == {}
    assert list(watched.queues.pending) == [paid]
    assert changes == ["applied"] * 3


def test_a_database_that_does_not_answer_leaves_the_merchants_as_they_are(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnavailable("no connection")

    monkeypatch.setattr(WatchOperations, "queues", fail)
    changing = watched.webhooks.change_merchants(lambda: pytest.fail("applied"), removed=("books",))
    with pytest.raises(DatabaseUnavailable):
        result_of(Deferred.fromCoroutine(changing))
