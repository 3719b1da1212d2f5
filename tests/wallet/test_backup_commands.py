"""`svc node backup` at the terminal, with a real node."""

import io
import json
import sqlite3
from contextlib import closing, redirect_stderr
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from svcd.chain.params import DEVNET
from svcd.node.backups import Backups
from svcd.rpc.backup import BackupRoutes
from svcd.wallet.growth import Growth, growth_of, watched_copy
from svcd.wallet.session import Session
from svcd.web.limits import SiteLimits
from tests.rpc.node import Inline, Node, Settings
from tests.wallet.terminal import Fixed, Terminal, site_of


@pytest.fixture
def copying(node: Node, terminal: Terminal, tmp_path: Path) -> Node:
    """The node of the terminal, which makes backups too."""
    routes = BackupRoutes(Backups(tmp_path / "chain.sqlite", None, Inline()), token=None)
    terminal.operator.site = node.sites.operator([*node.operator_rooms, routes], SiteLimits())
    return node


def test_a_backup_is_a_chain(copying: Node, terminal: Terminal, clock: Clock) -> None:
    terminal.ok("node", "mine", 3)
    told = terminal.ok("node", "backup", "copy")
    shown = dict(line.split(maxsplit=1) for line in told.out.splitlines()[:4])
    folder = terminal.folder / "copy"
    assert shown["folder"] == str(folder), "the node is told the whole path"
    assert shown["tip"] == f"3, {copying.living.ledger.tip.hash.hex()}"
    assert all(shown[name].endswith("iB") for name in ("chain.sqlite", "mempool.sqlite"))
    assert "The keys (operator.key, node.key) are not in it" in told.out
    again = Node(folder / "chain.sqlite", clock, Settings(params=DEVNET))
    assert again.living.ledger.tip == copying.living.ledger.tip
    again.close()


def test_as_json(copying: Node, terminal: Terminal) -> None:
    told = json.loads(terminal.ok("node", "backup", "copy", "--json").out)
    assert told["height"] == "0"
    assert list(told["files"]) == ["mempool.sqlite", "chain.sqlite"]


def test_what_the_node_refuses_is_told(copying: Node, terminal: Terminal) -> None:
    assert "exists already and is never written over" in terminal.failure("node", "backup", ".")


def test_a_node_that_does_not_answer_may_be_copying(terminal: Terminal) -> None:
    terminal.operator.site = site_of(Fixed((200, None)), terminal.clock)
    assert terminal.failure("node", "backup", "copy") == (
        f"data/operator.sock did not answer within 930 s. The node may be copying all the same: look at"
        f" {terminal.folder}/copy"
    )


class Slow(Backups):
    """Takes a second for every piece that it copies."""

    def __init__(self, chain: Path, clock: Clock) -> None:
        super().__init__(chain, None, Inline())
        self._clock = clock

    def _go_on(self, left: int, total: int) -> None:
        super()._go_on(left, total)
        self._clock.advance(1)


class Tty(io.StringIO):
    """A terminal in the eyes of click."""

    def isatty(self) -> bool:
        return True


def fat(chain: Path) -> None:
    """Bring a database to several times what is copied at once, as the blocks of months do."""
    with closing(sqlite3.connect(chain)) as connection, connection:
        connection.execute("CREATE TABLE months (block BLOB)")
        connection.executemany("INSERT INTO months VALUES (randomblob(1000000))", [()] * 12)


