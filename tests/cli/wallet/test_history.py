"""`svc wallet history` and `svc wallet balance` with a real node."""

import json

from tests.cli.terminal import ADDRESS, OTHER, Terminal
from tests.cli.wallet.test_send import KNOWN, PAY, SEND
from tests.rpc.node import Node


def test_history_shows_incoming_outgoing_and_pending_transfers(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    terminal.ok("wallet", "send", ADDRESS, 1, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    terminal.ok(*PAY, "--yes", env=KNOWN)
    lines = terminal.ok("wallet", "history").out.splitlines()
    assert lines[0].split() == ["time", "(UTC)", "SVC", "from", "or", "to", "reference", "fee", "depth", "txid"]
    cells = [line.split()[2:-1] for line in lines[1:]]
    assert cells[0] == ["-2", OTHER, "order-17", "0.0001", "pending"]
    assert cells[1] == ["0", "itself", "0.0001", "1"]
    assert cells[2] == ["-1", OTHER, "order-18", "0.0001", "1"]
    assert cells[3][0] == "10"
    assert cells[3][-1] == "2"


def test_history_fits_the_terminal(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    for columns in (100, 80, 40):
        terminal.width = columns
        lines = terminal.ok("wallet", "history").out.splitlines()
        assert all(len(line) <= max(columns, 76) for line in lines), lines


def test_history_continues_at_the_cursor(rich: Node, terminal: Terminal) -> None:
    for amount in (1, 2, 3):
        terminal.ok("wallet", "send", OTHER, amount, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    first = json.loads(terminal.ok("wallet", "history", "--limit", 2, "--json").out)
    assert (len(first["transactions"]), first["waiting"], first["otherWaiting"]) == (2, [], 0)
    assert (
        f"older transfers: svc wallet history --before {first['next']}"
        in terminal.ok("wallet", "history", "--limit", 2).out
    )
    rest = json.loads(terminal.ok("wallet", "history", "--before", first["next"], "--json").out)
    assert (len(rest["transactions"]), rest["next"]) == (2, None)
    assert "such as 120-3" in terminal.misuse("wallet", "history", "--before", "x")
    assert "from 1 to 100" in terminal.misuse("wallet", "history", "--limit", "101")


def test_the_balance_of_the_wallet_is_that_of_its_address(rich: Node, terminal: Terminal) -> None:
    told = terminal.ok("wallet", "balance")
    assert told.out == terminal.ok("balance", ADDRESS).out
    assert "balance     10 SVC\n" in told.out
    assert json.loads(terminal.ok("wallet", "balance", "--json").out)["address"] == ADDRESS
    assert "--minimum-work needs --trustless" in terminal.misuse("wallet", "balance", "--minimum-work", 5)
