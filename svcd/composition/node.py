"""What everything is built from: the settings, the open files, the threads and the reactor."""

from typing import Any

from attrs import asdict, frozen

from svcd.commerce.desk import Files
from svcd.config.schema import Config
from svcd.node.guard import Guard
from svcd.node.living import LivingChain, PoolLimits
from svcd.node.threads import Load, ThreadsService


@frozen
class Pools:
    """The threads of the process."""

    writer: ThreadsService
    verifier: ThreadsService
    producer: ThreadsService
    reader: ThreadsService
    """Reads whole blocks, so that the reactor need not."""
    resolver: ThreadsService
    """Looks up the names of peers."""
    webhooks: ThreadsService
    callbacks: ThreadsService
    """Looks up the names of callbacks, which no peer can hold up."""
    files: ThreadsService
    """Writes files that nothing waits for but the operator: one thread for the notes on peers, and one for a backup."""

    def all(self) -> list[ThreadsService]:
        """Every one of them."""
        return list(asdict(self, recurse=False).values())

    def loads(self) -> dict[str, Load]:
        """What each of them has to do, by name."""
        return {name: pool.worker.load for name, pool in asdict(self, recurse=False).items()}


@frozen
class Foundation:
    """What the rooms of a node stand on."""

    config: Config
    files: Files
    pools: Pools
    reactor: Any
    guard: Guard

    @property
    def living(self) -> LivingChain:
        """The open chain."""
        return self.files.living


def pool_limits(config: Config) -> PoolLimits:
    """How much may wait."""
    return PoolLimits(config.mempool.max_transactions, config.mempool.max_bytes)
