"""Requests that wait for payments: the long polls of docs/payments.md, of one payment and of the feed of an address."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred

from svcd.commerce.payment import Observation, PaymentState, payment_state
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_request import PaymentTerms
from svcd.interfaces import Clock, Timer
from svcd.ip_addresses import parse_address
from svcd.limits import limit
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange
from svcd.node.mempool import MempoolEntry
from svcd.node.transaction_pool import TransactionPool
from svcd.web.rate_limits import client_group

_WAITING: Final = "Endless waiting verifications and feeds, to use up connections"
MAX_SECONDS: Final = limit(30, "time that a verification or a feed waits", "seconds", _WAITING)
"""How long a request may wait; less than the time-outs of common proxies."""
MAX_WAITING: Final = limit(500, "verifications that wait", "verifications", _WAITING)
"""How many wait at once: each block may change them all."""
MAX_FEEDS: Final = limit(10_000, "feeds that wait", "feeds", _WAITING)
"""How many wait at once. With the verifications at most half of the connections, so that others get an answer."""
MAX_WAITING_OF_CLIENT: Final = limit(32, "requests of one client that wait", "requests", _WAITING)
TURN_SECONDS: Final = 0.002
"""How long one turn of the reactor checks waiters; each takes 0.1 ms, and 4 ms with 1,900 wrong amounts."""

T = TypeVar("T")
Awaited = tuple[str, bytes] | bytes
"""What a request waits for: the payee (reference and key hash) of a verification, or the recipient of a feed."""


class TooManyWaiting(Exception):
    """No further request may wait at present; the text is a sentence for the client."""


@define(eq=False)
class _Waiter:
    """One waiting request."""

    timer: Timer | None = None
    _woken: Deferred[None] | None = field(default=None, init=False)

    def sleep(self) -> Deferred[None]:
        """Fires when it is woken."""
        self._woken = Deferred()
        return self._woken

    def wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is not None:
            woken.callback(None)

    def time_is_up(self) -> None:
        self.timer = None
        self.wake()

    def leave(self) -> None:
        """It waits no more, but may still be in the queue of waiters to wake."""
        self._woken = None
        if self.timer is not None:
            self.timer.cancel()


@define(eq=False)
class _Room:
    """Those who wait for one kind of thing: ``most`` at once."""

    most: int
    waiters: dict[Awaited, dict[_Waiter, None]] = field(factory=dict)
    count: int = 0


class PaymentWaiters(Service):
    """Wakes requests when chain or mempool may have changed what they wait for; as a service it ends all waits.

    ``connections`` is how many connections the site may have; waiting requests take half of them at most.
    """

    def __init__(self, payments: PaymentLookup, clock: Clock, *, connections: int = 0) -> None:
        self._payments = payments
        self._clock = clock
        self.set_connections(connections)
        self._verifications, self._feeds = _Room(MAX_WAITING), _Room(MAX_FEEDS)
        self._of_client: Counter[str] = Counter()
        self._due: deque[_Waiter] = deque()
        self._is_due: set[_Waiter] = set()
        self._ended = False

    @classmethod
    def subscribed(
        cls,
        payments: PaymentLookup,
        chain_manager: ChainManager,
        pool: TransactionPool,
        *,
        clock: Clock,
        connections: int = 0,
    ) -> "PaymentWaiters":
        """The waiters of a running node; subscribes after ``payments``, which must know of each change first."""
        waiters = cls(payments, clock, connections=connections)
        chain_manager.subscribe(waiters)
        pool.subscribe(waiters)
        return waiters

    def set_connections(self, connections: int) -> None:
        """Change how many connections the site may have; 0 for any number."""
        self._max_waiting = connections // 2 if connections else MAX_WAITING + MAX_FEEDS

    def __len__(self) -> int:
        return self._verifications.count + self._feeds.count

    async def changed(
        self, terms: PaymentTerms, state: PaymentState, *, seconds: float, client: str | None
    ) -> Observation:
        """The observation once the payment is not, or no longer, as its client knows it; at the latest in ``seconds``.

        That is at once if its state is not ``state``, and otherwise as soon as anything of it changes. ``client`` is
        the client's address, None for one without limits. Raises TooManyWaiting.
        """
        first = self._payments.find(terms)
        if self._ended or payment_state(terms, first) is not state:
            return first

        def changed() -> Observation | None:
            now = self._payments.find(terms)
            return now if _shown(terms, now) != _shown(terms, first) else None

        payee = terms.reference, terms.key
        return await self.until(payee, changed, seconds=seconds, client=client) or self._payments.find(terms)

    async def until(
        self, awaited: Awaited, look: Callable[[], T | None], *, seconds: float, client: str | None
    ) -> T | None:
        """What ``look`` gives, which is called whenever there may be something; None if there is not in ``seconds``.

        And at once after the end of all waits. ``client`` as above. Raises TooManyWaiting, and what ``look`` raises.
        """
        if self._ended:
            return None
        with self._waiter(awaited, client) as waiter:
            waiter.timer = self._clock.callLater(seconds, waiter.time_is_up)
            while True:
                await waiter.sleep()
                if self._is_over(waiter):
                    return None
                found = look()
                if found is not None:
                    return found

    def chain_changed(self, change: ChainChange) -> None:
        """Wake all verifications, whose payments have changed at least in their depth, and the feeds of who was paid.

        All feeds if blocks were undone, which each of them has told.
        """
        for waiters in self._verifications.waiters.values():
            self._look_at(waiters)
        feeds = self._feeds.waiters
        # All accounts that the blocks touched, among them those of the recipients.
        touched = feeds.keys() if change.undone or change.accounts is None or not change.names_all else change.accounts
        for recipient in feeds.keys() & touched:
            self._look_at(feeds[recipient])

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Collection[MempoolEntry]) -> None:
        """Wake the waiters for payments to these transfers' payees."""
        if not len(self):
            return
        for entry in (*added, *removed):
            recipient = entry.transfer.recipient
            self._look_at(self._verifications.waiters.get((entry.transfer.reference or "", recipient), {}))
            self._look_at(self._feeds.waiters.get(recipient, {}))

    def stop_accepting(self) -> None:
        """Answer all waiting requests, and let none wait any more; see `svcd.process.sequential`."""
        self._ended = True
        for waiters in (*self._verifications.waiters.values(), *self._feeds.waiters.values()):
            self._look_at(waiters)

    def _is_over(self, waiter: _Waiter) -> bool:
        return self._ended or waiter.timer is None

    @contextmanager
    def _waiter(self, awaited: Awaited, client: str | None) -> Iterator[_Waiter]:
        room = self._feeds if isinstance(awaited, bytes) else self._verifications
        address = None if client is None else parse_address(client)
        group = "" if address is None else client_group(address)
        if len(self) >= self._max_waiting or room.count >= room.most:
            raise TooManyWaiting(f"{len(self)} requests wait already; try again later, or without wait")
        if group and self._of_client[group] >= MAX_WAITING_OF_CLIENT:
            raise TooManyWaiting(
                f"{MAX_WAITING_OF_CLIENT} requests of this client wait already; try again later, or without wait"
            )
        waiter = _Waiter()
        room.count += 1
        self._of_client[group] += 1
        room.waiters.setdefault(awaited, {})[waiter] = None
        try:
            yield waiter
        finally:
            waiter.leave()
            room.count -= 1
            self._of_client[group] -= 1
            if not self._of_client[group]:
                del self._of_client[group]
            del room.waiters[awaited][waiter]
            if not room.waiters[awaited]:
                del room.waiters[awaited]

    def _look_at(self, waiters: dict[_Waiter, None]) -> None:
        for waiter in waiters:
            if waiter not in self._is_due:
                if not self._due:
                    self._clock.callLater(0, self._look)
                self._due.append(waiter)
                self._is_due.add(waiter)

    def _look(self) -> None:
        end = self._clock.seconds() + TURN_SECONDS
        while self._due:
            waiter = self._due.popleft()
            self._is_due.remove(waiter)
            waiter.wake()
            if self._clock.seconds() >= end:
                break
        if self._due:
            self._clock.callLater(0, self._look)


def _shown(terms: PaymentTerms, observation: Observation) -> tuple[object, ...]:
    """The part of an observation that clients see, without the fields that every block changes."""
    depth = min(observation.confirmations, terms.required)
    return depth, observation.location, observation.pending, observation.match_count, observation.mismatches
