"""The resources that the services of a node are built from: configuration, databases, thread pools, reactor."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from attrs import Factory, asdict, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.commerce.webhook_database import WebhookDatabase
from svcd.config.schema import Config
from svcd.node.database_health import DatabaseHealth
from svcd.node.news import News
from svcd.node.node_context import NodeContext
from svcd.node.threads import PoolLoad, ThreadPoolService
from svcd.process.hangup import HangUp
from svcd.process.logs import NodeLog
from svcd.process.shutdown import CLOSE_SECONDS, CutOff, StopDeadline
from svcd.process.systemd import StartTimeout

ABORT_SECONDS: Final = 1.0
"""How much longer than `drainSeconds` a service may take to stop: the connections are aborted meanwhile."""


def stop_seconds(config: Config) -> float:
    """The seconds from the beginning of a stop to its deadline (`svcd.process.shutdown.StopDeadline`)."""
    return config.limits.drain_seconds + ABORT_SECONDS


@frozen
class ThreadPools:
    """The threads of the process."""

    writer: ThreadPoolService
    verifier: ThreadPoolService
    producer: ThreadPoolService
    reader: ThreadPoolService
    """Reads whole blocks, which would hold up the reactor."""
    disk: ThreadPoolService
    """Waits for the disk: see svcd.node.node_context.NodeThreads."""
    resolver: ThreadPoolService
    """Looks up the names of peers."""
    webhooks: ThreadPoolService
    lease: ThreadPoolService
    """Looks at the lease of nodes that share a database, however long a step of the webhooks takes."""
    callbacks: ThreadPoolService
    """Looks up the names of callbacks, apart from those of peers, so that no peer can delay a callback."""
    files: ThreadPoolService
    """Four threads for files: one each for the known peers, a backup, a snapshot, and the metrics of the process."""

    def all(self) -> list[ThreadPoolService]:
        """Every pool."""
        return list(asdict(self, recurse=False).values())

    def loads(self) -> dict[str, PoolLoad]:
        """The load of each pool, by name."""
        return {name: pool.load for name, pool in asdict(self, recurse=False).items()}


@frozen
class OpenDatabases:
    """The open chain and, if webhooks are on, their open database."""

    node: NodeContext
    webhooks: WebhookDatabase | None

    _log: ClassVar[Logger] = Logger()

    @property
    def trouble(self) -> str:
        """Why a database cannot be written, as of the last attempt; "" if all can."""
        # Usually all are on one disk, and the chain's sentence covers them.
        webhooks = self.webhooks.disk.trouble if self.webhooks is not None and self.webhooks.is_file else ""
        return self.node.trouble or webhooks

    @property
    def unavailable(self) -> str:
        """Why the webhooks' database on PostgreSQL does not answer; "" if it does, or there is none."""
        return self.webhooks.disk.trouble if self.webhooks is not None and not self.webhooks.is_file else ""

    async def try_disks(self) -> None:
        """Retry disks that have failed; to be called periodically."""
        for disk in (*self.node.disks, *([] if self.webhooks is None else [self.webhooks.disk])):
            await disk.try_again()

    async def close(self, deadline: StopDeadline) -> None:
        """Close all, the last opened first; one on PostgreSQL that does not answer must not keep the chain's open."""
        try:
            if self.webhooks is not None:
                await deadline.bound(Deferred.fromCoroutine(self.webhooks.close()), more=CLOSE_SECONDS / 2)
        except CutOff:
            self._log.warn("the webhooks' database does not answer and is cut off; its transactions are rolled back")
        finally:
            await self.node.close()


async def open_databases(
    chain: Awaitable[NodeContext], webhooks: Callable[[], Awaitable[WebhookDatabase]] | None
) -> OpenDatabases:
    """Open the chain and then, if given, the webhooks; if that fails, nothing stays open."""
    node = await chain
    try:
        return OpenDatabases(node, None if webhooks is None else await webhooks())
    except BaseException:
        await node.close()
        raise


@frozen
class NodeResources:
    """Configuration, databases, thread pools and reactor of a node."""

    config: Config
    databases: OpenDatabases
    pools: ThreadPools
    reactor: Any
    health: DatabaseHealth
    read_config: Callable[[], Config]
    """Loads the configuration again, as at the start; blocks, and raises ConfigError."""
    hang_up: HangUp
    deadline: StopDeadline
    log: NodeLog | None
    """None where twistd itself writes the log."""
    start_timeout: StartTimeout
    block_key: bytes | None = field(default=None, repr=False)
    """The seed of an encrypted key file; None for a key file that is not encrypted."""
    greeting: str = ""
    """A text to print once the node answers."""
    news: News = field(default=Factory(lambda self: News(self.reactor), takes_self=True))

    @property
    def node_context(self) -> NodeContext:
        """The open chain."""
        return self.databases.node
