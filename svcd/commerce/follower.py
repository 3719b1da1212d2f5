"""Shows every watch what happens to its payment, and writes down what it has to say: each step is one transaction.

It stands in a thread of its own with a reader of its own on the chain. A step compares where the watches stood with
where the chain stands, so that it does not matter what happened in between, nor how often it was asked.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.address import encode_address
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.commerce.looking import Payments
from svcd.commerce.outbox import Lane
from svcd.commerce.payment import Sighting, State, Terms, Tip
from svcd.commerce.register import Register, watch_of
from svcd.commerce.trail import Span, go, span_between
from svcd.commerce.waiting import WaitingPayments
from svcd.commerce.watch import Moment, Watch, look, wake
from svcd.node.mempool import Entry
from svcd.store.chain_store import ChainReader
from svcd.store.webhook_store import WatchRow

_BLOCKS_LOOKED_INTO: Final = 256
"""After more new blocks than these every watch is looked at, instead of every transfer of the blocks."""

Payment = tuple[str, str, int]
"""Reference, recipient's address and amount in base units."""

Rows = dict[str, WatchRow]
"""Watches by id."""


class Behind(Exception):
    """The chain has lost blocks that the watches have seen, and fetches them again; nothing can be said until then."""


def _at_once() -> None:
    """Nobody is given way to."""


@frozen
class PoolNews:
    """What came into the mempool and left it, in one change."""

    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]


@frozen(kw_only=True)
class Present:
    """What the reactor's thread knows when a step begins."""

    now: int
    """Unix milliseconds."""
    synced: bool
    news: Sequence[PoolNews] = ()
    """What has happened to the mempool since the step before."""
    give_way: Callable[[], None] = _at_once
    """Called before each piece of a step; returns when that may be done."""


@frozen
class Eyes:
    """How chain and mempool are looked at."""

    params: NetworkParams
    reader: ChainReader
    waiting: WaitingPayments = field(factory=WaitingPayments)
    """As this thread has heard of the mempool so far."""
    payments: Payments = field(init=False)

    @payments.default
    def _through_these(self) -> Payments:
        return Payments(self.params, self.reader, self.waiting)


