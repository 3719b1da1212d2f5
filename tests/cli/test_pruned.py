"""A node that has only later blocks: every command says from which height on, before it begins."""

import json

import pytest

from tests.cli.terminal import ADDRESS, OTHER, Terminal
from tests.rpc.node import Node

PASSWORD = {"SVC_WALLET_PASSWORD": "Schlüssel für svc"}
FIRST = 6


@pytest.fixture
def paid(rich: Node, terminal: Terminal) -> str:
    """The txid of a payment of order-1 in block 2, which the node has no more."""
    words = ("wallet", "send", OTHER, "2.5", "--reference", "order-1", "--yes", "--json")
    txid = str(json.loads(terminal.ok(*words, env=PASSWORD).out)["txid"])
    terminal.ok("node", "mine", 6)
    rich.keep_from(FIRST)
    return txid


@pytest.mark.parametrize(
    "words",
    [
        ("block", 1),
        ("tx", "TXID"),
        ("export", ADDRESS),
        ("export", ADDRESS, "--from", "2020-01-01"),
        ("verify", "order-1", OTHER, "2.5"),
        ("verify", "order-1", OTHER, "2.5", "--since-height", 2),
        ("verify", "order-1", OTHER, "2.5", "--trustless"),
        ("wallet", "history", "--before", "3-0"),
        ("wallet", "refund", "TXID", "--yes"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_a_command_about_an_earlier_block_names_the_first_height(
    terminal: Terminal, paid: str, words: tuple[object, ...]
) -> None:
    told = terminal.failure(*(paid if word == "TXID" else word for word in words), env=PASSWORD)
    assert f"from height {FIRST} on" in told
    assert "corrupt" not in told


@pytest.mark.parametrize(
    "words",
    [
        ("balance", ADDRESS),
        ("balance", ADDRESS, "--trustless"),
        ("block", FIRST),
        ("verify", "order-2", OTHER, "2.5", "--since-height", FIRST),
    ],
    ids=lambda words: " ".join(map(str, words[:3])),
)
def test_what_needs_no_earlier_block_is_answered(terminal: Terminal, paid: str, words: tuple[object, ...]) -> None:
    told = terminal.invoke(*words)
    assert f"from height {FIRST} on" not in told.output
    assert told.exit_code == 0 or "unpaid" in told.output


def test_the_status_says_which_blocks_are_here(terminal: Terminal, paid: str) -> None:
    assert f"only those from height {FIRST} on" in terminal.ok("status").out


def test_a_history_says_where_it_begins(terminal: Terminal, paid: str) -> None:
    told = terminal.ok("wallet", "history").out
    assert "in the blocks that this node has" in told
    assert f"this node has only blocks from height {FIRST} on" in told
    assert json.loads(terminal.ok("wallet", "history", "--json").out)["pruneHeight"] == str(FIRST)
