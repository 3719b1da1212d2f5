"""Opening the database of webhooks after a kill, and a backup of it on a full disk."""

import gc
from contextlib import closing
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from svcd.commerce.watch_operations import WatchLimits
from svcd.commerce.webhook_database import (
    FILE,
    WatchSettings,
    WebhookDatabase,
    open_webhook_database,
)
from svcd.composition.resources import OpenDatabases
from svcd.node.database_health import DatabaseHealth
from svcd.node.threads import InlineWorker
from svcd.store.database import WEBHOOKS, DatabaseError, connect, open_writer
from svcd.store.sql_connection import mark_as_copy
from tests.rpc.conftest import present
from tests.rpc.node import Node, Settings
from tests.support import result_of


def settings_at(now: int, database: str = "") -> WatchSettings:
    limits, new_id = WatchLimits(10, 10), lambda: "svcwh_" + 32 * "0"
    return WatchSettings(every_depth=True, new_id=new_id, limits=limits, now=lambda: now, database=database)


def opened_beside(node: Node, folder: Path, settings: WatchSettings) -> "Deferred[WebhookDatabase]":
    """The database of webhooks in the folder of a node."""
    opening = open_webhook_database(
        node.params,
        folder,
        chain=folder / "chain.sqlite",
        worker=InlineWorker(),
        health=DatabaseHealth(lambda: None),
        settings=settings,
    )
    return Deferred.fromCoroutine(opening)


def test_after_a_kill_a_database_without_its_log_is_not_opened(tmp_path: Path) -> None:
    """Opened all the same, the database would quietly lack the newest events."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    database = tmp_path / FILE
    database.write_bytes(b"")
    (tmp_path / f"{FILE}-open").touch()
    opening = opened_beside(node, tmp_path, settings_at(0))
    with pytest.raises(
        DatabaseError, match=rf"{database}-wal is missing although the last run did not shut down cleanly"
    ):
        result_of(opening)
    assert database.read_bytes() == b""
    node.close()


def test_a_postgresql_that_does_not_answer_at_the_start_is_known_before_the_first_request(tmp_path: Path) -> None:
    """The node must not say meanwhile that it is ready."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    database = result_of(opened_beside(node, tmp_path, settings_at(0, "postgresql://svcd@127.0.0.1:1/svcd")))
    sentence = "the webhooks wait for their database: the PostgreSQL database svcd on 127.0.0.1 does not answer: "
    assert OpenDatabases(node.node_context, database).unavailable.startswith(sentence)
    result_of(Deferred.fromCoroutine(database.close()))
    node.close()


def test_a_backup_that_a_full_disk_refuses_can_be_opened_later(tmp_path: Path) -> None:
    """Nothing of them is lost, so the next start must not say that something is."""
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    database = tmp_path / FILE
    with closing(open_writer(database, WEBHOOKS)) as connection:
        connection.execute("CREATE TRIGGER full BEFORE UPDATE ON watch BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
        connection.execute(
            "INSERT INTO watch (id, merchant, reference, recipient, amount, required, callback_url, host, created_at, "
            "expires_at, events, state, epoch, sequence) "
            "VALUES ('w', 'm', 'r', 'a', 1, 1, 'u', 'h', 0, 1, '', 'unpaid', 0, 0)"
        )
    mark_as_copy(database)

    async def opening() -> WebhookDatabase:
        settings = settings_at(1_800_000_000_000)
        return await open_webhook_database(
            node.params,
            tmp_path,
            chain=tmp_path / "chain.sqlite",
            worker=InlineWorker(),
            health=DatabaseHealth(lambda: None),
            settings=settings,
        )

    with pytest.raises(DatabaseError, match="disk is full"):
        result_of(Deferred.fromCoroutine(opening()))
    gc.collect()
    with closing(connect(database)) as connection:
        connection.execute("DROP TRIGGER full")
    database = result_of(Deferred.fromCoroutine(opening()))
    result_of(Deferred.fromCoroutine(database.close()))
    node.close()
