"""How many attempts to make a block this computer makes in a second."""

from collections.abc import Callable
from typing import Final

from svcd.chain.work import work_value

_SECONDS: Final = 0.5
"""Long enough to be right within some percent, and short enough not to be waited for."""


def hash_rate(memory_kib: int, clock: Callable[[], float]) -> float:
    """Attempts a second of one thread with so many KiB of memory; ``clock`` returns seconds."""
    # The first one also gets the memory from the system.
    work_value(bytes(32), bytes(8), memory_kib)
    attempts, start = 0, clock()
    while (elapsed := clock() - start) < _SECONDS:
        work_value(bytes(32), attempts.to_bytes(8, "big"), memory_kib)
        attempts += 1
    return attempts / elapsed
