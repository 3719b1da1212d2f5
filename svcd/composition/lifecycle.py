"""What happens, in order, from the start to ready, and from SIGTERM to the end.

Start. twistd parses the command line and the configuration with `Options` in `svcd/tap.py`, calls `makeService` there,
which unlocks an encrypted block key (`svcd/composition/block_key.py`) and calls :func:`root_service`, and starts the
reactor. The services below start one at a time, each after the one before it has started
(`svcd/process/sequential.py`):

1. the log gets a thread of its own (`svcd/process/logs.py`), and the data directory is created and locked
   (`svcd/process/datadir.py`);
2. the thread pools start (`svcd/node/threads.py`), and a check that no thread has died;
3. the databases are opened (:func:`open_chain_and_webhooks`): those of the chain, the mempool and the webhooks, each of
   which recovers from an unclean shutdown;
4. the services on the open chain start in the order of :func:`node_services`: checks, production of blocks and sweeps
   of its rewards, webhooks,
   reloading on SIGHUP, the operator's listeners, the public listeners, the port for health checks, peers, backups, and
   the lines that say where the node is (`svcd/composition/status_lines.py`);
5. the last one (`svcd/process/systemd.py`) tells systemd READY=1; until then the first one asks it for more time.

A service that cannot start stops those that have started; one line in the log says why, and the exit status is 1.

Stop. The first SIGTERM or SIGINT stops the reactor (`svcd/process/shutdown.py`), which stops the services in the
reverse order, each after the one behind it has stopped:

1. at once, all ports close, verifications that wait are answered, and no delivery of a webhook begins; connections get
   `[limits] drainSeconds` to finish their requests, while the next steps go on;
2. systemd is told STOPPING=1;
3. a backup is given up, and the known peers are saved;
4. the listeners stop when their connections have been drained;
5. webhooks and the production of blocks stop, then the checks;
6. the databases are closed, which marks the shutdown as clean;
7. the thread pools finish their work and end; those that only wait for others are abandoned after STOP_PATIENCE;
8. the lock on the data directory is released.

All of this has one deadline (`svcd/process/shutdown.py:StopDeadline`): a part that has not stopped ABORT_SECONDS after
`drainSeconds` is cut off and named in the log; CLOSE_SECONDS later, that holds for the databases and the threads, too.
Committed data is safe on disk, as after a crash.

Then the reactor stops, twistd removes its pid file, and the process ends: with status 0, or with 1 if the node stopped
itself (`svcd/node/database_health.py`, `svcd/process/datadir.py`).
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.application.service import Service

from svcd.chain.errors import Corrupt
from svcd.composition.merchants import look_ups, webhooks_opener
from svcd.composition.resources import NodeResources, OpenDatabases, ThreadPools, open_databases, stop_seconds
from svcd.composition.services import NodeServices
from svcd.config.schema import OPERATOR_SOCKET, Config
from svcd.net.trust import TrustError
from svcd.node.database_health import DatabaseHealth
from svcd.node.mempool import Mempool
from svcd.node.node_context import NodeThreads, open_node
from svcd.node.pinned_block import PinnedBlock
from svcd.node.threads import ThreadPoolService, check_threads, tune_interpreter
from svcd.p2p.transport import LOOK_UPS
from svcd.process.certificates import CertificateError
from svcd.process.datadir import DataDirectory
from svcd.process.hangup import HangUp, rotate_on_signal
from svcd.process.logs import LogService, NodeLog
from svcd.process.sequential import RootService, ScopedServices, Sequential
from svcd.process.shutdown import StopDeadline, StopSignals, exit_now, graceful_exit
from svcd.process.systemd import Notifier, StartTimeout
from svcd.process.timers import Periodic
from svcd.seed_file import SeedFileError
from svcd.store.database import DatabaseError

OPERATOR_ERRORS: Final = (DatabaseError, Corrupt, SeedFileError, TrustError, CertificateError)
"""Errors whose text is for the operator: no traceback is needed."""
STOP_PATIENCE: Final = 2.0
"""How many seconds a stop waits for DNS look-ups, or a backup that is being given up."""


def root_service(
    config: Config,
    reactor: Any,
    log: NodeLog | None,
    read_config: Callable[[], Config],
    *,
    block_key: bytes | None = None,
    greeting: str = "",
) -> RootService:
    """The service that twistd runs: everything from the lock on the data directory to the notification of systemd.

    ``log`` is None where twistd itself writes it; ``read_config`` loads the configuration again, for a reload.
    ``block_key`` is the seed of an encrypted key file, if there is one; ``greeting`` is printed once the node answers.
    """
    StopSignals(reactor).install()
    hang_up = HangUp(reactor)
    hang_up.install()
    rotate_on_signal(reactor, None if log is None else log.rotate)
    flush = (lambda: None) if log is None else log.thread.flush
    exit_process = graceful_exit(reactor, flush)
    deadline = StopDeadline(reactor, stop_seconds(config))
    observer = None if log is None else log.observer
    root = RootService(exit_process, deadline, observer=observer, operator_errors=OPERATOR_ERRORS)
    pools = _thread_pools(config, reactor)
    start_timeout = StartTimeout(Notifier.from_environment(os.environ), reactor)
    if log is not None:
        root.addService(LogService(log.thread))
    root.addService(start_timeout)
    root.addService(DataDirectory(config.data_dir, sockets=(OPERATOR_SOCKET,)))
    for pool in pools.all():
        root.addService(pool)
    watch = partial(check_threads, pools.all(), lambda: exit_now(1, flush))
    root.addService(Periodic(reactor, 1.0, watch, what="checking the threads"))
    health = DatabaseHealth(lambda: exit_process(1))
    if log is not None:
        log.leave_out(health.has_told)
    on_chain = ScopedServices(
        Sequential(exit_process, deadline, operator_errors=OPERATOR_ERRORS),
        acquire=lambda: open_chain_and_webhooks(config, pools, reactor, health),
        services=lambda databases: node_services(
            NodeResources(
                config=config,
                databases=databases,
                pools=pools,
                reactor=reactor,
                health=health,
                read_config=read_config,
                hang_up=hang_up,
                deadline=deadline,
                log=log,
                start_timeout=start_timeout,
                block_key=block_key,
                greeting=greeting,
            )
        ),
        release=lambda databases: databases.close(deadline),
    )
    root.addService(on_chain)
    tune_interpreter()
    return root


async def open_chain_and_webhooks(
    config: Config, pools: ThreadPools, reactor: Any, health: DatabaseHealth
) -> OpenDatabases:
    """Open the databases of chain, mempool and webhooks.

    Raises:
        DatabaseError: a database cannot be opened.
        Corrupt: the chain's database is damaged.
    """
    threads = NodeThreads(
        pools.writer, pools.verifier, pools.verifier.size, reader=pools.reader, disk=pools.disk, health=health
    )
    limits = config.mempool
    mempool = Mempool(config.params, max_transactions=limits.max_transactions, max_bytes=limits.max_bytes)
    chain = open_node(
        config.params,
        config.chain_file,
        threads=threads,
        mempool=mempool,
        clock=reactor,
        keep_blocks=config.chain.keep_blocks,
        expect=PinnedBlock.parse(config.chain.expect) if config.chain.expect else None,
    )
    return await open_databases(chain, webhooks_opener(config, pools.webhooks, threads, reactor))


def node_services(resources: NodeResources) -> list[Service]:
    """The services on an open chain, in the order of their start: listeners open late, and systemd hears last."""
    node = NodeServices(resources)
    node.start_pruning()
    return [
        *node.checks(),
        node.reactor_lag,
        *node.production(),
        *node.webhooks(),
        node.reload,
        *node.operator_listeners(),
        *node.public_listeners(),
        *node.health_listeners(),
        *node.peer_services(),
        node.backups,
        *node.status_lines(),
        node.systemd(),
    ]


def _thread_pools(config: Config, reactor: Any) -> ThreadPools:
    return ThreadPools(
        writer=ThreadPoolService(reactor, size=1, name="writer"),
        verifier=ThreadPoolService(reactor, size=os.cpu_count() or 1, name="verifier"),
        producer=ThreadPoolService(reactor, size=config.participation.workers, name="producer"),
        reader=ThreadPoolService(reactor, size=1, name="reader"),
        disk=ThreadPoolService(reactor, size=3, name="disk"),
        resolver=ThreadPoolService(reactor, size=LOOK_UPS, name="resolver", patience=STOP_PATIENCE),
        webhooks=ThreadPoolService(reactor, size=1, name="webhooks"),
        lease=ThreadPoolService(reactor, size=1, name="lease"),
        callbacks=ThreadPoolService(
            reactor, size=look_ups(len(config.commerce.all_merchants)), name="callbacks", patience=STOP_PATIENCE
        ),
        files=ThreadPoolService(reactor, size=4, name="files", patience=STOP_PATIENCE),
    )
