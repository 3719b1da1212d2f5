"""How fast a node searches for participation work, and what it may expect of that (docs/protocol.md 6)."""

from collections import deque
from typing import Final

from attrs import define, field, frozen

from svcd.chain.block import Header
from svcd.chain.work import effective_target
from svcd.quantities import duration

RATE_SECONDS: Final = 60.0
"""The rate is that of the last minute."""
SAMPLE_SECONDS: Final = 5.0
"""How often the attempts are counted."""


def expected_attempts(header: Header) -> int:
    """The attempts after which a nonce for ``header`` is found, on average."""
    return 2**256 // effective_target(header.base_target, header.multiplier)


@frozen
class WorkRate:
    """The search for the next block."""

    height: int
    """Of the block."""
    attempts_per_second: float
    attempts_expected: int
    """For one block, on average."""

    @property
    def seconds_expected(self) -> float | None:
        """The time for one block, on average, at this rate; None while no attempt has been counted."""
        return self.attempts_expected / self.attempts_per_second if self.attempts_per_second else None

    @property
    def words(self) -> str:
        """Such as ``3.9 attempts/s, 240 attempts for a block on average: 62 s``."""
        seconds = self.seconds_expected
        expected = f"{self.attempts_expected:,} attempts for a block on average"
        if seconds is None:
            return expected
        return f"{self.attempts_per_second:,.1f} attempts/s, {expected}: {duration(seconds)}"

    def record(self) -> dict[str, object]:
        """The JSON object of the operator's status."""
        seconds = self.seconds_expected
        return {
            "height": str(self.height),
            "attemptsPerSecond": round(self.attempts_per_second, 2),
            "attemptsExpected": str(self.attempts_expected),
            "secondsExpected": None if seconds is None else round(seconds, 1),
        }


@define
class AttemptCounts:
    """Counts of attempts at some moments of the last minute, for the rate."""

    _counts: deque[tuple[float, int]] = field(factory=deque, init=False)

    def note(self, now: float, attempts: int) -> None:
        """Note how many attempts there have been by ``now``, in seconds."""
        self._counts.append((now, attempts))
        while now - self._counts[0][0] > RATE_SECONDS:
            self._counts.popleft()

    def clear(self) -> None:
        """Forget the counts: nothing is searched for."""
        self._counts.clear()

    @property
    def per_second(self) -> float:
        """The rate between the first and the last count; 0 before there are two."""
        if len(self._counts) < 2:
            return 0.0
        (began, first), (ended, last) = self._counts[0], self._counts[-1]
        return (last - first) / max(ended - began, 1e-3)
