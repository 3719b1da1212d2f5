"""The open orders of a shop, and what happens to them, from one feed: the steps of :mod:`svc_pay.order_book`."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Final, TypeVar

from svc_pay.calls import LONGEST_WAIT, Blocking, Pause, Steps, feed
from svc_pay.chain import Network, check_address, check_number, network_of
from svc_pay.client import AsyncClient, Client
from svc_pay.errors import InvalidInput, StoreError
from svc_pay.model import Order
from svc_pay.order_book import (
    FeedAnswer,
    Moment,
    OpenOrder,
    Place,
    evaluate,
    moved,
    new_order,
    reaches_tip,
    record,
)
from svc_pay.order_store import OrderStore, StoredOrder, Update
from svc_pay.webhooks import WatchEvent, parse_event

T = TypeVar("T")

_AT_ONCE: Final = 1_000
"""Orders that are evaluated in one transaction."""
_EVENTS: Final = 100
_SHORT_WAIT: Final = 5
"""Seconds of a wait while payments gain confirmations: a block that pays the shop nothing does not end it."""
_UNSYNCED_PAUSE: Final = 2
_PAUSE: Final = 1
"""Seconds between answers without an entry that may not have reached the tip."""
_ANOTHER: Final = "another program reads the feed for this store of open orders"
_JUMP: Final = 30
"""From so many seconds on a change of the clock beside one that runs evenly is a jump."""
_STEADY: Final = 300
"""Seconds for which a clock that has jumped must run evenly before an order expires by it."""
_NEVER: Final = 2**53
"""A height that no transfer is above, and a time that has not come."""


class OrderSteps:
    """What both classes below do, as generators."""

    def __init__(
        self,
        node: Client | AsyncClient,
        recipient: str,
        store: OrderStore,
        *,
        since_height: int,
        clock: Callable[[], float],
        even_clock: Callable[[], float],
    ) -> None:
        self.network: Final[Network] = node.network or network_of(recipient)
        check_address(recipient, self.network)
        self._recipient = recipient
        self._store = store
        self._first = Place(recipient, self.network.genesis_hash, since=check_number(since_height, "since_height"))
        self._clock = clock
        self._even_clock = even_clock
        self._lead = clock() - even_clock()
        self._jumped: float | None = None
        """When the clock has last jumped; None if it has been steady since."""

    def now(self) -> int:
        """Unix milliseconds."""
        return int(self._clock() * 1000)

    def is_steady(self) -> bool:
        """Look at the clocks, and return whether an order may expire: one wrong second must not be final."""
        even = self._even_clock()
        before, self._lead = self._lead, self._clock() - even
        if abs(self._lead - before) >= _JUMP:
            self._jumped = even
        elif self._jumped is not None and even - self._jumped >= _STEADY:
            self._jumped = None
        return self._jumped is None

    # Orders

    def add(self, order: Order, pay_until: int | None) -> Steps[None]:
        """See :meth:`Orders.add`."""
        if (order.recipient, order.network) != (self._recipient, self.network):
            raise InvalidInput(f"these are the orders of {self._recipient}; that of {order.recipient} is none of them")
        if pay_until is not None:
            check_number(pay_until, "pay_until")
        # Nothing would tell of an order in the store of another feed.
        yield from self.place()
        added = new_order(order, pay_until, self.now())
        yield from _blocking(lambda: self._store.write(Update(added=[added.stored])))
        for found in (yield from self.open([order.reference])).values():
            if (found.order, found.pay_until) != (order, pay_until):
                raise InvalidInput(f"there is another open order with the reference {order.reference}")

    def remove(self, reference: str) -> Steps[None]:
        """See :meth:`Orders.remove`."""
        yield from _blocking(lambda: self._store.write(Update(removed=reference)))

    def open(self, references: Sequence[str]) -> Steps[dict[str, OpenOrder]]:
        """Those of the store with these references."""
        return self.read((yield from _blocking(lambda: self._store.orders(references))))

    def affected(
        self, *, height: int = -1, now: int = -1, above: int = _NEVER, limit: int = _AT_ONCE, after: str = ""
    ) -> Steps[dict[str, OpenOrder]]:
        """Those of the store to be looked at, behind the reference ``after``."""
        return self.read(
            (
                yield from _blocking(
                    lambda: self._store.affected(height=height, now=now, above=above, after=after, limit=limit)
                )
            )
        )

    def read(self, rows: Sequence[StoredOrder]) -> dict[str, OpenOrder]:
        """The orders in rows, by reference."""
        return {row.reference: OpenOrder.of(row, self._recipient, self.network) for row in rows}

    # The place in the feed

    def place(self) -> Steps[tuple[str | None, Place]]:
        """The place that is stored, as text, too; raises StoreError if it is that of another feed."""
        text = yield from _blocking(self._store.place)
        place = self._first if text is None else Place.of(text)
        if (place.recipient, place.genesis) != (self._first.recipient, self._first.genesis):
            raise StoreError(f"the store has the open orders of {place.recipient}, not those of {self._recipient}")
        return text, place

    def events(self) -> Steps[Sequence[tuple[int, str]]]:
        """The oldest events that are stored."""
        return (yield from _blocking(lambda: self._store.events(_EVENTS)))

    def forget(self, number: int) -> Steps[None]:
        """Remove the events up to this number."""
        yield from _blocking(lambda: self._store.write(Update(told=number)))

    def write(self, update: Update) -> Steps[None]:
        """Write what an answer has changed."""
        if not (yield from _blocking(lambda: self._store.write(update))):
            raise StoreError(_ANOTHER)


class Reading:
    """One iteration over the events of a store, which asks the feed when there are none."""

    def __init__(self, steps: OrderSteps) -> None:
        self._steps = steps
        self._events: deque[tuple[int, str]] = deque()
        self._handled: int | None = None
        self._stored: str | None = None
        self._place: Place | None = None
        self._wait = 0
        """Of the next question; 0 until all that is known has been evaluated."""
        self._empty = False
        """Whether the last answer had no entry, and may not have reached the tip."""

    def next(self) -> Steps[WatchEvent]:
        """The next event, after the one before was removed from the store."""
        if self._handled is not None:
            yield from self._steps.forget(self._handled)
            self._handled = None
        while not self._events:
            self._events.extend((yield from self._steps.events()))
            if not self._events:
                yield from self._ask()
        self._handled, body = self._events.popleft()
        event = parse_event(body.encode())
        if not isinstance(event, WatchEvent):
            raise StoreError("the store of open orders is damaged: an event cannot be read")
        return event

    def _ask(self) -> Steps[None]:
        """Ask the feed once, and store what the answer says, with the events that follow."""
        if self._place is None:
            self._stored, self._place = yield from self._steps.place()
        place = self._place
        answer = yield from feed(place, wait=self._wait)
        if (yield from self._steps.place())[0] != self._stored:
            raise StoreError(_ANOTHER)
        if not answer.synced:
            # Whatever it says, the chain may not be the network's.
            self._wait = 0
            yield Pause(_UNSYNCED_PAUSE)
        elif reaches_tip(place, answer):
            self._empty = False
            yield from self._evaluate(place, answer)
        else:
            yield from self._record(place, answer)

    def _record(self, place: Place, answer: FeedAnswer) -> Steps[None]:
        orders: dict[str, OpenOrder] = {}
        after = ""
        while answer.rewind is not None:
            some = yield from self._steps.affected(above=answer.rewind, after=after)
            orders |= some
            if len(some) < _AT_ONCE:
                break
            after = max(some)
        references = {paid.reference for paid in answer.payments if paid.reference is not None}
        orders |= yield from self._steps.open(sorted(references - orders.keys()))
        changed = record(orders, answer)
        yield from self._write(moved(place, answer), [each.stored for each in changed], [])
        was_empty, self._empty = self._empty, answer.rewind is None and not answer.payments
        self._wait = 0
        if was_empty and self._empty:
            yield Pause(_PAUSE)

    def _evaluate(self, place: Place, answer: FeedAnswer) -> Steps[None]:
        """Evaluate the orders that the answer affects, in several transactions; with the last one the place moves.

        Until then the same is evaluated again after a kill, and says nothing again.
        """
        moment = Moment.of(answer, self._steps.now(), may_end=self._steps.is_steady())
        yield from self._evaluate_some(place, (yield from self._steps.open(sorted(moment.waiting))), moment)
        after = ""
        while True:
            some = yield from self._steps.affected(height=answer.tip.height, now=moment.awaited, after=after)
            if len(some) < _AT_ONCE:
                break
            yield from self._evaluate_some(self._place or place, some, moment)
            after = max(some)
        yield from self._evaluate_some(moved(place, answer), some, moment)
        # Payments that gain confirmations, and deadlines that are near.
        soon = yield from self._steps.affected(
            height=answer.tip.height + 1, now=moment.awaited + 1000 * LONGEST_WAIT, limit=1
        )
        self._wait = _SHORT_WAIT if soon else LONGEST_WAIT

    def _evaluate_some(self, place: Place, orders: Mapping[str, OpenOrder], moment: Moment) -> Steps[None]:
        changed: list[StoredOrder] = []
        events: list[str] = []
        for before in orders.values():
            after, bodies = evaluate(before, moment)
            if after != before:
                changed.append(after.stored)
            events += bodies
        yield from self._write(place, changed, events)

    def _write(self, place: Place, changed: Sequence[StoredOrder], events: Sequence[str]) -> Steps[None]:
        before = self._place
        if before is not None and not changed and not events and replace(place, step=before.step) == before:
            return
        place = replace(place, step=(before or place).step + 1)
        yield from self._steps.write(Update(changed=changed, events=events, place=(self._stored, place.text)))
        self._stored, self._place = place.text, place


def _blocking(work: Callable[[], T]) -> Steps[T]:
    """The result of work that waits for a disk."""
    results: list[T] = []
    yield Blocking(lambda: results.append(work()))
    return results[0]


class Orders:
    """The open orders to one recipient, and what happens to them, with the synchronous client.

    Everything is in ``store``; nothing is registered with the node. The feed is read from ``since_height`` on if the
    store is new. ``clock`` gives the Unix time in seconds, and ``even_clock`` seconds that nobody sets. Any number of
    threads and processes may add and remove orders; one of them iterates over :meth:`changes`.
    """

    def __init__(
        self,
        node: Client,
        recipient: str,
        store: OrderStore,
        *,
        since_height: int = 0,
        clock: Callable[[], float] = time,
        even_clock: Callable[[], float] = monotonic,
    ) -> None:
        self._node = node
        self._steps = OrderSteps(node, recipient, store, since_height=since_height, clock=clock, even_clock=even_clock)

    def add(self, order: Order, pay_until: int | None = None) -> None:
        """Follow an order, before its buyer learns the reference: what the feed has told before is not told again.

        ``pay_until`` is the buyer's deadline in Unix milliseconds: until then the payment must have been seen, in the
        mempool or in a block; `payment.expired` is told a minute later. The same order again changes nothing; other
        terms under its reference raise InvalidInput, and a store that has the feed of another address StoreError.
        """
        self._node._run(self._steps.add(order, pay_until))

    def remove(self, reference: str) -> None:
        """Follow an order no longer: nothing of it happens any more, not even that it is paid twice or undone."""
        self._node._run(self._steps.remove(reference))

    def changes(self) -> Iterator[WatchEvent]:
        """The events of all open orders, as webhooks tell them, without end; waits for the next one.

        An event is removed from the store when the next one is asked for: after an interruption the last one comes
        again, with the same id. An error ends the iteration and loses nothing: iterate again after a while.
        """
        reading = Reading(self._steps)
        while True:
            yield self._node._run(reading.next())


class AsyncOrders:
    """The open orders to one recipient, and what happens to them, with the asynchronous client.

    As :class:`Orders`; the store is called in threads.
    """

    def __init__(
        self,
        node: AsyncClient,
        recipient: str,
        store: OrderStore,
        *,
        since_height: int = 0,
        clock: Callable[[], float] = time,
        even_clock: Callable[[], float] = monotonic,
    ) -> None:
        self._node = node
        self._steps = OrderSteps(node, recipient, store, since_height=since_height, clock=clock, even_clock=even_clock)

    async def add(self, order: Order, pay_until: int | None = None) -> None:
        """See :meth:`Orders.add`."""
        await self._node._run(self._steps.add(order, pay_until))

    async def remove(self, reference: str) -> None:
        """See :meth:`Orders.remove`."""
        await self._node._run(self._steps.remove(reference))

    async def changes(self) -> AsyncIterator[WatchEvent]:
        """See :meth:`Orders.changes`."""
        reading = Reading(self._steps)
        while True:
            yield await self._node._run(reading.next())
