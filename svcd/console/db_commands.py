"""`svc db check`, `verify` and `rebuild`: the databases of a stopped node (docs/operations.md "Repairing")."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from svcd.chain.errors import Corrupt
from svcd.node.checking import check_chain, network_of
from svcd.node.header_verification import Verified, verify_headers
from svcd.node.rebuilding import Rebuilt, rebuild
from svcd.process.datadir import CannotLock, lock_directory
from svcd.process.privileges import UnsafeDirectory, become_owner
from svcd.store.chain_store import ChainWriter
from svcd.store.database import (
    CHAIN,
    MEMPOOL,
    WEBHOOKS,
    DatabaseError,
    Kind,
    is_disk_trouble,
    migrations,
    open_writer,
)
from svcd.store.inspection import Inspector, integrity, opened_for_inspection
from svcd.store.mempool_store import FILE as MEMPOOL_FILE
from svcd.store.replacing import discard, replace_database
from svcd.wallet import options, show
from svcd.wallet.failed import Failed
from svcd.wallet.session import Session

CHAIN_FILE: Final = "chain.sqlite"
_WEBHOOKS_FILE: Final = "webhooks.sqlite"
_EVERY: Final = 64
"""Blocks between two movements of a progress bar."""

F = TypeVar("F", bound=Callable[..., Any])


def _folder_argument(command: F) -> F:
    return click.argument("folder", metavar="[DATA_DIR]", required=False, type=click.Path(path_type=Path))(command)


@click.group()
def db() -> None:
    """Check, verify and rebuild the databases of a node that is stopped.

    The exit status is 0 if all is well, 1 if something is wrong, and 2 if the command was called wrongly.

    \b
    Example:
      svc db check data
      svc db rebuild data
    """


@db.command()
@_folder_argument
@options.json_option
@click.pass_obj
def check(session: Session, folder: Path | None) -> None:
    """Check everything in DATA_DIR: the files, every block, and what follows from the blocks.

    Every block is hashed and executed again from the genesis on; accounts, state root, undo records and indexes must be
    what comes of that. Nothing is changed. DATA_DIR is by default that of --data-dir. It may be a backup.

    \b
    Example:
      svc db check data
      svc db check /var/backups/svcd-2026-11-20 --json
    """
    folder = folder or Path(session.data_dir)
    with _entered(folder) as path:
        problems, blocks = _checked(session, path)
    record = {"sound": not problems, "blocks": blocks, "problems": problems}
    if not problems:
        session.show(record, f"{folder} is sound: {show.counted(blocks, 'block')} and all that follows from them")
        return
    if session.as_json:
        session.show(record, "")
    for problem in problems:
        click.echo(f"wrong: {show.plain(problem)}", err=True)
    raise Failed(f"{folder} is damaged; restore a backup, or try: svc db rebuild {folder}")


@db.command()
@_folder_argument
@click.option("--headers", is_flag=True, help="Verify the headers; there is nothing else to verify yet.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Only the newest N headers; all by default.")
@options.json_option
@click.pass_obj
def verify(session: Session, folder: Path | None, headers: bool, count: int | None) -> None:
    """Verify the participation work of the chain in DATA_DIR again, on every core.

    Place, producer's signature and participation work of each header are checked as for a header that a peer sends, and
    the rate is compared with the Argon2 hashes that this machine can make in a second. Nothing is changed. DATA_DIR is
    by default that of --data-dir.

    \b
    Example:
      svc db verify data --headers
      svc db verify data --headers --count 20000
    """
    if not headers:
        raise click.UsageError("say what to verify: --headers")
    with _entered(folder or Path(session.data_dir)) as path:
        done, threads = _verified(session, path, count)
    record = {
        "first": str(done.first),
        "headers": done.count,
        "wrong": done.wrong or None,
        "headersPerSecond": round(done.headers_per_second, 1),
        "argon2PerSecond": round(done.raw_per_second, 1),
        "cores": threads,
        "ratio": round(done.ratio, 3),
    }
    if done.wrong:
        if session.as_json:
            session.show(record, "")
        raise Failed(show.plain(done.wrong))
    rows = [
        ("headers", f"{done.count} hold, from block {done.first} on"),
        ("rate", f"{done.headers_per_second:.1f} headers/s on {show.counted(threads, 'core')}"),
        ("raw Argon2", f"{done.raw_per_second:.1f} hashes/s; the headers take {done.ratio:.2f} of that"),
    ]
    session.show(record, show.table(rows))


@db.command("rebuild")
@_folder_argument
@options.json_option
@click.pass_obj
def rebuild_(session: Session, folder: Path | None) -> None:
    """Make the chain's database in DATA_DIR anew from the blocks in it.

    The blocks are executed again into a new file, which then takes the place of the old one; that is kept beside it.
    If a block is not what it was, the new chain ends before it, and the node fetches the rest from others. It needs as
    much room on the disk as there is in use, and changes nothing until it has succeeded.

    \b
    Example:
      svc db rebuild data
    """
    folder = folder or Path(session.data_dir)
    with _entered(folder) as path:
        done, kept = _rebuilt(session, path)
    kept = folder / kept.name
    record = {
        "height": str(done.height),
        "hash": done.tip.hex(),
        "sideBlocks": done.side,
        "lost": done.lost,
        "why": done.why or None,
        "unread": list(done.unread),
        "kept": str(kept),
    }
    rows = [
        ("tip", f"{done.height}, {done.tip.hex()}"),
        ("side blocks", str(done.side)),
        ("old file", f"{kept}; remove it when all is well"),
    ]
    if done.why:
        rows.append(("left out", f"{show.counted(done.lost, 'block')}, which the node fetches again: {done.why}"))
    rows += [("not taken", show.plain(sentence)) for sentence in done.unread]
    session.show(record, show.table(rows))


@contextmanager
def _entered(folder: Path) -> Iterator[Path]:
    """Hold the lock of a data directory as its owner (see `become_owner`); gives the path of the chain's database.

    Raises Failed: there is no such database, the directory cannot be used, or what is done inside fails.
    """
    _load()
    try:
        path = become_owner(folder) / CHAIN_FILE
        if not path.is_file():
            raise FileNotFoundError
        lock = lock_directory(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise Failed(f"there is no {folder / CHAIN_FILE}; name the data directory of a node") from None
    except OSError as error:
        raise Failed(f"the data directory {folder} cannot be used: {error.strerror}") from None
    except (CannotLock, UnsafeDirectory) as reason:
        raise Failed(f"the data directory {folder} {reason}") from None
    try:
        yield path
    except (DatabaseError, Corrupt, OSError) as error:
        raise Failed(str(error)) from error
    finally:
        os.close(lock)


def _load() -> None:
    """Load what would otherwise be loaded later: the owner of the data may not be allowed to read root's program."""
    for kind in (CHAIN, MEMPOOL, WEBHOOKS):
        migrations(kind)
    with click.progressbar(length=0, file=sys.stderr, hidden=True):
        pass


