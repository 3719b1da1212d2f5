"""Log lines about events of the node, such as a new tip: a few a minute, and counts of the others."""

from collections import Counter
from enum import Enum
from math import inf
from typing import Final

from attrs import define, field
from twisted.logger import Logger, LogLevel

from svcd.interfaces import Clock
from svcd.limits import ENDLESS_LOG, limit
from svcd.quantities import counted

WINDOW_SECONDS: Final = 60.0
SHARED: Final = limit(12, "lines of news of one level in a minute, of all kinds together", "lines", ENDLESS_LOG)
AT_ONCE: Final = 20
"""More lines of one topic than are ever written in a minute."""
OWN: Final = limit(2, "lines of news of one level in a minute that each kind has besides", "lines", ENDLESS_LOG)


class Topic(Enum):
    """What a line is about: the words for one such line and for several, as the counts name them."""

    TIP = "new tip", "new tips"
    REORGANISATION = "reorganisation", "reorganisations"
    PEER_CAME = "peer came", "peers came"
    PEER_LEFT = "peer left", "peers left"
    PAYMENT = "payment seen", "payments seen"
    DELIVERED = "event delivered", "events delivered"
    GIVEN_UP = "event given up", "events given up"

    def counted(self, number: int) -> str:
        """Such as ``2 new tips``."""
        one, several = self.value
        return counted(number, one, several)


@define
class LineBudget:
    """Says which lines are written, and counts the others.

    In WINDOW_SECONDS from the first line on, SHARED lines are written, and OWN more of each topic, so that a flood of
    payments hides no reorganisation.
    """

    _began: float = field(default=-inf, init=False)
    _left: int = field(default=0, init=False)
    _own: Counter[Topic] = field(factory=Counter, init=False)
    _counted: Counter[Topic] = field(factory=Counter, init=False)

    def admits(self, topic: Topic, now: float) -> bool:
        """Whether a line is written at ``now``, in seconds; it is counted if it is not."""
        self._begin(now)
        if self._own[topic] < OWN:
            self._own[topic] += 1
        elif self._left:
            self._left -= 1
        else:
            self._counted[topic] += 1
            return False
        return True

    def count(self, topic: Topic, number: int, now: float) -> None:
        """Count lines that are not written."""
        self._begin(now)
        self._counted[topic] += number

    def take_counts(self, now: float) -> Counter[Topic]:
        """How many lines of each topic the last window has left out; nothing before it is over, and nothing twice."""
        if not self._counted or not self._is_over(now):
            return Counter()
        counts, self._counted = self._counted, Counter()
        return counts

    def _begin(self, now: float) -> None:
        if self._is_over(now):
            self._began, self._left = now, SHARED
            self._own.clear()

    def _is_over(self, now: float) -> bool:
        # A clock that was set back ends it, too.
        return not 0 <= now - self._began < WINDOW_SECONDS


class News:
    """Writes lines within a budget; for the reactor's thread."""

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # So that lines which the level of the log leaves out take no room from those that it lets through.
        self._budgets = {level: LineBudget() for level in (LogLevel.warn, LogLevel.info)}

    def info(self, text: str, topic: Topic, **fields: object) -> None:
        """Write a line, or count it; ``text`` names the ``fields`` in braces."""
        self._tell(LogLevel.info, text, topic, fields)

    def leave_out(self, topic: Topic, number: int) -> None:
        """Count lines of the level ``info`` that come with too many others to be written; none costs any time."""
        self.sum_up()
        self._budgets[LogLevel.info].count(topic, number, self._clock.seconds())

    def warn(self, text: str, topic: Topic, **fields: object) -> None:
        """The same at the level ``warn``."""
        self._tell(LogLevel.warn, text, topic, fields)

    def _tell(self, level: LogLevel, text: str, topic: Topic, fields: dict[str, object]) -> None:
        self.sum_up()
        if self._budgets[level].admits(topic, self._clock.seconds()):
            self.log.emit(level, text, **fields)

    def sum_up(self) -> None:
        """Write how many lines were left out, if a minute with such lines is over; to be called every few seconds."""
        for level, budget in self._budgets.items():
            if counts := budget.take_counts(self._clock.seconds()):
                self.log.emit(
                    level,
                    "more in that minute: {_counts}",
                    _counts=", ".join(topic.counted(number) for topic, number in counts.items()),
                    **{topic.name.lower(): number for topic, number in counts.items()},
                )
