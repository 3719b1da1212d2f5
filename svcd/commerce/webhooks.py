"""Webhooks as a service: follows chain and mempool, and has sent what the watches have to say (docs/webhooks.md).

All that lasts is on disk: chain and mempool only say that it is time to look, and what they said last is looked up.
"""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Final, Protocol

from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.commerce.courtesy import Courtesy
from svcd.commerce.follower import PoolNews, Present
from svcd.commerce.outbox import Lane
from svcd.commerce.subscriptions import Order, Registered, Standing, Subscriptions
from svcd.node.changes import Change
from svcd.node.mempool import Entry
from svcd.node.threads import Worker
from svcd.node.underway import Underway
from svcd.ports import Clock, milliseconds
from svcd.store.database import is_damage

STEP_SECONDS: Final = 1.0
"""How often it is seen whether the time of a watch has come."""
_GIVE_WAY_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.05
TIDY_SECONDS: Final = 3600.0
COUNT_SECONDS: Final = 10.0
_REMEMBERED_MS: Final = 30 * 86_400_000
"""How long a watch that is over can be looked at."""
_WAITED_MS: Final = 7 * 86_400_000
"""An event that has waited for so long is given up, even where a receiver that is down kept it from being tried."""


class Courier(Protocol):
    """Whoever sends what waits (svcd.commerce.delivery)."""

    def wake(self, lanes: Iterable[Lane]) -> None:
        """These watches have something to send."""

    def cancel(self, watch: str) -> None:
        """This watch has nothing to send any more."""

    def stop(self) -> Deferred[None]:
        """Send nothing more; fires when nothing is being sent."""


@frozen(kw_only=True)
class Surroundings:
    """What the webhooks know of the node around them."""

    clock: Clock
    synced: Callable[[], bool]
    """Whether the tip may be taken for the network's."""
    busy: Callable[[], bool]
    """Whether blocks are being connected; also asked in the thread of the watches."""
    settled: Callable[[], Awaitable[None]]
    """Returns when what a reorganisation put out of the chain is back in the mempool, as far as it may be."""
    nap: Callable[[float], object] = time.sleep
    """Lets the thread of the watches, and no other, rest for so many seconds."""


