"""Reads the feeds of the addresses that buyers pay to, and marks the attempts that what they tell concerns.

A feed tells every payment to an address in the order of the chain, and those that a reorganisation has undone, so that
one request says of all open orders which of them are to be looked at: a mark is that ``look_at`` has come. What follows
from a payment is decided by ``attempts.look``, as for events and open pages. The place in a feed moves in the transaction
that marks, so that an interruption at any instant skips nothing.
"""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Least
from django.utils.timezone import now
from pretix.base.models import Event
from svc_pay import ApiError, BadRequest, Client, State, StoreError, network_of
from svc_pay.order_book import (
    FeedAnswer, Paid, Place, Waiting, moved, reaches_tip,
)

from .attempts import MOST_DEPTH
from .models import Feed, Note

MOST_ANSWERS = 20
"""How many answers of a feed one run reads at most; the next one goes on from there."""
GONE = 410
"""The status with which a node refuses to read blocks that it has pruned."""
NO_BLOCK = 2**53 - 1
"""A height that no block has: a feed from there on begins at the tip."""


def feeds_of(attempts: QuerySet) -> list[tuple[Event, str]]:
    """The events and addresses whose feeds are to be read for these attempts, those of a changed setting too."""
    followed = attempts.filter(payment__isnull=False, follow_until__gt=now())
    found = list(followed.order_by().values_list("order__event", "recipient").distinct())
    events = Event.objects.select_related("organizer").in_bulk({event for event, _ in found})
    return [(events[event], recipient) for event, recipient in found]


def read(client: Client, event: Event, recipient: str) -> None:
    """Read a feed up to the tip, and mark what it concerns; raises SvcPayError.

    Nothing is read while the node is not in sync: its chain may not be the network's.
    """
    genesis = (client.network or network_of(recipient)).genesis_hash
    feed, _ = Feed.objects.get_or_create(event=event, recipient=recipient)
    place = stored(feed, genesis)
    is_new = place is None
    if is_new:
        place = begin(client, feed, genesis)
    for _answer in range(MOST_ANSWERS):
        if place is None:
            return
        try:
            answer = client.feed(place)
        except ApiError as error:
            refused = isinstance(error, BadRequest) or error.status == GONE
            if is_new or not refused:
                raise
            place, is_new = begin(client, feed, genesis), True
        else:
            after = take(feed, place, answer)
            place = None if reaches_tip(place, answer) else after


def stored(feed: Feed, genesis: str) -> Place | None:
    """The place in a feed; None if there is none, or none of this network that this version of the client can read."""
    try:
        place = Place.of(feed.place)
    except StoreError:
        return None
    return place if place.genesis == genesis else None


def begin(client: Client, feed: Feed, genesis: str) -> Place | None:
    """Go on from the tip, and have the node asked once about each attempt, as the place before is of no use.

    What has come so far is found by that, and what comes from now on by the feed.
    """
    answer = client.feed(Place(feed.recipient, genesis, since=NO_BLOCK))
    # Not with that height: after a rewind to below the tip nothing that is there then would be told.
    after = moved(Place(feed.recipient, genesis), answer)
    return move(feed, after, answer, feed.attempts.filter(follow_until__gt=now()))


def take(feed: Feed, place: Place, answer: FeedAnswer) -> Place | None:
    """Mark the attempts that an answer concerns."""
    concerned = Q(pk__in=paid(feed.attempts, answer.payments))
    if answer.rewind is not None:
        above = Note.objects.filter(state=Note.OPEN, kind__in=Note.TRANSFERS, height__gt=answer.rewind)
        concerned |= Q(height__gt=answer.rewind) | Q(pk__in=above.values("attempt"))
    if reaches_tip(place, answer):
        concerned |= Q(pk__in=changed_in_mempool(feed.attempts, answer.waiting))
        concerned |= Q(state=State.CONFIRMING, height__lte=answer.tip.height + 1 - F("confirmations"))
    return move(feed, moved(place, answer), answer, feed.attempts.filter(concerned))


def paid(attempts: QuerySet, payments: Sequence[Paid]) -> list[int]:
    """The attempts under the references of payments, except those of which exactly these are known."""
    found = attempts.in_bulk({each.reference for each in payments if each.reference is not None}, field_name="reference")
    concerned = []
    for each in payments:
        attempt = found.get(each.reference)
        if attempt is not None and (attempt.txid, attempt.height) != (each.txid, each.height):
            concerned.append(attempt.pk)
    return concerned


def changed_in_mempool(attempts: QuerySet, waiting: Sequence[Waiting]) -> list[int]:
    """The attempts whose transfer waits for a block and did not before, or does no longer."""
    wait = {(each.reference, each.amount) for each in waiting}
    references = [reference for reference, _ in wait if reference is not None]
    found = attempts.filter(Q(state=State.PENDING) | Q(state=State.UNPAID, reference__in=references))
    return [each.pk for each in found if ((each.reference, each.amount) in wait) != (each.state == State.PENDING)]


def move(feed: Feed, place: Place, answer: FeedAnswer, concerned: QuerySet) -> Place | None:
    """Mark attempts and move the place, in one transaction; None, and nothing, if the answer is not to be used.

    That is so if the node is not in sync, or if another process has moved the place.
    """
    tip = answer.tip.height
    with transaction.atomic():
        row = Feed.objects.select_for_update().get(pk=feed.pk)
        if not answer.synced or row.place != feed.place:
            return None
        # An answer that was asked for before does not count any more, nor does that of a node which is behind.
        concerned.update(look_at=now(), told_height=tip, revision=F("revision") + 1)
        unmarked = feed.attempts.filter(state=State.CONFIRMING, height__lte=tip).exclude(look_at__lte=now())
        unmarked.update(depth=Least(tip + 1 - F("height"), MOST_DEPTH))
        row.place = place.text
        row.save()
    feed.place = row.place
    return place
