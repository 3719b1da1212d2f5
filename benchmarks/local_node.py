"""An open node in this process, on real threads and a real file, and blocks handed in as a synchronisation does."""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from svcd.chain.params import DEVNET
from svcd.interfaces import Worker
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import BlockOutcome, BlockStatus
from svcd.node.mempool import Mempool
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.threads import ThreadPoolService, tune_interpreter

_IN_FLIGHT = 2


@asynccontextmanager
async def opened(
    path: Path, reactor: Any, *, keep_blocks: int = 0, writer: Callable[[Worker], Worker] = lambda worker: worker
) -> AsyncIterator[NodeContext]:
    """The chain in the database at ``path``, on as many threads as the node would have; closed in the end.

    ``keep_blocks`` are kept whole, or all if it is 0; ``writer`` may wrap the thread that writes.
    """
    tune_interpreter()
    writing = ThreadPoolService(reactor, size=1, name="writer")
    verifier = ThreadPoolService(reactor, size=os.cpu_count() or 1, name="verifier")
    pools = (writing, verifier)
    for pool in pools:
        pool.startService()
    try:
        threads = NodeThreads(writer(writing), verifier, verifier.size, verifier, verifier)
        mempool = Mempool(DEVNET, max_transactions=50_000, max_bytes=64 << 20)
        node_context = await open_node(
            DEVNET, path, threads=threads, mempool=mempool, clock=reactor, keep_blocks=keep_blocks
        )
        try:
            yield node_context
        finally:
            await node_context.close()
    finally:
        for pool in pools:
            await pool.stopService()


async def feed(chain_manager: ChainManager, batches: Iterable[Sequence[bytes]]) -> None:
    """Submit batches of blocks in order, the next while the one before is being connected.

    Raises RuntimeError unless every block becomes part of the canonical chain.
    """
    flying: deque[Deferred[list[BlockOutcome]]] = deque()
    for batch in batches:
        flying.append(chain_manager.submit_blocks(batch))
        if len(flying) == _IN_FLIGHT:
            _check(await flying.popleft())
    while flying:
        _check(await flying.popleft())


def _check(outcomes: list[BlockOutcome]) -> None:
    odd = next((outcome for outcome in outcomes if outcome is not BlockStatus.CONNECTED), None)
    if odd is not None:
        raise RuntimeError(f"a block was not connected: {odd}")
