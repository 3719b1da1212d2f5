"""The databases of a node are closed in order, and whatever fails, none stays open."""

from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.commerce.webhook_database import WebhookDatabase
from svcd.composition.resources import OpenDatabases, open_databases
from svcd.node.threads import InlineWorker
from svcd.process.shutdown import CLOSE_SECONDS, StopDeadline
from svcd.store.database import DatabaseError
from tests.support import result_of


class Chain:
    """An open chain, as far as closing it goes."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def close(self) -> None:
        self._log.append("chain closed")


def files_of(log: list[str], database: Any) -> OpenDatabases:
    """What `open_databases` returns."""
    node_context: Any = Chain(log)

    async def chain() -> Any:
        return node_context

    return result_of(Deferred.fromCoroutine(open_databases(chain(), database)))


def database_that(log: list[str], *, closes: bool = True) -> WebhookDatabase:
    """An open database of webhooks."""

    def close() -> None:
        log.append("webhooks closed")
        if not closes:
            raise OSError("no")

    nothing: Any = None
    return WebhookDatabase(nothing, InlineWorker(), nothing, True, None, close)


def close(files: OpenDatabases) -> None:
    result_of(Deferred.fromCoroutine(files.close(StopDeadline(Clock(), 10))))


def test_the_webhooks_are_closed_before_the_chain() -> None:
    log: list[str] = []

    async def opening() -> WebhookDatabase:
        return database_that(log)

    close(files_of(log, opening))
    assert log == ["webhooks closed", "chain closed"]


def test_a_webhook_database_that_does_not_answer_does_not_keep_the_chain_open() -> None:
    log: list[str] = []

    class Stuck(InlineWorker):
        def run(self, *_: Any, **__: Any) -> Any:
            return Deferred()

    async def opening() -> WebhookDatabase:
        return evolve(database_that(log), worker=Stuck())

    clock = Clock()
    closed = Deferred.fromCoroutine(files_of(log, opening).close(StopDeadline(clock, 10)))
    clock.advance(10)
    assert (log, closed.called) == ([], False)
    clock.advance(CLOSE_SECONDS / 2)
    assert (log, closed.called) == (["chain closed"], True)


def test_without_webhooks_there_is_the_chain_alone() -> None:
    log: list[str] = []
    files = files_of(log, None)
    assert files.webhooks is None
    close(files)
    assert log == ["chain closed"]


def test_a_webhook_database_that_cannot_be_closed_leaves_no_chain_open() -> None:
    log: list[str] = []

    async def opening() -> WebhookDatabase:
        return database_that(log, closes=False)

    with pytest.raises(OSError, match="no"):
        close(files_of(log, opening))
    assert log == ["webhooks closed", "chain closed"]


def test_a_webhook_database_that_cannot_be_opened_leaves_no_chain_open() -> None:
    log: list[str] = []

    async def opening() -> WebhookDatabase:
        raise DatabaseError("damaged")

    with pytest.raises(DatabaseError, match="damaged"):
        files_of(log, opening)
    assert log == ["chain closed"]
