"""`svc export`: every change of an address's balance as CSV or JSON, for bookkeeping (docs/command-line.md)."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
from attrs import evolve, frozen

from svcd.chain.units import format_amount, format_coins
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.errors import CommandError
from svcd.cli.http_client import ListLimits, NodeClient
from svcd.cli.prices import Prices, read_prices, value_of
from svcd.cli.rendering import format_time
from svcd.cli.session import Session

PAGE: Final = 500
COLUMNS: Final = (
    *("date (UTC)", "type", "amount", "fee", "change", "counterparty", "reference", "txid", "height", "confirmations"),
)
_MEMBERS: Final = frozenset(
    (
        *("type", "amount", "amountSvc", "fee", "feeSvc", "counterparty", "reference", "txid", "height", "index"),
        *("time", "confirmations"),
    )
)
"""Of an entry."""
_SIGNS: Final = {"allocation": 1, "received": 1, "reward": 1, "sent": -1, "self": 0}
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FORMULA: Final = ("=", "+", "-", "@")
"""The first characters by which spreadsheets know a formula."""
_LIMITS: Final = ListLimits(
    pages=100_000,
    bytes=1024 * 1024 * 1024,
    seconds=24 * 3600,
    attempts=60,
    advice="export a shorter period with --from and --to",
)
"""Of an export: the blocks of centuries, of which a page looks at 2,000, and two million entries."""


def _date(text: str) -> datetime:
    """The beginning of a day in UTC; raises ValueError."""
    if _DATE.fullmatch(text):
        try:
            return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            pass
    raise ValueError("must be a date such as 2026-11-30, in UTC")


@frozen
class Period:
    """The days of a statement, both included; None for no bound."""

    first: datetime | None
    last: datetime | None

    @property
    def query(self) -> str:
        """The part of the route's query."""
        start = "" if self.first is None else f"&from={_milliseconds(self.first)}"
        return start if self.last is None else f"{start}&to={_milliseconds(self.last + timedelta(days=1))}"

    def includes(self, time: int) -> bool:
        """Whether a time in Unix milliseconds is in it."""
        return (self.first is None or time >= _milliseconds(self.first)) and (
            self.last is None or time < _milliseconds(self.last + timedelta(days=1))
        )

    @property
    def is_all(self) -> bool:
        """Whether it is the whole chain."""
        return self.first is None and self.last is None


@frozen
class Valuation:
    """What the changes of a statement were worth, each at the time of its block."""

    currency: str
    prices: list[str]
    """Of a coin, for each entry."""
    values: list[int]
    """Of the change of each entry, in hundred-millionths of the currency."""

    @property
    def total(self) -> str:
        """The sum of the values, a decimal."""
        return _signed(sum(self.values))


@frozen
class Statement:
    """All entries of an address in a period."""

    address: str
    entries: list[ResponseObject]
    balance: int
    """After the tip of the last page."""
    valuation: Valuation | None = None

    @property
    def totals(self) -> dict[str, int]:
        """Base units by type, the fees, and the sum of all changes."""
        totals = Counter(dict.fromkeys(("allocation", "received", "sent", "reward"), 0))
        for entry in self.entries:
            if _sign(entry):
                totals[entry.text("type")] += entry.number("amount")
        return {
            **totals,
            "fee": sum(entry.number("fee") for entry in self.entries),
            "change": sum(_change(entry) for entry in self.entries),
        }

    def as_json(self) -> dict[str, object]:
        """For programs; coins in base units, prices and values as decimals."""
        totals = {name: str(units) for name, units in self.totals.items()}
        if (valued := self.valuation) is None:
            return {"address": self.address, "entries": self.entries, "totals": totals}
        entries = [
            entry.with_members({"price": price, "value": _signed(worth)})
            for entry, price, worth in zip(self.entries, valued.prices, valued.values, strict=True)
        ]
        totals["value"] = valued.total
        return {"address": self.address, "currency": valued.currency, "entries": entries, "totals": totals}

    def as_csv(self) -> str:
        """A header and a row for each entry (RFC 4180); money in coins."""
        text = io.StringIO()
        writer = csv.writer(text)
        if (valued := self.valuation) is None:
            writer.writerow(COLUMNS)
            writer.writerows(map(_row, self.entries))
        else:
            writer.writerow((*COLUMNS, f"price ({valued.currency})", f"value ({valued.currency})"))
            for entry, price, worth in zip(self.entries, valued.prices, valued.values, strict=True):
                writer.writerow((*_row(entry), price, _signed(worth)))
        return text.getvalue()

    def summary(self, unit: str) -> str:
        """The totals in one line, with the coins called ``unit``."""
        parts = [f"{name} {format_coins(units, unit)}" for name, units in self.totals.items()]
        worth = [] if self.valuation is None else [f"value {self.valuation.total} {self.valuation.currency}"]
        return ", ".join((f"entries {len(self.entries)}", *parts, *worth))


