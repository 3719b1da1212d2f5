"""`svc db check` and `svc db rebuild`: the databases of a stopped node (docs/operations.md "Repairing")."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from svcd.chain.errors import Corrupt
from svcd.node.checking import check_chain, network_of
from svcd.node.rebuilding import Rebuilt, rebuild
from svcd.process.datadir import DataDirectory
from svcd.process.sequential import CannotStart
from svcd.store.chain_store import ChainWriter
from svcd.store.database import CHAIN, WEBHOOKS, DatabaseError, Kind, is_disk_trouble, open_writer
from svcd.store.inspection import Inspector, integrity, opened_for_inspection
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
    """Check and rebuild the databases of a node that is stopped.

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
    path = _chain_in(session, folder)
    with _own(path.parent):
        problems, blocks = _checked(session, path)
    record = {"sound": not problems, "blocks": blocks, "problems": problems}
    if not problems:
        session.show(record, f"{path.parent} is sound: {show.counted(blocks, 'block')} and all that follows from them")
        return
    if session.as_json:
        session.show(record, "")
    for problem in problems:
        click.echo(f"wrong: {show.plain(problem)}", err=True)
    raise Failed(f"{path.parent} is damaged; restore a backup, or try: svc db rebuild {path.parent}")


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
    path = _chain_in(session, folder)
    with _own(path.parent):
        done, kept = _rebuilt(session, path)
    record = {
        "height": str(done.height),
        "hash": done.tip.hex(),
        "sideBlocks": done.side,
        "waiting": done.waiting,
        "lost": done.lost,
        "why": done.why or None,
        "unread": list(done.unread),
        "kept": str(kept),
    }
    rows = [
        ("tip", f"{done.height}, {done.tip.hex()}"),
        ("side blocks", str(done.side)),
        ("waiting", show.counted(done.waiting, "transfer")),
        ("old file", f"{kept}; remove it when all is well"),
    ]
    if done.why:
        rows.append(("left out", f"{show.counted(done.lost, 'block')}, which the node fetches again: {done.why}"))
    rows += [("not taken", show.plain(sentence)) for sentence in done.unread]
    session.show(record, show.table(rows))


def _chain_in(session: Session, folder: Path | None) -> Path:
    path = (Path(session.data_dir) if folder is None else folder) / CHAIN_FILE
    if not path.is_file():
        raise Failed(f"there is no {path}; name the data directory of a node")
    return path


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Hold the lock of a data directory; raises Failed while a node has it, and for what is found wrong inside."""
    lock = DataDirectory(folder)
    try:
        lock.startService()
    except CannotStart as reason:
        raise Failed(str(reason)) from None
    try:
        yield
    except (DatabaseError, Corrupt, OSError) as error:
        raise Failed(str(error)) from error
    finally:
        lock.stopService()


def _checked(session: Session, path: Path) -> tuple[list[str], int]:
    """What is wrong, and how many blocks there are."""
    problems = []
    webhooks = path.with_name(_WEBHOOKS_FILE)
    if webhooks.is_file():
        problems += _wrong_in_file(session, webhooks, WEBHOOKS)
    problems += _wrong_in_file(session, path, CHAIN)
    if problems:
        return problems, 0
    with opened_for_inspection(path) as connection:
        reader = Inspector(connection)
        params, tip = network_of(reader), reader.tip()
        blocks = 0 if tip is None else tip.height + 1
        with _progress(session, blocks) as step:
            return check_chain(reader, params, step), blocks


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
def _progress(session: Session, blocks: int) -> Iterator[Callable[[int], object]]:
    """A bar on standard error that moves when it is told how many blocks are done.

    What comes after the last block takes a while too, so the bar is full only when all is done.
    """
    hidden = session.as_json or not session.outside.watched()
    with click.progressbar(
        length=blocks + 1, label="Executing the blocks", file=sys.stderr, hidden=hidden, update_min_steps=_EVERY
    ) as bar:
        yield bar.update
        bar.update(1)
