"""How the chain has moved since the watches last looked: the same question after a block and after a year off.

The watches keep the hashes of the blocks they have seen. Going back over these to one that is still canonical finds
what has been undone, even if the node was killed in between or the chain's file was replaced.
"""

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from svcd.commerce.payment import Tip
from svcd.store.chain_store import ChainReader
from svcd.store.webhook_store import WebhookStore

KEPT: Final = 4_096
"""Blocks of the trail that are kept: more than any confirmation depth that can be asked for."""


@frozen
class Span:
    """What lies between where the watches stood and the tip."""

    tip: Tip
    before: int
    """The height at which the watches stood."""
    fork: int
    """The height of the newest block that both have; what stood above it has been undone."""

    @property
    def moved(self) -> bool:
        """Whether there is anything between the two."""
        return not self.fork == self.before == self.tip.height

    @property
    def heights(self) -> range:
        """The heights of the blocks that the watches have not seen."""
        return range(self.fork + 1, self.tip.height + 1)


def span_between(watches: WebhookStore, reader: ChainReader) -> Span | None:
    """How the chain has moved since the watches last looked, within one snapshot of ``reader``.

    None if the chain has lost blocks that the watches have seen, as after a power loss: it will fetch them again, and
    until then nothing has been taken back.
    """
    point = reader.tip()
    if point is None:
        return None
    tip = Tip(point.height, point.hash)
    newest = watches.newest_step()
    if newest is None:
        return Span(tip, tip.height, tip.height)
    fork = -1
    for height, block_hash in watches.steps_down():
        fork = height - 1
        stored = reader.canonical(height) if height <= tip.height else None
        if stored is not None and stored.point.hash == block_hash:
            fork = height
            break
    if tip.height < newest[0] and fork >= tip.height:
        return None
    return Span(tip, newest[0], min(fork, tip.height))


def go(watches: WebhookStore, reader: ChainReader, span: Span) -> None:
    """Make the trail end at the tip."""
    if watches.newest_step() is None:
        watches.follow(span.fork, [(span.tip.height, span.tip.hash)], keep=KEPT)
    elif span.moved:
        newest = span.heights[-KEPT:]
        watches.follow(span.fork, list(_steps(reader, newest)), keep=KEPT)


def _steps(reader: ChainReader, heights: range) -> Iterator[tuple[int, bytes]]:
    for height in heights:
        stored = reader.canonical(height)
        if stored is not None:
            yield height, stored.point.hash
