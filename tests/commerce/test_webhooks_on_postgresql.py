"""Webhooks whose database is a PostgreSQL that goes away and comes back."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred

from svcd.commerce.leadership import NotLeader
from svcd.commerce.outbox import WebhookOutbox
from svcd.commerce.webhook_database import FILE
from svcd.store.database import WEBHOOKS, DatabaseError, DatabaseUnavailable, open_writer
from svcd.store.lease_store import LeaderLease
from svcd.store.sql_connection import mark_as_moved
from tests.commerce.watched import Given, Watched
from tests.postgresql import Server, running
from tests.rpc.conftest import local_client, present
from tests.support import result_of

END_OTHERS: Final = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
"""Ends all other connections, and waits for that."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that a test may kill."""
    with running(durable=True) as server:
        yield server


@pytest.fixture
def uri(postgresql_server: Server) -> str:
    return postgresql_server.new_schema()


@pytest.mark.slow
def test_while_postgresql_is_away_the_chain_goes_on_and_nothing_is_forgotten(tmp_path: Path, server: Server) -> None:
    watched = Watched(tmp_path, present(), postgresql=server.uri)
    operator = local_client(watched.node)
    identifier = watched.register("order-1")["id"]
    blocks = watched.node.builder.chain("genesis: a[1..3]\na1 pays 5000 from alice to bob for order-1")
    watched.node.take(blocks["a1"])
    server.stop(signal.SIGQUIT)
    for refused in (lambda: watched.register("order-2"), lambda: watched.show(identifier)):
        with pytest.raises(DatabaseUnavailable):
            refused()
    with pytest.raises(DatabaseUnavailable):
        watched.cancel(identifier)
    watched.node.take(blocks["a2"])
    watched.node.take(blocks["a3"])
    assert watched.node_context.chain_manager.tip.height == 3
    sentence = "the webhooks wait for their database: the PostgreSQL database postgres on /tmp/"
    assert operator.refusal("/ready", status=503).startswith(f"not ready: {sentence}")
    assert operator.ok("/operator/status")["status"]["alarms"]["database"].startswith(sentence)

    # A node that starts meanwhile begins with its webhooks later.
    watched.again()
    assert watched.events() == []
    server.start()
    watched.wait_for_database()
    assert [body["payment"]["confirmations"] for body in watched.events()] == [3]
    assert local_client(watched.node).ok("/ready") == {"alarms": [], "alone": True}
    assert watched.register("order-2")["active"]
    watched.close()


def test_a_file_with_webhooks_is_not_forgotten_for_postgresql(tmp_path: Path, uri: str) -> None:
    watched = Watched(tmp_path, present())
    watched.register()
    watched.close_webhooks()
    watched.postgresql = uri
    with pytest.raises(DatabaseError, match=r"webhooks\.sqlite has webhooks, and .* names PostgreSQL: move them with"):
        watched.open_webhooks()
    with closing(open_writer(tmp_path / FILE, WEBHOOKS)) as connection:
        mark_as_moved(connection)
    watched.open_webhooks()
    assert watched.register()["active"]
    watched.close_webhooks()
    watched.postgresql = ""
    with pytest.raises(DatabaseError, match=r"webhooks\.sqlite was moved to PostgreSQL: name that database in"):
        watched.open_webhooks()
    watched.node.close()


def test_without_psycopg_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, present())
    watched.close_webhooks()
    watched.postgresql = "postgresql:///svcd"
    monkeypatch.delitem(sys.modules, "svcd.store.postgresql")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError, match=r"psycopg must be installed: pip install 'svcd\[postgresql\]'"):
        watched.open_webhooks()
    watched.node.close()


def lead_again(watched: Watched, given: Given) -> None:
    """What the lease service does: the terms that were begun before have ended."""
    assert given.losses == 1
    assert watched.database.lease is not None
    given.term = watched.database.lease.lease().term
    assert given.term >= 1_000
    watched.webhooks.leadership_changed()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("UPDATE webhook_schema SET restored = 1", id="said by the operator"),
        pytest.param("UPDATE lease SET server = '7/5/00000001'", id="on another server"),
    ],
)
@pytest.mark.parametrize("running", [False, True])
def test_after_a_restored_backup_no_id_is_used_for_a_second_event(
    tmp_path: Path, uri: str, how: LiteralString, running: bool
) -> None:
    given = Given(0)
    watched = Watched(tmp_path, present(), postgresql=uri, leadership=given)
    watched.register()
    with closing(psycopg.connect(uri, autocommit=True)) as other:
        # The watches may be so many that changing all takes longer than a statement may.
        limit = "current_setting(''statement_timeout'')"
        checks = f"BEGIN IF {limit} <> ''0'' THEN RAISE ''%'', {limit}; END IF; RETURN new; END"
        other.execute(f"CREATE FUNCTION has_no_limit() RETURNS trigger LANGUAGE plpgsql AS '{checks}'".encode())
        other.execute("CREATE TRIGGER slow BEFORE UPDATE OF epoch ON watch EXECUTE FUNCTION has_no_limit()")
        other.execute(how)
        if running:
            other.execute(END_OTHERS)
            watched.poll()
            watched.wait_for_database()
        else:
            watched.again()
        other.execute("DROP TRIGGER slow ON watch")
    watched.poll()
    lead_again(watched, given)
    watched.pay("5000 from alice to bob for order-1")
    (body,) = watched.events()
    assert abs(int(body["epoch"]) - time.time()) < 60
    watched.again()
    assert watched.register()["existing"]
    watched.pay("5000 from carol to bob for order-1")
    assert given.losses == 1, "only once"
    watched.close()


