"""`svc export` with a real node: the books agree with the balance, and open safely in a spreadsheet."""

import csv
import io
import json
from pathlib import Path

import pytest

import svcd.cli.export as export_module
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET
from tests.chains import COIN
from tests.cli.terminal import ADDRESS, OTHER, Fixed, Terminal, site_of
from tests.cli.wallet.test_refund import pay
from tests.cli.wallet.test_send import KNOWN
from tests.rpc.node import FAUCET, OPERATOR, Node


def books(text: str) -> list[dict[str, str]]:
    """The rows of a CSV export."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture
def traded(rich: Node, terminal: Terminal) -> Node:
    """A node on which the wallet has received 10 coins, then 2, and has sent 3."""
    pay(rich, terminal, 2 * COIN, "order-17")
    terminal.ok("wallet", "send", OTHER, 3, "--reference=-1-2", "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    return rich


def test_csv_has_every_change_of_the_balance(traded: Node, terminal: Terminal) -> None:
    told = terminal.ok("export", ADDRESS)
    rows = books(told.out)
    assert list(rows[0]) == list(export_module.COLUMNS)
    assert [(row["type"], row["amount"], row["fee"], row["change"], row["height"]) for row in rows] == [
        ("received", "10", "0", "10", "1"),
        ("received", "2", "0", "2", "2"),
        ("sent", "3", "0.0001", "-3.0001", "3"),
    ]
    assert [row["counterparty"] for row in rows] == [FAUCET, FAUCET, OTHER]
    assert [row["confirmations"] for row in rows] == ["3", "2", "1"]
    assert rows[0]["date (UTC)"] == "2026-11-01 00:00:02"
    assert told.err == (
        "entries 3, allocation 0 SVC, received 12 SVC, sent 3 SVC, reward 0 SVC, fee 0.0001 SVC, change 8.9999 SVC\n"
    )


def test_no_cell_is_a_formula(traded: Node, terminal: Terminal) -> None:
    rows = books(terminal.ok("export", ADDRESS, "--csv").out)
    assert [row["reference"] for row in rows] == ["", "order-17", "'-1-2"]
    texts = ["type", "counterparty", "reference", "txid"]
    assert not any(row[name].startswith(("=", "+", "-", "@")) for row in rows for name in texts)


def test_json_has_totals(traded: Node, terminal: Terminal) -> None:
    told = json.loads(terminal.ok("export", ADDRESS, "--json").out)
    balance = json.loads(terminal.ok("balance", ADDRESS, "--json").out)["balance"]
    assert told["totals"] == {
        "allocation": "0",
        "received": str(12 * COIN),
        "sent": str(3 * COIN),
        "reward": "0",
        "fee": "10000",
        "change": balance,
    }
    assert [entry["reference"] for entry in told["entries"]] == [None, "order-17", "-1-2"]


def test_rewards_of_the_producer_are_included(traded: Node, terminal: Terminal) -> None:
    producer = encode_address(OPERATOR.hash, DEVNET.address_prefix)
    rows = books(terminal.ok("export", producer).out)
    assert [(row["type"], row["counterparty"]) for row in rows] == [("reward", "")] * 3
    assert {row["change"] for row in rows} == {"20.0001"}


def test_pages_are_put_together(traded: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = terminal.ok("export", ADDRESS).out
    monkeypatch.setattr(export_module, "PAGE", 1)
    assert terminal.ok("export", ADDRESS).out == whole


def test_a_period_has_both_its_days(traded: Node, terminal: Terminal) -> None:
    # Devnet begins on this day.
    whole = terminal.ok("export", ADDRESS).out
    assert terminal.ok("export", ADDRESS, "--from", "2026-11-01", "--to", "2026-11-01").out == whole
    assert books(terminal.ok("export", ADDRESS, "--from", "2026-11-02").out) == []
    assert books(terminal.ok("export", ADDRESS, "--to", "2026-10-31").out) == []


# The blocks of `traded` are 2 seconds apart: 00:00:02, 00:00:04 and 00:00:06.
PRICES = "time,EUR\n2026-11-01,0.5\n2026-11-01 00:00:04,0.48\n2026-11-01 00:00:07,9\n"


@pytest.fixture
def prices(terminal: Terminal) -> Path:
    """A file of prices."""
    path = terminal.folder / "prices.csv"
    path.write_text(PRICES)
    return path


def test_each_change_has_its_value_at_the_time_of_its_block(traded: Node, terminal: Terminal, prices: Path) -> None:
    told = terminal.ok("export", ADDRESS, "--prices", prices)
    rows = books(told.out)
    assert list(rows[0]) == [*export_module.COLUMNS, "price (EUR)", "value (EUR)"]
    assert [(row["change"], row["price (EUR)"], row["value (EUR)"]) for row in rows] == [
        ("10", "0.5", "5"),
        ("2", "0.48", "0.96"),
        ("-3.0001", "0.48", "-1.440048"),
    ]
    assert told.err.endswith(", change 8.9999 SVC, value 4.519952 EUR\n")
    without = books(terminal.ok("export", ADDRESS).out)
    assert [{name: row[name] for name in export_module.COLUMNS} for row in rows] == without


def test_values_in_json_are_decimals(traded: Node, terminal: Terminal, prices: Path) -> None:
    told = json.loads(terminal.ok("export", ADDRESS, "--prices", prices, "--json").out)
    assert told["currency"] == "EUR"
    assert [(entry["price"], entry["value"]) for entry in told["entries"]] == [
        ("0.5", "5"),
        ("0.48", "0.96"),
        ("0.48", "-1.440048"),
    ]
    assert (told["totals"]["value"], told["totals"]["received"]) == ("4.519952", str(12 * COIN))
    plain = json.loads(terminal.ok("export", ADDRESS, "--json").out)
    assert "currency" not in plain
    assert "value" not in plain["totals"]
    assert not any("price" in entry or "value" in entry for entry in plain["entries"])


def test_a_change_before_the_first_price_is_refused(traded: Node, terminal: Terminal, prices: Path) -> None:
    prices.write_text("time,EUR\n2026-11-01 00:00:03,0.5\n")
    told = terminal.invoke("export", ADDRESS, "--prices", prices)
    assert (told.exit_code, told.stdout) == (1, "")
    assert f"{prices} has no price for 2026-11-01 00:00:02 UTC: the first one, in line 2, is for" in told.stderr
    prices.write_text("time,EUR\n2026-11-01 00:00:02,0.5\n")
    assert len(books(terminal.ok("export", ADDRESS, "--prices", prices).out)) == 3


@pytest.mark.parametrize("wrong", [PRICES + "2026-11-01,1\n", PRICES + "2026-11-02,0\n", PRICES + "\n"])
def test_a_wrong_file_of_prices_is_refused_before_the_node_is_asked(
    terminal: Terminal, prices: Path, wrong: str
) -> None:
    terminal.public.failure = AssertionError("asked")
    prices.write_text(wrong)
    assert terminal.failure("export", ADDRESS, "--prices", prices).startswith(f"{prices}, line 5: ")


def test_a_node_without_the_first_blocks_is_told_before_anything_is_printed(traded: Node, terminal: Terminal) -> None:
    """An export that began later than asked for would look like the whole."""
    traded.keep_from(3)
    here = "this node has only blocks from height 3 on"
    for words in ((), ("--json",), ("--from", "2026-10-01")):
        assert here in terminal.failure("export", ADDRESS, *words)
    began = DEVNET.slot_time(traded.node_context.chain_manager.reader.existing(3).point.slot)
    assert f"give its time, {began}, as from" in terminal.failure("export", ADDRESS)


@pytest.mark.parametrize("date", ["2026-13-01", "2026-1-1", "yesterday", "2026-11-01T00:00"])
def test_a_date_that_is_none(terminal: Terminal, date: str) -> None:
    assert "must be a date such as 2026-11-30, in UTC" in terminal.misuse("export", ADDRESS, "--from", date)


def test_one_format_at_a_time(terminal: Terminal) -> None:
    assert terminal.misuse("export", ADDRESS, "--csv", "--json") == "give --csv or --json, not both"


def answer(entries: list[dict[str, object]], balance: int) -> Fixed:
    """A node with one page for every address."""
    body = {"ok": True, "address": ADDRESS, "entries": entries, "next": None, "balance": str(balance)}
    return Fixed((200, json.dumps(body).encode()))


def entry(**changes: object) -> dict[str, object]:
    """An entry of one base unit that was received at the beginning of the chain."""
    return {
        "type": "received",
        "height": "1",
        "index": 0,
        "time": "1793491202000",
        "amount": "1",
        "fee": "0",
        **changes,
    }


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([entry(), entry()], ()),
        ([entry(height="2"), entry()], ()),
        ([entry()], ("--from", "2026-11-02")),
        ([entry()], ("--to", "2026-10-31")),
    ],
)
def test_entries_twice_out_of_order_or_out_of_the_period_are_refused(
    terminal: Terminal, entries: list[dict[str, object]], words: tuple[str, ...]
) -> None:
    terminal.public.site = site_of(answer(entries, len(entries)), terminal.clock)
    assert "is not in order, or not in the period that was requested" in terminal.failure("export", ADDRESS, *words)


def test_books_that_do_not_agree_with_the_balance_are_refused(terminal: Terminal) -> None:
    terminal.public.site = site_of(answer([], 5), terminal.clock)
    assert terminal.failure("export", ADDRESS) == (
        "the entries add up to 0 SVC, and the node says that the balance is 0.00000005 SVC: do not use this export; "
        "stop the node, and find what is wrong by `svc db check`"
    )
    assert terminal.ok("export", ADDRESS, "--to", "2026-11-01").err.startswith("entries 0, ")


def test_a_type_that_is_unknown_is_refused(terminal: Terminal) -> None:
    terminal.public.site = site_of(answer([entry(type="bribe")], 1), terminal.clock)
    assert "type is 'bribe'" in terminal.failure("export", ADDRESS)


def test_the_export_waits_while_the_node_takes_no_requests(terminal: Terminal) -> None:
    resource = answer([], 0)
    calm = resource.answer
    resource.answer = (429, b'{"ok":false,"error":"too many requests"}')
    terminal.public.site = site_of(resource, terminal.clock)
    terminal.clock.callLater(5, lambda: setattr(resource, "answer", calm))
    assert books(terminal.ok("export", ADDRESS).out) == []
    assert len(resource.seen) > 1
