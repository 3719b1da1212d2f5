"""The block that the operator knows: no chain without it is followed (``[chain] expect``, docs/storage.md)."""

from typing import Final

from attrs import define, frozen
from twisted.logger import Logger

from svcd.chain.errors import NotYet, Wait
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock

_LOG_SECONDS: Final = 600.0
"""Between two lines of the log about refused chains: a peer can show as many as it likes."""


class UnexpectedBlock(NotYet):
    """A chain that does not have the block that the operator expects. No fault of who sent it: the operator may err."""

    def __init__(self, detail: str) -> None:
        # For the sender as an early block: there is nothing more to be sent.
        super().__init__(Wait.EARLY, detail)


@frozen
class PinnedBlock:
    """A height, 1 or more, and the hash of the block that the chain must have there."""

    height: int
    hash: bytes

    @classmethod
    def parse(cls, text: str) -> "PinnedBlock":
        """The block that a text names, ``HEIGHT:HASH``, with 64 hex digits."""
        height, _, block_hash = text.partition(":")
        return cls(int(height), bytes.fromhex(block_hash))

    def __str__(self) -> str:
        return f"{self.height}:{self.hash.hex()}"

    def refusal(self, point: ChainPoint) -> UnexpectedBlock | None:
        """Why a chain with the block ``point`` is not followed; None if it may be followed."""
        if point.height != self.height or point.hash == self.hash:
            return None
        return UnexpectedBlock(f"its block {point.height} is {point.hash.hex()}, and [chain] expect = {self}")


@define(eq=False)
class ChainPin:
    """Refuses chains without the expected block, if there is one, and logs it now and then."""

    block: PinnedBlock | None
    _clock: Clock
    _said: float | None = None

    log = Logger()

    def refusal(self, point: ChainPoint) -> UnexpectedBlock | None:
        """Why a chain with the block ``point`` is not followed; None if it may be followed."""
        refusal = None if self.block is None else self.block.refusal(point)
        now = self._clock.seconds()
        if refusal is not None and (self._said is None or now - self._said >= _LOG_SECONDS):
            self._said = now
            self.log.warn("a chain is refused: {why}", why=refusal.detail)
        return refusal
