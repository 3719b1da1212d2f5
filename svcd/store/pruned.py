"""The errors of reads, and of a reorganisation, below the prune height."""


class Pruned(Exception):
    """Blocks below :attr:`prune_height` were asked for, of which this node has headers only (docs/storage.md)."""

    def __init__(self, prune_height: int, asked: str, advice: str) -> None:
        """``asked`` is what was asked for, and ``advice`` a clause that says what to ask for instead."""
        super().__init__(prune_height, asked, advice)
        self.prune_height = prune_height
        self.asked = asked
        self.advice = advice

    def __str__(self) -> str:
        here = f"this node has only blocks from height {self.prune_height} on"
        return f"{self.asked}: {here}; {self.advice}, or ask a node that has all"


class ReorganisationBelowPruneHeight(Exception):
    """A chain with more work forks below the prune height: this node cannot follow it."""

    def __init__(self, fork: int, prune_height: int) -> None:
        """``fork`` is the height of the last common block."""
        super().__init__(fork, prune_height)
        self.fork = fork
        self.prune_height = prune_height

    def __str__(self) -> str:
        return (
            f"a chain with more work leaves this node's at block {self.fork}, and this node has only blocks from "
            f"height {self.prune_height} on, so it cannot follow"
        )
