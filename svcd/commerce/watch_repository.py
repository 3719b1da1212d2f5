"""Stores watches and their events: converts the values of this package to rows and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from attrs import evolve, frozen

from svcd.chain.encoding import canonical
from svcd.commerce.events import (
    ChainIdentity,
    EventType,
    WebhookEvent,
    event_body,
    event_id,
    event_summary,
)
from svcd.commerce.leadership import NotLeader
from svcd.commerce.payment import PaymentLocation, PaymentState
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import EndReason, NextEvaluation, Watch
from svcd.store.webhook_events import EventRow, EventStore, NewEvent, WatchQueue
from svcd.store.webhook_store import WatchChange, WatchRow, WebhookStore

_NEVER: Final = NextEvaluation(None, None)
NEVER_EVALUATED: Final = -1
"""The height at which a new watch is to be woken."""
_NOT_EVALUATED: Final = NextEvaluation(NEVER_EVALUATED, None)
"""The due time of a new watch: the leader, which may be another node, evaluates it in its next step."""


class Fence(Protocol):
    """Prevents writes by a leader that has lost its lease (svcd.store.lease_store.LeaseStore)."""

    def check(self, term: int) -> bool:
        """Whether no newer term has begun, and none begins before the end of the transaction."""


@frozen
class EvaluatedWatch:
    """A watch that an evaluation has changed."""

    before: WatchRow
    """As it is stored."""
    watch: Watch
    events: Sequence[WebhookEvent]
    """New ones."""
    due: NextEvaluation
    height: int | None
    """Of the tip at the evaluation."""


@frozen
class WatchRepository:
    """Stores watches with their events; for one thread, inside a transaction of ``watches``."""

    watches: WebhookStore
    events: EventStore
    chain: ChainIdentity
    fence: Fence | None = None
    """None if the database belongs to this node alone."""

    @property
    def shared(self) -> bool:
        """Whether several nodes share the database."""
        return self.fence is not None

    @contextmanager
    def leading(self, term: int) -> Iterator[None]:
        """A transaction that only the leader of ``term`` may commit. Raises svcd.commerce.leadership.NotLeader."""
        with self.watches.commit():
            yield
            # At the end, so that a waiting transaction does not prevent another node from taking over.
            if self.fence is not None and not self.fence.check(term):
                raise NotLeader(term)

    def redeliveries_requested(self) -> list[WatchQueue]:
        """Take the queues of events whose redelivery was requested on any of the nodes that share the database."""
        return self.events.take_redelivery_requests() if self.shared else []

    def add(self, watch: Watch) -> None:
        """Store a new watch, to be evaluated in the leader's next step.

        The merchant's ended watches of the order leave mismatched transfers to it.
        """
        self.watches.stop_mismatches_of_ended(watch.merchant, watch.terms.reference, watch.terms.recipient)
        self.watches.add(_row_of(watch, _NOT_EVALUATED, None, None))

    def save(self, evaluations: Sequence[EvaluatedWatch], now: int) -> list[WatchQueue]:
        """Store changed watches, none of them twice, and their new events; returns the queues of those that have any.

        All together: PostgreSQL would take as long for each statement as SQLite for ten.
        """
        changes = [
            WatchChange(each.before, _row_of(each.watch, each.due, None if each.watch.active else now, each.height))
            for each in evaluations
        ]
        places = self.watches.save(changes)
        # The event of an undone confirmation must not be sent, even if the watch does not want `payment.reorged`.
        undone = [each.watch.id for each in evaluations if _hides_reorganisation(each)]
        self.events.supersede(undone, by=EventType.REORGED)
        new = [event for each in evaluations for event in self._told(each.watch, each.events, now)]
        return self.events.append(new, now, places)

    def end(self, identifier: str, reason: EndReason, now: int) -> None:
        """End a watch without an event and drop its undelivered ones; does nothing if there is no such watch."""
        row = self.watches.watch(identifier)
        if row is None:
            return
        if row.ending is None:
            ended = _row_of(evolve(watch_of(row), ending=reason, reported_mismatches=None), _NEVER, now, None)
            self.watches.save([WatchChange(row, ended)])
        elif row.reported_mismatches is not None:
            self.watches.save([WatchChange(row, evolve(row, reported_mismatches=None))])
        self.events.drop_waiting(identifier)

    def _told(self, watch: Watch, events: Sequence[WebhookEvent], now: int) -> list[NewEvent]:
        """The events that the watch wants, as they are stored."""
        return [
            NewEvent(
                watch.id,
                EventRow(
                    sequence=event.sequence,
                    epoch=event.epoch,
                    id=event_id(watch.id, event.epoch, event.sequence),
                    name=event.type.value,
                    body=event_body(event, chain=self.chain, watch_id=watch.id, terms=watch.terms, now=now),
                    created_at=now,
                    summary=canonical(event_summary(event)).decode(),
                ),
            )
            for event in events
            if event.type in watch.events
        ]


def _hides_reorganisation(evaluated: EvaluatedWatch) -> bool:
    reorganised = any(event.type is EventType.REORGED for event in evaluated.events)
    return reorganised and EventType.REORGED not in evaluated.watch.events


def watch_of(row: WatchRow) -> Watch:
    """The watch in a row."""
    return Watch(
        id=row.id,
        merchant=row.merchant,
        terms=PaymentTerms(row.reference, row.recipient, row.amount, row.required, row.since_height),
        callback_url=row.callback_url,
        host=row.host,
        created_at=row.created_at,
        expires_at=row.expires_at,
        pay_until=row.pay_until,
        events=frozenset(map(EventType, row.events.split())),
        state=PaymentState(row.state),
        location=_location_of(row),
        epoch=row.epoch,
        sequence=row.sequence,
        close_height=row.close_height,
        ending=None if row.ending is None else EndReason(row.ending),
        reported_mismatches=None if row.reported_mismatches is None else _txids_in(row.reported_mismatches),
    )


def _txids_in(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[at : at + 32] for at in range(0, len(joined), 32))


def _location_of(row: WatchRow) -> PaymentLocation | None:
    location = row.txid, row.block_hash, row.height, row.position, row.block_time
    return None if None in location else PaymentLocation(*location)  # type: ignore[arg-type]


def _row_of(watch: Watch, due: NextEvaluation, ended_at: int | None, evaluated_height: int | None) -> WatchRow:
    terms, location = watch.terms, watch.location
    return WatchRow(
        id=watch.id,
        merchant=watch.merchant,
        reference=terms.reference,
        recipient=terms.recipient,
        amount=terms.amount,
        required=terms.required,
        since_height=terms.since_height,
        callback_url=watch.callback_url,
        host=watch.host,
        created_at=watch.created_at,
        expires_at=watch.expires_at,
        pay_until=watch.pay_until,
        events=" ".join(sorted(watch.events)),
        state=watch.state.value,
        epoch=watch.epoch,
        sequence=watch.sequence,
        close_height=watch.close_height,
        ending=None if watch.ending is None else watch.ending.value,
        txid=None if location is None else location.txid,
        block_hash=None if location is None else location.block_hash,
        height=None if location is None else location.height,
        position=None if location is None else location.position,
        block_time=None if location is None else location.block_time,
        wake_height=due.height,
        wake_at=due.at,
        ended_at=ended_at,
        reported_mismatches=None if watch.reported_mismatches is None else b"".join(watch.reported_mismatches),
        evaluated_height=evaluated_height,
    )
