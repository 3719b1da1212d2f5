"""What waits for one callback host, and whether that host is broken (docs/webhooks.md "Attempts").

A host that fails again and again gets one attempt at a time, a probe, with growing pauses. Nothing here looks at every
lane: a dead host may have tens of thousands of them.
"""

from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from attrs import define, field, frozen

from svcd.commerce.outbox import Lane
from svcd.commerce.schedule import LONGEST, probe_pause

PLACES_PER_HOST: Final = 4
BREAKS_AFTER: Final = 5
"""Failures in a row, by whichever lanes."""
_FEW: Final = 64
"""So many entries that no longer count are not worth clearing away."""


class Outcome(Enum):
    """What an attempt says of the host."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The host is well and does not want this: the lane waits for itself, not for the host."""
    FAILED = "failed"
    """The host cannot be reached or is in trouble."""
    UNTRIED = "untried"
    """Nothing was sent."""


class Change(Enum):
    """What became of a host's breaker."""

    NONE = "none"
    OPENED = "opened"
    CLOSED = "closed"


class Task(Enum):
    """What to do with a lane."""

    ATTEMPT = "attempt"
    PROBE = "probe"
    """An attempt that decides about a broken host."""
    GIVE_UP = "give up"
    """Its host has been broken for so long that all attempts would have been made: abandon the event without one."""


@frozen
class Turn:
    """A lane whose turn it is."""

    lane: Lane
    task: Task
    early: bool
    """Whether it was woken before it was due."""
    hopeless: bool
    """Whether the host has been broken for as long as all attempts take."""


@define(eq=False)
class Entry:
    """A lane that waits."""

    lane: Lane
    alive: bool = True


_Heap = list[tuple[int, int, Entry]]
"""By due time, then in the order of arrival."""


@define(eq=False)
class CallbackHost:
    """One host's lanes and its breaker."""

    name: str
    queued: bool = field(init=False, default=False)
    """Whether it stands in the queue of hosts."""
    timer: int = field(init=False, default=0)
    """Of the timer that counts; 0 if none does."""
    in_flight: int = field(init=False, default=0)
    lanes: int = field(init=False, default=0)
    """That wait."""
    broken_since: int | None = field(init=False, default=None)
    _called: _Heap = field(init=False, factory=list)
    """Woken by a success: they need not wait until they are due."""
    _waiting: _Heap = field(init=False, factory=list)
    _patient: _Heap = field(init=False, factory=list)
    """Not woken, unless the breaker closes: they were, in vain, or do not wait for the host."""
    _dead: int = field(init=False, default=0)
    _failures: int = field(init=False, default=0)
    _probes: int = field(init=False, default=0)
    _probe_at: int = field(init=False, default=0)
    _serial: "count[int]" = field(init=False, factory=count)

    def add(self, entry: Entry, *, patient: bool) -> None:
        """Let a lane wait."""
        heappush(self._patient if patient else self._waiting, (entry.lane.due, next(self._serial), entry))
        self.lanes += 1

    def drop(self, entry: Entry) -> None:
        """Forget a lane that waits."""
        entry.alive = False
        self.lanes -= 1
        self._dead += 1
        if self._dead > self.lanes + _FEW:
            for heap in (self._called, self._waiting, self._patient):
                heap[:] = [item for item in heap if item[2].alive]
                heapify(heap)
            self._dead = 0

    def take(self, now: int) -> tuple[Entry, Turn] | None:
        """The lane of this host whose turn it is, if it is any lane's turn; it no longer waits."""
        if self._is_full():
            return None
        if self.broken_since is not None and now < self._probe_at:
            heap = self._first(self._called, self._waiting, self._patient)
            task = Task.GIVE_UP
            if heap is None or self._gives_up_at(heap) > now:
                return None
        else:
            ripe = [heap for heap in (self._waiting, self._patient) if (due := _due(heap)) is not None and due <= now]
            heap = self._first(self._called, *ripe)
            task = Task.ATTEMPT if self.broken_since is None else Task.PROBE
            if heap is None:
                return None
        entry = heappop(heap)[2]
        self.lanes -= 1
        self.in_flight += 1
        hopeless = self.broken_since is not None and self.broken_since + LONGEST <= now
        return entry, Turn(entry.lane, task, early=entry.lane.due > now, hopeless=hopeless)

    def ready_at(self) -> int | None:
        """From when on ``take`` gives something; None if not before something else happens."""
        heap = self._first(self._called, self._waiting, self._patient)
        if heap is None or self._is_full():
            return None
        ready = 0 if _due(self._called) is not None else heap[0][0]
        return ready if self.broken_since is None else min(max(ready, self._probe_at), self._gives_up_at(heap))

    def ended(self, turn: Turn, outcome: Outcome, now: int) -> Change:
        """Note what came of a turn."""
        self.in_flight -= 1
        if outcome is Outcome.UNTRIED:
            return Change.NONE
        if outcome is not Outcome.FAILED:
            return self._well()
        self._failures += 1
        if self.broken_since is not None:
            # Those that were under way when it broke are no probes.
            if turn.task is Task.PROBE:
                self._probes += 1
                self._probe_at = now + probe_pause(self._probes)
            return Change.NONE
        if self._failures < BREAKS_AFTER:
            return Change.NONE
        self.broken_since, self._probes, self._probe_at = now, 0, now + probe_pause(0)
        return Change.OPENED

    def _well(self) -> Change:
        """The host has answered: what waits for it need not wait any longer."""
        was_broken = self.broken_since is not None
        self._failures, self.broken_since = 0, None
        self._called, self._waiting = _merged(self._called, self._waiting), []
        if was_broken:
            self._called, self._patient = _merged(self._called, self._patient), []
        return Change.CLOSED if was_broken else Change.NONE

    def _is_full(self) -> bool:
        return self.in_flight >= (PLACES_PER_HOST if self.broken_since is None else 1)

    def _gives_up_at(self, heap: _Heap) -> int:
        # Not by the due time alone: it may lie far back only because this node was switched off.
        return max(self.broken_since or 0, heap[0][0]) + LONGEST

    def _first(self, *heaps: _Heap) -> _Heap | None:
        """The heap with the lane that has been due for longest."""
        return min((heap for heap in heaps if _due(heap) is not None), key=lambda heap: heap[0][:2], default=None)


def _due(heap: _Heap) -> int | None:
    while heap and not heap[0][2].alive:
        heappop(heap)
    return heap[0][0] if heap else None


def _merged(one: _Heap, other: _Heap) -> _Heap:
    small, large = sorted((one, other), key=len)
    for item in small:
        heappush(large, item)
    return large
