"""A node in memory with webhooks, and a receiver that accepts every event at once."""

import json
import time
from collections.abc import Callable, Collection, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from svcd.commerce.events import DEFAULT_EVENTS, EventType
from svcd.commerce.leadership import DatabaseClock, Leadership, SoleLeader
from svcd.commerce.outbox import WebhookOutbox
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch_operations import WatchLimits, WatchRequest
from svcd.commerce.webhook_database import WatchSettings, open_webhook_database
from svcd.commerce.webhook_service import WebhookContext, WebhookService
from svcd.composition.resources import OpenDatabases
from svcd.interfaces import milliseconds
from svcd.node.chain_alarms import ChainAlarm
from svcd.node.database_health import DatabaseHealth
from svcd.node.node_context import NodeContext
from svcd.node.threads import InlineWorker
from svcd.store.webhook_events import BreakerRow, WatchQueue
from tests.chains import key_of
from tests.rpc.node import Node, Settings
from tests.submitting import submitted
from tests.support import result_of


@define(eq=False)
class Given:
    """Whether a node leads, as the test says."""

    term: int | None = None
    leader: str = ""
    lease_age: float = 0.0
    losses: int = 0
    """How often it has lost its term."""

    def lost(self, term: int) -> None:
        assert self.term == term
        self.term = None
        self.losses += 1


class Queues:
    """A dispatcher that only notes which queues have events."""

    def __init__(self) -> None:
        self.pending: dict[str, WatchQueue] = {}
        self.breakers: list[BreakerRow] = []
        self.hurried: list[tuple[str, str]] = []
        """Merchants and their receivers whose next probe was brought forward."""

    def enqueue(self, queues: Iterable[WatchQueue]) -> None:
        self.pending |= {queue.watch: queue for queue in queues}

    def cancel(self, watch: str) -> None:
        self.pending.pop(watch, None)

    def hurry(self, merchant: str, receiver: str) -> None:
        self.hurried.append((merchant, receiver))

    def restore(self, breakers: Iterable[BreakerRow]) -> None:
        self.breakers = list(breakers)

    def merchants_changed(self) -> None:
        self.pending.clear()

    def resume(self, queues: Iterable[WatchQueue], breakers: Iterable[BreakerRow]) -> None:
        self.restore(breakers)
        self.enqueue(queues)

    def forget(self) -> None:
        self.pending.clear()

    def stop(self) -> "Deferred[None]":
        return succeed(None)


