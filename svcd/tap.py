"""The composition root: what twistd runs, and the one file that imports the reactor."""

import os
from typing import Final

from twisted.internet import reactor as global_reactor

from svcd.chain.errors import Corrupt
from svcd.commerce.desk import Files, open_files
from svcd.composition.descriptors import fitted
from svcd.composition.merchants import desk_of
from svcd.composition.node import Foundation, Pools, pool_limits
from svcd.composition.rooms import Rooms
from svcd.config.schema import OPERATOR_SOCKET
from svcd.net.trust import TrustError
from svcd.node.guard import Guard
from svcd.node.living import Threads, open_chain
from svcd.node.seedfile import SeedFileError
from svcd.node.threads import ThreadsService, ThreadsWatch, share_the_interpreter
from svcd.process.datadir import DataDirectory
from svcd.process.descriptors import open_many
from svcd.process.leaving import end_at_once, leaving_with
from svcd.process.logs import Observer, make_observer
from svcd.process.opened import Opened
from svcd.process.options import Options
from svcd.process.root import Root, log_writer
from svcd.process.sequential import Sequential
from svcd.process.signals import FirstSignal
from svcd.process.steady import run_steadily
from svcd.process.timers import Periodic
from svcd.store.database import DatabaseError

__all__ = ["Options", "makeService"]

SENTENCES: Final = (DatabaseError, Corrupt, SeedFileError, TrustError)
"""Errors whose text is for the operator: no traceback is needed."""
STOP_PATIENCE: Final = 2.0
"""How many seconds a stop waits for names that are being looked up, or a backup that is being given up."""


def makeService(options: Options) -> Root:
    """The service that twistd runs, from the options of its command line."""
    config, reactor = fitted(options.config, open_many()), global_reactor
    run_steadily(reactor)
    observer = _observer(options)
    FirstSignal(reactor).install()
    leave = leaving_with(reactor)
    root = Root(leave, observer=observer, sentences=SENTENCES)
    pools = Pools(
        writer=ThreadsService(reactor, size=1, name="writer"),
        verifier=ThreadsService(reactor, size=os.cpu_count() or 1, name="verifier"),
        producer=ThreadsService(reactor, size=config.participation.workers, name="producer"),
        reader=ThreadsService(reactor, size=1, name="reader"),
        resolver=ThreadsService(reactor, size=16, name="resolver", patience=STOP_PATIENCE),
        webhooks=ThreadsService(reactor, size=1, name="webhooks"),
        callbacks=ThreadsService(reactor, size=16, name="callbacks", patience=STOP_PATIENCE),
        files=ThreadsService(reactor, size=2, name="files", patience=STOP_PATIENCE),
    )
    root.addService(DataDirectory(config.data_dir, sockets=(OPERATOR_SOCKET,)))
    for pool in pools.all():
        root.addService(pool)
    ground = ThreadsWatch(pools.all(), lambda: end_at_once(1))
    root.addService(Periodic(reactor, 1.0, ground.look, what="looking at the threads"))
    threads = Threads(
        pools.writer.worker,
        pools.verifier.worker,
        pools.verifier.size,
        reader=pools.reader.worker,
        guard=Guard(lambda: leave(1)),
    )

    async def opening() -> Files:
        limits = pool_limits(config)
        chain = open_chain(config.params, config.chain_file, threads=threads, pool=limits, clock=reactor)
        return await open_files(chain, desk_of(config, pools.webhooks.worker, threads, reactor))

    node = Opened(
        Sequential(leave, sentences=SENTENCES),
        opening=opening,
        services=lambda files: Rooms(Foundation(config, files, pools, reactor, threads.guard)).services(),
        closing=Files.close,
    )
    root.addService(node)
    share_the_interpreter()
    return root


def _observer(options: Options) -> Observer | None:
    """The form of the log that is configured; None where twistd must decide for itself."""
    write, log = log_writer(options.parent or {}), options.config.log
    return None if write is None else make_observer(log.format, log.level, write)
