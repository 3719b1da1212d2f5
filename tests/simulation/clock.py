"""A clock for many thousand delayed calls: twisted.internet.task.Clock sorts all of them for every new one."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled

# The names are Twisted's.
# ruff: noqa: N802


class Call:
    """A call that is due later."""

    def __init__(
        self, clock: "HeapClock | Lifetime", time: float, function: Callable[..., object], args: Any, kw: Any
    ) -> None:
        self._clock = clock
        self._time = time
        self._function = function
        self._args = args
        self._kw = kw
        self._state = "waits"

    def getTime(self) -> float:
        return self._time

    def active(self) -> bool:
        return self._state == "waits"

    def cancel(self) -> None:
        self._check()
        self._state = "cancelled"

    def reset(self, seconds: float) -> None:
        self._check()
        self._time = self._clock.seconds() + seconds
        self._clock.push(self)

    def delay(self, seconds: float) -> None:
        self._check()
        self._time += seconds
        self._clock.push(self)

    def _check(self) -> None:
        if self._clock.over:
            return
        if self._state == "cancelled":
            raise AlreadyCancelled
        if self._state == "called":
            raise AlreadyCalled

    def run(self) -> None:
        self._state = "called"
        if not self._clock.over:
            self._function(*self._args, **self._kw)


class HeapClock:
    """Time that stands still until it is told to go on; calls of the same moment run in the order they were made."""

    over = False

    def __init__(self, start: float) -> None:
        self._now = start
        self._order = 0
        self._heap: list[tuple[float, int, Call]] = []

    def seconds(self) -> float:
        return self._now

    def callLater(self, delay: float, function: Callable[..., object], *args: Any, **kw: Any) -> Call:
        call = Call(self, self._now + delay, function, args, kw)
        self.push(call)
        return call

    def push(self, call: Call) -> None:
        """Note when a call is due; an earlier note of a call that was put off is passed over."""
        self._order += 1
        heappush(self._heap, (call.getTime(), self._order, call))

    def run(self, seconds: float) -> None:
        """Let ``seconds`` pass, and make every call that is due."""
        end = self._now + seconds
        while self._heap and self._heap[0][0] <= end:
            time, _, call = heappop(self._heap)
            if call.active() and call.getTime() == time:
                self._now = max(self._now, time)
                call.run()
        self._now = end


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
