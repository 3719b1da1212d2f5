"""The error of reads below the prune height."""


class Pruned(Exception):
    """Blocks below :attr:`prune_height` were asked for, of which this node has headers only (docs/operations.md)."""

    def __init__(self, prune_height: int, asked: str, advice: str) -> None:
        """``asked`` is what was asked for, and ``advice`` a clause that says what to ask for instead."""
        super().__init__(prune_height, asked, advice)
        self.prune_height = prune_height
        self.asked = asked
        self.advice = advice

    def __str__(self) -> str:
        here = f"this node has only blocks from height {self.prune_height} on"
        return f"{self.asked}: {here}; {self.advice}, or ask a node that has all"
