"""Lines of limited capacity, shared max-min fairly by all flows under way on them, at a simulated clock's time.

Rates change only when a flow begins or ends, so that a flow costs a few events however long it takes. A change is
worked out for the flows that are joined to it by a channel they have in common; where only uplinks (or only downlinks)
are limited, those are the flows of one node.
"""

from collections.abc import Callable, Iterable
from math import inf

from attrs import define, field

from tests.simulation.clock import Call, HeapClock

BITS = 8


@define(eq=False)
class Channel:
    """One direction of a node's line."""

    rate: float = inf
    """Bytes per second."""
    bytes: int = 0
    """How many have gone over it, those of flows that ended too early included."""
    flows: dict["Flow", None] = field(factory=dict)
    """Those under way on it, in the order in which they began; none are kept where the rate has no limit."""

    def limit(self, bits: float | None) -> None:
        """Let so many bits per second through from now on; None: no limit. No flow may be under way."""
        self.rate = inf if bits is None else bits / BITS


@define(eq=False)
class Line:
    """What joins a node to the network."""

    up: Channel = field(factory=Channel)
    down: Channel = field(factory=Channel)


@define(eq=False)
class Flow:
    """So many bytes on their way over the uplink of one node and the downlink of another."""

    up: Channel
    down: Channel
    size: int
    on_end: Callable[[], None]
    """Called when the last byte has arrived."""
    on_rate: Callable[[], None]
    """Called when the rate has changed, and ``sent`` and ``since`` with it."""
    sent: float = 0.0
    """Bytes that had arrived at ``since``."""
    since: float = 0.0
    rate: float = 0.0
    """Bytes per second since then."""
    end: Call | None = None

    def limited(self) -> list[Channel]:
        """The channels that hold it up."""
        return [channel for channel in (self.up, self.down) if channel.rate != inf]

    def sent_by(self, now: float) -> float:
        """Bytes that have arrived at ``now``."""
        return min(self.sent + self.rate * (now - self.since), self.size)


class Sharing:
    """Gives every flow its share of the channels it needs."""

    def __init__(self, clock: HeapClock) -> None:
        self._clock = clock

    def begin(self, flow: Flow) -> None:
        """Let a flow begin; where nothing limits it, it ends at once."""
        limited = flow.limited()
        flow.since = self._clock.seconds()
        if not limited or not flow.size:
            flow.up.bytes += flow.size
            flow.down.bytes += flow.size
            flow.on_end()
            return
        for channel in limited:
            channel.flows[flow] = None
        self._share(limited)

    def stop(self, flow: Flow) -> None:
        """Break a flow off: its share is free at once, and what has gone over the line is counted."""
        flow.sent = flow.sent_by(self._clock.seconds())
        self._leave(flow)

    def _finish(self, flow: Flow) -> None:
        flow.sent = flow.size
        self._leave(flow)
        flow.on_end()

    def _leave(self, flow: Flow) -> None:
        if flow.end is not None and flow.end.active():
            flow.end.cancel()
        flow.rate, flow.since = 0.0, self._clock.seconds()
        for channel in (flow.up, flow.down):
            channel.bytes += int(flow.sent)
            channel.flows.pop(flow, None)
        self._share(channel for channel in flow.limited() if channel.flows)

    def _share(self, changed: Iterable[Channel]) -> None:
        now = self._clock.seconds()
        rates = {flow: rate for flow, rate in max_min(_joined(changed)).items() if rate != flow.rate}
        for flow, rate in rates.items():
            flow.sent, flow.since, flow.rate = flow.sent_by(now), now, rate
            left = (flow.size - flow.sent) / rate
            if flow.end is None:
                flow.end = self._clock.callLater(left, self._finish, flow)
            else:
                flow.end.reset(left)
        for flow in rates:
            flow.on_rate()


def _joined(changed: Iterable[Channel]) -> list[Channel]:
    """The channels ``changed`` and all that have a flow in common with one of them, and so on."""
    found = dict.fromkeys(changed)
    waiting = list(found)
    while waiting:
        for flow in waiting.pop().flows:
            for channel in flow.limited():
                if channel not in found:
                    found[channel] = None
                    waiting.append(channel)
    return list(found)


def max_min(channels: Iterable[Channel]) -> dict[Flow, float]:
    """The max-min fair rate of every flow on ``channels``, in bytes per second.

    Filled progressively: the channel with the least for each of its flows gives them that, and what they do not need
    elsewhere is left to others (Bertsekas and Gallager, Data Networks, section 6.5.2).
    """
    left = {channel: [channel.rate, len(channel.flows)] for channel in channels if channel.flows}
    rates: dict[Flow, float] = {}
    while left:
        tightest = min(left, key=lambda channel: left[channel][0] / left[channel][1])
        rate = left[tightest][0] / left[tightest][1]
        for flow in tightest.flows:
            if flow in rates:
                continue
            rates[flow] = rate
            for channel in flow.limited():
                left[channel][0] -= rate
                left[channel][1] -= 1
        left = {channel: rest for channel, rest in left.items() if rest[1]}
    return rates
