"""What clients are told when the disk fails under a request."""

import errno
import json
import os

import apsw
import pytest
from twisted.internet.defer import Deferred

from svcd.chain.errors import Corrupt
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.store.database import DatabaseUnavailable, DiskError
from svcd.store.mempool_journal import read_journal
from svcd.web.connections import SiteLimits
from svcd.web.rate_limits import Clients, RateLimiter
from tests.rpc.node import UNLIMITED, Client, Node
from tests.support import result_of
from tests.web.wire import Wire


def sqlite_error(code: int) -> apsw.Error:
    error = apsw.exception_for(code)
    error.args = ("what SQLite says",)
    return error


@pytest.mark.parametrize(
    ("error", "sentence", "seconds"),
    [
        (Corrupt("the stored block has another hash"), "the node's database is damaged, and the node stops", None),
        (
            sqlite_error(apsw.SQLITE_FULL),
            "the node cannot write to its disk at present; nothing has changed, so try again later",
            None,
        ),
        (
            DiskError("No space left on device"),
            "the node cannot write to its disk at present; nothing has changed, so try again later",
            None,
        ),
        (
            DatabaseUnavailable("the PostgreSQL database svcd on db1 does not answer: connection refused"),
            "the database of the webhooks does not answer at present; try again later",
            "5",
        ),
    ],
)
def test_trouble_with_the_disk_is_told_without_an_id(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str, seconds: str | None
) -> None:
    """Whoever watches the disk has logged it; what ends the node is asked about each error that may be damage."""
    shown: list[BaseException] = []

    def fail() -> object:
        raise error

    def is_damage(error: BaseException) -> bool:
        shown.append(error)
        return True

    monkeypatch.setattr(node.status, "node_status", fail)
    chain = ChainRoutes(
        node.node_context.chain_manager,
        transaction_pool=node.node_context.transaction_pool,
        status=node.status,
        clock=node.clock,
    )
    public = PublicSite(SiteLimits(), RateLimiter(Clients(), UNLIMITED, node.clock))
    site = SiteFactory(node.clock, lambda: "e1", is_damage).public([chain], public)
    wire = Wire(site)
    wire.send(b"GET /rpc/status HTTP/1.1\r\nHost: h\r\n\r\n")
    (response,) = wire.responses()
    assert (response.status, json.loads(response.body)["error"]) == (503, sentence)
    assert response.headers.get("retry-after") == seconds
    assert shown == ([error] if isinstance(error, Corrupt) else [])


def test_a_journal_that_cannot_be_written_stops_transfers_only(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused transfer is shown nowhere, the chain goes on, and the node continues when the disk takes a write."""
    pool, journal = node.node_context.transaction_pool, node.node_context.disks[1]

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    transfer = node.builder.transfer("alice", "bob", 1)
    body = {"transaction": json.loads(transfer.wire)}
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        response = client.post("/rpc/broadcast", body)
        assert (response.status, response.error) == (
            503,
            "the node cannot write to its disk at present; nothing has changed, so try again later",
        )
        sentence = "the mempool's journal cannot be written: No space left on device"
        assert (journal.trouble, node.node_context.trouble) == (sentence, sentence)
        block = node.builder.block()
        node.take(block)
        result_of(Deferred.fromCoroutine(journal.try_again()))
        assert journal.trouble
    assert (len(pool.mempool), read_journal(pool.journal.path).transfers) == (0, {})
    result_of(Deferred.fromCoroutine(journal.try_again()))
    assert not journal.trouble
    assert client.ok("/rpc/broadcast", body)["state"] == "accepted"
