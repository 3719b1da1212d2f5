"""The webhook service: follows chain and mempool, serves merchants and feeds the dispatcher (docs/webhooks.md).

The whole durable state is on disk. A notification from chain or mempool only requests a step.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

import apsw
from attrs import Factory, define, evolve, field, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.commerce.batches import Batches
from svcd.commerce.chain_follower import MempoolChange, SeenPayment, StepContext
from svcd.commerce.dispatcher import DeliveryCounts, WebhookDispatcher
from svcd.commerce.leadership import DatabaseClock, Leadership, NotLeader, Role, SoleLeader
from svcd.commerce.outbox import WebhookOutbox
from svcd.commerce.sender import WebhookSender
from svcd.commerce.watch_operations import (
    ENDED_KEPT_MS,
    Backlog,
    Selection,
    WatchOperations,
    WatchPage,
    WatchRequest,
)
from svcd.commerce.webhook_database import WebhookDatabase
from svcd.interfaces import Clock, Worker, milliseconds
from svcd.node.chain_alarms import ChainAlarm
from svcd.node.changes import ChainChange
from svcd.node.clock_guard import ClockGuard
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.news import AT_ONCE, News, Topic
from svcd.node.node_context import NodeContext
from svcd.node.tasks import TaskGroup
from svcd.store.database import DatabaseUnavailable, is_damage, is_disk_trouble
from svcd.store.webhook_events import BreakerRow, WatchQueue, receiver_of

POLL_SECONDS: Final = 1.0
"""The interval between two checks for expired watches."""
BACKLOG_SECONDS: Final = 10.0
CLEANUP_SECONDS: Final = 3600.0
_DAY_MS: Final = 86_400_000
_UNDELIVERED_KEPT_MS: Final = 7 * _DAY_MS
"""An event is abandoned after this time even if no attempt was due because another event's retries came first."""

# Priority of the chain
_MAX_WAIT_SECONDS: Final = 10.0
"""How long a step waits while blocks are connected."""
_WAIT_INTERVAL_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.005
MAX_PAUSES_SECONDS: Final = 2.0
"""All pauses of the steps of one change, which also delay the delivery of their events."""


class Dispatcher(Protocol):
    """Delivers events (svcd.commerce.dispatcher.WebhookDispatcher)."""

    def enqueue(self, queues: Iterable[WatchQueue]) -> None:
        """Deliver the events of these queues."""

    def restore(self, breakers: Iterable[BreakerRow]) -> None:
        """Restore the circuit breakers that the last leader or run has stored."""

    def merchants_changed(self) -> None:
        """Share the deliveries anew among the merchants."""

    def resume(self, queues: Iterable[WatchQueue], breakers: Iterable[BreakerRow]) -> None:
        """Deliver the events of merchants that are new, or configured again."""

    def hurry(self, merchant: str, receiver: str) -> None:
        """Bring the next probe of a receiver forward."""

    def cancel(self, watch: str) -> None:
        """Make no further attempt for this watch."""

    def forget(self) -> None:
        """Forget all queues, because another node delivers now."""

    def stop(self) -> Deferred[None]:
        """Begin no more deliveries; fires when none is in flight."""

    def counts(self) -> DeliveryCounts:
        """The present counts."""


@frozen(kw_only=True)
class WebhookContext:
    """The node around the webhook service."""

    clock: Clock
    """By its Unix time watches expire; that of the database where several nodes share one."""
    guard: ClockGuard
    """Of the node's own clock, by which transfers arrive."""
    synced: Callable[[], bool]
    """Whether the node's chain is the network's, as far as the node knows."""
    busy: Callable[[], bool]
    """Whether blocks are being connected; safe to call in any thread."""
    readmission_done: Callable[[], Awaitable[None]]
    """Returns when a reorganisation's disconnected transfers are back in the mempool, where they may be."""
    deletions_done: Callable[[], Awaitable[None]]
    """Returns when no blocks are being deleted up to an earlier :attr:`WebhookService.evaluated_height`."""
    unit: str
    """What the network calls its coins."""
    alarms: Callable[[], Sequence[ChainAlarm]] = tuple
    """Alarms for merchants, except deep reorganisations, which the follower detects itself."""
    keep_days: int = 7
    """How long the bodies of events are kept."""
    leadership: Leadership = field(factory=SoleLeader)
    """Whether this node evaluates the watches and delivers the events."""
    news: News = field(default=Factory(lambda self: News(self.clock), takes_self=True))
    sleep: Callable[[float], object] = time.sleep
    """Blocks the thread of the watches for some seconds."""


