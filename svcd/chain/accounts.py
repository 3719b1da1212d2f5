"""Accounts (docs/protocol.md 9)."""

from typing import Final

from attrs import frozen

_NEVER_HELD: Final = 2**64 - 1
KEY_BITS: Final = 160


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
