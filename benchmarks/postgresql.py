"""Webhooks on a PostgreSQL of this machine, which commits to the disk, against those in a file."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import psycopg
from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.many_watches import create_events
from benchmarks.merchants import order
from benchmarks.prepared_chain import create_chain
from benchmarks.processes import DATABASE, node
from benchmarks.program import main, on_reactor
from benchmarks.watches import Fixture, prepare
from benchmarks.watches import Sizes as BlockSizes
from benchmarks.wrk import CONNECTIONS, hammer
from svcd.chain.params import DEVNET
from svcd.commerce.webhook_database import FILE
from svcd.store.postgresql import PostgresqlConnection, parse_address
from svcd.store.webhook_move import to_postgresql
from tests.postgresql import Server, running

_EVENTS: Final = Goal("ratio", "<=", 2.5)
_MANY: Final = Goal("ratio", "<=", 1.3)
_REGISTERED: Final = Goal("figure", ">=", 300)
_TOKEN: Final = "benchmark-token-of-32-characters-"  # noqa: S105
_SECRET: Final = "benchmark-secret-of-32-characters"  # noqa: S105
_MORE: Final = """
INSERT INTO watch (id, merchant, reference, recipient, amount, required, callback_url, host, created_at, expires_at,
                   events, state, epoch, sequence, ending, wake_at, ended_at)
SELECT 'svcwh_' || %(mark)s || lpad(to_hex(n), 31, '0'), 'default', 'more-' || %(mark)s || '-' || n,
       'svcd1qq' || lpad(n::text, 34, '0'), 5000 + n, 12, 'https://shop.example/paid', 'shop.example', %(now)s,
       %(later)s, 'payment.confirmed', %(state)s, 0, 0, %(ending)s,
       CASE WHEN %(ending)s::text IS NULL THEN %(later)s::bigint END,
       CASE WHEN %(ending)s::text IS NOT NULL THEN %(now)s::bigint END
