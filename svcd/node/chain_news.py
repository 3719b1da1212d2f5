"""News of the chain: each new tip, and each reorganisation."""

from collections.abc import Callable

from attrs import define, field

from svcd.interfaces import Clock
from svcd.node.chain_alarms import DEEP_BLOCKS
from svcd.node.changes import ChainChange
from svcd.node.news import News, Topic
from svcd.quantities import counted


def brief(block_hash: bytes) -> str:
    """The first digits of a hash, for a line."""
    return f"{block_hash.hex()[:12]}..."


@define
class ChainNews:
    """A listener of the chain. While the node catches up with ``target``, the progress is told in place of tips."""

    news: News
    clock: Clock
    target: Callable[[], int] = lambda: 0
    """The height that is being caught up with; 0 for none."""
    _changed: float | None = field(default=None, init=False)
    """When (the clock's seconds) the tip last changed; None if it has not, since the start."""

    def chain_changed(self, change: ChainChange) -> None:
        """Tell of the change."""
        now, before = self.clock.seconds(), self._changed
        self._changed = now
        if change.newest is None:
            # The start from a snapshot tells of it.
            return
        if 0 < len(change.undone) < DEEP_BLOCKS:
            # The alarm tells of a deeper one.
            self._tell_reorganisation(change)
        elif not change.undone and change.tip.height >= self.target():
            self._tell_tip(change, None if before is None else round(now - before, 1))

    def _tell_reorganisation(self, change: ChainChange) -> None:
        before, tip, depth = change.undone[0].point, change.tip, len(change.undone)
        self.news.info(
            "reorganisation: {_blocks} undone; the tip was {_before} at height {before} and is {_hash} at height "
            "{height}{_from}; transfers that wait for a block again: {returned}",
            Topic.REORGANISATION,
            depth=depth,
            height=tip.height,
            hash=tip.hash.hex(),
            before=before.height,
            beforeHash=before.hash.hex(),
            returned=change.returned,
            source=change.source,
            _blocks=counted(depth, "block"),
            _before=brief(before.hash),
            _hash=brief(tip.hash),
            _from=_from(change),
        )

    def _tell_tip(self, change: ChainChange, seconds: float | None) -> None:
        tip, blocks = change.tip, len(change.applied)
        transfers = sum(block.transfer_count for block in change.applied)
        self.news.info(
            "{_blocks} {_hash} with {_transfers}{_after}{_from}",
            Topic.TIP,
            height=tip.height,
            hash=tip.hash.hex(),
            transfers=transfers,
            seconds=seconds,
            blocks=blocks,
            source=change.source,
            _blocks=f"block {tip.height}" if blocks == 1 else f"blocks {tip.height - blocks + 1} to {tip.height}",
            _hash=brief(tip.hash),
            _transfers=counted(transfers, "transfer"),
            _after="" if seconds is None else f", {seconds:g} s after the tip before",
            _from=_from(change),
        )


def _from(change: ChainChange) -> str:
    return f", from {change.source}" if change.source else ""
