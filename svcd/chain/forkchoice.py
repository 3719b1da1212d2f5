"""Which of two tips is the chain (docs/protocol.md 10)."""

from svcd.chain.encoding import tagged_hash
from svcd.chain.transition import ChainPoint


def tie_winner(a: bytes, b: bytes) -> bytes:
    """The one of two block hashes that stands when both chains have the same work, whichever is asked first."""
    pair = min(a, b) + max(a, b)
    return min(a, b, key=lambda tip: tagged_hash("svc/tie/v1", pair + tip))


def prefers(candidate: ChainPoint, present: ChainPoint) -> bool:
    """Whether a newly accepted ``candidate`` takes the place of the ``present`` tip."""
    if candidate.work != present.work:
        return candidate.work > present.work
    return candidate.hash != present.hash and tie_winner(candidate.hash, present.hash) == candidate.hash
