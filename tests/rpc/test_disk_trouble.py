"""What clients are told when the disk fails under a request."""

import json
import sqlite3

import pytest

from svcd.chain.errors import Corrupt
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.store.database import DatabaseUnavailable
from svcd.web.connections import SiteLimits
from svcd.web.rate_limits import Clients, RateLimiter
from tests.rpc.node import UNLIMITED, Node
from tests.web.wire import Wire


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "sentence", "seconds"),
    [
        (Corrupt("the stored block has another hash"), "the node's database is damaged, and the node stops", None),
        (
            sqlite_error(sqlite3.SQLITE_FULL),
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
