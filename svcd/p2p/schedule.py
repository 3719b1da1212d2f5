"""Which of many things is requested of which peer: a choice without calls, clock or store (docs/peers.md "Downloads").

An item waits, is requested of a peer, is here, or is lacking at a peer. A peer is idle, busy, or rests. The items come
in an order, and the first ones are requested first. How much is requested of a peer follows the rate at which it
delivers, so that neither a slow line nor a distant peer idles.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from attrs import define, field

from svcd.limits import STALLING_PEER, limit
from svcd.p2p.peer import Peer

AIM_SECONDS: Final = 2.0
"""How long a peer takes, at its rate, to deliver what is requested from it at a time; at least one item."""
FIRST_BYTES: Final = 256 * 1024
"""Bytes to request from a peer whose rate is not known; at least one item."""
MAX_REQUESTS: Final = limit(2, "requests of a download under way to one peer", "requests", STALLING_PEER)
"""Requests to one peer at a time: the line does not idle between a reply and the next request."""
MAX_PASSED: Final = limit(64, "blocks that a peer lacks, passed over for a request to it", "blocks", STALLING_PEER)
"""A peer that lacks more of the next missing items is asked for none of the later ones: all of these wait."""
SLOW_SECONDS: Final = 10.0
"""An item is requested from a second peer instead if the first would take this much longer than the second, and twice
as long."""
UNKNOWN_SECONDS: Final = 15.0
"""How long a peer whose rate is not known is assumed to need for an item."""
SLOW_BACKOFF: Final = 60.0
"""How long nothing is requested from a peer that was too slow, or has sent what is false."""
ABSENT_BACKOFF: Final = 10.0
"""How long nothing is requested from a peer that had none of the requested items, or did not answer."""


@define(eq=False)
class Item:
    """Something to be fetched."""

    order: int
    """Those with smaller numbers are requested first."""
    size: int
    """Bytes, estimated."""
    done: bool = False
    """Whether it is here, or has come by another way."""
    request: "ItemsRequest[Any] | None" = None
    """The request under way for it."""
    lacking: dict[str, float] = field(factory=dict)
    """By endpoint of a peer that did not have it, until when (in seconds) that peer is not asked again."""


T = TypeVar("T", bound=Item)


@define(eq=False)
class ItemsRequest(Generic[T]):
    """One request under way."""

    source: "Source"
    items: Sequence[T]
    """In their order."""
    began: float
    received: int = 0
    """Bytes."""
    size: int = field()
    """Bytes, estimated."""

    @size.default
    def _size_of_items(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def first(self) -> T | None:
        """The first item that has not come by another way."""
        return next((item for item in self.items if not item.done), None)


@define(eq=False)
class Source:
    """A peer as a source of items; times are in seconds."""

    peer: Peer
    rate: float | None = None
    """Bytes per second; None while unknown, 0.0 after a request that gave nothing."""
    requests: int = 0
    """How many are under way."""
    in_flight: int = 0
    """Bytes requested, estimated."""
    rests_until: float = 0.0
    paused: bool = False
    """Whether it must not be asked at present for a reason that is not of this download."""
    least: int = 0
    """It has no items with a smaller order."""
    last_answer: float = 0.0
    lacks_all: bool = False
    """Whether it had none of the items last requested."""
    preference: tuple[bool, ...] = ()
    """Of those with the same rate, the one with the least is asked first."""

    @property
    def name(self) -> str:
        """Its endpoint."""
        return self.peer.endpoint

    def rests(self, now: float) -> bool:
        """Whether nothing is requested from it at ``now``."""
        return self.paused or self.rests_until > now

    def may_deliver(self, item: Item, now: float) -> bool:
        """Whether it is not known to lack an item."""
        return item.order >= self.least and item.lacking.get(self.name, 0.0) <= now

    @property
    def target(self) -> float:
        """Bytes to have in flight."""
        return FIRST_BYTES if self.rate is None else max(self.rate * AIM_SECONDS, FIRST_BYTES / 4)

    @property
    def rank(self) -> tuple[bool, bool, float, tuple[bool, ...]]:
        """Its place among the sources, the least first: the fastest, then the preferred ones without a known rate."""
        return self.lacks_all, self.rate == 0.0, -(self.rate or 0.0), self.preference

    def measure(self, size: int, seconds: float) -> None:
        """Take an answer of so many bytes, which took so long, into its rate."""
        rate = size / max(seconds, 1e-3)
        self.rate = rate if self.rate is None else (self.rate + rate) / 2

    def fail(self, now: float, *, rest: float = ABSENT_BACKOFF) -> None:
        """Rest for so many seconds after a request that has brought nothing."""
        self.rate, self.rests_until = 0.0, now + rest


class Schedule(Generic[T]):
    """What is wanted, and what is requested of whom."""

    def __init__(self, *, window: int, most_items: int, most_bytes: int) -> None:
        """At most ``window`` bytes, or one item, are requested, or here and not taken.

        A request is for at most ``most_items`` and ``most_bytes``, or for one item.
        """
        self.sources: dict[str, Source] = {}
        """By endpoint."""
        self.requests: dict[ItemsRequest[T], None] = {}
        """Those under way, oldest first."""
        self.missing: list[T] = []
        """The items that are neither here nor requested, in order."""
        self.held = 0
        """Bytes of the items that are here and have not been taken."""
        self.window = window
        self._requested = 0
        """Bytes that are requested."""
        self._most_items, self._most_bytes = most_items, most_bytes

    @property
    def ahead(self) -> int:
        """Bytes that are requested, or here and not taken."""
        return self.held + self._requested

    def update_sources(self, peers: Iterable[Peer], is_connected: Callable[[Peer], bool]) -> None:
        """Forget the sources that are gone and have no request under way, and add those of ``peers`` that are new."""
        for source in tuple(self.sources.values()):
            if not (source.requests or is_connected(source.peer)):
                del self.sources[source.name]
        for peer in peers:
            if peer.endpoint not in self.sources:
                self.sources[peer.endpoint] = Source(peer)

    def want(self, item: T) -> None:
        """Add an item, or one that waits again."""
        insort(self.missing, item, key=_order)

    def came(self, item: T) -> None:
        """An item has come by another way."""
        item.done = True
        at = bisect_left(self.missing, item.order, key=_order)
        if at < len(self.missing) and self.missing[at] is item:
            del self.missing[at]

    def choose(self, source: Source, now: float, urgent: T | None = None) -> list[T]:
        """The next items to request from ``source``; none while it rests, is busy, or lacks what is missing.

        ``urgent`` is an item for which all others wait: it has room however full the window is.
        """
        busy = source.requests >= MAX_REQUESTS or (source.requests and source.in_flight >= source.target)
        if busy or source.rests(now):
            return []
        room, window = source.target - source.in_flight, self.window - self.ahead
        start = bisect_left(self.missing, source.least, key=_order) if source.least else 0
        chosen: list[T] = []
        size = 0
        for index in range(start, len(self.missing)):
            item = self.missing[index]
            if len(chosen) == self._most_items or index - start - len(chosen) > MAX_PASSED:
                break
            if item.lacking.get(source.name, 0.0) > now:
                continue
            first = not chosen and not source.requests
            if not first and size + item.size > min(room, self._most_bytes):
                break
            if item is not urgent and (chosen or self.ahead) and size + item.size > window:
                break
            chosen.append(item)
            size += item.size
        return chosen

    def begin(self, source: Source, items: Sequence[T], now: float) -> ItemsRequest[T]:
        """Note that items which were chosen are requested from ``source``."""
        request = ItemsRequest(source, items, now)
        self.requests[request] = None
        source.requests += 1
        source.in_flight += request.size
        self._requested += request.size
        for item in items:
            item.request = request
        # They lie close together.
        first, last = (bisect_left(self.missing, each.order, key=_order) for each in (items[0], items[-1]))
        self.missing[first : last + 1] = [each for each in self.missing[first : last + 1] if each.request is None]
        return request

    def end(self, request: ItemsRequest[T]) -> None:
        """A request is over, after :meth:`answered` or :meth:`Source.fail`: what has not come of it waits again."""
        del self.requests[request]
        request.source.requests -= 1
        request.source.in_flight -= request.size
        self._requested -= request.size
        for item in request.items:
            item.request = None
            if not item.done:
                self.want(item)

    def answered(
        self, request: ItemsRequest[T], came: Sequence[T], size: int, now: float, *, cut: bool = False
    ) -> None:
        """A request has brought ``size`` bytes, the items ``came``, and lacks the others.

        ``cut``: the answer may have ended at its largest size, so that the peer may have the items after its last one.
        """
        source = request.source
        source.measure(size, now - max(request.began, source.last_answer))
        source.last_answer, source.lacks_all = now, not came
        arrived = {item.order for item in came}
        last = came[-1].order if came else -1
        for item in request.items:
            if item.order not in arrived:
                if item.order < last or not (cut and came):
                    item.lacking[source.name] = now + ABSENT_BACKOFF
            elif not item.done:
                item.done = True
                self.held += item.size
        if not came:
            source.rests_until = now + ABSENT_BACKOFF

    def first(self) -> T | None:
        """The first item that is not here."""
        firsts = [item for request in self.requests if (item := request.first) is not None]
        return min((*self.missing[:1], *firsts), key=_order, default=None)

    def overdue(self, item: T, now: float) -> ItemsRequest[T] | None:
        """The request for an item that would come much sooner from another peer; None if there is none."""
        request = item.request
        if request is None or now - request.began < SLOW_SECONDS:
            return None
        others = [
            source
            for source in self.sources.values()
            if source is not request.source
            and not source.rests(now)
            and source.may_deliver(item, now)
            and (source.rate is not None or not source.requests)
        ]
        if not others:
            return None
        # A reply that is larger than expected may never end, so its received bytes count as half of it.
        received, elapsed = request.received, now - request.began
        left = max(request.size - received, received if received > request.size else 0)
        best = max(others, key=lambda source: source.rate or 0.0).rate
        quicker = item.size / best if best else UNKNOWN_SECONDS
        return request if left / max(received / elapsed, 1.0) > SLOW_SECONDS + 2 * quicker else None

    def give_up(self, request: ItemsRequest[T], now: float) -> None:
        """Let the peer of an overdue request rest; its rate is that of the request, so it takes over no other one."""
        request.source.rate = request.received / (now - request.began)
        request.source.rests_until = now + SLOW_BACKOFF


def _order(item: Item) -> int:
    return item.order
