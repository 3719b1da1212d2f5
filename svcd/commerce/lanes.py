"""Which event is sent next (docs/webhooks.md "Attempts"): no receiver waits for another one.

A lane is a watch that has something to send. Of one lane one event is under way at a time; of one host at most four,
and of all 32. Hosts whose turn it is stand in a queue, and each sends one lane before it goes to the queue's end.
Times are milliseconds since the Unix epoch.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from attrs import define

from svcd.commerce.callback_host import CallbackHost, Change, Entry, Outcome, Turn
from svcd.commerce.outbox import Lane

PLACES: Final = 32
"""Deliveries under way at a time."""
_FEW: Final = 64


@define(eq=False)
class _Flight:
    host: CallbackHost
    woken: Lane | None = None
    """What became due meanwhile."""
    cancelled: bool = False


class Lanes:
    """All lanes that wait or are under way. Call ``take`` until it gives nothing, then again at ``next_at``."""

    def __init__(self) -> None:
        self._hosts: dict[str, CallbackHost] = {}
        self._waiting: dict[str, Entry] = {}
        self._flying: dict[str, _Flight] = {}
        self._queue: deque[CallbackHost] = deque()
        self._timers: list[tuple[int, int, CallbackHost]] = []
        self._serial = count(1)
        self._broken = 0

    @property
    def waiting(self) -> int:
        """Lanes that wait."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Lanes whose turn it is."""
        return len(self._flying)

    @property
    def broken(self) -> int:
        """Hosts whose breaker is open."""
        return self._broken

    @property
    def hosts(self) -> int:
        """Hosts that are remembered: those with a lane."""
        return len(self._hosts)

    def put(self, lane: Lane, now: int) -> None:
        """A lane has something to send; what was known of it before no longer counts."""
        flight = self._flying.get(lane.watch)
        if flight is not None:
            flight.woken = None if flight.cancelled else lane
            return
        entry = self._waiting.get(lane.watch)
        if entry is not None:
            if entry.lane == lane:
                return
            # The host is not forgotten meanwhile, nor that it is broken.
            self._hosts[entry.lane.host].drop(entry)
        self._add(lane, now, patient=False)

    def cancel(self, watch: str, now: int) -> None:
        """A watch has ended: it gets no further turn."""
        flight = self._flying.get(watch)
        if flight is not None:
            flight.woken, flight.cancelled = None, True
        entry = self._waiting.pop(watch, None)
        if entry is not None:
            host = self._hosts[entry.lane.host]
            host.drop(entry)
            self._place(host, now)

    def take(self, now: int) -> Turn | None:
        """Whose turn it is; it is under way until ``end`` is called."""
        if len(self._flying) >= PLACES:
            return None
        while self._timers and self._timers[0][0] <= now:
            _, serial, host = heappop(self._timers)
            if serial == host.timer:
                host.timer = 0
                self._place(host, now)
        while self._queue:
            host = self._queue.popleft()
            host.queued = False
            taken = host.take(now)
            if taken is not None:
                del self._waiting[taken[0].lane.watch]
                self._flying[taken[0].lane.watch] = _Flight(host)
            self._place(host, now)
            if taken is not None:
                return taken[1]
        return None

    def end(self, turn: Turn, outcome: Outcome, again: Lane | None, now: int) -> Change:
        """A turn is over, and ``again`` is when the lane's next one is due, if it has something to send still."""
        flight = self._flying.pop(turn.lane.watch)
        host = flight.host
        change = host.ended(turn, outcome, now)
        self._broken += (change is Change.OPENED) - (change is Change.CLOSED)
        if again is not None and not flight.cancelled:
            in_vain = outcome is Outcome.REFUSED or (turn.early and outcome is not Outcome.ACCEPTED)
            self._add(again, now, patient=in_vain)
        elif flight.woken is not None:
            self._add(flight.woken, now, patient=False)
        self._place(host, now)
        return change

    def next_at(self, now: int) -> int | None:
        """When ``take`` may give something again; None if not before a turn ends or a lane is put."""
        if len(self._flying) >= PLACES:
            return None
        if self._queue:
            return now
        while self._timers and self._timers[0][1] != self._timers[0][2].timer:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _add(self, lane: Lane, now: int, *, patient: bool) -> None:
        host = self._hosts.setdefault(lane.host, CallbackHost(lane.host))
        entry = self._waiting[lane.watch] = Entry(lane)
        host.add(entry, patient=patient)
        self._place(host, now)

    def _place(self, host: CallbackHost, now: int) -> None:
        """Put a host into the queue or under a timer, or forget it, whichever is right."""
        if not host.lanes and not host.in_flight:
            self._forget(host)
        if host.queued:
            return
        ready_at = host.ready_at()
        if ready_at is None:
            host.timer = 0
        elif ready_at <= now:
            host.timer, host.queued = 0, True
            self._queue.append(host)
        else:
            host.timer = next(self._serial)
            heappush(self._timers, (ready_at, host.timer, host))
        self._clear()

    def _clear(self) -> None:
        """Take out what no longer counts, once it is more than what does."""
        enough = 2 * len(self._hosts) + _FEW
        if len(self._timers) > enough:
            self._timers = [timer for timer in self._timers if timer[1] == timer[2].timer]
            heapify(self._timers)
        if len(self._queue) > enough:
            self._queue = deque(host for host in self._queue if self._hosts.get(host.name) is host)

    def _forget(self, host: CallbackHost) -> None:
        # Another host of the same name may have come after one that still stands in the queue.
        if self._hosts.get(host.name) is host:
            del self._hosts[host.name]
            self._broken -= host.broken_since is not None
