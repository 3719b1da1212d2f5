"""What looks now and then whether the node still stands on firm ground (docs/operations.md "Faults")."""

from twisted.application.service import Service

from svcd.commerce.desk import FILE
from svcd.composition.node import Foundation
from svcd.process import presence, steady
from svcd.process.presence import FilesWatch
from svcd.process.steady import ClockWatch
from svcd.process.timers import Periodic
from svcd.store.mempool_store import FILE as MEMPOOL_FILE


def watches_of(base: Foundation) -> list[Service]:
    """The watches over the clock and the open databases."""
    databases = [base.config.chain_file, base.config.data_dir / MEMPOOL_FILE]
    if base.files.desk is not None:
        databases.append(base.config.data_dir / FILE)
    paths = [file for path in databases for file in (path, path.with_name(f"{path.name}-wal"))]
    files, clock = FilesWatch(paths, base.guard.stop), ClockWatch(base.reactor)
    return [
        Periodic(base.reactor, presence.LOOK_SECONDS, files.look, what="looking at the databases", at_once=True),
        Periodic(base.reactor, steady.LOOK_SECONDS, clock.look, what="looking at the clock"),
    ]
