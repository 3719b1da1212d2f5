"""The time as a command sees it, and pauses."""

import time
from typing import Protocol


class BlockingClock(Protocol):
    """Time, and pauses that block the process."""

    def milliseconds(self) -> int:
        """The Unix time of this computer in milliseconds, which is what the chain counts in."""

    def monotonic(self) -> float:
        """Seconds that run evenly, for deadlines."""

    def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""


class SystemClock:
    """The clocks of this computer."""

    def milliseconds(self) -> int:
        """See BlockingClock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See BlockingClock."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """See BlockingClock."""
        time.sleep(seconds)