def test_somebody_who_watches_sees_the_copy_grow(
    node: Node, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a real copy, looked at while it is made."""
    fat(tmp_path / "chain.sqlite")
    seen: list[tuple[float, Growth | None]] = []
    routes = BackupRoutes(Slow(tmp_path / "chain.sqlite", terminal.clock), token=None)
    terminal.operator.site = node.sites.operator([*node.operator_rooms, routes], SiteLimits())
    real = growth_of

    def looked(data_dir: Path, folder: Path) -> Growth | None:
        seen.append((terminal.clock.seconds(), real(data_dir, folder)))
        return seen[-1][1]

    monkeypatch.setattr("svcd.wallet.growth.growth_of", looked)
    terminal.watched = True
    told = terminal.ok("node", "backup", "copy", "--data-dir", tmp_path)
    assert told.err == "Copying\n", "what is no terminal gets the label alone"
    growth = [each for _, each in seen if each is not None]
    assert len(growth) > 5
    assert [each.copied for each in growth] == sorted(each.copied for each in growth)
    assert growth[0].copied < growth[0].whole / 2 < growth[-1].copied
    seen.clear()
    assert terminal.ok("node", "backup", "second", "--data-dir", tmp_path, "--json").err == ""
    terminal.watched = False
    assert terminal.ok("node", "backup", "third", "--data-dir", tmp_path).err == ""
    assert seen == []


def test_the_bar_is_as_full_as_the_files(tmp_path: Path) -> None:
    """What is not used is not waited for, and nothing is whole before the node says so."""
    data, partial = tmp_path / "data", tmp_path / "copy.partial"
    data.mkdir()
    partial.mkdir()
    (data / "chain.sqlite").write_bytes(bytes(1000))
    (data / "webhooks.sqlite").write_bytes(bytes(9000))
    with redirect_stderr(Tty()) as screen, watched_copy(data, tmp_path / "copy") as look:
        for size, percent in ((0, 0), (250, 25), (1200, 99)):
            (partial / "chain.sqlite").write_bytes(bytes(size))
            look(1.0)
            assert f" {percent}%" in screen.getvalue().rpartition("\r")[2]
        partial.rename(tmp_path / "copy")
        look(2.0)
        assert " 99%" in screen.getvalue().rpartition("\r")[2]
    assert " 100%" in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_both_databases_are_in_the_bar_where_there_are_two(tmp_path: Path) -> None:
    data, partial = tmp_path / "data", tmp_path / "copy.partial"
    data.mkdir()
    partial.mkdir()
    (data / "chain.sqlite").write_bytes(bytes(1000))
    (data / "webhooks.sqlite").write_bytes(bytes(9000))
    assert growth_of(data, tmp_path / "copy") is None
    (partial / "webhooks.sqlite").write_bytes(bytes(10))
    assert growth_of(data, tmp_path / "copy") == Growth(10, 10_000)
    (partial / "chain.sqlite").write_bytes(bytes(5))
    assert growth_of(data, tmp_path / "copy") == Growth(15, 10_000)


def test_only_the_time_is_told_where_the_files_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with redirect_stderr(Tty()) as screen, watched_copy(tmp_path / "file", tmp_path / "copy") as look:
        look(0.5)
        look(61.5)
    assert screen.getvalue() == "\rCopying, 0 s\rCopying, 62 s\n"


def fail_while_copying(data_dir: Path) -> None:
    with watched_copy(data_dir, data_dir / "copy") as look:
        look(1.0)
        raise OSError("no room")


def test_a_copy_that_fails_leaves_the_bar_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").write_bytes(bytes(1000))
    (tmp_path / "copy.partial").mkdir()
    (tmp_path / "copy.partial" / "chain.sqlite").write_bytes(bytes(300))
    with redirect_stderr(Tty()) as screen, pytest.raises(OSError, match="no room"):
        fail_while_copying(tmp_path)
    assert " 30%" in screen.getvalue()
    assert "100%" not in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_what_fails_while_looking_is_told(terminal: Terminal) -> None:
    """Nobody looks on when the line cannot be written, and no failure is lost."""
    terminal.operator.site = site_of(Fixed((200, None)), terminal.clock)

    def look(_seconds: float) -> None:
        raise OSError("nobody reads standard error")

    session = Session(terminal.outside())
    with pytest.raises(OSError, match="nobody reads"):
        session.with_operator(lambda operator: operator.get("/operator/status"), meanwhile=look)
    assert terminal.clock.getDelayedCalls() == []