class Watched:
    """A node and its webhooks; `again` closes both and opens them anew, as a restart does."""

    def __init__(
        self, folder: Path, clock: Clock, *, postgresql: str = "", leadership: Leadership | None = None, **settings: Any
    ) -> None:
        """``postgresql`` is the connection URI of the webhooks' database; "" for a file."""
        self.leadership: Leadership = leadership or SoleLeader()
        self.folder = folder
        self.postgresql = postgresql
        self.clock = clock
        self.database_clock: DatabaseClock | None = None
        """That of a shared database."""
        self.synced = True
        self.every_depth = True
        self.alarms: list[ChainAlarm] = []
        self.limits = WatchLimits(total=1_000, per_host=1_000)
        self.busy = False
        self.pauses: list[float] = []
        self.numbers = count(1)
        self._settings = Settings(**settings)
        self.open()

    def open(self) -> None:
        self.node = Node(self.folder / "chain.sqlite", self.clock, self._settings)
        self.open_webhooks()

    def open_webhooks(self) -> None:
        settings = WatchSettings(
            every_depth=self.every_depth,
            new_id=lambda: f"svcwh_{next(self.numbers):032x}",
            limits=self.limits,
            now=lambda: milliseconds(self.clock),
            database=self.postgresql,
        )
        opening = open_webhook_database(
            self.node.params,
            self.folder,
            chain=self.folder / "chain.sqlite",
            worker=InlineWorker(),
            health=DatabaseHealth(lambda: None),
            settings=settings,
        )
        self.database = result_of(Deferred.fromCoroutine(opening))
        node_context = self.node.node_context
        self.node.databases = OpenDatabases(node_context, self.database)
        self.queues = Queues()
        context = WebhookContext(
            unit=node_context.chain_manager.params.unit,
            clock=self.database_clock or self.clock,
            guard=node_context.guard,
            synced=lambda: self.synced,
            busy=lambda: self.busy,
            readmission_done=node_context.transaction_pool.readmission_done,
            deletions_done=node_context.deletions_done,
            sleep=self.pauses.append,
            alarms=lambda: self.alarms,
            leadership=self.leadership,
        )
        self.webhooks = WebhookService(
            self.database.operations, self.database.worker, dispatcher=self.queues, context=context
        )
        self.outbox = WebhookOutbox(self.database.operations.repository, self.database.worker)
        tip = node_context.chain_manager.tip
        self.webhooks.load_mempool(node_context.transaction_pool.mempool.entries(), tip)
        node_context.chain_manager.subscribe(self.webhooks)
        node_context.transaction_pool.subscribe(self.webhooks)
        self.webhooks.startService()

    def close_webhooks(self) -> None:
        stopped = self.webhooks.stopService()
        # A turn under way may wait for the mempool to take back what a reorganisation put out.
        for _ in range(20):
            self.clock.advance(0)
        result_of(stopped)
        result_of(Deferred.fromCoroutine(self.database.close()))

    def close(self) -> None:
        self.close_webhooks()
        self.node.close()

    def again(self) -> None:
        """Stop and start the node."""
        builder = self.node.builder
        self.close()
        self.open()
        self.node.builder = builder

    @property
    def node_context(self) -> NodeContext:
        return self.node.node_context

    def request(
        self,
        reference: str = "order-1",
        amount: int = 5000,
        *,
        recipient: str = "bob",
        required: int = 3,
        since: int | None = None,
        ttl: int = 3600,
        pay_within: int | None = None,
        host: str = "shop.example.com",
        port: int = 443,
        events: Collection[str] = DEFAULT_EVENTS,
        merchant: str = "default",
    ) -> WatchRequest:
        terms = PaymentTerms(reference, self.node.address(recipient), amount, required, since)
        return WatchRequest(
            merchant=merchant,
            terms=terms,
            callback_url=f"https://{host}/paid" if port == 443 else f"https://{host}:{port}/paid",
            host=host,
            ttl_ms=1000 * ttl,
            pay_within_ms=None if pay_within is None else 1000 * pay_within,
            events=frozenset(map(EventType, events)),
        )

    def register(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Begin a watch; gives the subscription."""
        return self.begin(self.request(*args, **kwargs))

    def begin(self, request: WatchRequest) -> dict[str, Any]:
        registering: Deferred[dict[str, Any]] = Deferred.fromCoroutine(self.webhooks.register(request))
        return result_of(registering)

    def show(self, identifier: str, merchant: str = "default") -> dict[str, Any]:
        shown: Any = result_of(Deferred.fromCoroutine(self.webhooks.show(merchant, identifier)))
        return shown

    def cancel(self, identifier: str, merchant: str = "default") -> dict[str, Any]:
        cancelled: Any = result_of(Deferred.fromCoroutine(self.webhooks.cancel(merchant, identifier)))
        return cancelled

    def pay(self, text: str) -> bytes:
        """Broadcast a transfer such as "5000 from alice to bob for order-1"; gives its id."""
        amount, _, sender, _, recipient, *rest = text.split()
        node_context = self.node_context
        account = node_context.chain_manager.reader.account(key_of(sender).hash)
        nonce = 0 if account is None else account.nonce
        transfer = self.node.builder.transfer(
            sender, recipient, int(amount), nonce=nonce, reference=rest[1] if rest else None
        )
        submitted(node_context.transaction_pool, transfer, self.clock)
        return transfer.txid

    def clean_up(self) -> None:
        result_of(self.webhooks.clean_up())

    def wait_for_database(self) -> None:
        """Wait until PostgreSQL answers again, which is polled for."""
        until = time.monotonic() + 60
        while self.node.databases.unavailable:
            assert time.monotonic() < until, self.node.databases.unavailable
            time.sleep(0.05)
            self.poll()

    def poll(self) -> None:
        """What the timer does."""
        self.webhooks.poll()

    def events(self) -> list[dict[str, Any]]:
        """The bodies of all undelivered events, which become delivered; in order within a watch."""
        bodies = []
        while self.queues.pending:
            _, queue = self.queues.pending.popitem()
            event = result_of(self.outbox.head(queue.watch, self.leadership.term or 0))
            if event is None:
                continue
            bodies.append(json.loads(event.body))
            more = result_of(self.outbox.delivered(event, 0))
            if more is not None:
                self.queues.pending[more.watch] = more
        return bodies

    def attempt(self, answer: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
        """Attempt what is due; the receiver takes, refuses or fails on each event. Gives the bodies that it takes."""
        taken, later, now = [], dict[str, WatchQueue](), milliseconds(self.clock)
        while self.queues.pending:
            identifier, queue = self.queues.pending.popitem()
            event = result_of(self.outbox.head(queue.watch))
            if event is None:
                continue
            body = json.loads(event.body)
            match answer(body):
                case "take":
                    taken.append(body)
                    more = result_of(self.outbox.delivered(event, now))
                case "fail":
                    more = result_of(self.outbox.failed(event, error="status 500", due=now + 60_000, now=now))
                case "refuse":
                    due = None if event.refusals else now + 60_000
                    refusing = self.outbox.refused(event, error="status 400", due=due, due_if_followed=now, now=now)
                    more = result_of(refusing)
                case other:
                    raise AssertionError(other)
            if more is not None:
                (self.queues.pending if more.due <= now else later)[identifier] = more
        self.queues.pending |= later
        return taken

    def redeliver(self, identifier: str, event: str, merchant: str = "default") -> None:
        """Ask for an event again."""
        assert result_of(Deferred.fromCoroutine(self.webhooks.redeliver(merchant, identifier, event))) is not None

    def told(self) -> list[str]:
        """The undelivered events: type, state and confirmations of each."""
        return [
            f"{body['event'].removeprefix('payment.')}: {body['payment']['state']} {body['payment']['confirmations']}"
            for body in self.events()
        ]
