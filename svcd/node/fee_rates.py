"""Fees per byte, by which miners choose transfers, and the room of a block for them (docs/protocol.md 12)."""

from typing import Final

from svcd.chain.block import HEADER_ROOM
from svcd.chain.params import NetworkParams

RATE_SCALE: Final = 2**20
"""A factor on fees per byte that makes them integers."""
LARGEST_TRANSFER: Final = 600
"""Bytes; no transfer is longer, so a fee for one of this length is enough for every other."""


def fee_for_rate(rate: int, size: int) -> int:
    """The least fee of ``size`` bytes that has at least ``rate``; rates are rounded down."""
    return -(-rate * size // RATE_SCALE)


def block_room(params: NetworkParams) -> int:
    """The bytes of a block that its transfers may take, each with the comma after it."""
    return params.max_block_bytes - HEADER_ROOM
