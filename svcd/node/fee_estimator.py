"""The fee that a transfer needs now, from the newest blocks and the floor of the mempool (docs/http.md).

Pure functions of the mempool and of the fees that :meth:`svcd.store.chain_store.ChainReader.newest_fees` reads.
"""

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from svcd.chain.params import NetworkParams
from svcd.node.mempool import Mempool

RECENT_BLOCKS: Final = 10
"""How many of the newest blocks the fees are taken from."""
LARGEST_TRANSFER: Final = 600
"""Bytes; no transfer is longer, so a fee for one of this length is enough for every other."""
_ABOVE_FLOOR: Final = (11, 10)
"""The suggested fee lies above the floor by this factor, since the floor of a full mempool rises."""


@frozen
class RecentFees:
    """The fees in the newest blocks, in base units; None where these hold no transfer."""

    transactions: int
    lowest: int | None
    median: int | None
    highest: int | None


def recent_fees(fees: Iterable[int]) -> RecentFees:
    """The summary of ``fees``; of an even number of them the median is the higher one in the middle."""
    ordered = sorted(fees)
    if not ordered:
        return RecentFees(0, None, None, None)
    return RecentFees(len(ordered), ordered[0], ordered[len(ordered) // 2], ordered[-1])


def mempool_floor(mempool: Mempool, params: NetworkParams) -> int | None:
    """The least fee that lets any transfer into the mempool; None if nothing can be evicted."""
    floor = mempool.floor(LARGEST_TRANSFER)
    return None if floor is None else max(floor, params.minimum_fee)


def suggested_fee(mempool: Mempool, params: NetworkParams, recent: RecentFees) -> int:
    """A fee that lets a transfer into the mempool and, as far as the newest blocks show, into a block soon.

    The network's minimum while the mempool has room and all its transfers fit into one block.
    """
    floor, fee = mempool.floor(LARGEST_TRANSFER) or 0, params.minimum_fee
    if len(mempool) >= params.max_block_transactions or mempool.size + LARGEST_TRANSFER > params.max_block_bytes:
        fee = max(fee, recent.median or 0)
    numerator, denominator = _ABOVE_FLOOR
    return max(fee, -(-floor * numerator // denominator))
