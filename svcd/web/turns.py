"""Whose turn it is among connections on which several requests came at once: few go on in each turn of the reactor."""

from typing import TYPE_CHECKING, Final, Protocol

from svcd.ports import Clock

if TYPE_CHECKING:
    from svcd.web.request import Request

AT_ONCE: Final = 8
"""Requests that are answered between two looks at the sockets: a millisecond or two."""


class Waiting(Protocol):
    """A connection on which the next request is here already."""

    def go_on(self, answered: "Request") -> None:
        """Begin the request after the one that has been answered."""


class Turns:
    """Lets connections go on one after the other, each with one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Waiting, Request] = {}
        self._is_due = False

    def wait(self, connection: Waiting, answered: "Request") -> None:
        """Let a connection go on when all that wait have had a turn, and whoever asks one thing at a time as well."""
        self._waiting[connection] = answered
        self._come_again()

    def forget(self, connection: Waiting) -> None:
        """Let a connection not go on; nothing happens if it does not wait."""
        self._waiting.pop(connection, None)

    def _come_again(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._clock.callLater(0, self._take)

    def _take(self) -> None:
        self._is_due = False
        taken = [(connection, self._waiting.pop(connection)) for connection in list(self._waiting)[:AT_ONCE]]
        self._come_again()
        for connection, answered in taken:
            connection.go_on(answered)
