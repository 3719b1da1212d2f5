"""The webhooks as a service: what they say of their disk, and what they wait for when they stop."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, capturedLogs

from svcd.commerce.webhooks import Surroundings, Webhooks
from svcd.ports import milliseconds
from tests.commerce.watched import Lanes, Watched
from tests.rpc.conftest import local_client, present
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
        self._connection: sqlite3.Connection = watched.desk.subscriptions.follower.register.watches._db
        self.blocks = iter(watched.node.builder.chain("genesis: b[1..10]").values())

    def let(self, writable: bool) -> None:
        """Take what is written from now on, or refuse it."""
        self._connection.execute(f"PRAGMA query_only = {not writable}")

    def written(self, writable: bool) -> list[str]:
        """The levels of what is said of it while a block comes, and then another, on a disk like this."""
        self.let(writable)
        logged: list[LogEvent]
        with capturedLogs() as logged:
            for _ in range(2):
                self._watched.node.take(next(self.blocks))
                for _ in range(20):
                    self._watched.clock.advance(0)
        return [event["log_level"].name for event in logged if "database" in event["log_format"]]


def test_a_disk_that_cannot_be_written_is_told_once_each_time_and_so_is_its_mending(watched: Watched) -> None:
    watched.register()
    disk = Disk(watched)
    assert disk.written(True) == []
    for _ in range(2):
        assert disk.written(False) == ["error"]
        assert disk.written(True) == ["info"]


def try_disks(watched: Watched) -> None:
    result_of(Deferred.fromCoroutine(watched.node.files.try_disks()))


def test_the_operator_is_told_until_it_can_be_written_again(watched: Watched) -> None:
    """Also of an order that is refused: the merchant sees a 503, and whoever runs the node must know why."""
    operator, disk = local_client(watched.node), Disk(watched)
    assert disk.written(True) == []
    assert operator.ok("/ready") == {"alarms": []}
    disk.let(False)
    with pytest.raises(sqlite3.OperationalError):
        watched.register()
    sentence = "the disk takes nothing for the webhooks: attempt to write a readonly database"
    for _ in range(2):
        assert operator.refusal("/ready", status=503) == f"not ready: {sentence}"
        assert operator.ok("/operator/status")["status"]["alarms"] == {"disk": sentence}
        try_disks(watched)
    watched.node.take(next(disk.blocks))
    assert watched.living.ledger.tip.height == 3, "the chain goes on"
    disk.let(True)
    try_disks(watched)
    assert operator.ok("/ready") == {"alarms": []}
    watched.register()


def test_of_two_files_that_cannot_be_written_the_chain_s_is_told(watched: Watched) -> None:
    """One disk is full, mostly; that the webhooks are left is told when the chain has been written again."""
    disk, chain = Disk(watched), watched.living.chain.connector.store._db
    disk.let(False)
    with pytest.raises(sqlite3.OperationalError):
        watched.register()
    chain.execute("PRAGMA query_only = 1")
    mining = Deferred.fromCoroutine(watched.living.on_demand(bytes).mine(1, bytes(32)))
    with pytest.raises(sqlite3.OperationalError):
        result_of(mining)
    readonly = "attempt to write a readonly database"
    assert watched.node.files.trouble == f"the disk takes nothing: {readonly}"
    chain.execute("PRAGMA query_only = 0")
    try_disks(watched)
    assert watched.node.files.trouble == f"the disk takes nothing for the webhooks: {readonly}"
    disk.let(True)
    try_disks(watched)
    assert watched.node.files.trouble == ""


def test_what_was_put_off_while_the_clock_was_years_ahead_is_sent_within_days_of_the_next_start(
    watched: Watched,
) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    parcel = result_of(watched.outbox.head(identifier))
    assert parcel is not None
    now = milliseconds(watched.clock)
    for put_off, due in ((3_600_000, 3_600_000), (10 * 365 * 86_400_000, 2 * 86_400_000)):
        result_of(watched.outbox.failed(parcel, error="timeout", due=now + put_off, now=now))
        watched.again()
        assert watched.lanes.awake[identifier].due == now + due


def test_a_receiver_that_wants_no_more_ends_its_watch(watched: Watched) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    parcel = result_of(watched.outbox.head(identifier))
    assert parcel is not None
    now = milliseconds(watched.clock)
    result_of(watched.outbox.gone(parcel, now))
    shown = watched.show(identifier)
    assert (shown["active"], shown["ending"]) == (False, "gone")
    (event,) = shown["events"]
    assert (event["deliveredAt"], event["lastError"], event["abandoned"]) == (None, "status 410", True)
    assert result_of(watched.outbox.head(identifier)) is None
    assert result_of(watched.outbox.failed(parcel, error="late", due=now, now=now)) is None


class Sending(Lanes):
    """In the middle of a delivery."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Deferred[None]] = []

    def stop(self) -> "Deferred[None]":
        """See svcd.commerce.webhooks.Courier."""
        self.ended.append(Deferred())
        return self.ended[-1]


def test_a_stop_waits_for_the_deliveries_under_way(watched: Watched) -> None:
    sender = Sending()
    around = Surroundings(
        clock=watched.clock,
        synced=lambda: True,
        busy=lambda: False,
        settled=watched.living.transfers.settled,
        nap=watched.naps.append,
    )
    webhooks = Webhooks(watched.desk.subscriptions, watched.desk.worker, sender=sender, surroundings=around)
    webhooks.startService()

    stopped = Deferred.fromCoroutine(webhooks.stopService())
    (ended,) = sender.ended
    assert not has_result(stopped)
    ended.callback(None)
    assert has_result(stopped)
