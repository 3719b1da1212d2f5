"""The state root at the cost of what changed (docs/protocol.md 9).

The top levels of the tree over all accounts are kept in flat byte arrays, 33 bytes a node, about as deep as log2 of the
number of accounts; a node at the deepest level stands for a bucket of a few accounts, which is read again when one of
them changes. No node is stored anywhere else: the tree is a pure function of the accounts, so an undone block or
a rolled-back transaction is repaired by updating the same keys again.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

from svcd.chain.accounts import KEY_BITS, leaf_hash, subtree_root

Row = tuple[bytes, int, int, int | None]
"""An account as it lies on disk: key hash, balance, nonce, held since."""
Scan = Callable[[bytes, bytes], list[Row]]
"""The accounts with first ≤ key hash ≤ last, ascending."""

_ONE: Final = 1
_MANY: Final = 2
_UNKNOWN: Final = 3
_NODE: Final = 32


class Commitment:
    """The tree over all accounts of a chain."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._kinds: list[bytearray] = [bytearray(1)]
        self._nodes: list[bytearray] = [bytearray(_NODE)]

    @property
    def root(self) -> bytes:
        """The 32-byte state root."""
        return bytes(self._nodes[0])

    @property
    def depth(self) -> int:
        """How many levels below the root are kept."""
        return len(self._kinds) - 1

    def load(self, rows: Iterable[Row], count: int) -> None:
        """Build the tree from all ``rows`` in ascending order of key; ``count`` says how many to expect."""
        self._kinds, self._nodes = [], []
        for depth in range(_depth_for(count) + 1):
            self._kinds.append(bytearray(1 << depth))
            self._nodes.append(bytearray(_NODE << depth))
        bucket: list[Row] = []
        index = 0
        shift = KEY_BITS - self.depth
        for row in rows:
            at = int.from_bytes(row[0], "big") >> shift
            if at != index:
                self._put(self.depth, index, bucket)
                bucket, index = [], at
            bucket.append(row)
        self._put(self.depth, index, bucket)
        for depth in range(self.depth - 1, -1, -1):
            self._join(depth, range(1 << depth))

    def update(self, keys: Iterable[bytes], count: int) -> bytes:
        """The state root after the accounts of ``keys`` changed on disk; ``count`` accounts exist now."""
        while self.depth < _depth_for(count):
            # A new level costs no walk: its nodes are unknown until a neighbour changes.
            self._kinds.append(bytearray(bytes([_UNKNOWN])) * (1 << (self.depth + 1)))
            self._nodes.append(bytearray(_NODE << self.depth))
        depth = self.depth
        shift = KEY_BITS - depth
        touched = {int.from_bytes(key, "big") >> shift for key in keys}
        for index in touched:
            self._read(depth, index)
        while depth:
            depth -= 1
            touched = {index >> 1 for index in touched}
            self._join(depth, touched)
        return self.root

    def _read(self, depth: int, index: int) -> None:
        shift = KEY_BITS - depth
        first = index << shift
        last = first + (1 << shift) - 1
        self._put(depth, index, self._scan(first.to_bytes(20, "big"), last.to_bytes(20, "big")))

    def _put(self, depth: int, index: int, rows: list[Row]) -> None:
        leaves = [(int.from_bytes(row[0], "big"), leaf_hash(*row)) for row in rows]
        self._kinds[depth][index] = min(len(leaves), _MANY)
        self._nodes[depth][index * _NODE : (index + 1) * _NODE] = subtree_root(leaves, depth)

    def _join(self, depth: int, indexes: Iterable[int]) -> None:
        """Compute the nodes ``indexes`` at ``depth`` from their two children each."""
        kinds, nodes = self._kinds[depth], self._nodes[depth]
        below_kinds, below = self._kinds[depth + 1], self._nodes[depth + 1]
        for index in indexes:
            left = 2 * index
            kind = below_kinds[left] + below_kinds[left + 1]
            if kind >= _UNKNOWN and _UNKNOWN in (below_kinds[left], below_kinds[left + 1]):
                for child in (left, left + 1):
                    if below_kinds[child] == _UNKNOWN:
                        self._read(depth + 1, child)
                kind = below_kinds[left] + below_kinds[left + 1]
            at = left * _NODE
            if kind <= _ONE:
                # A subtree of one account is its leaf at any depth, and the empty side is all zeros.
                start = at if below_kinds[left] else at + _NODE
                node = bytes(below[start : start + _NODE])
            else:
                node = sha256(b"\1" + below[at : at + 2 * _NODE]).digest()
            kinds[index] = kind if kind < _MANY else _MANY
            nodes[index * _NODE : (index + 1) * _NODE] = node


def _depth_for(count: int) -> int:
    return max(count.bit_length() - 2, 0)