def _checked(session: Session, path: Path) -> tuple[list[str], int]:
    """What is wrong, and how many blocks there are."""
    problems = []
    for name, kind in ((_WEBHOOKS_FILE, WEBHOOKS), (MEMPOOL_FILE, MEMPOOL)):
        if path.with_name(name).is_file():
            problems += _wrong_in_file(session, path.with_name(name), kind)
    problems += _wrong_in_file(session, path, CHAIN)
    if problems:
        return problems, 0
    with opened_for_inspection(path) as connection:
        reader = Inspector(connection)
        params, tip = network_of(reader), reader.tip()
        blocks = 0 if tip is None else tip.height + 1
        with _progress(session, blocks) as step:
            return check_chain(reader, params, step), blocks


def _verified(session: Session, path: Path, newest: int | None) -> tuple[Verified, int]:
    """What came of verifying the headers, and on how many threads."""
    threads = len(os.sched_getaffinity(0))
    with opened_for_inspection(path) as connection:
        reader = Inspector(connection)
        params, tip = network_of(reader), reader.tip()
        height = 0 if tip is None else tip.height
        with _progress(session, height if newest is None else min(newest, height), "Verifying the headers") as step:
            return verify_headers(reader, params, newest=newest, threads=threads, step=step), threads


def _wrong_in_file(session: Session, path: Path, kind: Kind) -> list[str]:
    if not session.as_json and session.outside.watched():
        click.echo(f"Reading {path.name}", err=True)
    with opened_for_inspection(path, kind) as connection:
        return [f"{path.name}: {sentence}" for sentence in integrity(connection)]


def _rebuilt(session: Session, path: Path) -> tuple[Rebuilt, Path]:
    """The new database in the place of the old one, and where that is kept."""
    fresh = path.with_name(f"{path.name}.new")
    discard(fresh)
    try:
        with opened_for_inspection(path) as connection:
            old = Inspector(connection)
            params, tip = network_of(old), old.tip()
            # From here on the old file's errors come as Corrupt: the others are those of the new one.
            with (
                _telling_no_room(fresh),
                closing(open_writer(fresh)) as writing,
                _progress(session, 0 if tip is None else tip.height) as step,
            ):
                done = rebuild(old, ChainWriter(writing), params, step)
        return done, replace_database(path, fresh)
    finally:
        discard(fresh)


@contextmanager
def _telling_no_room(fresh: Path) -> Iterator[None]:
    """Raise Failed where the disk does not take what is written to ``fresh`` inside: the old file is not to blame."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_disk_trouble(error):
            raise
        raise Failed(
            f"{fresh} cannot be written: {error}. Nothing has been changed; it needs as much room as is in use"
        ) from error


@contextmanager
def _progress(session: Session, blocks: int, label: str = "Executing the blocks") -> Iterator[Callable[[int], object]]:
    """A bar on standard error that moves when it is told how many blocks are done.

    What comes after the last block takes a while too, so the bar is full only when all is done.
    """
    hidden = session.as_json or not session.outside.watched()
    with click.progressbar(
        length=blocks + 1, label=label, file=sys.stderr, hidden=hidden, update_min_steps=_EVERY
    ) as bar:
        yield bar.update
        bar.update(1)
