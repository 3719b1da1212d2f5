"""Verifications that wait until a payment changes: the long poll of docs/payments.md "Waiting for a change"."""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

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

_WAITING: Final = "Endless waiting verifications, to use up connections"
MAX_SECONDS: Final = limit(30, "time that a verification waits", "seconds", _WAITING)
"""How long a verification may wait; less than the time-outs of common proxies."""
MAX_WAITING: Final = limit(500, "verifications that wait", "verifications", _WAITING)
"""How many wait at once; at most half of the connections, so that others get an answer."""
MAX_WAITING_OF_CLIENT: Final = limit(32, "verifications of one client that wait", "verifications", _WAITING)
TURN_SECONDS: Final = 0.002
"""How long one turn of the reactor checks waiters; each takes 0.1 ms, and 4 ms with 1,900 wrong amounts."""


_Payee = tuple[str, bytes]


class TooManyWaiting(Exception):
    """No further verification may wait at present; the text is a sentence for the client."""


@define(eq=False)
class _Waiter:
    """One waiting verification."""

    terms: PaymentTerms
    timer: Timer | None = None
    _woken: Deferred[None] | None = field(default=None, init=False)

    @property
    def payee(self) -> _Payee:
        return self.terms.reference, self.terms.key

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


class PaymentWaiters(Service):
    """Wakes verifications when chain or mempool may have changed their payment; as a service it ends all waits.

    ``connections`` is how many connections the site may have; waiting verifications take half of them at most.
    """

    def __init__(self, payments: PaymentLookup, clock: Clock, *, connections: int = 0) -> None:
        self._payments = payments
        self._clock = clock
        self.set_connections(connections)
        self._by_payee: dict[_Payee, dict[_Waiter, None]] = {}
        self._of_client: Counter[str] = Counter()
        self._count = 0
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
        self._max_waiting = min(MAX_WAITING, connections // 2) if connections else MAX_WAITING

    def __len__(self) -> int:
        return self._count

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
        with self._waiter(terms, client) as waiter:
            waiter.timer = self._clock.callLater(seconds, waiter.time_is_up)
            while True:
                await waiter.sleep()
                now = self._payments.find(terms)
                if self._ended or waiter.timer is None or _shown(terms, now) != _shown(terms, first):
                    return now

    def chain_changed(self, change: ChainChange) -> None:
        """Wake all waiters: every payment may have changed, at least in its depth."""
        for waiters in self._by_payee.values():
            self._look_at(waiters)

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Collection[MempoolEntry]) -> None:
        """Wake the waiters for the payments of these transfers' payees."""
        if not self._by_payee:
            return
        for entry in (*added, *removed):
            payee = (entry.transfer.reference or "", entry.transfer.recipient)
            self._look_at(self._by_payee.get(payee, {}))

    def stop_accepting(self) -> None:
        """Answer all waiting verifications, and let none wait any more; see `svcd.process.sequential`."""
        self._ended = True
        for waiters in self._by_payee.values():
            self._look_at(waiters)

    @contextmanager
    def _waiter(self, terms: PaymentTerms, client: str | None) -> Iterator[_Waiter]:
        address = None if client is None else parse_address(client)
        group = "" if address is None else client_group(address)
        if self._count >= self._max_waiting:
            raise TooManyWaiting(f"{self._count} verifications wait already; try again later, or without wait")
        if group and self._of_client[group] >= MAX_WAITING_OF_CLIENT:
            raise TooManyWaiting(
                f"{MAX_WAITING_OF_CLIENT} verifications of this client wait already; try again later, or without wait"
            )
        waiter = _Waiter(terms)
        self._count += 1
        self._of_client[group] += 1
        self._by_payee.setdefault(waiter.payee, {})[waiter] = None
        try:
            yield waiter
        finally:
            waiter.leave()
            self._count -= 1
            self._of_client[group] -= 1
            if not self._of_client[group]:
                del self._of_client[group]
            waiters = self._by_payee[waiter.payee]
            del waiters[waiter]
            if not waiters:
                del self._by_payee[waiter.payee]

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
