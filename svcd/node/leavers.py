"""Who leaves a full mempool first (docs/protocol.md 12)."""

from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush

Leaver = tuple[bool, int, int, bytes]
"""Whether a block could hold it, fee per byte, minus the local number, txid: the least leaves first."""


class Leavers:
    """A heap of each sender's last transfer; items that ``is_current`` denies are skipped."""

    def __init__(self, is_current: Callable[[Leaver], bool]) -> None:
        self._is_current = is_current
        self._heap: list[Leaver] = []

    def __len__(self) -> int:
        return len(self._heap)

    def note(self, item: Leaver, *, waiting: int) -> None:
        """Add ``item``; of more than twice as many as there are ``waiting`` transfers, the stale ones go."""
        heappush(self._heap, item)
        if len(self._heap) > 2 * waiting + 64:
            # A set: what was the last one, then was not, and is again has been noted twice.
            self._heap = list({item for item in self._heap if self._is_current(item)})
            heapify(self._heap)

    def in_order(self) -> Generator[Leaver, None, None]:
        """The items from the first to leave on; close it, and all of them are back."""
        seen: set[Leaver] = set()
        try:
            while self._heap:
                item = heappop(self._heap)
                if item not in seen and self._is_current(item):
                    seen.add(item)
                    yield item
        finally:
            for item in seen:
                heappush(self._heap, item)
