"""Whether the stored chain keeps the lists of producers of the network's file (docs/protocol.md 8a).

The lists are no part of the rules hash, so a file that was edited for blocks which exist already shows in nothing else.
"""

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol

from svcd.chain.address import key_hash
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transition import producer_fault

_AT_ONCE: Final = 2_000


class StoredHeaders(Protocol):
    """The canonical headers, or those of a start from a snapshot."""

    def producers(self, first: int, last: int) -> Iterable[tuple[int, bytes, int]]:
        """Height, producer's public key and number of transfers of the blocks from ``first`` to ``last``."""


def check_stored_producers(reader: StoredHeaders, params: NetworkParams, height: int) -> None:
    """Raise Corrupt if a block up to ``height`` is of a producer that the lists of ``params`` do not allow.

    Reads all headers: half a million of them take 4 s. A network without a list of producers costs nothing.
    """
    if not params.producers:
        return
    producer_of = lru_cache(key_hash)
    before: deque[bytes] = deque(maxlen=params.most_blocks_between)
    for first in range(1, height + 1, _AT_ONCE):
        for at, key, _ in reader.producers(first, min(first + _AT_ONCE - 1, height)):
            producer, between = producer_of(key), params.blocks_between_at(at)
            fault = producer_fault(params, height=at, producer=producer, before=[*before][-between:] if between else ())
            if fault:
                raise Corrupt(
                    f"the stored chain breaks the list of producers in the network's file: {fault}; use the file "
                    "with which this chain was made or, if this one is right, move the database away and the node "
                    "fetches the chain again"
                )
            before.append(producer)
