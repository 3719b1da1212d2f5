"""Blocks that are ahead of the local clock: kept until their slot is due (docs/protocol.md 10)."""

from collections.abc import Callable
from typing import Final

from svcd.chain.errors import NotYet, Wait
from svcd.chain.params import NetworkParams
from svcd.ports import Clock, Timer, milliseconds

MAX_HELD: Final = 64
MAX_SLOTS_AHEAD: Final = 60


class EarlyBlocks:
    """At most 64 blocks at most 60 slots ahead; ``resubmit`` gets each one's canonical JSON when it is due."""

    def __init__(self, clock: Clock, params: NetworkParams, resubmit: Callable[[bytes], None]) -> None:
        self._clock = clock
        self._params = params
        self._resubmit = resubmit
        self._held: dict[bytes, Timer] = {}

    def __len__(self) -> int:
        return len(self._held)

    def refuse_far(self, slot: int) -> None:
        """Raise NotYet(EARLY) for a slot so far ahead that its block would not be kept."""
        if self._ahead(slot) > MAX_SLOTS_AHEAD:
            raise _too_far(slot)

    def hold_if_early(self, block_hash: bytes, *, slot: int, data: Callable[[], bytes]) -> None:
        """Raise NotYet(EARLY) for a block beyond the present slot and the drift, which is kept if there is room.

        ``data`` gives its canonical JSON.
        """
        if self._ahead(slot) <= 0:
            return
        if block_hash not in self._held:
            self.refuse_far(slot)
            if len(self._held) == MAX_HELD:
                raise _too_far(slot)
            due = self._params.slot_time(slot - self._params.drift_slots)
            wait = (due - milliseconds(self._clock)) / 1000
            self._held[block_hash] = self._clock.callLater(wait, self._release, block_hash, data())
        raise NotYet(Wait.EARLY, f"slot {slot} lies in the future; the block is kept until it is due")

    def _ahead(self, slot: int) -> int:
        return slot - self._params.drift_slots - self._params.slot_at(milliseconds(self._clock))

    def _release(self, block_hash: bytes, data: bytes) -> None:
        del self._held[block_hash]
        self._resubmit(data)

    def clear(self) -> None:
        """Let go of everything."""
        for call in self._held.values():
            call.cancel()
        self._held.clear()


def _too_far(slot: int) -> NotYet:
    return NotYet(Wait.EARLY, f"slot {slot} lies too far in the future; send the block again when it is due")
