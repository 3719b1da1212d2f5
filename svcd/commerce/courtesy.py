"""Lets the chain go first while a step of the watches is under way (docs/performance.md "Watches")."""

from collections.abc import Callable
from typing import Final

from attrs import define, field

NAP_SECONDS: Final = 0.005
LONGEST_SECONDS: Final = 2.0
"""What one step may be held up in all: the events that wait to be sent are held up with it."""


@define
class Courtesy:
    """Holds up one step while ``busy`` says so; ``nap`` lets the step's thread rest for some seconds.

    Two threads that both want the interpreter get half of it each, so a block that comes while 2,000 watches are being
    told would otherwise take twice its time.
    """

    _busy: Callable[[], bool]
    _nap: Callable[[float], object]
    _naps: int = field(default=round(LONGEST_SECONDS / NAP_SECONDS), init=False)
    """That are left."""

    def give_way(self) -> None:
        """Return when nobody is in a hurry, or the step has waited for long enough."""
        while self._naps and self._busy():
            self._naps -= 1
            self._nap(NAP_SECONDS)
