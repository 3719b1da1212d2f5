"""Which sorted runs of a log-structured merge tree are merged next: those of about the same size (size-tiered)."""

from collections.abc import Sequence


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
