"""`svc node backup` at the terminal, with a real node."""

import io
import json
from collections.abc import Callable
from contextlib import closing, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from svcd.chain.params import DEVNET
from svcd.cli.operator.backup import CopyProgress, copy_progress, copy_progress_bar
from svcd.cli.session import Session
from svcd.commerce.webhook_database import FILE as WEBHOOKS
from svcd.config.schema import Config
from svcd.node.backups import Backups
from svcd.node.database_health import DatabaseHealth
from svcd.node.threads import InlineWorker
from svcd.rpc.operator_routes import BackupRoutes
from svcd.store.database import connect
from svcd.store.database_copy import partial_name
from svcd.web.connections import SiteLimits
from tests.cli.terminal import Fixed, Terminal, site_of
from tests.rpc.node import Node, Settings


@pytest.fixture
def copying(node: Node, terminal: Terminal, tmp_path: Path) -> Node:
    """The terminal's node, with the backup route."""
    routes = BackupRoutes(Backups(tmp_path / "chain.sqlite", None, InlineWorker(), node.health), token=None)
    terminal.operator.site = node.sites.operator([*node.operator_routes, routes], SiteLimits())
    return node


def test_a_backup_can_be_opened_by_a_node(copying: Node, terminal: Terminal, clock: Clock) -> None:
    terminal.ok("node", "mine", 3)
    told = terminal.ok("node", "backup", "copy")
    shown = dict(line.split(maxsplit=1) for line in told.out.splitlines()[:3])
    folder = terminal.folder / "copy"
    assert shown["folder"] == str(folder), "the node is told the whole path"
    assert shown["tip"] == f"3, {copying.node_context.chain_manager.tip.hash.hex()}"
    assert shown["chain.sqlite"].endswith("iB")
    assert "The keys (operator.key, node.key) are not included" in told.out
    again = Node(folder / "chain.sqlite", clock, Settings(params=DEVNET))
    assert again.node_context.chain_manager.tip == copying.node_context.chain_manager.tip
    again.close()


def test_as_json(copying: Node, terminal: Terminal) -> None:
    told = json.loads(terminal.ok("node", "backup", "copy", "--json").out)
    assert told["height"] == "0"
    assert list(told["files"]) == ["chain.sqlite"]


def test_a_refused_backup_is_reported(copying: Node, terminal: Terminal) -> None:
    assert "exists already and is never written over" in terminal.failure("node", "backup", ".")


def test_a_timeout_says_that_the_copy_may_continue(terminal: Terminal) -> None:
    terminal.operator.site = site_of(Fixed((200, None)), terminal.clock)
    assert terminal.failure("node", "backup", "copy") == (
        f"data/operator.sock did not answer within 930 s. The node may still be copying: check {terminal.folder}/copy"
    )


class Watched(Backups):
    """Backups during which something is looked at after every chunk."""

    def __init__(self, chain: Path, look: Callable[[], object]) -> None:
        super().__init__(chain, None, InlineWorker(), DatabaseHealth(lambda: None))
        self._look = look

    def _check_stopping(self, left: int, total: int) -> None:
        super()._check_stopping(left, total)
        self._look()


class Later(Resource):
    """Answers after 1.2 seconds."""

    isLeaf = True  # noqa: N815

    def __init__(self, answer: bytes, clock: Clock) -> None:
        super().__init__()
        self._answer = answer
        self._clock = clock

    def render(self, request: Any) -> int:
        self._clock.callLater(1.2, lambda: (request.write(self._answer), request.finish()))
        return NOT_DONE_YET


class Tty(io.StringIO):
    """A stream that click takes for a terminal."""

    def isatty(self) -> bool:
        return True


def fat(chain: Path) -> None:
    """Grow a database to several times the size of a copied chunk."""
    with closing(connect(chain)) as connection, connection:
        connection.execute("CREATE TABLE months (block BLOB)")
        connection.executemany("INSERT INTO months VALUES (randomblob(1000000))", [()] * 12)


def test_progress_follows_a_real_copy(node: Node, terminal: Terminal, tmp_path: Path) -> None:
    """The files of a real copy are read while it is running."""
    fat(tmp_path / "chain.sqlite")
    seen: list[CopyProgress | None] = []
    backups = Watched(tmp_path / "chain.sqlite", lambda: seen.append(copy_progress(tmp_path, terminal.folder / "copy")))
    routes = [*node.operator_routes, BackupRoutes(backups, token=None)]
    terminal.operator.site = node.sites.operator(routes, SiteLimits())
    terminal.ok("node", "backup", "copy", "--data-dir", tmp_path)
    growth = [each for each in seen if each is not None]
    assert len(growth) > 5
    assert [each.copied for each in growth] == sorted(each.copied for each in growth)
    assert growth[0].copied < growth[0].total / 2 < growth[-1].copied


