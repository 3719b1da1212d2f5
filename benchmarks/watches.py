"""What watches cost the chain: blocks that pay 2,000 of 10,000 watches, on a node with webhooks and on one without."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from attrs import define, frozen
from twisted.internet.defer import Deferred, succeed

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.merchants import Timed, lay_watches, order, payment, until, webhooks_of
from benchmarks.prepared_chain import Signer, build_blocks, create_chain
from benchmarks.processes import DATABASE
from benchmarks.program import main, on_reactor
from svcd.commerce.dispatcher import DeliveryCounts
from svcd.commerce.webhook_database import FILE
from svcd.commerce.webhook_service import WebhookContext, WebhookService
from svcd.node.node_context import NodeContext
from svcd.store.webhook_events import BreakerRow, WatchQueue

_WANTED: Final = Goal("ratio", "<=", 1.1)
_DEEPER: Final = 3
"""How deep a payment must lie to be confirmed where depth is measured: its second block only shows the depth."""


@frozen
class Sizes:
    """How much is measured."""

    matches: int
    """Watches that one block pays."""
    blocks: int
    """In each round; together they pay every watch."""
    rounds: int


FULL: Final = Sizes(matches=2_000, blocks=5, rounds=6)
QUICK: Final = Sizes(matches=100, blocks=4, rounds=2)


@define
class Post:
    """A dispatcher that counts the queues with new events, and sends nothing."""

    told: int = 0

    def enqueue(self, queues: Iterable[WatchQueue]) -> None:
        """Count."""
        self.told += len(list(queues))

    def cancel(self, watch: str) -> None:
        """Nothing is sent."""

    def hurry(self, merchant: str, host: str) -> None:
        """Nothing is probed here."""

    def restore(self, _breakers: Iterable[BreakerRow]) -> None:
        """Nothing is sent."""

    def merchants_changed(self) -> None:
        """Nothing is sent."""

    def resume(self, _queues: Iterable[WatchQueue], _breakers: Iterable[BreakerRow]) -> None:
        """Nothing is sent."""

    def forget(self) -> None:
        """Nothing is sent."""

    def stop(self) -> Deferred[None]:
        """Nothing is being sent."""
        return succeed(None)

    def counts(self) -> DeliveryCounts:
        """Nothing has been sent."""
        return DeliveryCounts(in_flight=0, waiting=0, broken_hosts=0, delivered=0, failed=0, abandoned=0, refused=0)


@frozen
class Watched:
    """An open node that is watched."""

    node_context: NodeContext
    post: Post
    steps: Timed
    reactor: Any

    async def told(self, count: int) -> None:
        """Return when so many watches have had something to say since the last time, and the webhooks rest."""
        await until(self.reactor, lambda: self.post.told >= count)
        self.post.told -= count


@frozen
class Fixture:
    """What every round begins with: a chain without blocks, and the blocks to come."""

    folder: Path
    sizes: Sizes
    blocks: Sequence[bytes]
    and_empty: Sequence[bytes]
    """The first of the blocks, and one without payments."""

    @asynccontextmanager
    async def alone(self, reactor: Any) -> AsyncIterator[NodeContext]:
        """A fresh chain that nobody watches."""
        path = self.folder / "alone.sqlite"
        shutil.copy(self.folder / "initial.sqlite", path)
        async with opened(path, reactor) as node_context:
            yield node_context
        path.unlink()

    @asynccontextmanager
    async def watched(self, reactor: Any, required: int = 1) -> AsyncIterator[Watched]:
        """A fresh chain with a watch over each payment, which is confirmed after ``required`` blocks."""
        folder = self.folder / "watched"
        folder.mkdir()
        shutil.copy(self.folder / "initial.sqlite", folder / DATABASE)
        shutil.copy(self.folder / f"watches-{required}" / FILE, folder / FILE)
        async with (
            opened(folder / DATABASE, reactor) as node_context,
            webhooks_of(folder, folder / DATABASE, reactor) as (database, steps),
        ):
            post = Post()
            context = WebhookContext(
                unit=node_context.chain_manager.params.unit,
                clock=reactor,
                guard=node_context.guard,
                synced=lambda: True,
                busy=lambda: node_context.chain_manager.busy,
                readmission_done=node_context.transaction_pool.readmission_done,
                deletions_done=node_context.deletions_done,
            )
            webhooks = WebhookService(database.operations, database.worker, dispatcher=post, context=context)
            node_context.chain_manager.subscribe(webhooks)
            webhooks.startService()
            await until(reactor, lambda: bool(steps.begun))
            yield Watched(node_context, post, steps, reactor)
            await webhooks.stopService()
        shutil.rmtree(folder)


def prepare(folder: Path, sizes: Sizes) -> Fixture:
    """The chain, the blocks, and the watches as they are before the first of them."""
    count = sizes.matches * sizes.blocks
    initial = folder / "initial.sqlite"
    create_chain(initial, [Signer(number).key for number in range(count)])
    made = [payment(number) for number in range(count)]
    bodies = [made[start : start + sizes.matches] for start in range(0, count, sizes.matches)]
    blocks, and_empty = (
        build_blocks(Path(shutil.copy(initial, folder / "draft.sqlite")), each) for each in (bodies, [bodies[0], []])
    )

    def callback(number: int) -> tuple[str, str]:
        host = f"shop-{number % 10}.example"
        return host, f"https://{host}/paid"

    for required in (1, _DEEPER):
        place = folder / f"watches-{required}"
        place.mkdir()
        orders = [order(number, required=required) for number in range(count)]
        lay_watches(
            place, orders, lambda number: (f"shop-{number % 10}.example", f"https://shop-{number % 10}.example/")
        )
    return Fixture(folder, sizes, blocks, and_empty)


async def seconds_of(work: Awaitable[object]) -> float:
    """How long it takes."""
    began = perf_counter()
    await work
    return perf_counter() - began


Measured = Callable[[Fixture, Watched, NodeContext, Rounds], Awaitable[None]]
"""Hands the same blocks to a chain that is watched and to one that is not."""


async def run_of_blocks(fixture: Fixture, watched: Watched, alone: NodeContext, rounds: Rounds) -> None:
    """All blocks as a synchronisation hands them in, the next while the last is being connected."""
    batches = [[block] for block in fixture.blocks]
    figure = await seconds_of(feed(watched.node_context.chain_manager, batches))
    await watched.told(fixture.sizes.matches * len(batches))
    rounds.add(figure * 1000 / len(batches), await seconds_of(feed(alone.chain_manager, batches)) * 1000 / len(batches))


async def block_by_block(fixture: Fixture, watched: Watched, alone: NodeContext, rounds: Rounds) -> None:
    """Each block after all events of the one before."""
    for block in fixture.blocks:
        figure = await seconds_of(feed(watched.node_context.chain_manager, [[block]]))
        await watched.told(fixture.sizes.matches)
        rounds.add(figure * 1000, await seconds_of(feed(alone.chain_manager, [[block]])) * 1000)


async def in_between(fixture: Fixture, watched: Watched, alone: NodeContext, rounds: Rounds) -> None:
    """Every second block in the moment in which the webhooks begin with the one before."""
    for first, second in zip(fixture.blocks[::2], fixture.blocks[1::2], strict=False):
        begun = len(watched.steps.begun)
        await feed(watched.node_context.chain_manager, [[first]])
        await until(watched.reactor, lambda begun=begun: len(watched.steps.begun) > begun)  # type: ignore[misc]
        figure = await seconds_of(feed(watched.node_context.chain_manager, [[second]]))
        await watched.told(2 * fixture.sizes.matches)
        await feed(alone.chain_manager, [[first]])
        rounds.add(figure * 1000, await seconds_of(feed(alone.chain_manager, [[second]])) * 1000)


async def compare(fixture: Fixture, reactor: Any, measured: Measured, seconds: list[float]) -> Rounds:
    """Rounds of one way of handing in; the seconds that the follower took for each block are added to ``seconds``."""
    rounds = Rounds()
    for _ in range(fixture.sizes.rounds):
        async with AsyncExitStack() as stack:
            watched = await stack.enter_async_context(fixture.watched(reactor))
            alone = await stack.enter_async_context(fixture.alone(reactor))
            await measured(fixture, watched, alone, rounds)
            seconds += watched.steps.took
    return rounds


async def deeper(fixture: Fixture, reactor: Any) -> tuple[float, float]:
    """Milliseconds to create the events of one more confirmation, and of the first one, for the payments of a block."""
    async with fixture.watched(reactor, _DEEPER) as watched:
        for block in fixture.and_empty:
            await feed(watched.node_context.chain_manager, [[block]])
            await watched.told(fixture.sizes.matches)
        first, second = watched.steps.took
    return second * 1000, first * 1000


def measure(folder: Path, quick: bool) -> list[Row]:
    """What watches cost the chain: blocks that pay 2,000 of 10,000 watches, with webhooks and without."""
    sizes = QUICK if quick else FULL
    fixture = prepare(folder, sizes)

    async def run(reactor: Any) -> list[Row]:
        what, rows = f"{sizes.matches:,} of {sizes.matches * sizes.blocks:,} watches paid", []
        took: list[float] = []
        for name, measured in (
            ("one block after the other", run_of_blocks),
            ("each block after the events of the previous one", block_by_block),
            ("during the events of the previous one", in_between),
        ):
            took.clear()
            rounds = await compare(fixture, reactor, measured, took)
            rows.append(rounds.row(f"{what}, {name}", unit="ms", baseline_is="ms, no webhooks", goal=_WANTED))
            if measured is block_by_block:
                totals = Rounds([seconds * 1000 for seconds in took], rounds.baselines)
                events = totals.row(
                    f"creating the events of {sizes.matches:,} payments", unit="ms", baseline_is="ms, their block"
                )
        depths = Rounds()
        for _ in range(sizes.rounds):
            depths.add(*await deeper(fixture, reactor))
        name = f"creating the events of one more confirmation for {sizes.matches:,} payments"
        return [*rows, events, depths.row(name, unit="ms", baseline_is="ms, for the first one")]

    return on_reactor(run)


if __name__ == "__main__":
    main(measure)