@click.command()
@click.argument("address", callback=options.address)
@click.option("--from", "first", metavar="DATE", callback=options.validated(_date), help="The first day, in UTC.")
@click.option("--to", "last", metavar="DATE", callback=options.validated(_date), help="The last day, in UTC.")
@click.option(
    "--prices",
    "prices_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Add the value of each change, at the prices of a coin in this CSV file.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets; the default.")
@options.node_option
@options.json_option
@click.pass_obj
def export(
    session: Session,
    address: str,
    first: datetime | None,
    last: datetime | None,
    prices_file: Path | None,
    as_csv: bool,
) -> None:
    """Print every change of the balance of ADDRESS, oldest first: transfers, fees, and rewards of its blocks.

    The time of an entry is that of its block. The changes of a whole export add up to the balance, which the command
    checks. A cell that a spreadsheet could take for a formula begins with an apostrophe. The totals go to standard
    error.

    The first line of a file of prices names the currency, as in time,EUR. Each further line is a time in UTC and the
    price of a coin from then on, such as 2026-11-30,0.48 or 2026-11-30 14:05:00,0.48, the oldest first. A value is
    rounded to 8 decimal places.

    \b
    Example:
      svc export svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc >books.csv
      svc export svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc --from 2026-10-01 --to 2026-12-31 --json
      svc export svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc --prices prices.csv >books.csv
    """
    if as_csv and session.as_json:
        raise click.UsageError("give --csv or --json, not both")
    period = Period(first, last)
    prices = None if prices_file is None else read_prices(prices_file)
    statement = _statement(session.node(), address, period)
    if period.is_all and statement.totals["change"] != statement.balance:
        raise CommandError(
            f"the entries add up to {format_coins(statement.totals['change'], session.unit)}, and the node says that"
            f" the balance is {format_coins(statement.balance, session.unit)}: do not use this export; stop the"
            " node, and find what is wrong by `svc db check`"
        )
    if prices is not None:
        statement = evolve(statement, valuation=_valuation(statement, prices))
    click.echo(statement.summary(session.unit), err=True)
    if session.as_json:
        session.print_result(statement.as_json(), "")
    else:
        click.echo(statement.as_csv(), nl=False)


def _statement(node: NodeClient, address: str, period: Period) -> Statement:
    entries: list[ResponseObject] = []
    balance, place = 0, (-1, -1)
    for page in node.pages(f"/rpc/address/{address}/statement?limit={PAGE}{period.query}", _LIMITS):
        page.check(address=address)
        balance = page.number("balance")
        for entry in page.objects("entries"):
            before, place = place, (entry.number("height"), entry.count("index"))
            if place <= before or not period.includes(entry.number("time")):
                raise invalid_response(f"{entry.name} is not in order, or not in the period that was requested")
            entries.append(entry.only(_MEMBERS))
    return Statement(address, entries, balance)


def _valuation(statement: Statement, prices: Prices) -> Valuation:
    """The value of each change at the time of its block; raises CommandError."""
    found = [prices.at(entry.number("time")) for entry in statement.entries]
    values = [value_of(_change(entry), price) for entry, price in zip(statement.entries, found, strict=True)]
    return Valuation(prices.currency, found, values)


def _row(entry: ResponseObject) -> Sequence[str]:
    texts = [entry.text(name) if name in entry else "" for name in ("counterparty", "reference", "txid")]
    return [
        format_time(entry.number("time")).removesuffix(" UTC"),
        _inert(entry.text("type")),
        format_amount(entry.number("amount")),
        format_amount(entry.number("fee")),
        _signed(_change(entry)),
        *map(_inert, texts),
        str(entry.number("height")),
        str(entry.count("confirmations")),
    ]


def _inert(text: str) -> str:
    """``text`` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _sign(entry: ResponseObject) -> int:
    """Whether the amount of an entry adds to the balance (1), is taken from it (-1), or neither (0)."""
    sign = _SIGNS.get(entry.text("type"))
    if sign is None:
        raise invalid_response(f"{entry.name}.type is {entry.text('type')!r}")
    return sign


def _change(entry: ResponseObject) -> int:
    return _sign(entry) * entry.number("amount") - entry.number("fee")


def _signed(units: int) -> str:
    return f"-{format_amount(-units)}" if units < 0 else format_amount(units)


def _milliseconds(date: datetime) -> int:
    return int(date.timestamp()) * 1000
