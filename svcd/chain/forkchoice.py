"""Which of two tips is the chain (docs/protocol.md 10)."""

from .encoding import tagged_hash
from .transition import ChainPoint


def tie_winner(a: bytes, b: bytes) -> bytes:
    """The hash of the block that wins if both chains have the same work, independent of the order of the arguments."""
    pair = min(a, b) + max(a, b)
    return min(a, b, key=lambda tip: tagged_hash("svc/tie/v1", pair + tip))


def prefers(candidate: ChainPoint, present: ChainPoint) -> bool:
    """Whether a newly accepted ``candidate`` replaces the ``present`` tip."""
    if candidate.work != present.work:
        return candidate.work > present.work
    return candidate.hash != present.hash and tie_winner(candidate.hash, present.hash) == candidate.hash
