"""`svc webhook move`: the webhooks of a stopped node, to PostgreSQL and back (docs/operations.md)."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.operator.database import WEBHOOKS_FILE, data_dir_argument, locked_database
from svcd.cli.rendering import pluralize
from svcd.cli.session import Session
from svcd.node.verify_chain import network_of
from svcd.store.database import DatabaseError, DatabaseUnavailable
from svcd.store.offline_database import Inspector, open_offline
from svcd.store.optional_postgresql import postgresql_at

if TYPE_CHECKING:
    from svcd.store.webhook_move import MoveResult, Step


@click.command()
@data_dir_argument
@click.option("--to", "target", metavar="URI", help="Move them from the data directory to this PostgreSQL.")
@click.option("--from", "source", metavar="URI", help="Move them from this PostgreSQL to the data directory.")
@options.json_option
@click.pass_obj
def move(session: Session, data_dir: Path | None, target: str | None, source: str | None) -> None:
    """Move the webhooks of a stopped node in DATA_DIR to PostgreSQL, or back.

    Watches, queued events and their ids are kept. The database, or the file webhooks.sqlite in DATA_DIR, must be empty,
    and no node that uses it may run. If the command is interrupted, run it again: nothing is lost, and no node starts
    with half of the webhooks. The password may be in PGPASSWORD or in the file that PGPASSFILE names. DATA_DIR defaults
    to that of --data-dir.

    \b
    Example:
      svc webhook move data --to postgresql:///svcd
      svc webhook move data --from postgresql:///svcd
    """
    if (target is None) == (source is None):
        raise click.UsageError("say where the webhooks go: either --to or --from, with the URI of a PostgreSQL")
    try:
        name, result = _move(
            session, data_dir or Path(session.data_dir), target or source or "", to_file=target is None
        )
    except DatabaseUnavailable as error:
        raise CommandError(f"{error}. Run the command again: nothing is lost") from None
    except DatabaseError as error:
        raise CommandError(str(error)) from None
    record = {"watches": result.watches, "events": result.events, "to": name}
    watches = f"{result.watches} watch{'es' * (result.watches != 1)}"
    events = pluralize(result.events, "event")
    database = "leave [commerce.webhooks] database empty" if target is None else "set [commerce.webhooks] database"
    session.print_result(record, f"{watches} and {events} are in {name}; {database} before you start the node")


def _move(session: Session, data_dir: Path, uri: str, *, to_file: bool) -> "tuple[str, MoveResult]":
    genesis = b""
    # Loads psycopg: the owner of the data may not be allowed to read root's program.
    database = postgresql_at(uri, lambda connection: connection.migrate(genesis))
    from svcd.store import webhook_move

    with ExitStack() as stack:
        chain = stack.enter_context(locked_database(data_dir))
        with open_offline(chain) as connection:
            genesis = network_of(Inspector(connection)).genesis_hash
        stack.enter_context(closing(database))
        database.connect()
        path = chain.with_name(WEBHOOKS_FILE)

        def begin(rows: int) -> "Step":
            bar = stack.enter_context(session.progress_bar(rows, "Moving the webhooks"))
            step: Callable[[int], object] = bar.update
            return step

        if to_file:
            return str(data_dir / WEBHOOKS_FILE), webhook_move.to_file(database, path, begin)
        return database.address.name, webhook_move.to_postgresql(path, database, begin)
