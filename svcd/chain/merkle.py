"""Merkle trees as in RFC 6962 section 2.1: roots over the transactions of a block (docs/protocol.md 5)."""

from collections.abc import Sequence
from hashlib import sha256


def leaf_hash(data: bytes) -> bytes:
    """The hash of one leaf."""
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return sha256(b"\1" + left + right).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The 32-byte root over ``leaves``; without leaves it is the SHA-256 of the empty string.

    Pairing neighbours and carrying an odd last node up gives the same tree as splitting at the largest power of two.
    """
    level = [leaf_hash(leaf) for leaf in leaves]
    if not level:
        return sha256(b"").digest()
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            paired.append(level[-1])
        level = paired
    return level[0]


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The audit path of leaf ``index``: the siblings from the leaf up to the root (RFC 6962 section 2.1.1).

    Raises IndexError where there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(f"there is no leaf {index} among {len(leaves)}")
    level = [leaf_hash(leaf) for leaf in leaves]
    path = []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            path.append(level[sibling])
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            paired.append(level[-1])
        level, index = paired, index // 2
    return path


def root_of_path(leaf: bytes, *, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that an audit path leads to for leaf ``index`` of ``size``, or None if the path has the wrong length."""
    if not 0 <= index < size:
        return None
    node, last, steps = leaf_hash(leaf), size - 1, iter(path)
    while last:
        if index % 2 or index < last:
            sibling = next(steps, None)
            if sibling is None:
                return None
            node = node_hash(sibling, node) if index % 2 else node_hash(node, sibling)
        index, last = index // 2, last // 2
    return node if next(steps, None) is None else None
