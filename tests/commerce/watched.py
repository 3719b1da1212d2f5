"""A node in memory with webhooks on it, and a receiver that takes every event at once."""

import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from svcd.commerce.desk import Files, open_desk
from svcd.commerce.desk import Terms as DeskTerms
from svcd.commerce.outbox import Lane
from svcd.commerce.payment import Terms
from svcd.commerce.stored_outbox import StoredOutbox
from svcd.commerce.subscriptions import Order
from svcd.commerce.webhooks import Surroundings, Webhooks
from svcd.node.guard import Guard
from svcd.node.living import LivingChain
from svcd.ports import milliseconds
from tests.chains import key_of
from tests.handing_in import handed_in
from tests.rpc.node import Inline, Node, Settings
from tests.support import result_of


class Lanes:
    """Notes which watches have something to send."""

    def __init__(self) -> None:
        self.awake: dict[str, Lane] = {}

    def wake(self, lanes: Iterable[Lane]) -> None:
        self.awake |= {lane.watch: lane for lane in lanes}

    def cancel(self, watch: str) -> None:
        self.awake.pop(watch, None)

    def stop(self) -> "Deferred[None]":
        return succeed(None)


class Watched:
    """A node and its webhooks; `again` closes both and opens them anew, as a restart does."""

    def __init__(self, folder: Path, clock: Clock, **settings: Any) -> None:
        self.folder = folder
        self.clock = clock
        self.synced = True
        self.every_depth = True
        self.busy = False
        self.naps: list[float] = []
        self.numbers = count(1)
        self._settings = Settings(**settings)
        self.open()

    def open(self) -> None:
        self.node = Node(self.folder / "chain.sqlite", self.clock, self._settings)
        self.open_webhooks()

    def open_webhooks(self) -> None:
        terms = DeskTerms(
            every_depth=self.every_depth,
            new_id=lambda: f"svcwh_{next(self.numbers):032x}",
            now=lambda: milliseconds(self.clock),
        )
        opening = open_desk(
            self.node.params,
            self.folder,
            chain=self.folder / "chain.sqlite",
            worker=Inline(),
            guard=Guard(lambda: None),
            terms=terms,
        )
        self.desk = result_of(Deferred.fromCoroutine(opening))
        living = self.node.living
        self.node.files = Files(living, self.desk)
        self.lanes = Lanes()
        around = Surroundings(
            clock=self.clock,
            synced=lambda: self.synced,
            busy=lambda: self.busy,
            settled=living.transfers.settled,
            nap=self.naps.append,
        )
        self.webhooks = Webhooks(self.desk.subscriptions, self.desk.worker, sender=self.lanes, surroundings=around)
        self.outbox = StoredOutbox(self.desk.subscriptions, self.desk.worker)
        self.webhooks.begin(living.transfers.mempool.entries())
        living.ledger.subscribe(self.webhooks)
        living.transfers.subscribe(self.webhooks)
        self.webhooks.startService()

    def close_webhooks(self) -> None:
        stopped = Deferred.fromCoroutine(self.webhooks.stopService())
        # A turn under way may wait for the mempool to take back what a reorganisation put out.
        for _ in range(20):
            self.clock.advance(0)
        result_of(stopped)
        result_of(Deferred.fromCoroutine(self.desk.close()))

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
    def living(self) -> LivingChain:
        return self.node.living

    def order(
        self,
        reference: str = "order-1",
        amount: int = 5000,
        *,
        recipient: str = "bob",
        required: int = 3,
        since: int | None = None,
        ttl: int = 3600,
        host: str = "shop.example.com",
    ) -> Order:
        terms = Terms(reference, self.node.address(recipient), amount, required, since)
        return Order(terms=terms, callback_url=f"https://{host}/paid", host=host, ttl_ms=1000 * ttl)

    def register(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Begin a watch; gives the subscription."""
        return self.begin(self.order(*args, **kwargs))

    def begin(self, order: Order) -> dict[str, Any]:
        registering: Deferred[dict[str, Any]] = Deferred.fromCoroutine(self.webhooks.register(order))
        return result_of(registering)

    def show(self, identifier: str) -> dict[str, Any]:
        shown: Any = result_of(Deferred.fromCoroutine(self.webhooks.show(identifier)))
        return shown

    def cancel(self, identifier: str) -> dict[str, Any]:
        cancelled: Any = result_of(Deferred.fromCoroutine(self.webhooks.cancel(identifier)))
        return cancelled

    def pay(self, text: str) -> bytes:
        """Broadcast a transfer such as "5000 from alice to bob for order-1"; gives its id."""
        amount, _, sender, _, recipient, *rest = text.split()
        living = self.living
        account = living.ledger.reader.account(key_of(sender).hash)
        nonce = 0 if account is None else account.nonce
        transfer = self.node.builder.transfer(
            sender, recipient, int(amount), nonce=nonce, reference=rest[1] if rest else None
        )
        handed_in(living.transfers, transfer, self.clock)
        return transfer.txid

    def tidy(self) -> None:
        result_of(self.webhooks.tidy())

    def look(self) -> None:
        """What the timer does."""
        self.webhooks.look()

    def events(self) -> list[dict[str, Any]]:
        """The bodies of all events that wait, each taken by its receiver; in order within a watch."""
        bodies = []
        while self.lanes.awake:
            _, lane = self.lanes.awake.popitem()
            parcel = result_of(self.outbox.head(lane.watch))
            if parcel is None:
                continue
            bodies.append(json.loads(parcel.body))
            more = result_of(self.outbox.delivered(parcel, 0))
            if more is not None:
                self.lanes.awake[more.watch] = more
        return bodies

    def told(self) -> list[str]:
        """The names of the events that wait, with the state and depth that they tell."""
        return [
            f"{body['event'].removeprefix('payment.')}: {body['payment']['state']} {body['payment']['confirmations']}"
            for body in self.events()
        ]
