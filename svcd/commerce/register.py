"""The watches and their events on disk, as the values that the rest of this room deals in."""

from typing import Final

from attrs import frozen

from svcd.commerce.event import Origin, event_body, event_id
from svcd.commerce.outbox import Lane
from svcd.commerce.payment import Place, State, Terms
from svcd.commerce.watch import Draft, Ending, Event, Wake, Watch
from svcd.store.webhook_events import EventRow, EventStore, Queued
from svcd.store.webhook_store import WatchRow, WebhookStore

_NOWHERE: Final = Wake(None, None)


@frozen
class Register:
    """Writes down what becomes of watches; for one thread, inside a transaction of ``watches``."""

    watches: WebhookStore
    events: EventStore
    origin: Origin

    def add(self, watch: Watch, drafts: tuple[Draft, ...], wake: Wake, now: int) -> list[Lane]:
        """A new watch and its first events; gives its lane if it has any."""
        self.watches.add(row_of(watch, wake, None))
        return self._tell(watch, drafts, now)

    def save(self, watch: Watch, drafts: tuple[Draft, ...], wake: Wake, now: int) -> list[Lane]:
        """What a look has changed; gives its lane if it has something to send."""
        self.watches.save(row_of(watch, wake, None if watch.active else now))
        return self._tell(watch, drafts, now)

    def end(self, watch: Watch, now: int) -> None:
        """A watch that ends without a word: what it has not sent is dropped."""
        self.watches.save(row_of(watch, _NOWHERE, now))
        self.events.drop_waiting(watch.id)

    def _tell(self, watch: Watch, drafts: tuple[Draft, ...], now: int) -> list[Lane]:
        lanes = []
        for draft in drafts:
            row = EventRow(
                sequence=draft.sequence,
                epoch=draft.epoch,
                id=event_id(watch.id, draft.epoch, draft.sequence),
                name=draft.event.value,
                body=event_body(self.origin, watch, draft, now),
                created_at=now,
            )
            # A receiver that is slow gets the newest depth and not every one that there was.
            superseding = draft.event is Event.CONFIRMING
            lanes.append(lane_of(self.events.tell(watch.id, row, supersedes=superseding, now=now)))
        return lanes[-1:]


def lane_of(queued: Queued) -> Lane:
    """A lane as whoever sends sees it."""
    return Lane(queued.watch, queued.host, queued.due)


def row_of(watch: Watch, wake: Wake, ended_at: int | None) -> WatchRow:
    """A watch as it lies on disk."""
    terms, place = watch.terms, watch.place
    return WatchRow(
        id=watch.id,
        reference=terms.reference,
        recipient=terms.recipient,
        amount=terms.amount,
        required=terms.required,
        since_height=terms.since_height,
        callback_url=watch.callback_url,
        host=watch.host,
        created_at=watch.created_at,
        expires_at=watch.expires_at,
        state=watch.state.value,
        epoch=watch.epoch,
        sequence=watch.sequence,
        close_height=watch.close_height,
        ending=None if watch.ending is None else watch.ending.value,
        txid=None if place is None else place.txid,
        block_hash=None if place is None else place.block_hash,
        height=None if place is None else place.height,
        position=None if place is None else place.position,
        block_time=None if place is None else place.block_time,
        wake_height=wake.height,
        wake_at=wake.at,
        ended_at=ended_at,
    )


def watch_of(row: WatchRow) -> Watch:
    """A watch from its row."""
    return Watch(
        id=row.id,
        terms=Terms(row.reference, row.recipient, row.amount, row.required, row.since_height),
        callback_url=row.callback_url,
        host=row.host,
        created_at=row.created_at,
        expires_at=row.expires_at,
        state=State(row.state),
        place=_place_of(row),
        epoch=row.epoch,
        sequence=row.sequence,
        close_height=row.close_height,
        ending=None if row.ending is None else Ending(row.ending),
    )


def _place_of(row: WatchRow) -> Place | None:
    place = row.txid, row.block_hash, row.height, row.position, row.block_time
    return None if None in place else Place(*place)  # type: ignore[arg-type]
