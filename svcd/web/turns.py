"""Whose turn it is among connections on which several requests came at once: few go on in each turn of the reactor."""

from typing import Final, Protocol

from svcd.ports import Clock

AT_ONCE: Final = 8
"""Requests that are answered between two looks at the sockets: a millisecond or two."""
AHEAD_BYTES: Final = 16 * 1024
"""How much is read of the further requests of a connection while others have their turn."""


class Waiting(Protocol):
    """A connection on which the next request is here already."""

    def go_on(self) -> None:
        """Begin the next request."""


class Turns:
    """Lets connections go on one after the other, each with one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A dict for its order: the one that has waited longest stands first.
        self._waiting: dict[Waiting, None] = {}
        self._is_due = False

    def wait(self, connection: Waiting) -> None:
        """Let a connection go on when all that wait have had a turn, and whoever asks one thing at a time as well."""
        self._waiting[connection] = None
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
        taken = list(self._waiting)[:AT_ONCE]
        try:
            for connection in taken:
                # The turn of another may have ended it.
                if connection in self._waiting:
                    del self._waiting[connection]
                    connection.go_on()
        finally:
            self._come_again()
