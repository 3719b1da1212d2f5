"""A clock for many thousand delayed calls: twisted.internet.task.Clock sorts all of them for every new one."""

from collections import defaultdict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled

# The names are Twisted's.
# ruff: noqa: N802


class Call:
    """A call that is due later."""

    __slots__ = ("_args", "_cancelled", "_clock", "_function", "_kw", "time", "waits")

    def __init__(
        self, clock: "HeapClock | Lifetime", time: float, function: Callable[..., object], args: Any, kw: Any
    ) -> None:
        self.time = time
        self.waits = True
        """Whether it has been neither made nor cancelled."""
        self._cancelled = False
        self._clock = clock
        self._function = function
        self._args = args
        self._kw = kw

    def getTime(self) -> float:
        return self.time

    def active(self) -> bool:
        return self.waits

    def cancel(self) -> None:
        self._check()
        self.waits, self._cancelled = False, True

    def reset(self, seconds: float) -> None:
        self._check()
        self.time = self._clock.seconds() + seconds
        self._clock.push(self)

    def delay(self, seconds: float) -> None:
        self._check()
        self.time += seconds
        self._clock.push(self)

    def _check(self) -> None:
        if not (self.waits or self._clock.over):
            raise AlreadyCancelled if self._cancelled else AlreadyCalled

    def run(self) -> None:
        self.waits = False
        if not self._clock.over:
            self._function(*self._args, **self._kw)


_Note = tuple[float, int, Call]
"""When a call is due, its place among those of the same moment, and the call."""


class HeapClock:
    """Time that stands still until it is told to go on; calls of the same moment run in the order they were made.

    Only the calls of the present second are sorted: most later ones are deadlines, cancelled before they are due.
    """

    over = False

    def __init__(self, start: float) -> None:
        self._now = start
        self._order = 0
        self._second = int(start)
        self._due: list[_Note] = []
        """A heap of the notes up to the end of that second."""
        self._later: defaultdict[int, list[_Note]] = defaultdict(list)
        """The notes of each later second."""

    def seconds(self) -> float:
        return self._now

    def callLater(self, delay: float, function: Callable[..., object], *args: Any, **kw: Any) -> Call:
        call = Call(self, self._now + delay, function, args, kw)
        self.push(call)
        return call

    def push(self, call: Call) -> None:
        """Note when a call is due; an earlier note of a call that was put off is passed over."""
        self._order += 1
        second = int(call.time)
        if second <= self._second:
            heappush(self._due, (call.time, self._order, call))
        else:
            self._later[second].append((call.time, self._order, call))

    def run(self, seconds: float) -> None:
        """Let ``seconds`` pass, and make every call that is due."""
        end = self._now + seconds
        self._run_second(end)
        while self._second < int(end):
            self._second += 1
            self._due = [note for note in self._later.pop(self._second, ()) if note[2].waits]
            heapify(self._due)
            self._run_second(end)
        self._now = end

    def _run_second(self, end: float) -> None:
        """Make the calls of the present second that are due by ``end``."""
        due = self._due
        while due and due[0][0] <= end:
            time, _, call = heappop(due)
            if call.waits and call.time == time:
                self._now = max(self._now, time)
                call.run()


class Lifetime:
    """The clock as one life of a node sees it: when that life is over, nothing that it meant to do is done."""

    def __init__(self, clock: HeapClock) -> None:
        self._clock = clock
        self.over = False

    def seconds(self) -> float:
        return self._clock.seconds()

    def callLater(self, delay: float, function: Callable[..., object], *args: Any, **kw: Any) -> Call:
        call = Call(self, self.seconds() + delay, function, args, kw)
        self.push(call)
        return call

    def push(self, call: Call) -> None:
        """See :class:`HeapClock`."""
        self._clock.push(call)
