"""The fee that a transfer needs now, by what waits in the mempool (docs/http.md)."""

from typing import Final

from attrs import define, field

from svcd.node.block_template import by_fee_rate
from svcd.node.chain_manager import ChainManager
from svcd.node.fee_rates import LARGEST_TRANSFER, RATE_SCALE, block_room, fee_for_rate
from svcd.node.mempool import Mempool

_STEPS: Final = 20
"""After a change by one block in so many, the transfers of the next block are chosen again."""


@define
class Fees:
    """The fees that a mempool asks for, in base units, enough for a transfer of any size; for the reactor's thread.

    To choose the transfers of the next block among 50,000 takes 8 ms, so it is done once for each tip and each
    twentieth of a block that the mempool grows or shrinks by.
    """

    _chain_manager: ChainManager
    _mempool: Mempool
    _chosen: tuple[tuple[bytes, int], int] | None = field(init=False, default=None)
    """The tip and the size of the mempool at the last choice, and the fee rate that it gave."""

    def floor(self) -> int | None:
        """The least fee that lets a transfer into the mempool; None if nothing can be evicted."""
        floor = self._mempool.floor(LARGEST_TRANSFER)
        return None if floor is None else max(floor, self._chain_manager.params.minimum_fee)

    def suggested(self) -> int:
        """The network's minimum while the next block has room, otherwise what gets into it, and into the mempool."""
        params = self._chain_manager.params
        return max(fee_for_rate(self._rate(), LARGEST_TRANSFER), self.floor() or 0, params.minimum_fee)

    def has_room(self) -> bool:
        """Whether the next block takes all that waits, and one more transfer of any size."""
        return self._rate() == 0

    def _rate(self) -> int:
        """The least fee rate that gets into the next block; 0 while that has room."""
        params, mempool = self._chain_manager.params, self._mempool
        waiting = len(mempool)
        if waiting < params.max_block_transactions and (
            mempool.size + waiting + LARGEST_TRANSFER + 1 <= block_room(params)
        ):
            return 0
        basis = self._chain_manager.tip.hash, waiting * _STEPS // params.max_block_transactions
        if self._chosen is None or self._chosen[0] != basis:
            self._chosen = basis, self._choose()
        return self._chosen[1]

    def _choose(self) -> int:
        """Above the least rate of the transfers that fill the next block; 0 if they leave room for another one."""
        params = self._chain_manager.params
        room, least = block_room(params) - LARGEST_TRANSFER - 1, 0
        for count, transfer in enumerate(by_fee_rate(self._mempool.lines()), 1):
            rate = transfer.fee * RATE_SCALE // len(transfer.wire)
            least = rate if count == 1 else min(least, rate)
            room -= len(transfer.wire) + 1
            if room < 0 or count == params.max_block_transactions:
                return least + 1
        return 0
