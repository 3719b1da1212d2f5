"""A chain's database made anew from its stored blocks: accounts, undo records, indexes and roots."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from attrs import frozen

from svcd.chain.encoding import parse_wire_object
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.transition import check_place, extend
from svcd.node.changes import Candidate, Standing
from svcd.node.checking import BAD_BLOCK, Replay
from svcd.node.connector import Connector
from svcd.store.chain_store import ChainWriter, StoredBlock
from svcd.store.inspection import Inspector, unreadable_is_corrupt

T = TypeVar("T")
BATCH: Final = 64
"""Blocks in one commit."""


@frozen(kw_only=True)
class Rebuilt:
    """What the new database holds."""

    height: int
    tip: bytes
    side: int
    """Blocks taken along that were not canonical."""
    unread: tuple[str, ...]
    """What else of the old file could not be taken along, a sentence each."""
    lost: int
    """Blocks of the old chain from the first that is not what it was."""
    why: str
    """What was wrong with that one; empty if none was."""


def rebuild(old: Inspector, new: ChainWriter, params: NetworkParams, step: Callable[[int], object]) -> Rebuilt:
    """Execute the canonical blocks of ``old`` again, into the empty database ``new``, and take the rest along.

    It ends before the first block that is not what it was; where another branch is the greater one then, with that.
    ``step`` is called with the number of blocks done since. Raises Corrupt if ``old`` holds no block.
    """
    connector = Connector(params, new)
    connector.load()
    with unreadable_is_corrupt():
        tip = old.tip()
    if tip is None:
        raise Corrupt("the database holds no block")
    replay, why = Replay(params, old), ""
    while not why and connector.tip.height < tip.height:
        batch, why = _next_blocks(replay, min(BATCH, tip.height - connector.tip.height))
        why = _connect(connector, batch) or why
        step(len(batch))
    lost = tip.height - connector.tip.height
    unread: list[str] = []
    side_blocks = _readable(old.side_blocks, "blocks beside the chain", unread)
    side = sum(_is_taken(old, connector, stored) for stored in side_blocks)
    _take_returned(_readable(old.returned, "transfers of undone blocks", unread), new, params)
    top = connector.tip
    return Rebuilt(height=top.height, tip=top.hash, side=side, unread=tuple(unread), lost=lost, why=why)


def _readable(rows: Callable[[], Iterable[T]], what: str, unread: list[str]) -> list[T]:
    """``rows``, or none and a sentence about ``what`` in ``unread``: no block of the chain depends on them."""
    try:
        with unreadable_is_corrupt():
            return list(rows())
    except Corrupt as error:
        unread.append(f"{what}: {error}")
        return []


def _next_blocks(replay: Replay, count: int) -> tuple[list[Candidate], str]:
    """Up to ``count`` blocks, and what is wrong with the one behind them."""
    batch: list[Candidate] = []
    for _ in range(count):
        height = replay.at.height + 1
        try:
            with unreadable_is_corrupt():
                stored = replay.stored(height)
                batch.append(Candidate(replay.read(stored), stored.point))
        except BAD_BLOCK as error:
            return batch, f"block {height}: {error}"
        replay.at = stored.point
    return batch, ""


def _connect(connector: Connector, batch: list[Candidate]) -> str:
    """Execute blocks; gives what is wrong with the first that cannot be."""
    if not batch:
        return ""
    for candidate, outcome in zip(batch, connector.connect(batch).outcomes, strict=True):
        if outcome is not Standing.CONNECTED:
            return f"block {candidate.point.height}: {outcome}"
    return ""


def _is_taken(old: Inspector, connector: Connector, stored: StoredBlock) -> bool:
    """Whether a block that is not canonical could be stored again."""
    parent = connector.store.point(stored.parent)
    try:
        if parent is None:
            raise Corrupt("its parent is not there")
        with unreadable_is_corrupt():
            block = old.block(stored, connector.params)
        block.header.check_signature()
        block.check_body()
        check_place(connector.params, parent, block.header)
    except BAD_BLOCK:
        return False
    point = extend(connector.params, parent, block.header)
    return connector.connect([Candidate(block, point)]).outcomes[0] in (Standing.SIDE, Standing.CONNECTED)


def _take_returned(rows: Iterable[tuple[int, int, bytes]], new: ChainWriter, params: NetworkParams) -> None:
    """Put the transfers of undone blocks that are what they were into ``new``: the mempool may lack them yet."""
    found: list[tuple[int, Transfer]] = []
    for _, sequence, body in rows:
        try:
            transfer = parse_transfer(parse_wire_object(body), params)
            transfer.check_signature()
        except BAD_BLOCK:
            continue
        found.append((sequence, transfer))
    with new.commit():
        new.keep_returned(found)
