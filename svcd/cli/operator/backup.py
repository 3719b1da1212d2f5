"""`svc node backup`: a copy of a node's databases while it runs (docs/operations.md "Backup")."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from svcd.cli import options
from svcd.cli.answers import ResponseObject
from svcd.cli.errors import CommandError, NoValidResponse
from svcd.cli.operator.database import CHAIN_FILE, WEBHOOKS_FILE
from svcd.cli.rendering import property_table
from svcd.cli.session import Session
from svcd.store.database_copy import partial_name

TIMEOUT: Final = 930.0
"""Seconds; longer than the node takes to respond, with 503 at the latest."""
_MIB: Final = 1 << 20
_LABEL: Final = "Copying"
_FILES: Final = (WEBHOOKS_FILE, CHAIN_FILE)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@options.operator_option
@options.json_option
@click.pass_obj
def backup(session: Session, folder: Path) -> None:
    """Copy the databases of a running node into the new folder FOLDER.

    The copy is consistent, and the node continues to process blocks meanwhile. It contains the chain and, if they are
    enabled, the webhooks. It contains neither the pending transfers, which wallets and peers send again, nor the node's
    keys, which are separate files.
    FOLDER must not exist. It is created by the node, with the node's permissions: under systemd, a node can write only
    below its own data directory. A node started with --data-dir FOLDER runs on the copy, with new keys.

    \b
    Example:
      svc node backup /var/lib/svcd/backup-2026-11-20 --data-dir /var/lib/svcd
      svc node backup data/backup --data-dir data
    """
    # The node has another working directory.
    path = folder.absolute()

    try:
        response = _request_with_progress(session, path)
    except NoValidResponse as error:
        raise CommandError(f"{error}. The node may still be copying: check {path}") from None
    response.check(path=str(path))
    files = response.object("files")
    sizes = [(name, files.number(name)) for name in _FILES if name in files]
    rows = [("folder", response.text("path")), ("tip", f"{response.number('height')}, {response.text('hash')}")]
    rows += [(name, f"{size / _MIB:,.1f} MiB") for name, size in sizes]
    record = {name: response.verbatim(name) for name in ("path", "height", "hash", "files")}
    session.print_result(record, f"{property_table(rows)}\n\n{_KEYS}")


_KEYS: Final = "The keys (operator.key, node.key) are not included: keep copies of them in a safe place."


def _request_with_progress(session: Session, folder: Path) -> ResponseObject:
    """The node's response; at a terminal, the progress of the copy to ``folder`` is shown meanwhile."""
    body = {"path": str(folder)}
    if not session.shows_progress:
        return session.operator(timeout=TIMEOUT).post("/operator/backup", body)
    with copy_progress_bar(Path(session.data_dir), folder) as update:
        return session.operator(timeout=TIMEOUT, poll=update).post("/operator/backup", body)


@frozen
class CopyProgress:
    """Sizes in bytes of the copied files and of the databases that they are copied from."""

    copied: int
    total: int


def copy_progress(data_dir: Path, folder: Path) -> CopyProgress | None:
    """The progress of the copy from ``data_dir`` to ``folder``, by the sizes of the files; None if that is not visible.

    This process may lack the permission, and under systemd the node may have a private ``/tmp``.
    """
    partial = partial_name(folder)
    try:
        present = [name for name in _FILES if (partial / name).exists()]
        copied = sum((partial / name).stat().st_size for name in present)
        total = sum((data_dir / name).stat().st_size for name in {*present, CHAIN_FILE})
    except OSError:
        return None
    return CopyProgress(copied, total) if present and total else None


@contextmanager
def copy_progress_bar(data_dir: Path, folder: Path) -> Iterator[Callable[[float], None]]:
    """A function that shows the progress of the copy on standard error, given the elapsed seconds.

    It shows a bar while the files are visible, and the elapsed time otherwise.
    """
    bar: Any = None
    time_shown = False

    def update(seconds: float) -> None:
        nonlocal bar, time_shown
        progress = copy_progress(data_dir, folder)
        if progress is not None:
            if bar is None:
                bar = stack.enter_context(click.progressbar(length=progress.total, label=_LABEL, file=sys.stderr))
            # Never full: only the node knows when the copy is safely on disk.
            bar.update(max(min(progress.copied, bar.length - 1) - bar.pos, 0))
        elif bar is None:
            time_shown = True
            click.echo(f"\r{_LABEL}, {seconds:.0f} s", nl=False, err=True)

    with ExitStack() as stack:
        try:
            yield update
            if bar is not None:
                bar.update(bar.length - bar.pos)
        finally:
            if time_shown and bar is None:
                click.echo(err=True)
