"""What rows of the chain's tables are read into."""

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from svcd.chain.transition import ChainPoint

POINT: Final = "b.hash, b.height, b.slot, b.clock, b.work, b.issued"
"""The columns of a block, named b, that :func:`point_of` reads."""


@frozen
class StoredBlock:
    """A block as it lies on disk: where it stands, and its canonical JSON in two pieces."""

    id: int
    parent: bytes
    point: ChainPoint
    header: bytes


@frozen
class Place:
    """Where a transfer stands on the canonical chain, with the transfer."""

    point: ChainPoint
    position: int
    body: bytes


def stored_of(row: Sequence[object]) -> StoredBlock:
    """A block from its id, parent, header and the columns of POINT."""
    number, parent, header, *point = row
    return StoredBlock(number, parent, point_of(point), header)  # type: ignore[arg-type]


def point_of(row: Sequence[object]) -> ChainPoint:
    """The chain variables after a block from the columns of POINT."""
    block_hash, height, slot, clock, work, issued = row
    return ChainPoint(
        hash=block_hash,  # type: ignore[arg-type]
        height=height,  # type: ignore[arg-type]
        slot=slot,  # type: ignore[arg-type]
        clock=clock,  # type: ignore[arg-type]
        work=int.from_bytes(work, "big"),  # type: ignore[arg-type]
        issued=issued,  # type: ignore[arg-type]
    )


def place_of(row: Sequence[object]) -> Place:
    """A transfer's place from its position, body and the columns of POINT."""
    position, body, *point = row
    return Place(point_of(point), position, body)  # type: ignore[arg-type]
