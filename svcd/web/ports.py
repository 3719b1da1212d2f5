"""What this room asks of the reactor, as far as mypy can check it."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later (twisted.internet.interfaces.IDelayedCall)."""

    def cancel(self) -> None: ...

    def getTime(self) -> float: ...  # noqa: N802

    def reset(self, seconds: float, /) -> None: ...


class Clock(Protocol):
    """Time in seconds and calls that are due later: a reactor, or twisted.internet.task.Clock."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[..., object], /) -> Timer: ...  # noqa: N802
