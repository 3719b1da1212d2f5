"""How far catching up has come: said in the log once a second at most, and asked for by the operator."""

from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.ports import Clock

_LOG_SECONDS: Final = 1.0


@frozen
class Snapshot:
    """The present state of catching up; times in seconds."""

    height: int
    target: int
    blocks_per_second: float
    seconds_left: float


class Progress:
    """Counts connected blocks while the node catches up."""

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0
        self._said = 0.0
        self._blocks = 0
        self._height = 0
        self._target: int | None = None

    def begin(self, height: int, target: int) -> None:
        """Catching up begins at ``height`` and aims at ``target``."""
        self._began = self._clock.seconds()
        self._blocks, self._height, self._target = 0, height, target

    def connected(self, blocks: int, height: int) -> None:
        """So many more blocks are in the chain, whose tip is at ``height``."""
        self._blocks += blocks
        self._height = height
        now = self._clock.seconds()
        state = self.snapshot()
        if state is not None and now - self._said >= _LOG_SECONDS:
            self._said = now
            self.log.info(
                "catching up: block {height} of {target}, {rate} blocks/s, {left} s left",
                height=state.height,
                target=state.target,
                rate=round(state.blocks_per_second, 1),
                left=round(state.seconds_left),
            )

    def end(self) -> None:
        """Catching up is over, or has been given up."""
        self._target = None

    def snapshot(self) -> Snapshot | None:
        """The present state; None while the node is not catching up."""
        if self._target is None:
            return None
        elapsed = max(self._clock.seconds() - self._began, 1e-3)
        rate = self._blocks / elapsed
        left = (self._target - self._height) / rate if rate else 0.0
        return Snapshot(self._height, self._target, rate, left)
