"""The operator's backup: what is copied, who may ask, and every sentence of refusal."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from svcd.chain.errors import Corrupt
from svcd.node.backups import Backups
from svcd.rpc.backup import BackupRoutes
from svcd.store.mempool_store import FILE as MEMPOOL
from svcd.web.limits import SiteLimits
from svcd.web.openapi import document
from svcd.web.routing import routes_of
from tests.rpc.description import Description
from tests.rpc.node import OPERATOR_SOCKET, TOKEN, Client, Inline, Node, Settings
from tests.support import result_of


class Slow:
    """A worker that begins when it is told."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        waited: Deferred[Any] = Deferred()
        self.jobs.append(lambda: waited.callback(function(*args, **kwargs)))
        return waited


class Operator:
    """A node with some blocks, and its operator who wants backups."""

    def __init__(self, open_node: Callable[..., Node], folder: Path, worker: Any, token: str | None = None) -> None:
        self.node = open_node()
        self.node.grow("genesis a[1..5]")
        (chain,) = (path for path in folder.glob("*.sqlite") if path.name != MEMPOOL)
        self.chain = chain
        self.backups = Backups(chain, None, worker)
        room = BackupRoutes(self.backups, token=token)
        described: Any = document([route for route, _ in routes_of(room)], {"title": "operator", "version": "0"})
        site = self.node.sites.operator([room], SiteLimits())
        self.client = Client(site, Description(described, cors=False), self.node.clock, OPERATOR_SOCKET)


@pytest.fixture
def operator(open_node: Callable[..., Node], tmp_path: Path) -> Operator:
    return Operator(open_node, tmp_path, Inline())


def test_a_backup_holds_the_chain(operator: Operator, tmp_path: Path) -> None:
    tip = operator.node.living.ledger.tip
    answer = operator.client.ok("/operator/backup", {"path": str(tmp_path / "copy")})
    copied = tmp_path / "copy" / operator.chain.name
    assert answer == {
        "path": str(tmp_path / "copy"),
        "height": "5",
        "hash": tip.hash.hex(),
        "files": {name: str((copied.parent / name).stat().st_size) for name in (MEMPOOL, copied.name)},
    }
    assert {path.name for path in copied.parent.iterdir()} == {MEMPOOL, copied.name}
    again = Node(copied, operator.node.clock, Settings())
    assert again.living.ledger.tip == tip
    again.close()


def test_what_is_refused(operator: Operator, tmp_path: Path) -> None:
    for path in ("copy", "", "./copy", "~/copy", "/copy\0", 7, "/" * 5000):
        sentence = operator.client.refusal("/operator/backup", {"path": path})
        assert sentence.endswith("must be the whole path of a new folder, from / on: the node does not know in which"
                                 " folder you are")  # fmt: skip
    assert operator.client.refusal("/operator/backup", {"path": str(tmp_path)}) == (
        f"{tmp_path} exists already and is never written over; name a folder that is not there yet"
    )
    assert operator.client.refusal("/operator/backup", {"path": f"{tmp_path}/no/copy"}) == (
        f"{tmp_path}/no/copy cannot be made: no such file or directory"
    )


def test_one_at_a_time(open_node: Callable[..., Node], tmp_path: Path) -> None:
    worker = Slow()
    operator = Operator(open_node, tmp_path, worker)
    first = Deferred.fromCoroutine(operator.backups.make(tmp_path / "first"))
    sentence = operator.client.refusal("/operator/backup", {"path": str(tmp_path / "second")}, status=503)
    assert sentence == "another backup is being made; wait until it is done"
    worker.jobs[0]()
    assert result_of(first).tip.height == 5


def test_a_stop_gives_up_what_is_being_made(operator: Operator, tmp_path: Path) -> None:
    operator.backups.stopService()
    sentence = operator.client.refusal("/operator/backup", {"path": str(tmp_path / "copy")}, status=503)
    assert sentence == "the node is being stopped, and no backup was made; make it when it runs again"
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize("name", ["copy", "monday"])
def test_what_a_backup_that_did_not_end_has_left_is_removed_by_the_next_one(
    operator: Operator, tmp_path: Path, name: str
) -> None:
    partial = tmp_path / f"{name}.partial"
    partial.mkdir(mode=0o700)
    (partial / "chain.sqlite").write_text("half")
    with capturedLogs() as logged:
        operator.client.ok("/operator/backup", {"path": str(tmp_path / "copy")})
    lines = [formatEvent(event) for event in logged if event["log_namespace"] == "svcd.node.backups.Backups"]
    assert lines == [f"{partial}, left by a backup that did not end, has been removed"]
    assert not partial.exists()


def test_what_is_in_the_way_is_not_removed_where_it_may_be_somebody_s(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "copy.partial").mkdir()
    (tmp_path / "copy.partial" / "notes").touch()
    assert operator.client.refusal("/operator/backup", {"path": str(tmp_path / "copy")}) == (
        f"{tmp_path}/copy.partial is there: another copy is being made, or one did not end; remove it then"
    )


def test_a_disk_that_does_not_take_it_is_no_bad_request(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    copy = tmp_path / "copy"
    sentence = operator.client.refusal("/operator/backup", {"path": str(copy)}, status=503)
    assert sentence == f"{copy} cannot be written: no space left on device"
    assert not list(tmp_path.glob("copy*"))


def test_a_copy_in_which_no_block_can_be_found_gets_no_name(operator: Operator, tmp_path: Path) -> None:
    with closing(sqlite3.connect(operator.chain)) as connection, connection:
        connection.execute("DELETE FROM canonical")
    with pytest.raises(Corrupt, match="holds no block"):
        result_of(Deferred.fromCoroutine(operator.backups.make(tmp_path / "copy")))
    assert not list(tmp_path.glob("copy*"))


def test_over_tcp_it_needs_the_token(open_node: Callable[..., Node], tmp_path: Path) -> None:
    operator = Operator(open_node, tmp_path, Inline(), TOKEN)
    response = operator.client.post("/operator/backup", {"path": str(tmp_path / "copy")})
    assert (response.status, (tmp_path / "copy").exists()) == (401, False)
