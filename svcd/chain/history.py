"""The history tree: a Merkle mountain range over the blocks of a chain and their work (docs/protocol.md 9).

Each header commits, in its consensus root, to the tree over all blocks before it. So a client that knows only the
genesis can check a chain by samples (docs/protocol.md 13).
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from attrs import frozen

from .encoding import decimal_u53, hex_bytes
from .errors import Refusal, RuleViolation

Node = bytes
"""A packed node, NODE_SIZE bytes: its 32-byte digest, then u256 work, u64 slot and u64 clock.

A leaf has the hash of its block as its digest, and the block's own work, slot and difficulty clock. An inner node has
the work of both children together, and slot and clock of the right one.
"""
NODE_SIZE: Final = 80
_WORK: Final = slice(32, 64)
_SLOT: Final = slice(64, 72)
_CLOCK: Final = slice(72, 80)
_SLOT_AND_CLOCK: Final = slice(64, 80)
_WORK_FORM: Final = re.compile("0|[1-9a-f][0-9a-f]{0,63}")
_INNER_TAG: Final = b"svc/history-node/v1\0"
_ROOT_TAG: Final = b"svc/history-root/v1\0"


def pack_node(digest: bytes, *, work: int, slot: int, clock: int) -> Node:
    """A node from its parts; raises OverflowError for a part that is negative or too large for its bytes."""
    return digest + work.to_bytes(32, "big") + slot.to_bytes(8, "big") + clock.to_bytes(8, "big")


def digest_of(node: Node) -> bytes:
    """The 32-byte digest of a node; a leaf's is the hash of its block."""
    return node[:32]


def work_of(node: Node) -> int:
    """The work of the blocks below a node."""
    return int.from_bytes(node[_WORK], "big")


def slot_of(node: Node) -> int:
    """The slot of the last block below a node."""
    return int.from_bytes(node[_SLOT], "big")


def clock_of(node: Node) -> int:
    """The difficulty clock of the last block below a node."""
    return int.from_bytes(node[_CLOCK], "big")


def node_json(node: Node) -> list[str]:
    """A node as in proofs: digest, work in hex without leading zeros, slot and clock as decimal strings."""
    return [digest_of(node).hex(), f"{work_of(node):x}", str(slot_of(node)), str(clock_of(node))]


def parse_node(value: object, what: str) -> Node:
    """The node in a proof; raises RuleViolation(FORMAT)."""
    if type(value) is not list or len(value) != 4:
        raise RuleViolation(Refusal.FORMAT, f"{what} must be an array of digest, work, slot and clock")
    digest, work, slot, clock = value
    if type(work) is not str or not _WORK_FORM.fullmatch(work):
        raise RuleViolation(Refusal.FORMAT, f"the work of {what} must be at most 64 hex characters without a leading 0")
    return pack_node(
        hex_bytes(digest, 32, f"the digest of {what}"),
        work=int(work, 16),
        slot=decimal_u53(slot, f"the slot of {what}"),
        clock=decimal_u53(clock, f"the clock of {what}"),
    )


def join(left: Node, right: Node) -> Node:
    """The inner node over two neighbours; raises OverflowError if their work together is 2^256 or more."""
    work = int.from_bytes(left[_WORK], "big") + int.from_bytes(right[_WORK], "big")
    return sha256(_INNER_TAG + left + right).digest() + work.to_bytes(32, "big") + right[_SLOT_AND_CLOCK]


@frozen
class History:
    """The tree over the first blocks of a chain, as its mountains: a perfect subtree for each set bit of their number.

    Immutable, and small: a chain of a million blocks has at most 20 mountains, and its next block shares most of them.
    """

    blocks: int = 0
    """How many blocks the tree is over, the genesis included."""
    mountains: tuple[Node, ...] = ()
    """From left to right, so the largest first."""

    @property
    def root(self) -> bytes:
        """The 32-byte root, to which the next header commits; zeros over no block."""
        if not self.mountains:
            return bytes(32)
        *others, node = self.mountains
        for mountain in reversed(others):
            node = join(mountain, node)
        return sha256(_ROOT_TAG + node).digest()

    @property
    def work(self) -> int:
        """The cumulative work of the blocks."""
        return sum(map(work_of, self.mountains))

    def completed_by(self, node: Node, level: int = 0) -> list[Node]:
        """The perfect subtrees that ``node`` on the right completes: itself, then its parent, and so on.

        ``node`` is a leaf, or the subtree over the next 2^level blocks if :attr:`blocks` is a multiple of 2^level.
        """
        nodes, merged = [node], 0
        while self.blocks >> level + merged & 1:
            merged += 1
            nodes.append(join(self.mountains[-merged], nodes[-1]))
        return nodes

    def append(self, node: Node, level: int = 0) -> "History":
        """The tree with the blocks of ``node`` on the right, which is as for :meth:`completed_by`."""
        *merged, mountain = self.completed_by(node, level)
        kept = self.mountains[: len(self.mountains) - len(merged)]
        return History(self.blocks + (1 << level), (*kept, mountain))


def mountain_levels(blocks: int) -> list[int]:
    """The levels of the mountains over so many blocks, from left to right; one of level k is over 2^k blocks."""
    return [level for level in reversed(range(blocks.bit_length())) if blocks >> level & 1]


def subtrees_between(first: int, end: int) -> Iterator[tuple[int, int]]:
    """The fewest perfect subtrees over the blocks from height ``first`` to ``end`` - 1: height of the first, level."""
    while first < end:
        level = (first & -first).bit_length() - 1
        while first + (1 << level) > end:
            level -= 1
        yield first, level
        first += 1 << level
