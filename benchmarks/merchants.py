"""Watches over payments, laid into a database at once, and the webhooks of a living chain in this process.

Registering them one by one would lead to the same rows, with one commit each: in half a minute instead of a second.
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

from benchmarks.ground import Person, nobody
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer
from svcd.commerce.desk import FILE, Desk, open_desk
from svcd.commerce.desk import Terms as DeskTerms
from svcd.commerce.event import Origin
from svcd.commerce.payment import Terms
from svcd.commerce.register import Register
from svcd.commerce.trail import KEPT
from svcd.commerce.watch import Moment, Watch, wake
from svcd.node.guard import Guard
from svcd.node.threads import ThreadsService, Worker
from svcd.ports import milliseconds
from svcd.store.database import WEBHOOKS, open_writer
from svcd.store.webhook_events import EventStore
from svcd.store.webhook_store import WebhookStore

P = ParamSpec("P")
T = TypeVar("T")

ORIGIN: Final = Origin(network_id=DEVNET.network_id, chain_id=DEVNET.chain_id, genesis_hash=DEVNET.genesis_hash)
_LASTS_MS: Final = 86_400_000


def order(number: int, *, required: int) -> Terms:
    """What the order of a number asks for: every order has a recipient of its own."""
    recipient = encode_address(nobody(number), DEVNET.address_prefix)
    return Terms(f"order-{number}", recipient, 5_000 + number, required)


def payment(number: int) -> Transfer:
    """The transfer that pays it."""
    return Person(number).pays(
        nobody(number), amount=5_000 + number, timestamp=DEVNET.genesis_time, reference=f"order-{number}"
    )


def lay_watches(folder: Path, orders: Iterable[Terms], callback: Callable[[int], tuple[str, str]]) -> None:
    """Make the database of webhooks in ``folder``, of a chain that has nothing but its genesis block yet.

    ``callback`` gives the host and the URL for the watch of each number, counted from 0.
    """
    connection = open_writer(folder / FILE, WEBHOOKS)
    register = Register(WebhookStore(connection), EventStore(connection), ORIGIN)
    now = int(time.time() * 1000)
    moment = Moment(now=now, tip_before=0, synced=True)
    with register.watches.commit():
        register.watches.follow(-1, [(0, DEVNET.genesis_hash)], keep=KEPT)
        for number, terms in enumerate(orders):
            host, url = callback(number)
            watch = Watch(
                id=f"svcwh_{number:032x}",
                terms=terms,
                callback_url=url,
                host=host,
                created_at=now,
                expires_at=now + _LASTS_MS,
            )
            register.add(watch, (), wake(watch, 0, moment), now)
    connection.close()


@frozen
class Timed:
    """A worker that notes when the follower's steps begin, and how long those took that had something to say."""

    worker: Worker
    begun: list[float] = field(factory=list)
    """Of all steps, by the performance counter."""
    took: list[float] = field(factory=list)
    """Seconds, commit included."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See svcd.node.threads.Worker."""

        def step() -> T:
            began = perf_counter()
            self.begun.append(began)
            lanes = function(*args, **kwargs)
            if lanes:
                self.took.append(perf_counter() - began)
            return lanes

        if getattr(function, "__name__", "") == "step":
            return self.worker.run(step)
        return self.worker.run(function, *args, **kwargs)


@asynccontextmanager
async def desk_of(folder: Path, chain: Path, reactor: Any) -> AsyncIterator[tuple[Desk, Timed]]:
    """The webhooks in ``folder`` beside the open chain at ``chain``, in a thread of their own; closed in the end."""
    pool = ThreadsService(reactor, size=1, name="webhooks")
    pool.startService()
    timed = Timed(pool.worker)
    try:
        terms = DeskTerms(every_depth=True, new_id=lambda: "svcwh_" + "f" * 32, now=lambda: milliseconds(reactor))
        desk = await open_desk(DEVNET, folder, chain=chain, worker=timed, guard=Guard(lambda: None), terms=terms)
        try:
            yield desk, timed
        finally:
            await desk.close()
    finally:
        pool.stopService()


async def until(reactor: Any, condition: Callable[[], bool], seconds: float = 120) -> None:
    """Look every 2 ms until ``condition`` is true; raises RuntimeError after ``seconds``."""
    give_up_at = perf_counter() + seconds
    while not condition():
        if perf_counter() > give_up_at:
            raise RuntimeError(f"what was waited for did not come true within {seconds:g} s")
        await deferLater(reactor, 0.002, lambda: None)
