"""`svc node backup`: a copy of a node's databases while it runs (docs/operations.md "Backup")."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import click

from svcd.wallet import options, show
from svcd.wallet.answer import Answer
from svcd.wallet.client import Node
from svcd.wallet.failed import Failed, Unanswered
from svcd.wallet.growth import watched_copy
from svcd.wallet.session import Session

SECONDS: Final = 930.0
"""Longer than the node takes to answer, with 503 at the latest."""
_MIB: Final = 1 << 20


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@options.operator_option
@options.json_option
@click.pass_obj
def backup(session: Session, folder: Path) -> None:
    """Copy a running node's databases into the new folder FOLDER.

    The copy is consistent, and blocks go on while it is made. It holds the chain, the waiting transfers and, where they
    are switched on, the webhooks; it does not hold the node's keys, which are files beside them. FOLDER must not exist.
    The node makes it, with the rights of the node: a node under systemd can write below its own data directory only.
    A node started with --data-dir FOLDER runs on the copy, with new keys.

    \b
    Example:
      svc node backup /var/backups/svcd-2026-11-20
      svc node backup data/backup --data-dir data
    """
    # The node has another working directory.
    path = folder.absolute()

    async def order(operator: Node) -> Answer:
        try:
            return await operator.post("/operator/backup", {"path": str(path)})
        except Unanswered as failed:
            raise Failed(f"{failed}. The node may be copying all the same: look at {path}") from None

    answer = _watched(session, order, path)
    files = answer.object("files")
    sizes = [(name, files.number(name)) for name in files.members]
    rows = [("folder", answer.text("path")), ("tip", f"{answer.number('height')}, {answer.text('hash')}")]
    rows += [(name, f"{size / _MIB:,.1f} MiB") for name, size in sizes]
    record = {name: answer.value(name) for name in ("path", "height", "hash", "files")}
    session.show(record, f"{show.table(rows)}\n\n{_KEYS}")


def _watched(session: Session, order: Callable[[Node], Coroutine[Any, Any, Answer]], folder: Path) -> Answer:
    """The node's answer, with a line that shows how far the copy to ``folder`` is to whoever is at a terminal."""
    if session.as_json or not session.outside.watched():
        return session.with_operator(order, seconds=SECONDS)
    with watched_copy(Path(session.data_dir), folder) as look:
        return session.with_operator(order, seconds=SECONDS, meanwhile=look)


_KEYS: Final = "The keys (operator.key, node.key) are not in it: keep copies of them in a safe place."
