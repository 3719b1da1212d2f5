"""Rebuilds the chain's database from its stored blocks: accounts, undo records, indexes and roots."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from attrs import frozen

from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.chain.transition import check_header
from svcd.cli.operator.verify_chain import BAD_BLOCK, Replay
from svcd.node.chainstate import Chainstate, least_side_work
from svcd.node.changes import BlockStatus, CheckedBlock
from svcd.store.chain_store import ChainWriter, StoredBlock
from svcd.store.offline_database import Inspector, errors_as_corrupt

T = TypeVar("T")
BATCH: Final = 64
"""Blocks in one commit."""


@frozen(kw_only=True)
class ReindexResult:
    """What the new database has."""

    height: int
    tip: bytes
    side: int
    """Blocks copied that are not canonical."""
    unread: tuple[str, ...]
    """Other parts of the old database that could not be copied, one sentence each."""
    lost: int
    """Blocks of the old chain from the first damaged one on."""
    why: str
    """What is wrong with that block; "" if none is damaged."""


def reindex(old: Inspector, new: ChainWriter, params: NetworkParams, step: Callable[[int], object]) -> ReindexResult:
    """Execute the canonical blocks of ``old`` into the empty database ``new``, and copy the rest.

    Stops before the first damaged block; the tip may then be that of another branch, which has more work.
    ``step`` is called with the number of further blocks done. Raises Corrupt if ``old`` has no block.
    """
    chainstate = Chainstate(params, new)
    chainstate.load()
    with errors_as_corrupt():
        tip = old.existing_tip()
    replay, why = Replay(params, old), ""
    while not why and chainstate.tip.height < tip.height:
        batch, why = _next_blocks(replay, min(BATCH, tip.height - chainstate.tip.height))
        why = _connect(chainstate, batch) or why
        step(len(batch))
    lost = tip.height - chainstate.tip.height
    unread: list[str] = []
    side_blocks = _readable(old.side_blocks, "blocks beside the chain", unread)
    side = sum(_copy_side_block(old, chainstate, stored) for stored in side_blocks)
    _copy_disconnected(_readable(old.disconnected, "transfers of undone blocks", unread), new, params)
    top = chainstate.tip
    return ReindexResult(height=top.height, tip=top.hash, side=side, unread=tuple(unread), lost=lost, why=why)


def _readable(rows: Callable[[], Iterable[T]], what: str, unread: list[str]) -> list[T]:
    """The ``rows``, or none and a sentence about ``what`` in ``unread``; no block of the chain depends on them."""
    try:
        with errors_as_corrupt():
            return list(rows())
    except Corrupt as error:
        unread.append(f"{what}: {error}")
        return []


def _next_blocks(replay: Replay, count: int) -> tuple[list[CheckedBlock], str]:
    """Up to ``count`` blocks, and what is wrong with the next one, or ""."""
    batch: list[CheckedBlock] = []
    for _ in range(count):
        height = replay.at.point.height + 1
        try:
            with errors_as_corrupt():
                stored = replay.reader.existing(height)
                batch.append(CheckedBlock(*replay.read(stored)))
        except BAD_BLOCK as error:
            return batch, f"block {height}: {error}"
        replay.at = batch[-1].head
    return batch, ""


def _connect(chainstate: Chainstate, batch: list[CheckedBlock]) -> str:
    """Execute blocks; gives what is wrong with the first invalid one, or ""."""
    if not batch:
        return ""
    for candidate, outcome in zip(batch, chainstate.connect(batch).outcomes, strict=True):
        if outcome is not BlockStatus.CONNECTED:
            return f"block {candidate.point.height}: {outcome}"
    return ""


def _copy_side_block(old: Inspector, chainstate: Chainstate, stored: StoredBlock) -> bool:
    """Store a block that is not canonical; gives whether it could be."""
    parent, params = chainstate.store.stored(stored.parent), chainstate.params
    try:
        if parent is None:
            raise Corrupt("its parent is not there")
        if stored.point.work < least_side_work(params, chainstate.tip):
            raise Corrupt("a running node would not keep it")
        with errors_as_corrupt():
            block = old.block(stored, params)
        block.header.check_signature()
        block.check_body()
        head = check_header(params, chainstate.store.head(parent, params), block.header)
    except BAD_BLOCK:
        return False
    return chainstate.connect([CheckedBlock(block, head)]).outcomes[0] in (BlockStatus.SIDE, BlockStatus.CONNECTED)


def _copy_disconnected(rows: Iterable[tuple[int, bytes]], new: ChainWriter, params: NetworkParams) -> None:
    """Copy the undamaged transfers of undone blocks, which the mempool may not have yet."""
    found: list[Transfer] = []
    for _, body in rows:
        try:
            transfer = parse_canonical_transfer(body, params)
            transfer.check_signature()
        except BAD_BLOCK:
            continue
        found.append(transfer)
    with new.commit():
        new.save_disconnected(found)
