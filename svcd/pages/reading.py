"""Bounded reads of the chain as values for pages; whoever calls has opened a snapshot."""

import json
from itertools import pairwise

from attrs import frozen

from svcd.chain.block import Header, parse_header
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.pages.sources import Sources
from svcd.store.chain_store import Place


@frozen
class BlockLine:
    """A block in a list."""

    hash: bytes
    header: Header
    time: int
    """Unix milliseconds at which its slot begins."""


@frozen
class TransferLine:
    """A transfer in a list; without ``height`` it waits in the mempool."""

    transfer: Transfer
    height: int | None = None
    position: int = 0
    time: int | None = None
    """Unix milliseconds at which its block's slot begins."""


def newest_blocks(sources: Sources, tip: ChainPoint, *, limit: int) -> list[BlockLine]:
    """At most ``limit`` canonical blocks up to ``tip``, the newest first."""
    first = max(tip.height - limit + 1, 0)
    texts = sources.reader.headers(first, limit=tip.height - first + 1)
    headers = [parse_header(json.loads(text), sources.params) for text in reversed(texts)]
    # A header does not say its own hash, but that of its parent: nothing has to be hashed.
    hashes = [tip.hash, *(header.parent_hash for header in headers)]
    return [
        BlockLine(block_hash, header, sources.params.slot_time(header.slot))
        for block_hash, header in zip(hashes, headers, strict=False)
    ]


def transfer_line(sources: Sources, place: Place) -> TransferLine:
    """A canonical transfer from where it was found."""
    point, transfer = place.point, transfer_of(sources, place.body)
    return TransferLine(transfer, point.height, place.position, sources.params.slot_time(point.slot))


def transfer_of(sources: Sources, body: bytes) -> Transfer:
    """The transfer in canonical JSON that the store holds."""
    return parse_transfer(json.loads(body), sources.params)


def gaps(sources: Sources, blocks: list[BlockLine]) -> list[int]:
    """The seconds between each block and the one before it, the oldest first; the genesis begins nothing."""
    slots = [block.header.slot for block in reversed(blocks) if block.header.height]
    return [(later - earlier) * sources.params.slot_seconds for earlier, later in pairwise(slots)]