ANSWER = b'{"ok":true,"path":"%b","height":"7","hash":"ab","files":{"chain.sqlite":"1000"}}'


def test_progress_is_shown_at_a_terminal_until_the_node_answers(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").touch()
    terminal.operator.site = site_of(Later(ANSWER % bytes(terminal.folder / "copy"), terminal.clock), terminal.clock)
    command = ("node", "backup", "copy", "--data-dir", tmp_path)
    assert terminal.ok(*command).err == ""
    terminal.stderr_is_terminal = True
    assert terminal.ok(*command).err == "\rCopying, 0 s\rCopying, 1 s\n"
    assert terminal.ok(*command, "--json").err == ""


def test_the_bar_follows_the_file_sizes(tmp_path: Path) -> None:
    """Unused databases do not count, and the bar is full only after the node's response."""
    data, partial = tmp_path / "data", tmp_path / "copy.partial"
    data.mkdir()
    partial.mkdir()
    (data / "chain.sqlite").write_bytes(bytes(1000))
    (data / "webhooks.sqlite").write_bytes(bytes(9000))
    with redirect_stderr(Tty()) as screen, copy_progress_bar(data, tmp_path / "copy") as look:
        for size, percent in ((0, 0), (250, 25), (1200, 99)):
            (partial / "chain.sqlite").write_bytes(bytes(size))
            look(1.0)
            assert f" {percent}%" in screen.getvalue().rpartition("\r")[2]
        partial.rename(tmp_path / "copy")
        look(2.0)
        assert " 99%" in screen.getvalue().rpartition("\r")[2]
    assert " 100%" in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_all_databases_count_towards_the_progress(tmp_path: Path) -> None:
    data, partial = tmp_path / "data", tmp_path / "copy.partial"
    data.mkdir()
    partial.mkdir()
    (data / "chain.sqlite").write_bytes(bytes(1000))
    (data / "webhooks.sqlite").write_bytes(bytes(9000))
    assert copy_progress(data, tmp_path / "copy") is None
    (partial / "webhooks.sqlite").write_bytes(bytes(10))
    assert copy_progress(data, tmp_path / "copy") == CopyProgress(10, 10_000)
    (partial / "chain.sqlite").write_bytes(bytes(5))
    assert copy_progress(data, tmp_path / "copy") == CopyProgress(15, 10_000)


def test_the_elapsed_time_is_shown_if_the_files_are_not_visible(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with redirect_stderr(Tty()) as screen, copy_progress_bar(tmp_path / "file", tmp_path / "copy") as look:
        look(0.5)
        look(61.5)
    assert screen.getvalue() == "\rCopying, 0 s\rCopying, 62 s\n"


def fail_while_copying(data_dir: Path) -> None:
    with copy_progress_bar(data_dir, data_dir / "copy") as look:
        look(1.0)
        raise OSError("no room")


def test_the_bar_stops_if_the_copy_fails(tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").write_bytes(bytes(1000))
    (tmp_path / "copy.partial").mkdir()
    (tmp_path / "copy.partial" / "chain.sqlite").write_bytes(bytes(300))
    with redirect_stderr(Tty()) as screen, pytest.raises(OSError, match="no room"):
        fail_while_copying(tmp_path)
    assert " 30%" in screen.getvalue()
    assert "100%" not in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_errors_while_polling_are_raised(terminal: Terminal) -> None:
    """Polling stops if standard error is closed, and the error is raised."""
    terminal.operator.site = site_of(Fixed((200, None)), terminal.clock)

    def look(_seconds: float) -> None:
        raise OSError("nobody reads standard error")

    session = Session(terminal.runtime())
    with pytest.raises(OSError, match="nobody reads"):
        session.operator(poll=look).get("/operator/status")


def test_the_file_names_match_those_of_the_node(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data")
    folder = tmp_path / "copy"
    partial = partial_name(folder)
    for place in (config.data_dir, partial):
        place.mkdir()
    for size, name in ((1, config.chain_file.name), (20, WEBHOOKS)):
        (partial / name).write_bytes(bytes(size))
        (config.data_dir / name).write_bytes(bytes(size * 100))
    assert copy_progress(config.data_dir, folder) == CopyProgress(copied=21, total=2100)
