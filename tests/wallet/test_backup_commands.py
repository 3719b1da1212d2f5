"""`svc node backup` at the terminal, with a real node."""

import json
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from svcd.chain.params import DEVNET
from svcd.node.backups import Backups
from svcd.rpc.backup import BackupRoutes
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
    shown = dict(line.split(maxsplit=1) for line in told.out.splitlines()[:3])
    folder = terminal.folder / "copy"
    assert shown["folder"] == str(folder), "the node is told the whole path"
    assert shown["tip"] == f"3, {copying.living.ledger.tip.hash.hex()}"
    assert shown["chain.sqlite"].endswith(" MiB")
    assert "The keys (operator.key, node.key) are not in it" in told.out
    again = Node(folder / "chain.sqlite", clock, Settings(params=DEVNET))
    assert again.living.ledger.tip == copying.living.ledger.tip
    again.close()


def test_as_json(copying: Node, terminal: Terminal) -> None:
    told = json.loads(terminal.ok("node", "backup", "copy", "--json").out)
    assert told["height"] == "0"
    assert list(told["files"]) == ["chain.sqlite"]


def test_what_the_node_refuses_is_told(copying: Node, terminal: Terminal) -> None:
    assert "exists already and is never written over" in terminal.failure("node", "backup", ".")


def test_a_node_that_does_not_answer_may_be_copying(terminal: Terminal) -> None:
    terminal.operator.site = site_of(Fixed((200, None)), terminal.clock)
    assert terminal.failure("node", "backup", "copy") == (
        f"data/operator.sock did not answer within 900 s. The node may be copying all the same: look at"
        f" {terminal.folder}/copy"
    )
