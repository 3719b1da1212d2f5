"""Blocks of our own: which transfers go in, and the header that commits to what they lead to (docs/protocol.md 12)."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final

from attrs import evolve, frozen

from svcd.chain.address import key_hash
from svcd.chain.block import Block, Header, block_id, transactions_root
from svcd.chain.difficulty import next_target
from svcd.chain.errors import RuleViolation
from svcd.chain.holding import multiplier
from svcd.chain.signature import public_key_of, sign
from svcd.chain.transaction import Transfer
from svcd.chain.transition import Workspace, consensus_root, extend, touched
from svcd.node.connector import ChainView
from svcd.node.mempool import Entry

_HEADER_ROOM: Final = 1_280
"""More bytes than any block has beside its transactions."""


@frozen
class Proposal:
    """A block that lacks its participation work and the producer's signature."""

    header: Header
    transfers: tuple[Transfer, ...]

    def sealed(self, work_nonce: bytes, seed: bytes) -> Block:
        """The block with its work nonce, signed by the key of ``seed``."""
        signature = sign(seed, block_id(self.header.core_hash, work_nonce))
        return Block(self.header.sealed(work_nonce=work_nonce, signature=signature), self.transfers)


def by_fee(lines: Iterable[Sequence[Entry]]) -> Iterator[Transfer]:
    """The transfers of every sender's line, the greatest fee per byte first, each sender's nonces in order.

    The lines come in the order of their first transfers (Mempool.lines), and only as many are asked for as are needed.
    """
    begun: list[_Begun] = []
    for line in lines:
        yield from _before(begun, (-line[0].rate, line[0].sequence))
        yield line[0].transfer
        if len(line) > 1:
            heappush(begun, (-line[1].rate, line[1].sequence, 1, line))
    yield from _before(begun, None)


_Begun = tuple[int, int, int, Sequence[Entry]]
"""What is next of a line of which the first transfers are taken: how it ranks, its index, and the line."""


def _before(begun: list[_Begun], rank: tuple[int, int] | None) -> Iterator[Transfer]:
    """The transfers of begun lines that come before one of such a ``rank``, or all of them."""
    while begun and (rank is None or begun[0][:2] < rank):
        _, _, index, line = begun[0]
        yield line[index].transfer
        index += 1
        if index < len(line):
            heapreplace(begun, (-line[index].rate, line[index].sequence, index, line))
        else:
            heappop(begun)


def assemble(view: ChainView, *, seed: bytes, slot: int, transfers: Iterable[Transfer]) -> Proposal:
    """A block on the tip of ``view`` at ``slot`` with those of ``transfers`` that apply and fit.

    The accounts of the view are then those after it. Only for the writer's thread, which the view is of.
    """
    params, parent = view.params, view.tip
    public_key = public_key_of(seed)
    producer = key_hash(public_key)
    room = params.max_block_bytes - _HEADER_ROOM
    wanted: list[Transfer] = []
    for transfer in transfers:
        room -= len(transfer.wire) + 1
        if room < 0 or len(wanted) == params.max_block_transactions:
            break
        wanted.append(transfer)
    with view.reading():
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
        base_target=next_target(params, height=parent.height + 1, clock=parent.clock),
        transactions_root=transactions_root(included),
        transaction_count=len(included),
        state_root=state_root,
        consensus_root=bytes(32),
    )
    root = consensus_root(params, extend(params, parent, draft))
    return Proposal(evolve(draft, consensus_root=root), included)


def _applies(workspace: Workspace, transfer: Transfer) -> bool:
    try:
        workspace.transfer(transfer)
    except RuleViolation:
        # It waits: a transfer may become possible in a later block, and the mempool lets go of what cannot.
        return False
    return True