FROM generate_series(1, %(count)s) AS n
"""


@frozen
class Sizes:
    """How much is measured."""

    matches: int
    """Watches that one block pays."""
    few: int
    """Active watches of the smaller database."""
    active: int
    ended: int
    rounds: int
    seconds: int
    """How long watches are registered in each round."""
    orders: int
    """To register in each round: more than can be."""


FULL: Final = Sizes(matches=2_000, few=10_000, active=100_000, ended=900_000, rounds=5, seconds=5, orders=15_000)
QUICK: Final = Sizes(matches=100, few=200, active=1_000, ended=2_000, rounds=1, seconds=1, orders=5_000)


@frozen
class Databases:
    """Databases of one server, each made from a template."""

    server: Server

    @contextmanager
    def copy_of(self, template: str) -> Iterator[str]:
        """The connection URI of a fresh copy."""
        self._run(f"CREATE DATABASE measured TEMPLATE {template}", "CHECKPOINT")
        try:
            yield self.uri("measured")
        finally:
            self._run("DROP DATABASE measured WITH (FORCE)")

    def create(self, name: str, watches: Path, *, active: int, ended: int) -> None:
        """A template with the watches of a file, and with others that no block pays."""
        self._run(f"CREATE DATABASE {name}")
        uri = self.uri(name)
        connection = PostgresqlConnection(parse_address(uri), lambda made: made.migrate(DEVNET.genesis_hash))
        with closing(connection):
            connection.connect()
            to_postgresql(watches, connection, lambda _: lambda _: None)
        now = int(time.time() * 1000)
        with psycopg.connect(uri, autocommit=True) as database:
            for mark, count, state, ending in (("a", active, "unpaid", None), ("b", ended, "confirmed", "closed")):
                values = {"mark": mark, "count": count, "state": state, "ending": ending, "now": now}
                database.execute(_MORE, {**values, "later": now + 86_400_000})
            database.execute("VACUUM ANALYZE")

    def uri(self, name: str) -> str:
        """The connection URI of a database."""
        return self.server.uri.replace("/postgres?", f"/{name}?")

    def _run(self, *statements: str) -> None:
        with psycopg.connect(self.server.uri, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def _events(fixture: Fixture, databases: Databases, sizes: Sizes) -> list[Row]:
    """Creating the events of a block: on PostgreSQL against a file, and with many watches against few."""
    watches = fixture.folder / "watches-1"
    for name in ("bare", "few", "many"):
        active = {"bare": 0, "few": sizes.few - sizes.matches, "many": sizes.active - sizes.matches}[name]
        moved = fixture.folder / f"moved-{name}"
        copytree(watches, moved)
        databases.create(name, moved / FILE, active=active, ended=sizes.ended if name == "many" else 0)

    async def run(reactor: Any) -> list[Row]:
        engines, numbers = Rounds(), Rounds()
        for _ in range(sizes.rounds):
            took = {"file": (await create_events(fixture, watches, reactor))[0]}
            for name in ("bare", "few", "many"):
                with databases.copy_of(name) as uri:
                    took[name] = (await create_events(fixture, uri, reactor))[0]
            engines.add(took["bare"], took["file"])
            numbers.add(took["many"], took["few"])
        what = f"creating the events of {sizes.matches:,} payments, PostgreSQL"
        of = f"{sizes.active + sizes.ended:,} watches, {sizes.active:,} active"
        return [
            engines.row(what, unit="ms", baseline_is="ms, SQLite", goal=_EVENTS),
            numbers.row(f"{what}, {of}", unit="ms", baseline_is=f"ms, {sizes.few:,} active", goal=_MANY),
        ]

    return on_reactor(run)


def _registering(folder: Path, databases: Databases, sizes: Sizes) -> Row:
    """Watches registered per second, on PostgreSQL and in a file."""
    rounds, numbers = Rounds(), iter(range(2 * sizes.rounds))
    for _ in range(sizes.rounds):
        with databases.copy_of("template0") as uri:
            figure = _registered(folder, next(numbers), sizes, f'commerce.webhooks.database="{uri}"')
        rounds.add(figure, _registered(folder, next(numbers), sizes))
    return rounds.row(
        f"watches registered, PostgreSQL, {CONNECTIONS} connections",
        unit="/s",
        baseline_is="/s, SQLite",
        goal=_REGISTERED,
    )


def _registered(folder: Path, number: int, sizes: Sizes, *settings: str) -> float:
    data, bodies = folder / f"registering-{number}", folder / f"orders-{number}"
    data.mkdir()
    create_chain(data / DATABASE, [])
    with bodies.open("w") as lines:
        for each in range(sizes.orders):
            terms = order(each, required=12)
            body = {"reference": terms.reference, "recipient": terms.recipient, "amountBaseUnits": str(terms.amount)}
            lines.write(json.dumps({**body, "callbackUrl": "https://93.184.216.34/paid"}) + "\n")
    common = ("enabled=true", f"manageToken={_TOKEN}", f"signingSecret={_SECRET}")
    with node(data, *(f"commerce.webhooks.{each}" for each in common), *settings) as served:
        report = hammer(
            f"{served.url}/rpc/commerce/webhooks",
            seconds=sizes.seconds,
            script="bodies.lua",
            arguments=(str(bodies), "", _TOKEN),
        )
    if report.lines.get("Refusal") or report.lines["Exhausted"] != "0":
        raise RuntimeError(f"a watch was refused, or too few are ready: {report.lines}")
    return int(report.lines["Accepted"]) / sizes.seconds


def measure(folder: Path, quick: bool) -> list[Row]:
    """Creating events and registering with webhooks on PostgreSQL, against those in a file."""
    sizes = QUICK if quick else FULL
    fixture = prepare(folder, BlockSizes(matches=sizes.matches, blocks=1, rounds=sizes.rounds))
    with running(durable=True) as server:
        databases = Databases(server)
        return [*_events(fixture, databases, sizes), _registering(folder, databases, sizes)]


if __name__ == "__main__":
    main(measure)
