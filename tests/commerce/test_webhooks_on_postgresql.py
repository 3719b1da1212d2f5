"""Webhooks whose database is a PostgreSQL that goes away and comes back."""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.commerce.webhook_database import FILE
from svcd.store.database import WEBHOOKS, DatabaseError, DatabaseUnavailable, open_writer
from svcd.store.sql_connection import mark_as_moved
from tests.commerce.watched import Watched
from tests.postgresql import Server, running
from tests.rpc.conftest import local_client, present


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
    assert local_client(watched.node).ok("/ready") == {"alarms": []}
    assert watched.register("order-2")["active"]
    watched.close()


def test_a_file_with_webhooks_is_not_forgotten_for_postgresql(tmp_path: Path, uri: str) -> None:
    watched = Watched(tmp_path, present())
    watched.register()
    watched.close_webhooks()
    watched.postgresql = uri
    with pytest.raises(DatabaseError, match=r"webhooks\.sqlite has webhooks, and .* names PostgreSQL: carry them over"):
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


def test_after_a_restored_backup_no_id_is_used_for_a_second_event(tmp_path: Path, uri: str) -> None:
    watched = Watched(tmp_path, present(), postgresql=uri)
    watched.register()
    watched.database.subscriptions.repository.watches._db.execute("UPDATE webhook_schema SET restored = 1")
    watched.again()
    watched.pay("5000 from alice to bob for order-1")
    (body,) = watched.events()
    assert int(body["epoch"]) == watched.clock.seconds()
    watched.again()
    assert watched.register()["existing"]
    watched.close()
