"""The resources that the services of a node are built from: configuration, databases, thread pools, reactor."""

from typing import Any

from attrs import asdict, frozen

from svcd.commerce.webhook_database import OpenDatabases
from svcd.config.schema import Config
from svcd.node.database_health import DatabaseHealth
from svcd.node.node_context import MempoolLimits, NodeContext
from svcd.node.threads import PoolLoad, ThreadPoolService


@frozen
class ThreadPools:
    """The threads of the process."""

    writer: ThreadPoolService
    verifier: ThreadPoolService
    producer: ThreadPoolService
    reader: ThreadPoolService
    """Reads whole blocks, which would hold up the reactor."""
    resolver: ThreadPoolService
    """Looks up the names of peers."""
    webhooks: ThreadPoolService
    callbacks: ThreadPoolService
    """Looks up the names of callbacks, apart from those of peers, so that no peer can delay a callback."""
    files: ThreadPoolService
    """Writes files that only the operator waits for: one thread for the known peers, one for a backup."""

    def all(self) -> list[ThreadPoolService]:
        """Every pool."""
        return list(asdict(self, recurse=False).values())

    def loads(self) -> dict[str, PoolLoad]:
        """The load of each pool, by name."""
        return {name: pool.worker.load for name, pool in asdict(self, recurse=False).items()}


@frozen
class NodeResources:
    """Configuration, databases, thread pools and reactor of a node."""

    config: Config
    files: OpenDatabases
    pools: ThreadPools
    reactor: Any
    health: DatabaseHealth

    @property
    def node_context(self) -> NodeContext:
        """The open chain."""
        return self.files.node


def mempool_limits(config: Config) -> MempoolLimits:
    """The capacity of the mempool."""
    return MempoolLimits(config.mempool.max_transactions, config.mempool.max_bytes)
