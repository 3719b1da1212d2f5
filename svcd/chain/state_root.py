"""The state root by its definition: the commitment to all accounts (docs/protocol.md 9)."""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import Final, TypeAlias

from .accounts import KEY_BITS, Account, pack_held_since
from .errors import DAMAGE_ADVICE, Corrupt

Leaf: TypeAlias = tuple[int, bytes]
"""The key hash as a number, and the hash of the account."""
LEAF: Final = Struct(">x20sQQQ")
"""What the hash of an account is of: its key hash, balance, nonce and held since."""
_EMPTY: Final = bytes(32)
_EMPTY_LEFT: Final = b"\1" + _EMPTY
_NEVER_HELD: Final = pack_held_since(None)


def leaf_hash(key20: bytes, balance: int, nonce: int, held_since: int | None) -> bytes:
    """The 32-byte commitment to one account; raises Corrupt if one of the numbers does not fit into 64 bits."""
    try:
        packed = LEAF.pack(key20, balance, nonce, _NEVER_HELD if held_since is None else held_since)
    except struct.error:
        raise damaged() from None
    return sha256(packed).digest()


def subtree_root(leaves: Sequence[Leaf], depth: int) -> bytes:
    """The 32-byte root over ``leaves``, which ascend and share their first ``depth`` bits."""
    return root_of(leaves, 0, len(leaves), depth)


def state_root(accounts: Iterable[tuple[bytes, Account]]) -> bytes:
    """The root over all ``accounts`` by definition; the state tree computes it from the changed accounts."""
    leaves = [
        (int.from_bytes(key, "big"), leaf_hash(key, account.balance, account.nonce, account.held_since))
        for key, account in accounts
    ]
    return subtree_root(sorted(leaves), 0)


def root_of(leaves: Sequence[Leaf], begin: int, end: int, depth: int) -> bytes:
    """The same over the leaves from index ``begin`` to ``end`` - 1."""
    if end - begin < 2:
        return leaves[begin][1] if end > begin else _EMPTY
    # The leaves are split at the first bit in which they differ; above that bit they are all on one side.
    first, left = leaves[begin]
    last, right = leaves[end - 1]
    at = common_bits(first, last)
    # Most sides have one leaf, for which no function is called: a full block asks for some 30,000 nodes.
    if end - begin > 2:
        middle = middle_of(leaves, begin, end, at)
        if middle - begin > 1:
            left = root_of(leaves, begin, middle, at + 1)
        if end - middle > 1:
            right = root_of(leaves, middle, end, at + 1)
    node = sha256(b"\1" + left + right).digest()
    return node if at == depth else lifted(node, first, at, depth)


def common_bits(key: int, other: int) -> int:
    """How many bits two keys begin with that are the same."""
    return KEY_BITS - (key ^ other).bit_length()


def middle_of(leaves: Sequence[tuple[int, bytes | None]], begin: int, end: int, at: int) -> int:
    """The index of the first leaf whose bit ``at`` is 1; before that bit, all are the same."""
    below = KEY_BITS - 1 - at
    boundary = (leaves[begin][0] >> below | 1) << below
    return bisect_left(leaves, (boundary,), begin, end)


def lifted(node: bytes, key: int, depth: int, to: int) -> bytes:
    """The hash at the lesser depth ``to`` over the accounts of a node at ``depth``, two or more; ``key`` is of one."""
    if depth == to:
        return node
    for bit in f"{key:0160b}"[to:depth][::-1]:
        node = sha256(_EMPTY_LEFT + node if bit == "1" else b"\1" + node + _EMPTY).digest()
    return node


def damaged() -> Corrupt:
    """The error for accounts on disk whose hash is not the one that is known of them."""
    return Corrupt(f"accounts on disk do not have the hash that the state tree has for them: {DAMAGE_ADVICE}")
