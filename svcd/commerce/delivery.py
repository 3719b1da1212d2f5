"""Sends what waits in the outbox (docs/webhooks.md "Delivery").

Delivered is what the outbox has written down as delivered. Between an answer and that line the process may die; the
event then goes out once more, under the same id.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, cast

from attrs import evolve, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svcd.commerce.attempt import Sender, Verdict
from svcd.commerce.callback_host import Change, Outcome, Task, Turn
from svcd.commerce.forward import ForwardTime
from svcd.commerce.lanes import Lanes
from svcd.commerce.outbox import Lane, Outbox, Parcel
from svcd.commerce.schedule import LONGEST, next_attempt
from svcd.ports import Clock, Timer, milliseconds

RETRY_SECONDS: Final = 10
"""After so long the outbox is asked again if it failed."""
HOLD_SECONDS: Final = 5
"""So long nothing new begins; less, so that one event that cannot be written down does not hold up the others."""
LET_IN_AT_ONCE: Final = 1_000
STOP_SECONDS: Final = 5
"""How long those that are under way may take when the node stops."""
HOST_BROKEN: Final = "host-broken"
"""Why an event was abandoned without an attempt of its own."""

T = TypeVar("T")


@frozen(kw_only=True)
class Counts:
    """How it stands, and what has happened since the start."""

    in_flight: int
    waiting: int
    """Watches that have something to send."""
    broken_hosts: int
    delivered: int
    failed: int
    """Attempts."""
    abandoned: int
    """Events."""


class Deliveries:
    """Delivers the events of an outbox, each until its receiver has it or all attempts have been made."""

    log = Logger()

    def __init__(self, outbox: Outbox, sender: Sender, *, clock: Clock, chance: Callable[[], float]) -> None:
        """Nothing is sent before :meth:`wake`; ``chance`` gives numbers from 0 to 1."""
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._time = ForwardTime(clock)
        self._chance = chance
        self._lanes = Lanes()
        self._running: set[Deferred[None]] = set()
        self._timer: Timer | None = None
        self._arrivals: deque[Lane] = deque()
        self._arriving: Timer | None = None
        self._choosing = False
        self._stopping = False
        self._cut = False
        self._held_until: int | None = None
        self._delivered = self._failed = self._abandoned = 0

    def wake(self, lanes: Iterable[Lane]) -> None:
        """These have something to send: at the start all that wait, later what a commit has added."""
        self._arrivals.extend(lanes)
        if self._arriving is None:
            self._let_in()

    def cancel(self, watch: str) -> None:
        """A watch has ended: there is no further attempt. One that is under way may still arrive."""
        self._lanes.cancel(watch, self._now())
        self._go_on()

    def stop(self) -> Deferred[None]:
        """Begin nothing more; fires when what is under way has ended, after 5 s at most.

        What is cut off stays undelivered, and goes out again after the next start.
        """
        self._stopping = True
        if self._arriving is not None:
            self._arriving.cancel()
        self._go_on()
        return Deferred.fromCoroutine(self._finish())

    def counts(self) -> Counts:
        """How it stands."""
        return Counts(
            in_flight=self._lanes.in_flight,
            waiting=self._lanes.waiting,
            broken_hosts=self._lanes.broken,
            delivered=self._delivered,
            failed=self._failed,
            abandoned=self._abandoned,
        )

    def _now(self) -> int:
        return self._time.now()

    def _unix(self) -> int:
        return milliseconds(self._clock)

    def _let_in(self) -> None:
        """Take in what has arrived, first come first, with a pause for others after every thousand."""
        self._arriving = None
        now = self._now()
        for _ in range(min(LET_IN_AT_ONCE, len(self._arrivals))):
            self._lanes.put(self._arrivals.popleft(), now)
        if self._arrivals and not self._stopping:
            self._arriving = self._clock.callLater(0, self._let_in)
        self._go_on()

    # Whose turn it is

    def _go_on(self) -> None:
        """Begin what can begin, and come again when more can."""
        if self._choosing:
            # A turn that ends at once comes here from within the loop below.
            return
        self._choosing = True
        try:
            while not self._is_held_up() and (turn := self._lanes.take(self._now())) is not None:
                self._begin(turn)
        finally:
            self._choosing = False
        self._set_timer()

    def _is_held_up(self) -> bool:
        return self._stopping or (self._held_until is not None and self._now() < self._held_until)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = None if self._stopping else self._lanes.next_at(self._now())
        if at is not None:
            at = max(at, self._held_until or 0)
            self._timer = self._clock.callLater(max(0, at - self._now()) / 1000, self._timer_rings)

    def _timer_rings(self) -> None:
        self._timer = None
        self._go_on()

    def _begin(self, turn: Turn) -> None:
        running = Deferred.fromCoroutine(self._run(turn))
        self._running.add(running)
        running.addBoth(self._ended, running)

    def _ended(self, _: object, running: Deferred[None]) -> None:
        self._running.discard(running)
        self._go_on()

    # One turn

    async def _run(self, turn: Turn) -> None:
        soon = evolve(turn.lane, due=self._now() + RETRY_SECONDS * 1000)
        try:
            outcome, again = await self._work(turn)
        except CancelledError:
            # The node stops, and what was not delivered is in the outbox; if it does not stop, soon is soon enough.
            outcome, again = Outcome.UNTRIED, soon
        except Exception:
            self.log.failure("delivering for {watch} failed; it is tried again", watch=turn.lane.watch)
            outcome, again = Outcome.UNTRIED, soon
        change = self._lanes.end(turn, outcome, again, self._now())
        if change is Change.OPENED:
            self.log.info("callbacks to {host} fail; now it gets one at a time", host=turn.lane.host)
        elif change is Change.CLOSED:
            self.log.info("callbacks to {host} succeed again", host=turn.lane.host)

    async def _work(self, turn: Turn) -> tuple[Outcome, Lane | None]:
        """What came of a turn, and when the lane has its next one."""
        parcel = await self._until_it_works(lambda: self._outbox.head(turn.lane.watch))
        if parcel is None:
            return Outcome.UNTRIED, None
        if turn.task is Task.GIVE_UP:
            return Outcome.UNTRIED, await self._give_up(turn, parcel)
        verdict = await self._sender.send(parcel, self._unix())
        return verdict.outcome, await self._note(turn, parcel, verdict)

    async def _give_up(self, turn: Turn, parcel: Parcel) -> Lane | None:
        if not _is_old(parcel, self._now()):
            # It has taken the place of the one that was due.
            return evolve(turn.lane, due=parcel.created_at)
        return await self._note_failure(parcel, HOST_BROKEN, due=None)

    async def _note(self, turn: Turn, parcel: Parcel, verdict: Verdict) -> Lane | None:
        now = self._now()
        if verdict.gone:
            await self._until_it_works(lambda: self._outbox.gone(parcel, self._unix()))
            return None
        if verdict.outcome is Outcome.ACCEPTED:
            again = await self._until_it_works(lambda: self._outbox.delivered(parcel, self._unix()))
            self._delivered += 1
            return again
        self._failed += 1
        if turn.hopeless and _is_old(parcel, now):
            return await self._note_failure(parcel, verdict.error, due=None)
        if turn.early:
            # Others' successes must not use up its attempts, however often they wake it.
            return await self._note_failure(parcel, verdict.error, due=turn.lane.due, counts=False)
        due = next_attempt(parcel.attempts + 1, now, chance=self._chance(), retry_after=verdict.retry_after)
        return await self._note_failure(parcel, verdict.error, due=due)

    async def _note_failure(self, parcel: Parcel, error: str, *, due: int | None, counts: bool = True) -> Lane | None:
        now = self._unix()
        again = await self._until_it_works(
            lambda: self._outbox.failed(parcel, error=error, due=due, now=now, counts=counts)
        )
        if due is None:
            self._abandoned += 1
            self.log.warn(
                "event {event_id} of {watch} for {host} is abandoned: {error}",
                event_id=parcel.event_id,
                watch=parcel.watch,
                host=parcel.host,
                error=error,
            )
        return again

    async def _until_it_works(self, ask: Callable[[], Deferred[T]]) -> T:
        """Ask the outbox again and again until it does what it is asked; meanwhile nobody begins.

        While a full disk takes no line, whatever is sent would be sent once more.
        """
        while True:
            try:
                result = await ask()
            except CancelledError:
                raise
            except Exception:
                if self._held_until is None:
                    self.log.failure("the outbox of webhooks fails; nothing is sent until it works again")
                self._held_until = self._now() + HOLD_SECONDS * 1000
                await deferLater(cast(IReactorTime, self._clock), RETRY_SECONDS, _nothing)
            else:
                self._held_until = None
                return result

    async def _finish(self) -> None:
        running = tuple(self._running)
        if running:
            timer = self._clock.callLater(STOP_SECONDS, self._cut_off)
            await DeferredList(running)
            if not self._cut:
                timer.cancel()

    def _cut_off(self) -> None:
        self._cut = True
        for running in tuple(self._running):
            running.cancel()


def _is_old(parcel: Parcel, now: int) -> bool:
    """Whether all attempts would have been made, had the host not been broken."""
    return parcel.created_at + LONGEST <= now


def _nothing() -> None:
    """What is done after a pause."""