class Webhooks(Service):
    """Takes turns in the thread of the watches, one after the other, and never before what they need is committed."""

    name = "webhooks"
    log = Logger()

    def __init__(
        self, subscriptions: Subscriptions, worker: Worker, *, sender: Courier, surroundings: Surroundings
    ) -> None:
        self._subscriptions = subscriptions
        self._worker = worker
        self._sender = sender
        self._around = surroundings
        self._news: list[PoolNews] = []
        self._reorganisations = 0
        self._settled = 0
        """Of these, so many are known to have put back into the mempool what they may."""
        self._wanted = False
        self._turning = False
        self._resumed = False
        """Whether what waited from the run before is being sent."""
        self._failing = False
        self._underway = Underway()
        self.standing = Standing(0, None)
        """As of some seconds ago; for the operator."""

    def begin(self, entries: Iterable[Entry]) -> None:
        """Take in what waits in the mempool already; to be called once, before anything is heard of it."""
        self._news.append(PoolNews(tuple(entries), ()))

    def startService(self) -> None:
        """Send what waits from the run before, and look what has happened since."""
        super().startService()  # type: ignore[no-untyped-call]
        self.look()

    async def stopService(self) -> None:
        """Let the turn under way end; what has not been sent waits for the next start."""
        super().stopService()  # type: ignore[no-untyped-call]
        await self._sender.stop()
        await self._underway.finished()

    def chain_changed(self, change: Change) -> None:
        """See svcd.node.ledger.ChainListener."""
        self._reorganisations += bool(change.undone)
        self.look()

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """See svcd.node.transfers.PoolListener."""
        self._news.append(PoolNews(tuple(added), tuple(removed)))
        self.look()

    def look(self) -> None:
        """See soon what has happened; what comes while that is done is seen right after it."""
        self._wanted = True
        if self.running and not self._turning:
            self._keep(self._take_turns())

    def count(self) -> Deferred[None]:
        """See how much there is to do; to be called now and then."""
        return self._underway.keep(self._count())

    def tidy(self) -> Deferred[None]:
        """Give up what has waited for too long, and forget what has been over for long; to be called now and then."""
        return self._underway.keep(self._tidy())

    async def register(self, order: Order) -> dict[str, object]:
        """Begin a watch; gives the subscription. Raises TooManyWatches or Behind."""
        registered = await self._underway.keep(self._register(order))
        return registered.record

    async def show(self, identifier: str) -> dict[str, object] | None:
        """A subscription and its newest events."""
        return await self._worker.run(self._subscriptions.show, identifier)

    async def cancel(self, identifier: str) -> dict[str, object] | None:
        """End a watch; gives the subscription."""
        record = await self._worker.run(self._subscriptions.cancel, identifier, milliseconds(self._around.clock))
        self._sender.cancel(identifier)
        return record

    def _keep(self, work: Coroutine[Deferred[object], object, None]) -> None:
        self._underway.keep(work).addErrback(self._say_failed)

    async def _register(self, order: Order) -> Registered:
        await self._settle()
        registered = await self._worker.run(self._subscriptions.begin, order, self._present())
        self._sender.wake(registered.lanes)
        return registered

    async def _count(self) -> None:
        self.standing = await self._worker.run(self._subscriptions.standing)

    async def _tidy(self) -> None:
        # Where the computer's clock is set, a week passes in a moment.
        now = min(milliseconds(self._around.clock), int(self._around.clock.seconds() * 1000))
        lost, done = 0, False
        while self.running and not done:
            tidied = await self._worker.run(self._subscriptions.tidy, now - _WAITED_MS, now - _REMEMBERED_MS)
            lost, done = lost + tidied.lost, tidied.done
        if lost:
            self.log.warn("{lost} webhook events could not be delivered for a week and are given up", lost=lost)

    async def _take_turns(self) -> None:
        self._turning = True
        try:
            while self._wanted and self.running:
                self._wanted = False
                await self._take_turn()
        finally:
            self._turning = False

    async def _take_turn(self) -> None:
        await self._give_way()
        await self._settle()
        try:
            if not self._resumed:
                now = milliseconds(self._around.clock)
                self._sender.wake(await self._worker.run(self._subscriptions.lanes, now))
                self._resumed = True
            courtesy = Courtesy(lambda: self._around.busy() and bool(self.running), self._around.nap)
            present = evolve(self._present(), give_way=courtesy.give_way)
            lanes = await self._worker.run(self._subscriptions.follower.step, present)
        except sqlite3.OperationalError as error:
            self._say_stuck(error)
            return
        if self._failing:
            self._failing = False
            self.log.info("the webhooks' database can be written again; nothing has been lost")
        self._sender.wake(lanes)

    async def _settle(self) -> None:
        """A payment that only went back to the mempool is told as that, not as gone and come again."""
        while self._settled < (number := self._reorganisations):
            try:
                await self._around.settled()
            finally:
                self._settled = max(self._settled, number)

    async def _give_way(self) -> None:
        """The chain goes first: merchants can wait until a run of blocks is connected, for some seconds at least."""
        until = self._around.clock.seconds() + _GIVE_WAY_SECONDS
        while self._around.busy() and self._around.clock.seconds() < until and self.running:
            soon: Deferred[None] = Deferred()
            self._around.clock.callLater(_LOOK_AGAIN_SECONDS, soon.callback, None)
            await soon

    def _present(self) -> Present:
        news, self._news = self._news, []
        return Present(now=milliseconds(self._around.clock), synced=self._around.synced(), news=news)

    def _say_stuck(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self.log.error(
                "the webhooks' database cannot be written: {why}. Events wait in the chain until it can", why=str(error)
            )

    def _say_failed(self, failure: Failure) -> None:
        if is_damage(failure.value):
            # It has been told, and the node stops.
            return
        self.log.failure("the webhooks failed to take a turn", failure)
