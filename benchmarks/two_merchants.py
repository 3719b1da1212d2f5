"""How long a merchant waits for a confirmation in a block that thousands of watches of another merchant follow."""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from benchmarks.callbacks import service_of
from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.merchants import lay_watches, order, payment, until, webhooks_of
from benchmarks.prepared_chain import Signer, build_blocks, create_chain
from benchmarks.processes import DATABASE, receiver
from benchmarks.program import main, on_reactor
from svcd.chain.transaction import Transfer
from svcd.commerce.watch_operations import MAX_WATCHES_OF_PAYMENT
from svcd.commerce.webhook_database import FILE
from svcd.commerce.webhook_service import WebhookService
from svcd.interfaces import milliseconds
from svcd.node.node_context import NodeContext
from svcd.store.database import connect

_FULL: Final = (157, 5)
_QUICK: Final = (4, 1)
"""Payments of the large merchant, each with as many watches as one payment may have, and rounds."""
_WANTED: Final = Goal("ratio", "<=", 3)
_SMALL, _LARGE = "small", "large"
_DEEP: Final = 30
"""Confirmations that the large merchant requires: each block is an event of each of its watches."""
_CONFIRMED: Final = """
SELECT e.delivered_at FROM event e JOIN watch w ON w.number = e.watch
WHERE w.merchant = 'small' AND e.name = 'payment.confirmed' AND e.delivered_at IS NOT NULL
"""


@frozen
class Found:
    """One block that confirms the small merchant's payment."""

    delay: float
    """Milliseconds from the connected block to the small merchant's answer."""
    processor: float
    """Milliseconds of processor time from the block to the last event's delivery."""


@frozen
class Scene:
    """A node with one watch of a small merchant, and with those of a large one over ``large`` payments."""

    folder: Path
    blocks: list[bytes]
    """The first has all payments; the second confirms the small merchant's."""
    port: int
    large: int

    async def confirm(self, reactor: Any) -> Found:
        """Connect the second block after all events of the first are delivered."""
        watches = 1 + self.large * MAX_WATCHES_OF_PAYMENT
        async with self._paid(reactor) as (node_context, webhooks):
            await until(reactor, lambda: webhooks.counts().delivered == watches)
            with closing(connect(self._place / FILE)) as reading:
                used = time.process_time()
                await feed(node_context.chain_manager, [self.blocks[1:]])
                connected_at = milliseconds(reactor)
                await until(reactor, lambda: webhooks.counts().delivered == 2 * watches)
                used = time.process_time() - used
                (delivered_at,) = reading.execute(_CONFIRMED).fetchone()
        return Found(max(delivered_at - connected_at, 1), used * 1000)

    @property
    def _place(self) -> Path:
        return self.folder / "round"

    @asynccontextmanager
    async def _paid(self, reactor: Any) -> AsyncIterator[tuple[NodeContext, WebhookService]]:
        """A fresh node that has just connected the first block."""
        path = self._place / DATABASE
        path.parent.mkdir()
        shutil.copy(self.folder / "initial.sqlite", path)
        # The large merchant's were registered first, and are read first.
        orders = [order(number, required=_DEEP) for number in range(1, self.large + 1)] * MAX_WATCHES_OF_PAYMENT
        lay_watches(
            path.parent,
            [*orders, order(0, required=2)],
            lambda number: (host := f"{_merchant(number, orders)}.localhost", f"http://{host}:{self.port}/paid"),
            lambda number: _merchant(number, orders),
        )
        async with (
            opened(path, reactor) as node_context,
            webhooks_of(path.parent, path, reactor) as (database, steps),
            service_of(database, node_context, reactor, [_SMALL, _LARGE]) as webhooks,
        ):
            await until(reactor, lambda: bool(steps.begun))
            await feed(node_context.chain_manager, [self.blocks[:1]])
            yield node_context, webhooks
        shutil.rmtree(path.parent)


def _merchant(number: int, of_large: list[Any]) -> str:
    return _LARGE if number < len(of_large) else _SMALL


def prepare(folder: Path, payments: int) -> list[bytes]:
    """A chain at ``folder``, and two blocks for it: one with ``payments`` payments and an empty one."""
    initial, draft = folder / "initial.sqlite", folder / "draft.sqlite"
    create_chain(initial, [Signer(number).key for number in range(payments)])
    shutil.copy(initial, draft)
    empty: list[Transfer] = []
    return build_blocks(draft, [[payment(number) for number in range(payments)], empty])


def measure(folder: Path, quick: bool) -> list[Row]:
    """How long a merchant waits for a confirmation beside one with 5,000 watches, and what the block costs."""
    large, wanted = _QUICK if quick else _FULL
    blocks = prepare(folder, large + 1)
    with receiver(folder) as served:
        alone, beside = (Scene(folder, blocks, served.port, count) for count in (0, large))

        async def run(reactor: Any) -> tuple[Rounds, Rounds]:
            delays, processor = Rounds(), Rounds()
            # What is only done once in a process would be counted against the first.
            await alone.confirm(reactor)
            for _ in range(wanted):
                baseline, found = await alone.confirm(reactor), await beside.confirm(reactor)
                delays.add(found.delay, baseline.delay)
                processor.add(found.processor, baseline.processor)
            return delays, processor

        delays, processor = on_reactor(run)
    watches = f"{large * MAX_WATCHES_OF_PAYMENT:,} watches of another merchant"
    baseline_is = "ms, without those"
    return [
        delays.row(f"a confirmation beside {watches}", unit="ms", baseline_is=baseline_is, goal=_WANTED),
        processor.row(f"processor time of a block that {watches} follow", unit="ms", baseline_is=baseline_is),
    ]


if __name__ == "__main__":
    main(measure)
