"""How long events take to their receivers while the receiver of half of the watches is dead."""

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, Final

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.merchants import lay_watches, order, payment, until, webhooks_of
from benchmarks.prepared_chain import Signer, build_blocks, create_chain
from benchmarks.processes import DATABASE, closed_port, receiver
from benchmarks.program import main, on_reactor
from svcd.commerce.sender import SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.commerce.webhook_database import FILE, WebhookDatabase
from svcd.commerce.webhook_service import WebhookService, build_webhooks
from svcd.net.addresses import AddressPolicy
from svcd.net.http_client import PinnedClient
from svcd.net.resolver import SystemResolver
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.node.node_context import NodeContext
from svcd.node.threads import ThreadPoolService
from svcd.store.database import connect

_SHOPS: Final = 10
"""Hosts among which the watches of the good receiver are shared out."""
_DEAD: Final = "dead.localhost"
_FULL: Final = (1_000, 5)
_QUICK: Final = (60, 1)
"""Watches, all paid in one block, and rounds."""
_WANTED: Final = Goal("ratio", "<=", 1.2)
Callback = Callable[[int], tuple[str, str]]
"""Host and URL for the watch of each number."""


def shop(number: int, port: int) -> tuple[str, str]:
    """Host and URL of a watch whose receiver is well."""
    host = f"shop-{number % _SHOPS}.localhost"
    return host, f"http://{host}:{port}/paid"


def half_dead(good: int, dead: int) -> Callback:
    """Every other watch is told at the port of a dead receiver."""
    return lambda number: (_DEAD, f"http://{_DEAD}:{dead}/paid") if number % 2 else shop(number // 2, good)


@asynccontextmanager
async def service_of(
    database: WebhookDatabase, node_context: NodeContext, reactor: Any, merchants: Sequence[str] = ("default",)
) -> AsyncIterator[WebhookService]:
    """Webhooks of ``merchants`` that run as the node runs them, and may call this machine."""
    threads = ThreadPoolService(reactor, size=16, name="callbacks")
    threads.startService()
    caller = PinnedClient(
        reactor,
        resolver=SystemResolver(threads),
        policy=AddressPolicy(allow_private=True),
        trust=load_trust(),
    )
    rules = Rules.for_callbacks(allow_http=True, allow_private=True)
    merchant = SendingMerchant(caller, SigningKeys("a-signing-secret-of-thirty-two-characters"))
    sender = WebhookSender(rules, dict.fromkeys(merchants, merchant))
    webhooks = build_webhooks(
        database, node_context, sender=sender, synced=lambda: True, chance=Random(5).random, keep_days=7
    )
    webhooks.startService()
    yield webhooks
    await webhooks.stopService()
    await threads.stopService()


@frozen
class Scene:
    """A node whose watches over the orders of ``numbers`` are told by ``callback``."""

    folder: Path
    blocks: list[bytes]
    """The first pays all of the orders, the second others that nobody watches."""
    numbers: range
    callback: Callback
    good: int
    """How many of the watches have a receiver that is well."""

    async def median(self, reactor: Any) -> float:
        """The median of the milliseconds from the look at the first block to the answer of a receiver that is well."""
        async with self._paid(reactor) as (_, webhooks):
            await until(reactor, lambda: webhooks.counts().delivered == self.good)
            with closing(connect(self._place / FILE)) as connection:
                taken = connection.execute("SELECT delivered_at - created_at FROM event WHERE fate = 'delivered'")
                return float(median([milliseconds for (milliseconds,) in taken]))

    async def second_block(self, reactor: Any) -> tuple[float, float]:
        """Milliseconds to connect the second block while the events of the first go out, and when all have gone."""
        found = []
        for delivered in (self.good // 10, self.good):
            async with self._paid(reactor) as (node_context, webhooks):
                await until(reactor, lambda: webhooks.counts().delivered >= delivered)  # noqa: B023
                began = perf_counter()
                await feed(node_context.chain_manager, [self.blocks[1:]])
                found.append((perf_counter() - began) * 1000)
        return found[0], found[1]

    @property
    def _place(self) -> Path:
        return self.folder / "round"

    @asynccontextmanager
    async def _paid(self, reactor: Any) -> AsyncIterator[tuple[NodeContext, WebhookService]]:
        """A fresh node that has just connected the first block."""
        path = self._place / DATABASE
        path.parent.mkdir()
        shutil.copy(self.folder / "initial.sqlite", path)
        lay_watches(path.parent, [order(number, required=1) for number in self.numbers], self.callback)
        async with (
            opened(path, reactor) as node_context,
            webhooks_of(path.parent, path, reactor) as (database, steps),
            service_of(database, node_context, reactor) as webhooks,
        ):
            await until(reactor, lambda: bool(steps.begun))
            await feed(node_context.chain_manager, [self.blocks[:1]])
            yield node_context, webhooks
        shutil.rmtree(path.parent)


def prepare(folder: Path, count: int) -> list[bytes]:
    """A chain at ``folder``, and two blocks for it with ``count`` payments each."""
    initial, draft = folder / "initial.sqlite", folder / "draft.sqlite"
    create_chain(initial, [Signer(number).key for number in range(2 * count)])
    shutil.copy(initial, draft)
    return build_blocks(draft, [[payment(number) for number in range(start, start + count)] for start in (0, count)])


def measure(folder: Path, quick: bool) -> list[Row]:
    """How long events take to their receivers while the receiver of half of the watches is dead."""
    count, rounds_wanted = _QUICK if quick else _FULL
    blocks, half = prepare(folder, count), count // 2
    with receiver(folder) as served, receiver(folder, silent=True) as silent:
        ports = {"never answers": silent.port, "refuses": closed_port()}
        alone = Scene(folder, blocks, range(0, count, 2), lambda number: shop(number, served.port), half)
        every = Scene(folder, blocks, range(count), lambda number: shop(number, served.port), count)
        scenes = {
            name: Scene(folder, blocks, range(count), half_dead(served.port, port), half)
            for name, port in ports.items()
        }

        async def run(reactor: Any) -> tuple[dict[str, Rounds], Rounds]:
            found, crowded = {name: Rounds() for name in scenes}, Rounds()
            # What is only done once in a process would be counted against the first.
            await alone.median(reactor)
            for _ in range(rounds_wanted):
                baseline = await alone.median(reactor)
                for name, scene in scenes.items():
                    found[name].add(await scene.median(reactor), baseline)
                crowded.add(*await every.second_block(reactor))
            return found, crowded

        found, crowded = on_reactor(run)
    name = f"a block of {count:,} transfers while events go out"
    return [
        *(
            rounds.row(
                f"{half:,} events to {_SHOPS} hosts, median, one more {dead}",
                unit="ms",
                baseline_is="ms, without that one",
                goal=_WANTED,
            )
            for dead, rounds in found.items()
        ),
        crowded.row(name, unit="ms", baseline_is="ms, when all have gone"),
    ]


if __name__ == "__main__":
    main(measure)
