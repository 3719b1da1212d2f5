"""Watches over payments, written into a database at once, and the webhooks of a running chain in this process.

Registering them one by one would give the same rows, with a commit each: in half a minute instead of a second.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from benchmarks.prepared_chain import Signer, unowned_key
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer
from svcd.commerce.chain_follower import CURSOR_BLOCKS, ChainFollower
from svcd.commerce.events import EVENT_RULES, ChainIdentity
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import EvaluationContext, Watch, next_evaluation
from svcd.commerce.watch_operations import WatchLimits
from svcd.commerce.watch_repository import EvaluatedWatch, WatchRepository
from svcd.commerce.webhook_database import FILE, WatchSettings, WebhookDatabase, open_webhook_database
from svcd.interfaces import Worker, milliseconds
from svcd.node.database_health import DatabaseHealth
from svcd.node.threads import ThreadPoolService
from svcd.store.database import WEBHOOKS, open_writer
from svcd.store.sql_connection import SqliteConnection
from svcd.store.webhook_events import EventStore
from svcd.store.webhook_store import FollowedBlock, WebhookStore

P = ParamSpec("P")
T = TypeVar("T")

ORIGIN: Final = ChainIdentity(network_id=DEVNET.network_id, chain_id=DEVNET.chain_id, genesis_hash=DEVNET.genesis_hash)
_LASTS_MS: Final = 86_400_000


def order(number: int, *, required: int) -> PaymentTerms:
    """What the order of a number asks for: every order has a recipient of its own."""
    recipient = encode_address(unowned_key(number), DEVNET.address_prefix)
    return PaymentTerms(f"order-{number}", recipient, 1_000_000 + number, required)


def payment(number: int) -> Transfer:
    """The transfer that pays it."""
    return Signer(number).pays(
        unowned_key(number), amount=1_000_000 + number, timestamp=DEVNET.genesis_time, reference=f"order-{number}"
    )


def _of_default(_number: int) -> str:
    return "default"


def lay_watches(
    folder: Path,
    orders: Iterable[PaymentTerms],
    callback: Callable[[int], tuple[str, str]],
    merchant: Callable[[int], str] = _of_default,
) -> None:
    """Make the database of webhooks in ``folder``, of a chain that has nothing but its genesis block yet.

    ``callback`` gives the host and the URL for the watch of each number, counted from 0, ``merchant`` its merchant.
    """
    connection = open_writer(folder / FILE, WEBHOOKS)
    sql = SqliteConnection(connection)
    repository = WatchRepository(WebhookStore(sql), EventStore(sql, EVENT_RULES), ORIGIN)
    now = int(time.time() * 1000)
    context = EvaluationContext(now=now, tip_before=0, may_end=True)
    evaluated: list[EvaluatedWatch] = []
    with repository.watches.commit():
        repository.watches.follow(-1, [FollowedBlock(0, DEVNET.genesis_hash, work=0)], keep=CURSOR_BLOCKS)
        for number, terms in enumerate(orders):
            host, url = callback(number)
            watch = Watch(
                id=f"svcwh_{number:032x}",
                merchant=merchant(number),
                terms=terms,
                callback_url=url,
                host=host,
                created_at=now,
                expires_at=now + _LASTS_MS,
            )
            repository.add(watch)
            stored = repository.watches.watch(watch.id)
            if stored is None:
                raise RuntimeError(f"watch {watch.id} was not stored")
            evaluated.append(EvaluatedWatch(stored, watch, (), next_evaluation(watch, 0, context), 0))
        repository.save(evaluated, now)
    connection.close()


@frozen
class Timed:
    """A worker that notes when the follower's steps begin, and how long those of a change took that had events."""

    worker: Worker
    begun: list[float] = field(factory=list)
    """Of all steps, by the performance counter."""
    took: list[float] = field(factory=list)
    """Seconds of all steps of a change, commits included."""
    _shares: list[float] = field(factory=list, init=False)
    """Seconds of the steps so far of the present change that had events."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See svcd.node.threads.Worker."""

        def step() -> T:
            began = perf_counter()
            self.begun.append(began)
            queues = function(*args, **kwargs)
            if queues:
                self._shares.append(perf_counter() - began)
            follower: ChainFollower = function.__self__  # type: ignore[attr-defined]
            if self._shares and not follower.unfinished:
                self.took.append(sum(self._shares))
                self._shares.clear()
            return queues

        if getattr(function, "__name__", "") == "step":
            return self.worker.run(step)
        return self.worker.run(function, *args, **kwargs)


@asynccontextmanager
async def webhooks_of(
    folder: Path, chain: Path, reactor: Any, database: str = ""
) -> AsyncIterator[tuple[WebhookDatabase, Timed]]:
    """The database of webhooks in ``folder`` for the open chain at ``chain``, with a thread; closed in the end.

    ``database`` is the connection URI of a PostgreSQL that has it instead.
    """
    pool = ThreadPoolService(reactor, size=1, name="webhooks")
    pool.startService()
    timed = Timed(pool)
    try:
        settings = WatchSettings(
            every_depth=True,
            new_id=lambda: "svcwh_" + "f" * 32,
            limits=WatchLimits(10**7, 10**7),
            now=lambda: milliseconds(reactor),
            database=database,
        )
        opened = await open_webhook_database(
            DEVNET, folder, chain=chain, worker=timed, health=DatabaseHealth(lambda: None), settings=settings
        )
        try:
            yield opened, timed
        finally:
            await opened.close()
    finally:
        await pool.stopService()


async def until(reactor: Any, condition: Callable[[], bool], seconds: float = 120) -> None:
    """Look every 2 ms until ``condition`` is true; raises RuntimeError after ``seconds``."""
    give_up_at = perf_counter() + seconds
    while not condition():
        if perf_counter() > give_up_at:
            raise RuntimeError(f"what was waited for did not come true within {seconds:g} s")
        await deferLater(reactor, 0.002, lambda: None)