@pytest.mark.slow
def test_a_promoted_standby_that_lacks_transactions_uses_no_id_twice(tmp_path: Path) -> None:
    given = Given(0)
    with running() as primary, running(standby_of=primary) as standby:
        address = f"postgresql://svcd@/postgres?host={primary.folder},{standby.folder}"
        watched = Watched(tmp_path, present(), postgresql=address, leadership=given)
        watched.register()
        with closing(psycopg.connect(standby.uri, autocommit=True)) as asked:
            while (
                asked.execute("SELECT to_regclass('watch')").fetchone() == (None,)
                or not asked.execute("SELECT FROM watch").fetchall()
            ):
                time.sleep(0.05)
        standby.stop(signal.SIGQUIT)
        watched.pay("5000 from alice to bob for order-1")
        (told,) = watched.events()
        primary.kill()
        standby.start()
        with closing(psycopg.connect(standby.uri, autocommit=True)) as connection:
            connection.execute("SELECT pg_promote()")
        watched.poll()
        watched.wait_for_database()
        watched.poll()
        lead_again(watched, given)
        (again,) = watched.events()
        assert (again["event"], again["sequence"]) == (told["event"], told["sequence"])
        assert again["id"] != told["id"]
        assert again["epoch"] > told["epoch"]
        watched.close()


def test_while_a_backup_is_restored_into_the_database_nothing_fails_but_for_a_while(tmp_path: Path, uri: str) -> None:
    watched = Watched(tmp_path, present(), postgresql=uri)
    watched.register("order-1")
    with closing(psycopg.connect(uri, autocommit=True)) as other:
        tables = "watch", "event", "followed_block", "webhook_schema"
        for table in tables:
            other.execute(f"ALTER TABLE {table} RENAME TO {table}_away".encode())
        for refused in (lambda: watched.register("order-2"), lambda: watched.show("svcwh_" + "0" * 32)):
            with pytest.raises(DatabaseUnavailable, match="does not exist"):
                refused()
        watched.poll()
        for table in tables:
            other.execute(f"ALTER TABLE {table}_away RENAME TO {table}".encode())
        other.execute("CREATE TABLE kept AS SELECT * FROM webhook_schema; DELETE FROM webhook_schema")
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="a backup is being restored into it"):
                watched.register("order-2")
            # Also a new connection.
            other.execute(END_OTHERS)
            watched.poll()
        other.execute("INSERT INTO webhook_schema SELECT * FROM kept")
    watched.wait_for_database()
    assert watched.register("order-1")["existing"]
    watched.close()


class Busy:
    """A worker that is at work until the test says otherwise."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        self.jobs.append(lambda: maybeDeferred(function, *args).chainDeferred(result))
        return result

    def finish(self) -> int:
        """Do all there is to do, with what that leads to; gives the number of jobs."""
        for done in count():
            if not self.jobs:
                return done
            self.jobs.pop(0)()
        raise AssertionError


def test_events_that_are_delivered_together_are_read_and_committed_together(tmp_path: Path, uri: str) -> None:
    """Of those of an earlier term nothing is committed."""
    given = Given(0)
    watched = Watched(tmp_path, present(), postgresql=uri, leadership=given)
    identifiers = [watched.register(merchant=f"shop-{number}")["id"] for number in range(20)]
    watched.pay("5000 from alice to bob for order-1")
    worker = Busy()
    repository = watched.database.operations.repository
    outbox = WebhookOutbox(repository, worker)
    read = [outbox.head(identifier, 0) for identifier in identifiers]
    assert worker.finish() == 2, "the first alone, and all others while it was read"
    events = [event for each in read if (event := result_of(each)) is not None]
    assert [event.watch for event in events] == identifiers
    lease = watched.database.lease
    assert lease is not None
    assert lease.replace(lease.lease(), LeaderLease(1, "next", 0))
    taken = [outbox.delivered(evolve(event, term=at % 2), 7, 200) for at, event in enumerate(events)]
    taken[0].addErrback(lambda failure: failure.trap(NotLeader))
    assert worker.finish() == 2
    for at, each in enumerate(taken[1:], start=1):
        if at % 2:
            assert result_of(each) is None, "nothing more to send"
        else:
            with pytest.raises(NotLeader):
                result_of(each)
    waiting = {queue.watch for queue in repository.events.queued()}
    assert waiting == set(identifiers[::2])
    watched.close()
