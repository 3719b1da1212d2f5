"""A busy shop: 10^6 watches in the file, 10^5 of them active, and a block that pays 2,000 of these."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from shutil import copy, copytree, rmtree
from time import perf_counter
from typing import Any, Final

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.merchants import until, webhooks_of
from benchmarks.processes import DATABASE
from benchmarks.program import main, on_reactor
from benchmarks.watches import Fixture, Post, Watched, prepare
from benchmarks.watches import Sizes as BlockSizes
from svcd.commerce.webhook_database import FILE
from svcd.commerce.webhook_service import WebhookContext, WebhookService
from svcd.store.database import connect

_AT_MOST: Final = Goal("ratio", "<=", 1.5)
_MEMORY: Final = Goal("ratio", "<=", 1.5)
_START: Final = Goal("figure", "<=", 1_000)
_DAY_MS: Final = 86_400_000
_MORE: Final = """
WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :count)
INSERT INTO watch (id, merchant, reference, recipient, amount, required, callback_url, host, created_at, expires_at,
                   events, state, epoch, sequence, ending, wake_at, ended_at)
SELECT printf('svcwh_%s%031x', :mark, n), 'default', printf('more-%s-%d', :mark, n), printf('svcd1qq%034d', n),
       5000 + n, 12, 'https://shop.example/paid', 'shop.example', :now, :now + :lasts, 'payment.confirmed', :state,
       0, 0, :ending, iif(:ending IS NULL, :now + :lasts, NULL), iif(:ending IS NULL, NULL, :now)
FROM counted
"""


@frozen
class Sizes:
    """How much is measured."""

    matches: int
    """Watches that one block pays."""
    active: int
    ended: int
    rounds: int


FULL: Final = Sizes(matches=2_000, active=100_000, ended=900_000, rounds=5)
QUICK: Final = Sizes(matches=100, active=1_000, ended=2_000, rounds=1)


def add_watches(file: Path, sizes: Sizes) -> None:
    """Add watches that no block pays: some wait for their payment, most have ended."""
    now = int(time.time() * 1000)
    with closing(connect(file)) as connection, connection:
        for mark, count, state, ending in (
            ("a", sizes.active - sizes.matches, "unpaid", None),
            ("b", sizes.ended, "confirmed", "closed"),
        ):
            values = {"mark": mark, "count": count, "state": state, "ending": ending, "now": now, "lasts": _DAY_MS}
            connection.execute(_MORE, values)


def memory_megabytes() -> float:
    """The memory of this process, without the files that it maps."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text("ascii").splitlines())
    return int(fields["RssAnon"].split()[0]) / 1000


@frozen
class Started:
    """Webhooks that have taken their first step."""

    watched: Watched
    start_ms: float
    """From the closed file to the end of the first step."""


@asynccontextmanager
async def started(fixture: Fixture, watches: Path | str, reactor: Any) -> AsyncIterator[Started]:
    """A fresh chain with the watches in the folder ``watches``, or in the PostgreSQL of that connection URI."""
    folder, database = fixture.folder / "started", watches if isinstance(watches, str) else ""
    if isinstance(watches, str):
        folder.mkdir()
    else:
        copytree(watches, folder)
    copy(fixture.folder / "initial.sqlite", folder / DATABASE)
    async with opened(folder / DATABASE, reactor) as node_context:
        began = perf_counter()
        async with webhooks_of(folder, folder / DATABASE, reactor, database) as (webhook_database, steps):
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
            webhooks = WebhookService(
                webhook_database.operations, webhook_database.worker, dispatcher=post, context=context
            )
            node_context.chain_manager.subscribe(webhooks)
            webhooks.startService()
            await until(reactor, lambda: bool(steps.begun))
            await webhook_database.worker.run(lambda: None)
            yield Started(Watched(node_context, post, steps, reactor), (perf_counter() - began) * 1000)
            await webhooks.stopService()
    rmtree(folder)


async def create_events(fixture: Fixture, watches: Path | str, reactor: Any) -> tuple[float, float, float]:
    """Milliseconds to create the events of a block, megabytes of this process, and milliseconds of the start."""
    async with started(fixture, watches, reactor) as running:
        await feed(running.watched.node_context.chain_manager, [[fixture.blocks[0]]])
        await running.watched.told(fixture.sizes.matches)
        (took,) = running.watched.steps.took
        return took * 1000, memory_megabytes(), running.start_ms


def measure(folder: Path, quick: bool) -> list[Row]:
    """Creating the events of a block, memory and start with many watches, and with those of the block alone."""
    sizes = QUICK if quick else FULL
    fixture = prepare(folder, BlockSizes(matches=sizes.matches, blocks=1, rounds=sizes.rounds))
    few, many = folder / "watches-1", folder / "many"
    copytree(few, many)
    add_watches(many / FILE, sizes)

    async def run(reactor: Any) -> list[Row]:
        events, memory, start = Rounds(), Rounds(), Rounds()
        for _ in range(sizes.rounds):
            # The few first: what Python has once taken from the system it keeps.
            alone, all_ = await create_events(fixture, few, reactor), await create_events(fixture, many, reactor)
            for rounds, figure, baseline in zip((events, memory, start), all_, alone, strict=True):
                rounds.add(figure, baseline)
        of = f"{sizes.active + sizes.ended:,} watches, {sizes.active:,} active"
        with_few = f"{sizes.matches:,} watches"
        return [
            events.row(
                f"creating the events of {sizes.matches:,} payments, {of}",
                unit="ms",
                baseline_is=f"ms, {with_few}",
                goal=_AT_MOST,
            ),
            memory.row(f"memory of the process, {of}", unit="MB", baseline_is=f"MB, {with_few}", goal=_MEMORY),
            start.row(f"start of the webhooks, {of}", unit="ms", baseline_is=f"ms, {with_few}", goal=_START),
        ]

    return on_reactor(run)


if __name__ == "__main__":
    main(measure)
