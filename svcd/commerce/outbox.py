"""What waits to be sent to merchants, as whoever sends it sees it (docs/webhooks.md "Delivery").

Times are milliseconds since the Unix epoch.
"""

from typing import Protocol

from attrs import field, frozen
from twisted.internet.defer import Deferred


@frozen
class Lane:
    """A watch that has something to send. Its events go out one after the other, in the order of their sequence."""

    watch: str
    """Its id, ``svcwh_…``."""
    host: str
    """Of its callback."""
    due: int
    """When its next attempt is to be made."""


@frozen
class Parcel:
    """The head of a lane: the event of lowest sequence that is neither delivered nor superseded nor abandoned."""

    watch: str
    host: str
    sequence: int
    event_id: str
    """``svcevt_…``."""
    event: str
    """Its name, such as ``payment.confirmed``."""
    url: str = field(repr=False)
    """The callback, whose path and query may hold a secret of the merchant's."""
    body: bytes = field(repr=False)
    """Exactly what is signed and sent."""
    attempts: int
    """How many have been made before."""
    created_at: int


class Outbox(Protocol):
    """Where events wait. Each call is one transaction; its Deferred fails if the disk does not take it."""

    def head(self, watch: str) -> Deferred[Parcel | None]:
        """What a watch has to send next; None if there is nothing, or no such watch any more."""

    def delivered(self, parcel: Parcel, now: int) -> Deferred[Lane | None]:
        """The receiver has it; gives the lane again if more waits."""

    def failed(
        self, parcel: Parcel, *, error: str, due: int | None, now: int, counts: bool = True
    ) -> Deferred[Lane | None]:
        """An attempt failed; the next is due at ``due``, or the event is abandoned if that is None.

        Unless it ``counts``, it is none of the attempts that an event has.

        ``error`` is a category such as "timeout" or "status 500", never a receiver's words. Gives the lane again if
        something waits.
        """

    def gone(self, parcel: Parcel, now: int) -> Deferred[None]:
        """The receiver wants no more (410): the watch ends, and what it has not delivered is dropped."""
