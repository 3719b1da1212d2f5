"""`svc db` and `svc webhook move` and `restored`: the databases of a stopped node (docs/command-line.md)."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw
import click

from svcd.chain.errors import Corrupt
from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.operator.reindex import ReindexResult, reindex
from svcd.cli.operator.verify_chain import HeaderVerification, network_of, verify_chain, verify_headers
from svcd.cli.rendering import property_table
from svcd.cli.secure_files import refuse_root
from svcd.cli.session import Session
from svcd.process.datadir import CannotLock, lock_directory
from svcd.quantities import counted
from svcd.seed_file import SeedFileError, SeedKind, is_encrypted, parse_seed, read_private
from svcd.store.chain_store import ChainWriter
from svcd.store.database import (
    CHAIN,
    WEBHOOKS,
    DatabaseError,
    DatabaseKind,
    DatabaseUnavailable,
    is_disk_trouble,
    open_writer,
)
from svcd.store.mempool_journal import FILE as JOURNAL_FILE
from svcd.store.mempool_journal import JOURNAL, JournalKind, read_journal
from svcd.store.offline_database import (
    Inspector,
    copy_used,
    discard,
    exchange_database,
    integrity,
    open_offline,
    replace_database,
    used_bytes,
)
from svcd.store.optional_postgresql import postgresql_at
from svcd.visible_text import visible

if TYPE_CHECKING:
    from svcd.store.webhook_move import MoveResult, Step

CHAIN_FILE: Final = "chain.sqlite"
WEBHOOKS_FILE: Final = "webhooks.sqlite"
KEY_FILES: Final = {"node.key": SeedKind.NODE, "operator.key": SeedKind.BLOCK}
_BLOCKS_PER_STEP: Final = 64
"""Blocks between two updates of a progress bar."""

F = TypeVar("F", bound=Callable[..., Any])


def data_dir_argument(command: F) -> F:
    """``DATA_DIR``, the parameter ``data_dir``; None if it is not given."""
    return click.argument("data_dir", metavar="[DATA_DIR]", required=False, type=click.Path(path_type=Path))(command)


@click.command()
@data_dir_argument
@options.json_option
@click.pass_obj
def check(session: Session, data_dir: Path | None) -> None:
    """Check the databases in DATA_DIR: the files, every block, all derived data, and the keys beside them.

    Every block from the genesis on is hashed and executed again, and accounts, state root, undo records and indexes
    must match the result. Where old blocks were deleted, their headers are checked, and the later blocks executed.
    Nothing is changed. DATA_DIR defaults to that of --data-dir, and may be a backup.

    \b
    Example:
      svc db check data
      svc db check /var/backups/svcd-2026-11-20 --json
    """
    data_dir = data_dir or Path(session.data_dir)
    with locked_database(data_dir) as path:
        keys = _damaged_keys(path.parent)
        damaged, problems, blocks = _check(session, path)
    problems = keys + problems
    record = {"sound": not problems, "blocks": blocks, "problems": problems}
    if not problems:
        session.print_result(record, f"{data_dir} is sound: {counted(blocks, 'block')} and all derived data")
        return
    if session.as_json:
        session.print_result(record, "")
    for problem in problems:
        click.echo(f"wrong: {visible(problem)}", err=True)
    if not damaged:
        raise CommandError(f"the databases in {data_dir} are sound, and the node does not start with such a key")
    if CHAIN in damaged:
        raise CommandError(f"{data_dir} is damaged; restore a backup, or try: svc db rebuild {data_dir}")
    raise CommandError("; ".join(f"{kind.name} in {data_dir} is damaged; {kind.remedy}" for kind in damaged))


@click.command()
@data_dir_argument
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Only the newest N headers.  [default: all]")
@options.json_option
@click.pass_obj
def verify(session: Session, data_dir: Path | None, count: int | None) -> None:
    """Verify the participation work of the chain in DATA_DIR again, on all cores.

    Position, producer's signature and participation work of each header are checked as for a header from a peer, and
    the rate is compared with the Argon2 hashes per second of this computer. Nothing is changed. DATA_DIR defaults to
    that of --data-dir.

    \b
    Example:
      svc db verify data
      svc db verify data --count 20000
    """
    with locked_database(data_dir or Path(session.data_dir)) as path:
        result, threads = _verify(session, path, count)
    record = {
        "first": str(result.first),
        "headers": result.count,
        "wrong": result.wrong or None,
        "headersPerSecond": round(result.headers_per_second, 1),
        "argon2PerSecond": round(result.raw_per_second, 1),
        "cores": threads,
        "ratio": round(result.ratio, 3),
    }
    if result.wrong:
        if session.as_json:
            session.print_result(record, "")
        raise CommandError(result.wrong)
    rows = [
        ("headers", f"{result.count} valid, from block {result.first} on"),
        ("rate", f"{result.headers_per_second:.1f} headers/s on {counted(threads, 'core')}"),
        ("raw Argon2", f"{result.raw_per_second:.1f} hashes/s; the headers reach {result.ratio:.2f} of that"),
    ]
    session.print_result(record, property_table(rows))


@click.command("rebuild")
@data_dir_argument
@options.json_option
@click.pass_obj
def rebuild_(session: Session, data_dir: Path | None) -> None:
    """Rebuild the chain database in DATA_DIR from its blocks.

    The blocks are executed again into a new file, which then replaces the old one; the old file is kept beside it. If a
    block is damaged, the new chain ends before it, and the node downloads the rest from its peers. This needs as much
    free disk space as the database uses, and changes nothing until it has succeeded.

    \b
    Example:
      svc db rebuild data
    """
    data_dir = data_dir or Path(session.data_dir)
    with locked_database(data_dir) as path:
        result, kept = _rebuild(session, path)
    kept = data_dir / kept.name
    record = {
        "height": str(result.height),
        "hash": result.tip.hex(),
        "sideBlocks": result.side,
        "lost": result.lost,
        "why": result.why or None,
        "unread": list(result.unread),
        "kept": str(kept),
    }
    rows = [
        ("tip", f"{result.height}, {result.tip.hex()}"),
        ("side blocks", str(result.side)),
        ("old file", f"{kept}; remove it once the node works"),
    ]
    if result.why:
        rows.append(("left out", f"{counted(result.lost, 'block')}, which the node downloads again: {result.why}"))
    rows += [("not copied", sentence) for sentence in result.unread]
    session.print_result(record, property_table(rows))


@click.command()
@data_dir_argument
@options.json_option
@click.pass_obj
def compact(session: Session, data_dir: Path | None) -> None:
    """Give the free space in the chain database in DATA_DIR back to the system.

    A node that has deleted old blocks ([chain] keepBlocks) uses their space for new ones, and its file stays as large
    as it was. The rows are copied into a new file, which then replaces the old one. This needs as much free disk space
    as the new file, and changes nothing until that is complete. DATA_DIR defaults to that of --data-dir.

    \b
    Example:
      svc db compact data
    """
    data_dir = data_dir or Path(session.data_dir)
    with locked_database(data_dir) as path:
        before = path.stat().st_size
        _compact(session, path)
        after = path.stat().st_size
    record = {"bytesBefore": before, "bytes": after}
    session.print_result(record, f"{data_dir / path.name} has {_megabytes(after)} instead of {_megabytes(before)}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _compact(session: Session, path: Path) -> None:
    new = path.with_name(f"{path.name}.new")
    discard(new)
    try:
        with (
            open_offline(path) as connection,
            _explaining_full_disk(new, "as the database will have"),
            session.progress_bar(used_bytes(connection), "Copying the database") as bar,
        ):
            copy_used(connection, new, bar.update)
        exchange_database(path, new)
    finally:
        discard(new)


@contextmanager
def locked_database(data_dir: Path) -> Iterator[Path]:
    """Hold the lock of a data directory; yields the path of the chain database.

    Raises CommandError if there is no such database, the directory cannot be used, or the block inside fails.
    """
    path = data_dir / CHAIN_FILE
    try:
        refuse_root(data_dir)
        if not path.is_file():
            raise FileNotFoundError
        lock = lock_directory(data_dir)
    except (FileNotFoundError, NotADirectoryError):
        raise CommandError(f"there is no {path}; give the data directory of a node") from None
    except OSError as error:
        raise CommandError(f"the data directory {data_dir} cannot be used: {error.strerror}") from None
    except CannotLock as reason:
        raise CommandError(f"the data directory {data_dir} {reason}") from None
    try:
        yield path
    except (DatabaseError, Corrupt, OSError) as error:
        raise CommandError(str(error)) from error
    finally:
        os.close(lock)


def _check(session: Session, path: Path) -> tuple[list[DatabaseKind | JournalKind], list[str], int]:
    """The damaged files, the problems, and the number of blocks."""
    damaged: list[DatabaseKind | JournalKind] = []
    problems: list[str] = []
    for name, kind in ((WEBHOOKS_FILE, WEBHOOKS), (JOURNAL_FILE, JOURNAL), (path.name, CHAIN)):
        if path.with_name(name).is_file() and (found := _check_file(session, path.with_name(name), kind)):
            damaged.append(kind)
            problems += found
    if problems:
        return damaged, problems, 0
    with open_offline(path) as connection:
        reader = Inspector(connection)
        params, tip = network_of(reader, session.networks), reader.tip()
        blocks = 0 if tip is None else tip.height + 1
        with _block_progress(session, blocks) as step:
            wrong = verify_chain(reader, params, step)
            return [CHAIN] if wrong else [], wrong, blocks


def _damaged_keys(data_dir: Path) -> list[str]:
    """What is wrong with the keys that are not encrypted."""
    wrong = []
    for name, kind in KEY_FILES.items():
        try:
            content = read_private(data_dir / name)
            if not is_encrypted(content):
                parse_seed(content, kind, data_dir / name)
        except FileNotFoundError:
            # A backup has no keys.
            continue
        except SeedFileError as error:
            wrong.append(str(error))
    return wrong


def _check_file(session: Session, path: Path, kind: DatabaseKind | JournalKind) -> list[str]:
    if session.shows_progress:
        click.echo(f"Reading {path.name}", err=True)
    if isinstance(kind, JournalKind):
        # A record that a kill has cut is no damage: none of its transfers was accepted.
        damage = read_journal(path).damage
        return [f"{path.name} {damage}"] if damage else []
    with open_offline(path, kind) as connection:
        return [f"{path.name}: {sentence}" for sentence in integrity(path, connection)]


def _verify(session: Session, path: Path, newest: int | None) -> tuple[HeaderVerification, int]:
    """The result for the headers, and the number of threads."""
    threads = len(os.sched_getaffinity(0))
    with open_offline(path) as connection:
        reader = Inspector(connection)
        params, tip = network_of(reader, session.networks), reader.tip()
        height = 0 if tip is None else tip.height
        blocks = height if newest is None else min(newest, height)
        with _block_progress(session, blocks, "Verifying the headers") as step:
            return verify_headers(reader, params, newest=newest, threads=threads, step=step), threads


def _rebuild(session: Session, path: Path) -> tuple[ReindexResult, Path]:
    """Replace the database by a rebuilt one; returns the result and the path of the old file."""
    new = path.with_name(f"{path.name}.new")
    discard(new)
    try:
        with open_offline(path) as connection:
            old = Inspector(connection)
            params, tip = network_of(old, session.networks), old.tip()
            if first := old.prune_height():
                raise CommandError(
                    f"{path.parent} has only blocks from height {first} on, and a rebuild executes every block from "
                    "the genesis on: restore a backup, or move the database away and the node fetches the chain again"
                )
            # Errors of the old file are Corrupt from here on; apsw.Error is an error of the new one.
            with (
                _explaining_full_disk(new, "as the old file uses"),
                closing(open_writer(new)) as writing,
                _block_progress(session, 0 if tip is None else tip.height) as step,
            ):
                result = reindex(old, ChainWriter(writing), params, step)
        return result, replace_database(path, new)
    finally:
        discard(new)


@contextmanager
def _explaining_full_disk(new: Path, needed: str) -> Iterator[None]:
    """Raise CommandError if the disk fails while ``new`` is written, so that the old file is not blamed.

    ``needed`` says how much space it needs.
    """
    try:
        yield
    except apsw.Error as error:
        if not is_disk_trouble(error):
            raise
        raise CommandError(
            f"{new} cannot be written: {error}. Nothing has been changed; it needs as much space {needed}"
        ) from error


@contextmanager
def _block_progress(
    session: Session, blocks: int, label: str = "Executing the blocks"
) -> Iterator[Callable[[int], object]]:
    """A progress bar; yields a function that advances it by a number of blocks.

    The last step is for the work after the last block, which takes a while too.
    """
    with session.progress_bar(blocks + 1, label, update_min_steps=_BLOCKS_PER_STEP) as bar:
        yield bar.update
        bar.update(1)


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
    events = counted(result.events, "event")
    database = "leave [commerce.webhooks] database empty" if target is None else "set [commerce.webhooks] database"
    session.print_result(record, f"{watches} and {events} are in {name}; {database} before you start the node")


@click.command()
@click.argument("database", metavar="URI")
@options.json_option
@click.pass_obj
def restored(session: Session, database: str) -> None:
    """Tell the nodes that the PostgreSQL at URI was restored from a copy of its files.

    The nodes notice a promoted standby, a recovery to a point in time and a restored dump by themselves. They cannot
    notice a copy of all files of the server, such as a snapshot of its disk. With this command they begin a new epoch
    of every watch, so that no id is used for two different events. Nodes may run meanwhile.

    \b
    Example:
      svc webhook restored postgresql:///svcd
    """
    try:
        with closing(postgresql_at(database, lambda connection: None)) as connection:
            connection.set_copy_mark()
            name = connection.address.name
    except (DatabaseError, DatabaseUnavailable) as error:
        raise CommandError(str(error)) from None
    session.print_result({"restored": name}, f"the nodes begin a new epoch of every watch in {name}")


def _move(session: Session, data_dir: Path, uri: str, *, to_file: bool) -> "tuple[str, MoveResult]":
    genesis = b""
    # Loads psycopg: the owner of the data may not be allowed to read root's program.
    database = postgresql_at(uri, lambda connection: connection.migrate(genesis))
    from svcd.store import webhook_move

    with ExitStack() as stack:
        chain = stack.enter_context(locked_database(data_dir))
        with open_offline(chain) as connection:
            genesis = network_of(Inspector(connection), session.networks).genesis_hash
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
