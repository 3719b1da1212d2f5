"""The newest blocks with their sizes and fees, each block read once, and the blocks that lost to them."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.bounded_dict import BoundedDict
from svcd.chain.block import Header, parse_header
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node.chain_manager import ChainManager
from svcd.store.chain_store import BlockFigures, ChainReader, StoredBlock
from svcd.web.responses import Cached

SHOWN: Final = 50
"""The newest blocks that are kept."""
REPLACED: Final = 6
"""Blocks that lost that are kept."""
_TRANSFERS_AT_ONCE: Final = 4_000
"""Transfers whose fees the reactor's thread may read, two full blocks: a millisecond each."""
_BLOCKS_AT_ONCE: Final = 4
"""Blocks that a thread reads before others may use it."""
_REMEMBERED: Final = 2 * SHOWN


@frozen
class BlockRow:
    """A block in a table."""

    hash: bytes
    header: Header
    time: int
    """Start of the block's slot, in Unix milliseconds."""


@frozen
class NewestBlocks:
    """The newest blocks up to ``tip``, newest first, and blocks that lost to one of them."""

    tip: ChainPoint
    blocks: Sequence[BlockRow]
    replaced: Sequence[BlockRow]

    def intervals(self, params: NetworkParams) -> list[int]:
        """Seconds between consecutive blocks, oldest first; the genesis is left out, since nobody mined it."""
        slots = [block.header.slot for block in reversed(self.blocks) if block.header.height]
        return [(later - earlier) * params.slot_seconds for earlier, later in pairwise(slots)]


def canonical_blocks(
    reader: ChainReader, params: NetworkParams, tip: ChainPoint, *, before: int, limit: int
) -> list[BlockRow]:
    """The ``limit`` highest blocks below the height ``before`` of the chain that ends in ``tip``, newest first."""
    end = min(before, tip.height + 1)
    first = max(end - limit, 0)
    texts = reader.headers(first, limit=end - first + 1)
    headers = [parse_header(json.loads(text), params) for text in reversed(texts)]
    # Each header holds the hash of its parent, so no header has to be hashed.
    hashes = [header.parent_hash for header in headers]
    if end > tip.height:
        hashes.insert(0, tip.hash)
    else:
        del headers[0]
    return [_row(block_hash, header, params) for block_hash, header in zip(hashes, headers, strict=False)]


class RecentBlocks:
    """Reads the newest blocks once for each tip; for the reactor's thread."""

    log = Logger()

    def __init__(self, chain_manager: ChainManager) -> None:
        self.revision = 0
        """Changes when figures arrive that were missing."""
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._newest: Cached[NewestBlocks] = Cached()
        self._figures: BoundedDict[bytes, BlockFigures] = BoundedDict(_REMEMBERED)
        self._asked_for: BoundedDict[bytes, BlockFigures] = BoundedDict(_REMEMBERED)
        """Of other blocks, so that these do not push out the newest."""
        self._reading = False

    def newest(self) -> NewestBlocks:
        """The newest blocks of the commit that the reader sees; starts reading what is missing of their figures."""
        reader = self._chain_manager.reader
        with reader.snapshot():
            tip = reader.existing_tip()
            newest = self._newest.get(tip.hash, lambda: self._read(reader, tip))
            # A node that started from a snapshot has no figures of the blocks before.
            first = reader.prune_height()
            missing = [
                block for block in newest.blocks if block.hash not in self._figures and block.header.height >= first
            ]
            counts = accumulate(block.header.transaction_count for block in missing)
            few = sum(count <= _TRANSFERS_AT_ONCE for count in counts)
            self._figures.update(_figures_of(reader, missing[:few]))
        if len(missing) > few and not self._reading:
            self._reading = True
            reading = Deferred.fromCoroutine(self._read_figures(missing[few:]))
            reading.addErrback(lambda failure: self.log.failure("reading the figures of blocks failed", failure))
        return newest

    def figures(self, block: BlockRow) -> BlockFigures | None:
        """Size and fees of a block that :meth:`newest` has given; None if they are being read."""
        return self._figures.get(block.hash)

    def figures_of(self, block: StoredBlock) -> BlockFigures:
        """Size and fees of any stored block, read once while people look at it."""
        block_hash = block.point.hash
        found = self._figures.get(block_hash) or self._asked_for.get(block_hash)
        if found is None:
            found = self._asked_for[block_hash] = self._chain_manager.reader.figures(block)
        return found

    def _read(self, reader: ChainReader, tip: ChainPoint) -> NewestBlocks:
        params = self._params
        blocks = canonical_blocks(reader, params, tip, before=tip.height + 1, limit=SHOWN)
        lost = [
            _row(stored.point.hash, reader.block_header(stored, params), params)
            for stored in reader.replaced_blocks(blocks[-1].header.height, limit=REPLACED)
        ]
        return NewestBlocks(tip, blocks, lost)

    async def _read_figures(self, missing: Sequence[BlockRow]) -> None:
        try:
            for start in range(0, len(missing), _BLOCKS_AT_ONCE):
                # A few at a time: others wait for long reads, too.
                some = missing[start : start + _BLOCKS_AT_ONCE]
                self._figures.update(
                    await self._chain_manager.long_reads.ask(lambda reader, some=some: _figures_of(reader, some))  # type: ignore[misc]
                )
        finally:
            self._reading = False
            self.revision += 1


def _row(block_hash: bytes, header: Header, params: NetworkParams) -> BlockRow:
    return BlockRow(block_hash, header, params.slot_time(header.slot))


def _figures_of(reader: ChainReader, blocks: Sequence[BlockRow]) -> dict[bytes, BlockFigures]:
    first = reader.prune_height()
    stored_blocks = (reader.stored(block.hash) for block in blocks if block.header.height >= first)
    found = [stored for stored in stored_blocks if stored is not None]
    return {stored.point.hash: reader.figures(stored) for stored in found}
