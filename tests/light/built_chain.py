"""A chain of blocks that a test has built, as a node that proves it reads it."""

from collections.abc import Sequence

from attrs import frozen

from svcd.chain.block import Block
from svcd.chain.history import Node, join
from svcd.chain.transition import history_leaf
from tests.chains import ChainBuilder


@frozen
class BuiltChain:
    """Blocks one on the other, as `svcd.light.prover.ProvableChain`; nobody has checked them."""

    builder: ChainBuilder
    blocks: Sequence[Block]

    def _block(self, height: int) -> Block | None:
        return self.blocks[height - 1] if height else None

    def cumulative_work(self, height: int) -> int:
        return self.builder.point_after(self._block(height)).work

    def headers(self, first: int, *, limit: int) -> list[bytes]:
        return [block.header.wire() for block in self.blocks[first - 1 : first - 1 + limit]]

    def history_node(self, first: int, level: int) -> Node:
        if level:
            half = first + (1 << level - 1)
            return join(self.history_node(first, level - 1), self.history_node(half, level - 1))
        work = self.cumulative_work(first) - (self.cumulative_work(first - 1) if first else 0)
        return history_leaf(self.builder.point_after(self._block(first)), work=work)
