"""Which sorted runs of the log-structured merge trees are merged, and how much of that a commit does.

Runs of about the same size are merged into one (size-tiered). The trees of a database share one budget, in proportion
to what is added to them: so a full block writes about as much whichever of them have runs to merge.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from attrs import define, field

_PER_ADDED_BYTE: Final = 3.5
"""Bytes that are merged for each one that is added to the trees."""
_ONE_MORE_UNDER_WAY: Final = 1 << 33
"""With so many bytes in merges under way, one more is merged for each that is added.

The larger the trees, the more often a row is moved: in full blocks, among 10^7 transfers and accounts 3.5 times, among
10^8 4.3 times. If less is merged than becomes due, more is under way, until as much is merged. So trees of any size
have few runs.
"""
_LEAST: Final = 1 << 17
"""Bytes that are merged with any addition, in some 10 ms.

Rows of small blocks are moved more often, of 50 transfers 7 times, of one transfer 90 times: their runs count as the
same size up to some blocks' rows. This is why it is added to what is merged, but not in full blocks.
"""


def mergeable(sizes: Sequence[int], small: int, fan_in: int) -> int:
    """How many of the newest runs are to be merged into one; 0 unless ``fan_in`` of them have about the same size.

    ``sizes`` are the rows of the runs, the newest first. Runs with fewer than ``small`` count as the same size, and so
    do those between two powers of ``fan_in`` times as many. Runs that are newer than these and smaller go along.
    """
    least, size = 0, small
    while True:
        count = next((at for at, rows in enumerate(sizes) if rows >= size), len(sizes))
        if sum(rows >= least for rows in sizes[:count]) >= fan_in:
            return count
        if count == len(sizes):
            return 0
        least, size = size, size * fan_in


class Tree(Protocol):
    """A tree that has merges under way."""

    def merges(self) -> Sequence[tuple[int, int]]:
        """Each of them: the bytes of the rows in its sources, and the number of the run into which they are merged.

        Bytes are what moving the rows writes.
        """

    def go_on(self, target: int, about: int) -> int:
        """Move about so many bytes into a run, in a few milliseconds; gives how many, at least 1."""


@define
class MergeBudget:
    """What the trees of a database share; inside a transaction."""

    trees: list[Tree] = field(factory=list)

    def merge(self, added: int) -> None:
        """Go on with the merges under way, after so many bytes have been added to the trees.

        The smallest are finished first, since they leave as many runs fewer as large ones; the others get the rest.
        """
        under_way = [tree.merges() for tree in self.trees]
        per_byte = _PER_ADDED_BYTE + sum(size for merges in under_way for size, _ in merges) / _ONE_MORE_UNDER_WAY
        left = round(max(per_byte * added, _LEAST + (per_byte - 1) * added))
        while left > 0 and any(under_way):
            (_, target), at = min((min(merges), at) for at, merges in enumerate(under_way) if merges)
            left -= self.trees[at].go_on(target, left)
            under_way[at] = self.trees[at].merges()
