"""A merchant's watch over one payment, and what it has to say when the chain moves (docs/webhooks.md "Events").

Functions of values: whoever follows the chain shows a watch what there is to see, and stores what comes out.
"""

from enum import StrEnum
from typing import Final

from attrs import evolve, field, frozen

from svcd.commerce.payment import Place, Sighting, State, Terms, state_of

_LEAST_BLOCKS: Final = 30


class Event(StrEnum):
    """What a merchant is told."""

    PENDING = "payment.pending"
    CONFIRMING = "payment.confirming"
    CONFIRMED = "payment.confirmed"
    REORGED = "payment.reorged"
    EXPIRED = "payment.expired"


class Ending(StrEnum):
    """Why a watch is over."""

    EXPIRED = "expired"
    """It ran out while the payment was not confirmed."""
    CLOSED = "closed"
    """The payment was confirmed and stayed so for long enough."""
    CANCELLED = "cancelled"
    GONE = "gone"
    """The receiver answered 410."""


@frozen(kw_only=True)
class Watch:
    """One subscription; times are Unix milliseconds."""

    id: str
    """``svcwh_`` and 32 hex characters."""
    terms: Terms
    callback_url: str = field(repr=False)
    """In its canonical spelling; its path and query may hold a secret of the merchant's."""
    host: str
    """The name or address that is called; limits and pauses go by it."""
    created_at: int
    expires_at: int
    state: State = State.UNPAID
    """What the events so far have told."""
    place: Place | None = None
    """Where the payment stood on the chain when it was last looked at."""
    epoch: int = 0
    """How often the payment has been reorganised away."""
    sequence: int = 0
    """How many events there have been."""
    close_height: int | None = None
    """Once confirmed: the height from which the watch need not look any more."""
    ending: Ending | None = None

    @property
    def active(self) -> bool:
        """Whether it still watches."""
        return self.ending is None

    @property
    def last_state(self) -> str:
        """The specification's ``lastState``."""
        return "expired" if self.ending is Ending.EXPIRED else self.state.value


@frozen(kw_only=True)
class Draft:
    """One event, before it is written down."""

    event: Event
    epoch: int
    sequence: int
    previous_state: State
    initial: bool
    """Whether it tells what stood when the watch began, not what has happened since."""
    sighting: Sighting


@frozen(kw_only=True)
class Moment:
    """When, and on what terms, a watch is looked at."""

    now: int
    """Unix milliseconds."""
    tip_before: int
    """The height at which the watches were last looked at."""
    synced: bool
    """Nothing expires while the node may not know the newest blocks."""
    every_depth: bool = True
    """Whether each further block on top of an unconfirmed payment is told."""


@frozen
class Wake:
    """When a watch next has something to say by itself."""

    height: int | None
    at: int | None
    """Unix milliseconds."""


@frozen
class _Telling:
    """A watch, and what it has said in this step."""

    watch: Watch
    sighting: Sighting
    initial: bool
    drafts: tuple[Draft, ...] = field(default=())

    def tell(self, event: Event, state: State) -> "_Telling":
        watch = self.watch
        epoch = watch.epoch + (event is Event.REORGED)
        close_height = watch.close_height
        if event is Event.CONFIRMED:
            close_height = self.sighting.tip.height + max(_LEAST_BLOCKS, 2 * watch.terms.required)
        draft = Draft(
            event=event,
            epoch=epoch,
            sequence=watch.sequence + 1,
            previous_state=watch.state,
            initial=self.initial,
            sighting=self.sighting,
        )
        watch = evolve(watch, state=state, epoch=epoch, sequence=draft.sequence, close_height=close_height)
        return evolve(self, watch=watch, drafts=(*self.drafts, draft))


def look(watch: Watch, sighting: Sighting, moment: Moment, *, initial: bool = False) -> tuple[Watch, tuple[Draft, ...]]:
    """The watch after it has seen ``sighting``, and the events of that, in order; one that is over says nothing."""
    if not watch.active:
        return watch, ()
    telling = _payment(_Telling(watch, sighting, initial), moment)
    telling = evolve(telling, watch=evolve(telling.watch, place=sighting.place))
    telling = _ending(telling, moment)
    return telling.watch, telling.drafts


def _payment(telling: _Telling, moment: Moment) -> _Telling:
    watch, sighting = telling.watch, telling.sighting
    state = state_of(watch.terms, sighting)
    if watch.place is None:
        if sighting.place is not None:
            return telling.tell(Event.CONFIRMED if state is State.CONFIRMED else Event.CONFIRMING, state)
        if state is State.PENDING and watch.state is State.UNPAID:
            return telling.tell(Event.PENDING, state)
        # A payment that only waited and is gone was never on the chain: nothing has been taken back.
        return evolve(telling, watch=evolve(watch, state=state))
    depth_before = moment.tip_before - watch.place.height + 1
    if _moved(watch.place, sighting.place) or sighting.confirmations < depth_before:
        # Confirmed anew is a second thing to tell, for it is what goods are handed out for.
        telling = telling.tell(Event.REORGED, State.CONFIRMING if state is State.CONFIRMED else state)
        return telling.tell(Event.CONFIRMED, state) if state is State.CONFIRMED else telling
    if watch.state is State.CONFIRMING:
        if state is State.CONFIRMED:
            return telling.tell(Event.CONFIRMED, state)
        if moment.every_depth and sighting.confirmations > depth_before:
            return telling.tell(Event.CONFIRMING, state)
    return telling


def _moved(before: Place, after: Place | None) -> bool:
    return after is None or (after.txid, after.block_hash) != (before.txid, before.block_hash)


def _ending(telling: _Telling, moment: Moment) -> _Telling:
    watch = telling.watch
    if not moment.synced or moment.now < watch.expires_at:
        return telling
    if watch.close_height is not None and telling.sighting.tip.height < watch.close_height:
        return telling
    if watch.close_height is not None and watch.state is State.CONFIRMED:
        return evolve(telling, watch=evolve(watch, ending=Ending.CLOSED))
    telling = telling.tell(Event.EXPIRED, watch.state)
    return evolve(telling, watch=evolve(telling.watch, ending=Ending.EXPIRED))


def wake(watch: Watch, tip_height: int, moment: Moment) -> Wake:
    """When ``watch``, as a look at ``moment`` has left it, must be looked at even if its payment does not move."""
    if not watch.active:
        return Wake(None, None)
    over = moment.now >= watch.expires_at and moment.synced
    heights = []
    if watch.state is State.CONFIRMING and watch.place is not None:
        confirmed = watch.place.height + watch.terms.required - 1
        heights.append(min(tip_height + 1, confirmed) if moment.every_depth else confirmed)
    if over and watch.close_height is not None:
        heights.append(watch.close_height)
    return Wake(min(heights, default=None), None if over else watch.expires_at)