@frozen
class Kept:
    """What a node keeps of a merchant that was removed from its configuration."""

    watches: int
    """Its active watches, which go on."""
    undelivered: int
    """Watches of which events wait."""


@define
class PauseBudget:
    """Pauses the steps of one change while blocks are connected, for MAX_PAUSES_SECONDS in total.

    Two busy threads share the interpreter equally. Without pauses, a block that arrives while 2,000 watches are
    evaluated would take twice as long to connect (docs/performance.md "Ceilings").
    """

    _busy: Callable[[], bool]
    _sleep: Callable[[float], object]
    _pauses_left: int = field(default=round(MAX_PAUSES_SECONDS / PAUSE_SECONDS), init=False)

    def pause(self) -> None:
        """Block while blocks are connected and the budget lasts."""
        while self._pauses_left and self._busy():
            self._pauses_left -= 1
            self._sleep(PAUSE_SECONDS)


class WebhookService(Service):
    """Runs the follower's steps one after the other, each after the changes that it needs are committed."""

    name = "webhooks"
    log = Logger()

    def __init__(
        self, operations: WatchOperations, worker: Worker, *, dispatcher: Dispatcher, context: WebhookContext
    ) -> None:
        self._operations = operations
        self._worker = worker
        self._dispatcher = dispatcher
        self._context = context
        self._mempool_changes: list[MempoolChange] = []
        """Not yet passed to the follower."""
        self._tip: ChainPoint | None = None
        """The tip up to which the mempool has followed the chain; None before :meth:`load_mempool`."""
        self._reorganisations = 0
        self._readmitted_reorganisations = 0
        """Of these, how many are known to have returned their transfers to the mempool."""
        self._step_requested = False
        self._stepping = False
        self._resumed_in: int | None = None
        """The term in which the queues on disk were passed to the dispatcher; None while it has none."""
        self._failing = False
        self._dispatcher_stopped: Deferred[None] | None = None
        self._pauses = self._new_pauses()
        self._evaluated = -1
        self._lowered: int | None = None
        """The least height to which ``_evaluated`` has been lowered since the newest step began; None if it was not."""
        self._registering: int | None = None
        """The height that holds ``evaluated_height`` down while new watches are stored; None if none are."""
        self._tasks = TaskGroup()
        self._backlog = Backlog(0, None)
        self._registrations = Batches[WatchRequest, dict[str, object]](self._register_all)

    def load_mempool(self, entries: Iterable[MempoolEntry], tip: ChainPoint) -> None:
        """Take in the mempool as it is, with the tip of its chain; call once, before subscribing to their changes."""
        self._tip = tip
        self._mempool_changes.append(MempoolChange(tuple(entries), {}))

    def startService(self) -> None:
        """Resume deliveries, and evaluate what has changed since the previous run."""
        super().startService()  # type: ignore[no-untyped-call]
        self.poll()

    def stop_accepting(self) -> None:
        """Begin no delivery from now on; see `svcd.process.sequential.StopsAccepting`."""
        if self._dispatcher_stopped is None:
            self._dispatcher_stopped = self._dispatcher.stop()

    def stopService(self) -> Deferred[None]:
        """Let the current step and the deliveries in flight end; the outbox keeps the rest for the next start."""
        super().stopService()  # type: ignore[no-untyped-call]
        self.stop_accepting()
        return Deferred.fromCoroutine(self._drained())

    async def _drained(self) -> None:
        await cast("Deferred[None]", self._dispatcher_stopped)
        await self._tasks.drained()

    # Notifications

    def chain_changed(self, change: ChainChange) -> None:
        """See svcd.node.chain_manager.ChainListener."""
        self._tip = change.tip
        self._reorganisations += bool(change.undone)
        if change.undone:
            self._lower_evaluated(change.undone[-1].point.height - 1)
        self.poll()

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """See svcd.node.transaction_pool.MempoolListener."""
        self._mempool_changes.append(MempoolChange(tuple(added), removed))
        self.poll()

    def poll(self) -> None:
        """Request a step; requests during a step lead to one more step."""
        self._step_requested = True
        if self.running and not self._stepping:
            self._tasks.start(self._run_steps()).addErrback(self._log_failure)

    def leadership_changed(self) -> None:
        """Start or stop evaluating and delivering, after this node has become the leader or has ceased to be."""
        if self._resumed_in not in (None, self._context.leadership.term):
            self._stand_down()
        self.poll()

    def _stand_down(self) -> None:
        self._resumed_in = None
        self._dispatcher.forget()

    # For merchants

    async def register(self, request: WatchRequest) -> dict[str, object]:
        """Begin a watch; returns its record. Raises TooManyWatches or Pruned."""
        return await self._tasks.start(self._register(request))

    async def show(self, merchant: str, identifier: str) -> dict[str, object] | None:
        """A watch and its newest events; None if the merchant has none of this id."""
        return await self._worker.run(self._operations.show, merchant, identifier)

    async def cancel(self, merchant: str, identifier: str) -> dict[str, object] | None:
        """End a watch; returns its record, None if the merchant has none of this id."""
        now = milliseconds(self._context.clock)
        record = await self._worker.run(self._operations.cancel, merchant, identifier, now)
        if record is not None:
            self._dispatcher.cancel(identifier)
        return record

    async def page(self, merchant: str, selection: Selection) -> WatchPage:
        """A page of a merchant's watches; raises UnknownWatch."""
        return await self._worker.run(self._operations.page, merchant, selection)

    async def redeliver(self, merchant: str, identifier: str, event_id: str) -> dict[str, object] | None:
        """Send an event again; returns it, None if the merchant has none of this id. Raises NotRedeliverable."""
        now = milliseconds(self._context.clock)
        redelivery = await self._worker.run(self._operations.redeliver, merchant, identifier, event_id, now)
        if redelivery is None:
            return None
        if self.shared:
            self.poll()
        else:
            self._dispatcher.enqueue(redelivery.queues)
        return redelivery.record

    def test_accepted(self, merchant: str, callback_url: str) -> None:
        """Deliver the waiting events of a callback's receiver soon, because it has just accepted a test."""
        self._dispatcher.hurry(merchant, receiver_of(callback_url))

    async def change_merchants(
        self, apply: Callable[[], object], *, added: Collection[str] = (), removed: Collection[str] = ()
    ) -> dict[str, Kept]:
        """Call ``apply``, which changes the sender's merchants, and deliver what waits of those that are new.

        Returns what is kept of the removed ones, by name.

        Raises:
            DatabaseUnavailable, apsw.Error: nothing has changed.
        """
        queues, breakers, kept = list[WatchQueue](), list[BreakerRow](), dict[str, Kept]()
        term = self._resumed_in
        if added or removed:
            now = milliseconds(self._context.clock)
            queues, breakers, kept = await self._worker.run(self._waiting_of, now, tuple(added), tuple(removed))
        # From here on nothing waits: a queue that the worker returns later finds the new merchants.
        apply()
        self._dispatcher.merchants_changed()
        # Otherwise the next step reads all queues, or another node delivers.
        if term is not None and self._resumed_in == term:
            self._dispatcher.resume(queues, breakers)
        return kept

    def _waiting_of(
        self, now: int, added: Sequence[str], removed: Sequence[str]
    ) -> tuple[list[WatchQueue], list[BreakerRow], dict[str, Kept]]:
        queues, count = self._operations.queues(now), self._operations.repository.watches.count_active
        undelivered = Counter(queue.merchant for queue in queues)
        resumed = [queue for queue in queues if queue.merchant in added]
        kept = {name: Kept(count(name), undelivered[name]) for name in removed}
        return resumed, self._operations.breakers(resumed), kept

    async def _register(self, request: WatchRequest) -> dict[str, object]:
        await self._wait_for_mempool()
        record = await self._registrations.add(request)
        self.poll()
        return record

    def _register_all(self, requests: Sequence[WatchRequest]) -> Deferred[list[dict[str, object] | Exception]]:
        return Deferred.fromCoroutine(self._store_all(requests))

    async def _store_all(self, requests: Sequence[WatchRequest]) -> list[dict[str, object] | Exception]:
        named = [each.terms.since_height for each in requests if each.terms.since_height is not None]
        if named:
            # Whether these blocks are here is asked when none of them can be deleted any more.
            self._registering = min(named) - 1
        try:
            if named:
                await self._context.deletions_done()
                self._lower_evaluated(min(named) - 1)
            context = self._step_context()
            # By the later clock, if they differ: the watch must not be over when the right one is found.
            start = max(context.now, self._context.guard.trusted_milliseconds() + context.arrivals_behind)
            context = evolve(context, now=start)
            return await self._worker.run(lambda: [*self._operations.register(requests, context)])
        finally:
            self._registering = None

    @property
    def shared(self) -> bool:
        """Whether the leader, which may be another node, will act on a change by a request."""
        return self._operations.repository.shared

    # For the operator

    @property
    def backlog(self) -> Backlog:
        """As of the last :meth:`refresh_backlog`."""
        return self._backlog

    def counts(self) -> DeliveryCounts:
        """The dispatcher's counts."""
        return self._dispatcher.counts()

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest undelivered event; 0 if there is none."""
        oldest = self.backlog.oldest_undelivered
        return 0 if oldest is None else max(milliseconds(self._context.clock) - oldest, 0) / 1000

    @property
    def ready(self) -> bool:
        """Whether this node may be the leader: its chain is the network's, and not behind the cursor."""
        lag = self._operations.follower.lag
        return self._context.synced() and not (lag is not None and lag.behind)

    @property
    def role(self) -> Role:
        """Whether this node is the leader or a standby."""
        return Role.STANDBY if self._context.leadership.term is None else Role.LEADER

    @property
    def lease_age(self) -> float:
        """How many seconds ago the leader renewed its lease; 0 for the only node."""
        return self._context.leadership.lease_age

    @property
    def lag(self) -> int:
        """How many blocks of this node's chain are above the cursor, as of the last step."""
        lag = self._operations.follower.lag
        return 0 if lag is None else lag.blocks

    @property
    def evaluated_height(self) -> int:
        """The height up to which the payments of all watches have been looked at; -1 before the first step.

        It falls with undone blocks, and by a new watch to the height from which on that looks for its payment, until
        the watches have been evaluated at the new blocks, and the new watch for the first time.
        """
        return self._evaluated if self._registering is None else min(self._evaluated, self._registering)

    def _lower_evaluated(self, height: int) -> None:
        self._evaluated = min(self._evaluated, height)
        self._lowered = height if self._lowered is None else min(self._lowered, height)

    def record(self) -> dict[str, object]:
        """Backlog and counts for the operator (docs/operator-api.md)."""
        counts, oldest = self.counts(), self.backlog.oldest_undelivered
        leadership = self._context.leadership
        shared: dict[str, object] = {
            "role": self.role.value,
            "leader": leadership.leader or None,
            "leaseAgeSeconds": round(leadership.lease_age),
            "lagBlocks": self.lag,
        }
        return {
            **(shared if self.shared else {}),
            "watches": self.backlog.watches,
            "waiting": counts.waiting,
            "inFlight": counts.in_flight,
            "oldestWaitingSince": None if oldest is None else str(oldest),
            "brokenHosts": counts.broken_hosts,
            "abandoned": counts.abandoned,
            "refused": counts.refused,
        }

    def refresh_backlog(self) -> Deferred[None]:
        """Read the backlog from disk; to be called every BACKLOG_SECONDS."""
        return self._tasks.start(self._refresh_backlog())

    def clean_up(self) -> Deferred[None]:
        """Abandon events that are too old and forget watches that ended long ago; every CLEANUP_SECONDS."""
        return self._tasks.start(self._clean_up())

    async def _refresh_backlog(self) -> None:
        # The next step logs that the database does not answer.
        with suppress(DatabaseUnavailable):
            self._backlog = await self._worker.run(self._operations.backlog)

    async def _clean_up(self) -> None:
        now, lost, done = milliseconds(self._context.clock), 0, False
        if not self._context.guard.is_trusted():
            return
        with suppress(DatabaseUnavailable, NotLeader):
            while self.running and not done and (term := self._context.leadership.term) is not None:
                result = await self._worker.run(
                    self._operations.clean_up,
                    now - _UNDELIVERED_KEPT_MS,
                    now - ENDED_KEPT_MS,
                    now - self._context.keep_days * _DAY_MS,
                    term,
                )
                lost, done = lost + result.abandoned, result.done
        if lost:
            self.log.warn("{lost} webhook events could not be delivered for a week and are abandoned", lost=lost)

    # Steps

    async def _run_steps(self) -> None:
        self._stepping = True
        try:
            while self._step_requested and self.running:
                self._step_requested = False
                await self._step()
        finally:
            self._stepping = False

    async def _step(self) -> None:
        if not self._operations.follower.unfinished:
            # Once for all shares of a change.
            await self._wait_while_busy()
            self._pauses = self._new_pauses()
        term = self._context.leadership.term
        try:
            if term is not None and self._resumed_in is None:
                now = milliseconds(self._context.clock)
                queues = await self._worker.run(self._operations.queues, now)
                breakers = await self._worker.run(self._operations.breakers, queues)
                if self._context.leadership.term == term:
                    self._resumed_in = term
                    self._dispatcher.restore(breakers)
                    self._dispatcher.enqueue(queues)
            await self._wait_for_mempool()
            context = self._step_context(self._pauses.pause)
            # The step sees the watches that were registered before, whose thread it shares.
            self._lowered = None
            queues = await self._worker.run(self._operations.follower.step, context)
            if (evaluated := self._operations.follower.evaluated_height) is not None:
                self._evaluated = evaluated if self._lowered is None else min(evaluated, self._lowered)
            # At once, but after the reads and deliveries of events that wait for the thread meanwhile.
            self._step_requested |= self._operations.follower.unfinished
        except NotLeader as error:
            self._context.leadership.lost(error.term)
            return
        except (apsw.Error, DatabaseUnavailable) as error:
            if not is_disk_trouble(error):
                raise
            self._log_unwritable(error)
            return
        if self._failing:
            self._failing = False
            self.log.info("the webhooks' database can be written again; no event is lost")
        self._tell_of(self._operations.follower.seen)
        # A new leader has read the queues from the database.
        if self._resumed_in is not None and self._resumed_in == context.term:
            self._dispatcher.enqueue(queues)

    def _tell_of(self, payments: Sequence[SeenPayment]) -> None:
        if (more := len(payments) - AT_ONCE) > 0:
            self._context.news.leave_out(Topic.PAYMENT, more)
        for seen in payments[:AT_ONCE]:
            self._context.news.info(
                "{watch} of {merchant} sees its payment of {amount} {unit}, {state}, in transfer {txid}",
                Topic.PAYMENT,
                watch=seen.watch,
                merchant=seen.merchant,
                amount=format_amount(seen.amount),
                unit=self._context.unit,
                state=seen.state.value,
                txid=seen.txid.hex(),
            )

    def _new_pauses(self) -> PauseBudget:
        return PauseBudget(lambda: self._context.busy() and bool(self.running), self._context.sleep)

    async def _wait_while_busy(self) -> None:
        """Wait until no blocks are being connected, for some seconds at most."""
        until = self._context.clock.seconds() + _MAX_WAIT_SECONDS
        while self._context.busy() and self._context.clock.seconds() < until and self.running:
            await self._wait_interval()

    async def _wait_interval(self) -> None:
        await deferLater(cast(IReactorTime, self._context.clock), _WAIT_INTERVAL_SECONDS)

    async def _wait_for_mempool(self) -> None:
        """Wait until the transfers of undone blocks are back in the mempool: until then their payments seem gone."""
        while self._readmitted_reorganisations < (number := self._reorganisations):
            try:
                await self._context.readmission_done()
            finally:
                self._readmitted_reorganisations = max(self._readmitted_reorganisations, number)

    def _step_context(self, pause: Callable[[], None] = lambda: None) -> StepContext:
        changes, self._mempool_changes = self._mempool_changes, []
        now, guard = milliseconds(self._context.clock), self._context.guard
        return StepContext(
            now=now,
            synced=self._context.synced(),
            clock_trusted=guard.is_trusted(),
            arrivals_behind=self._arrivals_behind(),
            term=self._context.leadership.term,
            mempool_changes=changes,
            tip=self._tip,
            alarms=self._context.alarms(),
            pause=pause,
        )

    def _arrivals_behind(self) -> int:
        clock, guard = self._context.clock, self._context.guard
        # A transfer arrives by the trusted time. Deadlines are in that time, too, unless a database gives it.
        return clock.ahead_of(guard.trusted_milliseconds()) if isinstance(clock, DatabaseClock) else 0

    def _log_unwritable(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self.log.error("the webhooks' database cannot be written: {why}. Events follow once it can", why=str(error))

    def _log_failure(self, failure: Failure) -> None:
        if is_damage(failure.value):
            # The database health has logged it and stops the node.
            return
        self.log.failure("evaluating the watches failed; it is tried again in a second", failure)


def build_webhooks(
    database: WebhookDatabase,
    node: NodeContext,
    *,
    sender: WebhookSender,
    synced: Callable[[], bool],
    chance: Callable[[], float],
    keep_days: int,
    alarms: Callable[[], Sequence[ChainAlarm]] = tuple,
    leadership: Leadership | None = None,
    clock: Clock | None = None,
    news: News | None = None,
) -> WebhookService:
    """The service on an open database, subscribed to chain and mempool.

    Where several nodes share the database, ``leadership`` says whether this node is the leader, and ``clock`` has the
    database's time. ``synced`` returns whether the node's chain is the network's, ``chance`` random numbers from 0 to
    1, and ``alarms`` the alarms for merchants; bodies of events are kept for ``keep_days``.
    """
    chain_manager, pool = node.chain_manager, node.transaction_pool
    leadership, clock = leadership or SoleLeader(), clock or node.clock
    news = news or News(node.clock)
    outbox = WebhookOutbox(database.operations.repository, database.worker)
    service = WebhookService(
        database.operations,
        database.worker,
        dispatcher=WebhookDispatcher(
            outbox, sender, clock=clock, guard=node.guard, chance=chance, leadership=leadership, news=news
        ),
        context=WebhookContext(
            unit=chain_manager.params.unit,
            clock=clock,
            guard=node.guard,
            leadership=leadership,
            news=news,
            synced=synced,
            busy=lambda: chain_manager.busy,
            readmission_done=pool.readmission_done,
            deletions_done=node.deletions_done,
            keep_days=keep_days,
            alarms=alarms,
        ),
    )
    service.load_mempool(pool.mempool.entries(), chain_manager.tip)
    # After the mempool has subscribed, because it takes back the transfers of undone blocks.
    chain_manager.subscribe(service)
    pool.subscribe(service)
    return service
