"""Accounts and the commitment to all of them (docs/protocol.md 9)."""

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct
from typing import Final

from attrs import frozen

_NEVER_HELD: Final = 2**64 - 1
KEY_BITS: Final = 160
_LEAF: Final = Struct(">x20sQQQ")
_EMPTY: Final = bytes(32)


@frozen
class Account:
    """The state of an address: ``balance`` in base units, ``nonce`` transfers sent, ``held_since`` a slot or None."""

    balance: int = 0
    nonce: int = 0
    held_since: int | None = None


def pack_held_since(held_since: int | None) -> int:
    """The unsigned 64-bit number for ``held_since`` in leaves, chunks of snapshots and undo records."""
    return _NEVER_HELD if held_since is None else held_since


def unpack_held_since(number: int) -> int | None:
    """The inverse of :func:`pack_held_since`."""
    return None if number == _NEVER_HELD else number


def leaf_hash(key20: bytes, balance: int, nonce: int, held_since: int | None) -> bytes:
    """The 32-byte commitment to one account."""
    return sha256(_LEAF.pack(key20, balance, nonce, pack_held_since(held_since))).digest()


def subtree_root(leaves: list[tuple[int, bytes]], depth: int) -> bytes:
    """The root over sorted ``leaves``, pairs (key as a number, leaf hash), that share their first ``depth`` bits."""
    if len(leaves) < 2:
        return leaves[0][1] if leaves else _EMPTY
    # The leaves are split at the highest bit in which they differ; above that bit they are all on one side.
    first = leaves[0][0]
    height = (first ^ leaves[-1][0]).bit_length() - 1
    split, below = 1, KEY_BITS - height
    while not leaves[split][0] >> height & 1:
        split += 1
    left = leaves[0][1] if split == 1 else subtree_root(leaves[:split], below)
    right = leaves[-1][1] if split == len(leaves) - 1 else subtree_root(leaves[split:], below)
    node = sha256(b"\1" + left + right).digest()
    for bit in range(height + 1, KEY_BITS - depth):
        node = sha256(b"\1" + _EMPTY + node if first >> bit & 1 else b"\1" + node + _EMPTY).digest()
    return node


def state_root(accounts: Iterable[tuple[bytes, Account]]) -> bytes:
    """The root over all ``accounts`` by definition; svcd.chain.commitment computes it from the changed accounts."""
    leaves = [
        (int.from_bytes(key, "big"), leaf_hash(key, account.balance, account.nonce, account.held_since))
        for key, account in accounts
    ]
    return subtree_root(sorted(leaves), 0)
