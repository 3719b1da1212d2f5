"""Watches and events on disk: what is found by which question, and which event comes next."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.events import EVENT_RULES
from svcd.store.database import WEBHOOKS, DatabaseConnection, migrations, open_writer
from svcd.store.sql_connection import SqlConnection, SqliteConnection
from svcd.store.webhook_events import BreakerRow, Delivered, EventRow, EventStore, NewEvent, WatchQueue, receiver_of
from svcd.store.webhook_store import FollowedBlock, WatchChange, WatchRow, WebhookStore
from tests.postgresql import Server, opened
from tests.store.contents import room_for_pages

NOW = 1_000_000
LESS = ("payment.pending", "payment.confirming")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DatabaseConnection]:
    """What only SQLite has."""
    with closing(open_writer(tmp_path / "webhooks.sqlite", WEBHOOKS)) as connection:
        yield connection


@pytest.fixture(params=["sqlite", "postgresql"])
def connection(request: pytest.FixtureRequest) -> Iterator[SqlConnection]:
    """The same statements on both engines."""
    if request.param == "sqlite":
        yield SqliteConnection(request.getfixturevalue("file"))
        return
    server: Server = request.getfixturevalue("postgresql_server")
    with closing(opened(server.new_schema())) as connection:
        yield connection


@pytest.fixture
def watches(connection: SqlConnection) -> WebhookStore:
    return WebhookStore(connection)


@pytest.fixture
def events(connection: SqlConnection) -> EventStore:
    return EventStore(connection, EVENT_RULES)


def row(identifier: str = "w1", **differing: object) -> WatchRow:
    common = WatchRow(
        id=identifier,
        merchant="default",
        reference="order-1",
        recipient="svc1shop",
        amount=25,
        required=3,
        since_height=None,
        callback_url=f"https://shop.example.com/{identifier}",
        host="shop.example.com",
        created_at=NOW,
        expires_at=NOW + 60_000,
        events="payment.confirmed payment.confirming",
        state="unpaid",
        epoch=0,
        sequence=0,
        close_height=None,
        ending=None,
        txid=None,
        block_hash=None,
        height=None,
        position=None,
        block_time=None,
        wake_height=None,
        wake_at=NOW + 60_000,
        ended_at=None,
        reported_mismatches=None,
    )
    return evolve(common, **differing)


def event(sequence: int, name: str = "payment.confirming", *, epoch: int = 0) -> EventRow:
    return EventRow(
        sequence=sequence,
        epoch=epoch,
        id=f"svcevt_{sequence}",
        name=name,
        body=b"{}",
        summary=f'{{"tip":{sequence}}}',
        created_at=NOW + sequence,
    )


def append(events: EventStore, watch: str, event: EventRow, *, now: int) -> WatchQueue:
    """Append one event; gives its queue."""
    (queue,) = events.append([NewEvent(watch, event)], now)
    return queue


def delivered(events: EventStore, watch: str, sequence: int, now: int, status: int | None = None) -> WatchQueue | None:
    """Note the delivery of one event; gives its queue."""
    (queue,) = events.delivered([Delivered(watch, sequence, now, status)])
    return queue


def save(watches: WebhookStore, changed: WatchRow) -> None:
    """Update a watch, if there is one."""
    before = watches.watch(changed.id)
    if before is not None:
        watches.save([WatchChange(before, changed)])


def fates(connection: SqlConnection) -> Counter[str]:
    """How many events have met which fate, of those that are kept."""
    return Counter(fate for (fate,) in connection.execute("SELECT fate FROM event"))


def ids(rows: list[WatchRow]) -> list[str]:
    return [row.id for row in rows]


@pytest.mark.usefixtures("durable")
def test_every_commit_is_on_the_disk_before_it_is_told(file: DatabaseConnection) -> None:
    assert file.execute("PRAGMA synchronous").fetchone() == (2,)
    assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("watch", "found"),
    [
        ({"since_height": 7, "created_at": NOW + 1}, True),
        ({"since_height": 0, "created_at": NOW + 1}, True),
        ({"since_height": 8, "created_at": NOW - 1}, False),
        ({"created_at": NOW - 1}, True),
        ({"created_at": NOW}, False),
    ],
)
def test_an_active_watch_looks_for_its_payment_from_its_height_on_or_from_its_registration(
    watches: WebhookStore, watch: dict[str, int], found: bool
) -> None:
    watches.add(row("later", created_at=NOW + 1))
    watches.add(row("ended", since_height=0, created_at=0, ending="cancelled"))
    assert not watches.has_active_since(7, NOW)
    watches.add(row(**watch))
    assert watches.has_active_since(7, NOW) is found
    save(watches, row(**watch, ending="expired"))
    assert not watches.has_active_since(7, NOW)


def test_a_watch_comes_back_as_it_was_written(watches: WebhookStore) -> None:
    written = row(since_height=5, txid=b"t" * 32, block_hash=b"b" * 32, height=7, position=2, block_time=NOW)
    watches.add(written)

    assert watches.watch("w1") == written
    changed = evolve(written, state="confirmed", epoch=2, sequence=9, close_height=99, wake_height=40, wake_at=None)
    save(watches, changed)
    assert watches.watch("w1") == changed
    assert watches.watch("w2") is None


def test_watches_are_found_by_address_reference_and_state(watches: WebhookStore) -> None:
    assert watches.is_idle()
    watches.add(row("low", height=5, wake_height=8))
    watches.add(row("high", height=9, amount=26, wake_at=NOW + 5))
    watches.add(row("elsewhere", recipient="svc1other", host="other.example.com"))
    watches.add(row("over", height=9, wake_height=1, wake_at=1, ending="cancelled", ended_at=NOW))

    assert not watches.is_idle()
    assert watches.with_mismatches("order-1", "svc1shop") == []
    assert ids(watches.of_payment("order-1", "svc1shop", 25, "default")) == ["low"]
    assert ids(watches.of_payments([("order-1", "svc1shop", 26), ("order-1", "svc1shop", 25)])) == ["high", "low"]
    assert ids(watches.followed(["over", "high", "unknown", "low"])) == ["high", "low"]
    assert ids(watches.of_payments([("ORDER-1", "svc1shop", 25)])) == []
    assert ids(watches.above(5)) == ["high"]
    assert ids(watches.above(-1)) == ["low", "high"]
    assert ids(watches.waking_at_height(7)) == []
    assert ids(watches.waking_at_height(8)) == ["low"]
    assert ids(watches.waking_at(NOW + 4)) == []
    assert ids(watches.waking_at(NOW + 5)) == ["high"]
    assert ids(list(watches.all_followed())) == ["low", "high", "elsewhere"]
    save(watches, row("over", ending="expired", ended_at=NOW + 1, reported_mismatches=b""))
    assert ids(watches.with_mismatches("order-1", "svc1shop")) == ids(list(watches.all_followed()))[3:] == ["over"]
    assert watches.with_mismatches("order-1", "svc1shop")[0].ended_at == NOW, "the time of its end stays"
    watches.begin_epochs(7)
    assert [watch.epoch for watch in watches.all_followed()] == [7] * 4, "no id is used again after a restore"
    assert watches.count_active() == watches.count_unconfirmed("default") == 3
    assert watches.count_unconfirmed("default", "shop.example.com") == 2


@pytest.mark.parametrize(
    ("question", "index"),
    [
        ("reference = 'r' AND recipient = 's' AND amount = 1", "watch_by_payment"),
        ("state = 'pending'", "watch_pending"),
        ("height > 5", "watch_by_height"),
        ("wake_height <= 5", "watch_by_wake_height"),
        ("wake_at <= 5", "watch_by_wake_at"),
        ("reported_mismatches IS NOT NULL AND reference = 'r' AND recipient = 's'", "watch_with_mismatches"),
    ],
)
def test_no_question_walks_over_all_watches(connection: SqlConnection, question: str, index: str) -> None:
    asked = " AND ".join(["SELECT * FROM watch WHERE ending IS NULL", question])
    if isinstance(connection, SqliteConnection):
        (*_, plan) = connection.execute(f"EXPLAIN QUERY PLAN {asked}").fetchone()
        assert f"USING INDEX {index}" in plan
        return
    # With as few watches as a test has, PostgreSQL would rather read them all.
    connection.execute("SET enable_seqscan = off")
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {asked}"))
    assert f"on {index}" in plan or f"using {index}" in plan, plan


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["add", "save"]),
            st.integers(0, 7),
            st.sampled_from(["unpaid", "pending", "confirming", "confirmed"]),
            st.sampled_from([None, None, "closed"]),
        )
    )
)
def test_watches_are_counted_as_they_change(changes: list[tuple[str, int, str, str | None]]) -> None:
    file = DatabaseConnection(":memory:")
    for migration in migrations(WEBHOOKS):
        file.execute(migration.script)
    watches = WebhookStore(SqliteConnection(file))
    for change, number, state, ending in changes:
        changed = row(f"w{number}", merchant=f"m{number % 2}", host=f"h{number // 2 % 2}", state=state, ending=ending)
        if change == "save":
            save(watches, changed)
        elif watches.watch(changed.id) is None:
            watches.add(changed)
    active = [each for each in map(watches.watch, [f"w{number}" for number in range(8)]) if each and not each.ending]
    unconfirmed = [each for each in active if each.state != "confirmed"]
    assert watches.count_active() == len(active)
    for merchant in ("m0", "m1"):
        of_merchant = [each for each in unconfirmed if each.merchant == merchant]
        assert watches.count_unconfirmed(merchant) == len(of_merchant)
        for host in ("h0", "h1"):
            assert watches.count_unconfirmed(merchant, host) == sum(each.host == host for each in of_merchant)
    file.close()


def test_the_count_of_watches_costs_the_same_with_many_hosts(file: DatabaseConnection) -> None:
    watches = WebhookStore(SqliteConnection(file))

    def steps(identifier: str) -> int:
        """The instructions of SQLite for a watch that begins and is confirmed."""
        made = 0

        def count() -> bool:
            nonlocal made
            made += 1
            return False

        file.set_progress_handler(count, 1)
        watches.add(row(identifier))
        save(watches, row(identifier, state="confirmed"))
        file.set_progress_handler(None)
        return made

    alone = steps("w1")
    hosts = [("default", f"s{number}.example.com") for number in range(5_000)]
    file.executemany("INSERT INTO watch_count VALUES (?, ?, 1, 1)", hosts)
    assert steps("w2") < 1.2 * alone


def test_very_many_watches_are_read_page_by_page(watches: WebhookStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.store.webhook_store.PAGE", 2)
    for number in range(5):
        watches.add(row(f"w{number}", wake_at=NOW - number))
    read = []
    for each in watches.all_followed():
        read.append(each.id)
        save(watches, evolve(each, state="confirmed"))
    assert read == ["w0", "w1", "w2", "w3", "w4"]
    assert ids(watches.waking_at(NOW)) == ["w4", "w3"]


def test_the_trail_is_replaced_above_a_fork_and_shortened_below(watches: WebhookStore) -> None:
    assert watches.newest_step() is None
    watches.follow(0, [FollowedBlock(height, b"a%d" % height, height) for height in range(1, 8)], keep=5)
    assert [step.height for step in watches.steps_down()] == [7, 6, 5, 4, 3]

    watches.follow(5, [FollowedBlock(6, b"b6", 2**200)], keep=5)

    assert list(watches.steps_down()) == [
        FollowedBlock(6, b"b6", 2**200),
        *(FollowedBlock(height, b"a%d" % height, height) for height in (5, 4, 3)),
    ]
    assert watches.newest_step() == FollowedBlock(6, b"b6", 2**200)

    watches.set_evaluated(4)
    watches.follow(6, [FollowedBlock(7, b"b7", 2**201)], keep=5)
    watches.set_evaluated(4)
    assert [step.evaluated for step in watches.steps_down()] == [4, None, None, None, None]
    watches.set_evaluated(None)
    assert watches.newest_step() == FollowedBlock(7, b"b7", 2**201)


def test_events_are_sent_one_after_the_other(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())

    assert append(events, "w1", event(1, "payment.reorged"), now=NOW) == WatchQueue("w1", "shop.example.com:443", NOW)
    assert append(events, "w1", event(2), now=NOW + 5) == WatchQueue("w1", "shop.example.com:443", NOW)
    assert events.queued() == [WatchQueue("w1", "shop.example.com:443", NOW)]
    head = events.head("w1")
    assert head is not None
    assert (head.event.sequence, head.callback_url) == (1, "https://shop.example.com/w1")
    assert delivered(events, "w1", 1, NOW + 9) == WatchQueue("w1", "shop.example.com:443", NOW + 9)
    assert delivered(events, "w1", 2, NOW + 10) is None
    assert events.queued() == []
    assert [(each.sequence, each.fate, each.delivered_at, each.attempts) for each in events.events("w1")] == [
        (2, "delivered", NOW + 10, 1),
        (1, "delivered", NOW + 9, 1),
    ]


@pytest.mark.parametrize("name", ["confirming", "confirmed", "reorged", "expired", "pending"])
@pytest.mark.parametrize("less", LESS)
def test_an_event_that_tells_less_gives_its_place_to_a_newer_one_and_its_back_off_to_none(
    watches: WebhookStore, events: EventStore, less: str, name: str
) -> None:
    watches.add(row())
    append(events, "w1", event(1, less), now=NOW)
    assert events.failed("w1", 1, error="timeout", due=NOW + 5_000, now=NOW) == WatchQueue(
        "w1", "shop.example.com:443", NOW + 5_000
    )

    assert append(events, "w1", event(2, f"payment.{name}", epoch=1), now=NOW + 1).due == NOW + 1

    fates = [(each.sequence, each.fate, each.attempts) for each in events.events("w1")]
    assert fates == [(2, "waiting", 0), (1, "superseded", 1)]


@pytest.mark.parametrize("name", ["confirmed", "expired"])
def test_a_change_that_shops_act_on_keeps_its_place_and_its_back_off(
    watches: WebhookStore, events: EventStore, name: str
) -> None:
    watches.add(row())
    append(events, "w1", event(1, f"payment.{name}"), now=NOW)
    events.failed("w1", 1, error="timeout", due=NOW + 5_000, now=NOW)

    for sequence, later in ((2, "payment.confirming"), (3, "payment.confirmed")):
        assert append(events, "w1", event(sequence, later), now=NOW + 1).due == NOW + 5_000

    assert [(each.sequence, each.fate) for each in events.events("w1")] == [
        (3, "waiting"),
        (2, "superseded"),
        (1, "waiting"),
    ]


@pytest.mark.parametrize("aside", ["payment.mismatched", "node.alarm"])
def test_a_failing_mismatch_gives_way_to_a_payment(watches: WebhookStore, events: EventStore, aside: str) -> None:
    watches.add(row())
    for sequence in (1, 2):
        append(events, "w1", event(sequence, aside), now=NOW)
    for sequence in (1, 2, 1):
        events.failed("w1", sequence, error="status 500", due=NOW + 60_000, now=NOW)

    queue = append(events, "w1", event(3, "payment.confirmed"), now=NOW + 1)
    assert queue.due == NOW + 1
    order = []
    while (head := events.head("w1")) is not None:
        order.append(head.event.sequence)
        delivered(events, "w1", head.event.sequence, NOW + 2)
    assert order == [3, 1, 2]


@pytest.mark.parametrize("aside", ["payment.mismatched", "node.alarm"])
def test_other_events_do_not_end_the_back_off_of_what_gave_way_to_them(
    watches: WebhookStore, events: EventStore, aside: str
) -> None:
    watches.add(row())
    append(events, "w1", event(1, aside), now=NOW)
    events.failed("w1", 1, error="status 500", due=NOW + 60_000, now=NOW)
    for sequence, name in ((2, "payment.confirming"), (3, "payment.confirmed")):
        append(events, "w1", event(sequence, name), now=NOW + sequence)
        queue = delivered(events, "w1", sequence, NOW + sequence)
        assert queue == WatchQueue("w1", "shop.example.com:443", NOW + 60_000)
    append(events, "w1", event(4, "payment.reorged"), now=NOW + 4)
    queue = events.failed("w1", 4, error="status 500", due=None, now=NOW + 5)
    assert queue == WatchQueue("w1", "shop.example.com:443", NOW + 60_000)
    # Of two, the one that is due first has its turn.
    append(events, "w1", event(5, aside), now=NOW + 6)
    queue = events.failed("w1", 5, error="status 500", due=NOW + 1_000, now=NOW + 7)
    assert queue == WatchQueue("w1", "shop.example.com:443", NOW + 1_000)
    assert body_of(events, "w1") == (5, b"{}")


@pytest.mark.parametrize("fails", ["failed", "refused"])
@pytest.mark.parametrize(("later", "fate"), [("confirmed", "superseded"), ("pending", "waiting")])
def test_one_failure_to_tell_of_a_reorganisation_is_enough_if_its_payment_is_confirmed_again(
    watches: WebhookStore, events: EventStore, fails: str, later: str, fate: str
) -> None:
    watches.add(row())
    append(events, "w1", event(1, "payment.reorged"), now=NOW)
    append(events, "w1", event(2, f"payment.{later}"), now=NOW)
    followed = {} if fails == "failed" else {"due_if_followed": NOW + 500}

    queue = getattr(events, fails)("w1", 1, error="status 5", due=NOW + 60_000, now=NOW + 7, **followed)

    reorged = events.event("w1", event(1).id)
    assert reorged is not None
    assert (reorged.fate, bool(reorged.body)) == (fate, fate == "waiting")
    assert (queue.due == NOW + 7) == (fate == "superseded")
    head = events.head("w1")
    assert head is not None
    assert head.event.sequence == (2 if fate == "superseded" else 1)


def test_an_event_can_be_obsolete_although_no_other_takes_its_place(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    delivered(events, "w1", 1, NOW)
    events.redeliver("w1", "svcevt_1", NOW)
    append(events, "w1", event(2, "payment.confirmed"), now=NOW)

    events.supersede(["w1"], by="payment.reorged")
    assert [each.fate for each in events.events("w1")] == ["superseded", "waiting"], "what was asked for again stays"
    assert delivered(events, "w1", 1, NOW) is None
    append(events, "w1", event(3, "payment.confirmed"), now=NOW)
    events.supersede(["w1"], by="payment.reorged")
    assert (events.queued(), events.head("w1")) == ([], None)


def test_a_refused_event_is_tried_sooner_when_another_one_waits(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1, "payment.reorged"), now=NOW)

    def refused(due: int | None) -> int | None:
        queue = events.refused("w1", 1, error="status 400", due=due, due_if_followed=NOW + 500, now=NOW + 9)
        return None if queue is None else queue.due

    assert refused(NOW + 5_000) == NOW + 5_000
    assert append(events, "w1", event(2, "payment.expired"), now=NOW + 2).due == NOW + 2
    assert refused(NOW + 5_000) == NOW + 500
    assert refused(None) == NOW + 9
    newest, oldest = events.events("w1")
    assert (oldest.fate, oldest.attempts, oldest.refusals, oldest.last_error) == ("refused", 3, 3, "status 400")
    assert (newest.fate, newest.refusals) == ("waiting", 0)


def test_one_that_is_refused_while_it_is_superseded_delays_nothing(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1), now=NOW)
    append(events, "w1", event(2, "payment.confirmed"), now=NOW)

    queue = events.refused("w1", 1, error="status 400", due=NOW + 5_000, due_if_followed=NOW + 500, now=NOW + 1)
    assert queue == WatchQueue("w1", "shop.example.com:443", NOW + 1)
    assert [each.fate for each in events.events("w1")] == ["waiting", "superseded"]


@pytest.mark.parametrize("accepted", [False, True])
def test_an_event_that_was_superseded_during_its_attempt_stays_so_unless_it_is_delivered(
    watches: WebhookStore, events: EventStore, accepted: bool
) -> None:
    watches.add(row())
    append(events, "w1", event(1), now=NOW)
    append(events, "w1", event(2), now=NOW)

    queue = delivered(events, "w1", 1, NOW) if accepted else events.failed("w1", 1, error="timeout", due=None, now=NOW)
    assert queue is not None
    assert [each.fate for each in events.events("w1")] == ["waiting", "delivered" if accepted else "superseded"]


def test_an_attempt_that_does_not_count_leaves_only_why_it_failed(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1), now=NOW)

    queue = events.failed("w1", 1, error="timeout", due=NOW + 5_000, now=NOW, counts=False)

    assert queue == WatchQueue("w1", "shop.example.com:443", NOW + 5_000)
    assert [(each.fate, each.attempts, each.last_error) for each in events.events("w1")] == [("waiting", 0, "timeout")]


def test_an_abandoned_event_lets_the_next_one_through(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    append(events, "w1", event(2), now=NOW)

    assert events.failed("w1", 1, error="status 500", due=None, now=NOW + 7) == WatchQueue(
        "w1", "shop.example.com:443", NOW + 7
    )
    newest, oldest = events.events("w1")
    assert (oldest.fate, oldest.last_error, newest.fate) == ("abandoned", "status 500", "waiting")


def test_dropped_events_are_not_sent(connection: SqlConnection, watches: WebhookStore, events: EventStore) -> None:
    watches.add(row())
    append(events, "w1", event(1), now=NOW)

    events.drop_waiting("w1")

    assert (events.queued(), events.head("w1")) == ([], None)
    assert fates(connection) == {"dropped": 1}


def test_events_that_waited_too_long_are_abandoned(
    connection: SqlConnection, watches: WebhookStore, events: EventStore
) -> None:
    watches.add(row("w1"))
    watches.add(row("w2"))
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    append(events, "w1", event(5), now=NOW)
    append(events, "w2", event(2), now=NOW)

    assert events.abandon_older(NOW + 3, 1) == events.abandon_older(NOW + 3, 9) == 1
    assert events.queued() == [WatchQueue("w1", "shop.example.com:443", NOW)]
    assert fates(connection) == {"abandoned": 2, "waiting": 1}


def test_the_newest_events_are_kept_and_all_that_wait(
    connection: SqlConnection, watches: WebhookStore, events: EventStore
) -> None:
    watches.add(row())
    append(events, "w1", event(1, "payment.reorged"), now=NOW)
    for sequence in range(2, 101):
        append(events, "w1", event(sequence), now=NOW)

    assert len(events.events("w1")) == 32
    assert fates(connection).total() == 33
    head = events.head("w1")
    assert head is not None
    assert head.event.sequence == 1


def test_ended_watches_are_deleted_once_nothing_waits(
    connection: SqlConnection, watches: WebhookStore, events: EventStore
) -> None:
    for name in ("quiet", "telling", "later", "active"):
        watches.add(row(name))
    save(watches, row("quiet", ending="closed", ended_at=NOW))
    save(watches, row("telling", ending="expired", ended_at=NOW))
    save(watches, row("later", ending="closed", ended_at=NOW + 100))
    append(events, "quiet", event(1), now=NOW)
    delivered(events, "quiet", 1, NOW)
    append(events, "telling", event(1, "payment.expired"), now=NOW)

    assert watches.forget_ended(NOW + 100, 10) == 1
    assert watches.watch("quiet") is None
    assert fates(connection) == {"waiting": 1}
    assert [watches.watch(name) is None for name in ("telling", "later", "active")] == [False, False, False]


def test_bodies_of_events_that_were_sent_are_kept_for_a_while(
    connection: SqlConnection, watches: WebhookStore, events: EventStore
) -> None:
    for name in ("a", "b", "c"):
        watches.add(row(name))
        append(events, name, event(1), now=NOW)
    delivered(events, "a", 1, NOW + 50)
    events.failed("b", 1, error="timeout", due=None, now=NOW)
    append(events, "c", event(2, "payment.confirmed"), now=NOW)
    events.drop_waiting("c")
    append(events, "a", event(9), now=NOW)

    def bodies() -> list[tuple[str, int]]:
        bodies: list[tuple[str, int]] = connection.execute("SELECT fate, length(body) FROM event").fetchall()
        return sorted(bodies)

    assert bodies() == [("abandoned", 2), ("delivered", 2), ("dropped", 0), ("superseded", 0), ("waiting", 2)]
    assert events.forget_bodies(NOW + 1, 10) == 0
    assert events.forget_bodies(NOW + 50, 10) == 1, "the abandoned event is kept since its creation"
    assert events.forget_bodies(NOW + 51, 10) == 1, "the delivered event is kept since its delivery"
    assert bodies() == [("abandoned", 0), ("delivered", 0), ("dropped", 0), ("superseded", 0), ("waiting", 2)]


# Circuit breakers


@pytest.mark.parametrize(
    ("url", "receiver"),
    [
        ("https://shop.example.com/paid?at=a:1", "shop.example.com:443"),
        ("https://shop.example.com:8443/", "shop.example.com:8443"),
        ("http://203.0.113.7/", "203.0.113.7:80"),
        ("https://[2001:db8::1]/", "[2001:db8::1]:443"),
        ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
    ],
)
def test_a_receiver_is_the_host_and_the_port(url: str, receiver: str) -> None:
    assert receiver_of(url) == receiver


def test_each_port_of_a_host_has_a_breaker_of_its_own(events: EventStore) -> None:
    queues = [WatchQueue("w1", "h:443", 1), WatchQueue("w2", "h:8443", 1), WatchQueue("w3", "h:443", 1, "books")]
    breaker = BreakerRow("default", "h:8443", 1, 2, 3)
    events.keep_breaker(breaker)
    events.keep_breaker(BreakerRow("default", "gone:443", 1, 2, 3))
    assert events.open_breakers(queues) == [breaker]
    assert [events.open_breaker("default", "h:8443"), events.open_breaker("default", "h:443")] == [breaker, None]
    events.keep_breaker(evolve(breaker, probe_at=9))
    events.forget_breaker("default", "h:443")
    assert events.open_breaker("default", "h:8443") == evolve(breaker, probe_at=9)
    events.forget_breaker("default", "h:8443")
    assert events.open_breakers(queues) == []


# Sending again


def body_of(events: EventStore, watch: str) -> tuple[int, bytes] | None:
    head = events.head(watch)
    return None if head is None else (head.event.sequence, head.event.body)


def test_an_event_is_sent_again_with_its_body_and_behind_the_new_ones(
    watches: WebhookStore, events: EventStore
) -> None:
    watches.add(row("w1"))
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    delivered(events, "w1", 1, NOW + 1, 204)
    assert events.redeliver("w1", "svcevt_1", NOW + 2) == WatchQueue("w1", "shop.example.com:443", NOW + 2)
    assert body_of(events, "w1") == (1, b"{}")
    failed = {"error": "status 500", "status": 500, "asked_at": NOW + 2}
    assert events.failed("w1", 1, due=NOW + 9_000, now=NOW + 3, **failed) == WatchQueue(
        "w1", "shop.example.com:443", NOW + 9_000
    )

    # Neither superseded by a new event nor in its way.
    assert append(events, "w1", event(2, "payment.confirming"), now=NOW + 4).due == NOW + 4
    assert body_of(events, "w1") == (2, b"{}")
    # An attempt that began before the new event came does not push it into its own back-off.
    assert events.failed("w1", 1, due=NOW + 99_000, now=NOW + 5, **failed) == WatchQueue(
        "w1", "shop.example.com:443", NOW + 5
    )
    append(events, "w1", event(3, "payment.reorged"), now=NOW + 6)
    assert body_of(events, "w1") == (3, b"{}")
    events.failed("w1", 3, due=NOW + 50_000, now=NOW + 6, error="timeout")
    # The back-off of a new event is not cut short by what is sent again; asking for the event itself does that.
    assert events.redeliver("w1", "svcevt_1", NOW + 7) == WatchQueue("w1", "shop.example.com:443", NOW + 50_000)
    assert events.redeliver("w1", "svcevt_3", NOW + 8) == WatchQueue("w1", "shop.example.com:443", NOW + 8)


def test_confirmed_reorged_and_redelivered_events_are_urgent(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row("w1"))
    names = ("pending", "confirming", "confirmed", "reorged", "expired")
    urgent = {
        name: append(events, "w1", event(sequence, f"payment.{name}"), now=NOW).urgent
        for sequence, name in enumerate(names, 1)
    }
    assert [name for name in names if urgent[name]] == ["confirmed", "reorged"]
    queue = events.redeliver("w1", "svcevt_1", NOW)
    assert queue is not None
    assert queue.urgent
    events.ask_again("w1")
    assert [each.urgent for each in events.take_redelivery_requests()] == [True]


def test_redelivery_of_a_waiting_event_is_immediate(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row("w1"))
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    events.failed("w1", 1, error="connect", due=NOW + 50_000, now=NOW)
    assert events.redeliver("w1", "svcevt_1", NOW + 7) == WatchQueue("w1", "shop.example.com:443", NOW + 7)
    (shown,) = events.events("w1")
    assert (shown.attempts, shown.earlier_attempts, shown.redelivery_at) == (0, 1, None)
    assert shown.body == b"", "nobody is shown it, so it is not read"


@pytest.mark.parametrize("fails", ["failed", "refused"])
@pytest.mark.parametrize("due", [NOW + 50_000, None])
def test_a_redelivery_requested_during_an_attempt_follows_it_at_once(
    watches: WebhookStore, events: EventStore, fails: str, due: int | None
) -> None:
    followed = {} if fails == "failed" else {"due_if_followed": NOW + 500}

    def end(now: int, asked_at: int | None) -> WatchQueue | None:
        queue: WatchQueue | None = getattr(events, fails)(
            "w1", 1, error="status 5", due=due, now=now, asked_at=asked_at, **followed
        )
        return queue

    watches.add(row("w1"))
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    events.redeliver("w1", "svcevt_1", NOW + 1)
    events.redeliver("w1", "svcevt_1", NOW + 2)
    assert end(NOW + 3, NOW + 1) == WatchQueue("w1", "shop.example.com:443", NOW + 3)
    (shown,) = events.events("w1")
    assert (shown.fate, shown.attempts, shown.refusals, shown.earlier_attempts) == ("waiting", 0, 0, 1)
    # The next attempt knows of the request.
    queue = end(NOW + 4, NOW + 2)
    assert (None if queue is None else queue.due) == due


def test_a_redelivered_event_has_all_attempts_again(watches: WebhookStore, events: EventStore) -> None:
    watches.add(row("w1"))
    append(events, "w1", event(1, "payment.confirmed"), now=NOW)
    for _ in range(2):
        events.refused("w1", 1, error="status 400", due=NOW, due_if_followed=NOW, now=NOW, status=400)
    events.refused("w1", 1, error="status 400", due=None, due_if_followed=NOW, now=NOW, status=400)
    assert events.queued() == []
    events.redeliver("w1", "svcevt_1", NOW + 7)
    (shown,) = events.events("w1")
    assert (shown.fate, shown.attempts, shown.refusals, shown.earlier_attempts) == ("waiting", 0, 0, 3)
    assert (shown.last_status, shown.attempted_at, shown.redelivery_at) == (400, NOW, NOW + 7)
    # It counts neither as an old event that waits, nor as one that is too old to be sent.
    assert events.waiting_since() is None
    assert events.abandon_older(NOW + 5, 9) == 0
    assert events.abandon_older(NOW + 9, 9) == 1


def test_pages_of_watches(watches: WebhookStore) -> None:
    for number in range(5):
        merchant = "books" if number == 2 else "default"
        state = "pending" if number in (1, 3) else "unpaid"
        host = "other.example.com" if number == 3 else "shop.example.com"
        watches.add(row(f"w{number}", merchant=merchant, state=state, host=host))
    save(watches, evolve(row("w0"), ending="expired", state="unpaid"))

    def page(after: str | None = None, **selection: Any) -> tuple[list[str], str | None]:
        merchant = selection.pop("merchant", "default")
        given = {"state": None, "host": None, "scan": 10, "limit": 9, **selection}
        found, following = watches.page(merchant, after=after, **given)
        return ids(found), following

    assert page() == (["w4", "w3", "w1", "w0"], None)
    assert page(merchant="books") == (["w2"], None)
    assert page(merchant="music") == ([], None)
    assert page(limit=2) == (["w4", "w3"], "w3")
    assert page("w3", limit=2) == (["w1", "w0"], "w0")
    assert page("w0", limit=2) == ([], None)
    assert page(state="pending") == (["w3", "w1"], None)
    assert page(state="pending", host="shop.example.com") == (["w1"], None)
    assert page(state="expired") == (["w0"], None)
    assert page(state="unpaid") == (["w4"], None)
    # A page that looks at few watches says where to go on.
    assert page(state="expired", scan=3) == ([], "w1")
    assert page("w1", state="expired", scan=3) == (["w0"], None)
    for unknown in ("w9", "w2"):
        with pytest.raises(KeyError):
            page(unknown)
    watches.add(row("w5", reference="order-2"))
    assert page(reference="order-2", scan=3) == (["w5"], None)
    assert page(reference="order-2", merchant="books") == page(reference="order-3") == ([], None)


def test_a_disk_that_takes_a_few_pages_and_no_order_takes_nothing(tmp_path: Path, file: DatabaseConnection) -> None:
    connection = SqliteConnection(file)
    connection.probe()
    with room_for_pages(5, tmp_path / "webhooks.sqlite-wal"):
        for _ in range(5):
            with pytest.raises(apsw.Error):
                connection.probe()
    connection.probe()
