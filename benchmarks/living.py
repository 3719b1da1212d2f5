"""A living chain in this process, on real threads and a real file, and blocks handed in as a synchronisation does."""

import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from svcd.chain.params import DEVNET
from svcd.node.changes import Outcome, Standing
from svcd.node.ledger import Ledger
from svcd.node.living import LivingChain, PoolLimits, Threads, open_chain
from svcd.node.threads import ThreadsService, share_the_interpreter

_IN_FLIGHT = 2
_POOL = PoolLimits(max_transactions=50_000, max_bytes=64 << 20)


@asynccontextmanager
async def opened(path: Path, reactor: Any) -> AsyncIterator[LivingChain]:
    """The chain in the database at ``path``, on as many threads as the node would have; closed in the end."""
    share_the_interpreter()
    writer = ThreadsService(reactor, size=1, name="writer")
    verifier = ThreadsService(reactor, size=os.cpu_count() or 1, name="verifier")
    pools = (writer, verifier)
    for pool in pools:
        pool.startService()
    try:
        threads = Threads(writer.worker, verifier.worker, verifier.size)
        living = await open_chain(DEVNET, path, threads=threads, pool=_POOL, clock=reactor)
        try:
            yield living
        finally:
            await living.close()
    finally:
        for pool in pools:
            pool.stopService()


async def feed(ledger: Ledger, batches: Iterable[Sequence[bytes]]) -> None:
    """Submit batches of blocks in order, the next while the one before is being connected.

    Raises RuntimeError unless every block becomes part of the canonical chain.
    """
    flying: deque[Deferred[list[Outcome]]] = deque()
    for batch in batches:
        flying.append(ledger.submit_blocks(batch))
        if len(flying) == _IN_FLIGHT:
            _check(await flying.popleft())
    while flying:
        _check(await flying.popleft())


def _check(outcomes: list[Outcome]) -> None:
    odd = next((outcome for outcome in outcomes if outcome is not Standing.CONNECTED), None)
    if odd is not None:
        raise RuntimeError(f"a block was not connected: {odd}")