@define
class Follower:
    """Keeps the watches true to the chain; for one thread."""

    register: Register
    eyes: Eyes
    every_depth: bool
    _unsettled: dict[Payment, None] = field(factory=dict, init=False)
    """Payments of which the mempool told something that no committed step has taken in yet."""
    _begun: bool = field(default=False, init=False)
    """Whether there has been a committed step in this run."""

    def step(self, present: Present) -> list[Lane]:
        """Show the watches what has happened; gives the lanes that have something new to send.

        While the chain is behind the watches, nothing is done.
        """
        self.hear(present.news)
        with self.eyes.reader.snapshot(), self.register.watches.commit():
            span = span_between(self.register.watches, self.eyes.reader)
            lanes = [] if span is None else self._advance(span, present)
        if span is not None:
            self._settle()
        return lanes

    def admit(self, watch: Watch, present: Present) -> tuple[list[Lane], Sighting]:
        """Take in a new watch, and look at its payment as it stands; gives all lanes with something new to send.

        The news of ``present`` has been heard before. Raises Behind.
        """
        with self.eyes.reader.snapshot(), self.register.watches.commit():
            span = span_between(self.register.watches, self.eyes.reader)
            if span is None:
                raise Behind
            lanes = self._advance(span, present)
            moment = self._moment(span.tip.height, present)
            sighting = self.eyes.payments.look_from(watch.terms, span.tip)
            begun, drafts = look(watch, sighting, moment, initial=True)
            lanes += self.register.add(begun, drafts, wake(begun, span.tip.height, moment), present.now)
        self._settle()
        return lanes, sighting

    def sighting(self, terms: Terms) -> Sighting:
        """What there is to see of a payment now."""
        return self.eyes.payments.look(terms)

    def hear(self, news: Iterable[PoolNews]) -> None:
        """Note what has happened to the mempool, for the next step; news must be heard once, whatever else fails."""
        for change in news:
            self.eyes.waiting.pool_changed(change.added, change.removed)
            for entry in (*change.added, *change.removed):
                transfer = entry.transfer
                if transfer.reference is not None:
                    payment = transfer.reference, self._address(transfer.recipient), transfer.amount
                    self._unsettled[payment] = None

    def _settle(self) -> None:
        self._unsettled.clear()
        self._begun = True

    def _address(self, key: bytes) -> str:
        return encode_address(key, self.eyes.params.address_prefix)

    def _moment(self, tip_before: int, present: Present, *, at_tip: bool = True) -> Moment:
        # Whether time is up is for the newest block to say: a payment in it comes first.
        synced = present.synced and at_tip
        return Moment(now=present.now, tip_before=tip_before, synced=synced, every_depth=self.every_depth)

    def _advance(self, span: Span, present: Present) -> list[Lane]:
        """Show the watches every block that has come, one after the other, or a reorganisation as a whole."""
        lanes: list[Lane] = []
        watches = self.register.watches
        if not watches.is_idle():
            one_by_one = span.fork == span.before and len(span.heights) <= _BLOCKS_LOOKED_INTO
            before = span.before
            for height in span.heights[:-1] if one_by_one else ():
                touched = self._paid([height], present) | _by_id(watches.waking_at_height(height))
                moment = self._moment(before, present, at_tip=False)
                lanes += self._show(touched, self._tip_at(height), moment, present)
                before = height
            touched = self._touched(evolve(span, before=before, fork=before) if one_by_one else span, present)
            lanes += self._show(touched, span.tip, self._moment(before, present), present)
        go(watches, self.eyes.reader, span)
        return lanes

    def _show(self, rows: Rows, tip: Tip, moment: Moment, present: Present) -> list[Lane]:
        lanes: list[Lane] = []
        for row in rows.values():
            present.give_way()
            watch = watch_of(row)
            seen, drafts = look(watch, self.eyes.payments.look_from(watch.terms, tip), moment)
            waking = wake(seen, tip.height, moment)
            if seen != watch or (waking.height, waking.at) != (row.wake_height, row.wake_at):
                lanes += self.register.save(seen, drafts, waking, moment.now)
        return lanes

    def _tip_at(self, height: int) -> Tip:
        stored = self.eyes.reader.canonical(height)
        if stored is None:
            raise Corrupt(f"there is no canonical block at height {height}")
        return Tip(height, stored.point.hash)

    def _touched(self, span: Span, present: Present) -> Rows:
        """The watches that may have something to say at the tip."""
        watches = self.register.watches
        if len(span.heights) > _BLOCKS_LOOKED_INTO:
            return _by_id(watches.all_active())
        touched = _by_id(watches.waking_at_height(span.tip.height))
        if span.tip.height < span.before:
            # A heavier chain may be shorter: every payment on it lies less deep than it did.
            touched |= _by_id(watches.above(-1))
        elif span.fork < span.before:
            touched |= _by_id(watches.above(span.fork))
        if present.synced:
            touched |= _by_id(watches.waking_at(present.now))
        for payment in self._unsettled:
            touched |= _by_id(watches.of_payment(*payment))
        if not self._begun:
            # What left the mempool while the node was off is told by nobody.
            touched |= _by_id(watches.in_state(State.PENDING))
        return touched | self._paid(span.heights, present)

    def _paid(self, heights: Iterable[int], present: Present) -> Rows:
        """The watches over what the transfers in canonical blocks pay."""
        touched: Rows = {}
        for payment in dict.fromkeys(self._payments(heights)):
            present.give_way()
            touched |= _by_id(self.register.watches.of_payment(*payment))
        return touched

    def _payments(self, heights: Iterable[int]) -> Iterator[Payment]:
        for height in heights:
            stored = self.eyes.reader.canonical(height)
            for body in [] if stored is None else self.eyes.reader.bodies(stored):
                if b'"paymentReference"' in body:
                    payload = json.loads(body)["payload"]
                    yield payload["paymentReference"], payload["recipient"], int(payload["amount"])


def _by_id(rows: Collection[WatchRow]) -> Rows:
    return {row.id: row for row in rows}
