"""Block templates: blocks that lack their participation work (docs/protocol.md 6, 12)."""

from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final

from attrs import evolve, frozen

from svcd.chain.address import key_hash
from svcd.chain.block import Block, Header, block_id, transactions_root
from svcd.chain.difficulty import multiplier, next_target
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.signature import public_key_of, sign
from svcd.chain.transaction import Transfer
from svcd.chain.transition import Workspace, consensus_root, point_after, touched
from svcd.node.chain_view import ChainView
from svcd.node.fee_rates import block_room
from svcd.node.mempool import MempoolEntry

EXPIRY_MARGIN_SECONDS: Final = 600
"""A block includes no transfer that expires sooner: if the block were undone, no other one could include it."""


@frozen
class BlockTemplate:
    """A block that lacks its participation work and the producer's signature."""

    header: Header
    transfers: tuple[Transfer, ...]

    def sealed(self, work_nonce: bytes, seed: bytes) -> Block:
        """The block with ``work_nonce``, signed by the key of ``seed``."""
        signature = sign(seed, block_id(self.header.core_hash, work_nonce))
        return Block(self.header.sealed(work_nonce=work_nonce, signature=signature), self.transfers)


def by_fee_rate(lines: Iterable[Sequence[MempoolEntry]]) -> Iterator[Transfer]:
    """The transfers of all ``lines`` by descending fee rate, each sender's nonces in order.

    ``lines`` are those of Mempool.lines, in the order of their first transfers; no more are consumed than needed.
    """
    in_use: list[_LineInUse] = []
    for line in lines:
        yield from _before(in_use, (-line[0].rate, line[0].sequence))
        yield line[0].transfer
        if len(line) > 1:
            heappush(in_use, (-line[1].rate, line[1].sequence, 1, line))
    yield from _before(in_use, None)


_LineInUse = tuple[int, int, int, Sequence[MempoolEntry]]
"""A line in use: the rank of its next transfer (two numbers), the index of that transfer, and the line."""


def _before(in_use: list[_LineInUse], rank: tuple[int, int] | None) -> Iterator[Transfer]:
    """The transfers of the lines in use that rank before ``rank``, or all of them."""
    while in_use and (rank is None or in_use[0][:2] < rank):
        _, _, index, line = in_use[0]
        yield line[index].transfer
        index += 1
        if index < len(line):
            heapreplace(in_use, (-line[index].rate, line[index].sequence, index, line))
        else:
            heappop(in_use)


def _lasting(
    transfers: Iterable[Transfer], params: NetworkParams, slot: int, returned: Container[bytes]
) -> Iterator[Transfer]:
    """Those of ``transfers`` that a block at ``slot`` should include (docs/protocol.md 12).

    A transfer that is left out leaves no gap: no later transfer of its sender could be in the block.
    """
    lifetime = 1000 * params.transaction_past_seconds
    oldest = params.slot_time(slot) - lifetime
    # A network whose transfers live for minutes only must not lose all of them.
    margin = min(1000 * EXPIRY_MARGIN_SECONDS, lifetime // 2)
    excluded: set[bytes] = set()
    for transfer in transfers:
        earliest = oldest if transfer.txid in returned else oldest + margin
        if transfer.timestamp < earliest:
            excluded.add(transfer.sender)
        if transfer.sender not in excluded:
            yield transfer


def create_template(
    view: ChainView, *, seed: bytes, slot: int, transfers: Iterable[Transfer], returned: Container[bytes] = ()
) -> BlockTemplate:
    """A block on the tip of ``view`` at ``slot`` with those of ``transfers`` that are valid and fit.

    Leaves out transfers that expire within EXPIRY_MARGIN_SECONDS after the slot, except ``returned`` ones, by txid: a
    block that included them has been undone. Applies the block to the accounts of the view. Only for the writer's
    thread.
    """
    params, parent = view.params, view.head.point
    public_key = public_key_of(seed)
    producer = key_hash(public_key)
    room = block_room(params)
    wanted: list[Transfer] = []
    for transfer in _lasting(transfers, params, slot, returned):
        room -= len(transfer.wire) + 1
        if room < 0 or len(wanted) == params.max_block_transactions:
            break
        wanted.append(transfer)
    before = view.state.accounts(touched(wanted, producer))
    workspace = Workspace(params, slot=slot, before=before)
    included = tuple([transfer for transfer in wanted if _applies(workspace, transfer)])
    state_root = view.state.apply(workspace.finish(producer, params.reward(parent.height + 1)))
    draft = Header(
        network_id=params.network_id,
        height=parent.height + 1,
        slot=slot,
        parent_hash=parent.hash,
        producer_key=public_key,
        multiplier=multiplier(params, before.get(producer), slot),
        base_target=next_target(params, height=parent.height + 1, clock=parent.difficulty_clock),
        transactions_root=transactions_root(included),
        transaction_count=len(included),
        state_root=state_root,
        consensus_root=bytes(32),
    )
    root = consensus_root(params, point_after(params, parent, draft), view.head.history.root)
    return BlockTemplate(evolve(draft, consensus_root=root), included)


def _applies(workspace: Workspace, transfer: Transfer) -> bool:
    try:
        workspace.transfer(transfer)
    except RuleViolation:
        # It stays in the mempool, which drops transfers that no later block can include.
        return False
    return True
