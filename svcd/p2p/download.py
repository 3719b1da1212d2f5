"""Which ranges of blocks to ask for, and in what order they go on: the book-keeping of a download, without any call."""

from typing import Final

from attrs import define, field, frozen

from svcd.p2p.client import BLOCKS_BYTES
from svcd.p2p.fields import MAX_BLOCKS

WINDOW_BLOCKS: Final = 1_024
WINDOW_BYTES: Final = 64 * 1024 * 1024


@frozen
class Range:
    """Blocks to ask one peer for: ``count`` from height ``first`` on."""

    first: int
    count: int


@define(eq=False)
class Arrived:
    """Blocks that came, in order, and who sent them (an endpoint)."""

    first: int
    blocks: list[bytes]
    sender: str


@define
class Download:
    """The blocks from ``next_height`` up to ``last`` as a window that moves; ranges may arrive in any order."""

    next_height: int
    """The first block that has not been handed on."""
    last: int
    _next_range: int = field(init=False)
    _again: list[Range] = field(factory=list)
    _arrived: dict[int, Arrived] = field(factory=dict)
    _asked: set[int] = field(factory=set)
    _bytes: int = 0

    def __attrs_post_init__(self) -> None:
        self._next_range = self.next_height

    @property
    def finished(self) -> bool:
        """Whether every block has been handed on."""
        return self.next_height > self.last

    def peek(self) -> Range | None:
        """The next range to ask somebody for; None while the window is full or nothing is left.

        The one that everything waits for is asked for again however full it is.
        """
        # What has been asked for has room of its own: answers that come together must not be more than fits.
        full = self._bytes + BLOCKS_BYTES * (len(self._asked) + 1) > WINDOW_BYTES
        if self._again:
            wanted = min(self._again, key=lambda other: other.first)
            return None if full and wanted.first != self.next_height else wanted
        room = self.next_height + WINDOW_BLOCKS - self._next_range
        if full or room < MAX_BLOCKS or self._next_range > self.last:
            return None
        return Range(self._next_range, min(MAX_BLOCKS, self.last - self._next_range + 1))

    def next_range(self) -> Range | None:
        """The same, and from now on it counts as asked for."""
        wanted = self.peek()
        if wanted is not None:
            if wanted in self._again:
                self._again.remove(wanted)
            else:
                self._next_range += wanted.count
            self._asked.add(wanted.first)
        return wanted

    def failed(self, wanted: Range) -> None:
        """The range did not come: it is asked for again, of somebody else perhaps."""
        if wanted.first in self._asked:
            self._asked.discard(wanted.first)
            self._again.append(wanted)

    def arrived(self, wanted: Range, blocks: list[bytes], sender: str) -> None:
        """Blocks came for a range; what is missing at its end, for a reply has a greatest size, is asked for again."""
        if wanted.first not in self._asked:
            return
        self._asked.discard(wanted.first)
        taken = blocks[: wanted.count]
        self._arrived[wanted.first] = Arrived(wanted.first, taken, sender)
        self._bytes += sum(len(block) for block in taken)
        if len(taken) < wanted.count:
            self._again.append(Range(wanted.first + len(taken), wanted.count - len(taken)))

    def take(self, *, max_blocks: int, max_bytes: int) -> list[Arrived]:
        """The next blocks in order of height that can go on together; at least one range if any is there."""
        taken: list[Arrived] = []
        count = size = 0
        while self.next_height in self._arrived:
            arrived = self._arrived[self.next_height]
            bytes_in = sum(len(block) for block in arrived.blocks)
            if taken and (count + len(arrived.blocks) > max_blocks or size + bytes_in > max_bytes):
                break
            del self._arrived[self.next_height]
            self._bytes -= bytes_in
            self.next_height += len(arrived.blocks)
            count, size = count + len(arrived.blocks), size + bytes_in
            taken.append(arrived)
        return taken
